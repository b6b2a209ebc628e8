"""How is a period of a huge table replaced without deleting a row?

Each period has a table of its own, `visits__2024_w41`, and the view `visits` unites them.

    open       the period is noted in the bookkeeping, so that it is never forgotten; the view does not change yet
    publish    rows of a new slot are added to the period's table; a period that is done again gets a new table, made
               like the old one (with its indexes), which takes its name and its place in the view

The tables behind a view are those of the bookkeeping. Whatever else has a name that begins like it is a stranger's.
A death before COMMIT leaves everything as it was, except that an opened period stays noted, which changes nothing.
Two periods that are opened or replaced at once wait for each other where the view changes, and both are in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from psycopg import sql

from twice.abilities import Work
from twice.errors import Conflict, Misuse, NotPublished
from twice.faults import reach
from twice.runs import digest
from twice.sight import Sight
from twice.stores.postgres import bookkeeping, filling, proofs, views
from twice.stores.postgres.bookkeeping import Books
from twice.stores.postgres.connections import Connection, begin, commit, connected, nothing_lands, one
from twice.stores.postgres.merging import Changed
from twice.stores.postgres.names import Name, checked

if TYPE_CHECKING:
    from twice.stores.postgres.publishing import Change

_OPENED = """
insert into {heads} (target, n, more) values (%(view)s, 0, %(more)s) on conflict do nothing
"""
_NOTED = """
select m.label, m.relation, m.covers, m.shown, to_regclass(quote_ident({schema}) || '.' || quote_ident(m.relation)) is not null
from {members} m where m.view = %s and m.kept order by m.label
"""
_PLACE = """
select m.view, m.label, (select s.relation from {members} s where s.view = m.view and s.shown and s.covers = '{{}}'
    and s.relation <> m.relation order by s.label desc limit 1)
