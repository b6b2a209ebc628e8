"""Which deaths are real, where, and in which order?

Each takes a process of its own, with a JVM of its own, so they are tried where they tell most: around
the publish first, then outwards from it. The rerun happens in this process, whose JVM is warm.
"""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from twice.errors import Misuse, NotPublished
from twice.faults import NOBODY_TO_KILL, REACHED
from twice.prover.clusters import two_hosts
from twice.prover.deaths import by_telling
from twice.prover.grounds import Ground
from twice.prover.harness import lies, recovers
from twice.prover.killers import Ended, run_asleep, run_command
from twice.prover.trials import CLUSTER, REAL, CannotBeTried, Trial
from twice.prover.verdicts import LIED, Trouble, difference
from twice.prover.worlds import ProjectWorld, child_settings, words

# Renewed seldom: a process that is stopped while it renews its lease holds the ledger, and nobody else gets in.
_LEASE_SECONDS, _RENEW_SECONDS = 4.0, 3.0
# Workers have as much memory as an executor asks for by default; with less, Spark does not start.
ON_A_CLUSTER = ("kill-executor", "speculation")
_CLUSTER = "local-cluster[2,1,1024]"
# A task of executors that stand still is started a second time, also if it is the only one of its stage.
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "0.2",
    "spark.speculation.task.duration.threshold": "1s",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}
_EVENTS = ".twice/spark-events"
_CLUSTER_FOLDER = ".twice/cluster"
_SLOW = "slow-executors:rows.ready"
_STARTED_TWICE = '"Speculative":true'
_USES_OUR_FSYNC = ("parquet", "files")
_KILLED = -signal.SIGKILL
_DEADLY = ("kill:", "kill-python:")


@dataclass(frozen=True)
class Way:
    """A way to die for real: the fault, what it does, and the points at which it tells most."""

    fault: str
    does: str
    telling: tuple[str, ...]


WAYS = {
    "kill": Way("kill", "is killed there (SIGKILL of the process group: Python and the JVM)", ()),
    "pause": Way(
        "pause", "is stopped there until its lease is over and a twin has published, then wakes up", ("publish.before",)
    ),
    "kill-jvm": Way("kill-jvm", "loses its JVM there (SIGKILL)", ("rows.ready", "publish.before")),
    "kill-python": Way(
        "kill-python", "is killed there (SIGKILL of Python; the JVM is left an orphan)", ("publish.before",)
    ),
    "disk-full": Way(
        "disk-full",
        "can write no byte to any file from there on (RLIMIT_FSIZE of Python and the JVM)",
        ("rows.ready",),
    ),
    "fsync": Way("fsync", "gets an I/O error from every fsync from there on", ("rows.ready",)),
    "lost": Way("lost", "loses the reply there", ("publish.after",)),
    "raise": Way("raise", "meets an error there", ("stage.after",)),
}


def real_deaths(ground: Ground) -> list[Trial]:
    """Return every real death, the most telling ones first: each way once, then kills from the publish outwards."""
    ranked = by_telling(ground.points)
    found = [_trial(ground, way, ranked[0]) for way in ("kill",)]
    found += [
        _trial(ground, name, point) for name, way in WAYS.items() for point in way.telling if point in ground.points
    ]
    found += [_trial(ground, name, point) for name in WAYS for point in ranked]
    return list({trial.name: trial for trial in found}.values())


def executor_deaths(ground: Ground) -> Iterator[Trial]:
    """Yield what needs executors that are processes of their own."""
    killed = "loses an executor there (SIGKILL), on a cluster of two on this machine; its tasks are done again"
    yield Trial(
        "rows.ready", ON_A_CLUSTER[0], CLUSTER, killed, lambda: _on_a_cluster(ground, "kill-executor:rows.ready")
    )
    twice = (
        "has executors that stand still for a while, on a cluster of two addresses of this machine;"
        " their tasks are started a second time (speculation)"
    )
    yield Trial("rows.ready", ON_A_CLUSTER[1], CLUSTER, twice, lambda: _speculates(ground))


