"""The command line around failed runs and owed calls, without a JVM: an input that is not there fails before one starts."""

import itertools
import os
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from services import service
from twice.calls import HttpEffect, written
from twice.decide import Asked
from twice.ledger import effects, retries
from twice.project import Project
from twice.retrying import new_row
from twice.runs import Effect, Receipt, Slot

DAY = "2024-10-07"


@pytest.fixture
def failing(home, twice):
    """A project whose first day has no file, with one try and no wait for a person."""
    (home.folder / f"landing/visits/{DAY}.csv").unlink()
    home.edit("twice.toml", "[spark]", "[retries]\ntries = 2\n\n[spark]")
    assert twice("run", "visits", "--at", DAY).code == 1
    return home


def make_due(home):
    with sqlite3.connect(home.folder / ".twice/ledger.db") as db:
        db.execute("UPDATE retries SET due_at='2000-01-01T00:00:00.000Z'")


def test_nothing_is_due(home, twice):
    assert (twice("retry").code, twice("retry").out) == (0, "Nothing is due.\n")
    assert twice("dead", "list").out == "No run was set aside.\n"
    assert twice("effects", "list").out == "No call is owed.\n"


def test_90_a_failed_run_is_due_then_set_aside_then_requeued_then_dropped(failing, twice):
    assert "is due again at" in twice("status").out
    assert twice("retry").out == "Nothing is due.\n"
    make_due(failing)
    said = twice("retry")
    assert (said.code, "set aside" in said.out) == (1, True)
    assert "2024-10-07T00:00Z was set aside" in twice("status").out
    assert twice("status", "--output", "json").json["pipelines"][0]["dead"] == ["2024-10-07T00:00Z"]
    assert "twice dead requeue visits --at 2024-10-07T00:00Z" in twice("dead", "list").out
    shown = twice("dead", "show", "visits", "--at", DAY).out
    assert "set aside after 2 tries" in shown
    assert shown.count("failed") >= 3
    (dead,) = twice("dead", "show", "visits", "--output", "json").json["dead"]
    assert (dead["tries"], dead["kind"], len(dead["history"])) == (2, "InputsAbsent", 2)
    assert twice("retry").out == "Nothing is due.\n"
    assert "due now" in twice("dead", "requeue", "visits", "--at", DAY).out
    assert twice("dead", "show", "visits").code == 2
    assert "due again at" in twice("retry").out
    make_due(failing)
    twice("retry")
    assert twice("dead", "drop", "visits").code == 2
    assert "still not published" in twice("dead", "drop", "visits", "--yes").out
    assert twice("dead", "list").out == "No run was set aside.\n"


def test_the_budget_is_said_to_be_used_up(failing, twice, monkeypatch):
    monkeypatch.setenv("TWICE_RETRIES_PER_HOUR", "1")
    make_due(failing)
    assert twice("retry").code == 1
    twice("dead", "requeue", "visits")
    said = twice("retry")
    assert said.code == 4
    assert "The budget of 1 retry an hour is used up; 1 run stay due." in said.out
    assert twice("retry", "--output", "json").json["still_due"] == 1


def test_due_leaves_what_waits_alone(failing, twice):
    for day in ("2024-10-08", "2024-10-09", "2024-10-10"):
        (failing.folder / f"landing/visits/{day}.csv").unlink()
    said = twice("run", "visits", "--due")
    assert said.code == 4
    assert "is due again at" in said.out
    assert len(Project.open(failing.folder).ledger.attempts()) == 4


def test_a_dry_run_says_what_is_held_and_what_frees_it(failing, twice):
    failing.edit("pipelines/visits.py", 'twice.data_overwrite(slice="day")', 'twice.merger(keys=["visit_id"])')
    words = ("backfill", "visits", "--from", "2024-10-08", "--to", "2024-10-10", "--dry-run")
    said = twice(*words)
    assert said.code == 4
    held, later, *_ = said.out.splitlines()
    assert "2024-10-08T00:00Z  held: 2024-10-08T00:00Z of visits waits for 2024-10-07T00:00Z, which failed" in held
    assert held.endswith("twice run visits --at 2024-10-07T00:00Z takes it now.")
    assert "the backfill would end at 2024-10-08T00:00Z" in later
    found = twice(*words, "--output", "json").json
    assert found["counts"] == {"held": 1, "refused": 1}
    assert found["slots"][0]["fix"] in held
    assert found["slots"][1]["fix"] is None


