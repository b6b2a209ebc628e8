"""How is a merge written to a Delta table?

What changes is found with frames (`stores/merging`), in the part of the table in which keys may be. Where the table keeps no
more than rows, they are marked or written anew here; else Delta's own MERGE writes them, in the same transaction. A draft
starts from the files of an older version instead of the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from twice.abilities import LookBack, Rows, Staged, Work
from twice.errors import NotPublished
from twice.faults import reach
from twice.merges import MergeRule, changes_text
from twice.sight import NO_TABLE
from twice.stores import frames, merging, preparing
from twice.stores.answering import by_spark
from twice.stores.delta.jvm import HeldFile, Start, Transaction, rows_of
from twice.stores.delta.staging import Stages, Written


class MergesRows(Stages):
    """Merges rows, and inserts those that are not there, for the store of Delta tables."""

    def stage_merge(self, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str]) -> Staged:
        """Find what changes in a transaction of our own, and let Delta write just that."""
        rule.check_columns(frames.checked(rows).columns)
        # What is computed from the whole table is computed from what the plan saw, and from nothing newer.
        base = work.base.version if work.compares_head else None
        transaction, rows = self._opened_for(work, rows, base, besides=rule.besides)
        transaction.let_rows_be_marked()
        source = preparing.prepared(rows, rule, transaction.partition_columns or layout)
        staged = self._stage_changes(work, transaction, source, rule, layout)
        return replace(staged, answers=merging.answers(source, rule))

    def _stage_changes(
        self, work: Work, transaction: Transaction, source: preparing.Source, rule: MergeRule, layout: Sequence[str]
    ) -> Staged:
        """Find what the rows of a merge change, and write it."""
        if not transaction.exists:
            return self._inserted(work, transaction, merging.live(source.rows, rule), layout, source)
        if work.compares_head:
            transaction.reads_all()
        files, target = self._searched(transaction, source)
        changes = merging.changes(source, target, rule, with_places=transaction.marks_rows)
        notes = changes.notes(source.given)
        if changes.total == changes.inserted:
            staged = self._inserted(work, transaction, changes.upserts, layout, source)
            return replace(staged, notes=notes)
        self._refuse_blank_texts(changes.upserts, transaction.partition_columns)
        actions = self._changed(work, transaction, files, changes, rule) or transaction.merge(
            changes.rows, source.meets(rule, "t", "s"), rule.stored(source.rows.columns), merging.ACTION
        )
        reach("delta.files.written")
        staged = Staged(source.given, handle=Written(transaction, actions, "rows"), notes=notes)
        return self._counted_again(work, staged, changes)

    def _counted_again(self, work: Work, staged: Staged, changes: merging.Changes) -> Staged:
        """Compare what the files that go held with what those that come hold, where both were noted."""
        written: Written = staged.handle
        gained = written.transaction.rows_gained(written.actions)
        if gained is None:
            return staged
        try:
            merging.refuse_other_count(gained, changes.inserted - changes.deleted)
        except NotPublished:
            self.discard(work, staged)
            raise
        return staged

    def _changed(
        self, work: Work, transaction: Transaction, files: Any, changes: merging.Changes, rule: MergeRule
    ) -> Any:
        """Write what changes with less work than Delta's own MERGE, which looks for each row once more.

        Rows are marked where the table has deletion vectors. A file is written anew where it has none, and where so many rows are
        marked that less than half of it would be left; one without any row left is not read again. Where more is to be kept
        than rows, or where a key is in the table more than once, this is left to Delta; so it is where the table fills columns that the rows do not have.
        """
        touched = transaction.at_paths(files, changes.files)
        left = frames.left_to_table(changes.matched.columns, transaction.schema)
        if left or not transaction.keeps_only_rows or any(one.rows is None for one in touched):
            return None
        emptied, anew, to_mark = _by_what_is_left(touched, changes)
        marks = self._marked(transaction, to_mark, changes)
        if marks is None:
            return None
        written = self._rewritten(work, transaction, anew, changes, rule)
        return None if written is None else written.concat(transaction.removed([*emptied, *anew])).concat(marks)

    def _marked(self, transaction: Transaction, held: Sequence[HeldFile], changes: merging.Changes) -> Any:
        """Mark the rows of some files that change; None if these are not as many as were found."""
        if not held or changes.places is None:
            return transaction.none()
        paths = [one.path for one in held]
        places = changes.places if len(paths) == len(changes.files) else merging.in_files(changes.places, paths)
        marks, count = transaction.marked(transaction.listed(held), places, merging.FILE, merging.INDEX)
        return marks if count == sum(changes.files[path] for path in paths) else None

    def _rewritten(
        self, work: Work, transaction: Transaction, anew: Sequence[HeldFile], changes: merging.Changes, rule: MergeRule
    ) -> Any:
        """Write the rows that come, and what is left of some files; these are not shuffled. None if the count is not right."""
        expected = changes.inserted + changes.updated + sum((one.rows or 0) - changes.files[one.path] for one in anew)
        if not expected:
            return transaction.none()
        rows = changes.upserts
        if anew:
            target = frames.with_columns_of(transaction.frame(transaction.listed(anew)), transaction.schema)
            rows = merging.without(target, changes, rule).unionByName(rows)
        actions = transaction.write(rows, {}, transaction.partition_columns)
        if sum(map(self._rows_in(work), transaction.added_files(actions))) == expected:
            return actions
        self.discard(work, Staged(0, handle=Written(transaction, actions, "rows")))
        return None

    def stage_missing(
        self, work: Work, rows: Rows, rule: MergeRule, look_back: LookBack | None, layout: Sequence[str]
    ) -> Staged:
        """Write the rows whose key is not in the version that the transaction reads."""
        rule.check_columns(frames.checked(rows).columns)
        transaction, rows = self._opened_for(work, rows)
        source = preparing.prepared(rows, rule, transaction.partition_columns or layout)
        if not transaction.exists:
            staged = self._inserted(work, transaction, source.rows, layout, source)
            return replace(staged, answers=merging.answers(source, rule))
        _, target = self._searched(transaction, source, preparing.since(look_back, rows))
        staged = self._inserted(work, transaction, merging.missing(source, target, rule), layout, source)
        return replace(staged, answers=merging.answers(source, rule))

    def stage_draft(
        self, work: Work, base: int, batches: Sequence[Rows], rule: MergeRule, layout: Sequence[str]
    ) -> Staged:
        """Write anew the files of an older version in which a row changes, in a transaction opened on what the plan saw."""
        transaction = self._open(work, base=work.base.version)
        transaction.let_rows_be_marked()
        fits = self._fitted(work, transaction, batches, rule)
        if transaction.exists:
            _refuse_left_columns(fits, transaction, work)
        source = preparing.prepared_batches(fits, rule, transaction.partition_columns or layout)
        start = transaction.start(base) if base != NO_TABLE else None
        files, there = self._searched_at(transaction, start, source) if start else (transaction.none(), None)
        changes = merging.changes_of_batches(source, there, rule)
        partition_by = transaction.partition_columns if transaction.exists else list(layout)
        self._refuse_blank_texts(changes.upserts, partition_by)
        held = transaction.at_paths(files, changes.files)
        touched, before = transaction.listed(held), rows_of(held)
        rows = changes.upserts
        if start:
            kept = frames.with_columns_of(transaction.frame(touched, start), transaction.schema)
            rows = merging.without(kept, changes, rule).unionByName(rows)
        actions = transaction.write(rows, {}, partition_by)
        written = sum(map(self._rows_in(work), transaction.added_files(actions)))
        try:
            merging.refuse_other_count(written, None if before is None else before + changes.inserted - changes.deleted)
        except NotPublished:
            self.discard(work, Staged(0, handle=Written(transaction, actions, "rows")))
            raise
        new = actions
        if transaction.exists:
            transaction.reads_all()
            actions = actions.concat(transaction.started(start, touched))
        reach("delta.files.written")
        handle = Written(transaction, actions, "rows", starts_from=base, new=new)
        notes = changes.replay_notes(source.given, base)
        answers = partial(by_spark, changes.upserts)
        return Staged(source.given, handle=handle, notes=notes, batches=source.batches, answers=answers)

    def _fitted(self, work: Work, transaction: Transaction, batches: Sequence[Rows], rule: MergeRule) -> list[Any]:
        """Make each batch fit what the table is after those before it; the table's columns change once."""
        fits, schema, widened = frames.fitted_in_turn(batches, transaction.schema, work, rule)
        if transaction.exists and schema != transaction.schema and widened is not None:
            transaction.evolve(frames.read_parquet(self.engine.spark, [], schema), widened)
        else:
            transaction.keep_versions(work.keep_days)
        return fits

    def _searched(self, transaction: Transaction, source: preparing.Source, window: str = "") -> tuple[Any, Any]:
        """Return the files and the rows in which keys are looked for; a change of them is a conflict from now on."""
        files = transaction.reads(merging.within(transaction.frame(transaction.none()), source.bounds, window))
        # A column that the transaction itself adds is not in the version that it reads.
        rows = merging.within(transaction.frame(files), source.quick_bounds, window)
        return files, frames.with_columns_of(rows, transaction.schema)

    def _searched_at(self, transaction: Transaction, start: Start, source: preparing.Source) -> tuple[Any, Any]:
        """Return the files and the rows of an older version in which keys are looked for."""
        part = merging.within(transaction.frame(transaction.none(), start), source.bounds)
        files = transaction.files_of(start, part)
        rows = merging.within(transaction.frame(files, start), source.quick_bounds)
        return files, frames.with_columns_of(rows, transaction.schema)

    def _inserted(
        self, work: Work, transaction: Transaction, rows: Any, layout: Sequence[str], source: preparing.Source
    ) -> Staged:
        """Write rows that are only added, and tell the rows of the source."""
        partition_by = transaction.partition_columns if transaction.exists else list(layout)
        staged = self._stage(work, transaction, rows, {}, partition_by, "rows")
        return replace(staged, rows=source.given, notes=(changes_text(staged.rows, 0, 0, source.given),))


def _refuse_left_columns(batches: Sequence[Any], transaction: Transaction, work: Work) -> None:
    """Refuse to do rows again of which the table has filled a part: another time it would fill them in another way."""
    left = next((one for rows in batches for one in frames.left_to_table(rows.columns, transaction.schema)), "")
    if left:
        raise NotPublished(
            f"The rows lack the column {left!r}, which the table {work.name} fills itself.",
            "A replay makes rows anew, and the table would fill it in another way. Nothing was published.",
            'Fill it in the transform, or use stateful_merger(form="history").',
        )


def _by_what_is_left(
    touched: Sequence[HeldFile], changes: merging.Changes
) -> tuple[list[HeldFile], list[HeldFile], list[HeldFile]]:
    """Tell files that keep no row, files that are written anew, and files in which rows are marked."""
    emptied, anew, to_mark = list[HeldFile](), list[HeldFile](), list[HeldFile]()
    for one in touched:
        changing = changes.files[one.path]
        if one.rows == changing:
            emptied.append(one)
        elif changes.places is None or one.is_worn(changing):
            anew.append(one)
        else:
            to_mark.append(one)
    return emptied, anew, to_mark
