"""Which keys are in several rows of a table, and which files hold them?

With Spark, for tables of any size; for Parquet files that are not too many rows also without it, since
a monitor that asks every few minutes should not have to start a JVM.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from twice.abilities import Repeated, Repeats
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
    counts = table.group_by(list(keys)).aggregate([([], "count_all")])
    several = counts.filter(pc.greater(counts["count_all"], 1)).sort_by([("count_all", "descending")])
    shown = several.slice(0, sample).to_pylist()
    return Repeats(
        several.num_rows,
        pc.sum(several["count_all"]).as_py() or 0,
        tuple(
            Repeated({key: row[key] for key in keys}, row["count_all"], _files_of(table, row, keys, there))
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


def _files_of(table: Any, row: Mapping[str, Any], keys: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    import pyarrow.compute as pc

    found = table
    for key in keys:
        is_key = pc.is_null(found[key]) if row[key] is None else pc.equal(found[key], row[key])
        found = found.filter(is_key)
    return tuple(sorted({paths[number] for number in found[_FILE].to_pylist()}))


def local_path(path: str) -> str:
    """Return the path of a file as Spark names it."""
    return unquote(urlparse(path).path) if path.startswith("file:") else path
