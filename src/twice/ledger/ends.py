"""How is it written down that an attempt has ended, with all that follows from it?

The one place where the state of an attempt changes. In the transaction that says so the slot gets into trouble, if the end
is a bad one, and the runs of the pipeline are counted: so neither can differ from the attempts, wherever a process dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twice.ledger.records import BAD, OPEN, STATES
from twice.ledger.tables import Connection
from twice.ledger.tallies import count_end, note_trouble

UNDECIDED = (OPEN, "died")
"""States that a later word replaces: nothing is known, or a process was taken for dead."""


def note_end(
    db: Connection, attempt: str, state: str, facts: Mapping[str, Any], before: Sequence[str] = STATES
) -> bool:
    """Record how an attempt ended, and facts about it by column; False if it is not in one of the states `before`."""
    found = db.execute("SELECT pipeline, state, rows FROM attempts WHERE attempt=?", (attempt,)).fetchone()
    if found is None or found["state"] not in before:
        return False
    changes = {"state": state, **facts}
    names = ", ".join(f"{name}=?" for name in changes)
    db.execute(f"UPDATE attempts SET {names} WHERE attempt=?", (*changes.values(), attempt))  # noqa: S608 - our own columns
    count_end(db, found, state, facts.get("rows", found["rows"]))
    if state in BAD:
        note_trouble(db, attempt)
    return True
