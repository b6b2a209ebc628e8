"""Scenario 91: rows that cannot be used are set aside, counted, read again after a fix, and never lost or doubled."""

import json

import pytest

import twice
from inboxes import COLUMN, Inbox
from twice.cli import main
from twice.errors import NotPublished
from twice.faults import Died, armed, dying_at
from twice.intakes import replay
from twice.quarantine import rows_of
from twice.sources.files import Files

pytestmark = [pytest.mark.spark, pytest.mark.stores("parquet", "delta", "postgres")]

DAY = "2024-09-20"
GOOD = '{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n'
BAD = '{"id": null, "n": 3}\n{"id": "c", "n": "three"}\n{"id": "d", "n": -1}\n'
SETTINGS = {"schema": "id string NOT NULL, n int", "source": {"rules": [twice.rule("n >= 0")], "max_quarantined": 10}}


@pytest.fixture
def make_inbox(kind, spark, tmp_path, new_database):
    """Return a maker of ingests that read with Spark, also into PostgreSQL."""
    count = 0

    def make(**settings):
        nonlocal count
        count += 1
        return Inbox(tmp_path / f"inbox{count}", kind, spark, database=new_database(), **{**SETTINGS, **settings})

    return make


@pytest.fixture
def inbox(make_inbox):
    return make_inbox()


def aside_of(inbox):
    receipt = inbox.sight().receipt(inbox.pipeline.slot().text)
    return [(row.file, row.line, row.reason) for row in rows_of(inbox.store, inbox.target, receipt.aside)]


def test_91_poison_rows_are_set_aside_and_counted(inbox):
    inbox.drop_in_text("a.jsonl", GOOD + BAD)
    outcome = inbox.run()
    assert (outcome.rows, outcome.parsed, outcome.quarantined) == (2, 5, 3)
    assert inbox.ids() == "ab"
    found = aside_of(inbox)
    assert [(file, line) for file, line, _ in found] == [("landing/a.jsonl", line) for line in (3, 4, 5)]
    assert "id" in found[0][2]
    assert "n" in found[1][2]
    assert "n >= 0" in found[2][2]
    assert inbox.marks()["a.jsonl"].rows == 2
    again = inbox.run()
    assert (again.state, again.quarantined) == ("skipped", 3)
    assert aside_of(inbox) == found


def test_91_a_replay_after_a_fix_publishes_each_row_once(make_inbox, inbox):
    inbox.drop_in_text("a.jsonl", GOOD + BAD)
    inbox.run()
    inbox.drop_in_text("b.jsonl", '{"id": "e", "n": 5}\n')
    inbox.run()
    assert len(aside_of(inbox)) == 3
    inbox.source = {"max_quarantined": 10}
    outcome = replay(inbox.project, inbox.pipeline, inbox.pipeline.slot())
    assert (outcome.rows, outcome.parsed, outcome.quarantined) == (1, 3, 2)
    assert inbox.ids() == "abde"
    assert {name: (mark.rows, mark.generation) for name, mark in inbox.marks().items()} == {
        "a.jsonl": (3, 1),
        "b.jsonl": (1, 2),
    }
    assert [line for _, line, _ in aside_of(inbox)] == [3, 4]
    assert replay(inbox.project, inbox.pipeline, inbox.pipeline.slot()).rows == 0
    assert inbox.ids() == "abde"
    assert inbox.run().state == "skipped"


def test_91_a_replay_brings_back_nothing_of_a_content_that_was_replaced(make_inbox):
    inbox = make_inbox(source={**SETTINGS["source"], "file_column": COLUMN, "on_changed_file": "replace"})
    inbox.drop_in_text("a.jsonl", GOOD + BAD)
    inbox.run()
    inbox.drop_in_text("a.jsonl", '{"id": "x", "n": 1}\n{"id": "y", "n": -1}\n')
    inbox.run()
    assert len(aside_of(inbox)) == 4
    inbox.source = {**inbox.source, "rules": []}
    outcome = replay(inbox.project, inbox.pipeline, inbox.pipeline.slot())
    assert (outcome.rows, inbox.ids(), aside_of(inbox)) == (1, "xy", [])
    assert inbox.marks()["a.jsonl"].rows == 2
    assert inbox.run().state == "skipped"


def test_91_over_the_limit_nothing_is_visible(make_inbox):
    inbox = make_inbox(source={**SETTINGS["source"], "max_quarantined": 2})
    inbox.drop_in_text("a.jsonl", GOOD + BAD)
    with pytest.raises(NotPublished, match=r"3 .*rows"):
        inbox.run()
    assert inbox.records() == []
    assert inbox.states() == {"a.jsonl": "failed"}


def test_91_a_death_sets_nothing_aside_twice(inbox):
    inbox.drop_in_text("a.jsonl", GOOD + BAD)
    for point in ("aside.kept", "marks.kept", "publish.after"):
        with armed(dying_at(point)), pytest.raises(Died):
            inbox.run()
        inbox.reopen()
    outcome = inbox.run()
    assert (outcome.state, outcome.quarantined, inbox.ids()) == ("skipped", 3, "ab")
    assert len(aside_of(inbox)) == 3


