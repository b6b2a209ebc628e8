"""How are many slots filled, one after the other?

In order, each by the same function as a single run. A slot that fails does not stop independent
ones; it stops those that build on it. Published slots are skipped, so a backfill that was killed
resumes where it stood. Where every slot builds on those before it, all that is to be done is done
in one publish: readers see the table before it, and the table after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from twice.decide import Asked
from twice.errors import Misuse, TwiceError, Waiting
from twice.execute import consider, execute
from twice.faults import reach
from twice.intervals import aware, parse_moment, utc_text
from twice.jobs import Outcome
from twice.runs import Slot

if TYPE_CHECKING:
    from twice.pipelines import Pipeline
    from twice.project import Project


@dataclass(frozen=True)
class SlotEnd:
    """How one slot of a backfill ended."""

    slot: Slot
    outcome: Outcome | None = None
    error: TwiceError | None = None


def slots_between(pipeline: Pipeline, start: str | datetime, end: str | datetime, now: datetime) -> list[Slot]:
    """Return the slots that start in `[start, end)`, oldest first.

    Raises:
        Misuse: The pipeline has no calendar, no slot starts there, or one is still open.
    """
    if pipeline.schedule is None:
        raise Misuse(
            f"The pipeline {pipeline.name!r} has no calendar, so there is nothing to backfill.", fix="Use twice run."
        )
    zone = pipeline.schedule.tz
    first, last = (parse_moment(m, zone) if isinstance(m, str) else aware(m) for m in (start, end))
    if last <= first:
        raise Misuse(
            f"--to {utc_text(last)} is not after --from {utc_text(first)}.",
            fix="The end is exclusive: for one day, give the next day as --to.",
        )
    found = []
    for interval in pipeline.schedule.from_to(first.astimezone(UTC), last.astimezone(UTC)):
        if interval.end > now:
            raise Misuse(
                f"The interval {interval.text} is not closed yet.",
                fix=f"End the backfill at --to {utc_text(interval.start)}.",
            )
        found.append(interval)
    if not found:
        raise Misuse(f"No interval of {pipeline.name!r} starts in [{utc_text(first)}, {utc_text(last)}).")
    return [Slot(pipeline.identity, pipeline.target, interval) for interval in found]


def fill(project: Project, pipeline: Pipeline, slots: list[Slot], asked: Asked) -> Iterator[SlotEnd]:
    """Fill slots in order, yielding how each ended."""
    done: set[Slot] = set()
    for number, slot in enumerate(slots):
        if slot in done:
            continue
        reach("backfill.slot")
        pattern = pipeline.pattern
        in_one = pattern.builds_on_all and not (pattern.shows_each or pattern.keeps_history)
        along = _along(project, pipeline, slots[number:], asked) if in_one else ()
        try:
            job = project.job(pipeline, slot)
            outcome = execute(job, project.store(slot.target.store), project.ledger, replace(asked, along=along))
        except TwiceError as error:
            yield SlotEnd(slot, error=error)
            if isinstance(error, Misuse) or pipeline.pattern.in_order:
                return
        else:
            yield SlotEnd(slot, outcome=outcome)
            with_it = [other for other in slots[number + 1 :] if other in outcome.along]
            done.update(with_it)
            yield from _ends_of(project, with_it, outcome)


def _along(project: Project, pipeline: Pipeline, slots: Sequence[Slot], asked: Asked) -> tuple[Slot, ...]:
    """Return the later slots that can be done with the first one: up to one that cannot be done, if the first is to be."""
    store, found = project.store(pipeline.target.store), []
    for slot in slots:
        try:
            plan = consider(project.job(pipeline, slot), store, project.ledger, asked).plan
        except TwiceError:
            break
        if slot == slots[0] and plan.skips:
            break
        found.append(slot)
    return tuple(found[1:])


def _ends_of(project: Project, slots: Sequence[Slot], first: Outcome) -> Iterator[SlotEnd]:
    """Tell how the slots ended that were done with another one."""
    receipts = project.store(first.slot.target.store).look(first.slot.target.name).receipts if slots else {}
    for slot in slots:
        receipt = receipts[slot.text]
        same = receipt.first_version == first.version_after
        told = f"in the same publish as {first.slot.label}" if same else f"after {first.slot.label}"
        end = replace(first, slot=slot, generation=receipt.generation, rows=receipt.rows, reason=told)
        yield SlotEnd(slot, replace(end, version_after=receipt.first_version, notes=(), along=()))


def backfill(
    project: Project,
    pipeline: Pipeline,
    start: str | datetime,
    end: str | datetime,
    asked: Asked,
    on_slot: Callable[[SlotEnd], None] | None = None,
) -> list[Outcome]:
    """Fill the slots of a stretch of time; the worst error is raised at the end."""
    ends = []
    for ended in fill(project, pipeline, slots_between(pipeline, start, end, datetime.now(UTC)), asked):
        ends.append(ended)
        if on_slot:
            on_slot(ended)
    errors = [ended.error for ended in ends if ended.error]
    if errors:
        raise worst(errors)
    return [ended.outcome for ended in ends if ended.outcome]


def worst(errors: list[TwiceError]) -> TwiceError:
    """Return the error that says the worst about the data: unknown, then busy, then failed, then waiting."""
    order = [3, 5, 4, 2, 1]
    return min(errors, key=lambda error: (order.index(error.exit_code), isinstance(error, Waiting)))
