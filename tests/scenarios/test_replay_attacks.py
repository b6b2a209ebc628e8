"""Replays against twins, restores, foreign changes and vacuums: each of these once ended in a wrong table."""

from contextlib import suppress

import pytest

import twice
from twice.backfills import backfill
from twice.decide import Asked
from twice.errors import Fenced, LedgerAhead, NotPublished, ProofGone, TwiceError
from twice.faults import armed
from worlds import once_at

pytestmark = [pytest.mark.needs("KeepsVersions")]

SCHEMA = "id string, v string"
D20, D21, D22, D23, D24 = (f"2024-09-{day}" for day in range(20, 25))


@pytest.fixture
def world(make_world):
    return make_world(pattern=twice.stateful_merger(keys=["id"]), schema=SCHEMA)


def put(world, day, **rows):
    world.put_rows(day, [{"id": key, "v": value} for key, value in rows.items()])


def run(world, day, **rows):
    put(world, day, **rows)
    return world.run(day)


def table(world):
    return dict(world.table_rows("id", "v"))


def target(world):
    return f"{world.kind}:{world.target}"


def meddle(world):
    """Change a row as a stranger would."""
    if world.kind == "memory":
        world.memory.meddle(world.target, [{**row, "v": "foreign"} for row in world.records()])
    else:
        world.spark.sql(f"UPDATE delta.`{world.table()}` SET v = 'foreign'")


def test_a_replay_that_loses_against_its_twin_leaves_the_twins_files_alone(world):
    run(world, D20, a="20", b="20")
    run(world, D21, a="21")
    put(world, D21, z="21")
    with armed(once_at("looked.again", lambda: world.twin().run(D21))):
        assert world.run(D21).state == "skipped"
    assert table(world) == {"a": "20", "b": "20", "z": "21"}
    assert not world.sight().ended


def test_a_replay_whose_input_moved_leaves_older_versions_alone(world):
    run(world, D20, a="20", b="20")
    run(world, D21, a="21")
    put(world, D21, z="21")
    with armed(once_at("stage.after", lambda: put(world, D21, z="moved"))), pytest.raises(NotPublished):
        world.run(D21)
    assert table(world) == {"a": "21", "b": "20"}
    world.run(D21)
    assert table(world) == {"a": "20", "b": "20", "z": "moved"}


def test_a_next_slot_is_merged_into_what_the_plan_saw(world):
    run(world, D20, a="20")
    put(world, D21, a="21")
    put(world, D22, a="22")
    with armed(once_at("stage.before", lambda: world.twin().run(D22))):
        world.run(D21)
    assert table(world) == {"a": "22"}


def test_a_restore_in_the_middle_of_a_run_is_not_hidden(world):
    for number, day in enumerate((D20, D21, D22)):
        run(world, day, **{f"k{number}": "1"})
    put(world, D23, k3="1")
    back = once_at("stage.before", lambda: twice.restore(target(world), 0, project=world.twin().project))
    with armed(back), suppress(TwiceError):
        world.run(D23)
    assert set(world.sight().ended) >= {world.slot(D21), world.slot(D22)}
    with pytest.raises(ProofGone):
        world.run(D22)


def test_a_restore_in_the_middle_of_a_merge_is_not_hidden(make_world):
    world = make_world(pattern=twice.merger(keys=["id"]), schema=SCHEMA)
    for number, day in enumerate((D20, D21, D22)):
        run(world, day, **{f"k{number}": "1"})
    put(world, D23, k3="1")
    with armed(once_at("stage.before", lambda: twice.restore(target(world), 0, project=world.twin().project))):
        world.run(D23)
    assert table(world) == {"k0": "1", "k3": "1"}
    with pytest.raises(ProofGone):
        world.run(D22)


