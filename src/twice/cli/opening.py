"""Which project is a command about, and which of its pipelines?

A command never works on a project that is not there: outside of one it is refused, and leaves no ledger behind.
"""

from __future__ import annotations

from pathlib import Path

from twice.cli.output import log_overrides, say
from twice.errors import Misuse
from twice.pipelines import Pipeline
from twice.project import Project


def opened(folder: str | None, *, only_looking: bool = False) -> Project:
    """Open the project around a folder, by default around the current one; it tells when it starts Spark.

    Raises:
        Misuse: There is no project.
    """
    project = Project.open(folder, only_looking=only_looking, overrides=log_overrides())
    if not project.is_there:
        raise no_project(folder or Path.cwd())
    project.engine.on_start = lambda: say(f"starting Spark ({project.settings['spark.master']})")
    return project


def no_project(folder: str | Path) -> Misuse:
    """Return what a command says that was called outside of a project."""
    return Misuse(
        f"There is no project in {folder}, or in a folder around it.",
        "A project is a folder with a twice.toml. Nothing was started.",
        "Go to your project, name it with --project FOLDER, or make one: twice init",
    )


def pipelines_named(project: Project, *names: str | None) -> list[Pipeline]:
    """Return the pipelines of these names, or all of the project where none is named.

    Raises:
        Misuse: There is no such pipeline, or the project has none at all.
    """
    wanted = [project.pipeline(name) for name in names if name]
    if not (wanted or project.pipelines):
        raise Misuse(
            f"There are no pipelines in {project.pipelines_folder}.", "Nothing was done.", "Make some with: twice init"
        )
    return wanted or list(project.pipelines.values())
