"""Who has changed a table without publishing, and how is that noticed?

Triggers for each statement, also for TRUNCATE, note the transaction of every change that no publish made; a publish
marks its own transaction. A statement that changes no row is not noted. Not noticed: whoever switches triggers off,
or writes as a replica does. Without the right to make triggers the receipt alone vouches, and the run says so.

The triggers do not ask for the rows that a statement changed: the server would keep a copy of them until it ends, and the
insert of a million rows would take a quarter longer, for every other writer of the table too.
"""

from __future__ import annotations

from psycopg import errors, sql

from twice.stores.postgres.bookkeeping import NOTING
from twice.stores.postgres.connections import Connection, Cursor
from twice.stores.postgres.names import Name

BY_RECEIPT_ONLY = (
    "proof by receipt only: the role may not make triggers on the table, so changes by others are not noticed"
)
_EVENTS = ("insert", "update", "delete", "truncate")
_MADE = "create or replace trigger {trigger} after {event} on {table} for each statement execute function {noting}()"
# Of a partitioned table also the partitions: a statement that names one of them does not fire its parent's triggers.
_FAMILY = """
select c.oid::regclass::text, n.nspname, c.relname,
    (select count(*) from pg_trigger t where t.tgrelid = c.oid and t.tgname like 'twice\\_%%' and t.tgenabled <> 'D')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p')
    and (c.oid = to_regclass(%(name)s) or c.oid in (select relid from pg_partition_tree(to_regclass(%(name)s))))
"""


def unguarded(cursor: Connection | Cursor, name: Name) -> list[Name]:
    """Return the table and its partitions, as far as they lack a trigger."""
    found = cursor.execute(_FAMILY, {"name": name.text}).fetchall()
    return [Name(schema, table) for _, schema, table, triggers in found if triggers < len(_EVENTS)]


def guard(connection: Connection, name: Name, books: str, *, is_new: bool = False) -> tuple[str, ...]:
    """Make the triggers that are missing, which note changes in the books of a schema; say so if the role may not.

    A table that this transaction has made is not asked: it has no trigger yet, and no partitions.
    """
    for table in [name] if is_new else unguarded(connection, name):
        try:
            with connection.transaction():
                connection.execute(sql.SQL("; ").join(_trigger(table, event, books) for event in _EVENTS))
        except errors.InsufficientPrivilege:
            return (BY_RECEIPT_ONLY,)
    return ()


def _trigger(table: Name, event: str, schema: str) -> sql.Composed:
    return sql.SQL(_MADE).format(
        trigger=sql.Identifier(f"twice_{event}"),
        event=sql.SQL(event),
        table=table.sql,
        noting=sql.Identifier(schema, NOTING),
    )


def strangers(connection: Connection, name: Name) -> list[tuple[str, str, str]]:
    """Tell the newest changes that no publish made: when, by whom, how."""
    found = connection.execute(
        sql.SQL(
            "select to_char(at, 'YYYY-MM-DD HH24:MI:SS'), role, operation from {} where relation = to_regclass(%s) order by at desc limit 3"
        ).format(sql.Identifier(name.schema, "twice_changes")),
        [name.text],
    )
    return [(str(at), str(role), str(operation)) for at, role, operation in found.fetchall()]
