"""Do the rows that leave a partitioned table fill one partition of it, and is that a plain one?

The server is asked, since it knows its bounds best. Its planner leaves out partitions that cannot hold a row of a
condition: if one is left, no other holds such a row. And it reads nothing of a table whose bounds contradict a
condition: if that is so for the opposite of what leaves, the partition holds nothing else. Both are proofs that every
query rests on, and neither reads a row.

A plain partition has nothing that would be lost with it, and nobody is told of its rows but those who query them: no rights,
views, triggers, policies, indexes, options or comments of its own, no foreign keys, no publication, no replica. Whatever is
not known to be plain is not plain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg import errors, sql

from twice.slices import ColumnSlice, Slice
from twice.stores.postgres import conditions, kinds
from twice.stores.postgres.bookkeeping import NOTING
from twice.stores.postgres.connections import Connection
from twice.stores.postgres.kinds import Fitted
from twice.stores.postgres.names import Name, column

# What is smaller is emptied and filled in no time.
LARGE_BYTES = 256 * 1024
_STEPPED = ("date", "short", "integer", "long")
_PLAN = "explain (format json, verbose, costs off) select from {} where {}"
_PARTITION = """
select l.oid::bigint, n.nspname, l.relname, pg_get_expr(l.relpartbound, l.oid), pg_relation_size(l.oid)
from pg_class l join pg_namespace n on n.oid = l.relnamespace join pg_inherits i on i.inhrelid = l.oid
join pg_class p on p.oid = i.inhparent join pg_partitioned_table t on t.partrelid = p.oid
cross join lateral (select array(select x.indexrelid from pg_index x where x.indrelid = l.oid) as indexes,
    array(select x.oid from pg_constraint x where x.conrelid = l.oid) as constraints) own
where p.oid = to_regclass(%(parent)s) and n.nspname = %(schema)s and l.relname = %(table)s
    and p.relkind = 'p' and not p.relispartition and t.partdefid = 0
    and l.relkind = 'r' and l.relpersistence = 'p' and not l.relhassubclass and not i.inhdetachpending
    and l.relnamespace = p.relnamespace
    and pg_get_userbyid(p.relowner) = current_user and l.relowner = p.relowner
    and l.reloptions is null and l.reltablespace = 0 and l.reloftype = 0 and l.relreplident = 'd'
    and not (p.relhasrules or l.relhasrules)
    and not (p.relrowsecurity or l.relrowsecurity or p.relforcerowsecurity or l.relforcerowsecurity)
    and not exists (select from pg_class o where o.oid = l.reltoastrelid and o.reloptions is not null)
    and not exists (select from pg_policy o where o.polrelid in (p.oid, l.oid))
    and not exists (select from pg_trigger o
        join pg_proc f on f.oid = o.tgfoid
        where o.tgrelid in (p.oid, l.oid) and not o.tgisinternal
            and not (f.proname = %(noting)s and f.pronamespace = p.relnamespace))
    and not exists (select from pg_depend d join pg_constraint o on o.oid = d.objid and o.contype = 'f'
        where d.classid = 'pg_constraint'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid in (p.oid, l.oid))
    and not exists (select from pg_constraint o where o.conrelid = l.oid
        and (o.contype not in ('c', 'n', 'p', 'u') or o.condeferrable or not o.convalidated))
    and not exists (select from pg_attribute o join pg_type y on y.oid = o.atttypid
        where o.attrelid = l.oid and o.attnum > 0 and not o.attisdropped
            and (o.attgenerated <> '' or o.attidentity <> '' or o.attacl is not null or o.attoptions is not null
                or o.attcollation <> y.typcollation or o.attstorage <> y.typstorage or o.attcompression <> ''
                or coalesce(o.attstattarget, -1) <> -1))
    and not exists (select from pg_index o join pg_class x on x.oid = o.indexrelid
        where o.indrelid = l.oid and (x.reltablespace <> 0 or x.reloptions is not null or o.indisclustered or o.indisreplident
            or not (o.indisvalid and o.indisready and x.relispartition)))
    and not exists (select from pg_depend o where o.refclassid = 'pg_class'::regclass and o.refobjid = l.oid and not (
        o.classid = 'pg_type'::regclass and o.objid = l.reltype
        or o.classid = 'pg_class'::regclass and o.objid = any(l.reltoastrelid || own.indexes)
        or o.classid = 'pg_constraint'::regclass and o.objid = any(own.constraints)
        or o.classid = 'pg_attrdef'::regclass and exists (select from pg_attrdef x where x.oid = o.objid and x.adrelid = l.oid)
        or o.classid = 'pg_trigger'::regclass and exists (select from pg_trigger x where x.oid = o.objid and x.tgrelid = l.oid)))
    and not exists (select from pg_type y join pg_depend o on o.refclassid = 'pg_type'::regclass and o.refobjid in (y.oid, y.typarray)
        where y.oid = l.reltype and not (o.classid = 'pg_type'::regclass and o.objid = y.typarray))
    and not exists (select from pg_description o where o.objoid = any(l.oid || own.indexes || own.constraints))
    and not exists (select from pg_seclabel o where o.objoid = l.oid)
    and not exists (select from pg_publication)
    and not exists (select from pg_stat_replication)
    and not exists (select from pg_replication_slots)
    and current_setting('archive_mode') = 'off' and current_setting('synchronous_standby_names') = ''
