"""What can a Python program ask of Twice?

The same as the command line: run a slot, run many in order, read a table, publish rows of a job
that already exists.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twice import matrix
from twice.abilities import Delivery, Difference, PointedAt, PointsAtVersions
from twice.columns import ColumnPolicy
from twice.data_tests import DataTest, tests_of
from twice.decide import Asked
from twice.errors import Misuse
from twice.execute import execute
from twice.findings import Finding
from twice.fingerprint import Inputs, Source
from twice.handovers import restore as go_back
from twice.holding import planned
from twice.intervals import Moment, Schedule, aware
from twice.jobs import Job, Outcome
from twice.merges import MergeRule
from twice.patterns.data_overwrite import DataOverwrite
from twice.patterns.dedup_insert import DedupInsert
from twice.patterns.fast_metadata_cleaner import FastMetadataCleaner
from twice.patterns.keyed import KeyedFile, KeyedPartition, KeyedRows, KeyedTable, format_by_ending
from twice.patterns.merger import Merger
from twice.patterns.proxy import Proxy
from twice.patterns.stateful_merger import StatefulMerger
from twice.patterns.transactional_writer import TransactionalWriter
from twice.pipelines import Pipeline, check_no_empty
from twice.plans import Pattern, Plan
from twice.project import Project
from twice.retrying import fill_slot
from twice.rules import Rule, rules_of
from twice.runs import Run, Slot, Target, check_name, show_slots_in
from twice.sight import Sight
from twice.sources.declared import Declared
from twice.sources.files import Files
from twice.sources.functions import Function
from twice.sources.named import reads_of
from twice.sources.queries import Query
from twice.sources.tables import Table
from twice.sources.tracked import Tracked
from twice.statements import Statement
from twice.timeline import KeptVersion, difference, version_named
from twice.timeline import versions as kept_versions
from twice.transforms import Sql, statement_beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ProjectLike = Project | str | Path | None


def data_overwrite(
    *,
    slice: str | None = None,  # noqa: A002 - the word of the design, and nothing here slices
    where: str | None = None,
    partitions: Sequence[str] | None = None,
    empty: str = "clear",
) -> DataOverwrite:
    """Replace a table, a slice of it, or the slot's partitions, as a whole."""
    if partitions is not None and not partitions:
        raise Misuse(
            f"partitions={partitions!r} names nothing.",
            "It is not taken for an option that was left out: that replaces the whole table.",
            "Leave partitions= out, or name the columns.",
        )
    return DataOverwrite(slice, where, _columns(partitions or ()), empty)


def merger(
    *,
    keys: Sequence[str],
    deleted: str | None = None,
    soft: bool = False,
    order: str | None = None,
    insert_only: bool = False,
    partitioned_by: Sequence[str] = (),
) -> Merger:
    """Insert, update and delete rows by key, in one publish."""
    rule = MergeRule(_columns(keys), deleted, soft, order, insert_only=insert_only)
    return Merger(rule, _columns(partitioned_by))


def stateful_merger(
    *,
    keys: Sequence[str],
    deleted: str | None = None,
    soft: bool = False,
    order: str | None = None,
    insert_only: bool = False,
    partitioned_by: Sequence[str] = (),
    keep_days: int = 366,
    visible: str = "result",
    form: str = "versions",
) -> StatefulMerger:
    """Merge as `merger` does, and do a slot again as if it had been right from the start."""
    rule = MergeRule(_columns(keys), deleted, soft, order, insert_only=insert_only)
    return StatefulMerger(rule, _columns(partitioned_by), keep_days, visible, form)


def dedup_insert(
    *,
    keys: Sequence[str],
    order: str | None = None,
    window: str | None = None,
    on: str | None = None,
    partitioned_by: Sequence[str] = (),
) -> DedupInsert:
    """Insert the rows whose key is not in the table yet."""
    rule = MergeRule(_columns(keys), order=order, first=True, insert_only=True)
    return DedupInsert(rule, window, on, _columns(partitioned_by))


def transactional_writer(
    *, lineage: str | None = None, check: str | None = None, tables: Sequence[str] = ()
) -> TransactionalWriter:
    """Add rows and their receipt in one transaction, to the target or to several tables under it."""
    return TransactionalWriter(lineage, check, _columns(tables))


