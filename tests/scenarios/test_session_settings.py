"""Does a run publish the same rows whatever the session's settings are? It goes through the page that lists them."""

import re
import shutil
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest

import twice
from twice.faults import armed
from twice.handovers import take_over
from twice.session_settings import PINNED, REFUSED

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "session-settings.md"
ROW = re.compile(
    r"^\| `((?:spark|mapreduce)\.[\w.]+)` \| `([^`]+)` \| .* \| (?:pinned to `([^`]+)`|(refused)) \|$", re.MULTILINE
)
WEAK = {name: value for name, value, _, _ in ROW.findall(PAGE.read_text())}
HARMLESS = dict(re.findall(r"`(spark\.[\w.]+)=(\w+)`", PAGE.read_text()))
OVER_SPARK = pytest.mark.stores("parquet", "delta")


@contextmanager
def set_to(spark, values):
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
        assert {name: spark.conf.get(name, None) for name in values} == dict(values)
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_the_page_lists_what_is_pinned_and_what_is_refused():
    found = ROW.findall(PAGE.read_text())
    assert {name: pinned for name, _, pinned, _ in found if pinned} == PINNED
    assert all(value != pinned for _, value, pinned, _ in found)
    weakens = {one.name: one.weakens for one in REFUSED}
    assert {name for name, _, _, refused in found if refused} == set(weakens)
    assert all(weakens[name](value) for name, value, _, refused in found if refused)


@OVER_SPARK
def test_an_attempt_works_under_the_pinned_values_and_the_session_gets_its_own_back(world):
    seen = {}

    def look(rows):
        seen.update({name: world.spark.conf.get(name) for name in PINNED})
        return rows

    world.put("2024-09-20", ["a"])
    world.transform = look
    with set_to(world.spark, {name: WEAK[name] for name in PINNED}):
        world.run("2024-09-20")
    assert seen == PINNED


@OVER_SPARK
@pytest.mark.parametrize("pattern", [twice.data_overwrite(slice="day"), twice.merger(keys=["id"])], ids=repr)
def test_under_every_pinned_setting_a_run_publishes_what_a_clean_run_publishes(make_world, pattern):
    weak, clean = (make_world(pattern=pattern) for _ in range(2))
    for world, settings in ((clean, {}), (weak, {name: WEAK[name] for name in PINNED})):
        with set_to(world.spark, settings):
            for day, ids in (("2024-09-20", ["a", "O'Brien"]), ("2024-09-21", ["b"]), ("2024-09-20", ["a", "c"])):
                world.put(day, ids)
                assert world.run(day).state == "published"
            assert world.run("2024-09-20").state == "skipped"
    assert weak.rows() == clean.rows()
    assert len(weak.rows()) >= 3


@OVER_SPARK
def test_a_run_is_refused_under_a_setting_that_cannot_be_pinned(world):
    world.put("2024-09-20", ["a"])
    for one in REFUSED:
        with set_to(world.spark, {one.name: WEAK[one.name]}), pytest.raises(twice.Misuse, match=re.escape(one.name)):
            world.run("2024-09-20")
    assert world.rows() == []
    assert world.run("2024-09-20").state == "published"


@OVER_SPARK
def test_settings_that_change_nothing_change_nothing(make_world):
    world = make_world(pattern=twice.merger(keys=["id"]))
    assert len(HARMLESS) > 10
    with set_to(world.spark, HARMLESS):
        for day in ("2024-09-20", "2024-09-21"):
            world.put(day, ["O'Brien", '\\ "x"', "${env:HOME}", day])
            world.run(day)
    others = [(one, "2024-09-21") for one in ('\\ "x"', "${env:HOME}", "O'Brien")]
    assert world.rows() == sorted([*others, ("2024-09-20", "2024-09-20"), ("2024-09-21", "2024-09-21")])


@OVER_SPARK
def test_a_merge_does_not_go_on_without_the_rows_of_a_file_that_cannot_be_read(make_world):
    world = make_world(pattern=twice.merger(keys=["id"]))
    world.put("2024-09-20", ["a", "b"])
    world.run("2024-09-20")
    (file,) = [path for path in world.table().rglob("*.parquet") if "_delta_log" not in path.parts]
    whole = file.read_bytes()
    file.write_bytes(b"x" * len(whole))
    world.put("2024-09-21", ["b"])
    with set_to(world.spark, {"spark.sql.files.ignoreCorruptFiles": "true"}), pytest.raises(twice.NotPublished):
        world.run("2024-09-21")
    file.write_bytes(whole)
    assert world.rows() == [("a", "2024-09-20"), ("b", "2024-09-20")]


@pytest.mark.stores("delta")
def test_a_merge_does_not_go_on_without_the_rows_of_a_file_that_is_gone(make_world):
    world = make_world(pattern=twice.merger(keys=["id"]))
    world.put("2024-09-20", ["a", "b"])
    world.run("2024-09-20")
    (file,) = world.table().glob("*.parquet")
    file.rename(world.folder / "away")
    world.put("2024-09-21", ["b"])
    with set_to(world.spark, {"spark.sql.files.ignoreMissingFiles": "true"}), pytest.raises(twice.NotPublished):
        world.run("2024-09-21")
    (world.folder / "away").rename(file)
    assert world.rows() == [("a", "2024-09-20"), ("b", "2024-09-20")]


