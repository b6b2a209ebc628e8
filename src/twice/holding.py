"""Which slots have to wait, for what, and what lets them go?

Where what a slot does to the table depends on the slots before it, it is held while one of them is due again or was set aside.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from twice.considered import Considered, consider
from twice.decide import Asked
from twice.errors import Held, count
from twice.ledger import retries
from twice.ledger.retries import Again
from twice.plans import Plan
from twice.runs import Slot

if TYPE_CHECKING:
    from twice.pipelines import Pipeline
    from twice.project import Project


def may_be_held(pipeline: Pipeline, asked: Asked) -> bool:
    """Tell whether slots of a pipeline wait for earlier ones that failed; whoever forces one waits for nothing."""
    return pipeline.pattern.in_order and not asked.force


def check_earlier(project: Project, slot: Slot) -> None:
    """Refuse a slot whose predecessors failed: what it does to the table depends on them.

    Raises:
        Held: One of them is due again, or was set aside.
    """
    held = _held(slot, retries.of_target(project.ledger, slot.target.text), {})
    if held:
        raise held


def check_turn(row: Again, pipeline: Pipeline, now: datetime) -> None:
    """Refuse a slot that failed, on a walk over all that is due, before its time has come.

    Raises:
        Held: It is due later, or was put aside.
    """
    if not row.is_due(now):
        slot = Slot.parse(row.slot)
        raise Held(f"{slot.label} of {pipeline.name} {state_of(row)}.", last_error(row), way_out(row))


def _held(slot: Slot, rows: Iterable[Again], ended_well: Mapping[str, int]) -> Held | None:
    for row in rows:
        other = Slot.parse(row.slot)
        is_earlier = other.interval and slot.interval and other.interval.start < slot.interval.start
        if is_earlier and not (row.slot in ended_well and row.is_settled_by(ended_well[row.slot])):
            return Held(
                f"{slot.label} of {slot.pipeline} waits for {other.label}, which {state_of(row)}.",
                f"What a slot does to the table depends on the slots before it. {last_error(row)}",
                way_out(row),
            )
    return None


class Prospects:
    """What the records of failed runs would mean for a walk over many slots, in their order, that nobody has begun.

    A walk that names its slots takes one that failed, although it waits for its retry or was set aside, and what ends well
    there holds back none of the later ones.
    """

    def __init__(self, project: Project, pipeline: Pipeline, asked: Asked) -> None:
        self._rows = retries.of_target(project.ledger, pipeline.target.text)
        self._pipeline, self._asked = pipeline, asked
        self._may_be_held = may_be_held(pipeline, asked)
        self._ended_well: dict[str, int] = {}

    def asked_for(self, slot: Slot) -> Asked:
        """Return what is asked for a slot: on a walk over all that is due, of one that failed, what it was asked then.

        Raises:
            Held: Its time has not come, or it was put aside.
        """
        row = next((row for row in self._rows if row.slot == slot.text), None)
        if row is None or self._asked.force or not self._asked.by_calendar:
            return self._asked
        check_turn(row, self._pipeline, datetime.now(UTC))
        return replace(self._asked, **json.loads(row.asked))

    def held(self, plan: Plan) -> Held | None:
        """Say for what a slot would wait that is to be published."""
        return _held(plan.slot, self._rows, self._ended_well) if self._may_be_held and not plan.skips else None

    def taken(self, slot: Slot, generation: int) -> tuple[str, ...]:
        """Count a slot as ended well with this edition, and tell what became of its own record."""
        self._ended_well[slot.text] = generation
        return tuple(
            f"it {state_of(row)}: this run {'takes it up' if row.is_settled_by(generation) else 'leaves that to twice retry'}"
            for row in self._rows
            if row.slot == slot.text
        )


def planned(project: Project, pipeline: Pipeline, slot: Slot, asked: Asked) -> Considered:
    """Say what a run would do, and whether it would be held; change nothing."""
    found = consider(project.job(pipeline, slot), project.store(slot.target.store), project.ledger, asked)
    held = Prospects(project, pipeline, asked).held(found.plan)
    if held is None:
        return found
    return replace(found, plan=replace(found.plan, notes=(*found.plan.notes, f"a run would be held: {held.what}")))


def state_of(row: Again) -> str:
    """Say what became of a run that did not end well."""
    return "was set aside after its last try" if row.is_dead else f"failed and is due again at {row.due_at[:19]}Z"


def last_error(row: Again) -> str:
    """Say what its last try ended with."""
    return f"Its last error, after {count(row.tries, 'try')}: {row.error.splitlines()[0] if row.error else row.kind}"


def way_out(row: Again) -> str:
    """Say what to type, so that it is dealt with."""
    name = name_of(Slot.parse(row.slot))
    if row.is_dead:
        return f"See: twice dead show {name}. Correct the cause, then: twice dead requeue {name}"
    return f"twice retry takes it when its time has come; twice run {name} takes it now."


def name_of(slot: Slot) -> str:
    """Return what people type to name a slot: the pipeline, and its time or key."""
    if slot.interval:
        return f"{slot.pipeline} --at {slot.label}"
    return f"{slot.pipeline} --key {slot.part}" if slot.part else slot.pipeline
