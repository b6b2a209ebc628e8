"""What is peculiar to Parquet: its manifests, and readers that know nothing of Twice."""

import json
from dataclasses import replace

import pytest

import twice
from disks import failing_once_at
from twice.faults import Died, armed, dying_at
from twice.stores import manifest
from worlds import once_at

pytestmark = [pytest.mark.stores("parquet")]


@pytest.fixture
def published(world):
    for day in ("2024-09-20", "2024-09-21"):
        world.put(day, [f"{day}-a", f"{day}-b"])
        world.run(day)
    return world


def test_other_tools_find_the_current_files(published):
    from pyarrow import parquet

    files = twice.current_files(f"parquet:{published.target}", project=published.folder)
    assert sorted(row["id"] for file in files for row in parquet.read_table(file).to_pylist()) == [
        "2024-09-20-a", "2024-09-20-b", "2024-09-21-a", "2024-09-21-b",
    ]  # fmt: skip


def test_whose_files_are_the_table_is_told_by_one_line_a_publish(published):
    for number in range(3, 13):
        published.put("2024-09-20", [f"{number}"])
        published.run("2024-09-20")
    newest = max((published.table() / "_twice/log").glob("*.json"))
    said = json.loads(newest.read_text())
    assert (newest.name, said["since"], len(said["files"]), len(said["receipts"])) == ("00000011.json", 10, 1, 1)
    assert len(twice.current_files(f"parquet:{published.target}", project=published.folder)) == 2


def test_older_versions_are_read_until_tidy_buries_them(published):
    published.put("2024-09-20", ["new"])
    published.run("2024-09-20")
    old = published.store.read(published.target, version=0)
    assert sorted(row.id for row in old.collect()) == ["2024-09-20-a", "2024-09-20-b"]
    swept = published.store.tidy(published.target, frozenset, keep_days=0, dry_run=False)
    assert swept.removed_files > 0
    with pytest.raises(twice.Fenced, match="not kept"):
        published.store.read(published.target, version=0)
    assert len(published.rows()) == 3
    assert published.run("2024-09-20").state == "skipped"


def test_versions_within_their_keeping_stay(published):
    published.put("2024-09-20", ["new"])
    published.run("2024-09-20")
    swept = published.store.tidy(published.target, frozenset, keep_days=7, dry_run=False)
    assert swept.removed_files == 0
    assert published.store.read(published.target, version=0).count() == 2


def test_a_publish_that_the_disk_did_not_confirm_is_unknown_and_not_tried_again(published):
    published.put("2024-09-20", ["new"])
    with failing_once_at("parquet.manifest.linked") as tried, pytest.raises(twice.OutcomeUnknown, match="not confirm"):
        published.run("2024-09-20")
    assert len(tried) == 1
    assert published.run("2024-09-20").state == "skipped"


def b_replaced_beside_a(make_world):
    world = make_world(pattern=twice.merger(keys=["id"], partitioned_by=["id"]))
    for day, ids in (("2024-09-20", "ab"), ("2024-09-21", "b")):
        world.put(day, list(ids))
        world.run(day)
    return world


def test_a_tidy_removes_single_files_whose_rows_were_replaced_and_leaves_their_neighbours(make_world):
    world = b_replaced_beside_a(make_world)
    assert world.litter() == 1
    asked = world.store.tidy(world.target, frozenset, keep_days=0, dry_run=True)
    assert (asked.removed_files, world.litter()) == (2, 1)  # a file and its checksum
    assert world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False) == asked
    assert world.litter() == 0
    assert world.rows() == [("a", "2024-09-20"), ("b", "2024-09-21")]


def test_a_version_that_is_restored_while_a_tidy_buries_it_keeps_its_files(make_world):
    world = b_replaced_beside_a(make_world)
    old = manifest.load(str(world.table()), 0)

    def restore():
        newest = manifest.newest(str(world.table()))
        manifest.append(str(world.table()), replace(manifest.successor(newest, "restore"), files=old.files))

    with armed(once_at("parquet.sweep.buried", restore)):
        world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    assert world.rows() == [("a", "2024-09-20"), ("b", "2024-09-20")]


def test_numbers_of_buried_versions_are_never_used_again(published):
    published.store.tidy(published.target, frozenset, keep_days=0, dry_run=False)
    before = manifest.versions(str(published.table()))
    published.run("2024-09-20", force=True)
    assert manifest.versions(str(published.table()))[: len(before)] == before
    assert manifest.newest(str(published.table())).version == before[-1] + 1


def test_a_dry_run_names_what_it_would_remove_and_removes_nothing(published):
    with armed(dying_at("publish.before")), pytest.raises(Died):
        published.run("2024-09-20", force=True)
    before = published.litter()
    swept = published.store.tidy(published.target, frozenset, keep_days=0, dry_run=True)
    assert (len(swept.attempts), published.litter()) == (1, before)
    assert before > 0


def test_partition_values_that_look_alike_are_told_apart(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["id"]))
    world.put("2024-09-20", ["01", "1", "a b", "ä/ö", "%2F"])
    world.run("2024-09-20")
    assert world.by_day() == {"2024-09-20": sorted(["01", "1", "a b", "ä/ö", "%2F"])}
    world.put("2024-09-20", ["1"])
    world.run("2024-09-20")
    assert world.by_day() == {"2024-09-20": ["1"]}


def test_the_first_two_slots_of_a_table_with_other_columns_are_not_mixed(make_world):
    world = make_world()
    world.put("2024-09-20", ["a"])
    world.put("2024-09-21", ["b"])
    wider = world.twin(transform=lambda rows: rows.selectExpr("*", "1 AS extra"))
    race = once_at("publish.before", lambda: wider.run("2024-09-21"))
    with armed(race), pytest.raises(twice.NotPublished, match="lack the column 'extra'"):
        world.run("2024-09-20")
    assert world.rows() == [("b", "2024-09-21")]


def test_one_folder_is_not_two_tables(published):
    with pytest.raises(twice.Misuse, match="Parquet table of Twice"):
        published.project.store("delta").look(published.target)
