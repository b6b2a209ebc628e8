"""How can one name stand for several tables, and change in one step?

A view on a path is a log of manifests like that of a Parquet table, except that it names tables: all
of them, united, or one that is current. The next manifest is linked to a free name, so of two writers
that saw the same view one succeeds. `twice.read` resolves it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from twice.abilities import PointedAt, Rows, Swept, Work
from twice.errors import Conflict, Fenced, Misuse, NotPublished
from twice.faults import reach
from twice.runs import Receipt, digest
from twice.sight import NO_TABLE, Sight
from twice.stores import frames
from twice.stores import manifest as log
from twice.stores.manifest import VIEW, Manifest, Member
from twice.stores.sweep import sweep

DATA = "data"


class TablesInFolders(Protocol):
    """What a view needs of the store whose tables it names."""

    engine: Any

    def table(self, name: str) -> str:
        """Return the folder of a table."""

    def newest_entry(self, name: str) -> str:
        """Return the path of the newest entry of a table's log, or nothing."""

    def look(self, name: str) -> Sight:
        """Look at a table."""

    def read(self, name: str, version: int | None = None) -> Rows:
        """Read a table."""

    def unite(self, rows: Sequence[Rows]) -> Rows:
        """Return several results as one."""

    def labelled(self, rows: Rows, column: str, label: str) -> Rows:
        """Return rows with one more column that holds a literal."""

    def read_version(self, name: str, member: Member) -> Rows:
        """Read a table that was filled once and for all."""

    def refuse_table(self, name: str) -> None:
        """Refuse a name that is a table already: it cannot become a view."""

    def tidy(self, name: str, live: frozenset[str], *, keep_days: float, dry_run: bool) -> Swept:
        """Remove leftovers."""


@dataclass(frozen=True)
class NewVersion:
    """A table that was filled where no view names it, and how many are kept once one does."""

    member: Member
    keep: int | None = None


def view_at(folder: str) -> Manifest | None:
    """Return the newest manifest of a view, or None where there is no view."""
    found = log.newest(folder)
    return found if found.is_view else None


def refuse_versions(root: str, folder: str) -> None:
    """A table behind a view is filled once and for all: nothing is published to it by its own name.

    Raises:
        Misuse: The folder lies behind a view.
    """
    place = os.path.dirname(folder)
    while len(place) >= len(root):
        inside = os.path.relpath(folder, place)
        if inside.split(os.sep)[0] == DATA and view_at(place):
            raise Misuse(
                f"{inside} is a version behind the view {os.path.relpath(place, root)}, and never changes.",
                fix="Publish a new version through the pipeline that writes the view.",
            )
        place = os.path.dirname(place)


