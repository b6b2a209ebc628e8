"""Who speaks to the ledger's tables, and how?

What is said is one set of statements, which SQLite and PostgreSQL both understand: `?` for a value,
`INSERT … ON CONFLICT`, columns by name. Where they differ is behind the few methods of `Tables`.

`transaction()` is one check-then-act. Whoever holds it is alone with the ledger from its first line,
and sees all that was done before; if the process dies inside, nothing of it was done. `query()` asks
one question and holds nobody up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

from twice.ledger.records import Holder

Row = Any
"""What a statement returns: columns by name, and `dict(row)` for all of them."""


class Answer(Protocol):
    """What came back."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    @property
    def description(self) -> Any:
        """The columns, each a sequence that begins with the column's name."""
        ...

    def fetchone(self) -> Row | None:
        """Return the next row."""
        ...

    def fetchall(self) -> list[Row]:
        """Return all rows."""
        ...

    def __iter__(self) -> Iterator[Row]:
        """Return one row after the other."""
        ...


class Connection(Protocol):
    """What a statement is given to."""

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> Answer:
        """Do one statement."""
        ...

    def executemany(self, sql: str, values: Iterable[Sequence[Any]], /) -> Any:
        """Do one statement for each set of values."""
        ...


class Tables(ABC):
    """The ledger's tables, wherever they are kept."""

    id: str

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the ledger is, as people may see it: without a secret."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Connection]:
        """One check-then-act, alone on the ledger from its first line."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Connection]:
        """Several questions on one connection."""

    @abstractmethod
    def clock(self, db: Connection) -> float:
        """The seconds by which leases are judged: one clock for all who use the ledger, which nobody sets."""

    @abstractmethod
    def now(self, db: Connection) -> str:
        """The time of day, for people to read: nothing is decided by it."""

    @abstractmethod
    def boot(self) -> str:
        """What tells the machine's boots apart."""

    @abstractmethod
    def is_over(self, row: Row) -> bool:
        """Tell whether a lease is over although its time has not run out."""

    def insert_all(
        self,
        db: Connection,
        table: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        replacing: Sequence[str],
    ) -> None:
        """Insert many rows with different keys, as fast as the place allows; older ones with their keys give way."""
        db.executemany(inserting(table, columns) + giving_way(columns, replacing), rows)

    def query(self, sql: str, *values: Any) -> list[Row]:
        """Return the rows that answer a question."""
        with self.reading() as db:
            return db.execute(sql, values).fetchall()


def insert(db: Connection, table: str, row: Mapping[str, Any], *, replacing: Sequence[str] = ()) -> None:
    """Insert a row; `replacing` names the key by which an older one gives way."""
    db.execute(inserting(table, list(row)) + giving_way(row, replacing), tuple(row.values()))


def inserting(table: str, columns: Sequence[str]) -> str:
    """Return the statement that inserts a row."""
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - names of our own tables


def giving_way(columns: Iterable[str], key: Sequence[str]) -> str:
    """Return what makes an older row with the same key give way; nothing without a key."""
    if not key:
        return ""
    changes = ", ".join(f"{column}=excluded.{column}" for column in columns if column not in key)
    return f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"


def holder_of(row: Row) -> Holder:
    """Return the process that holds a lease."""
    return Holder(row["host"], row["pid"], row["process_started"])


@contextmanager
def committed(db: Connection, begin: str) -> Iterator[None]:
    """One transaction: all of the block, or nothing of it."""
    db.execute(begin)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(Exception):  # a connection that is gone has undone it already
            db.execute("ROLLBACK")
        raise
