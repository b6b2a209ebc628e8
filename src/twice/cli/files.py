"""How does a person see which files were taken in, and have one taken in again?"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from twice.cli.completion import pipelines
from twice.cli.opening import opened
from twice.cli.output import confirm, debug_option, output_option, print_json, print_table, project_option
from twice.cli.walk import outcome_line
from twice.errors import Misuse, count, suggestion
from twice.intakes import files_of, forget, history_of, tracked_of
from twice.marks import FORGOTTEN, STATES, Mark

_SHOWN = 50
# One that was forgotten is unknown, until a run takes it in anew.
_LISTED = [state for state in STATES if state != FORGOTTEN]


@click.group("files")
def files_command() -> None:
    """Files that an ingest has taken in, set aside, or left for later.

    \b
    Example:
      twice files list orders
    """


@files_command.command("list")
@click.argument("name", shell_complete=pipelines)
@click.option("--state", type=click.Choice(_LISTED), help="Only files in this state.")
@click.option("--like", default="", help="Only paths that hold this text.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=_SHOWN, show_default=True, help="How many to show at most."
)
@project_option
@output_option
@debug_option
def list_files(name: str, state: str | None, like: str, limit: int, folder: str | None, output: str) -> None:
    """List the files of the pipeline NAME, as its target and the ledger know them.

    \b
    Examples:
      twice files list orders
      twice files list orders --state 'set aside'
    """
    project = opened(folder, only_looking=True)
    pipeline = project.pipeline(name)
    found = [mark for mark in files_of(project, pipeline) if (not state or mark.state == state) and like in mark.path]
    if output == "json":
        print_json({"files": [_facts(mark) for mark in found[:limit]], "count": len(found)})
        return
    rows = [
        [mark.path, mark.state, _number(mark.rows), mark.size, mark.generation or "", mark.reason] for mark in found
    ]
    print_table(["file", "state", "rows", "bytes", "generation", "reason"], rows[:limit], empty="No file is known yet.")
    if len(found) > limit:
        print(f"{len(found) - limit} more; --limit shows them.")


@files_command.command("show")
@click.argument("name", shell_complete=pipelines)
@click.argument("path")
@project_option
@output_option
@debug_option
def show_file(name: str, path: str, folder: str | None, output: str) -> None:
    """Explain what became of one file of the pipeline NAME, and why.

    \b
    Example:
      twice files show orders landing/2024-10-07.csv
    """
    project = opened(folder, only_looking=True)
    pipeline = project.pipeline(name)
    known = {mark.path: mark for mark in files_of(project, pipeline)}
    if path not in known:
        raise Misuse(f"{name} knows no file {path!r}.", fix=suggestion(path, known))
    mark = known[path]
    older = list(history_of(project, pipeline, path))
    if output == "json":
        print_json({"file": _facts(mark), "before": [_facts(one) for one in older]})
        return
    print(path)
    for label, value in _facts(mark).items():
        if value not in ("", None) and label != "path":
            print(f"  {label:10} {value}")
    for one in older:
        print(
            f"  before     {one.state} in generation {one.generation}, {_number(one.rows) or 'no'} rows, {one.content}"
        )


@files_command.command("forget")
@click.argument("name", shell_complete=pipelines)
@click.argument("paths", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Also files whose rows are in the table.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@project_option
@output_option
@debug_option
def forget_files(name: str, paths: tuple[str, ...], force: bool, yes: bool, folder: str | None, output: str) -> None:
    """Forget files of the pipeline NAME, so that its next run takes them in anew.

    Where rows carry their file, the new rows take the place of the old ones; otherwise they are added to them.

    \b
    Examples:
      twice files forget orders landing/broken.parquet
      twice files forget orders landing/2024-10-07.csv --force
    """
    project = opened(folder)
    pipeline = project.pipeline(name)
    found_again = bool(tracked_of(pipeline).files.file_column) and pipeline.pattern.action(None) == "create"
    known = {mark.path: mark for mark in files_of(project, pipeline)}
    taken = [path for path in paths if path in known and known[path].is_there]
    if taken and not force:
        raise Misuse(
            f"The rows of {taken[0]!r} are in the table.",
            "The next run would replace them." if found_again else "Taken in anew, they could be there twice.",
            "Use --force to forget it all the same.",
        )
    if taken:
        confirm(f"Forget {count(len(taken), 'file')} whose rows are in {pipeline.target.text}?", yes=yes)
    outcome = forget(project, pipeline, paths)
    if output == "json":
        print_json({"outcome": outcome.to_json()})
    else:
        print(outcome_line(outcome))
        print(
            f"The next twice run {name} takes in what is there under {'this name' if len(paths) == 1 else 'these names'}."
        )


def _facts(mark: Mark) -> dict[str, Any]:
    facts = asdict(mark)
    moment = datetime.fromtimestamp(facts.pop("mtime_ns") / 1e9, UTC) if mark.mtime_ns else None
    return {**facts, "modified": moment.isoformat(timespec="seconds") if moment else ""}


def _number(rows: int | None) -> str:
    return "" if rows is None else f"{rows:,}"
