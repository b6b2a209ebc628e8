"""A slot is shown by the clocks of its zone, wherever people see it, and understood as it is shown. No JVM."""

import re

import pytest

from twice import runs

PIPELINES = """
from pathlib import Path
from zoneinfo import ZoneInfo

import twice

ROOT = Path(__file__).parents[1]


def day(run):
    return run.execution_time.astimezone(ZoneInfo(run.zone)).date()


def words(run):
    return (ROOT / f"in/{day(run)}.txt").read_text().split()


def rows(run):
    return [{"id": word, "day": day(run)} for word in words(run)]


def keeps(rows):
    if any(row["id"] == "broken" for row in rows):
        raise ValueError("no luck")
    return rows


FORM = {
    "source": twice.source(rows, fingerprint=words), "pattern": twice.data_overwrite(slice="day"),
    "every": "1 day", "start": "2024-10-26", "end": "2024-10-29", "retries": twice.retries(tries=1),
}
visits = twice.pipeline(name="visits", target="memory:lake/visits", zone="Europe/Warsaw", **FORM)(keeps)
hours = twice.pipeline(
    source=twice.source(lambda run: [{"id": run.slot.label}], fingerprint="1"), pattern=twice.merger(keys=["id"]),
    name="hours", target="memory:lake/hours", zone="Europe/Warsaw", every="1 hour", start="2024-10-27", end="2024-10-28",
)(keeps)
plain = twice.pipeline(name="plain", target="memory:lake/plain", **FORM)(keeps)
"""
# On the 27th the clocks of Warsaw are set back: the day lasts 25 hours, and ends at another offset than it began at.
DAYS = ["2024-10-26T00:00+02:00", "2024-10-27T00:00+02:00", "2024-10-28T00:00+01:00"]
STRETCH = ("--from", DAYS[0], "--to", "2024-10-29")
LISTINGS = [
    ("status", "visits"),
    ("status", "visits", "--output", "json"),
    ("plan", "visits", "--at", DAYS[1]),
    ("runs", "--state", "failed"),
    ("runs", "visits"),
    ("show", "memory:lake/visits"),
    ("versions", "memory:lake/visits"),
    ("versions", "visits", "--output", "json"),
    ("backfill", "visits", *STRETCH, "--dry-run"),
    ("dead", "list"),
    ("dead", "show", "visits"),
    ("run", "visits", "--due", "--yes"),
    ("retry",),
    ("check", "visits"),
]
MIDNIGHT_IN_UTC = re.compile(r"\b2024-10-\d\dT2[23]:00")


@pytest.fixture
def folder(memory, tmp_path, twice):
    """One day published, one missing, one that was put aside after its last try."""
    (tmp_path / "pipelines/zoned.py").write_text(PIPELINES)
    for day, word in zip(DAYS, ("a", "b", "broken"), strict=True):
        (tmp_path / f"in/{day[:10]}.txt").write_text(word)
    assert twice("run", "visits", "--at", "2024-10-26").code == 0
    assert twice("run", "visits", "--at", "2024-10-28").code == 1
    return tmp_path


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_a_slot_is_shown_by_the_clocks_of_its_zone(twice, folder, words, monkeypatch):
    monkeypatch.setattr(runs, "_zones", {})  # as in a process that has read no pipeline yet
    said = twice(*words)
    # What follows `v1:` is the name of a slot in tables and ledgers, which is in UTC on every machine.
    shown = re.sub(r"v1:\S+", "", said.out + said.err)
    assert MIDNIGHT_IN_UTC.findall(shown) == []
    assert words[0] in ("retry", "check") or any(day in shown for day in DAYS), shown


@pytest.mark.parametrize("day", DAYS)
def test_a_slot_is_understood_as_it_is_shown(twice, folder, day):
    (folder / "in/2024-10-28.txt").write_text("c")
    assert twice("run", "visits", "--at", day).code == 0
    assert f"visits {day}  skipped" in twice("run", "visits", "--at", day).out
    assert f"slot {day}/" in twice("plan", "visits", "--at", day, "--force").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--at", "2024-10-26T03:00+02:00"), ["2024-10-26T03:00+02:00 is not the start", f"use --at {DAYS[0]}"]),
        (("--at", "2024-10-25"), [f"2024-10-25T00:00+02:00 lies before the calendar, which starts at {DAYS[0]}"]),
        ((), ["Use --at 2024-10-28T00:00+01:00 for the newest closed interval"]),
    ],
    ids=["inside", "before", "none"],
)
def test_a_time_that_names_no_slot_is_answered_in_the_zone(twice, folder, words, told):
    said = twice("run", "visits", *words)
    assert said.code == 2
    assert all(one in said.err for one in told), said.err


def test_records_in_json_keep_the_name_of_the_slot_and_gain_what_it_is_called(twice, folder):
    attempts = twice("runs", "--output", "json").json["attempts"]
    assert {(one["slot"].removeprefix("v1:visits:memory:lake/visits:"), one["label"]) for one in attempts} == {
        (f"{start}/{end}", label)
        for start, end, label in zip(
            ["2024-10-25T22:00Z", "2024-10-27T23:00Z"],
            ["2024-10-26T22:00Z", "2024-10-28T23:00Z"],
            [DAYS[0], DAYS[2]],
            strict=True,
        )
    }


def test_the_newest_slot_of_an_hour_that_comes_twice_is_the_later_one(twice, folder):
    said = twice("backfill", "hours", "--from", "2024-10-27T02:00+02:00", "--to", "2024-10-27T03:00+01:00")
    assert (said.code, said.out.count("published (")) == (0, 2)
    assert twice("status", "hours", "--output", "json").json["pipelines"][0]["newest"] == "2024-10-27T02:00+01:00"


def test_a_calendar_in_utc_is_shown_as_before(twice, folder):
    assert "plain 2024-10-26T00:00Z" in twice("backfill", "plain", "--from", "2024-10-26", "--to", "2024-10-27").out


def test_a_file_that_cannot_be_read_keeps_no_run_from_being_listed(twice, folder, monkeypatch):
    (folder / "pipelines/zoned.py").write_text("no python")
    assert twice("runs").code == 0
