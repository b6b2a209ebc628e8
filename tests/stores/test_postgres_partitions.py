"""What do readers of a partitioned table see, while a slot's partitions are replaced?

A partition is emptied and filled. These tests fail if it is exchanged for another table instead: by DETACH and ATTACH, or by TRUNCATE.
"""

import threading
from contextlib import contextmanager

import psycopg
import pytest

import twice
from databases import table

pytestmark = [pytest.mark.stores("postgres")]

DAY, NEXT = "2024-09-20", "2024-09-21"
PATTERNS = pytest.mark.parametrize(
    "pattern",
    [twice.data_overwrite(slice="day"), twice.data_overwrite(partitions=["day"])],
    ids=["slice", "partitions"],
)


@pytest.fixture
def days(make_world):
    """Return a maker of worlds whose table has one partition for each day."""

    def make(pattern):
        world = make_world(pattern=pattern)
        world.database.execute(
            f"create table {table(world.target)} (id text, day date) partition by list (day);"
            f"create table one partition of {table(world.target)} for values in ('{DAY}');"
            f"create table two partition of {table(world.target)} for values in ('{NEXT}');"
        )
        for day in (DAY, NEXT):
            world.put(day, ["a", "b"])
            world.run(day)
        return world

    return make


@contextmanager
def older_snapshot(world):
    """Open a transaction that sees what is there now, and has not read the table yet."""
    with psycopg.connect(world.database.url) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.execute("select from twice_heads")
        yield db


def all_of(db, world):
    """Return the rows as a session sees them."""
    return db.execute(f"select id, day::text from {table(world.target)} order by day, id").fetchall()


@PATTERNS
def test_an_older_snapshot_keeps_the_old_rows_of_a_day_that_is_replaced(days, pattern):
    world = days(pattern)
    with older_snapshot(world) as db:
        world.put(DAY, ["c"])
        world.run(DAY)
        assert world.by_day() == {DAY: ["c"], NEXT: ["a", "b"]}
        assert all_of(db, world) == [("a", DAY), ("b", DAY), ("a", NEXT), ("b", NEXT)]


@PATTERNS
def test_a_reader_that_does_not_end_holds_up_no_publish_and_no_other_reader(days, pattern):
    world = days(pattern)
    with psycopg.connect(world.database.url) as slow, psycopg.connect(world.database.url) as new:
        slow.execute(f"select count(*) from {table(world.target)}")
        new.execute("set lock_timeout = '2s'")
        world.put(DAY, ["c"])
        assert world.run(DAY).state == "published"
        assert new.execute(f"select id from {table(world.target)} where day = '{DAY}'").fetchall() == [("c",)]


@PATTERNS
def test_a_polling_reader_sees_whole_days_alone(days, pattern):
    world = days(pattern)
    over, seen = threading.Event(), set()

    def poll():
        with psycopg.connect(world.database.url, autocommit=True) as db:
            while not over.is_set():
                found = db.execute(f"select string_agg(id, '' order by day, id) from {table(world.target)}")
                seen.add(found.fetchone()[0])

    reader = threading.Thread(target=poll)
    reader.start()
    editions = [["c"], ["d", "e"], ["f", "g", "h"]]
    for ids in editions:
        world.put(DAY, ids)
        world.run(DAY)
    over.set()
    reader.join()
    assert seen <= {"abab", *("".join(ids) + "ab" for ids in editions)}
    assert "abab" in seen


@PATTERNS
def test_a_partition_keeps_its_oid_its_grants_its_index_and_the_views_on_it(days, pattern):
    world = days(pattern)
    world.database.execute(
        "create view seen as select id from one; grant select on one to public; create index on one (id)"
    )
    question = "select oid, relacl, relhasindex from pg_class where relname in ('one', 'seen') order by oid"
    before = world.database.execute(question)
    world.put(DAY, ["c"])
    world.run(DAY)
    assert world.database.execute(question) == before
    assert world.database.execute("select id from seen") == [("c",)]
