"""Rows and table differ in their columns: refused, or done as declared, and never a column dropped."""

import pytest

import twice
from twice.errors import Misuse, NotPublished
from worlds import needing

DAY, NEXT = "2024-09-20", "2024-09-21"
NARROW, WIDE = "id string, day date", "id string, day date, n int"
PATTERNS = {
    "slice": lambda: twice.data_overwrite(slice="day"),
    "table": twice.data_overwrite,
    "proxy": twice.proxy,
    "partitions": lambda: twice.data_overwrite(partitions=["day"]),
    "merger": lambda: twice.merger(keys=["id"]),
    "dedup": lambda: twice.dedup_insert(keys=["id"]),
    "append": twice.transactional_writer,
}


@pytest.fixture(params=[pytest.param(name, marks=needing(make())) for name, make in PATTERNS.items()])
def filled(request, make_world):
    """Return a maker of worlds whose table holds one day in the narrow schema."""

    def make(**policy):
        world = make_world(pattern=PATTERNS[request.param](), schema=NARROW, columns=policy)
        world.put_rows(DAY, [{"id": "a", "day": DAY}])
        world.run(DAY)
        return world

    return make


def put_wide(world, day=NEXT, **row):
    world.schema = WIDE
    world.put_rows(day, [{"id": "b", "day": day, "n": 1, **row}])


def test_a_new_column_is_refused_and_the_way_out_is_named(filled):
    world = filled()
    put_wide(world)
    with pytest.raises(NotPublished, match=r"(?s)new column 'n'.*on_new_column='add'"):
        world.run(NEXT)
    assert world.table_rows("id") == [("a",)]


def test_a_new_column_is_added_if_declared(filled):
    world = filled(on_new_column="add")
    put_wide(world)
    world.run(NEXT)
    whole = world.pattern.compares_head
    assert world.table_rows("id", "n") == [*([] if whole else [("a", None)]), ("b", 1)]
    assert world.run(NEXT).state == "skipped"


@pytest.mark.parametrize(
    "pattern", [pytest.param(PATTERNS[name], marks=needing(PATTERNS[name]())) for name in ("slice", "table", "proxy")]
)
def test_a_missing_column_is_refused_or_null(make_world, pattern):
    world = make_world(schema=WIDE, pattern=pattern())
    put_wide(world, DAY)
    world.run(DAY)
    world.schema = NARROW
    world.put_rows(NEXT, [{"id": "c", "day": NEXT}])
    with pytest.raises(NotPublished, match=r"(?s)lack the column 'n'.*on_missing_column='null'"):
        world.run(NEXT)
    world.columns = {"on_missing_column": "null"}
    world.run(NEXT)
    assert world.table_rows("id", "n") == [*([] if world.pattern.compares_head else [("b", 1)]), ("c", None)]


