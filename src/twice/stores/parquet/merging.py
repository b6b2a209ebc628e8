"""How is a merge written to plain Parquet files?

What changes is found with frames (`stores/merging`). The partitions in which a row is updated or deleted are written anew, and
published on the version that they were computed from, and on no other. A draft starts from the files of an older one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from twice.abilities import LookBack, Rows, Staged, Work
from twice.errors import Conflict
from twice.merges import MergeRule, changes_text
from twice.sight import NO_TABLE
from twice.stores import footers, frames, merging, preparing
from twice.stores import manifest as log
from twice.stores.answering import by_spark
from twice.stores.manifest import DataFile, Manifest
from twice.stores.parquet.staging import Scope, Stages


class MergesRows(Stages):
    """Merges rows, and inserts those that are not there, for the store of Parquet files."""

    def stage_merge(self, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str]) -> Staged:
        """Write anew the partitions in which a row changes, and the rows that are inserted."""
        base, source, scope = self._merge_source(work, rows, rule, layout)
        staged = self._stage_changes(work, base, source, scope, rule, layout)
        return replace(staged, answers=merging.answers(source, rule))

    def _stage_changes(
        self,
        work: Work,
        base: Manifest,
        source: preparing.Source,
        scope: Scope,
        rule: MergeRule,
        layout: Sequence[str],
    ) -> Staged:
        """Find what the rows of a merge change, and write it."""
        if not base.files:
            return self._stage_merged(work, merging.live(source.rows, rule), scope, layout, source)
        schema = frames.schema_text(merging.stored(source.rows, rule))
        target = self._rows_of(work.name, base.files, schema)
        changes = merging.changes(source, merging.within(target, source.bounds), rule)
        if not changes.total:
            return Staged(source.given, notes=changes.notes(source.given))
        touched = self._touched(work.name, base, changes.files)
        kept = merging.without(self._rows_of(work.name, touched, schema), changes, rule)
        scope = replace(scope, removed=frozenset(file.path for file in touched))
        written = kept.unionByName(changes.upserts)
        staged = self._stage_merged(work, written, scope, layout, source, self._rows_after(work.name, touched, changes))
        return replace(staged, notes=changes.notes(source.given))

    def stage_draft(
        self, work: Work, base: int, batches: Sequence[Rows], rule: MergeRule, layout: Sequence[str]
    ) -> Staged:
        """Write anew the partitions of an older version in which a row changes, and the rows that are inserted."""
        table = self.table(work.name)
        current, start = log.newest(table), log.load(table, base) if base != NO_TABLE else Manifest()
        if current.version != work.base.version:
            raise Conflict("the table moved since the plan was made")
        fits, schema, _ = frames.fitted_in_turn(batches, current.schema, work, rule)
        source = preparing.prepared_batches(fits, rule, layout)
        there = merging.within(self._rows_of(work.name, start.files, schema), source.bounds)
        changes = merging.changes_of_batches(source, there if start.files else None, rule)
        touched = self._touched(work.name, start, changes.files)
        removed = frozenset(file.path for file in touched)
        scope = Scope("draft", current.schema, current.version, removed, start)
        kept = merging.without(self._rows_of(work.name, touched, schema), changes, rule)
        written = kept.unionByName(changes.upserts)
        staged = self._stage_merged(work, written, scope, layout, source, self._rows_after(work.name, touched, changes))
        notes = changes.replay_notes(source.given, base)
        return replace(staged, notes=notes, batches=source.batches, answers=partial(by_spark, changes.upserts))

    def stage_missing(
        self, work: Work, rows: Rows, rule: MergeRule, look_back: LookBack | None, layout: Sequence[str]
    ) -> Staged:
        """Write the rows whose key no file holds yet."""
        base, source, scope = self._merge_source(work, rows, rule, layout)
        if not base.files:
            staged = self._stage_merged(work, source.rows, scope, layout, source)
            return replace(staged, answers=merging.answers(source, rule))
        target = self._rows_of(work.name, base.files, frames.schema_text(source.rows))
        searched = merging.within(target, source.bounds, preparing.since(look_back, source.rows))
        staged = self._stage_merged(work, merging.missing(source, searched, rule), scope, layout, source)
        return replace(staged, answers=merging.answers(source, rule))

    def _merge_source(
        self, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str]
    ) -> tuple[Manifest, preparing.Source, Scope]:
        """Return the version that is read, the checked source, and what the publish compares."""
        base = log.newest(self.table(work.name))
        rule.check_columns(frames.checked(rows).columns)
        fits, _ = frames.fitted(rows, base.schema, work, rule.besides)
        return base, preparing.prepared(fits, rule, layout), Scope("merge", base.schema, base.version)

    def _rows_after(self, name: str, touched: Iterable[DataFile], changes: merging.Changes) -> int:
        """Tell how many rows take the place of some files, by what their footers say."""
        held = footers.row_count([os.path.join(self.table(name), file.path) for file in touched])
        return held + changes.inserted - changes.deleted

    def _stage_merged(
        self,
        work: Work,
        rows: Rows,
        scope: Scope,
        layout: Sequence[str],
        source: preparing.Source,
        expected: int | None = None,
    ) -> Staged:
        """Stage what a merge writes; it tells the rows of its source, and its partitions are nobody's own."""
        staged = self._stage(work, rows, scope, columns=layout)
        merging.refuse_other_count(staged.rows, expected)
        return replace(staged, rows=source.given, partitions=(), notes=(changes_text(staged.rows, 0, 0, source.given),))

    def _touched(self, name: str, base: Manifest, found: Iterable[str]) -> tuple[DataFile, ...]:
        """Return the files of all partitions in which a row is updated or deleted."""
        partitions = {file.partition for file in self._files_at(name, base, found)}
        return tuple(file for file in base.files if file.partition in partitions)
