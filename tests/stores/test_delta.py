"""What is peculiar to Delta: its log, its maintenance, its catalog, its conflicts."""

import json
import os
import time
from datetime import datetime

import pytest

import twice
from twice.errors import ProofGone
from twice.faults import Died, armed, dying_at
from twice.stores.delta import log

pytestmark = [pytest.mark.stores("delta")]


def publish_days(world, count=3):
    for number in range(count):
        day = f"2024-09-{20 + number}"
        world.put(day, [f"{day}-a", f"{day}-b"])
        world.run(day)


def sql(world, statement):
    return world.spark.sql(statement.format(table=f"delta.`{world.table()}`"))


def test_maintenance_ends_no_proof(world):
    publish_days(world)
    sql(world, "OPTIMIZE {table}")
    sql(world, "ALTER TABLE {table} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 40 days')")
    sql(world, "VACUUM {table}")
    assert world.sight().ended == {}
    assert world.run("2024-09-20").state == "skipped"
    world.put("2024-09-21", ["corrected"])
    assert world.run("2024-09-21").generation == 2


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {table} WHERE id LIKE '%-a'",
        "UPDATE {table} SET id = 'changed'",
        "INSERT INTO {table} VALUES ('foreign', DATE '2024-09-20')",
        "CREATE OR REPLACE TABLE {table} USING DELTA PARTITIONED BY (day) AS SELECT 'x' AS id, DATE '2024-09-20' AS day",
    ],
)
def test_a_foreign_change_ends_every_proof(world, statement):
    publish_days(world, 2)
    sql(world, statement)
    with pytest.raises(ProofGone, match="changed from outside"):
        world.run("2024-09-20")


def test_109_old_receipts_survive_the_cleaning_of_the_log(world):
    """Commits are older than the log's retention and are cleaned away at a checkpoint."""
    world.put("2024-09-01", ["oldest"])
    world.run("2024-09-01")
    sql(
        world,
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 1 days', 'delta.deletedFileRetentionDuration' = 'interval 1 days')",
    )
    for number in range(2, 13):
        day = f"2024-09-{number:02}"
        world.put(day, [day])
        world.run(day)
    clean_log(world)
    assert log.commit_versions(str(world.table()))[0] > 5
    assert world.run("2024-09-01").state == "skipped"
    world.lose_ledger()
    from twice.handovers import take_over

    sight = take_over(world.store, world.project.ledger, world.target)
    assert len(sight.receipts) == 12
    assert world.rows()[0] == ("2024-09-02", "2024-09-02")


def clean_log(world):
    """Make the commits look old, and let Delta write a checkpoint and clean up after itself."""
    folder = world.table() / "_delta_log"
    long_ago = time.time() - 5 * 86_400
    newest = max(log.commit_versions(str(world.table())))
    for file in folder.glob("*.json"):
        if int(file.name[:20]) <= newest - 1:
            os.utime(file, (long_ago, long_ago))
    for file in [*folder.glob("*.parquet"), *folder.glob("*.crc")]:
        os.utime(file, (long_ago, long_ago))
    jvm = world.spark._jvm
    delta_log = getattr(getattr(jvm.org.apache.spark.sql.delta, "DeltaLog$"), "MODULE$").forTable(
        world.spark._jsparkSession, str(world.table())
    )
    snapshot = delta_log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())
    delta_log.checkpoint(snapshot, jvm.scala.Option.empty())
    delta_log.doLogCleanup(snapshot, jvm.scala.Option.empty())


def test_receipts_that_went_with_the_log_are_fences_without_proof(world):
    publish_days(world, 2)
    strip_receipts(world)
    sight = world.sight()
    assert sight.fence(world.slot("2024-09-20")) == 1
    with pytest.raises(twice.Fenced):
        world.run("2024-09-20")


