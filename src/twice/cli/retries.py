"""How does a person let failed runs be tried again, and deal with those that were set aside?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from twice.backfills import worst
from twice.cli.completion import pipelines, times
from twice.cli.opening import opened, pipelines_named
from twice.cli.output import (
    confirm,
    debug_option,
    facts_of,
    first_line,
    output_option,
    print_json,
    print_records,
    project_option,
)
from twice.cli.walk import outcome_line
from twice.errors import Busy, Misuse, TwiceError, count
from twice.holding import name_of
from twice.ledger import retries
from twice.ledger.retries import Again
from twice.project import Project
from twice.retrying import Budget, Retried, retry_due
from twice.runs import Slot

_HISTORY = 20
_COLUMNS: dict[str, Callable[[Again], Any]] = {
    "pipeline": lambda row: row.pipeline,
    "slot": lambda row: Slot.parse(row.slot).label,
    "tries": lambda row: row.tries,
    "since": lambda row: row.first_failed_at[:19],
    "last try": lambda row: row.last_failed_at[:19],
    "error": lambda row: first_line(row.error),
}


@click.command("retry")
@project_option
@output_option
@debug_option
def retry_command(folder: str | None, output: str) -> int:
    """Try again what is due, each run with what it was asked for the first time. The periodic job.

    Two at a time take each run once. What is not due yet is left alone, and so is what was set aside.

    \b
    Examples:
      twice retry
      */5 * * * *  twice retry --project /srv/shop     every five minutes, by cron
    """
    project = opened(folder)
    pipelines_named(project)  # before the ledger is made
    ends: list[Retried] = []
    budget: Budget | None = None
    for ended in retry_due(project):
        if isinstance(ended, Budget):
            budget = ended
            continue
        ends.append(ended)
        if output == "text":
            print(_line(ended), flush=True)
    used_up = _used_up(budget) if budget else None
    if output == "json":
        print_json(
            {
                "retried": [_facts(ended) for ended in ends],
                "budget_used_up": str(used_up) if used_up else None,
                "still_due": budget.left if budget else 0,
            }
        )
    elif used_up:
        print(used_up)
    elif not ends:
        print("Nothing is due.")
    errors: list[TwiceError] = [ended.error for ended in ends if ended.error]
    return worst([*errors, *([used_up] if used_up else [])]).exit_code if errors or used_up else 0


def _used_up(budget: Budget) -> Busy:
    return Busy(
        f"The budget of {count(budget.per_hour, 'retry')} an hour is used up; {count(budget.left, 'run')} stay due.",
        "So many failures at once mostly have one cause, and more tries would not mend it.",
        "See: twice status. The next hour's retries are taken by the next twice retry.",
    )


def _line(ended: Retried) -> str:
    if ended.outcome:
        return outcome_line(ended.outcome)
    row = ended.row
    then = "" if row is None else "; set aside" if row.is_dead else f"; due again at {row.due_at[:19]}Z"
    return f"{ended.slot.pipeline} {ended.slot.label}  failed{then}: {ended.error}"


def _facts(ended: Retried) -> dict[str, Any]:
    return {
        "slot": ended.slot.text,
        "outcome": ended.outcome.to_json() if ended.outcome else None,
        "error": str(ended.error) if ended.error else None,
        "state": ended.row.state if ended.row else None,
        "due_at": ended.row.due_at if ended.row else None,
    }


@click.group("dead")
def dead_command() -> None:
    """Runs that were set aside after their last try."""


@dead_command.command("list")
@project_option
@output_option
@debug_option
def dead_list(folder: str | None, output: str) -> None:
    """List the runs that were set aside.

    \b
    Example:
      twice dead list
    """
    project = opened(folder, only_looking=True)
    project.read_calendars()
    found = [row for row in retries.every(project.ledger) if row.is_dead]
    if print_records("dead", found, _COLUMNS, output=output, empty="No run was set aside."):
        name = name_of(Slot.parse(found[0].slot))
        print(f"To see one: twice dead show {name}. To try it again: twice dead requeue {name}")


def _slot_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what names a slot of a pipeline."""
    for option in (
        project_option,
        click.option("--key", help="Batch key, for a pipeline without a calendar."),
        click.option("--at", shell_complete=times, help="Start of the interval; without it, all of the pipeline."),
        click.argument("name", shell_complete=pipelines),
    ):
        command = option(command)
    return command


