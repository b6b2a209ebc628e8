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
from psycopg import errors, sql

from twice.errors import NotPublished
from twice.slices import quoted
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
        raise Misfit(
            f"PostgreSQL refuses the value {value!r} in the column {name!r} of {what}: {message(error)}.",
            f"The column is {fits.types[name]}. Nothing was published, and the target is as it was.",
            "Correct the rows in the transform, or the table.",
            column=name,
            value=value,
        ) from error


class Misfit(NotPublished):
    """A value that the table does not take, of a known column."""

    def __init__(self, what: str, why: str, fix: str, *, column: str, value: str) -> None:
        super().__init__(what, why, fix)
        self.column = column
        self.value = value


@contextmanager
def traced(frames: Sequence[Any]) -> Iterator[None]:
    """Do something with the rows of frames; if a value of theirs does not fit, say from which file it came.

    The transaction is over by then: nobody waits while Spark looks for it.

    Raises:
        NotPublished: A value does not fit.
    """
    try:
        yield
    except Misfit as misfit:
        files = (file_of(frame, misfit.column, misfit.value) for frame in frames)
        found = next(filter(None, files), "")
        if not found:
            raise
        raise NotPublished(f"{misfit.what} It was read from {found}.", misfit.why, misfit.fix) from misfit


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
        try:
            with connection.transaction():
                row = connection.execute(query).fetchone()
        except errors.UndefinedFunction:  # before PostgreSQL 16
            return None
        if row:
            return name, str(row[0])
    return None
