"""A database of PostgreSQL for one world, with hands to meddle with it."""

import itertools
import os
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg

from twice.stores.postgres.histories import ENDING

_NUMBERS = itertools.count(1)
_made: list["Database"] = []


@dataclass
class Database:
    """One database on a server; a copy of it holds the same tables under the same oids."""

    server: Any
    name: str

    @classmethod
    def made(cls, server, like=""):
        name = f"twice_world_{os.getpid()}_{next(_NUMBERS)}_{secrets.token_hex(2)}"
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}" + (f" TEMPLATE {like}" if like else ""))
        _made.append(cls(server, name))
        return _made[-1]

    @property
    def url(self):
        return self.server.url(self.name)

    def copied(self):
        return Database.made(self.server, self.name)

    def execute(self, statement, values=()):
        with psycopg.connect(self.url, autocommit=True) as db:
            found = db.execute(statement, values or None)
            return found.fetchall() if found.description else []

    def wait_for(self, statement):
        """Wait until a statement of another thread is done, or waits for a lock."""
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        while not (statement.done() or self.execute(waiting)[0][0]):
            time.sleep(0.01)

    def rows(self, store, target):
        return store.fetch(target).to_pylist()

    def fill(self, target, schema, rows):
        """Make a table as somebody would who does not know Twice."""
        self.execute(f"CREATE TABLE IF NOT EXISTS {table(target)} ({schema.replace(' string', ' text')})")
        for row in rows:
            places = ", ".join(["%s"] * len(row))
            self.execute(f"INSERT INTO {table(target)} VALUES ({places})", list(row.values()))

    def overwrite(self, target, rows):
        with psycopg.connect(self.url) as db:
            db.execute(f"DELETE FROM {table(target)}")
            db.cursor().executemany(f"INSERT INTO {table(target)} (id, day) VALUES (%s, %s)", rows)

    def delete_day(self, target, day):
        self.execute(f"DELETE FROM {table(target)} WHERE day = %s", [day])

    def drop_all(self):
        """Drop all that Twice made, as whoever brings an empty database does."""
        self.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")

    def row_versions(self, target, day):
        """Return which versions of a day's rows are there: an untouched row keeps its place and its transaction."""
        found = self.execute(f"SELECT ctid, xmin, t FROM {table(target)} t WHERE day = '{day}' ORDER BY ctid")
        return repr(found).encode()

    def places(self, target):
        """Return the file of a table, and the place and transaction of each of its rows."""
        file = self.execute(f"SELECT pg_relation_filepath('{table(target)}')")
        return [*file, *self.execute(f"SELECT ctid, xmin FROM {table(target)} ORDER BY 1")]

    def tables(self, like="%"):
        """Name the tables and views, those of the bookkeeping left out."""
        query = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')"
        found = self.execute(query + " AND relname LIKE %s AND relname NOT LIKE 'twice\\_%%' ORDER BY 1", [like])
        return [name for (name,) in found]

    def kept_names(self, target):
        """Return the names under which there are change rows beside a table."""
        history = table(f"{target}_{ENDING}")
        if self.execute("SELECT to_regclass(%s)", [history])[0][0] is None:
            return set()
        return {name for (name,) in self.execute(f"SELECT DISTINCT twice_edition FROM {history}")}


def drop_what_was_made():
    """Drop all databases: hundreds of worlds would fill a disk. One that is still in use goes with the server."""
    while _made:
        one = _made.pop()
        with suppress(psycopg.Error), psycopg.connect(one.server.url(), autocommit=True) as db:
            db.execute(f"DROP DATABASE IF EXISTS {one.name} WITH (FORCE)")


def table(target):
    return '"' + target.replace("/", "__") + '"'
