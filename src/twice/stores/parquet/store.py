"""How do plain Parquet files get what a table format has?

Spark writes files into a folder named by the attempt, where no manifest points. Publishing links
one new manifest. Readers go through `twice.read`, or take the list of files from the newest
manifest; a reader that lists the folder itself sees staged and replaced files too.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from twice.abilities import ReplacesPartitions, ReplacesSlices, ReplacesTable, Rows, Staged, Store, Swept, Work
from twice.errors import Conflict, Misuse, NotPublished
from twice.faults import reach
from twice.runs import Receipt, is_attempt
from twice.sight import NO_TABLE, Sight
from twice.slices import Slice
from twice.sources.files import content_hash, spark_path
from twice.stores import frames
from twice.stores.durable import sync_file, sync_folders
from twice.stores.parquet import manifest as log
from twice.stores.parquet.manifest import DataFile, Manifest
from twice.stores.parquet.sweep import sweep

DATA = "data"


class ParquetStore(Store, ReplacesTable, ReplacesSlices, ReplacesPartitions):
    """Tables of Parquet files under one root, visible through their manifests."""

    kind: ClassVar[str] = "parquet"
    lacks: ClassVar[Mapping[str, str]] = {}

    def __init__(self, root: str, engine: Any) -> None:
        self.root = root
        self.engine = engine

    def table(self, name: str) -> str:
        """Return the folder of a table."""
        return os.path.join(self.root, *name.split("/"))

    def look(self, name: str) -> Sight:
        """Read the newest manifest, and see that the files it names are there."""
        table = self.table(name)
        current = log.newest(table)
        if os.path.isdir(os.path.join(table, "_delta_log")):
            raise Misuse(f"The folder of parquet:{name} is a Delta table.", fix="Give each target a folder of its own.")
        if current.version == NO_TABLE:
            return Sight(filled=_holds_files(table))
        damaged = dict(_damage(table, current))
        return Sight(
            version=current.version,
            head=current.version,
            table_id=current.table_id,
            owner=current.owner,
            receipts=current.receipts,
            ended={**current.ended, **damaged},
            outside="; ".join(sorted(set(damaged.values()) | set(current.ended.values()))),
            data_version=current.data_version,
            swept=frozenset(current.swept),
        )

    def stage_table(self, work: Work, rows: Rows) -> Staged:
        """Write the rows that will be the whole table; its columns may change."""
        return self._stage(work, frames.checked(rows), "table")

    def stage_slice(self, work: Work, rows: Rows, bounds: Slice) -> Staged:
        """Write the rows of a slice, counting in the same pass those that lie outside it."""
        rows = frames.like(frames.checked(rows), log.newest(self.table(work.name)).schema, work.name)
        return self._stage(work, rows, "slot", outside=bounds.sql(frames.types(rows)))

    def stage_partitions(self, work: Work, rows: Rows, columns: Sequence[str]) -> Staged:
        """Write the rows, one folder a partition; the columns stay in the files as well."""
        rows = frames.like(frames.checked(rows), log.newest(self.table(work.name)).schema, work.name)
        return self._stage(work, rows, "slot", columns=columns)

    def _stage(self, work: Work, rows: Rows, scope: str, *, outside: str = "", columns: Sequence[str] = ()) -> Staged:
        folder = self._staging(work)
        counted, counts = frames.counted(rows, outside)
        laid_out, layout = frames.laid_out(counted, columns)
        writer = laid_out.write.mode("errorifexists").option("compression", "snappy")
        (writer.partitionBy(*layout) if layout else writer).parquet(spark_path(folder))
        reach("parquet.files.written")
        files = tuple(_data_files(self.table(work.name), folder, work.slot, columns))
        _make_durable(self.table(work.name), files)
        reach("parquet.files.synced")
        found = counts()
        partitions = tuple(sorted({file.partition for file in files if file.partition}))
        return Staged(found.rows, found.outside, partitions, handle=(scope, files, frames.schema_text(rows)))

    def _staging(self, work: Work) -> str:
        return os.path.join(self.table(work.name), DATA, work.attempt)

    def publish(self, work: Work, staged: Staged, receipt: Receipt) -> None:
        """Link the next manifest, on exactly the version it was computed from."""
        table = self.table(work.name)
        while True:
            base = log.newest(table)
            _compare(work, base, staged, receipt.owner)
            if staged.handle is None and work.slot in {**base.ended, **dict(_damage(table, base))}:
                raise Conflict("the rows that were to be kept are gone")
            try:
                log.append(table, _published(base, work, staged, receipt))
            except Conflict:
                # Another slot moved the log. Its manifest is read, and all is compared, once more.
                reach("parquet.rebase")
                continue
            return

    def settle(self, name: str) -> None:
        """Force the newest manifest's name to disk: its writer may have died before it did."""
        folder = log.log_folder(self.table(name))
        if os.path.isdir(folder):
            sync_file(folder)

    def discard(self, work: Work, staged: Staged) -> None:
        """Remove the attempt's files: no manifest names them."""
        shutil.rmtree(self._staging(work), ignore_errors=True)

    def take_over(self, name: str, base: Sight, owner: str) -> None:
        """Publish a version that differs in its owner alone."""
        current = log.newest(self.table(name))
        if current.version != base.version:
            raise Conflict("the table moved")
        log.append(self.table(name), replace(log.successor(current, "adopt"), owner=owner))

    def read(self, name: str, version: int | None = None) -> Rows:
        """Return the rows of the newest version, or of an older one that is kept."""
        table = self.table(name)
        chosen = log.newest(table) if version is None else log.load(table, version)
        if chosen.version == NO_TABLE:
            raise NotPublished(f"The table {name} does not exist yet.", fix="Run the pipeline that writes it.")
        paths = [os.path.join(table, file.path) for file in chosen.files]
        return frames.read_parquet(self.engine.spark, paths, chosen.schema)

    def files(self, name: str) -> list[str]:
        """Return the paths of the files that are the table now, for other tools."""
        table = self.table(name)
        return [os.path.join(table, file.path) for file in log.newest(table).files]

    def tidy(self, name: str, live: frozenset[str], *, keep_days: float, dry_run: bool) -> Swept:
        """Sweep the staging of dead attempts, and versions past their keeping."""
        return sweep(self.table(name), live, keep_days=keep_days, dry_run=dry_run)


