"""What was intended, and what was confirmed? The ledger alone, with real files, servers, threads and processes.

All of it on SQLite and on PostgreSQL: what is said here is what a ledger promises, wherever it is kept.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from samples import ATTEMPT, receipt_of, slot_of

from twice.errors import Busy
from twice.faults import Died
from twice.ledger import AttemptRecord
from twice.ledger.ends import note_end
from twice.ledger.places import ledger_place
from twice.ledger.records import OPEN, Holder
from twice.ledger.tallies import tallies

SLOT = slot_of("2024-09-20")
RECORD = AttemptRecord("", SLOT.text, "out", "memory:lake/out", 1, "inputs", "code", OPEN)
TAKES_LEASE = """
import os, sys
from pathlib import Path
from twice.ledger.places import ledger_place
with ledger_place(sys.argv[1], Path()).open().lease("slot", "theirs"):
    print("taken", flush=True)
    sys.stdin.readline()
    os._exit(0)
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request, tmp_path):
    return f"sqlite:///{tmp_path}/ledger.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def place(url):
    return ledger_place(url, Path())


@pytest.fixture
def ledger(place):
    return place.open()


@contextmanager
def another_process(url) -> Iterator[subprocess.Popen]:
    """Yield a process that holds the lease, and ends without releasing it when its input is closed."""
    command = [sys.executable, "-c", TAKES_LEASE, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "taken\n"
        yield process


def held(ledger):
    """Return the only lease that the ledger holds, dead or alive."""
    rows = ledger.query("SELECT * FROM leases")
    return dict(rows[0]) if rows else None


# ------------------------------------------------------------------ opening


def test_a_ledger_keeps_its_id(place, ledger):
    assert place.open().id == ledger.id


def test_a_ledger_is_made_once_by_many_at_once(place):
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: place.open().id, range(8)))) == 1


# ------------------------------------------------------------------ attempts


def test_an_intention_is_named_and_kept(ledger):
    named = ledger.intend(RECORD)
    assert named.attempt.startswith(f"{ledger.id[:8]}-1-")
    assert (named.state, named.pid, named.ended_at) == ("started", os.getpid(), "")
    assert ledger.attempt(named.attempt) == named


