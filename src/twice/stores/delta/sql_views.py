"""How do people who know only SQL see a view of Twice?

Where the project names a schema of Spark's catalog, each view over Delta tables has a persistent SQL
view there. A catalog cannot compare and set, so the manifest stays the truth, and whoever publishes
writes the SQL view anew from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from twice.errors import Misuse
from twice.slices import quoted, string_literal

_MARK = "twice.view"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refuse_table(spark: SparkSession, name: str) -> None:
    """Refuse a name in the catalog that is somebody else's.

    Raises:
        Misuse: The name is taken.
    """
    if spark.catalog.tableExists(name) and not _is_ours(spark, name):
        raise Misuse(
            f"{name} is a table in Spark's catalog, or a view that Twice did not make.",
            "It was left as it is, and nothing was published.",
            "Rename it, or choose another schema with views= of the store.",
        )


def write(spark: SparkSession, name: str, branches: Mapping[str, str | None], by: str) -> None:
    """Write a SQL view over the Delta tables at some paths, each with its label or with none."""
    columns: dict[str, str] = {}
    schemas = {path: spark.read.format("delta").load(path).schema for path in branches}
    for schema in schemas.values():
        columns |= {field.name: field.dataType.simpleString() for field in schema.fields}
    selects = []
    for path, label in branches.items():
        known = set(schemas[path].fieldNames())
        shown = [
            quoted(c) if c in known else f"CAST(NULL AS {kind}) AS {quoted(c)}"
            for c, kind in columns.items()
            if c != by
        ]
        if by:
            shown.append(quoted(by) if label is None else f"{string_literal(label)} AS {quoted(by)}")
        selects.append(f"SELECT {', '.join(shown)} FROM delta.{quoted(path)}")  # noqa: S608 - names are quoted
    refuse_table(spark, name)
    spark.sql(f"CREATE OR REPLACE VIEW {name} TBLPROPERTIES ('{_MARK}' = 'yes') AS {' UNION ALL '.join(selects)}")


def paths_of(spark: SparkSession, name: str) -> set[str] | None:
    """Return the folders of the Delta tables that a SQL view reads, or None where there is no such view."""
    if not spark.catalog.tableExists(name):
        return None
    described = {row["col_name"]: row["data_type"] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()}
    found = re.findall(r"delta\.`((?:[^`]|``)+)`", described.get("View Text", ""))
    return {path.replace("``", "`") for path in found}


def _is_ours(spark: SparkSession, name: str) -> bool:
    """Tell whether a view carries the mark that those of Twice have."""
    if spark.catalog.getTable(name).tableType != "VIEW":
        return False
    return any(row["key"] == _MARK for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect())
