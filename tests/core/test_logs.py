"""What is kept of the log of a run that did not end well, and what is not?"""

import logging
import threading

import pytest

import twice
from twice.ledger import logs
from twice.ledger.logs import MOST_CHARACTERS, capturing
from worlds import World

DAY = "2024-09-20"
SHOP = logging.getLogger("shop")


@pytest.fixture
def jvm(tmp_path):
    file = tmp_path / "spark.log"
    file.write_text("what an older run said\n")
    return file


def test_what_the_jvm_wrote_meanwhile_is_kept_and_nothing_older(jvm):
    with capturing(jvm) as captured, jvm.open("a") as file:
        file.write("ERROR Executor: no memory\n")
    assert captured()["jvm"] == "ERROR Executor: no memory\n"


def test_there_need_be_no_jvm(tmp_path):
    with capturing(tmp_path / "none") as captured:
        pass
    assert captured() == {"python": "", "jvm": ""}


def test_of_a_long_log_the_end_is_kept_in_whole_lines(jvm):
    with capturing(jvm) as captured, jvm.open("a") as file:
        file.write("".join(f"{number:09}\n" for number in range(MOST_CHARACTERS)))
    lines = captured()["jvm"].splitlines()
    assert (lines[-1], {len(line) for line in lines}) == (f"{MOST_CHARACTERS - 1:09}", {9})
    assert MOST_CHARACTERS - 20 < len(captured()["jvm"]) <= MOST_CHARACTERS


def test_each_thread_keeps_what_it_logged_itself(jvm):
    with capturing(jvm) as captured:
        SHOP.warning("mine")
        other = threading.Thread(target=SHOP.warning, args=("theirs",))
        other.start()
        other.join()
    SHOP.warning("later")
    assert "WARNING shop: mine" in captured()["python"]
    assert captured()["python"].count("\n") == 0


def test_handlers_are_those_of_the_program(jvm):
    before = list(logging.getLogger().handlers)
    with capturing(jvm):
        assert logging.getLogger().handlers == before


def failing(tmp_path, act):
    world = World(tmp_path / "world", "memory", start=DAY, transform=act)
    world.put(DAY, ["a"])
    with pytest.raises(twice.NotPublished) as told:
        world.run(DAY)
    (attempt,) = world.project.ledger.attempts()
    return told.value, attempt.attempt, logs.find(world.project.ledger, attempt.attempt)


def test_the_traceback_is_kept_with_its_cause_and_the_error_names_the_command(tmp_path):
    def act(rows, run):
        SHOP.warning("half way, token=abcdef123")
        raise ValueError("password=hunter22")

    error, attempt, log = failing(tmp_path, act)
    assert f"twice logs {attempt}" in error.fix
    assert 'raise ValueError("password=***' in log["traceback"]
    assert "ValueError: password=***" in log["traceback"]
    assert "twice.errors.NotPublished" in log["traceback"]
    assert "half way, token=***" in log["python"]
    assert "hunter22" not in str(log)


def test_of_a_long_traceback_both_ends_are_kept(tmp_path):
    def act(rows, run):
        raise ValueError("x" * 10 * MOST_CHARACTERS)

    log = failing(tmp_path, act)[2]["traceback"]
    assert log.startswith("Traceback")
    assert "twice logs" in log[-300:]
    assert len(log) < MOST_CHARACTERS + 100


def test_a_run_that_ended_well_leaves_no_log(tmp_path):
    world = World(tmp_path / "world", "memory", start=DAY)
    world.put(DAY, ["a"])
    outcome = world.run(DAY)
    assert logs.find(world.project.ledger, outcome.attempt) == {}


def test_logs_of_a_pipeline_are_removed_when_they_are_old(tmp_path):
    def act(rows, run):
        raise ValueError("no")

    world = World(tmp_path / "world", "memory", start=DAY, transform=act)
    world.put(DAY, ["a"])
    with pytest.raises(twice.NotPublished):
        world.run(DAY)
    ledger = world.project.ledger
    (attempt,) = ledger.attempts()
    names = [attempt.pipeline]
    assert logs.remove(ledger, ["other"], "2999", dry_run=False) == 0
    assert logs.remove(ledger, names, attempt.started_at, dry_run=False) == 0
    assert logs.remove(ledger, names, "2999", dry_run=True) == 1
    assert logs.find(ledger, attempt.attempt)
    assert logs.remove(ledger, names, "2999", dry_run=False) == 1
    assert logs.find(ledger, attempt.attempt) == {}
