"""What did dead attempts leave behind, and how is it taken away without harm to those that live?

An attempt that is about to be swept is named in the target's head first. Should it be alive after all, stopped and
woken up, its publish finds its name there and is refused: it never publishes from tables that are gone.
"""

from __future__ import annotations

import json

from twice.abilities import Swept
from twice.faults import reach
from twice.stores.postgres import tasks, views
from twice.stores.postgres.bookkeeping import Books
from twice.stores.postgres.connections import Connection, connected, nothing_lands
from twice.stores.postgres.names import Name

# Changes of others are noted one row each; what is older than this is only counted.
_COUNTED = """
with counted as (
    delete from {changes} where at < now() - interval '30 days'
        and relation = any((select relations from {heads} where target = %(target)s)::oid[]) returning 1
)
update {heads} set changes = changes + (select count(*) from counted)
where target = %(target)s and (select count(*) from counted) > 0
"""
_SWEEPING = "update {heads} set swept = swept || %(attempts)s::jsonb where target = %(target)s"

_PASSED = """
select m.relation, coalesce(pg_total_relation_size(to_regclass(quote_ident({schema}) || '.' || quote_ident(m.relation))), 0)
from {members} m where m.view = %s and not m.shown and not m.kept
"""


def tidy(url: str, name: Name, live: frozenset[str], *, dry_run: bool) -> Swept:
    """Drop the staged tables of attempts that do not live."""
    books = Books(name.schema)
    with connected(url) as connection:
        dead = [one for one in tasks.leftovers(connection, name) if one[1] not in live]
        attempts = tuple(sorted({attempt for _, attempt, _ in dead}))
        swept = Swept(len(dead), sum(size for _, _, size in dead), attempts)
        if dry_run:
            return swept
        # Before the first publish there is no head; an attempt that wakes up then finds its tables gone.
        kept = books.are_there(connection)
        if kept and attempts:
            values = {"target": name.table, "attempts": json.dumps(attempts)}
            connection.execute(books.filled_in(_SWEEPING), values)
        reach("postgres.sweep.named")
        tasks.drop(connection, [table for table, _, _ in dead])
        reach("postgres.swept")
        if kept:
            connection.execute(books.filled_in(_COUNTED), {"target": name.table})
    return swept


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
    notes = (f"{len(left)} tables wait for older transactions that may still read them",) if left else ()
    return Swept(len(removed), sum(removed.values()), notes=notes)


def _passed(connection: Connection, books: Books, view: Name) -> dict[str, int]:
    """Return the tables that a view does not show any more, and their sizes."""
    query = books.filled_in(_PASSED, **views.of(books))
    return {str(table): int(size) for table, size in connection.execute(query, [view.table]).fetchall()}
