"""How does a person fill a stretch of time?"""

from __future__ import annotations

from datetime import UTC, datetime

import click

from twice.backfills import check_free, check_jobs, left_of, slots_between, worst
from twice.cli.opening import opened
from twice.cli.output import debug_option, log_options, output_option, print_json, print_table, project_option
from twice.cli.results import recorded
from twice.cli.walk import approve_all, summary, walk, warn
from twice.decide import Asked
from twice.forecasts import Forecast, Outlook, outlook


@click.command("backfill")
@click.argument("name")
@click.option("--from", "start", required=True, help="First interval, inclusive.")
@click.option("--to", "end", required=True, help="End of the stretch, exclusive.")
@click.option("--dry-run", is_flag=True, help="Say for every slot what would happen, and change nothing.")
@click.option("--missing", is_flag=True, help="Only slots that were never published.")
@click.option("--failed", is_flag=True, help="Only slots whose newest attempt did not end well.")
@click.option("--force", is_flag=True, help="Publish new generations although nothing changed.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Slots to work on at a time.")
@click.option("--yes", is_flag=True, help="Replace published rows without asking.")
@project_option
@output_option
@log_options
@debug_option
def backfill_command(
    name: str,
    start: str,
    end: str,
    dry_run: bool,
    missing: bool,
    failed: bool,
    force: bool,
    jobs: int,
    yes: bool,
    folder: str | None,
    output: str,
) -> int:
    """Fill the slots of NAME that start in [FROM, TO), in order; published ones are skipped.

    A backfill that was killed resumes where it stood when it is run again.

    \b
    Examples, three days (the end is exclusive):
      twice backfill visits --from 2024-10-01 --to 2024-10-04 --dry-run
      twice backfill visits --from 2024-10-01 --to 2024-10-04 --jobs 2
      twice backfill visits --from 2024-10-01 --to 2024-10-04 --failed
    """
    project = opened(folder, only_looking=dry_run)
    pipeline = project.pipeline(name)
    warn(pipeline)
    check_jobs(pipeline, jobs)
    stretch = slots_between(pipeline, start, end, datetime.now(UTC))
    slots = left_of(project, pipeline, stretch, missing=missing, failed=failed)
    asked = Asked(force, resuming=True)
    if dry_run:
        return _print_outlook(outlook(project, pipeline, slots, asked), output)
    check_free(project, pipeline, slots)
    approve = None
    if not yes:
        found = outlook(project, pipeline, slots, asked).slots
        approve = approve_all({one.slot: one.why_asks for one in found if one.why_asks}, len(slots))
    with recorded(project, "backfill") as results:
        ends = walk(project, pipeline, slots, asked, output, results, jobs, approve)
        code = summary(ends, output, not_reached=len(slots) - len(ends), as_table=True)
        results.finish(code)
    return code


def _print_outlook(found: Outlook, output: str) -> int:
    if output == "json":
        print_json({"dry_run": True, **found.to_json()})
    else:
        for number, one in enumerate(found.slots, 1):
            print(f"[{number}/{len(found.slots)}] {_line(one)}")
        for line in found.publish.lines if found.publish else ():
            print(line)
        if found.busy:
            print(f"refused now: {found.busy.what}")
        print_table(["would", "slots"], list(found.counts.items()), empty="No slot of the stretch is to be done.")
        print("Nothing was written.")
    return worst(found.errors).exit_code if found.errors else 0


def _line(found: Forecast) -> str:
    edition = f" (generation {found.generation})" if found.generation and found.action != "skip" else ""
    notes = "".join(f"; {note}" for note in found.notes)
    fix = f" {found.fix}" if found.action == "held" else ""
    return f"{found.slot.pipeline} {found.slot.label}  {found.action}: {found.reason}{edition}{notes}{fix}"
