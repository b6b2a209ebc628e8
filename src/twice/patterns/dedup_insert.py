"""How are rows added only once, when the same row may arrive in several batches?

Insert with deduplication adds the rows whose key is not in the table yet, and touches no other. The
look at the table is part of the publish: a twin that adds the same key meanwhile is a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from twice.abilities import InsertsMissing, LookBack, Rows, Staged, Work
from twice.columns import NamedColumn
from twice.errors import Misuse
from twice.intervals import parse_length
from twice.merges import MergeRule
from twice.patterns.merger import reapplied_notes
from twice.patterns.on_target import OnTarget
from twice.plans import Stage, Step
from twice.replays import Draft
from twice.runs import Receipt, Slot
from twice.sight import Sight


@dataclass(frozen=True)
class DedupInsert(OnTarget):
    """Insert the rows whose key is not there yet.

    Attributes:
        rule: Keys, and the order that tells which of several rows with one key counts.
        window: How far back from the slot's start the table is searched, such as `7 days`.
        on: The time column that the window is about.
        partitioned_by: Columns that lay a new table out.
    """

    name: ClassVar[str] = "dedup_insert"
    compares_head: ClassVar[bool] = False
    in_order: ClassVar[bool] = True
    appends: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False

    rule: MergeRule
    window: str | None = None
    on: str | None = None
    partitioned_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.window is None) != (self.on is None):
            raise Misuse(
                "A look-back window needs both window= and on=.", fix='For example window="7 days", on="event_time".'
            )
        if self.window:
            parse_length(self.window)

    @property
    def names(self) -> tuple[NamedColumn, ...]:
        """The columns of the rule, that of the window, and those that lay a new table out."""
        layout = (NamedColumn(name, "partitioned_by=", in_table=False) for name in self.partitioned_by)
        window = (NamedColumn(self.on, "on="),) if self.on else ()
        return (*self.rule.names, *window, *layout)

    @property
    def requires(self) -> tuple[type, ...]:
        """A store that can insert what is missing."""
        return (InsertsMissing,)

    def action(self, before: Receipt | None) -> str:
        """Rows are brought into a table that may hold them already."""
        return "merge"

    def notes(self, slot: Slot, base: Sight) -> tuple[str, ...]:
        """Say what an insert does not undo."""
        return reapplied_notes(slot, base)

    def look_back(self, slot: Slot) -> LookBack | None:
        """Return the part of the table in which a key may be found again."""
        if self.window is None or self.on is None:
            return None
        if slot.interval is None:
            raise Misuse(f"The pipeline {slot.pipeline!r} has no calendar, so window= has no start to look back from.")
        return LookBack(self.on, slot.interval.start - parse_length(self.window))

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Find the rows whose key is missing, and write them where no reader looks."""

        def act(store: Any, work: Work, rows: Rows) -> Staged:
            found: Staged = store.stage_missing(work, rows, self.rule, self.look_back(slot), self.partitioned_by)
            return found

        return Stage("stage", "find the rows whose key is not there and write them where no reader looks", act=act)

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step does."""
        keys = ", ".join(self.rule.keys)
        return Step("publish", f"insert the rows whose {keys} is not there yet and the slot's receipt in one commit")