def proxy(*, keep: int | None = None) -> Proxy:
    """Write a new version that never changes, and point the one name at it."""
    return Proxy(keep)


def fast_metadata_cleaner(
    *, period: str = "week", full: bool = False, by: str = "period", tables_at_most: int = 1000
) -> FastMetadataCleaner:
    """Keep one table per period behind a view, and clean a period by replacing its table."""
    return FastMetadataCleaner(period, full, by, tables_at_most)


def keyed(
    *,
    keys: Sequence[str] = (),
    partition: str | None = None,
    table: str | None = None,
    file: str | None = None,
    header: bool = True,
    marker: str = "",
    by: str = "table_name",
) -> Pattern:
    """Write under a name that never changes: rows by their keys, or one container a slot.

    `partition` names the column that holds the slot; `table` and `file` are names with placeholders.
    """
    if sum(map(bool, (keys, partition, table, file))) != 1:
        raise Misuse("keyed takes one of keys=, partition=, table= and file=.")
    if keys:
        return KeyedRows(MergeRule(_columns(keys)))
    if partition:
        return KeyedPartition(partition)
    if table:
        return KeyedTable(table, by)
    return KeyedFile(str(file), Delivery(format_by_ending(str(file)), header, marker))


def _columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of columns; one text is one name, and not its letters."""
    return (names,) if isinstance(names, str) else tuple(names)


def files(
    pattern: str,
    *,
    schema: str | None = None,
    format: str | None = None,  # noqa: A002 - as in Spark's reader
    header: bool = True,
    missing: str = "fail",
    options: Mapping[str, str] | None = None,
    ready: str | None = None,
    done: str | None = None,
    rules: Any = None,
    max_quarantined: int | str | None = None,
    on_bad_file: str = "fail",
    max_expanded: int | str | None = None,
    file_column: str | None = None,
    track: bool = False,
    on_changed_file: str = "refuse",
    on_copied_file: str = "skip",
    quiet_for: str | None = None,
    batch_files: int | None = None,
    batch_bytes: int | None = None,
    hash: str = "xxh3",  # noqa: A002 - what it is called everywhere
) -> Files | Tracked:
    """Read the files that match a pattern, with the slot's placeholders in it.

    With `ready="next"` a run waits for a file of the next interval, with `done=` for a marker. `file_column` adds a column with
    each row's file. `rules` are a list of `twice.rule`, or a pandera schema; up to `max_quarantined` rows that cannot be used are
    set aside.

    With `track=True` the pipeline is an ingest: each run takes in the files that its target has not taken in yet.
    """
    declared = Files(
        pattern,
        schema,
        format,
        header,
        missing,
        dict(options or {}),
        rules_of(rules),
        file_column,
        ready,
        None if track else done,
        max_quarantined,
        on_bad_file,
        max_expanded,
    )
    if track and missing != "fail":
        raise Misuse("missing= is not for files that are tracked: an empty folder waits.", fix="Leave it out.")
    if track:
        return Tracked(declared, on_changed_file, on_copied_file, quiet_for, done, batch_files, batch_bytes, hash)
    only_tracked = {
        "on_changed_file": (on_changed_file, "refuse"),
        "on_copied_file": (on_copied_file, "skip"),
        "on_bad_file": (on_bad_file, "fail"),
        "quiet_for": (quiet_for, None),
        "batch_files": (batch_files, None),
        "batch_bytes": (batch_bytes, None),
        "hash": (hash, "xxh3"),
    }
    for name, (said, default) in only_tracked.items():
        if said != default:
            raise Misuse(f"{name}= is about files that are tracked.", fix="Add track=True, or leave it out.")
    return declared


def rule(condition: str, *, name: str = "") -> Rule:
    """Say in SQL what has to be true of each row; where it is NULL, nothing is known and the row passes."""
    return Rule(condition, name)


def table(target: str, *, version: int | None = None) -> Table:
    """Read a table of any store, pinned to a version."""
    return Table(target, version)


def query(
    text: str,
    *,
    tables: Mapping[str, str | Table] | None = None,
    fingerprint: str | Callable[..., Any] | None = None,
) -> Query:
    """Read the rows of a SQL query, with the slot's `:start`, `:end`, `:execution_time` or `:key` in it.

    `tables` are tables of stores, pinned, under the names that the query has for them. Whatever else
    it reads, `fingerprint` has to vouch for: a text with the slot's placeholders, or a function of the run.
    """
    named = {name: table if isinstance(table, Table) else Table(table) for name, table in (tables or {}).items()}
    origin = sys._getframe(1).f_code.co_filename
    return Query(Statement(text, origin), named, None if fingerprint is None else Declared(fingerprint))


def sql(text: str | None = None, *, file: str | None = None) -> Sql:
    """Write a transform in SQL, as a text or in a file beside the file of pipelines.

    Its sources are tables of their names; a single source is called `rows`.
    """
    if (text is None) == (file is None):
        raise Misuse(
            "The SQL of a transform is either a text or a file.", fix="Use twice.sql('...') or file='....sql'."
        )
    caller = sys._getframe(1).f_code.co_filename
    return Sql(Statement(text or "", caller) if file is None else statement_beside(caller, file))


def source(read: Callable[..., Any], *, fingerprint: str | Callable[..., Any]) -> Function:
    """Read the rows that a function returns: `read(spark, run)`, or with either parameter or none.

    `fingerprint` says when they are other rows: a text with the slot's placeholders, or a function
    of the run that returns plain values and does not need Spark.
    """
    return Function(read, Declared(fingerprint))


def run(
    pipeline: Pipeline | str,
    *,
    at: Moment | None = None,
    key: str | None = None,
    force: bool = False,
    accept: bool = False,
    project: ProjectLike = None,
    spark: SparkSession | None = None,
) -> Outcome:
    """Fill one slot, exactly once however often this is called.

    Raises:
        TwiceError: Its type says what may have happened to the data.
    """
    home = opened(project, spark)
    chosen, where = _chosen(home, pipeline, at, key)
    return fill_slot(home, chosen, where, Asked(force, accept))


def plan(
    pipeline: Pipeline | str,
    *,
    at: Moment | None = None,
    key: str | None = None,
    force: bool = False,
    accept: bool = False,
    project: ProjectLike = None,
    spark: SparkSession | None = None,
) -> Plan:
    """Say what `run` would do, and change nothing."""
    home = project if isinstance(project, Project) else Project.open(project, spark=spark, only_looking=True)
    chosen, where = _chosen(home, pipeline, at, key)
    return planned(home, chosen, where, Asked(force, accept)).plan


def _chosen(home: Project, pipeline: Pipeline | str, at: Moment | None, key: str | None) -> tuple[Pipeline, Slot]:
    chosen = home.pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    return chosen, chosen.slot(at, key, now=datetime.now(UTC))


def backfill(
    pipeline: Pipeline | str,
    start: Moment,
    end: Moment,
    *,
    force: bool = False,
    missing: bool = False,
    failed: bool = False,
    jobs: int = 1,
    project: ProjectLike = None,
    spark: SparkSession | None = None,
    on_slot: Callable[[Any], None] | None = None,
) -> list[Outcome]:
    """Fill the slots that start in `[start, end)`, in order; published ones are skipped.

    `missing` takes only slots that were never published, `failed` only those whose newest attempt did not
    end well; both together take either. `jobs` slots at a time are worked on, where slots are independent.

    Raises:
        Busy: A slot is being run now; nothing was started.
        TwiceError: The worst error of a slot, after all that could be done was done.
    """
    from twice.backfills import backfill as fill

    home = opened(project, spark)
    chosen = home.pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    asked = Asked(force, resuming=True)
    return fill(home, chosen, start, end, asked, on_slot, missing=missing, failed=failed, jobs=jobs)


def check(
    pipelines: Iterable[Pipeline | str] | None = None,
    *,
    quick: bool = False,
    plan: bool = False,
    strict: bool = False,
    project: ProjectLike = None,
    spark: SparkSession | None = None,
) -> list[Finding]:
    """Look for what is wrong with pipelines and their targets, by default with all of the project; change nothing.

    `quick` starts no JVM for targets that are paths. `plan` calls the transforms too, for Spark's plans of their rows. `strict` takes what the
    lint finds for wrong.
    """
    from twice.checks import Asked as Depth
    from twice.checks import look_over

    home = project if isinstance(project, Project) else Project.open(project, spark=spark, only_looking=True)
    wanted = home.pipelines.values() if pipelines is None else pipelines
    chosen = [home.pipeline(one) if isinstance(one, str) else one for one in wanted]
    return look_over(home, chosen, Depth(quick, plan, strict)).findings


def read(
    spark: SparkSession | None,
    target: str,
    *,
    version: int | None = None,
    as_of: str | None = None,
    project: ProjectLike = None,
) -> DataFrame:
    """Return a table's rows as of its newest version, of an older one, or as they were after a slot."""
    home = opened(project, spark)
    where = home.target(target)
    if as_of is not None and version is not None:
        raise Misuse("A version is named by its number or by a slot, not by both.")
    named = as_of if version is None else str(version)
    chosen = None if named is None else version_named(home, where, named)
    rows: DataFrame = home.store(where.store).read(where.name, chosen)
    return rows