@pytest.mark.stores("delta")
def test_rows_outside_the_slice_are_refused_even_if_the_transform_switches_the_check_off(make_world):
    check = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"

    def switch_off(rows):
        world.spark.conf.set(check, "false")
        return rows

    world = make_world(transform=switch_off)
    world.put("2024-09-20", ["a"])
    world.run("2024-09-20")
    world.put("2024-09-21", ["stray"], as_day="2024-09-20")
    with set_to(world.spark, {check: "false"}), pytest.raises(twice.NotPublished, match="outside the slot's slice"):
        world.run("2024-09-21")
    assert world.rows() == [("a", "2024-09-20")]


@pytest.mark.stores("delta")
def test_partitions_of_other_slots_stay_where_the_session_knows_no_dynamic_overwrite(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["day"]))
    with set_to(world.spark, {"spark.databricks.delta.dynamicPartitionOverwrite.enabled": "false"}):
        for day in ("2024-09-20", "2024-09-21"):
            world.put(day, ["a"])
            world.run(day)
    assert world.rows() == [("a", "2024-09-20"), ("a", "2024-09-21")]


@pytest.mark.stores("delta")
def test_a_whole_table_is_replaced_where_the_session_overwrites_partitions_alone(make_world):
    world = make_world(pattern=twice.data_overwrite())
    frame = world.spark.createDataFrame([("old", date(2024, 9, 19))], "id string, day date")
    frame.write.format("delta").partitionBy("day").save(str(world.table()))
    take_over(world.store, world.project.ledger, world.target)
    world.put("2024-09-20", ["a"])
    with set_to(world.spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        world.run("2024-09-20")
    assert world.rows() == [("a", "2024-09-20")]


@OVER_SPARK
def test_timestamps_keep_their_microseconds(make_world):
    world = make_world(pattern=twice.merger(keys=["at"]), schema="id string, day date, at timestamp")
    with set_to(world.spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"}):
        for day in ("2024-09-20", "2024-09-21"):
            world.put_rows(day, [{"id": day, "day": day, "at": "2024-09-20T10:00:00.123456Z"}])
            world.run(day)
    assert [(row["id"], row["at"].microsecond) for row in world.records()] == [("2024-09-21", 123456)]


@pytest.mark.stores("delta")
def test_a_timestamp_that_partitions_is_the_same_in_every_zone(make_world):
    pattern = twice.data_overwrite(partitions=["at"])
    world = make_world(pattern=pattern, schema="id string, day date, at timestamp")
    world.put_rows("2024-09-20", [{"id": "a", "day": "2024-09-20", "at": "2024-09-20T10:00:00Z"}])
    weak = {
        "spark.databricks.delta.write.utcTimestampPartitionValues": "false",
        "spark.sql.session.timeZone": "America/New_York",
    }
    with set_to(world.spark, weak):
        world.run("2024-09-20")
        there = world.records()
    assert world.records() == there


@pytest.mark.stores("delta")
def test_texts_that_are_too_long_are_refused_where_the_session_takes_them_for_texts_of_any_length(make_world):
    world = make_world()
    world.spark.sql(f"CREATE TABLE delta.`{world.table()}` (id VARCHAR(2), day DATE) USING delta")
    take_over(world.store, world.project.ledger, world.target)
    world.put("2024-09-20", ["long"])
    with set_to(world.spark, {"spark.sql.legacy.charVarcharAsString": "true"}), pytest.raises(twice.NotPublished):
        world.run("2024-09-20")
    assert world.rows() == []


@pytest.mark.stores("parquet")
def test_files_of_tasks_that_did_not_commit_are_not_published(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["day"]))
    world.put("2024-09-20", ["a"])

    def leave(point):
        if point == "parquet.files.written":
            (staged,) = (world.table() / "data").iterdir()
            (file,) = staged.rglob("part-*.parquet")
            task = staged / "_temporary" / "0" / "_temporary" / "attempt_1" / file.parent.name
            task.mkdir(parents=True)
            shutil.copy(file, task)

    with armed(leave):
        world.run("2024-09-20")
    assert world.rows() == [("a", "2024-09-20")]


@OVER_SPARK
def test_old_dates_are_the_same_for_other_readers(world):
    from pyarrow import parquet

    world.pattern = twice.data_overwrite()
    world.put("2024-09-20", ["a"], as_day="1500-01-01")
    with set_to(world.spark, {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"}):
        world.run("2024-09-20")
    files = [path for path in world.table().rglob("*.parquet") if "_delta_log" not in path.parts]
    assert [row["day"] for file in files for row in parquet.ParquetFile(file).read().to_pylist()] == [date(1500, 1, 1)]
