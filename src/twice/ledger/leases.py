"""Who is working on what, now?

A lease saves double work; it never gives safety. It is renewed in the background while its holder
works, ends by itself if it is not, and is taken over at once from a process that is known to be dead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from twice.errors import Busy, NotPublished
from twice.faults import reach
from twice.ledger.ends import note_end
from twice.ledger.records import OPEN, Holder, Lease
from twice.ledger.tables import Connection, Row, Tables, holder_of, insert

_LEAST_RENEWAL_SECONDS = 0.05


class Leases(Tables):
    """The leases of a ledger."""

    def __init__(self, *, lease_seconds: float = 60.0, renew_seconds: float = 20.0) -> None:
        self.lease_seconds = lease_seconds
        self.renew_seconds = renew_seconds

    @contextmanager
    def lease(self, name: str, attempt: str) -> Iterator[None]:
        """Hold a lease while the block works, renewed in the background.

        Raises:
            Busy: A live attempt holds it.
        """
        with self.leases([name], attempt):
            yield

    @contextmanager
    def leases(self, names: Sequence[str], attempt: str) -> Iterator[None]:
        """Hold several leases as one: all of them, or none.

        Raises:
            Busy: A live attempt holds one of them.
        """
        held = [Lease(name, attempt, Holder.me()) for name in names]
        with self.transaction() as db:
            for lease in held:
                self._take(db, lease)
        reach("lease.taken")
        stop = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(held, stop), daemon=True)
        keeper.start()
        try:
            yield
        except (Exception, KeyboardInterrupt):
            self._release(held)
            raise
        else:
            self._release(held)
        finally:
            # Any other BaseException is a death and must leave the lease as a killed process would.
            stop.set()

    def _take(self, db: Connection, lease: Lease) -> None:
        row = db.execute("SELECT * FROM leases WHERE name=?", (lease.name,)).fetchone()
        now = self.clock(db)
        if row and row["attempt"] != lease.attempt and self._is_live(row, now):
            left = max(0.0, row["expires"] - now)
            raise Busy(
                f"{lease.name} is being worked on by attempt {row['attempt']} (process {row['pid']} on {row['host']}).",
                f"Its lease is renewed while it lives, and ends in {left:.0f} s if it does not.",
                "Wait for it and run again; a rerun of a published slot is skipped.",
            )
        if row and row["attempt"] != lease.attempt:
            # Its holder is dead or silent. Should it wake up, its own end will be written over this.
            why = f"its process ({row['pid']} on {row['host']}) ended" if self.is_over(row) else "its lease ran out"
            died = {"reason": why, "ended_at": self.now(db)}
            note_end(db, row["attempt"], "died", died, (OPEN,))
        insert(db, "leases", self._row(lease, now), replacing=["name"])

    def _row(self, lease: Lease, now: float) -> dict[str, Any]:
        return {
            "name": lease.name,
            "attempt": lease.attempt,
            "host": lease.holder.host,
            "pid": lease.holder.pid,
            "process_started": lease.holder.started,
            "boot": self.boot(),
            "expires": now + self.lease_seconds,
        }

    def _keep(self, held: Sequence[Lease], stop: threading.Event) -> None:
        while not stop.wait(max(self.renew_seconds, _LEAST_RENEWAL_SECONDS)):
            # A renewal that fails only makes the leases run out, which costs work and no safety.
            with suppress(NotPublished), self.transaction() as db:
                expires = self.clock(db) + self.lease_seconds
                renewed = [(expires, lease.name, lease.attempt) for lease in held]
                db.executemany("UPDATE leases SET expires=? WHERE name=? AND attempt=?", renewed)

    def _release(self, held: Sequence[Lease]) -> None:
        # A lease that cannot be released runs out; that must not hide how the run ended.
        with suppress(NotPublished), self.transaction() as db:
            names = [(lease.name, lease.attempt) for lease in held]
            db.executemany("DELETE FROM leases WHERE name=? AND attempt=?", names)

    def busy(self, name: str, attempt: str = "") -> str:
        """Return the attempt that holds a lease now, if it is another one and alive."""
        with self.reading() as db:
            row = db.execute("SELECT * FROM leases WHERE name=?", (name,)).fetchone()
            live = row and row["attempt"] != attempt and self._is_live(row, self.clock(db))
            return str(row["attempt"]) if row and live else ""

    def live_attempts(self) -> frozenset[str]:
        """Return the attempts that hold a lease now."""
        return frozenset(lease.attempt for lease in self.live_leases())

    def live_leases(self) -> list[Lease]:
        """Return the leases that are held now, in the order of their names."""
        with self.reading() as db:
            return self.live_leases_in(db)

    def live_leases_in(self, db: Connection) -> list[Lease]:
        """Return the leases that are held now, as a transaction sees them."""
        rows = db.execute("SELECT * FROM leases ORDER BY name").fetchall()
        now = self.clock(db)
        return [Lease(row["name"], row["attempt"], holder_of(row)) for row in rows if self._is_live(row, now)]

    def _is_live(self, row: Row, now: float) -> bool:
        return bool(row["expires"] > now) and not self.is_over(row)
