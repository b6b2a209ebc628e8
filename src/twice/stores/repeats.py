"""Which keys are in several rows of a table, and which files hold them?

With Spark, for tables of any size; for Parquet files that are not too many rows also without it, since
a monitor that asks every few minutes should not have to start a JVM.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from twice.abilities import Repeated, Repeats
from twice.merges import key_of
from twice.slices import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Above that the keys may not fit into the memory of a small machine.
ROWS_WITHOUT_SPARK = 20_000_000
_FILE, _COUNT = "_twice_file", "_twice_count"


def by_spark(rows: DataFrame, keys: Sequence[str], sample: int) -> Repeats:
    """Count with Spark; the files are looked for only if there is something to look for."""
    from pyspark.sql import functions as F

    columns = [f"_twice_key_{number}" for number, _ in enumerate(keys)]
    keyed = rows.select(
        *(F.col(quoted(key)).alias(column) for key, column in zip(keys, columns, strict=True)),
        F.col("_metadata.file_path").alias(_FILE),
    )
    several = keyed.groupBy(*columns).agg(F.count(F.lit(1)).alias(_COUNT)).where(F.col(_COUNT) > 1)
    totals = several.agg(F.count(F.lit(1)), F.sum(_COUNT)).first()
    if totals is None or not totals[0]:
        return Repeats()
    # Under names of their own: both sides of the join come from one frame.
    named = [f"_twice_shown_{number}" for number, _ in enumerate(keys)]
    shown = several.orderBy(F.desc(_COUNT), *columns).limit(sample)
    shown = shown.select(*(F.col(column).alias(name) for column, name in zip(columns, named, strict=True)), _COUNT)
    meets = [F.col(column).eqNullSafe(F.col(name)) for column, name in zip(columns, named, strict=True)]
    files = (
        keyed.join(F.broadcast(shown), meets)
        .groupBy(*named, _COUNT)
        .agg(F.sort_array(F.collect_set(_FILE)).alias(_FILE))
        .orderBy(F.desc(_COUNT), *named)
    )
    return Repeats(
        totals[0],
        totals[1],
        tuple(
            Repeated(dict(zip(keys, row, strict=False)), row[_COUNT], tuple(map(local_path, row[_FILE])))
            for row in files.collect()
        ),
    )


def without_spark(paths: Sequence[str], keys: Sequence[str], sample: int) -> Repeats:
    """Count the keys of Parquet files in this process; files that are not there are passed over."""
    import pyarrow as pa
    import pyarrow.compute as pc

    there = [path for path in paths if os.path.exists(path)]
    if not there:
        return Repeats()
    parts = [_keys_of(path, number, keys) for number, path in enumerate(there)]
    table = pa.concat_tables(parts, promote_options="permissive")
    named: dict[str, list[Any]] = {}
    for number, key in enumerate(keys):
        column, named[key] = _as_compared(table[key])
        table = table.set_column(number, key, column)
    counts = table.group_by(list(keys)).aggregate([([], "count_all")])
    several = counts.filter(pc.greater(counts["count_all"], 1)).sort_by([("count_all", "descending")])
    shown = several.slice(0, sample).to_pylist()
    return Repeats(
        several.num_rows,
        pc.sum(several["count_all"]).as_py() or 0,
        tuple(
            Repeated(
                {key: named[key][row[key]] if named[key] else row[key] for key in keys},
                row["count_all"],
                _files_of(table, row, keys, there),
            )
            for row in shown
        ),
    )


def _keys_of(path: str, number: int, keys: Sequence[str]) -> Any:
    """Read the keys of one file, with the file's number."""
    import pyarrow as pa

    table = columns_of(path, keys)
    return table.append_column(_FILE, pa.repeat(pa.scalar(number, pa.int32()), table.num_rows))


def columns_of(path: str, names: Sequence[str]) -> Any:
    """Read some columns of one file; one that it lacks is NULL."""
    import pyarrow as pa
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    table = file.read(columns=[name for name in names if name in file.schema_arrow.names])
    for name in names:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(file.metadata.num_rows))
    return table.select(list(names))


def _as_compared(column: Any) -> tuple[Any, list[Any]]:
    """Return keys so that Arrow finds the same ones equal as a merge; of those that it cannot group, the number of each, and all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        return pc.add(column, pa.scalar(0, column.type)), []
    if not pa.types.is_nested(column.type):
        return column, []
    numbers: dict[Any, int] = {}
    values: list[Any] = []
    found = []
    for value in column.to_pylist(maps_as_pydicts="strict"):
        key = key_of({"": value}, [""])
        if key not in numbers:
            numbers[key] = len(values)
            values.append(value)
        found.append(numbers[key])
    return pa.array(found, pa.int64()), values


def _is(column: Any, value: Any) -> Any:
    import pyarrow.compute as pc

    if value is None:
        return pc.is_null(column)
    return pc.is_nan(column) if isinstance(value, float) and math.isnan(value) else pc.equal(column, value)


def _files_of(table: Any, row: Mapping[str, Any], keys: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    found = table
    for key in keys:
        found = found.filter(_is(found[key], row[key]))
    return tuple(sorted({paths[number] for number in found[_FILE].to_pylist()}))


def local_path(path: str) -> str:
    """Return the path of a file as Spark names it."""
    return unquote(urlparse(path).path) if path.startswith("file:") else path
