"""Does the protocol keep its promises in every order of events, and is every wrong one caught?"""

import re
from functools import cache
from pathlib import Path

import pytest

import twice
from model.explorer import explore
from model.rules import Rules
from model.sizes import LARGE, SMALL
from model.step import PASSES
from model.wrong import COVERED, WRONG
from twice import considered, execute, handovers
from twice.faults import armed, recording
from twice.handovers import release, take_over
from twice.prover.naming import points_in
from worlds import World

DAY = "2024-09-20"


@cache
def explored(bounds):
    return explore(Rules(), bounds)


@pytest.mark.parametrize("name", SMALL)
def test_the_protocol_keeps_its_promises(name):
    found = explored(SMALL[name].bounds)
    assert not found.trouble, found.text
    assert found.states >= SMALL[name].least_states


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_a_wrong_protocol_is_caught_where_the_right_one_passes(wrong):
    size = SMALL[WRONG[wrong].size]
    found = explore(wrong(), size.bounds)
    print(f"{wrong.__doc__}\n{found.text}")
    assert found.trouble.startswith(WRONG[wrong].promise)
    assert not explored(size.bounds).trouble


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_a_wrong_protocol_changes_one_rule(wrong):
    changed = [name for name in vars(wrong) if not name.startswith("__")]
    assert len(changed) == 1
    assert changed[0] in vars(Rules)


def test_every_rule_is_missed_when_it_is_broken():
    broken = {name for wrong in (*WRONG, *COVERED) for name in vars(wrong) if not name.startswith("__")}
    # What an earlier slot is done again from is told in its receipt either way: the rule spares people a surprise.
    assert {name for name in vars(Rules) if not name.startswith("__")} - broken == {"is_as_published", "is_mine"}


@pytest.mark.parametrize("wrong", COVERED, ids=lambda wrong: wrong.__name__)
def test_a_rule_that_another_one_covers_for(wrong):
    assert not explore(wrong(), SMALL[COVERED[wrong]].bounds).trouble


def test_every_size_catches_something():
    used = {caught.size for caught in WRONG.values()}
    assert set(SMALL) - used == {"slice, in a transaction"}


def test_the_steps_are_the_fault_points_of_the_code(tmp_path):
    """A clean pass of all that the model tells of reaches its points and no others, and it tells of the whole executor."""
    points = []
    with armed(recording(points)):
        world = World(tmp_path / "slices", "memory")
        world.put(DAY, ["a"])
        world.run(DAY)
        ledger = world.project.ledger
        release(world.store, ledger, world.target)
        take_over(world.store, ledger, world.target)
        twice.restore(f"memory:{world.target}", 0, project=world.project)
        periods = World(tmp_path / "periods", "memory", pattern=twice.fast_metadata_cleaner(period="week"))
        periods.put(DAY, ["a"])
        periods.run(DAY)
    told = {point for passed in PASSES.values() for point in passed}
    # Where a run is tried again, nothing of this try has been looked at yet.
    assert told == set(points) - {"try.before"}
    files = [Path(module.__file__) for module in (considered, execute, handovers)]
    # Calls in outside systems are no part of the model: they follow a publish and change nothing of it. Nor are tests of
    # the rows, which only end an attempt where the second look may end it too.
    beside = {r"effects\.intended", "tested"}
    of_the_executor = {point for file in files for point in points_in(file.read_text())} - beside
    assert [point for point in of_the_executor if not any(re.fullmatch(point, one) for one in told)] == []


@pytest.mark.prove
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LARGE)
def test_the_protocol_keeps_its_promises_in_larger_worlds(name):
    found = explore(Rules(), LARGE[name].bounds)
    assert not found.trouble, found.text
    assert found.states >= LARGE[name].least_states
