"""Which files are a Parquet table, who may name the next version, and what may be swept?"""

import json
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from samples import receipt_of, slot_of

from twice.errors import Conflict, Fenced
from twice.faults import Died, armed, dying_at
from twice.sight import NO_TABLE
from twice.stores import manifest as log
from twice.stores.manifest import DataFile, Manifest
from twice.stores.sweep import sweep

SLOT = slot_of("2024-09-20", target="parquet:lake/out")
OLD, USED, DEAD, LIVE, NEWCOMER = (f"0123abcd-{number}-89abcdef" for number in range(1, 6))
VERSIONS = 12


@pytest.fixture
def table(tmp_path):
    return str(tmp_path / "lake" / "out")


def version(number, *attempts, **changes):
    """Return a manifest that names one file of each of these attempts."""
    files = tuple(DataFile(f"data/{attempt}/a.parquet", 3, "xxh3:1", SLOT.text) for attempt in attempts)
    return Manifest(number, "id", "me", "{}", files, {SLOT.text: receipt_of(SLOT)}, **changes)


def put_files(table, *attempts):
    for attempt in attempts:
        os.makedirs(os.path.join(table, "data", attempt), exist_ok=True)
        with open(os.path.join(table, "data", attempt, "a.parquet"), "w") as file:
            file.write("abc")


def folders(table):
    return sorted(os.listdir(os.path.join(table, "data")))


def names(table):
    return sorted(os.listdir(log.log_folder(table)))


def claim(table, name, start, won):
    """Try to make every version at the same moment as the others, and tell which were made."""
    for number in range(VERSIONS):
        start.wait(30)
        try:
            log.append(table, version(number, made_by=name))
        except Conflict:
            continue
        won.put((number, name))


# ------------------------------------------------------------------ one version


def test_a_manifest_is_read_back_as_it_was_written(table):
    receipt = receipt_of(SLOT, 2, first_version=3, partitions=("day=1",))
    files = (DataFile("data/x/a.parquet", 3, "xxh3:1", SLOT.text, "day=1"),)
    made = Manifest(0, "id", "me", "{}", files, {SLOT.text: receipt}, {"other": "gone"}, {DEAD: 0}, 30, {"old": 1}, 0)
    log.append(table, made)
    assert log.load(table, 0) == made


def test_a_manifest_of_a_newer_twice_is_refused(table):
    log.append(table, version(0))
    with open(log.manifest_path(table, 0)) as file:
        values = json.load(file)
    with open(log.manifest_path(table, 1), "w") as file:
        json.dump({**values, "format": log.FORMAT + 1, "new": []}, file)
    with pytest.raises(Fenced, match="newer Twice"):
        log.newest(table)


def test_a_folder_without_a_log_is_no_table(table):
    assert (log.newest(table).version, log.versions(table)) == (NO_TABLE, [])


def test_the_highest_number_is_the_table(table):
    for number in range(11):
        log.append(table, version(number))
    assert (log.newest(table).version, log.versions(table)) == (10, list(range(11)))


def test_other_files_in_the_log_are_no_versions(table):
    log.append(table, version(0))
    for name in (".tmp-0123", "notes.json", "00000009.json.12.tombstone", "00000009.txt"):
        open(os.path.join(log.log_folder(table), name), "w").close()
    assert log.versions(table) == [0]


def test_a_successor_differs_in_its_number_and_its_maker():
    assert log.successor(version(4, USED), "tidy") == version(5, USED, made_by="tidy")


# ------------------------------------------------------------------ create if absent


def test_a_version_is_made_once(table):
    log.append(table, version(0, made_by="first"))
    with pytest.raises(Conflict, match="version 0 exists"):
        log.append(table, version(0, made_by="second"))
    assert log.newest(table).made_by == "first"
    assert names(table) == ["00000000.json"]


def made(table):
    return [(number, log.load(table, number).made_by) for number in range(VERSIONS)]


