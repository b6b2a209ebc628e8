"""How are rows written in a Delta transaction, before anybody sees them?

A transaction is opened for an attempt, rows are made to fit the table, and files are written with the actions in hand that
will make them visible. Whoever dies before the commit leaves files that no version names; whoever gives up removes them.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

from twice.abilities import Rows, Staged, Work
from twice.data_tests import Answer, DataTest
from twice.errors import Conflict, Misuse, NotPublished
from twice.faults import reach
from twice.slices import quoted
from twice.stores import footers, frames
from twice.stores.answering import by_spark
from twice.stores.delta import catalog
from twice.stores.delta.jvm import AddedFile, Transaction
from twice.stores.delta.partitions import NULL, partition_name
from twice.stores.manifest import Manifest
from twice.stores.views import DATA


@dataclass(frozen=True)
class Written:
    """Files that a transaction has written, and the actions that will make them visible.

    A draft also adds files of an older version again: `new` are then the actions of those that it wrote itself.
    """

    transaction: Transaction
    actions: Any
    scope: str
    predicate: str = ""
    starts_from: int | None = None
    new: Any = None

    @property
    def mode(self) -> str:
        """What the table's history calls it."""
        appends = self.scope == "rows" and not self.predicate and self.starts_from is None
        return "Append" if appends else "Overwrite"


class Stages(ABC):
    """Writes rows where no reader looks, for the store of Delta tables."""

    engine: Any
    _folders: dict[str, str]

    @abstractmethod
    def table(self, name: str) -> str:
        """Return the folder of a table."""

    @abstractmethod
    def _view(self, name: str) -> Manifest | None:
        """Return the view of that name, if it is one and not a table."""

    def _opened_for(
        self, work: Work, rows: Rows, base: int | None = None, besides: Sequence[str] = ()
    ) -> tuple[Transaction, Any]:
        """Open a transaction, and make the rows fit the table; what the table gets is part of the transaction."""
        transaction = self._open(work, base)
        return transaction, self._fits(transaction, rows, work, besides)

    def _open(self, work: Work, base: int | None = None) -> Transaction:
        """Open a transaction that conflicts with any other publish of the slot, or change of owner."""
        if "/" not in work.name and self.table(work.name) != (located := catalog.located(self.engine.spark, work.name)):
            self._folders[work.name] = located
            raise Conflict("the catalog keeps the table in another place now")
        if self._view(work.name):
            raise Misuse(
                f"{work.name} is a view.", "Rows are written to the tables behind it.", "Choose another target."
            )
        transaction = Transaction(self.engine.spark, self.table(work.name), base)
        if base is not None and transaction.read_version != base:
            raise Conflict(f"the table is at version {transaction.read_version}, the plan saw {base}")
        if transaction.table_property("delta.setTransactionRetentionDuration"):
            raise Misuse(
                f"The table {work.name} forgets transactions (delta.setTransactionRetentionDuration).",
                "A rerun after that could not be told from a first run.",
                "Unset that property of the table.",
            )
        return transaction

    def _fits(self, transaction: Transaction, rows: Rows, work: Work, besides: Sequence[str]) -> Any:
        fitted, fits = frames.fitted(frames.checked(rows), transaction.schema, work, besides)
        if fits.changes_table:
            # Delta changes a table's metadata once in a transaction: how long versions are kept waits for the next.
            transaction.evolve(fitted.drop(*besides).limit(0), widened=fits.widened)
        else:
            transaction.keep_versions(work.keep_days)
        return fitted

    def _stage(
        self,
        work: Work,
        transaction: Transaction,
        rows: Rows,
        options: Mapping[str, str],
        partition_by: Sequence[str],
        scope: str,
    ) -> Staged:
        actions = transaction.write(rows, options, partition_by)
        reach("delta.files.written")
        added = transaction.added_files(actions)
        filled = {partition_name(file.partition, partition_by) for file in added}
        partitions = tuple(sorted(filled)) if "partitionOverwriteMode" in options else ()
        handle = Written(transaction, actions, scope, options.get("replaceWhere", ""))
        answers = partial(_answers, transaction, actions, handle.predicate)
        staged = Staged(sum(map(self._rows_in(work), added)), 0, partitions, handle, answers=answers)
        self._refuse_blanks(work, staged, rows, added, partition_by)
        return staged

    def _rows_in(self, work: Work) -> Callable[[AddedFile], int]:
        """Count a new file's rows by what Delta noted of it, or by its footer."""

        def count(file: AddedFile) -> int:
            path = os.path.join(self.table(work.name), unquote(file.path))
            return file.rows if file.rows is not None else footers.row_count([path])

        return count

    def _refuse_blanks(
        self, work: Work, staged: Staged, rows: Any, added: Sequence[AddedFile], partition_by: Sequence[str]
    ) -> None:
        """Delta reads an empty text in a partition column, and Hive's name of NULL, back as NULL: refuse rather than change."""
        doubtful = [column for column in partition_by if any(file.partition.get(column) is None for file in added)]
        try:
            self._refuse_blank_texts(rows, doubtful)
        except NotPublished:
            self.discard(work, staged)
            raise

    def _refuse_blank_texts(self, rows: Any, partition_by: Sequence[str]) -> None:
        texts = [column for column in partition_by if frames.types(rows).get(column) == "string"]
        blank = rows.where(" OR ".join(f"{quoted(c)} IN ('', '{NULL}')" for c in texts)).count() if texts else 0
        if blank:
            raise NotPublished(
                f"{blank} rows have an empty text, or {NULL}, in a column that partitions the table ({', '.join(partition_by)}).",
                "Delta would read it back as NULL, so nothing was published.",
                "Replace that text in the transform, or do not partition by that column.",
            )

    def discard(self, work: Work, staged: Staged) -> None:
        """Remove the files of a transaction that will never commit, or a version that no view will name."""
        shutil.rmtree(self._version_folder(work), ignore_errors=True)
        written = staged.handle
        if not isinstance(written, Written):
            return
        table = self.table(work.name)
        for path in written.transaction.new_files(written.actions if written.new is None else written.new):
            _unlink(os.path.join(table, unquote(path)))

    def _version_folder(self, work: Work) -> str:
        return os.path.join(self.table(work.name), DATA, work.attempt)


def _answers(transaction: Transaction, actions: Any, predicate: str, tests: Sequence[DataTest]) -> Sequence[Answer]:
    """Answer tests of the rows that a transaction writes; of files that it writes anew the rows outside its slice are of others."""
    rows = transaction.staged(actions)
    return by_spark(rows.where(predicate) if predicate else rows, tests)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
