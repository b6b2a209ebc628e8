"""Tables of Delta that others made: with columns that are mapped, filled by the store, or bound by rules."""

import json

import pytest
from pyspark.sql import functions

import twice
from twice.errors import Misuse, NotPublished, ProofGone

pytestmark = [pytest.mark.stores("delta")]

MAPPED = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"


def made(world, columns="id STRING, day DATE", layout="PARTITIONED BY (day)", properties=MAPPED):
    """Make the target as somebody would who does not know Twice."""
    world.spark.sql(f"CREATE TABLE delta.`{world.table()}` ({columns}) USING DELTA {layout} {properties}")


def alter(world, change):
    world.spark.sql(f"ALTER TABLE delta.`{world.table()}` {change}")


def layout(world):
    """Return the table's columns as the log has them, with all that is said of each."""
    log = sorted((world.table() / "_delta_log").glob("*.json"))
    found = [
        json.loads(line)["metaData"] for path in log for line in path.read_text().splitlines() if "metaData" in line
    ]
    return json.loads(found[-1]["schemaString"])["fields"]


# ---------------------------------------------------------------- columns that are mapped


@pytest.fixture
def by_partitions(make_world):
    return make_world(pattern=twice.data_overwrite(partitions=["day"]))


def test_partitions_of_a_mapped_table_are_told_apart(by_partitions):
    made(by_partitions)
    for day in ("2024-09-20", "2024-09-21"):
        by_partitions.put(day, [f"{day}-a"])
        assert by_partitions.run(day).state == "published"
    by_partitions.put("2024-09-20", ["corrected"])
    assert by_partitions.run("2024-09-20").generation == 2
    assert by_partitions.by_day() == {"2024-09-20": ["corrected"], "2024-09-21": ["2024-09-21-a"]}
    receipts = by_partitions.sight().receipts
    assert receipts[by_partitions.slot("2024-09-20")].partitions == ("day=2024-09-20",)


def test_a_partition_of_a_mapped_table_that_a_slot_leaves_is_emptied_and_no_other(by_partitions):
    made(by_partitions)
    for day in ("2024-09-20", "2024-09-21"):
        by_partitions.put(day, [f"{day}-a"])
        by_partitions.run(day)
    by_partitions.put("2024-09-20", ["moved"], as_day="2024-09-01")
    by_partitions.run("2024-09-20")
    assert by_partitions.by_day() == {"2024-09-01": ["moved"], "2024-09-21": ["2024-09-21-a"]}


@pytest.mark.parametrize("column", ["day", "id"])
def test_slices_of_a_mapped_table_are_replaced(make_world, column):
    world = make_world()
    made(world, layout=f"PARTITIONED BY ({column})")
    for day in ("2024-09-20", "2024-09-21"):
        world.put(day, [f"{day}-a"])
        world.run(day)
    world.put("2024-09-20", ["corrected"])
    world.run("2024-09-20")
    assert world.by_day() == {"2024-09-20": ["corrected"], "2024-09-21": ["2024-09-21-a"]}


def test_an_empty_text_in_a_partition_of_a_mapped_table_is_refused(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["id"]))
    made(world, layout="PARTITIONED BY (id)")
    world.put("2024-09-20", ["a"])
    world.run("2024-09-20")
    world.put("2024-09-21", [""])
    with pytest.raises(NotPublished, match="empty text"):
        world.run("2024-09-21")


def test_a_new_table_that_the_session_maps_is_told_apart(by_partitions):
    said = "spark.databricks.delta.properties.defaults.columnMapping.mode"
    by_partitions.spark.conf.set(said, "name")
    try:
        for day, name in (("2024-09-20", "a"), ("2024-09-21", "b"), ("2024-09-20", "c")):
            by_partitions.put(day, [name])
            by_partitions.run(day)
    finally:
        by_partitions.spark.conf.unset(said)
    assert by_partitions.by_day() == {"2024-09-20": ["c"], "2024-09-21": ["b"]}


