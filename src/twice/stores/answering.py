"""What do rows say to the tests of a pipeline?

Once for plain rows, once for Parquet files without a JVM, once for Spark's frames; PostgreSQL answers with the same
expressions (`expression`). All tests of some rows are answered in one pass; only of a test that is broken are rows looked
for, to be shown. Counts of NULLs and of repeated values are the same everywhere: a row with a NULL repeats none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from twice.data_tests import SAMPLE, Answer, DataTest, Fresh, NotNull, Unique, check_columns
from twice.slices import quoted
from twice.stores.footers import row_count
from twice.stores.frames import types
from twice.stores.repeats import ROWS_WITHOUT_SPARK, columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS = "twice_rows"
_COUNT = "count_all"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def asked(tests: Sequence[DataTest]) -> list[DataTest]:
    """Return the tests that rows have to be read for: how many rows a slot has is known without."""
    return [test for test in tests if test.named]


def expression(test: DataTest, quote: Callable[[str], str]) -> str:
    """Return what answers a test in SQL, over all rows."""
    names = [quote(name) for name in test.named]
    if isinstance(test, NotNull):
        return f"count(case when {lacks(names)} then 1 end)"
    if isinstance(test, Unique):
        whole = f"case when not ({lacks(names)}) then"
        return f"count({whole} 1 end) - count(distinct {whole} ({', '.join(names)}) end)"
    return f"max({names[0]})"


def lacks(names: Sequence[str]) -> str:
    """Return the condition that one of some columns is NULL; they are quoted already."""
    return " or ".join(f"{name} is null" for name in names)


def with_rows(tests: Sequence[DataTest], found: Sequence[Any], sample: Callable[[DataTest], Any]) -> list[Answer]:
    """Return the answers to tests of which those were answered that rows have to be read for."""
    values = iter(found)
    return [_answer(test, next(values), sample) if test.named else Answer() for test in tests]


def _answer(test: DataTest, value: Any, sample: Callable[[DataTest], Any]) -> Answer:
    if isinstance(test, Fresh):
        return Answer(newest=value)
    return Answer(value or 0, tuple(sample(test)) if value else ())


def shown(names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    """Return repeated values with how many rows have them, which comes last."""
    return {**dict(zip(names, row, strict=False)), "rows": row[-1]}


# ---------------------------------------------------------------- plain rows


def by_rows(rows: Sequence[Mapping[str, Any]], tests: Sequence[DataTest]) -> list[Answer]:
    """Answer tests of plain rows; of none it is not known which columns they would have."""
    if rows:
        check_columns(tests, list(rows[0]))

    def value(test: DataTest) -> Any:
        if isinstance(test, NotNull):
            return len(_lacking(rows, test))
        if isinstance(test, Unique):
            return sum(_groups(rows, test).values()) - len(_groups(rows, test))
        return max((row[test.named[0]] for row in rows if row[test.named[0]] is not None), default=None)

    def sample(test: DataTest) -> list[Mapping[str, Any]]:
        if isinstance(test, NotNull):
            return list(_lacking(rows, test)[:SAMPLE])
        several = [(*key, number) for key, number in _groups(rows, test).most_common(SAMPLE) if number > 1]
        return [shown(test.named, row) for row in several]

    return with_rows(tests, [value(test) for test in asked(tests)], sample)


def _lacking(rows: Sequence[Mapping[str, Any]], test: DataTest) -> list[Mapping[str, Any]]:
    return [row for row in rows if any(row[name] is None for name in test.named)]


def _groups(rows: Sequence[Mapping[str, Any]], test: DataTest) -> Counter[tuple[Any, ...]]:
    keys = (tuple(row[name] for name in test.named) for row in rows)
    return Counter(key for key in keys if None not in key)


# ---------------------------------------------------------------- frames


def by_spark(rows: DataFrame, tests: Sequence[DataTest]) -> list[Answer]:
    """Answer tests of a frame in one aggregation."""
    kinds = types(rows)
    check_columns(tests, list(kinds))
    # A moment comes to Python by the clocks of this process; as a number it does not.
    moments = {test for test in tests if isinstance(test, Fresh) and kinds[test.column] == "timestamp"}
    texts = [expression(test, quoted) for test in asked(tests)]
    columns = [
        f"unix_micros({text})" if test in moments else text for test, text in zip(asked(tests), texts, strict=True)
    ]
    found = rows.selectExpr(*columns).collect()[0] if columns else ()
    values = [_moment(value) if test in moments else value for test, value in zip(asked(tests), found, strict=True)]
    return with_rows(tests, values, lambda test: _sample(rows, test))


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)


def _sample(rows: DataFrame, test: DataTest) -> list[Mapping[str, Any]]:
    from pyspark.sql import functions as F

    names = [quoted(name) for name in test.named]
    if isinstance(test, NotNull):
        return [row.asDict() for row in rows.where(lacks(names)).limit(SAMPLE).collect()]
    groups = rows.where(f"not ({lacks(names)})").groupBy(*names).agg(F.count(F.lit(1)).alias(_ROWS))
    several = groups.where(f"{_ROWS} > 1").orderBy(F.desc(_ROWS), *names).limit(SAMPLE)
    return [shown(test.named, row) for row in several.collect()]


# ---------------------------------------------------------------- files


def of_files(
    paths: Sequence[str], kinds: Mapping[str, str], tests: Sequence[DataTest], frame: Callable[[], DataFrame]
) -> list[Answer]:
    """Answer tests of Parquet files in this process while these are not too many rows, else with Spark."""
    if row_count(paths) > ROWS_WITHOUT_SPARK:
        return by_spark(frame(), tests)
    return by_files(paths, kinds, tests)


def by_files(paths: Sequence[str], kinds: Mapping[str, str], tests: Sequence[DataTest]) -> list[Answer]:
    """Answer tests of Parquet files in this process, of which only the columns that are asked for are read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    check_columns(tests, list(kinds))
    names = sorted({name for test in tests for name in test.named})
    parts = [columns_of(path, names) for path in paths]
    table = pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({name: [] for name in names})

    def value(test: DataTest) -> Any:
        whole = table.select(list(test.named)).drop_null()
        if isinstance(test, NotNull):
            return table.num_rows - whole.num_rows
        if isinstance(test, Unique):
            return whole.num_rows - _groups_of(whole, test).num_rows
        column = table[test.named[0]]
        if not pa.types.is_timestamp(column.type):
            return pc.max(column).as_py()
        newest = pc.max(column.cast(pa.timestamp("us", column.type.tz), safe=False)).as_py()
        # Files of Spark hold moments without a zone, which are those of UTC.
        return newest.replace(tzinfo=UTC) if newest and kinds[test.named[0]] == "timestamp" else newest

    def sample(test: DataTest) -> list[Mapping[str, Any]]:
        if isinstance(test, NotNull):
            lacking: list[Mapping[str, Any]] = (
                table.filter(pc.invert(_is_whole(table, test))).slice(0, SAMPLE).to_pylist()
            )
            return lacking
        groups = _groups_of(table.select(list(test.named)).drop_null(), test).sort_by([(_COUNT, "descending")])
        several = groups.filter(pc.greater(groups[_COUNT], 1)).slice(0, SAMPLE).to_pylist()
        return [shown(test.named, [*(row[name] for name in test.named), row[_COUNT]]) for row in several]

    return with_rows(tests, [value(test) for test in asked(tests)], sample)


def _groups_of(table: Any, test: DataTest) -> Any:
    return table.group_by(list(test.named)).aggregate([([], _COUNT)])


def _is_whole(table: Any, test: DataTest) -> Any:
    """Tell of each row whether it has a value in all columns."""
    import pyarrow.compute as pc

    return reduce(pc.and_, (pc.is_valid(table[name]) for name in test.named))
