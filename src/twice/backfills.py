"""How are many slots filled, one after the other?

In order, each by the same function as a single run. A slot that fails does not stop independent
ones; it stops those that build on it. Published slots are skipped, so a backfill that was killed
resumes where it stood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from twice.decide import Asked
from twice.errors import Misuse, TwiceError, Waiting
from twice.execute import execute
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
    for slot in slots:
        reach("backfill.slot")
        try:
            job = project.job(pipeline, slot)
            outcome = execute(job, project.store(slot.target.store), project.ledger, asked)
        except TwiceError as error:
            yield SlotEnd(slot, error=error)
            if isinstance(error, Misuse) or pipeline.pattern.in_order:
                return
        else:
            yield SlotEnd(slot, outcome=outcome)


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