def test_of_many_threads_one_makes_each_version(table):
    start, won = threading.Barrier(8), queue.Queue()
    with ThreadPoolExecutor(8) as pool:
        for number in range(8):
            pool.submit(claim, table, f"thread {number}", start, won)
    assert sorted(won.queue) == made(table)


def test_of_many_processes_one_makes_each_version(table):
    context = multiprocessing.get_context("spawn")
    start, won = context.Barrier(3), context.Queue()
    racers = [context.Process(target=claim, args=(table, f"process {n}", start, won)) for n in range(3)]
    for racer in racers:
        racer.start()
    winners = [won.get(timeout=60) for _ in range(VERSIONS)]
    for racer in racers:
        racer.join()
    assert sorted(winners) == made(table)
    assert won.empty()


def test_a_tombstone_is_never_used_again(table):
    for number in range(2):
        log.append(table, version(number))
    log.bury(table, [0], ())
    with pytest.raises(Conflict):
        log.append(table, version(0))
    assert (log.versions(table), os.path.getsize(log.manifest_path(table, 0))) == ([0, 1], 0)


@pytest.mark.parametrize("number", [0, 5])
def test_a_version_that_is_buried_or_never_was_is_not_read(table, number):
    log.append(table, version(0))
    log.append(table, version(1))
    log.bury(table, [0], ())
    with pytest.raises(Fenced, match=f"Version {number} of the table is not kept"):
        log.load(table, number)


# ------------------------------------------------------------------ death


@pytest.mark.parametrize(("point", "found"), [("parquet.manifest.written", [0]), ("parquet.manifest.linked", [0, 1])])
def test_a_version_is_there_whole_or_not_at_all(table, point, found):
    log.append(table, version(0))
    with armed(dying_at(point)), pytest.raises(Died):
        log.append(table, version(1))
    assert log.versions(table) == found
    assert log.newest(table) == version(found[-1])


