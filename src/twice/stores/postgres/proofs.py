"""Who has changed a table without publishing, and how is that noticed?

Triggers for each statement, also for TRUNCATE, note the transaction of every change that no publish made; a publish
marks its own transaction. A statement that changes no row is not noted. They fire always, so whoever writes as a replica does is
noticed too; who switches them off is noticed by `shapes`. What a subscription applies fires no triggers for statements: it is
not noticed. Without the right to make triggers the receipt alone vouches, and the run says so.

The triggers do not ask for the rows that a statement changed: the server would keep a copy of them until it ends, and the
insert of a million rows would take a quarter longer, for every other writer of the table too.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import errors, sql

from twice.stores.postgres.bookkeeping import NOTING
from twice.stores.postgres.connections import Connection, Cursor
from twice.stores.postgres.names import Name

BY_RECEIPT_ONLY = (
    "proof by receipt only: the role may not make triggers on the table, so changes by others are not noticed"
)
BUT_REPLICAS = "changes by sessions that write as a replica are not noticed: the role does not own the table, so its triggers are ordinary ones"
_EVENTS = ("insert", "update", "delete", "truncate")
_MADE = "create or replace trigger {trigger} after {event} on {table} for each statement execute function {noting}()"
_ALWAYS = sql.SQL(", ").join(
    sql.SQL("enable always trigger {}").format(sql.Identifier(f"twice_{event}")) for event in _EVENTS
)
# Of a partitioned table also the partitions: a statement that names one of them does not fire its parent's triggers.
_FAMILY = """
select n.nspname, c.relname, found.on, found.always, pg_has_role(c.relowner, 'usage')
from pg_class c join pg_namespace n on n.oid = c.relnamespace, lateral (
    select count(*) filter (where t.tgenabled <> 'D') as on, count(*) filter (where t.tgenabled = 'A') as always
    from pg_trigger t where t.tgrelid = c.oid and t.tgname = any(%(triggers)s)
) found
where c.relkind in ('r', 'p')
    and (c.oid = to_regclass(%(name)s) or c.oid in (select relid from pg_partition_tree(to_regclass(%(name)s))))
"""


@dataclass(frozen=True)
class Watched:
    """A table or a partition, and what its triggers notice: changes, and also those of sessions that write as a replica."""

    name: Name
    is_whole: bool
    is_always: bool
    is_owned: bool

    @property
    def lacks(self) -> bool:
        """Tell whether a publish could, or should, do something about it."""
        return not self.is_whole or (self.is_owned and not self.is_always)


def family(cursor: Connection | Cursor, name: Name) -> list[Watched]:
    """Return the table and its partitions."""
    values = {"name": name.text, "triggers": [f"twice_{event}" for event in _EVENTS]}
    return [
        Watched(Name(schema, table), on == len(_EVENTS), always == len(_EVENTS), is_owned)
        for schema, table, on, always, is_owned in cursor.execute(_FAMILY, values).fetchall()
    ]


def unguarded(cursor: Connection | Cursor, name: Name) -> list[Name]:
    """Return the table and its partitions, as far as they lack a trigger, or one does not notice all that it could."""
    return [one.name for one in family(cursor, name) if one.lacks]


def guard(connection: Connection, name: Name, books: str, *, is_new: bool = False) -> tuple[str, ...]:
    """Make the triggers that are missing, which note changes in the books of a schema; say so if the role may not.

    A table that this transaction has made is not asked: it has no trigger yet, and no partitions.
    """
    there = [Watched(name, is_whole=False, is_always=False, is_owned=True)] if is_new else family(connection, name)
    for table in there:
        try:
            with connection.transaction():
                if not table.is_whole:
                    made = sql.SQL("; ").join(_trigger(table.name, event, books) for event in _EVENTS)
                    connection.execute(made)
                if table.is_owned and not table.is_always:
                    connection.execute(sql.SQL("alter table {} {}").format(table.name.sql, _ALWAYS))
        except errors.InsufficientPrivilege:
            return (BY_RECEIPT_ONLY,)
    return () if all(table.is_owned or table.is_always for table in there) else (BUT_REPLICAS,)


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
