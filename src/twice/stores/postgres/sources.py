"""Where do the rows of an attempt wait until they are published?

Few rows are held by the driver, and are copied into a temporary table in the transaction that publishes them: a death
leaves nothing behind. Many are staged by Spark's tasks in tables, which `tasks` fills. Either way the transaction sees one
relation, and everything that is asked of the rows is asked of it in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from psycopg import errors, sql

from twice.errors import NotPublished
from twice.faults import reach
from twice.stores.postgres import rows
from twice.stores.postgres.connections import Connection, comma, one
from twice.stores.postgres.names import Name, column, definitions

_HELD = "twice_rows"


@dataclass(frozen=True)
class Stored:
    """A table that a task staged, and how many rows it put there."""

    name: Name
    rows: int

    @property
    def tables(self) -> tuple[Name, ...]:
        """What is dropped when the rows were published."""
        return (self.name,)

    @property
    def counts(self) -> sql.Composable:
        """The condition that a row which counts meets."""
        return sql.SQL("true")

    def check(self, connection: Connection) -> None:
        """See that the rows are still there.

        Raises:
            NotPublished: Some are not.
        """
        query = sql.SQL("select count(*) from {} where {}").format(self.name.sql, self.counts)
        try:
            found = one(connection.execute(query))[0]
        except errors.UndefinedTable:
            found = 0
        self.compare(found)

    def compare(self, found: int) -> None:
        """See that as many rows are there as were staged.

        Raises:
            NotPublished: There are more or less.
        """
        if found != self.rows:
            raise NotPublished(
                f"A staged table holds {found or 'no'} rows instead of {self.rows}.",
                "The server lost them in a crash, or a tidy swept them; nothing was published.",
                "Run again.",
            )


@dataclass(frozen=True)
class Shared(Stored):
    """A table that all tasks filled, in the transactions `by`; what others committed to it does not count.

    Each row knows the transaction that wrote it, and `journal` is the table in which each of them noted itself and its
    rows: so what is in the table is known without reading it, as long as it is in the same file of the server.
    """

    journal: Name
    by: tuple[int, ...]
    file: int

    @property
    def tables(self) -> tuple[Name, ...]:
        """What is dropped when the rows were published."""
        return (self.name, self.journal)

    @property
    def counts(self) -> sql.Composable:
        """The condition that a row which counts meets."""
        return self._written_by(self.by)

    def clean(self, connection: Connection) -> None:
        """Delete the rows that do not count; nobody writes to the table meanwhile.

        Raises:
            NotPublished: Rows that count are gone.
        """
        noted = self._noted(connection)
        self.compare(sum(noted.get(number, 0) for number in set(self.by)))
        others = [number for number in noted if number not in self.by]
        if others:
            connection.execute(sql.SQL("delete from {} where {}").format(self.name.sql, self._written_by(others)))
        if others or file_of(connection, self.name) != self.file:
            self.compare(one(connection.execute(sql.SQL("select count(*) from {}").format(self.name.sql)))[0])

    def _noted(self, connection: Connection) -> dict[int, int]:
        """Return the transactions that filled the table, each with its rows."""
        return dict(connection.execute(sql.SQL("select by, rows from {}").format(self.journal.sql)).fetchall())

    @staticmethod
    def _written_by(numbers: Sequence[int]) -> sql.Composed:
        return sql.SQL("xmin = any({}::xid[])").format(sql.Literal([str(number) for number in numbers]))


def file_of(connection: Connection, table: Name) -> int:
    """Return the file that holds a table's rows; TRUNCATE, for one, gives it another."""
    return int(one(connection.execute("select pg_relation_filenode(%s)", [table.text]))[0])


@dataclass(frozen=True)
class Source:
    """The rows of an attempt: those that are held here, and those in staged tables; and the frame they came from.

    `strays` are those outside the slice, if the tasks were asked to count them.
    """

    types: Mapping[str, str]
    held: pa.Table | None = None
    stored: tuple[Stored, ...] = ()
    frame: Any = None
    strays: int | None = None

    @property
    def count(self) -> int:
        """How many rows there are."""
        return (self.held.num_rows if self.held is not None else 0) + sum(part.rows for part in self.stored)

    def checked(self, connection: Connection) -> Source:
        """See that no row was lost since it was staged, before the rows are published.

        Raises:
            NotPublished: The server was restarted without them, or they were swept.
        """
        for part in self.stored:
            part.check(connection)
        return self

    def opened(self, connection: Connection, number: int = 0) -> sql.Composable:
        """Return the rows as a relation of the transaction at hand."""
        names = comma(map(column, self.types))
        parts = []
        if self.held is not None and (self.held.num_rows or not self.stored):
            parts.append(_copied(connection, self.held, self.types, f"{_HELD}_{number}"))
        selects = [sql.SQL("select {} from {}").format(names, part) for part in parts]
        selects.extend(
            sql.SQL("select {} from {} where {}").format(names, part.name.sql, part.counts) for part in self.stored
        )
        return sql.SQL("({})").format(sql.SQL(" union all ").join(selects))


def _copied(connection: Connection, table: pa.Table, types: Mapping[str, str], name: str) -> sql.Identifier:
    """Copy rows into a table that the end of the transaction takes away."""
    temporary = sql.Identifier("pg_temp", name)
    made = sql.SQL("create temporary table {} ({}) on commit drop").format(sql.Identifier(name), definitions(types))
    connection.execute(made)
    if table.num_rows:
        arranged = table.select(list(types))
        with connection.cursor().copy(
            sql.SQL("copy {} ({}) from stdin").format(temporary, comma(map(column, types)))
        ) as copy:
            for batch in arranged.to_batches(max_chunksize=10_000):
                for row in rows.plain(pa.Table.from_batches([batch])):
                    copy.write_row(row)
        connection.execute(sql.SQL("analyze {}").format(temporary))
    reach("postgres.copied")
    return temporary
