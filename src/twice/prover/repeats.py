"""In which ways can a run be repeated, and what must be there afterwards?

What a repeat may change follows from the pattern: one that replaces ends in the rows of a clean run,
one that re-applies may keep rows of an older edition, and a refusal must leave everything as it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

from twice.abilities import KeepsVersions
from twice.errors import Fenced, Stranger, TwiceError
from twice.faults import dying_at
from twice.prover.archives import left_behind
from twice.prover.determinism import differing_columns, explained
from twice.prover.grounds import Ground
from twice.prover.harness import survives
from twice.prover.inputs import changed, vanished
from twice.prover.killers import run_command, run_together
from twice.prover.trials import REAL, REPEAT, WARM, CannotBeTried, Trial
from twice.prover.verdicts import BYSTANDER, LIED, STUCK, Snapshot, Trouble, difference, rows_differ
from twice.prover.worlds import ProjectWorld, child_settings, words

EFFECTS, CLEAN, ALONE, AT_ONCE = "effects", "clean", "alone", "at-once"
_SEVERAL = 3


def warm_repeats(ground: Ground) -> Iterator[Trial]:
    """Yield the repeats that this process can make."""
    for way, (does, attempt) in _WARM.items():
        yield Trial(REPEAT, way, WARM, does, lambda a=attempt: a(ground))  # type: ignore[misc]


def alone(ground: Ground) -> Trial:
    """Return the repeat in a process of its own, which comes before all that kill one: the next ones start faster after it."""
    does = "in a process of its own"
    return Trial(REPEAT, ALONE, REAL, f"runs {does}", lambda: _other_process(ground, does))


def at_once(ground: Ground) -> Trial:
    """Return the repeat that needs two processes."""
    return Trial(REPEAT, AT_ONCE, REAL, "runs twice at once, in two processes", lambda: _at_once(ground))


# -------------------------------------------------------------------- in this process


def _twice(ground: Ground) -> Trouble | None:
    world = ground.fresh()
    world.act()
    again = world.run(ground.subject.slot)
    if again.state != "skipped":
        return Trouble(LIED, f"the second run was {again.state}, although nothing had changed: {again.reason}")
    return difference(world.snapshot(), ground.expected, ground.before)


def _changed_input(ground: Ground) -> Trouble | None:
    """A correction ends in what a clean run makes of the corrected input, where the pattern replaces."""
    world, clean = ground.fresh(), ground.fresh()
    world.act()
    for one in (world, clean):
        changed(one)
    before = world.snapshot()
    clean.act()
    try:
        world.act()
        world.act()
    except TwiceError as error:
        return _unchanged(world, before, error)
    tracked = ground.subject.declared.tracked
    if tracked and tracked.on_changed_file == "ignore":
        return rows_differ(world.snapshot().rows, before.rows)
    if _keeps_older_rows(ground) or (tracked and tracked.on_changed_file == "apply"):
        return _others_are_kept(world, ground)
    return rows_differ(world.snapshot().rows, clean.snapshot().rows, ground.before.rows)


def _vanished_input(ground: Ground) -> Trouble | None:
    """Input that is gone is no reason to take rows away: a run while it is gone leaves everything as it was."""
    world = ground.fresh()
    world.act()
    before = world.snapshot()
    with vanished(world) as gone:
        ended = "it was run while its input was gone"
        try:
            world.act()
        except TwiceError as error:
            ended = f"refused ({error.what})"
        trouble = difference(world.snapshot(), _without(before, gone))
        if trouble:
            return Trouble(trouble.kind, f"{ended}, and yet {trouble.text}")
    world.act()
    if _keeps_older_rows(ground):
        return None
    return rows_differ(world.snapshot().rows, ground.expected.rows, ground.before.rows)


def _without(snapshot: Snapshot, gone: frozenset[str]) -> Snapshot:
    kept = {name: held for name, held in snapshot.beside.items() if name not in gone}
    return Snapshot(snapshot.rows, snapshot.receipts, snapshot.ledger, kept)


def _unchanged(world: ProjectWorld, before: Snapshot, error: TwiceError) -> Trouble | None:
    """A run that was refused must have left everything as it was."""
    trouble = difference(world.snapshot(), before)
    return Trouble(trouble.kind, f"refused ({error.what}), and yet {trouble.text}") if trouble else None


def _ledger_lost(ground: Ground) -> Trouble | None:
    world = ground.fresh()
    world.act()
    before = world.snapshot()
    world.ledger.unlink()
    try:
        world.act()
    except Stranger as error:
        trouble = rows_differ(world.snapshot().rows, before.rows)
        if trouble:
            return Trouble(trouble.kind, f"refused ({error.what}), and yet {trouble.text}")
    else:
        return Trouble(LIED, "a run with a new ledger wrote to the table of another one")
    world.rebuild_ledger()
    world.act()
    return difference(world.snapshot(), ground.expected, ground.before)


def _ledger_stale(ground: Ground) -> Trouble | None:
    world = ground.fresh()
    if not world.ledger.exists():
        raise CannotBeTried("there is no older ledger: no slot before this one has input")
    old = world.folder.with_name("old-ledger.db")
    shutil.copy2(world.ledger, old)
    world.act()
    shutil.copy2(old, world.ledger)
    world.act()
    return difference(world.snapshot(), ground.expected, ground.before)


def _older_after_newer(ground: Ground) -> Trouble | None:
    """The older slot comes late: the rows are those of the right order, or it is refused and changes nothing."""
    slots = ground.subject.slots[-2:]
    if len(slots) == 1:
        raise CannotBeTried("only one slot has input")
    in_order, late = ground.fresh(empty=True), ground.fresh(empty=True)
    for slot in slots:
        in_order.run(slot)
    late.run(slots[1])
    before = late.snapshot()
    try:
        late.run(slots[0])
    except Fenced as error:
        return _unchanged(late, before, error)
    once = late.snapshot()
    late.run(slots[0])
    trouble = difference(late.snapshot(), once)
    if trouble or _keeps_older_rows(ground):
        return trouble
    return rows_differ(once.rows, in_order.snapshot().rows)


def _backfill(ground: Ground) -> Trouble | None:
    if len(ground.subject.slots) < _SEVERAL:
        raise CannotBeTried(f"fewer than {_SEVERAL} slots have input")

    def fill(world: ProjectWorld) -> None:
        world.backfill()

    clean = ground.fresh(empty=True, script=fill)
    clean.act()
    world = ground.fresh(empty=True, script=fill, clean_files=clean.data_files())
    return survives(world, dying_at("publish.after", visit=2), clean.snapshot())


def _restore(ground: Ground) -> Trouble | None:
    world = ground.fresh()
    with world.entered() as project:
        store = project.store(ground.subject.target.store)
        sight = store.look(ground.subject.target.name)
    if not isinstance(store, KeepsVersions) or sight.points or not sight.pinned or not sight.exists:
        raise CannotBeTried("the target has no older version to go back to")
    world.act()
    try:
        world.restore(sight.version)
    except TwiceError as error:
        raise CannotBeTried(f"the older version cannot be restored: {error.what}") from error
    try:
        world.run(ground.subject.slot, force=True)
    except TwiceError as error:
        return Trouble(STUCK, f"after a restore a run with --force failed: {error}")
    return rows_differ(world.snapshot().rows, ground.expected.rows, ground.before.rows)


def _same_rows(ground: Ground, world: ProjectWorld, same: ProjectWorld, does: str) -> Trouble | None:
    ignored = ground.subject.ignored
    columns = [name for name in differing_columns(world.records(), same.records()) if name not in ignored]
    return explained(ground.subject.declared, columns, f"a clean run and one {does}") if columns else None


def _keeps_older_rows(ground: Ground) -> bool:
    """Tell whether rows of an older edition may remain, as the pattern itself says: it merges into what is there."""
    pattern = ground.subject.declared.pattern
    return pattern.action(None) == "merge" and not pattern.builds_on_all


def _others_are_kept(world: ProjectWorld, ground: Ground) -> Trouble | None:
    """Receipts of other slots stay as they were."""
    mine = ground.subject.slot.text
    found, expected = (
        {slot: receipt for slot, receipt in one.receipts.items() if slot != mine}
        for one in (world.snapshot(), ground.expected)
    )
    return None if found == expected else Trouble(BYSTANDER, "the receipts of other slots changed")


# -------------------------------------------------------------------- in other processes


def _at_once(ground: Ground) -> Trouble | None:
    _need_processes(ground)
    world = ground.fresh()
    ended = run_together(words(world), world.folder, child_settings(world))
    bad = [one for one in ended if one.code not in (0, 3, 4)]
    if bad:
        return Trouble(STUCK, f"of two at once, one ended with exit code {bad[0].code}: {bad[0].output[-500:]}")
    world.act()
    return difference(world.snapshot(), ground.expected, ground.before)


def _other_process(ground: Ground, does: str) -> Trouble | None:
    _need_processes(ground)
    world, same = ground.fresh(), ground.fresh()
    with left_behind(world.folder) as quickly:
        ended = run_command(words(world), world.folder, "", child_settings(world) | quickly)
    if ended.code:
        return Trouble(STUCK, f"{does}, the run ended with exit code {ended.code}: {ended.output[-500:]}")
    same.act()
    return _same_rows(ground, world, same, does)


def _need_processes(ground: Ground) -> None:
    why = ground.subject.stays_here
    if why:
        raise CannotBeTried(why)


_WARM: dict[str, tuple[str, Callable[[Ground], Trouble | None]]] = {
    "twice": ("runs twice in a row", _twice),
    "changed-input": ("runs, its input is changed, and runs again twice", _changed_input),
    "vanished-input": ("runs, its input vanishes, and runs again", _vanished_input),
    "ledger-lost": ("runs, the ledger is lost, runs, the ledger is rebuilt, and runs again", _ledger_lost),
    "ledger-stale": ("runs, an old copy of the ledger is put back, and runs again", _ledger_stale),
    "older-after-newer": ("runs the newer slot first, and then the older one, twice", _older_after_newer),
    "backfill": ("fills three slots, dies in the second, and fills them again", _backfill),
    "restore": ("runs, the version before it is restored, and runs again with --force", _restore),
}
WAYS = (EFFECTS, CLEAN, *_WARM, ALONE, AT_ONCE)
