"""How do old periods become one table, and how do they get columns that came later?

Both are one transaction, which holds the heads of all tables that it touches: nobody publishes to them meanwhile. A
freeze copies the rows with their labels into a larger table and hands it the receipts, which vouch on. The smaller
tables take no more, and are dropped once no older snapshot needs them. Indexes of the smaller tables are not copied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from psycopg import sql

from twice.errors import Fenced, Misuse
from twice.faults import reach
from twice.stores.postgres import bookkeeping, proofs, views
from twice.stores.postgres.bookkeeping import Books
from twice.stores.postgres.connections import Connection, begin, comma, commit, connected, nothing_lands, one
from twice.stores.postgres.names import Name, column, definitions
from twice.stores.postgres.periods import NEW, RETIRE, noted

_LARGER = """
insert into {heads} (target, n, owner, tables, relations, table_id, data_version)
values (%s, 0, %s, %s, %s::oid[], %s, 0)
"""
_MOVE_RECEIPTS = """
update {receipts} r set target = %(larger)s, changes = 0, receipt = r.receipt || '{{"first_version": 0}}',
    ended = case when r.ended <> '' or r.changes = h.changes + (select count(*) from {changes} c where c.relation = any(h.relations))
        then r.ended else %(why)s end
from {heads} h where h.target = r.target and r.target = any(%(targets)s)
"""


def freeze(url: str, view: Name, larger: Name, into: str, labels: Sequence[str], owner: str) -> None:
    """Put the rows and receipts of several tables into one, which takes no more, in one transaction.

    Raises:
        Misuse: The view has no such tables, or has the larger one already.
        Fenced: One of them belongs to another ledger.
    """
    books = Books(view.schema)
    with connected(url) as connection:
        with nothing_lands(view.table):
            begin(connection)
            connection.execute("select set_config(%s, %s, true)", [bookkeeping.PUBLISHING, f"freeze {into}"])
            by = _united_by(connection, books, view)
            there = {one.label: one for one in noted(connection, view)}
            if into in there:
                if set(there[into].covers) != set(labels):
                    raise Misuse(f"{view.table} has a table {into} already.", fix="Freeze into another period.")
                connection.execute("rollback")
                return
            missing = [label for label in labels if label not in there or not there[label].is_there]
            if missing:
                raise Misuse(f"{view.table} has no table {missing[0]}.", fix="See: twice check")
            tables = [view.beside(there[label].table) for label in labels]
            _hold(connection, books, view, tables, owner)
            _fill_larger(connection, larger, by, dict(zip(labels, tables, strict=True)))
            reach("postgres.larger.filled")
            _hand_over(connection, books, larger, into, tables, owner)
            values = {"view": view.table, "label": into, "relation": larger.table, "covers": list(labels)}

            def swap() -> None:
                for table in tables:
                    retired = {**values, "relation": table.table, "old": table.table}
                    connection.execute(books.filled_in(RETIRE, **views.of(books)), retired)
                connection.execute(books.filled_in(NEW, **views.of(books)), values)
                views.show(connection, view)

            views.shown(connection, view, swap)
            reach("postgres.view.frozen")
        commit(connection, view.table)
        reach("postgres.commit.after")


def _united_by(connection: Connection, books: Books, view: Name) -> str:
    """Hold the row of a view, and return the column that tells its tables apart."""
    query = books.filled_in("select more->>'unites' from {heads} where target = %s for update")
    found = connection.execute(query, [view.table]).fetchone()
    if found is None or not found[0]:
        raise Misuse(f"{view.table} is no view of several tables.")
    return str(found[0])


def _hold(connection: Connection, books: Books, view: Name, tables: Sequence[Name], owner: str) -> None:
    """Keep everybody else from publishing to some tables until the transaction ends."""
    query = books.filled_in("select target, owner from {heads} where target = any(%s) order by target for update")
    for target, owned_by in connection.execute(query, [[table.table for table in tables]]).fetchall():
        if owned_by != owner:
            raise Fenced(f"The table {target} belongs to another ledger.", fix=f"twice adopt {view.table}")


def _fill_larger(connection: Connection, larger: Name, by: str, tables: Mapping[str, Name]) -> None:
    """Make the larger table with all columns of the others, and copy their rows with their labels."""
    columns = {label: bookkeeping.columns_of(connection, table) for label, table in tables.items()}
    types = {one.name: one.type for found in columns.values() for one in found}
    connection.execute(sql.SQL("create table {} ({})").format(larger.sql, definitions({by: "text", **types})))
    for label, table in tables.items():
        names = comma(column(one.name) for one in columns[label])
        connection.execute(
            sql.SQL("insert into {} ({}, {}) select {}, {} from {}").format(
                larger.sql, column(by), names, sql.Literal(label), names, table.sql
            )
        )
    proofs.guard(connection, larger, larger.schema)


def _hand_over(
    connection: Connection, books: Books, larger: Name, into: str, tables: Sequence[Name], owner: str
) -> None:
    """Let the larger table have the receipts, and the others refuse all further publishes."""
    targets = [table.table for table in tables]
    oid = one(connection.execute("select to_regclass(%s)::oid", [larger.text]))[0]
    connection.execute(books.filled_in(_LARGER), [larger.table, owner, [larger.text], [oid], str(oid)])
    values = {"larger": larger.table, "targets": targets, "why": bookkeeping.CHANGED}
    connection.execute(books.filled_in(_MOVE_RECEIPTS), values)
    sealed = {"sealed": f"its period is frozen into {into}", "frozen": larger.table}
    statement = "update {heads} set more = more || %s where target = any(%s)"
    connection.execute(books.filled_in(statement), [json.dumps(sealed), targets])


def add_column(url: str, view: Name, new: str, kind: str, owner: str) -> list[str]:
    """Add a column to all tables of a view that lack it, in one transaction, and name them.

    Raises:
        Misuse: It is the view's own column, or it is there with another type.
    """
    books = Books(view.schema)
    with connected(url) as connection:
        with nothing_lands(view.table):
            begin(connection)
            if new.lower() == _united_by(connection, books, view).lower():
                raise Misuse(f"{new!r} is the view's own column.")
            lacking = [
                found
                for found in noted(connection, view)
                if found.is_there
                and new not in {one.name for one in bookkeeping.columns_of(connection, view.beside(found.table))}
            ]
            tables = [view.beside(found.table) for found in lacking]
            _hold(connection, books, view, tables, owner)

            def add() -> None:
                views.hold(connection, view)
                for table in tables:
                    added = definitions({new: kind})
                    connection.execute(sql.SQL("alter table {} add column {}").format(table.sql, added))
                views.show(connection, view)

            if lacking:
                views.shown(connection, view, add)
            statement = "update {heads} set n = n + 1 where target = any(%s)"
            connection.execute(books.filled_in(statement), [[table.table for table in tables]])
            reach("postgres.column.added")
        commit(connection, view.table)
        reach("postgres.commit.after")
    return [found.label for found in lacking]
