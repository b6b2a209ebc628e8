"""How are files taken in, each of them once?

An ingest has one slot. Every run that takes in files publishes a new generation of it: rows are added to those that are there, and the
receipt names the marks of all files whose rows the table holds. So a run that finds other files than its twin is
refused at the publish and looks again, and a run that finds nothing new skips.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from twice.abilities import KeepsBeside, Rows, Staged, TakesIn, Work
from twice.columns import NamedColumn
from twice.errors import Misuse
from twice.patterns.dedup_insert import DedupInsert
from twice.patterns.merger import Merger
from twice.patterns.on_target import OnTarget
from twice.patterns.transactional_writer import TransactionalWriter
from twice.plans import Loss, Pattern, Stage, Step
from twice.replays import Draft
from twice.runs import Receipt, Slot
from twice.sight import Sight
from twice.slices import PredicateSlice


@dataclass(frozen=True)
class Ingest(OnTarget):
    """Take in files as another pattern adds, inserts or merges rows."""

    name: ClassVar[str] = "ingest"
    compares_head: ClassVar[bool] = True
    builds_on_all: ClassVar[bool] = True
    in_order: ClassVar[bool] = True
    appends: ClassVar[bool] = True
    takes_in: ClassVar[bool] = True
    adds_up: ClassVar[bool] = False

    inner: TransactionalWriter | DedupInsert | Merger

    @classmethod
    def of(cls, pattern: Pattern) -> Ingest:
        """Take in files as this pattern says.

        Raises:
            Misuse: It is about slots, of which an ingest has one.
        """
        if not isinstance(pattern, TransactionalWriter | DedupInsert | Merger):
            raise Misuse(
                f"Files cannot be taken in by the pattern {pattern.name!r}: it replaces what a slot had, and an ingest only adds.",
                fix="Use transactional_writer (append), dedup_insert or merger; or leave track=True out, and give the pipeline a calendar.",
            )
        if isinstance(pattern, TransactionalWriter) and (pattern.lineage or pattern.tables):
            raise Misuse(
                "Rows that are taken in from files carry their file and no slot, and go to one table.",
                fix="Use file_column= of twice.files in place of lineage=, and leave tables= out.",
            )
        if isinstance(pattern, DedupInsert) and pattern.window:
            raise Misuse("An ingest has no calendar, so window= has no start to look back from.", fix="Leave it out.")
        return cls(pattern)

    @property
    def adds(self) -> bool:
        """Tell whether rows are added as they come, so that those of one file can leave again."""
        return isinstance(self.inner, TransactionalWriter)

    @property
    def requires(self) -> tuple[type, ...]:
        """A store that can add to its one slot, and keeps marks beside the table."""
        return (TakesIn, KeepsBeside) if self.adds else (*self.inner.requires, KeepsBeside)

    @property
    def names(self) -> tuple[NamedColumn, ...]:
        """Those of the inner pattern."""
        return self.inner.names

    @property
    def conditions(self) -> tuple[str, ...]:
        """Those of the inner pattern."""
        return self.inner.conditions

    def action(self, before: Receipt | None) -> str:
        """What the first run makes, later ones add to."""
        return self.inner.action(None) if before is None else "add" if self.adds else "merge"

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Write the rows of the files where no reader looks."""
        inner = self.inner
        if not isinstance(inner, TransactionalWriter):
            return inner.stage(slot, zone, draft)
        rule = PredicateSlice(inner.check) if inner.check else None

        def act(store: Any, work: Work, rows: Rows) -> Staged:
            staged: Staged = store.stage_taken(work, rows, rule, work.leaving)
            return staged

        return Stage("stage", "write the rows of the new files where no reader looks", act=act)

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step does."""
        if self.adds:
            return Step("publish", "add the rows, the marks of their files and the receipt in one commit")
        return Step("publish", f"{self.inner.publish(slot, zone).text}, with the marks of their files")

    def losses(self, slot: Slot, base: Sight) -> tuple[Loss, ...]:
        """What the inner pattern takes away; of files that changed, the intake tells."""
        return self.inner.losses(slot, base)

    def judge(self, staged: Staged, work: Work) -> Staged:
        """Refuse what the inner pattern refuses."""
        return self.inner.judge(staged, work)