def test_a_mapped_table_takes_merges_and_nested_columns(make_world):
    columns = "id STRING, at STRUCT<lat: INT, name: STRING>"
    world = make_world(pattern=twice.merger(keys=["id"]), schema="id string, at struct<lat: int, name: string>")
    made(world, columns=columns, layout="")
    first = [{"id": one, "at": {"lat": 1, "name": one}} for one in "abc"]
    world.put_rows("2024-09-20", first)
    world.run("2024-09-20")
    world.put_rows("2024-09-21", [{"id": "b", "at": {"lat": 2, "name": "b"}}, {"id": "d", "at": None}])
    world.run("2024-09-21")
    found = sorted((row["id"], row["at"]["lat"] if row["at"] else None) for row in world.records())
    assert found == [("a", 1), ("b", 2), ("c", 1), ("d", None)]


# ---------------------------------------------------------------- what the table says of its columns

DAY, NEXT = "2024-09-20", "2024-09-21"
PATTERNS = {
    "slice": twice.data_overwrite(slice="day"),
    "whole": twice.data_overwrite(),
    "partitions": twice.data_overwrite(partitions=["day"]),
    "merge": twice.merger(keys=["id", "day"]),
    "missing": twice.dedup_insert(keys=["id", "day"]),
    "history": twice.stateful_merger(keys=["id", "day"], form="history"),
    "append": twice.transactional_writer(),
}
FEATURES = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
FILLED = (
    "id STRING NOT NULL COMMENT 'the key', day DATE, length INT GENERATED ALWAYS AS (length(id)),"
    " number BIGINT GENERATED ALWAYS AS IDENTITY, made_by STRING DEFAULT 'somebody', code VARCHAR(9)"
)


@pytest.fixture(params=PATTERNS)
def each(request, make_world):
    world = make_world(pattern=PATTERNS[request.param], columns={"on_missing_column": "null"})
    made(world, FILLED, "PARTITIONED BY (day)" if request.param == "partitions" else "", FEATURES)
    return world


def test_a_table_keeps_what_it_says_of_its_columns_and_fills_those_that_it_fills(each):
    before = layout(each)
    for day, ids in ((DAY, ["a", "bb"]), (NEXT, ["ccc"])):
        each.put(day, ids)
        assert each.run(day).state == "published"
        assert each.run(day).state == "skipped"
    assert [{**one, "metadata": counted_on(one)} for one in layout(each)] == [
        {**one, "metadata": counted_on(one)} for one in before
    ]
    found = {row["id"]: (row["length"], row["made_by"], row["code"]) for row in each.records()}
    ids = ["ccc"] if each.pattern == PATTERNS["whole"] else ["a", "bb", "ccc"]
    assert found == {one: (len(one), "somebody", None) for one in ids}
    numbers = [row["number"] for row in each.records()]
    assert len(set(numbers)) == len(numbers)
    assert None not in numbers


def counted_on(field):
    """Return what is said of a column, without how far its numbers have come."""
    return {name: value for name, value in field["metadata"].items() if name != "delta.identity.highWaterMark"}


def test_a_clustered_table_that_is_replaced_stays_clustered(make_world):
    world = make_world(pattern=PATTERNS["whole"])
    made(world, layout="CLUSTER BY (day, id)", properties="")
    for day, ids in ((DAY, ["a", "b"]), (NEXT, ["c"])):
        world.put(day, ids)
        assert world.run(day).state == "published"
    assert world.rows() == [("c", NEXT)]
    assert world.spark.sql(f"DESCRIBE DETAIL delta.`{world.table()}`").first()["clusteringColumns"] == ["day", "id"]


def test_a_corrected_row_that_is_merged_keeps_what_the_table_filled_in(make_world):
    world = make_world(pattern=twice.merger(keys=["id"]), columns={"on_missing_column": "null"})
    made(world, FILLED, "", FEATURES)
    world.put(DAY, ["a", "b"])
    world.run(DAY)
    world.spark.sql(f"UPDATE delta.`{world.table()}` SET made_by = 'me' WHERE id = 'a'")
    before = world.table_rows("id", "number", "made_by")
    world.put_rows(DAY, [{"id": one, "day": NEXT} for one in "abc"])
    world.run(DAY, accept=True)
    assert world.table_rows("id", "number", "made_by")[:2] == before
    assert [one for one in world.rows() if one[0] != "c"] == [("a", NEXT), ("b", NEXT)]


