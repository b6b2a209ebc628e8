"""Is every key in the table once?

Asked where a pattern promises it: the patterns that merge by key, and the one that inserts what is
missing. Where that one looks back no further than a window, a key may come again after it; then the
key and its time together are in the table once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twice.checks.seen import Seen
from twice.findings import Finding
from twice.patterns.dedup_insert import DedupInsert
from twice.runs import Slot

if TYPE_CHECKING:
    from twice.abilities import Repeated, Repeats
    from twice.plans import Pattern

SAMPLE = 5
_FILES_NAMED = 3


def unique_columns(pattern: Pattern) -> tuple[str, ...]:
    """Return the columns of which no two rows have the same values, or nothing if the pattern promises none."""
    rule = getattr(pattern, "rule", None)
    if rule is None:
        return ()
    if isinstance(pattern, DedupInsert) and pattern.on:
        return tuple(dict.fromkeys((*rule.keys, pattern.on)))
    return tuple(rule.keys)


def duplicates(seen: Seen, columns: Sequence[str], found: Repeats) -> Iterator[Finding]:
    """Report keys that several rows share, with a sample, and with what brought them."""
    if not found.keys:
        return
    shown = "; ".join(map(_text, found.sample))
    more = f" and {found.keys - len(found.sample)} more" if found.keys > len(found.sample) else ""
    slots = sorted({slot for one in found.sample for slot in one.slots})
    yield seen.wrong(
        "duplicates",
        f"{found.keys:,} {'key is' if found.keys == 1 else 'keys are'} in several rows of {seen.target}"
        f" (by {', '.join(columns)}): {shown}{more}.",
        _remedy(seen, slots),
        keys=found.keys,
        rows=found.rows,
        columns=list(columns),
        slots=slots,
        sample=[_plain(one) for one in found.sample],
    )


def _remedy(seen: Seen, slots: Sequence[str]) -> str:
    brought = slots or sorted(seen.sight.receipts)
    accept = f" and accept that: {seen.run(brought[0], '--accept')}" if brought else ""
    return (
        f"See how they came: twice versions {seen.target}. Then go back to a version without them"
        f" (twice restore {seen.target} VERSION), or remove the rows that are too many by hand{accept}"
    )


def _text(one: Repeated) -> str:
    key = ", ".join(f"{name}={value!r}" for name, value in one.key.items())
    brought = [*(Slot.parse(slot).label for slot in one.slots), *one.strangers] or list(one.files[:_FILES_NAMED])
    return f"{key} in {one.rows} rows" + (f", brought by {', '.join(brought)}" if brought else "")


def _plain(one: Repeated) -> Mapping[str, Any]:
    key = {name: value if isinstance(value, str | int | bool) else str(value) for name, value in one.key.items()}
    return {
        "key": key,
        "rows": one.rows,
        "slots": list(one.slots),
        "files": list(one.files),
        "strangers": list(one.strangers),
    }
