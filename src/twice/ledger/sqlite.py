"""How are intentions and confirmations kept on one host?

SQLite with its rollback journal, `synchronous=FULL` and `BEGIN IMMEDIATE`. Each act opens its own
connection, so no handle crosses a fork or a thread, and each check-then-act is one transaction.
Leases are judged by the time since the machine's boot: a clock that is set back changes nothing.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime

from twice.errors import Misuse, NotPublished
from twice.ledger.ledger import Ledger, ledger_id, name_ledger
from twice.ledger.migrating import refuse_newer, statements_since
from twice.ledger.records import machine_boot
from twice.ledger.schema import VERSION
from twice.ledger.tables import Connection, Row, committed, holder_of

_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs"})


class SqliteLedger(Ledger):
    """The ledger of one host, in one file on a local disk."""

    def __init__(self, path: str, *, lease_seconds: float = 60.0, renew_seconds: float = 20.0) -> None:
        super().__init__(lease_seconds=lease_seconds, renew_seconds=renew_seconds)
        self.path = path
        self._open()

    @property
    def place(self) -> str:
        """The file."""
        return self.path

    def _open(self) -> None:
        folder = os.path.dirname(os.path.abspath(self.path))
        try:
            os.makedirs(folder, exist_ok=True)
            _refuse_network_disk(folder)
            with closing(self._connect()) as db:
                self._migrate(db)
                self.id = ledger_id(db)
        except (OSError, sqlite3.Error) as error:
            damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
            raise Misuse(
                f"The ledger {self.path} cannot be opened: {error}.",
                "Without it no intention can be recorded, so nothing was started.",
                "It is damaged: move the file away, then run twice ledger rebuild."
                if damaged
                else "Make its folder writable, or set [ledger] url in twice.toml to another place.",
            ) from error

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA synchronous=FULL")
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        """Bring the schema up to date and give the ledger its name, in one transaction."""
        if _schema(db) == VERSION and ledger_id(db):
            return
        refuse_newer(self.path, _schema(db))
        with committed(db, "BEGIN IMMEDIATE"):
            for statement in statements_since(_schema(db)):
                db.execute(statement)
            db.execute(f"PRAGMA user_version={VERSION}")
            name_ledger(db, secrets.token_hex(8))

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One check-then-act, alone on the ledger from its first line."""
        with self.reading() as db, committed(db, "BEGIN IMMEDIATE"):
            yield db

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Several questions on one connection. What goes wrong is told with the name of the file."""
        try:
            with closing(self._connect()) as db:
                yield db
        except sqlite3.Error as error:
            raise NotPublished(
                f"The ledger {self.path} cannot be used: {error}.",
                "What was published before is as it was; the stores hold its receipts.",
                "See that its disk has room and its folder is writable; if it is damaged, move it away and run twice ledger rebuild.",
            ) from error

    def clock(self, db: Connection) -> float:
        """The time since the machine's boot, sleep included."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def now(self, db: Connection) -> str:
        """The machine's wall clock."""
        return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def boot(self) -> str:
        """The machine's boot: uptimes of two boots cannot be compared."""
        return machine_boot()

    def is_over(self, row: Row) -> bool:
        """A lease of another boot, or of a process that is dead, is over: all of them are of this host."""
        return bool(row["boot"] != machine_boot()) or holder_of(row).is_dead


def _schema(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _refuse_network_disk(folder: str) -> None:
    """SQLite's locks do not hold on network file systems."""
    try:
        with open("/proc/mounts", encoding="utf-8") as mounts:
            entries = [line.split()[1:3] for line in mounts]
    except OSError:
        return
    real = os.path.realpath(folder)
    holding = [(len(point), kind) for point, kind in entries if (real + "/").startswith(point.rstrip("/") + "/")]
    if holding and max(holding)[1] in _NETWORK_FILE_SYSTEMS:
        raise Misuse(
            f"The ledger's folder {folder} is on a network file system ({max(holding)[1]}).",
            "SQLite's locks do not hold there, so two runs could damage the ledger.",
            'Put the ledger on a local disk, or on PostgreSQL: [ledger] url = "postgresql://…".',
        )