"""


@dataclass(frozen=True)
class Extent:
    """The rows that leave: what is true of them, and the column that it is about."""

    column: str
    condition: sql.Composable

    @property
    def outside(self) -> sql.Composable:
        """What is true of all other rows."""
        return sql.SQL("not ({}) or {} is null").format(self.condition, column(self.column))


@dataclass(frozen=True)
class Leaf:
    """A partition: the server's number for it, its name, its bounds as the server would write them, and its bytes."""

    oid: int
    name: Name
    bound: str
    size: int


def of_slice(bounds: Slice | None, types: Mapping[str, str]) -> Extent | None:
    """Return the rows of a slice by a column; a predicate may be true of anything."""
    if not isinstance(bounds, ColumnSlice) or bounds.column not in types:
        return None
    first, end = conditions.limits(bounds, kinds.kind_of(types[bounds.column]))
    if end is not None:
        return Extent(bounds.column, conditions.condition(bounds, types))
    return Extent(bounds.column, _one_value(bounds.column, types, str(first)))


def of_partitions(names: Sequence[str], types: Mapping[str, str]) -> Extent | None:
    """Return the rows of partitions that are named by one column and its values, none of them NULL."""
    parts = [name.partition("=") for name in names]
    columns = {key for key, _, _ in parts}
    if len(columns) != 1 or not columns <= set(types) or any("/" in name for name in names):
        return None
    (key,) = columns
    if any(value == conditions.NULL for _, _, value in parts):
        return None
    tests = [_one_value(key, types, unquote(value)) for _, _, value in parts]
    return Extent(key, sql.SQL(" or ").join(tests))


def _one_value(name: str, types: Mapping[str, str], text: str) -> sql.Composed:
    """Return the condition of one value; where values follow each other in steps, in the form that ranges have too."""
    parts = {"column": column(name), "value": sql.Literal(text), "type": sql.SQL(types[name])}
    if kinds.kind_of(types[name]) in _STEPPED:
        stepped = sql.SQL("({column} >= {value}::{type} and {column} < {value}::{type} + 1)")
        return stepped.format(**parts)
    return sql.SQL("{column} = {value}::{type}").format(**parts)


def come_as_they_are(fits: Fitted) -> bool:
    """Tell whether rows arrive in just the columns and the types of the table, and the server fills none of them."""
    there = {one.name: one.type for one in fits.table if not one.filled}
    return len(there) == len(fits.table) and dict(fits.source) == dict(fits.types) == there


def in_order(fits: Fitted) -> Mapping[str, str]:
    """Return the types of the rows in the order of the table: a partition shows its columns to whoever asks for all of them."""
    return {one.name: fits.source[one.name] for one in fits.table}


def found(connection: Connection, parent: Name, extent: Extent) -> Leaf | None:
    """Return the plain partition whose rows are those that leave, all of them and no others; or nothing."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("select set_config('constraint_exclusion', 'on', true)")
            read = _read(connection, parent, extent.condition)
            if len(read) != 1 or _read(connection, read[0], extent.outside):
                return None
            return plain(connection, parent, read[0])
    except psycopg.Error as error:
        if is_the_end(connection, error):
            raise
        return None


def is_the_end(connection: Connection, error: psycopg.Error) -> bool:
    """Tell an error that ends the run, a lost connection or a cancelled statement, from one after which another way is gone."""
    return connection.closed or connection.broken or isinstance(error, errors.QueryCanceled | errors.AdminShutdown)


def plain(connection: Connection, parent: Name, name: Name) -> Leaf | None:
    """Return a partition of a table, if it is a plain one."""
    asked = {"parent": parent.text, "schema": name.schema, "table": name.table, "noting": NOTING}
    row = connection.execute(_PARTITION, asked).fetchone()
    return Leaf(int(row[0]), Name(row[1], row[2]), str(row[3]), int(row[4])) if row else None


def _read(connection: Connection, table: Name, condition: sql.Composable) -> list[Name]:
    """Return the tables that the server would read, to find the rows of a table of which something is true."""
    plan = connection.execute(sql.SQL(_PLAN).format(table.sql, condition)).fetchall()
    return sorted(set(_relations(plan)), key=lambda one: one.text)


def _relations(plan: Any) -> Iterator[Name]:
    """Return the tables that a plan names, wherever it does."""
    if isinstance(plan, dict):
        if "Relation Name" in plan:
            yield Name(plan["Schema"], plan["Relation Name"])
        plan = list(plan.values())
    if isinstance(plan, list | tuple):
        for part in plan:
            yield from _relations(part)
