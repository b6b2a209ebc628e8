"""Are the rows of every published slot still vouched for, and did a stranger change the table?

The fence of a slot says that it was published. Its proof says that the rows are there. Where the
first stands without the second, somebody took the rows away, put others in their place, or restored
the table. A slot that a newer one of the same pipeline replaced is as it should be.
"""

from __future__ import annotations

from collections.abc import Iterator

from twice.checks.seen import Seen, are, named
from twice.findings import Finding
from twice.runs import Slot
from twice.sight import POINTS_AT, REPLACED, State


def ended_proofs(seen: Seen) -> Iterator[Finding]:
    """Report slots that were published and are no longer vouched for, by the reason."""
    reasons: dict[str, list[str]] = {}
    for slot, why in seen.sight.ended.items():
        if slot not in seen.accepted and not _is_replaced(seen, slot, why):
            reasons.setdefault(why, []).append(slot)
    for why, slots in reasons.items():
        yield _ended(seen, why, sorted(slots))


def _is_replaced(seen: Seen, slot: str, why: str) -> bool:
    """Tell whether a newer slot took the table over, as a pattern does that keeps the newest only."""
    if not why.startswith(REPLACED):
        return False
    own = Slot.parse(slot).interval
    proven = [Slot.parse(other).interval for other in seen.sight.receipts if seen.sight.proof(other)]
    return own is None or any(other and other.start > own.start for other in proven)


def _ended(seen: Seen, why: str, slots: list[str]) -> Finding:
    gone = [slot for slot in slots if slot in seen.sight.gone]
    details = {"slots": slots, "reason": why, "gone": gone, "outside": seen.sight.outside}
    shown = f"{are(slots, 'slot is', 'slots are')} no longer vouched for: {named(slots)}. {why[:1].upper()}{why[1:]}."
    first = slots[0]
    if why.startswith(POINTS_AT):
        return seen.notice(
            "proofs", shown, f"To see what there is to point at: twice versions {seen.target}", **details
        )
    if why.startswith(REPLACED):
        return seen.notice(
            "proofs", shown, f"An older slot was published over newer ones: {seen.run(first, '--force')}", **details
        )
    force = f"From its inputs again: {seen.run(first, '--force')}"
    if gone:
        return seen.wrong("proofs", shown, f"{force}. Their rows are not in the table.", **details)
    return seen.wrong(
        "proofs", shown, f"{force}. To leave the rows as they are: {seen.run(first, '--accept')}", **details
    )


def foreign_changes(seen: Seen, newest: State | None) -> Iterator[Finding]:
    """Report a change by others that is still in the table, although no proof has ended by it."""
    if seen.sight.filled and not seen.sight.owner:
        yield seen.notice(
            "foreign",
            f"{seen.target} holds rows that Twice did not write.",
            f"A run refuses until they are taken over: twice adopt {seen.target}",
            version="",
            named=[],
        )
    outside = newest.outside if newest else ""
    told = set(seen.sight.ended) - seen.sight.gone
    if outside and not told:
        yield seen.notice(
            "foreign",
            f"{outside[:1].upper()}{outside[1:]} was made by others and changed rows."
            " The slots were published again since; rows of no slot may still be in the table.",
            f"See what changed: twice versions {seen.target}, then twice diff {seen.target}",
            version=outside,
            named=[],
        )
