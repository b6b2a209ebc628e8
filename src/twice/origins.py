"""Which file, and which run, did a row come from?

Rows of an ingest carry their file where the source has a `file_column`, and rows of a transactional writer their slot where it has a
`lineage`. The rest is known from the marks and the receipts, which are in the table's own commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twice.abilities import FindsRows
from twice.errors import Misuse
from twice.intakes import taken_by
from twice.pipelines import Pipeline
from twice.project import Project

_MOST_ROWS = 20


@dataclass(frozen=True)
class Origin:
    """Where one row came from; what is not known is empty."""

    row: Mapping[str, Any]
    file: str = ""
    content: str = ""
    slot: str = ""
    generation: int = 0
    run: str = ""


def origins_of(project: Project, pipeline: Pipeline, values: Mapping[str, str]) -> list[Origin]:
    """Return where the rows came from in which these columns hold these values.

    Raises:
        Misuse: The rows do not carry where they came from, or the store cannot search them.
    """
    column = pipeline.tracked.files.file_column if pipeline.tracked else getattr(pipeline.pattern, "lineage", None)
    store = project.store(pipeline.target.store)
    if not column:
        raise Misuse(
            f"The rows of {pipeline.target.text} do not carry where they came from.",
            fix="Declare file_column= of twice.files with track=True, or lineage= of transactional_writer; rows that come from then on have it.",
        )
    if not isinstance(store, FindsRows):
        raise Misuse(f"Rows of the store {pipeline.target.store!r} cannot be looked for.")
    rows = store.rows_with(pipeline.target.name, values, _MOST_ROWS)
    if any(column not in row for row in rows):
        raise Misuse(
            f"The rows of {pipeline.target.text} have no column {column!r}, which would tell where they came from.",
            fix="Keep it in the transform; rows that come from then on have it.",
        )
    known = _of_files if pipeline.tracked else _of_slots
    return known(project, pipeline, rows, column)


def _of_files(project: Project, pipeline: Pipeline, rows: list[dict[str, Any]], column: str) -> list[Origin]:
    taken = taken_by(project, pipeline)
    marks = taken.by_path({str(row[column]) for row in rows if row.get(column)})
    slot = pipeline.slot().text
    found = []
    for row in rows:
        mark = marks.get(str(row.get(column)))
        run = taken.at_generation(mark.generation).attempt if mark else ""
        origin = (mark.content, slot, mark.generation, run) if mark else ("", "", 0, "")
        found.append(Origin(_told(row), str(row.get(column) or ""), *origin))
    return found


def _of_slots(project: Project, pipeline: Pipeline, rows: list[dict[str, Any]], column: str) -> list[Origin]:
    receipts = project.store(pipeline.target.store).look(pipeline.target.name).receipts
    found = []
    for row in rows:
        receipt = receipts.get(str(row.get(column)))
        known = (receipt.generation, receipt.attempt) if receipt else (0, "")
        found.append(Origin(_told(row), "", "", str(row.get(column) or ""), *known))
    return found


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as JSON can tell it."""
    plain = (str, int, float, bool, type(None))
    return {name: value if isinstance(value, plain) else str(value) for name, value in row.items()}
