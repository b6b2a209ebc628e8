"""What can a store do, and what does a pattern need?

One small Protocol per ability. A store inherits those that it has, so its class header is its row
of the matrix; a pattern names those that it needs. Rows are opaque here: lists in the memory
store, Spark frames elsewhere.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Protocol, runtime_checkable

from twice.columns import NO_CHANGES, ColumnPolicy
from twice.data_tests import Answer, DataTest
from twice.errors import Misuse, NotPublished
from twice.merges import MergeRule
from twice.runs import Receipt
from twice.sight import Past, Sight
from twice.slices import Slice

Rows = Any
# Asks which attempts live, at the moment of the call.
LiveAttempts = Callable[[], frozenset[str]]
# What rows say to tests, one answer for each.
Answers = Callable[[Sequence[DataTest]], Sequence[Answer]]


@dataclass(frozen=True)
class Leaving:
    """Rows that leave a table when others come: those whose column holds one of these texts; none, if there is none."""

    column: str
    values: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.values)

    def refuse_unknown(self, count: int) -> None:
        """Refuse rows that come and do not say what they came from: nobody could let them leave again.

        Raises:
            NotPublished: There are some.
        """
        if count:
            raise NotPublished(
                f"{count} {'row has' if count == 1 else 'rows have'} NULL in {self.column!r}, the column that tells where rows came from.",
                "They could not be found when they have to leave, so nothing was published.",
                "Keep the column as the source filled it.",
            )

    def untold(self, name: str) -> NotPublished:
        """Say that a table has no such column of texts, so that nobody knows which rows have to leave."""
        return NotPublished(
            f"The table {name} has no column {self.column!r} of texts, so it does not tell which rows came from where.",
            f"Older rows of {self.values[0]!r} would stay beside the new ones, so nothing was published.",
            "Write to a new target that has the column from its first rows on.",
        )


@dataclass(frozen=True)
class Work:
    """What a store has to know about one attempt, while it stages and when it publishes.

    `base` is what the plan saw. `compares_head` marks a publish that was computed from a state of
    the whole target: it must be refused if anything else was published since. `keep_days` is how long
    the target's versions have to be kept at least. `heals` asks for a table of what the slots say alone,
    without what was changed from outside. `leaving` are rows of files that are taken in anew. `began` is the version that the
    first plan of the attempt saw, where it is not that of this one.
    """

    name: str
    slot: str
    attempt: str
    generation: int
    base: Sight
    compares_head: bool = False
    columns: ColumnPolicy = NO_CHANGES
    keep_days: int = 0
    heals: bool = False
    leaving: Leaving | None = None
    began: int | None = None

    def is_older_than(self, version: int) -> bool:
        """Tell whether the attempt had begun before a version was there."""
        return (self.base.version if self.began is None else self.began) < version

    @property
    def seen(self) -> int:
        """The fence that the plan saw."""
        return self.base.fence(self.slot)


@dataclass(frozen=True)
class Staged:
    """Rows that were written where no reader looks.

    Attributes:
        rows: How many rows were written.
        outside: How many of them lie outside the slot's slice.
        partitions: Partitions that the rows fall into, where the pattern replaces partitions.
        handle: What the store needs to publish them; None publishes the receipt alone.
        notes: What the run's outcome should say of them.
        lineage: Column of the rows that carries their slot, or nothing.
        keeps: Without a handle: the slot's older rows stay, and have to be there still.
        batches: How many rows each batch of a draft brought, in their order.
        history: Name under which change rows were kept, or nothing.
        adopted: Name under which the rows from before the first slot are kept, or nothing.
        answers: Answers tests of the rows as the table would hold them, without reading an input again.
    """

    rows: int
    outside: int = 0
    partitions: tuple[str, ...] = ()
    handle: Any = None
    notes: tuple[str, ...] = ()
    lineage: str = ""
    keeps: bool = False
    batches: tuple[int, ...] = ()
    history: str = ""
    adopted: str = ""
    answers: Answers | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class LookBack:
    """The part of a table in which a key may be found again: where a time column is not before a moment."""

    column: str
    since: datetime

    def refuse_unknown(self, count: int) -> None:
        """Refuse rows without a time: a rerun could not find them again.

        Raises:
            NotPublished: There are some.
        """
        if count:
            raise NotPublished(
                f"{count} {'row has' if count == 1 else 'rows have'} NULL in {self.column!r}, the column of the look-back window.",
                "A rerun would not find them and add them again, so nothing was published.",
                "Fill the column in the transform.",
            )

    def no_time(self) -> Misuse:
        """Say that the column does not hold times."""
        return Misuse(
            f"The column {self.column!r} of the look-back window holds no time.", fix="Use a date or timestamp."
        )


@dataclass(frozen=True)
class Swept:
    """What a tidy removed, and what it left because it may still be needed.

    `names` are those of change rows that count for nothing, of which there were `change_rows`.
    """

    removed_files: int = 0
    removed_bytes: int = 0
    attempts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    change_rows: int = 0
    names: tuple[str, ...] = ()

    def __add__(self, other: Swept) -> Swept:
        """Return what both removed."""
        return Swept(
            self.removed_files + other.removed_files,
            self.removed_bytes + other.removed_bytes,
            self.attempts + other.attempts,
            tuple(dict.fromkeys(self.notes + other.notes)),
            self.change_rows + other.change_rows,
            self.names + other.names,
        )


@dataclass(frozen=True)
class Difference:
    """How two versions of a table differ.

    `changed` is known where rows have keys. Of each kind some rows are shown: before, after.
    """

    added: int
    removed: int
    changed: int | None
    sample: tuple[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None], ...] = ()


@dataclass(frozen=True)
class Repeated:
    """A key that several rows share, with what the store knows of how they came.

    Attributes:
        key: The values of the columns.
        rows: How many rows have them.
        files: The files that hold these rows.
        slots: The slots whose publishes wrote these files.
        strangers: Commits of others that wrote them.
    """

    key: Mapping[str, Any]
    rows: int
    files: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Repeats:
    """How many keys are in several rows, how many rows that are in all, and some of them."""

    keys: int = 0
    rows: int = 0
    sample: tuple[Repeated, ...] = ()


@dataclass(frozen=True)
class Trouble:
    """Something wrong with a target that its store sees: about its `files`, its `views`, or `foreign` changes."""

    about: str
    what: str
    fix: str
    is_wrong: bool = True
    named: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opening:
    """All that a store may be opened with; each takes what it needs.

    Attributes:
        root: Folder under which paths are.
        engine: What starts Spark at the first need.
        locations: Remembers where a catalog keeps its tables.
        views: Schema of Spark's catalog for SQL views, or nothing.
        url: How a server is reached. It may hold a password, and is never shown.
    """

    root: str
    engine: Any
    locations: Any = None
    views: str = ""
    url: str = field(default="", repr=False)


@runtime_checkable
class Store(Protocol):
    """What every store does: look, publish one staged change with its receipt, read, tidy."""

    kind: ClassVar[str]
    lacks: ClassVar[Mapping[str, str]]
    dialect: ClassVar[str] = "spark"

    @classmethod
    @abstractmethod
    def opened(cls, opening: Opening) -> Store:
        """Open a store."""

    @abstractmethod
    def look(self, name: str) -> Sight:
        """Read a target's receipts, without starting a JVM."""

    @abstractmethod
    def publish(self, work: Work, staged: Staged, receipts: Sequence[Receipt]) -> tuple[str, ...]:
        """Make the staged rows visible together with the receipts, or neither.

        The first receipt is that of the slot itself; others are of companions. A receipt's generation
        is one more than the fence that the plan saw, and the store compares each. Returns what the run's
        outcome should say besides what was known when the rows were staged.

        Raises:
            Conflict: The target is not as `work.base` saw it, and nothing landed.
        """

    @abstractmethod
    def settle(self, name: str) -> None:
        """Make sure that what was last seen of the target outlives a power cut, where the store can."""

    @abstractmethod
    def discard(self, work: Work, staged: Staged) -> None:
        """Remove what this attempt staged. Called only when the publish surely did not land."""

    @abstractmethod
    def unite(self, rows: Sequence[Rows]) -> Rows:
        """Return several results as one."""

    @abstractmethod
    def compare(self, before: Rows, after: Rows, keys: Sequence[str], sample: int) -> Difference:
        """Tell how two results differ: by key, or without keys by whole rows."""

    @abstractmethod
    def take_over(self, name: str, base: Sight, owner: str, keep_days: int = 0) -> None:
        """Make the ledger `owner` the owner of the target, if it is still as `base` saw it.

        Rows that nobody's publish wrote become the state before the first slot. Versions are kept for at
        least so many days from then on.
        """

    @abstractmethod
    def read(self, name: str, version: int | None = None) -> Rows:
        """Return the rows of the target, now or as of a version."""

    @abstractmethod
    def tidy(self, name: str, live: LiveAttempts, *, keep_days: float, dry_run: bool) -> Swept:
        """Remove leftovers of dead attempts and of versions past their keeping.

        What is staged is listed first, and which attempts live is asked then: an attempt has its lease before it stages
        anything, so one that began meanwhile is not listed, or it lives.
        """


