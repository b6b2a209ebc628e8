"""What does a table cost that grows, one slot a publish? `python benchmarks/growth.py`, or `make bench`.

One Parquet table grows from size to size. At each size it is measured what a publish wrote beside its rows, what the log
weighs, and what commands cost that find nothing to do. A cost that does not grow has the same figure in every line, one that
grows with the table ten times that of the line before. Between two lines stands what each figure was multiplied by.

The commands are the real ones, each in a process of its own: CPU seconds, and the most memory that any of them held. Slots are published
by the store itself, under leases, with the ledger; only the one file of a slot's rows is written by pyarrow instead of
Spark, so no JVM is started and ten thousand publishes take minutes.
"""

import argparse
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from measure import Cost, measured
from pyarrow import parquet

from twice.abilities import Staged
from twice.decide import Asked
from twice.execute import execute
from twice.intervals import Interval
from twice.project import Project
from twice.runs import Slot
from twice.sources.marking import content_hash
from twice.stores import manifest as log
from twice.stores.durable import sync_file, sync_folders
from twice.stores.manifest import DataFile
from twice.stores.parquet.staging import Scope, Written
from twice.stores.parquet.store import ParquetStore

FIRST = datetime(2000, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SCHEMA = (
    '{"type":"struct","fields":[{"name":"day","type":"date","nullable":true,"metadata":{}},'
    '{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
)
PIPELINES = """
import twice

@twice.pipeline(
    every="1 day", start="2000-01-01", source=twice.files("landing/{execution_date}.jsonl", schema="day date, id bigint"),
    target="parquet:lake/visits", pattern=twice.data_overwrite(slice="day"),
)
def visits(rows):
    return rows
"""


class WithoutSpark(ParquetStore):
    """The store of Parquet files, with rows that are Arrow's."""

    def stage_slice(self, work, rows, bounds) -> Staged:
        folder = self._staging(work)
        path = os.path.join(folder, "part-00000.parquet")
        os.makedirs(folder)
        parquet.write_table(rows, path, compression="snappy")
        sync_file(path)
        sync_folders({folder, os.path.dirname(folder)})
        relative = os.path.relpath(path, self.table(work.name))
        written = DataFile(relative, os.path.getsize(path), content_hash(path), work.slot)
        return Staged(rows.num_rows, handle=Written(Scope("slot"), (written,), SCHEMA))


@dataclass(frozen=True)
class Command:
    """What one command cost."""

    name: str
    cpu_seconds: float
    megabytes: float


@dataclass(frozen=True)
class Size:
    """What was measured when the table held so many slots. Publishes are those since the size before."""

    slots: int
    publish: Cost
    publish_bytes: float
    log_bytes: int
    ledger_bytes: int
    megabytes: float
    commands: tuple[Command, ...]


class Growing:
    """A project with one table, into which one slot is published after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "pipelines").mkdir()
        (root / "landing").mkdir()
        (root / "twice.toml").write_text("")
        (root / "pipelines" / "visits.py").write_text(PIPELINES)
        self.project = Project.open(root)
        self.pipeline = self.project.pipeline("visits")
        self.store = WithoutSpark(str(root), self.project.engine)
        self.project._stores["parquet"] = self.store
        self.held = 0

    def grow(self, slots: int) -> Size:
        """Publish until there are so many slots, then measure."""
        before, wrote = self.held, self._log_bytes()
        cost = measured(lambda: [self._publish(number) for number in range(before, slots)])
        self.held = slots
        new = slots - before
        seen = self.store.look(self.pipeline.target.name)
        assert len(seen.receipts) == slots
        assert not seen.ended
        return Size(
            slots=slots,
            publish=Cost(cost.wall_seconds / new, cost.cpu_seconds / new),
            publish_bytes=(self._log_bytes() - wrote) / new,
            log_bytes=self._log_bytes(),
            ledger_bytes=(self.root / ".twice" / "ledger.db").stat().st_size,
            megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            commands=tuple(self._commands()),
        )

    def _publish(self, number: int) -> None:
        start = FIRST + number * DAY
        day = start.date()
        (self.root / "landing" / f"{day}.jsonl").write_text(f'{{"day": "{day}", "id": {number}}}\n')
        slot = Slot(self.pipeline.identity, self.pipeline.target, Interval(start, start + DAY))
        rows = pa.table({"day": pa.array([day], pa.date32()), "id": pa.array([number], pa.int64())})
        job = replace(self.project.job(self.pipeline, slot), rows=lambda *_: rows)
        assert execute(job, self.store, self.project.ledger, Asked()).state == "published"

    def _log_bytes(self) -> int:
        folder = log.log_folder(self.store.table(self.pipeline.target.name))
        with contextlib.suppress(FileNotFoundError):
            return sum(entry.stat().st_size for entry in os.scandir(folder))
        return 0

    def _commands(self):
        last, end = ((FIRST + (self.held - 1 + more) * DAY).date().isoformat() for more in (0, 1))
        yield self._command("run", "run", "visits", "--at", last)
        yield self._command("backfill", "backfill", "visits", "--from", FIRST.date().isoformat(), "--to", end)
        yield self._command("status", "status")
        yield self._command("versions", "versions", "visits")
        yield self._command("tidy", "tidy", "--dry-run")

    def _command(self, name: str, *words: str) -> Command:
        """Run a command, and see that it ends well."""
        with open(self.root / "out", "wb") as out:
            started = subprocess.Popen([sys.executable, "-m", "twice", *words], cwd=self.root, stdout=out, stderr=out)
            _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        if started.returncode:
            sys.exit(f"twice {' '.join(words)}: {(self.root / 'out').read_text()}")
        return Command(name, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


COMMANDS = ("run", "backfill", "status", "versions", "tidy")


def _values(size: Size) -> list[float]:
    made = [size.publish.cpu_seconds * 1000, size.publish_bytes, size.log_bytes / 1e6, size.ledger_bytes / 1e6]
    return [*made, size.megabytes, *(one.cpu_seconds for one in size.commands), max(c.megabytes for c in size.commands)]


def _print_head() -> None:
    print("Of a publish: CPU in ms, bytes in the log. CPU seconds of whole commands that find nothing to do.")
    print(f"{'':>8} {'a publish':^16} {'held, MB':^20} {'CPU s':^44} {'MB':>6}")
    made = f"{'CPU ms':>7} {'bytes':>8} {'log':>8} {'ledger':>6} {'memory':>6}"
    print(f"{'slots':>8} {made} {' '.join(f'{name:>8}' for name in COMMANDS)} {'memory':>6}", flush=True)


def _print(size: Size) -> None:
    cpu, written, held, ledger, memory, *commands, most = _values(size)
    made = f"{cpu:>7.1f} {written:>8,.0f} {held:>8.2f} {ledger:>6.2f} {memory:>6.0f}"
    print(f"{size.slots:>8,} {made} {' '.join(f'{one:>8.2f}' for one in commands)} {most:>6.0f}", flush=True)


def _print_ratio(few: Size, many: Size) -> None:
    """Print what each figure was multiplied by."""
    cpu, written, held, ledger, memory, *commands, most = (
        more / less for less, more in zip(_values(few), _values(many), strict=True)
    )
    made = f"{cpu:>7.1f} {written:>8.1f} {held:>8.1f} {ledger:>6.1f} {memory:>6.1f}"
    times = f"{f'x {many.slots / few.slots:g}':>8}"
    print(f"{times} {made} {' '.join(f'{one:>8.1f}' for one in commands)} {most:>6.1f}", flush=True)


def main() -> None:
    """Print a line for each size, and what each figure was multiplied by since the size before."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sizes", default="10,100,1000,10000", help="numbers of slots, ascending, with commas")
    given = asked.parse_args()
    root = Path(tempfile.mkdtemp(prefix="twice-growth-"))
    try:
        growing, before = Growing(root), None
        _print_head()
        for slots in map(int, given.sizes.split(",")):
            size = growing.grow(slots)
            _print(size)
            if before:
                _print_ratio(before, size)
            before = size
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