def strip_receipts(world):
    """Write a checkpoint, and take all commits but an unrelated last one away."""
    sql(world, "ALTER TABLE {table} SET TBLPROPERTIES ('x' = 'y')")
    jvm = world.spark._jvm
    delta_log = getattr(getattr(jvm.org.apache.spark.sql.delta, "DeltaLog$"), "MODULE$").forTable(
        world.spark._jsparkSession, str(world.table())
    )
    snapshot = delta_log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())
    delta_log.checkpoint(snapshot, jvm.scala.Option.empty())
    for version in log.commit_versions(str(world.table()))[:-1]:
        (world.table() / "_delta_log" / f"{version:020}.json").unlink()


def test_tidy_restates_receipts_and_changes_no_row(world):
    publish_days(world, 3)
    before = world.snapshot()
    world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    world.store.tidy(world.target, frozenset, keep_days=0, dry_run=True)
    assert world.snapshot() == before
    assert world.sight().ended == {}
    assert world.run("2024-09-20").state == "skipped"


def test_a_table_that_forgets_transactions_is_refused(world):
    publish_days(world, 1)
    sql(world, "ALTER TABLE {table} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 days')")
    world.put("2024-09-20", ["new"])
    with pytest.raises(twice.Misuse, match="forgets transactions"):
        world.run("2024-09-20")


def test_the_receipt_rides_in_the_commit_of_its_rows(world):
    publish_days(world, 1)
    lines = (world.table() / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    actions = [json.loads(line) for line in lines]
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    receipt = json.loads(info["userMetadata"])["receipts"][0]
    numbers = [action["txn"] for action in actions if "txn" in action]
    assert receipt["slot"] == world.slot("2024-09-20")
    assert {"appId": receipt["slot"], "version": 1} in [{k: n[k] for k in ("appId", "version")} for n in numbers]
    assert any("add" in action for action in actions)


def hours(world, vectors=False):
    """A pipeline whose slices are hours of a timestamp: not partitions of the table."""
    world.every = "1 hour"
    world.pattern = twice.data_overwrite(slice="at")
    world.transform = lambda rows: rows.selectExpr("id", "day", "CAST(id AS TIMESTAMP) AS at")
    if vectors:
        world.spark.sql(
            f"CREATE TABLE delta.`{world.folder}/lake/out` (id STRING, day DATE, at TIMESTAMP) USING DELTA"
            " TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
    return world


@pytest.mark.parametrize("vectors", [False, True])
def test_slices_of_a_timestamp_column(world, vectors):
    hours(world, vectors)
    world.put("2024-09-20", ["2024-09-20 05:10:00", "2024-09-20 05:50:00"])
    world.run("2024-09-20T05:00Z")
    world.put("2024-09-20", ["2024-09-20 06:00:00"])
    world.run("2024-09-20T06:00Z")
    sql(world, "OPTIMIZE {table}")
    world.put("2024-09-20", ["2024-09-20 05:30:00"])
    assert world.run("2024-09-20T05:00Z").generation == 2
    found = sql(world, "SELECT at FROM {table} ORDER BY at").collect()
    assert [row["at"] for row in found] == [datetime(2024, 9, 20, 5, 30), datetime(2024, 9, 20, 6, 0)]


def test_discarding_a_refused_publish_leaves_files_with_deletion_vectors_alone(world):
    hours(world, vectors=True)
    world.put("2024-09-20", ["2024-09-20 05:10:00"])
    world.run("2024-09-20T05:00Z")
    world.put("2024-09-20", ["2024-09-20 06:00:00"])
    world.run("2024-09-20T06:00Z")
    sql(world, "OPTIMIZE {table}")
    world.put("2024-09-20", ["2024-09-20 05:30:00"])

    def change(point):
        if point == "stage.after":
            world.put("2024-09-20", ["2024-09-20 05:40:00"])

    with armed(change), pytest.raises(twice.NotPublished, match="changed while"):
        world.run("2024-09-20T05:00Z")
    assert sql(world, "SELECT count(*) AS n FROM {table}").first()["n"] == 2


@pytest.mark.parametrize(
    ("pattern", "columns", "vectors"),
    [
        (twice.data_overwrite(slice="day"), "id STRING, day DATE", "false"),
        (twice.data_overwrite(where="day = DATE '{execution_date}'"), "id STRING, day DATE", "true"),
        (twice.transactional_writer(lineage="slot"), "id STRING, day DATE, slot STRING", "false"),
    ],
    ids=["slice", "where", "lineage"],
)
def test_rows_of_other_slots_in_a_file_that_is_written_anew_are_not_counted(make_world, pattern, columns, vectors):
    world = make_world(pattern=pattern)
    said = f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')"
    world.spark.sql(f"CREATE TABLE delta.`{world.table()}` ({columns}) USING DELTA {said}")
    publish_days(world)
    sql(world, "OPTIMIZE {table}")
    world.put("2024-09-21", ["c", "d", "e"])
    outcome = world.run("2024-09-21")
    assert (outcome.rows, world.sight().receipts[world.slot("2024-09-21")].rows) == (3, 3)
    assert {day: len(ids) for day, ids in world.by_day().items()} == {
        "2024-09-20": 2,
        "2024-09-21": 3,
        "2024-09-22": 2,
    }


def test_an_empty_result_is_told_where_a_file_holds_rows_of_other_slots(make_world):
    world = make_world(pattern=twice.data_overwrite(where="day = DATE '{execution_date}'", empty="fail"))
    publish_days(world)
    sql(world, "OPTIMIZE {table}")
    world.put("2024-09-21", [])
    with pytest.raises(twice.NotPublished, match="The result is empty"):
        world.run("2024-09-21")
    assert len(world.rows()) == 6


def test_the_first_publish_of_a_table_refuses_stray_rows_too(world):
    world.put("2024-09-20", ["stray"], as_day="2024-09-21")
    with pytest.raises(twice.NotPublished, match="outside"):
        world.run("2024-09-20")
    assert not world.sight().exists


def test_a_partition_value_with_a_slash_is_one_value(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["id"]))
    world.put("2024-09-20", ["a/b", "c=d", "e f"])
    world.run("2024-09-20")
    world.put("2024-09-20", ["c=d"])
    world.run("2024-09-20")
    assert world.by_day() == {"2024-09-20": ["c=d"]}


def test_partitions_that_a_restore_brought_back_go_away_again(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["id"]))
    for ids in (["a"], ["b"]):
        world.put("2024-09-20", ids)
        world.run("2024-09-20")
    sql(world, "RESTORE TABLE {table} TO VERSION AS OF 0")
    with pytest.raises(ProofGone):
        world.run("2024-09-20")
    assert world.run("2024-09-20", force=True).generation == 3
    assert world.by_day() == {"2024-09-20": ["b"]}


