"""Which runs are to be tried again, when, and which were set aside?

One row for a slot whose last run did not end well: *due* at a time, or *dead*, set aside after its last try. It holds what
the first try was asked for, so that nothing is computed anew from the time of the retry. A slot that ends well has no row.

Each function is one transaction. A retry is *taken* under a lease on the slot's row, which ends with its holder. What is
true if the process dies:

    before the take      the row is as it was: due
    after it             the row is due, one try poorer: whoever crashes on every try is set aside in the end
    after the publish    the row is due; the next retry finds the receipt, skips, and removes the row
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from twice.faults import reach
from twice.ledger.ends import note_end
from twice.ledger.ledger import Ledger
from twice.ledger.records import OPEN, AttemptRecord
from twice.runs import Slot

DUE, DEAD = "due", "dead"
_HOUR = timedelta(hours=1)
_ALL = 1_000_000


@dataclass(frozen=True)
class Again:
    """A run that did not end well: what it was asked, how often it was tried, and when it is due.

    `generation` is the edition that it was to publish, 0 while it never came so far. `asked` and `parameters` are
    JSON. `kind` is the type of its last error.
    """

    slot: str
    pipeline: str
    target: str
    state: str
    tries: int
    generation: int
    asked: str
    parameters: str
    kind: str
    error: str
    first_failed_at: str
    last_failed_at: str
    due_at: str

    @property
    def is_dead(self) -> bool:
        """Tell whether it was set aside."""
        return self.state == DEAD

    @property
    def is_forced(self) -> bool:
        """Tell whether another edition was asked for although nothing changed."""
        return bool(json.loads(self.asked)["force"])

    def is_settled_by(self, generation: int) -> bool:
        """Tell whether a published edition is what was asked for: of a forced run, its own or a later one."""
        return not self.is_forced or 0 < self.generation <= generation

    def is_due(self, now: datetime) -> bool:
        """Tell whether its time has come."""
        return self.state == DUE and self.due_at <= moment_text(now)


def moment_text(moment: datetime) -> str:
    """Write a moment so that texts compare like times."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def find(ledger: Ledger, slot: str) -> Again | None:
    """Return the row of a slot, if its last run did not end well."""
    found = ledger.query("SELECT * FROM retries WHERE slot=?", slot)
    return _again(found[0]) if found else None


def of_target(ledger: Ledger, target: str) -> list[Again]:
    """Return all rows of a target, oldest slot first."""
    return _sorted(ledger.query("SELECT * FROM retries WHERE target=?", target))


def every(ledger: Ledger) -> list[Again]:
    """Return all rows, by pipeline, oldest slot first."""
    return _sorted(ledger.query("SELECT * FROM retries"))


def note(ledger: Ledger, slot: str, judge: Callable[[Again | None], Again]) -> Again:
    """Record that a run did not end well; what that means follows from the row that was there."""
    with ledger.transaction() as db:
        found = db.execute("SELECT * FROM retries WHERE slot=?", (slot,)).fetchone()
        row = judge(_again(found) if found else None)
        _keep(db, row)
    reach("retry.noted")
    return row


def ended_well(ledger: Ledger, generations: Mapping[str, int]) -> None:
    """Forget the rows of slots that are published; mostly there are none, and then nothing is written.

    A run that was forced stays due until its edition is there: that an older one is fine is not what was asked.
    """
    rows = [row for slot in generations if (row := find(ledger, slot))]
    known = [row.slot for row in rows if row.is_settled_by(generations[row.slot])]
    if known:
        reach("retry.ended.well")
        with ledger.transaction() as db:
            for slot in known:
                db.execute("DELETE FROM retries WHERE slot=?", (slot,))


def take(ledger: Ledger, row: Again, now: datetime, per_hour: int) -> Again | None:
    """Count a try and spend of the budget, in one step; None if the row is not due any more, or the budget is used up.

    Called under the lease of `lease_name`.
    """
    with ledger.transaction() as db:
        found = db.execute("SELECT * FROM retries WHERE slot=?", (row.slot,)).fetchone()
        if not found or not _again(found).is_due(now) or not _spend(db, row.slot, now, per_hour):
            return None
        db.execute(
            "UPDATE retries SET tries=tries+1, generation=? WHERE slot=?",
            (found["generation"] or row.generation, row.slot),
        )
        return _again(db.execute("SELECT * FROM retries WHERE slot=?", (row.slot,)).fetchone())


