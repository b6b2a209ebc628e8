"""What a person sees of many slots: a look ahead, progress, a summary, an order. On the memory store, no JVM."""

import os
import pty
import subprocess
import sys

import pytest

from twice.cli.progress import time_left
from twice.faults import armed
from twice.project import Project
from worlds import once_at

DAYS = [f"2024-10-{day:02}" for day in range(7, 12)]
ALL = ("--from", DAYS[0], "--to", "2024-10-12")
PIPELINES = """
from pathlib import Path

import twice

ROOT = Path(__file__).parents[1]
DAYS = {"every": "1 day", "start": "2024-10-07", "end": "2024-10-12"}


def words(run):
    return (ROOT / f"in/{run.execution_time.date()}.txt").read_text().split()


def rows(run):
    return [{"id": word, "day": run.execution_time.date()} for word in words(run)]


LINES = twice.source(rows, fingerprint=words)


@twice.pipeline(source=LINES, target="memory:lake/visits", pattern=twice.data_overwrite(slice="day"), **DAYS)
def visits(rows):
    if any(row["id"] == "broken" for row in rows):
        raise ValueError("no luck")
    return rows


@twice.pipeline(source=LINES, target="memory:lake/devices", pattern=twice.stateful_merger(keys=["id"]), **DAYS)
def devices(rows):
    return rows


@twice.pipeline(source=twice.files("in/{execution_date}.json", schema="id string", ready="next"),
                target="memory:lake/patient", pattern=twice.data_overwrite(slice="id"), **DAYS)
def patient(rows):
    return rows
"""
CHAIN = """
import twice

DAYS = {"every": "1 day", "start": "2024-10-07", "end": "2024-10-09"}
GIVEN = twice.source(lambda run: [{"day": run.execution_time.date(), "id": "a"}], fingerprint="{execution_date} 1")


@twice.pipeline(source=twice.table("memory:lake/middle"), target="memory:lake/end", pattern=twice.data_overwrite())
def end(rows):
    return rows


@twice.pipeline(source=twice.table("memory:lake/first"), target="memory:lake/middle", pattern=PATTERN, **DAYS)
def middle(rows, run):
    return [row for row in rows if row["day"] == run.execution_time.date()]


@twice.pipeline(source=GIVEN, target="memory:lake/first", pattern=twice.data_overwrite(slice="day"), **DAYS)
def first(rows):
    return rows
"""


@pytest.fixture
def folder(memory, tmp_path):
    (tmp_path / "pipelines/many.py").write_text(PIPELINES)
    for day in DAYS:
        put(tmp_path, day, f"of-{day}", "all")
    return tmp_path


def put(folder, day, *words):
    (folder / f"in/{day}.txt").write_text(" ".join(words))


def attempts(**wanted):
    return Project.open().ledger.attempts(**wanted)


def actions(said):
    return [slot["action"] for slot in said.json["slots"]]


# ------------------------------------------------------------------ a look ahead


def test_a_dry_run_says_for_every_slot_what_would_happen_and_writes_nothing(twice, folder, memory):
    twice("backfill", "visits", "--from", DAYS[0], "--to", DAYS[2])
    put(folder, DAYS[1], "corrected")
    (folder / f"in/{DAYS[3]}.txt").unlink()
    before, known = memory.look("lake/visits"), attempts()
    said = twice("backfill", "visits", *ALL, "--dry-run")
    lines = said.out.splitlines()
    assert said.code == 1
    assert lines[:3] == [
        "[1/5] visits 2024-10-07T00:00Z  skip: published, and the inputs are the same",
        "[2/5] visits 2024-10-08T00:00Z  replace: the inputs changed (generation 2)",
        "[3/5] visits 2024-10-09T00:00Z  create: the first run of this slot (generation 1)",
    ]
    assert lines[3].startswith("[4/5] visits 2024-10-10T00:00Z  refused: ")
    assert lines[4].startswith("[5/5] visits 2024-10-11T00:00Z  create: ")
    assert [line.split() for line in lines[5:10]] == [
        ["would", "slots"],
        ["skip", "1"],
        ["replace", "1"],
        ["create", "2"],
        ["refused", "1"],
    ]
    assert lines[-1] == "Nothing was written."
    assert (memory.look("lake/visits"), attempts()) == (before, known)


def test_a_dry_run_makes_no_ledger_and_needs_no_yes(twice, folder):
    said = twice("backfill", "visits", *ALL, "--dry-run", "--force", "--output", "json")
    assert (said.code, actions(said), said.json["counts"]) == (0, ["create"] * 5, {"create": 5})
    assert list(said.json) == ["schema_version", "dry_run", "slots", "publish", "busy", "counts"]
    assert not (folder / ".twice").exists()