def test_a_kill_between_written_and_linked_leaves_no_version(table):
    program = "import sys\nfrom twice.stores.manifest import Manifest, append\nappend(sys.argv[1], Manifest(version=0))"
    killed = subprocess.run(
        [sys.executable, "-c", program, table],
        env={**os.environ, "TWICE_FAULTS": "kill:parquet.manifest.written"},
        start_new_session=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert [name[:5] for name in names(table)] == [".tmp-"]
    assert log.versions(table) == []
    log.append(table, version(0))
    assert log.newest(table) == version(0)


# ------------------------------------------------------------------ sweeping


@pytest.fixture
def littered(table):
    """A table of two versions, with files of four attempts: replaced, current, dead and live."""
    put_files(table, OLD, USED, DEAD, LIVE)
    log.append(table, version(0, OLD))
    log.append(table, version(1, USED))
    return table


def age(path, days):
    os.utime(path, (time.time() - days * 86_400,) * 2)


def test_a_sweep_removes_the_dead_and_leaves_kept_versions_and_the_live(littered):
    found = sweep(littered, lambda: frozenset({LIVE}), keep_days=7, dry_run=False)
    assert (found.removed_files, found.removed_bytes, found.attempts) == (1, 3, (DEAD,))
    assert folders(littered) == [OLD, USED, LIVE]
    assert [log.load(littered, number).files for number in (0, 1)] == [version(0, OLD).files, version(1, USED).files]


def test_a_sweep_names_the_dead_before_it_removes_them(littered):
    with armed(dying_at("parquet.sweep.named")), pytest.raises(Died):
        sweep(littered, lambda: frozenset({LIVE}), keep_days=7, dry_run=False)
    assert (log.newest(littered).swept, log.newest(littered).version) == ({DEAD: 2}, 2)
    assert folders(littered) == [OLD, USED, DEAD, LIVE]


def test_a_sweep_that_died_is_finished_by_the_next(littered):
    with armed(dying_at("parquet.sweep.named")), pytest.raises(Died):
        sweep(littered, lambda: frozenset({LIVE}), keep_days=7, dry_run=False)
    sweep(littered, lambda: frozenset({LIVE}), keep_days=7, dry_run=False)
    assert folders(littered) == [OLD, USED, LIVE]
    assert log.newest(littered).version == 2


def test_a_sweep_leaves_a_run_that_began_after_it_listed(littered):
    def ask():
        put_files(littered, NEWCOMER)
        return frozenset({LIVE})

    assert sweep(littered, ask, keep_days=7, dry_run=False).attempts == (DEAD,)
    assert folders(littered) == sorted([OLD, USED, LIVE, NEWCOMER])


def test_a_sweep_of_a_clean_table_makes_no_version(table):
    put_files(table, USED)
    log.append(table, version(0, USED))
    assert sweep(table, frozenset, keep_days=7, dry_run=False).attempts == ()
    assert log.versions(table) == [0]


def test_versions_past_their_keeping_become_tombstones(littered):
    age(log.manifest_path(littered, 1), days=8)
    found = sweep(littered, lambda: frozenset({LIVE}), keep_days=7, dry_run=False)
    assert found.attempts == (OLD, DEAD)
    assert folders(littered) == [USED, LIVE]
    assert os.path.getsize(log.manifest_path(littered, 0)) == 0
    assert log.newest(littered).files == version(1, USED).files


def test_the_newest_version_is_kept_however_old_it_is(table):
    put_files(table, USED)
    log.append(table, version(0, USED))
    age(log.manifest_path(table, 0), days=1000)
    sweep(table, frozenset, keep_days=0, dry_run=False)
    assert (folders(table), log.newest(table)) == ([USED], version(0, USED))


def test_a_file_that_an_old_and_a_kept_version_name_is_kept(table):
    put_files(table, OLD, USED)
    log.append(table, version(0, OLD))
    log.append(table, version(1, OLD, USED))
    age(log.manifest_path(table, 1), days=8)
    sweep(table, frozenset, keep_days=7, dry_run=False)
    assert folders(table) == [OLD, USED]


def test_a_sweep_leaves_foreign_folders_alone(littered):
    strangers = ["_spark_metadata", "day=2024-09-20", "notes"]
    put_files(littered, *strangers)
    sweep(littered, frozenset, keep_days=7, dry_run=False)
    assert folders(littered) == sorted([OLD, USED, *strangers])


def test_a_dry_run_counts_and_changes_nothing(littered):
    before = (names(littered), folders(littered))
    assert sweep(littered, lambda: frozenset({LIVE}), keep_days=7, dry_run=True).attempts == (DEAD,)
    assert (names(littered), folders(littered)) == before


def test_a_table_that_was_never_published_is_left_for_its_next_run(table):
    put_files(table, DEAD, LIVE)
    found = sweep(table, lambda: frozenset({LIVE}), keep_days=0, dry_run=False)
    assert (found.attempts, len(found.notes), folders(table)) == ((), 1, [DEAD, LIVE])
    assert sweep(table, lambda: frozenset({LIVE}), keep_days=0, dry_run=True).attempts == (DEAD,)


def test_a_publish_between_look_and_sweep_is_seen(littered, monkeypatch):
    """An attempt that the sweep took for dead publishes just before it is named."""
    append, raced = log.append, []

    def race(table, manifest):
        if not raced:
            raced.append(append(table, replace(version(2, DEAD), receipts={})))
        append(table, manifest)

    monkeypatch.setattr(log, "append", race)
    sweep(littered, frozenset, keep_days=7, dry_run=False)
    assert folders(littered) == [OLD, USED, DEAD]
    assert (log.newest(littered).files, log.newest(littered).swept) == (version(2, DEAD).files, {LIVE: 3})


@pytest.mark.parametrize("name", [".tmp-0123456789abcdef", "00000000.json.4711.tombstone"])
def test_what_a_killed_writer_left_in_the_log_is_removed_after_a_day(littered, name):
    leftover = os.path.join(log.log_folder(littered), name)
    open(leftover, "w").close()
    sweep(littered, frozenset, keep_days=7, dry_run=False)
    assert name in names(littered)
    age(leftover, days=2)
    sweep(littered, frozenset, keep_days=7, dry_run=False)
    assert name not in names(littered)
