"""Does the wire do to a COMMIT what it says? Seen from the client and from the server, with real drivers."""

import threading
import time

import psycopg
import pytest

from twice.prover.wires import AFTER, BEFORE, DURING, SILENT_AFTER, SILENT_BEFORE, Wire


@pytest.fixture
def direct(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE TABLE seen (n int)")
        yield db


@pytest.fixture
def wire(postgres_url):
    with Wire.to(postgres_url) as wire:
        yield wire


def rows(direct):
    return [n for (n,) in direct.execute("SELECT n FROM seen ORDER BY n")]


def simple(db, n):
    db.execute("INSERT INTO seen VALUES (%s)", (n,))
    db.commit()


def prepared(db, n):
    """As JDBC does: the COMMIT itself is a prepared statement, and is only named when it is executed again."""
    db.autocommit = True
    for _ in range(2):
        db.execute("BEGIN", prepare=True)
        db.execute("INSERT INTO seen VALUES (%s)", (n,), prepare=True)
        db.execute("COMMIT", prepare=True)


def wait_for(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


def test_what_is_said_passes_unchanged(wire, direct, postgres_url):
    with psycopg.connect(wire.through(postgres_url)) as db:
        text = "x" * 3_000_000 + "COMMIT"
        assert db.execute("SELECT %s", (text,)).fetchone() == (text,)
        with db.cursor().copy("COPY seen FROM STDIN") as copy:
            for n in range(20_000):
                copy.write_row((n,))
    assert len(rows(direct)) == 20_000
    assert wire.commits == 1


def test_encryption_is_declined(wire, postgres_url):
    with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
        psycopg.connect(wire.through(postgres_url), sslmode="require")


@pytest.mark.parametrize("commit", [simple, prepared])
@pytest.mark.parametrize(("how", "landed"), [(BEFORE, False), (AFTER, True)])
def test_a_cut_before_or_after_the_server_has_seen_it(wire, direct, postgres_url, commit, how, landed):
    number = 2 if commit is prepared else 1
    fault = wire.expect(how, number=number)
    with pytest.raises(psycopg.OperationalError):
        commit(psycopg.connect(wire.through(postgres_url)), 7)
    assert fault.done.wait(5)
    wait_for(lambda: len(rows(direct)) == number - 1 + landed)
    time.sleep(0.05)
    assert len(rows(direct)) == number - 1 + landed


def test_a_cut_while_it_is_on_its_way_may_end_either_way(wire, direct, postgres_url):
    for n in range(20):
        fault = wire.expect(DURING)
        with pytest.raises(psycopg.OperationalError):
            simple(psycopg.connect(wire.through(postgres_url)), n)
        assert fault.done.is_set()
    assert set(rows(direct)) <= set(range(20))


@pytest.mark.parametrize(("how", "landed"), [(SILENT_BEFORE, []), (SILENT_AFTER, [7])])
def test_a_silent_wire_keeps_the_client_waiting_until_somebody_hangs_up(wire, direct, postgres_url, how, landed):
    ended = []

    def act():
        try:
            simple(psycopg.connect(wire.through(postgres_url)), 7)
        except psycopg.OperationalError as error:
            ended.append(error)

    fault = wire.expect(how)
    client = threading.Thread(target=act)
    client.start()
    assert fault.done.wait(5)
    client.join(0.3)
    assert client.is_alive()
    wire.hang_up()
    client.join(5)
    assert len(ended) == 1
    wait_for(lambda: rows(direct) == landed)


def test_a_fault_waits_for_the_transaction_that_it_is_meant_for(wire, direct, postgres_url):
    fault = wire.expect(BEFORE, having="/* mine */")
    with psycopg.connect(wire.through(postgres_url)) as db:
        simple(db, 1)
        assert not fault.done.is_set()
        db.execute("INSERT INTO seen VALUES (2) /* mine */")
        with pytest.raises(psycopg.OperationalError):
            db.commit()
    assert rows(direct) == [1]


def test_a_slow_wire_delays_and_loses_nothing(wire, direct, postgres_url):
    wire.delay_seconds = 0.02
    since = time.monotonic()
    with psycopg.connect(wire.through(postgres_url)) as db:
        for n in range(5):
            simple(db, n)
    assert time.monotonic() - since > 0.2
    assert rows(direct) == [0, 1, 2, 3, 4]


def test_a_server_that_is_down_is_a_closed_door(free_port):
    with Wire("127.0.0.1", free_port) as wire, pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"postgresql://ann@127.0.0.1:{wire.port}/db")


@pytest.fixture
def free_port():
    from twice.servers.postgres import _free_port

    return _free_port()
