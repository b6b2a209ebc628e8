"""What is peculiar to a ledger in a PostgreSQL database?"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
import pytest

from twice import settings
from twice.errors import Misuse, NotPublished
from twice.faults import Died, armed, dying_at, recording
from twice.ledger import AttemptRecord, postgres
from twice.ledger.places import PostgresPlace
from twice.ledger.postgres import PostgresLedger
from twice.ledger.records import OPEN
from twice.ledger.schema import VERSION
from twice.project import Project
from twice.prover.wires import AFTER, CUTS, DURING, Wire
from twice.servers.postgres import PostgresServer
from worlds import World

RECORD = AttemptRecord("", "v1:out:memory:lake/out:a", "out", "memory:lake/out", 1, "inputs", "code", OPEN)
SECRET = "correct-horse"
HOLDS_THE_LEDGER = """
import os, signal, sys
from twice.ledger.postgres import PostgresLedger
with PostgresLedger(sys.argv[1]).transaction() as db:
    db.execute("UPDATE facts SET value='torn' WHERE name='ledger_id'")
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def ledger(postgres_url):
    return PostgresLedger(postgres_url)


@pytest.fixture(scope="module")
def own_server():
    with PostgresServer() as server:
        yield server


@pytest.fixture
def role(postgres_server, postgres_url):
    """Return the address of the same database for a role that may connect and no more."""
    name = f"twice_role_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'")
        yield name, postgres_url.replace(postgres_url.split("//")[1].split("@")[0], f"{name}:{SECRET}")
        db.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def schemas(url):
    with psycopg.connect(url) as db:
        return {name for (name,) in db.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'")}


# ------------------------------------------------------------------ opening


def test_it_keeps_to_a_schema_of_its_own(postgres_url, ledger):
    ledger.intend(RECORD)
    assert schemas(postgres_url) == {"public", "information_schema", "twice_ledger"}
    with psycopg.connect(postgres_url) as db:
        assert db.execute("SELECT count(*) FROM pg_tables WHERE schemaname='public'").fetchone() == (0,)


def test_two_projects_have_two_ledgers_in_one_database(postgres_url, ledger):
    other = PostgresLedger(f"{postgres_url}?schema=orders_ledger")
    assert other.id != ledger.id
    ledger.intend(RECORD)
    assert (len(ledger.attempts()), other.attempts()) == (1, [])


@pytest.mark.parametrize("name", ['a"b', "A", "1a", "a" * 64, "a;b", "a.b"])
def test_a_schema_with_a_strange_name_is_refused(postgres_url, name):
    with pytest.raises(Misuse, match="is not a plain name"):
        PostgresLedger(f"{postgres_url}?schema={name}")


def test_a_newer_ledger_is_refused_and_left_alone(postgres_url, ledger):
    with psycopg.connect(postgres_url) as db:
        db.execute("UPDATE twice_ledger.schema_number SET number=%s", (VERSION + 1,))
    with pytest.raises(Misuse, match="written by a newer Twice"):
        PostgresLedger(postgres_url)


def test_looking_makes_no_ledger(postgres_url, tmp_path, monkeypatch):
    monkeypatch.setenv("TWICE_LEDGER_URL", postgres_url)
    before = schemas(postgres_url)
    assert Project.open(tmp_path, only_looking=True).ledger.attempts() == []
    assert schemas(postgres_url) == before
    assert not PostgresPlace(postgres_url).is_made()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda url: url.replace("@", "x@", 1), "password authentication failed"),
        (lambda url: url.rpartition("/")[0] + "/no_such_database", "does not exist"),
    ],
)
def test_a_wrong_address_is_misuse_and_shows_no_password(own_server, change, told):
    with pytest.raises(Misuse, match=told) as refused:
        PostgresLedger(change(own_server.url()))
    assert own_server.url().split(":")[2].split("@")[0] not in str(refused.value)


def test_an_address_that_cannot_be_read_is_not_repeated():
    with pytest.raises(Misuse, match="cannot be read") as refused:
        PostgresLedger(f"postgresql://ann:{SECRET} x@host:port/db")
    assert SECRET not in str(refused.value)


def test_a_server_that_does_not_answer_started_nothing():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(NotPublished, match="nothing was started") as refused:
            PostgresLedger(f"postgresql://ann:{SECRET}@127.0.0.1:{nobody.getsockname()[1]}/db")
    assert SECRET not in str(refused.value)


