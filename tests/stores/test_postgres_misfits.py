"""What happens to values and names that PostgreSQL does not take, however late they come?"""

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

import twice
from databases import table
from twice.errors import Misuse, NotPublished

pytestmark = [pytest.mark.stores("postgres")]

DAY, NEXT = "2024-09-20", "2024-09-21"
ROWS = 900_001
UUID = "c0ffee00-0000-0000-0000-000000000000"


def handed_over(world, column):
    """Let the transform return many rows, with a column of this name and these values."""
    ((name, values),) = column.items()
    ids = pa.array([str(number) for number in range(len(values))])
    days = pa.repeat(pa.scalar(date.fromisoformat(DAY)), len(values))
    rows = pa.table({"id": ids, "day": days, name: values})
    world.transform = lambda _: rows
    world.put(DAY, ["a"])


def made(world, typed):
    world.database.execute("create domain small as numeric(4,1)")
    world.database.execute(f"create table {table(world.target)} (id text, day date, odd {typed})")


@pytest.mark.parametrize(
    ("typed", "usual", "value", "said"),
    [
        ("uuid", UUID, "no uuid", "invalid input syntax for type uuid"),
        ("small", "1.0", "1000.0", "numeric field overflow"),
        ("varchar(10)", "short", "x" * 11, "value too long"),
        ("inet", "10.0.0.1", "10.0.0.256", "invalid input syntax for type inet"),
    ],
)
def test_a_wrong_type_in_row_900_000_shows_no_row_and_names_value_and_column(world, typed, usual, value, said):
    made(world, typed)
    handed_over(world, {"odd": pa.array([usual] * (ROWS - 2) + [value, usual])})
    with pytest.raises(NotPublished, match=rf"the value '{value}' in the column 'odd' of lake/out: .*{said}"):
        world.run(DAY)
    assert world.database.execute(f"select count(*) from {table(world.target)}") == [(0,)]
    assert world.database.execute("select count(*) from twice_receipts") == [(0,)]


def test_a_value_of_another_type_among_plain_rows_names_its_column(world):
    rows = [{"id": str(n), "day": date.fromisoformat(DAY), "odd": n} for n in range(2000)]
    rows[1900]["odd"] = "no number"
    world.transform = lambda _: rows
    world.put(DAY, ["a"])
    with pytest.raises(NotPublished, match=r"'odd' holds values of several types.*no number"):
        world.run(DAY)
    assert world.database.tables() == []


@pytest.mark.parametrize(
    "pattern",
    [
        twice.merger(keys=["id", "day"]),
        twice.dedup_insert(keys=["id", "day"]),
        twice.data_overwrite(),
        twice.data_overwrite(partitions=["day"]),
        twice.transactional_writer(),
    ],
    ids=lambda pattern: pattern.name,
)
def test_every_pattern_names_the_value_that_does_not_fit(make_world, pattern):
    world = make_world(pattern=pattern)
    made(world, "small")
    handed_over(world, {"odd": pa.array(["1.0", "1000.0"])})
    with pytest.raises(NotPublished, match=r"the value '1000\.0' in the column 'odd'"):
        world.run(DAY)
    assert world.records() == []
    handed_over(world, {"odd": pa.array(["1.0", "100.0"])})
    assert world.run(DAY).rows == 2


@pytest.mark.parametrize("kind_of_rows", [pa.decimal128(8, 1), pa.int64(), pa.float64(), pa.string()], ids=str)
def test_numbers_that_could_overflow_are_refused_by_their_column_before_any_row(world, kind_of_rows):
    made(world, "numeric(4,1)")
    handed_over(world, {"odd": pa.array([Decimal("1.0")]).cast(pa.decimal128(8, 1)).cast(kind_of_rows)})
    with pytest.raises(NotPublished, match=r"they have 'odd' as \S+ instead of decimal\(4,1\)"):
        world.run(DAY)
    assert world.records() == []


def test_two_names_that_postgresql_would_cut_to_one_are_refused_and_touch_no_table(make_world):
    start = "x" * 63
    world = make_world(target=start)
    world.put(DAY, ["a"])
    world.run(DAY)
    for ending in ("1", "2"):
        world.target = start + ending
        with pytest.raises(Misuse, match="64 bytes, and what is longer than 63 is cut"):
            world.run(DAY)
    assert world.database.tables() == [start]
    world.target = start
    assert world.rows() == [("a", DAY)]


def test_two_columns_that_postgresql_would_cut_to_one_are_refused(world):
    start = "x" * 63
    world.transform = lambda rows: [{**row, start + "1": 1, start + "2": 2} for row in rows]
    world.put(DAY, ["a"])
    with pytest.raises(Misuse, match="64 bytes"):
        world.run(DAY)
    assert world.database.tables() == []


def test_a_missing_schema_is_named_and_not_made(world):
    world.target = "nowhere.visits"
    world.put(DAY, ["a"])
    with pytest.raises(Misuse, match="nowhere"):
        world.run(DAY)
    assert world.database.execute("select count(*) from pg_namespace where nspname = 'nowhere'") == [(0,)]
    world.database.execute("create schema nowhere")
    assert world.run(DAY).state == "published"


@pytest.mark.parametrize("pattern", [twice.data_overwrite(), twice.data_overwrite(slice="day")], ids=["table", "slice"])
def test_a_view_that_depends_on_the_table_keeps_its_oid_and_its_grants(make_world, pattern):
    world = make_world(pattern=pattern)
    world.put(DAY, ["a"])
    world.run(DAY)
    world.database.execute(f"create view seen as select id from {table(world.target)}; grant select on seen to public")
    before = world.database.execute(
        "select oid, relacl from pg_class where relname in ('seen', 'lake__out') order by 1"
    )
    world.put(DAY, ["b"])
    world.run(DAY)
    after = world.database.execute("select oid, relacl from pg_class where relname in ('seen', 'lake__out') order by 1")
    assert (after, world.database.execute("select id from seen")) == (before, [("b",)])
