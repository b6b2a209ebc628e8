"""How is one try kept apart from all others, and from the user's own tables?

A world is a folder: a copy of the project with a ledger and a target of its own. Paths that a transform
writes without saying where lead into it, in Python and in Spark.
"""

from __future__ import annotations

import copy
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twice import settings
from twice.api import backfill, restore, run
from twice.errors import NotPublished
from twice.handovers import take_over
from twice.jobs import Outcome
from twice.pipelines import Pipeline
from twice.project import Project
from twice.prover.archives import quick
from twice.prover.databases import WorldDatabase
from twice.prover.verdicts import Snapshot
from twice.prover.watching import canonical, files_in, stands_beside
from twice.runs import Slot, Target
from twice.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEDGER = "sqlite:///.twice/ledger.db"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Subject:
    """What is being proven: a pipeline of a project, at one slot, with others published around it."""

    pipeline: Pipeline | str
    declared: Pipeline
    slot: Slot
    neighbours: tuple[Slot, ...]
    kind: str
    home: Path
    session: Callable[[], SparkSession | None]
    ignored: frozenset[str] = frozenset()
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        """The target of the pipeline."""
        return self.declared.target

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots, oldest first."""
        return (*self.neighbours, self.slot)

    @property
    def stays_here(self) -> str:
        """Say why no process of its own can run the pipeline, or nothing."""
        if self.kind == "memory":
            return "rows in memory end with their process"
        return (
            "" if isinstance(self.pipeline, str) else "another process finds pipelines by name, in the project's files"
        )


@dataclass
class ProjectWorld:
    """A copy of a project, in which one thing is tried."""

    folder: Path
    subject: Subject
    memory: MemoryStore = field(default_factory=MemoryStore)
    conf: dict[str, str] = field(default_factory=dict)
    script: Callable[[ProjectWorld], None] | None = None
    clean_files: int = 0
    database: WorldDatabase | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    spark: SparkSession | None = field(default=None, init=False)

    def copied(self, folder: Path, **changes: Any) -> ProjectWorld:
        """Return the same world in another folder, to be tried in this one's stead."""
        shutil.copytree(self.folder, folder)
        if self.database:
            database = self.database.copied()
            changes = {"database": database, "environment": {**self.environment, **database.environment()}, **changes}
        return replace(self, folder=folder, memory=copy.deepcopy(self.memory), **changes)

    def discard(self) -> None:
        """Remove what a world keeps outside of its folder."""
        if self.database:
            self.database.drop()

    @contextmanager
    def entered(self) -> Iterator[Project]:
        """Work inside: a project that is newly opened, and relative paths that lead here."""
        before = Path.cwd()
        os.chdir(self.folder)
        self.spark = self.spark or _session_of(self.subject.session(), self.folder, self.conf)
        try:
            with (
                _relative_paths_lead_to(self.folder, self.spark),
                _modules_of_its_own(self.folder, self.subject.home),
                _told(self.environment),
            ):
                overrides = {
                    "ledger.url": LEDGER,
                    "leases.seconds": 0.0,
                    "signals.enabled": False,
                    "effects.calls": "record",
                    "retries.per_hour": 0.0,
                    **self.subject.overrides,
                }
                found = settings.load(self.folder, overrides)
                stores = {"memory": self.memory} if self.subject.kind == "memory" else None
                yield Project(found, self.spark, stores=stores)
        finally:
            os.chdir(before)

    # ---------------------------------------------------------------- what is tried

    def act(self) -> None:
        """Do what is being proven: fill the slot, unless a script says otherwise."""
        if self.script:
            self.script(self)
        else:
            self.run(self.subject.slot)

    def run(self, slot: Slot, *, force: bool = False, changed: Callable[[Pipeline], Pipeline] | None = None) -> Outcome:
        """Fill a slot, by the pipeline as it is declared or as something changes it."""
        with self.entered() as project:
            chosen = self.subject.pipeline
            if changed:
                chosen = changed(project.whole_pipelines[chosen] if isinstance(chosen, str) else chosen)
            return run(chosen, **asked_for(slot), force=force, project=project)

    def backfill(self) -> None:
        """Fill all slots, in order."""
        first, last = self.subject.slots[0].interval, self.subject.slots[-1].interval
        if first is None or last is None:
            raise AssertionError("only slots with an interval are filled in order")
        with self.entered() as project:
            backfill(self.subject.pipeline, first.start, last.end, project=project)

    def rebuild_ledger(self) -> None:
        """Take the target over for a ledger that was lost, as `twice ledger rebuild` does."""
        target = self.subject.target
        with self.entered() as project:
            sight = take_over(project.store(target.store), project.ledger, target.name)
            project.ledger.rebuild([target.text], [(receipt, sight.version) for receipt in sight.receipts.values()])

    def restore(self, version: int) -> None:
        """Make an older version the newest."""
        with self.entered() as project:
            restore(self.subject.target.text, version, project=project)

    @property
    def ledger(self) -> Path:
        """The file of the world's ledger."""
        return self.folder / LEDGER.removeprefix("sqlite:///")

    # ---------------------------------------------------------------- what is seen

    def version(self) -> int:
        """Return the version of the target."""
        with self.entered() as project:
            return project.store(self.subject.target.store).look(self.subject.target.name).version

    def records(self) -> list[dict[str, Any]]:
        """Return the rows that a reader sees."""
        with self.entered() as project:
            return self._records(project)

    def _records(self, project: Project) -> list[dict[str, Any]]:
        if self.subject.kind == "files":
            held = stands_beside(self._table(project), (), lambda _: [])
            return [{"file": name, "content": one} for name, content in held.items() for one in content]
        try:
            rows = project.store(self.subject.target.store).read(self.subject.target.name)
        except NotPublished:
            return []
        return list(rows) if isinstance(rows, list) else [row.asDict(recursive=True) for row in rows.collect()]

    def snapshot(self) -> Snapshot:
        """Return rows, receipts, what the ledger believes, and what stands beside the target."""
        with self.entered() as project:
            rows = sorted(canonical(row, self.subject.ignored) for row in self._records(project))
            believed = {r.slot: (r.generation, r.fingerprint) for r, _ in project.ledger.published()}
            beside = stands_beside(self.folder, [self._table(project)], lambda table: self._delta(project, table))
            return Snapshot(tuple(rows), self._receipts(project), believed, beside)

    def _receipts(self, project: Project) -> dict[str, tuple[int, str]]:
        pattern, target = self.subject.declared.pattern, self.subject.target
        store = project.store(target.store)
        tables = {target.name, *(pattern.table(slot, self.subject.declared.zone) for slot in self.subject.slots)}
        found = (store.look(table).receipts for table in sorted(tables))
        return {slot: (r.generation, r.fingerprint) for receipts in found for slot, r in receipts.items()}

    def _table(self, project: Project) -> Path:
        if self.subject.kind == "memory":
            return self.folder / ".twice"
        named = project.settings.stores.get(self.subject.target.store)
        return (self.folder / named.root if named else self.folder) / self.subject.target.name

    def _delta(self, project: Project, table: str) -> list[Any]:
        return project.engine.spark.read.format("delta").load(table).collect()

    # ---------------------------------------------------------------- what is left over

    def tidy(self) -> None:
        """Remove what nothing uses, as `twice tidy --keep-days 0` does; Delta keeps its files for days in any case."""
        target = self.subject.target
        if self.subject.kind == "delta":
            return
        with self.entered() as project:
            project.store(target.store).tidy(target.name, frozenset, keep_days=0, dry_run=False)

    def litter(self) -> int:
        """Count the data files that a clean run, tidied, would not have left.

        Delta removes files by its own retention of days, so none is counted there.
        """
        counted = self.subject.kind in ("parquet", "files") or self.database
        return max(self.data_files() - self.clean_files, 0) if counted else 0

    def data_files(self) -> int:
        """Count the files of the target that hold rows, or the tables of its database."""
        if self.database:
            return self.database.tables()
        with self.entered() as project:
            return sum(path.suffix == ".parquet" for path in files_in(self._table(project)))


