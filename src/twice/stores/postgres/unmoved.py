"""Is a target just as the plan saw it?

Asked in the transaction that publishes what was computed from the whole target. Publishes of others are told by its head,
which is compared again when it moves. Changes by others are counted: before this look, and when the receipt is written.
If both counts are the same, nothing came between. A change that commits later is not in the count that the receipt
holds, so the next look finds it: it came after this publish.
"""

from __future__ import annotations

from twice.errors import Conflict
from twice.sight import Sight
from twice.stores.postgres import looking
from twice.stores.postgres.bookkeeping import Books
from twice.stores.postgres.connections import Connection, one
from twice.stores.postgres.names import Name

CHANGES_NOW = """
coalesce((select h.changes + (select count(*) from {changes} c where c.relation = any(h.relations))
    from {heads} h where h.target = %(target)s), 0)
"""


def check(connection: Connection, books: Books, name: Name, base: Sight) -> int:
    """Compare a target with what the plan saw, and return how many changes by others there were.

    Raises:
        Conflict: It is not the same.
    """
    changes = one(connection.execute(books.filled_in("select " + CHANGES_NOW), {"target": name.table}))[0]
    now = looking.look(connection, name)
    if _state(now) != _state(base):
        raise Conflict("the target is not as the plan saw it")
    return int(changes)


def _state(sight: Sight) -> tuple[object, ...]:
    fences = {slot: receipt.generation for slot, receipt in sight.receipts.items()}
    return sight.version, sight.table_id, sight.data_version, sight.outside, sight.filled, set(sight.ended), fences
