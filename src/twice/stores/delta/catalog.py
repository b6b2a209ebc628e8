"""How is a Delta table known by a name in Spark's catalog?"""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import unquote

from twice.slices import string_literal


class Locations(Protocol):
    """Remembers where a catalog keeps its tables."""

    def get(self, name: str) -> str:
        """Return a table's folder, or nothing."""

    def put(self, name: str, location: str) -> None:
        """Keep a table's folder."""


def located(spark: Any, name: str) -> str:
    """Return the folder of a table, or where a new one would be."""
    if spark.catalog.tableExists(name):
        location = spark.sql(f"DESCRIBE DETAIL {identifier(name)}").first()["location"]
    else:
        location = spark.conf.get("spark.sql.warehouse.dir").rstrip("/") + "/" + name.replace(".", "/")
    return unquote(location.removeprefix("file://").removeprefix("file:"))


def register(spark: Any, name: str, table: str) -> None:
    """Make the entry of a table that has none."""
    if not spark.catalog.tableExists(name):
        spark.sql(f"CREATE TABLE IF NOT EXISTS {identifier(name)} USING DELTA LOCATION {string_literal(table)}")


def identifier(name: str) -> str:
    """Write a name with its dots, each part quoted."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in name.split("."))