def test_a_slice_by_a_column_that_the_table_computes(make_world):
    world = make_world(schema="id string, at timestamp")
    made(world, "id STRING, at TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(at AS DATE))", "PARTITIONED BY (day)", "")
    for day, ids in ((DAY, ["a"]), (NEXT, ["b"]), (DAY, ["c", "d"])):
        world.put_rows(day, [{"id": one, "at": f"{day}T10:00:00Z"} for one in ids])
        world.run(day)
    assert world.by_day() == {DAY: ["c", "d"], NEXT: ["b"]}
    world.put_rows(DAY, [{"id": "a", "at": f"{NEXT}T10:00:00Z"}])
    with pytest.raises(NotPublished, match="outside the slot's slice"):
        world.run(DAY)


@pytest.mark.parametrize("pattern", ["slice", "whole", "merge", "append"])
@pytest.mark.parametrize(
    ("columns", "row", "said"),
    [
        ("id STRING, day DATE, n INT", {"id": "a", "n": 12}, r"CHECK constraint small \(n < 10\)"),
        (
            "id STRING, day DATE, n INT, m INT NOT NULL",
            {"id": "a", "n": 1},
            "NOT NULL constraint violated for column: m",
        ),
        ("id VARCHAR(3), day DATE, n INT", {"id": "long", "n": 1}, "exceeds char/varchar type length"),
    ],
    ids=["check", "null", "length"],
)
def test_a_rule_of_the_table_that_rows_break_is_told_as_its_own(make_world, pattern, columns, row, said):
    world = make_world(
        pattern=PATTERNS[pattern], schema="id string, day date, n int", columns={"on_missing_column": "null"}
    )
    made(world, columns, layout="", properties="")
    alter(world, "ADD CONSTRAINT small CHECK (n < 10)")
    world.put_rows(DAY, [{"day": DAY, **row}])
    with pytest.raises(NotPublished, match=said) as refused:
        world.run(DAY)
    assert "outside the slot" not in str(refused.value)
    assert world.records() == []


@pytest.mark.parametrize("name", PATTERNS)
def test_an_append_only_table_takes_what_only_comes_and_refuses_the_rest_for_good(make_world, name):
    world = make_world(pattern=PATTERNS[name])
    made(world, layout="PARTITIONED BY (day)", properties="TBLPROPERTIES ('delta.appendOnly' = 'true')")
    world.put(DAY, ["a"])
    if name in ("slice", "whole", "partitions"):
        with pytest.raises(Misuse, match="only grows"):
            world.run(DAY)
        return
    assert world.run(DAY).state == "published"
    world.put_rows(NEXT, [{"id": "b", "day": NEXT}])
    assert world.run(NEXT).state == "published"


def test_a_merge_that_takes_rows_out_of_an_append_only_table_is_refused_for_good(make_world):
    world = make_world(pattern=twice.merger(keys=["id"]))
    made(world, layout="", properties="TBLPROPERTIES ('delta.appendOnly' = 'true')")
    world.put(DAY, ["a", "b"])
    world.run(DAY)
    world.put_rows(NEXT, [{"id": "a", "day": NEXT}])
    with pytest.raises(Misuse, match="only grows"):
        world.run(NEXT)
    assert world.rows() == [("a", DAY), ("b", DAY)]


@pytest.mark.parametrize("change", ["DROP COLUMN code", "RENAME COLUMN code TO other"])
def test_a_column_that_was_dropped_or_renamed_ends_the_proofs(make_world, change):
    world = make_world(columns={"on_missing_column": "null"})
    made(world, "id STRING, day DATE, code STRING")
    world.put(DAY, ["a"])
    world.run(DAY)
    alter(world, change)
    if change.startswith("DROP"):
        alter(world, "ADD COLUMN code STRING")
    with pytest.raises(ProofGone, match="COLUMN"):
        world.run(DAY)


# ---------------------------------------------------------------- a table that is not there yet


def test_the_rows_of_a_new_table_are_computed_once_and_strays_are_counted_as_written(make_world):
    world = make_world(pattern=twice.data_overwrite(where="id < 'm'"))
    computed = world.spark.sparkContext.accumulator(0)

    @functions.udf("string")
    def counted(one):
        computed.add(1)
        return one

    world.transform = lambda rows: rows.withColumn("id", counted("id"))
    world.put(DAY, ["a", "b", "z"])
    with pytest.raises(NotPublished, match="1 of 3 rows lie outside"):
        world.run(DAY)
    assert computed.value == 3
    world.put(DAY, ["a", "b"])
    assert world.run(DAY).rows == 2
    assert computed.value == 5
