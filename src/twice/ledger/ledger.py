"""What was intended, what was confirmed, what was accepted, and what is remembered?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from twice.ledger.ends import UNDECIDED, note_end
from twice.ledger.leases import Leases
from twice.ledger.records import DIED, OPEN, RUNNING, STAGING, STATES, AttemptRecord, Holder
from twice.ledger.tables import Connection, Row, insert
from twice.ledger.tallies import note_well
from twice.runs import Receipt, Slot, new_attempt

_HASHES_KEPT = 1_000_000
# The names of one ledger's attempts differ in their number alone, which has no leading zeros: the longer, the newer.
_NEWEST_NAME_FIRST = "length(attempt) DESC, attempt DESC"


class Ledger(Leases):
    """Intentions before, confirmations after. Of what is published it is a cache: the stores decide."""

    # ------------------------------------------------------------------ intentions

    def intend(self, record: AttemptRecord) -> AttemptRecord:
        """Record that work on a slot starts; the ledger names the attempt."""
        me = Holder.me()
        with self.transaction() as db:
            name = new_attempt(self.id, _next_counter(db))
            named = replace(
                record,
                attempt=name,
                started_at=self.now(db),
                host=me.host,
                pid=me.pid,
                process_started=me.started,
                step=STAGING,
            )
            insert(db, "attempts", vars(named))
        return named

    def note_step(self, attempt: str, step: str) -> None:
        """Record how far an attempt is."""
        with self.transaction() as db:
            db.execute("UPDATE attempts SET step=? WHERE attempt=?", (step, attempt))

    def end(self, attempt: str, state: str, reason: str = "") -> None:
        """Record how an attempt ended without a publish that is known to be its own."""
        with self.transaction() as db:
            note_end(db, attempt, state, {"reason": reason, "ended_at": self.now(db)}, UNDECIDED)

    def confirm(
        self,
        attempt: str,
        receipt: Receipt,
        version: int,
        state: str = "published",
        reason: str = "",
        rows: int | None = None,
        along: Sequence[Receipt] = (),
    ) -> None:
        """Record what the store says about a slot and those `along` with it, and how the attempt that asked ended.

        `rows` are those of all slots of the publish; by default it has the one.
        """
        rows = receipt.rows if rows is None else rows
        with self.transaction() as db:
            now = self.now(db)
            for one in (receipt, *along):
                _keep_receipt(db, one, Slot.parse(one.slot), version, now)
                note_well(db, one.slot)
            if attempt:
                own = {"reason": reason, "generation": receipt.generation, "version_after": version}
                note_end(db, attempt, state, {**own, "rows": rows, "ended_at": now})
            # Of slots that were published anew since, another attempt is the publisher.
            publishers = {one.attempt: one for one in reversed((receipt, *along)) if one.attempt != attempt}
            for name, one in publishers.items():
                found = {"reason": "found in the store", "version_after": one.first_version, "ended_at": now}
                counted = rows if name == receipt.attempt else one.rows
                note_end(db, name, "published", {**found, "rows": counted}, (*UNDECIDED, "unknown"))

    def known(self, slot: str) -> Receipt | None:
        """Return what the ledger believes to be published in a slot."""
        found = self.query("SELECT receipt FROM receipts WHERE slot=?", slot)
        return Receipt.from_json(json.loads(found[0]["receipt"])) if found else None

    def generations(self, target: str, slot: str = "") -> dict[str, int]:
        """Return the generations that the ledger believes in, by slot: of one slot, or of all of a target."""
        sql = "SELECT slot, generation FROM receipts WHERE "
        rows = self.query(sql + "slot=?", slot) if slot else self.query(sql + "target=?", target)
        return {row["slot"]: row["generation"] for row in rows}

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
        named = {name: value for name, value in wanted.items() if value}
        # The runs of a pipeline lie in order within each of their states: so few of a million are looked at.
        each = [{**named, "state": one} for one in STATES] if set(named) == {"pipeline"} else [named]
        with self.reading() as db:
            found = [row for one in each for row in _newest(db, one, limit)]
        return sorted(map(_attempt, found), key=_by_age, reverse=True)[:limit]

    def seen(self, *, slot: str = "", pipeline: str = "", state: str = "", limit: int = 50) -> list[AttemptRecord]:
        """Return attempts as they are now, newest first: those without an end are running, or died with their process."""
        recorded = {RUNNING: (OPEN,), DIED: (OPEN, DIED)}.get(state, (state,))
        found = [
            one for each in recorded for one in self.attempts(slot=slot, pipeline=pipeline, state=each, limit=limit)
        ]
        live = self.live_attempts() if any(one.state == OPEN for one in found) else ()
        now = sorted((one.seen(live) for one in found), key=_by_age, reverse=True)
        return [one for one in now if one.state == (state or one.state)][:limit]

    def newest_attempt(self, slot: str, publisher: str = "") -> AttemptRecord | None:
        """Return the attempt on a slot that was begun last; `publisher` is one that may bear another slot's name."""
        sql = f"SELECT * FROM attempts WHERE slot=? OR attempt=? ORDER BY {_NEWEST_NAME_FIRST} LIMIT 1"  # noqa: S608 - fixed names
        found = self.query(sql, slot, publisher)
        return _attempt(found[0]) if found else None

    def attempt(self, name: str) -> AttemptRecord | None:
        """Return one attempt, by its name or a beginning of it that is unique."""
        found = self.attempts_named(name, limit=2)
        return found[0] if len(found) == 1 else None

    def attempts_named(self, name: str, *, limit: int) -> list[AttemptRecord]:
        """Return the attempt of this name, or those whose names begin so."""
        # Not by LIKE, which looks at every attempt there is. No character of a name comes after "~".
        sql = "SELECT * FROM attempts WHERE attempt >= ? AND attempt < ? ORDER BY attempt LIMIT ?"
        found = [_attempt(row) for row in self.query(sql, name, name + "~", limit)]
        return [record for record in found if record.attempt == name] or found

    def versions(self, target: str) -> list[dict[str, Any]]:
        """Return what the ledger saw published to a target, newest first."""
        rows = self.query("SELECT * FROM versions WHERE target=? ORDER BY version DESC", target)
        return [dict(row) for row in rows]

    # ------------------------------------------------------------------ acceptances, targets, hashes

    def accept(self, slot: str, outside: str, who: str) -> None:
        """Record that a person accepted a slot's rows as they are after this outside change."""
        with self.transaction() as db:
            row = {"slot": slot, "outside": outside, "accepted_at": self.now(db), "accepted_by": who}
            insert(db, "acceptances", row, replacing=["slot"])

    def accepted(self, slot: str) -> str:
        """Return the outside change up to which a slot was accepted, or nothing."""
        found = self.query("SELECT outside FROM acceptances WHERE slot=?", slot)
        return str(found[0]["outside"]) if found else ""

    def locate(self, target: str, location: str) -> None:
        """Remember where the catalog keeps a table, so that it is found without a JVM."""
        if self.location(target) != location:
            with self.transaction() as db:
                insert(db, "targets", {"target": target, "location": location}, replacing=["target"])

    def location(self, target: str) -> str:
        """Return where a table was last seen, or nothing."""
        found = self.query("SELECT location FROM targets WHERE target=?", target)
        return str(found[0]["location"]) if found else ""

    def recall(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return known content hashes of unchanged files."""
        with self.reading() as db:
            found = (db.execute("SELECT content FROM hashes WHERE file=?", (key,)).fetchone() for key in keys)
            return {key: row["content"] for key, row in zip(keys, found, strict=True) if row}

    def remember(self, hashes: Mapping[str, str]) -> None:
        """Keep content hashes; a cache, so a full one starts again empty."""
        with self.transaction() as db:
            counted = db.execute("SELECT count(*) AS kept FROM hashes").fetchone()
            if counted and counted["kept"] > _HASHES_KEPT:
                db.execute("DELETE FROM hashes")
            db.executemany(
                "INSERT INTO hashes (file, content) VALUES (?, ?)"
                " ON CONFLICT (file) DO UPDATE SET content=excluded.content",
                sorted(hashes.items()),
            )

    # ------------------------------------------------------------------ rebuild

    def rebuild(self, targets: Iterable[str], receipts: Sequence[tuple[Receipt, int]]) -> int:
        """Take receipts from the stores as all that is published to these targets."""
        with self.transaction() as db:
            now = self.now(db)
            for target in targets:
                db.execute("DELETE FROM receipts WHERE target=?", (target,))
            for receipt, version in receipts:
                _keep_receipt(db, receipt, Slot.parse(receipt.slot), version, now)
        return len(receipts)


def _keep_receipt(db: Connection, receipt: Receipt, slot: Slot, version: int, now: str) -> None:
    kept = {
        "slot": receipt.slot,
        "pipeline": slot.pipeline,
        "target": slot.target.text,
        "generation": receipt.generation,
        "receipt": json.dumps(receipt.to_json()),
        "version": version,
        "confirmed_at": now,
    }
    seen = {
        "target": slot.target.text,
        "version": receipt.first_version if receipt.first_version is not None else version,
        "slot": receipt.slot,
        "generation": receipt.generation,
        "attempt": receipt.attempt,
        "rows": receipt.rows,
        "published_at": receipt.published_at,
    }
    insert(db, "receipts", kept, replacing=["slot"])
    insert(db, "versions", seen, replacing=["target", "version", "slot"])


def _newest(db: Connection, wanted: Mapping[str, str], limit: int) -> list[Row]:
    where = f" WHERE {' AND '.join(f'{name}=?' for name in wanted)}" if wanted else ""
    sql = f"SELECT * FROM attempts{where} ORDER BY started_at DESC, {_NEWEST_NAME_FIRST} LIMIT ?"  # noqa: S608 - fixed names
    return db.execute(sql, (*wanted.values(), limit)).fetchall()


def _by_age(record: AttemptRecord) -> tuple[str, int, str]:
    return record.started_at, len(record.attempt), record.attempt


def _attempt(row: Row) -> AttemptRecord:
    return AttemptRecord(**{field.name: row[field.name] for field in fields(AttemptRecord)})


def _next_counter(db: Connection) -> int:
    counted = db.execute("UPDATE facts SET value = CAST(CAST(value AS BIGINT) + 1 AS TEXT) WHERE name='attempts'")
    if not counted.rowcount:
        db.execute("INSERT INTO facts (name, value) VALUES ('attempts', '1')")
    found = db.execute("SELECT value FROM facts WHERE name='attempts'").fetchone()
    return int(found["value"]) if found else 0


def ledger_id(db: Connection) -> str:
    """Return the ledger's own name, or nothing if it has none yet."""
    found = db.execute("SELECT value FROM facts WHERE name='ledger_id'").fetchone()
    return str(found["value"]) if found else ""


def name_ledger(db: Connection, fresh: str) -> str:
    """Give the ledger its name, unless another one was first; return the name that it has."""
    db.execute("INSERT INTO facts (name, value) VALUES ('ledger_id', ?) ON CONFLICT (name) DO NOTHING", (fresh,))
    return ledger_id(db)
