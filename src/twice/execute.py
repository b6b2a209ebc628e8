"""How is a plan carried out, exactly once, however often it is asked for?

The only loop that applies a plan, and the three cases of recovery:

    died while preparing     nothing is visible; do it again
    died while publishing    look for the receipt in the store
    died later               the receipt is there; tidy, confirm, write nothing

Every arrow of the flow is a fault point:

    look -> resolve -> decide -> intend -> lease -> look -> stage -> look again -> publish -> read back -> confirm

Nothing here cleans up after an unknown outcome, and nothing is retried without asking the store.
"""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from twice import ingests, interrupts, session_settings
from twice.abilities import NamesFiles, Rows, Staged, Store, Work
from twice.considered import Considered, Look, Part, consider, reconsider
from twice.data_tests import Scope, gate
from twice.decide import Asked
from twice.effects import complete, for_receipt, owed_by
from twice.errors import (
    BadFile,
    Busy,
    Conflict,
    EffectOwed,
    Fenced,
    InputsMoved,
    Misuse,
    NotPublished,
    OutcomeUnknown,
    Overtaken,
    ProofGone,
    TwiceError,
    Waiting,
    count,
)
from twice.explain import explain, explain_code
from twice.faults import reach
from twice.fingerprint import Inputs, absent_of, fingerprint_of
from twice.intervals import zone_named
from twice.jobs import Job, Outcome
from twice.ledger import AttemptRecord, Ledger, logs
from twice.ledger.effects import intend
from twice.ledger.logs import Captured
from twice.ledger.records import OPEN, PUBLISHING, STAGING
from twice.ledger.retries import plain
from twice.ledger.tallies import is_in_trouble
from twice.plans import Plan
from twice.quarantine import keep, set_aside_by, with_kept
from twice.replays import start_of
from twice.runs import Effect, Receipt, Run, Slot
from twice.sight import Sight
from twice.sources.intake import Intake

_LOST_COMPARES_BEFORE_LEASE = 2
_LOST_COMPARES_AT_MOST = 8
_TRIES_WITHOUT_MOVED = 3


def execute(
    job: Job,
    store: Store,
    ledger: Ledger,
    asked: Asked | None = None,
    approve: Callable[[Plan], None] | None = None,
    look: Look | None = None,
) -> Outcome:
    """Publish a slot exactly once, however often this is called.

    A slot that is published with the same inputs is left alone. After an interrupted attempt the
    store's receipt, not the ledger, tells whether the rows landed. `approve` sees the plan before
    anything is done, and may raise to stop it. `look` is one that a walk over many slots shares.

    Raises:
        NotPublished: The slot shows nothing new; running again is safe.
        Waiting: Its inputs are not ready yet.
        OutcomeUnknown: The publish may have landed, and the store could not say so yet.
        Fenced: The store is not as it was, or not ours.
        Busy: Another attempt works on the slot.
    """
    interrupts.check()
    asked = asked or Asked()
    look = look or Look(store, ledger)
    if not asked.following and _go_on(job, look):
        look = Look(store, ledger)
    with _refusals_recorded(job, ledger):
        considered = consider(job, store, ledger, asked, look)
    plan = considered.plan
    if approve:
        approve(plan)
    if asked.accept and plan.base.ended and (job.pattern.builds_on_all or job.slot.text in plan.base.ended):
        with _refusals_recorded(job, ledger):
            considered = _accept(job, store, ledger, asked, considered)
        plan = considered.plan
    if plan.skips:
        outcome = _skip(plan, look, job)
        ingests.note_left(ledger, job.slot, ingests.intake_of(considered.inputs))
        job.tell(outcome.event())
        return outcome
    outcome = _Attempt(job, store, ledger, asked, approve).work(considered)
    if asked.following:
        return outcome
    return replace(outcome, along=outcome.along + _go_on(job, Look(store, ledger)))


