"""Which files were taken in, for people to look at and to search?

A copy of the file marks that are kept beside the tables, and a note of what is under way: *seen* and *claimed* are in no
body yet. Nothing is decided by it. Marks are noted many at a time, and other work on the ledger comes in between; if the
process dies there, some files are told as they were before. Noting the same marks again, or `replace_all` with those
that the store holds, makes it right.

A path is kept as the file system has it. One that is no text is kept with its bytes written out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from itertools import islice
from operator import attrgetter
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

from twice.faults import reach
from twice.ledger.ledger import Ledger
from twice.ledger.tables import Connection
from twice.marks import Mark
from twice.runs import Slot

_AT_ONCE = 20_000
_PAGE = 10_000
# What follows are the bytes of a name that is no text.
_BYTES = "//"
_KEY = ("target", "path")
_ESCAPE = "^"
# What both ledgers can keep; a time after the year 2262 is told as that year.
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class FileRecord:
    """What became of one file of a target, as the ledger tells it."""

    target: str
    path: str
    size: int
    mtime_ns: int
    content: str
    rows: int | None
    slot: str
    generation: int
    attempt: str
    state: str
    reason: str
    changed_at: str


_COLUMNS = [one.name for one in fields(FileRecord)]


def note(ledger: Ledger, slot: Slot, marks: Iterable[Mark], attempt: str, at: str) -> None:
    """Note what became of some files of a slot, in place of what was known of them."""
    # In the order of the key: neighbours share pages, and two notes at once cannot wait for each other.
    ordered = iter(sorted({mark.path: mark for mark in marks}.values(), key=attrgetter("path")))
    while some := list(islice(ordered, _AT_ONCE)):
        with ledger.transaction() as db:
            ledger.insert_all(db, "files", _COLUMNS, _rows(slot, some, attempt, at), _KEY)
        reach("ledger.files.noted")


def replace_all(ledger: Ledger, slot: Slot, marks: Iterable[Mark], attempt: str, at: str) -> int:
    """Take the marks that a store holds as all that is known of a slot's files; return how many they are."""
    remaining, count = iter(marks), 0
    with ledger.transaction() as db:
        db.execute("DELETE FROM files WHERE target=? AND slot=?", (slot.target.text, slot.text))
        while some := list(islice(remaining, _AT_ONCE)):
            ledger.insert_all(db, "files", _COLUMNS, _rows(slot, some, attempt, at), _KEY)
            count += len(some)
        reach("ledger.files.replaced")
    return count


def file(ledger: Ledger, target: str, path: str) -> FileRecord | None:
    """Return what is known of one file."""
    rows = ledger.query("SELECT * FROM files WHERE target=? AND path=?", target, _kept(path))
    return _record(rows[0]) if rows else None


def files(ledger: Ledger, target: str, state: str = "", like: str = "", limit: int = 50) -> list[FileRecord]:
    """Return files of a target in the order of their paths: in one state, or with a name like a pattern with wildcards."""
    with ledger.reading() as db:
        found = (one for one in _pages(db, target, state, like) if not like or fnmatchcase(one.path, like))
        return list(islice(found, limit))


def counts(ledger: Ledger, target: str) -> dict[str, int]:
    """Return how many files of a target are in each state."""
    rows = ledger.query("SELECT state, count(*) AS held FROM files WHERE target=? GROUP BY state", target)
    return {row["state"]: row["held"] for row in rows}


def _pages(db: Connection, target: str, state: str, like: str) -> Iterator[FileRecord]:
    """Return the files that may be meant, some at a time: a million of them are never held at once."""
    tests = {
        "target=?": target,
        "state=?": state,
        f"(path LIKE ? ESCAPE '{_ESCAPE}' OR path LIKE '{_BYTES}%')": _rough(like),
    }
    wanted = {test: value for test, value in tests.items() if value}
    sql = f"SELECT * FROM files WHERE {' AND '.join(wanted)} AND path>? ORDER BY path LIMIT {_PAGE}"  # noqa: S608 - fixed words
    last = ""
    while rows := db.execute(sql, (*wanted.values(), last)).fetchall():
        yield from map(_record, rows)
        last = rows[-1]["path"]


def _rough(like: str) -> str:
    """Write a pattern for SQL so that it finds all that is meant, and perhaps more: databases differ in what case means."""
    plain = like.partition("[")[0]
    escaped = "".join(_ESCAPE + char if char in (_ESCAPE, "%", "_") else char for char in _printable(plain))
    return escaped.replace("*", "%").replace("?", "_") + ("%" if plain != like else "")


def _rows(slot: Slot, marks: Iterable[Mark], attempt: str, at: str) -> Iterator[Sequence[Any]]:
    target, written = slot.target.text, slot.text
    return (
        (
            target,
            _kept(mark.path),
            mark.size,
            min(mark.mtime_ns, _LARGEST),
            mark.content,
            mark.rows,
            written,
            mark.generation,
            attempt,
            mark.state,
            _printable(mark.reason) if mark.reason else "",
            at,
        )
        for mark in marks
    )


def _record(row: Any) -> FileRecord:
    values = {name: row[name] for name in _COLUMNS}
    return FileRecord(**{**values, "path": _told(values["path"])})


def _kept(path: str) -> str:
    if path.startswith(_BYTES) or not _is_text(path):
        return _BYTES + quote_from_bytes(path.encode("utf-8", "surrogateescape"))
    return path


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _told(kept: str) -> str:
    if not kept.startswith(_BYTES):
        return kept
    return unquote_to_bytes(kept.removeprefix(_BYTES)).decode("utf-8", "surrogateescape")


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