from {members} m where m.relation = %s and m.kept and m.version = ''
"""
RETIRE = """
update {members} set relation = %(old)s, shown = false, kept = false, retired = pg_current_xact_id()
where view = %(view)s and relation = %(relation)s
"""
_SHOWN = "update {members} set shown = true where view = %(view)s and relation = %(relation)s"
NEW = """
insert into {members} (view, label, relation, shown, covers) values (%(view)s, %(label)s, %(relation)s, true, %(covers)s)
"""


@dataclass(frozen=True)
class Noted:
    """A table behind a view, as it is noted."""

    label: str
    table: str
    covers: list[str]
    shown: bool
    is_there: bool


@dataclass(frozen=True)
class Place:
    """Where a table stands: its view, its label there, and the newest other table, which a new one is made like."""

    view: Name
    label: str
    like: Name | None


def noted(connection: Connection, view: Name) -> list[Noted]:
    """Return the tables that a view unites, by their labels."""
    books = Books(view.schema)
    query = books.filled_in(_NOTED, **views.of(books))
    return [Noted(*row) for row in connection.execute(query, [view.table]).fetchall()]


def place_of(connection: Connection, name: Name) -> Place | None:
    """Return where a table stands, or nothing if it is behind no view."""
    books = Books(name.schema)
    found = connection.execute(books.filled_in(_PLACE, **views.of(books)), [name.table]).fetchone()
    if found is None:
        return None
    view, label, like = found
    return Place(Name(name.schema, view), label, Name(name.schema, like) if like else None)


def open_member(url: str, view: Name, table: Name, label: str, by: str, limit: int, writer: str) -> None:
    """Note a table that a view unites, before it is filled; done before, this does nothing.

    Raises:
        Misuse: The name is taken by something else, or the view is written by another pipeline.
        NotPublished: The view unites as many tables as it may.
    """
    books = Books(view.schema)
    with connected(url) as connection:
        with nothing_lands(view.table):
            views.make(connection, books)
            begin(connection)
            _claim(connection, books, view, checked(by), writer)
            there = noted(connection, view)
            known = any(label in (one.label, *one.covers) for one in there)
            if not known:
                if len(there) >= limit:
                    raise NotPublished(
                        f"The view {view.table} already unites {limit} tables, and {label} would be one more.",
                        "A view of very many tables is slow to read, so nothing was published.",
                        f"Freeze old periods into larger tables (twice freeze), or raise tables_at_most= above {limit}.",
                    )
                if views.kind_of_relation(connection, table):
                    raise Misuse(
                        f"{table.table} is there already, and no period of {view.table}.",
                        "What it holds is not known, so it is not put behind the view.",
                        "Rename or drop it, or write to another target.",
                    )
                values = {"view": view.table, "label": label, "relation": table.table}
                statement = "insert into {members} (view, label, relation) values (%(view)s, %(label)s, %(relation)s)"
                connection.execute(books.filled_in(statement, **views.of(books)), values)
            reach("postgres.member.noted")
        commit(connection, view.table)
    reach("view.opened")


def _claim(connection: Connection, books: Books, view: Name, by: str, writer: str) -> None:
    """Hold the view's row, made if it is not there; refuse a name that is something else."""
    is_new = connection.execute(
        books.filled_in(_OPENED), {"view": view.table, "more": json.dumps({"unites": by, "writer": writer})}
    ).rowcount
    query = books.filled_in("select more from {heads} where target = %s for update")
    more = one(connection.execute(query, [view.table]))[0]
    if ("unites" not in more and "points" not in more) or (is_new and views.kind_of_relation(connection, view)):
        what = "view that others made" if views.kind_of_relation(connection, view) == "v" else "table"
        raise Misuse(f"{view.table} is a {what}, and cannot become a view.", fix="Write to another target.")
    if more.get("unites") != by:
        raise Misuse(
            f"{view.table} is a view of another kind.", fix="Keep the pattern as it was, or write to another target."
        )
    if more["writer"] != writer:
        raise Misuse(
            f"The view {view.table} is written by the pipeline {more['writer']!r}; {writer!r} cannot write it too.",
            fix=f"Give it a target of its own; a renamed pipeline says was={more['writer']!r}.",
        )


# -------------------------------------------------------------------- publishing


def fill(connection: Connection, change: Change, place: Place) -> tuple[Changed, tuple[str, ...]]:
    """Add rows to a period's table, or fill a new one in its stead, in the transaction at hand.

    Raises:
        Conflict: The table has other columns than the rows were made for.
    """
    name, fits = change.name, change.fits
    there = bookkeeping.columns_of(connection, name)
    model = name if there else place.like
    if (bookkeeping.columns_of(connection, model) if model else ()) != fits.table:
        raise Conflict("the table has other columns now")
    if not fits.types:
        return Changed(), ()
    # A table that a view shows does not change its columns: rows that stay go into the new one too.
    anew = bool(there) and (change.how == "table" or fits.fit.changes_table)
    table = name.with_ending("new") if anew else name
    if model and table != model:
        connection.execute(sql.SQL("create table {} (like {} including all)").format(table.sql, model.sql))
    filling.shape(connection, table, fits)
    notes = proofs.guard(connection, table, table.schema, is_new=anew or not there)
    reach("postgres.table.ready")
    if anew and change.how != "table":
        filling.copy(connection, name, table, there)
    inserted = filling.insert(connection, table, change)
    reach("postgres.member.filled")
    if anew or not there:
        views.shown(connection, place.view, lambda: _show(connection, place, name, table))
    reach("postgres.member.shown")
    return Changed(inserted), notes


