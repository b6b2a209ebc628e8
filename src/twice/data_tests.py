"""What must be true of many rows together, and what does it mean if it is not?

A rule (`rules`) is about one row and quarantines it. A test is about many rows and is asked twice: as a gate of the
rows that a run has staged, before they are published, and by `twice check` of the whole table. Stores answer how
many rows break a test; what follows from an answer is decided here, so it is the same on every store.

A gate never reads the clock: a rerun of an old slot is decided as its first run was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo
from typing import Any

from twice.errors import DataTestsFailed, Misuse, count, suggestion
from twice.intervals import parse_length

ERROR, WARN = "error", "warn"
SAMPLE = 5


@dataclass(frozen=True)
class Answer:
    """What a store says of one test: how many rows break it, with some of them; or the newest time.

    Rows of the sample are those that break the test; of repeated values they hold these, and `rows`, how many rows have them.
    """

    count: int = 0
    sample: tuple[Mapping[str, Any], ...] = ()
    newest: Any = None


@dataclass(frozen=True)
class Scope:
    """The rows that a test is asked of.

    Attributes:
        words: What they are rows of, such as a slot or a table.
        until: The moment from which freshness is measured back, or None where there is none.
        zone: The pipeline's zone, for columns that hold dates.
        rows: How many rows its slots brought, or None where that is told slot by slot.
        slots: How many slots that are.
    """

    words: str
    until: datetime | None = None
    zone: tzinfo = UTC
    rows: int | None = None
    slots: int = 1


@dataclass(frozen=True)
class DataTest:
    """One thing that must be true of many rows; if it is not, `error` refuses them and `warn` only says so."""

    severity: str = field(default=ERROR, kw_only=True)

    def __post_init__(self) -> None:
        if self.severity not in (ERROR, WARN):
            raise Misuse(f"severity={self.severity!r} is unknown.", fix=f"Use {ERROR!r} or {WARN!r}.")

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that the test is about."""
        return ()

    @property
    def text(self) -> str:
        """The test as it is declared."""
        raise NotImplementedError

    def broken(self, answer: Answer, scope: Scope) -> str:
        """Say in which way the rows break the test, or nothing."""
        raise NotImplementedError


