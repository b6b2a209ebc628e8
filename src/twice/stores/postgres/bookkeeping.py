"""Where are a table's receipts, and what does one look at them tell?

Four small tables in the schema of the target, so that whoever dumps, renames or drops the schema takes them along,
and no right is needed beyond that to make tables there:

    twice_heads      one row a target: the counter that every publish moves, the owner, the oids of its tables
    twice_receipts   one row a slot: its newest generation, and how many changes of others it has seen
    twice_changes    one row for each transaction that changed a target without publishing, noted by triggers
    twice_kept       one row for each body that is kept beside a target, and counts through a receipt

They are made at the first use, under a lock, so that two first runs do not meet. A look is one statement, so it
sees one state; only where a table has another file or other partitions than its publish left, something more is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import errors, sql

from twice.runs import Receipt
from twice.sight import NO_TABLE, Sight
from twice.stores.postgres import shapes
from twice.stores.postgres.connections import Connection, Cursor, one
from twice.stores.postgres.kinds import Column
from twice.stores.postgres.names import Name

HEADS, RECEIPTS, CHANGES, KEPT = "twice_heads", "twice_receipts", "twice_changes", "twice_kept"
NOTING = "twice_note_change"
PUBLISHING = "twice.publishing"

_TABLES = """
create table if not exists {heads} (
    target text primary key,
    n bigint not null,
    owner text not null default '',
    tables text[] not null default '{{}}',
    relations oid[] not null default '{{}}',
    table_id text not null default '',
    data_version bigint not null default -1,
    changes bigint not null default 0,
    outside text not null default '',
    more jsonb not null default '{{}}'
);
create table if not exists {receipts} (
    target text not null,
    slot text not null,
    generation integer not null,
    receipt jsonb not null,
    changes bigint not null,
    ended text not null default '',
    gone boolean not null default false,
    primary key (target, slot)
);
create table if not exists {changes} (
    relation oid not null,
    transaction xid8 not null,
    role text not null,
    operation text not null,
    at timestamp with time zone not null default now(),
    primary key (relation, transaction)
);
"""
_KEPT = """
create table if not exists {kept} (
    target text not null,
    label text not null,
    body bytea not null,
    kept_at timestamp with time zone not null default clock_timestamp(),
    primary key (target, label)
)
"""

# Runs as its owner: whoever may change the table need not have rights on the bookkeeping. Whether rows were changed is
# told by the server's own counts, of the session since they were last handed on; a transaction without an id changed none.
# Not all are counted: of foreign tables, of those that no heap keeps, and with track_counts off, every statement is noted.
_NOTING = """
create or replace function {noting}() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp as $body$
declare
    touched boolean := true;
begin
    if coalesce(current_setting({publishing}, true), '') <> '' then
        return null;
    end if;
    if tg_op <> 'TRUNCATE' and current_setting('track_counts')::boolean then
        with recursive family (id) as (
            select tg_relid union all select i.inhrelid from pg_inherits i join family f on i.inhparent = f.id
        )
        select exists (
            select from family f join pg_class c on c.oid = f.id left join pg_am a on a.oid = c.relam
            where c.relkind <> 'p' and (a.amname is distinct from 'heap' or pg_current_xact_id_if_assigned() is not null and
                0 < pg_stat_get_xact_tuples_inserted(c.oid) + pg_stat_get_xact_tuples_updated(c.oid)
                    + pg_stat_get_xact_tuples_deleted(c.oid))
        ) into touched;
    end if;
    if touched then
        insert into {changes} (relation, transaction, role, operation)
        values (coalesce(pg_partition_root(tg_relid), tg_relid), pg_current_xact_id(), session_user, tg_op)
        on conflict do nothing;
    end if;
    return null;
