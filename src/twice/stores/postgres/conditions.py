"""Which rows of a table are a slot's, as PostgreSQL is asked?

A slice by a column becomes a comparison in the column's own type. A predicate is PostgreSQL's SQL here, since it is
PostgreSQL that deletes by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from psycopg import sql

from twice.errors import Misuse
from twice.slices import ColumnSlice, Slice, missing_column
from twice.stores.postgres import kinds
from twice.stores.postgres.names import column

NULL = "__HIVE_DEFAULT_PARTITION__"


def condition(bounds: Slice, types: Mapping[str, str]) -> sql.Composable:
    """Return a slice as a condition over columns of these types; it is true, false or NULL."""
    if not isinstance(bounds, ColumnSlice):
        return sql.SQL("({})").format(sql.SQL(bounds.text))
    if bounds.column not in types:
        raise missing_column(bounds.column, types)
    name = column(bounds.column)
    first, end = limits(bounds, kinds.kind_of(types[bounds.column]))
    if end is None:
        return sql.SQL("{} = {}").format(name, sql.Literal(first))
    return sql.SQL("({0} >= {1} and {0} < {2})").format(name, sql.Literal(first), sql.Literal(end))


def limits(bounds: ColumnSlice, kind: str) -> tuple[Any, Any]:
    """Return the one value of a slice in a column of a kind, or the first one and that before which it ends."""
    if kind.startswith("timestamp"):
        if bounds.slot.interval is None:
            raise Misuse(f"The slot {bounds.slot.label!r} has no interval, so a timestamp column cannot be its slice.")
        start, end = bounds.slot.interval.start, bounds.slot.interval.end
        return (start.replace(tzinfo=None), end.replace(tzinfo=None)) if kind == "timestamp_ntz" else (start, end)
    if kind == "date":
        return bounds.day, None
    if kind == "string":
        return bounds.label, None
    if kind in ("short", "integer", "long"):
        return bounds.number, None
    raise Misuse(
        f"The slice column {bounds.column!r} has the type {kind}, which cannot stand for a slot.",
        fix="Use a date, timestamp, string or whole-number column, or a predicate (where=...).",
    )


def partition_name(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """Name a partition by the texts of its values, the way a folder would."""
    return "/".join(f"{name}={_in_name(value)}" for name, value in zip(columns, values, strict=True))


def _in_name(value: str | None) -> str:
    """Quote a value; a text that reads like the name of NULL is quoted where it needs none."""
    if value is None:
        return NULL
    return f"%5F{NULL[1:]}" if value == NULL else quote(value, safe=" :+-.,")


def in_partition(name: str, types: Mapping[str, str]) -> sql.Composable:
    """Return the condition that a row is in a partition of that name."""
    tests = []
    for part in name.split("/"):
        key, _, value = part.partition("=")
        if key not in types:
            raise missing_column(key, types)
        tests.append(
            sql.SQL("{} is null").format(column(key))
            if value == NULL
            else sql.SQL("{} = {}::{}").format(column(key), sql.Literal(unquote(value)), sql.SQL(types[key]))
        )
    return sql.SQL("({})").format(sql.SQL(" and ").join(tests))


def in_any(names: Sequence[str], types: Mapping[str, str]) -> sql.Composable:
    """Return the condition that a row is in one of several partitions."""
    return sql.SQL(" or ").join(in_partition(name, types) for name in names) if names else sql.SQL("false")