def test_a_restore_is_refused_where_a_publish_came_first_that_changes_no_row(make_world):
    world = make_world(pattern=twice.data_overwrite(slice="day", empty="keep"))
    for day in (D20, D21):
        world.put(day, [day])
        world.run(day)
    first, rows = world.sight().version - 1, world.by_day()
    world.put(D21, [])
    with (
        armed(once_at("restore.before", lambda: world.twin().run(D21))),
        pytest.raises(Fenced, match="moved meanwhile"),
    ):
        twice.restore(target(world), first, project=world.project)
    assert world.by_day() == rows
    assert world.sight().proof(world.slot(D21)).generation == 2


@pytest.mark.stores("parquet")
def test_a_tidy_that_pauses_does_not_take_the_files_of_a_later_replay(make_world):
    world = make_world(pattern=twice.stateful_merger(keys=["id"], keep_days=1), schema=SCHEMA)
    run(world, D20, a="20", b="20")
    run(world, D21, a="21")
    run(world, D22, c="22")
    grow_old(world)
    put(world, D21, z="21")

    def replay():
        with suppress(TwiceError):
            world.twin().run(D21)

    with armed(once_at("parquet.sweep.named", replay)):
        world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    assert not world.sight().ended
    assert table(world) in ({"a": "21", "b": "20", "c": "22"}, {"a": "20", "b": "20", "z": "21", "c": "22"})


def grow_old(world):
    import os
    import time

    for path in (world.table() / "_twice" / "log").glob("*.json"):
        os.utime(path, (time.time() - 5 * 86_400,) * 2)


@pytest.mark.stores("parquet")
def test_accepting_one_lost_file_does_not_throw_other_rows_away(make_world):
    world = make_world(pattern=twice.stateful_merger(keys=["day", "id"], partitioned_by=["day"]))
    for day in (D20, D21, D22):
        world.put(day, [day])
        world.run(day)
    (world.table() / world.partition_files(D20)[0]).unlink()
    world.put(D21, ["corrected"])
    before = world.all_files()
    with pytest.raises(Fenced, match="would lose it"):
        world.run(D21, accept=True)
    assert world.all_files() == before


def test_an_earlier_slot_is_never_applied_after_a_later_one(world):
    run(world, D20, a="20", b="20")
    run(world, D21, a="21", b="21")
    twice.restore(target(world), D20, project=world.project)
    put(world, D22, a="22")
    world.run(D22, accept=True)
    put(world, D23, c="23")
    world.run(D23, force=True)
    assert table(world) == {"a": "22", "b": "21", "c": "23"}


@pytest.mark.stores("delta")
def test_a_restore_by_hand_to_before_a_replay_ends_proofs(world):
    run(world, D20, a="20")
    meddle(world)
    put(world, D21, b="21")
    world.run(D21, force=True)
    run(world, D22, c="22")
    world.restore_by_hand(1)
    assert table(world) == {"a": "foreign"}
    with pytest.raises(ProofGone):
        world.run(D20)


@pytest.mark.stores("memory", "delta")
def test_a_restore_to_a_version_that_was_changed_from_outside_vouches_for_nothing(world):
    run(world, D20, a="20")
    run(world, D21, b="21")
    meddle(world)
    foreign = world.sight().version
    twice.restore(target(world), D21, project=world.project)
    assert not world.sight().ended
    twice.restore(target(world), foreign, project=world.project)
    assert table(world) == {"a": "foreign", "b": "foreign"}
    put(world, D22, c="22")
    with pytest.raises(ProofGone):
        world.run(D22)


@pytest.mark.stores("memory", "delta")
def test_119_an_acceptance_does_not_cover_a_later_restore(world):
    run(world, D20, a="20")
    meddle(world)
    put(world, D21, b="21")
    world.run(D21, accept=True)
    accepted = world.sight().version
    run(world, D22, c="22")
    twice.restore(target(world), accepted, project=world.project)
    put(world, D23, d="23")
    with pytest.raises(ProofGone):
        world.run(D23)
    with pytest.raises(ProofGone):
        world.run(D22)


