"""How can one name stand for several tables, and change in one step?

A view on a path is a log of manifests like that of a Parquet table, except that it names tables: all
of them, united, or one that is current. The next manifest is linked to a free name, so of two writers
that saw the same view one succeeds. `twice.read` resolves it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from twice.abilities import LiveAttempts, PointedAt, Rows, Swept, Work
from twice.errors import Conflict, Fenced, Misuse, NotPublished
from twice.faults import reach
from twice.runs import Receipt, Slot, digest
from twice.sight import NO_TABLE, POINTS_AT, Sight
from twice.stores import frames
from twice.stores import manifest as log
from twice.stores.manifest import VIEW, Manifest, Member
from twice.stores.sweep import sweep

DATA = "data"
CLOSED = "frozen:"


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

    def tidy(self, name: str, live: LiveAttempts, *, keep_days: float, dry_run: bool) -> Swept:
        """Remove leftovers."""

    def take_over(self, name: str, base: Sight, owner: str, keep_days: int = 0) -> None:
        """Make a ledger the owner of a table."""

    def schema_of(self, name: str) -> str:
        """Return a table's columns as JSON."""

    def fit_to(self, work: Work, rows: Rows, schema: str) -> Rows:
        """Make rows fit a schema, as the policy for columns says."""

    def write_frozen(self, name: str, rows: Rows, by: str, held: Sight) -> None:
        """Make a table of rows, laid out by a column, with receipts that were given before."""

    def add_column_to(self, name: str, column: str, kind: str, owner: str) -> bool:
        """Add a column to a table, and tell whether it lacked it."""


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
        facts = sorted(fact for member in view.members for fact in _facts(seen[member.name]))
        return Sight(
            version=view.version,
            head=view.version,
            table_id=view.table_id,
            owner="+".join(sorted({one.owner for one in there if not one.owner.startswith(CLOSED)})),
            receipts={slot: receipt for sight in there for slot, receipt in sight.receipts.items()},
            ended={slot: why for sight in there for slot, why in sight.ended.items()},
            gone=frozenset().union(*(sight.gone for sight in there)),
            outside="; ".join(sorted({sight.outside for sight in there if sight.outside})),
            data_version=int(digest(repr(facts))[:12], 16),
            pinned=False,
        )

    def read_view(self: TablesInFolders, name: str, view: Manifest, version: int | None = None) -> Rows:
        """Return the rows of the current table, or of all tables with their label."""
        if view.by and version is not None:
            raise Misuse(f"{name} unites several tables, so it has no version to read.", fix="Leave version out.")
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
            return self.unite([_branch(self, name, member, view.by) for member, _ in filled])

        seen = (view.by, *((member.name, member.label, _mark(entry)) for member, entry in filled))
        return frames.kept(self.engine.spark, self.table(name), seen, unite)

    def tidy_view(
        self: TablesInFolders, name: str, view: Manifest, live: LiveAttempts, *, keep_days: float, dry_run: bool
    ) -> Swept:
        """Sweep what no kept version of the view names, and the tables that it unites."""
        swept = [sweep(self.table(name), live, keep_days=keep_days, dry_run=dry_run)]
        if view.by:
            names = [f"{name}/{member.name}" for member in view.members]
            if not dry_run:
                _remove_frozen(self.table(name), view)
            swept += [self.tidy(one, live, keep_days=keep_days, dry_run=dry_run) for one in names]
        return sum(swept, Swept())

    def take_over_view(self: TablesInFolders, name: str, view: Manifest, base: Sight, owner: str) -> None:
        """Make a ledger the owner of the view, or of every table that it unites."""
        if not view.by:
            log.take_over(self.table(name), base, owner)
            return
        for member in view.members:
            sight = self.look(f"{name}/{member.name}")
            # A table that is being frozen stays closed, whoever owns the view.
            if sight.exists and sight.owner != owner and not sight.owner.startswith(CLOSED):
                self.take_over(f"{name}/{member.name}", sight, owner)

    # ---------------------------------------------------------------- tables that are united

    def open_member(self: TablesInFolders, view: str, member: str, by: str, limit: int, writer: str) -> None:
        """Let a view name a table, which may be filled later; done before, this does nothing."""
        folder = self.table(view)
        self.refuse_table(view)

        def add(base: Manifest, following: Manifest) -> Manifest | None:
            _refuse_other_kinds(view, base, by)
            if base.writer not in ("", writer):
                raise Misuse(
                    f"The view {view} is written by the pipeline {base.writer!r}; {writer!r} cannot write it too.",
                    fix=f"Give it a target of its own; a renamed pipeline says was={base.writer!r}.",
                )
            if base.member(member) or any(member in one.covers for one in base.members):
                return None
            if len(base.members) >= limit:
                raise NotPublished(
                    f"The view {view} already unites {limit} tables, and {member} would be one more.",
                    "A view of very many tables is slow to read, so nothing was published.",
                    f"Freeze old periods into larger tables (twice freeze), or raise tables_at_most= above {limit}.",
                )
            members = tuple(sorted((*base.members, Member(member, member)), key=lambda one: one.name))
            return replace(following, kind=VIEW, by=by, members=members, writer=writer, made_by=f"open {member}")

        _change(folder, add)
        reach("view.opened")

    def members(self: TablesInFolders, view: str) -> Mapping[str, Sight]:
        """Return the tables that a view unites, with what each holds."""
        found = view_at(self.table(view))
        names = [member.name for member in found.members] if found else []
        return {name: sight for name in names if (sight := self.look(f"{view}/{name}")).exists}

    def unfilled(self: TablesInFolders, view: str) -> tuple[str, ...]:
        """Name the tables that a view unites and that are not there."""
        found = view_at(self.table(view))
        names = [member.name for member in found.members] if found and found.by else []
        return tuple(name for name in names if not self.look(f"{view}/{name}").exists)

    def frozen_sight(self: TablesInFolders, name: str) -> Sight | None:
        """Return what is known of a table whose rows were frozen into a larger one."""
        parent, _, label = name.rpartition("/")
        # By its folder: as a name of its own the parent might be asked of a catalog, which starts a JVM.
        view = view_at(os.path.dirname(self.table(name))) if parent else None
        member = next((one for one in view.members if label in one.covers), None) if view else None
        if member is None:
            return None
        return replace(self.look(f"{parent}/{member.name}"), sealed=f"its period is frozen into {member.name}")

    def freeze(self: TablesInFolders, view: str, into: str, members: Sequence[str], owner: str) -> None:
        """Close the tables, write the larger one, and let the view name it in their stead.

        A closed table takes no publish, so nothing can be added between its reading and the change of
        the view. Whoever dies on the way is followed by a second call, which does what is left.
        """
        folder, found = self.table(view), view_at(self.table(view))
        if found is None or not found.by:
            raise Misuse(f"{view} is no view of several tables.")
        done = found.member(into)
        if done:
            if set(done.covers) != set(members):
                raise Misuse(f"{view} has a table {into} already.", fix="Freeze into another period.")
            return
        _close(self, view, into, members, owner)
        # Looked at again, now that no publish can be added any more.
        sights = {member: self.look(f"{view}/{member}") for member in members}
        rows = [self.labelled(self.read(f"{view}/{member}"), found.by, member) for member in members]
        held = Sight(
            owner=owner,
            receipts={slot: one for sight in sights.values() for slot, one in sight.receipts.items()},
            ended={slot: why for sight in sights.values() for slot, why in sight.ended.items()},
        )
        written = self.look(f"{view}/{into}")
        if not written.exists:
            self.write_frozen(f"{view}/{into}", self.unite(rows), found.by, held)
        elif set(written.receipts) != set(held.receipts):
            raise Fenced(
                f"An interrupted freeze wrote {view}/{into} with other periods than those that are there now.",
                "Nothing was changed.",
                f"Remove the table {into}, which no view names, and freeze again.",
            )
        reach("view.frozen")

        def swap(base: Manifest, following: Manifest) -> Manifest | None:
            if base.member(into):
                return None
            kept = [one for one in base.members if one.name not in members]
            frozen = Member(into, into, covers=tuple(members))
            return replace(following, members=tuple(sorted((*kept, frozen), key=lambda one: one.name)))

        _change(folder, swap)

    def add_column(self: TablesInFolders, view: str, column: str, kind: str, owner: str) -> list[str]:
        """Add a column to all tables of a view that lack it, and name them."""
        found = view_at(self.table(view))
        if found is None or not found.by:
            raise Misuse(f"{view} is no view of several tables.")
        if column.lower() == found.by.lower():
            raise Misuse(f"{column!r} is the view's own column.")
        names = [member.name for member in found.members if self.look(f"{view}/{member.name}").exists]
        return [name for name in names if self.add_column_to(f"{view}/{name}", column, kind, owner)]

    def like_siblings(self: TablesInFolders, work: Work, rows: Rows) -> Rows:
        """Make rows fit the newest other table of their view: readers see them together."""
        parent, _, label = work.name.rpartition("/")
        view = view_at(self.table(parent))
        others = [one.name for one in view.members if one.name != label and not one.covers] if view else []
        # From the newest on, and no further: a view may unite hundreds of tables.
        newest = next((name for name in reversed(others) if self.look(f"{parent}/{name}").exists), None)
        return rows if newest is None else self.fit_to(work, rows, self.schema_of(f"{parent}/{newest}"))

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
                raise Misuse(f"{version} is not a version of {name}.", fix="See: twice versions")
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


