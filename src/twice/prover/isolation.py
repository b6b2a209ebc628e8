"""What of a project goes into a world, and what keeps it from being isolated?

A proof never touches the user's target, so all that a run reads or writes is copied into a temporary
folder. Whatever cannot be copied is refused before anything runs, with what to do about it.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from twice import settings
from twice.errors import NotProvable
from twice.ledger.places import SqlitePlace
from twice.pipelines import Pipeline
from twice.placeholders import as_wildcards
from twice.project import Project
from twice.prover.codes import Code
from twice.prover.databases import KIND
from twice.prover.verdicts import NOT_PROVABLE, Trouble
from twice.runs import Slot, Target
from twice.sources.files import Files
from twice.sources.queries import Query
from twice.sources.tracked import Tracked

_LEFT_OUT = frozenset({".git", ".hg", ".svn", ".venv", "venv", ".tox", "node_modules", "__pycache__", ".twice"})
_CACHES = frozenset({".mypy_cache", ".ruff_cache", ".pytest_cache", "spark-warehouse", "metastore_db", ".idea"})
_MOST_BYTES = 512 << 20
_MOST_INPUT_BYTES = 32 << 20
_EFFECTS = frozenset(
    [
        "requests",
        "httpx",
        "urllib",
        "urllib3",
        "aiohttp",
        "smtplib",
        "boto3",
        "botocore",
        "psycopg",
        "psycopg2",
        "socket",
        "ftplib",
        "paramiko",
        "kafka",
        "confluent_kafka",
        "slack_sdk",
        "redis",
        "pymongo",
        "sqlalchemy",
        "mysql",
        "pymysql",
        "google",
        "azure",
        "http",
    ]
)
_OUTSIDE_WRITERS = ("write.jdbc", "writer.jdbc")
_URL = re.compile(r"^(?:s3a?|gs|abfss?|hdfs|wasbs?|jdbc|https?|kafka)://|^jdbc:")


def check_provable(project: Project, pipeline: Pipeline) -> None:
    """Refuse a pipeline whose target or sources cannot be copied into a world.

    Raises:
        NotProvable: With what to do about it.
    """
    _check_target(project, pipeline)
    for name, source in pipeline.sources.items():
        if isinstance(source, Query) and source.fingerprint is not None:
            raise NotProvable(
                f"The source {name!r} of {pipeline.name} is a query of Spark's catalog, which cannot be copied.",
                "A proof runs in temporary copies, never on the real tables.",
                "Name what it reads with tables=, or prove a pipeline that reads files.",
            )
        for target in getattr(source, "reads", ()):
            _check_source(project, Target.parse(target), f"The source {name!r} of {pipeline.name}")


def _check_target(project: Project, pipeline: Pipeline) -> None:
    _check_path(project, pipeline.target, f"The target of {pipeline.name}")
    named = project.settings.stores.get(pipeline.target.store)
    if named and named.views:
        raise NotProvable(
            f"[stores.{named.name}] keeps SQL views in the schema {named.views!r} of Spark's catalog.",
            "A proof would change them.",
            "Prove with a project file that leaves views= out.",
        )


def _check_source(project: Project, target: Target, what: str) -> None:
    if project.kind(target.store) == KIND:
        raise NotProvable(
            f"{what} is {target.text}, a table of a PostgreSQL server.",
            "A proof never speaks to the real server, and does not copy its tables.",
            "Prove a pipeline that reads files.",
        )
    _check_path(project, target, what)


def _check_path(project: Project, target: Target, what: str) -> None:
    if project.kind(target.store) not in ("memory", KIND) and not target.is_path:
        raise NotProvable(
            f"{what} is {target.text}, a name in a catalog.",
            "A proof runs on copies, and a catalog's tables cannot be copied aside.",
            f"Write it as a path for the proof, such as {target.store}:lake/{target.name}.",
        )


def outside_effect(pipeline: Pipeline) -> Trouble | None:
    """Say what a run would do outside of its world: it is repeated dozens of times, and so would that be."""
    code = Code(pipeline)
    for called, node in code.calls():
        module = code.imports.get(called.partition(".")[0], "").partition(".")[0]
        if module in _EFFECTS or called.endswith(_OUTSIDE_WRITERS):
            return Trouble(
                NOT_PROVABLE,
                f"The transform of {pipeline.name} calls {called}() (line {node.lineno}): an effect outside of the table. "
                "It has no key by which a repeat could be told, and a proof would repeat it dozens of times. "
                "Register it with run.effect(...): it then has a key, is called after the publish, and a proof calls nothing.",
            )
    declared = {source.pattern for source in pipeline.files}
    for text, line in code.texts():
        if text not in declared and _leaves_the_world(text):
            return Trouble(
                NOT_PROVABLE,
                f"The transform of {pipeline.name} names {text!r} (line {line}), which is outside of the project. "
                "A proof runs the transform dozens of times and could not keep it away from there. "
                "Make it a path relative to the project's folder.",
            )
    return None


def _leaves_the_world(text: str) -> bool:
    if _URL.match(text):
        return True
    place = Path(text)
    # "/prices" may be a page of a web site: what names no folder of this machine is no path.
    return text.startswith("/") and len(place.parts) > 1 and Path(*place.parts[:2]).is_dir() and "\n" not in text


def copy_project(project: Project, world: Path) -> list[str]:
    """Copy code and whatever lies beside it, without targets, ledger and files that are inputs of some slot."""
    root = project.root
    kept_away = {str(path) for path in _tables_of(project)}
    ledger = project.settings.ledger_place
    if isinstance(ledger, SqlitePlace):
        kept_away.add(os.path.dirname(ledger.path))
    kept_away |= {str(root / name) for name in _all_inputs(project)}
    copied = 0

    def left_out(folder: str, names: list[str]) -> set[str]:
        nonlocal copied
        out = {name for name in names if name in _LEFT_OUT | _CACHES or os.path.join(folder, name) in kept_away}
        sizes = (
            os.path.getsize(path) for n in names if n not in out and os.path.isfile(path := os.path.join(folder, n))
        )
        copied += sum(sizes)
        if copied > _MOST_BYTES:
            raise NotProvable(
                f"The project's folder holds more than {_MOST_BYTES >> 20} MB besides its inputs and targets, in {folder}.",
                "Every try of a proof works on a copy of it.",
                "Keep data outside of the project's folder, or declare it as the input of a pipeline.",
            )
        return out

    shutil.copytree(root, world, ignore=left_out, symlinks=False, ignore_dangling_symlinks=True, dirs_exist_ok=True)
    return _bring_stores_home(project, world)


def _tables_of(project: Project) -> Iterable[Path]:
    for pipeline in project.pipelines.values():
        named = project.settings.stores.get(pipeline.target.store)
        yield (project.root / named.root if named else project.root) / pipeline.target.name


def _all_inputs(project: Project) -> Iterable[str]:
    """Name the files that any slot of any pipeline reads: a world gets those of its own slots alone."""
    for pipeline in project.pipelines.values():
        for source in pipeline.files:
            if pipeline.tracked or "{" in source.pattern:
                yield from glob.iglob(as_wildcards(source.pattern), root_dir=project.root, recursive=True)


def _bring_stores_home(project: Project, world: Path) -> list[str]:
    """Let stores with a root outside of the project's folder have one in the world."""
    notes = []
    file = world / settings.FILE
    for store in project.settings.stores.values():
        if not (os.path.isabs(store.root) or store.root.startswith("..")):
            continue
        text = file.read_text(encoding="utf-8")
        of = rf"(?:env\.{re.escape(project.settings.env)}\.)?stores\.{re.escape(store.name)}"
        section = re.compile(rf"(\[{of}\][^\[]*?\broot\s*=\s*)(\"[^\"]*\"|'[^']*')")
        home = f".outside/{store.name}"
        file.write_text(section.sub(rf'\1"{home}"', text), encoding="utf-8")
        if settings.load(world, env=project.settings.env or None).stores[store.name].root != home:
            raise NotProvable(
                f"The root of [stores.{store.name}] is {store.root}, outside of the project.",
                "A proof could not put a folder of the world in its place.",
                'Write it on one line: root = "..."',
            )
        notes.append(f"the store {store.name!r} was given a root in each world, in place of {store.root}")
    return notes


