"""Which one value does a text in a file denote?

Spark's readers bend texts until they fit: they drop the comma of `1,50`, round `1.239`, read `2024` as a date and `10:00` as
today's. So they are asked for texts, wherever they would bend one, and each text becomes a value here: in the tasks that read,
as Spark expressions. A text that does not denote exactly one value of its column's type is wrong, and is never changed. What
a project says of formats in the source's options counts in place of the forms that are known here.

Guaranteed: which value a text becomes depends on the text, its type, the options and the session's time zone; not on the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from twice.slices import quoted
from twice.sources.origins import real_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

# What stands for an empty field, so that "" is a text: noncharacters of Unicode, which are in no text that is interchanged.
CORRUPT = "_corrupt_record"
NULL_FIELD = "\ufdd0null\ufdd1"
_DATE = r"[+-]?[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}"
_TIME = r"[0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]{1,6}0*)?)?"
# A time zone is an offset or the name of a region: abbreviations stand for several.
_ZONE = r" ?(?:Z|(?:UTC|GMT)?(?:[+-][0-9][0-9:]*)?|[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+)"
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
_FORMS = {
    "integer": r"[+-]?[0-9]+",
    "boolean": r"(?i:true|false)",
    "double": rf"(?:{_NUMBER}|NaN|[+-]?Inf(?:inity)?)",
    "date": _DATE,
    "timestamp": rf"{_DATE}(?:[T ]{_TIME}(?:{_ZONE})?)?",
    "timestamp_ntz": rf"{_DATE}(?:[T ]{_TIME})?",
}
_KINDS = dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "integer") | {"float": "double"}
# Options with which a project says how texts of a kind are written.
_SAID_BY = {
    "double": ("nanvalue", "positiveinf", "negativeinf"),
    "decimal": ("locale",),
    "date": ("dateformat",),
    "timestamp": ("timestampformat",),
    "timestamp_ntz": ("timestampntzformat",),
}
# Kinds of which Spark's JSON reader would bend a text or a number.
_BENT_IN_JSON = ("decimal", "double", "date", "timestamp", "timestamp_ntz")
_ABOUT_LINES = (
    "sep",
    "delimiter",
    "quote",
    "escape",
    "comment",
    "header",
    "mode",
    "nullvalue",
    "emptyvalue",
    "multiline",
)
_MOST_DIGITS = 38
_INFINITE = float("inf")
_MOST_SHOWN = 60
_SEPARATES_NOTHING = "\ufdd2"


@dataclass(frozen=True)
class Values:
    """Turns texts of one form, `csv` or `json`, into values, as the options of a source say."""

    form: str
    options: Mapping[str, str]

    def bends(self, kind: DataType) -> bool:
        """Tell whether Spark is asked for texts in place of values of a type."""
        return self._asked(kind) != kind

    def texts(self, struct: StructType) -> StructType:
        """Return the schema that Spark is asked for: texts in place of what it would bend."""
        from pyspark.sql.types import StructField, StructType

        return StructType([StructField(one.name, self._asked(one.dataType), nullable=True) for one in struct.fields])

    def value(self, text: Column, kind: DataType) -> Column:
        """Return what a text denotes, which counts only where it is not wrong."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType, MapType, StructType

        if not self.bends(kind):
            return text
        if isinstance(kind, StructType):
            made = F.struct(*(self.value(text.getField(one.name), one.dataType).alias(one.name) for one in kind.fields))
            return F.when(text.isNotNull(), made)
        if isinstance(kind, ArrayType):
            return F.transform(text, lambda one: self.value(one, kind.elementType))
        if isinstance(kind, MapType):
            return F.transform_values(text, lambda _, one: self.value(one, kind.valueType))
        return self._leaf(text, kind)

    def wrong(self, text: Column, kind: DataType) -> Column:
        """Tell whether a text is there that does not denote exactly one value."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType, MapType, StructType

        if not self.bends(kind):
            return F.lit(False)
        if isinstance(kind, StructType):
            return any_of(self.wrong(text.getField(one.name), one.dataType) for one in kind.fields)
        if isinstance(kind, ArrayType | MapType):
            held, inner = (
                (text, kind.elementType) if isinstance(kind, ArrayType) else (F.map_values(text), kind.valueType)
            )
            return F.coalesce(F.exists(held, lambda one: self.wrong(one, inner)), F.lit(False))
        return text.isNotNull() & ~F.coalesce(self._denotes(text, kind), F.lit(False))

    def _asked(self, kind: DataType) -> DataType:
        from pyspark.sql.types import ArrayType, MapType, StringType, StructType

        if self.form == "csv":
            return kind if _is_text(kind) else StringType()
        if isinstance(kind, StructType):
            return self.texts(kind) if any(self.bends(one.dataType) for one in kind.fields) else kind
        if isinstance(kind, ArrayType):
            return ArrayType(self._asked(kind.elementType)) if self.bends(kind.elementType) else kind
        if isinstance(kind, MapType):
            return MapType(kind.keyType, self._asked(kind.valueType)) if self.bends(kind.valueType) else kind
        name = _kind_of(kind)
        return StringType() if name in _BENT_IN_JSON and not self._said(name) else kind

    def _said(self, name: str) -> bool:
        return any(option in self.options for option in _SAID_BY.get(name, ()))

    def _leaf(self, text: Column, kind: DataType) -> Column:
        from pyspark.sql import functions as F

        name = _kind_of(kind)
        in_zone = name == "timestamp" and "timezone" in self.options
        if self._said(name) or in_zone or (name != "decimal" and name not in _FORMS):
            return self._as_spark_reads(F.nullif(text, F.lit("")) if self.form == "csv" else text, kind)
        return text.try_cast(kind)

    def _denotes(self, text: Column, kind: DataType) -> Column:
        """Tell whether a text denotes exactly one value of a type that is not nested; an empty field denotes none."""
        from pyspark.sql import functions as F

        name, value = _kind_of(kind), self._leaf(text, kind)
        if name == "decimal" and self._said(name):
            fits = self._is_whole_in_locale(text, value, kind)
        elif name == "decimal":
            fits = _is_whole(text, kind)
        elif name == "double":
            said = [self.options[option] for option in _SAID_BY[name] if option in self.options]
            fits = _is_number(text, value) | text.isin(said)
        elif name in _FORMS and not self._said(name):
            fits = text.rlike(rf"\A{_FORMS[name]}\z")
        else:
            fits = F.lit(True)
        fits = value.isNotNull() & fits
        return fits | (text == F.lit("")) if self.form == "csv" else fits

    def _is_whole_in_locale(self, text: Column, value: Column, kind: Any) -> Column:
        from pyspark.sql import functions as F
        from pyspark.sql.types import DecimalType

        wide = DecimalType(_MOST_DIGITS, _MOST_DIGITS - kind.precision + kind.scale)
        has_point = self._as_spark_reads(F.lit("1.5"), DecimalType(2, 1)) == F.lit(1.5)
        grouped = F.when(has_point, text.rlike(_grouped("."))).otherwise(text.rlike(_grouped(",")))
        whole: Column = grouped & self._as_spark_reads(text, wide).eqNullSafe(value)
        return whole

    def _as_spark_reads(self, text: Column, kind: DataType) -> Column:
        """Return what Spark's own reader makes of a single text, with the options of the source."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        about_values = {name: value for name, value in self.options.items() if name not in _ABOUT_LINES}
        alone = {"mode": "PERMISSIVE", "sep": _SEPARATES_NOTHING, "quote": "", "nullValue": NULL_FIELD}
        schema = StructType().add("value", kind).toDDL()
        return F.from_csv(text, schema, {**about_values, **alone}).getField("value")


