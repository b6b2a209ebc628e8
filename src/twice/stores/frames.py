"""What do the stores that write through Spark have in common?

Checks of columns, counts taken in the pass that writes, and reading a list of files. This module
and the stores' own are the only ones that touch frames.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from twice.abilities import Difference, Rows, Work
from twice.caches import OPTION, content_of_files
from twice.columns import Fit, fit, refuse_look_alikes, refuse_types
from twice.errors import Misuse, NotPublished
from twice.merges import MergeRule
from twice.slices import column_taken, missing_column, quoted
from twice.sources.listing import spark_path
from twice.stores import values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LAYOUT = "_twice_by_"
_KEPT = "_twice_kept"
_COUNTS_SECONDS = 120.0
_GENERATED, _IDENTITY, _DEFAULT = "delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT"
_NEVER_SILENT = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}


def stray_count(rows: DataFrame, condition: str) -> int:
    """Count the rows for which a condition is not true, in a pass of its own."""
    return rows.where(f"NOT coalesce({condition}, false)").count()


def checked(rows: Any) -> DataFrame:
    """Return the rows if they are a frame.

    Raises:
        NotPublished: The transform returned something else.
    """
    if not hasattr(rows, "schema") or not hasattr(rows, "select"):
        raise NotPublished(
            f"The transform returned a {type(rows).__name__} instead of a Spark DataFrame.",
            "Nothing was published, and the target is as it was.",
            "Return the DataFrame.",
        )
    frame: DataFrame = rows
    return frame


def united(rows: Sequence[Any]) -> DataFrame:
    """Return several frames as one, column by column; halves are united first, since Spark checks every union anew."""
    if len(rows) == 1:
        return checked(rows[0])
    half = len(rows) // 2
    return united(rows[:half]).unionByName(united(rows[half:]), allowMissingColumns=True)


def held_bytes(rows: DataFrame) -> int:
    """Return how large the rows are that were computed and kept for a frame, as the executors hold them."""
    frame: Any = rows
    context: Any = rows.sparkSession.sparkContext
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = [leaves.apply(number) for number in range(leaves.size())]
    kept_here = {leaf.rdd().id() for leaf in found if leaf.getClass().getSimpleName() == "LogicalRDD"}
    held = context._jsc.sc().getRDDStorageInfo()
    return sum(int(info.memSize()) + int(info.diskSize()) for info in held if info.id() in kept_here)


def kept(spark: SparkSession, name: str, seen: Hashable, make: Callable[[], Rows]) -> DataFrame:
    """Make a frame, or take the one that the session keeps while what it was made of is the same.

    Each caller gets columns of its own, so that two of them can be joined.
    """
    frames: dict[str, tuple[Hashable, DataFrame]] = vars(spark).setdefault(_KEPT, {})
    if name not in frames or frames[name][0] != seen:
        frames[name] = (seen, checked(make()))
    found = frames[name][1]
    return found.select(*(found[quoted(column)].alias(column) for column in found.columns))


def types(rows: DataFrame) -> Mapping[str, str]:
    """Return the columns and their types, as Spark names them."""
    return {field.name: field.dataType.simpleString() for field in rows.schema.fields}


def schema_text(rows: DataFrame) -> str:
    """Return the schema as JSON, every column nullable and without remarks, as files give it back."""
    from pyspark.sql.types import StructType

    fields = json.loads(rows.schema.json())
    return StructType.fromJson(_nullable(fields)).json()


def _nullable(schema: Any) -> Any:
    """Make a schema's fields nullable, at every depth."""
    if isinstance(schema, dict):
        flags = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
        return {key: flags.get(key, _nullable(value)) for key, value in schema.items()}
    return [_nullable(part) for part in schema] if isinstance(schema, list) else schema


def fitted(rows: DataFrame, schema: str, work: Work, besides: Sequence[str] = ()) -> tuple[DataFrame, Fit]:
    """Return the rows with the table's columns in the table's order, as the policy for columns says.

    Columns `besides` are not the table's: they stay with the rows. Columns that the table computes of others are computed here,
    and those that it fills in another way are left to it, as far as the rows do not have them. Texts are as
    long as the table keeps them.

    Raises:
        Misuse: A column has a type that no store keeps.
        NotPublished: Columns are missing, new, or of another type, and the policy refuses that.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    if schema:
        rows = _computed(rows, schema)
    fields = fields_of(rows)
    refuse_types(field for field in fields if field["name"] not in besides)
    rows = _without_lengths(rows, fields)
    found = {column: kind for column, kind in kinds_of(schema_text(rows)).items() if column not in besides}
    if not schema:
        refuse_look_alikes(found, (), work.name)
        return rows, Fit(found)
    left = left_to_table(rows.columns, schema)
    table = {column: kind for column, kind in kinds_of(schema).items() if column not in left}
    fits = fit(found, table, work.columns, work.name)
    struct = StructType.fromJson({"type": "struct", "fields": [_field(*column) for column in fits.columns.items()]})
    long = _lengths(json.loads(schema)["fields"])
    columns = [
        (F.lit(None) if field.name in fits.absent else rows[quoted(field.name)]).cast(field.dataType).alias(field.name)
        if field.name in fits.absent or fits.columns[field.name] != found[field.name]
        else _as_long(rows[quoted(field.name)], field.name, long.get(field.name))
        for field in struct.fields
    ]
    return rows.select(*columns, *(rows[quoted(column)] for column in besides)), fits


def fields_of(rows: DataFrame) -> list[dict[str, Any]]:
    """Return the columns as Spark's JSON has them, with what it notes of each."""
    fields: list[dict[str, Any]] = json.loads(rows.schema.json())["fields"]
    return fields