def _trial(ground: Ground, name: str, point: str) -> Trial:
    way = WAYS[name]
    return Trial(point, name, REAL, f"{way.does}, then runs again", lambda: _dies(ground, name, point))


def _dies(ground: Ground, name: str, point: str) -> Trouble | None:
    if name == "fsync" and ground.subject.kind not in _USES_OUR_FSYNC:
        raise CannotBeTried(f"{ground.subject.kind} leaves fsync to the file system")
    world = ground.fresh()
    fault = f"{WAYS[name].fault}:{point}"
    if name == "pause":
        ended = _sleeps(world, fault)
    else:
        ended = run_command(words(world), world.folder, fault, child_settings(world))
    return _judge(ground, world, ended, fault)


def _sleeps(world: ProjectWorld, fault: str) -> Ended:
    leases = {"TWICE_LEASES_SECONDS": str(_LEASE_SECONDS), "TWICE_LEASES_RENEW_SECONDS": str(_RENEW_SECONDS)}

    def twin() -> None:
        time.sleep(_LEASE_SECONDS + 1)
        try:
            world.act()
        except NotPublished as error:
            raise CannotBeTried(f"no twin could publish meanwhile: {error.what}") from error

    return run_asleep(words(world), world.folder, fault, child_settings(world) | leases, twin)


def _on_a_cluster(ground: Ground, fault: str) -> Trouble | None:
    world = ground.fresh()
    return _judge(ground, world, _run_on_a_cluster(world, fault, _CLUSTER), fault)


def _speculates(ground: Ground) -> Trouble | None:
    world = ground.fresh()
    events = world.folder / _EVENTS
    events.mkdir(parents=True)
    conf = _SPECULATION | {"spark.eventLog.dir": events.as_uri()}
    arguments = shlex.join(word for name, value in conf.items() for word in ("--conf", f"{name}={value}"))
    with two_hosts(world.folder / _CLUSTER_FOLDER) as master:
        ended = _run_on_a_cluster(world, _SLOW, master, {"PYSPARK_SUBMIT_ARGS": f"{arguments} pyspark-shell"})
    trouble = _judge(ground, world, ended, _SLOW)
    if trouble or any(_STARTED_TWICE in file.read_text() for file in events.rglob("*") if file.is_file()):
        return trouble
    raise CannotBeTried("no task was started a second time")


def _run_on_a_cluster(
    world: ProjectWorld, fault: str, master: str, settings: Mapping[str, str] = MappingProxyType({})
) -> Ended:
    chosen = child_settings(world) | {"TWICE_SPARK_MASTER": master, **settings}
    ended = run_command(words(world), world.folder, fault, chosen)
    if ended.code == Misuse.exit_code:
        raise CannotBeTried("a cluster of two executors does not start on this machine")
    return ended


def _judge(ground: Ground, world: ProjectWorld, ended: Ended, fault: str) -> Trouble | None:
    """Compare what a process said with what is there, run again, and compare once more."""
    if fault and f"{REACHED} {fault}" not in ended.output:
        raise CannotBeTried(f"a process of its own did not pass this point (exit code {ended.code})")
    if fault.startswith(_DEADLY) and ended.code != _KILLED:
        raise CannotBeTried(f"a process of its own outlived its death (exit code {ended.code})")
    if NOBODY_TO_KILL in ended.output:
        raise CannotBeTried("nothing of the kind runs yet, or any more, when a process of its own passes this point")
    if ended.code == 0:
        trouble = difference(world.snapshot(), ground.expected, ground.before)
        if trouble:
            return Trouble(LIED, f"exit code 0, but {trouble.text}")
    elif ended.code in (1, 2):
        trouble = lies(world, ended.code, ground.expected)
        if trouble:
            return trouble
    return recovers(world, ground.expected, ground.before)
