"""How are many slots filled, one after the other or side by side?

In order, each by the same function as a single run. A slot that fails does not stop independent
ones; it stops those that build on it. Published slots are skipped, so a backfill that was killed
resumes where it stood. Where every slot builds on those before it, all that is to be done is done
in one publish: readers see the table before it, and the table after it. Where slots are
independent, several may be worked on at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING

from twice.considered import Look, consider
from twice.decide import Asked
from twice.errors import Busy, Held, InputsAbsent, Misuse, TwiceError, Waiting
from twice.faults import reach
from twice.intervals import Moment, moment_of
from twice.jobs import Outcome
from twice.retrying import fill_slot
from twice.runs import Slot
from twice.sight import Sight

if TYPE_CHECKING:
    from twice.pipelines import Pipeline
    from twice.plans import Pattern, Plan
    from twice.project import Project

    Approve = Callable[[Plan], None]

_ENDED_WELL = ("published", "skipped")
# How slots end that were not begun.
_LEFT = (Waiting, InputsAbsent, Held)


@dataclass(frozen=True)
class SlotEnd:
    """How one slot of a backfill ended."""

    slot: Slot
    outcome: Outcome | None = None
    error: TwiceError | None = None


def slots_between(pipeline: Pipeline, start: Moment, end: Moment, now: datetime) -> list[Slot]:
    """Return the slots that start in `[start, end)`, oldest first.

    Raises:
        Misuse: The pipeline has no calendar, no slot starts there, or one is still open.
    """
    if pipeline.schedule is None:
        raise Misuse(
            f"The pipeline {pipeline.name!r} has no calendar, so there is nothing to backfill.", fix="Use twice run."
        )
    zone, shown = pipeline.schedule.tz, pipeline.schedule.shown
    first, last = (moment_of(moment, zone) for moment in (start, end))
    if last <= first:
        raise Misuse(
            f"--to {shown(last)} is not after --from {shown(first)}.",
            fix="The end is exclusive: for one day, give the next day as --to.",
        )
    found = []
    for interval in pipeline.schedule.from_to(first.astimezone(UTC), last.astimezone(UTC)):
        if interval.end > now:
            raise Misuse(
                f"The interval {interval.shown_in(zone)} is not closed yet.",
                fix=f"End the backfill at --to {shown(interval.start)}.",
            )
        found.append(interval)
    if not found:
        raise Misuse(f"No interval of {pipeline.name!r} starts in [{shown(first)}, {shown(last)}).")
    return [Slot(pipeline.identity, pipeline.target, interval) for interval in found]


def sights_of(project: Project, pipeline: Pipeline, slots: Sequence[Slot]) -> Mapping[Slot, Sight]:
    """Look at the table of each slot, at every table once."""
    store = project.store(pipeline.target.store)
    tables = {slot: pipeline.pattern.table(slot, pipeline.zone) for slot in slots}
    seen = {name: store.look(name) for name in set(tables.values())}
    return {slot: seen[table] for slot, table in tables.items()}


def left_of(project: Project, pipeline: Pipeline, slots: list[Slot], *, missing: bool, failed: bool) -> list[Slot]:
    """Return the slots that were never published, those whose newest attempt did not end well, or both; else all."""
    if not (missing or failed):
        return slots
    seen = sights_of(project, pipeline, slots)
    return [
        slot
        for slot in slots
        if (missing and not seen[slot].fence(slot.text)) or (failed and _has_failed(project, slot, seen[slot]))
    ]


def _has_failed(project: Project, slot: Slot, sight: Sight) -> bool:
    """Ask the ledger for the newest attempt; one that was killed left no end behind."""
    receipt = sight.receipt(slot.text)
    # A slot that was done with another one is published by an attempt that bears the other's name.
    newest = project.ledger.newest_attempt(slot.text, receipt.attempt if receipt else "")
    return newest is not None and newest.state not in _ENDED_WELL


def check_jobs(pipeline: Pipeline, jobs: int) -> None:
    """See that slots may be worked on side by side.

    Raises:
        Misuse: They depend on each other.
    """
    if jobs < 1:
        raise Misuse(f"{jobs} slots at a time cannot be worked on.", fix="Say 1 or more.")
    why = _why_one_by_one(pipeline.pattern) if jobs > 1 else ""
    if why:
        raise Misuse(
            f"The slots of {pipeline.name!r} cannot be worked on side by side: {why}.",
            f"That is how the pattern {pipeline.pattern.name!r} works; nothing was started.",
            "Leave --jobs out.",
        )


def _why_one_by_one(pattern: Pattern) -> str:
    if pattern.builds_on_all:
        return "all that are to be done are one publish"
    if pattern.in_order:
        return "what a slot does to the table depends on the slots before it"
    return "a publish is computed from the whole table, which must not move meanwhile" if pattern.compares_head else ""


def check_free(project: Project, pipeline: Pipeline, slots: Sequence[Slot]) -> None:
    """See that nobody works on the slots now, or on the target where every slot builds on all of it.

    Raises:
        Busy: A live attempt does.
    """
    texts = {slot.text for slot in slots}
    for lease in project.ledger.live_leases() if slots else ():
        attempt = project.ledger.attempt(lease.attempt)
        shares = attempt is not None and attempt.target == pipeline.target.text and pipeline.pattern.builds_on_all
        if lease.name in texts or shares:
            slot = Slot.parse(lease.name if lease.name in texts or not attempt else attempt.slot)
            raise Busy(
                f"{slot.label} of {pipeline.name} is being run now by attempt {lease.attempt}"
                f" (process {lease.holder.pid} on {lease.holder.host}).",
                "Every slot builds on all of the target; nothing was started." if shares else "Nothing was started.",
                "Wait for it and run again; what it publishes is skipped then.",
            )


def fill(
    project: Project,
    pipeline: Pipeline,
    slots: list[Slot],
    asked: Asked,
    jobs: int = 1,
    approve: Approve | None = None,
) -> Iterator[SlotEnd]:
    """Fill slots in order, or several at a time, yielding how each ended; `approve` sees each plan before it is carried out."""
    return (
        _side_by_side(project, pipeline, slots, asked, jobs, approve)
        if jobs > 1
        else _one_by_one(project, pipeline, slots, asked, approve)
    )


def _one_by_one(
    project: Project, pipeline: Pipeline, slots: list[Slot], asked: Asked, approve: Approve | None
) -> Iterator[SlotEnd]:
    done: set[Slot] = set()
    looks = _Looks(project, pipeline)
    for number, slot in enumerate(slots):
        if slot in done:
            continue
        along = along_with(project, pipeline, slots[number:], asked, looks.now())
        ended = _filled(project, pipeline, slot, replace(asked, along=along), approve, looks)
        yield ended
        if ended.error and ends_all(pipeline, ended.error):
            return
        if ended.outcome and is_done_with(pipeline, asked):
            with_it = [other for other in slots[number + 1 :] if other in ended.outcome.along]
            done.update(with_it)
            yield from _ends_of(project, pipeline, with_it, ended.outcome)


def look_for(project: Project, pipeline: Pipeline) -> Look:
    """Return a look that the slots of a walk share."""
    return Look(project.store(pipeline.target.store), project.ledger, many=True)


class _Looks:
    """The look that the slots of a walk share until one of them has done any work, also while several are worked on."""

    def __init__(self, project: Project, pipeline: Pipeline) -> None:
        self._project = project
        self._pipeline = pipeline
        self._look: Look | None = None
        self._lock = Lock()

    def now(self) -> Look:
        """Return the look, or begin another one."""
        with self._lock:
            self._look = found = self._look or look_for(self._project, self._pipeline)
            return found

    def after(self, ended: SlotEnd) -> None:
        """Look again from now on, unless the slot was left as it is."""
        skipped = ended.outcome is not None and ended.outcome.state == "skipped"
        if not (skipped or isinstance(ended.error, _LEFT)):
            self._look = None


def is_done_with(pipeline: Pipeline, asked: Asked) -> bool:
    """Tell whether slots that were done along with another one have had their turn; else they are planned in theirs."""
    # Change rows that are kept are vouched for again without being read: their inputs may have changed too.
    return not pipeline.pattern.keeps_history and (pipeline.pattern.builds_on_all or asked.force)


def _side_by_side(
    project: Project, pipeline: Pipeline, slots: list[Slot], asked: Asked, jobs: int, approve: Approve | None
) -> Iterator[SlotEnd]:
    """Fill several slots at a time, in threads that share the project."""
    late, is_over = [], False
    looks = _Looks(project, pipeline)
    pool = ThreadPoolExecutor(jobs, "twice-slot")
    try:
        started = [pool.submit(_filled, project, pipeline, slot, asked, approve, looks) for slot in slots]
        for future in as_completed(started):
            if future.cancelled():
                continue
            ended = future.result()
            if isinstance(ended.error, Busy):
                # Its own neighbours may have held the target for a moment.
                late.append(ended)
                continue
            yield ended
            if ended.error and ends_all(pipeline, ended.error):
                is_over = True
                for other in started:
                    other.cancel()
    finally:
        # After an end by force, too: what is at work is waited for, what is not is not begun.
        pool.shutdown(cancel_futures=True)
    if is_over:
        yield from late
    else:
        again = {ended.slot for ended in late}
        yield from _one_by_one(project, pipeline, [slot for slot in slots if slot in again], asked, approve)


def _filled(
    project: Project, pipeline: Pipeline, slot: Slot, asked: Asked, approve: Approve | None, looks: _Looks
) -> SlotEnd:
    reach("backfill.slot")
    try:
        ended = SlotEnd(slot, fill_slot(project, pipeline, slot, asked, approve, looks.now()))
    except TwiceError as error:
        ended = SlotEnd(slot, error=error)
    looks.after(ended)
    return ended


def ends_all(pipeline: Pipeline, error: TwiceError) -> bool:
    """Tell whether an error ends a backfill: the project has to be corrected, or later slots build on this one."""
    return isinstance(error, Misuse) or pipeline.pattern.in_order


def along_with(
    project: Project, pipeline: Pipeline, slots: Sequence[Slot], asked: Asked, look: Look
) -> tuple[Slot, ...]:
    """Return the later slots to be done in one publish with the first: up to one that cannot be, if the first is to be."""
    if not is_one_publish(pipeline):
        return ()
    found = []
    try:
        first = project.job(pipeline, slots[0])
        plan = consider(first, look.store, look.ledger, asked, look).plan
        if plan.skips:
            return ()
        for slot in slots[1:]:
            look.inputs(project.job(pipeline, slot), plan.base)
            found.append(slot)
    except TwiceError:
        return tuple(found)
    return tuple(found)


def is_one_publish(pipeline: Pipeline) -> bool:
    """Tell whether many slots are done in one publish: each builds on those before, and only the result is shown."""
    pattern = pipeline.pattern
    return pattern.builds_on_all and not (pattern.takes_in or pattern.shows_each or pattern.keeps_history)


def _ends_of(project: Project, pipeline: Pipeline, slots: Sequence[Slot], first: Outcome) -> Iterator[SlotEnd]:
    """Tell how the slots ended that were done with another one, in its table."""
    table = pipeline.pattern.table(first.slot, pipeline.zone)
    receipts = project.store(first.slot.target.store).look(table).receipts if slots else {}
    for slot in slots:
        receipt = receipts[slot.text]
        same = receipt.first_version == first.version_after
        told = f"in the same publish as {first.slot.label}" if same else f"after {first.slot.label}"
        end = replace(first, slot=slot, generation=receipt.generation, rows=receipt.rows, reason=told)
        yield SlotEnd(slot, replace(end, version_after=receipt.first_version, notes=(), along=()))


def backfill(
    project: Project,
    pipeline: Pipeline,
    start: Moment,
    end: Moment,
    asked: Asked,
    on_slot: Callable[[SlotEnd], None] | None = None,
    *,
    missing: bool = False,
    failed: bool = False,
    jobs: int = 1,
) -> list[Outcome]:
    """Fill the slots of a stretch of time; the worst error is raised at the end."""
    check_jobs(pipeline, jobs)
    stretch = slots_between(pipeline, start, end, datetime.now(UTC))
    slots = left_of(project, pipeline, stretch, missing=missing, failed=failed)
    check_free(project, pipeline, slots)
    ends = []
    for ended in fill(project, pipeline, slots, asked, jobs):
        ends.append(ended)
        if on_slot:
            on_slot(ended)
    errors = [ended.error for ended in ends if ended.error]
    if errors:
        raise worst(errors)
    outcomes = {ended.slot: ended.outcome for ended in ends if ended.outcome}
    return [outcomes[slot] for slot in slots]


def worst(errors: list[TwiceError]) -> TwiceError:
    """Return the error that says the worst about the data: unknown, then busy, then failed, then waiting."""
    order = [3, 5, 4, 2, 1]
    return min(errors, key=lambda error: (order.index(error.exit_code), isinstance(error, Waiting)))