def _without_lengths(rows: DataFrame, fields: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return the rows as texts of any length: what another table says of them is no part of this one."""
    noted = {field["name"]: field["metadata"] for field in fields}
    for column in _lengths(fields):
        rows = rows.withMetadata(column, {name: said for name, said in noted[column].items() if name != values.LENGTH})
    return rows


def _lengths(fields: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the columns in which texts have a length, as `char(5)`."""
    return {field["name"]: said for field in fields if (said := field["metadata"].get(values.LENGTH))}


def _as_long(value: Column, name: str, said: str | None) -> Column:
    """Return a value as its column keeps it, and noted as such."""
    return values.as_long_as(value, said).alias(name, metadata={values.LENGTH: said}) if said else value


def left_to_table(columns: Sequence[str], schema: str) -> dict[str, str]:
    """Return the columns that are not there and that the table fills, with their default, or with nothing if it counts them."""
    fields = {field["name"]: field["metadata"] for field in json.loads(schema)["fields"]}
    absent = {name: said for name, said in fields.items() if name not in columns}
    return {name: said.get(_DEFAULT, "") for name, said in absent.items() if _DEFAULT in said or _IDENTITY in said}


def with_defaults(rows: DataFrame, schema: str) -> DataFrame:
    """Return the rows with the columns that they lack and for which the table has a default."""
    from pyspark.sql import functions as F

    kinds = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
    defaults = {name: default for name, default in left_to_table(rows.columns, schema).items() if default}
    return rows.withColumns({name: F.expr(text).cast(kinds[name]) for name, text in defaults.items()})


def _computed(rows: DataFrame, schema: str) -> DataFrame:
    """Return the rows with the columns that the table computes of others and that they lack, as far as they have those."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    for field in json.loads(schema)["fields"]:
        name, text = field["name"], field["metadata"].get(_GENERATED)
        if text and name not in rows.columns:
            with suppress(AnalysisException):  # then it is told as missing, with whatever it is computed of
                rows = rows.withColumn(name, F.expr(text).cast(field["type"]))
    return rows


def fitted_in_turn(
    batches: Sequence[Any], schema: str, work: Work, rule: MergeRule
) -> tuple[list[DataFrame], str, tuple[str, ...] | None]:
    """Make each of several batches fit the table as it is after those before it.

    Returns them with the table's columns afterwards, and the columns whose type grows; None if the columns stay.

    Raises:
        NotPublished: A batch does not fit, and the policy refuses that.
    """
    fits, widened, changes = [], set[str](), False
    for rows in batches:
        rule.check_columns(checked(rows).columns)
        fit_rows, how = fitted(rows, schema, work, rule.besides)
        changes = changes or (bool(schema) and how.changes_table)
        widened |= set(how.widened)
        schema = schema_text(fit_rows.drop(*rule.besides)) if how.changes_table or not schema else schema
        fits.append(fit_rows)
    return fits, schema, tuple(sorted(widened)) if changes else None


def with_column(schema: str, column: str, kind: str, name: str) -> str:
    """Return a schema with one more column of a type as SQL writes it; the same one if it is there.

    Raises:
        Misuse: The type is unknown, or the column is there with another one.
    """
    from pyspark.sql.types import StructType

    struct = StructType.fromJson(json.loads(schema))
    try:
        new = StructType.fromDDL(f"{quoted(column)} {kind}")[0]  # type: ignore[index]
    except Exception as error:
        raise Misuse(f"{kind!r} is not a type.", fix="Use a type as Spark SQL writes it, such as string.") from error
    known = next((field for field in struct.fields if field.name.lower() == column.lower()), None)
    if known is None:
        return str(struct.add(new).json())
    if known.dataType != new.dataType or known.name != column:
        raise Misuse(f"{name} has a column {known.name} {known.dataType.simpleString()} already.")
    return schema


def with_columns_of(rows: DataFrame, schema: str) -> DataFrame:
    """Return rows in the columns and types of a newer schema; what they lack is NULL."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    struct = StructType.fromJson(json.loads(schema))
    known = types(rows)
    if known == {field.name: field.dataType.simpleString() for field in struct.fields}:
        return rows
    return rows.select(
        *(
            (rows[quoted(field.name)] if field.name in known else F.lit(None)).cast(field.dataType).alias(field.name)
            for field in struct.fields
        )
    )


def kinds_of(schema: str) -> dict[str, Any]:
    """Return the columns of a schema with their types alone: what a table says of the parts of a nested column is no part of its type."""
    return {field["name"]: field["type"] for field in _nullable(json.loads(schema))["fields"]}


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def observed(rows: DataFrame, condition: str) -> tuple[DataFrame, Callable[[], int]]:
    """Count the rows for which a condition is not true, in the pass that writes them; no condition costs nothing."""
    if not condition:
        return rows, lambda: 0
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation()
    stray = F.when(F.expr(f"({condition}) IS TRUE"), 0).otherwise(1)
    return rows.observe(observation, F.sum(stray).alias("stray")), lambda: _in_time(observation)["stray"] or 0


def counted(rows: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """Count the rows in the pass that writes them, for files that do not know it themselves."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation()
    return rows.observe(observation, F.count(F.lit(1)).alias("rows")), lambda: _in_time(observation)["rows"] or 0


def _in_time(observation: Any) -> Mapping[str, Any]:
    """Wait for what was counted; metrics that never come must not hold a run for ever."""
    answer: list[Mapping[str, Any]] = []
    waiting = threading.Thread(target=lambda: answer.append(observation.get), daemon=True)
    waiting.start()
    waiting.join(_COUNTS_SECONDS)
    if not answer:
        raise NotPublished(
            f"Spark wrote the rows and did not say within {_COUNTS_SECONDS:.0f} s how many lie outside the slice.",
            "Without that nothing was published.",
            "Pass a frame of the project's own Spark session, and run again.",
        )
    return answer[0]


def with_lineage(rows: DataFrame, column: str | None, slot: str) -> DataFrame:
    """Return the rows with a column that carries their slot, if one is declared."""
    return labelled(rows, column, slot) if column else rows


def labelled(rows: DataFrame, column: str, label: str) -> DataFrame:
    """Return rows with one more column that holds a literal, so that a filter on it leaves whole tables out."""
    from pyspark.sql import functions as F

    if column in checked(rows).columns:
        raise column_taken(column)
    return rows.withColumn(column, F.lit(label))


def laid_out(rows: DataFrame, columns: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Copy partition columns, so that folders are named by them and the files keep them too."""
    for column in columns:
        if column not in rows.columns:
            raise missing_column(column, rows.columns)
    layout = [f"{_LAYOUT}{number}" for number, _ in enumerate(columns)]
    for copy, column in zip(layout, columns, strict=True):
        rows = rows.withColumn(copy, rows[quoted(column)])
    return rows, layout


def partition_of_folder(folder: str, columns: Sequence[str]) -> str:
    """Name the partition of a folder that `laid_out` made."""
    parts = folder.split("/")
    named = (f"{column}={part.partition('=')[2]}" for column, part in zip(columns, parts, strict=False))
    return "/".join(named) if len(parts) == len(columns) else ""


def read_parquet(spark: SparkSession, paths: Sequence[str], schema: str) -> DataFrame:
    """Read just these files, with just this schema."""
    from pyspark.sql.types import StructType

    struct = StructType.fromJson(json.loads(schema))
    if not paths:
        return spark.createDataFrame([], struct)
    options = {"recursiveFileLookup": "true", **_NEVER_SILENT, OPTION: content_of_files(paths)}
    reader = spark.read.schema(struct).options(**options)
    return reader.parquet(*(spark_path(path) for path in paths))


class SparkRows:
    """What stores do to rows that are frames, whatever they do with them then."""

    def unite(self, rows: Sequence[Rows]) -> Rows:
        """Return several frames as one."""
        return united(rows)

    def compare(self, before: Rows, after: Rows, keys: Sequence[str], sample: int) -> Difference:
        """Tell how two frames differ."""
        from twice.stores import differences

        return differences.compare(before, after, keys, sample)

    def labelled(self, rows: Rows, column: str, label: str) -> Rows:
        """Return rows with one more column that holds a literal."""
        return labelled(rows, column, label)

    def fit_to(self, work: Work, rows: Rows, schema: str) -> Rows:
        """Make rows fit a schema, as the policy for columns says."""
        return fitted(checked(rows), schema, work)[0]
