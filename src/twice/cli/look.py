"""How does a person see what is there: pipelines, slots, attempts, settings?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import click

from twice.cli.completion import pipelines, targets, times
from twice.cli.opening import opened, selection_options
from twice.cli.options import contradicting, refuse_for
from twice.cli.output import (
    debug_option,
    facts_of,
    first_line,
    output_option,
    print_json,
    print_records,
    print_table,
    project_option,
)
from twice.cli.selection import selected
from twice.errors import Misuse, suggestion
from twice.ledger import AttemptRecord, logs
from twice.ledger.records import SHOWN
from twice.masks import mask
from twice.pipelines import Pipeline
from twice.project import Project
from twice.quarantine import set_aside_by
from twice.runs import Receipt, Slot, Target
from twice.settings import shown
from twice.sight import Sight

_NAMED = 5
_NOTHING: tuple[Any, ...] = ("", None, (), [], {})
_LOGS = {
    "traceback": "the error",
    "python": "logged by Python code of this run",
    "jvm": "written by the JVM while it worked",
}
_COLUMNS: dict[str, Callable[[AttemptRecord], Any]] = {
    "attempt": lambda record: record.attempt,
    "pipeline": lambda record: record.pipeline,
    "slot": lambda record: Slot.parse(record.slot).label,
    "state": lambda record: record.state,
    "generation": lambda record: record.generation,
    "rows": lambda record: record.rows,
    "version": lambda record: record.version_after,
    "started": lambda record: record.started_at[:19],
    "reason": lambda record: first_line(record.reason),
}


@click.command("list")
@selection_options
@project_option
@output_option
@debug_option
def list_command(select: tuple[str, ...], exclude: tuple[str, ...], folder: str | None, output: str) -> None:
    """List the pipelines of the project, or those that --select names.

    \b
    Examples:
      twice list --output json
      twice list --select +report
    """
    project = opened(folder, only_looking=True)
    chosen = selected(project.pipelines.values(), select, exclude) if select or exclude else project.pipelines.values()
    rows = [
        {
            "name": p.name,
            "target": p.target.text,
            "pattern": p.pattern.name,
            "every": p.schedule.every if p.schedule else None,
            "zone": p.zone if p.schedule else None,
            "start": p.schedule.start if p.schedule else None,
            "end": p.schedule.end if p.schedule else None,
            "tags": list(p.tags),
        }
        for p in chosen
    ]
    if output == "json":
        print_json({"pipelines": rows})
    else:
        empty = f"No pipelines in {project.pipelines_folder}. Make some with: twice init"
        print_table(
            ["pipeline", "target", "pattern", "every", "zone", "start", "end", "tags"],
            [[*list(row.values())[:-1], " ".join(p.tags)] for row, p in zip(rows, chosen, strict=True)],
            empty=empty,
        )


@click.command("runs")
@click.argument("name", required=False, shell_complete=pipelines)
@click.option("--state", type=click.Choice(SHOWN), help="Only attempts in this state.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@project_option
@output_option
@debug_option
def runs_command(name: str | None, state: str | None, limit: int, folder: str | None, output: str) -> None:
    """List attempts, newest first.

    \b
    Examples:
      twice runs
      twice runs visits --state failed
    """
    project = opened(folder, only_looking=True)
    identity = project.pipeline(name).identity if name else ""
    project.read_calendars()
    found = project.ledger.seen(pipeline=identity, state=state or "", limit=limit)
    print_records("attempts", found, _COLUMNS, output=output, empty="No runs yet.")


@click.command("show")
@click.argument("what", shell_complete=targets)
@click.option("--at", shell_complete=times, help="With the name of a pipeline: the start of the interval.")
@click.option("--key", help="With the name of a pipeline: the batch key.")
@click.option("--files", "files", is_flag=True, help="With a Parquet target: the files that are the table now.")
@click.option(
    "--row-source", multiple=True, metavar="COLUMN=VALUE", help="With a pipeline: where these rows came from."
)
@project_option
@output_option
@debug_option
@contradicting("row_source", "at", "key", "files", why="Rows are looked for in the whole table.")
def show_command(
    what: str,
    at: str | None,
    key: str | None,
    files: bool,
    row_source: tuple[str, ...],
    folder: str | None,
    output: str,
) -> None:
    """Show one attempt, one slot of a pipeline, or one target in full.

    \b
    Examples:
      twice show 3f2a91bc-4             an attempt, as `twice runs` names it
      twice show visits --at 2024-10-07
      twice show parquet:lake/visits --files
      twice show orders --row-source id=4711     which file and which run a row came from
    """
    project = opened(folder, only_looking=True)
    project.read_calendars()
    if ":" in what:
        refuse_for(what, "at", "key", "row_source", why="They are about a pipeline.")
        _show_target(project, Target.parse(what), files, output)
        return
    if row_source:
        _show_origin(project, project.pipeline(what), row_source, output)
        return
    record = project.ledger.attempt(what)
    if record:
        refuse_for(what, "at", "key", "files", why="An attempt has a slot of its own.")
        facts = {"attempt": facts_of(record.seen(project.ledger.live_attempts()))}
        log = {"log": f"twice logs {record.attempt}"} if logs.find(project.ledger, record.attempt) else {}
        _print_facts(facts | log, output)
        return
    if what not in project.pipelines and at is None and key is None:
        raise _unknown(project, what)
    pipeline = project.pipeline(what)
    refuse_for(what, "files", why="Files are those of a target.")
    _show_slot(project, pipeline, at, key, output)


@click.command("logs")
@click.argument("what", shell_complete=pipelines)
@click.option("--at", shell_complete=times, help="With the name of a pipeline: the start of the interval.")
@click.option("--key", help="With the name of a pipeline: the batch key.")
@project_option
@output_option
@debug_option
def logs_command(what: str, at: str | None, key: str | None, folder: str | None, output: str) -> None:
    """Print what was kept of an attempt that did not end well: its traceback, and the log of the driver.

    With the name of a pipeline it is that of the newest attempt, of one slot or of all.

    \b
    Examples:
      twice logs 3f2a91bc-4             an attempt, as `twice runs` names it
      twice logs visits --at 2024-10-07
    """
    project = opened(folder, only_looking=True)
    project.read_calendars()
    record = _attempt_of(project, what, at, key).seen(project.ledger.live_attempts())
    found = logs.find(project.ledger, record.attempt)
    if output == "json":
        print_json({"attempt": facts_of(record), "log": found})
        return
    print(f"{record.attempt}  {record.pipeline} {Slot.parse(record.slot).label}  {record.state}")
    print(record.reason or "No reason was recorded.")
    for name, text in found.items():
        print(f"\n--- {_LOGS[name]}\n{text.rstrip()}")
    if not found:
        print("No log is kept of it: it ended well, or did not end, or its log was removed by twice tidy.")


def _attempt_of(project: Project, what: str, at: str | None, key: str | None) -> AttemptRecord:
    """Return the attempt of this name, or the newest one of a pipeline or of its slot."""
    record = project.ledger.attempt(what)
    if record:
        refuse_for(what, "at", "key", why="An attempt has a slot of its own.")
        return record
    if what not in project.pipelines:
        raise _unknown(project, what)
    pipeline = project.pipeline(what)
    which = (
        {"slot": pipeline.slot(at, key).text} if at is not None or key is not None else {"pipeline": pipeline.identity}
    )
    found = project.ledger.attempts(**which, limit=1)
    if not found:
        raise Misuse(f"There is no attempt on {what}{f' {at or key}' if at or key else ''} yet.", fix="See: twice runs")
    return found[0]


def _unknown(project: Project, what: str) -> Misuse:
    """Tell a beginning that several attempts share from what is nothing at all."""
    found = [record.attempt for record in project.ledger.attempts_named(what, limit=_NAMED + 1)] if what else []
    if not found:
        return Misuse(f"{what!r} is no attempt, no pipeline and no target.", fix="See twice runs, twice list.")
    more = ", …" if found[_NAMED:] else ""
    return Misuse(
        f"Several attempts begin with {what!r}: {', '.join(found[:_NAMED])}{more}.", fix="Write more of the name."
    )


def _show_origin(project: Project, pipeline: Pipeline, given: tuple[str, ...], output: str) -> None:
    from twice.origins import origins_of

    pairs = [one.partition("=") for one in given]
    wrong = [one for one, (_, equals, _) in zip(given, pairs, strict=True) if not equals]
    if wrong:
        raise Misuse(f"--row-source {wrong[0]} names no value.", fix="Write --row-source id=4711.")
    found = origins_of(project, pipeline, {column: value for column, _, value in pairs})
    if not found:
        raise Misuse(
            f"{pipeline.target.text} has no row with {', '.join(given)}.", fix=f"See: twice read {pipeline.target.text}"
        )
    _print_facts({"rows": [asdict(origin) for origin in found]}, output)


def _show_slot(project: Project, pipeline: Pipeline, at: str | None, key: str | None, output: str) -> None:
    slot = pipeline.slot(at, key)
    sight = project.store(slot.target.store).look(slot.target.name)
    receipt = sight.receipt(slot.text)
    facts = {
        "slot": slot.text,
        "label": slot.label,
        "published": receipt is not None,
        "proof": "stands" if sight.proof(slot.text) else sight.ended.get(slot.text, "none"),
        "rows": _sums(receipt) if receipt else None,
        "receipt": receipt.to_json() if receipt else None,
        "attempts": [asdict(record) for record in project.ledger.seen(slot=slot.text)],
    }
    _print_facts(facts, output)


def _sums(receipt: Receipt) -> dict[str, int | None]:
    """Return what became of the rows of the newest edition: those parsed were handed on, or set aside."""
    aside = set_aside_by(receipt)
    handed = None if receipt.parsed is None else receipt.parsed - aside
    return {"parsed": receipt.parsed, "handed_on": handed, "set_aside": aside, "published": receipt.rows}


def _show_target(project: Project, target: Target, files: bool, output: str) -> None:
    store = project.store(target.store)
    sight = store.look(target.name)
    declared = {pipeline.target.text for pipeline in project.pipelines.values()}
    if not (sight.exists or sight.filled) and target.text not in declared:
        raise Misuse(
            f"There is no table {target.text}, and no pipeline writes one of that name.",
            fix=suggestion(target.text, declared),
        )
    if files:
        if not hasattr(store, "files"):
            raise Misuse(f"{target.text} is not a Parquet target.", fix="Other stores are read by their own readers.")
        listed = store.files(target.name)
        if output == "json":
            print_json({"version": sight.version if sight.exists else None, "files": listed})
        else:
            print("\n".join(listed))
        return
    facts = {
        "target": target.text,
        "note": "" if sight.exists else "Nothing was published to it yet.",
        "version": sight.version if sight.exists else None,
        "owner": sight.owner,
        "mine": sight.owner == project.ledger.id,
        "slots": [_slot_facts(sight, receipt) for receipt in sorted(sight.receipts.values(), key=lambda r: r.slot)],
    }
    _print_facts(facts, output)


def _slot_facts(sight: Sight, receipt: Receipt) -> dict[str, Any]:
    return {
        "slot": Slot.parse(receipt.slot).label,
        "generation": receipt.generation,
        "rows": receipt.rows,
        "since_version": receipt.first_version,
        "proof": sight.ended.get(receipt.slot, "stands"),
    }


def _print_facts(facts: dict[str, Any], output: str, indent: str = "") -> None:
    if output == "json":
        print_json(facts)
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            print(f"{indent}{name}:")
            _print_facts(value, output, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            print(f"{indent}{name}:")
            for entry in value:
                line = "  ".join(
                    f"{key}={_fact(entry[key])}" for key in entry if entry[key] not in _NOTHING and key != "plan"
                )
                print(f"{indent}  {line}")
        elif value not in _NOTHING:
            print(f"{indent}{name}: {_fact(value)}")


def _fact(value: Any) -> str:
    """Write a plain value for people."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_fact(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_fact, value))
    return str(value)


