"""How does a person see which calls in outside systems are owed, and deal with them?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from twice.cli.opening import opened, pipelines_named
from twice.cli.output import debug_option, first_line, output_option, print_json, print_records, project_option
from twice.effects import deliver
from twice.errors import EffectOwed, Misuse, count
from twice.ledger import effects
from twice.ledger.effects import CONFIRMED, FORGOTTEN, OWED, EffectRecord
from twice.project import Project
from twice.runs import Slot

_SHORT = 12
_COLUMNS: dict[str, Callable[[EffectRecord], Any]] = {
    "key": lambda row: row.effect_key[:_SHORT],
    "pipeline": lambda row: row.pipeline,
    "slot": lambda row: Slot.parse(row.slot).label,
    "generation": lambda row: row.generation,
    "effect": lambda row: row.name,
    "form": lambda row: row.form,
    "state": lambda row: row.state,
    "tries": lambda row: row.tries,
    "last answer": lambda row: first_line(row.answer),
}


@click.group("effects")
def effects_command() -> None:
    """Calls in outside systems that belong to published rows."""


@effects_command.command("list")
@project_option
@output_option
@debug_option
def effects_list(folder: str | None, output: str) -> None:
    """List the calls that are not confirmed: owed, refused, or unknown since a ledger was lost.

    \b
    Example:
      twice effects list
    """
    project = opened(folder, only_looking=True)
    project.read_calendars()
    found = effects.counting(project.ledger)
    if not print_records("effects", found, _COLUMNS, output=output, empty="No call is owed."):
        return
    if any(row.state in OWED for row in found):
        print("To call what is owed: twice effects deliver")
    for row in found:
        if row.state in OWED and row.waits:
            print(_patience(row))
        if row.state not in OWED:
            key = row.effect_key[:_SHORT]
            again = f", twice effects deliver {key} calls it" if row.call else ""
            print(
                f"{row.label} is {row.state}: twice effects confirm {key} if it was done, forget {key} if not{again}."
            )


@effects_command.command("deliver")
@click.argument("key", required=False)
@project_option
@output_option
@debug_option
def effects_deliver(key: str | None, folder: str | None, output: str) -> int:
    """Make the calls that are owed, each with its own key; with KEY the one that is named, whatever its state.

    What is unknown or was refused is called only if it is named. Services that asked to be left alone for a while are.

    \b
    Examples:
      twice effects deliver
      twice effects deliver 3f2a91bc44d0
    """
    project = opened(folder)
    _believe_the_stores(project)
    owed = [row for row in effects.counting(project.ledger) if row.state in OWED]
    waiting = [row for row in owed if row.waits] if not key else []
    called, troubles = [], []
    for row in [_named(project, key)] if key else (row for row in owed if row not in waiting):
        if not row.call:
            raise Misuse(
                f"The call of {row.label} was lost with a ledger.",
                "Only effects from the outbox are in the table's own commit.",
                f"Say what happened: twice effects confirm {row.effect_key[:_SHORT]}, or forget.",
            )
        try:
            if deliver(project.outside, project.ledger, row, by_name=bool(key)):
                called.append(row)
        except EffectOwed as error:
            troubles.append(error)
    if output == "json":
        shown = {"confirmed": called, "waiting": waiting}
        facts = {name: [asdict(row) for row in rows] for name, rows in shown.items()}
        print_json({**facts, "owed": list(map(str, troubles))})
    else:
        print(f"{count(len(called), 'call')} confirmed, {len(troubles)} still owed.")
        for line in (*troubles, *map(_patience, waiting)):
            print(line)
    return EffectOwed.exit_code if troubles else 0


def _patience(row: EffectRecord) -> str:
    return (
        f"{row.label} waits until {row.not_before}, as its service asked. At once: twice effects deliver"
        f" {row.effect_key[:_SHORT]}"
    )


def _believe_the_stores(project: Project) -> None:
    """Let effects count whose receipts are in the stores: a run may have died before it could say so."""
    for target in sorted({pipeline.target for pipeline in pipelines_named(project)}):
        for receipt in project.store(target.store).look(target.name).receipts.values():
            if receipt.effects:
                effects.published(project.ledger, receipt)


@effects_command.command("confirm")
@click.argument("key")
@project_option
@output_option
@debug_option
def effects_confirm(key: str, folder: str | None, output: str) -> None:
    """Say that the call KEY was done: it is never made again.

    \b
    Example:
      twice effects confirm 3f2a91bc44d0
    """
    _settle(key, folder, CONFIRMED, "a person says that it was done", output)


@effects_command.command("forget")
@click.argument("key")
@project_option
@output_option
@debug_option
def effects_forget(key: str, folder: str | None, output: str) -> None:
    """Say that the call KEY is not to be made any more.

    \b
    Example:
      twice effects forget 3f2a91bc44d0
    """
    _settle(key, folder, FORGOTTEN, "a person says that it is not to be made", output)


def _settle(key: str, folder: str | None, state: str, answer: str, output: str) -> None:
    project = opened(folder)
    row = _named(project, key)
    effects.ended(project.ledger, row, state, answer)
    if output == "json":
        print_json({"effect": row.effect_key, "state": state})
    else:
        print(f"{row.label} is {state}.")


def _named(project: Project, key: str) -> EffectRecord:
    found = effects.find(project.ledger, key)
    if len({row.effect_key for row in found}) != 1:
        raise Misuse(f"{key!r} names {len(found) or 'no'} effects.", fix="See: twice effects list")
    if found[0].state in effects.SETTLED:
        raise Misuse(f"{found[0].label} is {found[0].state} already.", "A call that is settled is never made again.")
    return found[0]
