"""How is a pipeline of the user's proven?

Clean runs first, then repeats and deaths in this process, which are fast, then real deaths of other
processes, the most telling first, until the time is spent. What was left out is said.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from datetime import time as time_of_day
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from twice import interrupts
from twice.api import ProjectLike
from twice.engine import Engine
from twice.errors import Misuse, TwiceError, count
from twice.explain import explain
from twice.pipelines import Pipeline
from twice.project import Project
from twice.prover.budget import Budget, seconds_of
from twice.prover.choosing import choose_slots
from twice.prover.cuts import cuts
from twice.prover.databases import database_of
from twice.prover.deaths import deaths_at, twins
from twice.prover.deaths import pairs as pairs_of
from twice.prover.grounds import Ground, prepare
from twice.prover.isolation import check_provable, outside_effect
from twice.prover.kills import WAYS, executor_deaths, real_deaths
from twice.prover.naming import check_name, nearest
from twice.prover.repeats import CLEAN, EFFECTS, alone, at_once, warm_repeats
from twice.prover.trials import NO_TIME, READ, REPEAT, WARM, CannotBeTried, LeftOut, Proof, Trial, Tried
from twice.prover.verdicts import STUCK, SURVIVED, Trouble
from twice.prover.weather import VARIED
from twice.runs import Slot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EACH_WAY_ONCE = len(WAYS) + 1
# The clean runs are made in any case, since everything is compared with them.
_CLEAN = f"{REPEAT}/{CLEAN}"
_SHOWS_LITTLE = frozenset({_CLEAN, f"{REPEAT}/{EFFECTS}"})

OnTrial = Callable[[Tried | LeftOut, int], None]


def prove(
    pipeline: Pipeline | str,
    *,
    at: str | datetime | None = None,
    key: str | None = None,
    pairs: bool = False,
    seed: int = 0,
    budget: str = "5m",
    full: bool = False,
    only: str | None = None,
    project: ProjectLike = None,
    spark: SparkSession | None = None,
    on_trial: OnTrial | None = None,
) -> Proof:
    """Run a pipeline many times in copies of its project, dying in every way, and compare with a clean run.

    Raises:
        NotProvable: Its target or a source cannot be copied.
        Misuse: A clean run does not succeed, or there is no such trial.
    """
    if only:
        check_name(only)
    home = project if isinstance(project, Project) else Project.open(project, spark=spark, only_looking=True)
    named = isinstance(pipeline, str)
    chosen = home.pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    check_provable(home, chosen)
    slots = choose_slots(home, chosen, at, key)
    clock = Budget(None if full or only else seconds_of(budget))
    if (reaching_out := outside_effect(chosen)) is not None:
        return _not_provable(home, chosen, slots.slot, reaching_out, seed)
    with (
        interrupts.of_copies("The proof has no verdict. It worked on copies, which are removed."),
        _workshop() as folder,
        database_of(home, chosen.target.store) as database,
        _sessions(home, chosen, folder) as session,
    ):
        elsewhere = only in (None, _CLEAN)
        ground = prepare(home, chosen, named, slots, folder, session, database, elsewhere=elsewhere)
        known = list(_trials(ground, seed, pairs=pairs, full=full))
        trials = _only(ground, known, only, seed) if only else known
        tried, left_out = _try_all(ground, trials, clock, on_trial)
        _check_tried(tried, left_out, clock)
        return Proof(
            pipeline=chosen.name,
            slot=slots.slot.label,
            store=ground.subject.kind,
            points=tuple(ground.points),
            tried=tuple(tried),
            left_out=tuple(left_out),
            known=len({one.name for one in (*known, *trials)}),
            notes=tuple(ground.notes),
            seconds=clock.spent,
            seconds_left_out=clock.needed(one.means for one in trials if one.name in {two.name for two in left_out}),
            seed=seed,
        )


@contextmanager
def _workshop() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="twice-prove-")).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _sessions(home: Project, pipeline: Pipeline, folder: Path) -> Iterator[Callable[[], SparkSession | None]]:
    """Offer one Spark session for all worlds: the caller's, or one that is started at its first need."""
    if home.kind(pipeline.target.store) == "memory":
        yield lambda: None
        return
    theirs = home.engine.spark if home.engine.started else _running()
    if theirs is not None:
        yield lambda: theirs
        return
    master = str(home.settings["spark.master"])
    values = dict(home.settings.values)
    if not master.startswith("local"):
        values["spark.master"] = replace(values["spark.master"], value="local[2]")
    conf = {**home.settings.spark_conf, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    engine = Engine(replace(home.settings, root=folder, values=values, spark_conf=conf), lambda: home.engine.kinds)
    engine.need(home.kind(pipeline.target.store))
    engine.on_start = home.engine.on_start
    before = Path.cwd()
    try:
        yield lambda: engine.spark
    finally:
        os.chdir(before)
        engine.stop()


def _running() -> SparkSession | None:
    """Return a session that this process has already: it would be shared anyway, and is not ours to stop."""
    pyspark = sys.modules.get("pyspark.sql")
    return pyspark.SparkSession.getActiveSession() if pyspark else None


def _trials(ground: Ground, seed: int, *, pairs: bool, full: bool) -> Iterator[Trial]:
    """Yield what can be tried, the cheapest and most telling first."""
    yield _effects(ground.subject.declared)
    yield Trial(
        REPEAT,
        CLEAN,
        WARM,
        f"runs in two worlds, cleanly, the second time with other {VARIED} where that can be, and compares",
        lambda: ground.differing,
    )
    yield from deaths_at(ground, "died")
    yield from warm_repeats(ground)
    yield from deaths_at(ground, "lost-reply")
    yield from cuts(ground)
    yield from twins(ground)
    if pairs:
        yield from pairs_of(ground, seed)
    why = ground.subject.stays_here
    if why:
        ground.notes.append(f"no process of its own was killed: {why}")
        return
    # Each way once, then the repeats, then every way at every point.
    yield alone(ground)
    deaths = real_deaths(ground)
    yield from deaths[:_EACH_WAY_ONCE]
    yield at_once(ground)
    yield from deaths[_EACH_WAY_ONCE:]
    if full:
        yield from executor_deaths(ground)


def _effects(pipeline: Pipeline) -> Trial:
    does = "reads the code for what a run would do outside of the table"
    return Trial(REPEAT, EFFECTS, READ, does, lambda: outside_effect(pipeline))


def _not_provable(home: Project, pipeline: Pipeline, slot: Slot, trouble: Trouble, seed: int) -> Proof:
    """Tell that nothing was run: whatever a run does outside would have been done dozens of times."""
    trial = _effects(pipeline)
    return Proof(
        pipeline=pipeline.name,
        slot=slot.label,
        store=home.kind(pipeline.target.store),
        points=(),
        tried=(Tried(trial, trouble.kind, trouble.text, 0.0, _replay(pipeline, slot, trial)),),
        left_out=(),
        known=1,
        notes=("nothing was run",),
        seconds=0.0,
        seconds_left_out=0.0,
        seed=seed,
    )


def _only(ground: Ground, known: list[Trial], only: str, seed: int) -> list[Trial]:
    """Return the trial of a name, whether or not it would be tried unasked."""
    rare = (*pairs_of(ground, seed), *executor_deaths(ground))
    found = [trial for trial in (*known, *rare) if trial.name == only][:1]
    if not found:
        why = ground.subject.stays_here
        raise Misuse(
            f"{ground.subject.declared.name} has no trial {only!r}.",
            f"A clean run passes {count(len(ground.points), 'point')}{f', and {why}' if why else ''}.",
            nearest(only, {trial.name for trial in known}),
        )
    return found


def _try_all(
    ground: Ground, trials: Iterable[Trial], clock: Budget, on_trial: OnTrial | None
) -> tuple[list[Tried], list[LeftOut]]:
    known = list(trials)
    tried: list[Tried] = []
    left_out: list[LeftOut] = []
    for trial in known:
        timely = clock.allows(trial.means) or trial.name == _CLEAN
        ended = _try(ground, trial, clock) if timely else LeftOut(trial.name, NO_TIME)
        interrupts.check()  # what was seen may follow from it
        (tried if isinstance(ended, Tried) else left_out).append(ended)  # type: ignore[arg-type]
        if on_trial:
            on_trial(ended, len(known))
    return tried, left_out


def _check_tried(tried: Sequence[Tried], left_out: Sequence[LeftOut], clock: Budget) -> None:
    """No verdict is better than one that rests on nothing."""
    if not tried:
        raise Misuse(f"{left_out[0].name} cannot be tried: {left_out[0].why}.")
    if left_out and all(one.survived and one.trial.name in _SHOWS_LITTLE for one in tried):
        raise Misuse(
            "The budget ended before the first trial; pass a larger `--budget`.",
            f"Clean runs alone took {clock.spent:.0f} s.",
        )


def _try(ground: Ground, trial: Trial, clock: Budget) -> Tried | LeftOut:
    began = time.monotonic()
    try:
        trouble = trial.attempt()
    except CannotBeTried as error:
        return LeftOut(trial.name, str(error))
    except TwiceError as error:
        trouble = Trouble(STUCK, str(error))
    except Exception as error:  # noqa: BLE001 - whatever a user's code raises is what was seen
        trouble = Trouble(STUCK, f"an error that nobody foresaw: {explain(error)}")
    finally:
        ground.clear()
    seconds = time.monotonic() - began
    clock.took(trial.means, seconds)
    if trouble is None:
        return Tried(trial, SURVIVED, "as after one clean run", seconds)
    subject = ground.subject
    return Tried(trial, trouble.kind, trouble.text, seconds, _replay(subject.declared, subject.slot, trial))


def _replay(pipeline: Pipeline, slot: Slot, trial: Trial) -> str:
    """Return the shortest command that shows it again."""
    key = f" --key {shlex.quote(str(slot.part))}" if slot.part else ""
    which = f" --at {_short(slot, pipeline.zone)}" if slot.interval else key
    return f"twice prove {pipeline.name}{which} --only {trial.name}"


def _short(slot: Slot, zone: str) -> str:
    """Write the start of a slot as shortly as `--at` understands it: a date means midnight in the pipeline's zone."""
    start = slot.interval.start.astimezone(ZoneInfo(zone)) if slot.interval else None
    return start.date().isoformat() if start and start.time() == time_of_day() else slot.label
