"""What `twice check` says of tables that were meddled with, and that it is silent about healthy ones."""

import json
import os
import sqlite3
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import twice
from twice.checks import Asked, look_over
from twice.faults import Died, armed, dying_at
from twice.findings import NOTICE, WRONG
from twice.handovers import release, take_over
from twice.runs import Slot
from twice.stores import repeats
from worlds import said_of_vectors

DAYS = ("2024-09-20", "2024-09-21", "2024-09-22")
FIRST, SECOND, THIRD = DAYS
SHAPES = {
    "table": twice.data_overwrite(),
    "slice": twice.data_overwrite(slice="day"),
    "partitions": twice.data_overwrite(partitions=["day"]),
    "merger": twice.merger(keys=["id"]),
    "stateful": twice.stateful_merger(keys=["id"]),
    "history": twice.stateful_merger(keys=["id"], form="history"),
    "dedup": twice.dedup_insert(keys=["id"]),
    "window": twice.dedup_insert(keys=["id"], window="1 day", on="day"),
    "append": twice.transactional_writer(),
    "lineage": twice.transactional_writer(lineage="slot"),
    "proxy": twice.proxy(keep=2),
    "cleaner": twice.fast_metadata_cleaner(period="week"),
    "cleaner by load": twice.fast_metadata_cleaner(period="week", full=True),
    "keyed rows": twice.keyed(keys=["id"]),
    "keyed partition": twice.keyed(partition="slot"),
    "keyed table": twice.keyed(table="{start:%Y%m%d}"),
}
ON_SPARK = ("slice", "stateful", "proxy", "cleaner")


def filled(world, days=DAYS):
    """Publish some days; one row comes again every day."""
    for day in days:
        world.put(day, ["again", f"{day}-a"])
        world.run(day)
    return world


DETAILS = {
    "attempts": ["attempt", "host", "pid", "published", "slot", "state"],
    "duplicates": ["columns", "keys", "rows", "sample", "slots"],
    "files": ["named"],
    "foreign": ["named", "version"],
    "ledger": ["side", "slots"],
    "look": ["error"],
    "owner": ["owner"],
    "proofs": ["gone", "outside", "reason", "slots"],
    "versions": ["slots", "state", "until", "versions"],
    "views": ["named", "slots", "table"],
}


def found(world, *, now=None, quick=False):
    """Return what is found; a monitor finds the same keys every time."""
    findings = look_over(world.project, [world.pipeline], Asked(quick=quick), now).findings
    for finding in findings:
        assert sorted(finding.details) == DETAILS[finding.check]
        assert json.loads(json.dumps(finding.to_json()))["remedy"]
    return findings


def told(world, **asked):
    """Return what is found as pairs of check and severity."""
    return [(finding.check, finding.severity) for finding in found(world, **asked)]


def labels(slots):
    return [Slot.parse(slot).label[:10] for slot in slots]


# ---------------------------------------------------------------- healthy


@pytest.mark.stores("memory")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_healthy_table_is_not_complained_about(make_world, shape):
    assert found(filled(make_world(pattern=SHAPES[shape]))) == []


@pytest.mark.stores("memory")
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "append"])
def test_a_corrected_table_is_not_complained_about(make_world, shape):
    world = filled(make_world(pattern=SHAPES[shape]))
    world.put(THIRD, ["again", "corrected"])
    world.run(THIRD)
    assert found(world) == []


@pytest.mark.stores("memory")
@pytest.mark.parametrize("shape", ["slice", "merger", "stateful", "history", "cleaner", "keyed table"])
def test_a_late_or_corrected_older_slot_is_not_complained_about(make_world, shape):
    world = filled(make_world(pattern=SHAPES[shape]), days=(FIRST, THIRD))
    filled(world, days=(SECOND,))
    world.put(FIRST, ["corrected"])
    world.run(FIRST)
    assert found(world) == []


