"""How are two ways of doing one thing measured against each other on a noisy machine?

In one run, in the order A B A B, by the CPU time of the whole process tree (Python, JVM, workers)
and of a server, if there is one, beside the wall time. What is reported is the median of the ratios of neighbours.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil


@dataclass
class Cost:
    """What one repetition cost."""

    wall_seconds: float
    cpu_seconds: float
    jobs: int = 0
    bytes_written: int = 0


@dataclass
class Duel:
    """Two ways, measured in turns."""

    ours: list[Cost] = field(default_factory=list)
    theirs: list[Cost] = field(default_factory=list)

    def ratio(self, what: str) -> float:
        """Median of ours / theirs, pair by pair."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(getattr(a, what) / getattr(b, what) for a, b in pairs)

    def median(self, side: str, what: str) -> float:
        """Median of one side."""
        return statistics.median(getattr(cost, what) for cost in getattr(self, side))


def tree_cpu_seconds() -> float:
    """CPU time of this process and all its children, ended ones included."""
    me = psutil.Process()
    return sum(map(_with_ended_children, (me, *me.children(recursive=True))))


def server_cpu_seconds(postmaster: int) -> float:
    """CPU time of a PostgreSQL server with all its processes, ended ones included. It is no child of this process."""
    main = psutil.Process(postmaster)
    return sum(map(_with_ended_children, (main, *main.children())))


def _with_ended_children(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system + times.children_user + times.children_system


def measured(act: Callable[[], None], cpu: Callable[[], float] = tree_cpu_seconds) -> Cost:
    """Do something once, and return what it cost."""
    before, wall = cpu(), time.perf_counter()
    act()
    return Cost(time.perf_counter() - wall, cpu() - before)


def duel(ours: Callable[[int], None], theirs: Callable[[int], None], times: int, after: Callable[[Cost], None]) -> Duel:
    """Measure two ways in turns; `after` adds what else is to be counted to each cost."""
    result = Duel()
    for number in range(times):
        for act, costs in ((ours, result.ours), (theirs, result.theirs)):
            cost = measured(lambda act=act, number=number: act(number))
            after(cost)
            costs.append(cost)
    return result
