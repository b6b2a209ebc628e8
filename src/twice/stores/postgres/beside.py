"""Where are small bodies kept beside a table of PostgreSQL?

In `twice_kept`, a row each, in the schema of the target like all bookkeeping. COMMIT has forced it to disk when
`keep_beside` returns. Whoever dies before COMMIT leaves nothing, and after it a row that no receipt names: it does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import errors

from twice.abilities import label_taken
from twice.faults import reach
from twice.stores.postgres.bookkeeping import Books
from twice.stores.postgres.connections import begin, commit, connected, nothing_lands, readable
from twice.stores.postgres.names import Name

_NOT_THERE = (errors.UndefinedTable, errors.InvalidSchemaName)


def keep(url: str, name: Name, label: str, body: bytes) -> None:
    """Insert a body that never changes."""
    books = Books(name.schema)
    statement = books.filled_in("insert into {kept} (target, label, body) values (%s, %s, %s) on conflict do nothing")
    with connected(url) as connection:
        with nothing_lands(name.table):
            books.make_kept(connection)
        reach("postgres.beside.before")
        with nothing_lands(name.table):
            begin(connection)
            kept = connection.execute(statement, [name.table, label, body]).rowcount
        commit(connection, name.table)
        reach("postgres.beside.after")
    if not kept:
        raise label_taken(label)


def body(url: str, name: Name, label: str) -> bytes | None:
    """Return a body, or None if it is not there."""
    query = Books(name.schema).filled_in("select body from {kept} where target = %s and label = %s")
    with connected(url) as connection, readable(name.table):
        try:
            found = connection.execute(query, [name.table, label]).fetchone()
        except _NOT_THERE:
            return None
    return bytes(found[0]) if found else None


def labels(url: str, name: Name) -> dict[str, float]:
    """Return the labels of all bodies of a target, each with the time at which it was kept."""
    query = Books(name.schema).filled_in("select label, extract(epoch from kept_at) from {kept} where target = %s")
    with connected(url) as connection, readable(name.table):
        try:
            found = connection.execute(query, [name.table]).fetchall()
        except _NOT_THERE:
            return {}
    return {str(label): float(kept_at) for label, kept_at in found}


def drop(url: str, name: Name, chosen: Sequence[str]) -> None:
    """Delete bodies."""
    statement = Books(name.schema).filled_in("delete from {kept} where target = %s and label = any(%s)")
    with connected(url) as connection, nothing_lands(name.table):
        try:
            connection.execute(statement, [name.table, list(chosen)])
        except _NOT_THERE:
            return
