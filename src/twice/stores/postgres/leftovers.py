"""Which tables did attempts stage, and how do they go away?

They are named by target and attempt, so that what a dead attempt left behind is found without asking anybody.
"""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import errors, sql

from twice.runs import digest
from twice.stores.postgres.connections import Connection, connected
from twice.stores.postgres.names import MOST_BYTES, Name

STAGED = "twice_s"
# A task that does not count may still write to a table that is dropped; `twice tidy` drops it then.
# It is longer than the second after which the server lets a vacuum of its own give way.
_MOMENT = "3s"


def prefix_of(name: Name, attempt: str = "") -> str:
    """Return how the staged tables of a target begin, of one attempt if it is named."""
    prefix = f"{STAGED}_{digest(name.table)[:8]}_{attempt}"
    if len(prefix.encode()) > MOST_BYTES:
        raise AssertionError("an attempt's name is short")
    return prefix


def found(connection: Connection, name: Name, attempt: str = "") -> list[tuple[Name, str, int]]:
    """Return the staged tables of a target, each with its attempt and its bytes."""
    prefix = prefix_of(name, attempt)
    found = connection.execute(
        "select c.relname, pg_total_relation_size(c.oid) from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = %s and starts_with(c.relname, %s) and c.relkind = 'r' order by c.relname",
        [name.schema, prefix],
    ).fetchall()
    skipped = len(prefix_of(name))
    return [(Name(name.schema, table), table[skipped:].rsplit("_", 2)[0], int(size)) for table, size in found]


def drop(connection: Connection, tables: Iterable[Name]) -> list[Name]:
    """Drop staged tables that nobody publishes any more; return those to which somebody still writes, and which stay."""
    left = []
    for table in tables:
        try:
            with connection.transaction():
                connection.execute("select set_config('lock_timeout', %s, true)", [_MOMENT])
                connection.execute(sql.SQL("drop table if exists {}").format(table.sql))
        except errors.LockNotAvailable:
            left.append(table)
    return left


def discard(url: str, name: Name, attempt: str) -> None:
    """Drop what an attempt staged."""
    with connected(url) as connection:
        drop(connection, [table for table, _, _ in found(connection, name, attempt)])
