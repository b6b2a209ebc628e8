"""Where may a run die, and how is it made to die there?

Code on a write path calls `reach("name")` between any two steps that matter. Idle, that is one
comparison. The prover first records the points that a clean pass reaches, then builds a fresh
world for each of them and dies there: points are recorded, never listed by hand.

A process started with TWICE_FAULTS set arms itself:

    TWICE_FAULTS=record:/tmp/points      append the name of each point to the file
    TWICE_FAULTS=kill:publish.after      SIGKILL the whole process group at the point
    TWICE_FAULTS=kill:stage.after#2      the same, the second time the point is reached
    TWICE_FAULTS=kill-python:POINT       SIGKILL this process alone: its JVM is left an orphan
    TWICE_FAULTS=kill-jvm:POINT          SIGKILL the JVM alone
    TWICE_FAULTS=kill-executor:POINT     SIGKILL one executor that is a process of its own
    TWICE_FAULTS=slow-executors:POINT    SIGSTOP the executors that are processes of their own, and wake them one by one
    TWICE_FAULTS=pause:publish.before    SIGSTOP this process at the point
    TWICE_FAULTS=raise:POINT             raise an ordinary error
    TWICE_FAULTS=lost:publish.after      raise what a lost reply looks like
    TWICE_FAULTS=disk-full:POINT         from the point on no file of Python or the JVM can grow (RLIMIT_FSIZE)
    TWICE_FAULTS=fsync:POINT             from the point on every fsync of Python fails with EIO
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Action = Callable[[str], None]

NOBODY_TO_KILL = "nobody to kill"
_STDERR = 2  # the process's own, whatever a test has put in place of `sys.stderr`
_SECONDS_OF_SLOWNESS = 5.0
_SECONDS_TO_JOIN = 30.0
_DRIVER_AND_ONE = 2
REACHED = "twice: this is the fault that was asked for:"


class Died(BaseException):
    """Death of a run inside a process that lives on. No handler may treat it as an error."""


class LostReply(Exception):
    """The publish was sent, and its answer never came."""


_action: Action | None = None


def reach(point: str) -> None:
    """Name a point on a write path. Does nothing unless a prover has armed it."""
    if _action is not None:
        _action(point)


@contextmanager
def armed(action: Action) -> Iterator[None]:
    """Call `action` with the name of each point that is reached inside the block."""
    global _action  # noqa: PLW0603 - one process, one prover: the point of a fault point is to be global
    before, _action = _action, action
    try:
        yield
    finally:
        _action = before


def recording(points: list[str]) -> Action:
    """Collect the points into a list, in the order of their first visit."""

    def record(point: str) -> None:
        if point not in points:
            points.append(point)

    return record


def dying_at(fatal: str, how: type[BaseException] = Died, visit: int = 1) -> Action:
    """Raise `how` the n-th time that the point is reached."""
    visits = itertools.count(1)  # counts right in several threads

    def die(point: str) -> None:
        if point == fatal and next(visits) == visit:
            raise how(point)

    return die


def _from_environment(spec: str) -> Action:
    kind, _, rest = spec.partition(":")
    if kind == "record":
        return _recorder(rest)
    if kind not in _FAULTS:
        known = ", ".join(f"{name}:POINT" for name in _FAULTS)
        raise ValueError(f"TWICE_FAULTS={spec!r} is not known: record:FILE, {known}")
    point, _, number = rest.partition("#")
    wanted = int(number or 1)
    visits = itertools.count(1)

    def act(reached: str) -> None:
        if reached == point and next(visits) == wanted:
            # Whoever asked can tell a run that survived from one that never came here.
            os.write(_STDERR, f"{REACHED} {spec}\n".encode())
            _FAULTS[kind](reached)

    return act


def _kill_group(_: str) -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _kill_python(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_jvm(point: str) -> None:
    jvm = _jvm()
    if jvm is None:
        raise RuntimeError(f"{NOBODY_TO_KILL} at {point}: there is no JVM")
    os.kill(jvm, signal.SIGKILL)


def _kill_executor(point: str) -> None:
    os.kill(_executors(point)[0], signal.SIGKILL)


def _slow_down_executors(point: str) -> None:
    """Let all tasks seem slow, so that others are started in their place, and wake one executor after the other."""
    _wait_for_executors()
    for turn, executor in enumerate(_executors(point), 1):
        os.kill(executor, signal.SIGSTOP)
        waking = threading.Timer(turn * _SECONDS_OF_SLOWNESS, os.kill, (executor, signal.SIGCONT))
        waking.daemon = True
        waking.start()


def _wait_for_executors() -> None:
    """Wait until the driver knows all of them: it gives no task to the others."""
    until = time.monotonic() + _SECONDS_TO_JOIN
    while _jvm() and time.monotonic() < until:
        known = sys.modules["pyspark"].SparkContext._active_spark_context._jsc.sc().getExecutorMemoryStatus().size()
        if known > _DRIVER_AND_ONE:
            return
        time.sleep(0.1)


def _executors(point: str) -> list[int]:
    found = _processes(f"CoarseGrainedScheduler@{_driver()}") if _jvm() else []
    if not found:
        raise RuntimeError(f"{NOBODY_TO_KILL} at {point}: no executor has a process of its own")
    return found


def _pause(_: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _raise(point: str) -> None:
    raise RuntimeError(f"an error was raised at {point}")


def _lose_the_reply(point: str) -> None:
    raise LostReply(point)


def _fill_the_disk(_: str) -> None:
    """Let no file grow any more: what a full disk does, without filling anybody's disk."""
    import resource

    for pid in filter(None, (os.getpid(), _jvm())):
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))


def _break_fsync(_: str) -> None:
    def fail(fd: Any) -> None:
        raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: fsync of {fd}")

    os.fsync = fail


_FAULTS: dict[str, Action] = {
    "kill": _kill_group,
    "kill-python": _kill_python,
    "kill-jvm": _kill_jvm,
    "kill-executor": _kill_executor,
    "slow-executors": _slow_down_executors,
    "pause": _pause,
    "raise": _raise,
    "lost": _lose_the_reply,
    "disk-full": _fill_the_disk,
    "fsync": _break_fsync,
}


def _jvm() -> int | None:
    """Return the process of the JVM that PySpark started, if it did."""
    pyspark: Any = sys.modules.get("pyspark")
    gateway = pyspark.SparkContext._gateway if pyspark else None
    process = getattr(gateway, "proc", None)
    return int(process.pid) if process else None


def _driver() -> str:
    """Return the address under which executors know the driver."""
    pyspark: Any = sys.modules["pyspark"]
    settings = pyspark.SparkContext._active_spark_context.getConf()
    return f"{settings.get('spark.driver.host')}:{settings.get('spark.driver.port')}"


def _processes(words: str) -> list[int]:
    """Return the processes whose command line holds some words."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as line:
                if words.encode() in line.read():
                    found.append(int(name))
        except OSError:
            continue  # it ended meanwhile
    return found


def _recorder(path: str) -> Action:
    def record(point: str) -> None:
        with open(path, "a", encoding="utf-8") as points:
            points.write(point + "\n")

    return record


if "TWICE_FAULTS" in os.environ:
    _action = _from_environment(os.environ["TWICE_FAULTS"])
