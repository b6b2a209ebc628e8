"""Which column holds the value that the table does not take?

PostgreSQL names the type that a value does not have, and not always the column. Where it refuses a value, each column
that changes its type on the way is asked for one that the server itself would not read as that type. That costs a
pass over the rows, and only where they are refused anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors, sql

from twice.errors import NotPublished
from twice.stores.postgres.connections import Connection, message
from twice.stores.postgres.kinds import Fitted
from twice.stores.postgres.names import column

_MOST_CHARACTERS = 80
_FIRST = """
select left({value}::text, {most}) from {relation} given
where {value} is not null and not pg_input_is_valid({value}::text, {type}) limit 1
"""


@contextmanager
def named(connection: Connection, relation: sql.Composable, fits: Fitted, what: str) -> Iterator[None]:
    """Do something with rows; if a value does not fit, say which, in which column.

    Raises:
        NotPublished: A value does not fit. The transaction is as it was before the block.
    """
    try:
        with connection.transaction():
            yield
    except psycopg.DataError as error:
        found = _found(connection, relation, fits)
        if not found:
            raise
        name, value = found
        raise NotPublished(
            f"PostgreSQL refuses the value {value!r} in the column {name!r} of {what}: {message(error)}.",
            f"The column is {fits.types[name]}. Nothing was published, and the target is as it was.",
            "Correct the rows in the transform, or the table.",
        ) from error


def _found(connection: Connection, relation: sql.Composable, fits: Fitted) -> tuple[str, str] | None:
    """Return the first column that holds a value which is not of the table's type, and that value."""
    for name, typed in fits.types.items():
        if name in fits.fit.absent or fits.source.get(name) == typed:
            continue
        query = sql.SQL(_FIRST).format(
            value=column(name), relation=relation, type=sql.Literal(typed), most=sql.Literal(_MOST_CHARACTERS)
        )
        try:
            with connection.transaction():
                row = connection.execute(query).fetchone()
        except errors.UndefinedFunction:  # before PostgreSQL 16
            return None
        if row:
            return name, str(row[0])
    return None
