"""Which runs still owe the receiver of lineage a word?

An entry is made before START is sent, and taken away after the end was sent. It names the process that
owes it: while that lives, nobody else speaks for the run. How a dead one ended is known once the ledger
says so, or once a later attempt on its slot has ended: that one asked the store, and the ledger would say
*published* if the rows had landed. Of a process on another host the ledger's record alone decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twice.ledger.records import OPEN, Holder

if TYPE_CHECKING:
    from twice.ledger.ledger import Ledger

_INSERT = (
    "INSERT INTO untold (attempt, start_told, host, pid, process_started) VALUES (?, 0, ?, ?, ?)"
    " ON CONFLICT (attempt) DO NOTHING"
)
_CLAIM = "UPDATE untold SET host=?, pid=?, process_started=? WHERE attempt=? AND host=? AND pid=? AND process_started=?"


@dataclass(frozen=True)
class Owed:
    """A run whose end was not sent yet."""

    attempt: str
    start_told: bool
    holder: Holder


class Untold:
    """What is owed, kept in the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def owe(self, attempt: str) -> None:
        """Note that the end of a run will have to be sent."""
        me = Holder.me()
        with self._ledger.transaction() as db:
            db.execute(_INSERT, (attempt, me.host, me.pid, me.started))

    def note_start(self, attempt: str) -> None:
        """Note that its START was sent."""
        with self._ledger.transaction() as db:
            db.execute("UPDATE untold SET start_told=1 WHERE attempt=?", (attempt,))

    def settle(self, attempt: str) -> None:
        """Note that its end was sent."""
        with self._ledger.transaction() as db:
            db.execute("DELETE FROM untold WHERE attempt=?", (attempt,))

    def find(self, attempt: str) -> Owed | None:
        """Return what is owed for one run."""
        rows = self._ledger.query("SELECT * FROM untold WHERE attempt=?", attempt)
        return _owed(rows[0]) if rows else None

    def of_the_dead(self) -> list[Owed]:
        """Return what is owed by processes that are gone, oldest first."""
        rows = self._ledger.query(
            "SELECT untold.*, a.state, EXISTS (SELECT 1 FROM attempts b WHERE b.slot = a.slot"
            " AND b.started_at > a.started_at AND b.state <> 'started') AS passed"
            " FROM untold JOIN attempts a ON a.attempt = untold.attempt ORDER BY a.started_at"
        )
        me = Holder.me()
        return [
            owed for row in rows if (row["state"] != OPEN or row["passed"]) and _cannot_tell(owed := _owed(row), me)
        ]

    def claim(self, owed: Owed) -> bool:
        """Take over what a dead process owes, unless somebody else just did."""
        me, other = Holder.me(), owed.holder
        with self._ledger.transaction() as db:
            done = db.execute(_CLAIM, (me.host, me.pid, me.started, owed.attempt, other.host, other.pid, other.started))
            return bool(done.rowcount == 1)


def _cannot_tell(owed: Owed, me: Holder) -> bool:
    return owed.holder.host != me.host or owed.holder.is_dead or owed.holder == me


def _owed(row: Any) -> Owed:
    return Owed(row["attempt"], bool(row["start_told"]), Holder(row["host"], row["pid"], row["process_started"]))
