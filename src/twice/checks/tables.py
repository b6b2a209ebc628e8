"""Is all there that a name stands for: the tables behind a view, the files of a table?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from twice.checks.records import ahead
from twice.checks.seen import Seen, are, named
from twice.findings import Finding
from twice.runs import Slot

if TYPE_CHECKING:
    from twice.abilities import Trouble


# What a store does not tell of its troubles; the details of a check have the same keys every time.
_UNKNOWN: Mapping[str, Mapping[str, Any]] = {"foreign": {"version": ""}, "views": {"table": "", "slots": []}}


def dropped_tables(seen: Seen, exists: Callable[[str], bool]) -> Mapping[str, list[str]]:
    """Return the tables behind a view that were published to and are not there, with their slots."""
    found: dict[str, list[str]] = {}
    for receipt in ahead(seen):
        table = seen.pipeline.pattern.table(Slot.parse(receipt.slot), seen.pipeline.zone)
        if table != seen.pipeline.target.name and not exists(table):
            found.setdefault(table, []).append(receipt.slot)
    return {table: sorted(slots) for table, slots in sorted(found.items())}


def stale_views(seen: Seen, dropped: Mapping[str, list[str]], unfilled: Iterable[str]) -> Iterator[Finding]:
    """Report tables behind a view that somebody dropped, and those that were never filled."""
    for table, slots in dropped.items():
        yield seen.wrong(
            "views",
            f"The view {seen.target} names the table {table}, which is not there."
            f" {are(slots, 'slot', 'slots')} had been published to it: {named(slots)}.",
            f"Readers do not see these rows. From the inputs again: {seen.run(slots[0], '--force')}",
            table=table,
            slots=slots,
            named=[],
        )
    known = {table.rpartition("/")[2] for table in dropped}
    for table in sorted(set(unfilled) - known) if not seen.is_at_work else ():
        yield seen.notice(
            "views",
            f"The view {seen.target} names the table {table}, which is not there: a run died before it filled it,"
            " or it was dropped and the ledger does not know.",
            f"Readers are not disturbed. Run the slots of {table} again: twice status {seen.pipeline.name}",
            table=table,
            slots=[],
            named=[],
        )


def store_troubles(seen: Seen, troubles: Iterable[Trouble]) -> Iterator[Finding]:
    """Report what only the store can see."""
    for trouble in troubles:
        tell = seen.wrong if trouble.is_wrong else seen.notice
        yield tell(
            trouble.about, trouble.what, trouble.fix, **_UNKNOWN.get(trouble.about, {}), named=list(trouble.named)
        )
