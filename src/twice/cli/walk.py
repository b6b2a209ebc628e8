"""How does a person follow a walk over many slots?

They are asked once before it, see a bar with the time that is left on a terminal and a line for each
slot elsewhere, and get a summary at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from twice.backfills import SlotEnd, fill, look_for, worst
from twice.cli.output import confirm, print_json, print_table, say
from twice.cli.progress import progress
from twice.cli.results import Results
from twice.considered import consider
from twice.decide import Asked
from twice.errors import Misuse, TwiceError, Waiting, count
from twice.jobs import Outcome
from twice.pipelines import Pipeline
from twice.plans import Plan
from twice.project import Project
from twice.runs import Slot


def warn(pipeline: Pipeline) -> None:
    """Tell what is probably a mistake in a declaration."""
    for warning in pipeline.warnings:
        say(f"warning: {warning}")


def plans_of(project: Project, pipeline: Pipeline, slots: list[Slot], asked: Asked) -> list[Plan]:
    """Plan each slot on what is there now; one that cannot be planned tells so when its turn comes."""
    plans, look = [], look_for(project, pipeline)
    for slot in slots:
        with suppress(TwiceError):
            plans.append(consider(project.job(pipeline, slot), look.store, look.ledger, asked, look).plan)
    return plans


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


def walk(
    project: Project,
    pipeline: Pipeline,
    slots: list[Slot],
    asked: Asked,
    output: str,
    results: Results,
    jobs: int = 1,
    approve: Callable[[Plan], None] | None = None,
    walked: Walked | None = None,
) -> list[SlotEnd]:
    """Fill slots, and tell of each as it ends; `walked` counts where others come before or after these."""
    ends: list[SlotEnd] = []
    walked = walked or Walked(len(slots))
    answers = sys.stderr if output == "json" else sys.stdout
    labels = [slot.label for slot in slots] if jobs == 1 else []
    with progress(pipeline.name, len(slots), labels) as bar:
        for ended in fill(project, pipeline, slots, asked, jobs, approve):
            ends.append(ended)
            results.add(ended)
            line = walked.line(ended)
            if bar:
                bar.advance(worked=not (ended.outcome and ended.outcome.state == "skipped"))
            if ended.error or not (bar and answers.isatty()):
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


def _rows(ends: list[SlotEnd]) -> int:
    return sum(ended.outcome.rows for ended in ends if ended.outcome)
