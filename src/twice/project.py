"""What belongs together: settings, pipelines, stores, ledger, engine?

A project is a folder with `twice.toml`; without one, the current folder with the defaults. All
that is costly is opened at its first use, once, also where threads work on several slots.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from twice import light, matrix, settings
from twice.abilities import Opening, Store
from twice.effects import Outside
from twice.engine import Engine
from twice.errors import Misuse, SourceFailed, TwiceError, Waiting, suggestion
from twice.events import Event, Hook, Tell, announce
from twice.fingerprint import CallsCode, Inputs, Place
from twice.ingests import taken_in
from twice.intervals import Schedule
from twice.jobs import Job
from twice.ledger import Ledger
from twice.ledger.places import SqlitePlace
from twice.marks import Taken
from twice.pipelines import Pipeline
from twice.runs import Run, Slot, Target
from twice.sight import Sight
from twice.sources.files import Files
from twice.sources.named import reads_of
from twice.steps import Kept
from twice.stores.registry import is_kind, kinds, make_store
from twice.tries import Retries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_T = TypeVar("_T")


class _once(cached_property[_T]):  # noqa: N801 - used like the decorator that it extends
    """A property that is computed once, whichever thread asks first."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> _T: ...

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        with instance.opening:
            return super().__get__(instance, owner)


