"""Tables that others made with texts of a length: keys are compared as the table keeps them, on every store that has such columns."""

from functools import partial

import pytest

import twice
from databases import table
from twice.errors import NotPublished
from twice.handovers import take_over
from worlds import needing

pytestmark = [pytest.mark.stores("delta", "postgres")]

WITHOUT_LENGTHS = "spark.sql.legacy.charVarcharAsString"
FIRST, NEXT = "2024-09-20", "2024-09-21"
PATTERNS = {
    "merger": twice.merger,
    "dedup": twice.dedup_insert,
    "versions": twice.stateful_merger,
    "history": partial(twice.stateful_merger, form="history"),
}


@pytest.fixture
def table_of(world):
    """Return a function that makes a table as others would, and a world that writes to it."""

    def make(pattern):
        columns = "code char(5), name varchar(2), n bigint, day date, part char(12)"
        if world.database:
            world.database.execute(f"create table {table(world.target)} ({columns})")
        else:
            world.spark.sql(f"CREATE TABLE delta.`{world.table()}` ({columns}) USING delta")
        world.pattern, world.schema = pattern, "code string, name string, n bigint, day date, part string"
        return world

    return make


def run(world, day, n, *texts):
    """Run a day with a row of each code and name."""
    world.put_rows(day, [{"code": code, "name": name, "n": n, "day": day, "part": day} for code, name in texts])
    return world.run(day)


def found(world):
    """Return the rows; Spark reads a code with its blanks, PostgreSQL hands it over without them."""
    return {(one["code"].rstrip(), one["name"]): one["n"] for one in world.records()}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=needing(make(keys=["code"]))) for one, make in PATTERNS.items()]
)
def test_a_key_is_the_same_whatever_blanks_the_table_adds_or_cuts(table_of, name):
    world = table_of(PATTERNS[name](keys=["code", "name"]))
    run(world, FIRST, 1, ("ab", "x"), ("cd      ", "y   "))
    run(world, NEXT, 2, ("ab   ", "x"), ("cd", "y "), ("ab", "x "))
    later = 1 if name == "dedup" else 2
    assert found(world) == {("ab", "x"): later, ("cd", "y "): later, ("ab", "x "): 2}
    run(world, NEXT, 3, ("ab ", "x"))
    first = {"dedup": 1, "merger": 3}.get(name, 3)
    others = {"merger": {("cd", "y "): 2, ("ab", "x "): 2}, "dedup": {("cd", "y "): 1, ("ab", "x "): 2}}
    assert found(world) == {("ab", "x"): first, **others.get(name, {("cd", "y "): 1})}
    assert len(world.records()) == len(found(world))
    if name == "merger":
        assert run(world, NEXT, 3, ("ab", "x")).notes[0] == "inserted 0, updated 0, deleted 0, left alone 1"


def test_a_text_that_is_too_long_is_refused_and_not_cut(table_of):
    world = table_of(twice.merger(keys=["code"]))
    for code, name in (("abcdef", "x"), ("ab", "xyz")):
        with pytest.raises(NotPublished, match="Nothing was published"):
            run(world, FIRST, 1, (code, name))
    assert world.records() == []


def test_a_slice_that_is_a_text_of_a_length_is_replaced(table_of):
    world = table_of(twice.data_overwrite(slice="part"))
    for day, n in ((FIRST, 1), (NEXT, 2), (FIRST, 3), (FIRST, 4)):
        run(world, day, n, (f"c{day[-1]}", "x"))
    assert found(world) == {("c0", "x"): 4, ("c1", "x"): 2}
    assert len(world.records()) == 2


@pytest.mark.stores("delta")
def test_a_key_that_others_wrote_without_its_blanks_is_found(table_of):
    world = table_of(twice.merger(keys=["code"]))
    world.spark.conf.set(WITHOUT_LENGTHS, "true")
    try:
        world.spark.sql(f"INSERT INTO delta.`{world.table()}` VALUES ('ab', 'x', 0, DATE'{FIRST}', '{FIRST}')")
    finally:
        world.spark.conf.unset(WITHOUT_LENGTHS)
    take_over(world.store, world.project.ledger, world.target)
    run(world, FIRST, 1, ("ab", "y"))
    assert found(world) == {("ab", "y"): 1}
    assert len(world.records()) == 1
