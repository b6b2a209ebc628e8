"""Which project is a command about, and which of its pipelines?

A command never works on a project that is not there: outside of one it is refused, and leaves no ledger behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from twice.cli.completion import selectors
from twice.cli.options import refuse_for
from twice.cli.output import chosen_env, is_quiet, log_overrides, say
from twice.cli.selection import selected
from twice.errors import Misuse
from twice.pipelines import Pipeline
from twice.project import Project


def opened(folder: str | None, *, only_looking: bool = False) -> Project:
    """Open the project around a folder, by default around the current one; it tells when it starts Spark.

    Raises:
        Misuse: There is no project.
    """
    project = Project.open(folder, only_looking=only_looking, overrides=log_overrides(), env=chosen_env())
    if not project.is_there:
        raise no_project(folder or Path.cwd())
    if not is_quiet():  # asked here: a thread of a backfill, which may be the one to start Spark, knows no command
        project.engine.on_start = lambda: say(f"starting Spark ({project.settings['spark.master']})")
    return project


def no_project(folder: str | Path) -> Misuse:
    """Return what a command says that was called outside of a project."""
    return Misuse(
        f"There is no project in {folder}, or in a folder around it.",
        "A project is a folder with a twice.toml. Nothing was started.",
        "Go to your project, name it with --project FOLDER, or make one: twice init",
    )


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--select` and `--exclude`, for `pipelines_chosen`."""
    command = click.option(
        "--exclude",
        multiple=True,
        metavar="SELECTOR",
        shell_complete=selectors,
        help="Leave out what matches; written like --select.",
    )(command)
    return click.option(
        "--select",
        "-s",
        multiple=True,
        metavar="SELECTOR",
        shell_complete=selectors,
        help="Pipelines by name, glob or tag:NAME; +NAME with all upstream, NAME+ with all downstream.",
    )(command)


def pipelines_chosen(
    project: Project, names: Sequence[str | None], select: Sequence[str], exclude: Sequence[str]
) -> list[Pipeline]:
    """Return the pipelines of these names, or those that are selected, or all where neither is said.

    Raises:
        Misuse: Both are said, there is no such pipeline, or the project has none at all.
    """
    given = [name for name in names if name]
    if given:
        refuse_for(given[0], "select", "exclude", why="One names pipelines, the other selects among all.")
    every = pipelines_named(project, *given)
    return selected(every, select, exclude) if select or exclude else every


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
