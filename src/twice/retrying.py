"""How is a slot filled by a pipeline whose runs may be tried again?

Around every run of a pipeline: it is held back if it builds on a slot that failed, tried again at once where that helps, and
if it still fails, the ledger is told when it is due, or that it was set aside. A run that ends well takes its record away.

Whatever is tried again is asked for as it was the first time: the same slot, the same parameters, the same edition. A run
that was forced is forced again only while its edition is not there: if the first try landed after all, the store says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from twice.considered import Look
from twice.decide import Asked
from twice.errors import Busy, EffectOwed, Held, NotPublished, TwiceError, Waiting
from twice.events import Event
from twice.execute import execute
from twice.explain import explain
from twice.faults import reach
from twice.holding import check_earlier, check_turn, last_error, may_be_held, name_of
from twice.jobs import Job, Outcome
from twice.ledger import AttemptRecord, retries
from twice.ledger.retries import Again
from twice.plans import Plan
from twice.runs import Slot
from twice.tries import AGAIN, LATER, NEVER, Retries, at_once, verdict

if TYPE_CHECKING:
    from twice.pipelines import Pipeline
    from twice.project import Project

_SHORT_WAIT, _LONGEST_SHORT_WAIT = 0.5, 10.0
_ONCE = Retries(tries=1)


def fill_slot(
    project: Project,
    pipeline: Pipeline,
    slot: Slot,
    asked: Asked | None = None,
    approve: Callable[[Plan], None] | None = None,
    look: Look | None = None,
) -> Outcome:
    """Fill one slot, exactly once however often this is called, and try again as the pipeline declares.

    The first try plans on the look of a walk over many slots, if there is one; another try looks for itself.

    Raises:
        Held: It builds on a slot that failed, or waits itself and nobody asked for it by name.
        TwiceError: As `execute` does; the ledger knows then when the run is due again.
    """
    wanted = asked or Asked()
    waits = _due_row(project, pipeline, slot) if wanted.by_calendar else None
    if waits and not wanted.force:
        return _taken_on_a_walk(project, pipeline, waits, wanted, approve)
    return _Filling(project, pipeline, slot, wanted, approve, look=look).fill()


class _Filling:
    """One invocation of a run, with as many tries as it may make at once."""

    def __init__(
        self,
        project: Project,
        pipeline: Pipeline,
        slot: Slot,
        asked: Asked,
        approve: Callable[[Plan], None] | None,
        taken: Again | None = None,
        look: Look | None = None,
    ) -> None:
        self.project = project
        self.pipeline = pipeline
        self.slot = slot
        self.asked = asked
        self.approve = approve
        self.taken = taken
        self.look = look
        self.policy = project.retries_of(pipeline)
        self.generation = taken.generation if taken else 0
        self.tries = 0
        self.declined = False

    def fill(self) -> Outcome:
        try:
            outcome = self._tried()
        except Exception as error:
            self._failed(error)
            raise
        with suppress(NotPublished):  # a row that stays is taken once more, found published, and goes then
            generations = {self.slot.text: outcome.generation, **{one.text: 0 for one in outcome.along}}
            retries.ended_well(self.project.ledger, generations)
        return outcome

    def _tried(self) -> Outcome:
        tries = min(self.policy.at_once, self._tries_left) if self.policy else 1
        if tries <= 1:
            return self._once()
        for one_try in at_once(self._is_tried_at_once, tries, _SHORT_WAIT, _LONGEST_SHORT_WAIT):
            with one_try:
                return self._once()
        raise AssertionError("a run ends, or raises")

    @property
    def _tries_left(self) -> int:
        """How many tries are left, this one included; the one that was taken is counted already."""
        before = self.taken.tries - 1 if self.taken else 0
        return max((self.policy or _ONCE).tries - before, 1)

    def _once(self) -> Outcome:
        self.tries += 1
        reach("try.before")
        project, job = self.project, self._job()
        store, look, self.look = project.store(self.slot.target.store), self.look, None
        return execute(job, store, project.ledger, self._asked_now(job), self._approve, look)

    def _job(self) -> Job:
        job = self.project.job(self.pipeline, self.slot)
        if self.taken is None or self.taken.parameters == retries.plain(self.pipeline.parameters):
            return job
        return replace(job, parameters={**job.parameters, **json.loads(self.taken.parameters)})

    def _asked_now(self, job: Job) -> Asked:
        """Ask as the first time; an edition that was forced and is there already is not forced again."""
        if not (self.asked.force and self.generation):
            return self.asked
        sight = self.project.store(self.slot.target.store).look(job.table)
        return replace(self.asked, force=sight.fence(self.slot.text) < self.generation)

    def _approve(self, plan: Plan) -> None:
        """See that nothing earlier is open before anything is done; a skip changes nothing and needs nothing."""
        if not plan.skips:
            self._check_last_try()
            self.generation = self.generation or plan.generation
            if may_be_held(self.pipeline, self.asked):
                check_earlier(self.project, self.slot)
        if self.approve:
            self.declined = True  # until they say otherwise: a no, however it is said, is no failure of the run
            self.approve(plan)
            self.declined = False

    def _check_last_try(self) -> None:
        """Set aside a run whose process died on its last allowed try, and whose publish did not land."""
        if self.taken and self.policy and self.taken.tries > self.policy.tries:
            raise NotPublished(
                f"The process of the last allowed try of {self.slot.label} ended before the run did.",
                "Nothing was published, and the target is as it was.",
                f"Look for what ends it, then: twice dead requeue {name_of(self.slot)}",
            )

    def _is_tried_at_once(self, error: BaseException) -> bool:
        if self.declined or verdict(error) != AGAIN or _not_before(error):
            return False
        allowed = retries.spend(self.project.ledger, self.slot.text, datetime.now(UTC), per_hour(self.project))
        if allowed:
            self._tell("retried", error, tries=self.tries)
        return allowed

    def _tell(self, kind: str, error: BaseException, **facts: Any) -> None:
        known = error if isinstance(error, TwiceError) else TwiceError(explain(error))
        event = Event(kind, self.slot, generation=self.generation, reason=known.what, error=known, facts=facts)
        self.project.announce(event)

    def _failed(self, error: Exception) -> None:
        """Tell the ledger when the run is due again, or that it was set aside."""
        judged = verdict(error)
        unasked = judged == NEVER or (judged == LATER and isinstance(error, Waiting))
        if self.policy is None or self.declined or (unasked and self.taken is None):
            return
        with suppress(NotPublished):  # a ledger that cannot must not hide how the run really ended
            row = retries.note(self.project.ledger, self.slot.text, lambda before: self._row(before, error, judged))
            self._tell("dead" if row.is_dead else "retried", error, tries=row.tries, due_at=row.due_at)

    def _row(self, before: Again | None, error: Exception, judged: str) -> Again:
        policy, now = self.policy or _ONCE, datetime.now(UTC)
        counted = (before.tries if before else 0) - (1 if self.taken else 0)
        tries = max(counted, 0) + (0 if judged == LATER else self.tries)
        row = self._asked_row(before, now)
        since = now - datetime.fromisoformat(row.first_failed_at)
        over = judged == NEVER or (judged == AGAIN and policy.is_over(tries, since))
        return replace(
            row,
            # What was set aside stays so while somebody only finds it busy.
            state=retries.DEAD if over or (row.is_dead and judged == LATER) else retries.DUE,
            tries=tries,
            generation=row.generation or self.generation,
            kind=type(error).__name__,
            error=str(error) if isinstance(error, TwiceError) else explain(error),
            last_failed_at=retries.moment_text(now),
            due_at=max(retries.moment_text(now + policy.wait_after(tries, self.slot.text)), _not_before(error)),
        )

    def _asked_row(self, before: Again | None, now: datetime) -> Again:
        """Return the record with what is asked for: of a retry what it was, of any other run what this one was asked."""
        new = new_row(self.slot, self.asked, self.generation, retries.plain(self.pipeline.parameters), now)
        if before is None or self.taken:
            return before or new
        return replace(before, asked=new.asked, parameters=new.parameters, generation=self.generation)


def _not_before(error: BaseException) -> str:
    """Return until when it would be of no use to try again: a service asked to be left alone."""
    return error.not_before if isinstance(error, EffectOwed) else ""


def new_row(slot: Slot, asked: Asked, generation: int, parameters: str, now: datetime) -> Again:
    """Return the record of a run that fails for the first time."""
    return Again(
        slot=slot.text,
        pipeline=slot.pipeline,
        target=slot.target.text,
        state=retries.DUE,
        tries=0,
        generation=generation,
        asked=retries.plain(asked.lasting),
        parameters=parameters,
        kind="",
        error="",
        first_failed_at=retries.moment_text(now),
        last_failed_at=retries.moment_text(now),
        due_at=retries.moment_text(now),
    )


def per_hour(project: Project) -> int:
    """Return the project's budget."""
    return int(project.settings["retries.per_hour"])


