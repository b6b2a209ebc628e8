"""How does a whole target go back to an older version, or from one ledger to another?

Each is one commit that changes no row by itself, compared with what was seen before.
"""

from __future__ import annotations

from twice.abilities import KeepsVersions, Store
from twice.errors import Conflict, Fenced, Misuse, NotPublished
from twice.faults import reach
from twice.ledger import Ledger
from twice.sight import NO_TABLE, Sight

RELEASED = "released"


def restore(store: Store, ledger: Ledger, name: str, version: int) -> Sight:
    """Make an older version of a target the newest; a publish like any other, under the head rule.

    Raises:
        Misuse: The store cannot go back, or there is no such version.
        Fenced: The target is another ledger's, or moved meanwhile.
        NotPublished: The version cannot be read any more.
    """
    sight = store.look(name)
    if not isinstance(store, KeepsVersions) or sight.points or not sight.pinned:
        raise Misuse(
            f"{name} has no versions to go back to.", fix="A view is pointed at its versions with: twice point"
        )
    if sight.owner != ledger.id:
        raise Fenced(f"The target {name} belongs to another ledger.", fix=f"Take it over with: twice adopt {name}")
    past = store.past(name)
    if version not in {state.version for state in past.states if state.version != NO_TABLE}:
        raise Misuse(f"{name} has no version {version}, or it is not kept any more.", fix="See: twice versions")
    why = past.lost(version)
    if why:
        raise NotPublished(f"Version {version} of {name} cannot be read any more: {why}.", "Nothing changed.")
    reach("restore.before")
    try:
        store.restore(name, sight, version, ledger.id)
    except Conflict as error:
        raise Fenced(f"The target {name} moved meanwhile: {error}.", "Nothing changed.", "Try again.") from error
    reach("restore.after")
    store.settle(name)
    return store.look(name)


def release(store: Store, ledger: Ledger, name: str) -> None:
    """Give a target back: rows, receipts and history stay, and no ledger owns it.

    Raises:
        Fenced: It is not this ledger's, or changed meanwhile.
    """
    sight = store.look(name)
    if sight.owner != ledger.id:
        raise Fenced(f"The target {name} does not belong to this ledger.", "Nothing changed.")
    try:
        store.take_over(name, sight, RELEASED)
    except Conflict as error:
        raise Fenced(f"The target {name} changed while it was being released.", fix="Try again.") from error
    reach("released")


def take_over(store: Store, ledger: Ledger, name: str, keep_days: int = 0) -> Sight:
    """Make this ledger the owner of a target, and believe the target's receipts.

    Raises:
        Fenced: Someone else changed the target meanwhile.
    """
    sight = store.look(name)
    if (sight.exists or sight.filled) and sight.owner != ledger.id:
        try:
            store.take_over(name, sight, ledger.id, keep_days)
        except Conflict as error:
            raise Fenced(f"The target {name} changed while it was being taken over.", fix="Try again.") from error
        reach("taken.over")
        sight = store.look(name)
    return sight
