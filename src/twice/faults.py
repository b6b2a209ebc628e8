"""Where may a run die, and how is it made to die there?

Code on a write path calls `reach("name")` between any two steps that matter. Idle, that is one
comparison. The prover first records the points that a clean pass reaches, then builds a fresh
world for each of them and dies there: points are recorded, never listed by hand.

A process started with TWICE_FAULTS set arms itself:

    TWICE_FAULTS=record:/tmp/points      append the name of each point to the file
    TWICE_FAULTS=kill:publish.after      SIGKILL the whole process group at the point
    TWICE_FAULTS=kill:stage.after#2      the same, the second time the point is reached
    TWICE_FAULTS=pause:publish.before    SIGSTOP this process at the point
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Action = Callable[[str], None]


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
    if kind not in ("record", "kill", "pause"):
        raise ValueError(f"TWICE_FAULTS={spec!r} is not known: record:FILE, kill:POINT or pause:POINT")
    point, _, number = rest.partition("#")
    if kind == "record":
        return _recorder(rest)
    wanted = int(number or 1)
    visits = itertools.count(1)

    def act(reached: str) -> None:
        if reached == point and next(visits) == wanted:
            if kind == "kill":
                os.killpg(os.getpgrp(), signal.SIGKILL)
            elif kind == "pause":
                os.kill(os.getpid(), signal.SIGSTOP)

    return act


def _recorder(path: str) -> Action:
    def record(point: str) -> None:
        with open(path, "a", encoding="utf-8") as points:
            points.write(point + "\n")

    return record


if "TWICE_FAULTS" in os.environ:
    _action = _from_environment(os.environ["TWICE_FAULTS"])
