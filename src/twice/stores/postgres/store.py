"""How does PostgreSQL keep every promise, with the whole job in one transaction?

Executors stage, the driver publishes: receipt, head, rows and COMMIT are one transaction of `publishing`. This module
is the store's list of abilities and loads no driver; `matrix` asks it where psycopg is not installed.

What the tables are called is in `names`, where receipts are in `bookkeeping`, how changes by others are noticed in
`proofs`. Views and roles build on `publishing.Change` and on the column `more` of the heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from twice.abilities import (
    Appends,
    Difference,
    Editions,
    FindsRepeats,
    InsertsMissing,
    Inspects,
    KeepsHistory,
    LookBack,
    Merges,
    Opening,
    Repeats,
    ReplacesPartitions,
    ReplacesSlices,
    ReplacesTable,
    Rows,
    Staged,
    Store,
    Swept,
    TransactsTables,
    Trouble,
    Work,
)
from twice.errors import Misuse, NotPublished
from twice.merges import MergeRule
from twice.runs import Receipt
from twice.sight import Sight
from twice.slices import Slice

if TYPE_CHECKING:
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
    TransactsTables,
    FindsRepeats,
    Inspects,
):
    """Tables of one database, each with its receipts in its own schema."""

    kind: ClassVar[str] = "postgres"
    lacks: ClassVar[Mapping[str, str]] = {
        "Drafts": 'it keeps no older versions of a table (stateful_merger has form="history" for that)',
        "PointsAtVersions": "it has no versions behind a name yet",
        "UnitesTables": "it does not unite tables yet",
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
        from twice.stores.postgres import bookkeeping, names
        from twice.stores.postgres.connections import connected

        if "." not in name and not self._schema:
            with connected(self._url) as connection:
                self._schema = bookkeeping.schema_of(connection)
        return names.parse(name, self._schema)

    def _stager(self, work: Work) -> Stager:
        name = self._name(work.name)
        from twice.stores.postgres.staging import Stager

        return Stager(self._url, name, work)

    def look(self, name: str) -> Sight:
        """Read the receipts, in one statement."""
        table = self._name(name)
        from twice.stores.postgres import bookkeeping
        from twice.stores.postgres.connections import connected, readable

        with connected(self._url) as connection, readable(name):
            return bookkeeping.look(connection, table)

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

    def stage_tables(self, work: Work, rows: Mapping[str, Rows], lineage: str | None) -> Staged:
        """Stage the rows of several tables; a name with a schema is a table of its own, another is under the target."""
        staged = [
            self.stage_append(replace(work, name=name if "." in name else f"{work.name}/{name}"), part, lineage, None)
            for name, part in rows.items()
        ]
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

    def publish(self, work: Work, staged: Staged, receipts: Sequence[Receipt]) -> tuple[str, ...]:
        """Publish in one transaction."""
        name = self._name(work.name)
        from twice.stores.postgres import publishing

        return publishing.publish(self._url, name, work, staged, receipts)

    def settle(self, name: str) -> None:
        """COMMIT outlives a power cut already."""

    def discard(self, work: Work, staged: Staged) -> None:
        """Drop what the attempt staged."""
        name = self._name(work.name)
        from twice.stores.postgres import tasks

        tasks.discard(self._url, name, work.attempt)

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

    def needs_spark_for_repeats(self, name: str) -> bool:
        """The server counts."""
        return False

    def inspect(self, name: str) -> Sequence[Trouble]:
        """Look for triggers that are missing, and for changes by others."""
        table = self._name(name)
        from twice.stores.postgres import reading

        return reading.troubles(self._url, table, name)

    def is_in_catalog(self, name: str) -> bool:
        """Spark's catalog knows nothing of it."""
        return False

    def inspect_catalog(self, name: str) -> Sequence[Trouble]:
        """Nothing is there to be looked at."""
        return ()

    def tidy(self, name: str, live: frozenset[str], *, keep_days: float, dry_run: bool) -> Swept:
        """Drop staged tables of dead attempts; one that wakes up later is refused."""
        table = self._name(name)
        from twice.stores.postgres import tidying

        return tidying.tidy(self._url, table, live, dry_run=dry_run)


def _need_driver() -> None:
    """Refuse to go on without the packages that speak to PostgreSQL."""
    try:
        import psycopg  # noqa: F401
        import pyarrow as pa  # noqa: F401
    except ImportError:
        raise Misuse(
            "The store 'postgres' needs psycopg and pyarrow.", fix="Install them with: pip install 'twice[postgres]'"
        ) from None


def does_not_exist(name: str) -> NotPublished:
    """Say that a table is not there yet."""
    return NotPublished(f"The table {name} does not exist yet.", fix="Run the pipeline that writes it.")
