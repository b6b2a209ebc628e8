"""How are values of a frame made equal where they are meant to be?

Spark compares most values itself: -0.0 with 0.0 and NaN with NaN as equal, in arrays and structs too. It does not compare maps and
variants, and a text is not yet what a column of fixed length makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

# Where Spark notes that a text is a CHAR(n) or VARCHAR(n).
LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
# As JSON is written where it is compared or kept: Spark would leave out what is NULL, and cut times to milliseconds.
WHOLE_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_Made = Callable[["Column", Any], "Column | None"]


def is_unordered(kind: Any) -> bool:
    """Tell whether Spark cannot compare values of a type: maps and variants, at any depth."""
    return "map<" in kind.simpleString() or "variant" in kind.simpleString()


def equal(one: Column, other: Column, kind: Any) -> Column:
    """Compare two values of a type, NULL with NULL as equal; maps are equal if their entries are, in whatever order."""
    if is_unordered(kind):
        one, other = (_rebuilt(value, kind, _as_ordered) for value in (one, other))
    return one.eqNullSafe(other)


def _as_ordered(value: Column, kind: Any) -> Column | None:
    """Return a map as its sorted entries, and a variant as its text and its type; None if it is neither."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType, VariantType

    if isinstance(kind, MapType):

        def entry(one: Column) -> Column:
            parts = (("key", kind.keyType), ("value", kind.valueType))
            return F.struct(*(_rebuilt(one[name], typed, _as_ordered).alias(name) for name, typed in parts))

        return F.array_sort(F.transform(F.map_entries(value), entry))
    if isinstance(kind, VariantType):
        return F.when(value.isNotNull(), F.struct(F.to_json(value, WHOLE_JSON), F.schema_of_variant(value)))
    return None


def as_long_as(value: Column, said: str) -> Column:
    """Return a text as a column of a length keeps it, which is said as `char(5)`, or for texts within as `array<char(5)>`.

    A text that is shorter than a CHAR is filled with blanks, and blanks that are too many are cut. One that is too long otherwise is
    left to the table, which refuses it.
    """
    from pyspark.sql.types import StructType

    return _rebuilt(value, StructType.fromDDL(f"v {said}")[0].dataType, _with_length)  # type: ignore[index]


def _with_length(value: Column, kind: Any) -> Column | None:
    from pyspark.sql import functions as F
    from pyspark.sql.types import CharType, VarcharType

    if not isinstance(kind, CharType | VarcharType):
        return None
    kept = F.rpad(value, kind.length, " ") if isinstance(kind, CharType) else F.left(value, F.lit(kind.length))
    return F.when(F.length(F.rtrim(value)) <= kind.length, kept).otherwise(value)


def _rebuilt(value: Column, kind: Any, make: _Made) -> Column:
    """Return a value of a type in which every part for which there is something to make is made anew."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    made = make(value, kind)
    if made is not None:
        return made
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda one: _rebuilt(one, kind.elementType, make))
    if isinstance(kind, StructType):
        parts = (_rebuilt(value.getField(one.name), one.dataType, make).alias(one.name) for one in kind.fields)
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(kind, MapType):
        keyed = F.transform_keys(value, lambda key, _: _rebuilt(key, kind.keyType, make))
        return F.transform_values(keyed, lambda _, one: _rebuilt(one, kind.valueType, make))
    return value