def test_a_standby_is_refused(own_server):
    PostgresLedger(own_server.url())
    with own_server.copy_as_standby() as standby, pytest.raises(Misuse, match="it is a standby"):
        PostgresLedger(standby.url())


def test_a_role_that_may_only_read_is_refused(postgres_url, ledger, role):
    name, url = role
    with psycopg.connect(postgres_url) as db:
        db.execute(f"ALTER ROLE {name} SET default_transaction_read_only = on")
    with pytest.raises(Misuse, match="can only be read"):
        PostgresLedger(url)


def test_a_role_without_a_right_is_told_which_one(postgres_url, role):
    name, url = role
    with pytest.raises(Misuse, match=r"CREATE SCHEMA twice_ledger AUTHORIZATION") as refused:
        PostgresLedger(url)
    assert SECRET not in str(refused.value)
    with psycopg.connect(postgres_url) as db:
        db.execute(f"CREATE SCHEMA twice_ledger AUTHORIZATION {name}")
    assert PostgresLedger(url).intend(RECORD).attempt


def test_without_psycopg_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Misuse, match=r"pip install 'twice\[postgres\]'"):
        PostgresLedger("postgresql://host/db")


# ------------------------------------------------------------------ what is kept


def test_numbers_and_texts_that_are_too_much_for_others(ledger):
    name = ledger.intend(RECORD).attempt
    ledger.end(name, "failed", "a\0b ? % %s \\ ' \" \N{SNOWMAN}")
    with ledger.transaction() as db:
        db.execute("UPDATE attempts SET rows=?", (2**60,))
    assert ledger.attempt(name).reason == "a\N{REPLACEMENT CHARACTER}b ? % %s \\ ' \" \N{SNOWMAN}"
    assert ledger.attempt(name).rows == 2**60


def test_a_statement_that_failed_takes_the_whole_act_with_it(ledger):
    """Even if somebody overheard the error: PostgreSQL answers such a COMMIT with ROLLBACK, and no error."""
    with pytest.raises(NotPublished, match="nothing of it was kept"), ledger.transaction() as db:  # noqa: PT012
        db.execute("INSERT INTO facts (name, value) VALUES ('a', 'b')")
        with pytest.raises(psycopg.Error):
            db.execute("SELECT nonsense")
    assert ledger.query("SELECT * FROM facts WHERE name='a'") == []


def test_a_question_changes_nothing(ledger):
    with pytest.raises(NotPublished, match="read-only transaction"):
        ledger.query("DELETE FROM facts RETURNING name")


# ------------------------------------------------------------------ others on the ledger