@click.command("matrix")
@output_option
@debug_option
def matrix_command(output: str) -> None:
    """Show which store carries which pattern, computed from what each needs and has.

    \b
    Example:
      twice matrix
    """
    from twice import matrix
    from twice.stores.registry import kinds

    cells = matrix.cells()
    if output == "json":
        print_json({"cells": [asdict(cell) for cell in cells]})
        return
    stores = kinds()
    rows = []
    for pattern in matrix.VARIANTS:
        marks = {cell.store: "yes" if cell.supported else "no" for cell in cells if cell.pattern == pattern}
        rows.append([pattern, *(marks[store] for store in stores)])
    print_table(["pattern", *stores], rows, empty="")
    for cell in cells:
        if not cell.supported:
            print(f"{cell.store} cannot carry {cell.pattern}: {cell.reason}")


@click.command("config")
@project_option
@output_option
@debug_option
def config_command(folder: str | None, output: str) -> None:
    """Show every setting and where it came from: command line, variable, environment, file or default.

    \b
    Examples:
      twice config
      twice config --env prod
    """
    found = opened(folder, only_looking=True).settings
    values = [(value.key, value.shown, value.origin) for value in found.values.values()]
    values += [
        (key := f"spark.conf.{name}", shown(name, written) if "${" not in written else written, found.origins[key])
        for name, written in found.spark_conf_written.items()
    ]
    # A URL may hold a password, and is not shown.
    values += [
        (key := f"stores.{s.name}", mask(f"{s.kind} at {'a URL' if s.url else s.root or '.'}"), found.origins[key])
        for s in found.stores.values()
    ]
    values += [(key := f"hooks.{kind}", ", ".join(named), found.origins[key]) for kind, named in found.hooks.items()]
    if output == "json":
        rows = [{"key": key, "value": value, "origin": origin} for key, value, origin in values]
        print_json({"env": found.env or None, "environments": list(found.environments), "settings": rows})
        return
    print_table(["setting", "value", "origin"], values, empty="")
    if found.environments:
        print(f"Environment: {found.env or 'none'} (there is: {', '.join(found.environments)}).")