def asked_for(slot: Slot) -> dict[str, Any]:
    """Return how a slot is asked for: by its start, by its key, or by nothing."""
    if slot.interval:
        return {"at": slot.interval.start}
    return {"key": slot.part} if slot.part else {}


def words(world: ProjectWorld) -> tuple[str, ...]:
    """Return the command that fills the slot."""
    slot = world.subject.slot
    which = ("--at", slot.label) if slot.interval else ("--key", slot.part) if slot.part else ()
    return ("run", world.subject.declared.name, *map(str, which), "--yes")


def child_settings(world: ProjectWorld) -> dict[str, str]:
    """Return the environment that keeps a process inside its world."""
    master = world.subject.overrides.get("spark.master")
    chosen = {
        "TWICE_LEDGER_URL": LEDGER,
        "TWICE_SIGNALS_ENABLED": "false",
        "TWICE_EFFECTS_CALLS": "record",
        "TWICE_RETRIES_PER_HOUR": "0",
        "TWICE_OUTPUT": "text",
    }
    chosen |= quick() | ({"TWICE_SPARK_MASTER": str(master)} if master else {})
    return {**chosen, **world.environment}


def _session_of(base: SparkSession | None, folder: Path, conf: Mapping[str, str]) -> SparkSession | None:
    """Give a world a session of its own: settings, and a place for tables without a path."""
    if base is None:
        return None
    session = base.newSession()
    for name, value in conf.items():
        session.conf.set(name, value)
    database = f"world_{next(_numbers)}"
    session.sql(f"CREATE DATABASE {database} LOCATION '{(folder / 'spark-warehouse').as_uri()}'")
    session.catalog.setCurrentDatabase(database)
    return session


@contextmanager
def _told(environment: Mapping[str, str]) -> Iterator[None]:
    """Let this process read the settings of a world."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _relative_paths_lead_to(folder: Path, spark: SparkSession | None) -> Iterator[None]:
    """Let Spark resolve relative paths here: a JVM never changes its own folder, so its file system is told."""
    if spark is None:
        yield
        return
    jvm: Any = spark._jvm
    files = jvm.org.apache.hadoop.fs.FileSystem.get(spark._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(jvm.org.apache.hadoop.fs.Path(folder.as_uri()))
    try:
        yield
    finally:
        files.setWorkingDirectory(before)


@contextmanager
def _modules_of_its_own(folder: Path, home: Path) -> Iterator[None]:
    """Let a world import its own copies of the project's modules: a module may find its files by where it lies itself."""
    before, path = dict(sys.modules), list(sys.path)
    for name in [name for name, module in before.items() if _is_of_the_project(name, module, home)]:
        del sys.modules[name]
    sys.path[:] = [place for place in path if not _is_inside(place, home)]
    try:
        yield
    finally:
        sys.path[:] = path
        for name in [name for name, module in sys.modules.items() if _is_of_the_project(name, module, folder)]:
            del sys.modules[name]
        sys.modules.update(before)


def _is_of_the_project(name: str, module: Any, home: Path) -> bool:
    return name.partition(".")[0] != "twice" and _is_inside(getattr(module, "__file__", None) or "", home)


def _is_inside(path: str, home: Path) -> bool:
    """Tell whether a file belongs to the project, and not to the packages that it has installed."""
    place = Path(path)
    return bool(path) and place.is_relative_to(home) and not {"site-packages", ".venv", "venv"} & set(place.parts)
