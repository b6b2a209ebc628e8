"""How does a publish to Delta carry its receipt, and what refuses a late twin?

The files of a slot are written in a transaction of our own, which reads the slot's last number
(`txn(appId = slot, version = generation)`) and thereby conflicts with any other attempt on that
slot. The receipt rides in the commit's `userMetadata`. What became of a publish is read back from
the log, by attempt, and never taken from a session.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from twice import session_settings
from twice.abilities import (
    Appends,
    Editions,
    FindsRepeats,
    FindsRows,
    InsertsMissing,
    Inspects,
    KeepsVersions,
    KnowsColumns,
    LiveAttempts,
    Merges,
    Opening,
    PointsAtVersions,
    Repeats,
    ReplacesPartitions,
    ReplacesSlices,
    ReplacesTable,
    Rows,
    Staged,
    Store,
    Swept,
    Trouble,
    UnitesTables,
    Work,
)
from twice.caches import content_of_files, told_apart
from twice.data_tests import Answer, DataTest
from twice.errors import Conflict, Misuse, NotPublished, TwiceError
from twice.explain import explain
from twice.faults import reach
from twice.merges import MergeRule
from twice.runs import Receipt
from twice.sight import NO_TABLE, Past, Sight
from twice.slices import quoted
from twice.stores import finding, footers, frames, manifest, merging, repeats
from twice.stores.answering import by_spark
from twice.stores.beside import Beside
from twice.stores.delta import catalog, inspecting, log, named_files, sql_views, upkeep
from twice.stores.delta.jvm import Transaction, locked
from twice.stores.delta.log import Payload
from twice.stores.delta.merging import MergesRows
from twice.stores.delta.replacing import ReplacesRows
from twice.stores.delta.staging import Written
from twice.stores.delta.taking import Takes
from twice.stores.durable import sync_file, sync_folders, sync_way_to
from twice.stores.histories import Histories, history_of
from twice.stores.manifest import DataFile, Manifest, Member
from twice.stores.views import NewVersion, Views, a_table, refuse_versions


class DeltaStore(
    Views,
    Histories,
    ReplacesRows,
    MergesRows,
    Takes,
    Beside,
    frames.SparkRows,
    Store,
    ReplacesTable,
    ReplacesSlices,
    ReplacesPartitions,
    Merges,
    KeepsVersions,
    InsertsMissing,
    Appends,
    PointsAtVersions,
    UnitesTables,
    FindsRepeats,
    FindsRows,
    KnowsColumns,
    Inspects,
):
    """Delta tables under one root, or in Spark's catalog."""

    kind: ClassVar[str] = "delta"
    lacks: ClassVar[Mapping[str, str]] = {
        "TransactsTables": "a Delta transaction is that of one table",
        "DeliversFiles": "its files belong to Delta's log, which names them",
    }

    def __init__(self, root: str, engine: Any, locations: catalog.Locations, views: str = "") -> None:
        self.root = root
        self.views = views
        self.engine = engine
        self.locations = locations
        self._folders: dict[str, str] = {}

    @classmethod
    def opened(cls, opening: Opening) -> DeltaStore:
        """Open the tables under a root, and those of the catalog."""
        return cls(opening.root, opening.engine, opening.locations, opening.views)

    def table(self, name: str) -> str:
        """Return the folder of a table; a catalog name is asked of the catalog once."""
        if "/" in name:
            return os.path.join(self.root, *name.split("/"))
        if name not in self._folders:
            self._folders[name] = self.locations.get(name) or self._from_catalog(name)
        return self._folders[name]

    def _from_catalog(self, name: str) -> str:
        """Ask the catalog for a table's folder; one that was published and not registered is registered now."""
        folder = catalog.located(self.engine.spark, name)
        if log.commit_versions(folder):
            self._register(name, folder)
        return folder

    def look(self, name: str) -> Sight:
        """Read the receipts from the log, without a JVM."""
        table = self.table(name)
        view = self._view(name)
        if view:
            return self.look_at_view(name, view)
        refuse_versions(self.root, table)
        return self.frozen_sight(name) or log.look(table)

    def newest_entry(self, name: str) -> str:
        """Return the path of the newest commit, or nothing."""
        table = self.table(name)
        versions = log.commit_versions(table)
        return os.path.join(log.log_folder(table), f"{versions[-1]:020}.json") if versions else ""

    def _view(self, name: str) -> Manifest | None:
        """Return the view of that name, if it is one and not a table."""
        found = manifest.newest(self.table(name))
        if found.version == NO_TABLE:
            return None
        if not found.is_view:
            raise Misuse(
                f"The folder of delta:{name} is a Parquet table of Twice.", fix="Give each target a folder of its own."
            )
        return found

    def stage_version(self, work: Work, rows: Rows, keep: int | None) -> Staged:
        """Write a Delta table that no view names yet, and to which nothing is ever added."""
        self.refuse_table(work.name)
        folder = self._version_folder(work)
        view = self._view(work.name)
        shown = view.member(view.current) if view else None
        schema = self.schema_of(f"{work.name}/{shown.name}") if shown else ""
        self.fit_to(work, rows, schema).write.format("delta").mode("errorifexists").save(folder)
        reach("delta.version.written")
        table = self.table(work.name)
        paths = [os.path.join(place, one) for place, _, names in os.walk(folder) for one in names]
        for path in paths:
            sync_file(path)
        sync_folders(place for place, _, _ in os.walk(folder))
        sync_way_to(folder)
        files = tuple(
            DataFile(os.path.relpath(path, table), os.path.getsize(path), "", work.slot) for path in sorted(paths)
        )
        count = footers.row_count([path for path in paths if path.endswith(".parquet") and "_delta_log" not in path])
        member = Member(os.path.relpath(folder, table), slot=work.slot, rows=count, files=files)
        return Staged(count, handle=NewVersion(member, keep), answers=partial(self._answers_of, folder))

    def _answers_of(self, folder: str, tests: Sequence[DataTest]) -> Sequence[Answer]:
        """Answer tests of a table that no view names yet."""
        return by_spark(self.engine.spark.read.format("delta").load(folder), tests)

    def read_version(self, name: str, member: Member) -> Rows:
        """Read a version with Delta's own reader."""
        return self.engine.spark.read.format("delta").load(self.table(name))

    def schema_of(self, name: str) -> str:
        """Return a table's columns as JSON."""
        return Transaction(self.engine.spark, self.table(name)).schema

    def write_frozen(self, name: str, rows: Rows, by: str, held: Sight) -> None:
        """Write a table in one commit that carries all receipts."""
        transaction = Transaction(self.engine.spark, self.table(name))
        with session_settings.watched():
            session_settings.hold(rows.sparkSession)
            actions = transaction.write(rows, {}, [by])
        receipts = {slot: replace(receipt, first_version=0) for slot, receipt in held.receipts.items()}
        payload = Payload("freeze", held.owner, "rows", table_id=transaction.table_id)
        text = payload.carrying(replace(held, receipts=receipts)).to_text()
        numbers = {slot: receipt.generation for slot, receipt in receipts.items()}
        with locked(self.engine.spark, self.table(name)) as lock:
            transaction.commit(lock, actions, numbers, text, "Append")

    def add_column_to(self, name: str, column: str, kind: str, owner: str) -> bool:
        """Commit a change of the columns, and of nothing else."""
        table = self.table(name)
        transaction = Transaction(self.engine.spark, table)
        schema = frames.with_column(transaction.schema, column, kind, name)
        if schema == transaction.schema:
            return False
        transaction.evolve(frames.read_parquet(self.engine.spark, [], schema), ())
        number = max(transaction.last_version_of(upkeep.RESTATED), 0) + 1
        payload = Payload("evolve", owner, "nothing", table_id=transaction.table_id)
        with locked(self.engine.spark, table) as lock:
            upkeep.check_owner(log.look(table), owner)
            transaction.commit(lock, transaction.none(), {upkeep.RESTATED: number}, payload.to_text(), "Append")
        return True

    def refuse_table(self, name: str) -> None:
        """Refuse a name that is a table already, on disk or in the catalog that gets the SQL view."""
        if "/" not in name:
            raise Misuse(
                f"A view needs a path, and delta:{name} is a name in a catalog.", fix="For example delta:lake/visits."
            )
        if log.commit_versions(self.table(name)):
            raise a_table(name)
        if self.views:
            sql_views.refuse_table(self.engine.spark, self._sql_name(name))

    def stage_history(
        self, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str], editions: Editions
    ) -> Staged:
        """Let types of the history grow wherever those of its table may, then add the rows to it and merge."""
        spark = self.engine.spark
        if work.columns.on_type == "widen" and Transaction(spark, self.table(work.name)).types_may_grow:
            upkeep.let_types_grow(spark, self.table(history_of(work.name)))
        return super().stage_history(work, rows, rule, layout, editions)

    def past(self, name: str) -> Past:
        """Read from the log whose rows each version holds."""
        table = self.table(name)
        return Past(reversed(log.states(table)), lambda version: named_files.lost(table, version))

    def restore(self, name: str, base: Sight, version: int, owner: str) -> None:
        """Commit the difference between what is there and an older version."""
        table = self.table(name)
        transaction = Transaction(self.engine.spark, table, base.version)
        transaction.reads_all()
        start = next(one for one in log.states(table) if one.version == version)
        left = start.leaves_of(base, frozenset(), base.version + 1)
        payload = Payload("restore", owner, "rows", table_id=transaction.table_id, starts_from=version).carrying(left)
        numbers = {upkeep.HEAD: max(transaction.last_version_of(upkeep.HEAD), 0) + 1}
        transaction.last_version_of(upkeep.OWNER)
        actions = transaction.started(transaction.start(version), transaction.none())
        with locked(self.engine.spark, table) as lock:
            now = log.look(table)
            upkeep.check_owner(now, owner)
            _check_head(now, base)
            _check_start(table, version)
            reach("delta.locked")
            transaction.commit(lock, actions, numbers, payload.to_text(), "Overwrite")

    def publish(self, work: Work, staged: Staged, receipts: Sequence[Receipt]) -> tuple[str, ...]:
        """Commit under the lock beside the table, if the slot's number is what the plan saw."""
        if isinstance(staged.handle, NewVersion):
            self.publish_version(work, staged.handle, receipts)
            return ()
        table = self.table(work.name)
        written, numbers, payload = self._before_commit(work, staged, receipts)
        with locked(self.engine.spark, table) as lock:
            now = log.look(table)
            upkeep.check_owner(now, receipts[0].owner)
            if work.compares_head:
                _check_head(now, work.base)
            if staged.keeps and work.slot in now.ended.keys() - work.base.ended.keys():
                raise Conflict("the rows that were to be kept are gone")
            _check_start(table, written.starts_from)
            _check_files(table, written)
            reach("delta.locked")
            written.transaction.commit(lock, written.actions, numbers, payload, written.mode, written.predicate)
            reach("delta.committed")
        return ()

    def _before_commit(
        self, work: Work, staged: Staged, receipts: Sequence[Receipt]
    ) -> tuple[Written, dict[str, int], str]:
        """Make ready all that the commit carries; whatever fails here has surely not been published."""
        try:
            written = staged.handle or self._nothing(work)
            transaction: Transaction = written.transaction
            moved = [
                one.slot for one in receipts if max(transaction.last_version_of(one.slot), 0) + 1 != one.generation
            ]
            transaction.last_version_of(upkeep.OWNER)
            numbers = {receipt.slot: receipt.generation for receipt in receipts}
            if work.compares_head:
                numbers[upkeep.HEAD] = max(transaction.last_version_of(upkeep.HEAD), 0) + 1
            payload = self._payload(work, receipts, written).to_text()
        except (Conflict, TwiceError):
            raise
        except Exception as error:
            raise NotPublished(
                f"The publish could not be made ready: {explain(error)}", "Nothing was published.", "Run again."
            ) from error
        if moved:
            raise Conflict(f"the number of {moved[0]} is not what the plan saw")
        return written, numbers, payload

    def _nothing(self, work: Work) -> Written:
        """A publish of the receipt alone: no rows change, and none may have changed since the plan."""
        transaction = self._open(work, base=work.base.version)
        if not transaction.exists:
            raise NotPublished(
                f"There is no table {work.name} yet, and no columns to make one of.",
                "A receipt alone makes no Delta table, so nothing was published.",
                "Publish a frame without rows: it has columns.",
            )
        transaction.keep_versions(work.keep_days)
        transaction.reads_all()
        return Written(transaction, transaction.none(), "nothing")

    def _payload(self, work: Work, receipts: Sequence[Receipt], written: Written) -> Payload:
        """Carry older receipts forward when enough have gathered, or when they grow old."""
        transaction = written.transaction
        owner = receipts[0].owner
        payload = Payload("publish", owner, written.scope, tuple(receipts), table_id=transaction.table_id)
        if written.starts_from is not None:
            return replace(payload, starts_from=written.starts_from).carrying(self._left(work, receipts, written))
        if work.base.receipts and upkeep.is_time_to_carry(self.table(work.name), work.base, transaction):
            return payload.carrying(work.base)
        return payload

    def _left(self, work: Work, receipts: Sequence[Receipt], written: Written) -> Sight:
        """Return what is true of the other slots, when the table starts from an older version."""
        start = next(one for one in log.states(self.table(work.name)) if one.version == written.starts_from)
        return start.leaves_of(work.base, {receipt.slot for receipt in receipts}, work.base.version + 1)

    def _register(self, name: str, table: str) -> None:
        """Keep the catalog's entry of a table that is known by name, and remember its folder once it is there."""
        if "/" in name:
            return
        catalog.register(self.engine.spark, name, table)
        self.locations.put(name, table)

    def settle(self, name: str) -> None:
        """Keep the catalog's entry and SQL view; Delta leaves its log to the file system, that of a view is forced to disk."""
        folder = manifest.log_folder(self.table(name))
        if os.path.isdir(folder):
            sync_file(folder)
        if self.engine.started:
            self._register(name, self.table(name))
        if self.views and self.engine.started:
            self._write_sql_view(name)

    def _write_sql_view(self, name: str) -> None:
        """Write the SQL view of a view, or of the one that a table is behind."""
        for target in (name, name.rpartition("/")[0]):
            view = self._view(target) if "/" in target else None
            if view is None:
                continue
            paths = self._branches(target, view)
            if paths:
                sql_views.write(self.engine.spark, self._sql_name(target), paths, view.by)

    def _branches(self, name: str, view: Manifest) -> dict[str, str | None]:
        """Return the folders of the tables that a view shows, each with its label or with none."""
        shown = [one for one in view.members if one.name == view.current or view.by]
        return {
            os.path.join(self.table(name), *one.name.split("/")): None if one.covers or not view.by else one.label
            for one in shown
            if log.commit_versions(self.table(f"{name}/{one.name}"))
        }

    def repeats(self, name: str, keys: Sequence[str], sample: int) -> Repeats:
        """Count keys with Spark, and find the commits that brought them in the log."""
        return inspecting.with_writers(repeats.by_spark(self.read(name), keys, sample), self.table(name))

    def answers(self, name: str, tests: Sequence[DataTest]) -> Sequence[Answer]:
        """Answer tests with Spark."""
        return by_spark(self.read(name), tests)

    def needs_spark_to_count(self, name: str) -> bool:
        """A table of Delta is read by Delta."""
        return True

    def column_names(self, name: str) -> Sequence[str]:
        """Return the columns that the log lists."""
        return [] if self._view(name) else named_files.columns(self.table(name))

    def rows_with(self, name: str, values: Mapping[str, str], limit: int) -> list[dict[str, Any]]:
        """Let Delta's own reader find the rows."""
        return finding.by_spark(self.read(name), values, limit)

    def inspect(self, name: str) -> Sequence[Trouble]:
        """Look for files that the newest version names and that are not there."""
        view = self._view(name)
        tables = [f"{name}/{member.name}" for member in view.members] if view and view.by else [] if view else [name]
        return [trouble for one in tables for trouble in inspecting.missing_files(one, self.table(one))]

    def is_in_catalog(self, name: str) -> bool:
        """Views have a SQL view, if the project names a schema for them."""
        return bool(self.views) and "/" in name and self._view(name) is not None

    def inspect_catalog(self, name: str) -> Sequence[Trouble]:
        """Compare the SQL view with the tables that the view of Twice names."""
        view = self._view(name) if self.is_in_catalog(name) else None
        expected = self._branches(name, view) if view else {}
        if not expected:
            return ()
        shown = sql_views.paths_of(self.engine.spark, self._sql_name(name))
        return inspecting.other_tables_shown(self._sql_name(name), shown, set(expected))

    def _sql_name(self, name: str) -> str:
        return f"{catalog.identifier(self.views)}.{quoted(name.rpartition('/')[2])}"

    def take_over(self, name: str, base: Sight, owner: str, keep_days: int = 0) -> None:
        """Commit the new owner, if no other change of owner came first."""
        table = self.table(name)
        view = self._view(name)
        if view:
            self.take_over_view(name, view, base, owner)
            return
        transaction = Transaction(self.engine.spark, table)
        transaction.keep_versions(keep_days)
        number = max(transaction.last_version_of(upkeep.OWNER), 0) + 1
        if log.look(table).owner != base.owner:
            raise Conflict("the owner changed")
        payload = Payload("adopt", owner, "nothing", table_id=transaction.table_id).carrying(base)
        with locked(self.engine.spark, table) as lock:
            transaction.commit(lock, transaction.none(), {upkeep.OWNER: number}, payload.to_text(), "Append")

    def read(self, name: str, version: int | None = None) -> Rows:
        """Return the rows through Delta's own reader."""
        table = self.table(name)
        view = self._view(name)
        if view:
            return self.read_view(name, view if version is None else manifest.load(table, version), version)
        if not log.commit_versions(table):
            raise NotPublished(f"The table {name} does not exist yet.", fix="Run the pipeline that writes it.")
        reader = self.engine.spark.read.format("delta")
        rows = (reader if version is None else reader.option("versionAsOf", version)).load(table)
        # Delta's plan names the table, and knows no options: cached rows would be those of an older version.
        return told_apart(rows, table, version, content_of_files([self.newest_entry(name)]))

    def tidy(self, name: str, live: LiveAttempts, *, keep_days: float, dry_run: bool) -> Swept:
        """Restate receipts that would go with the cleaned log, and let Delta vacuum the table."""
        table = self.table(name)
        view = self._view(name)
        if view:
            return self.tidy_view(name, view, live, keep_days=keep_days, dry_run=dry_run)
        sight = log.look(table)
        if not sight.exists:
            return Swept()
        notes = [] if dry_run else upkeep.restate(self.engine.spark, table, sight)
        history = self.history_beside(name)
        swept = Swept()
        if history:
            swept = self.tidy_history(name, history, live, keep_days=keep_days, dry_run=dry_run)
        tables = [table, self.table(history)] if history else [table]
        files = sum(upkeep.vacuum(self.engine.spark, one, dry_run=dry_run) for one in tables)
        notes.append("files that no version names are kept for delta.deletedFileRetentionDuration, a week by default")
        return swept + Swept(removed_files=files, notes=tuple(notes))

    def counted(self, history: str, names: Iterable[str]) -> Mapping[str, int]:
        """Count the rows: what was taken away before still has its number in the log."""
        found = self.read(history).where(upkeep.is_named(names)).groupBy(merging.LABEL).count().collect()
        return {row[merging.LABEL]: row["count"] for row in found}

    def drop_batches(self, history: str, names: Iterable[str]) -> None:
        """Commit the removal of their rows."""
        upkeep.drop_batches(self.engine.spark, self.table(history), names)

    def move_head(self, name: str, sight: Sight) -> None:
        """Commit the next number of the head, and nothing else."""
        upkeep.move_head(self.engine.spark, self.table(name), sight)


def _check_head(now: Sight, base: Sight) -> None:
    """Refuse a publish of another slot that Delta takes for no conflict, since it changed no row; maintenance is no publish."""
    fences = [{slot: found.generation for slot, found in sight.receipts.items()} for sight in (now, base)]
    if fences[0] != fences[1] or (now.data_version, now.outside) != (base.data_version, base.outside):
        raise Conflict("the head moved")


def _check_start(table: str, version: int | None) -> None:
    """Files of an older version that come back are looked at once more: a vacuum makes no conflict."""
    why = "" if version is None else named_files.lost(table, version)
    if why:
        raise Conflict(f"version {version} cannot be started from any more: {why}")


def _check_files(table: str, written: Written) -> None:
    """What was staged is looked at once more: a vacuum that keeps nothing takes files that no version names yet."""
    gone = named_files.not_there(table, written.transaction.additions(written.actions))
    if gone:
        raise Conflict(f"{len(gone)} of the files that were staged are gone, {gone[0]} among them")