@pytest.mark.stores("memory")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_that_is_at_work_is_not_complained_about(make_world, shape):
    world = filled(make_world(pattern=SHAPES[shape], lease_seconds=60.0), days=(FIRST,))
    world.put(THIRD, ["again", "new"])
    seen = {}
    with armed(lambda point: seen.setdefault(point, told(world))):
        world.run(THIRD)
    assert len(seen) > 8
    assert {point: what for point, what in seen.items() if what} == {}


@pytest.mark.stores("memory")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_pipeline_that_never_ran_is_not_complained_about(make_world, shape):
    assert found(make_world(pattern=SHAPES[shape])) == []


@pytest.mark.stores("parquet", "delta")
@pytest.mark.parametrize("shape", ON_SPARK)
def test_a_healthy_table_on_disk_is_not_complained_about(make_world, shape):
    world = filled(make_world(pattern=SHAPES[shape]))
    assert found(world) == []
    world.put(THIRD, ["again", "corrected"])
    world.run(THIRD)
    assert found(world) == []


@pytest.mark.stores("memory")
@pytest.mark.parametrize("shape", ["table", "merger", "keyed rows"])
def test_a_pipeline_without_a_calendar_is_not_complained_about(make_world, shape):
    world = make_world(pattern=SHAPES[shape])
    rows = [{"id": "a", "day": date(2024, 9, 20)}]
    source = twice.source(lambda: rows, fingerprint="always the same")
    plain = twice.pipeline(name="out", source=source, target="memory:lake/out", pattern=world.pattern)(
        lambda rows: rows
    )
    for key in ("one", "two"):
        twice.run(plain, key=key, project=world.project)
    assert twice.check([plain], project=world.project) == []
    world.memory.meddle(world.target, rows)
    remedies = [finding.remedy for finding in twice.check([plain], project=world.project)]
    assert all("twice run out --key one --force" in remedy for remedy in remedies)
    assert remedies


@pytest.mark.stores("memory")
def test_a_pipeline_of_several_tables_is_not_complained_about(make_world):
    world = make_world(
        pattern=twice.transactional_writer(tables=["orders", "lines"]),
        transform=lambda rows: {"orders": rows, "lines": rows},
    )
    assert found(filled(world)) == []


@pytest.mark.stores("memory", "parquet")
def test_a_table_that_was_taken_over_is_not_complained_about(make_world):
    world = make_world(pattern=twice.stateful_merger(keys=["id"]))
    before = [("before", date(2024, 1, 1))]
    if world.kind == "memory":
        world.memory.meddle(world.target, [{"id": one, "day": day} for one, day in before])
    else:
        frame = world.spark.createDataFrame(before, "id string, day date")
        frame.coalesce(1).write.parquet(str(world.table()))
    assert told(world) == [("foreign", NOTICE)]
    take_over(world.store, world.project.ledger, world.target, 100)
    assert found(world) == []
    assert found(filled(world)) == []


@pytest.mark.stores("memory")
def test_periods_that_were_frozen_are_not_complained_about(make_world):
    world = filled(make_world(pattern=twice.fast_metadata_cleaner(period="day")))
    members = sorted(world.store.members(world.target))
    world.store.freeze(world.target, "2024_w38", members[:2], world.project.ledger.id)
    assert found(world) == []


@pytest.mark.stores("memory")
def test_a_target_that_was_released_is_worth_knowing(make_world):
    world = filled(make_world())
    release(world.store, world.project.ledger, world.target)
    assert told(world) == [("owner", NOTICE)]


@pytest.mark.stores("memory")
def test_a_look_changes_nothing(world):
    filled(world)
    before = {path: path.stat().st_mtime_ns for path in world.folder.rglob("*")}, world.snapshot()
    twice.check([world.pipeline], project=world.project)
    assert ({path: path.stat().st_mtime_ns for path in world.folder.rglob("*")}, world.snapshot()) == before


# ---------------------------------------------------------------- proofs and strangers


