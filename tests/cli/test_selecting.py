"""Several pipelines in one command: selected, in order, told before and after. On the memory store, no JVM."""

import pytest

from twice.project import Project

SHOP = """
from pathlib import Path

import twice

ROOT = Path(__file__).parents[1]
DAYS = {"every": "1 day", "start": "2024-10-07", "end": "2024-10-09"}


def rows(run):
    day = run.execution_time.date()
    return [{"id": word, "day": day} for word in (ROOT / f"in/{day}.txt").read_text().split()]


def words(run):
    return (ROOT / f"in/{run.execution_time.date()}.txt").read_text()


LINES = twice.source(rows, fingerprint=words)
SLICE = twice.data_overwrite(slice="day")


@twice.pipeline(source=twice.table("memory:lake/daily"), target="memory:lake/report", pattern=twice.data_overwrite())
def report(rows):
    return rows


@twice.pipeline(source=twice.table("memory:lake/visits"), target="memory:lake/daily", pattern=SLICE, tags="nightly", **DAYS)
def daily(rows, run):
    return [row for row in rows if row["day"] == run.execution_time.date()]


@twice.pipeline(source=LINES, target="memory:lake/visits", pattern=SLICE, tags=["nightly", "landing"], **DAYS)
def visits(rows):
    if any(row["id"] == "broken" for row in rows):
        raise ValueError("no luck")
    return rows


@twice.pipeline(source=LINES, target="memory:lake/orders", pattern=SLICE, tags=["landing"], **DAYS)
def orders(rows):
    return rows
"""
DAYS = ("2024-10-07", "2024-10-08")
ALL = ("--from", DAYS[0], "--to", "2024-10-09")
CHAIN = ["visits", "visits", "daily", "daily", "report"]


@pytest.fixture
def shop(memory, tmp_path):
    (tmp_path / "pipelines/shop.py").write_text(SHOP)
    for day in DAYS:
        (tmp_path / f"in/{day}.txt").write_text("a b")
    return tmp_path


def told(said):
    """Return what is said of each slot, in order: its pipeline and what became, or would become, of it."""
    lines = [line for line in (said.out + said.err).splitlines() if line.startswith("[")]
    return [(line.split()[1], line.split("  ")[1].split()[0].rstrip(":")) for line in lines]


def attempts():
    return Project.open().ledger.attempts()


# ------------------------------------------------------------------ run


def test_what_is_due_of_a_selection_is_run_upstream_first(twice, shop, memory):
    said = twice("run", "--select", "visits+", "--due")
    assert (said.code, told(said)) == (0, [(name, "published") for name in CHAIN])
    assert not memory.look("lake/orders").exists


def test_one_slot_of_each_selected_pipeline_is_run_upstream_first(twice, shop, memory):
    said = twice("run", "--select", "tag:nightly report", "--at", DAYS[1])
    assert (said.code, told(said)) == (0, [(name, "published") for name in ("visits", "daily", "report")])
    assert [row["id"] for row in memory.read("lake/report")] == ["a", "b"]
    again = twice("run", "--exclude", "orders", "--at", DAYS[1], "--output", "json")
    assert [one["state"] for one in again.json["outcomes"]] == ["skipped"] * 3


def test_a_selection_without_a_time_is_asked_for_one(twice, shop):
    said = twice("run", "--select", "tag:landing")
    assert (said.code, said.out, attempts()) == (2, "", [])
    assert "Use --at 2024-10-08T00:00Z for the newest closed interval, or --due" in said.err
    assert twice("run", "--select", "report").code == 1  # the table that it reads is not there
    said = twice("run", "--select", "report", "--at", DAYS[0])
    assert (said.code, "has no calendar" in said.err) == (2, True)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_time_that_one_of_them_does_not_have_starts_none(twice, shop, command):
    said = twice(command, "--select", "visits+", "--at", "2024-10-09")
    assert (said.code, said.out, attempts()) == (2, "", [])
    assert "lies after the calendar" in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--due"),
        ("run", "--at", DAYS[0]),
        ("plan", "--due"),
        ("backfill", *ALL),
        ("check", "--quick"),
        ("prove",),
        ("list",),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("option", ["--select", "--exclude"])
def test_every_command_refuses_a_selector_that_matches_nothing(twice, shop, words, option):
    said = twice(*words, *([option] if words[0] != "backfill" else ["-s", "*", option]), "tag:nihgtly")
    assert (said.code, said.out, attempts()) == (2, "", [])
    assert "'tag:nihgtly' matches no pipeline." in said.err
    assert "Did you mean 'tag:nightly'?" in said.err


def test_what_reads_a_table_that_lacks_a_slot_is_not_started(twice, shop, memory):
    (shop / f"in/{DAYS[1]}.txt").write_text("broken")
    said = twice("run", "--select", "visits+ orders", "--at", DAYS[1])
    assert (said.code, sorted(told(said))) == (1, [("orders", "published"), ("visits", "failed")])
    assert "daily  not started: memory:lake/visits, which it reads, lacks slots of visits that did not" in said.out
    assert "report  not started: memory:lake/daily" in said.out
    assert said.out.endswith("1 published, 0 skipped, 1 failed, 2 not reached\n")


# ------------------------------------------------------------------ plan --due


def test_plan_due_tells_what_run_due_does_and_writes_nothing(twice, shop, memory):
    said = twice("plan", "--due")
    assert (said.code, said.out.count("create: "), said.out.splitlines()[-1]) == (0, 7, "Nothing was written.")
    assert "report (the only slot)  create: memory:lake/daily, which it reads, is published first" in said.out
    assert not (shop / ".twice").exists()
    ahead = [(name, "published") for name, _ in told(said)]
    assert ahead == told(twice("run", "--due"))


