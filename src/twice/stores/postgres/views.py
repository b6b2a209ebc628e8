"""What does a SQL view show, while the tables behind it change?

A view is a list of tables in the bookkeeping, and a function makes the SQL of it: one branch for each table that is
shown, with its label as a literal, so that a filter on the label leaves the others out.

    twice_members    one row for each table behind a view; it tells which ones are shown

A table never changes its place under a reader. A new one is filled and shown in the stead of the old one, which stays
behind the view as long as an older snapshot is open: both branches ask the bookkeeping which of them is shown, and the
answer belongs to the reader's own snapshot. So a transaction at REPEATABLE READ that began before a publish sees the
old rows to its end, and no reader ever sees an empty table, as TRUNCATE or a bare exchange would show it. Once no older
snapshot is left, the next change of the view (or a tidy) drops the old table.

A view that others' views depend on keeps its columns and may get more. If it could only be made anew, that is refused
by the names of those views: nothing is ever dropped with CASCADE. A view that is made anew keeps its grants.

To change a view, PostgreSQL has to lock it, and waits for transactions that have read it. While it waits, new readers
wait behind it. So it waits for a moment only, lets the readers through, and tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from psycopg import errors, sql

from twice.errors import Misuse
from twice.faults import reach
from twice.stores.postgres.bookkeeping import Books
from twice.stores.postgres.connections import Connection, one
from twice.stores.postgres.names import Name

MEMBERS = "twice_members"
SHOW, OPEN, PUBLISH, REFUSE = "twice_show", "twice_open_version", "twice_publish_version", "twice_refuse_change"
_MOMENT, _PAUSE, _MOST_SECONDS = "500ms", 0.25, 30.0

_TABLE = """
create table if not exists {members} (
    number bigint generated always as identity primary key,
    view text not null,
    label text not null,
    relation text not null,
    shown boolean not null default false,
    kept boolean not null default true,
    retired xid8,
    opened xid8,
    table_oid oid,
    covers text[] not null default '{{}}',
    version text not null default '',
    slot text not null default '',
    generation integer not null default 0,
    rows bigint not null default 0,
    made_at text not null default '',
    unique (view, relation)
)
"""
# Several tables have one label while the older of them may still be needed: only then do branches ask who is shown.
# The tables that may go are found first and the open snapshots after that: one that is taken later needs none of them.
_SHOW = """
create or replace function {show}(of_view text) returns void language plpgsql
set search_path = pg_catalog, pg_temp as $body$
declare
    here constant text := {schema};
    by_column constant text := coalesce((select h.more->>'unites' from {heads} h where h.target = of_view), '');
    old_view constant oid := to_regclass(format('%I.%I', here, of_view));
    past bigint[];
    oldest integer;
    dropped text[];
    body text;
    granted text;
    reader text;
begin
    perform pg_advisory_xact_lock(hashtextextended('twice view ' || here || '.' || of_view, 0));
    past := array(select m.number from {members} m where m.view = of_view and not m.shown and m.retired is not null);
    perform pg_stat_clear_snapshot();
    oldest := (select max(age(a.backend_xmin)) from pg_stat_activity a
        where a.backend_xmin is not null and a.pid <> pg_backend_pid());
    update {members} m set retired = null
    where m.number = any(past) and (oldest is null or age(m.retired::xid) > oldest);
    dropped := array(
        select m.relation from {members} m where m.view = of_view and not m.shown and not m.kept and m.retired is null
    );
    delete from {members} m where m.view = of_view and m.relation = any(dropped);

    with branches as (
        select m.number, m.label, m.relation, m.covers, m.shown, to_regclass(format('%I.%I', here, m.relation))::oid as id
        from {members} m where m.view = of_view and (m.shown or m.retired is not null)
    ), parts as (
        select a.attname, a.attrelid, a.attnum, format_type(a.atttypid, a.atttypmod) as kind, b.number
        from pg_attribute a left join branches b on b.id = a.attrelid
        where a.attnum > 0 and not a.attisdropped and a.attname <> by_column and (b.number is not null or a.attrelid = old_view)
    ), columns as (
        select p.attname, max(p.kind) filter (where p.number is not null) as kind,
            min(case when p.number is null then p.attnum - 10000 else p.number * 10000 + p.attnum end) as place
        from parts p group by p.attname having count(p.number) > 0
    )
    select string_agg(
        'select ' || concat_ws(', ',
            case when by_column = '' then null when b.covers <> '{{}}' then quote_ident(by_column)
                else format('%L::text as %I', b.label, by_column) end,
            (select string_agg(case when p.attname is null then format('null::%s as %I', c.kind, c.attname)
                else quote_ident(c.attname) end, ', ' order by c.place)
             from columns c left join parts p on p.number = b.number and p.attname = c.attname))
        || format(' from %I.%I', here, b.relation)
        || case when b.shown and not exists (
                select from branches o where not o.shown and (o.label = b.label or o.label = any(b.covers))) then ''
            else format(' where exists (select from %I.%I m where m.number = %s and m.shown)', here, {members_name}, b.number)
            end,
        ' union all ' order by b.label, b.number)
    into body from branches b where b.id is not null;

    if body is not null then
        begin
            execute format('create or replace view %I.%I as %s', here, of_view, body);
        exception when invalid_table_definition then
            select string_agg(format('grant %s on %I.%I to %s%s', p.privilege_type, here, of_view,
                case when p.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(p.grantee)) end,
                case when p.is_grantable then ' with grant option' else '' end), '; ')
            into granted from pg_class c, aclexplode(c.relacl) p where c.oid = old_view and p.grantee <> c.relowner;
            execute format('drop view %I.%I', here, of_view);
            execute format('create view %I.%I as %s', here, of_view, body);
            if granted is not null then
                execute granted;
            end if;
        end;
    end if;
    if old_view is null and body is not null then
        for reader in select jsonb_array_elements_text(h.more->'readers') from {heads} h where h.target = of_view loop
            execute format('grant select on %I.%I to %I', here, of_view, reader);
        end loop;
    end if;
    foreach body in array dropped loop
        execute format('drop table if exists %I.%I', here, body);
    end loop;
