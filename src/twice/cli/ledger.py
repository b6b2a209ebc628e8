"""How does a person mend the ledger, take a target over, and clean up?"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import click

from twice.cli.completion import pipelines, targets
from twice.cli.opening import opened, pipelines_named
from twice.cli.output import confirm, debug_option, output_option, print_json, project_option, say
from twice.errors import Misuse, TwiceError, count
from twice.handovers import RELEASED, release, take_over
from twice.intakes import note_all, sweep_beside
from twice.ledger import effects, logs, moving
from twice.ledger.retries import moment_text
from twice.project import Project
from twice.runs import Receipt, Target
from twice.sight import Sight


@click.group("ledger")
def ledger_command() -> None:
    """Mend the ledger, or move it. Of what is published it is only a cache: the stores decide."""


@ledger_command.command("rebuild")
@click.option("--yes", is_flag=True, help="Take over targets of a lost ledger without asking.")
@project_option
@output_option
@debug_option
def rebuild(yes: bool, folder: str | None, output: str) -> int:
    """Read all receipts back from the stores, and make this ledger the owner of the targets.

    Do this after the ledger was lost or an old copy of it was put back. What no store holds, such as
    the history of failed attempts, cannot be brought back and is listed.

    \b
    Example:
      twice ledger rebuild --yes
    """
    project = opened(folder)
    targets = sorted({pipeline.target for pipeline in pipelines_named(project)})
    looked = {target: project.store(target.store).look(target.name) for target in targets}
    strangers = [target.text for target, sight in looked.items() if sight.owner not in ("", project.ledger.id)]
    if strangers:
        owners = f"Take over {', '.join(strangers)}? The ledger that owns them now will be refused from then on."
        confirm(owners, yes=yes)
    receipts: list[tuple[Receipt, int]] = []
    taken: list[str] = []
    troubles: list[str] = []
    for target, sight in looked.items():
        try:
            receipts += _taken(project, target, sight)
            taken.append(target.text)
        except TwiceError as error:
            troubles.append(f"{target.text}: {error.what}")
    brought = project.ledger.rebuild(taken, receipts)
    for receipt, _ in receipts:
        if receipt.effects:
            effects.published(project.ledger, receipt)
    for pipeline in project.pipelines.values():
        if pipeline.tracked and pipeline.target.text in taken:
            note_all(project, pipeline)
    lost = [
        "attempts that failed, were refused or skipped: no store holds them",
        "what was accepted with --accept: the next run asks again",
        "runs that were due again or set aside: see twice status for what is missing",
        "answers to effects: those that receipts name are unknown now, see twice effects list",
        "remembered content hashes: files are hashed once more",
    ]
    if output == "json":
        print_json(
            {"receipts": brought, "targets": [target.text for target in targets], "lost": lost, "troubles": troubles}
        )
    else:
        print(f"{count(brought, 'receipt')} read back from {count(len(targets), 'target')}.")
        print("Not brought back:", *(f"  {line}" for line in lost), sep="\n")
        for trouble in troubles:
            print(f"Left out: {trouble}")
    return 1 if troubles else 0


@ledger_command.command("export")
@click.argument("file", type=click.Path(dir_okay=False))
@project_option
@output_option
@debug_option
def export_command(file: str, folder: str | None, output: str) -> None:
    """Write all that the ledger holds to FILE, one JSON document a line.

    With import it moves a ledger between SQLite and PostgreSQL. It is refused while a run is alive.

    \b
    Example:
      twice ledger export ledger.jsonl
    """
    project = opened(folder, only_looking=True)
    place = project.settings.ledger_place
    if not place.is_made():
        raise Misuse(
            f"There is no ledger yet at {place.shown}.", fix="Nothing was ever run, so there is nothing to move."
        )
    moved = moving.export(project.ledger, file)
    _tell_moved(moved, file, output, f"{count(moved.rows, 'row')} of ledger {moved.ledger[:8]} written to {file}.")


@ledger_command.command("import")
@click.argument("file", type=click.Path(dir_okay=False))
@project_option
@output_option
@debug_option
def import_command(file: str, folder: str | None, output: str) -> None:
    """Take in a ledger that was exported to FILE, with its id, so that its targets stay owned.

    The ledger of this project must be new. From then on use only this one, and put the old one away.

    \b
    Examples:
      twice ledger import ledger.jsonl
      TWICE_LEDGER_URL=postgresql://ann@db/ledgers twice ledger import ledger.jsonl
    """
    project = opened(folder)
    moved = moving.import_(project.ledger, file)
    done = "taken into" if moved.changed else "are already in"
    where = project.settings.ledger_place.shown
    _tell_moved(moved, file, output, f"{count(moved.rows, 'row')} of ledger {moved.ledger[:8]} {done} {where}.")


def _tell_moved(moved: moving.Moved, file: str, output: str, text: str) -> None:
    if output == "json":
        print_json({"file": file, **asdict(moved)})
    else:
        print(text)


def _taken(project: Project, target: Target, sight: Sight) -> list[tuple[Receipt, int]]:
    """Take a target over, and return its receipts."""
    if sight.exists and sight.owner != project.ledger.id:
        say(f"taking over {target.text}")
        sight = take_over(project.store(target.store), project.ledger, target.name)
    return [(receipt, sight.version) for receipt in sight.receipts.values()]


@click.command("adopt")
@click.argument("target", shell_complete=targets)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@project_option
@output_option
@debug_option
def adopt_command(target: str, yes: bool, dry_run: bool, folder: str | None, output: str) -> None:
    """Make this project's ledger the owner of TARGET, which another ledger or nobody owns.

    Rows, versions and receipts stay as they are. Rows that Twice did not write are the state before the first slot. If the
    pipeline that writes TARGET needs older versions, they are kept for as long as it declares. A former owner is refused
    from then on.

    \b
    Examples:
      twice adopt delta:lake/visits --dry-run
      twice adopt delta:lake/visits
    """
    project = opened(folder, only_looking=dry_run)
    where = project.target(target)
    target = where.text
    store = project.store(where.store)
    sight = store.look(where.name)
    if not (sight.exists or sight.filled):
        raise Misuse(f"There is no table {target}.", fix="A target that does not exist yet needs no adoption.")
    keep_days = max((p.pattern.keep_days for p in project.pipelines.values() if p.target == where), default=0)
    if sight.owner == project.ledger.id:
        message = f"{target} belongs to this ledger already; nothing to do."
    elif dry_run:
        kept = f"; its versions would be kept for {count(keep_days, 'day')} at least" if keep_days else ""
        message = f"{target} would be taken over from {_owner(sight)}, with {count(len(sight.receipts), 'receipt')}{kept}; no row changes."
    else:
        confirm(f"Take {target} over from {_owner(sight)}?", yes=yes)
        taken = take_over(store, project.ledger, where.name, keep_days)
        project.ledger.rebuild([target], [(receipt, taken.version) for receipt in taken.receipts.values()])
        message = f"{target} belongs to this ledger now; {count(len(taken.receipts), 'receipt')} read from it."
    if output == "json":
        print_json({"target": target, "message": message})
    else:
        print(message)


def _owner(sight: Sight) -> str:
    return "nobody" if sight.owner in ("", RELEASED) else sight.owner[:8]


@click.command("release")
@click.argument("target", shell_complete=targets)
@click.option("--yes", is_flag=True, help="Do not ask.")
@project_option
@output_option
@debug_option
def release_command(target: str, yes: bool, folder: str | None, output: str) -> None:
    """Give TARGET back: no ledger owns it from then on, and its pipeline is refused until it is adopted again.

    Rows, versions and receipts stay as they are.

    \b
    Example:
      twice release delta:lake/visits
    """
    project = opened(folder)
    where = project.target(target)
    target = where.text
    confirm(f"Give {target} back?", yes=yes)
    release(project.store(where.store), project.ledger, where.name)
    message = f"{target} belongs to nobody now. To take it over again: twice adopt {target}"
    if output == "json":
        print_json({"target": target, "message": message})
    else:
        print(message)


@click.command("tidy")
@click.argument("name", required=False, shell_complete=pipelines)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.option("--keep-days", type=float, help="How long replaced versions and rows are kept. [default: tidy.keep_days]")
@click.option("--yes", is_flag=True, help="Do not ask before versions go that tidy.keep_days would keep.")
@project_option
@output_option
@debug_option
def tidy_command(
    name: str | None, dry_run: bool, keep_days: float | None, yes: bool, folder: str | None, output: str
) -> None:
    """Remove leftovers of dead attempts, and versions past their keeping.

    What a live run or a kept version uses is never removed. Of a history, change rows that no receipt names go. A version
    that is removed cannot be restored: fewer days than tidy.keep_days need a yes.

    \b
    Examples:
      twice tidy --dry-run
      twice tidy visits --keep-days 30
    """
    project = opened(folder, only_looking=dry_run)
    configured = float(project.settings["tidy.keep_days"])
    kept = configured if keep_days is None else keep_days
    if not kept >= 0:
        raise Misuse(
            f"--keep-days must be 0 or more, not {kept:g}.",
            "Nothing was removed.",
            "0 keeps no version but the newest, so that nothing can be restored.",
        )
    chosen = pipelines_named(project, name)
    for pipeline in chosen:
        owner = project.store(pipeline.target.store).look(pipeline.target.name).owner
        if owner not in ("", project.ledger.id):
            raise Misuse(
                f"{pipeline.target.text} belongs to another ledger ({owner[:8]}).", fix="Tidy it from its own project."
            )
    if kept < configured and not dry_run:
        lost = f"replaced {kept:g} to {configured:g} days ago"
        confirm(f"Remove versions that were {lost}? They cannot be restored then.", yes=yes)
    found = {
        p.target.text: project.store(p.target.store).tidy(
            p.target.name, project.ledger.live_attempts, keep_days=kept, dry_run=dry_run
        )
        for p in chosen
    }
    for pipeline in chosen:
        bodies, size = sweep_beside(project, pipeline, keep_days=kept, dry_run=dry_run)
        before = found[pipeline.target.text]
        found[pipeline.target.text] = replace(
            before, removed_files=before.removed_files + bodies, removed_bytes=before.removed_bytes + size
        )
    steps = project.kept.tidy(
        lambda: [lease.name for lease in project.ledger.live_leases()], keep_days=kept, dry_run=dry_run
    )
    since = moment_text(datetime.now(UTC) - timedelta(days=kept))
    old_logs = logs.remove(project.ledger, [p.identity for p in chosen], since, dry_run=dry_run)
    if output == "json":
        targets = {target: asdict(swept) for target, swept in found.items()}
        print_json({"dry_run": dry_run, "targets": targets, "steps": steps, "logs": old_logs})
        return
    word = "would be removed" if dry_run else "removed"
    for target, swept in found.items():
        whose = f" of {count(len(swept.attempts), 'attempt')}" if swept.attempts else ""
        print(f"{target}: {count(swept.removed_files, 'file')} ({swept.removed_bytes:,} bytes){whose} {word}")
        if swept.names:
            rows = f"{count(swept.change_rows, 'change row')} under {count(len(swept.names), 'name')}"
            print(f"  {rows} that no receipt names {word}")
        for note in swept.notes:
            print(f"  {note}")
    if steps:
        print(f"kept steps of {count(steps, 'slot')} {word}")
    if old_logs:
        print(f"logs of {count(old_logs, 'attempt')} {word}")
