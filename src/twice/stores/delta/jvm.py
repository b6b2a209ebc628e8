"""How is a Delta transaction of our own opened, filled and committed?

The only module that speaks to Delta's classes in the JVM. Files are written first, with the
actions in hand; the commit comes last, after the second look at the inputs. These classes are
internal to Delta: the version is pinned, and the conformance suite covers every call.

On a POSIX file system Delta's log is no compare-and-set between processes: two of them may both be
told that they won a version. So a publish also holds an operating-system lock beside the table. The
JVM holds it, since the JVM commits: a killed Python must not free it while a commit is under way.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twice.errors import Busy, Conflict, Misuse, NotPublished
from twice.explain import explain
from twice.slices import ColumnSlice, quoted
from twice.stores import frames
from twice.stores.delta.log import days_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOCK = os.path.join("_twice", "lock")
_LOCK_SECONDS = 60.0
_LOST_RACES = ("Concurrent", "MetadataChanged", "ProtocolChanged")

_CHANGES = "twice_changes"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_FEW_FILES = 500
_GROWS = "delta.appendOnly"
_TYPES_GROW = "delta.enableTypeWidening"
_MARKS_ROWS = "delta.enableDeletionVectors"
_VECTORS = "spark.databricks.delta.merge.deletionVectors.persistent"
VECTORS_OF_NEW_TABLES = "spark.databricks.delta.properties.defaults.enableDeletionVectors"

_threads: dict[str, threading.Lock] = {}


@dataclass(frozen=True)
class AddedFile:
    """A file that a transaction adds, with what Delta noted of it."""

    path: str
    partition: Mapping[str, str | None]
    stats: Mapping[str, Any]

    @property
    def rows(self) -> int | None:
        """How many rows it holds, if that was noted."""
        found = self.stats.get("numRecords")
        return int(found) if found is not None else None

    def holds_only(self, bounds: ColumnSlice, kind: str) -> bool:
        """Tell whether its partition shows that all its rows lie in a slice by a column of some type."""
        value = self.partition.get(bounds.column)
        return value is not None and bounds.holds_text(value, kind)


@dataclass(frozen=True)
class HeldFile:
    """A file that a version of the table holds, with its rows, and with those too that are marked, where that was noted."""

    path: str
    action: Any
    rows: int | None
    rows_ever: int | None

    def is_worn(self, changing: int) -> bool:
        """Tell whether less than half of what a reader passes over would be rows if so many more were marked."""
        return self.rows is None or self.rows_ever is None or 2 * (self.rows - changing) < self.rows_ever


def rows_of(held: Iterable[HeldFile]) -> int | None:
    """Count the rows of some files, if that was noted of all of them."""
    counts = [one.rows for one in held]
    return None if None in counts else sum(filter(None, counts))


@dataclass(frozen=True)
class Start:
    """An older version of a table."""

    snapshot: Any


class Transaction:
    """One Delta transaction, opened on the newest version or on a given base."""

    def __init__(self, spark: SparkSession, table: str, base: int | None = None) -> None:
        self._spark = spark
        self._jvm = _jvm(spark)
        self._delta = self._jvm.org.apache.spark.sql.delta
        self._log = _module(self._delta, "DeltaLog$").forTable(spark._jsparkSession, table)
        self._none = self._jvm.scala.Option.empty()
        self._properties: dict[str, str] = {}
        self._evolved = False
        self._txn = self._log.startTransaction(self._none, self._snapshot(base))

    def _snapshot(self, base: int | None) -> Any:
        self._log.update(False, self._none, self._none)
        if base is None or base < 0:
            return self._none
        return self._some(self._log.getSnapshotAt(base, self._none, self._none, False))

    def _some(self, value: Any) -> Any:
        return self._jvm.scala.Option.apply(value)

    @property
    def read_version(self) -> int:
        """The version that the transaction was opened on, or -1 for a new table."""
        return int(self._txn.readVersion())

    @property
    def exists(self) -> bool:
        """Tell whether the transaction was opened on a table."""
        return self.read_version >= 0

    @property
    def schema(self) -> str:
        """The table's schema as JSON, or nothing for a new table."""
        return str(self._txn.metadata().schema().json()) if self.exists else ""

    @property
    def partition_columns(self) -> list[str]:
        """The columns that the table is partitioned by."""
        columns = self._txn.metadata().partitionColumns()
        return [str(columns.apply(index)) for index in range(columns.size())]

    @property
    def names_in_log(self) -> dict[str, str]:
        """The names that the log has for the columns: a table that maps its columns calls them otherwise there."""
        fields = json.loads(str(self._txn.metadata().schema().json()))["fields"]
        return {field["name"]: field["metadata"].get(_PHYSICAL_NAME, field["name"]) for field in fields}

    def table_property(self, name: str) -> str:
        """Return a property of the table, or nothing."""
        found = self._txn.metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else ""

    def last_version_of(self, app_id: str) -> int:
        """Return the number last written under an id, and make any later one a conflict."""
        return int(self._txn.txnVersion(app_id))

    def keep_versions(self, days: int) -> None:
        """Let the table keep its older versions for at least so many days, as a part of this transaction."""
        if not days:
            return
        wanted = {"delta.deletedFileRetentionDuration": days, "delta.logRetentionDuration": days + 1}
        kept = {name: max(value, days_of(self.table_property(name), 0)) for name, value in wanted.items()}
        if not self.exists:
            self._properties |= {name: f"interval {value:g} days" for name, value in kept.items()}
        elif any(days_of(self.table_property(name), 0) < value for name, value in wanted.items()):
            self._set({name: f"interval {value:g} days" for name, value in kept.items()})

    def _set(self, properties: Mapping[str, str]) -> None:
        metadata = json.loads(str(self._txn.metadata().json()))
        metadata["metaData"]["configuration"] |= properties
        self._txn.updateMetadata(_module(self._delta.actions, "Action$").fromJson(json.dumps(metadata)), False)

    @property
    def types_may_grow(self) -> bool:
        """Tell whether columns of the table may get a wider type."""
        return self.table_property(_TYPES_GROW) == "true"

    def let_types_grow(self) -> None:
        """Let columns of the table get wider types, as a part of this transaction; those that come need another one."""
        self._set({_TYPES_GROW: "true"})

    def let_rows_be_marked(self) -> None:
        """Give a new table deletion vectors, unless the session says whether new tables have them."""
        if not self.exists and self._spark.conf.get(VECTORS_OF_NEW_TABLES, None) is None:
            self._properties[_MARKS_ROWS] = "true"

    def write(self, rows: DataFrame, options: Mapping[str, str], partition_by: Sequence[str]) -> Any:
        """Write files and return the actions; nothing is visible. With options it is an overwrite, else an append."""
        if self.exists:
            rows = frames.with_defaults(rows, self.schema)
            if _overwrites(options) and self._has(_GROWS):
                raise _only_grows()
        session = self._spark._jsparkSession
        actions = self._command(rows, options, partition_by).write(self._txn, session, self._none, False)
        # Delta lets an overwrite of all rows take the table's clustering away.
        kept = [action for action in _each(actions) if not (self.exists and _is(action, "DomainMetadata"))]
        return self._seq(kept)

    def _command(self, rows: DataFrame, options: Mapping[str, str], partition_by: Sequence[str]) -> Any:
        session = self._spark._jsparkSession
        modes = self._jvm.org.apache.spark.sql.SaveMode
        return self._delta.commands.WriteIntoDelta(
            self._log,
            modes.Overwrite if _overwrites(options) else modes.Append,
            self._delta.DeltaOptions(self._map(options), session.sessionState().conf()),
            self._seq(partition_by),
            self._map(self._properties),
            rows._jdf,
            self._none,
            self._none,
            True,
        )

    def evolve(self, rows: DataFrame, widened: Sequence[str]) -> None:
        """Give the table the columns of a frame without rows, as a part of this transaction.

        Raises:
            NotPublished: A type would have to grow, and the table is not allowed to.
        """
        if widened and not self.types_may_grow:
            raise NotPublished(
                f"The type of {', '.join(widened)} would have to grow, and the table does not allow that.",
                "Nothing was published, and the target is as it was.",
                f"Set the table's property {_TYPES_GROW} to true, or cast in the transform.",
            )
        self.write(rows, {"mergeSchema": "true"}, self.partition_columns)
        self._evolved = True

    def reads_all(self) -> None:
        """Make any change of the table a conflict."""
        self._txn.readWholeTable()

    def reads(self, part: DataFrame) -> Any:
        """Make any change of the part of the table that a filtered frame reads a conflict, and return its files."""
        conditions = self._conditions(part)
        if not conditions:
            self.reads_all()
        return self._txn.filterFiles(self._seq(conditions or [self._true]), True)

    def frame(self, files: Any, start: Start | None = None) -> DataFrame:
        """Return the rows of some files, as the version that the transaction was opened on, or an older one, has them."""
        from pyspark.sql import DataFrame

        snapshot = start.snapshot if start else self._txn.snapshot()
        rows: Any = self._log.createDataFrame(snapshot, files, False, self._none)
        return DataFrame(rows, self._spark)

    def staged(self, actions: Any) -> DataFrame:
        """Return the rows of the files that actions add, in the columns that the table will have by this transaction."""
        added = self._seq([action for action in _each(actions) if _is(action, "AddFile")])
        will_be = self._delta.DummySnapshot(
            self._log.logPath(), self._log, self._txn.metadata(), self._none, self._none
        )
        return self.frame(added, Start(will_be))

    def start(self, version: int) -> Start:
        """Return an older version that this transaction will start from."""
        return Start(self._log.getSnapshotAt(version, self._none, self._none, False))

    def files_of(self, start: Start, part: DataFrame) -> Any:
        """Return the files of an older version in which the part lies that a filtered frame reads."""
        return start.snapshot.filesForScan(self._seq(self._conditions(part)), True).files()

    @property
    def _true(self) -> Any:
        return self._jvm.org.apache.spark.sql.catalyst.expressions.Literal.TrueLiteral()

    def _conditions(self, part: DataFrame) -> list[Any]:
        """Return the conditions by which a frame was filtered, each by itself.

        Delta skips files by a column that is compared with a literal: not by several such in one condition, and not where a cast
        is left around either, as a plan has it before it is optimised.
        """
        frame: Any = part
        plan = frame._jdf.queryExecution().analyzed()
        for rule in ("ConstantFolding$", "UnwrapCastInBinaryComparison$"):
            plan = _module(self._jvm.org.apache.spark.sql.catalyst.optimizer, rule).apply(plan)
        conditions: list[Any] = []
        while _is(plan, "Filter"):
            conditions.extend(_parts(plan.condition()))
            plan = plan.child()
        return conditions

    def started(self, start: Start | None, touched: Any) -> Any:
        """Return the actions that leave an older version without some of its files; None is an empty table.

        Files that both versions have are not mentioned: it costs what differs, however large the table is.
        """
        now = self._txn.snapshot().allFiles()
        if start is None:
            return self._removed(now.collect())
        left, gained = self._only_in_one(start.snapshot.allFiles(), now)
        away = {_file_key(file): file for file in _each(touched)}
        added = [_as_change(file, self._delta) for file in left if _file_key(file) not in away]
        still_there = set(away) - {_file_key(file) for file in left}
        return self._seq(added).concat(self._removed([*gained, *(away[key] for key in still_there)]))

    def _only_in_one(self, then: Any, now: Any) -> tuple[list[Any], list[Any]]:
        """Return the files that only the first of two versions has, and those that only the second has.

        One with other deletion vectors is another file.
        """
        sides = [list(files.take(_FEW_FILES + 1)) for files in (then, now)]
        if max(map(len, sides)) <= _FEW_FILES:
            # Spark plans a join for longer than it takes to compare a few names here.
            one, other = ({_file_key(file): file for file in side} for side in sides)
            return [one[key] for key in one if key not in other], [other[key] for key in other if key not in one]
        # Named, since both may be one and the same version.
        one, other = getattr(then, "as")("one"), getattr(now, "as")("other")
        same = "one.path = other.path AND one.deletionVector <=> other.deletionVector"
        pairs = one.joinWith(other, self._jvm.org.apache.spark.sql.functions.expr(same), "full_outer")
        unpaired = pairs.where("_1 IS NULL OR _2 IS NULL").collect()
        return [pair._1() for pair in unpaired if pair._1()], [pair._2() for pair in unpaired if pair._2()]

    def at_paths(self, files: Any, paths: Iterable[str]) -> list[HeldFile]:
        """Return those of the files that have a path."""
        base, command = self._log.dataPath(), self._command(self._spark.range(0), {}, [])
        by_path = command.generateCandidateFileMap(base, files)
        found = {path: command.getTouchedFile(base, path, by_path) for path in paths}
        return [
            HeldFile(path, file, _number(file.numLogicalRecords()), _number(file.numPhysicalRecords()))
            for path, file in found.items()
        ]

    def listed(self, held: Iterable[HeldFile]) -> Any:
        """Return files as those methods take them that read files."""
        return self._seq([one.action for one in held])

    @property
    def keeps_only_rows(self) -> bool:
        """Tell whether a merge comes down to rows that come and go: no change feeds, and no numbers of rows."""
        kept = ["delta.enableChangeDataFeed", "delta.enableChangeDataCapture", "delta.enableRowTracking"]
        return not any(map(self._has, kept)) and "delta.identity" not in self.schema

    def _has(self, feature: str) -> bool:
        """Tell whether a property of the table says yes, in any letters, as Delta reads it."""
        return self.table_property(feature).lower() == "true"

    @property
    def marks_rows(self) -> bool:
        """Tell whether rows of a file are marked as deleted, instead of writing the others anew."""
        if not (self.keeps_only_rows and self._has(_MARKS_ROWS)):
            return False
        return str(self._spark.conf.get(_VECTORS, "true")).lower() == "true"

    def marked(self, files: Any, places: DataFrame, file: str, index: str) -> tuple[Any, int]:
        """Write deletion vectors for some rows of files; return the actions, and how many rows that are."""
        commands, session = self._delta.commands, self._spark._jsparkSession
        helper = _module(commands, "DMLWithDeletionVectorsHelper$")
        column = self._jvm.org.apache.spark.sql.functions.col
        results = _module(commands, "DeletionVectorBitmapGenerator$").buildRowIndexSetsForFilesMatchingCondition(
            session,
            self._txn,
            True,
            places._jdf,
            files,
            self._true,
            self._some(column(file)),
            self._some(column(index)),
        )
        by_path = helper.generateCandidateFileMap(self._log.dataPath(), files)
        touched = helper.findFilesWithMatchingRows(self._txn, by_path, results)
        statistics = _module(self._delta.stats, "StatsCollectionUtils$")
        length = statistics.getDataSkippingStringPrefixLength(session, self._txn.metadata())
        actions = helper.processUnmodifiedData(session, touched, self._txn.snapshot(), length)._1()
        return actions, sum(int(result.matchedRowCount()) for result in _each(results))

    def removes(self, actions: Any) -> bool:
        """Tell whether actions leave any file out of the next version."""
        return any(_is(action, "RemoveFile") for action in _each(actions))

    def removed(self, held: Iterable[HeldFile]) -> Any:
        """Return the actions that leave files out of the next version."""
        return self._removed(one.action for one in held)

    def merge(self, changes: DataFrame, on: str, columns: Sequence[str], action: str) -> Any:
        """Write the files of a merge with Delta's own code, and return the actions; nothing is visible.

        Delta's MERGE commits at its end. Here its two halves, finding the files and writing them, work
        in this transaction, so that the second look and the receipt come before the commit.
        """
        if self._evolved:
            # A statement is analysed with the columns of the table, and not with those that this transaction adds.
            raise NotPublished(
                "The table keeps more than rows (a change feed, numbers of rows, or a key twice), and its columns would change.",
                "A merge cannot do both at once. Nothing was published, and the target is as it was.",
                "Add the column to the table first, with ALTER TABLE.",
            )
        session = self._spark._jsparkSession.cloneSession()
        # The changes are computed and kept already.
        session.conf().set("spark.databricks.delta.merge.materializeSource", "none")
        source = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, changes._jdf.logicalPlan())
        source.createOrReplaceTempView(_CHANGES)
        command = self._analysed(
            session, _merge_statement(str(self._log.dataPath().toUri().getPath()), on, columns, action)
        )
        command.prepareMergeSource(
            session,
            command.source(),
            command.condition(),
            command.matchedClauses(),
            command.notMatchedClauses(),
            command.isInsertOnly(),
        )
        found = command.findTouchedFiles(session, self._txn)
        touched, copies = found._1(), found._2()
        if command.shouldWritePersistentDeletionVectors(session, self._txn):
            written = command.writeAllChanges(session, self._txn, touched, copies, False)
            return written.concat(command.writeDVs(session, self._txn, touched))
        written = command.writeAllChanges(session, self._txn, touched, copies, True)
        return written.concat(self._removed(_each(touched)))

    def delete(self, condition: str) -> Any:
        """Write the files of a DELETE with Delta's own code, and return the actions; nothing is visible."""
        session = self._spark._jsparkSession.cloneSession()
        table = quoted(str(self._log.dataPath().toUri().getPath()))
        command = self._analysed(session, f"DELETE FROM delta.{table} WHERE {condition}")  # noqa: S608 - both are quoted
        actions = command.performDelete(session, self._log, self._txn)._1()
        # A commit with files of its own for the change feed tells nothing else there: not the rows that it adds. Without
        # them the feed is made of all files that come and go.
        return self._seq([action for action in _each(actions) if not _is(action, "AddCDCFile")])

    def _analysed(self, session: Any, statement: str) -> Any:
        """Return the command that a statement stands for, without running it."""
        plan = session.sessionState().sqlParser().parsePlan(statement)
        skip = self._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        return session.sessionState().executePlan(plan, skip).analyzed()

    def removing(self, actions: Any, condition: str) -> Any:
        """Return the actions, and the removal of all files whose `partitionValues` fulfil a condition."""
        removed = {str(action.path()) for action in _each(actions) if _is(action, "RemoveFile")}
        found = self._txn.snapshot().allFiles().where(condition).collect()
        return actions.concat(self._removed(file for file in found if str(file.path()) not in removed))

    def _removed(self, files: Iterable[Any]) -> Any:
        now = int(time.time() * 1000)
        return self._seq([file.removeWithTimestamp(now, True) for file in files])

    def none(self) -> Any:
        """Return no actions at all."""
        return self._seq([])

    @property
    def table_id(self) -> str:
        """The table's own id."""
        return str(self._txn.metadata().id())

    def new_files(self, actions: Any) -> list[str]:
        """Return the paths of files that this transaction wrote, and that nothing else can use.

        An action that adds a deletion vector to a file names a file that is live: it is left out.
        """
        removed = {str(action.path()) for action in _each(actions) if _is(action, "RemoveFile")}
        added = [action for action in _each(actions) if _is(action, "AddFile") and action.deletionVector() is None]
        return [path for path in (str(action.path()) for action in added) if path not in removed]

    def rows_gained(self, actions: Any) -> int | None:
        """Tell by how many rows the table grows, if that was noted of all files that come or go."""
        gained = 0
        for action in _each(actions):
            sign = 1 if _is(action, "AddFile") else -1 if _is(action, "RemoveFile") else 0
            rows = _number(action.numLogicalRecords()) if sign else 0
            if rows is None:
                return None
            gained += sign * rows
        return gained

    def additions(self, actions: Any) -> list[Mapping[str, Any]]:
        """Return what the log will say of the files that the actions add."""
        return [json.loads(str(action.json()))["add"] for action in _each(actions) if _is(action, "AddFile")]

    def added_files(self, actions: Any) -> list[AddedFile]:
        """Return what is known of the files that the actions add."""
        added = (action for action in _each(actions) if _is(action, "AddFile"))
        names = {in_log: name for name, in_log in self.names_in_log.items()}
        return [
            AddedFile(
                str(action.path()),
                {names[in_log]: value for in_log, value in _plain_map(action.partitionValues()).items()},
                json.loads(action.stats() or "{}"),
            )
            for action in added
        ]

    def commit(
        self, lock: Lock, actions: Any, numbers: Mapping[str, int], metadata: str, mode: str, predicate: str = ""
    ) -> int:
        """Make the actions visible with these transaction numbers, and return the new version.

        Raises:
            Conflict: Another commit came first, and Delta guarantees that this one did not land.
        """
        # Delta refuses it too, but as if it were not known what became of the commit.
        if self._has(_GROWS) and self.removes(actions):
            raise _only_grows()
        for app_id, number in numbers.items():
            self._txn.updateSetTransaction(app_id, number, self._none)
        operation = getattr(self._delta, "DeltaOperations$Write")(
            getattr(self._jvm.org.apache.spark.sql.SaveMode, mode),
            self._none,
            self._some(predicate) if predicate else self._none,
            self._some(metadata),
            *([self._none] * 5),
        )
        lock.committing = True
        try:
            version = int(self._txn.commit(actions, operation))
        except Exception as error:
            if is_lost_race(error):
                raise Conflict(str(error).partition("\n")[0]) from error
            raise
        lock.committing = False
        return version

    def _seq(self, values: Sequence[Any]) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(values)).toSeq()

    def _map(self, values: Mapping[str, str]) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(dict(values))


