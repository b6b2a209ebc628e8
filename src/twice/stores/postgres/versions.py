"""How does one name show a version that never changes, and the next one after it?

Each publish fills a table of its own, `devices__v3`, and lets the view show it. Three functions of the server do what
changes versions; they run with the rights of their owner, and with a search path that nobody can bend, so that
whoever publishes needs no right on the versions or on the view:

    twice_open_version      makes an empty table, which the caller may fill in this transaction
    twice_publish_version   takes that right back, lets the table refuse every change, and lets the view show it
    twice_refuse_change     is the trigger that refuses, also the owner of the table

All of it is one transaction with the receipt: whoever dies on the way leaves no table, no right and no view behind.
To point back or forward is a change of the bookkeeping and of the view, in one transaction as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from psycopg import sql

from twice.abilities import PointedAt
from twice.errors import Conflict, Fenced, Misuse
from twice.faults import reach
from twice.runs import Receipt, Slot, digest
from twice.sight import POINTS_AT, Sight
from twice.stores.postgres import bookkeeping, filling, views
from twice.stores.postgres.bookkeeping import Books
from twice.stores.postgres.connections import Connection, begin, commit, connected, nothing_lands
from twice.stores.postgres.merging import Changed
from twice.stores.postgres.names import Name, checked

if TYPE_CHECKING:
    from twice.stores.postgres.publishing import Change

_REFUSE = """
create or replace function {refuse}() returns trigger language plpgsql
set search_path = pg_catalog, pg_temp as $body$
begin
    raise exception '%.% is a published version, and never changes', tg_table_schema, tg_table_name
        using errcode = 'object_not_in_prerequisite_state', hint = 'Publish a new version.';