end
$body$
"""
_DEPENDENTS = """
select distinct n.nspname || '.' || c.relname from pg_depend d
join pg_rewrite r on r.oid = d.objid join pg_class c on c.oid = r.ev_class join pg_namespace n on n.oid = c.relnamespace
where d.classid = 'pg_rewrite'::regclass and d.refobjid = to_regclass(%s) and c.oid <> d.refobjid order by 1
"""


def of(books: Books, **more: sql.Composable) -> dict[str, sql.Composable]:
    """Return the names that the functions of views need in their text."""
    return {
        "members": books.of(MEMBERS),
        "members_name": sql.Literal(MEMBERS),
        "show": books.of(SHOW),
        "open": books.of(OPEN),
        "publish": books.of(PUBLISH),
        "refuse": books.of(REFUSE),
        "refuse_name": sql.Literal(REFUSE),
        "schema": sql.Literal(books.schema),
        **more,
    }


def are_there(connection: Connection, books: Books) -> bool:
    """Tell whether the bookkeeping of views was made."""
    name = books.of(PUBLISH).as_string(None)
    found = connection.execute("select exists (select from pg_proc where oid = to_regproc(%s))", [name])
    return bool(one(found)[0])


def are_there_for(connection: Connection, name: Name) -> bool:
    """Tell whether views were ever made in the schema of a name."""
    return are_there(connection, Books(name.schema))


def make(connection: Connection, books: Books) -> None:
    """Make the bookkeeping of views, once, however many come at the same time."""
    from twice.stores.postgres import versions

    books.make(connection)
    if are_there(connection, books):
        return
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"twice {books.schema}"])
        for statement in (*definitions(books), *versions.definitions(books)):
            connection.execute(statement)


def definitions(books: Books) -> tuple[sql.Composed, ...]:
    """Return the statements that make what all views need."""
    return (
        books.filled_in(_TABLE, **of(books)),
        books.filled_in(_SHOW, **of(books)),
        sql.SQL("revoke execute on function {}(text) from public").format(books.of(SHOW)),
    )


def shown(connection: Connection, view: Name, change: Callable[[], None]) -> None:
    """Change what a view shows, within the transaction at hand, without keeping readers waiting.

    Raises:
        Misuse: The view would have to be made anew, and others' views depend on it.
        psycopg.errors.LockNotAvailable: Somebody has read it in a transaction that does not end.
    """
    deadline = time.monotonic() + _MOST_SECONDS
    while True:
        try:
            with connection.transaction():
                connection.execute("select set_config('lock_timeout', %s, true)", [_MOMENT])
                change()
                connection.execute("set local lock_timeout to default")
        except errors.LockNotAvailable:
            if time.monotonic() > deadline:
                raise
        except errors.DependentObjectsStillExist as error:
            raise _depended_on(connection, view) from error
        else:
            return
        reach("postgres.view.waits")
        time.sleep(_PAUSE)


def hold(connection: Connection, view: Name) -> None:
    """Lock a view before the tables behind it, as its readers do: in another order both would wait in a circle.

    LOCK TABLE would lock all tables of the view with it. This changes nothing, and locks the view alone.
    """
    connection.execute(sql.SQL("alter view if exists {} reset (check_option)").format(view.sql))


def show(connection: Connection, view: Name) -> None:
    """Make the SQL of a view as the bookkeeping has it."""
    connection.execute(sql.SQL("select {}(%s)").format(sql.Identifier(view.schema, SHOW)), [view.table])


def _depended_on(connection: Connection, view: Name) -> Misuse:
    found = [str(row[0]) for row in connection.execute(_DEPENDENTS, [view.text]).fetchall()]
    return Misuse(
        f"The columns of the view {view.table} change so that it has to be made anew, and others depend on it: {', '.join(found)}.",
        "Nothing was published, and all views are as they were.",
        "Drop them, run again, and make them again.",
    )


def kind_of_relation(connection: Connection, name: Name) -> str:
    """Tell what a name is in the catalog: `r` a table, `v` a view, nothing if it is not there."""
    found = connection.execute("select relkind::text from pg_class where oid = to_regclass(%s)", [name.text]).fetchone()
    return str(found[0]) if found else ""
