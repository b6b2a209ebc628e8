"""What do the runs of a ledger add up to, and which of them ended badly?

Every question is answered from an index, so that a ledger of a million runs answers in a blink. A slot is
in trouble if its newest attempt ended without a publish, and nothing was confirmed for it since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twice.ledger.ledger import Ledger

BAD = ("failed", "refused", "unknown", "died")
_BAD = "('failed', 'refused', 'unknown', 'died')"
_TALLIES = "SELECT pipeline, state, count(*) AS runs, sum(rows) AS rows FROM attempts GROUP BY pipeline, state"
_NEWEST = (
    "SELECT started_at, ended_at FROM attempts WHERE pipeline=? AND state='published' ORDER BY started_at DESC LIMIT 1"
)
_TROUBLES = f"""
    SELECT a.attempt, a.pipeline, a.slot, a.state, a.reason, a.started_at, a.ended_at FROM attempts a
    WHERE a.state IN {_BAD}
    AND NOT EXISTS (SELECT 1 FROM attempts b WHERE b.slot = a.slot AND b.started_at > a.started_at)
    AND NOT EXISTS (SELECT 1 FROM receipts r WHERE r.slot = a.slot AND r.confirmed_at >= a.started_at)
"""  # noqa: S608 - fixed words
_SINCE = f"""
    SELECT count(*) AS tries, min(started_at) AS since FROM attempts
    WHERE slot = ? AND state IN {_BAD}
    AND started_at > coalesce((SELECT max(started_at) FROM attempts WHERE slot = ? AND state = 'published'), '')
"""  # noqa: S608 - fixed words


@dataclass(frozen=True)
class Tally:
    """How many runs of a pipeline are in a state, and the rows that they published."""

    pipeline: str
    state: str
    runs: int
    rows: int


@dataclass(frozen=True)
class InTrouble:
    """A slot whose newest attempt ended badly."""

    attempt: str
    pipeline: str
    slot: str
    state: str
    reason: str
    started_at: str
    ended_at: str


def tallies(ledger: Ledger) -> list[Tally]:
    """Count all runs."""
    rows = ledger.query(_TALLIES)
    return [Tally(row["pipeline"], row["state"], row["runs"], row["rows"] or 0) for row in rows]


def last_success(ledger: Ledger, pipeline: str) -> tuple[str, str] | None:
    """Return when the newest run of a pipeline that published began and ended."""
    rows = ledger.query(_NEWEST, pipeline)
    return (rows[0]["started_at"], rows[0]["ended_at"]) if rows else None


def troubles(ledger: Ledger, slot: str = "") -> list[InTrouble]:
    """Return the slots that are in trouble, the newest first, or one slot if it is."""
    found = ledger.query(f"{_TROUBLES} AND a.slot = ?", slot) if slot else ledger.query(_TROUBLES)
    made = [InTrouble(*(row[name] for name in InTrouble.__dataclass_fields__)) for row in found]
    return sorted(made, key=lambda one: one.started_at, reverse=True)


def since(ledger: Ledger, slot: str) -> tuple[int, str]:
    """Return how often a slot was tried in vain since its last publish, and since when."""
    row = ledger.query(_SINCE, slot, slot)[0]
    return row["tries"], row["since"] or ""