@pytest.mark.stores("parquet", "delta")
@pytest.mark.parametrize(
    "pattern",
    [
        twice.data_overwrite(slice="day"),
        twice.stateful_merger(keys=["id"]),
        twice.stateful_merger(keys=["id"], form="history"),
    ],
    ids=("slice", "versions", "history"),
)
def test_a_type_that_grows(make_world, pattern):
    world = make_world(schema=WIDE, columns={"on_type_change": "widen"}, pattern=pattern)
    put_wide(world, DAY)
    world.run(DAY)
    world.schema = "id string, day date, n bigint"
    world.put_rows(NEXT, [{"id": "c", "day": NEXT, "n": 2**40}])
    if world.kind == "delta":
        with pytest.raises(NotPublished, match=r"delta\.enableTypeWidening"):
            world.run(NEXT)
        world.spark.sql(f"ALTER TABLE delta.`{world.table()}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    world.run(NEXT)
    assert world.table_rows("id", "n") == [("b", 1), ("c", 2**40)]
    world.put_rows(DAY, [{"id": "c", "day": DAY, "n": 2**41}, {"id": "d", "day": DAY, "n": 2}])
    world.run(DAY)
    kept = [("c", 2**41)] if pattern.adds_up else []
    assert world.table_rows("id", "n") == [("c", 2**40), *kept, ("d", 2)]


@pytest.mark.stores("parquet", "delta")
def test_a_type_that_changes_is_refused(make_world):
    world = make_world(schema=WIDE, columns={"on_type_change": "widen"})
    put_wide(world, DAY)
    world.run(DAY)
    world.schema = "id string, day date, n string"
    world.put_rows(NEXT, [{"id": "c", "day": NEXT, "n": "many"}])
    with pytest.raises(NotPublished, match="have 'n' as string instead of integer"):
        world.run(NEXT)


def test_columns_that_differ_in_capital_letters_alone_are_refused(make_world):
    world = make_world(schema=WIDE, columns={"on_new_column": "add", "on_missing_column": "null"})
    put_wide(world, DAY)
    world.run(DAY)
    world.schema = "id string, day date, N int"
    world.put_rows(NEXT, [{"id": "c", "day": NEXT, "N": 1}])
    with pytest.raises(NotPublished, match="capital letters"):
        world.run(NEXT)


@pytest.mark.parametrize("pattern", [twice.data_overwrite(slice="day"), twice.merger(keys=["id"])])
def test_a_new_table_gets_no_two_columns_that_differ_in_capital_letters_alone(make_world, pattern):
    """It could be published to once, and never again."""
    world = make_world(pattern=pattern)
    world.put(DAY, ["a"])
    world.transform = with_shouted_id
    with pytest.raises(NotPublished, match="capital letters"):
        world.run(DAY)
    assert world.sight().receipts == {}


def with_shouted_id(rows):
    if isinstance(rows, list):
        return [{**row, "ID": row["id"]} for row in rows]
    from pyspark.sql import functions as F

    return rows.select("*", F.col("id").alias("ID"))


def test_a_merge_adds_a_column_and_updates_a_row_in_one_publish(make_world):
    world = make_world(pattern=twice.merger(keys=["id"]), schema=NARROW, columns={"on_new_column": "add"})
    world.put_rows(DAY, [{"id": "a", "day": DAY}, {"id": "b", "day": DAY}])
    world.run(DAY)
    world.schema = WIDE
    world.put_rows(NEXT, [{"id": "a", "day": NEXT, "n": 1}, {"id": "c", "day": NEXT, "n": 2}])
    world.run(NEXT)
    assert world.table_rows("id", "n") == [("a", 1), ("b", None), ("c", 2)]


@pytest.mark.needs("UnitesTables")
def test_tables_that_are_read_together_have_the_same_types(make_world):
    world = make_world(pattern=twice.fast_metadata_cleaner(period="day"), schema=NARROW)
    world.put_rows(DAY, [{"id": "a", "day": DAY}])
    world.run(DAY)
    put_wide(world)
    with pytest.raises(NotPublished, match="new column 'n'"):
        world.run(NEXT)
    world.columns = {"on_new_column": "add"}
    world.run(NEXT)
    assert world.table_rows("id", "n") == [("a", None), ("b", 1)] if world.kind != "memory" else True


@pytest.mark.stores("delta")
def test_a_merge_with_deletion_vectors_adds_a_column_too(make_world):
    world = make_world(pattern=twice.merger(keys=["id"]), schema=NARROW, columns={"on_new_column": "add"})
    world.put_rows(DAY, [{"id": "a", "day": DAY}, {"id": "b", "day": DAY}])
    world.run(DAY)
    world.spark.sql(f"ALTER TABLE delta.`{world.table()}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    world.schema = WIDE
    world.put_rows(NEXT, [{"id": "a", "day": NEXT, "n": 1}, {"id": "c", "day": NEXT, "n": 2}])
    world.run(NEXT)
    assert world.table_rows("id", "n") == [("a", 1), ("b", None), ("c", 2)]
    world.put_rows("2024-09-22", [{"id": "b", "day": NEXT, "n": 3}])
    assert world.run("2024-09-22").notes[0] == "inserted 0, updated 1, deleted 0, left alone 0"
    assert world.table_rows("id", "n") == [("a", 1), ("b", 3), ("c", 2)]


def test_a_store_names_the_columns_of_a_table_and_a_plan_refuses_others(make_world):
    world = make_world(pattern=twice.transactional_writer())
    assert not world.store.column_names(world.target)
    world.put("2024-09-20", ["a"])
    world.run("2024-09-20")
    assert sorted(world.store.column_names(world.target)) == ["day", "id"]
    misspelt = world.twin(pattern=twice.data_overwrite(slice="dya"))
    misspelt.put("2024-09-21", ["b"])
    with pytest.raises(Misuse, match=r"has no column 'dya' \(slice=\)"):
        twice.plan(misspelt.pipeline, at="2024-09-21", project=misspelt.project)
