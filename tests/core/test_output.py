"""How does the command line speak of rows, of counts, and of how far it is?"""

import sys
from datetime import date, datetime
from decimal import Decimal

import pytest

from twice.cli import main, progress
from twice.cli.look import _print_facts
from twice.cli.output import value_text
from twice.cli.progress import Bar
from twice.cli.timeline import _change_line
from twice.errors import count

PIPELINE = """
@twice.pipeline(source=twice.files("NAME.csv", schema="id int", missing="empty"), target="memory:NAME", pattern=PATTERN, CALENDAR)
def NAME(rows):
    return TRANSFORM
"""
BY_DAY = 'every="1 day", start="2024-09-01", end="2024-09-04"'


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Return what runs a command in a project of these pipelines, and what that printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def act(pipelines, *words):
        (tmp_path / "pipelines").mkdir()
        (tmp_path / "pipelines/some.py").write_text("import twice\n" + pipelines)
        code = main(list(words))
        return code, *capsys.readouterr()

    return act


def declared(name, calendar="", transform="[]", pattern="twice.data_overwrite()"):
    words = {"NAME": name, "CALENDAR": calendar, "TRANSFORM": transform, "PATTERN": pattern}
    text = PIPELINE
    for word, meant in words.items():
        text = text.replace(word, meant)
    return text


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (date(2024, 10, 7), "2024-10-07"),
        (datetime(2024, 10, 7, 6, 5), "2024-10-07 06:05:00"),
        (Decimal("12.50"), "12.50"),
        ("NULL", "'NULL'"),
        ("O'Brien", "'O''Brien'"),
        (None, "NULL"),
        (True, "true"),
        (0, "0"),
        (b"\x00\xff", "X'00ff'"),
        ({"a": [1, None, "x"]}, "{a: [1, NULL, 'x']}"),
    ],
)
def test_a_value_is_written_as_sql_would(value, text):
    assert value_text(value) == text


def test_a_row_that_changed_names_what_was_there_before():
    before = {"id": 1, "price": Decimal("12.50"), "gone": None}
    after = {"id": 1, "price": Decimal("12.75"), "day": date(2024, 10, 7)}
    told = "price: 12.50 -> 12.75, day: (no column) -> 2024-10-07, gone: NULL -> (no column)"
    assert _change_line(before, after) == f"~ id=1  {told}"
    assert _change_line(None, {"name": "a"}) == "+ name='a'"


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "try", "1 try"), (2, "try", "2 tries"), (1000, "row", "1,000 rows"), (0, "retry", "0 retries")],
)
def test_nouns_are_counted_in_english(number, noun, text):
    assert count(number, noun) == text


def test_facts_are_shown_without_brackets_and_what_is_not_there_not_at_all(capsys):
    facts = {"slot": "a", "effects": (), "partitions": ("x", "y"), "rows": [{"row": {"id": 1, "n": "b"}, "file": ""}]}
    _print_facts(facts, "text")
    assert capsys.readouterr().out == "slot: a\npartitions: x, y\nrows:\n  row=id=1, n=b\n"


# ------------------------------------------------------------------ how far it is


def test_slots_of_several_pipelines_are_counted_together(command):
    code, out, _ = command(declared("one") + declared("two") + declared("three"), "run", "--due")
    assert code == 0
    assert [line.partition(" ")[0] for line in out.splitlines() if line.startswith("[")] == ["[1/3]", "[2/3]", "[3/3]"]


def test_slots_behind_a_failure_are_counted(command):
    builds = 'twice.stateful_merger(keys=["id"])'
    code, out, _ = command(declared("one", BY_DAY, "1 / 0", builds), "run", "--due")
    assert code == 1
    assert out.endswith("0 published, 0 skipped, 1 failed, 2 not reached\n")


def test_a_bar_names_the_slot_that_is_worked_on_and_does_not_judge_by_the_start_of_spark(monkeypatch):
    shown, now = [], iter([30.0, 31.0, 33.0, 34.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    bar = Bar(5, "abcde", lambda *told: shown.append(told))
    for worked in (True, False, True, True):
        bar.advance(worked=worked)
    assert shown == [(1, "b", ""), (2, "c", ""), (3, "d", "about 6 s left"), (4, "e", "about 2 s left")]