class Views:
    """Views over tables in folders."""

    # ---------------------------------------------------------------- looking and reading

    def look_at_view(self: TablesInFolders, name: str, view: Manifest) -> Sight:
        """Return what the view's own receipts say, or those of the tables that it unites."""
        if not view.by:
            return _sight_of_versions(self.table(name), view)
        seen = {member.name: self.look(f"{name}/{member.name}") for member in view.members}
        there = [sight for sight in seen.values() if sight.exists]
        if not there:
            return Sight()
        facts = [[member, sight.table_id, sight.data_version] for member, sight in sorted(seen.items())]
        return Sight(
            version=view.version,
            head=view.version,
            table_id=view.table_id,
            owner=there[0].owner,
            receipts={slot: receipt for sight in there for slot, receipt in sight.receipts.items()},
            ended={slot: why for sight in there for slot, why in sight.ended.items()},
            gone=frozenset().union(*(sight.gone for sight in there)),
            outside="; ".join(sorted({sight.outside for sight in there if sight.outside})),
            data_version=int(digest(repr(facts))[:12], 16),
            pinned=False,
        )

    def read_view(self: TablesInFolders, name: str, view: Manifest) -> Rows:
        """Return the rows of the current table, or of all tables with their label."""
        if not view.by:
            member = view.member(view.current)
            if member is None:
                raise NotPublished(f"The view {name} shows no version yet.", fix="Run the pipeline that writes it.")
            return self.read_version(f"{name}/{member.name}", member)
        # Looked at before anything is read: what moves meanwhile is seen the next time.
        entries = [(member, self.newest_entry(f"{name}/{member.name}")) for member in view.members]
        filled = [(member, entry) for member, entry in entries if entry]
        if not filled:
            raise NotPublished(f"The view {name} is empty so far.", fix="Run the pipeline that writes it.")

        def unite() -> Rows:
            tables = [(self.read(f"{name}/{member.name}"), member.label) for member, _ in filled]
            return self.unite([self.labelled(rows, view.by, label) for rows, label in tables])

        seen = (view.by, *((member.name, member.label, _mark(entry)) for member, entry in filled))
        return frames.kept(self.engine.spark, self.table(name), seen, unite)

    def tidy_view(
        self: TablesInFolders, name: str, view: Manifest, live: frozenset[str], *, keep_days: float, dry_run: bool
    ) -> Swept:
        """Sweep what no kept version of the view names, and the tables that it unites."""
        swept = [sweep(self.table(name), live, keep_days=keep_days, dry_run=dry_run)]
        if view.by:
            names = [f"{name}/{member.name}" for member in view.members]
            swept += [self.tidy(one, live, keep_days=keep_days, dry_run=dry_run) for one in names]
        return Swept(
            sum(one.removed_files for one in swept),
            sum(one.removed_bytes for one in swept),
            tuple(attempt for one in swept for attempt in one.attempts),
            tuple(dict.fromkeys(note for one in swept for note in one.notes)),
        )

    # ---------------------------------------------------------------- tables that are united

    def open_member(self: TablesInFolders, view: str, member: str, by: str, limit: int) -> None:
        """Let a view name a table, which may be filled later; done before, this does nothing."""
        folder = self.table(view)
        self.refuse_table(view)

        def add(base: Manifest, following: Manifest) -> Manifest | None:
            _refuse_other_kinds(view, base, by)
            if base.member(member) or any(member in one.covers for one in base.members):
                return None
            if len(base.members) >= limit:
                raise NotPublished(
                    f"The view {view} already unites {limit} tables, and {member} would be one more.",
                    "A view of very many tables is slow to read, so nothing was published.",
                    f"Freeze old periods into larger tables (twice freeze), or raise tables_at_most= above {limit}.",
                )
            members = tuple(sorted((*base.members, Member(member, member)), key=lambda one: one.name))
            return replace(following, kind=VIEW, by=by, members=members, made_by=f"open {member}")

        _change(folder, add)
        reach("view.opened")

    # ---------------------------------------------------------------- one table that is current

    def publish_version(self: TablesInFolders, work: Work, new: NewVersion, receipts: Sequence[Receipt]) -> None:
        """Point the view at a table that was filled where no view named it."""

        def change(base: Manifest, following: Manifest) -> Manifest:
            _refuse_other_kinds(work.name, base, "")
            if base.sealed:
                raise Conflict("the view was sealed")
            made = replace(new.member, generation=receipts[0].generation, made_at=receipts[0].published_at)
            kept = _kept([*base.members, made], made.name, new.keep)
            return replace(
                following,
                kind=VIEW,
                members=kept,
                current=made.name,
                files=made.files,
                schema=made.schema,
                data_version=following.version,
            )

        log.publish(self.table(work.name), work, receipts, change)

    def versions(self: TablesInFolders, name: str) -> list[PointedAt]:
        """List the tables that a view can point at, oldest first."""
        view = _view(self.table(name), name)
        return [
            PointedAt(
                number,
                member.name,
                member.slot,
                member.generation,
                member.rows,
                member.made_at,
                member.name == view.current,
            )
            for number, member in enumerate(view.members, 1)
        ]

    def point(self: TablesInFolders, name: str, version: str, owner: str) -> None:
        """Point a view at one of its versions, back or forward."""

        def move(base: Manifest, following: Manifest) -> Manifest | None:
            _check_owner(name, base, owner)
            member = base.member(version)
            if member is None:
                raise Misuse(f"{version} is not a version of {name}.", fix=f"See: twice versions {name}")
            if base.current == version:
                return None
            return replace(
                following,
                current=version,
                files=member.files,
                schema=member.schema or base.schema,
                data_version=following.version,
                made_by=f"point at {version}",
            )

        _view(self.table(name), name)
        _change(self.table(name), move)
        reach("view.pointed")

    def seal(self: TablesInFolders, name: str, why: str, owner: str) -> None:
        """Let a view refuse every further publish, or with an empty reason allow them again."""

        def close(base: Manifest, following: Manifest) -> Manifest | None:
            _check_owner(name, base, owner)
            return None if base.sealed == why else replace(following, sealed=why, made_by="seal" if why else "unseal")

        _view(self.table(name), name)
        _change(self.table(name), close)
        reach("view.sealed")