def test_attempts_are_counted_across_ledger_objects_and_threads(place):
    def work(_):
        opened = place.open()
        return [opened.intend(RECORD).attempt.split("-")[1] for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        counters = [int(number) for numbers in pool.map(work, range(4)) for number in numbers]
    assert sorted(counters) == list(range(1, 21))


def test_an_attempt_is_found_by_the_beginning_of_its_name(ledger):
    first, second = ledger.intend(RECORD), ledger.intend(RECORD)
    assert ledger.attempt(f"{ledger.id[:8]}-2") == second
    assert ledger.attempt(ledger.id[:8]) is None
    assert ledger.attempt(first.attempt) == first
    assert ledger.attempt("none") is None


def test_attempts_are_listed_newest_first(ledger):
    names = [ledger.intend(RECORD).attempt for _ in range(3)]
    ledger.end(names[0], "failed", "for a reason")
    assert [record.attempt for record in ledger.attempts()] == names[::-1]
    assert [record.reason for record in ledger.attempts(state="failed", slot=SLOT.text)] == ["for a reason"]
    assert ledger.attempts(pipeline="other") == []
    assert len(ledger.attempts(limit=2)) == 2


def test_an_attempt_ends_once(ledger):
    name = ledger.intend(RECORD).attempt
    ledger.end(name, "failed", "first")
    ledger.end(name, "refused", "second")
    assert (ledger.attempt(name).state, ledger.attempt(name).reason) == ("failed", "first")


# ------------------------------------------------------------------ confirmations


def test_a_confirmation_closes_the_attempt_and_keeps_the_receipt(ledger):
    name = ledger.intend(RECORD).attempt
    receipt = receipt_of(SLOT, attempt=name, first_version=4)
    ledger.confirm(name, receipt, 5)
    found = ledger.attempt(name)
    assert (found.state, found.rows, found.version_after) == ("published", 3, 5)
    assert (ledger.known(SLOT.text), ledger.published()) == (receipt, [(receipt, 5)])


def test_a_confirmation_marks_the_attempt_that_the_store_names_published(ledger):
    dead, alive = (ledger.intend(RECORD).attempt for _ in range(2))
    ledger.confirm(alive, receipt_of(SLOT, attempt=dead, first_version=4), 5, "skipped", "found")
    assert [(r.state, r.reason) for r in ledger.attempts()] == [
        ("skipped", "found"),
        ("published", "found in the store"),
    ]
    assert ledger.attempt(dead).version_after == 4


@pytest.mark.parametrize("state", ["died", "unknown"])
def test_an_attempt_given_up_for_lost_is_marked_published_when_the_store_has_it(ledger, state):
    name = ledger.intend(RECORD).attempt
    ledger.end(name, state)
    ledger.confirm("", receipt_of(SLOT, attempt=name), 0)
    assert ledger.attempt(name).state == "published"


def test_a_confirmation_leaves_a_failed_attempt_alone(ledger):
    name = ledger.intend(RECORD).attempt
    ledger.end(name, "failed", "for a reason")
    ledger.confirm("", receipt_of(SLOT, attempt=name), 0)
    assert (ledger.attempt(name).state, ledger.attempt(name).reason) == ("failed", "for a reason")


def test_the_slots_of_a_publish_are_confirmed_together_each_with_its_own_publisher(ledger):
    mine, theirs = ledger.intend(RECORD).attempt, ledger.intend(RECORD).attempt
    own = receipt_of(SLOT, 2, attempt=mine, rows=1, first_version=4)
    other = receipt_of(slot_of("2024-09-21"), 2, attempt=mine, rows=2, first_version=4)
    since = receipt_of(slot_of("2024-09-22"), 3, attempt=theirs, rows=5, first_version=5)
    ledger.confirm(mine, own, 5, rows=3, along=[other, since])
    assert [receipt for receipt, _ in ledger.published()] == [own, other, since]
    assert ledger.generations("memory:lake/out") == {own.slot: 2, other.slot: 2, since.slot: 3}
    assert ledger.generations("memory:lake/out", since.slot) == {since.slot: 3}
    ended = [ledger.attempt(name) for name in (mine, theirs)]
    assert [(one.state, one.rows, one.version_after) for one in ended] == [("published", 3, 5), ("published", 5, 5)]


def test_nothing_is_known_of_a_slot_that_was_never_confirmed(ledger):
    ledger.intend(RECORD)
    assert (ledger.known(SLOT.text), ledger.published()) == (None, [])


def test_versions_are_listed_newest_first(ledger):
    for generation, version in ((1, 0), (2, 3)):
        ledger.confirm("", receipt_of(SLOT, generation, first_version=version), 9)
    found = ledger.versions("memory:lake/out")
    assert [(one["version"], one["generation"]) for one in found] == [(3, 2), (0, 1)]


def test_a_rebuild_believes_the_store_and_leaves_other_targets_alone(ledger):
    other = receipt_of(slot_of("2024-09-20", target="memory:lake/other"))
    gone, found = receipt_of(slot_of("2024-09-21")), receipt_of(SLOT, 2, first_version=6)
    for receipt in (other, gone, receipt_of(SLOT, 7)):
        ledger.confirm("", receipt, 1)
    assert ledger.rebuild(["memory:lake/out"], [(found, 8)]) == 1
    assert ledger.published("memory:lake/out") == [(found, 8)]
    assert ledger.published("memory:lake/other") == [(other, 1)]


# ------------------------------------------------------------------ acceptances, targets, hashes


def test_an_acceptance_is_bound_to_what_happened(ledger):
    assert ledger.accepted(SLOT.text) == ""
    ledger.accept(SLOT.text, "version 7", "somebody")
    ledger.accept(SLOT.text, "version 9", "somebody else")
    assert ledger.accepted(SLOT.text) == "version 9"


def test_the_place_of_a_table_is_remembered(ledger):
    assert ledger.location("delta:visits") == ""
    ledger.locate("delta:visits", "warehouse/visits")
    ledger.locate("delta:visits", "warehouse/moved")
    assert ledger.location("delta:visits") == "warehouse/moved"


def test_hashes_are_remembered_until_they_are_too_many(ledger, monkeypatch):
    monkeypatch.setattr("twice.ledger.ledger._HASHES_KEPT", 2)
    ledger.remember({"a": "1", "b": "2", "c": "3"})
    assert ledger.recall(["c", "a", "x"]) == {"a": "1", "c": "3"}
    ledger.remember({"d": "4"})
    assert ledger.recall(["a", "b", "c", "d"]) == {"d": "4"}


def test_a_newer_hash_takes_the_place_of_an_older(ledger):
    ledger.remember({"a": "1"})
    ledger.remember({"a": "2"})
    assert ledger.recall(["a"]) == {"a": "2"}
    assert ledger.recall([]) == {}


# ------------------------------------------------------------------ leases


def test_a_slot_is_busy_while_its_holder_lives(ledger):
    with ledger.lease("slot", "mine"), pytest.raises(Busy, match="by attempt mine") as refused:
        ledger.lease("slot", "theirs").__enter__()
    assert refused.value.exit_code == 4


def test_a_slot_is_busy_while_another_process_works(url, ledger):
    with another_process(url), pytest.raises(Busy, match="by attempt theirs"):
        ledger.lease("slot", "mine").__enter__()


def test_live_leases_are_named_with_their_attempts_and_holders(ledger):
    with ledger.lease("slot", "mine"), ledger.lease("other", "theirs"):
        assert [(lease.name, lease.attempt) for lease in ledger.live_leases()] == [
            ("other", "theirs"),
            ("slot", "mine"),
        ]
        assert {lease.holder for lease in ledger.live_leases()} == {Holder.me()}
        assert ledger.live_attempts() == {"mine", "theirs"}
    assert ledger.live_leases() == []


def test_the_newest_attempt_on_a_slot_may_bear_the_name_of_another(ledger):
    assert ledger.newest_attempt(SLOT.text) is None
    first = ledger.intend(RECORD)
    other = ledger.intend(replace(RECORD, slot=slot_of("2024-09-21").text))
    assert ledger.newest_attempt(SLOT.text) == first
    assert ledger.newest_attempt(SLOT.text, other.attempt) == other
    assert ledger.newest_attempt(SLOT.text, "of another ledger") == first


def test_leases_of_two_slots_do_not_meet(ledger):
    with ledger.lease("slot", "mine"), ledger.lease("other", "theirs"):
        assert ledger.live_attempts() == {"mine", "theirs"}
    assert ledger.live_attempts() == frozenset()


def test_several_leases_are_held_as_one_or_not_at_all(ledger):
    with ledger.lease("b", "theirs"), pytest.raises(Busy, match="b is being worked on by attempt theirs"):
        ledger.leases(["a", "b", "c"], "mine").__enter__()
    assert ledger.live_leases() == []
    with ledger.leases(["a", "b", "c"], "mine"):
        assert [(lease.name, lease.attempt) for lease in ledger.live_leases()] == [(one, "mine") for one in "abc"]
    assert ledger.live_leases() == []


def test_several_leases_are_renewed_together(place):
    ledger = place.open(lease_seconds=0.3, renew_seconds=0.02)
    with ledger.leases(["a", "b"], "mine"):
        time.sleep(0.6)
        assert [ledger.busy("a"), ledger.busy("b")] == ["mine", "mine"]


def test_an_attempt_does_not_stand_in_its_own_way(ledger):
    with ledger.lease("slot", "mine"), ledger.lease("slot", "mine"):
        assert (ledger.busy("slot"), ledger.busy("slot", "mine"), ledger.busy("other")) == ("mine", "", "")


@pytest.mark.parametrize("error", [None, ValueError])
def test_a_lease_is_released_when_the_work_ends_or_fails(ledger, error):
    with pytest.raises(error) if error else closing(open(os.devnull)), ledger.lease("slot", "mine"):
        if error:
            raise error
    assert ledger.busy("slot") == ""


def test_a_lease_is_not_released_by_a_death(ledger):
    with pytest.raises(Died), ledger.lease("slot", "mine"):
        raise Died
    assert ledger.busy("slot") == "mine"


def test_a_lease_is_taken_over_at_once_from_a_dead_process(url, ledger):
    with another_process(url) as process:
        assert ledger.busy("slot") == "theirs"
        process.communicate("")
    with ledger.lease("slot", "mine"):
        assert ledger.live_attempts() == {"mine"}


def test_a_lease_is_taken_over_from_a_process_that_died_and_was_not_yet_buried(url, ledger):
    with another_process(url) as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with ledger.lease("slot", "mine"):
            assert ledger.live_attempts() == {"mine"}


def test_a_holder_whose_number_was_given_to_another_process_is_dead():
    me = Holder.me()
    assert not me.is_dead
    assert Holder(me.host, me.pid, "1").is_dead
    assert not Holder("elsewhere", me.pid, "1").is_dead


def test_a_silent_lease_is_taken_over_when_it_runs_out(place):
    silent = place.open(lease_seconds=0.05, renew_seconds=60)
    with silent.lease("slot", "theirs"):
        time.sleep(0.1)
        with silent.lease("slot", "mine"):
            assert held(silent)["attempt"] == "mine"
        assert held(silent) is None


def test_an_attempt_whose_lease_is_taken_over_is_marked_dead_until_it_speaks(place):
    ledger = place.open(lease_seconds=0)
    name = ledger.intend(RECORD).attempt
    with ledger.lease("slot", name), ledger.lease("slot", "mine"):
        assert (ledger.attempt(name).state, ledger.attempt(name).reason) == ("died", "its lease ran out")
        ledger.end(name, "failed", "it woke up")
    assert ledger.attempt(name).state == "failed"


def test_a_lease_that_was_taken_over_is_not_released_by_its_first_holder(place):
    ledger = place.open(lease_seconds=0)
    first, second = ledger.lease("slot", "first"), ledger.lease("slot", "second")
    first.__enter__()
    with second:
        first.__exit__(None, None, None)
        assert held(ledger)["attempt"] == "second"


def test_a_lease_is_renewed_in_the_background(place):
    ledger = place.open(renew_seconds=0.02)
    with ledger.lease("slot", "mine"):
        first = held(ledger)
        deadline = time.monotonic() + 10
        while held(ledger) == first and time.monotonic() < deadline:
            time.sleep(0.01)
        assert held(ledger)["expires"] > first["expires"]


def test_a_lease_is_not_renewed_after_a_death(place):
    ledger = place.open(lease_seconds=0.2, renew_seconds=0.02)
    with pytest.raises(Died), ledger.lease("slot", "mine"):
        raise Died
    time.sleep(0.3)
    assert ledger.busy("slot") == ""


@pytest.mark.parametrize("hours", [-48, 48])
def test_a_clock_that_is_set_changes_no_lease(ledger, monkeypatch, hours):
    with ledger.lease("slot", "mine"):
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + hours * 3600)
        assert ledger.busy("slot") == "mine"
        with pytest.raises(Busy):
            ledger.lease("slot", "theirs").__enter__()
    assert ledger.busy("slot") == ""