def _chosen(project: Project, name: str, at: str | None, key: str | None) -> list[Again]:
    """Return the runs of a pipeline that were set aside, or the one that is named."""
    pipeline = project.pipeline(name)
    rows = [row for row in retries.of_target(project.ledger, pipeline.target.text) if row.is_dead]
    if at is not None or key is not None:
        wanted = pipeline.slot(at, key).text
        rows = [row for row in rows if row.slot == wanted]
    if not rows:
        raise Misuse(f"No such run of {name} was set aside.", fix="See: twice dead list")
    return rows


@dead_command.command("show")
@_slot_options
@output_option
@debug_option
def dead_show(name: str, at: str | None, key: str | None, folder: str | None, output: str) -> None:
    """Show runs of NAME that were set aside: what they were asked, their last error, their history.

    \b
    Example:
      twice dead show visits --at 2024-10-07
    """
    project = opened(folder, only_looking=True)
    shown = [
        {
            **facts_of(row),
            "history": [asdict(one) for one in project.ledger.seen(slot=row.slot, limit=_HISTORY)],
            "requeue": f"twice dead requeue {name_of(Slot.parse(row.slot))}",
        }
        for row in _chosen(project, name, at, key)
    ]
    if output == "json":
        print_json({"dead": shown})
        return
    for row in shown:
        print(f"{row['pipeline']} {row['label']}  set aside after {count(row['tries'], 'try')}")
        print(f"  failed first at {row['first_failed_at']}, last at {row['last_failed_at']}")
        print(f"  asked for with {row['asked']}, parameters {row['parameters']}, generation {row['generation']}")
        print(f"  {row['kind']}: {row['error']}")
        for one in row["history"]:
            print(
                f"  {one['started_at'][:19]}  {one['state']:9}  {one['attempt']}  {one['reason'].partition(chr(10))[0]}"
            )
        print(f"  To try it again: {row['requeue']}")


@dead_command.command("requeue")
@_slot_options
@output_option
@debug_option
def dead_requeue(name: str, at: str | None, key: str | None, folder: str | None, output: str) -> None:
    """Make runs of NAME that were set aside due at once, with all their tries before them.

    \b
    Example:
      twice dead requeue visits --at 2024-10-07 && twice retry
    """
    project = opened(folder)
    now = datetime.now(UTC)
    slots = [row.slot for row in _chosen(project, name, at, key) if retries.requeue(project.ledger, row.slot, now)]
    _tell(slots, "requeued", "due now; twice retry takes it", output)


@dead_command.command("drop")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_slot_options
@output_option
@debug_option
def dead_drop(name: str, at: str | None, key: str | None, folder: str | None, output: str, yes: bool) -> None:
    """Forget runs of NAME that were set aside; later slots do not wait for them any more.

    \b
    Example:
      twice dead drop visits --at 2024-10-07
    """
    project = opened(folder)
    rows = _chosen(project, name, at, key)
    labels = ", ".join(Slot.parse(row.slot).label for row in rows)
    confirm(
        f"Forget {count(len(rows), 'run')} of {name} ({labels})? What they would have published stays missing.", yes=yes
    )
    slots = [row.slot for row in rows if retries.drop(project.ledger, row.slot)]
    _tell(slots, "dropped", "no longer set aside, and still not published", output)


def _tell(slots: list[str], done: str, text: str, output: str) -> None:
    if output == "json":
        print_json({done: slots})
        return
    for slot in slots:
        print(f"{Slot.parse(slot).pipeline} {Slot.parse(slot).label}  {text}")