def _mark(path: str) -> tuple[str, int, int]:
    """Tell an entry of a log from one of the same name that took its place."""
    found = os.stat(path)
    return path, found.st_ino, found.st_mtime_ns


def _change(folder: str, change: Callable[[Manifest, Manifest], Manifest | None]) -> None:
    """Apply a change to the newest view until it lands; None is no change."""
    while True:
        base = log.newest(folder)
        following = change(base, log.successor(base, ""))
        if following is None:
            return
        try:
            log.append(folder, replace(following, table_id=base.table_id or digest(os.urandom(16).hex())))
        except Conflict:
            continue
        return


def _view(folder: str, name: str) -> Manifest:
    view = view_at(folder)
    if view is None or view.by:
        raise Misuse(f"{name} is no view with versions.", fix="The pattern 'proxy' makes one.")
    return view


def _refuse_other_kinds(name: str, base: Manifest, by: str) -> None:
    """A name that is a table, or a view of another kind, is not turned into this one."""
    if base.version == NO_TABLE:
        return
    if not base.is_view:
        raise a_table(name)
    if base.by != by:
        raise Misuse(
            f"{name} is a view of another kind.", fix="Keep the pattern as it was, or write to another target."
        )


def a_table(name: str) -> Misuse:
    """Say that a name is a table."""
    return Misuse(f"{name} is a table, and cannot become a view.", fix="Write to another target.")


def _check_owner(name: str, base: Manifest, owner: str) -> None:
    if base.owner not in ("", owner):
        raise Fenced(f"The view {name} belongs to another ledger.", fix=f"Take it over with: twice adopt {name}")


def _kept(members: Sequence[Member], current: str, keep: int | None) -> tuple[Member, ...]:
    """Return the newest members; the current one is never left out."""
    newest = members[-keep:] if keep else members
    return tuple(member for member in members if member in newest or member.name == current)


def _sight_of_versions(folder: str, view: Manifest) -> Sight:
    ended = {**view.ended, **dict(_passed_by(view)), **dict(_lost(folder, view))}
    return Sight(
        version=view.version,
        head=view.version,
        table_id=view.table_id,
        owner=view.owner,
        receipts=view.receipts,
        ended=ended,
        outside="; ".join(sorted(set(ended.values()))),
        data_version=view.data_version,
        swept=frozenset(view.swept),
        points=True,
        sealed=view.sealed,
    )


def _passed_by(view: Manifest) -> Iterator[tuple[str, str]]:
    """Name the slots whose version is newer than the one that the view was pointed back to."""
    names = [member.name for member in view.members]
    if view.current in names:
        for member in view.members[names.index(view.current) + 1 :]:
            if _is_edition(view, member):
                yield member.slot, f"the view was pointed back to {view.current}, from before the slot's rows"


def _is_edition(view: Manifest, member: Member) -> bool:
    """Tell whether a member is the newest edition of its slot."""
    return view.receipts[member.slot].generation == member.generation


def _lost(folder: str, view: Manifest) -> Iterator[tuple[str, str]]:
    """Name the slots whose table was removed by hand."""
    for member in filter(lambda one: _is_edition(view, one), view.members):
        if not os.path.isdir(os.path.join(folder, *member.name.split("/"))):
            yield member.slot, f"its version {member.name} is gone"
