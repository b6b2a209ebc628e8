"""How does a person fill a stretch of time, of one pipeline or of several?"""

from __future__ import annotations

from datetime import UTC, datetime

import click

from twice.backfills import check_free, check_jobs, left_of, slots_between
from twice.cli.completion import pipelines, times
from twice.cli.opening import opened, pipelines_chosen, selection_options
from twice.cli.output import debug_option, log_options, output_option, project_option
from twice.cli.results import recorded
from twice.cli.walk import Walks, print_outlook, walk_all
from twice.decide import Asked
from twice.errors import Misuse
from twice.forecasts import outlooks
from twice.pipelines import Pipeline
from twice.project import Project
from twice.upstream import upstream_first


@click.command("backfill")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=pipelines)
@click.option("--from", "start", required=True, shell_complete=times, help="First interval, inclusive.")
@click.option("--to", "end", required=True, shell_complete=times, help="End of the stretch, exclusive.")
@click.option("--dry-run", is_flag=True, help="Say for every slot what would happen, and change nothing.")
@click.option("--missing", is_flag=True, help="Only slots that were never published.")
@click.option("--failed", is_flag=True, help="Only slots whose newest attempt did not end well.")
@click.option("--force", is_flag=True, help="Publish new generations although nothing changed.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Slots to work on at a time.")
@click.option("--yes", is_flag=True, help="Replace published rows without asking.")
@selection_options
@project_option
@output_option
@log_options
@debug_option
def backfill_command(
    names: tuple[str, ...],
    start: str,
    end: str,
    dry_run: bool,
    missing: bool,
    failed: bool,
    force: bool,
    jobs: int,
    yes: bool,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    folder: str | None,
    output: str,
) -> int:
    """Run every interval of NAME that starts in [FROM, TO), oldest first; published ones are skipped.

    Of several pipelines those come first that others read. One without a calendar among them runs its only slot. A
    backfill that was killed resumes where it stood when it is run again.

    \b
    Examples, three days (the end is exclusive):
      twice backfill visits --from 2024-10-01 --to 2024-10-04 --dry-run
      twice backfill visits --from 2024-10-01 --to 2024-10-04 --jobs 2
      twice backfill visits --from 2024-10-01 --to 2024-10-04 --failed
      twice backfill --select visits+ --from 2024-10-01 --to 2024-10-04
    """
    project = opened(folder, only_looking=dry_run)
    if not (names or select):
        raise Misuse("Which pipelines?", "Nothing was done.", "Name them, or use --select; --select '*' takes all.")
    chosen = upstream_first(pipelines_chosen(project, names, select, exclude))
    walks = _walks(project, chosen, start, end, missing=missing, failed=failed)
    for pipeline in chosen:
        check_jobs(pipeline, jobs)
    asked = Asked(force, resuming=True)
    if dry_run:
        return print_outlook(outlooks(project, walks, asked), asked, output)
    for pipeline, slots in walks:
        check_free(project, pipeline, slots)
    with recorded(project, "backfill") as results:
        return walk_all(project, walks, asked, output, results, yes=yes, jobs=jobs, as_table=True)


def _walks(project: Project, chosen: list[Pipeline], start: str, end: str, *, missing: bool, failed: bool) -> Walks:
    """Return the slots of each pipeline; one without a calendar, among others that have one, has its only slot to do.

    Raises:
        Misuse: A pipeline has no closed slot there, or none of them has a calendar.
    """
    now, any_calendar = datetime.now(UTC), any(pipeline.schedule for pipeline in chosen)
    walks = []
    for pipeline in chosen:
        is_single = any_calendar and not pipeline.schedule
        slots = [pipeline.slot()] if is_single else slots_between(pipeline, start, end, now)
        walks.append((pipeline, left_of(project, pipeline, slots, missing=missing, failed=failed)))
    return walks
