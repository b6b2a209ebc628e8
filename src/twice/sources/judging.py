"""What does Spark say of each row?

Each row gets an answer: none if it is good, else why it is not, in short (see `reasons`). To see that a line has as many
fields as the schema, and that every quotation mark in it is closed, a last field is added to it, which has to come out
as it went in: an open quotation mark would swallow it. Rows that were set aside earlier are judged together with those
of the files, from the text that was kept.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from twice.caches import OPTION
from twice.errors import Misuse
from twice.explain import explain
from twice.slices import quoted
from twice.sources import reasons
from twice.sources.contents import schema_keys
from twice.sources.keys import has_misspelt
from twice.sources.loading import load_just
from twice.sources.origins import with_origin
from twice.sources.reasons import Column, Reasons
from twice.sources.requiring import is_missing, required
from twice.sources.scanning import BLANK_IN_JSON
from twice.sources.values import Values, any_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from twice.sources.filesets import FileSet

FILE, LINE, FORM, RAW, ANSWER = "_twice_file", "_twice_line", "_twice_form", "_twice_raw", "_twice_answer"
ROW = "row"
_UNREADABLE, _PARSED, _END, _BAD = "_twice_unreadable", "_twice_parsed", "_twice_end", "_twice_bad"
_LAST_FIELD = "twice"
_MOST_FIELDS = 20480
_LARGEST_VARIANT = 16 << 20
# A brace that something follows: only then a line may hold more than one object.
_GOES_ON = r"\}\s*[^\s\]\}]"
# A number that is not whole, after all that comes before it in a line: texts, other numbers, what stands between them.
_NUMBER_IN_JSON = (
    r"""\G((?:[^"'0-9-]++|"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|-?[0-9]++(?![0-9.eE]))*+)"""
    r"""(-?[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)"""
)
# What a row of a Parquet file is written with as JSON, and read back with: nothing of a time gets lost.
_EXACT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def judged_rows(chosen: FileSet, spark: Any) -> DataFrame:
    """Return all rows of the files, and those to be read again, each with its file and its answer."""
    from pyspark.sql import functions as F

    parts = [part for part in (_from_files(chosen, spark), _from_again(chosen, spark)) if part is not None]
    frame = reduce(lambda one, other: one.unionByName(other), parts)
    if chosen.source.file_column:
        frame = frame.withColumn(chosen.source.file_column, F.col(FILE))
    return frame.withColumn(ANSWER, _answer(chosen, frame)).drop(_UNREADABLE)


def good_rows(chosen: FileSet, spark: Any) -> DataFrame:
    """Return the rows that may go on."""
    frame = judged_rows(chosen, spark)
    return frame.where(f"{ANSWER} is null").select(*_data_columns(frame))


def raw_of(chosen: FileSet, frame: DataFrame) -> Any:
    """Return a row's own text: the line, or a row of a Parquet file as JSON."""
    from pyspark.sql import functions as F

    kept = [column for column in _data_columns(frame) if column != quoted(chosen.source.file_column or "")]
    line = F.col(RAW).cast("binary")
    return line if chosen.format != "parquet" else F.coalesce(line, F.to_json(F.struct(*kept), _EXACT).cast("binary"))


def reasons_of(chosen: FileSet, frame: DataFrame) -> Reasons:
    """Return what turns answers into words."""
    source = chosen.source
    columns = [
        Column(field.name, field.dataType.simpleString())
        for field in frame.schema.fields
        if not field.name.startswith("_twice_") and field.name != source.file_column
    ]
    needed = [".".join(path) for path in required(chosen.struct(frame.sparkSession))]
    return Reasons(
        columns, needed, source.rules, source.separator, source.quote, source.escape, schema_keys(source.schema or "")
    )


def _from_files(chosen: FileSet, spark: Any) -> DataFrame | None:
    from pyspark.sql import functions as F

    if not chosen.marks:
        return None
    if chosen.format == "parquet":
        frame = chosen.frame(spark)
        number = (F.col("_metadata.row_index") + 1).alias(LINE)
        kept = [*(F.col(quoted(name)) for name in frame.columns), number]
        rows = with_origin(frame, chosen.marks, chosen.root, FILE, kept)
        nothing = F.lit(None).cast("string")
        return rows.select("*", F.lit(ROW).alias(FORM), nothing.alias(RAW), nothing.alias(_UNREADABLE))
    reader = spark.read.options(recursiveFileLookup="true", ignoreCorruptFiles="false", ignoreMissingFiles="false")
    frame = load_just(reader.format("text").option(OPTION, chosen.content), chosen.marks)
    lines = with_origin(frame, chosen.marks, chosen.root, FILE, [F.col("value").alias(RAW)])
    lines = lines.where(_is_row(chosen)).select(
        FILE, F.lit(None).cast("bigint").alias(LINE), F.lit(chosen.format).alias(FORM), RAW
    )
    return _parsed(chosen, lines, chosen.format)


def _from_again(chosen: FileSet, spark: Any) -> DataFrame | None:
    parts = []
    for form in sorted({row.form for row in chosen.again}):
        rows = [(row.file, row.line, row.form, row.raw_bytes) for row in chosen.again if row.form == form]
        frame = spark.createDataFrame(rows, f"{FILE} string, {LINE} bigint, {FORM} string, {RAW} binary")
        parts.append(_parsed(chosen, frame.withColumn(RAW, frame[RAW].cast("string")), form))
    return reduce(lambda one, other: one.unionByName(other), parts) if parts else None


def _is_row(chosen: FileSet) -> Any:
    """Leave out blank lines, comments and headers, as Spark's readers do."""
    from pyspark.sql import functions as F

    line = F.col(RAW)
    # Nearly every line begins with something to be seen, which is cheaper to tell than to search.
    begins = line >= "!"
    if chosen.format == "json":
        return begins | line.rlike(f"[^{BLANK_IN_JSON.decode()}]")
    kept = begins | line.rlike(r"[^\x00-\x20]")
    comment = chosen.source.option("comment")
    if comment:
        kept = kept & ~line.startswith(comment)
    headers = sorted(chosen.headers())
    return kept & ~line.isin(headers) if headers else kept


def _parsed(chosen: FileSet, lines: DataFrame, form: str) -> DataFrame:
    """Parse lines of one form into the declared columns, and say which cannot be read."""
    from pyspark.sql import functions as F

    struct = chosen.struct(lines.sparkSession)
    options = _options(chosen, form)
    values = Values(form, {name.lower(): value for name, value in options.items()})
    texts = values.texts(struct)
    # An array of one: Spark would carry the question whether a row is good down to the lines, and parse them once more for
    # every part of it. It asks nothing of what an array brings forth before that is there.
    read = _as_csv(chosen, texts, options) if form == "csv" else _as_json(texts, options)
    parsed = lines.select("*", F.explode(F.array(read)).alias(_PARSED))
    text = {one.name: F.col(_PARSED).getField(one.name) for one in struct}
    wrong = [values.wrong(text[one.name], one.dataType) for one in struct]
    empty = F.concat_ws(
        " ", *(F.when(text[one.name].isNull() | wrong[at], F.lit(str(at))) for at, one in enumerate(struct))
    )
    torn = F.concat_ws(" ", F.lit(reasons.TORN), F.nullif(empty, F.lit("")))
    answer = F.when(~F.is_valid_utf8(RAW), F.lit(reasons.NOT_TEXT))
    answer = _csv_answer(chosen, answer, torn) if form == "csv" else _json_answer(answer, torn, struct, options)
    columns = [values.value(text[one.name], one.dataType).alias(one.name) for one in struct]
    return parsed.select(FILE, LINE, FORM, RAW, answer.when(any_of(wrong), torn).alias(_UNREADABLE), *columns)


def _options(chosen: FileSet, form: str) -> dict[str, str]:
    given = {name: str(value) for name, value in chosen.source.options.items() if name.lower() != "mode"}
    given |= chosen.source.as_written() if form == "csv" else {}
    return {**(given if form == chosen.format else _EXACT), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}


def _as_csv(chosen: FileSet, texts: StructType, options: dict[str, str]) -> Any:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    line, separator = F.col(RAW), chosen.source.separator
    most = int(chosen.source.option("maxColumns") or _MOST_FIELDS) - 2
    separators = (F.length(line) - F.length(F.replace(line, F.lit(separator), F.lit("")))) / F.lit(len(separator))
    fits = (F.length(line) < most) | (separators < most)
    ended = F.when(fits, F.concat(line, F.lit(separator + _LAST_FIELD)))
    schema = StructType([*texts.fields]).add(_END, StringType()).add(_BAD, StringType())
    return F.from_csv(ended, schema.toDDL(), options)


def _csv_answer(chosen: FileSet, answer: Any, torn: Any) -> Any:
    from pyspark.sql import functions as F

    parsed, source = F.col(_PARSED), chosen.source
    whole = parsed.getField(_BAD).isNull() & parsed.getField(_END).eqNullSafe(_LAST_FIELD)
    return (
        answer.when(F.col(RAW).contains("\0"), F.lit(reasons.NUL))
        .when(parsed.isNull(), F.lit(reasons.WIDE))
        .when(~whole, torn)
        .when(_is_misquoted(source.separator, source.quote, source.escape), F.lit(reasons.MISQUOTED))
    )


def _is_misquoted(separator: str, quote: str, escape: str) -> Any:
    """Tell whether a quotation mark ends a field and more of the field follows, which Spark would hand on with its marks."""
    from pyspark.sql import functions as F

    if len(separator) != 1 or len(quote) != 1 or len(escape) > 1:
        return F.lit(False)
    sep, mark, inside = (f"\\x{{{ord(one):x}}}" for one in (separator, quote, escape or quote))
    kept = f"{mark}{mark}" if escape in ("", quote) else f"{inside}."
    enclosed = f"{mark}[^{mark}{inside}]*+(?:{kept}[^{mark}{inside}]*+)*+{mark}[ \\t]*+"
    plain = f"[^{sep}{mark}][^{sep}]*+"
    rest = f"(?:{sep}(?:{enclosed}|{plain}|))*+"
    return F.col(RAW).contains(quote) & ~F.col(RAW).rlike(rf"(?s)\A(?:{enclosed}|{plain}|){rest}\z")


def _as_json(texts: StructType, options: dict[str, str]) -> Any:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    schema = StructType([*texts.fields]).add(_BAD, StringType())
    # Spark reads a number as text from a file as it is written there, but from a column as a double would be written.
    line = F.regexp_replace(F.col(RAW), F.lit(_NUMBER_IN_JSON), F.lit('$1"$2"'))
    return F.from_json(line, schema, options)


def _json_answer(answer: Any, torn: Any, struct: StructType, options: dict[str, str]) -> Any:
    from pyspark.sql import functions as F

    line, parsed = F.col(RAW), F.col(_PARSED)
    listed = F.concat(F.lit("["), line, F.lit("]"))
    objects = F.size(F.from_json(listed, "array<map<string,string>>", options))
    several = line.rlike(_GOES_ON) & (F.coalesce(objects, F.lit(0)) != 1)
    half = line.contains(r"\u") & F.replace(line, F.lit(r"\\"), F.lit("")).rlike(reasons.HALF_PAIR)
    return (
        answer.when(parsed.isNull() | parsed.getField(_BAD).isNotNull(), torn)
        .when(several, F.lit(reasons.SEVERAL))
        .when(_has_a_key_twice(line, listed), F.lit(reasons.REPEATED))
        .when(half, F.lit(reasons.HALF))
        .when(has_misspelt(line, struct, options), F.lit(reasons.MISSPELT))
    )


def _has_a_key_twice(line: Any, listed: Any) -> Any:
    """Spark takes the last of two values; a variant refuses them, at any depth, and little else that is JSON."""
    from pyspark.sql import functions as F

    keys = F.json_object_keys(line)
    outside = F.size(F.array_distinct(keys)) < F.size(keys)
    strict = (F.json_array_length(listed) == 1) & ~line.contains("'") & (F.length(line) < _LARGEST_VARIANT)
    return F.try_parse_json(line).isNull() & (strict | F.ifnull(outside, F.expr("false")))


def _answer(chosen: FileSet, frame: DataFrame) -> Any:
    """What is not readable comes first; of a row that is, all that is wrong is told."""
    from pyspark.sql import functions as F

    said = [
        F.when(is_missing(path), F.lit(f"{reasons.NULL}:{number}"))
        for number, path in enumerate(required(chosen.struct(frame.sparkSession)))
    ]
    for number, rule in enumerate(chosen.source.rules):
        try:
            _ = frame.where(F.expr(rule.text)).schema
        except Exception as error:
            raise Misuse(
                f"The rule {rule.text!r} is no condition about the columns of {chosen.source.pattern!r}:"
                f" {explain(error)}",
                fix=f"The columns are: {', '.join(_data_columns(frame))}.",
            ) from error
        broken = ~F.ifnull(F.expr(f"({rule.text}\n)"), F.expr("true"))
        said.append(F.when(broken, F.lit(f"{reasons.BROKEN}:{number}")))
    wrong = F.nullif(F.concat_ws(" ", *said), F.lit("")) if said else F.lit(None).cast("string")
    return F.when(F.col(_UNREADABLE).isNotNull(), F.col(_UNREADABLE)).otherwise(wrong)


def _data_columns(frame: DataFrame) -> list[str]:
    return [quoted(name) for name in frame.columns if not name.startswith("_twice_")]
