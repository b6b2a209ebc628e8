"""Is everything there that a run needs?"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import click

from twice.abilities import KnowsColumns
from twice.cli.opening import no_project
from twice.cli.output import chosen_env, debug_option, output_option, print_json, print_table, project_option
from twice.columns import unknown_columns
from twice.errors import Misuse, TwiceError
from twice.pipelines import Pipeline
from twice.project import Project

_JAVA = 17
_ROOM_BYTES = 1 << 30


@dataclass(frozen=True)
class Check:
    """One thing that a run needs, and whether it is there."""

    name: str
    fine: bool
    found: str


@click.command("doctor")
@project_option
@output_option
@debug_option
def doctor_command(folder: str | None, output: str) -> int:
    """See whether everything that a run needs is there; exit 2 if something is not.

    \b
    Example:
      twice doctor
    """
    project = Project.open(folder, only_looking=True, env=chosen_env())
    checks = [
        _check("python", _python),
        _check("java", _java),
        _check("pyspark", _pyspark),
        _check("project", lambda: _project(project)),
        _check("pipelines", lambda: ", ".join(project.pipelines) or "none yet"),
        _check("jvm packages", lambda: _jars(project)),
        _check("postgresql", lambda: _postgresql(project)),
        _check("ledger", lambda: _ledger(project)),
        _check("disk", lambda: _disk(str(project.root))),
        *(_check(f"pipeline {one.name}", partial(_pipeline, project, one)) for one in _readable(project)),
    ]
    if output == "json":
        print_json({"checks": [asdict(check) for check in checks]})
    else:
        print_table(["check", "", "found"], [[c.name, "ok" if c.fine else "NO", c.found] for c in checks], empty="")
    return 0 if all(check.fine for check in checks) else 2


def _readable(project: Project) -> list[Pipeline]:
    """Return the pipelines, none if they cannot be read: that is told already."""
    try:
        return list(project.pipelines.values())
    except TwiceError:
        return []


def _check(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, fine=True, found=look())
    except TwiceError as error:
        return Check(name, fine=False, found=" ".join(str(error).split()))
    except Exception as error:  # noqa: BLE001 - a doctor reports what it finds
        return Check(name, fine=False, found=f"{type(error).__name__}: {error}")


def _project(project: Project) -> str:
    if not project.is_there:
        raise no_project(project.root)
    found = project.settings
    where = str(found.file or f"{project.root} (no twice.toml, defaults)")
    return f"{where}, environment {found.env}" if found.env else where


def _python() -> str:
    return sys.version.split()[0]


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java:
        raise Misuse("Java was not found.", fix="Install Java 17, or set JAVA_HOME.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr  # noqa: S603
    number = re.search(r'version "(\d+)', said)
    if not number or int(number[1]) < _JAVA:
        raise Misuse(
            f"Java is too old: {said.splitlines()[0] if said else 'no answer'}.", fix="Spark 4 needs Java 17 or newer."
        )
    return said.splitlines()[0]


def _pyspark() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise Misuse("PySpark is not installed.", fix="pip install 'twice[delta]'") from None


def _postgresql(project: Project) -> str:
    """Tell whether the packages that speak to PostgreSQL are there, if a pipeline needs them."""
    from importlib.metadata import PackageNotFoundError, version

    if "postgres" not in project.engine.kinds:
        return "not needed"
    try:
        return f"psycopg {version('psycopg')}, ADBC {version('adbc-driver-postgresql')}"
    except PackageNotFoundError as error:
        raise Misuse(f"{error.name} is not installed.", fix="pip install 'twice[postgres]'") from None


def _jars(project: Project) -> str:
    from twice import jars

    if project.settings["jars.from"] == "cluster":
        return "brought by the cluster"
    wanted = sorted(project.engine.kinds & set(jars.configurations()))
    if project.settings["jars.folder"]:
        folder = project.root / str(project.settings["jars.folder"])
        found = [jar.name for kind in wanted for jar in jars.in_folder(folder, kind)]
        return f"{', '.join(found) or 'none needed'} in {folder}"
    missing = [kind for kind in wanted if not jars.cached(kind)]
    if missing:
        return f"{', '.join(missing)} will be fetched at first need (or now: twice jars fetch)"
    return ", ".join(wanted) or "none needed"


def _ledger(project: Project) -> str:
    place = project.settings.ledger_place
    return f"{place.shown} ({project.ledger.id[:8] if place.is_made() else 'not made yet'})"


def _disk(place: str) -> str:
    free = shutil.disk_usage(place).free
    if free < _ROOM_BYTES:
        raise Misuse(f"Only {free:,} bytes are free.", fix="Make room: a full disk fails every run.")
    return f"{free / 1e9:,.0f} GB free"


def _pipeline(project: Project, pipeline: Pipeline) -> str:
    """Say where the target of a pipeline is; refuse one of another ledger, and names of columns that are none."""
    store, target = project.store(pipeline.target.store), pipeline.target
    sight = store.look(target.name)
    if sight.owner not in ("", project.ledger.id):
        raise Misuse(f"{target.text} belongs to another ledger.", fix="See twice ledger rebuild and twice adopt.")
    there = store.column_names(target.name) if isinstance(store, KnowsColumns) and pipeline.names else ()
    trouble = unknown_columns(pipeline.names, there, pipeline.brings(), pipeline.columns, target.text)
    if trouble:
        raise trouble
    return "; ".join(
        [f"{target.text} {f'at version {sight.version}' if sight.exists else 'not made yet'}", *pipeline.warnings]
    )