def retry_process(fault=""):
    environment = {name: value for name, value in os.environ.items() if name != "TWICE_FAULTS"}
    faults = {"TWICE_FAULTS": fault, "TWICE_RETRIES_PER_HOUR": "1000"} if fault else {"TWICE_RETRIES_PER_HOUR": "1000"}
    return subprocess.Popen(
        [sys.executable, "-m", "twice", "retry"],
        env=environment | faults,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_two_processes_at_once_take_each_of_a_hundred_runs_once(failing):
    project = Project.open(failing.folder)
    failing.edit("pipelines/visits.py", 'every="1 day"', 'every="5 minutes"')
    failing.edit("pipelines/visits.py", "{execution_date}.csv", "{start:%H%M}.csv")
    project = Project.open(failing.folder)
    slots = list(itertools.islice(project.pipeline("visits").schedule.closed(datetime.now(UTC)), 1, 101))
    for interval in slots:
        slot = Slot("visits", project.pipeline("visits").target, interval)
        row = new_row(slot, Asked(), 0, "{}", datetime.now(UTC))
        retries.note(project.ledger, slot.text, lambda _, row=row: row)
    both = [retry_process(), retry_process()]
    said = [process.communicate(timeout=120)[0].splitlines() for process in both]
    lines = [line.split()[1] for lines in said for line in lines if line.startswith("visits ")]
    assert (len(lines), len(set(lines))) == (100, 100)
    assert all(said)
    tried = [row for row in retries.every(project.ledger) if row.tries]
    assert [row.tries for row in tried if row.kind == "InputsAbsent"][:1] == [1]
    assert len(project.ledger.attempts(limit=1000)) == 101


@pytest.mark.parametrize("point", ["try.before", "retry.taken", "inputs.resolved", "retry.noted"])
def test_90_a_retry_job_that_is_killed_is_taken_up_by_the_next(failing, point):
    make_due(failing)
    process = retry_process(f"kill:{point}")
    process.communicate(timeout=60)
    passed = point != "inputs.resolved"  # the input is not there, so nothing is ever resolved
    assert process.returncode == (-9 if passed else 1)
    process = retry_process()
    out, _ = process.communicate(timeout=60)
    (row,) = retries.every(Project.open(failing.folder).ledger)
    assert row.state == "dead"
    assert ("set aside" in out) == (point in ("try.before", "retry.taken"))


def test_names_that_nothing_has_are_misuse(home, twice):
    assert twice("dead", "show", "visits").code == 2
    assert twice("effects", "confirm", "abc").code == 2


def an_unknown_effect(home, call=""):
    """What is left of an effect after a ledger was lost."""
    project = Project.open(home.folder)
    slot: Slot = project.pipeline("visits").slot(DAY)
    effect = Effect.of(slot, 1, "notify", "outbox" if call else "direct", call)
    receipt = Receipt(slot.text, 1, "0123abcd-1-89abcdef", "f", "c", project.ledger.id, effects=(effect,))
    effects.published(project.ledger, receipt)
    return effect.key


def test_an_unknown_effect_is_settled_by_a_person(home, twice):
    key = an_unknown_effect(home)
    assert f"twice effects confirm {key[:12]} if it was done" in twice("effects", "list").out
    assert "not confirmed. See twice effects list" in twice("status").out
    assert twice("effects", "deliver").out == "0 calls confirmed, 0 still owed.\n"
    assert "was lost with a ledger" in twice("effects", "deliver", key[:12]).err
    assert twice("effects", "confirm", key[:12]).out.endswith("is confirmed.\n")
    assert twice("effects", "list").out == "No call is owed.\n"
    assert twice("effects", "forget", key).code == 2


def test_an_unknown_effect_of_the_outbox_can_be_called_by_name(home, twice):
    with service() as told:
        key = an_unknown_effect(home, written(HttpEffect(told.url), {}))
        assert twice("effects", "deliver", "--output", "json").json == {
            "schema_version": 1,
            "confirmed": [],
            "waiting": [],
            "owed": [],
        }
        assert told.calls == []
        told.orders = [503]
        assert twice("effects", "deliver", key).out == "1 call confirmed, 0 still owed.\n"
        assert twice("effects", "deliver", key).code == 2
        assert [called for called, _ in told.calls] == [key, key]


def test_deliver_leaves_a_service_alone_that_asked_for_it_unless_it_is_named(home, twice):
    with service() as told:
        key = an_unknown_effect(home, written(HttpEffect(told.url), {}))
        told.orders = [(429, {"Retry-After": "600"})]
        assert twice("effects", "deliver", key).code == 3
        assert len(told.calls) == 1
        said = twice("effects", "deliver")
        assert (said.code, said.out.splitlines()[0]) == (0, "0 calls confirmed, 0 still owed.")
        assert f"as its service asked. At once: twice effects deliver {key[:12]}" in said.out
        assert "waits until 20" in twice("effects", "list").out
        (waiting,) = twice("effects", "deliver", "--output", "json").json["waiting"]
        assert waiting["not_before"] > waiting["called_at"]
        assert len(told.calls) == 1
        assert twice("effects", "deliver", key).out == "1 call confirmed, 0 still owed.\n"
        assert len(told.calls) == 2


def test_a_record_is_not_made_by_looking(home, twice):
    twice("dead", "list")
    twice("effects", "list")
    assert not (home.folder / ".twice/ledger.db").exists()