@pytest.mark.stores("memory", "delta")
def test_what_was_restored_away_does_not_come_back_unasked(world):
    run(world, D20, a="20")
    run(world, D21, b="21")
    run(world, D22, c="22")
    twice.restore(target(world), D21, project=world.project)
    meddle(world)
    put(world, D23, d="23")
    world.run(D23, accept=True)
    put(world, D23, d="corrected")
    with suppress(TwiceError):
        world.run(D23, accept=True)
    assert "c" not in table(world)


def test_a_table_that_was_dropped_is_not_built_on(world):
    run(world, D20, a="20")
    run(world, D21, b="21")
    world.drop()
    put(world, D22, c="22")
    with pytest.raises(LedgerAhead):
        world.run(D22)


def test_slots_done_together_keep_to_the_policy_for_columns(make_world):
    def renamed_later(rows, run):
        if run.execution_time.day == 20:
            return rows
        if isinstance(rows, list):
            return [{"id": row["id"], "w": row["v"]} for row in rows]
        return rows.withColumnRenamed("v", "w")

    world = make_world(pattern=twice.stateful_merger(keys=["id"]), schema=SCHEMA, transform=renamed_later)
    put(world, D20, a="20")
    put(world, D21, a="21")
    with pytest.raises(NotPublished, match="'w'"):
        backfill(world.project, world.pipeline, D20, D22, Asked(resuming=True))
    assert world.records() == []


@pytest.mark.stores("delta")
def test_slots_that_each_add_a_column_are_done_together(make_world):
    def wider(rows, run):
        return rows.withColumn(f"from_{run.execution_time.day}", rows["v"])

    world = make_world(
        pattern=twice.stateful_merger(keys=["id"]),
        schema=SCHEMA,
        transform=wider,
        columns={"on_new_column": "add", "on_missing_column": "null"},
    )
    run(world, D20, a="20")
    put(world, D21, a="21")
    put(world, D22, b="22")
    backfill(world.project, world.pipeline, D21, D23, Asked(resuming=True))
    assert world.table_rows("id", "from_20", "from_21", "from_22") == [("a", None, "21", None), ("b", None, None, "22")]


@pytest.mark.stores("delta")
def test_a_vacuum_between_stage_and_publish_is_noticed(world):
    run(world, D20, a="20", b="20")
    run(world, D21, a="21", c="21")
    run(world, D22, a="22")
    put(world, D22, z="22")

    def vacuum():
        world.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        world.spark.sql(f"VACUUM delta.`{world.table()}` RETAIN 0 HOURS").collect()
        world.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")

    with armed(once_at("looked.again", vacuum)), suppress(TwiceError):
        world.run(D22)
    assert table(world) in ({"a": "22", "b": "20", "c": "21"}, {"a": "21", "b": "20", "c": "21", "z": "22"})


def test_dates_are_those_of_the_pipelines_zone(make_world, tmp_path):
    from dataclasses import replace

    from twice.timeline import version_named

    world = make_world(pattern=twice.stateful_merger(keys=["id"]), schema=SCHEMA)
    zoned = replace(world.pipeline, schedule=replace(world.pipeline.schedule, zone="America/New_York"))
    for day in (D20, D21, D22):
        put(world, day, **{day: "1"})
        twice.run(zoned, at=day, project=world.project)
    world.project.__dict__["whole_pipelines"] = world.project.__dict__["pipelines"] = {"out": zoned}
    found = version_named(world.project, zoned.target, D21)
    assert found == world.sight().receipts[zoned.slot(D21).text].first_version


@pytest.mark.stores("memory", "delta")
def test_a_version_from_the_middle_of_an_older_replay_is_no_replay_to_go_on_with(make_world):
    world = make_world(pattern=twice.stateful_merger(keys=["id"], visible="each"), schema=SCHEMA)
    run(world, D20, a="20")
    run(world, D21, e="old")
    run(world, D22, b="22")
    world.run(D20, force=True)
    half_way = world.sight().version - 1
    run(world, D21, d="21")
    world.restore_by_hand(half_way)
    with pytest.raises(ProofGone):
        world.run(D22)
    world.run(D22, force=True)
    assert table(world) == {"a": "20", "d": "21", "b": "22"}
