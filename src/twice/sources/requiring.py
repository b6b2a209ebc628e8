"""Which columns must hold a value, and what becomes of a row in which one does not?

Spark's readers take `NOT NULL` for a remark and hand on NULL. So it is asked for here: where rows may be set aside, as
one of the things that are judged of each row; where none may, while they are read, and the read fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from twice.slices import quoted
from twice.sources.origins import real_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


def required(struct: StructType, above: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the columns that a schema declares as NOT NULL, those inside of structs too."""
    from pyspark.sql.types import StructType

    for field in struct.fields:
        path = (*above, field.name)
        if not field.nullable:
            yield path
        if isinstance(field.dataType, StructType):
            yield from required(field.dataType, path)


def is_missing(path: Sequence[str]) -> Column:
    """Say in SQL that a column holds no value; nothing can be missing in a struct that is not there."""
    from pyspark.sql import functions as F

    column = F.col(quoted(path[0]))
    missing = column.isNull()
    for name in path[1:]:
        missing = column.isNotNull() & column.getField(name).isNull()
        column = column.getField(name)
    return missing


def refusing_nulls(frame: DataFrame, struct: StructType) -> DataFrame:
    """Return the same rows of files; reading one that lacks a value fails with the name of its column and its file."""
    from pyspark.sql import functions as F

    for path in required(struct):
        name = ".".join(path)
        file = real_path(frame.metadataColumn("_metadata").getField("file_path"))
        told = F.concat(
            F.lit(f"The column {name!r}, which the schema declares as NOT NULL, is NULL in a row of "), file
        )
        # A condition, since a column that the transform leaves out would never be computed.
        frame = frame.where(~is_missing(path) | F.raise_error(told).isNotNull())
    return frame