def versions(target: str, *, project: ProjectLike = None) -> list[PointedAt] | list[KeptVersion]:
    """List the versions of a table, or those that a view can point at, oldest first."""
    home = opened(project, None)
    home.read_calendars()
    where = home.target(target)
    store = home.store(where.store)
    if isinstance(store, PointsAtVersions) and store.look(where.name).points:
        return store.versions(where.name)
    return kept_versions(home, where)


def restore(target: str, version: int | str, *, project: ProjectLike = None, spark: SparkSession | None = None) -> None:
    """Make an older version of a table the newest; slots that it lacks are no longer vouched for."""
    home = opened(project, spark)
    where = home.target(target)
    go_back(home.store(where.store), home.ledger, where.name, version_named(home, where, str(version)))


def diff(
    target: str,
    one: int | str,
    other: int | str,
    *,
    keys: Sequence[str] = (),
    sample: int = 5,
    project: ProjectLike = None,
    spark: SparkSession | None = None,
) -> Difference:
    """Tell how two versions of a table differ; a version is a number, or a slot's start."""
    home = opened(project, spark)
    return difference(home, home.target(target), str(one), str(other), keys=_columns(keys), sample=sample)


def point(target: str, version: str, *, project: ProjectLike = None) -> None:
    """Point a view at one of its versions, back or forward; readers see it from then on."""
    home = opened(project, None)
    where = home.target(target)
    store = _pointing(home, where)
    store.point(where.name, version, home.ledger.id)
    home.store(where.store).settle(where.name)


