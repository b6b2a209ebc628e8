"""How frames of Spark reach PostgreSQL, and come back."""

from datetime import UTC, date, datetime
from decimal import Decimal

import psycopg
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


STAGED = "select quote_ident(tablename) from pg_tables where tablename like 'twice\\_s\\_%' order by tablename"


STAGED_LOGGED = "select count(*) from pg_class where relname like 'twice\\_s\\_%' and relpersistence = 'p'"


def staged(world):
    return [name for (name,) in world.database.execute(STAGED)]


def leftovers(world):
    return len(staged(world))


def at_publish(act):
    """Do something just before an attempt publishes."""

    def reached(point):
        if point == "publish.before":
            act()

    return armed(reached)


@pytest.fixture(params=["new", "there"])
def either_world(world, request):
    """Return a world whose table is new, so that tasks fill one together, or is there, so that each fills its own."""
    if request.param == "there":
        world.database.execute(f"create table {table(world.target)} (id text, day date, n bigint)")
    world.staged_tables = {"new": 2, "there": 4}[request.param]
    many(world)
    return world


def test_many_rows_are_staged_by_tasks_and_published_at_once(either_world):
    world = either_world
    outcome = world.run(DAY)
    assert (outcome.rows, totals(world)) == (ROWS, (ROWS, ROWS, ROWS * (ROWS - 1) // 2))
    assert leftovers(world) == 0
    assert world.run(DAY).state == "skipped"


def test_few_rows_need_no_table(world, monkeypatch):
    monkeypatch.setattr(tasks, "_copied", None)
    assert world.run(DAY).rows == 1
    assert (world.rows(), leftovers(world)) == ([("a", DAY)], 0)


def test_a_new_table_is_the_one_that_the_tasks_filled(world):
    many(world)
    seen = []
    with at_publish(lambda: seen.extend(world.database.execute(f"select '{staged(world)[0]}'::regclass::oid"))):
        world.run(DAY)
    assert world.database.execute(f"select '{table(world.target)}'::regclass::oid") == seen
    assert world.run(DAY).state == "skipped"
    many(world, rows=10)
    assert world.run(DAY, force=True).state == "published"
    assert totals(world)[0] == 10


def test_partitions_of_few_and_of_many_rows_become_one_new_table(world):
    world.transform = lambda _: (
        world.spark.range(0, ROWS, 1, 1)
        .unionByName(world.spark.range(ROWS, ROWS + 5, 1, 1))
        .selectExpr("concat('row ', id) AS id", f"DATE '{DAY}' AS day", "id AS n")
    )
    assert world.run(DAY).rows == ROWS + 5
    assert totals(world)[:2] == (ROWS + 5, ROWS + 5)


@pytest.mark.parametrize(
    "pattern",
    [
        twice.data_overwrite(),
        twice.data_overwrite(partitions=["day"]),
        twice.transactional_writer(lineage="loaded_by"),
        twice.fast_metadata_cleaner(),
        twice.proxy(),
        twice.merger(keys=["id"]),
        twice.dedup_insert(keys=["id"]),
    ],
    ids=lambda pattern: pattern.name,
)
def test_a_first_load_of_many_rows_ends_the_same_under_every_pattern(world, pattern):
    world.pattern = pattern
    many(world)
    for _ in range(2):
        world.run(DAY, force=True)
        assert totals(world)[:2] == (ROWS, ROWS)
        assert leftovers(world) == 0


WASTE = "insert into {} select 'lost', date '2024-09-20', 1 from generate_series(1, 100)"


def test_rows_of_a_task_that_does_not_count_are_not_in_the_new_table(world):
    many(world)

    def commit_another():
        rows, journal = staged(world)
        with psycopg.connect(world.database.url) as other:
            other.execute(WASTE.format(rows))
            other.execute(f"insert into {journal} values (pg_current_xact_id()::xid::text::bigint, 100)")

    with at_publish(commit_another):
        assert world.run(DAY).rows == ROWS
    assert (totals(world)[:2], leftovers(world)) == ((ROWS, ROWS), 0)


def test_nobody_waits_for_a_task_that_does_not_count_and_still_writes(world):
    many(world)
    with psycopg.connect(world.database.url) as other:
        with at_publish(lambda: other.execute(WASTE.format(staged(world)[0]))):
            assert world.run(DAY).rows == ROWS
        assert totals(world)[:2] == (ROWS, ROWS)
        busy = world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
        assert busy.notes == ("1 staged tables are still written to, by tasks of a run that ended",)
        other.commit()
    assert totals(world)[:2] == (ROWS, ROWS)
    world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    assert leftovers(world) == 0


def test_subscribers_never_hear_of_staged_rows(world):
    many(world)
    world.database.execute("create publication everything for tables in schema public")
    seen = []
    with at_publish(lambda: seen.extend(world.database.execute(STAGED_LOGGED))):
        world.run(DAY)
    assert seen == [(0,)]
    assert totals(world)[:2] == (ROWS, ROWS)


def test_several_new_tables_are_filled_at_once_and_leave_nothing(world):
    world.pattern = twice.transactional_writer(tables=["orders", "sales.lines"])
    world.database.execute("create schema sales")
    rows = world.spark.range(0, ROWS, 1, 3).selectExpr("concat('row ', id) AS id", "id AS n")
    broken = rows.selectExpr("id", "if(n < 0, 0, raise_error('broken')) AS n")
    world.transform = lambda _: {"orders": rows, "sales.lines": broken}
    with pytest.raises(NotPublished, match="broken"):
        world.run(DAY)
    assert leftovers(world) == 0
    world.transform = lambda _: {"orders": rows, "sales.lines": rows.limit(ROWS // 2)}
    with armed(dying_at("publish.before")), pytest.raises(Died):
        world.run(DAY)
    assert leftovers(world) > 2
    world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    assert leftovers(world) == 0
    assert world.run(DAY).rows == ROWS + ROWS // 2
    assert world.database.execute('select count(*) from "lake__out__orders"') == [(ROWS,)]
    assert world.database.execute("select count(*) from sales.lines") == [(ROWS // 2,)]
    assert leftovers(world) == 0


def test_a_task_whose_commit_the_server_lost_is_not_published(world):
    many(world)

    def lose():
        _, journal = staged(world)
        world.database.execute(f"delete from {journal} where ctid = '(0,1)'")

    with at_publish(lose), pytest.raises(NotPublished, match="instead of"):
        world.run(DAY)
    assert (world.records(), leftovers(world)) == ([], 0)
    assert world.run(DAY).rows == ROWS


@pytest.mark.parametrize(
    "point", ["postgres.staging.made", "postgres.staged", "postgres.table.made", "postgres.commit.after"]
)
def test_a_death_around_a_new_table_leaves_it_whole_or_not_there(world, point):
    many(world)
    with armed(dying_at(point)), pytest.raises(Died):
        world.run(DAY)
    there = world.database.execute(f"select to_regclass('{table(world.target)}') is not null")[0][0]
    assert there == (point == "postgres.commit.after")
    world.run(DAY)
    assert totals(world)[:2] == (ROWS, ROWS)
    world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    assert leftovers(world) == 0


@pytest.mark.parametrize("rows", [5, ROWS], ids=["few", "many"])
@pytest.mark.parametrize(
    ("column", "value", "other"),
    [
        ("day", f"DATE '{DAY}'", f"DATE '{NEXT}'"),
        ("at", f"TIMESTAMP '{DAY} 23:59:59+00:00'", f"TIMESTAMP '{NEXT} 00:00:00+00:00'"),
        ("local", f"TIMESTAMP_NTZ '{DAY} 00:00:00'", f"TIMESTAMP_NTZ '{NEXT} 00:00:00'"),
        ("number", "20240920L", "CAST(NULL AS BIGINT)"),
        ("label", f"'{DAY}'", f"'{DAY} '"),
    ],
)
def test_rows_outside_the_slice_are_counted_in_every_type(world, rows, column, value, other):
    world.pattern = twice.data_overwrite(slice=column)
    world.transform = lambda _: world.spark.range(0, rows, 1, 2).selectExpr(
        "concat('row ', id) AS id", f"IF(id % 5 = 3, {other}, {value}) AS {column}"
    )
    with pytest.raises(NotPublished, match=f"^{rows // 5} of {rows} rows"):
        world.run(DAY)
    world.transform = lambda _: world.spark.range(0, rows, 1, 2).selectExpr(
        "concat('row ', id) AS id", f"{value} AS {column}"
    )
    assert world.run(DAY).rows == rows


def test_what_a_dead_attempt_staged_is_swept_and_the_living_keep_theirs(either_world):
    world, count = either_world, either_world.staged_tables
    with armed(dying_at("publish.before")), pytest.raises(Died):
        world.run(DAY)
    assert leftovers(world) == count
    living = frozenset([staged(world)[0].strip(chr(34)).split("_", 3)[3].rsplit("_", 2)[0]])
    assert world.store.tidy(world.target, lambda: living, keep_days=0, dry_run=False).removed_files == 0
    assert world.store.tidy(world.target, frozenset, keep_days=0, dry_run=True).removed_files == count
    assert leftovers(world) == count
    swept = world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    assert (swept.removed_files, leftovers(world)) == (count, 0)
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


def test_a_run_that_began_while_a_tidy_listed_keeps_what_it_stages(either_world):
    world = either_world

    def begin():
        with armed(dying_at("publish.before")), pytest.raises(Died):
            world.run(DAY)
        return frozenset()

    assert world.store.tidy(world.target, begin, keep_days=0, dry_run=False).attempts == ()
    assert leftovers(world) == world.staged_tables


def test_an_attempt_that_was_swept_while_it_slept_is_refused(either_world):
    world = either_world

    def sweep():
        world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)

    with at_publish(sweep), pytest.raises(NotPublished, match="swept"):
        world.run(DAY)
    assert world.records() == []
    world.run(DAY)
    with at_publish(sweep), pytest.raises(NotPublished, match="swept"):
        world.run(DAY, force=True)
    assert totals(world)[0] == ROWS


def test_rows_that_the_server_lost_are_not_published(either_world):
    world = either_world
    lose = at_publish(lambda: world.database.execute(f"truncate {staged(world)[0]}"))
    with lose, pytest.raises(NotPublished, match="instead of"):
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
