"""What does a shell offer when Tab is pressed?

Names, tags and times come from the declarations of the project, read without Spark and without asking a store. Whatever goes
wrong while they are read, nothing is offered and nothing is printed into the prompt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

if TYPE_CHECKING:
    from twice.intervals import Schedule
    from twice.project import Project

VARIABLE = "_TWICE_COMPLETE"
_MOST_SLOTS, _MOST_LOOKED_AT = 30, 2000
_MOMENT = timedelta(microseconds=1)
# Bash takes a colon for the end of a word, and `tag:nightly` or a time for two of them.
_BEFORE = {"bash": "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n"}


@dataclass(frozen=True)
class _Line:
    """What is typed: the project that it is about, what stands before, and the word that was begun."""

    project: Project
    context: click.Context
    begun: str

    @property
    def names(self) -> list[str]:
        """The words that may name pipelines; behind an option that has no value yet they are not parsed."""
        given = self.context.params
        parsed = (given.get("name"), given.get("what"), *(given.get("names") or ()))
        return [name for name in (*parsed, *self.context.args) if name]


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print the script that lets SHELL complete commands, options, pipelines, tags and times.

    \b
    Examples, each a line for the start of your shell:
      eval "$(twice completion bash)"
      eval "$(twice completion zsh)"
      twice completion fish | source
    """
    from twice.cli import cli

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"click does not know the shell {shell!r}.")
    script = found(cli, {}, "twice", VARIABLE)
    print(_BEFORE.get(shell, "") + script.source_template % script.source_vars())


def _offering(words: Callable[[_Line], Iterable[str]]) -> Callable[..., list[str]]:
    """Return what offers the words of a project that go on as it was begun; nothing if they cannot be read."""

    def offered(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
        from twice.cli.output import chosen_env
        from twice.project import Project

        with (
            open(os.devnull, "w", encoding="utf-8") as nowhere,
            redirect_stdout(nowhere),
            redirect_stderr(nowhere),
            suppress(Exception),
        ):
            project = Project.open(context.params.get("folder"), only_looking=True, env=chosen_env(context))
            found = words(_Line(project, context, begun))
            return [word for word in found if word.startswith(begun)]
        return []

    return offered


@_offering
def pipelines(line: _Line) -> Iterable[str]:
    """Offer names of pipelines that the line does not have yet."""
    return (name for name in line.project.declared() if name not in line.names)


@_offering
def targets(line: _Line) -> Iterable[str]:
    """Offer names of pipelines, and their targets."""
    found = line.project.declared()
    return (*found, *dict.fromkeys(pipeline.target.text for pipeline in found.values()))


@_offering
def selectors(line: _Line) -> Iterable[str]:
    """Offer names and tags, behind what stands before the last selector."""
    before = re.match(r"(?:.*[ ,])?\+?", line.begun)
    found = line.project.declared()
    tags = sorted({f"tag:{tag}" for pipeline in found.values() for tag in pipeline.tags})
    return (f"{before[0] if before else ''}{word}" for word in (*found, *tags))


@_offering
def times(line: _Line) -> Iterable[str]:
    """Offer the starts of closed intervals, newest first: of the pipeline on the line, else of the first with a calendar."""
    found = line.project.declared()
    chosen = [found[name] for name in line.names if name in found] or found.values()
    schedule = next((pipeline.schedule for pipeline in chosen if pipeline.schedule), None)
    words = islice(_closed(schedule, datetime.now(UTC)), _MOST_LOOKED_AT) if schedule else ()
    return islice((word for word in words if word.startswith(line.begun)), _MOST_SLOTS)


@_offering
def environments(line: _Line) -> Iterable[str]:
    """Offer the environments of the project."""
    return line.project.settings.environments


def _closed(schedule: Schedule, now: datetime) -> Iterator[str]:
    """Yield the starts of closed intervals, newest first; midnight by the date alone, as people write it."""
    interval = schedule.newest_closed(now)
    while interval:
        local = interval.start.astimezone(schedule.tz)
        yield (
            f"{local:%Y-%m-%d}" if not (local.hour or local.minute or local.second) else schedule.shown(interval.start)
        )
        before = interval.start - _MOMENT
        interval = schedule.around(before) if before >= schedule.first else None