@pytest.mark.stores("memory", "delta")
def test_rows_that_somebody_took_away_are_found_with_the_command_that_brings_them_back(make_world):
    world = filled(make_world())
    world.delete_by_hand(SECOND)
    proofs, *others = found(world)
    assert (proofs.check, proofs.severity, others) == ("proofs", WRONG, [])
    assert "3 slots are no longer vouched for" in proofs.what
    assert "The table was changed from outside in version 3" in proofs.what
    assert "twice run out --at 2024-09-20T00:00Z --force" in proofs.remedy
    assert labels(proofs.details["slots"]) == list(DAYS)


@pytest.mark.stores("parquet")
def test_a_file_that_is_gone_is_found_with_its_slot_and_without_a_jvm(make_world):
    world = filled(make_world())
    world.delete_by_hand(SECOND)
    (proofs,) = found(world, quick=True)
    assert (proofs.check, proofs.severity, labels(proofs.details["slots"])) == ("proofs", WRONG, [SECOND])
    assert proofs.details["gone"] == proofs.details["slots"]
    assert "is gone" in proofs.what
    world.run(SECOND, force=True)
    assert found(world) == []


@pytest.mark.stores("memory", "delta")
def test_a_restore_by_hand_is_found(make_world):
    world = filled(make_world())
    world.restore_by_hand(0)
    (proofs,) = found(world)
    assert (proofs.check, proofs.severity) == ("proofs", WRONG)
    assert labels(proofs.details["slots"]) == labels(proofs.details["gone"]) == [SECOND, THIRD]


@pytest.mark.stores("memory")
def test_what_somebody_accepted_is_not_told_again(make_world):
    world = filled(make_world(pattern=SHAPES["stateful"]))
    world.memory.meddle(world.target, world.memory.read(world.target))
    assert told(world) == [("proofs", WRONG)]
    world.run(THIRD, accept=True)
    assert found(world) == []
    world.memory.meddle(world.target, world.memory.read(world.target))
    assert told(world) == [("proofs", WRONG)]


@pytest.mark.stores("delta")
def test_rows_of_strangers_beside_slots_that_were_published_again_are_worth_knowing(make_world):
    world = filled(make_world())
    stranger = world.spark.createDataFrame([("foreign", date(2024, 1, 1))], "id string, day date")
    stranger.write.format("delta").mode("append").save(str(world.table()))
    assert told(world) == [("proofs", WRONG)]
    for day in DAYS:
        world.run(day, force=True)
    (foreign,) = found(world)
    assert (foreign.check, foreign.severity, foreign.details["version"]) == ("foreign", NOTICE, "version 3")


@pytest.mark.stores("memory")
def test_a_view_that_was_pointed_back_is_worth_knowing(make_world):
    world = filled(make_world(pattern=twice.proxy()))
    first = world.store.versions(world.target)[0].name
    twice.point("memory:lake/out", first, project=world.project)
    (proofs,) = found(world)
    assert (proofs.severity, labels(proofs.details["slots"])) == (NOTICE, [SECOND, THIRD])
    assert "twice versions memory:lake/out" in proofs.remedy


@pytest.mark.stores("memory")
def test_an_older_load_that_was_forced_over_a_newer_one_is_worth_knowing(make_world):
    world = filled(make_world(pattern=SHAPES["table"]))
    world.run(FIRST, force=True)
    (proofs,) = found(world)
    assert (proofs.check, proofs.severity, labels(proofs.details["slots"])) == ("proofs", NOTICE, [SECOND, THIRD])


# ---------------------------------------------------------------- ledger and attempts


@pytest.mark.stores("memory")
def test_a_table_that_is_gone_while_the_ledger_knows_of_it_is_found(make_world):
    world = filled(make_world())
    world.drop()
    (ledger,) = found(world)
    assert (ledger.check, ledger.severity, ledger.details["side"]) == ("ledger", WRONG, "store")
    assert labels(ledger.details["slots"]) == list(DAYS)
    assert "twice ledger rebuild" in ledger.remedy


