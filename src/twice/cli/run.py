"""How does a person plan a run, and run?"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from twice.backfills import SlotEnd, sights_of
from twice.cli.opening import opened, pipelines_named
from twice.cli.options import contradicting
from twice.cli.output import confirm, debug_option, log_options, output_option, print_json, project_option, say
from twice.cli.results import Results, recorded
from twice.cli.walk import Walked, approve_all, outcome_line, plans_of, summary, walk, warn
from twice.decide import Asked
from twice.errors import Misuse, TwiceError
from twice.holding import planned
from twice.jobs import Outcome
from twice.ledger import retries
from twice.pipelines import Pipeline
from twice.plans import Plan
from twice.project import Project
from twice.retrying import fill_slot
from twice.runs import Slot
from twice.upstream import upstream_first, upstream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@click.command("plan")
@click.argument("name")
@click.option("--at", help="Start of the interval: a date, or a time with its offset.")
@click.option("--key", help="Batch key, for a pipeline without a calendar.")
@click.option("--force", is_flag=True, help="Plan a new generation although nothing changed.")
@click.option("--accept", is_flag=True, help="Plan as if the rows were taken as they are.")
@project_option
@output_option
@debug_option
@contradicting("force", "accept", why="To accept the rows keeps them, and to force the run replaces them.")
def plan_command(
    name: str, at: str | None, key: str | None, force: bool, accept: bool, folder: str | None, output: str
) -> None:
    """Say what a run of NAME would do, and change nothing.

    \b
    Example:
      twice plan visits --at 2024-10-07
    """
    project = opened(folder, only_looking=True)
    pipeline = project.pipeline(name)
    warn(pipeline)
    slot = pipeline.slot(at, key, now=datetime.now(UTC))
    considered = planned(project, pipeline, slot, Asked(force, accept))
    plan, inputs = considered.plan, considered.inputs
    if output == "json":
        print_json({"plan": plan.to_json(), "inputs": {name: chosen.summary for name, chosen in inputs.items()}})
        return
    print_plan(plan)
    for source, chosen in inputs.items():
        print(f"  reads {source}: {chosen.summary}")


def print_plan(plan: Plan, to_stderr: bool = False) -> None:
    """Print a plan for people."""
    print(plan, file=sys.stderr if to_stderr else sys.stdout, flush=True)


def _approval(yes: bool, json_output: bool) -> Callable[[Plan], None]:
    """Return what shows a plan before it is carried out, and asks where rows would go away."""

    def approve(plan: Plan) -> None:
        if plan.skips:
            return
        print_plan(plan, to_stderr=json_output)
        if plan.destroys:
            confirm(f"The run would replace the published rows of {plan.slot.label} ({plan.why_asks}). Go on?", yes=yes)

    return approve


@click.command("run")
@click.argument("name", required=False)
@click.option("--at", help="Start of the interval: a date, or a time with its offset.")
@click.option("--key", help="Batch key, for a pipeline without a calendar.")
@click.option("--due", is_flag=True, help="Run all closed intervals that are missing or whose inputs changed.")
@click.option("--force", is_flag=True, help="Publish a new generation although nothing changed.")
@click.option("--accept", is_flag=True, help="Take rows that were changed from outside as they are; recorded.")
@click.option("--yes", is_flag=True, help="Replace published rows without asking.")
@project_option
@output_option
@log_options
@debug_option
@contradicting("force", "accept", why="To accept the rows keeps them, and to force the run replaces them.")
@contradicting("due", "at", "key", why="One is about all slots that are due, the other about a single one.")
def run_command(
    name: str | None,
    at: str | None,
    key: str | None,
    due: bool,
    force: bool,
    accept: bool,
    yes: bool,
    folder: str | None,
    output: str,
) -> int:
    """Fill one slot of the pipeline NAME, exactly once however often this is called.

    \b
    Examples:
      twice run visits --at 2024-10-07
      twice run visits --due
      twice run visits --at 2024-10-07 --force --yes
    """
    project = opened(folder)
    if due:
        chosen = upstream_first(pipelines_named(project, name))
        with recorded(project, "run --due") as results:
            asked = Asked(force, accept, resuming=True, by_calendar=True)
            return _run_due(project, chosen, asked, yes, output, results)
    if name is None:
        raise Misuse("Which pipeline?", fix="Use twice run NAME --at TIME, or twice run --due for all that are due.")
    pipeline = project.pipeline(name)
    warn(pipeline)
    slot = pipeline.slot(at, key, now=datetime.now(UTC), besides=", or --due for all that are closed and missing")
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


def _run_due(project: Project, chosen: list[Pipeline], asked: Asked, yes: bool, output: str, results: Results) -> int:
    due = {pipeline.name: _due(project, pipeline, asked) for pipeline in chosen}
    for pipeline in chosen:
        warn(pipeline)
    agreed = _approve_due(project, chosen, due, asked) if not yes else {}
    walked = Walked(sum(map(len, due.values())))
    ends = []
    for pipeline in chosen:
        ends += _walked(
            project, pipeline, due[pipeline.name], asked, output, results, agreed.get(pipeline.name), walked
        )
    code = summary(ends, output, not_reached=walked.total - len(ends), waiting_is_fine=True)
    results.finish(code)
    return code


def _walked(
    project: Project,
    pipeline: Pipeline,
    due: list[Slot],
    asked: Asked,
    output: str,
    results: Results,
    approve: Callable[[Plan], None] | None,
    walked: Walked,
) -> list[SlotEnd]:
    """Fill what is due; an ingest takes in one batch after the other, until no file is left."""
    ends = walk(project, pipeline, due, asked, output, results, approve=approve, walked=walked)
    while pipeline.tracked and ends and ends[-1].outcome and ends[-1].outcome.left:
        walked.total += len(due)
        ends += walk(project, pipeline, due, asked, output, results, approve=approve, walked=walked)
    return ends


def _approve_due(
    project: Project, chosen: list[Pipeline], due: Mapping[str, list[Slot]], asked: Asked
) -> dict[str, Callable[[Plan], None]]:
    """Ask before anything starts, also for what is replaced only since something upstream is published first."""
    writers: list[Pipeline] = []
    agreed = {}
    for pipeline in chosen:
        plans = plans_of(project, pipeline, due[pipeline.name], asked)
        replaced = {plan.slot: plan.why_asks for plan in plans if plan.destroys}
        before = upstream_of(pipeline, writers)
        if before:
            why = f"{before[0].target.text}, which it reads, is published first"
            replaced |= {plan.slot: why for plan in plans if _is_done_again(pipeline, plan)}
        if replaced or not all(plan.skips for plan in plans):
            writers.append(pipeline)
        agreed[pipeline.name] = approve_all(replaced, len(due[pipeline.name]))
    return agreed


def _is_done_again(pipeline: Pipeline, plan: Plan) -> bool:
    """Tell whether a slot that is fine now loses its rows to new ones once its inputs have changed."""
    pattern, receipt = pipeline.pattern, plan.base.receipt(plan.slot.text)
    lasts = not plan.skips or pattern.superseded(plan.slot, plan.base)
    if pattern.takes_in:
        return False
    return not lasts and (pattern.builds_on_all or pattern.action(receipt) == "replace")


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
