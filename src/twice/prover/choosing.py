"""Which slot is proven, and which older ones are published around it?

A slot is worth a proof if it has input. It is looked for where it is cheap to find: among the newest slots, among those that
the ledger says are published, and in the names of the files that the pipeline's patterns match. No file is opened, and no JVM
is started.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from twice import placeholders
from twice.errors import Misuse, TwiceError
from twice.intervals import Interval, Schedule
from twice.pipelines import Pipeline
from twice.project import Project
from twice.runs import Slot
from twice.sources.files import Files
from twice.sources.listing import matching

_NEIGHBOURS = 2
_NEWEST = 30
_LOOKED_AT_MOST = 400


@dataclass(frozen=True)
class Chosen:
    """The slot that is proven, up to two older ones that have input too, and how it was found."""

    slot: Slot
    neighbours: tuple[Slot, ...] = ()
    notes: tuple[str, ...] = ()


def choose_slots(project: Project, pipeline: Pipeline, at: str | datetime | None, key: str | None) -> Chosen:
    """Return the slot that was asked for, or the newest closed one that is found to have input.

    Raises:
        Misuse: No closed slot is found to have input.
    """
    now = datetime.now(UTC)
    schedule = pipeline.schedule
    if schedule is None:
        return Chosen(pipeline.slot(at, key, now=now))
    notes: tuple[str, ...] = ()
    if at is not None:
        main = pipeline.slot(at, key, now=now)
    else:
        main, notes = _with_input(project, pipeline, schedule, now)
    older = itertools.islice(_backwards(pipeline, schedule, main.interval), 1, _LOOKED_AT_MOST)
    neighbours = itertools.islice((slot for slot in older if _has_input(project, pipeline, slot)), _NEIGHBOURS)
    return Chosen(main, tuple(sorted(neighbours, key=lambda slot: slot.part_text)), notes)


def _with_input(
    project: Project, pipeline: Pipeline, schedule: Schedule, now: datetime
) -> tuple[Slot, tuple[str, ...]]:
    """Return a closed slot that has input, with a note if it is not one of the newest."""
    newest = list(itertools.islice(_backwards(pipeline, schedule, schedule.newest_closed(now)), _NEWEST))
    for slot in newest:
        if _has_input(project, pipeline, slot):
            return slot, ()
    if not newest:
        raise Misuse(f"No slot of {pipeline.name} is closed yet.", "A proof runs a closed slot many times.")
    none = f"None of the last {len(newest)} closed slots has input files"
    for find in (_published, _named_by_files):
        older = (slot for slot in find(project, pipeline, schedule) if slot.part_text < newest[-1].part_text)
        for slot in itertools.islice(older, _LOOKED_AT_MOST):
            if _has_input(project, pipeline, slot):
                return slot, (f"{none.lower()}; {slot.label} was found further back",)
    patterns = ", ".join(repr(source.pattern) for source in pipeline.files)
    raise Misuse(
        f"{none}, and no older slot of {pipeline.name} was found that has.",
        f"A proof runs a slot many times, on a copy of its input: files that match {patterns}. Nothing was run.",
        "Name a slot: --at TIME.",
    )


def _backwards(pipeline: Pipeline, schedule: Schedule, interval: Interval | None) -> Iterator[Slot]:
    """Yield slots from an interval back to the beginning of the calendar."""
    while interval is not None:
        yield Slot(pipeline.identity, pipeline.target, interval)
        if interval.start <= schedule.first:
            return
        interval = schedule.around(interval.start - timedelta(microseconds=1))


def _published(project: Project, pipeline: Pipeline, _: Schedule) -> list[Slot]:
    """Return the slots that the ledger believes to be published, newest first."""
    receipts = (receipt for receipt, _ in project.ledger.published(pipeline.target.text))
    slots = (Slot.parse(receipt.slot) for receipt in receipts)
    return _newest_first(slot for slot in slots if slot.pipeline == pipeline.identity and slot.interval)


def _named_by_files(project: Project, pipeline: Pipeline, schedule: Schedule) -> list[Slot]:
    """Return the slots whose times the names of files tell, newest first."""
    found = set()
    for source in pipeline.files:
        names = matching(str(project.root), placeholders.as_wildcards(source.pattern))
        for moment in placeholders.moments_in(source.pattern, names, pipeline.zone):
            if moment >= schedule.first and (schedule.last is None or moment < schedule.last):
                found.add(Slot(pipeline.identity, pipeline.target, schedule.around(moment)))
    return _newest_first(found)


def _newest_first(slots: Iterator[Slot] | set[Slot]) -> list[Slot]:
    return sorted(slots, key=lambda slot: slot.part_text, reverse=True)


def _has_input(project: Project, pipeline: Pipeline, slot: Slot) -> bool:
    """Tell whether there is something to read for a slot, without looking into any file."""
    place = project.place(slot, pipeline.zone, pipeline.schedule)
    files = [source for source in pipeline.sources.values() if isinstance(source, Files)]
    try:
        return all(source.counts_for(place) and not source.waiting(place) for source in files)
    except TwiceError:
        return False