def test_a_dry_run_tells_what_waits(twice, folder):
    for day in DAYS[:2]:
        (folder / f"in/{day}.json").write_text("{}\n")
    said = twice("backfill", "patient", *ALL, "--dry-run", "--output", "json")
    assert (said.code, actions(said)) == (1, ["create", "wait", "wait", "wait", "wait"])
    assert "no file of the next interval" in said.json["slots"][1]["reason"]


def test_a_dry_run_of_one_publish_says_what_it_does(twice, folder, memory):
    twice("backfill", "devices", "--from", DAYS[0], "--to", DAYS[4])
    first = memory.look("lake/devices").version
    put(folder, DAYS[2], "corrected")
    twice("run", "devices", "--at", DAYS[4])
    said = twice("backfill", "devices", "--from", DAYS[1], "--to", DAYS[4], "--dry-run")
    assert said.code == 0
    assert said.out.splitlines()[:7] == [
        "[1/3] devices 2024-10-08T00:00Z  skip: published, and the inputs are the same",
        "[2/3] devices 2024-10-09T00:00Z  replay: the inputs changed (generation 2)",
        "[3/3] devices 2024-10-10T00:00Z  replay: it builds on 2024-10-09T00:00Z, in the same publish (generation 2)",
        "one publish of 2024-10-07T00:00Z to 2024-10-11T00:00Z (5 slots)",
        "  starts from an empty table, and does 2024-10-07T00:00Z, 2024-10-08T00:00Z again as published",
        f"  commits: 1; readers see version {first + 1} until the commit, then all of it",
        f"  to undo it: twice restore memory:lake/devices {first + 1}",
    ]
    publish = twice("backfill", "devices", *ALL, "--dry-run", "--output", "json").json["publish"]
    assert (len(publish["slots"]), publish["commits"], publish["version_before"]) == (5, 1, first + 1)
    assert publish["starts_from"]["version"] is None
    assert len(publish["starts_from"]["applied_again"]) == 2
    assert publish["undo"] == f"twice restore memory:lake/devices {first + 1}"
    done = twice("backfill", "devices", *ALL, "--yes", "--output", "json")
    assert (done.code, memory.look("lake/devices").version) == (0, first + 2)
    assert done.json["counts"]["published"]["slots"] == 3


def test_a_dry_run_of_a_first_publish_has_nothing_to_go_back_to(twice, folder):
    said = twice("backfill", "devices", *ALL, "--dry-run")
    assert "merge: the first run of this slot, in the same publish (generation 1)" in said.out
    assert "there is no version before it to go back to" in said.out
    only = twice("backfill", "devices", "--from", DAYS[0], "--to", DAYS[1], "--dry-run", "--output", "json").json
    assert only["publish"]["readers_see"] == "no table until the commit, then all of it"
    assert only["publish"]["undo"] is None


def test_a_dry_run_of_one_publish_ends_at_a_slot_that_cannot_be_done(twice, folder):
    (folder / f"in/{DAYS[2]}.txt").unlink()
    said = twice("backfill", "devices", *ALL, "--dry-run", "--output", "json")
    assert (said.code, actions(said)) == (1, ["merge", "merge", "refused", "refused", "refused"])
    assert said.json["slots"][4]["reason"] == "the backfill would end at 2024-10-09T00:00Z"
    assert len(said.json["publish"]["slots"]) == 2
    done = twice("backfill", "devices", *ALL, "--output", "json")
    assert (done.code, done.json["counts"]["not_reached"]["slots"]) == (1, 2)
    again = twice("backfill", "devices", *ALL, "--dry-run", "--output", "json")
    assert (actions(again), again.json["publish"]) == (["skip", "skip", "refused", "refused", "refused"], None)


# ------------------------------------------------------------------ which slots


def test_missing_and_failed_on_the_command_line(twice, folder):
    put(folder, DAYS[1], "broken")
    assert twice("backfill", "visits", "--from", DAYS[0], "--to", DAYS[3]).code == 1
    put(folder, DAYS[1], "mended")
    ahead = twice("backfill", "visits", *ALL, "--failed", "--dry-run")
    assert ahead.out.startswith("[1/1] visits 2024-10-08T00:00Z  create")
    assert twice("backfill", "visits", *ALL, "--failed").out.endswith("1 published, 0 skipped, 0 failed\n")
    assert twice("backfill", "visits", *ALL, "--missing").out.endswith("2 published, 0 skipped, 0 failed\n")
    nothing = twice("backfill", "visits", *ALL, "--missing", "--failed")
    assert (nothing.code, nothing.out.splitlines()[0]) == (0, "No slot of the stretch is to be done.")


