"""Is no update of a ledger lost when sixteen processes write it at once, and some of them are killed? No JVM."""

import os
import random
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from twice.errors import Busy
from twice.ledger import AttemptRecord
from twice.ledger.places import ledger_place
from twice.ledger.records import OPEN

WRITERS = 16
ROUNDS = 10
RECORD = AttemptRecord("", "v1:out:memory:lake/out:a", "out", "memory:lake/out", 1, "inputs", "code", OPEN)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request, tmp_path):
    if request.param == "sqlite":
        return ledger_place(f"sqlite:///{tmp_path}/ledger.db", Path())
    return ledger_place(request.getfixturevalue("postgres_url"), Path())


def add_one(ledger):
    """Read a number and write the next one: what is lost if two do it at once."""
    with ledger.transaction() as db:
        found = db.execute("SELECT value FROM facts WHERE name='sum'").fetchone()
        time.sleep(0.001)
        if found:
            db.execute("UPDATE facts SET value=? WHERE name='sum'", (str(int(found["value"]) + 1),))
        else:
            db.execute("INSERT INTO facts (name, value) VALUES ('sum', '1')")


def write(place, told, rounds):
    ledger = place.open()
    for _ in range(rounds):
        name = ledger.intend(RECORD).attempt
        with suppress(Busy), ledger.lease("slot", name):
            assert ledger.live_attempts() == {name}
        add_one(ledger)
        os.write(told, b".")


@contextmanager
def writers(place, rounds):
    """Start processes that write, and yield their numbers; all have ended when the block has."""
    reading, told = os.pipe()
    started = []
    for _ in range(WRITERS):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                write(place, told, rounds)
                code = 0
            finally:
                os._exit(code)
        started.append(pid)
    os.close(told)
    ended = {}
    yield started, ended, reading
    for pid in started:
        if pid not in ended:
            ended[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def acknowledged(reading):
    with os.fdopen(reading, "rb") as told:
        return len(told.read())


def total(ledger):
    return int(ledger.query("SELECT value FROM facts WHERE name='sum'")[0]["value"])


def test_sixteen_writers_lose_no_update(place):
    ledger = place.open()
    with writers(place, ROUNDS) as (_, ended, reading):
        pass
    assert set(ended.values()) == {0}
    assert acknowledged(reading) == total(ledger) == WRITERS * ROUNDS
    numbers = sorted(int(row["attempt"].split("-")[1]) for row in ledger.query("SELECT attempt FROM attempts"))
    assert numbers == list(range(1, WRITERS * ROUNDS + 1))
    assert ledger.live_leases() == []


@pytest.mark.parametrize("seed", [1, 2])
def test_writers_that_are_killed_lose_no_acknowledged_update_and_leave_no_lock(place, seed):
    ledger, chance = place.open(), random.Random(seed)
    killed = 12
    with writers(place, 1000) as (started, ended, reading):
        for pid in chance.sample(started, killed):
            time.sleep(chance.uniform(0.01, 0.1))
            os.kill(pid, signal.SIGKILL)
            ended[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for pid in set(started) - set(ended):
            os.kill(pid, signal.SIGKILL)
    assert set(ended.values()) == {-signal.SIGKILL}
    since = time.monotonic()
    add_one(ledger)
    with ledger.lease("slot", ledger.intend(RECORD).attempt):
        pass
    assert time.monotonic() - since < 10
    kept, told = total(ledger) - 1, acknowledged(reading)
    print(f"seed {seed}: {WRITERS} writers killed, {told} updates acknowledged, {kept} kept")
    assert told <= kept <= told + WRITERS
    numbers = [int(row["attempt"].split("-")[1]) for row in ledger.query("SELECT attempt FROM attempts")]
    assert sorted(numbers) == list(range(1, max(numbers) + 1))
