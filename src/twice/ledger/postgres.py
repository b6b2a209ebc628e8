"""How are intentions and confirmations kept for several hosts?

In a schema of their own in a PostgreSQL database. Each act opens its own connection, as on SQLite, so
that none crosses a fork or a thread, none is idle through a long job, and none is found dead later.

- **Alone on the ledger.** Each check-then-act first takes an advisory lock that ends with its
  transaction. At READ COMMITTED each later statement sees all that the holder before has committed.
  So acts come one after the other, and none is ever asked to be done again, as SERIALIZABLE would.
- **A holder that is gone** gives the lock back: its connection ends, or the server ends one that says
  nothing for a minute inside a transaction.
- **The reply to a COMMIT is lost.** The act ends in an error, though it may have been kept. An attempt
  is then *started* with nobody behind it; a lease runs out; a confirmation is made again by the next
  run, from the store. Nothing that is published depends on it.
- **Time** is the server's, for leases and for what people read. That a holder is dead is only known on
  its own host, since the same boot; everybody else waits until its lease runs out.
- **A standby** is refused when the connection is made: it would answer with yesterday's leases.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from twice import postgres
from twice.errors import Misuse, NotPublished
from twice.ledger.ledger import Ledger, ledger_id, name_ledger
from twice.ledger.migrating import refuse_newer, statements_since
from twice.ledger.records import machine_boot
from twice.ledger.schema import VERSION
from twice.ledger.tables import Answer, Connection, Row, committed, giving_way, holder_of

if TYPE_CHECKING:
    import psycopg

SCHEMA = "twice_ledger"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_LIMITS = (
    "SET LOCAL lock_timeout='30s'; SET LOCAL idle_in_transaction_session_timeout='60s'; SET LOCAL synchronous_commit=on"
)
# What SQLite says for itself: there a number has any size, and texts compare byte by byte.
_TYPES = (("INTEGER", "BIGINT"), ("REAL", "DOUBLE PRECISION"), ("TEXT", 'TEXT COLLATE "C"'), ("WITHOUT ROWID", ""))
_LEDGER = "The ledger"
_MANY = 1_000


class PostgresLedger(Ledger):
    """The ledger of several hosts, in a PostgreSQL database."""

    def __init__(self, url: str, *, lease_seconds: float = 60.0, renew_seconds: float = 20.0) -> None:
        super().__init__(lease_seconds=lease_seconds, renew_seconds=renew_seconds)
        self._address = Address(url)
        self._open()

    @property
    def place(self) -> str:
        """Host, database and schema; no password."""
        return self._address.shown

    def _open(self) -> None:
        """Make the tables, bring them up to date, and give the ledger its name: in one transaction."""
        with opening(self._address), closing(self._address.connect()) as db:
            found = _schema(db, self._address.schema)
            if found is not None and found >= VERSION:
                refuse_newer(self.place, found)
                with committed(db, self._begin("READ ONLY")):
                    self.id = ledger_id(db)
                return
            with committed(db, self._begin("READ WRITE", self._lock())):
                self._migrate(db)

    def _migrate(self, db: Connection) -> None:
        found = _schema(db, self._address.schema)
        if found is None:
            # IF NOT EXISTS asks for the right to create one, also where an administrator did so before.
            if not db.execute("SELECT 1 FROM pg_namespace WHERE nspname=?", (self._address.schema,)).fetchone():
                db.execute(f"CREATE SCHEMA {self._address.schema}")
            db.execute("CREATE TABLE schema_number (number INTEGER NOT NULL)")
            db.execute("INSERT INTO schema_number VALUES (0)")
        for statement in statements_since(found or 0):
            db.execute(_spoken(statement))
        db.execute("UPDATE schema_number SET number=?", (VERSION,))
        self.id = name_ledger(db, secrets.token_hex(8))

    def _begin(self, mode: str, *first: str) -> str:
        place = f"SET LOCAL search_path={self._address.schema}"
        return "; ".join((f"BEGIN ISOLATION LEVEL READ COMMITTED {mode}", _LIMITS, place, *first))

    def _lock(self) -> str:
        return f"SELECT pg_advisory_xact_lock(hashtextextended('twice ledger {self._address.schema}', 0))"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One check-then-act, alone on the ledger from its first line."""
        begin = self._begin("READ WRITE", self._lock())
        with self._trouble(), closing(self._address.connect()) as db, committed(db, begin):
            yield db

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Several questions on one connection."""
        with self._trouble(), closing(self._address.connect()) as db, committed(db, self._begin("READ ONLY")):
            yield db

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise NotPublished(
                f"The ledger {self.place} cannot be used: {postgres.one_line(error)}.",
                "What was published before is as it was; the stores hold its receipts.",
                "Run again when the server answers; twice doctor tells whether it does.",
            ) from error

    def insert_all(
        self,
        db: Connection,
        table: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        replacing: Sequence[str],
    ) -> None:
        """Insert many rows by way of a table that nobody else ever sees: it goes with the transaction that made it."""
        remaining = iter(rows)
        first = list(islice(remaining, _MANY))
        if len(first) < _MANY or not isinstance(db, _Connection):
            super().insert_all(db, table, columns, chain(first, remaining), replacing)
            return
        # In the ledger's own schema, where it may make tables; a temporary one would need a right of its own.
        beside, named = f"{table}_incoming", ", ".join(columns)
        db.execute(f"CREATE UNLOGGED TABLE {beside} (LIKE {table})")
        db.copy(f"COPY {beside} ({named}) FROM STDIN", chain(first, remaining))
        db.execute(f"INSERT INTO {table} ({named}) SELECT {named} FROM {beside}" + giving_way(columns, replacing))  # noqa: S608 - names of our own tables
        db.execute(f"DROP TABLE {beside}")

    def clock(self, db: Connection) -> float:
        """The server's clock, as it is now: the start of the transaction may lie long back."""
        return float(_one(db, "SELECT extract(epoch FROM clock_timestamp())::float8 AS found"))

    def now(self, db: Connection) -> str:
        """The server's wall clock."""
        moment = "clock_timestamp() AT TIME ZONE 'UTC'"
        return str(_one(db, f'SELECT to_char({moment}, \'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"\') AS found'))

    def boot(self) -> str:
        """The boot of the holder's machine."""
        return machine_boot()

    def is_over(self, row: Row) -> bool:
        """A lease of a process of this host, since this boot, that is dead is over; of others nothing is known."""
        return bool(row["boot"] == machine_boot()) and holder_of(row).is_dead


