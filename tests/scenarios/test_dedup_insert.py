"""Scenarios 93 to 95: rows are added only once, whichever batches they arrive in."""

import pytest

import twice
from twice.errors import Misuse, NotPublished
from twice.faults import armed
from worlds import once_at

SCHEMA = "id string, day date, n int"
DAY, NEXT = "2024-09-20", "2024-09-21"


def put(world, day, ids, n=1):
    world.put_rows(day, [{"id": one, "day": day, "n": n} for one in ids])


@pytest.fixture
def events(make_world):
    return make_world(pattern=twice.dedup_insert(keys=["id"]), schema=SCHEMA)


def test_93_rows_that_are_there_are_left_untouched(events):
    put(events, DAY, "12345")
    events.run(DAY)
    put(events, NEXT, "45678", n=2)
    assert events.run(NEXT).notes[0] == "inserted 3, updated 0, deleted 0, left alone 2"
    expected = [(one, 1) for one in "12345"] + [(one, 2) for one in "678"]
    assert events.table_rows("id", "n") == expected
    assert events.run(NEXT).state == "skipped"
    assert events.run(NEXT, force=True).notes[0] == "inserted 0, updated 0, deleted 0, left alone 5"
    assert events.table_rows("id", "n") == expected


def test_94_duplicates_inside_the_batch_need_a_declared_order(make_world, events):
    events.put_rows(DAY, [{"id": "a", "day": DAY, "n": n} for n in (2, 1, 3)])
    with pytest.raises(NotPublished, match=r"id='a'.*\n.*\n.*declare order="):
        events.run(DAY)
    assert events.records() == []
    ordered = make_world(pattern=twice.dedup_insert(keys=["id"], order="n"), schema=SCHEMA)
    ordered.put_rows(DAY, [{"id": "a", "day": DAY, "n": n} for n in (2, 1, 3)])
    ordered.run(DAY)
    assert ordered.table_rows("id", "n") == [("a", 1)]


def test_95_two_batches_with_overlapping_keys_at_the_same_time(events):
    put(events, DAY, "ab")
    put(events, NEXT, "bc", n=2)
    put(events, "2024-09-22", "x")
    events.run("2024-09-22")
    twin = events.twin()
    with armed(once_at("publish.before", lambda: twin.run(NEXT))):
        events.run(DAY)
    assert events.table_rows("id", "n") == [("a", 1), ("b", 2), ("c", 2), ("x", 1)]


def test_two_batches_that_make_the_table_at_the_same_time(events):
    put(events, DAY, "ab")
    put(events, NEXT, "bc", n=2)
    twin = events.twin()
    with armed(once_at("publish.before", lambda: twin.run(NEXT))):
        events.run(DAY)
    assert events.table_rows("id", "n") == [("a", 1), ("b", 2), ("c", 2)]


def test_a_window_looks_back_so_far_and_no_further(make_world):
    world = make_world(pattern=twice.dedup_insert(keys=["id"], window="2 days", on="day"), schema=SCHEMA)
    for day in (DAY, "2024-09-22", "2024-09-25"):
        put(world, day, "a")
        world.run(day)
    assert [day.isoformat() for _, day in world.table_rows("id", "day")] == [DAY, "2024-09-25"]


def test_a_rerun_finds_its_own_rows_although_they_are_older_than_the_window(make_world):
    world = make_world(pattern=twice.dedup_insert(keys=["id"], window="2 days", on="day"), schema=SCHEMA)
    world.put_rows(DAY, [{"id": "late", "day": "2024-09-02", "n": 1}, {"id": "a", "day": DAY, "n": 1}])
    for force in (False, True, True):
        world.run(DAY, force=force)
    assert world.table_rows("id") == [("a",), ("late",)]
    world.put_rows(NEXT, [{"id": "timeless", "day": None, "n": 1}])
    with pytest.raises(NotPublished, match="NULL in 'day'"):
        world.run(NEXT)


def test_a_null_key_is_refused(events):
    events.put_rows(DAY, [{"id": None, "day": DAY, "n": 1}])
    with pytest.raises(NotPublished, match="NULL in a key column"):
        events.run(DAY)


@pytest.mark.stores("memory")
def test_bad_declarations_are_refused():
    with pytest.raises(Misuse, match="both window= and on="):
        twice.dedup_insert(keys=["id"], window="7 days")
    with pytest.raises(Misuse, match="not a length of time"):
        twice.dedup_insert(keys=["id"], window="7 moons", on="day")
    with pytest.raises(Misuse, match="identify a row"):
        twice.dedup_insert(keys=[])
    with pytest.raises(Misuse, match="soft=True needs deleted="):
        twice.merger(keys=["id"], soft=True)
    with pytest.raises(Misuse, match="cannot be keys"):
        twice.merger(keys=["id"], order="id")
    assert twice.merger(keys="id") == twice.merger(keys=["id"])