def with_values(frame: DataFrame, struct: StructType, values: Values) -> DataFrame:
    """Return the rows of files with values in place of texts.

    Reading a row with a wrong text fails with its column and its file. Where broken rows are kept with their text instead, the
    value is NULL and the row is kept so.
    """
    from pyspark.sql import functions as F

    bent = [one for one in struct.fields if values.bends(one.dataType)]
    if not bent:
        return frame
    column = {one.name: F.col(quoted(one.name)) for one in struct.fields}
    wrong = {one.name: values.wrong(column[one.name], one.dataType) for one in bent}
    made = {one.name: values.value(column[one.name], one.dataType).alias(one.name) for one in struct.fields}
    if values.options.get("mode", "FAILFAST").upper() == "FAILFAST":
        file = real_path(frame.metadataColumn("_metadata").getField("file_path"))
        texts = F.struct(*(column[one.name].alias(one.name) for one in bent))
        told = _seldom(texts, lambda row: _first_told(bent, row, values, file))
        # A condition, since a column that the transform leaves out would never be computed.
        frame = frame.where(~any_of(wrong.values()) | F.raise_error(told).isNotNull())
    else:
        row = F.struct(*(column[name] for name in column if name != CORRUPT))
        text = F.to_csv(row) if values.form == "csv" else F.to_json(row)
        made |= {name: F.when(~wrong[name], made[name]).alias(name) for name in wrong}
        made[CORRUPT] = F.coalesce(column[CORRUPT], F.when(any_of(wrong.values()), text)).alias(CORRUPT)
    return frame.select(*made.values())


