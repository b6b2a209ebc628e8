"""What does a name stand for, and what does one look at it tell?

A table of its own, a view that unites several, a view that shows one version, or a period that is frozen into a larger
one: the head of the target says so, and a look is completed accordingly. A rerun with nothing to do is one look, so
what a plain table does not need is loaded for the others alone.
"""

from __future__ import annotations

from twice.sight import Sight
from twice.stores.postgres import bookkeeping
from twice.stores.postgres.connections import Connection
from twice.stores.postgres.names import Name


def look(connection: Connection, name: Name) -> Sight:
    """Return what the receipts of a name say."""
    found = bookkeeping.looks(connection, name.schema, [name.table]).get(name.table)
    if found is None:
        return bookkeeping.unknown(connection, name)
    if not found.more:
        return found.sight
    from twice.stores.postgres import periods, versions

    if found.more.get("frozen"):
        larger = look(connection, name.beside(found.more["frozen"]))
        return periods.frozen_sight(larger, found.sight.sealed)
    if found.more.get("unites"):
        return periods.sight_of_all(connection, name, found.sight)
    if found.more.get("points"):
        return versions.sight_of(connection, name, found.sight)
    return found.sight
