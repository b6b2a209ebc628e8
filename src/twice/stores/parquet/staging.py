"""How are rows written as plain Parquet files, before anybody sees them?

Spark writes them into a folder named by the attempt, where no manifest points. The driver forces them to disk, counts the rows
by the footers, and says what they will take the place of. Whoever dies before a manifest is linked leaves files that nothing
names; whoever gives up removes the folder.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import unquote, urlparse

from twice.abilities import Rows, Staged, Work
from twice.data_tests import Answer, DataTest
from twice.faults import reach
from twice.sight import NO_TABLE
from twice.slices import ColumnSlice, Slice
from twice.sources.listing import spark_path
from twice.sources.marking import content_hash
from twice.stores import footers, frames
from twice.stores import manifest as log
from twice.stores.answering import of_files
from twice.stores.durable import sync_file, sync_folders
from twice.stores.manifest import DataFile, Manifest

DATA = "data"
# Scopes whose files hold rows of any slot.
OF_NO_SLOT = ("merge", "draft")


@dataclass(frozen=True)
class Scope:
    """What staged files take the place of: the `table`, the files of a `slot`, or what a `merge` or `draft` rewrites.

    `schema` is what the table's columns were. A merge is computed from one version, and from no other;
    a draft starts from the files of an older one.
    """

    name: str
    schema: str = ""
    version: int = NO_TABLE
    removed: frozenset[str] = frozenset()
    start: Manifest = field(default_factory=Manifest)


@dataclass(frozen=True)
class Written:
    """Files that were written for a scope, with the columns that the table will have."""

    scope: Scope
    files: tuple[DataFile, ...]
    schema: str


class Stages(ABC):
    """Writes rows where no reader looks, for the store of Parquet files."""

    engine: Any

    @abstractmethod
    def table(self, name: str) -> str:
        """Return the folder of a table."""

    def stage_table(self, work: Work, rows: Rows) -> Staged:
        """Write the rows that will be the whole table."""
        return self._stage(work, self._fitted(work, rows)[0], Scope("table"))

    def stage_slice(self, work: Work, rows: Rows, bounds: Slice) -> Staged:
        """Write the rows of a slice, and count those that lie outside it."""
        rows, scope = self._fitted(work, rows)
        return self._stage(work, rows, scope, bounds=bounds)

    def stage_partitions(self, work: Work, rows: Rows, columns: Sequence[str]) -> Staged:
        """Write the rows, one folder a partition; the columns stay in the files as well."""
        rows, scope = self._fitted(work, rows)
        return self._stage(work, rows, scope, columns=columns)

    def stage_append(self, work: Work, rows: Rows, lineage: str | None, check: Slice | None) -> Staged:
        """Write the rows to be added; the manifest knows the files of a slot, with or without lineage."""
        rows, scope = self._fitted(work, frames.with_lineage(frames.checked(rows), lineage, work.slot))
        return self._stage(work, rows, scope, bounds=check)

    def _fitted(self, work: Work, rows: Rows) -> tuple[Any, Scope]:
        """Return the rows as the table holds them, and what the publish compares."""
        base = log.newest(self.table(work.name))
        return frames.fitted(frames.checked(rows), base.schema, work)[0], Scope("slot", base.schema)

    def _rows_of(self, name: str, files: Sequence[DataFile], schema: str) -> Any:
        """Read files of the table with the columns that it will have."""
        paths = [os.path.join(self.table(name), file.path) for file in files]
        return frames.read_parquet(self.engine.spark, paths, schema)

    def _files_at(self, name: str, base: Manifest, found: Iterable[str]) -> tuple[DataFile, ...]:
        """Return the files of a version that Spark names by these addresses."""
        table = os.path.realpath(self.table(name))
        paths = (unquote(urlparse(path).path) for path in found)
        relative = {os.path.relpath(os.path.realpath(path), table) for path in paths}
        return tuple(file for file in base.files if file.path in relative)

    def _stage(
        self, work: Work, rows: Any, scope: Scope, *, bounds: Slice | None = None, columns: Sequence[str] = ()
    ) -> Staged:
        folder = self._staging(work)
        condition = bounds.sql(frames.types(rows)) if bounds else ""
        # A slice by column is seen in the footers; any other condition is asked of each row.
        counted, stray = frames.observed(rows, "" if isinstance(bounds, ColumnSlice) else condition)
        laid_out, layout = frames.laid_out(counted, columns)
        writer = laid_out.write.mode("errorifexists").option("compression", "snappy")
        (writer.partitionBy(*layout) if layout else writer).parquet(spark_path(folder))
        reach("parquet.files.written")
        table = self.table(work.name)
        files = tuple(_data_files(table, folder, "" if scope.name in OF_NO_SLOT else work.slot, columns))
        _make_durable(table, files)
        reach("parquet.files.synced")
        paths = [os.path.join(table, file.path) for file in files]
        outside = stray()
        if isinstance(bounds, ColumnSlice) and not footers.all_within(paths, bounds):
            outside = frames.stray_count(self._rows_of(work.name, files, frames.schema_text(rows)), condition)
        partitions = tuple(sorted({file.partition for file in files if file.partition}))
        schema = frames.schema_text(rows)
        answers = partial(self._answers, work.name, files, schema)
        return Staged(footers.row_count(paths), outside, partitions, Written(scope, files, schema), answers=answers)

    def _answers(
        self, name: str, files: Sequence[DataFile], schema: str, tests: Sequence[DataTest]
    ) -> Sequence[Answer]:
        """Answer tests of the rows of some files."""
        paths = [os.path.join(self.table(name), file.path) for file in files]
        return of_files(paths, frames.kinds_of(schema), tests, lambda: self._rows_of(name, files, schema))

    def _staging(self, work: Work) -> str:
        return os.path.join(self.table(work.name), DATA, work.attempt)

    def discard(self, work: Work, staged: Staged) -> None:
        """Remove the attempt's files: no manifest names them."""
        shutil.rmtree(self._staging(work), ignore_errors=True)


def _data_files(table: str, folder: str, slot: str, columns: Sequence[str]) -> Iterator[DataFile]:
    """List what Spark wrote, with sizes and hashes; what lies in hidden folders was written by tasks that did not commit."""
    for place, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if "=" in one or not one.startswith(("_", "."))]
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
