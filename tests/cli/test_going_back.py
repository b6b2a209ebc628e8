"""Do the commands that go back in time say why they cannot, and what lets runs go on? On the memory store, no JVM."""

import pytest

DAYS = [f"2024-10-{day:02}" for day in range(7, 11)]
PIPELINES = """
from pathlib import Path

import twice

ROOT = Path(__file__).parents[1]


def words(run):
    return (ROOT / f"in/{run.execution_time.date()}.txt").read_text().split()


def rows(run):
    return [{"id": word, "day": run.execution_time.date()} for word in words(run)]


@twice.pipeline(
    source=twice.source(rows, fingerprint=words),
    target="memory:lake/devices",
    pattern=twice.stateful_merger(keys=["id"]),
    every="1 day",
    start="2024-10-07",
    end="2024-10-11",
)
def devices(rows):
    return rows
"""


@pytest.fixture
def folder(memory, tmp_path):
    (tmp_path / "pipelines/devices.py").write_text(PIPELINES)
    for day in DAYS:
        put(tmp_path, day, f"of-{day}", "all")
    return tmp_path


def put(folder, day, *words):
    (folder / f"in/{day}.txt").write_text(" ".join(words))


def run_each(twice, days=DAYS):
    for day in days:
        assert twice("run", "devices", "--at", day, "--yes").code == 0


def why_none(twice, day):
    said = twice("diff", "devices", day, "0")
    assert said.code == 1
    return said.err.splitlines()[0]


def test_the_state_after_a_slot_of_several_in_one_publish_is_in_no_version(folder, twice):
    twice("run", "devices", "--due")
    assert "it was published together with 2024-10-08T00:00Z, 2024-10-09T00:00Z" in why_none(twice, DAYS[0])


def test_the_state_after_a_slot_that_came_late_is_in_no_version(folder, twice):
    run_each(twice, [DAYS[0], DAYS[1]])
    put(folder, DAYS[0], "corrected")
    run_each(twice, [DAYS[0]])
    assert "was published together with 2024-10-08T00:00Z" in why_none(twice, DAYS[0])


def test_a_version_is_named_by_pipeline_and_by_slot(folder, twice):
    run_each(twice)
    assert "2 added, 0 removed" in twice("diff", "devices", DAYS[0], "2").out
    assert twice("versions", "devices", "--output", "json").json["target"] == "memory:lake/devices"


def test_a_number_that_no_version_had_is_refused(folder, twice):
    run_each(twice)
    for words in (["diff", "devices", "0", "9"], ["restore", "devices", "9", "--yes"], ["restore", "devices", "-1"]):
        said = twice(*words[:2], "--", *words[2:]) if "-1" in words else twice(*words)
        assert said.code == 2
        assert "memory:lake/devices has no version" in said.err
        assert "the newest is 3" in said.err


def test_a_column_that_no_version_has_cannot_be_a_key(folder, twice):
    run_each(twice)
    said = twice("diff", "devices", "0", "1", "--keys", "di")
    assert (said.code, "The table has no column 'di'" in said.err) == (2, True)


def test_after_a_restore_the_command_is_told_with_which_runs_go_on(folder, twice):
    run_each(twice)
    put(folder, DAYS[1], "corrected")
    run_each(twice, [DAYS[1]])
    said = twice("restore", "devices", "3", "--yes")
    assert (
        "3 slots of devices are no longer vouched for (2024-10-08T00:00Z, 2024-10-09T00:00Z, 2024-10-10T00:00Z)"
        in said.out
    )
    assert "twice run devices --due --accept" in said.out
    assert "twice run devices --due --force" in said.out
    assert twice("run", "devices", "--due").code == 4
    assert twice("run", "devices", "--due", "--accept").code == 0
    assert twice("run", "devices", "--due").code == 0


def test_a_restore_that_invalidates_nothing_has_nothing_to_add(folder, twice):
    run_each(twice)
    assert twice("restore", "devices", "3", "--yes").out == "memory:lake/devices shows the rows of version 3 now.\n"
