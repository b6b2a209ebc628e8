"""Does the whole table pass the tests of its pipeline?

A publish asks its own rows alone. Here all rows of the table are asked, also those from before a test was declared, and
freshness is measured back from now. How many rows a slot brought is told by its receipt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twice.checks.seen import Seen, are, named
from twice.data_tests import WARN, Answer, DataTest, RowCount, Scope, judge
from twice.findings import Finding
from twice.intervals import zone_named


def broken_tests(seen: Seen, answers: Sequence[Answer]) -> Iterator[Finding]:
    """Report the tests that the rows of a table break."""
    scope = Scope(seen.target, seen.now, zone_named(seen.pipeline.zone))
    for test, answer, why in judge(seen.pipeline.tests, answers, scope):
        yield _finding(seen, test, f"{why}.", answer.count, (), [_plain(row) for row in answer.sample])


def miscounted_slots(seen: Seen) -> Iterator[Finding]:
    """Report slots that brought less or more rows than they should; what an ingest took in is no slot."""
    counts = [test for test in seen.pipeline.tests if isinstance(test, RowCount)]
    for test in counts if not seen.pipeline.pattern.takes_in else ():
        slots = [slot.text for slot, receipt in seen.published.items() if not test.allows(receipt.rows)]
        if slots:
            what = f"{test.text}: {are(slots, 'slot has', 'slots have')} other numbers of rows: {named(slots)}."
            yield _finding(seen, test, what, 0, slots, [])


def _finding(
    seen: Seen, test: DataTest, what: str, rows: int, slots: Sequence[str], sample: Sequence[Mapping[str, Any]]
) -> Finding:
    tell = seen.notice if test.severity == WARN else seen.wrong
    remedy = f"Correct the inputs or the transform, and run the slots again; see which are published: twice status {seen.pipeline.name}"
    return tell("tests", what, remedy, test=test.text, rows=rows, slots=list(slots), sample=list(sample))


def _plain(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value if isinstance(value, str | int | bool | None) else str(value) for name, value in row.items()}
