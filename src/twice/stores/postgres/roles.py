"""Who may do what with versions behind a view, and which statements say so?

    owner     owns the schema, the bookkeeping, the versions and the view; it cannot log in
    writer    may look at the bookkeeping, keep its receipts and bodies there, and call the two functions that open and publish a
              version: so it fills the version that it opened, until it is published, and no other
    reader    may read the view, and nothing behind it

The statements are made of what is there already, so that they can be given again. The schema has to be that target's
alone: its bookkeeping gets an owner, and other pipelines could not write to it any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from twice.errors import Misuse
from twice.faults import reach
from twice.stores.postgres import versions, views
from twice.stores.postgres.bookkeeping import CHANGES, HEADS, KEPT, RECEIPTS, Books
from twice.stores.postgres.connections import Connection, begin, commit, connected, nothing_lands, one
from twice.stores.postgres.names import Name, checked

_OTHERS = """
select h.target from {heads} h where h.target <> %(view)s and not exists (
    select from {members} m where m.view = %(view)s and m.relation = h.target) order by 1
"""
_OWNED = """
select c.relkind = 'v', c.relname from pg_class c where c.relnamespace = to_regnamespace(%(schema)s)
    and (c.relname = any(%(books)s) or c.relname = %(view)s
        or c.oid in (select to_regclass(quote_ident(%(schema)s) || '.' || quote_ident(m.relation)) from {members} m
            where m.view = %(view)s))
