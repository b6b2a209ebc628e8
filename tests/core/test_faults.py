"""Where may a run die? In this process by exceptions, in others by real signals."""

import os
import signal
import subprocess
import sys

import pytest

from twice.faults import REACHED, Died, LostReply, armed, dying_at, reach, recording

REACHES = """
from twice.faults import reach
for point in ("one", "two", "two", "three"):
    reach(point)
    print(point, flush=True)
"""


def start(faults):
    return subprocess.Popen(
        [sys.executable, "-c", REACHES],
        env={**os.environ, "TWICE_FAULTS": faults},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(faults):
    with start(faults) as process:
        return process.communicate(timeout=30)[0].split(), process.returncode


# ------------------------------------------------------------------ in another process


@pytest.mark.parametrize(
    ("faults", "passed"),
    [("kill:one", []), ("kill:two", ["one"]), ("kill:two#2", ["one", "two"]), ("kill:three", ["one", "two", "two"])],
)
def test_a_process_is_killed_at_the_point_that_its_environment_names(faults, passed):
    assert run(faults) == (passed, -signal.SIGKILL)


@pytest.mark.parametrize("faults", ["kill:four", "kill:two#3", "pause:"])
def test_a_point_that_is_never_reached_kills_nobody(faults):
    assert run(faults) == (["one", "two", "two", "three"], 0)


def test_a_kill_takes_the_whole_process_group_with_it():
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {REACHES!r}])\nprint('still here')"
    killed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TWICE_FAULTS": "kill:two"},
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert (killed.stdout, killed.returncode) == ("one\n", -signal.SIGKILL)


def test_a_process_is_paused_and_goes_on_when_it_is_woken():
    with start("pause:two#2") as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert os.read(process.stdout.fileno(), 100) == b"one\ntwo\n"
        os.kill(process.pid, signal.SIGCONT)
        assert process.communicate(timeout=30)[0].split() == ["two", "three"]
    assert process.returncode == 0


def test_python_alone_is_killed_and_its_children_live_on():
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {REACHES!r}])\nprint('still here')"
    killed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TWICE_FAULTS": "kill-python:two"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.stdout == "one\nstill here\n"


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ("raise:two", "RuntimeError: an error was raised at two"),
        ("lost:two", "LostReply: two"),
        ("kill-jvm:two", "nobody to kill at two"),
        ("kill-executor:two", "nobody to kill at two"),
        ("slow-executors:two", "nobody to kill at two"),
        ("tickle:two", "is not known: record:FILE, kill:POINT"),
    ],
)
def test_an_error_is_raised_at_the_point(faults, said):
    ended = subprocess.run(
        [sys.executable, "-c", REACHES],
        env={**os.environ, "TWICE_FAULTS": faults},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert said in ended.stderr
    assert (f"{REACHED} {faults}" in ended.stderr) == ("tickle" not in faults)
    assert ended.stdout == ("" if "tickle" in faults else "one\n")


def test_a_fault_that_never_comes_is_told_from_one_that_was_survived():
    ended = subprocess.run(
        [sys.executable, "-c", REACHES],
        env={**os.environ, "TWICE_FAULTS": "raise:four"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert REACHED not in ended.stderr


@pytest.mark.parametrize(
    ("faults", "said"), [("disk-full:two", "File too large"), ("fsync:two", "Input/output error: fsync of")]
)
def test_the_disk_fails_from_the_point_on(faults, said, tmp_path):
    program = """
import os, sys
from twice.faults import reach
for point in ("one", "two"):
    reach(point)
    with open(sys.argv[1], "wb", buffering=0) as file:
        file.write(b"some bytes")
        os.fsync(file.fileno())
    print(point, flush=True)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "file")],
        env={**os.environ, "TWICE_FAULTS": faults},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout, ended.returncode) == ("one\n", 1)
    assert said in ended.stderr


def test_points_are_recorded_in_the_order_in_which_they_are_reached(tmp_path):
    assert run(f"record:{tmp_path}/points#1")[1] == 0
    assert (tmp_path / "points#1").read_text().split() == ["one", "two", "two", "three"]


# ------------------------------------------------------------------ in this process


def walk(*points):
    for point in points:
        reach(point)


def test_an_idle_point_does_nothing():
    assert reach("anything") is None


def test_points_are_recorded_once_each():
    points = []
    with armed(recording(points)):
        walk("b", "a", "b")
    reach("c")
    assert points == ["b", "a"]


def test_death_comes_at_its_point_and_visit():
    points, die = [], dying_at("b", visit=2)

    def act(point):
        points.append(point)
        die(point)

    with armed(act), pytest.raises(Died, match="b"):
        walk("a", "b", "a", "b", "c")
    assert points == ["a", "b", "a", "b"]


def test_nobody_dies_twice():
    with armed(dying_at("a")):
        with pytest.raises(Died):
            reach("a")
        reach("a")


def test_death_is_no_error_that_a_handler_may_swallow():
    assert not issubclass(Died, Exception)


def test_a_lost_reply_is_an_error():
    with armed(dying_at("a", LostReply)), pytest.raises(LostReply):
        reach("a")


def test_what_was_armed_before_is_armed_again_after_a_death():
    outer = []
    with armed(recording(outer)):
        with pytest.raises(Died), armed(dying_at("a")):
            reach("a")
        reach("b")
    assert outer == ["b"]
