"""How do plain Parquet files get what a table format has?

Spark writes files into a folder named by the attempt, where no manifest points. Publishing links
one new manifest. Readers go through `twice.read`, or take the list of files from the newest
manifest; a reader that lists the folder itself sees staged and replaced files too.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from twice import session_settings
from twice.abilities import (
    Appends,
    FindsRepeats,
    FindsRows,
    InsertsMissing,
    Inspects,
    KeepsVersions,
    KnowsColumns,
    LiveAttempts,
    Merges,
    NamesFiles,
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
from twice.data_tests import Answer, DataTest
from twice.errors import Conflict, Fenced, Misuse, NotPublished
from twice.faults import reach
from twice.runs import Receipt, is_attempt, new_attempt
from twice.sight import NO_TABLE, Past, Sight
from twice.sources.listing import is_hidden, spark_path
from twice.sources.marking import content_hash
from twice.stores import finding, footers, frames, repeats
from twice.stores import manifest as log
from twice.stores.answering import of_files
from twice.stores.beside import Beside
from twice.stores.durable import sync_file
from twice.stores.histories import Histories, name_of
from twice.stores.manifest import DataFile, Manifest, Member
from twice.stores.parquet import publishing
from twice.stores.parquet.damage import damage, damaged_files, ended_by, named_as_they_are, outside
from twice.stores.parquet.history import Lost, states, steps
from twice.stores.parquet.merging import MergesRows
from twice.stores.parquet.staging import DATA, Scope, Written
from twice.stores.parquet.taking import Takes
from twice.stores.sweep import sweep
from twice.stores.views import NewVersion, Views, a_table, refuse_versions, view_at

_NAMED = 3


class ParquetStore(
    Views,
    Histories,
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
    NamesFiles,
):
    """Tables of Parquet files under one root, visible through their manifests."""

    kind: ClassVar[str] = "parquet"
    lacks: ClassVar[Mapping[str, str]] = {
        "TransactsTables": "a manifest is that of one table, and two cannot be linked at once",
        "DeliversFiles": "its files belong to manifests and are named by attempts",
    }

    def __init__(self, root: str, engine: Any) -> None:
        self.root = root
        self.engine = engine

    @classmethod
    def opened(cls, opening: Opening) -> ParquetStore:
        """Open the tables under a root."""
        return cls(opening.root, opening.engine)

    def table(self, name: str) -> str:
        """Return the folder of a table."""
        return os.path.join(self.root, *name.split("/"))

    def look(self, name: str) -> Sight:
        """Read the newest manifest, and see that the files it names are there."""
        table = self.table(name)
        current = log.newest(table)
        if os.path.isdir(os.path.join(table, "_delta_log")):
            raise Misuse(f"The folder of parquet:{name} is a Delta table.", fix="Give each target a folder of its own.")
        frozen = self.frozen_sight(name)
        if frozen:
            return frozen
        if current.version == NO_TABLE:
            refuse_versions(self.root, table)
            return Sight(filled=_holds_files(table))
        if current.is_view:
            return self.look_at_view(name, current)
        damaged = damaged_files(table, current)
        ended = {**current.ended, **ended_by(damaged, current)}
        return Sight(
            version=current.version,
            head=current.version,
            table_id=current.table_id,
            owner=current.owner,
            receipts=current.receipts,
            ended=ended,
            # A publish takes the place of all files of its slot, so what is damaged never comes back.
            gone=(frozenset(current.ended) | {file.slot for file in damaged if file.slot}) - set(current.older),
            outside=outside(ended),
            data_version=current.data_version,
            swept=frozenset(current.swept),
            forgot=current.forgot,
        )

    def newest_entry(self, name: str) -> str:
        """Return the path of the newest manifest, or nothing."""
        table = self.table(name)
        versions = log.versions(table)
        return log.manifest_path(table, versions[-1]) if versions else ""

    def past(self, name: str) -> Past:
        """Tell of the versions that are kept; of one that lost a file nothing can start."""
        table = self.table(name)
        return Past(states(table), Lost(table), lambda: steps(table))

    def restore(self, name: str, base: Sight, version: int, owner: str) -> None:
        """Link a manifest that names the files of an older one."""
        table = self.table(name)
        current, start = log.newest(table), log.load(table, version)
        if current.version != base.version or current.owner not in ("", owner):
            raise Conflict("the table moved")
        following = publishing.started(log.successor(current, f"restore {version}"), start, base, frozenset())
        log.append(table, replace(following, files=start.files, data_version=following.version))

    def stage_version(self, work: Work, rows: Rows, keep: int | None) -> Staged:
        """Write files that no manifest names yet, and that no later one changes."""
        staged = self.stage_table(work, rows)
        written: Written = staged.handle
        member = Member(
            f"{DATA}/{work.attempt}", slot=work.slot, rows=staged.rows, files=written.files, schema=written.schema
        )
        return replace(staged, handle=NewVersion(member, keep))

    def read_version(self, name: str, member: Member) -> Rows:
        """Read the files of a version."""
        table = self.table(name.removesuffix(f"/{member.name}"))
        paths = [os.path.join(table, file.path) for file in member.files]
        return frames.read_parquet(self.engine.spark, paths, member.schema)

    def schema_of(self, name: str) -> str:
        """Return a table's columns as JSON."""
        return log.newest(self.table(name)).schema

    def write_frozen(self, name: str, rows: Rows, by: str, held: Sight) -> None:
        """Write the files and one manifest that has all receipts."""
        attempt = new_attempt(held.owner, 0)
        work = Work(name=name, slot="", attempt=attempt, generation=0, base=Sight())
        with session_settings.watched():
            session_settings.hold(rows.sparkSession)
            written: Written = self._stage(work, rows, Scope("merge"), columns=[by]).handle
        frozen = Manifest(
            version=0,
            table_id=uuid.uuid4().hex,
            owner=held.owner,
            schema=written.schema,
            files=written.files,
            receipts={slot: replace(receipt, first_version=0) for slot, receipt in held.receipts.items()},
            ended=held.ended,
            data_version=0,
            made_by=f"freeze {attempt}",
        )
        log.append(self.table(name), frozen)

    def add_column_to(self, name: str, column: str, kind: str, owner: str) -> bool:
        """Make a version that differs in its columns alone; files that lack the column are read as NULL."""
        table = self.table(name)
        current = log.newest(table)
        if current.owner != owner:
            raise Fenced(f"The table {name} belongs to another ledger.", fix=f"Take it over with: twice adopt {name}")
        self.engine.spark  # noqa: B018 - types are read by Spark
        schema = frames.with_column(current.schema, column, kind, name)
        if schema == current.schema:
            return False
        try:
            log.append(table, replace(log.successor(current, f"add {column}"), schema=schema))
        except Conflict as error:
            raise Fenced(f"The table {name} moved meanwhile.", "It is as it was.", "Try again.") from error
        return True

    def refuse_table(self, name: str) -> None:
        """Refuse a name that is a table already."""
        found = log.newest(self.table(name))
        is_delta = os.path.isdir(os.path.join(self.table(name), "_delta_log"))
        if is_delta or (found.version != NO_TABLE and not found.is_view) or _holds_table(self.table(name)):
            raise a_table(name)

    def publish(self, work: Work, staged: Staged, receipts: Sequence[Receipt]) -> tuple[str, ...]:
        """Link the next manifest, on exactly the version it was computed from."""
        if isinstance(staged.handle, NewVersion):
            self.publish_version(work, staged.handle, receipts)
            return ()
        table = self.table(work.name)

        def change(base: Manifest, following: Manifest) -> Manifest:
            publishing.compare(table, work, base, staged)
            return publishing.published(following, work, staged, receipts)

        log.publish(table, work, receipts, change)
        return ()

    def name_files_as_they_are(self, name: str, base: Sight) -> None:
        """Make a version without files that are gone, and with those that were changed as they are."""
        table = self.table(name)
        current = log.newest(table)
        if current.version != base.version or {**current.ended, **damage(table, current)} != base.ended:
            raise Conflict("the table is not as it was looked at")
        following = named_as_they_are(table, current)
        if following:
            log.append(table, following)
            reach("parquet.files.named")

    def settle(self, name: str) -> None:
        """Force the newest manifest's name to disk: its writer may have died before it did."""
        folder = log.log_folder(self.table(name))
        if os.path.isdir(folder):
            sync_file(folder)

    def take_over(self, name: str, base: Sight, owner: str, keep_days: int = 0) -> None:
        """Publish a version that differs in its owner alone; of plain files it is the first one, and names them."""
        view = view_at(self.table(name))
        if view:
            self.take_over_view(name, view, base, owner)
        elif base.exists:
            log.take_over(self.table(name), base, owner, keep_days)
        else:
            self._name_files(name, owner, keep_days)

    def _name_files(self, name: str, owner: str, keep_days: int) -> None:
        """Make files that are there the first version of a table; none is written anew."""
        table = self.table(name)
        paths = sorted(os.path.join(place, one) for place, _, names in _folders(table) for one in names)
        strange = [path for path in paths if not path.endswith(".parquet") or "=" in os.path.relpath(path, table)]
        if strange or not paths:
            raise Misuse(
                f"The folder of {name} cannot be taken over as a Parquet table.",
                f"It holds {os.path.relpath(strange[0], table)}." if strange else "It holds no Parquet file.",
                "Only plain Parquet files with all columns in them can: no folders named column=value, nothing else.",
            )
        schema = frames.schema_text(self.engine.spark.read.parquet(*map(spark_path, paths)))
        files = tuple(
            DataFile(os.path.relpath(path, table), os.path.getsize(path), content_hash(path), "") for path in paths
        )
        first = Manifest(version=0, table_id=uuid.uuid4().hex, owner=owner, schema=schema, files=files)
        log.append(table, replace(first, keep_days=keep_days, data_version=0, made_by="adopt"))

    def read(self, name: str, version: int | None = None) -> Rows:
        """Return the rows of the newest version, or of an older one that is kept."""
        table = self.table(name)
        chosen = log.newest(table) if version is None else log.load(table, version)
        if chosen.version == NO_TABLE or not (chosen.schema or chosen.is_view):
            raise NotPublished(f"The table {name} does not exist yet.", fix="Run the pipeline that writes it.")
        if chosen.is_view:
            return self.read_view(name, chosen, version)
        paths = [os.path.join(table, file.path) for file in chosen.files]
        return frames.read_parquet(self.engine.spark, paths, chosen.schema)

    def files(self, name: str) -> list[str]:
        """Return the paths of the files that are the table now, for other tools."""
        table = self.table(name)
        current = log.newest(table)
        if current.is_view and current.by:
            return [path for member in current.members for path in self.files(f"{name}/{member.name}")]
        return [os.path.join(table, file.path) for file in current.files]

    def repeats(self, name: str, keys: Sequence[str], sample: int) -> Repeats:
        """Count keys in this process while the table is small enough, else with Spark."""
        table = self.table(name)
        if self.needs_spark_to_count(name):
            found = repeats.by_spark(self.read(name), keys, sample)
        else:
            found = repeats.without_spark(self.files(name), keys, sample)
        writers = _writers(table) if found.sample else {}
        shown = [
            replace(
                one,
                files=tuple(os.path.relpath(path, table) for path in one.files),
                slots=tuple(
                    sorted({writers[part] for path in one.files for part in path.split(os.sep) if part in writers})
                ),
            )
            for one in found.sample
        ]
        return replace(found, sample=tuple(shown))

    def answers(self, name: str, tests: Sequence[DataTest]) -> Sequence[Answer]:
        """Answer tests in this process while the table is small enough, else with Spark."""
        return of_files(self.files(name), self._kinds(name), tests, lambda: self.read(name))

    def _kinds(self, name: str) -> Mapping[str, str]:
        """Return the columns of a table, or of all tables that a view names, with their types."""
        current = log.newest(self.table(name))
        members = [member.schema or self.schema_of(f"{name}/{member.name}") for member in current.members]
        schemas = filter(None, members if current.is_view else [current.schema])
        return {column: kind for schema in schemas for column, kind in frames.kinds_of(schema).items()}

    def needs_spark_to_count(self, name: str) -> bool:
        """A large table is counted by Spark."""
        there = [path for path in self.files(name) if os.path.exists(path)]
        return footers.row_count(there) > repeats.ROWS_WITHOUT_SPARK

    def column_names(self, name: str) -> Sequence[str]:
        """Return the columns that the newest manifest lists."""
        return list(self._kinds(name))

    def rows_with(self, name: str, values: Mapping[str, str], limit: int) -> list[dict[str, Any]]:
        """Search the files in this process; those of a view are read by Spark."""
        current = log.newest(self.table(name))
        if current.is_view or not current.schema:
            return finding.by_spark(self.read(name), values, limit)
        return finding.in_files(self.files(name), current.schema, values, limit)

    def inspect(self, name: str) -> Sequence[Trouble]:
        """Look for files that somebody put beside those of the table."""
        table = self.table(name)
        if view_at(table):
            return ()
        there = {entry.name for entry in os.scandir(table) if entry.is_file() and entry.name[0] not in "._"}
        # Files of a table that was taken over as it was; older versions are asked only if there are some.
        own = {file.path for file in log.entries(table, "files")} if there else set()
        beside = sorted(there - own)
        if not beside:
            return ()
        return [
            Trouble(
                "foreign",
                f"The folder of parquet:{name} holds files that are not the table's: {', '.join(beside[:_NAMED])}.",
                "Readers of the whole folder take them for rows of the table. Move them away, and read through"
                " twice.read or twice show --files.",
                is_wrong=False,
                named=tuple(beside),
            )
        ]

    def is_in_catalog(self, name: str) -> bool:
        """Parquet tables are in no catalog."""
        return False

    def inspect_catalog(self, name: str) -> Sequence[Trouble]:
        """Nothing is there to be looked at."""
        return ()

    def tidy(self, name: str, live: LiveAttempts, *, keep_days: float, dry_run: bool) -> Swept:
        """Sweep the staging of dead attempts, and versions past their keeping."""
        view = view_at(self.table(name))
        if view:
            return self.tidy_view(name, view, live, keep_days=keep_days, dry_run=dry_run)
        asked: dict[str, Any] = {"keep_days": keep_days, "dry_run": dry_run}
        history = self.history_beside(name)
        swept = self.tidy_history(name, history, live, **asked) if history else Swept()
        tables = [name, history] if history else [name]
        return sum((sweep(self.table(one), live, **asked) for one in tables), swept)

    def counted(self, history: str, names: Iterable[str]) -> Mapping[str, int]:
        """Take the counts from the receipts: those of rows that are gone are gone too."""
        receipts = log.newest(self.table(history)).receipts
        found = {name_of(slot): receipt.rows for slot, receipt in receipts.items()}
        return {name: found[name] for name in names if name in found}

    def drop_batches(self, history: str, names: Iterable[str]) -> None:
        """Link a manifest without their files and receipts; the files go with the versions that name them."""
        table, away = self.table(history), set(names)
        current = log.newest(table)
        files = tuple(file for file in current.files if name_of(file.slot) not in away)
        receipts = {slot: one for slot, one in current.receipts.items() if name_of(slot) not in away}
        following = replace(log.successor(current, "tidy"), files=files, receipts=receipts)
        log.append(table, replace(following, data_version=following.version))

    def move_head(self, name: str, sight: Sight) -> None:
        """Link a manifest that says what the one before it said."""
        current = log.newest(self.table(name))
        if current.version != sight.version:
            raise Conflict("the table moved")
        log.append(self.table(name), log.successor(current, "tidy"))


def _writers(table: str) -> dict[str, str]:
    """Return the slots of attempts, by all versions that are kept: an attempt names the folder of its files."""
    return {found.attempt: found.slot for found in log.entries(table, "receipts")}


def _folders(table: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a table's folder, without what is hidden."""
    for place, folders, names in os.walk(table):
        folders[:] = [one for one in folders if not is_hidden(one)]
        yield place, folders, [one for one in names if not is_hidden(one)]


def _holds_files(table: str) -> bool:
    """Tell whether a folder holds data that no manifest ever named."""
    try:
        names = [entry.name for entry in os.scandir(table) if not is_hidden(entry.name) and entry.name != DATA]
        staged = os.listdir(os.path.join(table, DATA)) if os.path.isdir(os.path.join(table, DATA)) else []
    except (FileNotFoundError, NotADirectoryError):
        return False
    return bool(names) or not all(map(is_attempt, staged))


def _holds_table(table: str) -> bool:
    """Tell whether a folder without a view holds Parquet files of somebody else."""
    try:
        return any(entry.name.endswith(".parquet") for entry in os.scandir(table))
    except (FileNotFoundError, NotADirectoryError):
        return False