def _first_told(fields: Sequence[StructField], row: Column, values: Values, file: Column) -> Column:
    from pyspark.sql import functions as F

    texts = {one: row.getField(one.name) for one in fields}
    return F.coalesce(
        *(F.when(values.wrong(text, one.dataType), _told(one, text, file)) for one, text in texts.items())
    )


def _told(field: StructField, text: Column, file: Column) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    nested = isinstance(field.dataType, StructType | ArrayType | MapType)
    shown = F.to_json(text) if nested else F.concat(F.lit("'"), text, F.lit("'"))
    words = (F.lit(f": {field.name} = "), F.substr(shown, F.lit(1), F.lit(_MOST_SHOWN)))
    return F.concat(F.lit("A row cannot be read in "), file, *words, F.lit(f" is no {field.dataType.simpleString()}"))


def _seldom(of: Column, what: Callable[[Column], Column]) -> Column:
    """Return what few rows need, kept out of the method that Spark generates for all: the JVM compiles none of over 8,000 bytes."""
    from pyspark.sql import functions as F

    return F.get(F.transform(F.array(of), what), F.lit(0))


def any_of(conditions: Iterable[Column]) -> Column:
    """Tell whether one of several conditions holds."""
    return reduce(lambda one, other: one | other, conditions)


def _is_whole(text: Column, kind: Any) -> Column:
    """Tell whether no digit of a decimal gets lost."""
    plain: Column = text.rlike(rf"\A[+-]?[0-9]*(?:\.[0-9]{{0,{kind.scale}}}0*)?\z")
    return plain | _seldom(text, lambda one: _is_whole_with_exponent(one, kind))


def _is_whole_with_exponent(text: Column, kind: Any) -> Column:
    from pyspark.sql import functions as F

    digits = F.length(F.regexp_extract(text, r"\.([0-9]*?)0*[eE]", 1))
    exponent = F.regexp_extract(text, r"[eE]([+-]?[0-9]{1,4})\z", 1).try_cast("int")
    nothing = text.rlike(r"\A[+-]?[0.]*[eE]")
    found: Column = text.rlike(rf"\A{_NUMBER}\z") & (nothing | (digits - exponent <= kind.scale))
    return found


def _is_number(text: Column, value: Column) -> Column:
    """Tell whether a number is one that its type can hold: neither beyond the largest nor lost among the smallest."""
    from pyspark.sql import functions as F

    too_large = (F.abs(value) == _INFINITE) & text.rlike("[0-9]")
    too_small = (value == F.lit(0.0)) & text.rlike(r"\A[^eE]*[1-9]")
    return text.rlike(rf"\A{_FORMS['double']}\z") & ~too_large & ~too_small


def _grouped(point: str) -> str:
    """The form of a number whose other separators stand between groups of digits, the last of three."""
    group = rf"[^0-9{point}]"
    return rf"\A[+-]?(?:[0-9]*|[0-9]{{1,3}}(?:{group}[0-9]{{2,3}})*{group}[0-9]{{3}})(?:[{point}][0-9]*)?\z"


def _is_text(kind: DataType) -> bool:
    from pyspark.sql.types import CharType, StringType, VarcharType

    return isinstance(kind, StringType | CharType | VarcharType)


def _kind_of(kind: DataType) -> str:
    name = kind.simpleString().partition("(")[0]
    return _KINDS.get(name, name)
