"""What do signals do to a command that fills slots, and what do others see of it meanwhile? Real processes, real signals, PostgreSQL; no JVM."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from twice.faults import REACHED
from twice.ledger import retries
from twice.project import Project

PIPELINE = """
import logging
import time
from pathlib import Path

import twice


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    end="2024-10-10",
    source=twice.source(lambda run: [{"id": run.slot.label, "day": run.execution_time.date()}], fingerprint="v1"),
    target="postgres:visits",
    pattern=twice.data_overwrite(slice="day"),
    retries=twice.retries(tries=3),
)
def visits(rows):
    Path(f"working-{time.monotonic_ns()}").touch()
    while Path("hold").exists():
        time.sleep(0.02)
    if Path("fail").exists():
        logging.getLogger("shop").warning("password=hunter22 is refused")
        raise ValueError("as asked, with token=abcdef123")
    return rows
"""
DAY, NEXT = "2024-10-07", "2024-10-08"
ALL = ("backfill", "visits", "--from", DAY, "--to", "2024-10-10")
SECONDS = 30
BOTH = pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])

pytestmark = pytest.mark.postgres


def wait_until(condition):
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)


class Home:
    """A project in a folder, whose commands are processes of their own."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        self.folder, self.environment = folder, environment
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words, fault=""):
        """Begin a command."""
        process = subprocess.Popen(
            [sys.executable, "-m", "twice", *words],
            cwd=self.folder,
            env=self.environment | ({"TWICE_FAULTS": fault} if fault else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "said").open("w"),
            start_new_session=True,
            text=True,
        )
        self.started.append(process)
        return process

    def twice(self, *words):
        """Run a command to its end; return its exit code and what it answered."""
        process = self.start(*words)
        return process.wait(SECONDS), process.stdout.read()

    @property
    def said(self):
        return (self.folder / "said").read_text()

    def look(self, *words):
        """Return what a command that only looks answers, for people and for machines."""
        code, said = self.twice(*words)
        assert code == 0
        return said, json.loads(self.twice(*words, "--output", "json")[1])

    def hold(self):
        (self.folder / "hold").touch()

    def let_go(self):
        (self.folder / "hold").unlink()

    def wait_for_work(self, slots=1):
        """Wait until so many transforms were called."""
        wait_until(lambda: len(list(self.folder.glob("working-*"))) >= slots)

    def wait_for_fault(self):
        wait_until(lambda: REACHED in self.said)

    @property
    def ledger(self):
        return Project.open(self.folder, only_looking=True).ledger

    @property
    def states(self):
        """Return how all attempts ended, the oldest first."""
        return [one.state for one in self.ledger.attempts()][::-1]

    def days(self, url):
        with psycopg.connect(url) as connection:
            if not connection.execute("SELECT to_regclass('visits')").fetchone()[0]:
                return []
            return [row[0][:10] for row in connection.execute("SELECT id FROM visits ORDER BY id")]