def _compare(work: Work, base: Manifest, staged: Staged, owner: str) -> None:
    """The slot rule and, where the plan was computed from the whole table, the head rule."""
    fence = base.receipts[work.slot].generation if work.slot in base.receipts else 0
    if fence != work.seen:
        raise Conflict("the slot's fence moved")
    if work.attempt in base.swept:
        raise Conflict("the attempt's staging was swept")
    if base.owner not in ("", owner):
        raise Conflict("another ledger took the table")
    if staged.handle and staged.handle[0] == "slot" and base.schema not in ("", staged.handle[2]):
        raise Conflict("the table has other columns now")
    if work.compares_head and base.version != work.base.version:
        raise Conflict("the head moved")


def _published(base: Manifest, work: Work, staged: Staged, receipt: Receipt) -> Manifest:
    """Return the next version: the slot's files swapped, its receipt in, all else carried forward."""
    following = log.successor(base, f"publish {work.attempt}")
    receipts = {**base.receipts, work.slot: replace(receipt, first_version=following.version)}
    ended = {slot: why for slot, why in base.ended.items() if slot != work.slot}
    following = replace(
        following,
        table_id=base.table_id or uuid.uuid4().hex,
        owner=receipt.owner,
        receipts=receipts,
        ended=ended,
    )
    if staged.handle is None:
        return following
    scope, files, schema = staged.handle
    kept: tuple[DataFile, ...] = ()
    if scope == "slot":
        kept = tuple(file for file in base.files if file.slot != work.slot)
    else:
        why = f"the whole table was replaced in version {following.version}"
        ended = {slot: why for slot in receipts if slot != work.slot}
    return replace(following, files=kept + files, schema=schema, ended=ended, data_version=following.version)


def _data_files(table: str, folder: str, slot: str, columns: Sequence[str]) -> Iterator[DataFile]:
    """List what Spark wrote, with sizes and hashes."""
    for place, _, names in os.walk(folder):
        partition = frames.partition_of_folder(os.path.relpath(place, folder), columns) if columns else ""
        for name in sorted(names):
            if name.startswith(("_", ".")):
                continue
            path = os.path.join(place, name)
            yield DataFile(os.path.relpath(path, table), os.path.getsize(path), content_hash(path), slot, partition)


def _make_durable(table: str, files: Sequence[DataFile]) -> None:
    """Spark does not fsync local files, so the driver does, before anything names them."""
    folders = set()
    for file in files:
        path = os.path.join(table, file.path)
        sync_file(path)
        while len(path) > len(table):
            path = os.path.dirname(path)
            folders.add(path)
    sync_folders(folders)


def _damage(table: str, current: Manifest) -> Iterator[tuple[str, str]]:
    """Name the slots that have lost a file, or have one of another size."""
    for file in current.files:
        try:
            size = os.path.getsize(os.path.join(table, file.path))
        except OSError:
            yield file.slot, f"its file {file.path} is gone"
            continue
        if size != file.size:
            yield file.slot, f"its file {file.path} has {size} bytes instead of {file.size}"


def _holds_files(table: str) -> bool:
    """Tell whether a folder holds data that no manifest ever named."""
    try:
        names = [
            entry.name for entry in os.scandir(table) if not entry.name.startswith(("_", ".")) and entry.name != DATA
        ]
        staged = os.listdir(os.path.join(table, DATA)) if os.path.isdir(os.path.join(table, DATA)) else []
    except (FileNotFoundError, NotADirectoryError):
        return False
    return bool(names) or not all(map(is_attempt, staged))
