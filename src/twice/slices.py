"""Which rows of a table belong to a slot?

A slice is declared once (`slice="day"`, or a predicate) and becomes a condition when the type of
the column is known: a date equals the slot's day, a timestamp lies in `[start, end)`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol

from twice.errors import Misuse
from twice.intervals import Interval, utc_text, zone_named
from twice.runs import Slot

Types = Mapping[str, str]
# The shortest day of any zone: clocks are set forward by two hours in Antarctica.
_SHORTEST_DAY = timedelta(hours=22)


class Slice(Protocol):
    """The rows that a slot may write, and that a new generation of it replaces."""

    def sql(self, types: Types) -> str:
        """Return the slice as a Spark SQL condition over columns of these types."""

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a plain row lies in the slice."""

    @property
    def text(self) -> str:
        """The slice in words, for plans and messages."""


@dataclass(frozen=True)
class ColumnSlice:
    """Rows whose column stands for the slot: its start, its interval, or its batch key."""

    column: str
    slot: Slot
    zone: str = "UTC"

    def sql(self, types: Types) -> str:
        """Return `column = literal` or a range, in the column's type."""
        if self.column not in types:
            raise missing_column(self.column, types)
        name, kind = quoted(self.column), types[self.column]
        if kind.startswith("timestamp"):
            low, high = self._bounds(kind)
            return f"{name} >= {low} AND {name} < {high}"
        return f"{name} = {self._literal(kind)}"

    def _bounds(self, kind: str) -> tuple[str, str]:
        interval = self._interval()
        return moment_literal(interval.start, kind), moment_literal(interval.end, kind)

    def _literal(self, kind: str) -> str:
        if kind == "date":
            return f"DATE '{self.day.isoformat()}'"
        if kind == "string":
            return string_literal(self.label)
        if kind in ("int", "bigint", "smallint", "tinyint"):
            return str(self.number)
        raise Misuse(
            f"The slice column {self.column!r} has the type {kind}, which cannot stand for a slot.",
            fix="Use a date, timestamp, string or whole-number column, or a predicate (where=...).",
        )

    def _interval(self) -> Interval:
        if self.slot.interval is None:
            raise Misuse(f"The slot {self.slot.label!r} has no interval, so a timestamp column cannot be its slice.")
        return self.slot.interval

    @property
    def day(self) -> date:
        """The slot's first day, in the pipeline's zone; no other slot may start on it."""
        found = self._own_day()
        if found is None:
            raise Misuse(
                f"The slice column {self.column!r} holds days, and several slots of {self.slot.pipeline!r} may start on one.",
                fix="Slice by a timestamp column, or run the pipeline every day.",
            )
        return found

    def _own_day(self) -> date | None:
        """The day on which this slot starts, if the next one starts on a later day."""
        zone = zone_named(self.zone)
        start, end = (moment.astimezone(zone).date() for moment in (self._interval().start, self._interval().end))
        return start if start < end and self._interval().length >= _SHORTEST_DAY else None

    @property
    def label(self) -> str:
        """The slot as a string column holds it: its day, its first moment in UTC, or its key."""
        if self.slot.interval is None:
            return str(self.slot.part)
        day = self._own_day()
        return day.isoformat() if day else utc_text(self.slot.interval.start)

    @property
    def number(self) -> int:
        """The slot as a whole-number column holds it: 20241007, or a key that is a number."""
        if self.slot.interval:
            return int(f"{self.day:%Y%m%d}")
        key = str(self.slot.part)
        if not re.fullmatch(r"-?[0-9]+", key) or str(int(key)) != key:
            raise Misuse(
                f"The key {key!r} is not written as a whole number, which the slice column {self.column!r} holds."
            )
        return int(key)

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a plain row lies in the slice."""
        if self.column not in row:
            raise missing_column(self.column, row)
        value = row[self.column]
        if isinstance(value, datetime):
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return self._interval().start <= moment < self._interval().end
        if isinstance(value, date):
            return value == self.day
        if isinstance(value, int):
            return value == self.number
        return bool(value == self.label)

    def holds_text(self, value: str, kind: str) -> bool:
        """Tell whether a value of a type lies in the slice, as the name of a partition writes it."""
        if kind in ("date", "string"):
            return value == (self.day.isoformat() if kind == "date" else self.label)
        return value == str(self.number)

    @property
    def text(self) -> str:
        """The slice in words."""
        return f"{self.column} = {self.label}"


@dataclass(frozen=True)
class PredicateSlice:
    """Rows for which a SQL condition is true; the user answers for its matching the slot."""

    condition: str

    def sql(self, types: Types) -> str:
        """Return the condition as written."""
        return self.condition

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Evaluate the condition over a plain row, with SQLite's SQL."""
        columns = ", ".join(f"? AS {quoted(name)}" for name in row)
        with sqlite3.connect(":memory:") as db:
            query = f"SELECT {columns}"
            found = db.execute(f"SELECT ({self.condition}) IS TRUE FROM ({query})", [_plain(v) for v in row.values()])  # noqa: S608
            return bool(found.fetchone()[0])

    @property
    def text(self) -> str:
        """The condition as written."""
        return self.condition


def missing_column(column: str, columns: object) -> Misuse:
    """Say that the rows lack the column which the slice names."""
    from twice.errors import suggestion

    return Misuse(f"The rows have no column {column!r}, which the pattern names.", fix=suggestion(column, columns))


def unknown_column(column: str, columns: object) -> Misuse:
    """Say that a table lacks the column that a person named."""
    from twice.errors import suggestion

    return Misuse(f"The table has no column {column!r}.", fix=suggestion(column, columns))


def column_taken(column: str) -> Misuse:
    """Say that the rows already have the column which the pattern fills."""
    return Misuse(
        f"The rows have a column {column!r} already, which the pattern fills itself.",
        fix="Choose another name with by=.",
    )


def quoted(name: str) -> str:
    """Quote a column's name for Spark SQL and SQLite."""
    return "`" + name.replace("`", "``") + "`"


def string_literal(text: str) -> str:
    """Quote a text for Spark SQL, which would put a variable in the place of `${name}`."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{") + "'"


def moment_literal(moment: datetime, kind: str) -> str:
    """Write a moment for Spark SQL as one of its two types of time."""
    text = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return f"TIMESTAMP_NTZ '{text}'" if kind == "timestamp_ntz" else f"TIMESTAMP '{text}+00:00'"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