end
$body$
"""
# A type comes as text, and stands in a statement as it is: so it may be a name and a size, and nothing else.
_OPEN = """
create or replace function {open}(of_view text, relation text, version text, names text[], types text[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    here constant text := {schema};
    asker constant text := coalesce(nullif(current_setting('role'), 'none'), session_user);
    columns text;
begin
    if exists (select from unnest(types) t where t !~ '^[a-z][a-z0-9_ ]*([(][0-9]+(,-?[0-9]+)?[)])?[a-z ]*([[][]])*$') then
        raise exception 'a column has no type that a version can have: %', types;
    end if;
    select string_agg(format('%I %s', c.name, c.kind), ', ' order by c.place) into columns
    from unnest(names, types) with ordinality c(name, kind, place);
    execute format('create table %I.%I (%s)', here, relation, columns);
    execute format('grant insert on %I.%I to %I', here, relation, asker);
    insert into {members} (view, label, relation, version, opened)
    values (of_view, '', relation, version, pg_current_xact_id());
end
$body$
"""
_PUBLISH = """
create or replace function {publish}(
    of_view text, published text, of_slot text, of_generation integer, row_count bigint, at text, keep integer
) returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    here constant text := {schema};
    asker constant text := coalesce(nullif(current_setting('role'), 'none'), session_user);
    chosen bigint := (select m.number from {members} m
        where m.view = of_view and m.relation = published and m.opened = pg_current_xact_id());
begin
    if chosen is null then
        raise exception '%.% was not opened in this transaction, and cannot be published', here, published
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    execute format('revoke insert, update, delete, truncate on %I.%I from %I, %I', here, published, asker, current_user);
    execute format('create trigger twice_refuse before insert or update or delete or truncate on %I.%I
        for each statement execute function %I.%I()', here, published, here, {refuse_name});
    update {members} m set shown = false, retired = pg_current_xact_id() where m.view = of_view and m.shown;
    update {members} m set shown = true, opened = null, slot = of_slot, generation = of_generation, rows = row_count,
        made_at = at, table_oid = to_regclass(format('%I.%I', here, published))::oid
    where m.number = chosen;
    update {members} m set kept = false
    where m.view = of_view and not m.shown and keep is not null and m.number not in (
        select k.number from {members} k where k.view = of_view and k.kept order by k.number desc limit keep
    );
    perform {show}(of_view);
end
$body$
"""
_LISTED = """
select m.version, m.slot, m.generation, m.rows, m.made_at, m.shown, m.relation,
    m.table_oid = to_regclass(quote_ident({schema}) || '.' || quote_ident(m.relation))::oid
from {members} m where m.view = {view} and m.kept and m.opened is null order by m.number
"""
_POINT = """
update {members} set shown = (version = %(version)s), retired = case when shown then pg_current_xact_id() else null end
where view = %(view)s and (shown or version = %(version)s)
"""
_SIGNATURES = {
    views.OPEN: "(text, text, text, text[], text[])",
    views.PUBLISH: "(text, text, text, integer, bigint, text, integer)",
}

# A view that had to be made anew is another relation.
_SHOWN_AGAIN = "data_version = n + 1, relations = {there}"
_NOT_SEALED = sql.SQL("more - 'sealed'")


@dataclass(frozen=True)
class Version:
    """One version that is kept."""

    name: str
    slot: str
    generation: int
    rows: int
    made_at: str
    shown: bool
    table: str
    whole: bool


def definitions(books: Books) -> tuple[sql.Composed, ...]:
    """Return the statements that make the functions of versions."""
    made = [books.filled_in(text, **views.of(books)) for text in (_REFUSE, _OPEN, _PUBLISH)]
    return (*made, *(sql.SQL("revoke execute on function {} from public").format(one) for one in functions(books)))


def functions(books: Books) -> list[sql.Composed]:
    """Return the functions that whoever publishes has to be allowed to call."""
    return [sql.SQL("{}{}").format(books.of(name), sql.SQL(signature)) for name, signature in _SIGNATURES.items()]


def fill(connection: Connection, change: Change, receipt: Receipt, number: int) -> Changed:
    """Fill a new version and show it, in the transaction at hand.

    Raises:
        Conflict: The version that is shown has other columns than the rows were made for.
    """
    view, books = change.name, Books(change.name.schema)
    if bookkeeping.columns_of(connection, view) != change.fits.table:
        raise Conflict("the version that is shown has other columns now")
    version = f"v{number + 1}"
    table = view.beside(f"{view.table}__{version}")
    types = dict(change.fits.types)
    connection.execute(
        sql.SQL("select {}(%s, %s, %s, %s, %s)").format(books.of(views.OPEN)),
        [view.table, table.table, version, list(types), list(types.values())],
    )
    reach("postgres.version.opened")
    inserted = filling.insert(connection, table, change)
    reach("postgres.version.filled")
    facts = [
        view.table,
        table.table,
        receipt.slot,
        receipt.generation,
        inserted,
        receipt.published_at,
        change.keep,
    ]

    def publish() -> None:
        connection.execute(sql.SQL("select {}(%s, %s, %s, %s, %s, %s, %s)").format(books.of(views.PUBLISH)), facts)

    views.shown(connection, view, publish)
    more = "update {heads} set more = more || %s where target = %s"
    connection.execute(books.filled_in(more), [json.dumps({"points": True}), view.table])
    reach("postgres.version.shown")
    return Changed(inserted)


def listed(connection: Connection, view: Name) -> list[Version]:
    """Return the versions that a view can show, oldest first."""
    books = Books(view.schema)
    query = books.filled_in(_LISTED, **views.of(books, view=sql.Literal(view.table)))
    return [Version(*row) for row in connection.execute(query).fetchall()]


def pointed_at(url: str, view: Name) -> list[PointedAt]:
    """Tell what a view can point at, oldest first."""
    with connected(url) as connection:
        found = listed(connection, view)
    return [
        PointedAt(number, one.name, one.slot, one.generation, one.rows, one.made_at, one.shown)
        for number, one in enumerate(found, 1)
    ]


def sight_of(connection: Connection, view: Name, sight: Sight) -> Sight:
    """Complete a look at a view: slots that it does not show, or whose table is gone, are not vouched for."""
    kept = listed(connection, view)
    ended = {**sight.ended, **dict(_passed_by(kept, sight)), **dict(_lost(kept, sight))}
    return replace(sight, ended=ended, outside=_named(sight, ended) if ended else "")


def _named(sight: Sight, ended: Mapping[str, str]) -> str:
    """Name what a view shows now, by what came to it: numbers alone may come again, after a backup was brought back."""
    came = digest(repr(sorted(receipt.attempt for receipt in sight.receipts.values())))[:8]
    return "; ".join(
        filter(None, [f"version {sight.data_version} of {came}", *sorted(set(ended.values())), sight.outside])
    )


def _passed_by(kept: Sequence[Version], sight: Sight) -> Iterator[tuple[str, str]]:
    """Name the slots that come after the one which the view shows: readers do not see them."""
    place = next((number for number, one in enumerate(kept) if one.shown), None)
    if place is None:
        return
    shown = kept[place]
    for number, one in enumerate(kept):
        if (number > place or _starts_after(one.slot, shown.slot)) and _is_newest(one, sight):
            yield one.slot, f"{POINTS_AT} {shown.name}, from before the slot's rows"


def _lost(kept: Sequence[Version], sight: Sight) -> Iterator[tuple[str, str]]:
    """Name the slots whose version somebody dropped."""
    for one in kept:
        if not one.whole and _is_newest(one, sight):
            yield one.slot, f"its version {one.name} is gone"


def _is_newest(one: Version, sight: Sight) -> bool:
    return sight.fence(one.slot) == one.generation


def _starts_after(slot: str, shown: str) -> bool:
    one, other = Slot.parse(slot).interval, Slot.parse(shown).interval
    return bool(one and other and one.start > other.start)


def point(url: str, view: Name, version: str, owner: str) -> None:
    """Let a view show one of its versions.

    Raises:
        Misuse: It is not one of them.
        Fenced: The view belongs to another ledger.
    """
    books = Books(view.schema)
    with connected(url) as connection:
        with nothing_lands(view.table):
            begin(connection)
            _take(connection, books, view, owner)
            kept = {one.name: one for one in listed(connection, view)}
            if version not in kept or not kept[version].whole:
                raise Misuse(f"{version} is not a version of {view.table}.", fix="See: twice versions")
            if kept[version].shown:
                connection.execute("rollback")
                return
            values = {"view": view.table, "version": version}

            def move() -> None:
                connection.execute(books.filled_in(_POINT, **views.of(books)), values)
                views.show(connection, view)

            views.shown(connection, view, move)
            there = bookkeeping.there(sql.SQL("tables"))
            _moved(connection, books, view, sql.SQL(_SHOWN_AGAIN).format(there=there))
            reach("postgres.view.pointed")
        commit(connection, view.table)
        reach("postgres.commit.after")


def seal(url: str, view: Name, why: str, owner: str) -> None:
    """Let a view refuse every further publish, or with an empty reason allow them again."""
    books = Books(view.schema)
    with connected(url) as connection:
        with nothing_lands(view.table):
            begin(connection)
            _take(connection, books, view, owner)
            said = sql.SQL("more || {}").format(sql.Literal(json.dumps({"sealed": why}))) if why else _NOT_SEALED
            _moved(connection, books, view, sql.SQL("more = {}").format(said))
            reach("postgres.view.sealed")
        commit(connection, view.table)
        reach("postgres.commit.after")


def _take(connection: Connection, books: Books, view: Name, owner: str) -> None:
    """Hold the head of a view, if it is this ledger's."""
    query = books.filled_in("select owner from {heads} where target = %s for update")
    found = connection.execute(query, [view.table]).fetchone()
    if found is None or found[0] not in ("", owner):
        raise Fenced(
            f"The view {view.table} belongs to another ledger.", fix=f"Take it over with: twice adopt {view.table}"
        )


def _moved(connection: Connection, books: Books, view: Name, what: sql.Composable) -> None:
    """Move the head of a view, with what else changes about it."""
    statement = books.filled_in("update {heads} set n = n + 1, {what} where target = %s", what=what)
    connection.execute(statement, [view.table])


def refuse_version(connection: Connection, name: Name) -> None:
    """A version takes no rows by its own name.

    Raises:
        Misuse: The name is that of a version.
    """
    books = Books(name.schema)
    query = books.filled_in("select view from {members} where relation = %s and version <> ''", **views.of(books))
    found = connection.execute(query, [checked(name.table, "table")]).fetchone()
    if found:
        raise Misuse(
            f"{name.table} is a version behind the view {found[0]}, and never changes.",
            fix="Publish a new version through the pipeline that writes the view.",
        )
