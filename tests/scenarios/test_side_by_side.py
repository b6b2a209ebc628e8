"""Slots that are worked on at a time end in the table of slots that were done one after the other, on every store."""

import pytest

import twice
from twice.faults import Died, armed, dying_at
from worlds import needing

DAYS = [f"2024-09-{day}" for day in range(20, 26)]
SHAPES = {
    "slice": twice.data_overwrite(slice="day"),
    "partitions": twice.data_overwrite(partitions=["day"]),
    "append": twice.transactional_writer(lineage="slot"),
    "partition by name": twice.keyed(partition="slot"),
    "table by name": twice.keyed(table="{start:%Y%m%d}"),
}


@pytest.fixture(params=[pytest.param(name, marks=needing(pattern)) for name, pattern in SHAPES.items()])
def shape(request):
    return request.param


@pytest.fixture
def world(shape, make_world):
    world = make_world(pattern=SHAPES[shape])
    for day in DAYS:
        world.put(day, [f"of {day}", "all"])
    return world


def backfill(world, **asked):
    return twice.backfill(world.pipeline, DAYS[0], "2024-09-26", jobs=3, project=world.project, **asked)


def states(outcomes):
    return [(outcome.slot.label[:10], outcome.state, outcome.generation) for outcome in outcomes]


def expected(**changed):
    return {day: sorted(changed.get(day, [f"of {day}", "all"])) for day in DAYS}


def test_a_first_pass_and_a_correction_side_by_side(world):
    assert states(backfill(world)) == [(day, "published", 1) for day in DAYS]
    assert world.by_day() == expected()
    for day in DAYS[1:4]:
        world.put(day, ["corrected"])
    again = [(day, *(("published", 2) if day in DAYS[1:4] else ("skipped", 1))) for day in DAYS]
    assert states(backfill(world)) == again
    assert world.by_day() == expected(**{day: ["corrected"] for day in DAYS[1:4]})
    assert world.sight().ended == {}


def test_a_death_among_neighbours(world):
    with armed(dying_at("publish.before", visit=2)), pytest.raises(Died):
        backfill(world)
    world.reopen()
    backfill(world)
    assert world.by_day() == expected()
    assert {receipt.generation for receipt in world.sight().receipts.values()} == {1}
