"""What is asked of the executor, and what does it answer?

A job is one slot to fill, whoever declared it: a pipeline, or a line of code in a job that already
exists. An outcome is what became of it, if it did not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from twice.abilities import Rows
from twice.columns import NO_CHANGES, ColumnPolicy, NamedColumn
from twice.data_tests import DataTest
from twice.effects import Outside
from twice.errors import TwiceError
from twice.events import Event, Tell, to_nobody
from twice.fingerprint import Inputs
from twice.ledger.logs import Captured
from twice.plans import Pattern, accepted_as
from twice.runs import Run, Slot
from twice.sight import Sight


class KeepsSteps(Protocol):
    """Keeps the outputs of a transform's steps until its rows are published."""

    def of_run(self, run: Run, fingerprint: str, code: str, look_again: Callable[[], None]) -> Any:
        """Return what keeps the steps of one run."""

    def sweep(self, slots: Iterable[Slot]) -> None:
        """Remove what is kept of slots that are published."""


@dataclass(frozen=True)
class Job:
    """One slot to fill: what it reads, how it transforms, which pattern protects the write.

    `names` are columns that are declared by name, and `brings` tells which ones the rows have, where that is known without
    Spark. `tell` is told what happens to it, `reads` names its inputs for that, and while an attempt works the
    engine is `under` its name, and captures the log. `environments` are all that its project has.
    """

    slot: Slot
    pattern: Pattern
    zone: str
    code: str
    resolve: Callable[[Sight], Mapping[str, Inputs]]
    rows: Callable[[Mapping[str, Inputs], Run], Rows]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    rerun_on_code: bool = False
    declares_inputs: bool = True
    columns: ColumnPolicy = NO_CHANGES
    names: tuple[NamedColumn, ...] = ()
    brings: Callable[[], Sequence[str] | None] = lambda: None
    tests: tuple[DataTest, ...] = ()
    sibling: Callable[[Slot], Job] | None = None
    tell: Tell = to_nobody
    reads: tuple[str, ...] = ()
    under: Callable[[str], AbstractContextManager[Captured | None]] = lambda _: nullcontext()
    outside: Outside = field(default_factory=Outside)
    kept: KeepsSteps | None = None
    environments: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        """The table that the slot is published to."""
        return self.pattern.table(self.slot, self.zone)

    @property
    def accepts(self) -> str:
        """Name what somebody accepts rows of."""
        return accepted_as(self.pattern, self.slot)

    def started(self, attempt: str, generation: int, reason: str) -> Event:
        """Say that work has begun."""
        return Event("started", self.slot, attempt, generation, reason=reason, reads=self.reads)

    def failed(self, attempt: str, generation: int, state: str, error: TwiceError) -> Event:
        """Say that it ended without a publish that is known."""
        return Event("failed", self.slot, attempt, generation, state=state, reason=error.what, error=error)


@dataclass(frozen=True)
class Outcome:
    """What became of a run that did not fail.

    `along` are the other slots that were done with it. `parsed` rows came out of its files, where that is known, and `quarantined` of
    them were set aside. `left` files are left to later runs.
    """

    state: str
    slot: Slot
    generation: int
    reason: str
    version_before: int | None
    version_after: int | None
    rows: int
    attempt: str = ""
    notes: tuple[str, ...] = ()
    along: tuple[Slot, ...] = ()
    parsed: int | None = None
    quarantined: int = 0
    left: int = 0

    def set_aside(self) -> Event:
        """Say that rows were set aside."""
        reason = (
            f"{self.quarantined} of {self.parsed} rows were set aside; see: twice quarantine show {self.slot.pipeline}"
        )
        return Event("quarantined", self.slot, self.attempt, self.generation, reason=reason, rows=self.quarantined)

    def event(self) -> Event:
        """Say how it ended."""
        return Event(
            self.state,
            self.slot,
            attempt=self.attempt,
            generation=self.generation,
            reason=self.reason,
            rows=self.rows,
            version=self.version_after,
        )

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain values."""
        return {
            "state": self.state,
            "slot": self.slot.text,
            "generation": self.generation,
            "reason": self.reason,
            "version_before": self.version_before,
            "version_after": self.version_after,
            "rows": self.rows,
            "attempt": self.attempt,
            "notes": list(self.notes),
            "parsed": self.parsed,
            "quarantined": self.quarantined,
            "left": self.left,
            "along": [slot.text for slot in self.along],
        }
