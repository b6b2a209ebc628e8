"""How is PostgreSQL spoken to, and what do its errors mean for the data?

A connection is opened for each act and closed after it: none is idle between two steps of a run. It gives up on a
silent server, and the server gives up on a silent client: a process that was stopped, or a cable that was cut, frees
its locks after a while.

Settings of a server, a database or a role can change what a statement means. Those that could change a row are fixed for
each connection, and once more in each transaction that Twice begins, since a connection pooler may drop what a client
asks for when it connects. `docs/reference/database-settings.md` lists them.

An error before COMMIT is sent means that nothing landed. So does a COMMIT that the server itself refuses, such as a deferred
constraint. Any other error at COMMIT says nothing: it is let through as it is, and whoever published looks for the receipt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors, pq, sql

from twice import postgres
from twice.errors import Busy, Conflict, Misuse, NotPublished

Connection = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.Cursor[tuple[Any, ...]]

# The user's own settings come after these, and win.
_USUAL = {
    "lock_timeout": "10min",  # as long as a neighbour may take to move its rows
    "idle_in_transaction_session_timeout": "60s",
    "client_connection_check_interval": "10s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60s",
}
# Without these a value would not be written the same on every server; they come last.
FIXED = {
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "xmloption": "content",
    "xmlbinary": "base64",
    "timezone_abbreviations": "Default",
    "gin_fuzzy_search_limit": "0",
}
# Whoever publishes has to see what was committed while it waited for a lock.
_ISOLATED = {"default_transaction_isolation": "read committed"}
# Only then is what was published there after a crash, on this server and on each replica that it waits for.
_DURABLE = (
    "select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') <> 'remote_apply'"
)
_GIVES_WAY = (errors.SerializationFailure, errors.DeadlockDetected)
# Connections, shutdowns, systems and internal errors: a pooler may tell of them too, when it lost the server's answer.
_SAYS_NOTHING = ("08", "57P", "58", "XX")
_SAMPLE = 200
_STORE = "The PostgreSQL store"


def parameters(url: str) -> dict[str, Any]:
    """Return what libpq is told: the user's own, and what every connection needs.

    Raises:
        Misuse: The URL cannot be read. What it holds is not shown.
    """
    asked = postgres.parameters(url, _STORE)
    options = [*_settings(_USUAL), str(asked.get("options") or ""), *_settings({**FIXED, **_ISOLATED})]
    return {**asked, "options": " ".join(filter(None, options)), "client_encoding": FIXED["client_encoding"]}


def _settings(values: dict[str, str]) -> Iterator[str]:
    return ("-c {}={}".format(name, value.replace(" ", "\\ ")) for name, value in values.items())


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """Open a connection to the primary for the block; an error rolls back and closes it.

    Raises:
        Misuse: There is no such server, it refuses us, or it is a replica.
        NotPublished: It does not answer.
    """
    asked = parameters(url)
    try:
        connection = psycopg.connect(**asked, autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        why = "Nothing was read and nothing was published."
        raise postgres.refusal(error, _STORE, postgres.place(url, _STORE), why) from error
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    with connection:
        yield connection


def begin(connection: Connection, how: str = "isolation level read committed") -> None:
    """Begin a transaction in which all settings are as they have to be, whatever the session was given; one message."""
    connection.execute(sql.SQL("begin {}; select {}; {}").format(sql.SQL(how), fixed(), sql.SQL(_DURABLE)))


def fixed() -> sql.Composed:
    """Return what fixes the settings for the transaction at hand, for a SELECT."""
    return comma(
        sql.SQL("set_config({}, {}, true)").format(sql.Literal(name), sql.Literal(value))
        for name, value in FIXED.items()
    )


def commit(connection: Connection, what: str) -> None:
    """Commit the transaction at hand.

    Raises:
        Conflict: The server chose this transaction to give way; nothing landed.
        NotPublished: The server refused it, and nothing landed.
        psycopg.Error: Nobody answered, so it may have landed.
    """
    try:
        connection.execute("commit")
    except psycopg.Error as error:
        # What a server refuses at COMMIT it rolls back before it answers; what happens after that ends its process.
        answers = connection.info.transaction_status == pq.TransactionStatus.IDLE
        if not answers or (error.sqlstate or "XX").startswith(_SAYS_NOTHING):
            raise
        if isinstance(error, _GIVES_WAY):
            raise Conflict(f"the server chose another transaction: {message(error)}") from error
        raise _refused(what, error) from error


@contextmanager
def nothing_lands(what: str) -> Iterator[None]:
    """Say what an error in the block means; COMMIT is not sent in it, so nothing of it ever lands.

    Raises:
        Conflict: The server chose this transaction to give way; it may be tried again.
        Busy: A lock was not to be had in time.
        Misuse: A right, a schema or an object is missing.
        NotPublished: The rows do not fit, or the connection broke.
    """
    try:
        yield
    except _GIVES_WAY as error:
        raise Conflict(f"the server chose another transaction: {message(error)}") from error
    except errors.LockNotAvailable as error:
        raise Busy(
            f"Someone else holds a lock on {what}, and did not let go in time.",
            "Nothing was published, and the target is as it was.",
            "Run again; pg_locks tells who holds it.",
        ) from error
    except errors.InsufficientPrivilege as error:
        raise _lacks_right(what, error) from error
    except errors.ReadOnlySqlTransaction as error:
        raise Misuse(f"The server of {what} takes no writes.", fix="Give the URL of the primary.") from error
    except (errors.InvalidSchemaName, errors.UndefinedFunction, errors.FeatureNotSupported) as error:
        raise Misuse(
            f"PostgreSQL refuses what {what} needs: {message(error)}.", _detail(error), "Correct it and run again."
        ) from error
    except errors.ObjectNotInPrerequisiteState as error:
        raise _refused(what, error) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise NotPublished(
            f"The connection to PostgreSQL broke, or a statement was stopped: {message(error)}",
            f"COMMIT was not sent, so nothing of it is in {what}.",
            "Run again.",
        ) from error
    except psycopg.Error as error:
        raise _refused(what, error) from error


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Say what an error means where only something was asked.

    Raises:
        Misuse: The role may not look at it.
    """
    try:
        yield
    except errors.InsufficientPrivilege as error:
        raise _lacks_right(what, error) from error


