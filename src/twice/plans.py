"""What will a run do, said before it does it?

A plan is data: steps that *prepare* where no reader looks, exactly one that *publishes*, steps
that *tidy*. The executor performs the plan that `twice plan` prints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from twice.abilities import Rows, Staged, Store, Work
from twice.columns import NamedColumn
from twice.replays import Draft
from twice.runs import Receipt, Slot, digest
from twice.sight import NO_TABLE, Past, Sight

# Of these an attempt keeps the first ones.
_LISTS, _KEPT = ("companions", "pending", "applied_again", "passed_over"), 10


@dataclass(frozen=True)
class Step:
    """One step of a plan: its name, which is also its fault point, and what it does in words."""

    name: str
    text: str


@dataclass(frozen=True)
class Prepare(Step):
    """A step before any row is written, which may be done any number of times."""

    act: Callable[[Any], None] = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True)
class Stage(Step):
    """The step that writes rows where no reader looks."""

    act: Callable[[Any, Work, Rows], Staged] = field(repr=False, compare=False, kw_only=True)


@dataclass(frozen=True)
class Loss:
    """One way in which rows that readers see now leave with a publish, in words.

    `asks` is false where the pattern is declared to do just that with every slot, as a full load replaces the one before it.
    """

    what: str
    asks: bool = True


@dataclass(frozen=True, repr=False)
class Plan:
    """What a run will do to its target.

    `action` is create, replace, merge, replay or skip; `reason` says why; `generation` is fence + 1.
    `companions` are other slots that are done with this one, in the same publish. With a `draft` all of
    them are merged in turn into an older version, and the rows of the stage are a list of batches.
    `pending` are later slots that have to follow, each in a publish of its own. `losses` are all ways in which rows leave.
    """

    slot: Slot
    pattern: str
    action: str
    reason: str
    generation: int
    base: Sight
    companions: tuple[Slot, ...] = ()
    draft: Draft | None = None
    pending: tuple[Slot, ...] = ()
    prepare: tuple[Prepare, ...] = ()
    stage: Stage | None = None
    test: Step | None = None
    publish: Step | None = None
    tidy: tuple[Step, ...] = ()
    compares_head: bool = False
    notes: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()

    def __str__(self) -> str:
        """Return the plan as people read it."""
        version = f"version {self.base.version}" if self.base.exists else "no table yet"
        lines = [
            f"{self.slot.pipeline} -> {self.slot.target.text}  ({self.pattern}, {version})",
            f"  slot {self.slot.shown}",
            f"  {self.action}: {self.reason} (generation {self.generation})",
            *(f"  {number}. {step.name:9} {step.text}" for number, step in enumerate(self.steps, 1)),
            *(f"  rows leave: {loss.what}" for loss in self.losses),
            *(f"  note: {note}" for note in self.notes),
            f"  plan {self.hash}",
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Name the plan in one line: what it saw of the target, with all receipts of it, would fill pages."""
        return f"Plan({self.slot.text!r}, {self.action!r}, reason={self.reason!r}, hash={self.hash!r})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    @property
    def skips(self) -> bool:
        """Tell whether there is nothing to do."""
        return self.action == "skip"

    @property
    def destroys(self) -> bool:
        """Tell whether rows leave that readers see now, in a way that has to be agreed to."""
        return any(loss.asks for loss in self.losses)

    @property
    def why_asks(self) -> str:
        """Name what has to be agreed to."""
        if self.action in ("replace", "replay"):
            return self.reason
        return "; ".join(loss.what for loss in self.losses if loss.asks)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps in order."""
        return tuple(step for step in (*self.prepare, self.stage, self.test, self.publish, *self.tidy) if step)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values, for people's scripts."""
        return {
            "slot": self.slot.text,
            "target": self.slot.target.text,
            "pattern": self.pattern,
            "action": self.action,
            "reason": self.reason,
            "generation": self.generation,
            "companions": [slot.text for slot in self.companions],
            "starts_from": _start_of(self.draft),
            "pending": [slot.text for slot in self.pending],
            "version_before": self.base.version if self.base.exists else None,
            "steps": [{"name": step.name, "does": step.text} for step in self.steps],
            "rows_leave": [{"what": loss.what, "asks": loss.asks} for loss in self.losses],
            "notes": list(self.notes),
            "hash": self.hash,
        }

    def summary(self) -> dict[str, Any]:
        """The plan as plain values, with the first of many slots: what is kept of an attempt does not grow with its target."""
        values, left_out = self.to_json(), {}
        for place in (values, values["starts_from"] or {}):
            for name in (name for name in _LISTS if name in place):
                found = place[name]
                if found[_KEPT:]:
                    place[name], left_out[name] = found[:_KEPT], len(found) - _KEPT
        return {**values, "left_out": left_out}

    @property
    def hash(self) -> str:
        """Short digest of what the plan would do and of what it saw."""
        facts = [self.slot.text, self.pattern, self.action, self.generation, self.base.version, self.base.outside]
        facts += [slot.text for slot in self.companions]
        facts += [self.draft.base, *(slot.text for slot in self.draft.between)] if self.draft else []
        return digest(json.dumps(facts))[:12]