# ---------------------------------------------------------------------- a walk over all that is due


def _due_row(project: Project, pipeline: Pipeline, slot: Slot) -> Again | None:
    """Return the record of a slot that failed, or was killed, and whose time has come.

    Raises:
        Held: Its time has not come, or it was set aside.
    """
    now = datetime.now(UTC)
    row = retries.find(project.ledger, slot.text)
    if row is None and project.retries_of(pipeline):
        for record in retries.died(project.ledger, slot.text):
            _enlist(project, record, now)
            row = retries.find(project.ledger, slot.text)
    if row:
        check_turn(row, pipeline, now)
    return row


def _taken_on_a_walk(
    project: Project, pipeline: Pipeline, row: Again, asked: Asked, approve: Callable[[Plan], None] | None
) -> Outcome:
    """Take what is due as `twice retry` does: nobody asked for this slot anew, so it is asked for as the first time."""
    slot = Slot.parse(row.slot)
    with _taking(project, row, datetime.now(UTC)) as taken:
        if taken:
            asked = replace(asked, **json.loads(taken.asked))
            approve = None if asked.force else approve  # that rows are replaced was agreed to when it was asked for
        elif retries.spent(project.ledger, datetime.now(UTC)) >= per_hour(project):
            raise Held(
                f"{slot.label} of {pipeline.name} is due again, and the budget of retries for this hour is used up.",
                last_error(row),
                "twice retry takes it in the next hour; twice run takes it now.",
            )
        return _Filling(project, pipeline, slot, asked, approve, taken).fill()