def _show(connection: Connection, place: Place, name: Name, table: Name) -> None:
    """Let the view show a table under its period's name."""
    books = Books(name.schema)
    views.hold(connection, place.view)
    values = {"view": place.view.table, "label": place.label, "relation": name.table, "covers": []}
    if table == name:
        connection.execute(books.filled_in(_SHOWN, **views.of(books)), values)
    else:
        query = books.filled_in("select number from {members} where view = %s and relation = %s", **views.of(books))
        number = one(connection.execute(query, [place.view.table, name.table]))[0]
        old = name.with_ending(f"old{number}")
        connection.execute(books.filled_in(RETIRE, **views.of(books)), {**values, "old": old.table})
        for before, after in ((name, old), (table, name)):
            rename = sql.SQL("alter table {} rename to {}").format(before.sql, sql.Identifier(after.table))
            connection.execute(rename)
        connection.execute(books.filled_in(NEW, **views.of(books)), values)
    views.show(connection, place.view)


def repair(url: str, name: Name) -> None:
    """Make the view of a table again, if somebody took it away."""
    with connected(url) as connection:
        if not views.are_there(connection, Books(name.schema)):
            return
        place = place_of(connection, name)
        if place is None or views.kind_of_relation(connection, place.view):
            return
        with nothing_lands(place.view.table), connection.transaction():
            views.shown(connection, place.view, lambda: views.show(connection, place.view))


# -------------------------------------------------------------------- looking


def sight_of_all(connection: Connection, view: Name, head: Sight) -> Sight:
    """Return what the receipts of all tables say together."""
    there = members(connection, view)
    if not there:
        return Sight()
    sights = list(there.values())
    facts = sorted(fact for sight in sights for fact in _facts(sight))
    return Sight(
        version=head.version,
        head=head.head,
        table_id=head.table_id,
        owner="+".join(sorted({sight.owner for sight in sights})),
        receipts={slot: receipt for sight in sights for slot, receipt in sight.receipts.items()},
        ended={slot: why for sight in sights for slot, why in sight.ended.items()},
        gone=frozenset().union(*(sight.gone for sight in sights)),
        outside="; ".join(sorted({sight.outside for sight in sights if sight.outside})),
        data_version=int(digest(repr(facts))[:12], 16),
        pinned=False,
    )


def _facts(sight: Sight) -> list[tuple[str, str, int]]:
    """What a reader of the view depends on: the editions of the slots, wherever their rows are kept now."""
    return [(slot, receipt.attempt, receipt.generation) for slot, receipt in sight.receipts.items()] + [
        (slot, why, 0) for slot, why in sight.ended.items()
    ]


def members(connection: Connection, view: Name) -> Mapping[str, Sight]:
    """Return the tables that were filled, by their labels, with what each holds."""
    there = noted(connection, view)
    found = bookkeeping.looks(connection, view.schema, [one.table for one in there])
    return {one.label: found[one.table].sight for one in there if one.table in found}


def unfilled(connection: Connection, view: Name) -> tuple[str, ...]:
    """Name the tables that were opened and are not there."""
    return tuple(one.label for one in noted(connection, view) if not one.is_there)


def refuse_names(connection: Connection, work: Work, name: Name) -> None:
    """Rows are written to a period's table through its view, and never to a view.

    Raises:
        Misuse: The name is a view, or a table behind one that was not asked for as such.
    """
    if views.kind_of_relation(connection, name) == "v" or _is_united(connection, name):
        raise Misuse(f"{work.name} is a view.", "Rows are written to the tables behind it.", "Choose another target.")
    place = place_of(connection, name)
    if place and not work.name.endswith(f"/{place.label}"):
        raise Misuse(
            f"{work.name} is a table behind the view {place.view.table}.",
            fix="Publish through the pipeline that writes it.",
        )


def _is_united(connection: Connection, name: Name) -> bool:
    books = Books(name.schema)
    query = books.filled_in("select exists (select from {heads} where target = %s and more ? 'unites')")
    return bool(one(connection.execute(query, [name.table]))[0])


def frozen_sight(larger: Sight, why: str) -> Sight:
    """Return what is known of a table whose rows are in a larger one."""
    return replace(larger, sealed=why)