def _start_of(draft: Draft | None) -> dict[str, Any] | None:
    if draft is None:
        return None
    version = draft.base if draft.base != NO_TABLE else None
    return {"version": version, "applied_again": [slot.text for slot in draft.between], "passed_over": [*draft.passed]}


class Pattern(Protocol):
    """How a write is made idempotent."""

    name: ClassVar[str]

    @property
    def compares_head(self) -> bool:
        """Tell whether a publish is computed from a state of the whole target, which must not have moved."""

    @property
    def builds_on_all(self) -> bool:
        """Tell whether a publish needs the proof of every slot that the target holds."""

    @property
    def takes_in(self) -> bool:
        """Tell whether every run adds to the one slot what the target has not taken in yet."""

    @property
    def keeps_history(self) -> bool:
        """Tell whether change rows are kept, so that companions are vouched for again and not done again."""

    @property
    def shows_each(self) -> bool:
        """Tell whether readers see every slot of a replay as it is reached, and not only the result."""

    @property
    def keep_days(self) -> int:
        """How long versions of the target have to be kept, or 0 where none is needed."""

    @property
    def in_order(self) -> bool:
        """Tell whether what a slot does to the table depends on the slots before it."""

    @property
    def appends(self) -> bool:
        """Tell whether a repeat adds rows, so that it must be told from a correction."""

    @property
    def points(self) -> bool:
        """Tell whether the target is a name that points at versions."""

    @property
    def adds_up(self) -> bool:
        """Tell whether the rows that the slots published are those of the table: where keys meet, they are not."""

    @property
    def requires(self) -> tuple[type, ...]:
        """The abilities that a store must have to carry the pattern as configured."""

    @property
    def names(self) -> tuple[NamedColumn, ...]:
        """The columns that are declared by their names."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions in the store's SQL that were declared, as they were written."""

    def table(self, slot: Slot, zone: str) -> str:
        """Name the table that a slot is published to: the target itself, or one behind it."""

    def companions(self, slot: Slot, base: Sight, *, forced: bool) -> tuple[Slot, ...]:
        """Name the published slots that have to be done again with this one, in the same publish."""

    def draft(
        self, slot: Slot, base: Sight, companions: Sequence[Slot], past: Callable[[], Past], *, forced: bool
    ) -> Draft | None:
        """Find the older version that the slot and its companions start from, or None for what is there."""

    def prepare(self, slot: Slot, zone: str) -> tuple[Prepare, ...]:
        """Return the steps that come before any row is written."""

    def superseded(self, slot: Slot, base: Sight) -> str:
        """Name the newer slot that took the place of this published one, or nothing."""

    def refusal(self, slot: Slot, base: Sight, *, forced: bool) -> str:
        """Say why this slot cannot be published over what is there, or nothing."""

    def action(self, before: Receipt | None) -> str:
        """Name what a publish does: create, replace or merge."""

    def notes(self, slot: Slot, base: Sight) -> tuple[str, ...]:
        """Say what people should know about a publish of this slot, besides its companions."""

    def losses(self, slot: Slot, base: Sight) -> tuple[Loss, ...]:
        """Name the rows that leave with a publish, besides those that this slot and its companions published."""

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Return the step that writes the slot's rows where no reader looks."""

    def publish(self, slot: Slot, zone: str) -> Step:
        """Return the publishing step, in words."""

    def judge(self, staged: Staged, work: Work) -> Staged:
        """Refuse staged rows that must not be published; decide what an empty result does."""


def accepted_as(pattern: Pattern, slot: Slot) -> str:
    """Name what somebody accepts rows of: the slot, or the target where a slot builds on all of it."""
    return slot.target.text if pattern.builds_on_all else slot.text


StoreOf = Callable[[str], Store]
__all__ = ["Loss", "Pattern", "Plan", "Prepare", "Receipt", "Stage", "Step", "StoreOf", "accepted_as"]