@runtime_checkable
class NamesFiles(Protocol):
    """Knows of each file of a table how large it is, and does not read past one that is not as it was written."""

    @abstractmethod
    def name_files_as_they_are(self, name: str, base: Sight) -> None:
        """Let a table go on without files that are gone, and with those that were changed, if it is as `base` saw it.

        What was no longer vouched for is not vouched for afterwards either.

        Raises:
            Conflict: It is not as it was seen, and nothing changed.
            NotPublished: There is nothing in a file that could be taken as it is.
        """


@runtime_checkable
class ReplacesTable(Protocol):
    """Can swap all rows of a table, so that readers see all of the old or all of the new."""

    @abstractmethod
    def stage_table(self, work: Work, rows: Rows) -> Staged:
        """Write the rows that will be the whole table."""


@runtime_checkable
class ReplacesSlices(Protocol):
    """Can swap the rows that fulfil a condition, and leave all others untouched."""

    @abstractmethod
    def stage_slice(self, work: Work, rows: Rows, bounds: Slice) -> Staged:
        """Write the rows that will replace the slice, counting those that lie outside it."""


@runtime_checkable
class ReplacesPartitions(Protocol):
    """Can swap the partitions that a slot filled before for those that it fills now."""

    @abstractmethod
    def stage_partitions(self, work: Work, rows: Rows, columns: Sequence[str]) -> Staged:
        """Write the rows, laid out by the columns, and name the partitions they fall into."""


