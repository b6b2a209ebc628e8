"""How does PostgreSQL keep every promise, with the whole job in one transaction?

Executors stage, the driver publishes: receipt, head, rows and COMMIT are one transaction of `publishing`. This module
is the store's list of abilities and loads no driver; `matrix` asks it where psycopg is not installed.

What the tables are called is in `names`, where receipts are in `bookkeeping`, how changes by others are noticed in
`proofs`. Views and roles build on `publishing.Change` and on the column `more` of the heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from twice import postgres
from twice.abilities import (
    Appends,
    Difference,
    Editions,
    FindsRepeats,
    FindsRows,
    GrantsRoles,
    InsertsMissing,
    Inspects,
    KeepsBeside,
    KeepsHistory,
    KnowsColumns,
    Leaving,
    LiveAttempts,
    LookBack,
    Merges,
    Opening,
    PointedAt,
    PointsAtVersions,
    Repeats,
    ReplacesPartitions,
    ReplacesSlices,
    ReplacesTable,
    Rows,
    Staged,
    Store,
    Swept,
    TakesIn,
    TransactsTables,
    Trouble,
    UnitesTables,
    Work,
)
from twice.data_tests import Answer, DataTest
from twice.errors import Misuse
from twice.merges import MergeRule
from twice.runs import Receipt
from twice.sight import Sight
from twice.slices import Slice

if TYPE_CHECKING:
    from twice.stores.postgres.connections import Connection
    from twice.stores.postgres.names import Name
    from twice.stores.postgres.staging import Stager


class PostgresStore(
    Store,
    ReplacesTable,
    ReplacesSlices,
    ReplacesPartitions,
    Merges,
    KeepsHistory,
    InsertsMissing,
    Appends,
    TakesIn,
    KeepsBeside,
    TransactsTables,
    PointsAtVersions,
    UnitesTables,
    FindsRepeats,
    FindsRows,
    KnowsColumns,
    Inspects,
    GrantsRoles,
):
    """Tables of one database, each with its receipts in its own schema."""

    kind: ClassVar[str] = "postgres"
    dialect: ClassVar[str] = "postgres"
    lacks: ClassVar[Mapping[str, str]] = {
        "KeepsVersions": 'it keeps change rows instead of older versions (stateful_merger with form="history")',
        "DeliversFiles": "it has no files",
    }

    def __init__(self, url: str, engine: Any) -> None:
        self._url = url
        self.engine = engine
        self._schema = ""

    @classmethod
    def opened(cls, opening: Opening) -> PostgresStore:
        """Open the store of a URL; without one libpq's own settings apply."""
        return cls(opening.url, opening.engine)

    def __repr__(self) -> str:
        return "PostgresStore(...)"

    def _name(self, name: str) -> Name:
        """Return the table that a name means, asking once for the schema of names that have none."""
        _need_driver()
        from twice.stores.postgres import names
        from twice.stores.postgres.connections import connected

        if "." in name or self._schema:
            return names.parse(name, self._schema)
        with connected(self._url) as connection:
            return self._name_on(connection, name)

    def _name_on(self, connection: Connection, name: str) -> Name:
        """Return the table that a name means, asked for on a connection that is open already."""
        from twice.stores.postgres import bookkeeping, names

        if "." not in name:
            self._schema = self._schema or bookkeeping.schema_of(connection)
        return names.parse(name, self._schema)

    def _stager(self, work: Work, home: str = "") -> Stager:
        name = self._name(work.name)
        from twice.stores.postgres.staging import Stager

        return Stager(self._url, name, work, self._name(home) if home else None)

    def look(self, name: str) -> Sight:
        """Read the receipts, in one statement."""
        _need_driver()
        from twice.stores.postgres import looking
        from twice.stores.postgres.connections import connected, readable

        with connected(self._url) as connection, readable(name):
            return looking.look(connection, self._name_on(connection, name))

    def stage_table(self, work: Work, rows: Rows) -> Staged:
        """Stage the rows that will be the whole table."""
        return self._stager(work).table(rows)

    def stage_slice(self, work: Work, rows: Rows, bounds: Slice) -> Staged:
        """Stage the rows of a slice, and count those that lie outside it."""
        return self._stager(work).slice(rows, bounds)

    def stage_partitions(self, work: Work, rows: Rows, columns: Sequence[str]) -> Staged:
        """Stage the rows, and name the partitions that they fill."""
        return self._stager(work).partitions(rows, columns)

    def stage_append(self, work: Work, rows: Rows, lineage: str | None, check: Slice | None) -> Staged:
        """Stage the rows to be added."""
        return self._stager(work).append(self.labelled(rows, lineage, work.slot) if lineage else rows, lineage, check)

    def stage_taken(self, work: Work, rows: Rows, check: Slice | None, leaving: Leaving | None) -> Staged:
        """Stage the rows to be added; those that leave are deleted when they are published."""
        return self._stager(work).taken(rows, check, leaving)

    def keep_beside(self, name: str, label: str, body: bytes) -> None:
        """Keep a body in the schema of the target."""
        table = self._name(name)
        from twice.stores.postgres import beside

        beside.keep(self._url, table, label, body)

    def beside(self, name: str, label: str) -> bytes | None:
        """Return a body, or None if it is not there."""
        table = self._name(name)
        from twice.stores.postgres import beside

        return beside.body(self._url, table, label)

    def labels_beside(self, name: str) -> Mapping[str, float]:
        """Return the labels of all bodies, each with the time at which it was kept."""
        table = self._name(name)
        from twice.stores.postgres import beside

        return beside.labels(self._url, table)

    def drop_beside(self, name: str, labels: Sequence[str]) -> None:
        """Remove bodies."""
        table = self._name(name)
        from twice.stores.postgres import beside

        beside.drop(self._url, table, labels)

    def stage_tables(self, work: Work, rows: Mapping[str, Rows], lineage: str | None) -> Staged:
        """Stage the rows of several tables; a name with a schema is a table of its own, another is under the target."""
        staged = []
        for name, part in rows.items():
            table = replace(work, name=name if "." in name else f"{work.name}/{name}")
            named = self.labelled(part, lineage, work.slot) if lineage else part
            staged.append(self._stager(table, work.name).append(named, lineage, None))
        first, *others = (one.handle for one in staged)
        return Staged(sum(one.rows for one in staged), handle=replace(first, others=tuple(others)))

    def stage_merge(self, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str]) -> Staged:
        """Stage the rows; what they change is found when they are published."""
        return self._stager(work).merge(rows, rule)

    def stage_missing(
        self, work: Work, rows: Rows, rule: MergeRule, look_back: LookBack | None, layout: Sequence[str]
    ) -> Staged:
        """Stage the rows; those whose key is missing are found when they are published."""
        return self._stager(work).missing(rows, rule, look_back)

    def stage_history(
        self, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str], editions: Editions
    ) -> Staged:
        """Stage the change rows; they are kept, and the table is made of them, when they are published."""
        return self._stager(work).history(rows, rule, editions)

    def stage_version(self, work: Work, rows: Rows, keep: int | None) -> Staged:
        """Stage the rows; the table that they fill is made when they are published."""
        return self._stager(work).version(rows, keep)

    def versions(self, name: str) -> list[PointedAt]:
        """List what the view can point at, oldest first."""
        view = self._name(name)
        from twice.stores.postgres import versions

        return versions.pointed_at(self._url, view)

    def point(self, name: str, version: str, owner: str) -> None:
        """Let the view show another of its versions."""
        view = self._name(name)
        from twice.stores.postgres import versions

        versions.point(self._url, view, version, owner)

    def seal(self, name: str, why: str, owner: str) -> None:
        """Let the view refuse every further publish, or with an empty reason allow them again."""
        view = self._name(name)
        from twice.stores.postgres import versions

        versions.seal(self._url, view, why, owner)

    def open_member(self, view: str, member: str, by: str, limit: int, writer: str) -> None:
        """Note a table behind a view, which may be filled later."""
        name, table = self._name(view), self._name(f"{view}/{member}")
        from twice.stores.postgres import periods

        periods.open_member(self._url, name, table, member, by, limit, writer)

    def like_siblings(self, work: Work, rows: Rows) -> Rows:
        """Rows are fitted to the newest other table when they are staged, if theirs is not there yet."""
        return rows

    def members(self, view: str) -> Mapping[str, Sight]:
        """Return the tables that a view unites, with what each holds."""
        name = self._name(view)
        from twice.stores.postgres import periods, views
        from twice.stores.postgres.connections import connected

        with connected(self._url) as connection:
            return periods.members(connection, name) if views.are_there_for(connection, name) else {}

    def unfilled(self, view: str) -> tuple[str, ...]:
        """Name the tables that a view unites and that are not there."""
        name = self._name(view)
        from twice.stores.postgres import periods, views
        from twice.stores.postgres.connections import connected

        with connected(self._url) as connection:
            return periods.unfilled(connection, name) if views.are_there_for(connection, name) else ()

    def freeze(self, view: str, into: str, members: Sequence[str], owner: str) -> None:
        """Put the rows and receipts of several tables into one."""
        name, larger = self._name(view), self._name(f"{view}/{into}")
        from twice.stores.postgres import freezing

        freezing.freeze(self._url, name, larger, into, members, owner)

    def add_column(self, view: str, column: str, kind: str, owner: str) -> list[str]:
        """Add a column to all tables of a view that lack it, and name them."""
        name = self._name(view)
        from twice.stores.postgres import freezing, kinds

        return freezing.add_column(self._url, name, column, kinds.type_named(kind, column), owner)

    def publish(self, work: Work, staged: Staged, receipts: Sequence[Receipt]) -> tuple[str, ...]:
        """Publish in one transaction."""
        name = self._name(work.name)
        from twice.stores.postgres import publishing

        return publishing.publish(self._url, name, work, staged, receipts)

    def settle(self, name: str) -> None:
        """COMMIT outlives a power cut already; a view that somebody took away is made again."""
        if "/" in name:
            table = self._name(name)
            from twice.stores.postgres import periods

            periods.repair(self._url, table)

    def discard(self, work: Work, staged: Staged) -> None:
        """Drop what the attempt staged."""
        name = self._name(work.name)
        from twice.stores.postgres import leftovers

        leftovers.discard(self._url, name, work.attempt)

    def unite(self, rows: Sequence[Rows]) -> Rows:
        """Return several results as one."""
        from twice.stores.postgres.rows import united

        return united(rows)

    def labelled(self, rows: Rows, column: str, label: str) -> Rows:
        """Return rows with one more column that holds a literal."""
        from twice.stores.postgres.rows import labelled

        return labelled(rows, column, label)

    def compare(self, before: Rows, after: Rows, keys: Sequence[str], sample: int) -> Difference:
        """Tell how two frames differ."""
        from twice.stores import differences

        return differences.compare(before, after, keys, sample)

    def take_over(self, name: str, base: Sight, owner: str, keep_days: int = 0) -> None:
        """Write the new owner, if the target is as it was seen."""
        table = self._name(name)
        from twice.stores.postgres import publishing

        there = self.members(name)
        for label, sight in there.items():
            if sight.owner != owner:
                publishing.take_over(self._url, self._name(f"{name}/{label}"), sight.version, owner)
        if not there:
            publishing.take_over(self._url, table, base.version, owner)

    def fetch(self, name: str) -> Any:
        """Return the rows as an Arrow table, without Spark; they have to fit into memory."""
        table = self._name(name)
        from twice.stores.postgres import reading

        return reading.fetched(self._url, table)

    def read(self, name: str, version: int | None = None) -> Rows:
        """Return the rows as a frame; of older versions there are none."""
        if version is not None and version != self.look(name).version:
            raise Misuse(f"{name} has no version {version} to read.", "PostgreSQL keeps the newest one alone.")
        table = self._name(name)
        from twice.stores.postgres import reading

        return reading.frame(self._url, table, self.engine.spark)

    def repeats(self, name: str, keys: Sequence[str], sample: int) -> Repeats:
        """Let the server count the rows of each key."""
        table = self._name(name)
        from twice.stores.postgres import reading

        return reading.repeats(self._url, table, keys, sample)

    def answers(self, name: str, tests: Sequence[DataTest]) -> Sequence[Answer]:
        """Let the server answer tests."""
        table = self._name(name)
        from twice.stores.postgres import reading

        return reading.answers(self._url, table, tests)

    def needs_spark_to_count(self, name: str) -> bool:
        """The server counts."""
        return False

    def column_names(self, name: str) -> Sequence[str]:
        """Return the columns that the server lists."""
        table = self._name(name)
        from twice.stores.postgres import reading

        return reading.column_names(self._url, table)

    def rows_with(self, name: str, values: Mapping[str, str], limit: int) -> list[dict[str, Any]]:
        """Let the server find the rows."""
        table = self._name(name)
        from twice.stores.postgres import reading

        return reading.rows_with(self._url, table, values, limit)

    def inspect(self, name: str) -> Sequence[Trouble]:
        """Look for triggers that are missing, and for changes by others."""
        names = [name, *(f"{name}/{label}" for label in self.members(name))]
        tables = [self._name(one) for one in names]
        from twice.stores.postgres import reading

        return [found for table in tables for found in reading.troubles(self._url, table, name)]

    def is_in_catalog(self, name: str) -> bool:
        """Spark's catalog knows nothing of it."""
        return False

    def inspect_catalog(self, name: str) -> Sequence[Trouble]:
        """Nothing is there to be looked at."""
        return ()

    def tidy(self, name: str, live: LiveAttempts, *, keep_days: float, dry_run: bool) -> Swept:
        """Drop staged tables of dead attempts, and those behind a view that nobody needs; one that wakes up is refused."""
        table = self._name(name)
        from twice.stores.postgres import tidying

        targets = [table, *(self._name(f"{name}/{label}") for label in self.members(name))]
        swept = [tidying.tidy(self._url, one, live, dry_run=dry_run) for one in targets]
        swept.append(tidying.tidy_history(self._url, table, keep_days=keep_days, dry_run=dry_run))
        swept.append(tidying.tidy_view(self._url, table, dry_run=dry_run))
        return sum(swept, Swept())

    def roles(self, name: str, owner: str, writer: str, reader: str, *, apply: bool) -> list[str]:
        """Return the statements that give a view an owner, a writer and a reader; carried out if asked."""
        view = self._name(name)
        from twice.stores.postgres import roles

        chosen = roles.named(view.table, owner, writer, reader)
        return roles.statements(self._url, view, chosen, apply=apply)


@cache
def _need_driver() -> None:
    """Refuse to go on without the packages that speak to PostgreSQL; a look does not load all of them."""
    postgres.need("The store 'postgres'", "psycopg", "pyarrow", "adbc_driver_postgresql")
