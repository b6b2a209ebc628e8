"""How is a slot's data replaced as a whole, so that a rerun can neither add to it nor tear it?

Data overwrite swaps what a slot wrote before for what it writes now: the whole table, the rows of
a slice, or the partitions that the slot fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from twice.abilities import ReplacesPartitions, ReplacesSlices, ReplacesTable, Rows, Staged, Work
from twice.columns import NamedColumn
from twice.errors import Misuse, NotPublished
from twice.patterns.on_target import OnTarget
from twice.placeholders import render
from twice.plans import Loss, Stage, Step
from twice.replays import Draft, named
from twice.runs import Receipt, Slot, filled_by_another
from twice.sight import NO_TABLE, Sight
from twice.slices import ColumnSlice, PredicateSlice, Slice

EMPTY = ("clear", "keep", "fail")


@dataclass(frozen=True)
class DataOverwrite(OnTarget):
    """Replace a table, a slice of it, or the slot's partitions.

    Attributes:
        slice: Column that stands for the slot: equal to its start (or key), or within its interval.
        where: SQL condition instead, with the placeholders of the slot.
        partitions: Columns that lay the table out; the slot owns the partitions that it fills.
        empty: What an empty result does: `clear` the old rows, `keep` them, or `fail`.
    """

    name: ClassVar[str] = "data_overwrite"
    appends: ClassVar[bool] = False

    slice: str | None = None
    where: str | None = None
    partitions: tuple[str, ...] = ()
    empty: str = "clear"

    def __post_init__(self) -> None:
        if sum(map(bool, (self.slice, self.where, self.partitions))) > 1:
            raise Misuse("data_overwrite takes one of slice=, where= and partitions=, not several.")
        if self.empty not in EMPTY:
            raise Misuse(f"empty={self.empty!r} is unknown.", fix=f"Use one of: {', '.join(EMPTY)}.")

    @property
    def requires(self) -> tuple[type, ...]:
        """The one ability that this configuration needs."""
        if self.slice or self.where:
            return (ReplacesSlices,)
        return (ReplacesPartitions,) if self.partitions else (ReplacesTable,)

    @property
    def names(self) -> tuple[NamedColumn, ...]:
        """The columns that tell a slot's rows."""
        sliced = (NamedColumn(self.slice, "slice="),) if self.slice else ()
        return (*sliced, *(NamedColumn(name, "partitions=") for name in self.partitions))

    @property
    def conditions(self) -> tuple[str, ...]:
        """The condition that tells a slot's rows."""
        return (self.where,) if self.where else ()

    @property
    def by_slot(self) -> bool:
        """Slices and partitions of different slots are kept apart by the store."""
        return bool(self.slice or self.where or self.partitions)

    @property
    def compares_head(self) -> bool:
        """A whole table must not have moved; slices are compared slot by slot."""
        return not self.by_slot

    @property
    def in_order(self) -> bool:
        """The last whole table is the one that stays."""
        return not self.by_slot

    def superseded(self, slot: Slot, base: Sight) -> str:
        """Name the newer slot whose rows took the place of this one's, where one replaced the table."""
        if self.by_slot or slot.interval is None or slot.text not in base.ended:
            return ""
        return newer_slot(slot, base)

    def refusal(self, slot: Slot, base: Sight, *, forced: bool) -> str:
        """Replacing the whole table ends all other proofs: an older slot must not do so unasked."""
        if forced or self.by_slot or slot.interval is None:
            return ""
        newer = newer_slot(slot, base)
        return f"The table holds the newer slot {newer}, which this older one would replace." if newer else ""

    def action(self, before: Receipt | None) -> str:
        """The slot's rows are new, or take the place of its older ones."""
        return "replace" if before else "create"

    def losses(self, slot: Slot, base: Sight) -> tuple[Loss, ...]:
        """All that is in a table that is replaced as a whole; of a slice, what Twice did not write."""
        return rows_of_others(base) if self.by_slot else whole_table(slot, base)

    def bounds(self, slot: Slot, zone: str) -> Slice:
        """Return the slice of a slot."""
        if self.where:
            return PredicateSlice(render(self.where, slot.part, zone, escape=_plain_in_sql))
        if self.slice is None:
            raise Misuse("This data_overwrite has no slice.")
        return ColumnSlice(self.slice, slot, zone)

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Write the new rows where no reader looks."""

        def act(store: Any, work: Work, rows: Rows) -> Staged:
            if self.partitions:
                return _staged_partitions(store, work, rows, self.partitions)
            if self.by_slot:
                staged: Staged = store.stage_slice(work, rows, self.bounds(slot, zone))
                return staged
            whole: Staged = store.stage_table(work, rows)
            return whole

        return Stage("stage", "write the new rows where no reader looks", act=act)

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step replaces."""
        return Step("publish", f"replace {self._what(slot, zone)} and its receipt in one commit")

    def _what(self, slot: Slot, zone: str) -> str:
        if self.partitions:
            return f"the slot's partitions by {', '.join(self.partitions)}"
        return f"the rows where {self.bounds(slot, zone).text}" if self.by_slot else "the whole table"

    def judge(self, staged: Staged, work: Work) -> Staged:
        """Refuse rows outside the slice, and settle what an empty result does."""
        if staged.outside:
            raise NotPublished(
                f"{staged.outside} of {staged.rows} rows lie outside the slot's slice ({self.slice or self.where}).",
                "Publishing them would touch other slots, so nothing was published.",
                "Filter them in the transform, or check that the input belongs to this slot.",
            )
        if staged.rows:
            return staged
        if self.empty == "fail":
            raise NotPublished(
                "The result is empty, and the pattern says empty='fail'.",
                "The old rows of the slot are as they were.",
            )
        before = work.base.proof(work.slot)
        if self.empty == "keep" and before:
            return replace(staged, rows=before.rows, partitions=before.partitions, handle=None, keeps=True)
        return staged


