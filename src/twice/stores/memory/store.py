"""What is the simplest store that keeps every promise?

The model for the others: tables are lists in this process, a publish is an assignment under a
lock, and every ability is there. The core is tested on it without a JVM.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from itertools import islice, product
from typing import Any, ClassVar

from twice import merges
from twice.abilities import (
    Answers,
    Appends,
    Difference,
    Editions,
    FindsRepeats,
    FindsRows,
    InsertsMissing,
    KeepsBeside,
    KeepsHistory,
    KeepsVersions,
    KnowsColumns,
    Leaving,
    LiveAttempts,
    LookBack,
    Merges,
    Opening,
    Repeated,
    Repeats,
    ReplacesPartitions,
    ReplacesSlices,
    ReplacesTable,
    Rows,
    Staged,
    Swept,
    TakesIn,
    TransactsTables,
    Work,
    label_taken,
)
from twice.data_tests import Answer, DataTest
from twice.errors import Conflict
from twice.faults import reach
from twice.merges import MergeRule
from twice.runs import Receipt, filled_by_another
from twice.sight import NO_TABLE, POINTS_AT, REPLACED, Past, Sight, State, state_named
from twice.slices import Slice, missing_column, unknown_column
from twice.stores import editions as kept_names
from twice.stores.answering import by_rows
from twice.stores.memory.tables import Batch, Edition, Row, Version, with_label
from twice.stores.memory.views import Views, passed_by


class MemoryStore(
    Views,
    ReplacesTable,
    ReplacesSlices,
    ReplacesPartitions,
    Merges,
    KeepsVersions,
    KeepsHistory,
    InsertsMissing,
    Appends,
    TakesIn,
    KeepsBeside,
    TransactsTables,
    FindsRepeats,
    FindsRows,
    KnowsColumns,
):
    """Tables as lists in this process."""

    kind: ClassVar[str] = "memory"
    dialect: ClassVar[str] = "sqlite"
    lacks: ClassVar[Mapping[str, str]] = {"DeliversFiles": "it has no files"}

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryStore:
        """Return a store of its own with the same tables, for a world that may be killed."""
        copied = MemoryStore()
        copied._tables = {name: list(versions) for name, versions in self._tables.items()}
        copied._united = dict(self._united)
        copied._history = {name: dict(kept) for name, kept in self._history.items()}
        copied._beside = {name: dict(kept) for name, kept in self._beside.items()}
        return copied

    @classmethod
    def opened(cls, opening: Opening) -> MemoryStore:  # noqa: ARG003 - every store is opened in one form
        """Begin with no tables."""
        return cls()

    def look(self, name: str) -> Sight:
        """Return the newest version's receipts."""
        if name in self._united:
            return self._look_at_all(name)
        view, _, label = name.rpartition("/")
        into = self._united[view].frozen.get(label) if view in self._united else None
        if into:
            return replace(self.look(f"{view}/{into}"), sealed=f"its period is frozen into {into}")
        version = self._newest(name)
        if version.number == NO_TABLE:
            return Sight()
        return Sight(
            version=version.number,
            head=version.number,
            owner=version.owner,
            receipts=version.receipts,
            ended=version.ended,
            gone=version.gone,
            outside=version.outside,
            table_id=version.table_id,
            filled=bool(version.rows) and not version.receipts,
            data_version=version.data_version,
            points=bool(version.editions),
            sealed=version.sealed,
        )

    def _look_at_all(self, name: str) -> Sight:
        seen = [self.look(f"{name}/{member}") for member in self._united[name].members]
        there = [sight for sight in seen if sight.exists]
        if not there:
            return Sight()
        return Sight(
            version=sum(sight.version + 1 for sight in there),
            owner="+".join(sorted({sight.owner for sight in there})),
            receipts={slot: receipt for sight in there for slot, receipt in sight.receipts.items()},
            ended={slot: why for sight in there for slot, why in sight.ended.items()},
            outside="; ".join(sorted({sight.outside for sight in there if sight.outside})),
            data_version=sum(sight.data_version + 1 for sight in there),
            pinned=False,
        )

    def stage_table(self, work: Work, rows: Rows) -> Staged:
        """Hold the rows that will be the whole table."""
        kept = self._fitted(work, rows)
        return Staged(len(kept), handle=("table", kept), answers=partial(by_rows, kept))

    def stage_slice(self, work: Work, rows: Rows, bounds: Slice) -> Staged:
        """Hold the rows that will replace the slice."""
        kept = self._fitted(work, rows)
        outside = sum(not bounds.holds(row) for row in kept)
        return Staged(len(kept), outside, handle=("slice", kept, bounds), answers=partial(by_rows, kept))

    def stage_partitions(self, work: Work, rows: Rows, columns: Sequence[str]) -> Staged:
        """Hold the rows, and name their partitions."""
        kept = self._fitted(work, rows)
        filled = sorted({partition_of(row, columns) for row in kept})
        return Staged(len(kept), partitions=tuple(filled), handle=("slot", kept), answers=partial(by_rows, kept))

    def stage_append(self, work: Work, rows: Rows, lineage: str | None, check: Slice | None) -> Staged:
        """Hold the rows to be added; every row here knows its slot, with or without lineage."""
        kept = self._fitted(work, self.labelled(rows, lineage, work.slot) if lineage else rows)
        outside = sum(not check.holds(row) for row in kept) if check else 0
        return Staged(len(kept), outside, handle=("slot", kept), answers=partial(by_rows, kept))

    def stage_taken(self, work: Work, rows: Rows, check: Slice | None, leaving: Leaving | None) -> Staged:
        """Hold the rows to be added, and what leaves with them."""
        kept = self._fitted(work, rows)
        columns = self._newest(work.name).columns
        if leaving and columns and leaving.column not in columns:
            raise leaving.untold(work.name)
        if leaving:
            leaving.refuse_unknown(sum(row.get(leaving.column) is None for row in kept))
        outside = sum(not check.holds(row) for row in kept) if check else 0
        return Staged(len(kept), outside, handle=("take", kept, leaving), answers=partial(by_rows, kept))

    def keep_beside(self, name: str, label: str, body: bytes) -> None:
        """Keep a body in a dictionary."""
        with self._lock:
            kept = self._beside.setdefault(name, {})
            if label in kept:
                raise label_taken(label)
            reach("memory.beside")
            kept[label] = (body, time.time())

    def beside(self, name: str, label: str) -> bytes | None:
        """Return a body, or None if it is not there."""
        found = self._beside.get(name, {}).get(label)
        return found[0] if found else None

    def labels_beside(self, name: str) -> Mapping[str, float]:
        """Return the labels of all bodies, each with the time at which it was kept."""
        return {label: kept_at for label, (_, kept_at) in self._beside.get(name, {}).items()}

    def drop_beside(self, name: str, labels: Sequence[str]) -> None:
        """Remove bodies."""
        with self._lock:
            for label in labels:
                self._beside.get(name, {}).pop(label, None)

    def stage_tables(self, work: Work, rows: Mapping[str, Rows], lineage: str | None) -> Staged:
        """Hold the rows of several tables under the target."""
        kept = {
            name: self._fitted(
                replace(work, name=f"{work.name}/{name}"),
                self.labelled(part, lineage, work.slot) if lineage else part,
            )
            for name, part in rows.items()
        }
        return Staged(sum(map(len, kept.values())), handle=("tables", kept))

    def stage_merge(self, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str]) -> Staged:
        """Hold the table as it will be after the merge."""
        now = self._newest(work.name)
        source = merges.prepared(self._fitted(work, rows, rule.besides), rule)
        after = merges.merged((row for _, row in self._widened(now, source, rule.besides)), source, rule)
        counts = (after.inserted, after.updated, after.deleted)
        notes = (merges.changes_text(*counts, len(source)),)
        handle = ("merge", list(after.rows), now.number) if any(counts) else None
        return Staged(len(source), handle=handle, notes=notes, answers=_live(source, rule))

    def past(self, name: str) -> Past:
        """Return all versions: memory keeps them."""
        return Past((*map(_state, reversed(self._tables.get(name, []))), State(NO_TABLE)))

    def stage_draft(
        self, work: Work, base: int, batches: Sequence[Rows], rule: MergeRule, layout: Sequence[str]
    ) -> Staged:
        """Hold the table as it will be when the batches have been merged into an older version."""
        start = self._version(work.name, base)
        rows: Sequence[Row] = [row for _, row in start.rows]
        counts = []
        columns = self._newest(work.name).columns
        for batch in batches:
            source = merges.prepared(self._fitted(work, batch, rule.besides, columns), rule)
            columns = tuple(sorted({*columns, *rule.stored(_columns(source))}))
            counts.append(len(source))
            widened = self._widened(replace(start, rows=tuple(("", row) for row in rows)), source, rule.besides)
            rows = merges.merged((row for _, row in widened), source, rule).rows
        changed = merges.changed_by_key((row for _, row in start.rows), rows, rule.keys)
        notes = (merges.replay_text(*changed, sum(counts), state_named(base)),)
        handle = ("draft", list(rows), base)
        return Staged(sum(counts), handle=handle, batches=tuple(counts), notes=notes, answers=_new(rows, start))

    def restore(self, name: str, base: Sight, version: int, owner: str) -> None:
        """Assign an older version's rows as the next version."""
        with self._lock:
            now, start = self._newest(name), self._version(name, version)
            if now.number != base.version or now.owner not in ("", owner):
                raise Conflict("the table moved")
            reach("memory.publish")
            number = now.number + 1
            left = _state(start).leaves_of(self.look(name), frozenset(), number)
            restored = replace(now, number=number, rows=start.rows, columns=start.columns, holds=start.holds)
            proofs = replace(restored, ended=left.ended, gone=left.gone, outside=left.outside)
            self._append(name, replace(proofs, data_version=number))

    def stage_history(
        self, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str], editions: Editions
    ) -> Staged:
        """Keep the rows in a list, and hold the table as it will be."""
        source = merges.prepared(self._fitted(work, rows, rule.besides), rule)
        now = self._newest(work.name)
        if editions.adopted:
            self._keep(work.name, editions.adopted, self._adopted(work, rule))
            reach("history.adopted")
        self._keep(work.name, editions.own, source)
        reach("history.kept")
        kept = self._history[work.name]
        # An older batch may lack columns that came later.
        blank = dict.fromkeys({*now.columns, *_columns(source), *rule.besides})
        after: Sequence[Row] = ()
        for name in editions.names:
            after = merges.merged(after, [{**blank, **row} for row in kept[name].rows], rule).rows
        replaced = kept[editions.replaced].rows if editions.replaced else ()
        touched = {merges.key_of(row, rule.keys) for row in (*source, *replaced)}
        stay = [row for _, row in self._widened(now, source, rule.besides)]
        if editions.whole:
            made = list(after)
        else:
            made = [row for row in stay if merges.key_of(row, rule.keys) not in touched]
            made += [row for row in after if merges.key_of(row, rule.keys) in touched]
        return Staged(len(source), handle=("merge", made, now.number), answers=_live(source, rule))

    def _keep(self, table: str, name: str, rows: Sequence[Row]) -> None:
        self._history.setdefault(table, {})[name] = Batch(tuple(rows), kept_names.now())

    def _adopted(self, work: Work, rule: MergeRule) -> Sequence[Row]:
        """Return the rows that the plan saw in the table."""
        seen = self._version(work.name, work.base.version)
        merges.refuse_mark_in_table(seen.columns, rule)
        rows = [row for _, row in seen.rows]
        counts = Counter(merges.key_of(row, rule.keys) for row in rows)
        keys = [(row, merges.key_of(row, rule.keys)) for row in rows]
        merges.refuse_keys_there([row for row, key in keys if counts[key] > 1 or None in key], rule)
        return rows

    def stage_missing(
        self, work: Work, rows: Rows, rule: MergeRule, look_back: LookBack | None, layout: Sequence[str]
    ) -> Staged:
        """Hold the table as it will be with the rows whose key is missing."""
        now = self._newest(work.name)
        source = merges.prepared(self._fitted(work, rows), rule)
        there = [row for _, row in self._widened(now, source)]
        searched = there if look_back is None else _searched(there, source, look_back)
        known = {merges.key_of(row, rule.keys) for row in searched}
        new = [row for row in source if merges.key_of(row, rule.keys) not in known]
        notes = (merges.changes_text(len(new), 0, 0, len(source)),)
        handle = ("merge", [*there, *new], now.number) if new else None
        return Staged(len(source), handle=handle, notes=notes, answers=partial(by_rows, source))

    def _widened(self, now: Version, source: Sequence[Row], besides: Sequence[str] = ()) -> list[tuple[str, Row]]:
        """Return the rows that are there, with the columns that the source adds."""
        added = set(_columns(source)) - {*now.columns, *besides} if now.columns and source else set()
        return [(slot, {**dict.fromkeys(added), **row}) for slot, row in now.rows]

    def publish(self, work: Work, staged: Staged, receipts: Sequence[Receipt]) -> tuple[str, ...]:
        """Assign the next version, if the slots' fences (and the head) are as the plan saw them."""
        with self._lock:
            now = self._newest(work.name)
            self._compare(work, now, staged, receipts)
            reach("memory.publish")
            if staged.handle and staged.handle[0] == "tables":
                for name, rows in staged.handle[1].items():
                    part = replace(work, name=f"{work.name}/{name}")
                    before = self._newest(part.name)
                    self._append(
                        part.name, self._next(part, before, Staged(len(rows), handle=("slot", rows)), receipts)
                    )
                staged = replace(staged, handle=None)
            self._append(work.name, self._next(work, now, staged, receipts))
        return ()

    def _compare(self, work: Work, now: Version, staged: Staged, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            known = now.receipts.get(receipt.slot)
            if (known.generation if known else 0) + 1 != receipt.generation:
                raise Conflict("the slot's fence moved")
        if staged.keeps and work.slot in now.ended.keys() - work.base.ended.keys():
            raise Conflict("the rows that were to be kept are gone")
        if now.owner not in ("", receipts[0].owner):
            raise Conflict("another ledger took the table")
        if staged.handle and staged.handle[0] == "merge" and now.number != staged.handle[2]:
            raise Conflict("the table moved since it was compared with the rows")
        if staged.handle and filled_by_another(staged.partitions, now.receipts, [one.slot for one in receipts]):
            raise Conflict("another slot fills a partition of it now")
        if now.sealed:
            raise Conflict("the view was sealed")
        if staged.handle and staged.handle[0] not in ("table", "version") and now.columns != self._columns_at(work):
            raise Conflict("the table has other columns now")
        if work.compares_head and now.number != work.base.version:
            raise Conflict("the head moved")

    def _columns_at(self, work: Work) -> tuple[str, ...]:
        """Return the columns of the version that the plan saw."""
        versions = self._tables.get(work.name, [])
        return versions[work.base.version].columns if 0 <= work.base.version < len(versions) else ()

    def _next(self, work: Work, now: Version, staged: Staged, published: Sequence[Receipt]) -> Version:
        number = now.number + 1
        table_id = now.table_id or uuid.uuid4().hex
        new = {receipt.slot: replace(receipt, first_version=number) for receipt in published}
        receipts = {**now.receipts, **new}
        ended = {slot: why for slot, why in now.ended.items() if slot not in new}
        rows, data_version = now.rows, now.data_version
        if staged.handle is not None:
            rows, data_version = self._changed(work, now, staged), number
        outside = now.outside
        columns = tuple(sorted({*now.columns, *_columns(rows)}))
        if staged.handle is not None and staged.handle[0] == "table":
            why = f"{REPLACED} {number}"
            ended = {slot: why for slot in receipts if slot not in new}
            outside, columns = f"version {number}", _columns(rows)
        gone = (now.gone | set(ended) - set(now.ended)) & set(ended)
        held = {} if staged.handle is not None and staged.handle[0] == "table" else now.holds
        holds = {**held, **{receipt.slot: receipt.generation for receipt in published}}
        made = Version(
            number, rows, receipts, ended, published[0].owner, table_id, outside, data_version, columns, gone, holds
        )
        if staged.handle is not None and staged.handle[0] == "draft":
            start = _state(self._version(work.name, staged.handle[2]))
            left = start.leaves_of(self.look(work.name), set(new), number)
            held = {**start.holds, **{slot: holds[slot] for slot in new}}
            return replace(made, ended=left.ended, gone=left.gone, outside=left.outside, holds=held)
        if staged.handle is None or staged.handle[0] != "version":
            return made
        edition = Edition(work.attempt, work.slot, work.generation, rows, published[0].published_at)
        editions = (*now.editions, edition)[-(staged.handle[2] or 0) :]
        by_strangers = {slot: why for slot, why in made.ended.items() if not why.startswith(POINTS_AT)}
        ended = {**by_strangers, **passed_by(editions, edition, receipts)}
        outside = f"version {number}" if ended else ""
        return replace(made, editions=editions, current=edition.name, ended=ended, outside=outside)

    def _changed(self, work: Work, now: Version, staged: Staged) -> tuple[tuple[str, Row], ...]:
        new = tuple((work.slot, row) for row in staged.handle[1])
        match staged.handle:
            case ("table", _) | ("version", *_):
                return new
            case ("merge", rows, _) | ("draft", rows, _):
                return tuple(("", row) for row in rows)
        there = self._widened(now, staged.handle[1])
        if staged.handle[0] == "slice":
            return tuple(kept for kept in there if not staged.handle[2].holds(kept[1])) + new
        if staged.handle[0] == "take":
            leaving: Leaving | None = staged.handle[2]
            values = set(leaving.values) if leaving else set[str]()
            return tuple(one for one in there if not (leaving and one[1].get(leaving.column) in values)) + new
        column = staged.lineage or ""
        return tuple((s, row) for s, row in there if s != work.slot and row.get(column) != work.slot) + new

    def settle(self, name: str) -> None:
        """Memory outlives nothing."""

    def discard(self, work: Work, staged: Staged) -> None:
        """Staged rows live in the attempt alone."""

    def unite(self, rows: Sequence[Rows]) -> Rows:
        """Return several lists as one."""
        return [row for part in rows for row in part]

    def compare(self, before: Rows, after: Rows, keys: Sequence[str], sample: int) -> Difference:
        """Compare lists of rows."""
        for key, rows in product(keys, (before, after)):
            if rows and key not in rows[0]:
                raise unknown_column(key, rows[0])
        if keys:
            older = {merges.key_of(row, keys): row for row in before}
            newer = {merges.key_of(row, keys): row for row in after}
        else:
            older, newer = (_numbered(rows) for rows in (before, after))
        removed = [(older[key], None) for key in older if key not in newer]
        added = [(None, newer[key]) for key in newer if key not in older]
        changed = [(older[key], newer[key]) for key in older if key in newer and older[key] != newer[key]]
        shown = (*changed[:sample], *added[:sample], *removed[:sample])
        return Difference(len(added), len(removed), len(changed) if keys else None, shown)

    def repeats(self, name: str, keys: Sequence[str], sample: int) -> Repeats:
        """Count the rows of each key."""
        found: dict[tuple[Any, ...], list[tuple[str, Row]]] = {}
        for slot, row in self._newest(name).rows:
            found.setdefault(merges.key_of(row, keys), []).append((slot, row))
        several = [rows for rows in found.values() if len(rows) > 1]
        shown = tuple(
            Repeated(
                {key: rows[0][1][key] for key in keys},
                len(rows),
                slots=tuple(sorted({slot for slot, _ in rows} - {""})),
            )
            for rows in several[:sample]
        )
        return Repeats(len(several), sum(map(len, several)), shown)

    def column_names(self, name: str) -> Sequence[str]:
        """Return the columns of the newest version."""
        return self._newest(name).columns

    def rows_with(self, name: str, values: Mapping[str, str], limit: int) -> list[dict[str, Any]]:
        """Compare texts: in memory a column has no type."""
        for column in values.keys() - self._newest(name).columns:
            raise unknown_column(column, self._newest(name).columns)
        found = (row for row in self.read(name) if all(str(row[key]) == text for key, text in values.items()))
        return list(islice(found, limit))

    def answers(self, name: str, tests: Sequence[DataTest]) -> Sequence[Answer]:
        """Look at the rows."""
        return by_rows(self.read(name), tests)

    def needs_spark_to_count(self, name: str) -> bool:
        """Lists are counted here."""
        return False

    def take_over(self, name: str, base: Sight, owner: str, keep_days: int = 0) -> None:
        """Write the new owner, if the table is as it was seen."""
        for member in self._united[name].members if name in self._united else ():
            if (sight := self.look(f"{name}/{member}")).exists:
                self.take_over(f"{name}/{member}", sight, owner)
        if name in self._united:
            return
        with self._lock:
            now = self._newest(name)
            if now.number != base.version:
                raise Conflict("the table moved")
            self._append(name, replace(now, number=now.number + 1, owner=owner))

    def read(self, name: str, version: int | None = None) -> Rows:
        """Return the rows as plain dicts."""
        if name in self._united:
            united = self._united[name]
            plain = [member for member in united.members if member not in united.frozen.values()]
            larger = [member for member in united.members if member in united.frozen.values()]
            rows = [with_label(row, united.by, member) for member in plain for row in self.read(f"{name}/{member}")]
            return rows + [row for member in larger for row in self.read(f"{name}/{member}")]
        chosen = self._newest(name) if version is None else self._tables[name][version]
        return [dict(row) for _, row in chosen.rows]

    def tidy(self, name: str, live: LiveAttempts, *, keep_days: float, dry_run: bool) -> Swept:
        """Take away change rows that count for nothing: staged ones are gone with their attempt.

        Whoever planned before the head moves is refused, and keeps its rows anew; so none that goes is counted on.
        """
        kept = dict(self._history.get(name, {}))
        sight = self.look(name)
        dead = kept_names.uncounted({one: batch.kept_at for one, batch in kept.items()}, sight, live, keep_days)
        swept = Swept(change_rows=sum(len(kept[one].rows) for one in dead), names=dead)
        if dry_run or not dead or not sight.exists:
            return swept if sight.exists else Swept()
        try:
            self._move_head(name, sight)
        except Conflict as error:
            return Swept(notes=(kept_names.left(error),))
        reach("history.fenced")
        for one in dead:
            del self._history[name][one]
        reach("history.dropped")
        return swept

    def _move_head(self, name: str, sight: Sight) -> None:
        """Refuse every publish that was planned until now."""
        with self._lock:
            now = self._newest(name)
            if now.number != sight.version:
                raise Conflict("the table moved")
            self._append(name, replace(now, number=now.number + 1))

    def meddle(self, name: str, rows: Sequence[Row], *, restored_to: int | None = None) -> None:
        """Change the table as a stranger would: a foreign write, or a restore of an old version."""
        with self._lock:
            now = self._newest(name)
            number = now.number + 1
            if restored_to is None:
                why = f"the table was changed from outside in version {number}"
                ended, gone, holds = dict.fromkeys(now.receipts, why), set[str](), now.holds
                kept: tuple[tuple[str, Row], ...] = tuple(("", row) for row in rows)
            else:
                why = f"the table was restored to version {restored_to} in version {number}"
                then = self._tables[name][restored_to]
                late = {slot for slot, found in now.receipts.items() if (found.first_version or 0) > restored_to}
                # What was not vouched for in that version is not vouched for when it comes back.
                ended = {**now.ended, **dict.fromkeys({*late, *then.ended}, why)}
                kept, holds = then.rows, then.holds
                # A restore may bring an older edition back, and then the slot is not gone.
                gone = late - set(holds)
            columns = now.columns or _columns(kept)
            changed = replace(now, number=number, rows=kept, ended=ended, gone=frozenset(gone), holds=holds)
            changed = replace(changed, columns=columns)
            self._append(name, replace(changed, outside=f"version {number}", data_version=number))


def _live(source: Sequence[Row], rule: MergeRule) -> Answers:
    """Answer tests of the rows of a merge that are not marked as deleted."""
    return lambda tests: by_rows(merges.live(source, rule), tests)


def _new(rows: Sequence[Row], start: Version) -> Answers:
    """Answer tests of the rows that a draft changes in the version that it starts from."""
    before = [row for _, row in start.rows]
    return lambda tests: by_rows([row for row in rows if row not in before], tests)


def _state(version: Version) -> State:
    outside = version.outside if set(version.ended) - version.gone else ""
    return State(version.number, version.holds, outside)


def _numbered(rows: Sequence[Row]) -> dict[Any, Row]:
    """Return rows under themselves, copies under numbers."""
    seen = Counter[str]()
    found: dict[Any, Row] = {}
    for row in rows:
        text = repr(sorted(row.items()))
        seen[text] += 1
        found[text, seen[text]] = row
    return found


def _searched(there: Sequence[Row], source: Sequence[Row], look_back: LookBack) -> list[Row]:
    """Return the rows of the window; it reaches back to the oldest row of the source, if that is older."""
    look_back.refuse_unknown(sum(row.get(look_back.column) is None for row in source))
    since = min([look_back.since, *(_moment(row, look_back) for row in source)])
    return [row for row in there if row[look_back.column] is not None and _moment(row, look_back) >= since]


def _moment(row: Row, look_back: LookBack) -> datetime:
    value = row[look_back.column]
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if not isinstance(value, date):
        raise look_back.no_time()
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


def _columns(rows: Sequence[Any]) -> tuple[str, ...]:
    """Return the columns of the first row, whether or not it comes with its slot."""
    first = rows[0] if rows else {}
    return tuple(sorted(first[1] if isinstance(first, tuple) else first))


def partition_of(row: Row, columns: Sequence[str]) -> str:
    """Name a row's partition, the way a folder would."""
    for column in columns:
        if column not in row:
            raise missing_column(column, row)
    return "/".join(f"{column}={row[column]}" for column in columns)