class Address:
    """Where a ledger is: a database, and a schema in it that `?schema=` may name."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        self.schema = options.pop("schema", SCHEMA)
        if not _NAME.fullmatch(self.schema):
            raise Misuse(
                f"The schema {self.schema!r} of the ledger is not a plain name.",
                fix="Use small letters, digits and underscores, at most 63, for example ?schema=orders_ledger.",
            )
        self._url = urlunsplit(parts._replace(query=urlencode(options)))
        postgres.need(_LEDGER, "psycopg")
        self.shown = f"postgresql://{postgres.place(self._url, _LEDGER)} (schema {self.schema})"

    def connect(self) -> _Connection:
        """Open a connection that sends no statement by itself."""
        import psycopg

        asked = postgres.parameters(self._url, _LEDGER)
        return _Connection(psycopg.connect(**asked, autocommit=True, prepare_threshold=None))

    def is_made(self) -> bool:
        """Tell whether there is a ledger; makes none."""
        with opening(self), closing(self.connect()) as db:
            return _schema(db, self.schema) is not None


class _Connection:
    """Speaks to PostgreSQL as others speak to SQLite."""

    def __init__(self, real: psycopg.Connection[Any]) -> None:
        from psycopg.rows import dict_row

        self._real = real
        self._real.row_factory = dict_row

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Answer:
        """Do one statement."""
        done = self._real.execute(_marked(sql), _kept(values)) if values else self._real.execute(sql.encode())
        if sql == "COMMIT" and done.statusmessage != "COMMIT":
            import psycopg

            raise psycopg.errors.InFailedSqlTransaction("a statement of it had failed, so nothing of it was kept")
        return done

    def executemany(self, sql: str, values: Iterable[Sequence[Any]], /) -> None:
        """Do one statement for each set of values."""
        self._real.cursor().executemany(_marked(sql), [_kept(one) for one in values])

    def copy(self, sql: str, values: Iterable[Sequence[Any]], /) -> None:
        """Send many rows at once."""
        with self._real.cursor().copy(sql.encode()) as rows:
            for one in values:
                rows.write_row(_kept(one))

    def close(self) -> None:
        """Close the connection."""
        self._real.close()


def _marked(sql: str) -> bytes:
    """Write the marks for values as psycopg wants them."""
    return sql.replace("%", "%%").replace("?", "%s").encode()


def _kept(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return values that PostgreSQL can keep: its texts hold no NUL, which a message of a driver may."""
    return tuple(
        value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value for value in values
    )


def _spoken(statement: str) -> str:
    for ours, theirs in _TYPES:
        statement = re.sub(rf"\b{ours}\b", theirs, statement)
    return statement


def _schema(db: Connection, schema: str) -> int | None:
    """Return the number of the schema that is there, or None if there is no ledger."""
    # The catalog is asked like a table: to_regclass may answer from before a wait for the lock.
    there = f"SELECT count(*) AS found FROM pg_tables WHERE schemaname='{schema}' AND tablename='schema_number'"  # noqa: S608 - a plain name
    if not _one(db, there):
        return None
    return int(_one(db, f"SELECT number AS found FROM {schema}.schema_number"))  # noqa: S608 - a plain name


def _one(db: Connection, sql: str) -> Any:
    row = db.execute(sql).fetchone()
    return row["found"] if row else None


@contextmanager
def opening(address: Address) -> Iterator[None]:
    """Tell what stands in the way of a ledger: a server, a right, or the address itself."""
    import psycopg

    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise Misuse(
            f"The ledger {address.shown} cannot be used: {postgres.one_line(error)}.",
            "It needs a schema that it may fill. Nothing was started.",
            f"As an administrator: CREATE SCHEMA {address.schema} AUTHORIZATION <the user of [ledger] url>;",
        ) from error
    except psycopg.Error as error:
        why = "Without it no intention can be recorded, so nothing was started."
        raise postgres.refusal(error, _LEDGER, address.shown, why) from error
