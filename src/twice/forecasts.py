"""What would a backfill do, slot by slot, and what would readers see of it?

The answer is computed with the functions that a backfill decides with, from what the stores and
inputs are now. Nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from twice.backfills import along_with, check_free, ends_all, is_done_with, is_one_publish, look_for, sights_of
from twice.considered import Look, consider
from twice.decide import Asked
from twice.errors import Busy, Held, InputsAbsent, TwiceError, Waiting
from twice.holding import Prospects
from twice.plans import Plan
from twice.replays import named, start_of
from twice.runs import Slot
from twice.upstream import upstream_of

if TYPE_CHECKING:
    from twice.pipelines import Pipeline
    from twice.project import Project


@dataclass(frozen=True)
class Forecast:
    """What would happen to one slot.

    `action` is create, replace, merge, replay, skip, wait, held or refused. `error` is what the backfill would
    say of it, if it would not be done for a reason of its own. `why_asks` names the rows that leave, where you have to agree.
    """

    slot: Slot
    action: str
    reason: str
    generation: int | None = None
    notes: tuple[str, ...] = ()
    error: TwiceError | None = None
    why_asks: str = ""

    def to_json(self) -> dict[str, Any]:
        """The forecast as plain values."""
        return {
            "slot": self.slot.text,
            "action": self.action,
            "reason": self.reason,
            "generation": self.generation,
            "notes": list(self.notes),
            "fix": self.fix or None,
        }

    @property
    def publishes(self) -> bool:
        """Tell whether the slot would be published."""
        return self.action not in ("skip", "wait", "held", "refused")

    @property
    def fix(self) -> str:
        """What to type so that it is done after all."""
        return self.error.fix if self.error else ""


@dataclass(frozen=True)
class OnePublish:
    """What the one publish of many slots would do."""

    plan: Plan

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots that are done in it, oldest first: also later ones, and earlier ones that are applied again."""
        return tuple(sorted({self.plan.slot, *self.plan.companions}, key=start_of))

    @property
    def version_before(self) -> int | None:
        """The version that readers see until the commit."""
        return self.plan.base.version if self.plan.base.exists else None

    @property
    def starts_from(self) -> str:
        """Say which state the slots are merged into."""
        if self.plan.draft:
            return self.plan.draft.text
        return "starts from an empty table" if self.version_before is None else "starts from what the table shows"

    @property
    def readers_see(self) -> str:
        """Say what readers see while it is worked on."""
        before = "no table" if self.version_before is None else f"version {self.version_before}"
        return f"{before} until the commit, then all of it"

    @property
    def undo(self) -> str:
        """The command that takes it back, or nothing if there is no version to go back to."""
        return (
            "" if self.version_before is None else f"twice restore {self.plan.slot.target.text} {self.version_before}"
        )

    @property
    def lines(self) -> list[str]:
        """The publish in words."""
        return [
            f"one publish of {named(self.slots)}",
            f"  {self.starts_from}",
            f"  commits: 1; readers see {self.readers_see}",
            f"  to undo it: {self.undo}" if self.undo else "  there is no version before it to go back to",
        ]

    def to_json(self) -> dict[str, Any]:
        """The publish as plain values."""
        plan = self.plan.to_json()
        return {
            "slots": [slot.text for slot in self.slots],
            "starts_from": plan["starts_from"]
            or {"version": self.version_before, "applied_again": [], "passed_over": []},
            "commits": 1,
            "version_before": self.version_before,
            "readers_see": self.readers_see,
            "undo": self.undo or None,
            "notes": plan["notes"],
        }


@dataclass(frozen=True)
class Outlook:
    """What a backfill would do: to each slot, in its one publish if it is one, and whether it would be let start now."""

    slots: tuple[Forecast, ...]
    publish: OnePublish | None = None
    busy: Busy | None = None

    @property
    def errors(self) -> list[TwiceError]:
        """The errors that the backfill would end with."""
        return [self.busy] if self.busy else [found.error for found in self.slots if found.error]

    @property
    def counts(self) -> dict[str, int]:
        """How many slots each action would be done to."""
        return dict(Counter(found.action for found in self.slots))

    def to_json(self) -> dict[str, Any]:
        """The outlook as plain values."""
        return {
            "slots": [found.to_json() for found in self.slots],
            "publish": self.publish.to_json() if self.publish else None,
            "busy": self.busy.what if self.busy else None,
            "counts": self.counts,
        }