def _refused(what: str, error: psycopg.Error) -> NotPublished:
    return NotPublished(
        f"PostgreSQL refuses the rows of {what}: {message(error)}.",
        " ".join(filter(None, (_detail(error), "Nothing was published, and the target is as it was."))),
        error.diag.message_hint or "Correct the rows in the transform, or the table.",
    )


def _lacks_right(what: str, error: psycopg.Error) -> Misuse:
    return Misuse(
        f"The role lacks a right on {what}: {message(error)}.",
        "Nothing was published, and the target is as it was.",
        f"A role that owns it can give the right: {_grant(error)}",
    )


def message(error: psycopg.Error) -> str:
    """Return what the server said, and of which column, as far as it knows."""
    text = error.diag.message_primary or " ".join(str(error).split())
    where = f" (column {error.diag.column_name})" if error.diag.column_name else ""
    context = error.diag.context or ""
    copied = f" ({context.splitlines()[0][:_SAMPLE]})" if context.startswith("COPY") else ""
    return f"{text[:_SAMPLE]}{where}{copied}"


def _detail(error: psycopg.Error) -> str:
    detail = error.diag.message_detail or ""
    return f"{detail[:_SAMPLE]}" if detail else ""


def _grant(error: psycopg.Error) -> str:
    text = message(error)
    if "for schema" in text:
        return "GRANT USAGE, CREATE ON SCHEMA <schema> TO <role>."
    if "for database" in text:
        return "GRANT CREATE ON DATABASE <database> TO <role>."
    if "must be owner" in text:
        return "ALTER TABLE <table> OWNER TO <role>, or change its columns by hand."
    return "GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON <table> TO <role>."


def one(cursor: Cursor) -> tuple[Any, ...]:
    """Return the row of a query that always gives one."""
    row = cursor.fetchone()
    if row is None:
        raise AssertionError("this query gives one row")
    return row


def comma(parts: Iterable[sql.Composable]) -> sql.Composed:
    """Join pieces of SQL with commas."""
    return sql.SQL(", ").join(parts)