@runtime_checkable
class Merges(Protocol):
    """Can insert, update and delete rows by key in one step, and refuse it if the rows it read have changed."""

    @abstractmethod
    def stage_merge(self, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str]) -> Staged:
        """Compare the rows with the table and write what changes; a new table is laid out by some columns."""


@runtime_checkable
class KeepsVersions(Protocol):
    """Can go back to an older version, or make a draft of it: apply several batches to it, and show the result in one step."""

    @abstractmethod
    def past(self, name: str) -> Past:
        """Return the versions that a draft could start from, without starting a JVM."""

    @abstractmethod
    def stage_draft(
        self, work: Work, base: int, batches: Sequence[Rows], rule: MergeRule, layout: Sequence[str]
    ) -> Staged:
        """Merge the batches in turn into a version, `NO_TABLE` being an empty one, and write what differs from it.

        With its publish the target is that version and these batches, and nothing else.
        """

    @abstractmethod
    def restore(self, name: str, base: Sight, version: int, owner: str) -> None:
        """Make the rows of an older version those of the newest; proofs follow the rows, fences stay.

        Raises:
            Conflict: The target is not as `base` saw it, and nothing changed.
        """


@dataclass(frozen=True)
class Editions:
    """Which change rows count, in the order of their slots.

    Attributes:
        names: Names under which they are kept; that of the rows at hand is among them.
        own: The name of the rows at hand: a new one for every try, since a later try may have read other inputs.
        replaced: Name of the slot's older rows, or nothing.
        whole: Make the whole table of them, and not only the rows whose keys are touched.
        adopted: Name under which the rows that the table holds now are to be kept as well, or nothing. It is the first of `names`.
    """

    names: tuple[str, ...]
    own: str
    replaced: str = ""
    whole: bool = False
    adopted: str = ""


