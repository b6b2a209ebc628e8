"""How do rows take the place of others in a Delta table, or come to them?

A whole table, a slice or partitions are replaced in one transaction of our own; Delta's own writer chooses the files that go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from twice.abilities import Rows, Staged, Work
from twice.errors import Misuse, NotPublished
from twice.slices import ColumnSlice, Slice, missing_column, quoted, string_literal
from twice.stores import frames
from twice.stores.delta.partitions import holds_partition
from twice.stores.delta.staging import Stages, Written

# The table keeps what it says of its columns; new ones come to it before.
_WHOLE = {"overwriteSchema": "false"}
_UNNAMED = "CHECK constraint EXPRESSION("
_PARTITION_TYPES = ("date", "string", "int", "bigint", "smallint", "tinyint")


class ReplacesRows(Stages):
    """Replaces and appends rows, for the store of Delta tables."""

    def stage_table(self, work: Work, rows: Rows) -> Staged:
        """Write the rows that will be the whole table, in a transaction opened on what the plan saw."""
        transaction, rows = self._opened_for(work, rows, base=work.base.version)
        return self._stage(work, transaction, rows, _WHOLE, transaction.partition_columns, "table")

    def stage_slice(self, work: Work, rows: Rows, bounds: Slice) -> Staged:
        """Write the rows of a slice; Delta refuses those that lie outside it while they are written."""
        transaction, rows = self._opened_for(work, rows)
        predicate = bounds.sql(frames.types(rows))
        column = getattr(bounds, "column", "")
        by_column = [column] if column and frames.types(rows)[column] in _PARTITION_TYPES else []
        partition_by = transaction.partition_columns if transaction.exists else by_column
        write = partial(self._stage, work, transaction, rows, {"replaceWhere": predicate}, partition_by, "slice")
        if not transaction.exists:
            # Delta itself refuses stray rows only in a table that exists already.
            return self._counted(write(), bounds, rows, predicate)
        try:
            return self._told_apart(write(), column)
        except Exception as error:
            _, mismatch, said = str(error).partition("[DELTA_REPLACE_WHERE_MISMATCH]")
            if not mismatch:
                raise
            if _UNNAMED not in said:
                # Delta tells any rule of the table in this way; the slice is the only one without a name.
                rule = said.partition("\n")[2].partition("] ")[2]
                raise NotPublished(
                    f"The table {work.name} refuses a row: {' '.join(rule.split())}",
                    "Nothing was published, and the target is as it was.",
                    "Correct the rows in the transform, or the table.",
                ) from error
            raise NotPublished(
                f"Some rows lie outside the slot's slice ({bounds.text}).",
                "Publishing them would touch other slots, so nothing was published.",
                "Filter them in the transform, or check that the input belongs to this slot.",
            ) from error

    def _told_apart(self, staged: Staged, column: str) -> Staged:
        """Count the slot's rows by themselves where those of others may lie in files that were written anew with them."""
        written: Written = staged.handle
        transaction = written.transaction
        if not transaction.removes(written.actions) or column in transaction.partition_columns:
            return staged
        return replace(staged, rows=transaction.staged(written.actions).where(written.predicate).count())

    def _counted(self, staged: Staged, bounds: Slice, rows: Any, predicate: str) -> Staged:
        """Count stray rows of a new table as they were written, unless its files show that there are none."""
        written: Written = staged.handle
        added = written.transaction.added_files(written.actions)
        kind = frames.types(rows).get(getattr(bounds, "column", ""), "")
        if isinstance(bounds, ColumnSlice) and all(file.holds_only(bounds, kind) for file in added):
            return staged
        return replace(staged, outside=frames.stray_count(written.transaction.staged(written.actions), predicate))

    def stage_partitions(self, work: Work, rows: Rows, columns: Sequence[str]) -> Staged:
        """Write the rows by partition, and remove the partitions that the slot filled before."""
        # Opened on what the plan saw: a neighbour that fills one of these partitions since is a conflict.
        transaction, rows = self._opened_for(work, rows, base=work.base.version)
        for column in columns:
            if column not in rows.columns:
                raise missing_column(column, rows.columns)
        found = transaction.partition_columns
        if transaction.exists and found != list(columns):
            raise Misuse(f"The table {work.name} is partitioned by {found}, the pattern says {list(columns)}.")
        filled_before = self._filled_before(work) if transaction.exists else []
        left_behind = " OR ".join(holds_partition(name, transaction.names_in_log) for name in filled_before)
        staged = self._stage(work, transaction, rows, {"partitionOverwriteMode": "dynamic"}, list(columns), "slice")
        if not left_behind:
            return staged
        actions = transaction.removing(staged.handle.actions, left_behind)
        return replace(staged, handle=replace(staged.handle, actions=actions))

    def _filled_before(self, work: Work) -> list[str]:
        """Return the partitions that older generations of the slot filled, and that no other slot fills now."""
        before = work.base.receipt(work.slot)
        if before is None:
            return []
        if not before.attempt:
            raise NotPublished(
                f"The receipt of {work.slot} went with the cleaned log, and with it the partitions that it filled.",
                "Rows of an older generation could stay behind, so nothing was published.",
                "Remove the slot's old rows by hand, or write to a new target.",
            )
        others = {part for slot, found in work.base.receipts.items() if slot != work.slot for part in found.partitions}
        return sorted({*before.partitions, *before.once} - others)

    def stage_append(self, work: Work, rows: Rows, lineage: str | None, check: Slice | None) -> Staged:
        """Write the rows to be added; with lineage they take the place of the slot's older ones."""
        rows = frames.with_lineage(frames.checked(rows), lineage, work.slot)
        transaction, rows = self._opened_for(work, rows)
        rows, stray = frames.observed(rows, check.sql(frames.types(rows)) if check else "")
        options = {}
        if lineage and work.base.receipt(work.slot):
            options = {"replaceWhere": f"{quoted(lineage)} = {string_literal(work.slot)}"}
        staged = self._stage(work, transaction, rows, options, transaction.partition_columns, "rows")
        return replace(self._told_apart(staged, lineage or ""), outside=stray())