def _plain_in_sql(value: str) -> str:
    """Refuse a key that would end the literal it stands in."""
    if "'" in value or "\\" in value:
        raise Misuse(
            f"The key {value!r} holds a quote or a backslash, which a predicate cannot carry.",
            fix="Use slice=... with a key column: it compares any key.",
        )
    return value


def rows_of_others(base: Sight) -> tuple[Loss, ...]:
    """Name rows that Twice did not write, in a table that is not adopted and is published to by force."""
    forced = base.exists and base.filled and not base.owner
    return (Loss("rows that Twice did not write, where the slot's rows belong"),) if forced else ()


def whole_table(slot: Slot, base: Sight) -> tuple[Loss, ...]:
    """Name what is in a table that is replaced as a whole; only what its pipeline published is expected to leave."""
    if not base.exists or (base.data_version == NO_TABLE and not base.filled):
        return ()
    if not base.receipts:
        return (Loss("the whole table, whose rows this pipeline did not publish"),)
    others = sorted(
        map(Slot.parse, base.receipts.keys() - base.ended.keys() - {slot.text}), key=lambda one: one.part_text
    )
    return (Loss(f"the whole table, with the rows of {named(others)}", asks=False),) if others else ()


def newer_slot(slot: Slot, base: Sight) -> str:
    """Name the newest published slot that starts after this one, or nothing."""
    newer = [s for s in base.receipts if base.proof(s) and _starts_after(s, slot)]
    return Slot.parse(max(newer)).label if newer else ""


def _starts_after(text: str, slot: Slot) -> bool:
    other = Slot.parse(text)
    return bool(slot.interval and other.interval and other.interval.start > slot.interval.start)


def _staged_partitions(store: ReplacesPartitions, work: Work, rows: Rows, columns: Sequence[str]) -> Staged:
    """Stage by partitions, and refuse any that another slot filled."""
    staged = store.stage_partitions(work, rows, columns)
    shared = filled_by_another(staged.partitions, work.base.receipts, [work.slot])
    if shared:
        raise NotPublished(
            f"The partition {shared[0]!r} belongs to the slot {Slot.parse(shared[1]).label}.",
            "Replacing it would take away that slot's rows, so nothing was published.",
            "Choose partition columns that tell the slots apart.",
        )
    return staged