def _overwrites(options: Mapping[str, str]) -> bool:
    """Tell whether rows are written in the place of others; to give the table new columns alone is no overwrite."""
    return bool(options) and set(options) != {"mergeSchema"}


def _only_grows() -> Misuse:
    return Misuse(
        "The table only grows (delta.appendOnly), and this publish would take rows out of it.",
        "Nothing was published, and the target is as it was.",
        "Use transactional_writer() or dedup_insert(), or unset that property of the table.",
    )


def _parts(condition: Any) -> list[Any]:
    """Take a condition apart at its ANDs."""
    if _is(condition, "And"):
        return [*_parts(condition.left()), *_parts(condition.right())]
    return [condition]


def _number(found: Any) -> int | None:
    """Return what may have been noted."""
    return int(found.get()) if found.isDefined() else None


def _file_key(file: Any) -> tuple[str, str]:
    vector = file.getDeletionVectorUniqueId()
    return str(file.path()), str(vector.get()) if vector.isDefined() else ""


def _as_change(file: Any, delta: Any) -> Any:
    """Return the action that adds a file of an older version again."""
    action = json.loads(str(file.json()))
    action["add"]["dataChange"] = True
    return _module(delta.actions, "Action$").fromJson(json.dumps(action))


def _merge_statement(table: str, on: str, columns: Sequence[str], action: str) -> str:
    """Write the MERGE whose source rows say themselves what they do."""
    names = [quoted(column) for column in columns]
    assigned = ", ".join(f"t.{name} = s.{name}" for name in names)
    return f"""
        MERGE INTO delta.{quoted(table)} AS t USING {_CHANGES} AS s ON {on}
        WHEN MATCHED AND s.{action} = 'delete' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {assigned}
        WHEN NOT MATCHED THEN INSERT ({", ".join(names)}) VALUES ({", ".join(f"s.{name}" for name in names)})
    """  # noqa: S608 - names are quoted, and the condition is ours


