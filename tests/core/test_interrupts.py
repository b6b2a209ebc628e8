"""What is true after an interrupt, wherever in a run it comes? Real signals to this process, on the memory store."""

import os
import signal

import pytest

import twice
from twice import interrupts
from twice.backfills import fill
from twice.decide import Asked
from twice.faults import armed, recording
from twice.ledger import logs, retries
from worlds import World

DAY, NEXT = "2024-09-20", "2024-09-21"
# From here on the run is in its publish, and what was begun is completed.
PUBLISHING = ("publish.before", "publish.after", "read.back", "confirmed")


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path / "world", "memory", start="2024-09-20")
    made.put(DAY, ["a"])
    made.put(NEXT, ["b"])
    return made


@pytest.fixture
def signals(monkeypatch):
    """Let signals mean what they mean to the command line, and forget about them afterwards."""
    for name, value in (("_asked", None), ("_told", []), ("_is_unknown", False)):
        monkeypatch.setattr(interrupts, name, value)
    with interrupts.handled():
        yield


def at(point, act):
    """Do something the first time that a point is reached."""
    left = [point]

    def hook(reached):
        if reached in left:
            left.remove(reached)
            act()

    return armed(hook)


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def both_days(world):
    """Fill two slots in order, as a backfill does."""
    pipeline = world.pipeline
    slots = [pipeline.slot(day) for day in (DAY, NEXT)]
    return fill(world.project, pipeline, slots, Asked(resuming=True))


def points_of_a_run(folder):
    seen: list[str] = []
    made = World(folder, "memory", start="2024-09-20")
    made.put(DAY, ["a"])
    with armed(recording(seen)):
        made.run(DAY)
    return seen


def test_an_interrupt_at_any_point_of_a_run_leaves_what_is_told_and_begins_nothing_else(tmp_path, signals, monkeypatch):
    points = points_of_a_run(tmp_path / "clean")
    assert set(PUBLISHING) < set(points)
    for number, point in enumerate(points):
        monkeypatch.setattr(interrupts, "_asked", None)
        monkeypatch.setattr(interrupts, "_told", [])
        world = World(tmp_path / f"world-{number}", "memory", start="2024-09-20")
        world.put(DAY, ["a"])
        world.put(NEXT, ["b"])
        with pytest.raises(interrupts.Interrupted), at(point, terminate):
            list(both_days(world))
        landed = points.index(point) >= points.index("publish.before")
        ledger = world.project.ledger
        assert len(world.rows()) == (1 if landed else 0), point
        states = [one.state for one in ledger.attempts()]
        assert states in ([["published"]] if landed else [[], ["interrupted"]]), point
        assert ledger.query("SELECT * FROM leases") == [], point
        assert retries.every(ledger) == [], point
        assert interrupts.exit_code() == 143, point
        told = "The slot is published." if landed else "Nothing was published"
        assert told in " ".join(interrupts.told()) or states == [], point
        monkeypatch.setattr(interrupts, "_asked", None)
        assert [ended.outcome.state for ended in both_days(world)] == [
            "skipped" if landed else "published",
            "published",
        ]


@pytest.mark.parametrize(
    ("point", "state", "told"),
    [("rows.ready", "interrupted", "Nothing was published"), ("publish.after", "unknown", "It is unknown whether")],
)
def test_from_python_an_interrupt_is_recorded_with_what_is_known(world, point, state, told):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stop, at(point, interrupt):
        world.run(DAY)
    assert told in stop.value.__notes__[0]
    (attempt,) = world.project.ledger.attempts()
    assert (attempt.state, world.project.ledger.query("SELECT * FROM leases")) == (state, [])
    assert "KeyboardInterrupt" in logs.find(world.project.ledger, attempt.attempt)["traceback"]
    assert world.run(DAY).state == ("skipped" if state == "unknown" else "published")


def test_an_error_that_follows_from_an_interrupt_is_the_interrupt(tmp_path, signals):
    def swallows(rows, run):
        try:
            terminate()
        except KeyboardInterrupt:
            raise RuntimeError("the connection is gone") from None
        return rows

    world = World(tmp_path / "world", "memory", start="2024-09-20", transform=swallows)
    world.put(DAY, ["a"])
    with pytest.raises(interrupts.Interrupted):
        world.run(DAY)
    assert [one.state for one in world.project.ledger.attempts()] == ["interrupted"]


def test_a_transform_that_swallows_an_interrupt_publishes_nothing(tmp_path, signals):
    def swallows(rows, run):
        try:
            terminate()
        except KeyboardInterrupt:
            return rows
        return rows

    world = World(tmp_path / "world", "memory", start="2024-09-20", transform=swallows)
    world.put(DAY, ["a"])
    with pytest.raises(interrupts.Interrupted):
        world.run(DAY)
    assert world.rows() == []


def test_what_is_unknown_stays_unknown_when_it_is_interrupted(world, signals):
    def lose_the_reply():
        terminate()
        world.store.look = broken
        raise twice.faults.LostReply("publish.after")

    def broken(_):
        raise OSError("the store is gone")

    with pytest.raises(twice.OutcomeUnknown), at("publish.after", lose_the_reply):
        world.run(DAY)
    assert [one.state for one in world.project.ledger.attempts()] == ["unknown"]
    assert interrupts.exit_code() == 3
