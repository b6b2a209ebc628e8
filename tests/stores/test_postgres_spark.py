"""How frames of Spark reach PostgreSQL, and come back."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

import twice
from databases import Database, table
from twice.errors import NotPublished
from twice.faults import Died, armed, dying_at
from twice.handovers import take_over
from twice.stores.postgres import reading, tasks
from worlds import World

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

DAY, NEXT = "2024-09-20", "2024-09-21"
ROWS = 60_000


@pytest.fixture
def world(spark, postgres_server, tmp_path):
    made = World(
        tmp_path / "world",
        "postgres",
        spark,
        pattern=twice.data_overwrite(slice="day"),
        database=Database.made(postgres_server),
    )
    made.put(DAY, ["a"])
    return made


def many(world, rows=ROWS, partitions=4):
    """Let the transform return many rows, in several partitions."""
    world.transform = lambda _: world.spark.range(0, rows, 1, partitions).selectExpr(
        "concat('row ', id) AS id", f"DATE '{DAY}' AS day", "id AS n"
    )


def totals(world):
    return world.database.execute(f"select count(*), count(distinct id), sum(n) from {table(world.target)}")[0]


def leftovers(world):
    return world.database.execute("select count(*) from pg_tables where tablename like 'twice\\_s\\_%'")[0][0]


def test_many_rows_are_staged_by_tasks_and_published_at_once(world):
    many(world)
    outcome = world.run(DAY)
    assert (outcome.rows, totals(world)) == (ROWS, (ROWS, ROWS, ROWS * (ROWS - 1) // 2))
    assert leftovers(world) == 0
    assert world.run(DAY).state == "skipped"


def test_few_rows_need_no_table(world, monkeypatch):
    monkeypatch.setattr(tasks, "_copied", None)
    assert world.run(DAY).rows == 1
    assert world.rows() == [("a", DAY)]


def test_what_a_dead_attempt_staged_is_swept_and_the_living_keep_theirs(world):
    many(world)
    with armed(dying_at("publish.before")), pytest.raises(Died):
        world.run(DAY)
    staged = leftovers(world)
    assert staged == 4
    attempt = world.database.execute("select tablename from pg_tables where tablename like 'twice\\_s\\_%'")[0][0]
    living = frozenset([attempt.split("_", 3)[3].rsplit("_", 2)[0]])
    assert world.store.tidy(world.target, living, keep_days=0, dry_run=False).removed_files == 0
    assert world.store.tidy(world.target, frozenset(), keep_days=0, dry_run=True).removed_files == 4
    assert leftovers(world) == 4
    swept = world.store.tidy(world.target, frozenset(), keep_days=0, dry_run=False)
    assert (swept.removed_files, leftovers(world)) == (4, 0)
    assert world.run(DAY).rows == ROWS


def test_frames_are_kept_in_a_history_in_the_types_of_the_table(world):
    world.pattern = twice.stateful_merger(keys=["id"], form="history")
    world.database.execute(f"create table {table(world.target)} (id text, tags jsonb, price numeric)")
    world.database.execute(f"""insert into {table(world.target)} values ('a', '["old"]', 1.12345), ('b', null, 2)""")
    take_over(world.store, world.project.ledger, world.target)

    def found():
        return world.database.execute(f"select id, tags, price::text from {table(world.target)} order by id")

    before = found()
    frame = "select 'a' as id, array('new') as tags, cast(2 as decimal(10,2)) as price"
    world.transform = lambda rows: world.spark.sql(frame)
    world.run(DAY)
    assert found() == [("a", ["new"], "2.00"), ("b", None, "2")]
    world.transform = lambda rows: world.spark.sql(frame).where("false")
    world.run(DAY, force=True)
    assert found() == before


def test_an_attempt_that_was_swept_while_it_slept_is_refused(world):
    many(world)

    def sweep(point):
        if point == "publish.before":
            world.store.tidy(world.target, frozenset(), keep_days=0, dry_run=False)

    world.run(DAY)
    with armed(sweep), pytest.raises(NotPublished, match="swept"):
        world.run(DAY, force=True)
    assert totals(world)[0] == ROWS


def test_rows_that_the_server_lost_are_not_published(world):
    many(world)

    def lose(point):
        if point == "publish.before":
            name = world.database.execute("select tablename from pg_tables where tablename like 'twice\\_s\\_%'")[0][0]
            world.database.execute(f'truncate "{name}"')

    with armed(lose), pytest.raises(NotPublished, match="instead of"):
        world.run(DAY)
    assert world.records() == []


def test_a_value_that_does_not_fit_in_a_late_row_leaves_nothing(world):
    world.transform = lambda _: world.spark.range(0, ROWS, 1, 2).selectExpr(
        f"CASE WHEN id = {ROWS - 10} THEN concat('a', char(0), 'b') ELSE concat('row ', id) END AS id",
        f"DATE '{DAY}' AS day",
    )
    with pytest.raises(NotPublished, match=r"in the column 'id': invalid byte sequence.*0x00"):
        world.run(DAY)
    assert (world.records(), leftovers(world)) == ([], 0)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("'no uuid'", "the value 'no uuid' in the column 'odd'"),
        ("concat('no', char(0), 'uuid')", "in the column 'odd': invalid byte sequence"),
    ],
    ids=["a wrong type", "NUL"],
)
def test_a_value_that_is_refused_is_named_with_its_column_and_its_file(world, tmp_path, value, said):
    usual = "c0ffee00-0000-0000-0000-000000000000"
    for name in ("first", "second"):
        odd = f"CASE WHEN id = {ROWS - 10} AND '{name}' = 'second' THEN {value} ELSE '{usual}' END AS odd"
        rows = world.spark.range(0, ROWS, 1, 1).selectExpr("string(id) AS id", f"DATE '{DAY}' AS day", odd)
        rows.write.parquet(str(tmp_path / name))
    world.database.execute(f"CREATE TABLE {table(world.target)} (id text, day date, odd uuid)")
    files = [str(tmp_path / "first"), str(tmp_path / "second")]
    world.transform = lambda _: world.spark.read.parquet(*files).where("id <> 'none'")
    with pytest.raises(NotPublished, match=rf"{said}(.|\n)*read from \S*/second/part-\S*parquet\.") as refused:
        world.run(DAY)
    assert "first" not in str(refused.value)
    assert (world.records(), leftovers(world)) == ([], 0)
    world.transform = lambda _: (
        world.spark.read.parquet(*files).groupBy("id", "day").agg({"odd": "max"}).toDF("id", "day", "odd")
    )
    with pytest.raises(NotPublished, match="'odd'") as unknown:
        world.run(DAY)
    assert "read from" not in str(unknown.value)


def test_types_come_back_as_they_went(world, monkeypatch):
    monkeypatch.setattr(tasks, "_FEW_BYTES", 0)
    world.transform = lambda _: world.spark.sql(
        f"SELECT 'a' AS id, DATE '{DAY}' AS day, 1Y AS tiny, 2S AS small, 3 AS whole, 4L AS large, 0.5F AS part,"
        " 0.25D AS share, 12.50BD AS exact, true AS yes, X'0001' AS raw, array(1, 2) AS many, named_struct('x', 1) AS one,"
        " TIMESTAMP '2024-09-20 01:02:03+00:00' AS at, TIMESTAMP_NTZ '2024-09-20 01:02:03' AS local"
    )
    world.run(DAY)
    (row,) = world.store.read(world.target).collect()
    assert row.asDict() == {
        "id": "a",
        "day": date(2024, 9, 20),
        "tiny": 1,
        "small": 2,
        "whole": 3,
        "large": 4,
        "part": 0.5,
        "share": 0.25,
        "exact": Decimal("12.50"),
        "yes": True,
        "raw": bytearray(b"\0\1"),
        "many": "[1, 2]",
        "one": '{"x": 1}',
        "at": datetime(2024, 9, 20, 1, 2, 3),
        "local": datetime(2024, 9, 20, 1, 2, 3),
    }
    assert world.database.execute(f"select at from {table(world.target)}") == [
        (datetime(2024, 9, 20, 1, 2, 3, tzinfo=UTC),)
    ]


def test_a_large_table_is_read_by_tasks_under_one_snapshot(world, monkeypatch):
    many(world)
    world.run(DAY)
    monkeypatch.setattr(reading, "_FEW_BYTES", 0)
    monkeypatch.setattr(reading, "_PAGES_A_TASK", 64)
    frame = world.store.read(world.target)
    world.database.execute(f"delete from {table(world.target)}")
    assert frame.selectExpr("count(*)", "count(DISTINCT id)", "sum(n)").first()[:] == (
        ROWS,
        ROWS,
        ROWS * (ROWS - 1) // 2,
    )


def test_a_merge_of_frames_changes_what_differs_and_nothing_else(world):
    world.pattern = twice.merger(keys=["id"])
    many(world)
    world.run(DAY)
    world.put(NEXT, ["a"])
    world.transform = lambda _: world.spark.range(0, ROWS + 10, 1, 4).selectExpr(
        "concat('row ', id) AS id", f"DATE '{DAY}' AS day", "IF(id = 7, -7, id) AS n"
    )
    outcome = world.run(NEXT)
    assert f"inserted 10, updated 1, deleted 0, left alone {ROWS - 1}" in outcome.notes
    assert totals(world)[0] == ROWS + 10