def outlook(project: Project, pipeline: Pipeline, slots: Sequence[Slot], asked: Asked) -> Outlook:
    """Say what a backfill would do now."""
    try:
        check_free(project, pipeline, slots)
        busy = None
    except Busy as error:
        busy = error
    look = look_for(project, pipeline)
    if is_one_publish(pipeline):
        return replace(_at_once(project, pipeline, slots, asked, look), busy=busy)
    return Outlook(tuple(_one_by_one(project, pipeline, slots, asked, look)), busy=busy)


def outlooks(project: Project, walks: Sequence[tuple[Pipeline, list[Slot]]], asked: Asked) -> list[Outlook]:
    """Say what a walk over the slots of several pipelines would do now, each pipeline after those that it reads."""
    found: list[Outlook] = []
    writers: list[Pipeline] = []
    ill: list[Pipeline] = []
    for pipeline, slots in walks:
        amiss = [] if asked.by_calendar else upstream_of(pipeline, ill)
        if amiss:
            found.append(Outlook(tuple(Forecast(slot, "refused", not_well(amiss[0])) for slot in slots)))
            ill.append(pipeline)
            continue
        ahead = outlook(project, pipeline, slots, asked)
        before = upstream_of(pipeline, writers)
        if before:
            ahead = replace(ahead, slots=tuple(_after(project, pipeline, before, ahead.slots)))
        if any(one.publishes for one in ahead.slots):
            writers.append(pipeline)
        if ahead.errors:
            ill.append(pipeline)
        found.append(ahead)
    return found


def united(found: Sequence[Outlook]) -> Outlook:
    """Return what is ahead of several pipelines as one; it is one publish only of a single pipeline."""
    slots = tuple(one for each in found for one in each.slots)
    return Outlook(
        slots,
        found[0].publish if len(found) == 1 else None,
        next((each.busy for each in found if each.busy), None),
    )


def not_well(other: Pipeline) -> str:
    """Say why a pipeline is not started: its rows would be made from a table that lacks some."""
    return f"{other.target.text}, which it reads, lacks slots of {other.name} that did not end well"


def _after(
    project: Project, pipeline: Pipeline, before: Sequence[Pipeline], found: Sequence[Forecast]
) -> Iterator[Forecast]:
    """Tell of slots whose inputs change before their turn comes: those that look done are done again, and a table appears."""
    pattern = pipeline.pattern
    seen = sights_of(project, pipeline, [one.slot for one in found])
    reason = f"{before[0].target.text}, which it reads, is published first"
    appears = False
    for one in found:
        sight = seen[one.slot]
        appears = appears or (isinstance(one.error, InputsAbsent) and any(w.target.text in one.reason for w in before))
        if one.action == "skip" and not (pattern.takes_in or pattern.superseded(one.slot, sight)):
            action = pattern.action(sight.receipt(one.slot.text))
            leaves = pattern.builds_on_all or action == "replace"
            generation = sight.fence(one.slot.text) + 1
            yield Forecast(one.slot, action, reason, generation, one.notes, why_asks=reason if leaves else "")
        elif one.action == "refused" and appears:
            yield Forecast(one.slot, pattern.action(None), reason, sight.fence(one.slot.text) + 1)
        else:
            yield one


def _one_by_one(
    project: Project, pipeline: Pipeline, slots: Sequence[Slot], asked: Asked, look: Look
) -> Iterator[Forecast]:
    done: dict[Slot, Forecast] = {}
    prospects = Prospects(project, pipeline, asked)
    for number, slot in enumerate(slots):
        if slot in done:
            yield done[slot]
            continue
        try:
            now = prospects.asked_for(slot)
            plan = _let_through(prospects, _plan(project, pipeline, slot, now, look))
        except TwiceError as error:
            yield _not_done(slot, error)
            if ends_all(pipeline, error):
                yield from _not_reached(slots[number + 1 :], slot)
                return
        else:
            told = prospects.taken(slot, plan.generation)
            # That rows are replaced was agreed to when it was asked for.
            yield replace(_forecast(plan, told), why_asks="" if now.force and not asked.force else _why_asks(plan))
            for other in (*plan.companions, *plan.pending):
                prospects.taken(other, plan.base.fence(other.text) + 1)
            done |= {other.slot: other for other in _done_with(pipeline, plan, asked)}