def _close(store: TablesInFolders, view: str, into: str, members: Sequence[str], owner: str) -> None:
    """Let tables take no more publishes: their owner is then nobody's ledger."""
    for member in members:
        sight = store.look(f"{view}/{member}")
        if sight.owner not in (owner, CLOSED + into):
            raise Fenced(f"The table {view}/{member} belongs to another ledger.", fix=f"twice adopt {view}")
        if sight.owner == owner:
            store.take_over(f"{view}/{member}", sight, CLOSED + into)
            reach("view.closed")


def _facts(sight: Sight) -> list[tuple[str, str, int]]:
    """What a reader of the view depends on: the editions of the slots, wherever their rows are kept now."""
    if not sight.exists:
        return []
    return [(slot, receipt.attempt, receipt.generation) for slot, receipt in sight.receipts.items()] + [
        (slot, why, 0) for slot, why in sight.ended.items()
    ]


def _branch(store: TablesInFolders, view: str, member: Member, by: str) -> Rows:
    """Return the rows of one table with its label; a frozen one has the labels of its rows already."""
    rows = store.read(f"{view}/{member.name}")
    return rows if member.covers else store.labelled(rows, by, member.label)


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


def _remove_frozen(folder: str, view: Manifest) -> None:
    """Remove tables whose rows are in a larger one, once no kept version of the view names them."""
    named = {member.name for member in log.entries(folder, "members")}
    for label in (label for member in view.members for label in member.covers if label not in named):
        shutil.rmtree(os.path.join(folder, label), ignore_errors=True)


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
        outside="; ".join([f"version {view.data_version}", *sorted(set(ended.values()))]) if ended else "",
        data_version=view.data_version,
        swept=frozenset(view.swept),
        forgot=view.forgot,
        points=True,
        sealed=view.sealed,
    )


