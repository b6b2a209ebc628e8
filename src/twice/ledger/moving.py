"""How does a ledger move to another place, from SQLite to PostgreSQL or back, and stay the same ledger?

`export` writes all tables to a file: a first line that names the ledger, one line for each row, and a
last line with their number, so that a file that was cut short is noticed. Leases stay behind: they are
promises of processes that speak to the old place, judged by its clock. Runs are counted anew where they arrive. A ledger with live runs is not
exported, since their ends would be missing from the copy.

`import_` takes all of it into an empty ledger in one transaction, with the ledger's id: targets stay
owned. If the process dies in between, the ledger is as empty as before. If the reply is lost, importing
again finds the same ledger there and does nothing. A ledger that holds anything else is left alone.

After a move two places know one ledger. From then on only one of them may be used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from twice.errors import Busy, Misuse
from twice.faults import reach
from twice.ledger.ledger import Ledger, ledger_id
from twice.ledger.migrating import refuse_newer, tables
from twice.ledger.schema import VERSION
from twice.ledger.tables import Connection, inserting
from twice.ledger.tallies import count_all

_LEFT_BEHIND = ("leases", "tallies")
_AT_ONCE = 1000


@dataclass(frozen=True)
class Moved:
    """What was written or taken in: the ledger, and how many rows."""

    ledger: str
    rows: int
    changed: bool = True


def export(ledger: Ledger, file: str) -> Moved:
    """Write all that a ledger holds to a file, whole or not at all.

    Raises:
        Busy: A run is alive.
    """
    beside = f"{file}.{os.getpid()}.tmp"
    try:
        with ledger.transaction() as db, open(beside, "w", encoding="utf-8") as out:
            _refuse_live(ledger, db, "exported")
            rows = 0
            _line(out.write, {"twice_ledger": ledger.id, "schema": VERSION, "exported_at": ledger.now(db)})
            for table, row in _rows_of(db):
                _line(out.write, {"table": table, "row": row})
                rows += 1
            _line(out.write, {"rows": rows})
            out.flush()
            os.fsync(out.fileno())
        reach("ledger.export.written")
        os.replace(beside, file)
    except OSError as error:
        raise Misuse(f"{file} cannot be written: {error.strerror}.", "The ledger is as it was.") from error
    finally:
        if os.path.exists(beside):
            os.unlink(beside)
    return Moved(ledger.id, rows)


def import_(ledger: Ledger, file: str) -> Moved:
    """Take in all that a file holds.

    Raises:
        Misuse: The file is not whole, or the ledger holds something else.
        Busy: A run is alive.
    """
    name, rows, wanted = _examined(file)
    with ledger.transaction() as db:
        _refuse_live(ledger, db, "replaced")
        held = _digests(_rows_of(db))
        if held == wanted:
            return Moved(name, rows, changed=False)
        if set(held) - {"facts"}:
            raise Misuse(
                f"The ledger {ledger.place} is not empty, and holds something else than {file}.",
                "What it holds would be lost. Nothing changed.",
                "Import into a ledger that is not made yet: name another place in [ledger] url.",
            )
        db.execute("DELETE FROM facts")
        reach("ledger.import.cleared")
        for table, group in groupby(_read(file), key=lambda pair: pair[0]):
            _fill(db, table, (row for _, row in group))
        count_all(db)
        reach("ledger.import.filled")
        if ledger_id(db) != name:
            raise Misuse(f"{file} names no ledger in its facts.", "It is not what was exported. Nothing changed.")
    ledger.id = name
    return Moved(name, rows)


def _refuse_live(ledger: Ledger, db: Connection, done: str) -> None:
    live = ledger.live_leases_in(db)
    if live:
        raise Busy(
            f"The ledger {ledger.place} cannot be {done} now: attempt {live[0].attempt} works on {live[0].name}.",
            "How it ends would be missing from the copy.",
            "Wait for it and try again.",
        )


def _rows_of(db: Connection) -> Iterator[tuple[str, dict[str, Any]]]:
    for table in tables():
        if table not in _LEFT_BEHIND:
            rows = db.execute(f"SELECT * FROM {table}")  # noqa: S608 - names of our own tables
            yield from ((table, dict(row)) for row in rows)


def _examined(file: str) -> tuple[str, int, dict[str, tuple[int, int]]]:
    """Read a whole file: which ledger it is, how many rows it has, and what they are."""
    with _opened(file) as lines:
        first = _parsed(file, next(lines, ""))
    if not isinstance(first.get("schema"), int) or "twice_ledger" not in first:
        raise Misuse(f"{file} does not hold a ledger.", fix="Make one with: twice ledger export FILE")
    refuse_newer(file, first["schema"])
    digests = _digests(_read(file))
    return str(first["twice_ledger"]), sum(rows for rows, _ in digests.values()), digests


def _read(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the rows of a file; raises at its end if some are missing."""
    rows, told = 0, None
    known = set(tables()) - set(_LEFT_BEHIND)
    with _opened(file) as lines:
        for line in islice(lines, 1, None):
            held = _parsed(file, line)
            if held.get("table") in known and isinstance(held.get("row"), dict):
                rows += 1
                yield held["table"], held["row"]
            else:
                told = held.get("rows")
                break
    if rows != told:
        raise Misuse(
            f"{file} is not whole: it holds {rows} rows of {'an unknown number' if told is None else told}.",
            "It was cut short or changed. Nothing changed in the ledger.",
            "Export it again.",
        )


def _digests(rows: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, tuple[int, int]]:
    """Return for each table that has rows their number, and a sum that does not depend on their order."""
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for table, row in rows:
        text = json.dumps(row, sort_keys=True).encode()
        counts[table] += 1
        sums[table] += int.from_bytes(hashlib.sha256(text).digest(), "big")
    return {table: (counts[table], sums[table]) for table in counts}


def _fill(db: Connection, table: str, rows: Iterable[dict[str, Any]]) -> None:
    columns = [column[0] for column in db.execute(f"SELECT * FROM {table} LIMIT 0").description]  # noqa: S608 - our own table
    for names, group in groupby(rows, key=tuple):
        if not set(names) <= set(columns):
            raise Misuse(f"The file holds columns of {table} that this Twice does not know.", "Nothing changed.")
        values = (tuple(row[name] for name in names) for row in group)
        while some := list(islice(values, _AT_ONCE)):
            db.executemany(inserting(table, names), some)


@contextmanager
def _opened(file: str) -> Iterator[Iterator[str]]:
    """The lines of a file that somebody gave."""
    try:
        with open(file, encoding="utf-8") as lines:
            yield lines
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"{file} cannot be read: {error}.") from error


def _parsed(file: str, line: str) -> dict[str, Any]:
    try:
        held = json.loads(line)
    except ValueError:
        held = None
    if not isinstance(held, dict):
        raise Misuse(f"{file} does not hold a ledger.", fix="Make one with: twice ledger export FILE")
    return held


def _line(write: Callable[[str], Any], held: dict[str, Any]) -> None:
    write(json.dumps(held, ensure_ascii=False) + "\n")
