"""What does it cost to decide which files of a folder are new? `python benchmarks/ingests.py`.

A million files lie in a thousand folders. *By hand* the folder is read with `os.scandir` and one `stat` for each file, and
each path with its size and time is looked up in a set that is already in memory. *Ours* opens what the target has taken in,
reads the folder, hashes what is unknown, and asks for marks of the same path and of the same content. Both are processes
of their own, taken in turns; each tells its CPU time and the most memory that it ever held.

Besides: hashing against a loop with md5, a million marks recorded beside the table and in the ledger, and, with
`--only stream`, Spark's own file stream source over the same folder; with `--only small` see `small_files`.
"""

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from measure import Cost, measured, server_cpu_seconds, tree_cpu_seconds

from twice.ledger import Ledger
from twice.ledger.files import note
from twice.ledger.postgres import PostgresLedger
from twice.ledger.sqlite import SqliteLedger
from twice.marks import PUBLISHED, Mark, Taken
from twice.runs import Slot, Target
from twice.servers.postgres import PostgresServer
from twice.sources.marking import content_hash
from twice.sources.walking import walk

PATTERN = "in/*/*.csv"
ATTEMPT = "00000000-1-00000000"
FOLDERS, NEW = 1_000, 1_000
MEGABYTE = 1 << 20


# ------------------------------------------------------------------------------------------------ the ground


