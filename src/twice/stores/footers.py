"""What do Parquet files say about themselves?

How many rows they hold, and between which values a column lies. Counting in the pass that writes
would cost every row a little; the footers know it already, and are read in no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from twice.slices import ColumnSlice


def row_count(paths: Sequence[str]) -> int:
    """Return how many rows some files hold."""
    return sum(footer.num_rows for footer in map(_footer, paths))


def all_within(paths: Sequence[str], bounds: ColumnSlice) -> bool:
    """Tell whether the footers show that every row lies in the slice; if not, some may still do."""
    return all(_is_within(statistics, bounds) for path in paths for statistics in _statistics(path, bounds.column))


def holds_columns(path: str, columns: Sequence[str]) -> bool:
    """Tell whether a file is a Parquet file that has some columns."""
    from pyarrow import ArrowException

    try:
        names = _footer(path).schema.to_arrow_schema().names
    except (ArrowException, OSError):
        return False
    return set(columns) <= set(names)


def _footer(path: str) -> Any:
    from pyarrow import parquet

    return parquet.read_metadata(path)


def _statistics(path: str, column: str) -> Iterator[Any]:
    """Yield what each row group says about a column, or None where it says nothing."""
    footer = _footer(path)
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunks = (group.column(index) for index in range(group.num_columns))
        yield next((chunk.statistics for chunk in chunks if chunk.path_in_schema == column), None)


def _is_within(statistics: Any, bounds: ColumnSlice) -> bool:
    """A slice by column has no holes: what lies between two of its values lies in it."""
    if statistics is None or not statistics.has_min_max or not statistics.has_null_count or statistics.null_count:
        return False
    return all(bounds.holds({bounds.column: value}) for value in (statistics.min, statistics.max))