@runtime_checkable
class KeepsHistory(Protocol):
    """Can keep every change row beside a table, and make the table's rows of those that count."""

    @abstractmethod
    def stage_history(
        self, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str], editions: Editions
    ) -> Staged:
        """Keep the rows under a name, where no reader looks, and write what the table's rows become.

        Rows that are kept count only through a receipt that names them. Where rows are to be adopted, those that the
        table held before the publish are kept too: they are what was there before the first slot.
        """


@runtime_checkable
class InsertsMissing(Protocol):
    """Can insert the rows whose key is not there yet, and refuse it if one appeared meanwhile."""

    @abstractmethod
    def stage_missing(
        self, work: Work, rows: Rows, rule: MergeRule, look_back: LookBack | None, layout: Sequence[str]
    ) -> Staged:
        """Find the rows whose key is not in the table, and write them."""


@runtime_checkable
class Appends(Protocol):
    """Can add rows and their receipt in one step."""

    @abstractmethod
    def stage_append(self, work: Work, rows: Rows, lineage: str | None, check: Slice | None) -> Staged:
        """Write the rows that will be added, counting as outside those that break a check.

        With a lineage column they carry their slot, and take the place of its older rows.
        """


@runtime_checkable
class TakesIn(Protocol):
    """Can add rows to those that its slot already has there, and let some of these leave, in one step."""

    @abstractmethod
    def stage_taken(self, work: Work, rows: Rows, check: Slice | None, leaving: Leaving | None) -> Staged:
        """Write the rows that will be added, counting as outside those that break a check.

        With the publish the leaving rows are gone. `Staged.rows` counts the rows that come.
        """


@runtime_checkable
class KeepsBeside(Protocol):
    """Can keep small bodies beside a table, which count only through a receipt that names them.

    A body never changes. It outlives a power cut as soon as `keep_beside` returns. `drop_beside` of one that is
    not there does nothing.
    """

    @abstractmethod
    def keep_beside(self, name: str, label: str, body: bytes) -> None:
        """Keep a body under a label that no other body ever has.

        Raises:
            NotPublished: It could not be kept, or one has that label; that one is as it was.
        """

    @abstractmethod
    def beside(self, name: str, label: str) -> bytes | None:
        """Return a body, or None if it is not there, without starting a JVM."""

    @abstractmethod
    def labels_beside(self, name: str) -> Mapping[str, float]:
        """Return the labels of all bodies, each with the time (seconds since 1970) at which it was kept."""

    @abstractmethod
    def drop_beside(self, name: str, labels: Sequence[str]) -> None:
        """Remove bodies."""


def label_taken(label: str) -> NotPublished:
    """Say that a body is kept under a label already: bodies never change."""
    return NotPublished(
        f"Something is kept beside the table as {label!r} already.",
        "It stays as it is; nothing was published.",
        "Run again.",
    )


@runtime_checkable
class TransactsTables(Protocol):
    """Can add rows to several tables and their receipt in one step."""

    @abstractmethod
    def stage_tables(self, work: Work, rows: Mapping[str, Rows], lineage: str | None) -> Staged:
        """Write the rows of each table where no reader looks."""


@dataclass(frozen=True)
class PointedAt:
    """One version that a view can point at."""

    number: int
    name: str
    slot: str
    generation: int
    rows: int
    made_at: str
    current: bool


@runtime_checkable
class PointsAtVersions(Protocol):
    """Can fill a table that never changes again, and let one name point at it in one step."""

    @abstractmethod
    def stage_version(self, work: Work, rows: Rows, keep: int | None) -> Staged:
        """Fill a table where no view names it; with the publish the newest so many are kept."""

    @abstractmethod
    def versions(self, name: str) -> list[PointedAt]:
        """List what the name can point at, oldest first."""

    @abstractmethod
    def point(self, name: str, version: str, owner: str) -> None:
        """Let the name point at an older version, or at a newer one again."""

    @abstractmethod
    def seal(self, name: str, why: str, owner: str) -> None:
        """Refuse every further publish, or with an empty reason allow them again."""


