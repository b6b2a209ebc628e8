"""Which value does the table not take, in which column, and from which file did it come?

PostgreSQL names the type that a value does not have, and not always the column. Where it refuses a value, each column
that changes its type on the way is asked for one that the server itself would not read as that type. Spark is asked
for the file of that value; it knows no file behind a join, an aggregation or a shuffle. All of this costs a pass over
the rows, and only where they are refused anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg import sql

from twice.errors import NotPublished
from twice.slices import quoted
from twice.stores.postgres.connections import Connection, connected, message
from twice.stores.postgres.kinds import Fitted
from twice.stores.postgres.names import column
from twice.stores.postgres.sources import Source

_MOST_CHARACTERS = 80
_FIRST = """
select left({value}::text, {most}) from {relation} given
where {value} is not null and not pg_input_is_valid({value}::text, {type}) limit 1
"""


@contextmanager
def named(url: str, parts: Sequence[tuple[Source, Fitted]], what: str) -> Iterator[None]:
    """Do something with rows; if a value of theirs does not fit, say which, in which column, from which file.

    They are looked through after the block, when its transaction is over and nobody waits for it.

    Raises:
        NotPublished: A value does not fit.
    """
    try:
        yield
    except NotPublished as refused:
        error = refused.__cause__
        if not isinstance(error, psycopg.DataError):
            raise
        raise _explained(url, parts, what, error) or refused from error


def _explained(
    url: str, parts: Sequence[tuple[Source, Fitted]], what: str, error: psycopg.DataError
) -> NotPublished | None:
    """Return what is wrong with the rows, as far as it can be found out."""
    for source, fits in parts:
        try:
            with connected(url) as connection, connection.transaction(force_rollback=True):
                found = _found(connection, source.opened(connection), fits)
        except psycopg.Error:  # before PostgreSQL 16 it cannot be asked; or the rows could not even be copied
            continue
        if not found:
            continue
        name, value = found
        file = file_of(source.frame, name, value) if source.frame is not None else ""
        read_from = f" It was read from {file}." if file else ""
        return NotPublished(
            f"PostgreSQL refuses the value {value!r} in the column {name!r} of {what}: {message(error)}.{read_from}",
            f"The column is {fits.types[name]}. Nothing was published, and the target is as it was.",
            "Correct the rows in the transform, or the table.",
        )
    return None


def file_of(frame: Any, name: str, part: str) -> str:
    """Return the file from which a value was read that holds a text, if Spark knows it."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    if name not in frame.columns:
        return ""
    holds = F.col(quoted(name)).cast("string").contains(part)
    try:
        found = frame.where(holds).select(F.input_file_name()).head()
    except PySparkException:
        return ""
    return unquote(found[0]).removeprefix("file://") if found else ""


def _found(connection: Connection, relation: sql.Composable, fits: Fitted) -> tuple[str, str] | None:
    """Return the first column that holds a value which is not of the table's type, and that value."""
    for name, typed in fits.types.items():
        if name in fits.fit.absent or fits.source.get(name) == typed:
            continue
        query = sql.SQL(_FIRST).format(
            value=column(name), relation=relation, type=sql.Literal(typed), most=sql.Literal(_MOST_CHARACTERS)
        )
        row = connection.execute(query).fetchone()
        if row:
            return name, str(row[0])
    return None
