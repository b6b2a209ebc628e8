"""Is a table still made as the last publish left it, or did a statement change it that fires no trigger?

DDL fires no trigger that an ordinary role can make. So each publish notes what its tables are made of, and a look compares:

    columns      number, name and type of each: one that was dropped, renamed or given another type shows itself. A column
                 that comes to them changes no row
    parts        the table and its partitions, by oid: one that is gone had rows if its file was not empty when it was noted,
                 and one that is new has rows of others if its file is not empty
    triggers     whether they notice changes by others, also of sessions that write as a replica does
    files        VACUUM FULL, CLUSTER and another tablespace give a table another file, and leave its rows the transactions that
                 wrote them. TRUNCATE leaves no rows, and ALTER TABLE ... USING writes all anew: where the file is another
                 one, some rows are asked which transaction wrote them

Where nothing was noted, by a publish from before this was done, nothing is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from psycopg import sql

from twice.runs import digest
from twice.stores.postgres.connections import Connection, one

KEY = "shape"
WATCHED = "A" * 4
_SHAPE = """
(select jsonb_build_object('by', pg_current_xact_id_if_assigned()::text, 'tables', coalesce(jsonb_object_agg(u.t, jsonb_build_object(
    'root', c.oid::bigint,
    'columns', (select coalesce(jsonb_object_agg(a.attnum, jsonb_build_array(a.attname, a.atttypid::bigint, a.atttypmod)), '{{}}')
        from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
    'parts', (
        with recursive family (id) as (
            select c.oid union all select i.inhrelid from pg_inherits i join family f on i.inhparent = f.id
        )
        select jsonb_object_agg(p.oid::bigint, jsonb_build_array(
            quote_ident(n.nspname) || '.' || quote_ident(p.relname), coalesce(pg_relation_filenode(p.oid), 0)::bigint, {filled},
            (select coalesce(string_agg(t.tgenabled::text, '' order by t.tgname), '') from pg_trigger t
                where t.tgrelid = p.oid and starts_with(t.tgname::text, 'twice_')),
            (select coalesce(max(t.xmin::text::bigint), 0) from pg_trigger t where t.tgrelid = p.oid and starts_with(t.tgname::text, 'twice_'))))
        from family f join pg_class p on p.oid = f.id join pg_namespace n on n.oid = p.relnamespace)
    )) filter (where c.oid is not null), '{{}}'))
from unnest({tables}) u(t) left join pg_class c on c.oid = to_regclass(u.t) and c.relkind in ('r', 'p'))
"""
_SOME_ROWS = 1000
_FROM_BEFORE = """
select coalesce(bool_or(age(written.by) >= age({by}::xid8::xid)), false)
from (select xmin as by from only {part} limit {some}) written
"""
_FILLED = sql.SQL("p.relkind = 'f' or pg_relation_size(p.oid) > 0")
_NOT_ASKED = sql.SQL("null::boolean")


def of(tables: sql.Composable, *, noted: bool = False) -> sql.Composed:
    """Return what some tables are made of, as SQL; where it is noted, also which of their files are not empty.

    The size of a file is not asked otherwise: that would wait for whoever holds the table alone.
    """
    return sql.SQL(_SHAPE).format(tables=tables, filled=_FILLED if noted else _NOT_ASKED)


def hold(connection: Connection, tables: Sequence[str]) -> None:
    """Let no other transaction alter tables before this one ends; its rows would do that a moment later."""
    query = "select t from unnest(%s::text[]) t join pg_class c on c.oid = to_regclass(t) where c.relkind in ('r', 'p')"
    for (table,) in connection.execute(query, [list(tables)]).fetchall():
        connection.execute(sql.SQL("lock table only {} in row exclusive mode").format(sql.SQL(table)))


def found(connection: Connection, tables: Sequence[str]) -> dict[str, Any]:
    """Return what some tables are made of now."""
    names = sql.SQL("{}::text[]").format(sql.Literal(list(tables)))
    return dict(one(connection.execute(sql.SQL("select ") + of(names)))[0])


def what_broke(connection: Connection, left: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[str, str]:
    """Say what happened to tables since they were noted, and name it; nothing if all is as it was."""
    facts = sorted(set(_facts(connection, left, now))) if left else []
    if not facts:
        return "", ""
    return facts[0][0], digest(repr(facts))[:8]


def attached(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Tell whether tables that were there, and are not others by the same names, have got parts."""
    return any(set(is_now["parts"]) - set(was["parts"]) for was, is_now in _same(before, now))


def _same(left: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Pair the tables of two shapes. One that is gone, or another one by the same name, is told by its oid elsewhere."""
    for table, was in left["tables"].items():
        is_now = now["tables"].get(table)
        if is_now and is_now["root"] == was["root"]:
            yield was, is_now


def _facts(connection: Connection, left: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for was, is_now in _same(left, now):
        yield from _columns(was["columns"], is_now["columns"])
        yield from _parts(connection, left["by"], was["parts"], is_now["parts"])


def _columns(was: Mapping[str, Any], is_now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for number, (name, *kind) in was.items():
        if number not in is_now:
            yield f"the column {name} was dropped", number
        elif is_now[number][0] != name:
            yield f"the column {name} was renamed to {is_now[number][0]}", number
        elif is_now[number][1:] != kind:
            yield f"the column {name} was given another type", repr(is_now[number])


def _parts(
    connection: Connection, by: str, was: Mapping[str, Any], is_now: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    for oid, (name, file, filled, triggers, _) in was.items():
        if oid not in is_now:
            if filled:
                yield f"the partition {name} was detached or dropped", oid
            continue
        here, file_now, _, triggers_now, since = is_now[oid]
        if triggers_now not in (triggers, WATCHED):
            yield f"a trigger on {here} that notices changes was switched off or dropped", f"{triggers_now} {since}"
        if filled and file_now != file and not _kept_rows(connection, here, by):
            yield f"the rows of {here} were truncated or written anew", str(file_now)
    for oid in set(is_now) - set(was):
        if _is_filled(connection, oid):
            yield f"the partition {is_now[oid][0]} was attached with rows in it", oid


def _kept_rows(connection: Connection, part: str, by: str) -> bool:
    """Tell whether a table in another file has rows that were there when it was noted."""
    query = sql.SQL(_FROM_BEFORE).format(by=sql.Literal(by), part=sql.SQL(part), some=sql.Literal(_SOME_ROWS))
    return bool(one(connection.execute(query))[0])


def _is_filled(connection: Connection, oid: str) -> bool:
    query = "select relkind = 'f' or coalesce(pg_relation_size(oid), 0) > 0 from pg_class where oid = %s::oid"
    row = connection.execute(query, [oid]).fetchone()
    return bool(row and row[0])
