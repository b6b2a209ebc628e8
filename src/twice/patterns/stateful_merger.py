"""How is a day in the middle of a year of merges done again, as if it had been right from the start?

The stateful merger knows the state of the table before every slot: it is a version that the store
keeps. A slot that is done again, or late, starts from the state before it; the slots after it are
done again with it, and readers see the old table until they see the new one.

In its other form it keeps every change row of every slot instead, and makes the table's rows of them:
versions and inputs may then be thrown away, and no other slot has to be done again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from twice.abilities import Editions, KeepsHistory, KeepsVersions, Merges, Rows, Staged, Work
from twice.columns import NamedColumn
from twice.errors import Misuse
from twice.merges import MergeRule
from twice.patterns.merger import deleted_rows
from twice.patterns.on_target import OnTarget
from twice.plans import Loss, Stage, Step
from twice.replays import Draft, draft_before, later, published, start_of
from twice.runs import Receipt, Slot, new_try
from twice.sight import NO_TABLE, Past, Sight


@dataclass(frozen=True)
class StatefulMerger(OnTarget):
    """Insert, update and delete rows by key, and take back what an older edition of a slot had done.

    Attributes:
        rule: Keys, mark of deletion, order.
        partitioned_by: Columns that lay a new table out.
        keep_days: How long versions are kept that a replay may start from.
        visible: What readers see of a replay: its `result`, or `each` slot as it is reached.
        form: What the state before a slot is known by: kept `versions`, or a `history` of change rows.
    """

    name: ClassVar[str] = "stateful_merger"
    compares_head: ClassVar[bool] = True
    builds_on_all: ClassVar[bool] = True
    in_order: ClassVar[bool] = True
    appends: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False

    rule: MergeRule
    partitioned_by: tuple[str, ...] = ()
    keep_days: int = 366
    visible: str = "result"
    form: str = "versions"

    def __post_init__(self) -> None:
        if self.form not in ("versions", "history"):
            raise Misuse(f"form={self.form!r} is unknown.", fix='Use "versions" or "history".')
        if self.form == "history" and self.visible == "each":
            raise Misuse('visible="each" has no meaning with form="history": no slot is done again with another.')
        if self.visible not in ("result", "each"):
            raise Misuse(f"visible={self.visible!r} is unknown.", fix='Use "result" or "each".')
        if self.keep_days < 1:
            raise Misuse("keep_days= is at least 1.")

    @property
    def shows_each(self) -> bool:
        """Tell whether readers see every slot of a replay as it is reached."""
        return self.visible == "each"

    @property
    def keeps_history(self) -> bool:
        """Tell whether change rows are kept."""
        return self.form == "history"

    @property
    def names(self) -> tuple[NamedColumn, ...]:
        """The columns of the rule, and those that lay a new table out."""
        layout = (NamedColumn(name, "partitioned_by=", in_table=False) for name in self.partitioned_by)
        return (*self.rule.names, *layout)

    @property
    def requires(self) -> tuple[type, ...]:
        """A store that can merge, and that can start from an older version or keep change rows."""
        return (Merges, KeepsHistory) if self.keeps_history else (Merges, KeepsVersions)

    def companions(self, slot: Slot, base: Sight, *, forced: bool) -> tuple[Slot, ...]:
        """All later slots: what they did depends on this one; with a history, all that have to be vouched for again."""
        if self.keeps_history:
            others = published(base, forced=True) if forced and base.ended else []
            return tuple(other for other in others if other != slot)
        return later(slot, base, forced=forced)

    def draft(
        self, slot: Slot, base: Sight, companions: Sequence[Slot], past: Callable[[], Past], *, forced: bool
    ) -> Draft | None:
        """Start from the state before the slot, unless that is what the table shows."""
        start_of(slot)
        if self.keeps_history:
            return None
        is_next = not companions and slot.text not in base.receipts
        if is_next and not (forced and base.ended):
            return None
        return draft_before(slot, base, past(), forced=forced)

    def action(self, before: Receipt | None) -> str:
        """A merge, the first time and every time."""
        return "merge"

    def losses(self, slot: Slot, base: Sight) -> tuple[Loss, ...]:
        """Rows that the source marks as deleted."""
        return deleted_rows(self.rule, base)

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Write what changes where no reader looks: of the table, or of the state before the slot."""
        if self.keeps_history:
            return Stage(
                "stage", "keep the change rows, and write what the table's rows become of them", act=self._rebuild
            )
        if draft is None:

            def merge(store: Any, work: Work, rows: Rows) -> Staged:
                staged: Staged = store.stage_merge(work, rows, self.rule, self.partitioned_by)
                return staged

            return Stage("stage", "compare the rows with the table and write what changes", act=merge)

        def replay(store: Any, work: Work, batches: Sequence[Rows]) -> Staged:
            staged: Staged = store.stage_draft(work, draft.base, batches, self.rule, self.partitioned_by)
            return staged

        return Stage("stage", "merge the slots in turn, and write what differs where no reader looks", act=replay)

    def refusal(self, slot: Slot, base: Sight, *, forced: bool) -> str:
        """Slots whose change rows were not kept could not be told from what was there before them."""
        unkept = [one for one in base.receipts.values() if not one.history]
        if not self.keeps_history or not unkept:
            return ""
        return (
            f"{len(unkept)} published slots of {slot.target.text} have no change rows in its history, so the table cannot"
            ' be made of it. Go back to form="versions", or write to a new target.'
        )

    def notes(self, slot: Slot, base: Sight) -> tuple[str, ...]:
        """Say what becomes of rows that are there already."""
        if not (self.keeps_history and _is_adopted(base)) or base.data_version == NO_TABLE:
            return ()
        return ("the rows that are there are kept in the history too, as what was there before the first slot",)

    def _rebuild(self, store: Any, work: Work, rows: Rows) -> Staged:
        """Make the rows of the keys that are touched, or of all keys after a change from outside."""
        base = work.base
        kept = {slot.text: base.receipts[slot.text].history for slot in published(base, forced=work.heals)}
        replaced = base.receipt(work.slot)
        own = new_try(work.attempt)
        names = {**kept, work.slot: own}
        ordered = tuple(names[text] for text in sorted(names, key=lambda text: start_of(Slot.parse(text))))
        adopting = new_try(work.attempt) if _is_adopted(base) else ""
        # All receipts name the same rows, since a publish that saw none of them is refused once there is one.
        adopted = adopting or next((one.adopted for one in base.receipts.values()), "")
        if adopted:
            ordered = (adopted, *ordered)
        editions = Editions(ordered, own, replaced.history if replaced else "", work.heals, adopting)
        staged: Staged = store.stage_history(work, rows, self.rule, self.partitioned_by, editions)
        return replace(staged, history=own, adopted=adopted)

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step does."""
        keys = ", ".join(self.rule.keys)
        return Step("publish", f"show the rows merged by {keys}, and the receipts, in one commit")


def _is_adopted(base: Sight) -> bool:
    """Tell whether a table was there before its first slot."""
    return base.exists and not base.receipts
