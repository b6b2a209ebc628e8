"""How does a person go back in time: see versions, compare them, read one, make one the newest?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from twice.abilities import PointedAt
from twice.cli.completion import targets
from twice.cli.opening import opened
from twice.cli.output import confirm, debug_option, output_option, print_json, print_table, project_option, value_text
from twice.errors import Misuse, count
from twice.project import Project
from twice.runs import Slot, Target
from twice.timeline import KeptVersion, version_named

_SLOTS_SHOWN = 3


@click.command("versions")
@click.argument("target", shell_complete=targets)
@project_option
@output_option
@debug_option
def versions_command(target: str, folder: str | None, output: str) -> None:
    """List the versions of the table TARGET, or those that the view TARGET can point at, oldest first.

    \b
    Example:
      twice versions delta:lake/devices
    """
    from twice import api

    project = opened(folder, only_looking=True)
    target = project.target(target).text
    found = api.versions(target, project=project)
    if output == "json":
        print_json({"target": target, "versions": [asdict(version) for version in found]})
        return
    shown = [one for one in found if isinstance(one, PointedAt)]
    if shown:
        columns = ["now", "number", "version", "slot", "generation", "rows", "published"]
        print_table(columns, [_pointed_row(one) for one in shown], empty="")
        return
    columns = ["now", "version", "published", "slots", "holds", "rows", "attempt", "lost"]
    kept = [_kept_row(one) for one in found if isinstance(one, KeptVersion)]
    print_table(columns, kept, empty="No version was published yet.")


def _pointed_row(one: PointedAt) -> list[Any]:
    label = Slot.parse(one.slot).label
    return ["*" if one.current else "", one.number, one.name, label, one.generation, one.rows, one.made_at]


def _kept_row(one: KeptVersion) -> list[Any]:
    more = f" and {len(one.slots) - _SLOTS_SHOWN} more" if one.slots[_SLOTS_SHOWN:] else ""
    slots = ", ".join(one.slots[:_SLOTS_SHOWN]) + more
    return ["*" if one.current else "", one.version, one.made_at, slots, one.holds, one.rows, one.attempt, one.lost]


@click.command("restore")
@click.argument("target", shell_complete=targets)
@click.argument("version")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@project_option
@output_option
@debug_option
def restore_command(target: str, version: str, dry_run: bool, yes: bool, folder: str | None, output: str) -> None:
    """Make VERSION of the table TARGET the newest: a number, or the start of a slot.

    It is a publish like any other: history grows by one version, and readers see the old rows from then on. Slots that
    VERSION lacks are no longer vouched for. A run of them needs --force, and brings them back.

    \b
    Examples:
      twice restore delta:lake/devices 7
      twice restore delta:lake/devices 2024-10-07 --dry-run
    """
    from twice import api

    project = opened(folder, only_looking=dry_run)
    where = project.target(target)
    target = where.text
    number = version_named(project, where, version)
    found = [one for one in api.versions(target, project=project) if isinstance(one, KeptVersion)]
    if number not in {one.version for one in found}:
        raise Misuse(f"{target} has no version {number}.", fix=f"See: twice versions {target}")
    later = sorted({slot for one in found if one.version > number for slot in one.slots})
    what = f"{target} {{}} the rows of version {number}"
    away = f"; published since then: {', '.join(later[:5])}" + (f" and {len(later) - 5} more" if later[5:] else "")
    if dry_run:
        message = what.format("would show") + (away if later else "") + "."
    else:
        confirm(f"Let {what.format('show')}{away if later else ''}?", yes=yes)
        api.restore(target, number, project=project)
        message = what.format("shows") + " now."
    unproven = [] if dry_run else _unproven(project, where)
    if output == "json":
        facts = {"published_since": later, "unproven": [slot.label for slot in unproven], "message": message}
        print_json({"target": target, "version": number, **facts})
        return
    print(message)
    for line in _what_follows(project, where, unproven):
        print(line)


def _unproven(project: Project, target: Target) -> list[Slot]:
    """Return the slots whose rows are not vouched for, in order."""
    return sorted(map(Slot.parse, project.store(target.store).look(target.name).ended), key=lambda slot: slot.part_text)


def _what_follows(project: Project, target: Target, unproven: Sequence[Slot]) -> Iterator[str]:
    """Say what lets runs go on: they are refused until it is said which rows count."""
    writer = next((one for one in project.pipelines.values() if one.target == target), None)
    if not unproven or writer is None:
        return
    labels = [slot.label for slot in unproven]
    more = f" and {len(labels) - _SLOTS_SHOWN} more" if labels[_SLOTS_SHOWN:] else ""
    yield (
        f"{count(len(labels), 'slot')} of {writer.name} {'is' if len(labels) == 1 else 'are'} no longer vouched for"
        f" ({', '.join(labels[:_SLOTS_SHOWN])}{more}), and runs of them are refused until you say which rows count."
    )
    run = writer.command(unproven)
    yield f"  those that are there now:        {run} --accept"
    if not writer.pattern.takes_in:
        yield f"  those that the inputs make now:  {run} --force"


@click.command("diff")
@click.argument("target", shell_complete=targets)
@click.argument("one")
@click.argument("other")
@click.option("--keys", help="Columns that identify a row, with commas; by default those of the pattern.")
@click.option(
    "--sample", type=click.IntRange(min=0), default=5, show_default=True, help="How many rows of each kind are shown."
)
@project_option
@output_option
@debug_option
def diff_command(
    target: str, one: str, other: str, keys: str | None, sample: int, folder: str | None, output: str
) -> None:
    """Tell how two versions of TARGET differ: numbers of versions, or starts of slots.

    \b
    Examples:
      twice diff delta:lake/devices 6 7
      twice diff delta:lake/devices 2024-10-06 2024-10-07 --output json
    """
    from twice import api

    project = opened(folder, only_looking=True)
    target = project.target(target).text
    named = [key.strip() for key in keys.split(",")] if keys else []
    found = api.diff(target, one, other, keys=named, sample=sample, project=project)
    if output == "json":
        rows = [{"before": before, "after": after} for before, after in found.sample]
        counts = {"added": found.added, "removed": found.removed, "changed": found.changed}
        print_json({"target": target, "from": one, "to": other, **counts, "sample": rows})
        return
    changed = "" if found.changed is None else f", {found.changed:,} changed"
    print(f"{target} from {one} to {other}: {found.added:,} added, {found.removed:,} removed{changed}")
    for before, after in found.sample:
        print(_change_line(before, after))


def _change_line(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """Write a row that came, went, or changed."""
    if before is None or after is None:
        row = after or before or {}
        return f"{'+' if before is None else '-'} {_text(row)}"
    same = {name: value for name, value in after.items() if before.get(name) == value}
    parts = [f"{name}: {_before(before, name)} -> {value_text(after[name])}" for name in after if name not in same]
    gone = [f"{name}: {value_text(before[name])} -> (no column)" for name in before if name not in after]
    return f"~ {_text(same)}  {', '.join(parts + gone)}"


def _before(row: Mapping[str, Any], name: str) -> str:
    return value_text(row[name]) if name in row else "(no column)"


def _text(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value_text(value)}" for name, value in row.items())


@click.command("read")
@click.argument("target", shell_complete=targets)
@click.option("--version", type=int, help="An older version, by its number.")
@click.option("--as-of", help="The state after a slot, by its start.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many rows.")
@project_option
@output_option
@debug_option
def read_command(
    target: str, version: int | None, as_of: str | None, limit: int, folder: str | None, output: str
) -> None:
    """Print rows of TARGET, as they are now or as they were.

    \b
    Examples:
      twice read delta:lake/devices
      twice read delta:lake/devices --as-of 2024-10-07
    """
    from twice import api

    project = opened(folder, only_looking=True)
    target = project.target(target).text
    rows = api.read(None, target, version=version, as_of=as_of, project=project)
    found = [row.asDict(recursive=True) for row in rows.limit(limit + 1).collect()]
    if output == "json":
        print_json({"target": target, "rows": found[:limit], "more": len(found) > limit})
        return
    print_table(list(rows.columns), _cells(found[:limit]), empty="No rows.")
    if len(found) > limit:
        print(f"{count(limit, 'row')} shown; there are more. Use --limit.")


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    return [
        [json.dumps(cell, default=str) if isinstance(cell, dict | list) else cell for cell in row.values()]
        for row in rows
    ]
