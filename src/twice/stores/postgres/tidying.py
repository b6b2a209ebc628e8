"""What did dead attempts leave behind, and how is it taken away without harm to those that live?

Should an attempt be alive after all, stopped and woken up, its publish counts the rows of its staged tables first: it
never publishes from tables that are gone. While it counts and reads them it holds them, and a tidy leaves them alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from twice.abilities import LiveAttempts, Swept
from twice.errors import count
from twice.faults import reach
from twice.stores.postgres import histories, leftovers, views
from twice.stores.postgres.bookkeeping import Books
from twice.stores.postgres.connections import Connection, connected, nothing_lands, readable
from twice.stores.postgres.names import Name, column

# Changes of others are noted one row each; what is older than this is only counted, but for the newest, whose time names it.
_COUNTED = """
with counted as (
    delete from {changes} c where at < now() - interval '30 days'
        and relation = any((select relations from {heads} where target = %(target)s)::oid[])
        and exists (select from {changes} later where later.relation = c.relation and later.at > c.at) returning 1
)
update {heads} set changes = changes + (select count(*) from counted)
where target = %(target)s and (select count(*) from counted) > 0
"""

# A receipt that does not say which rows are its own could mean any of them.
_UNNAMED = """
select kept.name from (select {edition} as name, max({kept_at}) as kept_at from {history} group by {edition}) kept
where kept.kept_at < now() - make_interval(secs => 86400 * %(days)s)
    and exists (select from {receipts} r where r.target = %(target)s)
    and not exists (select from {receipts} r where r.target = %(target)s
        and (coalesce(r.receipt ->> 'history', '') in ('', kept.name) or r.receipt ->> 'adopted' = kept.name))
"""
_LISTED = "select {edition}, count(*) from {history} where {edition} = any(array({unnamed})) group by {edition}"
_DELETED = """
with gone as (delete from {history} where {edition} = any(array({unnamed})) returning {edition} as name)
select name, count(*) from gone group by name
"""

_PASSED = """
select m.relation, coalesce(pg_total_relation_size(to_regclass(quote_ident({schema}) || '.' || quote_ident(m.relation))), 0)
from {members} m where m.view = %s and not m.shown and not m.kept
"""


def tidy(url: str, name: Name, live: LiveAttempts, *, dry_run: bool) -> Swept:
    """Drop the staged tables of attempts that do not live."""
    books = Books(name.schema)
    with connected(url) as connection:
        staged = leftovers.found(connection, name)
        reach("sweep.listed")
        alive = live()
        dead = [one for one in staged if one[1] not in alive]
        if dry_run:
            return _swept(dead, [])
        left = leftovers.drop(connection, [table for table, _, _ in dead])
        reach("postgres.swept")
        if books.are_there(connection):
            connection.execute(books.filled_in(_COUNTED), {"target": name.table})
    return _swept(dead, left)


def _swept(dead: Sequence[tuple[Name, str, int]], left: Sequence[Name]) -> Swept:
    """Say what went, and that tables to which somebody still writes stay for the next time."""
    gone = [one for one in dead if one[0] not in left]
    notes = (f"{len(left)} staged tables are still written to, by tasks of a run that ended",) if left else ()
    attempts = tuple(sorted({attempt for _, attempt, _ in gone}))
    return Swept(len(gone), sum(size for _, _, size in gone), attempts, notes)


def tidy_history(url: str, name: Name, *, keep_days: float, dry_run: bool) -> Swept:
    """Delete the change rows that no receipt names.

    They came with the receipt that named them, and are not named since another took its place. One statement sees
    both as they were at one moment, and what is not published yet is not seen at all: so nobody has to be asked.
    """
    books, history = Books(name.schema), histories.history_of(name)
    with connected(url) as connection:
        if not (books.are_there(connection) and histories.tells_when(connection, history)):
            return Swept()
        parts = {"history": history.sql, "edition": column(histories.EDITION), "kept_at": column(histories.KEPT_AT)}
        unnamed = books.filled_in(_UNNAMED, **parts)
        statement = books.filled_in(_LISTED if dry_run else _DELETED, unnamed=unnamed, **parts)
        with readable(name.table):
            found = connection.execute(statement, {"target": name.table, "days": keep_days}).fetchall()
    reach("postgres.history.swept")
    return Swept(change_rows=sum(rows for _, rows in found), names=tuple(sorted(one for one, _ in found)))


def tidy_view(url: str, view: Name, *, dry_run: bool) -> Swept:
    """Drop the tables behind a view that no open snapshot needs any more; how large they are is told before."""
    books = Books(view.schema)
    with connected(url) as connection:
        if not views.are_there(connection, books):
            return Swept()
        before = _passed(connection, books, view)
        if before and not dry_run:
            with nothing_lands(view.table), connection.transaction():
                views.shown(connection, view, lambda: views.show(connection, view))
            reach("postgres.view.swept")
        left = {} if dry_run else _passed(connection, books, view)
    removed = {table: size for table, size in before.items() if table not in left}
    notes = (f"kept for older transactions that may still read them: {count(len(left), 'table')}",) if left else ()
    return Swept(len(removed), sum(removed.values()), notes=notes)


def _passed(connection: Connection, books: Books, view: Name) -> dict[str, int]:
    """Return the tables that a view does not show any more, and their sizes."""
    query = books.filled_in(_PASSED, **views.of(books))
    return {str(table): int(size) for table, size in connection.execute(query, [view.table]).fetchall()}