@pytest.mark.stores("memory")
def test_a_lost_ledger_is_found_and_told_once(make_world):
    world = filled(make_world())
    world.lose_ledger()
    (owner,) = found(world)
    assert (owner.check, owner.severity) == ("owner", WRONG)
    assert "it is new, or the one before it was lost" in owner.what


@pytest.mark.stores("memory")
def test_a_publish_that_the_ledger_has_not_noted_is_worth_knowing_until_the_next_run(make_world):
    world = filled(make_world(), days=(FIRST,))
    world.put(SECOND, ["b"])
    with pytest.raises(Died), armed(dying_at("publish.after")):
        world.run(SECOND)
    (ledger,) = found(world)
    assert (ledger.check, ledger.severity, ledger.details["side"]) == ("ledger", NOTICE, "ledger")
    assert labels(ledger.details["slots"]) == [SECOND]
    world.run(SECOND)
    assert found(world) == []


@pytest.mark.stores("memory")
def test_an_old_copy_of_the_ledger_is_found(make_world):
    world = filled(make_world(), days=(FIRST,))
    path = world.folder / ".twice" / world.ledger_name
    old = path.read_bytes()
    world.run(FIRST, force=True)
    path.write_bytes(old)
    world.reopen()
    assert told(world) == [("ledger", NOTICE)]


@pytest.mark.stores("memory")
def test_a_ledger_that_names_another_attempt_is_found(make_world):
    world = filled(make_world(), days=(FIRST,))
    path = world.folder / ".twice" / world.ledger_name
    before, old = world.memory._tables["lake/out"], path.read_bytes()
    world.run(FIRST, force=True)
    # The table went back to a backup, an old ledger with it; the slot was done again, and then the ledger came back.
    newer = path.read_bytes()
    path.write_bytes(old)
    world.memory._tables["lake/out"] = before
    world.reopen()
    world.run(FIRST, force=True)
    path.write_bytes(newer)
    world.reopen()
    (ledger,) = found(world)
    assert (ledger.check, ledger.severity, ledger.details["side"]) == ("ledger", WRONG, "both")


def die_in_a_process_of_its_own(world):
    """Begin a run in another process, and kill that at once after it has noted its intention."""
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from twice.faults import armed\n"
        "from worlds import World\n"
        "def kill(point):\n"
        "    if point == 'lease.taken':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "world = World(Path(sys.argv[1]), 'memory')\n"
        "with armed(kill):\n"
        "    world.run(sys.argv[2])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(world.folder), SECOND],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == -9


@pytest.mark.stores("memory")
def test_an_attempt_whose_process_was_killed_is_worth_knowing_until_its_slot_is_published(make_world):
    world = filled(make_world(), days=(FIRST,))
    world.put(SECOND, ["b"])
    die_in_a_process_of_its_own(world)
    (attempt,) = found(world)
    assert (attempt.check, attempt.severity, attempt.details["state"]) == ("attempts", NOTICE, "started")
    assert "The store does not have its receipt." in attempt.what
    assert attempt.remedy == "Run it again: twice run out --at 2024-09-21T00:00Z"
    die_in_a_process_of_its_own(world)
    (newest,) = found(world)
    assert newest.details["attempt"] != attempt.details["attempt"]
    world.run(SECOND)
    assert found(world) == []


def lose_the_line(point):
    """Fail while the store is asked to publish, as a connection does that breaks."""
    if point == "memory.publish":
        raise ConnectionError("the line is dead")


@pytest.mark.stores("memory")
def test_an_outcome_that_nobody_knows_is_worth_knowing_until_the_slot_is_run_again(make_world):
    world = filled(make_world(), days=(FIRST,))
    world.put(SECOND, ["b"])
    with pytest.raises(twice.OutcomeUnknown), armed(lose_the_line):
        world.run(SECOND)
    (attempt,) = found(world)
    assert (attempt.check, attempt.severity, attempt.details["state"]) == ("attempts", NOTICE, "unknown")
    assert "ended without knowing its outcome. The store does not have its receipt." in attempt.what
    world.run(SECOND)
    assert found(world) == []