def test_plan_due_tells_what_is_done_again_since_something_upstream_is_published_first(twice, shop, memory):
    twice("run", "--due")
    assert [what for _, what in told(twice("plan", "--due"))] == ["skip"] * 7
    (shop / f"in/{DAYS[0]}.txt").write_text("a")
    said = twice("plan", "--select", "visits+", "--due", "--output", "json")
    actions = [(one["action"], one["reason"].split(",")[0]) for one in said.json["slots"]]
    assert actions == [
        ("replace", "the inputs changed"),
        ("skip", "published"),
        ("replace", "memory:lake/visits"),
        ("replace", "memory:lake/visits"),
        ("replace", "memory:lake/daily"),
    ]
    assert (said.code, said.json["dry_run"], said.json["counts"]) == (0, True, {"replace": 4, "skip": 1})
    asked = twice("run", "--select", "visits+", "--due")
    assert (asked.code, "1 of 2 slots would be replaced" in asked.err) == (2, True)
    done = twice("run", "--select", "visits+", "--due", "--yes", "--output", "json").json["outcomes"]
    assert [one["state"] for one in done] == ["published", "skipped", "published", "published", "published"]


def test_plan_due_has_the_exit_code_of_run_due(twice, shop, memory):
    (shop / f"in/{DAYS[1]}.txt").unlink()
    said = twice("plan", "--select", "visits", "--due")
    assert (said.code, told(said)) == (
        twice("run", "visits", "--due").code,
        [("visits", "create"), ("visits", "refused")],
    )


RETRIES = ("SLICE = twice", 'AGAIN = twice.retries(tries=2, wait="1 day", wait_at_most="1 day")\nSLICE = twice')


def test_plan_due_leaves_alone_what_waits_for_its_retry_as_run_due_does(twice, shop):
    text = SHOP.replace(*RETRIES).replace('tags=["nightly", "landing"]', "retries=AGAIN")
    (shop / "pipelines/shop.py").write_text(text)
    (shop / f"in/{DAYS[0]}.txt").write_text("broken")
    twice("run", "visits", "--at", DAYS[0])
    said = twice("plan", "visits", "--due")
    assert (said.code, told(said)[0]) == (4, ("visits", "held"))
    assert "failed and is due again at" in said.out
    assert twice("run", "visits", "--due").code == 4


# ------------------------------------------------------------------ backfill


def test_a_backfill_of_several_fills_what_others_read_first(twice, shop, memory):
    said = twice("backfill", "report", "daily", "visits", *ALL)
    assert (said.code, told(said)) == (0, [(name, "published") for name in CHAIN])
    assert said.out.endswith("5 published, 0 skipped, 0 failed\n")
    assert not memory.look("lake/orders").exists


def test_a_dry_run_of_several_shows_all_and_writes_nothing(twice, shop, memory):
    said = twice("backfill", "--select", "visits+", *ALL, "--dry-run")
    assert (said.code, told(said)) == (0, [(name, "create") for name in CHAIN])
    assert not (shop / ".twice").exists()
    made = twice("backfill", "--select", "visits+", *ALL, "--dry-run", "--output", "json").json
    assert (made["counts"], made["publish"], made["busy"]) == ({"create": 5}, None, None)


def test_a_backfill_of_several_ends_with_the_worst_and_tells_what_was_published(twice, shop, memory):
    (shop / f"in/{DAYS[1]}.txt").write_text("broken")
    said = twice("backfill", "--select", "*", *ALL, "--output", "json")
    assert (said.code, len(said.json["outcomes"])) == (1, 3)
    counts = {state: found["slots"] for state, found in said.json["counts"].items() if found["slots"]}
    assert counts == {"published": 3, "failed": 1, "not_reached": 3}
    assert "daily  not started" in said.err
    ahead = twice("backfill", "daily", "visits", *ALL, "--dry-run")
    assert (ahead.code, told(ahead)[1]) == (0, ("visits", "create"))


def test_a_backfill_of_several_asks_before_the_first_is_started(twice, shop, memory):
    twice("backfill", "--select", "visits+", *ALL)
    version = memory.look("lake/visits").version
    (shop / f"in/{DAYS[0]}.txt").write_text("a")
    said = twice("backfill", "--select", "visits+", *ALL)
    assert (said.code, memory.look("lake/visits").version) == (2, version)
    assert twice("backfill", "--select", "visits+", *ALL, "--yes").out.endswith("4 published, 1 skipped, 0 failed\n")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "Which pipelines?"),
        (("report",), "has no calendar, so there is nothing to backfill"),
        (("visits", "vists"), "There is no pipeline 'vists'"),
    ],
)
def test_a_backfill_of_what_cannot_be_filled_starts_nothing(twice, shop, words, what):
    said = twice("backfill", *words, *ALL)
    assert (said.code, said.out, attempts()) == (2, "", [])
    assert what in said.err


# ------------------------------------------------------------------ looking


def test_list_and_check_follow_a_selection(twice, shop):
    assert [row["name"] for row in twice("list", "-s", "+daily", "--output", "json").json["pipelines"]] == [
        "daily",
        "visits",
    ]
    assert "nightly landing" in twice("list").out
    assert twice("check", "--quick", "--select", "tag:landing", "--output", "json").json["pipelines"] == [
        "visits",
        "orders",
    ]