@contextmanager
def _taking(project: Project, row: Again, now: datetime) -> Iterator[Again | None]:
    """Take a run for as long as the block works; None if it is not due any more, or the budget is used up.

    Raises:
        Busy: Another job has it.
    """
    with project.ledger.lease(retries.lease_name(row.slot), retries.new_taker()):
        taken = retries.take(project.ledger, _with_generation(project, row), now, per_hour(project))
        reach("retry.taken")
        try:
            yield taken
        except KeyboardInterrupt:
            if taken:
                retries.give_back(project.ledger, taken)
            raise


# ---------------------------------------------------------------------- the periodic job


@dataclass(frozen=True)
class Retried:
    """How one retry ended."""

    slot: Slot
    outcome: Outcome | None = None
    error: TwiceError | None = None
    row: Again | None = None


@dataclass(frozen=True)
class Budget:
    """The project's budget is used up; so many runs stay due."""

    left: int
    per_hour: int


def retry_due(project: Project, now: datetime | None = None) -> Iterator[Retried | Budget]:
    """Try again what is due, oldest slots first, each with what it was asked for the first time.

    Runs whose process died are due at once. Two jobs at a time take each run once.
    """
    moment = now or datetime.now(UTC)
    for record in retries.died(project.ledger):
        _enlist(project, record, moment)
    due = _due(project, moment)
    for number, row in enumerate(due):
        if retries.spent(project.ledger, moment) >= per_hour(project):
            left = _left(project, due[number:], moment)
            if left:
                yield Budget(left, per_hour(project))
            return
        ended = _retried(project, row, moment)
        if ended:
            yield ended


def _due(project: Project, now: datetime) -> list[Again]:
    return [row for row in retries.every(project.ledger) if row.is_due(now)]


def _left(project: Project, rows: Sequence[Again], now: datetime) -> int:
    """Count the runs that stay due: another job may have done some, and be at work on others."""
    due = {row.slot for row in _due(project, now)}
    return sum(row.slot in due and not project.ledger.busy(retries.lease_name(row.slot)) for row in rows)


def _enlist(project: Project, record: AttemptRecord, now: datetime) -> None:
    """Make a run due that was killed, if its pipeline's runs are tried again."""
    slot = Slot.parse(record.slot)
    try:
        pipeline = project.writer_of(slot)
    except TwiceError:
        return
    if project.retries_of(pipeline):
        given = json.loads(record.parameters or "{}")
        parameters = retries.plain({name: given.get(name, value) for name, value in pipeline.parameters.items()})
        row = new_row(slot, Asked(**json.loads(record.asked or "{}")), record.generation, parameters, now)
        what = f"The process of attempt {record.attempt} ended before the run did."
        retries.enlist(project.ledger, record, replace(row, tries=1, kind="Died", error=what))


def _retried(project: Project, row: Again, now: datetime) -> Retried | None:
    """Take one run and try it; None if another job has it or had it."""
    slot = Slot.parse(row.slot)
    try:
        with _taking(project, row, now) as taken:
            return _tried_again(project, slot, taken) if taken else None
    except Busy:
        return None


def _with_generation(project: Project, row: Again) -> Again:
    """Draw the edition of a forced run before it is tried: whoever takes it after a death must not force another one."""
    if row.generation or not row.is_forced:
        return row
    slot = Slot.parse(row.slot)
    pipeline = project.writer_of(slot)
    sight = project.store(slot.target.store).look(pipeline.pattern.table(slot, pipeline.zone))
    return replace(row, generation=sight.fence(row.slot) + 1)


def _tried_again(project: Project, slot: Slot, taken: Again) -> Retried:
    try:
        pipeline = project.writer_of(slot)
        asked = Asked(**json.loads(taken.asked))
        return Retried(slot, _Filling(project, pipeline, slot, asked, None, taken).fill())
    except TwiceError as error:
        return Retried(slot, None, error, retries.find(project.ledger, slot.text))