def _jvm(spark: SparkSession) -> Any:
    """Return the gateway to a classic session's JVM, with Delta in it.

    Raises:
        Misuse: The session is remote, or was started without Delta.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise Misuse("Delta targets need a classic Spark session; Spark Connect is not supported yet.")
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if "DeltaSparkSessionExtension" not in extensions:
        raise Misuse(
            "This Spark session was started without Delta.",
            fix="Set spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and add the Delta packages (see twice jars).",
        )
    return spark._jvm


def _module(package: Any, name: str) -> Any:
    """Return a Scala object."""
    return getattr(getattr(package, name), "MODULE$")


def _each(actions: Any) -> Iterator[Any]:
    """Walk a Scala sequence."""
    iterator = actions.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _is(action: Any, name: str) -> bool:
    return bool(action.getClass().getSimpleName() == name)


def _plain_map(values: Any) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    keys = values.keysIterator()
    while keys.hasNext():
        key = keys.next()
        found[str(key)] = values.apply(key)
    return found


def is_lost_race(error: BaseException) -> bool:
    """Tell whether Delta refused a commit because another one came first."""
    names = [cls.__name__ for cls in type(error).__mro__]
    java = getattr(error, "java_exception", None)
    if java is not None:
        names.append(str(java.getClass().getSimpleName()))
    return any(name.startswith(_LOST_RACES) and name.endswith("Exception") for name in names)


class Lock:
    """The lock beside a table; `committing` while the JVM has been asked and has not answered."""

    committing = False


@contextmanager
def locked(spark: SparkSession, table: str) -> Iterator[Lock]:
    """Hold the lock beside a table while a commit is made.

    Raises:
        Busy: Another process has held it for a minute.
        NotPublished: The lock's file cannot be made.
    """
    path = os.path.join(table, _LOCK)
    # Threads of one process share a JVM, in which a second lock on one file is an error, not a wait.
    with _threads.setdefault(os.path.realpath(path), threading.Lock()):
        channel = _opened(spark, path)
        lock = Lock()
        try:
            _wait_for(channel, table)
            yield lock
        except BaseException as error:
            # Without an answer the JVM may still be committing: the lock then ends with the JVM.
            if not lock.committing or _is_answer(error):
                channel.close()
            raise
        channel.close()


def _opened(spark: SparkSession, path: str) -> Any:
    jvm: Any = spark._jvm
    gateway: Any = spark._sc._gateway
    nio = jvm.java.nio
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        options = gateway.new_array(nio.file.OpenOption, 2)
        options[0] = nio.file.StandardOpenOption.CREATE
        options[1] = nio.file.StandardOpenOption.WRITE
        return nio.channels.FileChannel.open(jvm.java.io.File(path).toPath(), options)
    except Exception as error:
        raise NotPublished(
            f"The lock beside the table cannot be opened: {explain(error)}",
            "Nothing of this attempt is visible.",
            "See that the table's folder is writable, and run again.",
        ) from error


def _is_answer(error: BaseException) -> bool:
    """Tell whether the JVM itself answered: a refusal, or an exception of its own."""
    return isinstance(error, Conflict) or hasattr(error, "java_exception") or hasattr(error, "getErrorClass")


def _wait_for(channel: Any, table: str) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    pause = 0.002
    while not _is_taken(channel):
        if time.monotonic() > deadline:
            raise Busy(
                f"Another process has held the lock of {os.path.basename(table)} for {_LOCK_SECONDS:.0f} s.",
                "Nothing of this attempt is visible.",
                "Look for a paused run on this host, and run again.",
            )
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def _is_taken(channel: Any) -> bool:
    """Try once to take the lock; one that this JVM still holds elsewhere is not to be had."""
    try:
        return channel.tryLock() is not None
    except Exception as error:
        if "OverlappingFileLock" in str(error):
            return False
        raise
