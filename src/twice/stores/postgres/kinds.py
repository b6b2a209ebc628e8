"""Which type of PostgreSQL holds a column of the rows, and do both fit?

Types are told in Spark's words, since the policy for columns knows these: `long`, `decimal(10,2)`, `timestamp`. Arrays,
structs and maps are kept as `jsonb`. Of types that Spark does not know, such as `uuid`, PostgreSQL reads the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from twice.abilities import Work
from twice.columns import Fit, fit, refuse_look_alikes
from twice.errors import Misuse, NotPublished

if TYPE_CHECKING:
    import pyarrow as pa

JSON = "json"
_PLAIN = {
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "binary": "bytea",
    JSON: "jsonb",
}
_KINDS = {name: kind for kind, name in _PLAIN.items()} | {"json": JSON}
_SHORT = {
    "int": "integer",
    "bigint": "long",
    "smallint": "short",
    "tinyint": "byte",
    "real": "float",
    "bool": "boolean",
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_TEXT = re.compile(r"(character varying|character|text)(\(\d+\))?")
# Texts are cast to their length on assignment and not by name: named, PostgreSQL would cut a long one without a word.
_PADDED = re.compile(r"character(\(\d+\))?")
_VARYING = re.compile(r"character varying\((\d+)\)")
# Values of these are not compared with each other; their texts are.
_INCOMPARABLE = ("json", "xml", "point", "line", "lseg", "box", "path", "polygon", "circle")


def of_spark(kind: Any, column: str) -> str:
    """Return the kind of a column of a frame, given as Spark's JSON names it.

    Raises:
        Misuse: PostgreSQL has nothing like it.
    """
    if isinstance(kind, dict) or kind == "variant":
        return JSON
    if kind == "byte":
        return "short"
    if kind.startswith(("char(", "varchar(", "string ")):
        return "string"
    if kind in _PLAIN or _DECIMAL.fullmatch(kind):
        return str(kind).replace(" ", "")
    raise Misuse(
        f"The column {column!r} has the type {kind}, which PostgreSQL cannot hold.", fix="Cast it in the transform."
    )


def of_arrow(kind: pa.DataType, column: str) -> str:
    """Return the kind of a column of an Arrow table; one that is NULL throughout has none.

    Raises:
        Misuse: PostgreSQL has nothing like it.
    """
    from pyarrow import types

    if types.is_dictionary(kind):
        return of_arrow(kind.value_type, column)
    tests = {
        "": types.is_null,
        "boolean": types.is_boolean,
        "short": lambda one: str(one) in ("int8", "int16", "uint8"),
        "integer": lambda one: str(one) in ("int32", "uint16"),
        "long": lambda one: str(one) in ("int64", "uint32"),
        "double": types.is_float64,
        "float": types.is_floating,
        "date": types.is_date,
        "timestamp": lambda one: types.is_timestamp(one) and one.tz is not None,
        "timestamp_ntz": types.is_timestamp,
        "string": lambda one: str(one) in ("string", "large_string", "string_view"),
        "binary": lambda one: str(one) in ("binary", "large_binary", "binary_view"),
        JSON: types.is_nested,
        f"decimal({getattr(kind, 'precision', 0)},{getattr(kind, 'scale', 0)})": types.is_decimal,
    }
    found = next((name for name, test in tests.items() if test(kind)), None)
    if found is None:
        raise Misuse(
            f"The column {column!r} has the Arrow type {kind}, which PostgreSQL cannot hold.",
            fix="Cast it in the transform.",
        )
    return found


def type_of(kind: str) -> str:
    """Return the type of PostgreSQL that holds a kind."""
    decimal = _DECIMAL.fullmatch(kind)
    return f"numeric({decimal[1]},{decimal[2]})" if decimal else _PLAIN[kind]


def type_named(text: str, column: str) -> str:
    """Return the type of PostgreSQL for one that is written as in a schema, such as `string` or `decimal(10,2)`.

    Raises:
        Misuse: There is no such type.
    """
    return type_of(of_spark(_SHORT.get(text.strip().lower(), text.strip().lower()), column))


def kind_of(typed: str, given: str = "") -> str:
    """Return the kind of a column of a table, as the rows' own where PostgreSQL takes whatever comes."""
    numeric = _NUMERIC.fullmatch(typed)
    if numeric:
        return f"decimal({numeric[1]},{numeric[2]})"
    if typed == "numeric":
        return given if _DECIMAL.fullmatch(given) or given in ("short", "integer", "long") else "decimal(38,18)"
    if _TEXT.fullmatch(typed):
        return "string"
    if typed in ("json", "jsonb") and given == "string":
        return "string"
    return _KINDS.get(typed, "string")