@contextmanager
def _refusals_recorded(job: Job, ledger: Ledger) -> Iterator[None]:
    """Let people find in the ledger why a slot was not begun."""
    try:
        with interrupts.first():
            yield
    except Waiting:
        raise  # like a skip it leaves no trace: a scheduler may ask every minute
    except KeyboardInterrupt as stop:
        _record_refusal(job, ledger, _interruption(job.slot, stop), "interrupted", stop)
        raise
    except (NotPublished, Fenced) as error:
        _record_refusal(job, ledger, error, _state_after(error), error)
        if isinstance(error, BadFile):
            ingests.note_bad_file(ledger, job.slot, error)
        raise


def _accept(job: Job, store: Store, ledger: Ledger, asked: Asked, considered: Considered) -> Considered:
    """Take the rows as they are, once for this change from outside; whoever dies in between is asked again.

    A slot that lost a file is published again by force. What was taken in is not read again, so the table of an ingest goes
    on without the file.
    """
    base = considered.plan.base
    if job.pattern.takes_in and isinstance(store, NamesFiles):
        try:
            store.name_files_as_they_are(job.table, base)
        except Conflict as error:
            raise Overtaken(
                f"The target {job.slot.target.text} was published to, or changed once more, while it was looked at.",
                "Nothing was accepted, and nothing of this attempt is visible.",
                "Run again.",
            ) from error
        considered = reconsider(job, store, ledger, asked, considered)
    ledger.accept(job.accepts, base.outside, _who())
    return considered


def _go_on(job: Job, look: Look) -> tuple[Slot, ...]:
    """Show what is left of a replay that is shown slot by slot, whoever began it.

    Its first publish took the later slots out of the table. Until they are back nothing else is published.
    """
    done: list[Slot] = []
    while job.pattern.shows_each and (pending := look.at(job)[1].pending):
        if job.sibling is None:
            raise Fenced(
                f"A replay of {job.slot.target.text} is under way; still missing: {count(len(pending), 'slot')}.",
                fix="Run its pipeline: any run takes it up.",
            )
        following = job.sibling(Slot.parse(pending[0]))
        execute(following, look.store, look.ledger, Asked(following=True))
        done.append(following.slot)
        look = Look(look.store, look.ledger)
    return tuple(done)


