"""Tables of Delta that others made: with columns that are mapped, filled by the store, or bound by rules."""

import json

import pytest

import twice
from twice.errors import NotPublished

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