def test_a_catalog_entry_that_a_kill_left_out_is_made_by_the_next_run(make_world):
    world = make_world(target="left_out")
    world.put("2024-09-20", ["a"])
    try:
        with armed(dying_at("delta.committed")), pytest.raises(Died):
            world.run("2024-09-20")
        assert not world.spark.catalog.tableExists("left_out")
        world.reopen()
        assert world.run("2024-09-20").state == "skipped"
        assert [row.id for row in world.spark.table("left_out").collect()] == ["a"]
    finally:
        world.spark.sql("DROP TABLE IF EXISTS left_out")


def test_by_catalog_name(make_world):
    world = make_world(target="by_name")
    world.put("2024-09-20", ["a"])
    try:
        assert world.run("2024-09-20").state == "published"
        assert [row.id for row in world.spark.table("by_name").collect()] == ["a"]
        world.reopen()
        assert world.run("2024-09-20").state == "skipped"
        world.put("2024-09-20", ["b"])
        assert world.run("2024-09-20").generation == 2
        assert [row.id for row in world.spark.table("by_name").collect()] == ["b"]
    finally:
        world.spark.sql("DROP TABLE IF EXISTS by_name")


def test_one_folder_is_not_two_tables(make_world):
    world = make_world()
    publish_days(world, 1)
    with pytest.raises(twice.Misuse, match="Delta table"):
        world.project.store("parquet").look(world.target)
