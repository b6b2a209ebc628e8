"""Which types do tables hold, and which values tell whether they are kept and compared as they should be?

One table for the tests that put all of them through every pattern, and for the page about them.
"""

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

NAN = math.nan
FIRST = datetime(2024, 5, 6, 7, 8, 9, 123456)
THEN = datetime(2024, 5, 6, 7, 8, 9, 123457)
DAY, LATER = date(1582, 10, 4), date(9999, 12, 31)


@dataclass(frozen=True)
class Typed:
    """A type, two values of it that differ, and the first once more in another spelling that is equal to it."""

    name: str
    sql: str
    arrow: pa.DataType
    one: Any
    other: Any
    again: Any = None
    is_key: bool = True
    postgres: str = "jsonb"

    @property
    def respelled(self) -> Any:
        """The first value, as a source may bring it another time."""
        return self.one if self.again is None else self.again


_STRUCT = pa.struct([("a", pa.float64()), ("t", pa.timestamp("us", "UTC")), ("s", pa.string())])
_LINES = pa.list_(pa.struct([("b", pa.date32()), ("d", pa.decimal128(10, 2))]))
TYPES = (
    Typed("truth", "boolean", pa.bool_(), True, False, postgres="boolean"),
    Typed("tiny", "tinyint", pa.int8(), 1, -128, postgres="smallint"),
    Typed("small", "smallint", pa.int16(), 1, -32768, postgres="smallint"),
    Typed("whole", "int", pa.int32(), 1, -(2**31), postgres="integer"),
    Typed("big", "bigint", pa.int64(), 2**53 + 1, -(2**63), postgres="bigint"),
    Typed("single", "float", pa.float32(), 0.0, NAN, -0.0, postgres="real"),
    Typed("number", "double", pa.float64(), 0.0, 5e-324, -0.0, postgres="double precision"),
    Typed("nan", "double", pa.float64(), NAN, math.inf, postgres="double precision"),
    Typed("cents", "decimal(10,2)", pa.decimal128(10, 2), Decimal("1.50"), Decimal("-99999999.99"), Decimal("1.5"),
          postgres="numeric(10,2)"),
    Typed("longest", "decimal(38,18)", pa.decimal128(38, 18), Decimal("0.000000000000000001"), Decimal("9" * 20 + "." + "9" * 18),
          postgres="numeric(38,18)"),
    Typed("text", "string", pa.string(), "a ", "a", postgres="text"),
    Typed("bytes", "binary", pa.binary(), b"\0\xff", b"", postgres="bytea"),
    Typed("day_of", "date", pa.date32(), DAY, LATER, postgres="date"),
    Typed("moment", "timestamp", pa.timestamp("us", "UTC"), FIRST.replace(tzinfo=UTC), THEN.replace(tzinfo=UTC),
          postgres="timestamp with time zone"),
    Typed("local", "timestamp_ntz", pa.timestamp("us"), FIRST, THEN, postgres="timestamp without time zone"),
    Typed("floats", "array<double>", pa.list_(pa.float64()), [0.0, NAN], [NAN, 0.0], [-0.0, NAN]),
    Typed("record", "struct<a:double,t:timestamp,s:string>", _STRUCT,
          {"a": 0.0, "t": FIRST.replace(tzinfo=UTC), "s": None}, {"a": 0.0, "t": THEN.replace(tzinfo=UTC), "s": None},
          {"a": -0.0, "t": FIRST.replace(tzinfo=UTC), "s": None}),
    Typed("lines", "array<struct<b:date,d:decimal(10,2)>>", _LINES, [{"b": DAY, "d": Decimal("1.50")}], [{"b": DAY, "d": None}]),
    Typed("tags", "map<string,timestamp>", pa.map_(pa.string(), pa.timestamp("us", "UTC")),
          {"x": FIRST.replace(tzinfo=UTC), "y": None}, {"x": THEN.replace(tzinfo=UTC), "y": None},
          {"y": None, "x": FIRST.replace(tzinfo=UTC)}, is_key=False),
    Typed("bags", "array<map<string,int>>", pa.list_(pa.map_(pa.string(), pa.int32())), [{"x": 1, "y": 2}], [{"x": 1}],
          [{"y": 2, "x": 1}], is_key=False),
)  # fmt: skip
# Types that are refused, each with a value, and with where in a column that is called `odd` it is.
NOT_KEPT = {
    "interval year to month": ("INTERVAL '1-2' YEAR TO MONTH", "odd"),
    "interval day to second": ("named_struct('a', array(INTERVAL '1 02:03:04' DAY TO SECOND))", "odd.a.element"),
    "interval": ("make_interval(1, 2)", "odd"),
    "void": ("NULL", "odd"),
    "string collate UTF8_LCASE": ("named_struct('a', 'A' COLLATE UTF8_LCASE)", "odd.a"),
}
INCOMPARABLE = {
    "map": ("array(map('a', 1))", "odd.element"),
    "variant": ("named_struct('a', parse_json('1'))", "odd.a"),
}
KEYS = tuple(one for one in TYPES if one.is_key)
SCHEMA = ", ".join(["id int", "n int", "day date", *(f"{one.name} {one.sql}" for one in TYPES)])
ARROW = pa.schema(
    [("id", pa.int32()), ("n", pa.int32()), ("day", pa.date32()), *((one.name, one.arrow) for one in TYPES)]
)


def told(value: Any) -> Any:
    """Return a value in one form, by whichever library it was read."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, datetime):
        return (value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat()
    if isinstance(value, Decimal):
        return str(value.normalize())
    if isinstance(value, bytearray):
        return bytes(value)
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, list) and value and all(type(part) is tuple for part in value):
        value = dict(value)  # a map, as Arrow has it
    if isinstance(value, dict):
        return tuple(sorted((name, told(part)) for name, part in value.items()))
    return tuple(map(told, value)) if isinstance(value, list) else value
