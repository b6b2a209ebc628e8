"""How does a person see in one screen what is there, what is wrong, and what to type?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from twice.cli.completion import pipelines
from twice.cli.opening import opened, pipelines_named
from twice.cli.output import debug_option, output_option, print_json, print_table, project_option
from twice.errors import count
from twice.ledger import AttemptRecord, effects, retries
from twice.ledger.records import DIED
from twice.ledger.tallies import InTrouble, last_success, unwell
from twice.pipelines import Pipeline
from twice.plans import accepted_as
from twice.project import Project
from twice.runs import Receipt, Slot
from twice.upstream import compared

_MOST_NAMED = 2
_MOST_LINES = 5
_LONGEST_REASON = 160
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@click.command("status")
@click.argument("name", required=False, shell_complete=pipelines)
@project_option
@output_option
@debug_option
def status_command(name: str | None, folder: str | None, output: str) -> int:
    """Show what is published, missing or no longer vouched for, as the stores say it, and what failed.

    Below the table each thing that is wrong has a line: what, why, since when, and what to type.

    \b
    Examples:
      twice status
      twice status visits --output json
    """
    project = opened(folder, only_looking=True)
    chosen = pipelines_named(project, name)
    failed, running = unwell(project.ledger)
    found = [_status(project, p, failed, running) for p in chosen]
    owed = [row for row in effects.counting(project.ledger) if row.target in {p.target.text for p in chosen}]
    if output == "json":
        print_json({"pipelines": found, "effects": [asdict(row) for row in owed]})
        return 0
    columns = [
        "pipeline",
        "target",
        "published",
        "missing",
        "failed",
        "unproven",
        "newest",
        "success",
        "rows",
        "version",
    ]
    counted = ("missing", "failed", "unproven")
    shown = [[len(row[column]) if column in counted else row[column] for column in columns] for row in found]
    print_table(columns, shown, empty="")
    for say in (_failed, _amiss, _missing):
        for line in say(found):
            print(line)
    if owed:
        print(f"{count(len(owed), 'call')} in outside systems not confirmed. See twice effects list")
    return 0


def _failed(found: list[dict[str, Any]]) -> Iterator[str]:
    """Name what is running and what failed, the first slots of each pipeline, with what to type."""
    for row in found:
        yield from (
            f"{row['pipeline']} {one['slot']} is running: {one['doing']} (attempt {one['attempt']})"
            for one in row["running"]
        )
        yield from _failed_slots(row)


def _failed_slots(row: dict[str, Any]) -> Iterator[str]:
    name = row["pipeline"]
    for one in row["failed"][:_MOST_NAMED]:
        yield f"{name} {one['slot']} {one['state']} {one['tried']}: {one['reason']} {one['next']}"
    if row["failed"][_MOST_NAMED:]:
        more = count(len(row["failed"]) - _MOST_NAMED, "more slot")
        yield f"{name} failed for {more}. See twice runs {name} --state failed"
    for slot in row["dead"]:
        yield f"{name} {slot} was set aside after its last try. See twice dead show {name}"
    for slot, when in row["due_again"].items():
        yield f"{name} {slot} is due again at {when}; twice retry takes it then."


def _amiss(found: list[dict[str, Any]]) -> Iterator[str]:
    """Name what is not vouched for, waits, is stale or belongs to somebody else."""
    for row in found:
        yield from _what_is_amiss(row)


def _what_is_amiss(row: dict[str, Any]) -> Iterator[str]:
    name = row["pipeline"]
    for slot, why in row["unproven"].items():
        yield f"{name} {slot}: {why}. Use --force or --accept."
    if row["waiting"]:
        first, *others = row["waiting"].values()
        yield f"{first} {len(others)} more slots wait." if others else first
    if row["stale"]:
        yield f"{name} is stale: {_some(row['stale'])}, made from other inputs than there are now. Use {row['again']}"
    if row["gone"]:
        yield f"{name}: inputs gone of {_some(row['gone'])}; the rows stay as they were published."
    if row["trouble"]:
        yield f"{name}: {row['trouble']}"


def _missing(found: list[dict[str, Any]]) -> Iterator[str]:
    """Name what is missing: pipeline by pipeline, or all in one line where they are many."""
    lacking = [row for row in found if row["missing"]]
    if len(lacking) > _MOST_LINES:
        slots = sum(len(row["missing"]) for row in lacking)
        names = _some([row["pipeline"] for row in lacking])
        yield f"{len(lacking)} pipelines are missing {slots} slots: {names}. Use twice run --due"
        return
    for row in lacking:
        yield f"{row['pipeline']} is missing {_some(row['missing'])}. Use twice run {row['pipeline']} --due"


def _failure(pipeline: Pipeline, found: InTrouble) -> dict[str, Any]:
    """Say of a slot what went wrong, since when, how often, and what to type."""
    slot = Slot.parse(found.slot)
    which = f" --at {slot.label}" if slot.interval else f" --key {slot.part}" if slot.part else ""
    times = f"{count(found.tries, 'time')} since {found.since[:16]}Z, " if found.tries > 1 else ""
    reason = found.reason.partition("\n")[0]
    return {
        "slot": slot.label,
        "state": found.state,
        "attempt": found.attempt,
        "since": found.since,
        "tries": found.tries,
        "tried": f"{times}{_ago(found.ended_at)}",
        "reason": reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 1] + "…",
        "next": f"See twice {_showing(found.state)} {found.attempt}, then twice run {pipeline.name}{which}",
    }


def _showing(state: str) -> str:
    """Name the command that tells most of an attempt: of one that raised an error, its log."""
    return "logs" if state in ("failed", "unknown", "interrupted") else "show"


def _running(record: AttemptRecord) -> dict[str, Any]:
    """Say of an attempt that is running how far it is, since when, and where."""
    return {
        "slot": Slot.parse(record.slot).label,
        "attempt": record.attempt,
        "step": record.step,
        "since": record.started_at,
        "host": record.host,
        "pid": record.pid,
        "doing": record.reason,
    }


def _ago(moment: str) -> str:
    """Say how long ago something was.

    >>> _ago("2000-01-01T00:00:00Z").endswith(" days ago")
    True
    """
    seconds = max((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds(), 0.0)
    if seconds < _HOUR:
        return f"{count(int(seconds // _MINUTE), 'minute')} ago"
    if seconds < 2 * _DAY:
        return f"{count(int(seconds // _HOUR), 'hour')} ago"
    return f"{count(int(seconds // _DAY), 'day')} ago"


def _some(labels: list[str]) -> str:
    """Name the first of many slots."""
    return ", ".join(labels[:5]) + (f" and {len(labels) - 5} more" if labels[5:] else "")


def _landed(found: InTrouble, receipt: Receipt | None) -> bool:
    """Tell whether an attempt that died had published before: the store knows."""
    return found.state == DIED and receipt is not None and receipt.attempt == found.attempt


def _status(
    project: Project, pipeline: Pipeline, failed: list[InTrouble], running: list[AttemptRecord]
) -> dict[str, Any]:
    sight = project.store(pipeline.target.store).look(pipeline.target.name)
    mine = {slot: receipt for slot, receipt in sight.receipts.items() if Slot.parse(slot).pipeline == pipeline.identity}
    due = []
    if pipeline.schedule:
        closed = pipeline.schedule.closed(datetime.now(UTC))
        due = [Slot(pipeline.identity, pipeline.target, interval) for interval in closed]
    missing = [slot for slot in due if slot.text not in mine]
    waiting = {slot.label: found.what for slot in missing if (found := project.waiting(pipeline, slot))}
    current = {Slot.parse(slot): receipt for slot, receipt in mine.items() if sight.proof(slot)}
    newest = max(map(Slot.parse, mine), key=lambda slot: slot.part_text, default=None)
    success = last_success(project.ledger, pipeline.identity)
    again = retries.of_target(project.ledger, pipeline.target.text)
    now = compared(project, pipeline, current)
    stranger = sight.owner not in ("", project.ledger.id)
    return {
        "pipeline": pipeline.name,
        "target": pipeline.target.text,
        "published": len(mine),
        "missing": [slot.label for slot in missing if slot.label not in waiting],
        "stale": [slot.label for slot in now.stale],
        "again": pipeline.command(now.stale),
        "gone": [slot.label for slot in now.gone],
        "waiting": waiting,
        "running": [_running(one) for one in running if one.pipeline == pipeline.identity],
        "failed": [
            _failure(pipeline, one)
            for one in failed
            if one.pipeline == pipeline.identity and not _landed(one, mine.get(one.slot))
        ],
        "dead": [Slot.parse(one.slot).label for one in again if one.is_dead],
        "due_again": {Slot.parse(one.slot).label: one.due_at for one in again if not one.is_dead},
        "success": success[1][:16] + "Z" if success else None,
        "unproven": {
            Slot.parse(slot).label: why
            for slot, why in sight.ended.items()
            if slot in mine
            and project.ledger.accepted(accepted_as(pipeline.pattern, Slot.parse(slot))) != (sight.outside or None)
        },
        "newest": newest.label if newest else None,
        "rows": sum(receipt.rows for receipt in current.values()) if pipeline.pattern.adds_up else None,
        "version": sight.version if sight.exists else None,
        "trouble": f"the target belongs to another ledger ({sight.owner[:8]})" if stranger else "",
    }