def give_back(ledger: Ledger, taken: Again) -> None:
    """Take a try back that was counted and interrupted, unless the row has moved on since."""
    with ledger.transaction() as db:
        db.execute(
            "UPDATE retries SET tries=tries-1 WHERE slot=? AND state=? AND tries=?", (taken.slot, DUE, taken.tries)
        )


def spend(ledger: Ledger, slot: str, now: datetime, per_hour: int) -> bool:
    """Spend one retry of the project's budget, if there is one left."""
    with ledger.transaction() as db:
        return _spend(db, slot, now, per_hour)


def spent(ledger: Ledger, now: datetime) -> int:
    """Count the retries of the last hour."""
    rows = ledger.query("SELECT count(*) AS n FROM retries_taken WHERE taken_at>?", moment_text(now - _HOUR))
    return int(rows[0]["n"])


def requeue(ledger: Ledger, slot: str, now: datetime) -> bool:
    """Make a run that was set aside due at once, with all its tries before it; False if there is none."""
    with ledger.transaction() as db:
        done = db.execute(
            "UPDATE retries SET state=?, tries=0, first_failed_at=?, due_at=? WHERE slot=? AND state=?",
            (DUE, moment_text(now), moment_text(now), slot, DEAD),
        )
        return bool(done.rowcount)


def drop(ledger: Ledger, slot: str) -> bool:
    """Forget a run that was set aside; False if there is none. Its attempts stay in the ledger."""
    with ledger.transaction() as db:
        return bool(db.execute("DELETE FROM retries WHERE slot=? AND state=?", (slot, DEAD)).rowcount)


def died(ledger: Ledger, slot: str = "") -> list[AttemptRecord]:
    """Return the newest attempts on their slots, or on one, that were begun, have no end, and whose process is gone."""
    found = ledger.attempts(slot=slot, state=OPEN, limit=_ALL)
    live = ledger.live_attempts() if found else ()
    begun = [record for record in found if record.attempt not in live]
    newest = {record.slot: ledger.newest_attempt(record.slot) for record in begun}
    return [record for record in begun if newest[record.slot] == record]


def enlist(ledger: Ledger, record: AttemptRecord, row: Again) -> None:
    """Make a run due whose process died, and let its attempt say so, in one step.

    A slot that had a row keeps it, with what its newest attempt was asked for: somebody ran it by name meanwhile.
    """
    with ledger.transaction() as db:
        ended = {"reason": row.error, "ended_at": row.last_failed_at}
        if note_end(db, record.attempt, "died", ended, (OPEN,)):
            found = db.execute("SELECT * FROM retries WHERE slot=?", (row.slot,)).fetchone()
            if not found:
                _keep(db, row)
            elif record.asked:
                _keep(db, _asked_anew(_again(found), row))
    reach("retry.enlisted")


def _asked_anew(row: Again, new: Again) -> Again:
    return replace(row, asked=new.asked, parameters=new.parameters, generation=new.generation)


def lease_name(slot: str) -> str:
    """Name the lease under which a slot's row is taken."""
    return f"retry {slot}"


def new_taker() -> str:
    """Name one retry job."""
    return f"retry-{secrets.token_hex(6)}"


def plain(values: Mapping[str, Any]) -> str:
    """Write what was asked for, the same in every process."""
    return json.dumps(values, sort_keys=True, default=str)


def _spend(db: Any, slot: str, now: datetime, per_hour: int) -> bool:
    db.execute("DELETE FROM retries_taken WHERE taken_at<=?", (moment_text(now - _HOUR),))
    if db.execute("SELECT count(*) AS n FROM retries_taken").fetchone()["n"] >= per_hour:
        return False
    db.execute("INSERT INTO retries_taken VALUES (?, ?, ?)", (secrets.token_hex(8), slot, moment_text(now)))
    return True


def _keep(db: Any, row: Again) -> None:
    values = asdict(row)
    marks = ", ".join("?" * len(values))
    changes = ", ".join(f"{name}=excluded.{name}" for name in values if name != "slot")
    sql = f"INSERT INTO retries ({', '.join(values)}) VALUES ({marks}) ON CONFLICT (slot) DO UPDATE SET {changes}"  # noqa: S608 - fixed names
    db.execute(sql, tuple(values.values()))


def _again(row: Any) -> Again:
    return Again(**{one.name: row[one.name] for one in fields(Again)})


def _sorted(rows: Iterable[Any]) -> list[Again]:
    return sorted(map(_again, rows), key=lambda row: (row.pipeline, Slot.parse(row.slot).part_text))
