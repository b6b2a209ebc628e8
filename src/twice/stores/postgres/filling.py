"""How does a table get its shape, and the rows of an attempt?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from twice.stores.postgres import merging
from twice.stores.postgres.connections import Connection, comma
from twice.stores.postgres.kinds import Fitted
from twice.stores.postgres.names import Name, column, definitions

if TYPE_CHECKING:
    from twice.stores.postgres.publishing import Change


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


def insert(connection: Connection, name: Name, change: Change, place: int = 0) -> int:
    """Put the rows of an attempt into a table, its change being the so manieth, and tell how many they were."""
    columns = comma(map(column, change.fits.types))
    relation = merging.cast(change.source.checked(connection).opened(connection, place), change.fits)
    statement = sql.SQL("insert into {} ({}) select {} from {} rows").format(name.sql, columns, columns, relation)
    return connection.execute(statement).rowcount
