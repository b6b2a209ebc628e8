"""Do the settings of a server, a database or a role change what Twice reads, writes or promises?"""

import socket
import threading
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from databases import Database, table
from twice.errors import Misuse, NotPublished
from twice.stores.postgres.connections import FIXED, begin, connected

pytestmark = [pytest.mark.stores("postgres")]

DAY, NEXT = "2024-09-20", "2024-09-21"
PAGE = Path(__file__).parents[2] / "docs/reference/database-settings.md"


def told(heading):
    """Return what a table of the page says: of each setting the value that does harm, and that which holds instead."""
    rows = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    cells = [[one.strip().strip("`") for one in row.split(" | ")] for row in rows if row.startswith("| `")]
    return {name.removeprefix("| `"): (value, fixed.rstrip(" |`")) for name, value, _, fixed in cells}


# What a database's owner could have said instead of each setting that Twice fixes.
HOSTILE = {name: value for name, (value, _) in told("Fixed in each transaction").items()}


def setting(world, settings):
    for name, value in settings.items():
        world.database.execute(f"alter database {world.database.name} set {name} = {value!r}")


def rows_of_all_kinds():
    return pa.table(
        {
            "id": ["a", "b"],
            "day": [date.fromisoformat(DAY)] * 2,
            "bytes": [b"a\\b\0'", b"\xff\\\\"],
            "text": ["O'Brien \\ \N{SNOWMAN}", "\\x41"],
            "at": [datetime(2024, 9, 20, 1, tzinfo=UTC)] * 2,
            "number": [0.1 + 0.2, 1e-300],
            "money": pa.array([Decimal("1.50"), Decimal("2.25")], pa.decimal128(8, 2)),
            "there": pa.array(["03/04/2024", "2024-05-06"]),
        }
    )


class Pooler:
    """Hands connections on to a server, and drops the start-up options of a client, as poolers do that do not know them."""

    def __init__(self, server):
        self.server = server
        self.listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                threading.Thread(target=self.connect, args=(client,), daemon=True).start()

    def connect(self, client):
        with suppress(OSError), client, socket.create_connection(self.server) as server:
            first = client.recv(1 << 16)
            while int.from_bytes(first[4:8], "big") != 196608:
                client.sendall(b"N")
                first = client.recv(1 << 16)
            words = first[8:].rstrip(b"\0").split(b"\0")
            pairs = zip(words[::2], words[1::2], strict=True)
            kept = b"".join(name + b"\0" + value + b"\0" for name, value in pairs if name in (b"user", b"database"))
            body = (196608).to_bytes(4, "big") + kept + b"\0"
            server.sendall((len(body) + 4).to_bytes(4, "big") + body)
            threading.Thread(target=self.hand, args=(server, client), daemon=True).start()
            self.hand(client, server)

    def hand(self, source, sink):
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)


class Pooled(Database):
    """A database behind a pooler."""

    port = 0

    @property
    def url(self):
        with psycopg.connect(super().url) as db:
            return super().url.replace(str(db.info.port), str(self.port))


@pytest.fixture
def pooled(world):
    """Return a world that reaches its database through a pooler which drops options."""
    with psycopg.connect(world.database.url) as db:
        pooler = Pooler((db.info.host, db.info.port))
    world.database = Pooled(world.database.server, world.database.name)
    world.database.port = pooler.listening.getsockname()[1]
    world.reopen()
    yield world
    pooler.listening.close()


def test_the_page_lists_every_setting_that_is_fixed_and_the_value_it_gets():
    assert {name: fixed for name, (_, fixed) in told("Fixed in each transaction").items()} == FIXED