def test_the_file_column_goes_with_the_good_rows(make_inbox):
    inbox = make_inbox(source={**SETTINGS["source"], "file_column": COLUMN, "on_changed_file": "replace"})
    inbox.drop_in_text("odd name+%20.jsonl", GOOD + BAD)
    inbox.run()
    assert inbox.table_rows("id", COLUMN) == [(one, "landing/odd name+%20.jsonl") for one in "ab"]
    inbox.drop_in_text("odd name+%20.jsonl", '{"id": "z", "n": 1}\n')
    inbox.run()
    assert inbox.ids() == "z"


@pytest.mark.stores("parquet")
def test_rows_without_a_key_are_set_aside_before_a_merge(make_inbox):
    inbox = make_inbox(pattern=twice.merger(keys=["id"]), schema="id string, n int", source={"max_quarantined": "50%"})
    inbox.drop_in_text("a.jsonl", GOOD + '{"id": null, "n": 1}\n')
    assert (inbox.run().quarantined, inbox.ids()) == (1, "ab")


@pytest.mark.stores("parquet", "delta")
def test_a_slot_sets_rows_aside_and_a_correction_takes_their_place(make_world, kind, spark):
    world = make_world()
    source = Files("landing/{execution_date}.jsonl", schema="id string, day date", max_quarantined=5)
    pipeline = twice.pipeline(
        name="out",
        every="1 day",
        start="2024-09-01",
        source=source,
        target=f"{kind}:{world.target}",
        pattern=world.pattern,
    )(lambda rows: rows)

    def put(lines):
        (world.folder / f"landing/{DAY}.jsonl").write_text("".join(line + "\n" for line in lines))

    put([json.dumps({"id": "a", "day": DAY}), '{"id": "b", "day":'])
    outcome = twice.run(pipeline, at=DAY, project=world.project)
    assert (outcome.rows, outcome.parsed, outcome.quarantined) == (1, 2, 1)
    again = twice.run(pipeline, at=DAY, project=world.project, force=True)
    assert (again.generation, again.quarantined) == (2, 1)
    put([json.dumps({"id": one, "day": DAY}) for one in "ab"])
    corrected = twice.run(pipeline, at=DAY, project=world.project)
    assert (corrected.rows, corrected.quarantined) == (2, 0)
    assert world.sight().receipt(pipeline.slot(DAY).text).aside == ()


@pytest.fixture
def said(inbox, capsys, monkeypatch):
    """Return a caller of commands in the project of an inbox, whose source is declared with the given arguments."""

    def declare(more=""):
        (inbox.folder / "twice.toml").write_text("")
        (inbox.folder / "pipelines").mkdir()
        (inbox.folder / "pipelines/inbox.py").write_text(
            "import twice\n"
            "@twice.pipeline(source=twice.files('landing/*.jsonl', schema='id string NOT NULL, n int', track=True,\n"
            f"    rules=[twice.rule('n >= 0')], max_quarantined=10{more}),\n"
            "    target='parquet:lake/inbox', pattern=twice.transactional_writer())\n"
            "def inbox(rows):\n    return rows\n"
        )
        monkeypatch.chdir(inbox.folder)
        return say

    def say(*words):
        code = main([*words, "--output", "json"])
        assert code == 0, words
        return json.loads(capsys.readouterr().out)

    return declare


@pytest.mark.stores("parquet")
def test_a_person_looks_at_them_reads_them_again_and_drops_them(inbox, said, capsys):
    said = said()
    inbox.drop_in_text("a.jsonl", GOOD + BAD)
    assert said("run", "inbox")["outcome"]["quarantined"] == 3
    assert [one["rows"] for one in said("quarantine", "list")["quarantine"]] == [3]
    assert [row["line"] for row in said("quarantine", "show", "inbox")["rows"]] == [3, 4, 5]
    assert [one["state"] for one in said("files", "list", "inbox")["files"]] == ["published"]
    text = (inbox.folder / "pipelines/inbox.py").read_text()
    (inbox.folder / "pipelines/inbox.py").write_text(text.replace("n >= 0", "n >= -5"))
    assert said("quarantine", "replay", "inbox")["outcome"]["rows"] == 1
    assert said("quarantine", "drop", "inbox", "--yes")["dropped"] == 2
    assert [one["state"] for one in said("quarantine", "list")["quarantine"]] == ["dropped"]
    assert said("quarantine", "show", "inbox") | {"schema_version": 1} == {"schema_version": 1, "rows": [], "count": 0}
    assert main(["files", "show", "inbox", "landing/a.jsonl"]) == 0
    assert "published" in capsys.readouterr().out


@pytest.mark.stores("parquet")
def test_rows_of_a_content_that_was_replaced_are_told_apart_from_those_that_wait(inbox, said):
    said = said(", file_column='origin', on_changed_file='replace'")
    inbox.drop_in_text("a.jsonl", GOOD + BAD)
    said("run", "inbox")
    inbox.drop_in_text("a.jsonl", '{"id": "x", "n": 1}\n{"id": "y", "n": -1}\n')
    said("run", "inbox", "--yes")
    listed = said("quarantine", "list")["quarantine"]
    assert [(one["generation"], one["rows"], one["state"]) for one in listed] == [(1, 3, "replaced"), (2, 1, "held")]
    shown = said("quarantine", "show", "inbox")
    assert ([row["line"] for row in shown["rows"]], shown["count"]) == ([2], 1)
