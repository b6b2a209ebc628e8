"""How are changed rows brought into a table, so that applying them twice changes nothing more?

The merger inserts, updates and deletes by key, in one publish. It has no memory: a rerun applies the
slot's rows again, and does not take back what an older edition of the slot had brought.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from twice.abilities import Merges, Rows, Staged, Work
from twice.columns import NamedColumn
from twice.merges import MergeRule
from twice.patterns.on_target import OnTarget
from twice.plans import Loss, Stage, Step
from twice.replays import Draft
from twice.runs import Receipt, Slot
from twice.sight import Sight

MAY_REMAIN = "rows that only the older edition of this slot had brought stay in the table"


@dataclass(frozen=True)
class Merger(OnTarget):
    """Insert, update and delete rows by key.

    Attributes:
        rule: Keys, mark of deletion, order.
        partitioned_by: Columns that lay a new table out.
    """

    name: ClassVar[str] = "merger"
    compares_head: ClassVar[bool] = False
    in_order: ClassVar[bool] = True
    appends: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False

    rule: MergeRule
    partitioned_by: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[NamedColumn, ...]:
        """The columns of the rule, and those that lay a new table out."""
        layout = (NamedColumn(name, "partitioned_by=", in_table=False) for name in self.partitioned_by)
        return (*self.rule.names, *layout)

    @property
    def requires(self) -> tuple[type, ...]:
        """A store that can merge."""
        return (Merges,)

    def action(self, before: Receipt | None) -> str:
        """A merge, the first time and every time."""
        return "merge"

    def notes(self, slot: Slot, base: Sight) -> tuple[str, ...]:
        """Say what a merger does not do."""
        return reapplied_notes(slot, base)

    def losses(self, slot: Slot, base: Sight) -> tuple[Loss, ...]:
        """Rows that the source marks as deleted."""
        return deleted_rows(self.rule, base)

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Compare the rows with the table, and write what changes where no reader looks."""

        def act(store: Any, work: Work, rows: Rows) -> Staged:
            staged: Staged = store.stage_merge(work, rows, self.rule, self.partitioned_by)
            return staged

        return Stage("stage", "compare the rows with the table and write what changes where no reader looks", act=act)

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step does."""
        keys = ", ".join(self.rule.keys)
        return Step("publish", f"merge the changed rows by {keys} and the slot's receipt in one commit")


def reapplied_notes(slot: Slot, base: Sight) -> tuple[str, ...]:
    """Say what a second edition of a slot, or an older slot after newer ones, leaves as it is."""
    notes = []
    if base.receipt(slot.text):
        notes.append(MAY_REMAIN)
    newer = [other for other in map(Slot.parse, base.receipts) if _starts_after(other, slot)]
    if newer:
        latest = max(newer, key=lambda other: other.part_text)
        notes.append(f"newer slots, up to {latest.label}, are in the table: this one is applied over them")
    return tuple(notes)


def deleted_rows(rule: MergeRule, base: Sight) -> tuple[Loss, ...]:
    """Name the rows that a mark of deletion takes out of the table."""
    hard = base.exists and rule.deleted and not rule.soft
    return (Loss(f"rows whose key the source marks as deleted by {rule.deleted!r}", asks=False),) if hard else ()


def _starts_after(other: Slot, slot: Slot) -> bool:
    return bool(slot.interval and other.interval and other.interval.start > slot.interval.start)
