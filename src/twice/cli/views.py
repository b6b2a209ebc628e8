"""How does a person look after names that stand for several tables?"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from twice.abilities import PointedAt, UnitesTables
from twice.cli.completion import pipelines, targets
from twice.cli.opening import opened
from twice.cli.options import contradicting
from twice.cli.output import confirm, debug_option, output_option, print_json, project_option, say
from twice.errors import Misuse, count
from twice.intervals import parse_moment, zone_named
from twice.patterns.fast_metadata_cleaner import PERIODS, FastMetadataCleaner
from twice.pipelines import Pipeline
from twice.project import Project
from twice.runs import Slot


@click.command("point")
@click.argument("target", shell_complete=targets)
@click.argument("version")
@click.option("--yes", is_flag=True, help="Do not ask.")
@project_option
@output_option
@debug_option
def point_command(target: str, version: str, yes: bool, folder: str | None, output: str) -> None:
    """Point the view TARGET at VERSION, by its number or its name; readers see it from then on.

    Slots whose version is newer than that are no longer vouched for, until the view points at it again.

    \b
    Examples:
      twice point delta:lake/devices 1
      twice point delta:lake/devices data/3f2a91bc-4-0b1c2d3e
    """
    from twice import api

    project = opened(folder)
    target = project.target(target).text
    found = [one for one in api.versions(target, project=project) if isinstance(one, PointedAt)]
    chosen = next((one for one in found if version in (one.name, str(one.number))), None)
    if chosen is None:
        raise Misuse(f"{target} has no version {version!r}.", fix=f"See: twice versions {target}")
    if chosen.current:
        message = f"{target} points at {chosen.name} already; nothing to do."
    else:
        confirm(f"Let {target} show {count(chosen.rows, 'row')} of {Slot.parse(chosen.slot).label}?", yes=yes)
        api.point(target, chosen.name, project=project)
        message = f"{target} points at {chosen.name} now."
    _tell(message, output, target=target, version=chosen.name)


@click.command("seal")
@click.argument("target", shell_complete=targets)
@click.option("--why", default="sealed by hand", show_default=True, help="What refused runs are told.")
@click.option("--undo", is_flag=True, help="Allow publishes again.")
@project_option
@output_option
@debug_option
@contradicting("undo", "why", why="No run is refused any more, so none is told why.")
def seal_command(target: str, why: str, undo: bool, folder: str | None, output: str) -> None:
    """Let the view TARGET refuse every further publish.

    \b
    Examples:
      twice seal delta:lake/devices --why "handed over to the archive"
      twice seal delta:lake/devices --undo
    """
    from twice import api

    project = opened(folder)
    target = project.target(target).text
    api.seal(target, "" if undo else why, project=project)
    _tell(f"{target} {'takes publishes again' if undo else 'takes no more publishes'}.", output, target=target)


@click.command("freeze")
@click.argument("name", shell_complete=pipelines)
@click.option("--into", required=True, type=click.Choice(PERIODS[1:]), help="The larger period.")
@click.option("--before", required=True, help="Only larger periods that end at or before this time.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@project_option
@output_option
@debug_option
def freeze_command(
    name: str, into: str, before: str, dry_run: bool, yes: bool, folder: str | None, output: str
) -> None:
    """Unite the tables of old periods of the pipeline NAME in larger ones.

    Readers see the same rows. Slots of a frozen period stay vouched for, and take no new edition.
    Interrupted, it is completed by running it again.

    \b
    Example:
      twice freeze visits --into year --before 2024-01-01
    """
    project = opened(folder, only_looking=dry_run)
    pipeline = project.pipeline(name)
    groups = _groups(project, pipeline, into, parse_moment(before, zone_named(pipeline.zone)))
    if not groups:
        _tell(f"{name} has no periods that a {into} before {before} would unite.", output, frozen={})
        return
    lines = [
        f"{label}: {count(len(members), 'table')} ({members[0]} to {members[-1]})" for label, members in groups.items()
    ]
    if dry_run:
        _tell("Would be frozen:\n  " + "\n  ".join(lines), output, frozen=groups)
        return
    confirm(f"Freeze {count(sum(map(len, groups.values())), 'table')} into {', '.join(groups)}?", yes=yes)
    store = _uniting(project, pipeline)
    for label, members in groups.items():
        say(f"freezing {count(len(members), 'table')} into {label}")
        store.freeze(pipeline.target.name, label, members, project.ledger.id)
    _tell("Frozen:\n  " + "\n  ".join(lines), output, frozen=groups)


def _groups(project: Project, pipeline: Pipeline, into: str, before: datetime) -> dict[str, list[str]]:
    """Return the periods that each larger period unites."""
    pattern = pipeline.pattern
    if not isinstance(pattern, FastMetadataCleaner):
        raise Misuse(f"The pipeline {pipeline.name!r} has no periods.", fix="fast_metadata_cleaner makes them.")
    return pattern.larger(into, _uniting(project, pipeline).members(pipeline.target.name), pipeline.zone, before)


def _uniting(project: Project, pipeline: Pipeline) -> UnitesTables:
    store = project.store(pipeline.target.store)
    if not isinstance(store, UnitesTables):
        raise Misuse(f"{pipeline.target.text} is no view of several tables.")
    return store


@click.command("evolve")
@click.argument("name", shell_complete=pipelines)
@click.option("--add", "column", required=True, help="Name and type of the new column, such as 'country string'.")
@project_option
@output_option
@debug_option
def evolve_command(name: str, column: str, folder: str | None, output: str) -> None:
    """Add an optional column to the tables of all periods of the pipeline NAME; old rows hold NULL in it.

    \b
    Example:
      twice evolve visits --add "country string"
    """
    project = opened(folder)
    pipeline = project.pipeline(name)
    named, _, kind = column.strip().partition(" ")
    if not kind.strip():
        raise Misuse(f"{column!r} is not a name and a type.", fix="For example: --add 'country string'")
    changed = _uniting(project, pipeline).add_column(pipeline.target.name, named, kind.strip(), project.ledger.id)
    _tell(f"The column {named} was added to {count(len(changed), 'table')}.", output, tables=changed)


def _tell(message: str, output: str, **facts: Any) -> None:
    if output == "json":
        print_json({**facts, "message": message})
    else:
        print(message)