def test_jobs_on_the_command_line(twice, folder):
    said = twice("backfill", "visits", *ALL, "--jobs", "3")
    assert (said.code, said.out.splitlines()[-1]) == (0, "5 published, 0 skipped, 0 failed")
    assert sorted(line.split()[2] for line in said.out.splitlines()[:5]) == [f"{day}T00:00Z" for day in DAYS]
    refused = twice("backfill", "devices", *ALL, "--jobs", "2")
    assert (refused.code, refused.out) == (2, "")
    assert "all that are to be done are one publish" in refused.err
    assert twice("backfill", "visits", *ALL, "--jobs", "0").code == 2


# ------------------------------------------------------------------ someone else at work


def test_a_backfill_is_refused_with_4_while_a_slot_of_it_is_run(twice, folder):
    said = []

    def meanwhile():
        said.append(twice("backfill", "visits", *ALL))
        said.append(twice("backfill", "visits", *ALL, "--dry-run"))

    with armed(once_at("stage.before", meanwhile)):
        assert twice("run", "visits", "--at", DAYS[2]).code == 0
    (attempt,) = attempts()
    refused, ahead = said
    assert (refused.code, refused.out) == (4, "")
    assert f"Busy: 2024-10-09T00:00Z of visits is being run now by attempt {attempt.attempt}" in refused.err
    assert "Nothing was started." in refused.err
    assert ahead.code == 4
    assert f"refused now: 2024-10-09T00:00Z of visits is being run now by attempt {attempt.attempt}" in ahead.out


# ------------------------------------------------------------------ progress and summary


def test_the_summary_is_a_table_of_states(twice, folder):
    twice("run", "visits", "--at", DAYS[0])
    put(folder, DAYS[1], "broken")
    said = twice("backfill", "visits", *ALL)
    assert [line.split() for line in said.out.splitlines()[-5:-1]] == [
        ["state", "slots", "rows"],
        ["published", "3", "6"],
        ["skipped", "1", "2"],
        ["failed", "1", "0"],
    ]
    counts = twice("backfill", "visits", *ALL, "--output", "json").json["counts"]
    assert counts["skipped"] == {"slots": 4, "rows": 8}
    assert list(counts) == ["published", "skipped", "waiting", "failed", "not_reached"]


def test_elsewhere_than_on_a_terminal_there_is_one_line_for_each_slot(twice, folder):
    said = twice("backfill", "visits", *ALL)
    assert [line[:5] for line in said.out.splitlines()[:5]] == [f"[{number}/5]" for number in range(1, 6)]
    assert said.err == ""