@dataclass(frozen=True)
class NotNull(DataTest):
    """Every row has a value in all of the columns."""

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_columns("not_null", self.columns)

    @property
    def named(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def text(self) -> str:
        """The test as it is declared."""
        return f"not_null({', '.join(self.columns)})"

    def broken(self, answer: Answer, scope: Scope) -> str:
        """Count the rows that lack a value."""
        if not answer.count:
            return ""
        have = "has" if answer.count == 1 else "have"
        return f"{self.text}: {count(answer.count, 'row')} of {scope.words} {have} NULL there{_shown(answer)}"


@dataclass(frozen=True)
class Unique(DataTest):
    """No two rows have the same values in the columns; as in SQL, a row with NULL in one of them is like no other."""

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_columns("unique", self.columns)

    @property
    def named(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns

    @property
    def text(self) -> str:
        """The test as it is declared."""
        return f"unique({', '.join(self.columns)})"

    def broken(self, answer: Answer, scope: Scope) -> str:
        """Count the rows that are too many."""
        if not answer.count:
            return ""
        repeat = "repeats" if answer.count == 1 else "repeat"
        return f"{self.text}: {count(answer.count, 'row')} of {scope.words} {repeat} the values of another one{_shown(answer)}"


@dataclass(frozen=True)
class Fresh(DataTest):
    """The newest value of a column of times is not older than some length of time."""

    column: str
    within: str

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_columns("fresh", (self.column,))
        parse_length(self.within)

    @property
    def named(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def text(self) -> str:
        """The test as it is declared."""
        return f"fresh({self.column}, within {self.within})"

    def broken(self, answer: Answer, scope: Scope) -> str:
        """Compare the newest value with the moment up to which the rows should reach."""
        if scope.until is None:
            return ""
        if answer.newest is None:
            return f"{self.text}: no row of {scope.words} has a time there"
        if not isinstance(answer.newest, date):
            raise Misuse(
                f"The column {self.column!r} of the test {self.text} holds no time.",
                fix="Name a column of dates or timestamps.",
            )
        since = scope.until - parse_length(self.within)
        if not _is_before(answer.newest, since, scope.zone):
            return ""
        return f"{self.text}: the newest time of {scope.words} is {answer.newest.isoformat()}, before {_local(since, scope)}"


@dataclass(frozen=True)
class RowCount(DataTest):
    """Every slot brings at least so many rows, and at most so many."""

    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        bounds = [bound for bound in (self.min, self.max) if bound is not None]
        if not bounds or any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in bounds):
            raise Misuse(f"{self.text} has no bounds that could be counted.", fix="For example twice.row_count(min=1).")
        if len(bounds) > 1 and bounds[0] > bounds[1]:
            raise Misuse(f"{self.text}: no number is both.", fix="min= is the smaller one.")

    @property
    def text(self) -> str:
        """The test as it is declared."""
        bounds = (("min", self.min), ("max", self.max))
        return f"row_count({', '.join(f'{name} {bound}' for name, bound in bounds if bound is not None)})"

    def allows(self, rows: int, slots: int = 1) -> bool:
        """Tell whether some slots may bring so many rows."""
        return (self.min or 0) * slots <= rows and (self.max is None or rows <= self.max * slots)

    def broken(self, answer: Answer, scope: Scope) -> str:
        """Compare the number of rows with that of as many slots."""
        if scope.rows is None or self.allows(scope.rows, scope.slots):
            return ""
        return f"{self.text}: {scope.words} {'has' if scope.slots == 1 else 'have'} {count(scope.rows, 'row')}"


def not_null(*columns: str, severity: str = ERROR) -> DataTest:
    """Test that every row has a value in all of the columns."""
    return NotNull(columns, severity=severity)


def unique(*columns: str, severity: str = ERROR) -> DataTest:
    """Test that no two rows have the same values in the columns; a row with NULL in one of them is like no other.

    Before a publish the rows of that publish are compared with each other, by `twice check` all rows of the table.
    """
    return Unique(columns, severity=severity)


def fresh(column: str, *, within: str, severity: str = ERROR) -> DataTest:
    """Test that the newest time in a column is not older than a length of time, such as "2 days".

    Before a publish it is measured back from the end of the slot's interval, by `twice check` from now.
    """
    return Fresh(column, within, severity=severity)


def row_count(*, min: int | None = None, max: int | None = None, severity: str = ERROR) -> DataTest:  # noqa: A002
    """Test how many rows a slot brings."""
    return RowCount(min, max, severity=severity)


def tests_of(given: Any) -> tuple[DataTest, ...]:
    """Return the tests that a user declared.

    Raises:
        Misuse: They are none.
    """
    if isinstance(given, Sequence) and all(isinstance(test, DataTest) for test in given):
        return tuple(given)
    raise Misuse(f"tests={given!r} are no tests.", fix="For example tests=[twice.not_null('id'), twice.unique('id')].")


def check_columns(tests: Sequence[DataTest], columns: Sequence[str]) -> None:
    """Refuse tests of columns that are not there.

    Raises:
        Misuse: With the column and the nearest one that is there.
    """
    for test in tests:
        for name in test.named:
            if name not in columns:
                raise Misuse(
                    f"There is no column {name!r}, which the test {test.text} names.", fix=suggestion(name, columns)
                )


def judge(tests: Sequence[DataTest], answers: Sequence[Answer], scope: Scope) -> list[tuple[DataTest, Answer, str]]:
    """Return the tests that the rows break, each with what it was answered and in which way."""
    told = ((test, answer, test.broken(answer, scope)) for test, answer in zip(tests, answers, strict=True))
    return [one for one in told if one[2]]


def gate(tests: Sequence[DataTest], answers: Sequence[Answer], scope: Scope) -> tuple[str, ...]:
    """Refuse staged rows that break a test; return what those say that only warn.

    Raises:
        DataTestsFailed: With every test that was broken.
    """
    broken = judge(tests, answers, scope)
    failed = [why for test, _, why in broken if test.severity == ERROR]
    if failed:
        more = f"; {'; '.join(failed[1:])}" if failed[1:] else ""
        raise DataTestsFailed(f"The rows fail {count(len(failed), 'test')}. {failed[0]}{more}.")
    return tuple(f"warning: {why}" for test, _, why in broken if test.severity == WARN)


def _check_columns(test: str, columns: tuple[str, ...]) -> None:
    if not columns or not all(isinstance(name, str) and name.strip() for name in columns):
        raise Misuse(
            f"{test}({', '.join(map(repr, columns))}) names no column.", fix=f"For example twice.{test}('id')."
        )


def _shown(answer: Answer) -> str:
    rows = ("; ".join(_row(row) for row in answer.sample)) if answer.sample else ""
    return f", for example {rows}" if rows else ""


def _row(row: Mapping[str, Any]) -> str:
    return "(" + ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in row.items()) + ")"


def _is_before(value: date, moment: datetime, zone: tzinfo) -> bool:
    """Compare a time with a moment: a date is one of the pipeline's zone, and a time without a zone of UTC, as in a slice."""
    if not isinstance(value, datetime):
        return value < moment.astimezone(zone).date()
    return (value if value.tzinfo else value.replace(tzinfo=UTC)) < moment


def _local(moment: datetime, scope: Scope) -> str:
    return moment.astimezone(scope.zone).isoformat(timespec="minutes")
