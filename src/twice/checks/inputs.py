"""Are the inputs of published slots still there?

Files that were published are often moved away, and their rows stay. Only a replay, or a correction of the code, would need them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from twice.checks.seen import Seen, named
from twice.errors import count
from twice.findings import Finding
from twice.runs import Slot


def inputs_gone(seen: Seen, gone: Mapping[Slot, str]) -> Iterator[Finding]:
    """Report published slots that could not be made again."""
    if not gone:
        return
    slots = sorted(slot.text for slot in gone)
    needed = (
        " A replay of an earlier slot does them again, and is refused." if seen.pipeline.pattern.builds_on_all else ""
    )
    yield seen.notice(
        "inputs",
        f"The inputs of {count(len(slots), 'published slot')} are gone, of {named(slots)}: {gone[Slot.parse(slots[0])]}."
        f" The rows stay as they were published.{needed}",
        "Nothing has to be done. To make them again, bring the inputs back.",
        slots=slots,
    )