end
$body$
"""

# The oids that the tables of a target have now; one that is gone has none.
THERE = (
    "coalesce((select array_agg(to_regclass(t)::oid order by k) from unnest({tables}) with ordinality u(t, k)), '{{}}')"
)
_LOOK = """
select h.target, h.n, h.owner, h.relations, {there}, h.table_id, h.data_version,
    h.changes + (select count(*) from {changes} c where c.relation = any(h.relations)),
    (select to_char(max(c.at) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') from {changes} c
        where c.relation = any(h.relations)),
    h.outside, h.more,
    (select jsonb_agg(jsonb_build_array(r.receipt, r.changes, r.ended, r.gone)) from {receipts} r
        where r.target = h.target), {made_of}
from {heads} h where h.target = any({targets})
"""

# Of other types two values may be equal though their texts differ: 1.0 and 1.00, a and A where capitals do not count.
_COLUMNS = """
select a.attname, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '' or a.attidentity <> '' or a.atthasdef,
    a.attnotnull and not a.atthasdef, a.attgenerated <> '',
    case when a.attcollation <> t.typcollation then quote_ident(n.nspname) || '.' || quote_ident(k.collname) else '' end,
    coalesce(k.collisdeterministic, true) and (b.typtype = 'e' or b.typname = 'numeric' and a.atttypmod <> -1 or b.typname in
        ('bool', 'int2', 'int4', 'int8', 'oid', 'text', 'varchar', 'bpchar', 'name', 'bytea', 'uuid', 'date', 'time',
        'timestamp', 'timestamptz', 'inet', 'cidr', 'macaddr', 'bit', 'varbit'))
from pg_attribute a join pg_type t on t.oid = a.atttypid join pg_type b on b.oid = coalesce(nullif(t.typbasetype, 0), t.oid)
    left join pg_collation k on k.oid = a.attcollation left join pg_namespace n on n.oid = k.collnamespace
where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped order by a.attnum
"""

DROPPED = "the table was dropped"
MADE_AGAIN = "the table was dropped and made again"
CHANGED = "the table was changed from outside"


@dataclass(frozen=True)
class Books:
    """The bookkeeping of one schema."""

    schema: str

    def of(self, table: str) -> sql.Identifier:
        """Return one of its tables, for the composer."""
        return sql.Identifier(self.schema, table)

    def filled_in(self, text: str, **more: sql.Composable) -> sql.Composed:
        """Fill the names of the tables into a statement."""
        return sql.SQL(text).format(
            heads=self.of(HEADS),
            receipts=self.of(RECEIPTS),
            changes=self.of(CHANGES),
            kept=self.of(KEPT),
            noting=self.of(NOTING),
            **more,
        )

    def are_there(self, connection: Connection, table: str = CHANGES) -> bool:
        """Tell whether the bookkeeping was made, or a part of it."""
        return one(connection.execute("select to_regclass(%s)", [self.of(table).as_string(None)]))[0] is not None

    def make(self, connection: Connection) -> None:
        """Make the bookkeeping, once, however many come at the same time."""
        self._make(connection, CHANGES, self.definitions())

    def make_kept(self, connection: Connection) -> None:
        """Make what bodies need too, where the bookkeeping is older than bodies; a publish alone needs no right to."""
        self.make(connection)
        self._make(connection, KEPT, (self.kept,))

    def _make(self, connection: Connection, last: str, statements: Sequence[sql.Composed]) -> None:
        if self.are_there(connection, last):
            return
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"twice {self.schema}"])
            for statement in statements:
                connection.execute(statement)

    @property
    def kept(self) -> sql.Composed:
        """The statement that makes the table of bodies."""
        return self.filled_in(_KEPT)

    def definitions(self) -> tuple[sql.Composed, ...]:
        """Return the statements that make the bookkeeping."""
        return (self.filled_in(_TABLES), self.kept, self.filled_in(_NOTING, publishing=sql.Literal(PUBLISHING)))


def columns_of(cursor: Connection | Cursor, name: Name) -> tuple[Column, ...]:
    """Return the columns of a table, none if it is not there."""
    return tuple(Column(*row) for row in cursor.execute(_COLUMNS, [name.text]).fetchall())


def schema_of(connection: Connection) -> str:
    """Return the schema in which a table without one is looked for and made."""
    return str(one(connection.execute("select current_schema()"))[0] or "public")


def there(tables: sql.Composable) -> sql.Composed:
    """Return the oids that some tables have now, as SQL."""
    return sql.SQL(THERE).format(tables=tables)


def what_broke(left: Sequence[int | None], found: Sequence[int | None]) -> str:
    """Say what happened to the tables that the last publish left, or nothing."""
    if list(left) == list(found):
        return ""
    return DROPPED if any(one is None for one in found) else MADE_AGAIN


@dataclass(frozen=True)
class Looked:
    """What the receipts of a target say, and what else is noted with its head."""

    sight: Sight
    more: Mapping[str, Any]


def looks(connection: Connection, schema: str, targets: Sequence[str]) -> dict[str, Looked]:
    """Return what the receipts of several targets say, in one statement; those that have none are left out."""
    books = Books(schema)
    names = sql.SQL("{}::text[]").format(sql.Literal(list(targets)))
    statement = books.filled_in(
        _LOOK, there=there(sql.SQL("h.tables")), targets=names, made_of=shapes.of(sql.SQL("h.tables"))
    )
    try:
        rows = connection.execute(statement).fetchall()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return {}
    found = {}
    for target, *row, more, kept, now in rows:
        altered = shapes.what_broke(connection, more.pop(shapes.KEY, None), now)
        found[target] = Looked(_sight((*row, more, kept), altered), more)
    return found


def unknown(connection: Connection, name: Name) -> Sight:
    """Look at a table that was never published to; it may not be there."""
    oid = one(connection.execute("select to_regclass(%s)::oid", [name.text]))[0]
    if oid is None:
        return Sight()
    filled = one(connection.execute(sql.SQL("select exists (select from {})").format(name.sql)))[0]
    return Sight(version=0, table_id=str(oid), filled=filled, data_version=0 if filled else NO_TABLE, pinned=False)


def _sight(row: tuple[Any, ...], altered: tuple[str, str]) -> Sight:
    n, owner, left, found, table_id, data_version, changes, newest, outside, more, kept = row
    receipts = {}
    ended: dict[str, str] = {}
    gone = set()
    broken = what_broke(left, found)
    for values, seen, why, is_gone in kept or ():
        receipt = Receipt.from_json(values)
        receipts[receipt.slot] = receipt
        reason = why or broken or (f"{CHANGED} (change {changes})" if seen < changes else altered[0])
        if reason:
            ended[receipt.slot] = reason
        if is_gone or broken == DROPPED:
            gone.add(receipt.slot)
    foreign = any(seen < changes for _, seen, _, _ in kept or ())
    # A backup that is brought back starts to count again where it was; the time goes on, and so do oids.
    change = f"change {changes} of {newest}" if newest else f"change {changes}"
    again = f"{broken} after {n}: {found}" if broken else ""
    names = (outside, change if foreign else "", again, ": ".join(filter(None, altered)))
    return Sight(
        version=n,
        head=n,
        table_id=table_id,
        owner=owner,
        receipts=receipts,
        ended=ended,
        gone=frozenset(gone),
        outside="; ".join(filter(None, names)),
        data_version=data_version + changes if data_version != NO_TABLE else NO_TABLE,
        points=bool(more.get("points")),
        sealed=str(more.get("sealed", "")),
        pinned=False,
        dropped=broken == DROPPED,
    )


def json_of(receipt: Receipt) -> str:
    """Write a receipt for the column that holds it."""
    return json.dumps(receipt.to_json())