@contextmanager
def a_holder(url):
    command = [sys.executable, "-c", HOLDS_THE_LEDGER, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_whoever_is_killed_inside_an_act_leaves_nothing_and_holds_nobody_up(postgres_url, ledger):
    with a_holder(postgres_url) as process:
        process.kill()
        process.wait()
        since = time.monotonic()
        ledger.intend(RECORD)
        assert time.monotonic() - since < 5
    assert PostgresLedger(postgres_url).id == ledger.id


def test_whoever_is_asleep_inside_an_act_is_thrown_out(postgres_url, ledger, monkeypatch):
    """As a process that was stopped, or one behind a cable that was cut."""
    sleepy = postgres._LIMITS.replace(
        "idle_in_transaction_session_timeout='60s'", "idle_in_transaction_session_timeout='1s'"
    )
    assert sleepy != postgres._LIMITS
    code = HOLDS_THE_LEDGER.replace(
        "with PostgresLedger", f"import twice.ledger.postgres as p\np._LIMITS = {sleepy!r}\nwith PostgresLedger"
    )
    monkeypatch.setattr(sys.modules[__name__], "HOLDS_THE_LEDGER", code)
    with a_holder(postgres_url) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert ledger.intend(RECORD).attempt
    assert PostgresLedger(postgres_url).id == ledger.id


def test_a_wait_for_the_ledger_has_an_end(postgres_url, ledger, monkeypatch):
    monkeypatch.setattr(postgres, "_LIMITS", "SET LOCAL lock_timeout='200ms'")
    with a_holder(postgres_url), pytest.raises(NotPublished, match="lock timeout"):
        ledger.intend(RECORD)


def test_of_a_process_of_another_host_or_another_boot_nothing_is_known(postgres_url, ledger):
    for column, value in (("host", "elsewhere"), ("boot", "another")):
        with ledger.lease("slot", "mine"):
            with ledger.transaction() as db:
                db.execute(f"UPDATE leases SET {column}=?, pid=0", (value,))
            assert ledger.busy("slot") == "mine"
    with ledger.lease("slot", "mine"):
        with ledger.transaction() as db:
            db.execute("UPDATE leases SET pid=0")
        assert ledger.busy("slot") == ""


def test_the_clock_is_the_servers(ledger, monkeypatch):
    monkeypatch.setattr(time, "clock_gettime", lambda clock: 0.0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    with ledger.reading() as db:
        assert ledger.clock(db) > 1.7e9
        assert ledger.now(db) > "2024"


# ------------------------------------------------------------------ the server goes away


def test_a_server_that_is_killed_and_started_again_has_all_that_was_acknowledged(own_server):
    ledger = PostgresLedger(f"{own_server.url()}?schema=killed")
    kept = [ledger.intend(RECORD).attempt for _ in range(20)]
    own_server.kill()
    with pytest.raises(NotPublished, match="cannot be used"):
        ledger.intend(RECORD)
    own_server.start()
    assert [record.attempt for record in ledger.attempts()] == kept[::-1]
    assert ledger.intend(RECORD).attempt.split("-")[1] == "21"


# ------------------------------------------------------------------ the way to it is cut


def test_what_was_acknowledged_is_kept_and_what_was_not_may_be(postgres_url):
    ledger, chance, kept = PostgresLedger(postgres_url), random.Random(7), []
    with Wire.to(postgres_url) as wire:
        cut_off = PostgresLedger(wire.through(postgres_url))
        for _ in range(60):
            how = chance.choice(CUTS)
            fault = wire.expect(how)
            with pytest.raises(NotPublished, match="cannot be used"):
                cut_off.intend(RECORD)
            assert fault.done.wait(5)
            kept.append(how)
    print(f"seed 7: {len(kept)} cuts around COMMIT of the ledger: {Counter(kept)}")
    landed = len(ledger.attempts(limit=1000))
    assert kept.count(AFTER) <= landed <= kept.count(AFTER) + kept.count(DURING)
    numbers = sorted(int(record.attempt.split("-")[1]) for record in ledger.attempts(limit=1000))
    assert numbers == list(range(1, landed + 1))


@pytest.mark.parametrize("how", CUTS)
def test_a_run_whose_ledger_is_cut_off_at_any_of_its_acts_ends_well_or_the_next_one_does(postgres_url, tmp_path, how):
    def world(number, url):
        made = OnServer(tmp_path / f"world{number}", "memory", url=f"{url}?schema=world{number}")
        made.put("2024-09-20", ["a", "b"])
        return made

    with Wire.to(postgres_url) as wire:
        clean = world(0, wire.through(postgres_url))
        _ = clean.project.ledger
        before = wire.commits
        clean.run("2024-09-20")
        acts = wire.commits - before
        assert acts > 5
        for number in range(1, acts + 1):
            tried = world(number, wire.through(postgres_url))
            _ = tried.project.ledger
            fault = wire.expect(how, number=number)
            with suppress(NotPublished):
                tried.run("2024-09-20")
            assert fault.done.wait(5)
            assert tried.run("2024-09-20").state in ("published", "skipped")
            assert tried.run("2024-09-20").state == "skipped"
            assert tried.snapshot() == clean.snapshot()


# ------------------------------------------------------------------ whole runs


@dataclass
class OnServer(World):
    """A world whose ledger is on a server."""

    url: str = ""

    def reopen(self):
        overrides = {"leases.seconds": self.lease_seconds, "ledger.url": self.url}
        self.project = Project(settings.load(self.folder, overrides))
        self.project._stores["memory"] = self.memory


def test_a_run_dies_at_every_point_and_the_next_one_ends_in_the_same_table(postgres_url, tmp_path):
    def world(number):
        made = OnServer(tmp_path / f"world{number}", "memory", url=f"{postgres_url}?schema=world{number}")
        made.put("2024-09-20", ["a", "b"])
        return made

    points = []
    with armed(recording(points)):
        clean = world(0)
        clean.run("2024-09-20")
    assert len(points) > 8
    for number, point in enumerate(points, 1):
        tried = world(number)
        with armed(dying_at(point)), pytest.raises(Died):
            tried.run("2024-09-20")
        tried.reopen()
        tried.run("2024-09-20")
        assert tried.run("2024-09-20").state == "skipped", point
        assert tried.snapshot() == clean.snapshot(), point
        assert {record.state for record in tried.project.ledger.attempts()} <= {"published", "died", "started"}, point
