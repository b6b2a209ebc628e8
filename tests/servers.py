"""Fixtures: one real PostgreSQL server for all tests that can share it, and an empty database for each test.

`TWICE_TEST_POSTGRES=postgresql://…` names another server, on which databases may be made. Tests that
kill the server start one of their own all the same.
"""

import itertools
import os
import secrets
from urllib.parse import urlsplit, urlunsplit

import pytest

_NUMBERS = itertools.count(1)


class GivenServer:
    """A server that somebody else runs."""

    def __init__(self, url):
        self._url = urlsplit(url)

    def url(self, database="postgres"):
        return urlunsplit(self._url._replace(path=f"/{database}"))


@pytest.fixture(scope="session")
def postgres_server():
    """Return a server that all tests share: none of them stops it or changes its settings."""
    given = os.environ.get("TWICE_TEST_POSTGRES")
    if given:
        yield GivenServer(given)
        return
    from twice.servers.postgres import PostgresServer

    # A vacuum that the server begins by itself holds a snapshot for a moment, and a publish then takes another way.
    with PostgresServer(settings={"autovacuum": "off"}) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server):
    """Return the address of an empty database, which is dropped after the test."""
    with empty_database(postgres_server) as url:
        yield url


class empty_database:  # noqa: N801 - used like the functions of contextlib
    """A database of its own on a server, dropped when the block is left."""

    def __init__(self, server):
        self.server = server
        self.name = f"twice_test_{os.getpid()}_{next(_NUMBERS)}_{secrets.token_hex(3)}"

    def __enter__(self):
        self._do(f"CREATE DATABASE {self.name}")
        return self.server.url(self.name)

    def __exit__(self, *_):
        self._do(f"DROP DATABASE {self.name} WITH (FORCE)")

    def _do(self, statement):
        import psycopg

        with psycopg.connect(self.server.url(), autocommit=True) as db:
            db.execute(statement)
