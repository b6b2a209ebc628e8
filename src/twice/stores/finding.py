"""Which rows of a table hold these values, given as a person writes them?

A value is read as the column's own type. One that cannot be read so is in no row, and nothing is found. Spark finds rows in
tables of any kind; plain Parquet files are searched without it, since a person who asks for one row should not wait for a JVM.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import islice
from typing import TYPE_CHECKING, Any

from twice.errors import Misuse
from twice.slices import quoted, string_literal, unknown_column
from twice.stores.frames import types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NESTED = ("array", "struct", "map", "variant")


def check(values: Mapping[str, str], columns: Collection[str]) -> None:
    """Refuse to look for nothing, or in a column that is not there.

    Raises:
        Misuse: It cannot be looked for.
    """
    if not values:
        raise Misuse("No column is named to find rows by.", fix="Write column=value.")
    for name in values:
        if name not in columns:
            raise unknown_column(name, columns)


def by_spark(rows: DataFrame, values: Mapping[str, str], limit: int) -> list[dict[str, Any]]:
    """Find rows with Spark."""
    kinds = types(rows)
    check(values, kinds)
    for name in values:
        if kinds[name].startswith(_NESTED):
            raise Misuse(f"The column {name!r} holds nested values.", fix="Name a column of plain values.")
    tests = [f"{quoted(name)} = try_cast({string_literal(text)} AS {kinds[name]})" for name, text in values.items()]
    return [row.asDict(recursive=True) for row in rows.where(" AND ".join(tests)).limit(limit).collect()]


def in_files(paths: Sequence[str], schema: str, values: Mapping[str, str], limit: int) -> list[dict[str, Any]]:
    """Find rows of a table in its Parquet files, in this process; `schema` tells the table's columns."""
    kinds = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
    check(values, kinds)
    found = (row for path in paths for row in _in_file(path, values))
    return [{name: _told(row.get(name), kind) for name, kind in kinds.items()} for row in islice(found, limit)]


def _in_file(path: str, values: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Read the named columns of each group of rows, and all columns of those that hold the values."""
    import pyarrow.compute as pc
    from pyarrow import parquet

    file = parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")
    if not values.keys() <= set(file.schema_arrow.names):
        return
    wanted = {name: _read_as(text, file.schema_arrow.field(name).type) for name, text in values.items()}
    if any(value is None for value in wanted.values()):
        return
    for group in range(file.num_row_groups):
        keys = file.read_row_group(group, columns=list(wanted))
        hits = None
        for name, value in wanted.items():
            same = pc.equal(keys[name], value)
            hits = same if hits is None else pc.and_(hits, same)
        if pc.any(hits).as_py():
            yield from file.read_row_group(group).filter(hits).to_pylist()


def _read_as(text: str, kind: Any) -> Any:
    """Read a text as a value of a type, or return None; a time without a zone is in UTC."""
    import pyarrow as pa

    for written in (text, f"{text}Z"):
        try:
            return pa.scalar(written).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return None


def _told(value: Any, kind: Any) -> Any:
    return value.replace(tzinfo=UTC) if kind == "timestamp" and value is not None and value.tzinfo is None else value
