"""What do the stores that write through Spark have in common?

Checks of columns, counts taken in the pass that writes, and reading a list of files. This module
and the stores' own are the only ones that touch frames.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twice.errors import NotPublished
from twice.slices import missing_column, quoted
from twice.sources.files import spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LAYOUT = "_twice_by_"
_COUNTS_SECONDS = 120.0


@dataclass(frozen=True)
class Counts:
    """What was counted while the rows were written."""

    rows: int
    outside: int
    blank: int = 0


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


def types(rows: DataFrame) -> Mapping[str, str]:
    """Return the columns and their types, as Spark names them."""
    return {field.name: field.dataType.simpleString() for field in rows.schema.fields}


def schema_text(rows: DataFrame) -> str:
    """Return the schema as JSON, every column nullable, as files give it back."""
    from pyspark.sql.types import StructType

    fields = json.loads(rows.schema.json())
    return StructType.fromJson(_nullable(fields)).json()


def _nullable(schema: Any) -> Any:
    """Make a schema's fields nullable, at every depth."""
    if isinstance(schema, dict):
        flags = {"nullable": True, "containsNull": True, "valueContainsNull": True}
        return {key: flags.get(key, _nullable(value)) for key, value in schema.items()}
    return [_nullable(part) for part in schema] if isinstance(schema, list) else schema


def like(rows: DataFrame, schema: str, name: str) -> DataFrame:
    """Return the rows with the table's columns in the table's order.

    Raises:
        NotPublished: Columns are missing, new, or of another type.
    """
    if not schema:
        return rows
    wanted = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
    found = {field["name"]: field["type"] for field in json.loads(schema_text(rows))["fields"]}
    problems = [
        *(f"lack the column {column!r}" for column in wanted if column not in found),
        *(f"have a new column {column!r}" for column in found if column not in wanted),
        *(
            f"have {column!r} as {found[column]} instead of {wanted[column]}"
            for column in wanted
            if column in found and found[column] != wanted[column]
        ),
    ]
    if problems:
        raise NotPublished(
            f"The rows do not fit the table {name}: they {'; they '.join(problems)}.",
            "Nothing was published, and the target is as it was.",
            "Adapt the transform, or write to a new target.",
        )
    return rows.select(*(rows[quoted(column)] for column in wanted))


def counted(rows: DataFrame, outside: str, not_blank: Sequence[str] = ()) -> tuple[DataFrame, Callable[[], Counts]]:
    """Count rows, rows outside a condition, and empty texts in some columns, in the pass that writes them."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation()
    stray = F.when(F.expr(f"({outside}) IS TRUE"), 0).otherwise(1) if outside else F.lit(0)
    texts = [column for column in not_blank if types(rows).get(column) == "string"]
    blank = sum((F.when(rows[quoted(column)] == "", 1).otherwise(0) for column in texts), F.lit(0))
    counts_of = (F.count(F.lit(1)).alias("rows"), F.sum(stray).alias("outside"), F.sum(blank).alias("blank"))
    observed = rows.observe(observation, *counts_of)

    def counts() -> Counts:
        found = _in_time(observation)
        return Counts(found["rows"] or 0, found["outside"] or 0, found["blank"] or 0)

    return observed, counts


def _in_time(observation: Any) -> Mapping[str, Any]:
    """Wait for what was counted; metrics that never come must not hold a run for ever."""
    answer: list[Mapping[str, Any]] = []
    waiting = threading.Thread(target=lambda: answer.append(observation.get), daemon=True)
    waiting.start()
    waiting.join(_COUNTS_SECONDS)
    if not answer:
        raise NotPublished(
            f"Spark wrote the rows and did not say how many within {_COUNTS_SECONDS:.0f} s.",
            "Without the counts nothing was published.",
            "Pass a frame of the project's own Spark session, and run again.",
        )
    return answer[0]


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
    reader = spark.read.schema(struct).option("recursiveFileLookup", "true")
    return reader.parquet(*(spark_path(path) for path in paths))
