"""How is a day in the middle of a year of merges done again, as if it had been right from the start?

The stateful merger knows the state of the table before every slot: it is a version that the store
keeps. A slot that is done again, or late, starts from the state before it; the slots after it are
done again with it, and readers see the old table until they see the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from twice.abilities import Drafts, Merges, Rows, Staged, Work
from twice.errors import Misuse
from twice.merges import MergeRule
from twice.patterns.on_target import OnTarget
from twice.plans import Stage, Step
from twice.replays import Draft, draft_before, later, start_of
from twice.runs import Receipt, Slot
from twice.sight import Past, Sight


@dataclass(frozen=True)
class StatefulMerger(OnTarget):
    """Insert, update and delete rows by key, and take back what an older edition of a slot had done.

    Attributes:
        rule: Keys, mark of deletion, order.
        partitioned_by: Columns that lay a new table out.
        keep_days: How long versions are kept that a replay may start from.
        visible: What readers see of a replay: its `result`, or `each` slot as it is reached.
    """

    name: ClassVar[str] = "stateful_merger"
    compares_head: ClassVar[bool] = True
    builds_on_all: ClassVar[bool] = True
    in_order: ClassVar[bool] = True
    appends: ClassVar[bool] = False

    rule: MergeRule
    partitioned_by: tuple[str, ...] = ()
    keep_days: int = 366
    visible: str = "result"

    def __post_init__(self) -> None:
        if self.visible not in ("result", "each"):
            raise Misuse(f"visible={self.visible!r} is unknown.", fix='Use "result" or "each".')
        if self.keep_days < 1:
            raise Misuse("keep_days= is at least 1.")

    @property
    def shows_each(self) -> bool:
        """Tell whether readers see every slot of a replay as it is reached."""
        return self.visible == "each"

    @property
    def requires(self) -> tuple[type, ...]:
        """A store that can merge, and that can start from an older version."""
        return (Merges, Drafts)

    def companions(self, slot: Slot, base: Sight, *, forced: bool) -> tuple[Slot, ...]:
        """All later slots: what they did depends on this one."""
        return later(slot, base, forced=forced)

    def draft(
        self, slot: Slot, base: Sight, companions: Sequence[Slot], past: Callable[[], Past], *, forced: bool
    ) -> Draft | None:
        """Start from the state before the slot, unless that is what the table shows."""
        start_of(slot)
        is_next = not companions and slot.text not in base.receipts
        if is_next and not (forced and base.ended):
            return None
        return draft_before(slot, base, past(), forced=forced)

    def action(self, before: Receipt | None) -> str:
        """A merge, the first time and every time."""
        return "merge"

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Write what changes where no reader looks: of the table, or of the state before the slot."""
        if draft is None:

            def merge(store: Any, work: Work, rows: Rows) -> Staged:
                staged: Staged = store.stage_merge(work, rows, self.rule, self.partitioned_by)
                return staged

            return Stage("stage", "compare the rows with the table and write what changes", act=merge)

        def replay(store: Any, work: Work, batches: Sequence[Rows]) -> Staged:
            staged: Staged = store.stage_draft(work, draft.base, batches, self.rule, self.partitioned_by)
            return staged

        return Stage("stage", f"replay: {draft.text}; write what differs where no reader looks", act=replay)

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step does."""
        keys = ", ".join(self.rule.keys)
        return Step("publish", f"show the rows merged by {keys}, and the receipts, in one commit")
