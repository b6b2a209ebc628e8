"""What does the next manifest of a Parquet table name, and what refuses it?"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from twice.abilities import Staged, Work
from twice.errors import Conflict, Misuse
from twice.runs import Receipt, filled_by_another
from twice.sight import REPLACED, Sight, State
from twice.stores.manifest import DataFile, Manifest
from twice.stores.parquet.damage import accepted, damage, outside
from twice.stores.parquet.staging import OF_NO_SLOT, Scope, Written


def compare(table: str, work: Work, base: Manifest, staged: Staged) -> None:
    """See that what the rows were computed from is still there."""
    if base.is_view:
        raise Misuse(f"{work.name} is a view.", "Rows are written to the tables behind it.", "Choose another target.")
    ended = {**base.ended, **damage(table, base)}.keys() - work.base.ended.keys()
    if (staged.keeps and work.slot in ended) or (work.compares_head and ended):
        raise Conflict("rows that were to be kept are gone")
    if staged.handle is None:
        return
    if filled_by_another(staged.partitions, base.receipts, [work.slot]):
        raise Conflict("another slot fills a partition of it now")
    scope = staged.handle.scope
    if scope.name == "slot" and any(not file.slot for file in base.files):
        raise Misuse(
            f"The table {work.name} was merged into: its files hold rows of several slots.",
            "Rows of one slot cannot be taken out of them, so nothing was published.",
            "Keep the pattern that merges, or write to another target.",
        )
    if scope.name == "slot" and base.schema not in ("", scope.schema, staged.handle.schema):
        raise Conflict("the table has other columns now")
    if scope.name in OF_NO_SLOT and base.version != scope.version:
        raise Conflict("the table moved since it was compared with the rows")


def published(following: Manifest, work: Work, staged: Staged, receipts: Sequence[Receipt]) -> Manifest:
    """Return the next version with the slot's files swapped; all else is carried forward."""
    if staged.handle is None:
        return following
    written: Written = staged.handle
    if written.scope.name == "table":
        why = f"{REPLACED} {following.version}"
        new = {receipt.slot for receipt in receipts}
        following = replace(following, ended={slot: why for slot in following.receipts if slot not in new}, older={})
    if written.scope.name == "draft":
        following = started(following, written.scope.start, work.base, {receipt.slot for receipt in receipts})
    return replace(
        following,
        files=_kept(following, work, written.scope) + written.files,
        schema=written.schema,
        data_version=following.version,
    )


def _kept(base: Manifest, work: Work, scope: Scope) -> tuple[DataFile, ...]:
    """Return the files of the table that a publish leaves in place."""
    if scope.name == "slot":
        return tuple(file for file in base.files if file.slot != work.slot)
    if scope.name == "table":
        return ()
    files = scope.start.files if scope.name == "draft" else base.files
    return tuple(file for file in files if file.path not in scope.removed)


def started(following: Manifest, start: Manifest, base: Sight, now: AbstractSet[str]) -> Manifest:
    """Return a version that starts from an older one: of the slots, those are in it that were in that one."""
    state = state_of(start)
    left = state.leaves_of(base, now, following.version)
    older = {slot: generation for slot, generation in state.holds.items() if slot in left.ended}
    return replace(following, ended=left.ended, older=older)


def state_of(manifest: Manifest) -> State:
    """Tell whose rows a version holds: strangers have no way in, but for files that were accepted as they are."""
    holds = {slot: found.generation for slot, found in manifest.receipts.items() if slot not in manifest.ended}
    return State(manifest.version, {**holds, **manifest.older}, outside(accepted(manifest)))
