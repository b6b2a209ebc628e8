"""How does the command line speak?

Answers go to standard output, as text or as JSON with a schema version; progress and warnings go to
standard error. Tables are drawn by rich, which respects NO_COLOR and narrow terminals.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from twice.cli.completion import environments
from twice.errors import Misuse
from twice.masks import mask, masked
from twice.runs import Slot
from twice.settings import CHOICES

SCHEMA_VERSION = 1

Command = Callable[..., Any]


def output_option(command: Command) -> Command:
    """Add `--output text|json`, also set by TWICE_OUTPUT."""
    return click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        envvar="TWICE_OUTPUT",
        show_default=True,
        help="How to print the answer.",
    )(command)


_ENV, _QUIET = "twice.env", "twice.quiet"


def project_option(command: Command) -> Command:
    """Add `--project FOLDER` and `--env NAME`, for the project that the command opens, and `--quiet`."""

    def keep(context: click.Context, option: click.Parameter, value: str | bool | None) -> None:
        context.meta[f"twice.{option.name}"] = value

    command = click.option(
        "--quiet", "-q", is_flag=True, callback=keep, expose_value=False, help="Print results and errors only."
    )(command)
    command = click.option(
        "--env",
        metavar="NAME",
        callback=keep,
        expose_value=False,
        shell_complete=environments,
        help="Environment of the project: [env.NAME] in twice.toml; also TWICE_ENV.",
    )(command)
    return click.option(
        "--project",
        "folder",
        type=click.Path(file_okay=False, exists=True),
        help="Folder of the project; by default the one around the current folder.",
    )(command)


def debug_option(command: Command) -> Command:
    """Add `--debug`."""
    return click.option("--debug", is_flag=True, expose_value=False, help="Show whole errors.")(command)


_LOG = "twice.log"


def log_options(command: Command) -> Command:
    """Add `--log-format` and `--log-level`; the project that the command opens follows them."""

    def keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
        if value:
            context.meta.setdefault(_LOG, {})[str(option.name).replace("_", ".")] = value

    formats, levels = (click.Choice(CHOICES[key]) for key in ("log.format", "log.level"))
    command = click.option(
        "--log-level", type=levels, callback=keep, expose_value=False, help="The least that is worth a line."
    )(command)
    return click.option(
        "--log-format",
        type=formats,
        callback=keep,
        expose_value=False,
        help="Log runs on standard error; off if unsaid.",
    )(command)


def log_overrides() -> Mapping[str, str]:
    """Return what the command line says about the log."""
    context = click.get_current_context(silent=True)
    found: Mapping[str, str] = context.meta.get(_LOG, {}) if context else {}
    return found


def chosen_env(context: click.Context | None = None) -> str | None:
    """Return the environment that the command line names, of this command or of the one that is being typed."""
    context = context or click.get_current_context(silent=True)
    found: str | None = context.meta.get(_ENV) if context else None
    return found


def is_quiet() -> bool:
    """Tell whether the command that this thread carries out is to print results and errors only."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(_QUIET))


def print_json(values: dict[str, Any]) -> None:
    """Print one JSON document."""
    print(json.dumps(masked({"schema_version": SCHEMA_VERSION, **values}), indent=2))


def say(text: str) -> None:
    """Print a line of progress to standard error, unless the command is to be quiet."""
    if not is_quiet():
        print(f"twice: {mask(text)}", file=sys.stderr, flush=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be taken back; without a terminal `--yes` has to be said.

    Raises:
        Misuse: Nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misuse(question, "Without a terminal nobody can be asked.", "Say --yes to let it.")
    click.confirm(question, abort=True, err=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Print a table, or a sentence where there is nothing to show."""
    kept = [[("" if cell is None else str(cell)) for cell in row] for row in rows]
    if not kept:
        print(empty)
        return
    if not sys.stdout.isatty():
        _print_plain(columns, kept)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in kept:
        table.add_row(*row)
    Console().print(table)


def print_records(
    name: str, records: Sequence[Any], columns: Mapping[str, Callable[[Any], Any]], *, output: str, empty: str
) -> bool:
    """Print records in full as JSON, or a table with these columns; tell whether people are shown any, and want advice."""
    if output == "json":
        print_json({name: [facts_of(record) for record in records]})
        return False
    print_table(list(columns), [[cell(record) for cell in columns.values()] for record in records], empty=empty)
    return bool(records)


def facts_of(record: Any) -> dict[str, Any]:
    """Return a record of a slot as plain values, with what people call the slot."""
    return {**asdict(record), "label": Slot.parse(record.slot).label}


def first_line(text: str) -> str:
    """Return as much of a long text as a table has room for."""
    return text.partition("\n")[0][:80]


def _print_plain(columns: Sequence[str], rows: list[list[str]]) -> None:
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    for row in (list(columns), *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def value_text(value: Any) -> str:
    """Write a value of a row as SQL would: a text in quotes, so that it is told from a number, and NULL from 'NULL'.

    >>> value_text("it's"), value_text(None), value_text(True), value_text([1, None])
    ("'it''s'", 'NULL', 'true', '[1, NULL]')
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {value_text(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes | bytearray):
        return f"X'{value.hex()}'"
    words = {"None": "NULL", "True": "true", "False": "false"}
    return words.get(str(value), str(value))
