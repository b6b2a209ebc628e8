"""What did dead attempts leave behind, and how is it taken away without harm to those that live?

An attempt that is about to be swept is named in the target's head first. Should it be alive after all, stopped and
woken up, its publish finds its name there and is refused: it never publishes from tables that are gone.
"""

from __future__ import annotations

import json

from twice.abilities import Swept
from twice.faults import reach
from twice.stores.postgres import tasks
from twice.stores.postgres.bookkeeping import Books
from twice.stores.postgres.connections import connected
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


def tidy(url: str, name: Name, live: frozenset[str], *, dry_run: bool) -> Swept:
    """Drop the staged tables of attempts that do not live."""
    books = Books(name.schema)
    with connected(url) as connection:
        if not books.are_there(connection):
            return Swept()
        dead = [one for one in tasks.leftovers(connection, name) if one[1] not in live]
        attempts = tuple(sorted({attempt for _, attempt, _ in dead}))
        swept = Swept(len(dead), sum(size for _, _, size in dead), attempts)
        if dry_run:
            return swept
        if attempts:
            values = {"target": name.table, "attempts": json.dumps(attempts)}
            connection.execute(books.filled_in(_SWEEPING), values)
            reach("postgres.sweep.named")
        tasks.drop(connection, [table for table, _, _ in dead])
        reach("postgres.swept")
        connection.execute(books.filled_in(_COUNTED), {"target": name.table})
    return swept
