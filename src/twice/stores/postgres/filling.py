"""How does a table get its shape, and the rows of an attempt?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg import errors, sql

from twice.stores.postgres import merging, targets
from twice.stores.postgres.connections import Connection, comma
from twice.stores.postgres.kinds import Column, Fitted
from twice.stores.postgres.names import Name, column, definitions
from twice.stores.postgres.sources import Shared

if TYPE_CHECKING:
    from twice.stores.postgres.publishing import Change

_VACUUMED_AS_OTHERS = "alter table {} reset (autovacuum_enabled, toast.autovacuum_enabled)"


def shape(connection: Connection, name: Name, fits: Fitted) -> None:
    """Make the table, or give it its new columns."""
    if not fits.table:
        connection.execute(sql.SQL("create table {} ({})").format(name.sql, definitions(fits.types)))
        return
    for added in fits.fit.added:
        connection.execute(
            sql.SQL("alter table {} add column {}").format(name.sql, definitions({added: fits.types[added]}))
        )
    for widened in fits.fit.widened:
        connection.execute(
            sql.SQL("alter table {} alter column {} type {}").format(
                name.sql,
                column(widened),
                sql.SQL(fits.types[widened]),
            )
        )


def take_staged(connection: Connection, change: Change) -> Change | None:
    """Let the table that the tasks filled be the new table, by its name; return what is left to be done, if that was.

    A task that does not count may still be writing to it. Then nobody waits: the rows that count are moved, as ever.

    Raises:
        NotPublished: Rows of it are gone.
    """
    shared = next((part for part in change.source.stored if isinstance(part, Shared)), None)
    if shared is None or not _held_alone(connection, shared.name):
        return None
    shared.clean(connection)
    # While it was staged a vacuum would have held it; from now on it is a table like others.
    connection.execute(sql.SQL(_VACUUMED_AS_OTHERS).format(shared.name.sql))
    named = sql.Identifier(change.name.table)
    connection.execute(sql.SQL("alter table {} rename to {}").format(shared.name.sql, named))
    return replace(change, source=replace(change.source, stored=()))


def _held_alone(connection: Connection, table: Name) -> bool:
    """Take a table for this transaction alone, unless somebody has it."""
    try:
        with connection.transaction():
            connection.execute(sql.SQL("lock table {} in access exclusive mode nowait").format(table.sql))
    except (errors.LockNotAvailable, errors.UndefinedTable):
        return False
    return True


def insert(connection: Connection, name: Name, change: Change, place: int = 0) -> int:
    """Put the rows of an attempt into a table, its change being the so manieth, and tell how many they were.

    Raises:
        NotPublished: The table does not take them all.
    """
    columns = comma(map(column, change.fits.types))
    relation = merging.cast(change.source.checked(connection).opened(connection, place), change.fits)
    statement = sql.SQL("insert into {} ({}) select {} from {} rows").format(name.sql, columns, columns, relation)
    return targets.check_taken(name, connection.execute(statement).rowcount, change.source.count)


def copy(connection: Connection, old: Name, new: Name, columns: Sequence[Column]) -> None:
    """Put the rows of a table into another one that is made like it, with all that the old one filled in, and count on from there."""
    kept = comma(column(one.name) for one in columns if not one.computed)
    statement = "insert into {} ({}) overriding system value select {} from {}"
    connection.execute(sql.SQL(statement).format(new.sql, kept, kept, old.sql))
    for name in (one.name for one in columns if one.filled and not one.computed):
        sequence = "select setval(s, nextval(pg_get_serial_sequence(%s, %s))) from pg_get_serial_sequence(%s, %s) s where s <> ''"
        connection.execute(sequence, [old.text, name, new.text, name])