def test_of_many_threads_one_gets_each_lease(place):
    together, taken = threading.Barrier(4), []

    def work(number):
        ledger = place.open()
        for slot in range(8):
            together.wait(30)
            with suppress(Busy), ledger.lease(str(slot), f"{ATTEMPT}{number}"):
                taken.append(slot)
                together.wait(30)
                continue
            together.wait(30)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result()
    assert taken == list(range(8))


def counted(ledger):
    rows = ledger.query(
        "SELECT pipeline, state, count(*) AS runs, sum(rows) AS n FROM attempts GROUP BY pipeline, state"
    )
    return sorted((row["pipeline"], row["state"], row["runs"], row["n"] or 0) for row in rows)


def told(ledger):
    return sorted((one.pipeline, one.state, one.runs, one.rows) for one in tallies(ledger))


def test_runs_are_counted_in_every_state_that_they_come_to(ledger):
    names = [ledger.intend(replace(RECORD, pipeline=pipeline)).attempt for pipeline in ("out", "in") for _ in range(4)]
    assert told(ledger) == counted(ledger) == [("in", OPEN, 4, 0), ("out", OPEN, 4, 0)]
    published, unknown, failed, died, twin = names[:5]
    ledger.confirm(published, receipt_of(SLOT, attempt=published), 1)
    ledger.end(unknown, "unknown", "no answer")
    ledger.end(failed, "failed", "no")
    ledger.end(failed, "refused", "an end is not written over")
    ledger.confirm(twin, receipt_of(SLOT, attempt=unknown), 1, "skipped")
    with ledger.transaction() as db:
        note_end(db, died, "died", {"reason": "gone"})
    assert told(ledger) == counted(ledger)
    assert ("out", "published", 2, 2 * receipt_of(SLOT).rows) in told(ledger)
    ledger.end(died, "failed", "it woke up")
    ledger.confirm(published, receipt_of(SLOT, attempt=published, rows=9), 2)
    assert told(ledger) == counted(ledger)
    with suppress(RuntimeError), ledger.transaction() as db:
        note_end(db, names[6], "failed", {"reason": "undone with its transaction"})
        raise RuntimeError
    assert told(ledger) == counted(ledger)


def test_runs_of_a_pipeline_are_listed_newest_first_whatever_their_state(ledger):
    names = [ledger.intend(replace(RECORD, pipeline="out" if number % 3 else "in")).attempt for number in range(12)]
    for number, name in enumerate(names):
        if number % 4 == 1:
            ledger.end(name, "failed")
        elif number % 4 == 2:
            ledger.confirm(name, receipt_of(SLOT, attempt=name), number)
    wanted = [name for number, name in enumerate(names) if number % 3][::-1]
    assert [one.attempt for one in ledger.attempts(pipeline="out")] == wanted
    assert [one.attempt for one in ledger.attempts(pipeline="out", limit=3)] == wanted[:3]
    assert [one.attempt for one in ledger.attempts(pipeline="out", slot=SLOT.text, limit=3)] == wanted[:3]
    assert [one.attempt for one in ledger.attempts(pipeline="in", state="failed")] == [names[9]]
