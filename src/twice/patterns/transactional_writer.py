"""How are rows added in one transaction, so that a retry cannot add them again?

The rows of the whole job, whatever it reads, become visible together with the receipt, or not at
all. An append has no way to find its rows again, so a second edition of a slot is refused, unless
its rows carry their slot in a lineage column, or the store shows that they are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from twice.abilities import Appends, ReplacesSlices, Rows, Staged, TransactsTables, Work
from twice.columns import NamedColumn
from twice.errors import Misuse, NotPublished
from twice.patterns.on_target import OnTarget
from twice.plans import Stage, Step
from twice.replays import Draft
from twice.runs import Receipt, Slot
from twice.sight import Sight
from twice.slices import PredicateSlice


@dataclass(frozen=True)
class TransactionalWriter(OnTarget):
    """Add rows and their receipt in one transaction.

    Attributes:
        lineage: Column that carries the slot of each row, so that a correction can replace them.
        check: SQL condition that every row must fulfil, or nothing is published.
        tables: Names of several tables under the target; the transform returns the rows of each by name.
    """

    name: ClassVar[str] = "transactional_writer"
    compares_head: ClassVar[bool] = False
    in_order: ClassVar[bool] = False
    appends: ClassVar[bool] = True

    lineage: str | None = None
    check: str | None = None
    tables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.tables and self.check:
            raise Misuse("check= is about the rows of one table.", fix="Check the rows in the transform.")
        if self.lineage == "":
            raise Misuse("lineage= names a column.", fix='For example lineage="slot".')

    @property
    def requires(self) -> tuple[type, ...]:
        """A store that can append, to one table or to several; with lineage, one that can replace a slot's rows."""
        if self.tables:
            return (TransactsTables,)
        return (Appends, ReplacesSlices) if self.lineage else (Appends,)

    @property
    def names(self) -> tuple[NamedColumn, ...]:
        """The column that the pattern itself fills."""
        return (NamedColumn(self.lineage, "lineage=", in_rows=False),) if self.lineage else ()

    @property
    def conditions(self) -> tuple[str, ...]:
        """The condition that every row has to meet."""
        return (self.check,) if self.check else ()

    def refusal(self, slot: Slot, base: Sight, *, forced: bool) -> str:
        """A second edition would add the rows a second time, whoever asks for it."""
        before = base.receipt(slot.text)
        if before is None or slot.text in base.gone or (self.lineage and before.lineage == self.lineage):
            return ""
        if self.lineage:
            return f"The rows of {slot.label} are in the table already, without their slot in {self.lineage!r}: they cannot be found"
        return (
            f"The rows of {slot.label} are in the table already, and an append cannot find them to replace them:"
            " declare lineage=, a column that carries the slot"
        )

    def action(self, before: Receipt | None) -> str:
        """New rows, or with lineage a replacement."""
        return "replace" if before and self.lineage else "create"

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Write the rows where no reader looks."""
        rule = PredicateSlice(self.check) if self.check else None

        def act(store: Any, work: Work, rows: Rows) -> Staged:
            staged: Staged = (
                store.stage_tables(work, self._by_table(rows), self.lineage)
                if self.tables
                else store.stage_append(work, rows, self.lineage, rule)
            )
            return replace(staged, lineage=self.lineage or "")

        return Stage("stage", "write the new rows where no reader looks", act=act)

    def _by_table(self, rows: Rows) -> Mapping[str, Rows]:
        """Refuse a result that does not name each table once."""
        if not isinstance(rows, Mapping) or set(rows) != set(self.tables):
            raise NotPublished(
                f"The transform must return a dictionary with the rows of {', '.join(self.tables)}.",
                "Nothing was published, and the target is as it was.",
            )
        return rows

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step does."""
        replaced = f", in place of those where {self.lineage} names this slot," if self.lineage else ""
        return Step("publish", f"add the rows{replaced} and the slot's receipt in one commit")

    def judge(self, staged: Staged, work: Work) -> Staged:
        """Refuse all rows if one breaks the check."""
        if staged.outside:
            raise NotPublished(
                f"{staged.outside} of {staged.rows} rows break the check ({self.check}).",
                "All rows are published or none, so nothing was published.",
                "Correct the input, or filter such rows in the transform.",
            )
        return staged
