"""How are a table's rows read, and what does the server know about them?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from psycopg import sql

from twice.abilities import Repeated, Repeats, Trouble
from twice.errors import NotPublished
from twice.stores.postgres import bookkeeping, proofs
from twice.stores.postgres.connections import comma, connected, one
from twice.stores.postgres.kinds import arrow_type, kind_of
from twice.stores.postgres.names import Name, column


def fetched(url: str, name: Name) -> pa.Table:
    """Return all rows as an Arrow table.

    Raises:
        NotPublished: There is no such table.
    """
    with connected(url) as connection:
        columns = bookkeeping.columns_of(connection, name)
        if not columns:
            raise NotPublished(f"The table {name.table} does not exist yet.", fix="Run the pipeline that writes it.")
        schema = pa.schema([(one.name, arrow_type(kind_of(one.type))) for one in columns])
        selected = comma(
            sql.SQL("{}::text").format(column(one.name))
            if pa.types.is_string(schema.field(one.name).type)
            else column(one.name)
            for one in columns
        )
        found = connection.execute(sql.SQL("select {} from {}").format(selected, name.sql)).fetchall()
    return pa.table([pa.array(values, schema.types[n]) for n, values in enumerate(_turned(found, len(columns)))], schema)


def _turned(rows: Sequence[tuple[Any, ...]], columns: int) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [() for _ in range(columns)]


def frame(url: str, name: Name, spark: Any) -> Any:
    """Return all rows as a frame."""
    return spark.createDataFrame(fetched(url, name))


def repeats(url: str, name: Name, keys: Sequence[str], sample: int) -> Repeats:
    """Count the keys that are in several rows, and show some."""
    listed = comma(map(column, keys))
    groups = sql.SQL("select {}, count(*) as rows from {} group by {} having count(*) > 1").format(
        listed, name.sql, comma(map(column, keys))
    )
    with connected(url) as connection:
        count, rows = one(
            connection.execute(sql.SQL("select count(*), coalesce(sum(rows), 0) from ({}) groups").format(groups))
        )
        if not count:
            return Repeats()
        query = sql.SQL("select * from ({}) groups order by rows desc, {} limit {}").format(
            groups, listed, sql.Literal(sample)
        )
        found = connection.execute(query).fetchall()
    return Repeats(count, int(rows), tuple(Repeated(dict(zip(keys, row, strict=False)), row[-1]) for row in found))


def troubles(url: str, name: Name, target: str) -> list[Trouble]:
    """Tell whether changes by others would go unnoticed, and who made some."""
    with connected(url) as connection:
        if not bookkeeping.Books(name.schema).are_there(connection):
            return []
        lacking = proofs.unguarded(connection, name)
        if not lacking:
            return []
        return [
            Trouble(
                "foreign",
                f"Changes of postgres:{target} by others would not be noticed: a trigger is missing or switched off.",
                "The next publish makes them, if its role may.",
                is_wrong=False,
                named=tuple(table.table for table in lacking),
            )
        ]