def as_long_as_it_is(typed: str) -> str:
    """Return the type in which a text of any length is compared as in this one; other types are what they are."""
    if _PADDED.fullmatch(typed):
        return "bpchar"
    return "text" if _TEXT.fullmatch(typed) else typed


def most_of(typed: str) -> int | None:
    """Return how many characters a text of a type has at most, if blanks beyond that are cut on assignment."""
    found = _VARYING.fullmatch(typed)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class Column:
    """A column of a table as the catalog has it.

    Attributes:
        name: Its name.
        type: Its type, as PostgreSQL writes it.
        filled: Whether PostgreSQL fills it where a row says nothing: by a default, or as an identity.
        required: Whether a row has to say something.
        computed: Whether it is computed of the others, so that no row may say anything.
        collation: How its texts are compared, if that is not the usual way; as it stands in SQL.
        exact: Whether two values are equal only if their texts are.
    """

    name: str
    type: str
    filled: bool = False
    required: bool = False
    computed: bool = False
    collation: str = ""
    exact: bool = True


@dataclass(frozen=True)
class Fitted:
    """How the columns of rows go into those of a table.

    Attributes:
        table: The table's columns when this was decided; none if there is no table.
        source: The types that the rows arrive in.
        types: The columns that are written, with the types that the table will have.
        fit: What changes about the table.
    """

    table: tuple[Column, ...]
    source: Mapping[str, str]
    types: Mapping[str, str]
    fit: Fit

    def cast_of(self, column: str) -> str:
        """Return what a column has to be cast to, so that its values are compared as the table's are; or nothing."""
        wanted = self.types[column]
        collation = next(
            (f" collate {one.collation}" for one in self.table if one.name == column and one.collation), ""
        )
        if column in self.fit.absent or self.source.get(column) == wanted:
            return f"{wanted}{collation}" if collation else ""
        return as_long_as_it_is(wanted) + collation

    @property
    def incomparable(self) -> tuple[str, ...]:
        """Name the columns whose values cannot be compared, only their texts."""
        return tuple(name for name, typed in self.types.items() if typed.removesuffix("[]") in _INCOMPARABLE)


def fitted(given: Mapping[str, str], table: tuple[Column, ...], work: Work, besides: tuple[str, ...] = ()) -> Fitted:
    """Decide how rows of some kinds go into a table, as the policy for columns says.

    Columns `besides` are not the table's. A column that is NULL throughout takes the table's type.

    Raises:
        NotPublished: Columns are missing, new, or of another type, and the policy refuses that.
    """
    known = {one.name: one for one in table if one.name in given or not one.filled}
    settled = {
        name: kind or (kind_of(known[name].type, "string") if name in known else "string")
        for name, kind in given.items()
    }
    source = {
        name: known[name].type if not given[name] and name in known else type_of(kind) for name, kind in settled.items()
    }
    stored = {name: kind for name, kind in settled.items() if name not in besides}
    if not table:
        refuse_look_alikes(stored, (), work.name)
        return Fitted((), source, {name: type_of(kind) for name, kind in stored.items()}, Fit(stored))
    kinds = {name: kind_of(one.type, stored.get(name, "")) for name, one in known.items()}
    fits = fit(stored, kinds, work.columns, work.name)
    required = [name for name in fits.absent if known[name].required]
    if required:
        raise NotPublished(
            f"The rows lack the column {required[0]!r}, which may not be NULL in the table {work.name}.",
            "Nothing was published, and the target is as it was.",
            "Fill it in the transform.",
        )
    changed = {*fits.added, *fits.widened}
    types = {name: type_of(kind) if name in changed else known[name].type for name, kind in fits.columns.items()}
    return Fitted(table, source, types, fits)


def nested_as_text(fits: Fitted) -> Fitted:
    """Let nested values arrive as text, which is how Spark's tasks send them."""
    return replace(fits, source={name: "text" if typed == "jsonb" else typed for name, typed in fits.source.items()})


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type in which a kind is read; what is nested is read as its text."""
    import pyarrow as pa

    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    plain = {
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "binary": pa.binary(),
    }
    return plain.get(kind, pa.string())
