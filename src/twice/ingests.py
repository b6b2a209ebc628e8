"""What has a target taken in, and what is kept of it with the next publish?

The marks of files are kept beside the table before the publish, and the receipt names them. What is true if the process dies:

    before the marks are kept      nothing is kept, nothing is visible
    before the publish             marks that no receipt names: they never count, and `twice tidy` removes them
    after the publish              rows and marks are there together, whether or not anybody was told

Two at once: each keeps marks of its own, and the publish, which compares the slot's fence and the head, lets one receipt through.
The ledger is told what becomes of each file, for people. Nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from twice.abilities import KeepsBeside, KeepsVersions, Leaving, Store
from twice.errors import BadFile, NotPublished
from twice.faults import reach
from twice.fingerprint import Inputs
from twice.keeping import keep_body
from twice.ledger import Ledger
from twice.ledger import files as records
from twice.marks import CLAIMED, FAILED, PUBLISHED, SEEN, Mark, Taken
from twice.runs import Receipt, Slot
from twice.sight import Sight
from twice.sources.intake import Intake

_ALL = 10**9


def intake_of(inputs: Mapping[str, Inputs]) -> Intake | None:
    """Return what a run takes in, if it is one of an ingest."""
    return next((chosen for chosen in inputs.values() if isinstance(chosen, Intake)), None)


def taken_in(store: Store, table: str, slot: str, sight: Sight) -> Taken:
    """Return the marks of what the table holds now: after a restore, those of the version that is there again."""
    receipt = sight.receipt(slot)
    if receipt is None or not isinstance(store, KeepsBeside) or slot in sight.gone:
        return Taken(lambda _: None)
    newest = Taken(partial(store.beside, table), receipt.marks)
    if slot not in sight.ended or not isinstance(store, KeepsVersions):
        return newest
    there = next(iter(store.past(table).states), None)
    held = there.holds.get(slot) if there else None
    return newest.at_generation(held) if held else Taken(lambda _: None)


def leaving(intake: Intake | None) -> Leaving | None:
    """Return the rows of files that are taken in anew."""
    if intake is None or not intake.leaving:
        return None
    return Leaving(str(intake.source.files.file_column), intake.leaving)


def with_marks(store: Any, table: str, intake: Intake, receipt: Receipt, before: Receipt | None) -> Receipt:
    """Keep what the target will have taken in beside the table, and name it in the receipt.

    Raises:
        NotPublished: It could not be kept.
    """
    rows = intake.files.counts()
    made = [_made(mark, rows, receipt.generation) for mark in intake.marks] + _grown(intake)
    aside = (*(one for one in intake.taken.aside if one.label not in intake.replayed), *receipt.aside)
    previous, column = before.marks if before else "", intake.source.files.file_column or ""
    label, body = intake.taken.adding(made, receipt.generation, receipt.attempt, previous, aside, column)
    keep_body(store, table, label, body, "The marks of the files")
    reach("marks.kept")
    counted = None if None in rows.values() else sum(filter(None, rows.values()))
    parsed = counted if receipt.parsed is None else receipt.parsed
    return replace(receipt, marks=label, parsed=parsed, aside=aside)


def _made(mark: Mark, rows: Mapping[str, int | None], generation: int) -> Mark:
    """Complete a mark; one of a file whose rows stay keeps the generation that brought them."""
    if mark.path in rows:
        return replace(mark, rows=rows[mark.path], generation=generation)
    return mark if mark.is_there and mark.generation else replace(mark, generation=generation)


def _grown(intake: Intake) -> list[Mark]:
    """Return the marks of files of which rows are taken in that were set aside."""
    sifted = intake.files.sifted
    if not intake.replayed or sifted is None:
        return []
    handed = {path: rows.handed for path, rows in sifted.files.items() if rows.handed}
    known = intake.taken.by_path(handed).values()
    return [replace(mark, rows=mark.rows + handed[mark.path]) for mark in known if mark.rows is not None]


def note_claim(ledger: Ledger, slot: Slot, intake: Intake, attempt: str) -> None:
    """Tell the ledger which files an attempt works on, and which it leaves for later."""
    catch_up(ledger, slot, intake.taken)
    claimed = [replace(mark, state=CLAIMED) for mark in intake.marks if mark.state == PUBLISHED]
    _note(ledger, slot, [*claimed, *_left(intake)], attempt)


def note_left(ledger: Ledger, slot: Slot, intake: Intake | None) -> None:
    """Tell the ledger which files a run leaves for later that has nothing to publish."""
    if intake:
        _note(ledger, slot, list(_left(intake)), "")


def note_end(ledger: Ledger, slot: Slot, intake: Intake, attempt: str, state: str, reason: str) -> None:
    """Tell the ledger that an attempt ended without a publish of its own: its files are as they were before."""
    left = FAILED if state == "failed" else SEEN
    why = reason.partition("\n")[0]
    marks = [replace(mark, state=left, reason=why, rows=None) for mark in intake.marks if mark.state == PUBLISHED]
    _note(ledger, slot, marks, attempt)


def note_bad_file(ledger: Ledger, slot: Slot, error: BadFile) -> None:
    """Tell the ledger of a file for which a run could not even be planned."""
    if error.path:
        _note(ledger, slot, [Mark(error.path, 0, 0, "", None, 0, FAILED, error.what)], "")


def catch_up(ledger: Ledger, slot: Slot, taken: Taken) -> None:
    """Tell the ledger what the table says of the files that somebody was at."""
    with suppress(NotPublished):
        open_ones = [
            record.path
            for state in (CLAIMED, FAILED)
            for record in records.files(ledger, slot.target.text, state, limit=_ALL)
        ]
        _note(ledger, slot, list(taken.by_path(open_ones).values()), "")


def _note(ledger: Ledger, slot: Slot, marks: Sequence[Mark], attempt: str) -> None:
    """What the ledger cannot record now, a later run lets it know."""
    if marks:
        with suppress(NotPublished):
            records.note(ledger, slot, marks, attempt, datetime.now(UTC).isoformat(timespec="seconds"))


def _left(intake: Intake) -> Iterator[Mark]:
    """Return a mark of each file that waits, or is known under another name."""
    for path, why in intake.waiting.items():
        yield Mark(path, 0, 0, "", None, 0, SEEN, why)
    for path, other in intake.copies.items():
        yield Mark(path, 0, 0, "", None, 0, SEEN, f"has the content of {other}")