def _who() -> str:
    """Name the person; in a container there may be only a number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _interruption(slot: Slot, stop: KeyboardInterrupt, *, publishing: bool = False) -> TwiceError:
    """Return what is true of a slot whose run was interrupted, and let those who see the interrupt know it too."""
    what = f"The run of {slot.pipeline} {slot.label} was interrupted."
    fix = "Run the slot again: it asks the store first."
    error = (
        OutcomeUnknown(what, "It is unknown whether the slot was published.", fix)
        if publishing
        else NotPublished(what, "Nothing was published, and the target is as it was.", fix)
    )
    interrupts.tell(f"{slot.pipeline} {slot.label}: {error.why}", unknown=publishing)
    stop.add_note(str(error))
    return error


def _record_refusal(job: Job, ledger: Ledger, error: TwiceError, state: str, cause: BaseException) -> None:
    """Leave a trace of a run that ended before it could be planned, for whoever looks at the runs."""
    slot = job.slot
    record = AttemptRecord("", slot.text, slot.pipeline, slot.target.text, 0, "", job.code, OPEN)
    attempt = ""
    with suppress(NotPublished):
        attempt = ledger.intend(record).attempt
        ledger.end(attempt, state, str(error))
        if state != "refused":
            logs.keep(ledger, attempt, cause)
    job.tell(job.failed(attempt, 0, state, error))


def _skip(plan: Plan, look: Look, job: Job, reason: str = "") -> Outcome:
    """Report a skip, and let the ledger catch up with the store if it lags."""
    ledger = look.ledger
    receipt = plan.base.receipts[job.slot.text]
    # Companions were published by the same attempt, which may have died before it could say so.
    together = plan.base.of_attempt(receipt.attempt)
    known = ledger.known(job.slot.text)
    notes = plan.notes
    _settle_now(look, job)
    if known != receipt or is_in_trouble(ledger, job.slot.text):
        others = [found for found in together if found != receipt]
        notes += _confirmed(ledger, "", receipt, plan.base.version, rows=_rows_of(job, receipt, together), along=others)
        if job.pattern.takes_in:
            ingests.catch_up(ledger, job.slot, ingests.taken_in(look.store, job.table, job.slot.text, plan.base))
    if job.kept and not ledger.busy(job.slot.text):
        job.kept.sweep((job.slot,))
    notes += complete(job.outside, ledger, together)
    return Outcome(
        state="skipped",
        slot=job.slot,
        generation=receipt.generation,
        reason=reason or plan.reason,
        version_before=plan.base.version,
        version_after=plan.base.version,
        rows=receipt.rows,
        attempt=receipt.attempt,
        notes=notes,
        parsed=receipt.parsed,
        quarantined=set_aside_by(receipt),
    )


def _settle_now(look: Look, job: Job) -> None:
    """Complete what follows a publish, in this attempt or in one that died: success says that all is well."""
    try:
        look.settle(job)
    except Exception as error:
        raise OutcomeUnknown(
            f"{job.slot.label} has its receipt, and what follows the publish could not be completed: {explain(error)}",
            "Some readers may not see it yet.",
            "Correct the cause and run again: it is completed then.",
        ) from error


def _rows_of(job: Job, receipt: Receipt, together: Sequence[Receipt]) -> int:
    """Count the rows of a publish: of all its slots, unless the others are vouched for again without being read."""
    return sum(found.rows for found in ([receipt] if job.pattern.keeps_history else together))


def _confirmed(
    ledger: Ledger,
    attempt: str,
    receipt: Receipt,
    version: int,
    state: str = "published",
    reason: str = "",
    *,
    rows: int | None = None,
    along: Sequence[Receipt] = (),
) -> tuple[str, ...]:
    """Let the ledger know what the store holds. Rows that are visible and proven stay so if it cannot."""
    try:
        ledger.confirm(attempt, receipt, version, state, reason, rows, along)
    except (NotPublished, OSError) as error:
        return (f"the ledger could not record it, and the next run will: {explain(error)}",)
    return ()


class _Attempt:
    """One start of work on a slot, from the lease to the confirmation."""

    def __init__(
        self, job: Job, store: Store, ledger: Ledger, asked: Asked, approve: Callable[[Plan], None] | None
    ) -> None:
        self.job = job
        self.store = store
        self.ledger = ledger
        self.asked = asked
        self.approve = approve
        self.fingerprint = ""
        self.name = ""
        self.effects: dict[Slot, Mapping[str, Effect]] = {}
        self.intake: Intake | None = None
        self.publishing = False
        self.began: int | None = None
        self.captured: Captured | None = None

    def work(self, considered: Considered) -> Outcome:
        """Take the slot's lease, then plan, stage and publish until the store gives an answer, which is recorded.

        It can be interrupted while it plans and stages.
        """
        with interrupts.held_back():
            outcome = self._work(considered)
            if interrupts.asked():
                interrupts.tell(f"{self.job.slot.pipeline} {self.job.slot.label}: The slot is {outcome.state}.")
        return outcome

    def _work(self, considered: Considered) -> Outcome:
        self.fingerprint = considered.fingerprint
        self.name = self.ledger.intend(self._record(considered.plan)).attempt
        reach("intended")
        generation = considered.plan.generation
        self.job.tell(self.job.started(self.name, generation, considered.plan.reason))
        try:
            with interrupts.first(), ExitStack() as leases:
                leases.enter_context(self.ledger.lease(self.job.slot.text, self.name))
                self.captured = leases.enter_context(self.job.under(self.name))
                self._wait_for_target()
                outcome = self._until_settled(considered, leases)
        except EffectOwed as error:
            # Its rows are published, by it (and recorded so) or by a twin; what is owed to others is a matter of its own.
            self._end("skipped", error.what)
            self.job.tell(replace(self.job.started(self.name, generation, error.what), kind="published"))
            raise
        except KeyboardInterrupt as stop:
            interruption = _interruption(self.job.slot, stop, publishing=self.publishing)
            self._failed(generation, "unknown" if self.publishing else "interrupted", interruption, stop)
            raise
        except TwiceError as error:
            if isinstance(error, OutcomeUnknown) and interrupts.asked():
                interrupts.tell(f"{self.job.slot.pipeline} {self.job.slot.label}: {error.what}", unknown=True)
            self._failed(generation, _state_after(error), error, error)
            raise
        except Exception as error:
            self._failed(generation, "failed", TwiceError(explain(error)), error)
            raise
        if outcome.quarantined and outcome.state == "published":
            self.job.tell(outcome.set_aside())
        # A twin's receipt bears the twin's name; this is the end of this attempt.
        self.job.tell(replace(outcome.event(), attempt=self.name))
        return outcome

    def _note_step(self, step: str) -> None:
        self.publishing = step == PUBLISHING
        with suppress(NotPublished):  # for those who look; nothing is decided by it
            self.ledger.note_step(self.name, step)

    def _failed(self, generation: int, state: str, error: TwiceError, cause: BaseException) -> None:
        self._end(state, str(error))
        if state != "refused":  # by others, who say why
            logs.keep(self.ledger, self.name, cause, self.captured)
        self.job.tell(self.job.failed(self.name, generation, state, error))

    def _end(self, state: str, reason: str) -> None:
        """Record the end; a ledger that cannot must not hide how the run really ended."""
        with suppress(NotPublished):
            self.ledger.end(self.name, state, reason)
            if self.intake:
                ingests.note_end(self.ledger, self.job.slot, self.intake, self.name, state, reason)

    def _record(self, plan: Plan) -> AttemptRecord:
        slot = self.job.slot
        return AttemptRecord(
            attempt="",
            slot=slot.text,
            pipeline=slot.pipeline,
            target=slot.target.text,
            generation=plan.generation,
            fingerprint=self.fingerprint,
            code=self.job.code,
            state=OPEN,
            version_before=plan.base.version if plan.base.exists else None,
            plan=json.dumps(plan.summary()),
            asked=plain(self.asked.lasting),
            parameters=plain(self.job.parameters),
        )

    def _wait_for_target(self) -> None:
        """Honour a lease on the whole target: someone was starved and is about to publish."""
        holder = self.ledger.busy(self.job.slot.target.text, self.name)
        if holder:
            raise Busy(
                f"The target {self.job.slot.target.text} is held by attempt {holder}, which lost twice against others.",
                fix="Run again when it is done.",
            )

    def _until_settled(self, considered: Considered, leases: ExitStack) -> Outcome:
        held: set[str] = set()
        for lost in range(_LOST_COMPARES_AT_MOST):
            if lost == _LOST_COMPARES_BEFORE_LEASE:
                leases.enter_context(self.ledger.lease(self.job.slot.target.text, self.name))
            with interrupts.let_through():
                considered = self._considered_now(considered)
            plan = considered.plan
            if plan.skips:
                why = "another attempt published the same inputs meanwhile"
                outcome = _skip(plan, Look(self.store, self.ledger), self.job, why)
                self._end("skipped", outcome.reason)
                return outcome
            others = sorted({part.job.slot.text for part in considered.companions} - held)
            if others:
                leases.enter_context(self.ledger.leases(others, self.name))
                held.update(others)
            settled = self._try_without_moved(considered)
            if settled:
                return settled
        raise Overtaken(
            f"Other publishes moved the target {self.job.slot.target.text} {_LOST_COMPARES_AT_MOST} times during this run.",
            "Nothing of this attempt is visible.",
            "Run again.",
        )

    def _try_without_moved(self, considered: Considered) -> Outcome | None:
        """Stage and publish; files of an ingest that change meanwhile are left for later, while others are there."""
        for _ in range(_TRIES_WITHOUT_MOVED):
            try:
                return self._try(considered.plan, considered.parts(self.job))
            except InputsMoved as error:
                still = self.intake.without(error.names) if self.intake else None
                if still is None or not still.files.marks:
                    raise
                inputs = {name: still if one is self.intake else one for name, one in considered.inputs.items()}
                self.fingerprint = fingerprint_of(inputs, self.job.parameters)
                plan = replace(considered.plan, notes=considered.plan.notes + still.left_since(self.intake))
                considered = replace(considered, plan=plan, inputs=inputs, fingerprint=self.fingerprint)
        return self._try(considered.plan, considered.parts(self.job))

    def _considered_now(self, before: Considered) -> Considered:
        """Plan on what is there now: the lease may have been waited for, or a compare lost."""
        now = reconsider(self.job, self.store, self.ledger, self.asked, before)
        if now.inputs is not before.inputs:
            self.fingerprint = now.fingerprint
            if self.approve:
                self.approve(now.plan)
        return now

    def _try(self, plan: Plan, parts: Sequence[Part]) -> Outcome | None:
        """Stage and publish once. None means: refused because other slots moved on, plan again."""
        if self.publishing:
            self._note_step(STAGING)
        self.intake = ingests.intake_of(parts[0].inputs)
        if self.intake:
            ingests.note_claim(self.ledger, self.job.slot, self.intake, self.name)
        if self.began is None:
            self.began = plan.base.version
        work = Work(
            name=self.job.table,
            slot=self.job.slot.text,
            attempt=self.name,
            generation=plan.generation,
            base=plan.base,
            compares_head=plan.compares_head,
            columns=self.job.columns,
            keep_days=self.job.pattern.keep_days,
            heals=self.asked.force and bool(plan.base.ended),
            leaving=ingests.leaving(self.intake),
            began=self.began,
        )
        try:
            with interrupts.let_through():
                staged = self._stage(plan, work, parts)
        except Conflict:
            return None
        try:
            receipts = self._receipts(plan, parts, staged)
        except TwiceError:
            self.store.discard(work, staged)
            raise
        self._note_step(PUBLISHING)
        reach("publish.before")
        try:
            said = self.store.publish(work, staged, receipts)
            reach("publish.after")
            reply = "landed"
            staged = replace(staged, notes=staged.notes + said)
        except Conflict:
            reply = "refused"
        except (NotPublished, Busy, Misuse):
            self.store.discard(work, staged)
            raise
        except OutcomeUnknown:
            raise  # it is visible, and what would be read back now is not what the disk holds
        except Exception as error:  # noqa: BLE001 - whatever broke, only the store knows whether it landed
            reply = f"lost ({explain(error)})"
        return self._settle(plan, work, staged, receipts, reply)

    def _receipts(self, plan: Plan, parts: Sequence[Part], staged: Staged) -> list[Receipt]:
        """Make the receipts, and keep beside the table what they name."""
        rows = self._rows_of_each(plan, parts, staged)
        receipts = [
            with_kept(
                self._receipt(plan, part, staged, count),
                keep(self.store, self.job.table, part.inputs, part.generation, self.name),
            )
            for part, count in zip(parts, rows, strict=True)
        ]
        if self.intake:
            before = plan.base.receipt(self.job.slot.text)
            receipts[0] = ingests.with_marks(self.store, self.job.table, self.intake, receipts[0], before)
        return receipts

    def _rows_of_each(self, plan: Plan, parts: Sequence[Part], staged: Staged) -> list[int]:
        """Tell how many rows each slot brought; where the store cannot, companions brought what they had before."""
        if plan.draft:
            counts = dict(zip((part.job.slot for part in _by_time(parts)), staged.batches, strict=True))
            return [counts[part.job.slot] for part in parts]
        others = [plan.base.receipts[slot.text].rows for slot in plan.companions]
        own = staged.rows if self.job.pattern.keeps_history else max(staged.rows - sum(others), 0)
        return [own, *others]

    def _stage(self, plan: Plan, work: Work, parts: Sequence[Part]) -> Staged:
        if plan.stage is None:
            raise AssertionError("a plan that publishes has a step that stages")
        for step in plan.prepare:
            reach(f"{step.name}.before")
            step.act(self.store)
        reach("stage.before")
        try:
            if self.intake and not self.intake.moves_rows and work.base.exists:
                # Files are set aside or forgotten, and no row comes or goes.
                return Staged(0, keeps=work.slot not in work.base.ended)
            computed = parts[:1] if self.job.pattern.keeps_history else parts
            rows = [self._rows(part) for part in (_by_time(parts) if plan.draft else computed)]
            whole = rows if plan.draft else rows[0] if len(rows) == 1 else self.store.unite(rows)
            # Rows are evaluated as they are written: a transform may have changed its session, or brought another.
            session_settings.hold_all(rows)
            reach("rows.ready")
            staged = plan.stage.act(self.store, work, whole)
        except Conflict:
            raise
        except KeyboardInterrupt:
            self.store.discard(work, Staged(0))
            raise
        except TwiceError:
            self.store.discard(work, Staged(0))
            self._look_again_at_files()
            raise
        except Exception as error:
            self.store.discard(work, Staged(0))
            self._look_again_at_files()
            raise NotPublished(
                f"The rows of {self.job.slot.label} could not be computed or written: {explain_code(error)}",
                "Nothing was published, and the target is as it was.",
                f"Correct the cause and run again. The whole error, and the log: twice logs {self.name}",
            ) from error
        reach("stage.after")
        try:
            judged = self.job.pattern.judge(staged, work)
            for part in parts:
                self._look_again(part.inputs)
            # Asked last: rows of inputs that moved meanwhile would be refused for good.
            judged = replace(judged, notes=judged.notes + self._tested(staged, parts))
        except (TwiceError, KeyboardInterrupt):
            self.store.discard(work, staged)
            raise
        if judged.handle is None and staged.handle is not None:
            self.store.discard(work, staged)
        reach("looked.again")
        return judged

    def _tested(self, staged: Staged, parts: Sequence[Part]) -> tuple[str, ...]:
        """Ask the tests of the pipeline of the staged rows, and return what those say that only warn."""
        tests = self.job.tests
        if not tests or staged.answers is None:
            return ()
        slots = [part.job.slot for part in parts[: 1 if self.job.pattern.keeps_history else None]]
        ends = [slot.interval.end for slot in slots if slot.interval]
        more = f" and {count(len(slots) - 1, 'other slot')}" if len(slots) > 1 else ""
        scope = Scope(
            f"{self.job.slot.label}{more}",
            max(ends, default=None),
            zone_named(self.job.zone),
            staged.rows,
            len(slots),
        )
        try:
            answers = staged.answers(tests)
        except TwiceError:
            raise
        except Exception as error:
            raise NotPublished(
                f"The tests of {self.job.slot.pipeline} could not be asked: {explain(error)}",
                "Nothing was published, and the target is as it was.",
                "Correct the cause and run again; --debug shows the whole error.",
            ) from error
        notes = gate(tests, answers, scope)
        reach("tested")
        return notes

    def _rows(self, part: Part) -> Rows:
        """Call the transform; one that returns nothing, or leaves the process, has not succeeded."""
        run = Run(part.job.slot, part.generation, self.name, self.job.zone, part.job.parameters)
        self.effects[part.job.slot] = run.effects
        if part.job.kept:
            look_again = partial(self._look_again, part.inputs)
            run = replace(run, steps=part.job.kept.of_run(run, part.fingerprint, part.job.code, look_again))
        try:
            rows = part.job.rows(part.inputs, run)
        except SystemExit as left:
            raise NotPublished(
                f"The transform of {self.job.slot.pipeline} called exit({left.code!r}).",
                "Nothing was published, and the target is as it was.",
                "Raise an error, or return the rows.",
            ) from left
        if rows is None:
            raise NotPublished(
                f"The transform of {self.job.slot.pipeline} returned nothing.",
                "Nothing was published, and the target is as it was.",
                "Return the rows.",
            )
        return rows

    def _look_again_at_files(self) -> None:
        """Where files come and go at any time, a read that failed is most often one of a file that changed meanwhile."""
        if self.intake:
            self._look_again({"": self.intake})

    def _look_again(self, inputs: Mapping[str, Inputs]) -> None:
        """The second look: rows that were read while their input changed are not published."""
        moved = [name for chosen in inputs.values() for name in chosen.moved()]
        if moved:
            raise InputsMoved(moved)

    def _receipt(self, plan: Plan, part: Part, staged: Staged, rows: int) -> Receipt:
        slot = part.job.slot.text
        before = plan.base.receipt(slot)
        once = {*before.once, *before.partitions} - set(staged.partitions) if before else set()
        return Receipt(
            slot=slot,
            generation=part.generation,
            attempt=self.name,
            fingerprint=part.fingerprint,
            code=self.job.code,
            owner=self.ledger.id,
            rows=rows,
            partitions=staged.partitions,
            once=tuple(sorted(once)),
            lineage=staged.lineage,
            pending=tuple(other.text for other in plan.pending),
            history=staged.history if slot == self.job.slot.text else before.history if before else "",
            adopted=staged.adopted,
            effects=self._intend_effects(part.job.slot, before),
            # A slot whose change rows are kept is not read again.
            parsed=before.parsed if before and not part.inputs else None,
            aside=before.aside if before and not part.inputs else (),
            absent=before.absent if before and not part.inputs else tuple(sorted(absent_of(part.inputs))),
            published_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        )

    def _intend_effects(self, slot: Slot, before: Receipt | None) -> tuple[Effect, ...]:
        """Record what is to be called once the rows are published, and return what the receipt says of it."""
        own = tuple(self.effects.get(slot, {}).values())
        older = owed_by(before, self.ledger)
        said = for_receipt(slot, own, older)
        if own or (before and before.effects):
            intend(self.ledger, slot, self.name, own, before)
            reach("effects.intended")
        return said

    def _settle(
        self, plan: Plan, work: Work, staged: Staged, receipts: Sequence[Receipt], reply: str
    ) -> Outcome | None:
        """Read back what the store holds, and apply the slot rule."""
        receipt = receipts[0]
        sight = self._read_back(reply)
        found = sight.receipt(work.slot)
        mine = found is not None and found.generation == receipt.generation and found.attempt == receipt.attempt
        if found and (mine or self._is_twin(found, receipt)):
            return self._landed(plan, work, staged, sight, found, mine=mine)
        if reply == "landed" and found:
            # It landed and was replaced before it could be read back: its files may still be in use.
            return self._finish(
                plan, sight, found, "published", f"{plan.reason}; generation {found.generation} has replaced it"
            )
        if reply != "refused":
            raise OutcomeUnknown(
                f"The publish of {self.job.slot.label} got no answer: {reply}.",
                "Its receipt is not in the store now, and may still arrive.",
                "Run the slot again: it asks the store first.",
            )
        self.store.discard(work, staged)
        self._check_refusal(work, sight)
        return None

    def _landed(self, plan: Plan, work: Work, staged: Staged, sight: Sight, found: Receipt, *, mine: bool) -> Outcome:
        """The receipt is there, from this attempt or from a twin that did the same work."""
        if work.slot in sight.ended:
            raise ProofGone(
                f"The slot {self.job.slot.label} was published in this run, and its rows are already gone.",
                f"{sight.ended[work.slot]}.",
                "Use --force to publish it again.",
            )
        if mine:
            return self._finish(plan, sight, found, "published", plan.reason, staged.notes)
        self.store.discard(work, staged)
        return self._finish(plan, sight, found, "skipped", "another attempt published the same inputs at the same time")

    def _check_refusal(self, work: Work, sight: Sight) -> None:
        """The store refused the publish. Return to plan again, unless the slot itself has moved on."""
        if work.attempt in sight.swept:
            raise NotPublished(
                f"The staged rows of {self.job.slot.label} were swept by a tidy while this run was paused.",
                "Nothing of this attempt is visible.",
                "Run again.",
            )
        if work.is_older_than(sight.forgot):
            raise NotPublished(
                f"This run of {self.job.slot.label} began before version {sight.forgot} of {self.job.slot.target.text}, so long"
                " ago that it is not known any more whether a tidy took it for dead.",
                "Nothing of this attempt is visible.",
                "Run again.",
            )
        if sight.fence(work.slot) != work.seen and not self.intake:
            raise Overtaken(
                f"The slot {self.job.slot.label} was published by another attempt as generation {sight.fence(work.slot)},"
                " from other inputs.",
                "This attempt planned on what was there before, so the store refused it.",
                "Run again to plan on what is there now.",
            )

    def _read_back(self, reply: str) -> Sight:
        try:
            sight = self.store.look(self.job.table)
        except Exception as error:
            raise OutcomeUnknown(
                f"The publish of {self.job.slot.label} was {reply}, and the store cannot be read: {error}.",
                "Whether the rows are visible is not known.",
                "Run the slot again when the store answers.",
            ) from error
        reach("read.back")
        return sight

    def _is_twin(self, found: Receipt, receipt: Receipt) -> bool:
        """Another attempt did the same work: same generation, same inputs and, where it matters, same code."""
        same = (
            found.generation == receipt.generation
            and bool(receipt.fingerprint)
            and found.fingerprint == receipt.fingerprint
        )
        code_matters = self.asked.force or self.job.rerun_on_code
        return same and (found.code == receipt.code or not code_matters)

    def _finish(
        self, plan: Plan, sight: Sight, found: Receipt, state: str, reason: str, said: tuple[str, ...] = ()
    ) -> Outcome:
        _settle_now(Look(self.store, self.ledger), self.job)
        notes = said + plan.notes
        others = [sight.receipts[slot.text] for slot in plan.companions if slot.text in sight.receipts]
        together = [found, *(other for other in others if other.attempt == found.attempt)]
        rows = _rows_of(self.job, found, together)
        notes += _confirmed(self.ledger, self.name, found, sight.version, state, reason, rows=rows, along=others)
        if self.intake:
            ingests.catch_up(
                self.ledger, self.job.slot, ingests.taken_in(self.store, self.job.table, self.job.slot.text, sight)
            )
        reach("confirmed")
        if self.job.kept:
            self.job.kept.sweep((self.job.slot, *plan.companions))
        notes += complete(self.job.outside, self.ledger, [found, *others])
        return Outcome(
            state=state,
            slot=self.job.slot,
            generation=found.generation,
            reason=reason,
            version_before=plan.base.version if plan.base.exists else None,
            version_after=found.first_version,
            rows=found.rows,
            attempt=found.attempt,
            notes=notes,
            along=plan.companions,
            parsed=found.parsed,
            quarantined=set_aside_by(found),
            left=self.intake.more if self.intake else 0,
        )


def _by_time(parts: Sequence[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: start_of(part.job.slot))


def _state_after(error: TwiceError) -> str:
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    return "refused" if isinstance(error, Fenced | Busy) else "failed"
