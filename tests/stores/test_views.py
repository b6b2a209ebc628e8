"""Views for people who know only SQL, and views as sources of other pipelines."""

import pytest

import twice
from twice.errors import Misuse
from twice.pipelines import pipeline
from twice.sources.tables import Table
from worlds import needing

DAYS = ["2024-09-20", "2024-09-21", "2024-09-30"]
PATTERNS = {"united": lambda: twice.fast_metadata_cleaner(period="week"), "versions": twice.proxy}


def filled(world):
    for day in DAYS:
        world.put(day, [f"{day}-a"])
        world.run(day)
    return world


@pytest.fixture(params=[pytest.param(name, marks=needing(make())) for name, make in PATTERNS.items()])
def view(request, make_world):
    return filled(make_world(pattern=PATTERNS[request.param]()))


@pytest.mark.stores("parquet", "delta")
def test_temporary_views_for_sql(view):
    view.project.__dict__["pipelines"] = {"out": view.pipeline}
    assert twice.register_views(view.spark, project=view.project) == ["out"]
    assert view.spark.table("out").count() == len(view.records())
    view.spark.catalog.dropTempView("out")


@pytest.mark.stores("delta")
def test_a_persistent_view_is_kept_where_the_project_names_a_schema(view):
    view.spark.sql("CREATE DATABASE IF NOT EXISTS analytics")
    view.store.views = "analytics"
    try:
        view.put(DAYS[2], ["corrected", "twice"])
        view.run(DAYS[2])
        shown = view.spark.table("analytics.out")
        assert sorted(map(tuple, shown.select("id", "day").collect())) == sorted(view.table_rows("id", "day"))
        view.spark.sql("DROP VIEW analytics.out")
        view.spark.sql("CREATE TABLE analytics.out (id string) USING parquet")
        view.put("2024-10-07", ["next"])
        with pytest.raises(Misuse, match="is a table in Spark's catalog"):
            view.run("2024-10-07")
    finally:
        view.spark.sql("DROP DATABASE IF EXISTS analytics CASCADE")


def test_a_view_is_a_source_like_a_table(view):
    reader = pipeline(
        name="copies",
        source=Table(f"{view.kind}:{view.target}"),
        target=f"{view.kind}:lake/copies",
        pattern=twice.data_overwrite(),
    )(lambda rows: rows)
    assert twice.run(reader, project=view.project).rows == len(view.records())
    assert twice.run(reader, project=view.project).state == "skipped"
    view.put("2024-10-07", ["next"])
    view.run("2024-10-07")
    assert twice.run(reader, project=view.project).rows == len(view.records())


@pytest.mark.stores("memory")
def test_several_tables_of_one_store_in_one_publish(make_world):
    def split(rows):
        return {"orders": rows[:1], "lines": rows}

    world = make_world(pattern=twice.transactional_writer(tables=["orders", "lines"]), transform=split)
    world.put(DAYS[0], ["a", "b"])
    assert world.run(DAYS[0]).rows == 3
    assert world.run(DAYS[0]).state == "skipped"
    assert [len(world.store.read(f"{world.target}/{name}")) for name in ("orders", "lines")] == [1, 2]
    world.transform = lambda rows: {"orders": rows}
    world.put(DAYS[1], ["c"])
    with pytest.raises(twice.NotPublished, match="rows of orders, lines"):
        world.run(DAYS[1])