@pytest.fixture
def home(tmp_path, postgres_url):
    folder = tmp_path / "project"
    (folder / "pipelines").mkdir(parents=True)
    (folder / "pipelines/visits.py").write_text(PIPELINE)
    (folder / "twice.toml").touch()
    left_out = ("JAVA_HOME", "TWICE_OUTPUT", "TWICE_FAULTS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    home = Home(folder, environment | {"TWICE_POSTGRES_URL": postgres_url, "PATH": "/nowhere"})
    yield home
    for process in home.started:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


@BOTH
def test_a_backfill_that_is_interrupted_while_it_stages_publishes_nothing_more_and_says_so(
    home, sent, code, postgres_url
):
    assert home.twice("run", "visits", "--at", DAY)[0] == 0, home.said
    home.hold()
    running = home.start(*ALL)
    home.wait_for_work(2)
    running.send_signal(sent)
    assert running.wait(SECONDS) == code, home.said
    assert f"visits {NEXT}T00:00Z: Nothing was published, and the target is as it was." in home.said
    assert "Traceback" not in home.said
    assert (home.states, home.ledger.live_leases()) == (["published", "interrupted"], [])
    assert home.ledger.query("SELECT * FROM leases") == []
    assert retries.every(home.ledger) == []
    assert home.days(postgres_url) == [DAY]
    results = json.loads((home.folder / ".twice/run_results.json").read_text())
    assert (results["exit_code"], [slot["state"] for slot in results["results"]]) == (code, ["skipped", "interrupted"])
    home.let_go()
    assert home.twice(*ALL)[0] == 0, home.said
    assert home.states == ["published", "interrupted", "published", "published"]
    assert len(home.days(postgres_url)) == 3


@BOTH
@pytest.mark.parametrize("point", ["publish.before", "publish.after", "read.back", "confirmed"])
def test_a_publish_under_way_is_completed_and_recorded_before_the_command_ends(home, sent, code, point, postgres_url):
    running = home.start(*ALL, fault=f"pause:{point}")
    home.wait_for_fault()
    running.send_signal(sent)
    running.send_signal(signal.SIGCONT)
    assert running.wait(SECONDS) == code, home.said
    assert f"visits {DAY}T00:00Z: The slot is published." in home.said
    assert (home.states, home.days(postgres_url)) == (["published"], [DAY])
    assert home.ledger.query("SELECT * FROM leases") == []
    assert "published" in running.stdout.read()


@pytest.mark.parametrize("point", ["publish.before", "publish.after"])
def test_a_second_signal_ends_at_once_and_the_next_run_finds_out(home, point, postgres_url):
    running = home.start("run", "visits", "--at", DAY, fault=f"pause:{point}")
    home.wait_for_fault()
    running.send_signal(signal.SIGINT)
    running.send_signal(signal.SIGTERM)
    running.send_signal(signal.SIGCONT)
    assert running.wait(SECONDS) == 143, home.said
    landed = point == "publish.after"
    assert (home.states, home.days(postgres_url)) == (["started"], [DAY] if landed else [])
    assert home.twice("run", "visits", "--at", DAY)[0] == 0, home.said
    assert home.states == (["published"] if landed else ["died", "published"])


def test_an_outcome_that_is_not_known_stays_so_when_it_is_interrupted(home, postgres_url):
    running = home.start(*ALL, fault="pause:publish.before")
    home.wait_for_fault()
    with psycopg.connect(postgres_url, dbname="postgres", autocommit=True) as server:
        # The database is gone for the run: it can neither publish nor read back.
        name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname=%s", (name,))
            running.send_signal(signal.SIGTERM)
            running.send_signal(signal.SIGCONT)
            code = running.wait(SECONDS)
        finally:
            server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    assert code == 3, home.said
    assert home.states == ["unknown"]


def test_slots_side_by_side_end_together_and_no_other_begins(home, postgres_url):
    home.hold()
    running = home.start(*ALL, "--jobs", "2")
    home.wait_for_work(2)
    running.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    home.let_go()
    assert running.wait(SECONDS) == 143, home.said
    assert (home.states, home.days(postgres_url)) == (["interrupted", "interrupted"], [])
    assert home.ledger.query("SELECT * FROM leases") == []


@pytest.mark.parametrize(
    ("fault", "states"), [("", ["interrupted"]), ("pause:publish.after", ["published"])], ids=["staging", "publishing"]
)
def test_one_interrupt_ends_a_walk_over_several_pipelines(home, fault, states, postgres_url):
    (home.folder / "pipelines/zones.py").write_text(PIPELINE.replace("visits", "zones"))
    if not fault:
        home.hold()
    running = home.start("run", "--due", fault=fault)
    (home.wait_for_fault if fault else home.wait_for_work)()
    running.send_signal(signal.SIGTERM)
    running.send_signal(signal.SIGCONT)
    assert running.wait(SECONDS) == 143, home.said
    assert home.states == states
    assert all(one.slot.startswith("v1:visits:") for one in home.ledger.attempts())
    assert home.ledger.query("SELECT * FROM leases") == []
    assert retries.every(home.ledger) == []
    if not fault:
        home.let_go()
    assert home.twice("run", "--due")[0] == 0, home.said
    assert len(home.states) == len(states) + 6 - states.count("published")


def test_a_retry_that_is_interrupted_is_not_counted(home):
    (home.folder / "fail").touch()
    assert home.twice("run", "visits", "--at", DAY)[0] == 1
    with home.ledger.transaction() as db:
        db.execute("UPDATE retries SET due_at=?", (retries.moment_text(datetime.now(UTC)),))
    (before,) = retries.every(home.ledger)
    home.hold()
    running = home.start("retry")
    home.wait_for_work(2)
    running.send_signal(signal.SIGTERM)
    assert running.wait(SECONDS) == 143, home.said
    assert retries.every(home.ledger) == [before]
    assert home.states == ["failed", "interrupted"]


def test_from_python_an_interrupt_stays_an_ordinary_one_and_is_recorded(home, postgres_url):
    program = """
import signal, twice
before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
try:
    twice.run("visits", at="2024-10-07")
except KeyboardInterrupt as stop:
    print(type(stop).__name__, before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)])
    print(*stop.__notes__)
"""
    home.hold()
    running = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=home.folder,
        env=home.environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    home.started.append(running)
    home.wait_for_work()
    running.send_signal(signal.SIGINT)
    assert running.wait(SECONDS) == 0
    said = running.stdout.read()
    assert said.startswith("KeyboardInterrupt True\n")
    assert "Nothing was published" in said
    assert home.states == ["interrupted"]
    assert home.ledger.query("SELECT * FROM leases") == []


def test_a_signal_that_the_parent_ignores_stays_ignored(home, postgres_url):
    home.hold()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        running = home.start("run", "visits", "--at", DAY)
    finally:
        signal.signal(signal.SIGINT, before)
    home.wait_for_work()
    running.send_signal(signal.SIGINT)
    home.let_go()
    assert running.wait(SECONDS) == 0
    assert home.days(postgres_url) == [DAY]


def test_those_who_look_see_a_run_in_progress_and_how_far_it_is(home):
    home.hold()
    running = home.start("run", "visits", "--at", DAY)
    home.wait_for_work()
    for _ in range(3):
        assert home.twice("run", "visits", "--at", DAY)[0] == 4
    (attempt,) = [one for one in home.ledger.attempts() if one.state == "started"]
    said, facts = home.look("status")
    assert (
        f"visits {DAY}T00:00Z is running: staging since {attempt.started_at[:19]}Z, process {running.pid} on " in said
    )
    assert "refused" not in said
    (found,) = facts["pipelines"]
    assert (found["failed"], len(found["running"])) == ([], 1)
    shown = found["running"][0]
    assert (shown["attempt"], shown["step"], shown["pid"]) == (attempt.attempt, "staging", running.pid)
    assert [one["state"] for one in home.look("runs")[1]["attempts"]] == ["refused"] * 3 + ["running"]
    assert [one["attempt"] for one in home.look("runs", "--state", "running")[1]["attempts"]] == [attempt.attempt]
    assert home.look("runs", "--state", "died")[1]["attempts"] == []
    home.let_go()
    assert running.wait(SECONDS) == 0
    assert "running" not in home.look("status")[0]


@pytest.mark.parametrize(("point", "step"), [("looked.again", "staging"), ("publish.before", "publishing")])
def test_those_who_look_see_that_a_run_died_and_write_nothing(home, point, step):
    assert home.start("run", "visits", "--at", DAY, fault=f"kill:{point}").wait(SECONDS) == -signal.SIGKILL
    (attempt,) = home.ledger.attempts()
    said, facts = home.look("status")
    assert f"visits {DAY}T00:00Z died " in said
    assert f": its process {attempt.pid} on {attempt.host} ended while {step}. See" in said
    assert f"then twice run visits --at {DAY}T00:00Z" in said
    (failed,) = facts["pipelines"][0]["failed"]
    assert (failed["state"], failed["attempt"], failed["tries"]) == ("died", attempt.attempt, 1)
    assert home.look("runs", "--state", "died")[1]["attempts"][0]["attempt"] == attempt.attempt
    assert "state: died" in home.look("show", attempt.attempt)[0]
    assert (home.states, len(home.ledger.query("SELECT * FROM leases"))) == (["started"], 1)
    assert home.twice("run", "visits", "--at", DAY)[0] == 0
    assert home.ledger.attempt(attempt.attempt).reason == f"its process ({attempt.pid} on {attempt.host}) ended"
    assert facts["pipelines"][0]["published"] == 0
    assert home.look("status")[1]["pipelines"][0]["failed"] == []


def test_a_run_that_died_after_its_publish_is_in_no_trouble(home):
    assert home.start("run", "visits", "--at", DAY, fault="kill:publish.after").wait(SECONDS) == -signal.SIGKILL
    (found,) = home.look("status")[1]["pipelines"]
    assert (found["published"], found["failed"], found["running"]) == (1, [], [])


def test_an_interrupted_run_is_named_with_what_to_type(home):
    home.hold()
    running = home.start("run", "visits", "--at", DAY)
    home.wait_for_work()
    running.send_signal(signal.SIGTERM)
    assert running.wait(SECONDS) == 143
    said, facts = home.look("status")
    assert f"visits {DAY}T00:00Z interrupted " in said
    assert "died" not in said
    assert [one["state"] for one in facts["pipelines"][0]["failed"]] == ["interrupted"]


def test_the_traceback_and_the_log_of_an_attempt_are_kept_and_hold_no_secret(home):
    (home.folder / "fail").touch()
    assert home.twice("run", "visits", "--at", DAY)[0] == 1
    (attempt,) = home.ledger.attempts()
    assert f"twice logs {attempt.attempt}" in home.said
    # Python prints what is logged where no handler is; capturing it changes nothing.
    assert "is refused" in home.said
    assert f"twice logs {attempt.attempt}" in home.look("show", attempt.attempt)[0]
    assert f"See twice logs {attempt.attempt}" in home.look("status")[0]
    for words in ((attempt.attempt,), ("visits",), ("visits", "--at", DAY)):
        said, facts = home.look("logs", *words)
        assert 'raise ValueError("as asked, with' in said
        assert "visits.py" in facts["log"]["traceback"]
        assert "WARNING shop: password=*** is refused" in facts["log"]["python"]
        assert "hunter22" not in said
        assert "abcdef123" not in said
    assert home.look("tidy", "--dry-run", "--keep-days", "0")[1]["logs"] == 1
