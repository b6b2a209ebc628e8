"""On what ground are trials made: from which world, compared with which clean run?"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twice import settings
from twice.errors import Misuse, TwiceError
from twice.pipelines import Pipeline
from twice.project import Project
from twice.prover import weather
from twice.prover.choosing import Chosen
from twice.prover.codes import Code
from twice.prover.databases import WorldDatabase
from twice.prover.determinism import differing_columns, explained, only_rounded
from twice.prover.elsewhere import run_elsewhere, run_here
from twice.prover.harness import points_of
from twice.prover.isolation import copy_inputs, copy_project
from twice.prover.verdicts import Snapshot, Trouble, difference
from twice.prover.worlds import ProjectWorld, Subject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT_IN_A_CATALOG = frozenset({"saveAsTable", "insertInto"})


@dataclass
class Ground:
    """A world as it is before the run that is proven, and what a clean run makes of it."""

    folder: Path
    empty: ProjectWorld
    template: ProjectWorld
    before: Snapshot
    expected: Snapshot
    points: list[str]
    clean_files: int
    differing: Trouble | None = None
    notes: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    worlds: list[ProjectWorld] = field(default_factory=list)

    @property
    def subject(self) -> Subject:
        """What is being proven."""
        return self.template.subject

    def fresh(self, *, empty: bool = False, **changes: Any) -> ProjectWorld:
        """Return a world of its own for one trial, with the neighbours published or with nothing at all."""
        base = self.empty if empty else self.template
        folder = self.folder / "worlds" / str(next(self.numbers))
        self.worlds.append(base.copied(folder, **{"clean_files": self.clean_files, **changes}))
        return self.worlds[-1]

    def clear(self) -> None:
        """Remove the worlds of a trial that is over."""
        while self.worlds:
            self.worlds.pop().discard()
        shutil.rmtree(self.folder / "worlds", ignore_errors=True)


def prepare(
    project: Project,
    pipeline: Pipeline,
    named: bool,
    chosen: Chosen,
    folder: Path,
    session: Callable[[], SparkSession | None],
    database: WorldDatabase | None,
    *,
    elsewhere: bool,
) -> Ground:
    """Copy the project, publish the neighbours, run the slot twice in worlds of their own, and compare.

    The second run is made in other weather, `elsewhere` in a process of its own if there can be one.

    Raises:
        Misuse: A clean run does not succeed in a copy of the project.
    """
    neighbours, notes = chosen.neighbours, list(chosen.notes)
    if neighbours and any(call.rpartition(".")[2] in _KEPT_IN_A_CATALOG for call, _ in Code(pipeline).calls()):
        neighbours = ()
        notes.append("no other slot was published beforehand: the transform keeps tables in Spark's catalog")
    master = str(project.settings["spark.master"])
    overrides = {} if master.startswith("local") else {"spark.master": "local[2]"}
    kind = project.kind(pipeline.target.store)
    subject = Subject(
        pipeline=pipeline.name if named else pipeline,
        declared=pipeline,
        slot=chosen.slot,
        neighbours=neighbours,
        kind=kind,
        home=project.root,
        session=session,
        overrides=overrides,
    )
    environment = {settings.ENVIRONMENT: project.settings.env, **(database.environment() if database else {})}
    empty = ProjectWorld(folder / "empty", subject, database=database, environment=environment)
    notes += copy_project(project, empty.folder)
    notes += copy_inputs(project, pipeline, subject.slots, empty.folder)
    template = empty.copied(folder / "template")
    try:
        for slot in neighbours:
            template.run(slot)
        return _ground(folder, empty, template, notes, elsewhere=elsewhere)
    except TwiceError as error:
        raise Misuse(
            f"A clean run of {pipeline.name} does not succeed in a copy of the project: {error.what}",
            error.why,
            error.fix or "A proof needs a pipeline that runs.",
        ) from error


def _ground(folder: Path, empty: ProjectWorld, template: ProjectWorld, notes: list[str], *, elsewhere: bool) -> Ground:
    before = template.snapshot()
    first, second = (template.copied(folder / name) for name in ("clean", "clean-again"))
    points = list(dict.fromkeys(points_of(first)))
    failed = _again(second, notes, elsewhere=elsewhere)
    one, other = first.records(), second.records()
    columns = [] if failed else differing_columns(one, other)
    rounded = only_rounded(one, other, columns)
    differing = explained(template.subject.declared, columns, "two clean runs", rounded=rounded) if columns else None
    if columns:
        subject = replace(template.subject, ignored=frozenset(columns))
        empty, template, first = (replace(world, subject=subject) for world in (empty, template, first))
        before = template.snapshot()
    expected = first.snapshot()
    differing = failed or differing or _differs_beside(second, expected, template)
    first.tidy()
    ground = Ground(folder, empty, template, before, expected, points, first.data_files(), differing, notes)
    for world in (first, second):
        world.discard()
        shutil.rmtree(world.folder, ignore_errors=True)
    return ground


def _again(world: ProjectWorld, notes: list[str], *, elsewhere: bool) -> Trouble | None:
    """Make the clean run in other weather, and say how that failed, if it did."""
    why = world.subject.stays_here
    if elsewhere and not why:
        notes += weather.notes()
        return run_elsewhere(world)
    if elsewhere:
        notes.append(f"cores and hash seed were not varied: {why}")
    return run_here(world)


def _differs_beside(second: ProjectWorld, expected: Snapshot, template: ProjectWorld) -> Trouble | None:
    """Say whether two clean runs differ in what they write outside the target."""
    found = replace(second, subject=template.subject).snapshot()
    trouble = difference(replace(expected, beside=found.beside), expected)
    if trouble is None:
        return None
    return replace(
        explained(template.subject.declared, [], "two clean runs"), text=f"two clean runs differ: {trouble.text}"
    )
