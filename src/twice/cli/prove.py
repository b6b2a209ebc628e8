"""How does a person see whether a pipeline can be run twice?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from twice.backfills import worst
from twice.cli.completion import pipelines, times
from twice.cli.opening import opened, pipelines_chosen, selection_options
from twice.cli.options import contradicting
from twice.cli.output import debug_option, is_quiet, output_option, print_json, print_table, project_option, say
from twice.cli.progress import Bar, progress
from twice.cli.walk import warn
from twice.errors import Misuse, TwiceError, count

if TYPE_CHECKING:
    from twice.prover.trials import LeftOut, Proof, Tried

_MINUTE = 60
_COUNTEREXAMPLE = 5
_SHOWN = 10


@click.command("prove")
@click.argument("name", required=False, shell_complete=pipelines)
@click.option(
    "--at",
    shell_complete=times,
    help="Start of the interval to prove; by default the newest closed one that has input.",
)
@click.option("--key", help="Batch key, for a pipeline without a calendar.")
@click.option("--pairs", is_flag=True, help="Also die twice: in the run, and in its rerun.")
@click.option("--seed", type=int, default=0, show_default=True, help="Draws the order of pairs.")
@click.option("--budget", default="5m", show_default=True, help="Time to spend: 90s, 5m, 1h.")
@click.option("--full", is_flag=True, help="Try everything, however long it takes.")
@click.option("--only", metavar="POINT/WAY", help="Try this alone, such as publish.after/kill.")
@click.option("--report", type=click.Path(dir_okay=False), help="Write a page that shows the run as a line of points.")
@click.option("--junit", type=click.Path(dir_okay=False), help="Write a JUnit XML file for a build server.")
@selection_options
@project_option
@output_option
@debug_option
@contradicting("only", "full", "pairs", "budget", why="One is about a single trial, the other about all of them.")
@contradicting("full", "budget", why="Everything is tried, however long it takes.")
@contradicting("select", "at", "key", "only", "report", "junit", why="They are about a single pipeline.")
@contradicting("exclude", "at", "key", "only", "report", "junit", why="They are about a single pipeline.")
def prove_command(
    name: str | None,
    at: str | None,
    key: str | None,
    pairs: bool,
    seed: int,
    budget: str,
    full: bool,
    only: str | None,
    report: str | None,
    junit: str | None,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    folder: str | None,
    output: str,
) -> int:
    """Show that NAME can be run twice, or how it cannot: die at every point it passes, run again, compare.

    All of it happens in temporary copies of the project; the real target is never touched. With --select, one pipeline after
    the other is proven, each with the whole budget.

    \b
    Examples:
      twice prove visits
      twice prove visits --at 2024-10-07 --only publish.after/kill
      twice prove visits --full --pairs --report proof.html
      twice prove --select tag:nightly --budget 2m
    """
    from twice.prover.pages import page
    from twice.prover.proving import prove
    from twice.prover.reports import junit_xml

    if not (name or select or exclude):
        raise Misuse("Which pipeline?", "Nothing was tried.", "Name one, or use --select; --select '*' proves all.")
    project = opened(folder, only_looking=True)
    chosen = pipelines_chosen(project, [name], select, exclude)
    proofs, errors = [], []
    for pipeline in chosen:
        warn(pipeline)
        try:
            with ExitStack() as drawing:
                proof = prove(
                    pipeline.name,
                    at=at,
                    key=key,
                    pairs=pairs,
                    seed=seed,
                    budget=budget,
                    full=full,
                    only=only,
                    project=project,
                    on_trial=_follow(pipeline.name, drawing),
                )
        except TwiceError as error:
            if name:
                raise
            print(f"{pipeline.name}  not proven: {error}", file=sys.stderr)
            errors.append((pipeline.name, error))
            continue
        proofs.append(proof)
        if output == "text":
            _print(proof)
    if report:
        _write(report, page(proofs[0]))
    if junit:
        _write(junit, junit_xml(proofs[0]))
    if output == "json" and name:
        print_json({"proof": proofs[0].to_json()})
    elif output == "json":
        left_out = [{"pipeline": pipeline, "error": str(error)} for pipeline, error in errors]
        print_json({"proofs": [proof.to_json() for proof in proofs], "errors": left_out})
    if not all(proof.survived for proof in proofs):
        return _COUNTEREXAMPLE
    return worst([error for _, error in errors]).exit_code if errors else 0


def _follow(name: str, drawing: ExitStack) -> Callable[[Tried | LeftOut, int], None]:
    """Return what draws a bar as trials end, and names a counterexample as soon as it is found."""
    from twice.prover.trials import Tried

    bars: list[Bar | None] = []

    def ended(one: Tried | LeftOut, total: int) -> None:
        if not bars:
            bars.append(drawing.enter_context(progress(f"proving {name}", total)))
        if bars[0]:
            bars[0].advance(worked=isinstance(one, Tried))
        if isinstance(one, Tried) and not one.survived:
            say(f"{one.trial.name}: {one.verdict}")

    return ended


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Misuse(f"{file} cannot be written: {error.strerror or error}.") from error
    say(f"wrote {file}")


def _print(proof: Proof) -> None:
    from twice.prover.reports import told

    print(f"{proof.pipeline} {proof.slot} -> {proof.store}: {proof.told}")
    rows = []
    for point, tried in proof.by_point().items():
        fine = [one.trial.way for one in tried if one.survived]
        bad = [f"{one.trial.way}: {one.verdict}" for one in tried if not one.survived]
        rows.append((point, ", ".join(fine), ", ".join(bad)))
    print_table(["point", "survived", "did not"], rows, empty="Nothing was tried.")
    kinds = proof.alike()
    for one, others in kinds[:_SHOWN]:
        print(f"\n{told(one, others)}")
    if kinds[_SHOWN:]:
        print(f"\nand {len(kinds) - _SHOWN} more; --output json lists all")
    print()
    for note in () if is_quiet() else proof.notes:
        print(f"note: {note}")
    survived = len(proof.tried) - len(proof.counterexamples)
    print(f"{survived} of {count(len(proof.tried), 'trial')} survived, in {_length(proof.seconds)}.")
    for why, names in proof.left_out_by_reason().items():
        more = f" and {len(names) - 3} more" if names[3:] else ""
        print(f"left out: {', '.join(names[:3])}{more} ({why})")
    if proof.seconds_left_out:
        print(f"The whole would take about {_length(proof.seconds + proof.seconds_left_out)}: --full")


def _length(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _MINUTE else f"{seconds / _MINUTE:.0f} min"
