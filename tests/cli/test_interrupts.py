"""What do SIGINT and SIGTERM do to a command that started a JVM? Real processes, real signals, Spark."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from sessions import QUICK_JVM
from twice.faults import REACHED
from twice.project import Project

pytestmark = pytest.mark.spark

DAY, NEXT = "2024-10-07", "2024-10-08"
ALL = ("backfill", "visits", "--from", DAY, "--to", "2024-10-10")
SECONDS = 90
PIPELINE = """
import time
from pathlib import Path

import twice


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    end="2024-10-10",
    source=twice.files("landing/{execution_date}.csv", schema="id string, day date"),
    target="TARGET",
    pattern=twice.data_overwrite(slice="day"),
)
def visits(rows):
    from pyspark.sql.functions import udf

    def held(id):
        Path("HOME/working").touch()
        while Path("HOME/hold").exists():
            time.sleep(0.02)
        return id

    return rows.withColumn("id", udf(held, "string")("id"))
"""


@pytest.fixture
def start(tmp_path):
    """Return what begins a command in a project whose Spark job works for as long as there is a file `hold`."""
    started = []

    def begin(*words, fault="", target="parquet:lake/visits"):
        if not (tmp_path / "pipelines").exists():
            (tmp_path / "pipelines").mkdir()
            (tmp_path / "landing").mkdir()
            (tmp_path / "pipelines/visits.py").write_text(
                PIPELINE.replace("TARGET", target).replace("HOME", str(tmp_path))
            )
            (tmp_path / "twice.toml").write_text(
                f"[spark]\nmaster = 'local[1]'\n[spark.conf]\n'spark.driver.extraJavaOptions' = '{QUICK_JVM}'\n"
            )
            for number in range(7, 10):
                day = f"2024-10-{number:02}"
                (tmp_path / f"landing/{day}.csv").write_text(f"id,day\na,{day}\n")
        environment = {
            name: value for name, value in os.environ.items() if name not in ("TWICE_OUTPUT", "TWICE_FAULTS")
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "twice", *words],
            cwd=tmp_path,
            env=environment | ({"TWICE_FAULTS": fault} if fault else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(tmp_path / "said").open("w"),
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(condition):
    until = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)
    return found


def descendants(process):
    return psutil.Process(process.pid).children(recursive=True)


def end(process, sent, folder):
    """Send a signal, to all of the group as a terminal does or to the command alone; return its exit code, what it said, and which of its processes are left."""
    family = descendants(process)
    (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
    process.send_signal(signal.SIGCONT)
    code = process.wait(SECONDS)
    left = [one.cmdline() for one in psutil.wait_procs(family, timeout=10)[1]]
    return code, (folder / "said").read_text(), left


def states(folder):
    return [one.state for one in Project.open(folder, only_looking=True).ledger.attempts()][::-1]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
@pytest.mark.parametrize("after", [0.0, 3.0], ids=["at once", "later"])
def test_an_interrupt_while_the_session_starts_is_no_misuse(start, tmp_path, sent, code, after):
    running = start(*ALL)
    wait_until(lambda: descendants(running))
    time.sleep(after)
    assert end(running, sent, tmp_path)[::2] == (code, [])
    said = (tmp_path / "said").read_text()
    assert f"visits {DAY}T00:00Z: Nothing was published" in said
    assert not [word for word in ("Misuse", "Traceback", "Py4J") if word in said]
    assert states(tmp_path) == ["interrupted"]


@pytest.mark.parametrize(
    ("words", "sent", "code", "slots"),
    [
        (("run", "visits", "--at", DAY), signal.SIGINT, 130, 1),
        (ALL, signal.SIGTERM, 143, 1),
        ((*ALL, "--jobs", "2"), signal.SIGTERM, 143, 2),
    ],
    ids=["run", "backfill", "side by side"],
)
def test_an_interrupt_while_spark_works_ends_its_jvm_and_no_other_slot_begins(
    start, tmp_path, words, sent, code, slots
):
    (tmp_path / "hold").touch()
    running = start(*words)
    wait_until((tmp_path / "working").exists)
    ended, said, left = end(running, sent, tmp_path)
    assert (ended, left) == (code, []), said
    assert not [word for word in ("Traceback", "Py4J", "py4j", "KeyboardInterrupt") if word in said], said
    assert states(tmp_path) == ["interrupted"] * slots
    (tmp_path / "hold").unlink()
    assert start("run", "visits", "--at", DAY).wait(SECONDS) == 0
    assert states(tmp_path)[-1] == "published"


@pytest.mark.parametrize("point", ["delta.locked", "publish.after"])
def test_an_interrupt_of_a_commit_of_delta_lets_it_land_and_keeps_no_lock(start, tmp_path, point):
    running = start("run", "visits", "--at", DAY, fault=f"pause:{point}", target="delta:lake/visits")
    wait_until(lambda: REACHED in (tmp_path / "said").read_text())
    code, said, left = end(running, signal.SIGTERM, tmp_path)
    assert (code, left) == (143, []), said
    assert f"visits {DAY}T00:00Z: The slot is published." in said
    assert states(tmp_path) == ["published"]
    assert start("run", "visits", "--at", NEXT).wait(SECONDS) == 0