def _passed_by(view: Manifest) -> Iterator[tuple[str, str]]:
    """Name the slots that come after the one which the view shows: readers do not see them."""
    shown = view.member(view.current)
    names = [member.name for member in view.members]
    for member in view.members if shown else ():
        later = names.index(member.name) > names.index(view.current) or _starts_after(member.slot, shown)
        if later and _is_edition(view, member):
            yield member.slot, f"{POINTS_AT} {view.current}, from before the slot's rows"


def _starts_after(slot: str, shown: Member | None) -> bool:
    one, other = Slot.parse(slot).interval, Slot.parse(shown.slot).interval if shown else None
    return bool(one and other and one.start > other.start)


def _is_edition(view: Manifest, member: Member) -> bool:
    """Tell whether a member is the newest edition of its slot."""
    return view.receipts[member.slot].generation == member.generation


def _lost(folder: str, view: Manifest) -> Iterator[tuple[str, str]]:
    """Name the slots whose version was removed or changed by hand."""
    for member in filter(lambda one: _is_edition(view, one), view.members):
        place = os.path.join(folder, *member.name.split("/"))
        if not os.path.isdir(place):
            yield member.slot, f"its version {member.name} is gone"
        elif not all(_is_whole(os.path.join(folder, file.path), file.size) for file in member.files):
            yield member.slot, f"a file of its version {member.name} is gone or changed"
        elif os.path.exists(os.path.join(place, "_delta_log", f"{1:020}.json")):
            yield member.slot, f"its version {member.name} was changed from outside"


def _is_whole(path: str, size: int) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) == size
