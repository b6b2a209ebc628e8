"""Is the receiver of lineage told how a run ended that was really killed? Processes, SIGKILL, HTTP, PostgreSQL; no JVM."""

import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services import Service, service
from twice.project import Project
from twice.signals.lineage import run_id

PIPELINE = """
import twice


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    end="2024-10-09",
    source=twice.source(lambda run: [{"id": run.slot.label}], fingerprint="v1"),
    target="postgres:visits",
    pattern=twice.keyed(keys=["id"]),
    retries=twice.retries(tries=3),
)
def visits(rows):
    return rows
"""
DAY, NEXT = "2024-10-07", "2024-10-08"

pytestmark = pytest.mark.postgres


@dataclass
class Told:
    """A project in a folder, whose runs are told to a receiver of ours."""

    folder: Path
    environment: dict[str, str]
    receiver: Service

    def twice(self, *words, fault=""):
        """Run a command in a process of its own; return how it ended."""
        return subprocess.run(
            [sys.executable, "-m", "twice", *words],
            cwd=self.folder,
            env=self.environment | ({"TWICE_FAULTS": fault} if fault else {}),
            start_new_session=True,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def attempts(self):
        """Return the names of all attempts, the oldest first."""
        return [one.attempt for one in Project.open(self.folder, only_looking=True).ledger.attempts()][::-1]

    def heard(self, attempt):
        """Count what the receiver answered to about a run."""
        events: list[dict[str, Any]] = [body for _, body in self.receiver.calls]
        return Counter(event["eventType"] for event in events if event["run"]["runId"] == run_id(attempt))

    @property
    def untold(self):
        return len(Project.open(self.folder, only_looking=True).ledger.query("SELECT * FROM untold"))


@pytest.fixture
def told(tmp_path, postgres_url):
    folder = tmp_path / "project"
    (folder / "pipelines").mkdir(parents=True)
    (folder / "pipelines/visits.py").write_text(PIPELINE)
    (folder / "twice.toml").touch()
    left_out = ("JAVA_HOME", "TWICE_OUTPUT", "TWICE_FAULTS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    with service() as receiver:
        address = receiver.url.removesuffix("/notify")
        environment |= {"TWICE_POSTGRES_URL": postgres_url, "TWICE_OPENLINEAGE_URL": address, "PATH": "/nowhere"}
        yield Told(folder, environment, receiver)


@pytest.mark.parametrize("taken_up_by", [("run", "visits", "--at", DAY), ("retry",)], ids=["a run", "a retry"])
@pytest.mark.parametrize(
    ("point", "heard", "end"),
    [
        ("lineage.owed", 0, "ABORT"),
        ("lineage.started", 1, "ABORT"),
        ("publish.before", 1, "ABORT"),
        ("publish.after", 1, "COMPLETE"),
        ("confirmed", 1, "COMPLETE"),
    ],
)
def test_a_run_that_got_sigkill_has_one_start_and_one_end_in_the_end(told, point, heard, end, taken_up_by):
    done = told.twice("run", "visits", "--at", DAY, fault=f"kill:{point}")
    assert done.returncode == -signal.SIGKILL, done.stderr
    (killed,) = told.attempts
    assert (told.heard(killed), told.untold) == (Counter(START=heard), 1)
    # Nobody knows yet how it ended: a run of another slot does not speak for it, unless it was recorded as published.
    assert told.twice("run", "visits", "--at", NEXT).returncode == 0
    assert told.heard(killed) == (Counter(START=1, COMPLETE=1) if point == "confirmed" else Counter(START=heard))
    done = told.twice(*taken_up_by)
    assert done.returncode == 0, done.stderr
    assert told.heard(killed) == Counter({"START": 1, end: 1})
    assert all(told.heard(other) == Counter(START=1, COMPLETE=1) for other in told.attempts[1:])
    assert (len(told.attempts), told.untold) == (3 if end == "ABORT" else 2, 0)
    calls = len(told.receiver.calls)
    assert told.twice("run", "visits", "--due").returncode == 0
    assert len(told.receiver.calls) == calls


def test_a_run_that_got_sigkill_after_its_end_was_sent_may_tell_it_twice_and_never_another_one(told):
    assert told.twice("run", "visits", "--at", DAY, fault="kill:lineage.ended").returncode == -signal.SIGKILL
    (killed,) = told.attempts
    assert told.heard(killed) == Counter(START=1, COMPLETE=1)
    assert told.twice("run", "visits", "--at", NEXT).returncode == 0
    assert told.heard(killed) == Counter(START=1, COMPLETE=2)
    assert told.untold == 0


def test_a_receiver_that_is_away_when_the_dead_are_told_of_is_told_by_a_later_run(told):
    assert told.twice("run", "visits", "--at", DAY, fault="kill:lineage.started").returncode == -signal.SIGKILL
    (killed,) = told.attempts
    told.receiver.orders = [503] * 20
    assert told.twice("run", "visits", "--at", DAY).returncode == 0
    assert told.untold == 2
    told.receiver.orders = []
    told.receiver.calls.clear()
    assert told.twice("run", "visits", "--at", NEXT).returncode == 0
    assert told.heard(killed) == Counter(ABORT=1)
    assert [told.heard(other) for other in told.attempts[1:]] == [Counter(START=1, COMPLETE=1)] * 2
    assert told.untold == 0