order by 2
"""
_FUNCTIONS = """
select p.oid::regprocedure::text from pg_proc p
where p.pronamespace = to_regnamespace(%s) and starts_with(p.proname, 'twice_') order by 1
"""
_READERS = """
insert into {heads} (target, n, more) values ({view}, -1, {more})
on conflict (target) do update set more = {heads_name}.more || excluded.more
"""


@dataclass(frozen=True)
class Roles:
    """The names of the three roles."""

    owner: str
    writer: str
    reader: str

    def __post_init__(self) -> None:
        for name in self.all:
            checked(name, "role")
        if len(set(self.all)) < len(self.all):
            raise Misuse("Owner, writer and reader are three roles.", fix="Give each a name of its own.")

    @property
    def all(self) -> tuple[str, str, str]:
        """The owner first."""
        return (self.owner, self.writer, self.reader)


def named(view: str, owner: str, writer: str, reader: str) -> Roles:
    """Return the roles of a view; those that nobody named are called after it."""
    return Roles(owner or f"{view}_owner", writer or f"{view}_writer", reader or f"{view}_reader")


def statements(url: str, view: Name, roles: Roles, *, apply: bool) -> list[str]:
    """Return the statements that make the roles, carried out in one transaction if asked."""
    with connected(url) as connection:
        with nothing_lands(view.table):
            begin(connection)
            found = list(_statements(connection, view, roles))
            for statement in found if apply else ():
                connection.execute(statement)
            reach("postgres.roles.before")
        commit(connection, view.table)
        return [statement.as_string(connection).strip().removesuffix(";") for statement in found]


def _statements(connection: Connection, view: Name, roles: Roles) -> Iterator[sql.Composed]:
    books = Books(view.schema)
    has_views = views.are_there(connection, books)
    _refuse(connection, books, view, has_views=has_views)
    yield from _roles(connection, roles)
    yield from _schema(connection, view, roles)
    if has_views:
        yield from _handed_over(connection, books, view, roles)
    else:
        yield from _made_by(books, roles)
    yield from _rights(connection, books, view, roles)


def _refuse(connection: Connection, books: Books, view: Name, *, has_views: bool) -> None:
    """Refuse a schema that holds other targets, and a name that is no view with versions."""
    if views.kind_of_relation(connection, view) not in ("", "v"):
        raise Misuse(f"{view.table} is a table, and has no versions.", fix="The pattern 'proxy' makes a view.")
    if not books.are_there(connection):
        return
    if not has_views:
        raise Misuse(
            f"The schema {view.schema} holds other targets of Twice.",
            "Their bookkeeping would get another owner.",
            "Give the view a schema of its own: postgres:<schema>.<view>",
        )
    query = books.filled_in(_OTHERS, **views.of(books))
    others = [row[0] for row in connection.execute(query, {"view": view.table}).fetchall()]
    if others:
        raise Misuse(
            f"The schema {view.schema} holds other targets of Twice: {', '.join(others[:5])}.",
            "Their bookkeeping would get another owner.",
            "Give the view a schema of its own: postgres:<schema>.<view>",
        )


def _roles(connection: Connection, roles: Roles) -> Iterator[sql.Composed]:
    found = connection.execute("select rolname, rolcanlogin from pg_roles where rolname = any(%s)", [list(roles.all)])
    there: dict[str, bool] = dict(found.fetchall())
    for name in roles.all:
        wanted = sql.SQL("nologin" if name == roles.owner else "login")
        if name not in there:
            yield sql.SQL("create role {} {}").format(sql.Identifier(name), wanted)
        elif name == roles.owner and there[name]:
            yield sql.SQL("alter role {} nologin").format(sql.Identifier(name))
    # Whoever carries this out hands objects over to the owner, and for that has to be a member of it.
    yield sql.SQL("grant {} to current_user").format(sql.Identifier(roles.owner))


def _schema(connection: Connection, view: Name, roles: Roles) -> Iterator[sql.Composed]:
    schema, owner = sql.Identifier(view.schema), sql.Identifier(roles.owner)
    if one(connection.execute("select to_regnamespace(%s) is null", [schema.as_string(connection)]))[0]:
        yield sql.SQL("create schema {} authorization {}").format(schema, owner)
    else:
        yield sql.SQL("grant usage, create on schema {} to {}").format(schema, owner)


def _made_by(books: Books, roles: Roles) -> Iterator[sql.Composed]:
    """Make the bookkeeping as the owner."""
    yield sql.SQL("set local role {}").format(sql.Identifier(roles.owner))
    yield from books.definitions()
    yield from views.definitions(books)
    yield from versions.definitions(books)
    yield sql.SQL("set local role none").format()


def _handed_over(connection: Connection, books: Books, view: Name, roles: Roles) -> Iterator[sql.Composed]:
    """Give what is there to the owner."""
    owner = sql.Identifier(roles.owner)
    # The bookkeeping may be older than bodies.
    yield books.kept
    yield sql.SQL("alter table {} owner to {}").format(books.of(KEPT), owner)
    values = {
        "schema": view.schema,
        "view": view.table,
        "books": [HEADS, RECEIPTS, CHANGES, views.MEMBERS],
    }
    for is_view, name in connection.execute(books.filled_in(_OWNED, **views.of(books)), values).fetchall():
        kind = sql.SQL("view" if is_view else "table")
        yield sql.SQL("alter {} {} owner to {}").format(kind, sql.Identifier(view.schema, name), owner)
    for (signature,) in connection.execute(_FUNCTIONS, [sql.Identifier(view.schema).as_string(None)]).fetchall():
        yield sql.SQL("alter function {} owner to {}").format(sql.SQL(signature), owner)


def _rights(connection: Connection, books: Books, view: Name, roles: Roles) -> Iterator[sql.Composed]:
    writer, reader = sql.Identifier(roles.writer), sql.Identifier(roles.reader)
    yield sql.SQL("grant usage on schema {} to {}, {}").format(sql.Identifier(view.schema), writer, reader)
    for table in (HEADS, RECEIPTS):
        yield sql.SQL("grant select, insert, update on {} to {}").format(books.of(table), writer)
    yield sql.SQL("grant select, insert, delete on {} to {}").format(books.of(KEPT), writer)
    for table in (CHANGES, views.MEMBERS):
        yield sql.SQL("grant select on {} to {}").format(books.of(table), writer)
    for function in versions.functions(books):
        yield sql.SQL("grant execute on function {} to {}").format(function, writer)
    more = sql.Literal(json.dumps({"readers": [roles.reader]}))
    yield books.filled_in(_READERS, view=sql.Literal(view.table), more=more, heads_name=sql.Identifier(HEADS))
    if views.kind_of_relation(connection, view):
        yield sql.SQL("grant select on {} to {}").format(view.sql, reader)