def copy_inputs(project: Project, pipeline: Pipeline, slots: Sequence[Slot], world: Path) -> list[str]:
    """Copy the files and tables that some slots read, or a sample of the files where they are large."""
    notes: list[str] = []
    for files in pipeline.files:
        for slot in slots:
            place = project.place(slot, pipeline.zone, pipeline.schedule)
            notes += _copy_files(files.counts_for(place), project.root, world)
    for name, source in pipeline.sources.items():
        if not (isinstance(source, Files | Tracked) or hasattr(source, "reads")):
            notes.append(f"the source {name!r} is called as it is: what it reads elsewhere is not copied")
        for target in getattr(source, "reads", ()):
            _copy_table(project, Target.parse(target), world)
    return list(dict.fromkeys(notes))


def _copy_files(names: Sequence[str], root: Path, world: Path) -> list[str]:
    left = _MOST_INPUT_BYTES
    notes: list[str] = []
    for name in names:
        if os.path.isabs(name) or name.startswith(".."):
            return [f"inputs outside of the project are read where they are ({name})"]
        if left <= 0:
            return [*notes, f"a sample of the inputs: {name} and what follows it was left out"]
        size = os.path.getsize(root / name)
        (world / name).parent.mkdir(parents=True, exist_ok=True)
        if size > left and _is_text(name):
            _copy_lines(root / name, world / name, left)
            notes.append(f"a sample of the inputs: the first {left >> 20} MB of {name}")
        else:
            shutil.copy2(root / name, world / name)
        left -= size
    return notes


def _is_text(name: str) -> bool:
    return name.endswith((".csv", ".tsv", ".json", ".jsonl", ".ndjson"))


def _copy_lines(source: Path, to: Path, most_bytes: int) -> None:
    """Copy whole lines from the beginning of a file."""
    with source.open("rb") as lines, to.open("wb") as copy:
        for line in lines:
            most_bytes -= len(line)
            if most_bytes < 0:
                return
            copy.write(line)


def _copy_table(project: Project, target: Target, world: Path) -> None:
    named = project.settings.stores.get(target.store)
    home = Path(named.root) if named else Path()
    inside = Path(".outside", named.name) if named and (home.is_absolute() or ".." in home.parts) else home
    source, to = project.root / home / target.name, world / inside / target.name
    if source.is_dir() and not to.exists():
        shutil.copytree(source, to)
