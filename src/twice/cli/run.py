"""How does a person plan, run and backfill?"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from twice.backfills import SlotEnd, fill, sights_of, slots_between, worst
from twice.cli.output import confirm, count, debug_option, output_option, print_json, project_option, say
from twice.decide import Asked
from twice.errors import Misuse, TwiceError, Waiting
from twice.execute import consider, execute
from twice.jobs import Outcome
from twice.pipelines import Pipeline
from twice.plans import Plan
from twice.project import Project
from twice.runs import Slot

if TYPE_CHECKING:
    from collections.abc import Callable


def _open(folder: str | None, *, only_looking: bool = False) -> Project:
    project = Project.open(folder, only_looking=only_looking)
    project.engine.on_start = lambda: say(f"starting Spark ({project.settings['spark.master']})")
    return project


def _warn(pipeline: Pipeline) -> None:
    for warning in pipeline.warnings:
        say(f"warning: {warning}")


@click.command("plan")
@click.argument("name")
@click.option("--at", help="Start of the interval: a date, or a time with its offset.")
@click.option("--key", help="Batch key, for a pipeline without a calendar.")
@click.option("--force", is_flag=True, help="Plan a new generation although nothing changed.")
@click.option("--accept", is_flag=True, help="Plan as if the rows were taken as they are.")
@project_option
@output_option
@debug_option
def plan_command(
    name: str, at: str | None, key: str | None, force: bool, accept: bool, folder: str | None, output: str
) -> None:
    """Say what a run of NAME would do, and change nothing.

    \b
    Example:
      twice plan visits --at 2024-10-07
    """
    project = _open(folder, only_looking=True)
    pipeline = project.pipeline(name)
    _warn(pipeline)
    slot = pipeline.slot(at, key, now=datetime.now(UTC))
    job = project.job(pipeline, slot)
    considered = consider(job, project.store(slot.target.store), project.ledger, Asked(force, accept))
    plan, inputs = considered.plan, considered.inputs
    if output == "json":
        print_json({"plan": plan.to_json(), "inputs": {name: chosen.summary for name, chosen in inputs.items()}})
        return
    print_plan(plan)
    for source, chosen in inputs.items():
        print(f"  reads {source}: {chosen.summary}")


def print_plan(plan: Plan, to_stderr: bool = False) -> None:
    """Print a plan for people."""
    stream = sys.stderr if to_stderr else sys.stdout
    version = f"version {plan.base.version}" if plan.base.exists else "no table yet"
    print(f"{plan.slot.pipeline} -> {plan.slot.target.text}  ({plan.pattern}, {version})", file=stream)
    print(f"  slot {plan.slot.part_text}", file=stream)
    print(f"  {plan.action}: {plan.reason} (generation {plan.generation})", file=stream)
    for number, step in enumerate(plan.steps, 1):
        print(f"  {number}. {step.name:9} {step.text}", file=stream)
    for note in plan.notes:
        print(f"  note: {note}", file=stream)
    print(f"  plan {plan.hash}", file=stream, flush=True)


def _approval(yes: bool, json_output: bool) -> Callable[[Plan], None]:
    """Return what shows a plan before it is carried out, and asks where rows would go away."""

    def approve(plan: Plan) -> None:
        if plan.skips:
            return
        print_plan(plan, to_stderr=json_output)
        if plan.destroys:
            confirm(f"The run would replace the published rows of {plan.slot.label} ({plan.reason}). Go on?", yes=yes)

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
@debug_option
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
    project = _open(folder)
    if due:
        return _run_due(project, name, Asked(force, accept, resuming=True), yes, output)
    if name is None:
        raise Misuse("Which pipeline?", fix="Use twice run NAME --at TIME, or twice run --due for all that are due.")
    pipeline = project.pipeline(name)
    _warn(pipeline)
    slot = pipeline.slot(at, key, now=datetime.now(UTC))
    job = project.job(pipeline, slot)
    outcome = execute(
        job, project.store(slot.target.store), project.ledger, Asked(force, accept), _approval(yes, output == "json")
    )
    if output == "json":
        print_json({"outcome": outcome.to_json()})
    else:
        print(outcome_line(outcome))
    return 0


def outcome_line(outcome: Outcome) -> str:
    """Say in one line what became of a slot."""
    facts = f"{count(outcome.rows, 'row')}, generation {outcome.generation}, version {outcome.version_after}"
    notes = "".join(f"; {note}" for note in outcome.notes)
    return f"{outcome.slot.pipeline} {outcome.slot.label}  {outcome.state} ({outcome.reason}): {facts}{notes}"


def _run_due(project: Project, name: str | None, asked: Asked, yes: bool, output: str) -> int:
    chosen = [project.pipeline(name)] if name else list(project.pipelines.values())
    due = {pipeline.name: _due(project, pipeline, asked) for pipeline in chosen}
    for pipeline in chosen:
        _warn(pipeline)
        _approve_all(project, pipeline, due[pipeline.name], asked, yes)
    ends = [end for pipeline in chosen for end in _fill(project, pipeline, due[pipeline.name], asked, output)]
    return _summary(ends, output, waiting_is_fine=True)


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


@click.command("backfill")
@click.argument("name")
@click.option("--from", "start", required=True, help="First interval, inclusive.")
@click.option("--to", "end", required=True, help="End of the stretch, exclusive.")
@click.option("--force", is_flag=True, help="Publish new generations although nothing changed.")
@click.option("--yes", is_flag=True, help="Replace published rows without asking.")
@project_option
@output_option
@debug_option
def backfill_command(name: str, start: str, end: str, force: bool, yes: bool, folder: str | None, output: str) -> int:
    """Fill the slots of NAME that start in [FROM, TO), in order; published ones are skipped.

    A backfill that was killed resumes where it stood when it is run again.

    \b
    Example, three days (the end is exclusive):
      twice backfill visits --from 2024-10-01 --to 2024-10-04
    """
    project = _open(folder)
    pipeline = project.pipeline(name)
    _warn(pipeline)
    slots = slots_between(pipeline, start, end, datetime.now(UTC))
    asked = Asked(force, resuming=True)
    _approve_all(project, pipeline, slots, asked, yes)
    return _summary(_fill(project, pipeline, slots, asked, output), output)


def _fill(project: Project, pipeline: Pipeline, slots: list[Slot], asked: Asked, output: str) -> list[SlotEnd]:
    """Fill slots, with one line each as they end."""
    ends = []
    for number, ended in enumerate(fill(project, pipeline, slots, asked), 1):
        ends.append(ended)
        line = outcome_line(ended.outcome) if ended.outcome else _error_line(ended)
        print(f"[{number}/{len(slots)}] {line}", file=sys.stderr if output == "json" else sys.stdout, flush=True)
    return ends


def _error_line(ended: SlotEnd) -> str:
    slot = f"{ended.slot.pipeline} {ended.slot.label}"
    return (
        f"{slot}  waiting: {ended.error.what}" if isinstance(ended.error, Waiting) else f"{slot}  failed: {ended.error}"
    )


def _approve_all(project: Project, pipeline: Pipeline, slots: list[Slot], asked: Asked, yes: bool) -> None:
    """Ask once for all slots whose published rows would be replaced."""
    if yes:
        return
    replaced = []
    for slot in slots:
        try:
            plan = consider(project.job(pipeline, slot), project.store(slot.target.store), project.ledger, asked).plan
        except TwiceError:
            continue
        if plan.destroys:
            replaced.append(plan)
    if not replaced:
        return
    what = ", ".join(plan.slot.label for plan in replaced[:5]) + (
        f" and {len(replaced) - 5} more" if replaced[5:] else ""
    )
    example = f"{replaced[0].slot.label}: {replaced[0].reason}"
    confirm(f"{len(replaced)} of {count(len(slots), 'slot')} would be replaced: {what} ({example}). Go on?", yes=yes)


def _summary(ends: list[SlotEnd], output: str, *, waiting_is_fine: bool = False) -> int:
    waiting = [ended for ended in ends if isinstance(ended.error, Waiting)]
    failed = [ended for ended in ends if ended.error and ended not in waiting]
    published = [ended for ended in ends if ended.outcome and ended.outcome.state == "published"]
    skipped = len(ends) - len(published) - len(waiting) - len(failed)
    if output == "json":
        print_json(
            {
                "outcomes": [ended.outcome.to_json() for ended in ends if ended.outcome],
                "waiting": [{"slot": ended.slot.text, "reason": str(ended.error)} for ended in waiting],
                "errors": [{"slot": ended.slot.text, "error": str(ended.error)} for ended in failed],
            }
        )
    else:
        waits = f", {len(waiting)} waiting" if waiting else ""
        print(f"{len(published)} published, {skipped} skipped{waits}, {len(failed)} failed")
    # Whoever asks for what is due asks again; whoever asks for a stretch wants it filled.
    counted = failed if waiting_is_fine else failed + waiting
    errors = [ended.error for ended in counted if ended.error]
    return worst(errors).exit_code if errors else 0