class Project:
    """Everything that a run needs, opened at its first use."""

    def __init__(
        self,
        found: settings.Settings,
        spark: SparkSession | None = None,
        *,
        only_looking: bool = False,
        stores: Mapping[str, Store] | None = None,
    ) -> None:
        self.settings = found
        self.root = found.root
        self._spark = spark
        self.only_looking = only_looking
        # A store that lives in this process alone outlives a project only if it is handed on.
        self._stores: dict[str, Store] = dict(stores or {})
        self.opening = threading.RLock()
        self.hooks: tuple[Hook, ...] = ()
        self._also: list[Tell] = []

    @classmethod
    def open(
        cls,
        folder: str | Path | None = None,
        *,
        spark: SparkSession | None = None,
        overrides: Mapping[str, Any] | None = None,
        only_looking: bool = False,
        env: str | None = None,
    ) -> Project:
        """Open the project around a folder, by default around the current one, in the environment `env` or TWICE_ENV.

        One that is opened `only_looking` writes nothing, not even a ledger that is not there yet.
        """
        start = Path(folder) if folder else Path.cwd()
        root = settings.find_root(start) or start.resolve()
        return cls(settings.load(root, overrides, env), spark, only_looking=only_looking)

    @_once
    def ledger(self) -> Ledger:
        """The ledger, made at its first use."""
        place = self.settings.ledger_place
        if self.only_looking and not place.is_made():
            scratch = tempfile.mkdtemp(prefix="twice-look-")
            weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
            place = SqlitePlace(os.path.join(scratch, "ledger.db"))
        return place.open(
            lease_seconds=self.settings["leases.seconds"],
            renew_seconds=self.settings["leases.renew_seconds"],
        )

    @_once
    def pipelines(self) -> Mapping[str, Pipeline]:
        """All pipelines of the project's modules, by name, for looking and deciding."""
        with light.without_spark(str(self.root)) as stand_ins:
            try:
                found = self._load_pipelines()
            except Exception:
                if not stand_ins:
                    raise
                found = {}
        if not stand_ins:
            self.__dict__["whole_pipelines"] = found
        elif not found or any(map(_is_incomplete, found.values())):
            return self.whole_pipelines
        return found

    def declared(self) -> Mapping[str, Pipeline]:
        """Return the pipelines as far as they can be read without Spark: for their names, tags and calendars alone."""
        with light.without_spark(str(self.root)):
            return self._load_pipelines()

    @_once
    def whole_pipelines(self) -> Mapping[str, Pipeline]:
        """The same pipelines, with transforms that can be called."""
        return self._load_pipelines()

    def _load_pipelines(self) -> dict[str, Pipeline]:
        found: dict[str, Pipeline] = {}
        hooks: list[Hook] = []
        for module in self._modules():
            _check_no_lost(module)
            for declared in vars(module).values():
                if isinstance(declared, Pipeline) and found.get(declared.name) is not declared:
                    _add(found, declared)
                elif isinstance(declared, Hook) and declared not in hooks:
                    hooks.append(declared)
        self.hooks = tuple(hooks)
        for pipeline in found.values():
            for target in (pipeline.target, *_read_by(pipeline)):
                self._check_store(target, pipeline)
            matrix.check(pipeline.pattern, self.kind(pipeline.target.store), pipeline.name, pipeline.tests)
        return found

    def _check_store(self, target: Target, pipeline: Pipeline) -> None:
        """Refuse a target whose store is neither one of the project nor a kind."""
        if not is_kind(self.kind(target.store)):
            known = [*self.settings.stores, *kinds()]
            raise Misuse(
                f"There is no store {target.store!r}, which the pipeline {pipeline.name!r} names in {target.text!r}.",
                fix=suggestion(target.store, known),
            )

    def read_calendars(self) -> None:
        """Read the pipelines, so that all slots are shown in their zones; what cannot be read keeps none from being listed."""
        with suppress(TwiceError):
            _ = self.pipelines

    @property
    def pipelines_folder(self) -> Path:
        """Where the modules are that declare pipelines."""
        return self.root / str(self.settings["project.pipelines"])

    @property
    def is_there(self) -> bool:
        """Tell a project from a folder in which nothing was set, declared or published yet."""
        found = self.settings
        said = found.values["project.pipelines"].origin != "default"
        return bool(found.file or said or self.pipelines_folder.is_dir() or found.ledger_place.is_made())

    def _modules(self) -> list[Any]:
        folder = self.pipelines_folder
        if not folder.is_dir():
            said = self.settings.values["project.pipelines"]
            if said.origin != "default":
                raise Misuse(
                    f"project.pipelines names no folder: {said.value!r} ({said.origin}).",
                    f"There is no folder {folder}, so no pipeline could be read. Nothing was started.",
                    "Make the folder, or correct the setting.",
                )
            return []
        self.let_modules_be_found()
        return [_load(file) for file in sorted(folder.glob("*.py")) if not file.name.startswith("_")]

    def let_modules_be_found(self) -> None:
        """Let files of the project, and of its folder of pipelines, be imported by their names."""
        for place in (str(self.pipelines_folder), str(self.root)):
            if place not in sys.path:
                sys.path.insert(0, place)

    # ------------------------------------------------------------------ signals

    @_once
    def listeners(self) -> tuple[Tell, ...]:
        """Who is told what happens to runs, besides hooks."""
        from twice.signals import listeners_of

        return listeners_of(self)

    def listen(self, listener: Tell) -> None:
        """Let somebody else be told, too."""
        self._also.append(listener)

    def announce(self, event: Event) -> None:
        """Tell everybody who wants to know; nobody of them changes what happened."""
        if not self.settings["signals.enabled"]:
            return
        from twice.signals.hooks import hooks_for

        announce(event, [*self._also, *self.listeners, *hooks_for(self, event.kind)])

    def pipeline(self, name: str) -> Pipeline:
        """Return a pipeline by name.

        Raises:
            Misuse: There is no such pipeline; the nearest name is suggested.
        """
        if name not in self.pipelines:
            raise Misuse(f"There is no pipeline {name!r}.", fix=suggestion(name, self.pipelines))
        return self.pipelines[name]

    def target(self, text: str) -> Target:
        """Return a target as written, or that of the pipeline with this name.

        Raises:
            Misuse: It is neither.
        """
        if ":" in text:
            return Target.parse(text)
        if text in self.pipelines:
            return self.pipelines[text].target
        known = [*self.pipelines, *(pipeline.target.text for pipeline in self.pipelines.values())]
        raise Misuse(f"There is no target and no pipeline {text!r}.", fix=suggestion(text, known))

    def kind(self, store: str) -> str:
        """Return the kind of a store: a `[stores.X]`, or the kind itself."""
        named = self.settings.stores.get(store)
        return named.kind if named else store

    @_once
    def engine(self) -> Engine:
        """The engine, with what all stores of the project need once it is started."""
        return Engine(self.settings, self._kinds, self._spark)

    def _kinds(self) -> set[str]:
        """The kinds of all stores that a pipeline of the project reads or writes."""
        named = {store.kind for store in self.settings.stores.values()}
        for pipeline in self.pipelines.values():
            named.add(self.kind(pipeline.target.store))
            named |= {self.kind(target.store) for target in _read_by(pipeline)}
        return named

    def store(self, name: str) -> Store:
        """Return a store by its name in targets."""
        with self.opening:
            if name not in self._stores:
                named = self.settings.stores.get(name)
                root = self.root / named.root if named else self.root
                self.engine.need(self.kind(name))
                self._stores[name] = make_store(
                    self.kind(name),
                    Opening(
                        root=str(root),
                        engine=self.engine,
                        locations=_Locations(self, name),
                        views=named.views if named else "",
                        url=named.url if named else settings.url_of_kind(name),
                    ),
                )
            return self._stores[name]

    def job(self, pipeline: Pipeline, slot: Slot) -> Job:
        """Return what the executor needs to fill a slot of a pipeline."""
        matrix.check(pipeline.pattern, self.kind(pipeline.target.store), pipeline.name, pipeline.tests)

        def rows(inputs: Mapping[str, Inputs], run: Run) -> Any:
            whole = self._callable(pipeline)
            able = {
                name: chosen.with_source(whole.sources[name]) if isinstance(chosen, CallsCode) else chosen
                for name, chosen in inputs.items()
            }
            return whole.call({name: chosen.read(self.engine) for name, chosen in able.items()}, run)

        return Job(
            slot=slot,
            pattern=pipeline.pattern,
            zone=pipeline.zone,
            code=pipeline.code,
            resolve=lambda sight: self._resolved(pipeline, slot, sight),
            rows=rows,
            parameters={**pipeline.parameters, **self.engine.zone_fact},
            rerun_on_code=pipeline.on_code_change == "rerun",
            columns=pipeline.columns,
            names=pipeline.names,
            brings=pipeline.brings,
            tests=pipeline.tests,
            sibling=lambda other: self.job(pipeline, other),
            tell=self.announce,
            reads=reads_of(pipeline.sources.values()),
            under=lambda attempt: self.engine.working_for(slot, attempt),
            outside=self.outside,
            kept=self.kept,
            environments=self.settings.environments,
        )

    @property
    def kept(self) -> Kept:
        """What is kept of the steps of runs that are not published yet."""
        return Kept(str(self.settings.own_folder / "steps"), lambda: self.engine.spark)

    @property
    def outside(self) -> Outside:
        """How calls in outside systems are made."""
        said = self.settings["effects.calls"]
        if said not in ("make", "record"):
            raise Misuse(f"effects.calls={said!r} is not known.", fix="Use 'make', or 'record' to make none.")
        return Outside(lambda: self.whole_pipelines, said == "make")

    def _resolved(self, pipeline: Pipeline, slot: Slot, sight: Sight) -> Mapping[str, Inputs]:
        place = self.place(slot, pipeline.zone, pipeline.schedule, sight)
        try:
            return {name: source.resolve(place) for name, source in pipeline.sources.items()}
        except SourceFailed:
            # The function may have met a stand-in for something of PySpark.
            whole = self._callable(pipeline)
            if whole is pipeline:
                raise
            return {name: source.resolve(place) for name, source in whole.sources.items()}

    def retries_of(self, pipeline: Pipeline) -> Retries | None:
        """Return how often a pipeline's runs are tried: as it declares, as the project says, or None for once."""
        if not self.settings["retries.per_hour"]:
            return None
        if pipeline.retries:
            return pipeline.retries
        said = {name: self.settings[f"retries.{name}"] for name in ("tries", "at_once")}
        if not said["tries"]:
            return None
        texts = {name: str(self.settings[f"retries.{name}"]) for name in ("wait", "wait_at_most", "for_at_most")}
        return Retries(int(said["tries"]), int(said["at_once"]), **texts)

    def writer_of(self, slot: Slot) -> Pipeline:
        """Return the pipeline that fills a slot.

        Raises:
            Misuse: The project has none any more.
        """
        for pipeline in self.pipelines.values():
            if (pipeline.identity, pipeline.target) == (slot.pipeline, slot.target):
                return pipeline
        raise Misuse(
            f"No pipeline of the project fills {slot.text}.",
            "It was renamed, removed, or writes to another target.",
            f"A renamed pipeline says was={slot.pipeline!r}.",
        )

    def waiting(self, pipeline: Pipeline, slot: Slot) -> Waiting | None:
        """Say what a slot still waits for, without reading any of its inputs."""
        place = self.place(slot, pipeline.zone, pipeline.schedule)
        found = (source.waiting(place) for source in pipeline.sources.values() if isinstance(source, Files))
        return next(filter(None, found), None)

    def _callable(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline with a transform that can be called, if it was read with stand-ins."""
        if self.__dict__.get("pipelines", {}).get(pipeline.name) is not pipeline:
            return pipeline
        whole = self.whole_pipelines.get(pipeline.name)
        if whole is None or (whole.code, whole.target, whole.schedule) != (
            pipeline.code,
            pipeline.target,
            pipeline.schedule,
        ):
            raise Misuse(
                f"The pipeline {pipeline.name!r} is declared otherwise once PySpark is loaded.",
                "What was decided upon is not what would run, so nothing was published.",
                "Do not let declarations depend on what of PySpark can be imported.",
            )
        return whole

    def place(self, slot: Slot, zone: str, schedule: Schedule | None = None, sight: Sight | None = None) -> Place:
        """Return where the sources of a slot are resolved, on what was seen of its target."""
        hashes = _Recalls(self.ledger) if self.only_looking else self.ledger

        def taken() -> Taken:
            store = self.store(slot.target.store)
            return taken_in(store, slot.target.name, slot.text, sight or store.look(slot.target.name))

        return Place(str(self.root), slot, zone, hashes, self.store, schedule, taken)

    def close(self) -> None:
        """Stop what this project started."""
        if "engine" in self.__dict__:
            self.engine.stop()


class _Recalls:
    """Remembers nothing new."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def recall(self, keys: Sequence[str]) -> Mapping[str, str]:
        return self._ledger.recall(keys)

    def remember(self, hashes: Mapping[str, str]) -> None:
        """A look leaves no trace."""


class _Locations:
    """Remembers in the ledger where a catalog keeps its tables."""

    def __init__(self, project: Project, store: str) -> None:
        self._project = project
        self._store = store

    def get(self, name: str) -> str:
        return self._project.ledger.location(Target(self._store, name).text)

    def put(self, name: str, location: str) -> None:
        if not self._project.only_looking:
            self._project.ledger.locate(Target(self._store, name).text, location)


def _read_by(pipeline: Pipeline) -> Iterator[Target]:
    """Yield the tables of stores that a pipeline reads."""
    for source in pipeline.sources.values():
        yield from map(Target.parse, getattr(source, "reads", ()))


def _is_incomplete(pipeline: Pipeline) -> bool:
    """Tell whether a declaration, its transform aside, depends on something of Spark."""
    transform = pipeline.transform
    given = (transform.args, transform.keywords) if isinstance(transform, functools.partial) else ()
    declared = (pipeline.sources, pipeline.parameters, pipeline.pattern, pipeline.schedule, given)
    return any(light.holds_stand_in(part) for part in declared)


def _add(found: dict[str, Pipeline], pipeline: Pipeline) -> None:
    if pipeline.name in found:
        raise Misuse(f"Two pipelines are called {pipeline.name!r}.", fix="Give one of them another name=.")
    for other in found.values():
        if other.target == pipeline.target:
            raise Misuse(
                f"The pipelines {other.name!r} and {pipeline.name!r} both write {pipeline.target.text}.",
                "Each would take the other's rows for its own.",
                "Give one of them a target of its own.",
            )
    found[pipeline.name] = pipeline


def _check_no_lost(module: Any) -> None:
    """A function that is declared twice under one name leaves only the second: the first pipeline would never run.

    Raises:
        Misuse: There is one.
    """
    first: dict[tuple[str, str], int] = {}
    for node in ast.parse(Path(module.__file__).read_bytes()).body:
        if not isinstance(node, ast.FunctionDef) or not isinstance(getattr(module, node.name, None), Pipeline):
            continue
        for one in node.decorator_list:
            by = ast.unparse(one.func if isinstance(one, ast.Call) else one)
            before = first.setdefault((node.name, by), node.lineno)
            if before != node.lineno:
                raise Misuse(
                    f"{os.path.basename(module.__file__)} declares two pipelines as functions called {node.name!r}, in lines {before} and {node.lineno}.",
                    "The second takes the name of the first, which would never run.",
                    "Give one of the functions another name.",
                )


def _load(file: Path) -> Any:
    """Import one file of pipelines."""
    name = f"twice_pipelines.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise Misuse(f"{file} cannot be loaded.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as left:
        raise Misuse(f"{file.name} called exit({left.code!r}) while it was loaded.", "Nothing was started.") from left
    except TwiceError as error:
        raise type(error)(f"{error.what} (in {file.name}, line {_line(error, file)})", error.why, error.fix) from error
    except Exception as error:
        raise Misuse(
            f"{file.name}, line {_line(error, file)}: {type(error).__name__}: {error}",
            "The pipelines of this file could not be loaded, so nothing was started.",
        ) from error
    return module


def _line(error: BaseException, file: Path) -> int:
    if isinstance(error, SyntaxError):
        return error.lineno or 0
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return lines[-1] if lines else 0