def seal(target: str, why: str = "sealed", *, project: ProjectLike = None) -> None:
    """Let a view refuse every further publish; with an empty reason they are allowed again."""
    home = opened(project, None)
    where = home.target(target)
    _pointing(home, where).seal(where.name, why, home.ledger.id)


def _pointing(home: Project, where: Target) -> PointsAtVersions:
    store = home.store(where.store)
    if not isinstance(store, PointsAtVersions) or not store.look(where.name).points:
        raise Misuse(f"{where.text} is no view with versions.", fix="The pattern 'proxy' makes one.")
    return store


def register_views(spark: SparkSession, *, project: ProjectLike = None) -> list[str]:
    """Make a temporary view of every view that a pipeline of the project writes, for SQL; return their names.

    A view is called as the last part of its target, `visits` for `delta:lake/visits`.
    """
    home = opened(project, spark)
    made = []
    for target in sorted({pipeline.target for pipeline in home.pipelines.values()}):
        store = home.store(target.store)
        sight = store.look(target.name)
        if sight.exists and (sight.points or not sight.pinned):
            name = target.name.rpartition("/")[2]
            store.read(target.name).createOrReplaceTempView(f"`{name.replace('`', '``')}`")
            made.append(name)
    return made


def current_files(target: str, *, project: ProjectLike = None) -> list[str]:
    """Return the files that are a Parquet table now, for tools that read files themselves."""
    where = Target.parse(target)
    store = opened(project, None).store(where.store)
    if not hasattr(store, "files"):
        raise Misuse(f"{target} is not a Parquet target.", fix="Other stores are read by their own readers.")
    found: list[str] = store.files(where.name)
    return found


