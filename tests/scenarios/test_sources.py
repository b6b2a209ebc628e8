"""Queries, functions and SQL transforms on a real session."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime

import pytest

import twice
from twice import settings
from twice.intervals import Schedule
from twice.project import Project
from twice.runs import Run, Slot, Target
from twice.sight import Sight
from twice.statements import Statement

pytestmark = pytest.mark.spark
DAY, NEXT = "2024-10-07", "2024-10-08"
SLOT = Slot("out", Target.parse("parquet:lake/out"), Schedule("1 day", DAY).at(DAY))


@pytest.fixture
def project(tmp_path, spark):
    return Project(settings.load(tmp_path), spark)


@pytest.fixture
def orders(spark):
    """Orders in Spark's catalog, of two days and of the moment between them."""
    moments = [(1, datetime(2024, 10, 7, 0, 0)), (2, datetime(2024, 10, 7, 23, 59)), (3, datetime(2024, 10, 8, 0, 0))]
    spark.createDataFrame(moments, "id int, at timestamp").createOrReplaceTempView("orders")
    yield "orders"
    spark.catalog.dropTempView("orders")


def declared(transform=lambda rows: rows, **given):
    rest = {"name": "out", "target": "parquet:lake/out", "pattern": twice.data_overwrite(slice="day")}
    return twice.pipeline(every="1 day", start=DAY, **{**rest, **given})(transform)


def ids(project):
    return sorted(row["id"] for row in twice.read(None, "parquet:lake/out", project=project).collect())


def own_views(spark):
    return [table.name for table in spark.catalog.listTables() if table.isTemporary]


# ------------------------------------------------------------------ sources


def test_a_query_reads_the_catalog_with_the_times_of_its_slot(project, orders):
    text = "select id, date(at) as day from orders where at >= :start and at < :end and :execution_time = :start"
    answers = ["first"]
    one = declared(source=twice.query(text, fingerprint=lambda run: [run.key, answers[0]]))
    assert [twice.run(one, at=DAY, project=project).state for _ in range(2)] == ["published", "skipped"]
    assert ids(project) == [1, 2]
    answers[0] = "second"
    assert twice.run(one, at=DAY, project=project).generation == 2


def test_a_query_joins_tables_of_two_stores_at_the_versions_that_were_planned(project, spark):
    def publish(to, name, rows, schema):
        frame = spark.createDataFrame(rows, schema)
        pattern, slot = twice.data_overwrite(), twice.slot(name)
        twice.publish(frame, to=to, pattern=pattern, slot=slot, inputs=[str(rows)], project=project)

    publish("delta:lake/visits", "visits", [(1, "pl"), (2, "de")], "id int, land string")
    publish("parquet:lake/lands", "lands", [("pl", "Poland")], "land string, name string")
    text = "with known as (select * from lands) select v.id, k.name, date(:start) as day from visits v join known k using (land)"
    one = declared(source=twice.query(text, tables={"visits": "delta:lake/visits", "lands": "parquet:lake/lands"}))
    job = project.job(one, one.slot(DAY))
    planned = job.resolve(Sight())
    publish("parquet:lake/lands", "lands", [("pl", "Poland"), ("de", "Germany")], "land string, name string")
    assert [row["id"] for row in planned["rows"].read(project.engine).collect()] == [1]
    assert twice.run(one, at=DAY, project=project).rows == 2
    assert twice.run(one, at=DAY, project=project).state == "skipped"
    assert ids(project) == [1, 2]


def test_a_function_is_given_the_session_and_the_run(project, spark, orders):
    def read(spark, run):
        return spark.table("orders").selectExpr("id", "date(at) as day").where(f"day = '{run.execution_time:%Y-%m-%d}'")

    sources = {
        "orders": twice.source(read, fingerprint="orders of {execution_date}"),
        "wanted": twice.query("select 2 as id", fingerprint="wanted"),
    }
    one = declared(twice.sql("select orders.* from orders join wanted using (id)"), sources=sources)
    assert twice.run(one, at=DAY, project=project).state == "published"
    assert ids(project) == [2]


# ------------------------------------------------------------------ statements


def test_times_are_moments_whatever_the_zone_of_the_session(spark):
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    text = "select unix_seconds(:start) as a, unix_seconds(:end) as b, typeof(:execution_time) as c"
    for one in (spark, session):
        (row,) = Statement(text).frame(one, {}, SLOT).collect()
        moments = [int(datetime(2024, 10, day, tzinfo=UTC).timestamp()) for day in (7, 8)]
        assert tuple(row) == (*moments, "timestamp")


@pytest.mark.parametrize("key", ["it's", "x' or '1'='1", "a;b -- c", "\\", "😀"])
def test_a_key_is_bound_and_never_pasted(spark, key):
    slot = Slot("out", SLOT.target, key)
    (row,) = Statement("select :key as key, ':key' as text, '{key}' as brace").frame(spark, {}, slot).collect()
    assert tuple(row) == (key, ":key", "{key}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("select * from nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("select nothing as day from rows", "UNRESOLVED_COLUMN"),
        ("select 1 +", "PARSE_SYNTAX_ERROR"),
        ("with a as (select 1) insert into rows select * from a", "PARSE_SYNTAX_ERROR"),
    ],
)
def test_sql_that_spark_refuses_is_told_in_one_line_and_leaves_nothing(project, spark, text, why):
    before = own_views(spark)
    one = declared(twice.sql(text), source=twice.query("select 1 as id", fingerprint="x"))
    with pytest.raises(twice.NotPublished, match=rf"could not be computed or written: \[{why}"):
        twice.run(one, at=DAY, project=project)
    assert own_views(spark) == before
    assert not project.store("parquet").look("lake/out").exists


# ------------------------------------------------------------------ transforms


def test_names_of_sources_are_found_in_every_corner_of_a_query(spark):
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id int, t string")
    text = """
        -- the outer names are seen by sub-queries, and an inner name hides an outer one
        with other as (select id + 10 as id from rows)
        select r.id, (select max(id) from other) as most, exists (select 1 from `odd name` o where o.id = r.id) as odd
        from rows r where id in (select id from rows) order by id ;
    """
    found = twice.sql(text)(rows, **{"odd name": rows.where("id = 2"), "other": rows})
    assert [tuple(row) for row in found.collect()] == [(1, 12, False), (2, 12, True)]
    assert own_views(spark) == []


def test_threads_on_one_session_do_not_exchange_their_rows(spark):
    transform = twice.sql("select id, :start as at from rows")
    settings = dict(spark.conf.getAll)

    def work(number):
        run = Run(Slot("out", SLOT.target, Schedule("1 day", DAY).at(f"2024-10-{number:02}")), 1, "by hand")
        (row,) = transform(spark.range(number, number + 1), run=run).collect()
        return row["id"], row["at"].day

    days = range(7, 27)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, days)) == [(day, day) for day in days]
    assert own_views(spark) == []
    assert dict(spark.conf.getAll) == settings


def test_a_pipeline_of_sql_is_called_like_a_function(spark):
    one = declared(
        twice.sql("select id, date(:start) as day from rows"), source=twice.query("select 1", fingerprint="x")
    )
    frame = spark.range(1)
    assert one(frame, run=Run(one.slot(DAY), 1, "by hand")).collect()[0]["day"] == date(2024, 10, 7)
