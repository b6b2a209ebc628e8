"""How are several versions, or several tables, held in memory behind one name?"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from twice.abilities import PointedAt, PointsAtVersions, Rows, Staged, Store, UnitesTables, Work
from twice.errors import Misuse, NotPublished
from twice.faults import reach
from twice.runs import Receipt, Slot
from twice.sight import POINTS_AT, Sight
from twice.stores.answering import by_rows
from twice.stores.memory.tables import Edition, Tables, United, Version, with_label


class Views(Tables, Store, PointsAtVersions, UnitesTables):
    """Names for versions and for tables."""

    def stage_version(self, work: Work, rows: Rows, keep: int | None) -> Staged:
        """Hold rows that will never change again."""
        kept = self._fitted(work, rows)
        return Staged(len(kept), handle=("version", kept, keep), answers=partial(by_rows, kept))

    def versions(self, name: str) -> list[PointedAt]:
        """List what the name can point at, oldest first."""
        now = self._newest(name)
        return [
            PointedAt(number, one.name, one.slot, one.generation, len(one.rows), one.made_at, one.name == now.current)
            for number, one in enumerate(now.editions, 1)
        ]

    def point(self, name: str, version: str, owner: str) -> None:
        """Let the name point at an older version, or at a newer one again."""
        with self._lock:
            now = self._newest(name)
            chosen = next((one for one in now.editions if one.name == version), None)
            if chosen is None:
                raise Misuse(f"{version} is not a version of {name}.", fix="See: twice versions")
            ended = passed_by(now.editions, chosen, now.receipts)
            pointed = replace(now, number=now.number + 1, rows=chosen.rows, current=version, ended=ended)
            outside = f"version {pointed.number}" if ended else ""
            self._append(name, replace(pointed, data_version=pointed.number, outside=outside))

    def seal(self, name: str, why: str, owner: str) -> None:
        """Refuse every further publish, or with an empty reason allow them again."""
        with self._lock:
            now = self._newest(name)
            self._append(name, replace(now, number=now.number + 1, sealed=why))

    def open_member(self, view: str, member: str, by: str, limit: int, writer: str) -> None:
        """Let a view name a table, which may be filled later."""
        with self._lock:
            if view in self._tables:
                raise Misuse(f"{view} is a table, and cannot become a view.", fix="Write to another target.")
            known = self._united.get(view, United(by, writer=writer))
            if known.writer != writer:
                raise Misuse(f"The view {view} is written by the pipeline {known.writer!r}.")
            if member in known.members:
                return
            if len(known.members) >= limit:
                raise NotPublished(
                    f"The view {view} already unites {limit} tables, and {member} would be one more.",
                    "Nothing was published.",
                    f"Freeze old periods into larger tables (twice freeze), or raise tables_at_most= above {limit}.",
                )
            self._united[view] = replace(known, members=tuple(sorted((*known.members, member))))
        reach("view.opened")

    def members(self, view: str) -> Mapping[str, Sight]:
        """Return the tables that a view unites, with what each holds."""
        names = self._united[view].members if view in self._united else ()
        found = {name: self.look(f"{view}/{name}") for name in names}
        return {name: sight for name, sight in found.items() if sight.exists}

    def unfilled(self, view: str) -> tuple[str, ...]:
        """Name the tables that a view unites and that are not there."""
        names = self._united[view].members if view in self._united else ()
        return tuple(name for name in names if not self.look(f"{view}/{name}").exists)

    def freeze(self, view: str, into: str, members: Sequence[str], owner: str) -> None:
        """Put the rows and receipts of several tables into one."""
        with self._lock:
            united = self._united[view]
            tables = {member: self._newest(f"{view}/{member}") for member in members}
            rows = [(slot, with_label(row, united.by, name)) for name, one in tables.items() for slot, row in one.rows]
            receipts = {
                slot: replace(r, first_version=0) for one in tables.values() for slot, r in one.receipts.items()
            }
            ended = {slot: why for one in tables.values() for slot, why in one.ended.items()}
            self._append(
                f"{view}/{into}", Version(0, tuple(rows), receipts, ended, owner, uuid.uuid4().hex, data_version=0)
            )
            kept = {*united.members, into} - set(members)
            frozen = {**united.frozen, **dict.fromkeys(members, into)}
            self._united[view] = replace(united, members=tuple(sorted(kept)), frozen=frozen)

    def add_column(self, view: str, column: str, kind: str, owner: str) -> list[str]:
        """Add a column to all tables of a view that lack it, and name them."""
        with self._lock:
            names = [name for name in self._united[view].members if f"{view}/{name}" in self._tables]
            lacking = [name for name in names if column not in self._newest(f"{view}/{name}").columns]
            for name in lacking:
                now = self._newest(f"{view}/{name}")
                rows = tuple((slot, {**row, column: None}) for slot, row in now.rows)
                columns = tuple(sorted((*now.columns, column)))
                self._append(f"{view}/{name}", replace(now, number=now.number + 1, rows=rows, columns=columns))
            return lacking

    def like_siblings(self, work: Work, rows: Rows) -> Rows:
        """Make rows fit the other tables of their view."""
        parent, _, label = work.name.rpartition("/")
        others = [name for name in self._united[parent].members if name != label and f"{parent}/{name}" in self._tables]
        return self._fitted(replace(work, name=f"{parent}/{others[-1]}"), rows) if others else rows

    def labelled(self, rows: Rows, column: str, label: str) -> Rows:
        """Return rows with one more column that holds a literal."""
        return [with_label(row, column, label) for row in rows]


def passed_by(editions: Sequence[Edition], shown: Edition, receipts: Mapping[str, Receipt]) -> dict[str, str]:
    """Name the slots that come after the one which a view shows: readers do not see them."""
    why = f"{POINTS_AT} {shown.name}, from before the slot's rows"
    after = editions[editions.index(shown) + 1 :]
    return {
        one.slot: why
        for one in editions
        if (one in after or _starts_after(one.slot, shown.slot)) and receipts[one.slot].generation == one.generation
    }


def _starts_after(slot: str, shown: str) -> bool:
    one, other = Slot.parse(slot).interval, Slot.parse(shown).interval
    return bool(one and other and one.start > other.start)
