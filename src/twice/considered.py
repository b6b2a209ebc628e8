"""What would be done for a slot, and with which inputs, before anything is changed?

The store is looked at, the inputs are resolved, and a plan is made of both. Slots that have to be done with the
asked one are resolved here too: what cannot be done whole is not begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from twice.abilities import KeepsVersions, Store
from twice.decide import Asked, Question, decide
from twice.errors import NotPublished
from twice.faults import reach
from twice.fingerprint import Inputs, fingerprint_of
from twice.ingests import intake_of
from twice.jobs import Job
from twice.ledger import Ledger
from twice.plans import Plan
from twice.replays import named
from twice.runs import Receipt, Slot
from twice.sight import Past, Sight


@dataclass(frozen=True)
class Part:
    """One slot of a publish: what it reads, and as which edition it is published."""

    job: Job
    inputs: Mapping[str, Inputs]
    fingerprint: str
    generation: int


@dataclass(frozen=True)
class Considered:
    """A plan, with the inputs that it is about; companions are done with the slot."""

    plan: Plan
    inputs: Mapping[str, Inputs]
    fingerprint: str
    companions: tuple[Part, ...] = ()

    def parts(self, job: Job) -> tuple[Part, ...]:
        """Return all slots of the publish, the asked one first."""
        return (Part(job, self.inputs, self.fingerprint, self.plan.generation), *self.companions)


def consider(job: Job, store: Store, ledger: Ledger, asked: Asked) -> Considered:
    """Look at the store, resolve the inputs and decide, changing nothing.

    The store is looked at first: a twin that publishes in between is then found at the publish,
    and is never overwritten with inputs that are older than its own.
    """
    # Asked before the store: a twin that publishes in between must not make the ledger look ahead of it.
    known = _known(job, ledger)
    sight = store.look(job.table)
    inputs = job.resolve(sight)
    reach("inputs.resolved")
    found = _fingerprint(job, inputs, sight)
    plan = _decide(job, store, sight, ledger, asked, found, known, inputs)
    return _with_others(job, plan, inputs, found)


def reconsider(job: Job, store: Store, ledger: Ledger, asked: Asked, before: Considered) -> Considered:
    """Decide once more on what is there now, from the inputs in hand unless somebody published the slot since."""
    known = _known(job, ledger)
    sight = store.look(job.table)
    base = before.plan.base
    # What a target has taken in may be less now although its slot has not moved: after a restore.
    same = sight.version == base.version if job.pattern.takes_in else True
    if same and sight.fence(job.slot.text) == base.fence(job.slot.text):
        plan = _decide(job, store, sight, ledger, asked, before.fingerprint, known, before.inputs)
        return _with_others(job, plan, before.inputs, before.fingerprint)
    # Inputs that were resolved before that publish may be the older ones.
    return consider(job, store, ledger, asked)


def _known(job: Job, ledger: Ledger) -> list[Receipt]:
    """Return what the ledger knows of the slot, or of all slots that it builds on."""
    if job.pattern.builds_on_all:
        return [receipt for receipt, _ in ledger.published(job.slot.target.text)]
    known = ledger.known(job.slot.text)
    return [known] if known else []


def _with_others(job: Job, plan: Plan, inputs: Mapping[str, Inputs], fingerprint: str) -> Considered:
    """Resolve the inputs of the other slots that a plan needs."""
    companions = _companions(job, plan)
    # What has to follow is not begun unless it can be done: the table would be left half way.
    following = [_part(job.sibling(slot), plan) for slot in plan.pending] if job.sibling else []
    intake = intake_of(inputs)
    notes = _under_way(plan) + _changed_inputs(plan, [*companions, *following]) + (intake.notes if intake else ())
    return Considered(replace(plan, notes=plan.notes + notes) if notes else plan, inputs, fingerprint, companions)


def _under_way(plan: Plan) -> tuple[str, ...]:
    """Name what an interrupted replay has still to show; whoever runs next begins with it."""
    pending = [Slot.parse(text) for text in plan.base.pending]
    return (f"a replay is under way, and is completed first: {named(pending)}",) if pending else ()


def _companions(job: Job, plan: Plan) -> tuple[Part, ...]:
    """Resolve the inputs of the slots that are done again with this one; all of them must be there."""
    if (plan.companions or plan.pending) and job.sibling is None and not job.pattern.keeps_history:
        others = len(plan.companions) + len(plan.pending)
        raise NotPublished(
            f"The rows of {job.slot.label} share a table with {others} other slots, which would have to be done again.",
            "Without a pipeline nobody knows how, so nothing was published.",
            "Declare a pipeline, or choose a period of one slot.",
        )
    if job.pattern.keeps_history:
        return tuple(_part_that_is_kept(job, slot, plan) for slot in plan.companions)
    between = plan.draft.between if plan.draft else ()
    return tuple(
        (_part_as_it_was if slot in between else _part)(job.sibling(slot), plan)
        for slot in plan.companions
        if job.sibling
    )


def _changed_inputs(plan: Plan, companions: Sequence[Part]) -> tuple[str, ...]:
    """Name the published slots that get other rows than before, since their inputs changed."""
    before = plan.base.receipts
    changed = [
        part.job.slot
        for part in companions
        if part.job.slot.text in before and before[part.job.slot.text].fingerprint != part.fingerprint
    ]
    return (f"their inputs changed since they were published: {named(changed)}",) if changed else ()


def _part_that_is_kept(job: Job, slot: Slot, plan: Plan) -> Part:
    """A slot whose change rows are kept is vouched for again without being read."""
    receipt = plan.base.receipts[slot.text]
    return Part(replace(job, slot=slot), {}, receipt.fingerprint, receipt.generation + 1)


def _part_as_it_was(job: Job, plan: Plan) -> Part:
    """Resolve the inputs of an earlier slot, which must be what they were when it was published."""
    try:
        part = _part(job, plan)
    except NotPublished as error:
        raise _state_lost(job.slot, plan, error.what) from error
    if part.fingerprint != plan.base.receipts[job.slot.text].fingerprint:
        raise _state_lost(job.slot, plan, "Its inputs are no longer what they were when it was published.")
    return part


def _state_lost(slot: Slot, plan: Plan, why: str) -> NotPublished:
    passed = f" Lost: {'; '.join(plan.draft.passed)}." if plan.draft and plan.draft.passed else ""
    return NotPublished(
        f"The state before {plan.slot.label} needs {slot.label} to be done again as it was published. {why}",
        f"No version is left that holds it and nothing later.{passed} Nothing was published, and the target is as it was.",
        f"If its inputs were corrected, start there: run {slot.label}, and all later slots are done with it.",
    )


def _part(job: Job, plan: Plan) -> Part:
    inputs = job.resolve(plan.base)
    return Part(job, inputs, _fingerprint(job, inputs, plan.base), plan.base.fence(job.slot.text) + 1)


def _fingerprint(job: Job, inputs: Mapping[str, Inputs], sight: Sight) -> str:
    """Digest the inputs; an ingest that finds nothing new is where its last publish left it."""
    before = sight.receipt(job.slot.text)
    intake = intake_of(inputs)
    if intake and intake.nothing and before:
        return before.fingerprint
    return fingerprint_of(inputs, job.parameters) if job.declares_inputs else ""


def _decide(
    job: Job,
    store: Store,
    sight: Sight,
    ledger: Ledger,
    asked: Asked,
    fingerprint: str,
    known: Sequence[Receipt],
    inputs: Mapping[str, Inputs],
) -> Plan:
    intake = intake_of(inputs)
    question = Question(
        slot=job.slot,
        pattern=job.pattern,
        zone=job.zone,
        fingerprint=fingerprint,
        code=job.code,
        rerun_on_code=job.rerun_on_code,
        ledger_id=ledger.id,
        known=known,
        accepted=ledger.accepted(job.accepts),
        asked=asked,
        takes_in=intake.news if intake and not intake.nothing else "",
        past=partial(_past, store, job.table),
    )
    return decide(question, sight)


def _past(store: Store, table: str) -> Past:
    return store.past(table) if isinstance(store, KeepsVersions) else Past()
