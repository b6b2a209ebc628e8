"""How is a period of a huge table cleaned without deleting a row?

Each period has a table of its own, and a view unites them. To clean a period is to replace its table,
which costs the same however large the others are. Several slots may share a period: a new one is added
to its table, and a rerun of one replays all that the table holds, in one publish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from twice.abilities import Appends, ReplacesTable, Rows, Staged, UnitesTables, Work
from twice.errors import Misuse
from twice.intervals import period as period_of
from twice.intervals import zone_named
from twice.patterns.data_overwrite import newer_slot, whole_table
from twice.patterns.on_target import OnTarget
from twice.plans import Loss, Prepare, Stage, Step
from twice.replays import Draft
from twice.runs import Receipt, Slot
from twice.sight import Sight

PERIODS = ("hour", "day", "week", "month", "year")


@dataclass(frozen=True)
class FastMetadataCleaner(OnTarget):
    """One table per period behind a view.

    Attributes:
        period: `hour`, `day`, ISO `week`, `month` or `year`, in the pipeline's zone.
        full: Every load brings the whole period, and makes its table anew.
        by: Column of the view that holds the period, so that a filter on it leaves the other tables out.
        tables_at_most: How many tables the view may unite.
    """

    name: ClassVar[str] = "fast_metadata_cleaner"
    compares_head: ClassVar[bool] = True
    appends: ClassVar[bool] = False

    period: str = "week"
    full: bool = False
    by: str = "period"
    tables_at_most: int = 1000

    def __post_init__(self) -> None:
        if self.period not in PERIODS:
            raise Misuse(f"period={self.period!r} is unknown.", fix=f"Use one of: {', '.join(PERIODS)}.")
        if self.tables_at_most < 1:
            raise Misuse("tables_at_most= is at least 1.")
        if not self.by:
            raise Misuse("by= names the column of the view that holds the period.")

    @property
    def in_order(self) -> bool:
        """Where every load brings the whole period, the last one stays."""
        return self.full

    @property
    def requires(self) -> tuple[type, ...]:
        """A store that unites tables, and that can replace or fill one."""
        return (UnitesTables, ReplacesTable) if self.full else (UnitesTables, ReplacesTable, Appends)

    def label(self, slot: Slot, zone: str) -> str:
        """Name the period of a slot; the slot must lie in it as a whole."""
        if slot.interval is None:
            raise Misuse(f"The pipeline {slot.pipeline!r} has no calendar, and so no periods.", fix="Declare every=.")
        label, interval = period_of(slot.interval.start, self.period, zone_named(zone))
        if slot.interval.end > interval.end:
            raise Misuse(
                f"The slot {slot.shown} does not lie within one {self.period}.",
                fix=f"Choose a period that holds whole intervals of {slot.pipeline!r}.",
            )
        return label

    def larger(self, into: str, members: Mapping[str, Sight], zone: str, before: datetime) -> dict[str, list[str]]:
        """Return the periods that each larger period unites, of those that end before a moment."""
        if PERIODS.index(into) <= PERIODS.index(self.period):
            raise Misuse(f"A {into} is not larger than a {self.period}.", fix=f"Periods: {', '.join(PERIODS)}.")
        found: dict[str, list[str]] = {}
        for member, sight in sorted(members.items()):
            slots = [slot for slot in map(Slot.parse, sight.receipts) if slot.interval]
            if not slots:
                continue
            begin = min(slot.interval.start for slot in slots if slot.interval)
            own = period_of(begin, self.period, zone_named(zone))[1]
            # A week belongs where it begins, also if it ends in the next year.
            label, interval = period_of(own.start, into, zone_named(zone))
            if max(interval.end, own.end) <= before and label not in members:
                found.setdefault(label, []).append(member)
        return {label: united for label, united in found.items() if len(united) > 1}

    def table(self, slot: Slot, zone: str) -> str:
        """The table of the slot's period."""
        return f"{slot.target.name}/{self.label(slot, zone)}"

    def companions(self, slot: Slot, base: Sight, *, forced: bool) -> tuple[Slot, ...]:
        """All slots of the table, if this one is in it already: it cannot be taken out by itself."""
        if self.full or base.receipt(slot.text) is None:
            return ()
        return tuple(sorted(map(Slot.parse, set(base.receipts) - {slot.text}), key=lambda other: other.part_text))

    def prepare(self, slot: Slot, zone: str) -> tuple[Prepare, ...]:
        """The view names the period before its table is filled: it is never forgotten."""
        view, label = slot.target.name, self.label(slot, zone)

        def open_period(store: Any) -> None:
            store.open_member(view, label, self.by, self.tables_at_most, slot.pipeline)

        return (Prepare("view.open", f"let the view {slot.target.text} name the table of {label}", act=open_period),)

    def superseded(self, slot: Slot, base: Sight) -> str:
        """Name the newer load that made the period's table anew."""
        return newer_slot(slot, base) if self.full and slot.text in base.ended else ""

    def refusal(self, slot: Slot, base: Sight, *, forced: bool) -> str:
        """An older load of a whole period must not take the place of a newer one unasked."""
        newer = newer_slot(slot, base) if self.full and not forced else ""
        return f"The period's table holds the newer load {newer}, which this older one would replace." if newer else ""

    def action(self, before: Receipt | None) -> str:
        """The slot's rows are new, or take the place of its older ones."""
        return "replace" if before else "create"

    def losses(self, slot: Slot, base: Sight) -> tuple[Loss, ...]:
        """A load of the whole period replaces its table."""
        return whole_table(slot, base) if self.full else ()

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Write the table anew, or the rows of a slot that it does not hold yet."""

        def act(store: Any, work: Work, rows: Rows) -> Staged:
            store.labelled(rows, self.by, "")  # refuses rows that have the view's column already
            rows = store.like_siblings(work, rows)
            anew = self.full or work.base.receipt(work.slot) is not None
            staged: Staged = store.stage_table(work, rows) if anew else store.stage_append(work, rows, None, None)
            return staged

        return Stage("stage", "write the rows where no reader looks", act=act)

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step does."""
        how = "replace" if self.full else "replace, or add to,"
        return Step("publish", f"{how} the table of {self.label(slot, zone)} with the receipts in one commit")