def _why_asks(plan: Plan) -> str:
    return plan.why_asks if plan.destroys else ""


def _forecast(plan: Plan, told: tuple[str, ...]) -> Forecast:
    return Forecast(plan.slot, plan.action, plan.reason, plan.generation, (*plan.notes, *told))


def _done_with(pipeline: Pipeline, plan: Plan, asked: Asked) -> Iterator[Forecast]:
    """Tell of the slots that are not planned when their turn comes, or find themselves published."""
    if pipeline.pattern.keeps_history:
        return  # vouched for again without being read
    first = plan.slot.label
    for slot in plan.companions:
        generation, reason = plan.base.fence(slot.text) + 1, f"done again with {first}, in the same publish"
        if is_done_with(pipeline, asked):
            yield Forecast(slot, "replay", reason, generation, why_asks=reason)
        else:
            # When its turn comes it is published, from the inputs of now.
            yield Forecast(slot, "skip", reason)
    for slot in plan.pending:
        reason = f"follows {first}, in a publish of its own"
        yield Forecast(slot, "replay", reason, why_asks=reason)


def _at_once(project: Project, pipeline: Pipeline, slots: Sequence[Slot], asked: Asked, look: Look) -> Outlook:
    """Find the first slot that is to be done: the rest is done with it, up to one that cannot be."""
    prospects = Prospects(project, pipeline, asked)
    for number, slot in enumerate(slots):
        along = along_with(project, pipeline, slots[number:], asked, look)
        before = _one_by_one(project, pipeline, slots[:number], asked, look)
        try:
            now = prospects.asked_for(slot)
            plan = _let_through(prospects, _plan(project, pipeline, slot, replace(now, along=along), look))
        except TwiceError as error:
            return Outlook((*before, _not_done(slot, error), *_not_reached(slots[number + 1 :], slot)))
        told = prospects.taken(slot, plan.generation)
        if not plan.skips:
            first, *others = _together(plan, along)
            after = _one_by_one(project, pipeline, slots[number + 1 + len(along) :], asked, look)
            return Outlook((*before, replace(first, notes=told), *others, *after), OnePublish(plan))
    return Outlook(tuple(_one_by_one(project, pipeline, slots, asked, look)))


def _together(plan: Plan, along: Sequence[Slot]) -> Iterator[Forecast]:
    is_new = not any(plan.base.fence(slot.text) for slot in (plan.slot, *plan.companions))
    action = "merge" if is_new else plan.action
    yield Forecast(plan.slot, action, plan.reason, plan.generation, why_asks=_why_asks(plan))
    for slot in along:
        before = plan.base.fence(slot.text)
        reason = f"it builds on {plan.slot.label}" if before else "the first run of this slot"
        action, reason = "replay" if before else "merge", f"{reason}, in the same publish"
        yield Forecast(slot, action, reason, before + 1, why_asks=reason if before else "")


def _plan(project: Project, pipeline: Pipeline, slot: Slot, asked: Asked, look: Look) -> Plan:
    return consider(project.job(pipeline, slot), look.store, look.ledger, asked, look).plan


def _let_through(prospects: Prospects, plan: Plan) -> Plan:
    held = prospects.held(plan)
    if held:
        raise held
    return plan


def _not_done(slot: Slot, error: TwiceError) -> Forecast:
    action = "wait" if isinstance(error, Waiting) else "held" if isinstance(error, Held) else "refused"
    return Forecast(slot, action, error.what, error=error)


def _not_reached(slots: Sequence[Slot], last: Slot) -> Iterator[Forecast]:
    for slot in slots:
        yield Forecast(slot, "refused", f"the backfill would end at {last.label}")
