"""How are rows added to those of the same slot in plain Parquet files, while some of these leave?

The files that hold a leaving row are found and written anew without it; all others stay as they are. What is written
belongs to no slot, like the files of a merge: it is computed from one version, and published on that one alone. Whoever
dies before the manifest is linked leaves files that nothing names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twice.abilities import Leaving, Rows, Staged, TakesIn, Work
from twice.errors import Conflict
from twice.slices import Slice
from twice.stores import footers, frames, merging, taking
from twice.stores import manifest as log
from twice.stores.manifest import DataFile, Manifest
from twice.stores.parquet.staging import Stages


class Takes(Stages, TakesIn):
    """Takes rows in, for the store of Parquet files."""

    def stage_taken(self, work: Work, rows: Rows, check: Slice | None, leaving: Leaving | None) -> Staged:
        """Write the rows, and those that stay of the files from which some leave."""
        base = log.newest(self.table(work.name))
        if base.version != work.base.version:
            raise Conflict("the table moved since the plan was made")
        rows, scope = self._fitted(work, rows)
        come = taking.coming(rows, check, leaving)
        condition = taking.leaves(leaving, base.schema, work.name) if leaving and base.schema else ""
        touched = _touched(self, work.name, base, condition) if condition else _Touched()
        written, count = come.rows, None
        if touched.files:
            written, count = frames.counted(written)
            there = self._rows_of(work.name, touched.files, frames.schema_text(rows))
            written = there.where(f"NOT coalesce({condition}, false)").unionByName(written)
        removed = frozenset(file.path for file in touched.files)
        staged = self._stage(work, written, replace(scope, name="merge", version=base.version, removed=removed))
        if leaving:
            leaving.refuse_unknown(come.unknown())
        merging.refuse_other_count(staged.rows, touched.stay + count() if count else None)
        return replace(staged, rows=staged.rows - touched.stay, outside=come.stray())


@dataclass(frozen=True)
class _Touched:
    """The files from which rows leave, and how many rows of them stay."""

    files: tuple[DataFile, ...] = ()
    stay: int = 0


def _touched(store: Stages, name: str, base: Manifest, condition: str) -> _Touched:
    from pyspark.sql import functions as F

    there = store._rows_of(name, base.files, base.schema).where(condition)
    found = there.groupBy(F.col("_metadata.file_path").alias("file")).count().collect()
    files = store._files_at(name, base, [row["file"] for row in found])
    held = footers.row_count([f"{store.table(name)}/{file.path}" for file in files])
    return _Touched(files, held - sum(row["count"] for row in found))
