"""How are intentions and confirmations kept on one host?

SQLite with its rollback journal, `synchronous=FULL` and `BEGIN IMMEDIATE`. Each act opens its own
connection, so no handle crosses a fork or a thread, and each check-then-act is one transaction.
Leases are judged by the time since the machine's boot: a clock that is set back changes nothing.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

from twice.errors import Busy, Misuse, NotPublished
from twice.faults import reach
from twice.ledger.records import BAD, OPEN, AttemptRecord, Holder, Lease
from twice.ledger.schema import MIGRATIONS, VERSION
from twice.ledger.tallies import note_trouble, note_well
from twice.runs import Receipt, Slot, new_attempt

_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs"})
_HASHES_KEPT = 1_000_000
_LEAST_RENEWAL_SECONDS = 0.05


class SqliteLedger:
    """The ledger of one host, in one file on a local disk."""

    def __init__(self, path: str, *, lease_seconds: float = 60.0, renew_seconds: float = 20.0) -> None:
        self.path = path
        self.lease_seconds = lease_seconds
        self.renew_seconds = renew_seconds
        self._open()

    def _open(self) -> None:
        folder = os.path.dirname(os.path.abspath(self.path))
        try:
            os.makedirs(folder, exist_ok=True)
            _refuse_network_disk(folder)
            with closing(self._connect()) as db:
                self._migrate(db)
                self.id = _ledger_id(db)
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
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found > VERSION:
            raise Misuse(
                f"The ledger {self.path} has schema {found}; this Twice knows up to {VERSION}.",
                "It was written by a newer Twice, whose records this one would misread.",
                "Upgrade Twice here.",
            )
        if found == VERSION:
            return
        with _immediate(db):
            found = db.execute("PRAGMA user_version").fetchone()[0]
            for migration in MIGRATIONS[found:]:
                for statement in filter(str.strip, migration.split(";")):
                    db.execute(statement)
            db.execute(f"PRAGMA user_version={VERSION}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One check-then-act, alone on the ledger from its first line."""
        with self._trouble(), closing(self._connect()) as db, _immediate(db):
            yield db

    def query(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """Return the rows that answer a question."""
        with self._trouble(), closing(self._connect()) as db:
            return db.execute(sql, values).fetchall()

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        """Say which file it was, when the disk is full or the ledger is locked or damaged."""
        try:
            yield
        except sqlite3.Error as error:
            raise NotPublished(
                f"The ledger {self.path} cannot be used: {error}.",
                "What was published before is as it was; the stores hold its receipts.",
                "See that its disk has room and its folder is writable; if it is damaged, move it away and run twice ledger rebuild.",
            ) from error

    # ------------------------------------------------------------------ intentions

    def intend(self, record: AttemptRecord) -> AttemptRecord:
        """Record that work on a slot starts; the ledger names the attempt."""
        me = Holder.me()
        with self.transaction() as db:
            counter = _next_counter(db)
            named = AttemptRecord(
                **{
                    **asdict(record),
                    "attempt": new_attempt(self.id, counter),
                    "started_at": _now(),
                    "host": me.host,
                    "pid": me.pid,
                }
            )
            _insert(db, "attempts", asdict(named))
        return named

    def end(self, attempt: str, state: str, reason: str = "") -> None:
        """Record how an attempt ended without a publish that is known to be its own."""
        with self.transaction() as db:
            done = db.execute(
                "UPDATE attempts SET state=?, reason=?, ended_at=? WHERE attempt=? AND state IN ('started', 'died')",
                (state, reason, _now(), attempt),
            )
            if done.rowcount and state in BAD:
                note_trouble(db, attempt)

    def confirm(self, attempt: str, receipt: Receipt, version: int, state: str = "published", reason: str = "") -> None:
        """Record what the store says about a slot, and how the attempt that asked ended."""
        slot = Slot.parse(receipt.slot)
        with self.transaction() as db:
            _keep_receipt(db, receipt, slot, version)
            note_well(db, receipt.slot)
            db.execute(
                "UPDATE attempts SET state=?, reason=?, rows=?, generation=?, version_after=?, ended_at=? WHERE attempt=?",
                (state, reason, receipt.rows, receipt.generation, version, _now(), attempt),
            )
            db.execute(
                "UPDATE attempts SET state='published', reason='found in the store', rows=?, version_after=?, ended_at=?"
                " WHERE attempt=? AND state IN ('started', 'died', 'unknown')",
                (receipt.rows, receipt.first_version, _now(), receipt.attempt),
            )

    def known(self, slot: str) -> Receipt | None:
        """Return what the ledger believes to be published in a slot."""
        found = self.query("SELECT receipt FROM receipts WHERE slot=?", slot)
        return Receipt.from_json(json.loads(found[0]["receipt"])) if found else None

    def published(self, target: str | None = None) -> list[tuple[Receipt, int | None]]:
        """Return all receipts that the ledger believes in, with the version that held them last."""
        sql = "SELECT receipt, version FROM receipts"
        rows = (
            self.query(sql + " WHERE target=? ORDER BY slot", target) if target else self.query(sql + " ORDER BY slot")
        )
        return [(Receipt.from_json(json.loads(row["receipt"])), row["version"]) for row in rows]

    def attempts(self, *, slot: str = "", pipeline: str = "", state: str = "", limit: int = 50) -> list[AttemptRecord]:
        """Return attempts, newest first."""
        wanted = {"slot": slot, "pipeline": pipeline, "state": state}
        tests = [f"{name}=?" for name, value in wanted.items() if value]
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        values = [value for value in wanted.values() if value]
        sql = f"SELECT * FROM attempts{where} ORDER BY started_at DESC, rowid DESC LIMIT ?"  # noqa: S608 - fixed names
        return [_attempt(row) for row in self.query(sql, *values, limit)]

    def newest_attempt(self, slot: str, publisher: str = "") -> AttemptRecord | None:
        """Return the attempt on a slot that was begun last; `publisher` is one that may bear another slot's name."""
        sql = "SELECT * FROM attempts WHERE slot=? OR attempt=? ORDER BY rowid DESC LIMIT 1"
        found = self.query(sql, slot, publisher)
        return _attempt(found[0]) if found else None

    def attempt(self, name: str) -> AttemptRecord | None:
        """Return one attempt, by its name or a beginning of it that is unique."""
        # Not by LIKE, which looks at every attempt there is. No character of a name comes after "~".
        found = self.query("SELECT * FROM attempts WHERE attempt >= ? AND attempt < ? LIMIT 2", name, name + "~")
        exact = [row for row in found if row["attempt"] == name]
        return _attempt((exact or found)[0]) if len(exact or found) == 1 else None

    def versions(self, target: str) -> list[dict[str, Any]]:
        """Return what the ledger saw published to a target, newest first."""
        rows = self.query("SELECT * FROM versions WHERE target=? ORDER BY version DESC", target)
        return [dict(row) for row in rows]

    # ------------------------------------------------------------------ acceptances, targets, hashes

    def accept(self, slot: str, outside: str, who: str) -> None:
        """Record that a person accepted a slot's rows as they are after this outside change."""
        with self.transaction() as db:
            row = {"slot": slot, "outside": outside, "accepted_at": _now(), "accepted_by": who}
            _insert(db, "acceptances", row, replace=True)

    def accepted(self, slot: str) -> str:
        """Return the outside change up to which a slot was accepted, or nothing."""
        found = self.query("SELECT outside FROM acceptances WHERE slot=?", slot)
        return str(found[0]["outside"]) if found else ""

    def locate(self, target: str, location: str) -> None:
        """Remember where the catalog keeps a table, so that it is found without a JVM."""
        if self.location(target) != location:
            with self.transaction() as db:
                _insert(db, "targets", {"target": target, "location": location}, replace=True)

    def location(self, target: str) -> str:
        """Return where a table was last seen, or nothing."""
        found = self.query("SELECT location FROM targets WHERE target=?", target)
        return str(found[0]["location"]) if found else ""

    def recall(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return known content hashes of unchanged files."""
        with self._trouble(), closing(self._connect()) as db:
            found = (db.execute("SELECT content FROM hashes WHERE file=?", (key,)).fetchone() for key in keys)
            return {key: row["content"] for key, row in zip(keys, found, strict=True) if row}

    def remember(self, hashes: Mapping[str, str]) -> None:
        """Keep content hashes; a cache, so a full one starts again empty."""
        with self.transaction() as db:
            if db.execute("SELECT count(*) FROM hashes").fetchone()[0] > _HASHES_KEPT:
                db.execute("DELETE FROM hashes")
            db.executemany("INSERT OR REPLACE INTO hashes VALUES (?, ?)", sorted(hashes.items()))

    # ------------------------------------------------------------------ leases

    @contextmanager
    def lease(self, name: str, attempt: str) -> Iterator[Lease]:
        """Hold a lease while the block works, renewed in the background.

        Raises:
            Busy: A live attempt holds it.
        """
        lease = Lease(name, attempt, Holder.me())
        self._take(lease)
        reach("lease.taken")
        stop = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(lease, stop), daemon=True)
        keeper.start()
        try:
            yield lease
        except Exception:
            self._release(lease)
            raise
        else:
            self._release(lease)
        finally:
            # A death (BaseException) must leave the lease as a killed process would.
            stop.set()

    def _take(self, lease: Lease) -> None:
        with self.transaction() as db:
            row = db.execute("SELECT * FROM leases WHERE name=?", (lease.name,)).fetchone()
            if row and row["attempt"] != lease.attempt and _is_live(row):
                left = max(0.0, row["expires"] - _uptime())
                raise Busy(
                    f"{lease.name} is being worked on by attempt {row['attempt']} (process {row['pid']} on {row['host']}).",
                    f"Its lease is renewed while it lives, and ends in {left:.0f} s if it does not.",
                    "Wait for it and run again; a rerun of a published slot is skipped.",
                )
            if row and row["attempt"] != lease.attempt:
                # Its holder is dead or silent. Should it wake up, its own end will be written over this.
                died = db.execute(
                    "UPDATE attempts SET state='died', reason='its lease ran out', ended_at=? WHERE attempt=? AND state=?",
                    (_now(), row["attempt"], OPEN),
                )
                if died.rowcount:
                    note_trouble(db, row["attempt"])
            _insert(db, "leases", self._lease_row(lease), replace=True)

    def _lease_row(self, lease: Lease) -> dict[str, Any]:
        return {
            "name": lease.name,
            "attempt": lease.attempt,
            "host": lease.holder.host,
            "pid": lease.holder.pid,
            "process_started": lease.holder.started,
            "boot": _boot(),
            "expires": _uptime() + self.lease_seconds,
        }

    def _keep(self, lease: Lease, stop: threading.Event) -> None:
        while not stop.wait(max(self.renew_seconds, _LEAST_RENEWAL_SECONDS)):
            # A renewal that fails only makes the lease run out, which costs work and no safety.
            with suppress(NotPublished), self.transaction() as db:
                expires = _uptime() + self.lease_seconds
                db.execute(
                    "UPDATE leases SET expires=? WHERE name=? AND attempt=?", (expires, lease.name, lease.attempt)
                )

    def _release(self, lease: Lease) -> None:
        # A lease that cannot be released runs out; that must not hide how the run ended.
        with suppress(NotPublished), self.transaction() as db:
            db.execute("DELETE FROM leases WHERE name=? AND attempt=?", (lease.name, lease.attempt))

    def busy(self, name: str, attempt: str = "") -> str:
        """Return the attempt that holds a lease now, if it is another one and alive."""
        found = self.query("SELECT * FROM leases WHERE name=?", name)
        return str(found[0]["attempt"]) if found and _is_live(found[0]) and found[0]["attempt"] != attempt else ""

    def live_attempts(self) -> frozenset[str]:
        """Return the attempts that hold a lease now."""
        return frozenset(lease.attempt for lease in self.live_leases())

    def live_leases(self) -> list[Lease]:
        """Return the leases that are held now, in the order of their names."""
        rows = self.query("SELECT * FROM leases ORDER BY name")
        return [Lease(row["name"], row["attempt"], _holder(row)) for row in rows if _is_live(row)]

    # ------------------------------------------------------------------ rebuild

    def rebuild(self, targets: Iterable[str], receipts: Sequence[tuple[Receipt, int]]) -> int:
        """Take receipts from the stores as all that is published to these targets."""
        with self.transaction() as db:
            for target in targets:
                db.execute("DELETE FROM receipts WHERE target=?", (target,))
            for receipt, version in receipts:
                _keep_receipt(db, receipt, Slot.parse(receipt.slot), version)
        return len(receipts)


def _keep_receipt(db: sqlite3.Connection, receipt: Receipt, slot: Slot, version: int) -> None:
    first = receipt.first_version if receipt.first_version is not None else version
    _insert(
        db,
        "receipts",
        {
            "slot": receipt.slot,
            "pipeline": slot.pipeline,
            "target": slot.target.text,
            "generation": receipt.generation,
            "receipt": json.dumps(receipt.to_json()),
            "version": version,
            "confirmed_at": _now(),
        },
        replace=True,
    )
    _insert(
        db,
        "versions",
        {
            "target": slot.target.text,
            "version": first,
            "slot": receipt.slot,
            "generation": receipt.generation,
            "attempt": receipt.attempt,
            "rows": receipt.rows,
            "published_at": receipt.published_at,
        },
        replace=True,
    )


def _insert(db: sqlite3.Connection, table: str, row: Mapping[str, Any], *, replace: bool = False) -> None:
    verb = "INSERT OR REPLACE" if replace else "INSERT"
    marks = ", ".join("?" * len(row))
    db.execute(f"{verb} INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


def _attempt(row: sqlite3.Row) -> AttemptRecord:
    return AttemptRecord(**{field.name: row[field.name] for field in fields(AttemptRecord)})


@contextmanager
def _immediate(db: sqlite3.Connection) -> Iterator[None]:
    """One transaction that takes the write lock first, so that a check and its act are one."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _ledger_id(db: sqlite3.Connection) -> str:
    found = db.execute("SELECT value FROM facts WHERE name='ledger_id'").fetchone()
    if found:
        return str(found[0])
    with _immediate(db):
        db.execute("INSERT OR IGNORE INTO facts VALUES ('ledger_id', ?)", (secrets.token_hex(8),))
        return str(db.execute("SELECT value FROM facts WHERE name='ledger_id'").fetchone()[0])


def _next_counter(db: sqlite3.Connection) -> int:
    db.execute("INSERT OR IGNORE INTO facts VALUES ('attempts', '0')")
    db.execute("UPDATE facts SET value = CAST(value AS INTEGER) + 1 WHERE name='attempts'")
    return int(db.execute("SELECT value FROM facts WHERE name='attempts'").fetchone()[0])


def _holder(row: sqlite3.Row) -> Holder:
    return Holder(row["host"], row["pid"], row["process_started"])


def _is_live(row: sqlite3.Row) -> bool:
    return row["boot"] == _boot() and row["expires"] > _uptime() and not _holder(row).is_dead


def _uptime() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _boot() -> str:
    """Tell one boot of the machine from another, since uptimes of two boots cannot be compared."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            return boot.read().strip()
    except OSError:
        return "unknown"


def _now() -> str:
    """Wall-clock time, for people to read: nothing is decided by it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
            "Put the ledger on a local disk.",
        )
