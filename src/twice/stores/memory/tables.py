"""What do tables in memory consist of?"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twice.abilities import Rows, Work
from twice.columns import fit, refuse_look_alikes
from twice.runs import Receipt
from twice.sight import NO_TABLE
from twice.slices import column_taken

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Version:
    """One state of a table: the rows of each slot, and all receipts; `holds` tells the editions that are in it."""

    number: int
    rows: tuple[tuple[str, Row], ...] = ()
    receipts: Mapping[str, Receipt] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    table_id: str = ""
    outside: str = ""
    data_version: int = NO_TABLE
    columns: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()
    holds: Mapping[str, int] = field(default_factory=dict)
    editions: tuple[Edition, ...] = ()
    current: str = ""
    sealed: str = ""


@dataclass(frozen=True)
class Edition:
    """Rows that never change again, behind a name that may point at them."""

    name: str
    slot: str
    generation: int
    rows: tuple[tuple[str, Row], ...]
    made_at: str


@dataclass(frozen=True)
class Batch:
    """Change rows that are kept under one name."""

    rows: tuple[Row, ...]
    kept_at: str


@dataclass(frozen=True)
class United:
    """A name for several tables, with the column that tells them apart."""

    by: str
    members: tuple[str, ...] = ()
    frozen: Mapping[str, str] = field(default_factory=dict)
    writer: str = ""


class Tables:
    """Versions of tables, each list replaced as a whole; whoever appends to one holds the lock."""

    def __init__(self) -> None:
        self._tables: dict[str, list[Version]] = {}
        self._united: dict[str, United] = {}
        self._history: dict[str, dict[str, Batch]] = {}
        self._beside: dict[str, dict[str, tuple[bytes, float]]] = {}
        self._lock = threading.Lock()

    def _version(self, name: str, number: int) -> Version:
        return Version(NO_TABLE) if number == NO_TABLE else self._tables[name][number]

    def _newest(self, name: str) -> Version:
        versions = self._tables.get(name)
        return versions[-1] if versions else Version(NO_TABLE)

    def _fitted(
        self, work: Work, rows: Rows, besides: Sequence[str] = (), columns: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Make the rows fit the table's columns; in memory a column has no type."""
        kept = [dict(row) for row in rows]
        columns = self._newest(work.name).columns if columns is None else columns
        found = dict.fromkeys((name for row in kept for name in row if name not in besides), "any")
        if not columns or not kept:
            refuse_look_alikes(found, (), work.name)
            return kept
        fits = fit(found, dict.fromkeys(columns, "any"), work.columns, work.name)
        return [{**dict.fromkeys(fits.columns), **row} for row in kept]

    def _append(self, name: str, version: Version) -> None:
        self._tables[name] = [*self._tables.get(name, []), version]


def with_label(row: Row, column: str, label: str) -> Row:
    """Return a row with one more column."""
    if column in row:
        raise column_taken(column)
    return {**row, column: label}