@pytest.mark.stores("memory")
def test_an_attempt_of_another_host_is_given_up_after_its_lease(make_world):
    world = filled(make_world(), days=(FIRST,))
    world.put(SECOND, ["b"])
    die_in_a_process_of_its_own(world)
    with sqlite3.connect(world.folder / ".twice" / world.ledger_name) as db:
        db.execute("UPDATE attempts SET host='elsewhere' WHERE state='started'")
    db.close()
    assert found(world) == []
    assert told(world, now=datetime.now(UTC) + timedelta(minutes=2)) == [("attempts", NOTICE)]


# ---------------------------------------------------------------- views


@pytest.mark.stores("memory", "parquet", "delta")
def test_a_dropped_table_behind_a_view_is_found_with_its_slots(make_world):
    world = filled(make_world(pattern=twice.fast_metadata_cleaner(period="day")))
    world.drop_member(sorted(world.store.members(world.target))[1])
    (views,) = found(world)
    assert (views.check, views.severity, labels(views.details["slots"])) == ("views", WRONG, [SECOND])
    world.run(SECOND, force=True)
    assert found(world) == []


@pytest.mark.stores("memory")
def test_a_table_that_was_named_and_never_filled_is_worth_knowing(make_world):
    world = filled(make_world(pattern=SHAPES["cleaner"]), days=(FIRST,))
    world.put("2024-09-23", ["b"])
    with pytest.raises(Died), armed(dying_at("view.opened")):
        world.run("2024-09-23")
    (views,) = found(world)
    assert (views.check, views.severity) == ("views", NOTICE)
    world.run("2024-09-23")
    assert found(world) == []


# ---------------------------------------------------------------- versions


@pytest.mark.stores("memory")
def test_versions_that_are_about_to_expire_are_worth_knowing(make_world):
    world = filled(make_world(pattern=twice.stateful_merger(keys=["id"], keep_days=100)))
    now = datetime.now(UTC)
    assert found(world, now=now + timedelta(days=80)) == []
    (versions,) = found(world, now=now + timedelta(days=90))
    assert (versions.check, versions.severity, versions.details["state"]) == ("versions", NOTICE, "expiring")
    assert labels(versions.details["slots"]) == [SECOND, THIRD]


@pytest.mark.stores("memory")
def test_slots_that_were_published_together_have_no_version_between_them_and_lack_none(make_world):
    world = make_world(pattern=SHAPES["stateful"])
    for day in DAYS:
        world.put(day, [day])
    twice.backfill(world.pipeline, FIRST, "2024-09-23", project=world.project)
    assert found(world, now=datetime.now(UTC) + timedelta(days=365)) == []


# ---------------------------------------------------------------- duplicates


@pytest.mark.stores("memory")
@pytest.mark.parametrize("shape", ["merger", "stateful", "history", "dedup", "keyed rows"])
def test_keys_that_are_in_several_rows_are_found_with_a_sample(make_world, shape):
    world = filled(make_world(pattern=SHAPES[shape]))
    rows = world.memory.read(world.target)
    world.memory.meddle(world.target, [*rows, *rows[:1]])
    duplicates = next(finding for finding in found(world) if finding.check == "duplicates")
    assert (duplicates.severity, duplicates.details["keys"], duplicates.details["rows"]) == (WRONG, 1, 2)
    assert duplicates.details["sample"][0]["key"] == {"id": rows[0]["id"]}
    assert f"id={rows[0]['id']!r} in 2 rows" in duplicates.what


