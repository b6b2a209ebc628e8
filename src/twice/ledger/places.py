"""Where is a project's ledger?

sqlite:///.twice/ledger.db              a file; a path without a leading slash is under the project's folder
postgresql://user:${PASSWORD}@host/db   a schema of a database, `twice_ledger` unless `?schema=` says otherwise
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from twice.errors import Misuse
from twice.ledger.ledger import Ledger


@dataclass(frozen=True)
class SqlitePlace:
    """A file on this host."""

    path: str

    @property
    def shown(self) -> str:
        """The place as people may see it."""
        return self.path

    def is_made(self) -> bool:
        """Tell whether there is a ledger; makes none."""
        return os.path.exists(self.path)

    def open(self, *, lease_seconds: float = 60.0, renew_seconds: float = 20.0) -> Ledger:
        """Open the ledger, and make it if there is none."""
        from twice.ledger.sqlite import SqliteLedger

        return SqliteLedger(self.path, lease_seconds=lease_seconds, renew_seconds=renew_seconds)


@dataclass(frozen=True)
class PostgresPlace:
    """A schema of a database."""

    url: str

    @property
    def shown(self) -> str:
        """The place as people may see it."""
        from twice.ledger.postgres import Address

        return Address(self.url).shown

    def is_made(self) -> bool:
        """Tell whether there is a ledger; makes none."""
        from twice.ledger.postgres import Address

        return Address(self.url).is_made()

    def open(self, *, lease_seconds: float = 60.0, renew_seconds: float = 20.0) -> Ledger:
        """Open the ledger, and make it if there is none."""
        from twice.ledger.postgres import PostgresLedger

        return PostgresLedger(self.url, lease_seconds=lease_seconds, renew_seconds=renew_seconds)


Place = SqlitePlace | PostgresPlace


def ledger_place(url: str, root: Path) -> Place:
    """Return where the URL of a project says that its ledger is.

    Raises:
        Misuse: No ledger can be kept at such a place.
    """
    if url.startswith("sqlite:///"):
        return SqlitePlace(str(root / url.removeprefix("sqlite:///")))
    if url.startswith(("postgresql://", "postgres://")):
        return PostgresPlace(url)
    raise Misuse(
        f"The ledger {url.partition(':')[0]!r} is not known.",
        fix="Use sqlite:///path, where a path without a leading slash is under the project's folder, or postgresql://user@host/database.",
    )
