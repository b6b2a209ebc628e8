"""What do the runs of a ledger add up to, and which of them ended badly?

Every question is answered from an index or from a small table, so that a ledger of a million runs answers
in a blink. A slot is in trouble from an attempt that ended without a publish until something is confirmed
for it; `troubles` and `tallies` are written in the very transaction that records the one or the other. Runs that have not
ended are few, and are counted when somebody asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twice.ledger.records import DIED, OPEN, RUNNING, AttemptRecord

if TYPE_CHECKING:
    from twice.ledger.ledger import Ledger

_ALL = 1_000_000
_TALLIES = (
    "SELECT pipeline, state, runs, rows FROM tallies WHERE runs > 0 UNION ALL"
    " SELECT pipeline, state, count(*), 0 FROM attempts WHERE state='started' GROUP BY pipeline, state"
)
_COUNT = (
    "INSERT INTO tallies (pipeline, state, runs, rows) VALUES (?, ?, ?, ?) ON CONFLICT (pipeline, state)"
    " DO UPDATE SET runs=tallies.runs + excluded.runs, rows=tallies.rows + excluded.rows"
)
_COUNT_ALL = (
    "INSERT INTO tallies (pipeline, state, runs, rows) SELECT pipeline, state, count(*), coalesce(sum(rows), 0)"
    " FROM attempts WHERE state<>'started' GROUP BY pipeline, state"
)
_NEWEST = (
    "SELECT started_at, ended_at FROM attempts WHERE pipeline=? AND state='published' ORDER BY started_at DESC LIMIT 1"
)
_IN_TROUBLE = (
    "INSERT INTO troubles (slot, attempt, since, tries) SELECT slot, attempt, started_at, 1 FROM attempts WHERE attempt=?"
    " ON CONFLICT (slot) DO UPDATE SET attempt=excluded.attempt, tries=troubles.tries + 1"
)
_TROUBLES = (
    "SELECT a.attempt, a.pipeline, a.slot, a.state, a.reason, a.ended_at, t.since, t.tries"
    " FROM troubles t JOIN attempts a ON a.attempt = t.attempt"
)


def note_trouble(db: Any, attempt: str) -> None:
    """Note, in the transaction that says so, that an attempt ended badly."""
    db.execute(_IN_TROUBLE, (attempt,))


def note_well(db: Any, slot: str) -> None:
    """Note, in the transaction that says so, that a slot is well."""
    db.execute("DELETE FROM troubles WHERE slot=?", (slot,))


def count_end(db: Any, before: Any, state: str, rows: int | None) -> None:
    """Count, in the transaction that says so, that an attempt ended; `before` is what was recorded of it until then."""
    if before["state"] != OPEN:
        db.execute(_COUNT, (before["pipeline"], before["state"], -1, -(before["rows"] or 0)))
    db.execute(_COUNT, (before["pipeline"], state, 1, rows or 0))


def count_all(db: Any) -> None:
    """Count all attempts anew, where they came from elsewhere."""
    db.execute("DELETE FROM tallies")
    db.execute(_COUNT_ALL)


@dataclass(frozen=True)
class Tally:
    """How many runs of a pipeline are in a state, and the rows that they published."""

    pipeline: str
    state: str
    runs: int
    rows: int


@dataclass(frozen=True)
class InTrouble:
    """A slot in trouble: the attempt that ended last, how often it was tried since it was well, and since when."""

    attempt: str
    pipeline: str
    slot: str
    state: str
    reason: str
    ended_at: str
    since: str
    tries: int


def tallies(ledger: Ledger) -> list[Tally]:
    """Count all runs."""
    rows = ledger.query(_TALLIES)
    return [Tally(row["pipeline"], row["state"], row["runs"], row["rows"]) for row in rows]


def last_success(ledger: Ledger, pipeline: str) -> tuple[str, str] | None:
    """Return when the newest run of a pipeline that published began and ended."""
    rows = ledger.query(_NEWEST, pipeline)
    return (rows[0]["started_at"], rows[0]["ended_at"]) if rows else None


def troubles(ledger: Ledger) -> list[InTrouble]:
    """Return the slots that are in trouble, those that ended last first."""
    found = ledger.query(f"{_TROUBLES} ORDER BY a.ended_at DESC")
    return [InTrouble(*(row[name] for name in InTrouble.__dataclass_fields__)) for row in found]


def unwell(ledger: Ledger) -> tuple[list[InTrouble], list[AttemptRecord]]:
    """Return the slots that are in trouble now, and the attempts that are running.

    A slot that is being worked on is in no trouble until that ends; one whose process died is, though nothing recorded it.
    """
    found = {one.slot: one for one in troubles(ledger)}
    unfinished = ledger.attempts(state=OPEN, limit=_ALL)
    live = ledger.live_attempts() if unfinished else ()
    seen = [record.seen(live) for record in unfinished]
    for record in reversed(seen):
        if record.state == DIED and _is_last(ledger, record):
            before = found.pop(record.slot, None)
            since, tries = (before.since, before.tries + 1) if before else (record.started_at, 1)
            named = (record.attempt, record.pipeline, record.slot, DIED, record.reason, record.started_at)
            found = {record.slot: InTrouble(*named, since, tries), **found}
    running = [record for record in seen if record.state == RUNNING]
    for record in running:
        found.pop(record.slot, None)
    return list(found.values()), running


def _is_last(ledger: Ledger, record: AttemptRecord) -> bool:
    """Tell whether no later attempt worked on the slot; one that was refused did not."""
    for later in ledger.attempts(slot=record.slot):
        if later.attempt == record.attempt:
            return True
        if later.state != "refused":
            return False
    return False


def is_in_trouble(ledger: Ledger, slot: str) -> bool:
    """Tell whether a slot is."""
    return bool(ledger.query("SELECT 1 FROM troubles WHERE slot=?", slot))