def fill(root: Path, files: int, name: str) -> None:
    """Make files of a few bytes, the same number in each of a thousand folders."""
    for folder in range(FOLDERS):
        path = root / "in" / f"day={folder:04}"
        path.mkdir(parents=True, exist_ok=True)
        opened = os.open(path, os.O_RDONLY)
        for number in range(files // FOLDERS):
            file = os.open(f"{name}-{number:06}.csv", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=opened)
            os.write(file, b"%d,%d\n" % (folder, number))
            os.close(file)
        os.close(opened)


def marks_of(root: Path) -> list[Mark]:
    """Return a mark for each file; that of its content is made up, since nobody reads it here."""
    return [
        Mark(one.path, one.size, one.mtime_ns, "xxh3:" + hashlib.md5(one.path.encode()).hexdigest(), 1, 1, PUBLISHED)
        for one in walk(str(root), PATTERN)
    ]


def keep(root: Path, marks: list[Mark]) -> None:
    label, body = Taken(lambda _: None).adding(marks, 1, ATTEMPT, "")
    (root / label).write_bytes(body)
    (root / "newest").write_text(label)


# ------------------------------------------------------------------------------------------------ deciding


def decide(root: Path) -> int:
    """Return how many files are new, through what Twice keeps."""
    taken = Taken(lambda label: (root / label).read_bytes(), (root / "newest").read_text())
    unknown = list(walk(str(root), PATTERN, taken.knows))
    contents = {one.path: content_hash(str(root / one.path)) for one in unknown}
    same_path, same_content = taken.by_path(contents), taken.by_content(contents.values())
    return sum(1 for path, content in contents.items() if path not in same_path and content not in same_content)


def looks(root: Path) -> Iterator[tuple[str, int, int]]:
    """Return what a bare listing tells."""
    for folder in os.scandir(root / "in"):
        for found in os.scandir(folder.path):
            status = found.stat()
            yield found.path, status.st_size, status.st_mtime_ns


def decide_by_hand(root: Path, known: set[tuple[str, int, int]]) -> int:
    new = 0
    for folder in os.scandir(root / "in"):
        for found in os.scandir(folder.path):
            status = found.stat()
            if (found.path, status.st_size, status.st_mtime_ns) not in known:
                new += 1
    return new


def child(way: str, root: Path) -> None:
    """Decide once in this process, and tell what it cost."""
    if way == "hand":
        known = {one for one in looks(root) if "/late-" not in one[0]}
        act = lambda: decide_by_hand(root, known)  # noqa: E731 - one of two ways
    else:
        act = lambda: decide(root)  # noqa: E731 - one of two ways
    before, wall = time.process_time(), time.perf_counter()
    new = act()
    told = {"cpu": time.process_time() - before, "wall": time.perf_counter() - wall, "new": new}
    print(json.dumps({**told, "peak": peak_megabytes()}))


def peak_megabytes() -> float:
    """Return the most memory that this process held; `getrusage` would count what its parent held when it was started."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def spawned(way: str, root: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", way, "--root", str(root)]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(told.stdout)


def duel(root: Path, times: int, what: str) -> None:
    pairs = [(spawned("ours", root), spawned("hand", root)) for _ in range(times)]
    ours, hand = ([pair[side] for pair in pairs] for side in (0, 1))
    assert {one["new"] for one in ours} == {one["new"] for one in hand}
    ratio = {key: statistics.median(a[key] / b[key] for a, b in pairs) for key in ("cpu", "wall")}
    cpu = [statistics.median(one["cpu"] for one in side) for side in (ours, hand)]
    peak = max(one["peak"] for one in ours)
    print(
        f"{what:<38} CPU {ratio['cpu']:.2f} ({cpu[0]:.2f} s / {cpu[1]:.2f} s), wall {ratio['wall']:.2f}, peak {peak:.0f} MB"
    )


def decisions(root: Path, files: int, times: int) -> None:
    fill(root, files, "part")
    keep(root, marks_of(root))
    duel(root, times, f"{files:,} known, 0 new")
    fill(root, NEW, "late")
    duel(root, times, f"{files:,} known, {NEW:,} new")


# ------------------------------------------------------------------------------------------------ hashing


def md5(path: str) -> str:
    state = hashlib.md5()
    with open(path, "rb") as file:
        while chunk := file.read(MEGABYTE):
            state.update(chunk)
    return state.hexdigest()


def hashing(root: Path, times: int) -> None:
    for size, count in ((64 * MEGABYTE, 4), (MEGABYTE, 200), (100 << 10, 1000), (10 << 10, 2000)):
        folder = root / f"hashed-{size}"
        folder.mkdir()
        for number in range(count):
            (folder / str(number)).write_bytes(os.urandom(size))
        paths = [str(path) for path in sorted(folder.iterdir())]
        pairs = [(cpu_of(md5, paths), cpu_of(content_hash, paths)) for _ in range(times + 1)][1:]
        ratio = statistics.median(theirs / ours for theirs, ours in pairs)
        speed = size * count / MEGABYTE / statistics.median(ours for _, ours in pairs)
        print(f"hashing {count} files of {size >> 10:,} KiB: md5 / ours {ratio:.1f} (CPU), {speed:,.0f} MiB/s")
        shutil.rmtree(folder)


def cpu_of(act: Callable[[str], object], paths: list[str]) -> float:
    before = time.process_time()
    for path in paths:
        act(path)
    return time.process_time() - before


# ------------------------------------------------------------------------------------------------ recording


def recording(root: Path, files: int) -> None:
    marks = [
        Mark(
            path=f"in/day={number % FOLDERS:04}/part-{number:07}.csv",
            size=number,
            mtime_ns=1_700_000_000_000_000_000 + number,
            content="xxh3:" + hashlib.md5(b"%d" % number).hexdigest(),
            rows=1,
            generation=1,
            state=PUBLISHED,
        )
        for number in range(files)
    ]
    body = measured(lambda: keep(root, marks))
    noted, again = noting(SqliteLedger(str(root / "ledger.db")), marks, tree_cpu_seconds)
    size = (root / (root / "newest").read_text()).stat().st_size / MEGABYTE
    print(f"{files:,} marks beside the table: {body.cpu_seconds:.1f} s CPU, {body.wall_seconds:.1f} s, {size:.0f} MB")
    print(f"{files:,} marks in the ledger: {noted.cpu_seconds:.1f} s CPU, {noted.wall_seconds:.1f} s")
    print(f"{files:,} marks in the ledger, once more: {again.cpu_seconds:.1f} s CPU, {again.wall_seconds:.1f} s")
    print(f"recorded, in all: {body.cpu_seconds + noted.cpu_seconds:.1f} s CPU")
    with PostgresServer() as server:
        ledger = PostgresLedger(server.url())
        costs = noting(ledger, marks, lambda: tree_cpu_seconds() + server_cpu_seconds(server.pid))
    for what, cost in zip(("", ", once more"), costs, strict=True):
        print(f"{files:,} marks in a ledger on PostgreSQL{what}: {cost.cpu_seconds:.1f} s CPU, server included")


def noting(ledger: Ledger, marks: list[Mark], cpu: Callable[[], float]) -> list[Cost]:
    slot = Slot("visits", Target.parse("delta:lake/visits"), "")
    return [measured(lambda at=at: note(ledger, slot, marks, ATTEMPT, at), cpu) for at in ("before", "after")]


# ------------------------------------------------------------------------------------------------ Spark's file stream


def streaming(root: Path, files: int, times: int) -> None:
    """Compare with a stream that knows the same files, as its checkpoint says; no row of them is ever read."""
    from pyspark.sql import SparkSession

    fill(root, files, "part")
    keep(root, marks_of(root))
    # Ten thousand tasks to list some folders, as it comes, would be a comparison with the settings and not with the source.
    settled = {"spark.ui.enabled": "false", "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2"}
    spark = SparkSession.builder.master("local[2]").config(map=settled).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.schema("a long, b long").format("csv").option("maxFilesPerTrigger", files)

    def take_in() -> None:
        batches = rows.load(str(root / "in" / "*")).writeStream.foreachBatch(lambda _frame, _number: None)
        batches.option("checkpointLocation", str(root / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    first = measured(take_in)
    print(f"the stream's first batch of {files:,} files: {first.wall_seconds:.0f} s", flush=True)
    for what, late in (("0 new", []), (f"{NEW:,} new", [f"late{number}" for number in range(times)])):
        pairs = []
        for number in range(times):
            if late:
                keep(root, marks_of(root))
                fill(root, NEW, late[number])
            pairs.append((measured(take_in), spawned("ours", root)))
        cpu = statistics.median(theirs.cpu_seconds / ours["cpu"] for theirs, ours in pairs)
        wall = statistics.median(theirs.wall_seconds / ours["wall"] for theirs, ours in pairs)
        took = statistics.median(theirs.cpu_seconds for theirs, _ in pairs)
        print(f"{files:,} known, {what}: file stream / ours CPU {cpu:.1f} ({took:.1f} s), wall {wall:.1f}", flush=True)
    spark.stop()


def main() -> None:
    """Measure what is asked for, in a folder that is removed afterwards."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--files", type=int, default=1_000_000)
    asked.add_argument("--times", type=int, default=3)
    asked.add_argument("--only", default="decisions,hashing,recording")
    asked.add_argument("--child", help=argparse.SUPPRESS)
    asked.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.child:
        child(given.child, given.root)
        return
    parts = given.only.split(",")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if "hashing" in parts:
            hashing(root, given.times)
        if "recording" in parts:
            recording(root, given.files)
        if "decisions" in parts:
            decisions(root, given.files, given.times)
        if "stream" in parts:
            streaming(root / "stream", given.files, given.times)
        if "small" in parts:
            from small_files import small_files

            small_files(root / "small", min(given.files, NEW), given.times)


if __name__ == "__main__":
    main()