class SlotOf:
    """A slot without its target, as `twice.slot(...)` gives it to `twice.publish`."""

    def __init__(self, name: str, at: Moment | None, every: str, zone: str, key: str | None) -> None:
        self.name = check_name("pipeline", name)
        self.at = aware(at).isoformat() if isinstance(at, datetime) else None if at is None else str(at)
        self.key = key
        self.every = every
        self.zone = zone

    @property
    def schedule(self) -> Schedule | None:
        """The calendar that begins with the slot, if it has a time."""
        return Schedule(self.every, self.at, self.zone) if self.at is not None else None

    def on(self, target: Target) -> Slot:
        """Return the slot on a target."""
        schedule = self.schedule
        if schedule is None:
            return Slot(self.name, target, self.key or "")
        show_slots_in(self.name, target, schedule.tz)
        return Slot(self.name, target, schedule.at(schedule.start))


def slot(
    name: str, *, at: Moment | None = None, every: str = "1 day", zone: str = "UTC", key: str | None = None
) -> SlotOf:
    """Name the slot that a job's rows fill."""
    if at is not None and key is not None:
        raise Misuse("A slot has a time or a key, not both.")
    return SlotOf(name, at, every, zone, key)


def publish(
    rows: Any,
    *,
    to: str,
    pattern: Pattern,
    slot: SlotOf,
    inputs: Iterable[str | Source] | None = None,
    on_new_column: str = "fail",
    on_missing_column: str = "fail",
    on_type_change: str = "fail",
    tests: Sequence[DataTest] = (),
    force: bool = False,
    accept: bool = False,
    project: ProjectLike = None,
    spark: SparkSession | None = None,
) -> Outcome:
    """Publish the rows of a job that already exists: one line in place of `df.write`.

    `inputs` is what the fingerprint is made of: texts are labels, sources are resolved. Without
    it a repeat of the slot cannot be told from a correction, and replaces it. `tests` are asked of the rows
    before they are published.
    """
    home = opened(project, spark or getattr(rows, "sparkSession", None))
    where = slot.on(Target.parse(to))
    check_no_empty(pattern)
    matrix.check(pattern, home.kind(where.target.store), slot.name, tests_of(tests))
    declared = list(inputs) if inputs is not None else None

    def resolve(sight: Sight) -> dict[str, Inputs]:
        place = home.place(where, slot.zone, slot.schedule, sight)
        return {
            f"input{number}": Label(source) if isinstance(source, str) else source.resolve(place)
            for number, source in enumerate(declared or [])
        }

    def given(_: Mapping[str, Inputs], __: Run) -> Any:
        return rows

    job = Job(
        slot=where,
        pattern=pattern,
        zone=slot.zone,
        code="",
        resolve=resolve,
        rows=given,
        parameters=home.engine.zone_fact,
        declares_inputs=declared is not None,
        columns=ColumnPolicy(on_new_column, on_missing_column, on_type_change),
        tests=tests_of(tests),
        tell=home.announce,
        reads=reads_of(source for source in declared or () if not isinstance(source, str)),
        under=lambda attempt: home.engine.working_for(where, attempt),
    )
    return execute(job, home.store(where.target.store), home.ledger, Asked(force, accept))


class Label:
    """An input of which only a name is known: the user answers for its changing with the content."""

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def facts(self) -> Any:
        """The label itself."""
        return [["label", self.text]]

    @property
    def summary(self) -> str:
        """The label itself."""
        return self.text

    def moved(self) -> list[str]:
        """A label does not change."""
        return []

    def read(self, engine: Any) -> Any:
        """A label has no rows."""
        raise Misuse(f"The input {self.text!r} is a label and cannot be read.")


def opened(project: ProjectLike, spark: SparkSession | None) -> Project:
    """Return the project that was given, or the one around the current folder."""
    return project if isinstance(project, Project) else Project.open(project, spark=spark)
