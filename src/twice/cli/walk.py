"""How does a person follow a walk over many slots?

They are asked once before it, see a bar with the time that is left on a terminal and a line for each
slot elsewhere, and get a summary at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TextIO

from twice.backfills import SlotEnd, fill, worst
from twice.cli.output import confirm, is_quiet, print_json, print_table, say
from twice.cli.progress import progress
from twice.cli.results import Results
from twice.decide import Asked
from twice.errors import Misuse, Waiting, count
from twice.forecasts import Forecast, Outlook, not_well, outlooks, united
from twice.jobs import Outcome
from twice.pipelines import Pipeline
from twice.plans import Plan
from twice.project import Project
from twice.runs import Slot
from twice.upstream import upstream_of

Walks = list[tuple[Pipeline, list[Slot]]]


def warn(pipeline: Pipeline) -> None:
    """Tell what is probably a mistake in a declaration."""
    for warning in pipeline.warnings:
        say(f"warning: {warning}")


def approve_all(replaced: Mapping[Slot, str], among: int) -> Callable[[Plan], None]:
    """Ask once for all slots whose published rows would be replaced, each with the reason; return what refuses others."""
    if not replaced:
        return _refusing({})
    labels = [slot.label for slot in replaced]
    more = f" and {len(labels) - 5} more" if labels[5:] else ""
    why = next(iter(replaced.values()))
    what = f"{', '.join(labels[:5])}{more} ({f'{labels[0]}: {why}' if labels[1:] else why})"
    confirm(f"{len(labels)} of {count(among, 'slot')} would be replaced: {what}. Go on?", yes=False)
    return _refusing(replaced)


def _refusing(agreed: Mapping[Slot, str]) -> Callable[[Plan], None]:
    """Refuse to take rows away of slots that were not in the question: their inputs changed since, or a later batch is read."""

    def approve(plan: Plan) -> None:
        if plan.destroys and plan.slot not in agreed:
            raise Misuse(
                f"Published rows of {plan.slot.pipeline} {plan.slot.label} would leave, and you were not asked: {plan.why_asks}.",
                "This was not so when the walk began. Nothing was published for this slot.",
                "Run again, and you are asked; or pass --yes.",
            )

    return approve


@dataclass
class Walked:
    """How many slots have ended of all that a command walks over, pipeline after pipeline."""

    total: int
    ended: int = 0

    def line(self, ended: SlotEnd) -> str:
        """Count a slot, and say what became of it."""
        self.ended += 1
        return f"[{self.ended}/{self.total}] {_line(ended)}"


def walk_all(
    project: Project,
    walks: Walks,
    asked: Asked,
    output: str,
    results: Results,
    *,
    yes: bool,
    jobs: int = 1,
    as_table: bool = False,
) -> int:
    """Fill the slots of several pipelines in their order, having asked before anything starts; return the exit code.

    What reads a table of which a slot did not end well is not started, unless the walk is over all that is due: that one
    comes back when the slot is published.
    """
    for pipeline, _ in walks:
        warn(pipeline)
    agreed = [None] * len(walks) if yes else _approvals(project, walks, asked)
    walked, ends = Walked(sum(len(slots) for _, slots in walks)), []
    ill: list[Pipeline] = []
    for (pipeline, slots), approve in zip(walks, agreed, strict=True):
        amiss = [] if asked.by_calendar else upstream_of(pipeline, ill)
        if amiss:
            print(f"{pipeline.name}  not started: {not_well(amiss[0])}", file=_answers(output), flush=True)
            ill.append(pipeline)
            continue
        ended = _walked(project, pipeline, slots, asked, output, results, jobs, approve, walked)
        if any(one.error for one in ended):
            ill.append(pipeline)
        ends += ended
    left, is_fine = walked.total - len(ends), asked.by_calendar
    code = summary(ends, output, not_reached=left, as_table=as_table, waiting_is_fine=is_fine)
    results.finish(code)
    return code


def _approvals(project: Project, walks: Walks, asked: Asked) -> list[Callable[[Plan], None]]:
    """Ask before anything starts, also for what is replaced only since something upstream is published first."""
    return [
        approve_all({one.slot: one.why_asks for one in found.slots if one.why_asks}, len(slots))
        for (_, slots), found in zip(walks, outlooks(project, walks, asked), strict=True)
    ]


def _walked(
    project: Project,
    pipeline: Pipeline,
    slots: list[Slot],
    asked: Asked,
    output: str,
    results: Results,
    jobs: int,
    approve: Callable[[Plan], None] | None,
    walked: Walked,
) -> list[SlotEnd]:
    """Fill slots; an ingest takes in one batch after the other, until no file is left."""
    ends = walk(project, pipeline, slots, asked, output, results, jobs, approve, walked)
    while pipeline.tracked and ends and ends[-1].outcome and ends[-1].outcome.left:
        walked.total += len(slots)
        ends += walk(project, pipeline, slots, asked, output, results, jobs, approve, walked)
    return ends


def _answers(output: str) -> TextIO:
    """Return where lines for people go: standard output is for the answer alone where that is JSON."""
    return sys.stderr if output == "json" else sys.stdout


def walk(
    project: Project,
    pipeline: Pipeline,
    slots: list[Slot],
    asked: Asked,
    output: str,
    results: Results,
    jobs: int,
    approve: Callable[[Plan], None] | None,
    walked: Walked,
) -> list[SlotEnd]:
    """Fill slots, and tell of each as it ends; `walked` counts where others come before or after these."""
    ends: list[SlotEnd] = []
    answers = _answers(output)
    labels = [slot.label for slot in slots] if jobs == 1 else []
    with progress(pipeline.name, len(slots), labels) as bar:
        for ended in fill(project, pipeline, slots, asked, jobs, approve):
            ends.append(ended)
            results.add(ended)
            line = walked.line(ended)
            if bar:
                bar.advance(worked=not (ended.outcome and ended.outcome.state == "skipped"))
            is_progress = is_quiet() and output == "json"
            if ended.error or not (is_progress or (bar and answers.isatty())):
                print(line, file=answers, flush=True)
    return ends


def outcome_line(outcome: Outcome) -> str:
    """Say in one line what became of a slot."""
    aside = f", {outcome.quarantined} of {outcome.parsed} set aside" if outcome.quarantined else ""
    facts = f"{count(outcome.rows, 'row')}{aside}, generation {outcome.generation}, version {outcome.version_after}"
    notes = "".join(f"; {note}" for note in outcome.notes)
    return f"{outcome.slot.pipeline} {outcome.slot.label}  {outcome.state} ({outcome.reason}): {facts}{notes}"


def _line(ended: SlotEnd) -> str:
    if ended.outcome:
        return outcome_line(ended.outcome)
    what = f"waiting: {ended.error.what}" if isinstance(ended.error, Waiting) else f"failed: {ended.error}"
    return f"{ended.slot.pipeline} {ended.slot.label}  {what}"


def _state(ended: SlotEnd) -> str:
    if ended.outcome:
        return ended.outcome.state
    return "waiting" if isinstance(ended.error, Waiting) else "failed"


def summary(
    ends: list[SlotEnd], output: str, *, not_reached: int = 0, as_table: bool = False, waiting_is_fine: bool = False
) -> int:
    """Tell what became of all slots, and return the exit code."""
    by_state: dict[str, list[SlotEnd]] = {state: [] for state in ("published", "skipped", "waiting", "failed")}
    for ended in ends:
        by_state[_state(ended)].append(ended)
    waiting, failed = by_state["waiting"], by_state["failed"]
    counts = {state: {"slots": len(found), "rows": _rows(found)} for state, found in by_state.items()}
    counts["not reached"] = {"slots": not_reached, "rows": 0}
    if output == "json":
        print_json(
            {
                "outcomes": [ended.outcome.to_json() for ended in ends if ended.outcome],
                "waiting": [{"slot": ended.slot.text, "reason": str(ended.error)} for ended in waiting],
                "errors": [{"slot": ended.slot.text, "error": str(ended.error)} for ended in failed],
                "counts": {state.replace(" ", "_"): found for state, found in counts.items()},
            }
        )
    else:
        told = [[state, found["slots"], f"{found['rows']:,}"] for state, found in counts.items() if found["slots"]]
        if as_table:
            print_table(["state", "slots", "rows"], told, empty="No slot of the stretch is to be done.")
        waits = f", {len(waiting)} waiting" if waiting else ""
        left = f", {not_reached} not reached" if not_reached else ""
        published, skipped = len(by_state["published"]), len(by_state["skipped"])
        print(f"{published} published, {skipped} skipped{waits}, {len(failed)} failed{left}")
    # Whoever asks for what is due asks again; whoever asks for a stretch wants it filled.
    errors = [ended.error for ended in (failed if waiting_is_fine else failed + waiting) if ended.error]
    return worst(errors).exit_code if errors else 0


def print_outlook(found: list[Outlook], asked: Asked, output: str) -> int:
    """Print what a walk over several pipelines would do, slot by slot, and return the exit code that it would have now."""
    whole = united(found)
    if output == "json":
        print_json({"dry_run": True, **whole.to_json()})
    else:
        for number, one in enumerate(whole.slots, 1):
            print(f"[{number}/{len(whole.slots)}] {_forecast_line(one)}")
        for line in (line for each in found if each.publish for line in each.publish.lines):
            print(line)
        if whole.busy:
            print(f"refused now: {whole.busy.what}")
        print_table(["would", "slots"], list(whole.counts.items()), empty="No slot is to be done.")
        print("Nothing was written.")
    errors = [error for error in whole.errors if not (asked.by_calendar and isinstance(error, Waiting))]
    return worst(errors).exit_code if errors else 0


def _forecast_line(found: Forecast) -> str:
    generation = f" (generation {found.generation})" if found.generation and found.action != "skip" else ""
    notes = "".join(f"; {note}" for note in found.notes)
    fix = f" {found.fix}" if found.action == "held" else ""
    return f"{found.slot.pipeline} {found.slot.label}  {found.action}: {found.reason}{generation}{notes}{fix}"


def _rows(ends: list[SlotEnd]) -> int:
    return sum(ended.outcome.rows for ended in ends if ended.outcome)