@runtime_checkable
class UnitesTables(Protocol):
    """Can show several tables under one name, and add one to them in one step."""

    @abstractmethod
    def open_member(self, view: str, member: str, by: str, limit: int, writer: str) -> None:
        """Let a view of one pipeline name a table, which may be filled later; done before, this does nothing."""

    @abstractmethod
    def like_siblings(self, work: Work, rows: Rows) -> Rows:
        """Make rows fit the other tables of their view, as the policy for columns says."""

    @abstractmethod
    def members(self, view: str) -> Mapping[str, Sight]:
        """Return the tables that a view unites, with what each holds."""

    @abstractmethod
    def unfilled(self, view: str) -> tuple[str, ...]:
        """Name the tables that a view unites and that are not there."""

    @abstractmethod
    def freeze(self, view: str, into: str, members: Sequence[str], owner: str) -> None:
        """Unite several tables of a view in one that takes no more; readers see the same rows."""

    @abstractmethod
    def add_column(self, view: str, column: str, kind: str, owner: str) -> list[str]:
        """Add a column to all tables of a view that lack it, and name them."""


@runtime_checkable
class FindsRepeats(Protocol):
    """Can name the keys that several rows of a table share, and answer tests. No pattern needs it; a check does."""

    @abstractmethod
    def repeats(self, name: str, keys: Sequence[str], sample: int) -> Repeats:
        """Count the keys that are in several rows, and show some."""

    @abstractmethod
    def answers(self, name: str, tests: Sequence[DataTest]) -> Sequence[Answer]:
        """Answer tests of all rows of a table.

        Raises:
            Misuse: A test names a column that the table does not have.
        """

    @abstractmethod
    def needs_spark_to_count(self, name: str) -> bool:
        """Tell whether either starts a JVM."""


@runtime_checkable
class KnowsColumns(Protocol):
    """Can name the columns of a table without starting a JVM. No pattern needs it; a plan is refused early by it."""

    @abstractmethod
    def column_names(self, name: str) -> Sequence[str]:
        """Return the columns of a table, none if it is not there."""


@runtime_checkable
class FindsRows(Protocol):
    """Can find rows by what they hold. No pattern needs it; a person does."""

    @abstractmethod
    def rows_with(self, name: str, values: Mapping[str, str], limit: int) -> list[dict[str, Any]]:
        """Return some rows in which each of these columns holds its value, which is given as a text.

        A text that is no value of the column's type is in no row.

        Raises:
            Misuse: There is no such column.
        """


@runtime_checkable
class Inspects(Protocol):
    """Can see trouble with a target that its receipts do not tell of. No pattern needs it; a check does."""

    @abstractmethod
    def inspect(self, name: str) -> Sequence[Trouble]:
        """Look for what is missing or does not belong there, without starting a JVM."""

    @abstractmethod
    def is_in_catalog(self, name: str) -> bool:
        """Tell whether Spark's catalog holds something of the target to look at, which starts a JVM."""

    @abstractmethod
    def inspect_catalog(self, name: str) -> Sequence[Trouble]:
        """Look for what only Spark's catalog can tell."""


@runtime_checkable
class GrantsRoles(Protocol):
    """Can say who may write and who may read a view. No pattern needs it; a person does."""

    @abstractmethod
    def roles(self, name: str, owner: str, writer: str, reader: str, *, apply: bool) -> list[str]:
        """Return the statements that give a view its roles, carried out if asked; names left out are the usual ones."""


FORMATS = ("csv", "jsonl", "parquet")


@dataclass(frozen=True)
class Delivery:
    """How a file is delivered.

    Attributes:
        format: `csv`, `jsonl` or `parquet`.
        header: Whether a CSV file begins with the names of its columns.
        marker: Ending of an empty file that appears beside it once it is whole, or nothing.
    """

    format: str
    header: bool = True
    marker: str = ""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise Misuse(f"The format {self.format!r} is unknown.", fix=f"Use one of: {', '.join(FORMATS)}.")


@runtime_checkable
class DeliversFiles(Protocol):
    """Can give a file its final name, whole or not at all, and knows what it delivered."""

    @abstractmethod
    def stage_file(self, work: Work, rows: Rows, name: str, delivery: Delivery) -> Staged:
        """Write one file where no reader looks."""


ABILITIES: tuple[type, ...] = (
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
    PointsAtVersions,
    UnitesTables,
    DeliversFiles,
)
