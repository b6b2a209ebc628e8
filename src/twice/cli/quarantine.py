"""How does a person look at rows that were set aside, have them read again, or drop them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

import click

from twice.abilities import KeepsBeside
from twice.asides import AsideRow
from twice.cli.completion import pipelines, times
from twice.cli.opening import opened, pipelines_named
from twice.cli.output import confirm, debug_option, output_option, print_json, print_table, project_option
from twice.cli.walk import outcome_line
from twice.errors import Misuse, count
from twice.intakes import due, replay, taken_by
from twice.pipelines import Pipeline
from twice.project import Project
from twice.quarantine import rows_of
from twice.runs import Aside, Receipt

_SHOWN = 20
_RAW = 80


@click.group("quarantine")
def quarantine_command() -> None:
    """Rows that were set aside, because they could not be parsed or broke a rule.

    \b
    Example:
      twice quarantine list
    """


def _slot_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--key", help="Batch key, for a pipeline without a calendar.")(command)
    return click.option("--at", shell_complete=times, help="Start of the interval, for a pipeline with a calendar.")(
        command
    )


@quarantine_command.command("list")
@click.argument("name", required=False, shell_complete=pipelines)
@project_option
@output_option
@debug_option
def list_asides(name: str | None, folder: str | None, output: str) -> None:
    """List what was set aside, for all pipelines or for NAME.

    \b
    Example:
      twice quarantine list
    """
    project = opened(folder, only_looking=True)
    chosen = pipelines_named(project, name)
    found = [facts for pipeline in chosen for facts in _asides(project, pipeline)]
    if output == "json":
        print_json({"quarantine": found})
        return
    columns = ["pipeline", "slot", "generation", "rows", "state", "run"]
    print_table(columns, [[facts[column] for column in columns] for facts in found], empty="No row is set aside.")


def _asides(project: Project, pipeline: Pipeline) -> Iterator[dict[str, Any]]:
    """Return what was set aside in each generation of each slot, and whether its rows are still kept."""
    store = project.store(pipeline.target.store)
    if not isinstance(store, KeepsBeside):
        return
    for text, receipt in sorted(store.look(pipeline.target.name).receipts.items()):
        counts: Counter[tuple[int, str]] = Counter()
        for one, rows in _kept(project, pipeline, _held(project, pipeline, receipt)):
            states = (
                {"held": len(rows), "replaced": one.rows - len(rows)} if rows is not None else {"dropped": one.rows}
            )
            counts.update({(one.generation, state): number for state, number in states.items() if number})
        for (generation, state), number in counts.items():
            facts = {"pipeline": pipeline.name, "slot": _label(text), "generation": generation, "rows": number}
            yield {**facts, "state": state, "run": receipt.attempt if generation == receipt.generation else ""}


def _kept(
    project: Project, pipeline: Pipeline, aside: Iterable[Aside]
) -> Iterator[tuple[Aside, list[AsideRow] | None]]:
    """Return rows that were set aside and whose file was not taken in anew since; or none, where they were dropped."""
    store: Any = project.store(pipeline.target.store)
    taken = taken_by(project, pipeline) if pipeline.tracked else None
    labels = store.labels_beside(pipeline.target.name)
    for one in aside:
        if one.label not in labels:
            yield one, None
            continue
        rows = list(rows_of(store, pipeline.target.name, [one]))
        yield one, due(taken, one, rows) if taken else rows


def _held(project: Project, pipeline: Pipeline, receipt: Receipt) -> tuple[Aside, ...]:
    """Return what is set aside; of an ingest it is the list of the version that is there, also after a restore."""
    return taken_by(project, pipeline).aside if pipeline.tracked else receipt.aside


def _label(text: str) -> str:
    from twice.runs import Slot

    return Slot.parse(text).label


def _asked_for(project: Project, pipeline: Pipeline, at: str | None, key: str | None) -> tuple[Aside, ...]:
    slot = pipeline.slot(at, key)
    receipt = project.store(pipeline.target.store).look(pipeline.target.name).receipt(slot.text)
    aside = _held(project, pipeline, receipt) if receipt else ()
    if not aside:
        raise Misuse(f"No row of {pipeline.name} {slot.label} is set aside.", fix="See: twice quarantine list")
    return aside


@quarantine_command.command("show")
@click.argument("name", shell_complete=pipelines)
@_slot_options
@click.option(
    "--limit", type=click.IntRange(min=1), default=_SHOWN, show_default=True, help="How many rows to show at most."
)
@project_option
@output_option
@debug_option
def show_asides(name: str, at: str | None, key: str | None, limit: int, folder: str | None, output: str) -> None:
    """Show the rows of the pipeline NAME that were set aside: file, line, reason and text.

    \b
    Examples:
      twice quarantine show orders
      twice quarantine show visits --at 2024-10-07 --output json
    """
    project = opened(folder, only_looking=True)
    pipeline = project.pipeline(name)
    aside = _asked_for(project, pipeline, at, key)
    held = [row for _, rows in _kept(project, pipeline, aside) for row in rows or ()]
    rows, total = held[:limit], len(held)
    if output == "json":
        print_json({"rows": [asdict(row) for row in rows], "count": total})
        return
    shown = [[f"{row.file}:{row.line}", row.reason, _short(row.raw)] for row in rows]
    print_table(["where", "reason", "text"], shown, empty="The rows were dropped, or their files were taken in anew.")
    if total > len(rows):
        print(f"{total - len(rows)} more; --limit shows them.")


def _short(raw: str) -> str:
    text = raw.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _RAW else text[: _RAW - 1] + "…"


@quarantine_command.command("replay")
@click.argument("name", shell_complete=pipelines)
@_slot_options
@project_option
@output_option
@debug_option
def replay_asides(name: str, at: str | None, key: str | None, folder: str | None, output: str) -> None:
    """Read rows of the pipeline NAME again that were set aside, after the schema, a rule or the transform was corrected.

    It is a new generation of the same slot, so each row is published once, however often this is done. What still cannot be used is
    set aside again.

    \b
    Examples:
      twice quarantine replay orders
      twice quarantine replay visits --at 2024-10-07
    """
    project = opened(folder)
    pipeline = project.pipeline(name)
    _asked_for(project, pipeline, at, key)
    outcome = replay(project, pipeline, pipeline.slot(at, key))
    if output == "json":
        print_json({"outcome": outcome.to_json()})
    else:
        print(outcome_line(outcome))


@quarantine_command.command("drop")
@click.argument("name", shell_complete=pipelines)
@_slot_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@project_option
@output_option
@debug_option
def drop_asides(name: str, at: str | None, key: str | None, yes: bool, folder: str | None, output: str) -> None:
    """Remove the text of rows of the pipeline NAME that were set aside; how many there were stays known.

    \b
    Example:
      twice quarantine drop orders --yes
    """
    project = opened(folder)
    pipeline = project.pipeline(name)
    aside = _asked_for(project, pipeline, at, key)
    held = [one for one, rows in _kept(project, pipeline, aside) if rows is not None]
    total = sum(one.rows for one in held)
    confirm(f"Drop {count(total, 'row')} that {name} set aside? They cannot be read again then.", yes=yes)
    store: Any = project.store(pipeline.target.store)
    store.drop_beside(pipeline.target.name, [one.label for one in held])
    if output == "json":
        print_json({"dropped": total})
    else:
        print(f"{count(total, 'row')} dropped.")
