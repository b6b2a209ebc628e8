"""Which statements bring a ledger up to date, and which tables does it have then?"""

from __future__ import annotations

import re

from twice.errors import Misuse
from twice.ledger.schema import MIGRATIONS, VERSION

_CREATED = re.compile(r"CREATE TABLE (\w+)")


def statements_since(version: int) -> list[str]:
    """Return what is to be said to a ledger whose schema has this number, one statement each."""
    return [part.strip() for migration in MIGRATIONS[version:] for part in migration.split(";") if part.strip()]


def tables() -> list[str]:
    """Return the names of all tables; one that was made anew since is one table."""
    return list(dict.fromkeys(name for statement in statements_since(0) for name in _CREATED.findall(statement)))


def refuse_newer(place: str, found: int) -> None:
    """Refuse a ledger of a newer Twice.

    Raises:
        Misuse: Its schema has a number that this Twice does not know.
    """
    if found > VERSION:
        raise Misuse(
            f"The ledger {place} has schema {found}; this Twice knows up to {VERSION}.",
            "It was written by a newer Twice, whose records this one would misread.",
            "Upgrade Twice here.",
        )
