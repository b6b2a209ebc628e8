"""How does a person plan a run, and run?"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from twice.backfills import SlotEnd, sights_of
from twice.cli.completion import pipelines, times
from twice.cli.opening import opened, pipelines_chosen, selection_options
from twice.cli.options import contradicting
from twice.cli.output import (
    confirm,
    debug_option,
    is_quiet,
    log_options,
    output_option,
    print_json,
    project_option,
    say,
)
from twice.cli.results import Results, recorded
from twice.cli.walk import Walks, outcome_line, print_outlook, walk_all, warn
from twice.decide import Asked
from twice.errors import Misuse, TwiceError
from twice.forecasts import outlooks
from twice.holding import planned
from twice.jobs import Outcome
from twice.ledger import retries
from twice.pipelines import Pipeline
from twice.plans import Plan
from twice.project import Project
from twice.retrying import fill_slot
from twice.runs import Slot
from twice.upstream import upstream_first

if TYPE_CHECKING:
    from collections.abc import Callable

_BESIDES = ", or --due for all that are closed and missing"


@click.command("plan")
@click.argument("name", required=False, shell_complete=pipelines)
@click.option("--at", shell_complete=times, help="Start of the interval: a date, or a time with its offset.")
@click.option("--key", help="Batch key, for a pipeline without a calendar.")
@click.option("--due", is_flag=True, help="Plan all closed intervals that are missing or whose inputs changed.")
@selection_options
@click.option("--force", is_flag=True, help="Plan a new generation although nothing changed.")
@click.option("--accept", is_flag=True, help="Plan as if the rows were taken as they are.")
@project_option
@output_option
@debug_option
@contradicting("force", "accept", why="To accept the rows keeps them, and to force the run replaces them.")
@contradicting("due", "at", "key", why="One is about all slots that are due, the other about a single one.")
@contradicting("key", "select", "exclude", why="A key is one of a single pipeline.")
def plan_command(
    name: str | None,
    at: str | None,
    key: str | None,
    due: bool,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    force: bool,
    accept: bool,
    folder: str | None,
    output: str,
) -> int:
    """Show what a run of NAME would do, without changing anything.

    With --due or --select it tells so slot by slot, as `twice run` would take them.

    \b
    Examples:
      twice plan visits --at 2024-10-07
      twice plan --due
      twice plan --select tag:nightly --due
    """
    project = opened(folder, only_looking=True)
    if due or select or exclude:
        chosen = upstream_first(pipelines_chosen(project, [name], select, exclude))
        asked = Asked(force, accept, resuming=due, by_calendar=due)
        walks = _due_walks(project, chosen, asked) if due else _walks(chosen, at)
        return print_outlook(outlooks(project, walks, asked), asked, output)
    pipeline = _one_named(project, name, "plan")
    warn(pipeline)
    slot = pipeline.slot(at, key, now=datetime.now(UTC), besides=_BESIDES)
    considered = planned(project, pipeline, slot, Asked(force, accept))
    plan, inputs = considered.plan, considered.inputs
    if output == "json":
        print_json({"plan": plan.to_json(), "inputs": {source: one.summary for source, one in inputs.items()}})
        return 0
    print_plan(plan)
    for source, one in inputs.items():
        print(f"  reads {source}: {one.summary}")
    return 0


def _one_named(project: Project, name: str | None, command: str) -> Pipeline:
    if name is None:
        fix = f"Use twice {command} NAME --at TIME, or twice {command} --due for all that are due."
        raise Misuse("Which pipeline?", fix=fix)
    return project.pipeline(name)


def print_plan(plan: Plan, to_stderr: bool = False) -> None:
    """Print a plan for people."""
    print(plan, file=sys.stderr if to_stderr else sys.stdout, flush=True)


def _approval(yes: bool, json_output: bool) -> Callable[[Plan], None]:
    """Return what shows a plan before it is carried out, and asks where rows would go away."""

    def approve(plan: Plan) -> None:
        if plan.skips:
            return
        if not is_quiet():
            print_plan(plan, to_stderr=json_output)
        if plan.destroys:
            confirm(f"The run would replace the published rows of {plan.slot.label} ({plan.why_asks}). Go on?", yes=yes)

    return approve


@click.command("run")
@click.argument("name", required=False, shell_complete=pipelines)
@click.option("--at", shell_complete=times, help="Start of the interval: a date, or a time with its offset.")
@click.option("--key", help="Batch key, for a pipeline without a calendar.")
@click.option("--due", is_flag=True, help="Run all closed intervals that are missing or whose inputs changed.")
@selection_options
@click.option("--force", is_flag=True, help="Publish a new generation although nothing changed.")
@click.option("--accept", is_flag=True, help="Take rows that were changed from outside as they are; recorded.")
@click.option("--yes", is_flag=True, help="Replace published rows without asking.")
@project_option
@output_option
@log_options
@debug_option
@contradicting("force", "accept", why="To accept the rows keeps them, and to force the run replaces them.")
@contradicting("due", "at", "key", why="One is about all slots that are due, the other about a single one.")
@contradicting("key", "select", "exclude", why="A key is one of a single pipeline.")
def run_command(
    name: str | None,
    at: str | None,
    key: str | None,
    due: bool,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    force: bool,
    accept: bool,
    yes: bool,
    folder: str | None,
    output: str,
) -> int:
    """Fill one slot of the pipeline NAME, exactly once however often this is called.

    With --select, one slot of each pipeline that is selected, or all that are due, upstream first.

    \b
    Examples:
      twice run visits --at 2024-10-07
      twice run visits --due
      twice run --select 'tag:nightly +report' --due
      twice run visits --at 2024-10-07 --force --yes
    """
    project = opened(folder)
    if due or select or exclude:
        chosen = upstream_first(pipelines_chosen(project, [name], select, exclude))
        walks = None if due else _walks(chosen, at)
        with recorded(project, "run --due" if due else "run --select") as results:
            asked = Asked(force, accept, resuming=due, by_calendar=due)
            walks = walks or _due_walks(project, chosen, asked)
            return walk_all(project, walks, asked, output, results, yes=yes)
    pipeline = _one_named(project, name, "run")
    warn(pipeline)
    slot = pipeline.slot(at, key, now=datetime.now(UTC), besides=_BESIDES)
    with recorded(project, "run") as results:
        outcome = _outcome(project, pipeline, slot, Asked(force, accept), _approval(yes, output == "json"), results)
        results.finish(0)
    if output == "json":
        print_json({"outcome": outcome.to_json()})
    else:
        print(outcome_line(outcome))
    return 0


def _outcome(
    project: Project, pipeline: Pipeline, slot: Slot, asked: Asked, approve: Callable[[Plan], None], results: Results
) -> Outcome:
    try:
        outcome = fill_slot(project, pipeline, slot, asked, approve)
    except TwiceError as error:
        results.add(SlotEnd(slot, error=error))
        _say_what_follows(project, slot)
        raise
    results.add(SlotEnd(slot, outcome))
    return outcome


def _say_what_follows(project: Project, slot: Slot) -> None:
    """Say when a run that failed is tried again, if it is."""
    row = retries.find(project.ledger, slot.text)
    if row:
        when = (
            "set aside after its last try; see twice dead list" if row.is_dead else f"due again at {row.due_at[:19]}Z"
        )
        say(f"{slot.pipeline} {slot.label} is {when}")


def _walks(chosen: list[Pipeline], at: str | None) -> Walks:
    """Return one slot of each pipeline: the one of this time, or of a pipeline without a calendar its only one.

    Raises:
        Misuse: The time is no start of a closed interval of one of them.
    """
    now, any_calendar = datetime.now(UTC), any(pipeline.schedule for pipeline in chosen)
    times = [at if pipeline.schedule or not any_calendar else None for pipeline in chosen]
    return [
        (pipeline, [pipeline.slot(time, now=now, besides=_BESIDES)])
        for pipeline, time in zip(chosen, times, strict=True)
    ]


def _due_walks(project: Project, chosen: list[Pipeline], asked: Asked) -> Walks:
    return [(pipeline, _due(project, pipeline, asked)) for pipeline in chosen]


def _due(project: Project, pipeline: Pipeline, asked: Asked) -> list[Slot]:
    """Return the closed slots; where a whole table is replaced, those that a newer one has overtaken are over."""
    if pipeline.schedule is None:
        return [pipeline.slot()]
    closed = pipeline.schedule.closed(datetime.now(UTC))
    slots = [Slot(pipeline.identity, pipeline.target, interval) for interval in closed]
    if asked.force or not pipeline.pattern.compares_head:
        return slots
    seen = sights_of(project, pipeline, slots)
    return [slot for slot in slots if not pipeline.pattern.refusal(slot, seen[slot], forced=False)]
