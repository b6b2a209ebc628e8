"""Does the code of a pipeline give the same rows every time, by its text and by Spark's plan for it?

The text is always looked at. For the plan the pipeline's transform has to be called, on the inputs of a
slot; that is done only if somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from twice.errors import TwiceError
from twice.lint import remarks_on_rows
from twice.runs import Run, Slot
from twice.sight import Sight

if TYPE_CHECKING:
    from datetime import datetime

    from twice.lint.rules import Remark
    from twice.pipelines import Pipeline
    from twice.project import Project

_TRIED_AT_MOST = 3


def planned_rows(project: Project, pipeline: Pipeline, now: datetime) -> Any:
    """Call the transform for the newest slot whose inputs are there; nothing is written, and lazy rows stay lazy.

    Raises:
        TwiceError: There is no such slot, or the transform failed.
    """
    failed: TwiceError | None = None
    for slot in _slots(project, pipeline, now):
        try:
            job = project.job(pipeline, slot)
            return job.rows(job.resolve(Sight()), Run(slot, 1, "check", pipeline.zone))
        except TwiceError as error:
            failed = failed or error
    raise failed or TwiceError("no slot of it is closed or published yet.")


def _slots(project: Project, pipeline: Pipeline, now: datetime) -> Sequence[Slot]:
    """Return the slots to try, newest first: published ones, else those that are closed."""
    sight = project.store(pipeline.target.store).look(pipeline.target.name)
    found = sorted(map(Slot.parse, sight.receipts), key=lambda slot: slot.part_text, reverse=True)
    if not found and pipeline.schedule:
        newest = pipeline.schedule.newest_closed(now)
        found = [Slot(pipeline.identity, pipeline.target, newest)] if newest else []
    elif not found:
        found = [Slot(pipeline.identity, pipeline.target, "")]
    return found[:_TRIED_AT_MOST]


def remarks_on_plan(project: Project, pipeline: Pipeline, now: datetime, told: Sequence[Remark]) -> Iterator[Remark]:
    """Say what Spark's plan shows besides what the text did."""
    yield from remarks_on_rows(planned_rows(project, pipeline, now), told)
