"""What do SIGINT and SIGTERM do to a proof, and to the commands that it waits for? Real processes, real signals."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from twice.cli.project import write_example
from twice.prover.verdicts import STUCK

DAY = "2024-10-10"
SECONDS = 30
SECONDS_OF_SPARK = 120
# Starts another process, as a run starts its JVM: it belongs to the group, and does not end by itself.
HAS_A_CHILD = "subprocess.Popen(['sleep', '600'])\nreturn rows"
RETURNS = '    return rows.where("seconds > 0")'
SLEEPS_ELSEWHERE = f"""    import sys, time
    from pathlib import Path

    if sys.argv[0].endswith("elsewhere.py"):
        Path("working").touch()
        time.sleep(600)
{RETURNS}"""
WAITS = """
import sys
import time
from pathlib import Path

from twice import interrupts
from twice.prover.killers import run_asleep, run_command, run_together

RUN, HERE, FAULT = ("run", "visits", "--at", "2024-10-10"), Path.cwd(), "pause:publish.before"
with interrupts.handled():
    try:
        WAY
    except KeyboardInterrupt:
        sys.exit(interrupts.exit_code())
"""
# What a trial meets that waits for an answer of its JVM, outside of a run.
LOSES_ITS_JVM = """
import os
import signal
import sys

from twice.cli import entry
from twice.prover import deaths

def loses_its_jvm(*_):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        raise OSError("the connection is gone") from None

deaths.recovers = loses_its_jvm
sys.argv = ["twice", "prove", "visits", "--at", "2024-10-10"]
entry()
"""
WAYS = {
    "one": "run_command(RUN, HERE, FAULT)",
    "together": 'run_together(RUN, HERE, {"TWICE_FAULTS": FAULT})',
    "asleep": "run_asleep(RUN, HERE, FAULT, {}, lambda: time.sleep(600))",
}


@pytest.fixture
def start(tmp_path):
    """Return what begins a process in a folder, whose temporary files go to a folder of the test's."""
    started = []
    (tmp_path / "temporary").mkdir()

    def begin(folder, *words, fault=""):
        kept = {name: value for name, value in os.environ.items() if name not in ("TWICE_OUTPUT", "TWICE_FAULTS")}
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=kept | {"TMPDIR": str(tmp_path / "temporary")} | ({"TWICE_FAULTS": fault} if fault else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(tmp_path / "said").open("w"),
            start_new_session=True,
        )
        started.append((process, []))
        return process

    def end(process, sent):
        """Send a signal to the command alone; return its exit code, and what is left of the processes that it started."""
        family = next(family for one, family in started if one is process)
        family += psutil.Process(process.pid).children(recursive=True)
        process.send_signal(sent)
        process.send_signal(signal.SIGCONT)
        code = process.wait(SECONDS)
        return code, [str(one) for one in psutil.wait_procs(family, timeout=10)[1]]

    begin.and_end = end
    yield begin
    for process, family in started:
        for one in (process, *family):
            with suppress(psutil.Error, ProcessLookupError):
                one.kill()
        process.wait()


def wait_until(condition, seconds=SECONDS):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)
    return found


def stopped(process):
    """Return the descendants of a process that stand still."""
    family = psutil.Process(process.pid).children(recursive=True)
    with suppress(psutil.Error):
        return [one for one in family if one.status() == psutil.STATUS_STOPPED]
    return []


@pytest.mark.parametrize(
    ("way", "sent", "code"),
    [("one", signal.SIGINT, 130), ("together", signal.SIGTERM, 143), ("asleep", signal.SIGTERM, 143)],
)
def test_commands_that_are_waited_for_end_with_all_that_they_started(start, memory_project, way, sent, code):
    folder = memory_project(HAS_A_CHILD, before="import subprocess\n")
    waiting = start(folder, "-c", WAITS.replace("WAY", WAYS[way]))
    wait_until(lambda: stopped(waiting))
    assert start.and_end(waiting, sent) == (code, [])


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
@pytest.mark.parametrize("fault", ["", "pause:publish.before"], ids=["staging", "publishing"])
def test_a_proof_that_is_interrupted_leaves_nothing_and_tells_of_no_slot(
    start, memory_project, tmp_path, sent, code, fault
):
    works = "Path('working').touch()\nwhile True:\n    time.sleep(0.02)"
    folder = memory_project("return rows" if fault else works, before="import time\n")
    proving = start(folder, "-m", "twice", "prove", "visits", "--at", DAY, fault=fault)
    if fault:
        wait_until(lambda: psutil.Process(proving.pid).status() == psutil.STATUS_STOPPED)
    else:
        wait_until(lambda: list((tmp_path / "temporary").rglob("working")))
    assert list((tmp_path / "temporary").glob("twice-prove-*"))
    assert start.and_end(proving, sent) == (code, [])
    assert list((tmp_path / "temporary").iterdir()) == []
    said = (tmp_path / "said").read_text()
    assert "Interrupted. The proof has no verdict. It worked on copies, which are removed." in said
    assert not [word for word in ("Nothing was published", "The slot is", "Traceback") if word in said]
    assert not (folder / "lake").exists()


def test_an_error_that_follows_from_an_interrupt_is_no_counterexample(start, memory_project, tmp_path):
    proving = start(memory_project(), "-c", LOSES_ITS_JVM)
    assert proving.wait(SECONDS) == 143
    said = (tmp_path / "said").read_text()
    assert "The proof has no verdict." in said
    assert not [word for word in ("the connection is gone", STUCK) if word in said]
    assert "stuck" not in said


@pytest.mark.spark
def test_a_proof_that_is_interrupted_ends_the_jvms_of_its_commands(start, tmp_path):
    folder = tmp_path / "project"
    write_example(folder, "parquet")
    file = folder / "pipelines/visits.py"
    assert RETURNS in file.read_text()
    file.write_text(file.read_text().replace(RETURNS, SLEEPS_ELSEWHERE))
    proving = start(folder, "-m", "twice", "prove", "visits", "--at", "2024-10-07", "--only", "repeat/clean")

    wait_until(lambda: list((tmp_path / "temporary").rglob("working")), SECONDS_OF_SPARK)
    family = psutil.Process(proving.pid).children(recursive=True)
    assert [one for one in family if one.name() == "java" and os.getsid(one.pid) != proving.pid]
    assert start.and_end(proving, signal.SIGTERM) == (143, [])
    assert list((tmp_path / "temporary").glob("twice-*")) == []
    said = (tmp_path / "said").read_text()
    assert "The proof has no verdict." in said
    assert not [word for word in ("Traceback", "Py4J", STUCK) if word in said], said
