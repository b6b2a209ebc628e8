"""Can every slot still be done again from the state before it?

A slot of an order-dependent pattern starts from an older version of the table. Such a version is kept
for the pattern's `keep_days` after the next one took its place. When it is gone, an older one serves
and the slots between are done again from their inputs, which have to be there and be the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from twice.checks.seen import Seen, are, named
from twice.findings import Finding
from twice.replays import published
from twice.runs import Slot
from twice.sight import NO_TABLE, Past, Sight, State

_WARNED_DAYS = 7.0
_WARNED_SHARE = 0.1
# Delta's readers, and Twice, take a version for gone a little before its time.
_SAFE_SHARE = 0.95


@dataclass(frozen=True)
class _Start:
    """The version from which one slot would be done again, until when it is kept, and why it is lost."""

    slot: str
    version: int
    until: datetime | None
    lost: str = ""


def starting_versions(seen: Seen, past: Past) -> Iterator[Finding]:
    """Report versions that a backfill would start from and that are gone, or soon will be."""
    keep_days = seen.pipeline.pattern.keep_days
    if not keep_days or seen.pipeline.pattern.keeps_history or seen.sight.pending:
        return
    slots = published(seen.sight, forced=False)
    states = [state for state in past.states if state.version != NO_TABLE]
    starts = list(_starts(seen.sight, slots, states, past, keep_days))
    too_soon = [start for start in starts if start.lost and (start.until is None or start.until > seen.now)]
    if too_soon:
        yield _lost(seen, too_soon, keep_days)
    soon = seen.now + timedelta(days=min(_WARNED_DAYS, keep_days * _WARNED_SHARE))
    expiring = [start for start in starts if not start.lost and start.until and start.until <= soon]
    if expiring:
        yield _expiring(seen, expiring, keep_days)
    lacking = [start.slot for start in starts if start.lost and start not in too_soon]
    lacking += _without_version(seen.sight, slots, {start.slot for start in starts})
    if lacking:
        yield _past_keeping(seen, sorted(lacking), keep_days)


def _starts(
    sight: Sight, slots: Sequence[Slot], states: Sequence[State], past: Past, keep_days: int
) -> Iterator[_Start]:
    """Find for each slot the newest version that holds all earlier slots and nothing else.

    The first slot starts from an empty table, which is never lost, or from rows that were there before it.
    """
    found: dict[int, _Start] = {}
    followed_at: datetime | None = None
    for state in states:
        count = _first_slots(state, slots, sight)
        if count is not None and count < len(slots) and (count not in found or found[count].lost):
            until = followed_at + timedelta(days=keep_days * _SAFE_SHARE) if followed_at else None
            start = _Start(slots[count].text, state.version, until, past.lost(state.version))
            if count not in found or not start.lost:
                found[count] = start
        followed_at = _made_at(state, sight)
    yield from (found[count] for count in sorted(found))


def _first_slots(state: State, slots: Sequence[Slot], sight: Sight) -> int | None:
    """Return how many of the first slots a version holds, or None if it holds anything else."""
    count = len(state.holds)
    is_current = state.known and all(sight.fence(slot) == generation for slot, generation in state.holds.items())
    return count if is_current and {slot.text for slot in slots[:count]} == set(state.holds) else None


def _made_at(state: State, sight: Sight) -> datetime | None:
    """Return when a version was made: by the store, or by the receipts that it brought."""
    noted = (receipt.published_at for receipt in sight.receipts.values() if receipt.first_version == state.version)
    text = state.made_at or next(noted, "")
    return datetime.fromisoformat(text) if text else None


def _without_version(sight: Sight, slots: Sequence[Slot], known: set[str]) -> list[str]:
    """Return the slots that were published after the one before them, while no version tells of the state between."""
    pairs = itertools.pairwise(slots)
    return [slot.text for before, slot in pairs if slot.text not in known and _are_apart(sight, before, slot)]


def _are_apart(sight: Sight, one: Slot, other: Slot) -> bool:
    receipts = sight.receipts[one.text], sight.receipts[other.text]
    first, second = (receipt.first_version for receipt in receipts)
    return first is not None and second is not None and NO_TABLE < first < second


def _lost(seen: Seen, starts: Sequence[_Start], keep_days: int) -> Finding:
    reasons = "; ".join(dict.fromkeys(f"version {start.version}: {start.lost}" for start in starts[:3]))
    slots = [start.slot for start in starts]
    return seen.wrong(
        "versions",
        f"{are(starts, 'version that', 'versions that')} a backfill would start from cannot be read,"
        f" although keep_days={keep_days}: {reasons}. It is about {named(slots)}.",
        f"Keep the inputs of all earlier slots: a backfill does those between again."
        f" See: twice backfill {seen.pipeline.name} --from {Slot.parse(slots[0]).label} --to TIME --dry-run",
        state="lost",
        slots=slots,
        versions=[start.version for start in starts],
        until="",
    )


def _expiring(seen: Seen, starts: Sequence[_Start], keep_days: int) -> Finding:
    slots = [start.slot for start in starts]
    first = min(start.until for start in starts if start.until)
    return seen.notice(
        "versions",
        f"{are(starts, 'version that', 'versions that')} a backfill would start from will be gone from"
        f" {first:%Y-%m-%d} on (keep_days={keep_days}). It is about {named(slots)}.",
        "If these slots may have to be done again, do it before, raise keep_days=, or keep the inputs of all slots.",
        state="expiring",
        slots=slots,
        versions=[start.version for start in starts],
        until=first.isoformat(timespec="seconds"),
    )


def _past_keeping(seen: Seen, slots: Iterable[str], keep_days: int) -> Finding:
    chosen = list(slots)
    return seen.notice(
        "versions",
        f"The versions from before {are(chosen, 'slot', 'slots')} are past their keeping (keep_days={keep_days}):"
        f" {named(chosen)}.",
        "A backfill of them starts from an older version or from an empty table, and needs the inputs of all slots"
        " in between.",
        state="gone",
        slots=chosen,
        versions=[],
        until="",
    )