@pytest.mark.stores("memory")
def test_a_key_that_comes_again_after_its_window_is_no_duplicate_and_one_at_the_same_time_is(make_world):
    world = make_world(pattern=SHAPES["window"])
    for day in (FIRST, "2024-09-25"):
        world.put(day, ["again"])
        world.run(day)
    assert world.rows() == [("again", FIRST), ("again", "2024-09-25")]
    assert found(world) == []
    rows = world.memory.read(world.target)
    world.memory.meddle(world.target, [*rows, *rows[:1]])
    assert ("duplicates", WRONG) in told(world)


def double_by_hand(world, day):
    """Write the rows of a day a second time, as somebody would who does not know Twice."""
    if world.kind == "delta":
        again = world.spark.createDataFrame([("again", date.fromisoformat(day))], "id string, day date")
        again.write.format("delta").mode("append").save(str(world.table()))
        return
    path = world.store.files(world.target)[0]
    rows = parquet.read_table(path, partitioning=None)
    parquet.write_table(pa.concat_tables([rows, rows]), path)
    (Path(path).parent / f".{Path(path).name}.crc").unlink()


@pytest.mark.stores("parquet", "delta")
def test_duplicates_on_disk_are_found_with_their_files_and_with_what_brought_them(make_world):
    world = filled(make_world(pattern=SHAPES["merger"]))
    double_by_hand(world, THIRD)
    duplicates = next(finding for finding in found(world) if finding.check == "duplicates")
    sample = duplicates.details["sample"][0]
    assert duplicates.severity == WRONG
    if world.kind == "delta":
        assert (sample["key"], sample["rows"], len(sample["files"])) == ({"id": "again"}, 2, 2)
        assert labels(sample["slots"]) == [THIRD]
        assert sample["strangers"] == ["version 3 (WRITE)"]
    else:
        assert sample["rows"] == 2
        assert [*sample["files"]] == [os.path.relpath(world.store.files(world.target)[0], world.table())]
        assert sample["slots"]


@pytest.mark.stores("parquet")
def test_without_spark_the_same_keys_are_counted_as_with_it(make_world):
    world = filled(make_world(pattern=SHAPES["merger"]))
    double_by_hand(world, THIRD)
    paths = world.store.files(world.target)
    by_spark = repeats.by_spark(world.store.read(world.target), ["id"], 10)
    without = repeats.without_spark(paths, ["id"], 10)
    assert (without.keys, without.rows) == (by_spark.keys, by_spark.rows)
    assert sorted(map(repr, without.sample)) == sorted(map(repr, by_spark.sample))
    assert without.keys > 0


@pytest.mark.stores("parquet", "delta")
def test_a_quick_look_says_which_duplicates_it_did_not_look_for(make_world):
    world = filled(make_world(pattern=SHAPES["merger"]), days=(FIRST,))
    report = look_over(world.project, [world.pipeline], Asked(quick=True))
    left_out = ["duplicates in delta:lake/out, which only Spark can count (--quick)"]
    assert (report.findings, report.left_out) == ([], left_out if world.kind == "delta" else [])


# ---------------------------------------------------------------- files


@pytest.mark.stores("delta")
def test_a_file_that_delta_names_and_that_is_gone_is_found_without_a_jvm(make_world):
    world = filled(make_world(pattern=SHAPES["merger"]))
    named = {Path(path.removeprefix("file:").replace("//", "/", 1)).name for path in world.all_files()}
    gone = next(path for path in world.table().rglob("*.parquet") if path.name in named)
    gone.unlink()
    report = look_over(world.project, [world.pipeline], Asked())
    assert [(one.check, one.severity) for one in report.findings] == [("files", WRONG)]
    assert report.findings[0].details["named"] == [gone.name]
    assert report.left_out == ["duplicates in delta:lake/out, of which files are missing"]


