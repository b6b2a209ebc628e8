"""Where do the worlds of a proof keep the tables of a PostgreSQL target?

On a server that is started for the proof and goes with it: the user's own is never spoken to. Each
world has a database of its own; a copy of a world gets a copy of its database.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from twice.project import Project
from twice.servers.postgres import PostgresServer
from twice.settings import url_variables

KIND = "postgres"
_MOST_SECONDS = 20.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class WorldDatabase:
    """One database, and the names under which a project's settings look for its address."""

    server: PostgresServer
    name: str
    variables: tuple[str, ...]

    @classmethod
    def made(cls, server: PostgresServer, variables: tuple[str, ...], like: str = "") -> WorldDatabase:
        """Make an empty database, or one that is like another."""
        name = f"world_{next(_numbers)}"
        _patiently(server, f"CREATE DATABASE {name}" + (f" TEMPLATE {like}" if like else ""))
        return cls(server, name, variables)

    @property
    def url(self) -> str:
        """Where it is."""
        return self.server.url(self.name)

    def copied(self) -> WorldDatabase:
        """Return a database that holds the same."""
        return WorldDatabase.made(self.server, self.variables, self.name)

    def environment(self, url: str = "") -> Mapping[str, str]:
        """Return what tells a process, this one or another, to use it; by default without a wire in between."""
        return dict.fromkeys(self.variables, url or self.url)

    def drop(self) -> None:
        """Remove it, whoever is still connected."""
        _patiently(self.server, f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")

    def tables(self) -> int:
        """Count its tables, staged ones too."""
        import psycopg

        with psycopg.connect(self.url) as db:
            found = db.execute(
                "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
            )
            row = found.fetchone()
            return int(row[0]) if row else 0


@contextmanager
def database_of(project: Project, store: str) -> Iterator[WorldDatabase | None]:
    """Yield an empty database for a store that needs one, on a server that ends with the block."""
    if project.kind(store) != KIND:
        yield None
        return
    named = [one.name for one in project.settings.stores.values() if one.kind == KIND]
    with PostgresServer() as server:
        yield WorldDatabase.made(server, url_variables(KIND, named))


def _patiently(server: PostgresServer, statement: str) -> None:
    """Do a statement that waits for others to leave: a connection that was just closed may still be going."""
    import psycopg

    deadline = time.monotonic() + _MOST_SECONDS
    with psycopg.connect(server.url(), autocommit=True) as db:
        while True:
            try:
                db.execute(statement.encode())
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return


def reached_through(database: WorldDatabase, wire: Any) -> Mapping[str, str]:
    """Return the environment of a process whose way to the database is a wire."""
    return database.environment(wire.through(database.url))