def write_and_read_all_kinds(world):
    world.database.execute("create domain moment as date")
    kinds = "id text, day date, bytes bytea, text text, at timestamptz, number double precision, money numeric(8,2), there moment"
    world.database.execute(f"create table {table(world.target)} ({kinds})")
    world.transform = lambda _: rows_of_all_kinds()
    world.put(DAY, ["a"])
    assert world.run(DAY).state == "published"
    assert world.run(DAY).state == "skipped"
    found = world.project.store("postgres").fetch(world.target).sort_by("id")
    wanted = rows_of_all_kinds().set_column(7, "there", pa.array(["2024-03-04", "2024-05-06"]))
    assert found.to_pylist() == wanted.to_pylist()


def test_settings_of_a_database_change_no_value_in_or_out(world):
    setting(world, HOSTILE)
    write_and_read_all_kinds(world)


def test_settings_of_a_database_change_no_value_behind_a_pooler_that_drops_options(pooled):
    # The driver that fetches Arrow asks the server for its types when it connects, and fails if their names are quoted.
    setting(pooled, {**HOSTILE, "quote_all_identifiers": "off", "default_transaction_isolation": "serializable"})
    with psycopg.connect(pooled.database.url) as db:
        assert db.execute("show bytea_output").fetchone() == ("escape",)
    write_and_read_all_kinds(pooled)


def test_a_transaction_is_isolated_and_durable_whatever_the_way_drops(pooled):
    setting(pooled, {"default_transaction_isolation": "serializable", "synchronous_commit": "off"})
    with connected(pooled.database.url) as connection:
        begin(connection)
        asked = ("transaction_isolation", "timezone", "synchronous_commit")
        found = [connection.execute(f"show {one}").fetchone()[0] for one in asked]
    assert found == ["read committed", "UTC", "on"]


def test_each_way_to_commit_is_tried_as_the_page_tells_it(world):
    committed = told("How a transaction is committed")
    assert len(committed) > 3
    for number, (name, (value, instead)) in enumerate(committed.items(), start=1):
        day = f"2024-09-{number:02}"
        setting(world, {name: value})
        world.put(day, [name])
        if "refused" in instead:
            with pytest.raises(Misuse):
                world.run(day)
        else:
            assert world.run(day).state == "published"
            assert world.run(day).state == "skipped"
        with psycopg.connect(world.database.url, options="-c default_transaction_read_only=off", autocommit=True) as db:
            db.execute(f"alter database {world.database.name} reset {name}")
    refused = [name for name, (_, instead) in committed.items() if "refused" in instead]
    assert refused == ["default_transaction_read_only"]
    assert sorted(id_ for id_, _ in world.rows()) == sorted(set(committed) - set(refused))


@pytest.mark.parametrize(
    ("said", "meant"),
    [("off", "on"), ("local", "on"), ("remote_write", "on"), ("on", "on"), ("remote_apply", "remote_apply")],
)
def test_a_publish_is_on_disk_when_it_is_reported_whatever_a_database_says(world, said, meant):
    setting(world, {"synchronous_commit": said})
    # A deferred trigger runs at COMMIT itself.
    world.database.execute(
        f"create table {table(world.target)} (id text, day date); create table seen (what text);"
        "create function look() returns trigger language plpgsql as $$ begin"
        " insert into seen values (current_setting('synchronous_commit')); return null; end $$;"
        f"create constraint trigger looks after insert on {table(world.target)} deferrable initially deferred"
        " for each row execute function look()"
    )
    world.put(DAY, ["a"])
    world.run(DAY)
    assert world.database.execute("select * from seen") == [(meant,)]


def test_a_constraint_that_fails_at_commit_is_a_refusal_and_not_an_unknown_end(world):
    world.database.execute(
        f"create table days (day date primary key); create table {table(world.target)}"
        " (id text, day date references days deferrable initially deferred)"
    )
    world.put(DAY, ["a"])
    with pytest.raises(NotPublished, match="violates foreign key constraint"):
        world.run(DAY)
    assert world.records() == []
    world.database.execute(f"insert into days values ('{DAY}')")
    assert world.run(DAY).state == "published"