@pytest.mark.stores("parquet")
def test_files_that_somebody_put_into_the_folder_of_a_parquet_table_are_worth_knowing(make_world):
    world = filled(make_world(), days=(FIRST,))
    (world.table() / "stray.parquet").write_bytes(b"not ours")
    (foreign,) = found(world)
    assert (foreign.check, foreign.severity, foreign.details["named"]) == ("foreign", NOTICE, ["stray.parquet"])


@pytest.mark.stores("parquet", "delta")
def test_a_version_that_a_backfill_needs_and_that_lost_a_file_is_found(make_world):
    world = make_world(pattern=twice.stateful_merger(keys=["id"], keep_days=100))
    # With vectors the newest version still names the files of older ones.
    with said_of_vectors(world.spark, "false"):
        filled(world)
    now = set(world.all_files())
    if world.kind == "delta":
        now = {Path(path.removeprefix("file:").replace("//", "/", 1)).name for path in now}
        older = [path for path in world.table().glob("*.parquet") if path.name not in now]
    else:
        older = [path for path in world.table().rglob("*.parquet") if str(path.relative_to(world.table())) not in now]
    for path in older:
        path.unlink()
    (versions,) = found(world)
    assert (versions.check, versions.severity, versions.details["state"]) == ("versions", WRONG, "lost")
    assert labels(versions.details["slots"])[-1] == THIRD
    assert "keep_days=100" in versions.what


@pytest.mark.stores("delta")
def test_a_sql_view_that_shows_a_dropped_table_is_found(make_world):
    world = make_world(pattern=twice.fast_metadata_cleaner(period="day"))
    world.spark.sql("CREATE SCHEMA IF NOT EXISTS checked")
    world.store.views = "checked"
    filled(world)
    try:
        assert found(world) == []
        (left_out,) = look_over(world.project, [world.pipeline], Asked(quick=True)).left_out
        assert left_out.startswith("the SQL view of delta:lake/out")
        world.spark.sql("DROP VIEW checked.out")
        (missing,) = found(world)
        assert (missing.check, missing.severity) == ("views", NOTICE)
        world.store.settle(world.target)
        assert found(world) == []
        world.drop_member(sorted(world.store.members(world.target))[1])
        stale = [finding for finding in found(world) if "SQL view" in finding.what]
        assert [finding.severity for finding in stale] == [WRONG]
    finally:
        world.spark.sql("DROP SCHEMA checked CASCADE")


# ---------------------------------------------------------------- looking at all


@pytest.mark.stores("memory")
def test_a_target_that_cannot_be_looked_at_does_not_hide_the_others(make_world, monkeypatch):
    world = filled(make_world())
    other = world.twin(name="other", target="lake/other")
    look = world.memory.look

    def broken(name):
        if name == "lake/other":
            raise ValueError("not JSON")
        return look(name)

    monkeypatch.setattr(world.memory, "look", broken)
    world.delete_by_hand(FIRST)
    report = look_over(world.project, [other.pipeline, world.pipeline])
    assert [(one.pipeline, one.check) for one in report.findings] == [("other", "look"), ("out", "proofs")]
    assert (report.pipelines, report.wrong, report.notices) == (["other", "out"], 2, 0)


def dated(rows):
    return [{**row, "day": date.today()} for row in rows]  # noqa: DTZ011 - this is what the lint looks for


@pytest.mark.stores("memory")
def test_code_that_several_pipelines_use_is_told_once(make_world):
    world = make_world(transform=dated)
    other = world.twin(name="other", target="lake/other")
    report = look_over(world.project, [world.pipeline, other.pipeline])
    assert [(one.pipeline, one.check, one.details["rule"]) for one in report.findings] == [("out", "lint", "clock")]


@pytest.mark.stores("memory")
def test_each_target_is_looked_at_once(make_world, monkeypatch):
    world = filled(make_world(pattern=SHAPES["stateful"]))
    looks = []
    look = world.memory.look
    monkeypatch.setattr(world.memory, "look", lambda name: looks.append(name) or look(name))
    assert found(world) == []
    assert looks == ["lake/out"]
