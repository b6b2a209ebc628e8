"""What would be done for a slot, and with which inputs, before anything is changed?

The store is looked at, the inputs are resolved, and a plan is made of both. Slots that have to be done with the
asked one are resolved here too: what cannot be done whole is not begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from twice.abilities import KeepsVersions, KnowsColumns, Store
from twice.columns import unknown_columns
from twice.decide import Asked, Question, decide
from twice.errors import InputsAbsent, Misuse, NotPublished, Waiting
from twice.faults import reach
from twice.fingerprint import Inputs, fingerprint_of, gone_of
from twice.ingests import intake_of
from twice.jobs import Job
from twice.ledger import Ledger
from twice.plans import Plan, Step
from twice.replays import named
from twice.runs import Slot
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
    """A plan, with the inputs that it is about; companions are done with the slot, and others follow it one by one."""

    plan: Plan
    inputs: Mapping[str, Inputs]
    fingerprint: str
    companions: tuple[Part, ...] = ()
    following: tuple[Part, ...] = ()

    def parts(self, job: Job) -> tuple[Part, ...]:
        """Return all slots of the publish, the asked one first."""
        return (Part(job, self.inputs, self.fingerprint, self.plan.generation), *self.companions)


class Look:
    """One look at a ledger, a store and the inputs of slots: each is asked once, however many slots are planned on it.

    A walk over many slots plans them on one look for as long as nothing is published. Inputs that change meanwhile are
    found by the second look, which belongs to each publish, and a store that moved by the compare in it.
    """

    def __init__(self, store: Store, ledger: Ledger, *, many: bool = False) -> None:
        self.store = store
        self.ledger = ledger
        self._many = many
        self._lock = Lock()
        self._known: dict[str, Mapping[str, int]] = {}
        self._ahead: dict[str, Mapping[str, int]] = {}
        self._sights: dict[str, Sight] = {}
        self._pasts: dict[str, Past] = {}
        self._columns: dict[str, Sequence[str]] = {}
        self._inputs: dict[str, Mapping[str, Inputs]] = {}
        self._settled: set[str] = set()

    def at(self, job: Job) -> tuple[Mapping[str, int], Sight]:
        """Return which generations the ledger knows of a slot, and of those that it builds on, and what its table holds."""
        with self._lock:
            # Asked before the store: a twin that publishes in between must not make the ledger look ahead of it.
            known = self._known_of(job)
            if job.table not in self._sights:
                self._sights[job.table] = self.store.look(job.table)
            sight = self._sights[job.table]
            own = {slot: known[slot] for slot in (job.slot.text,) if slot in known}
            return ({**own, **self._ahead_of(job.table, known, sight)} if job.pattern.builds_on_all else own), sight

    def _known_of(self, job: Job) -> Mapping[str, int]:
        slot, target = job.slot.text, job.slot.target.text
        if not (self._many or job.pattern.builds_on_all):
            return self.ledger.generations(target, slot)
        if target not in self._known:
            self._known[target] = self.ledger.generations(target)
        return self._known[target]

    def _ahead_of(self, table: str, known: Mapping[str, int], sight: Sight) -> Mapping[str, int]:
        """Return the generations that a table lacks, of all slots that are published to it."""
        if table not in self._ahead:
            self._ahead[table] = {slot: number for slot, number in known.items() if number > sight.fence(slot)}
        return self._ahead[table]

    def settle(self, job: Job) -> None:
        """Make what was seen of a table outlive a power cut; what this look saw is settled once."""
        if job.table not in self._settled:
            self.store.settle(job.table)
            self._settled.add(job.table)

    def inputs(self, job: Job, sight: Sight) -> Mapping[str, Inputs]:
        """Resolve what a slot reads."""
        if job.slot.text not in self._inputs:
            self._inputs[job.slot.text] = job.resolve(sight)
        return self._inputs[job.slot.text]

    def unknown_columns(self, job: Job) -> Misuse | None:
        """Return why columns that are declared by name cannot be there, or None."""
        if not job.names:
            return None
        if job.table not in self._columns:
            self._columns[job.table] = (
                self.store.column_names(job.table) if isinstance(self.store, KnowsColumns) else ()
            )
        return unknown_columns(job.names, self._columns[job.table], job.brings(), job.columns, job.slot.target.text)

    def past(self, table: str) -> Past:
        """Return the versions that a table could be restored to."""
        if table not in self._pasts:
            self._pasts[table] = self.store.past(table) if isinstance(self.store, KeepsVersions) else Past()
        return self._pasts[table]

    def holding(self, parts: Iterable[Part], before: Sight, now: Sight) -> Look:
        """Take over inputs in hand, of all slots that nobody has published since: those may be the older ones."""
        for part in parts:
            slot = part.job.slot.text
            if now.fence(slot) == before.fence(slot):
                self._inputs[slot] = part.inputs
        return self


def consider(job: Job, store: Store, ledger: Ledger, asked: Asked, look: Look | None = None) -> Considered:
    """Look at the store, resolve the inputs and decide, changing nothing.

    The store is looked at first: a twin that publishes in between is then found at the publish,
    and is never overwritten with inputs that are older than its own.
    """
    look = look or Look(store, ledger)
    known, sight = look.at(job)
    try:
        inputs = look.inputs(job, sight)
    except (InputsAbsent, Waiting) as error:
        if not error.absent:
            raise
        return _decided(job, look, asked, "", known, sight, {}, error)
    reach("inputs.resolved")
    found = _fingerprint(job, inputs, sight)
    considered = _decided(job, look, asked, found, known, sight, inputs)
    if not considered.plan.skips and (trouble := look.unknown_columns(job)):
        raise trouble
    return considered


def reconsider(job: Job, store: Store, ledger: Ledger, asked: Asked, before: Considered) -> Considered:
    """Decide once more on what is there now, from the inputs in hand unless somebody published the slot since."""
    look = Look(store, ledger)
    known, sight = look.at(job)
    base = before.plan.base
    # What a target has taken in may be less now although its slot has not moved: after a restore.
    same = sight.version == base.version if job.pattern.takes_in else True
    if same and sight.fence(job.slot.text) == base.fence(job.slot.text):
        look.holding((*before.companions, *before.following), base, sight)
        return _decided(job, look, asked, before.fingerprint, known, sight, before.inputs)
    # Inputs that were resolved before that publish may be the older ones.
    return consider(job, store, ledger, asked)


def _with_others(job: Job, plan: Plan, look: Look, asked: Asked, inputs: Mapping[str, Inputs], own: str) -> Considered:
    """Resolve the inputs of the other slots that a plan needs."""
    companions = _companions(job, plan, look)
    # What has to follow is not begun unless it can be done: the table would be left half way. What follows has begun.
    pending = plan.pending if job.sibling and not asked.following else ()
    following = tuple(_part(job.sibling(slot), plan, look) for slot in pending if job.sibling)
    intake = intake_of(inputs)
    notes = _under_way(plan) + _changed_inputs(plan, [*companions, *following]) + (intake.notes if intake else ())
    told = replace(plan, notes=plan.notes + notes) if notes else plan
    return Considered(told, inputs, own, companions, following)


def _under_way(plan: Plan) -> tuple[str, ...]:
    """Name what an interrupted replay has still to show; whoever runs next begins with it."""
    pending = [Slot.parse(text) for text in plan.base.pending]
    return (f"a replay is under way, and is completed first: {named(pending)}",) if pending else ()


def _companions(job: Job, plan: Plan, look: Look) -> tuple[Part, ...]:
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
        (_part_as_it_was if slot in between else _part)(job.sibling(slot), plan, look)
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


def _part_as_it_was(job: Job, plan: Plan, look: Look) -> Part:
    """Resolve the inputs of an earlier slot, which must be what they were when it was published."""
    try:
        part = _part(job, plan, look)
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


def _part(job: Job, plan: Plan, look: Look) -> Part:
    before = plan.base.receipt(job.slot.text)
    try:
        inputs = look.inputs(job, plan.base)
    except (InputsAbsent, Waiting) as error:
        if before and error.absent:
            raise _cannot_be_done_again(job.slot, plan, error.absent) from error
        raise
    fingerprint = _fingerprint(job, inputs, plan.base)
    gone = gone_of(inputs, fingerprint, before)
    if gone:
        raise _cannot_be_done_again(job.slot, plan, gone)
    return Part(job, inputs, fingerprint, plan.base.fence(job.slot.text) + 1)


def _cannot_be_done_again(slot: Slot, plan: Plan, gone: str) -> NotPublished:
    return NotPublished(
        f"{slot.label} has to be done again with {plan.slot.label}, and its inputs are gone: {gone}.",
        "Its published rows would be replaced by nothing. Nothing was published, and the target is as it was.",
        "Bring its inputs back; if it is to have no rows, put a file without rows there.",
    )


def _fingerprint(job: Job, inputs: Mapping[str, Inputs], sight: Sight) -> str:
    """Digest the inputs; an ingest that finds nothing new is where its last publish left it."""
    before = sight.receipt(job.slot.text)
    intake = intake_of(inputs)
    if intake and intake.nothing and before:
        return before.fingerprint
    return fingerprint_of(inputs, job.parameters) if job.declares_inputs else ""


def _decided(
    job: Job,
    look: Look,
    asked: Asked,
    fingerprint: str,
    known: Mapping[str, int],
    sight: Sight,
    inputs: Mapping[str, Inputs],
    absent: InputsAbsent | Waiting | None = None,
) -> Considered:
    intake = intake_of(inputs)
    # A replay that is shown slot by slot took its later slots out of the table; the ledger knows what they were.
    last = look.ledger.known(job.slot.text) if asked.following else None
    before = sight.receipt(job.slot.text) or last
    question = Question(
        slot=job.slot,
        pattern=job.pattern,
        zone=job.zone,
        fingerprint=fingerprint,
        code=job.code,
        rerun_on_code=job.rerun_on_code,
        ledger_id=look.ledger.id,
        known=known,
        accepted=look.ledger.accepted(job.accepts) if sight.ended else "",
        asked=asked,
        takes_in=intake.news if intake and not intake.nothing else "",
        takes_away=intake.takes_away if intake else "",
        gone=absent.absent if absent else gone_of(inputs, fingerprint, before),
        absent=absent,
        past=lambda: look.past(job.table),
        environments=job.environments,
    )
    plan = decide(question, sight)
    if job.tests and not plan.skips:
        plan = replace(
            plan, test=Step("test", f"publish only what passes {', '.join(test.text for test in job.tests)}")
        )
    return _with_others(job, plan, look, asked, inputs, fingerprint)
