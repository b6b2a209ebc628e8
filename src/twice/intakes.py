"""What may a person ask of an ingest: which files it took in, to forget one, to read rows again that were set aside?

What the table says of a file comes first; the ledger adds those that nothing was published of. Whatever changes what was taken in is a
publish like any other: a new generation of the one slot, under the same rules, in the same list of runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any

from twice.abilities import KeepsBeside, KeepsVersions
from twice.asides import AsideRow
from twice.decide import Asked
from twice.errors import Misuse
from twice.execute import execute
from twice.faults import reach
from twice.fingerprint import Place
from twice.ingests import taken_in
from twice.jobs import Outcome
from twice.ledger import files as records
from twice.marks import FORGOTTEN, GONE, PUBLISHED, SUPERSEDED, Mark, Taken
from twice.pipelines import Pipeline
from twice.project import Project
from twice.quarantine import rows_of
from twice.retrying import fill_slot
from twice.runs import Aside, Slot
from twice.sight import Sight
from twice.sources.intake import Intake
from twice.sources.tracked import Tracked

_EDITIONS_SEARCHED = 1000
_ALL = 10**9
_SECONDS_A_DAY = 86_400


def tracked_of(pipeline: Pipeline) -> Tracked:
    """Return the source whose files a pipeline takes in.

    Raises:
        Misuse: It has none.
    """
    if pipeline.tracked is None:
        raise Misuse(
            f"The pipeline {pipeline.name!r} does not track files.",
            fix="Declare its source with twice.files(..., track=True).",
        )
    return pipeline.tracked


def taken_by(project: Project, pipeline: Pipeline) -> Taken:
    """Return what the target of a pipeline has taken in."""
    tracked_of(pipeline)
    store, target = project.store(pipeline.target.store), pipeline.target
    return taken_in(store, target.name, pipeline.slot().text, store.look(target.name))


def files_of(project: Project, pipeline: Pipeline) -> Iterator[Mark]:
    """Return what is known of each file: from the table, and of those that are not in it from the ledger."""
    told = set()
    for mark in taken_by(project, pipeline).all():
        if mark.state != FORGOTTEN:
            told.add(mark.path)
            yield replace(mark, state=GONE) if mark.state == PUBLISHED and _is_gone(project, mark.path) else mark
    for record in records.files(project.ledger, pipeline.target.text, limit=_ALL):
        if record.path not in told and record.state not in (PUBLISHED, FORGOTTEN):
            yield Mark(
                record.path,
                record.size,
                record.mtime_ns,
                record.content,
                record.rows,
                record.generation,
                GONE if _is_gone(project, record.path) else record.state,
                record.reason,
            )


def _is_gone(project: Project, path: str) -> bool:
    return not os.path.lexists(os.path.join(str(project.root), path))


def history_of(project: Project, pipeline: Pipeline, path: str) -> Iterator[Mark]:
    """Return the older editions of a file that the table took in, newest first."""
    taken = taken_by(project, pipeline)
    newest = taken.by_path([path]).get(path)
    seen = {(newest.generation, newest.state)} if newest else set()
    for generation, _ in islice(taken.history(), _EDITIONS_SEARCHED):
        mark = taken.at_generation(generation).by_path([path]).get(path)
        if mark is None:
            return
        if (mark.generation, mark.state) not in seen:
            seen.add((mark.generation, mark.state))
            yield replace(mark, state=SUPERSEDED) if mark.state == PUBLISHED else mark


def forget(project: Project, pipeline: Pipeline, paths: Sequence[str]) -> Outcome:
    """Take files for unknown from now on; the next run takes in what is there under their names."""
    tracked = tracked_of(pipeline)
    return _published(project, pipeline, lambda place: tracked.forgetting(place, paths))


def replay(project: Project, pipeline: Pipeline, slot: Slot) -> Outcome:
    """Read rows again that were set aside, in a new generation of their slot.

    An ingest reads what was kept of them; any other slot is done again from its inputs, and its rows are replaced or applied once more.
    """
    tracked = pipeline.tracked
    if tracked is None:
        return fill_slot(project, pipeline, slot, Asked(force=True))
    store, target = project.store(pipeline.target.store), pipeline.target

    def intake(place: Place) -> Intake:
        taken = place.taken()
        held = {one: list(rows_of(store, target.name, [one])) for one in taken.aside}
        if not any(held.values()):
            raise Misuse(f"No row of {pipeline.name} is set aside.", fix="See: twice quarantine list")
        rows = [row for one, found in held.items() for row in due(taken, one, found)]
        return tracked.replaying(place, rows, [one.label for one in held])

    return _published(project, pipeline, intake)


def due(taken: Taken, aside: Aside, rows: Sequence[AsideRow]) -> list[AsideRow]:
    """Return rows of what their files hold still; those of a file that was taken in anew since were judged anew with it."""
    marks = taken.by_path({row.file for row in rows})
    return [row for row in rows if row.file not in marks or marks[row.file].generation <= aside.generation]


def note_all(project: Project, pipeline: Pipeline) -> int:
    """Tell the ledger of all files that the table knows, after the ledger was lost; return how many they are."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return records.replace_all(project.ledger, pipeline.slot(), taken_by(project, pipeline).all(), "", at)


def sweep_beside(project: Project, pipeline: Pipeline, *, keep_days: float, dry_run: bool) -> tuple[int, int]:
    """Remove what is kept beside a table and counts for no version of it any more; return how many bodies, and their bytes.

    What an attempt that lives has kept, and what is younger than the keeping, stays.
    """
    store, name = project.store(pipeline.target.store), pipeline.target.name
    if not isinstance(store, KeepsBeside):
        return (0, 0)
    before = time.time() - keep_days * _SECONDS_A_DAY
    old = {label for label, kept_at in store.labels_beside(name).items() if kept_at < before}
    live = project.ledger.live_attempts()
    doomed = sorted(label for label in old - _counting(store, name) if not any(attempt in label for attempt in live))
    size = sum(len(store.beside(name, label) or b"") for label in doomed)
    if doomed and not dry_run:
        reach("beside.sweep")
        store.drop_beside(name, doomed)
    return len(doomed), size


def _counting(store: Any, name: str) -> set[str]:
    """Return the labels of all bodies that a receipt names, now or in a version that can be restored."""
    sight = store.look(name)
    labels = {one.label for receipt in sight.receipts.values() for one in receipt.aside}
    states = list(store.past(name).states) if isinstance(store, KeepsVersions) else []
    for slot, receipt in sight.receipts.items():
        if not receipt.marks:
            continue
        newest = Taken(partial(store.beside, name), receipt.marks)
        held = {receipt.generation, *(state.holds[slot] for state in states if slot in state.holds)}
        for generation, label in newest.history():
            labels.add(label)
            if generation in held:
                taken = newest.at_generation(generation)
                labels |= {*taken.labels, *(one.label for one in taken.aside)}
            if generation <= min(held):
                break
    return labels


def _published(project: Project, pipeline: Pipeline, intake: Callable[[Place], Intake]) -> Outcome:
    """Publish a new generation that takes in something else than new files."""
    slot = pipeline.slot()
    name = next(name for name, source in pipeline.sources.items() if isinstance(source, Tracked))
    job = project.job(pipeline, slot)

    def resolve(sight: Sight) -> dict[str, Intake]:
        return {name: intake(project.place(slot, pipeline.zone, None, sight))}

    return execute(replace(job, resolve=resolve), project.store(slot.target.store), project.ledger, Asked())