def on_a_terminal(folder, *words, stdout=None, **environment):
    """Run a command whose standard error, and by default also its output, is a terminal; return what that shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "twice", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=stdout or theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment},
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:
        pass  # the other side is closed
    os.close(ours)
    return process.wait(), shown.decode()


def test_on_a_terminal_there_is_a_bar_and_the_failures_stand_above_it(folder):
    put(folder, DAYS[1], "broken")
    code, shown = on_a_terminal(folder, "backfill", "visits", *ALL)
    assert code == 1
    assert "━" in shown
    assert "5/5" in shown
    assert "visits 2024-10-08T00:00Z  failed: The rows of" in shown
    assert "[1/5]" not in shown
    assert "4 published, 0 skipped, 1 failed" in shown


def test_a_bar_leaves_the_answer_in_a_file_alone(folder, tmp_path):
    with (tmp_path / "answer").open("w") as answer:
        _, shown = on_a_terminal(folder, "backfill", "visits", *ALL, stdout=answer)
    assert "5/5" in shown
    lines = (tmp_path / "answer").read_text().splitlines()
    assert [line[:5] for line in lines[:5]] == [f"[{number}/5]" for number in range(1, 6)]
    assert lines[-1] == "5 published, 0 skipped, 0 failed"


def test_a_terminal_that_cannot_draw_gets_lines(folder):
    code, shown = on_a_terminal(folder, "backfill", "visits", *ALL, TERM="dumb")
    assert (code, "━" in shown, "[5/5] visits 2024-10-11T00:00Z  published" in shown) == (0, False, True)


@pytest.mark.parametrize(
    ("elapsed", "worked", "left", "told"),
    [
        (10.0, 0, 5, ""),
        (10.0, 5, 0, ""),
        (10.0, 5, 5, "about 10 s left"),
        (60.0, 2, 10, "about 5 min left"),
        (3600.0, 2, 5, "about 2.5 h left"),
    ],
)
def test_the_time_that_is_left_is_judged_by_slots_that_took_work(elapsed, worked, left, told):
    assert time_left(elapsed, worked, left) == told


# ------------------------------------------------------------------ upstream first


@pytest.fixture
def chain(memory, tmp_path):
    """Write a project of three pipelines, each of which reads what the next one in the file writes."""

    def write(pattern='twice.data_overwrite(slice="day")', **changes):
        text = CHAIN.replace("PATTERN", pattern)
        for old, new in changes.values():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "pipelines/chain.py").write_text(text)

    write()
    return write


def done(said):
    lines = [line for line in said.out.splitlines() if line.startswith("[")]
    return [(line.split()[1], line.split("  ")[1].split()[0]) for line in lines]


def test_due_fills_what_others_read_first(twice, chain, memory):
    said = twice("run", "--due")
    assert said.code == 0
    assert done(said) == [(name, "published") for name in ("first", "first", "middle", "middle", "end")]
    assert len(memory.read("lake/end")) == 2
    assert twice("run", "--due").out.endswith("0 published, 5 skipped, 0 failed\n")


NEW = ("{execution_date} 1", "{execution_date} 2")


def test_due_asks_before_anything_starts_also_for_what_is_replaced_downstream(twice, chain, memory):
    twice("run", "first", "--at", DAYS[0])
    twice("run", "middle", "--at", DAYS[0])
    before = memory.look("lake/first").version
    said = twice("run", "--due")
    assert said.code == 2
    assert "1 of 2 slots would be replaced: 2024-10-07T00:00Z" in said.err
    assert "memory:lake/first, which it reads, is published first" in said.err
    assert memory.look("lake/first").version == before
    assert done(twice("run", "--due", "--yes"))[2] == ("middle", "published")


def test_due_does_not_ask_for_what_keeps_its_rows(twice, chain):
    chain(pattern='twice.merger(keys=["id"])', end=("memory:lake/end", "memory:lake/other"))
    twice("run", "first", "--at", DAYS[0])
    twice("run", "middle", "--at", DAYS[0])
    assert twice("run", "--due").code == 0


def test_a_pinned_version_follows_nothing(twice, chain):
    chain(pin=('twice.table("memory:lake/first")', 'twice.table("memory:lake/first", version=0)'))
    twice("run", "first", "--at", DAYS[0])
    twice("run", "middle", "--at", DAYS[0])
    twice("run", "end")
    assert twice("status", "middle", "--output", "json").json["pipelines"][0]["stale"] == []
    twice("run", "first", "--at", DAYS[1])
    assert twice("status", "middle", "--output", "json").json["pipelines"][0]["stale"] == []


def test_pipelines_that_read_each_other_have_no_order(twice, chain):
    chain(circle=("source=GIVEN", 'source=twice.query("SELECT * FROM e", tables={"e": "memory:lake/end"})'))
    said = twice("run", "--due")
    assert (said.code, said.out) == (2, "")
    assert "read each other's targets" in said.err
    assert all(name in said.err for name in ("'first'", "'middle'", "'end'"))
    assert twice("run", "first", "--due").code != 2


def test_status_names_what_is_stale_downstream(twice, chain):
    twice("run", "--due")
    assert "stale:" not in twice("status").out
    chain(new=NEW)
    twice("run", "first", "--at", DAYS[0], "--yes")
    said = twice("status")
    assert said.code == 0
    assert "middle is stale: 2024-10-07T00:00Z, 2024-10-08T00:00Z, made from other inputs" in said.out
    assert "end is stale" not in said.out
    found = {row["pipeline"]: row["stale"] for row in twice("status", "--output", "json").json["pipelines"]}
    assert found == {"end": [], "middle": ["2024-10-07T00:00Z", "2024-10-08T00:00Z"], "first": ["2024-10-08T00:00Z"]}
    twice("run", "--due", "--yes")
    assert "stale:" not in twice("status").out


def test_status_looks_at_a_table_once_however_many_slots_read_it(twice, chain, memory, monkeypatch):
    twice("run", "--due")
    looked, look = [], memory.look
    monkeypatch.setattr(memory, "look", lambda name: (looked.append(name), look(name))[1])
    twice("status", "middle")
    assert looked == ["lake/middle", "lake/first"]


def test_status_of_a_slot_whose_inputs_cannot_be_told_says_nothing_of_it(twice, chain, memory):
    twice("run", "--due")
    memory._tables.pop("lake/first")
    assert twice("status", "middle", "--output", "json").json["pipelines"][0]["stale"] == []
