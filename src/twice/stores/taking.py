"""What is asked of rows that come, and which rows leave, on stores that write through Spark?

What a check and a column have to say of the rows that come is counted in the pass that writes them. Rows leave by one
condition over one column; it is SQL, and no longer than the names of the files of a batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twice.abilities import Leaving
from twice.slices import Slice, quoted, string_literal
from twice.stores import frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Coming:
    """Rows that come; once they are written it is known how many break a check, and how many do not say where from."""

    rows: DataFrame
    stray: Callable[[], int]
    unknown: Callable[[], int]


def coming(rows: DataFrame, check: Slice | None, leaving: Leaving | None) -> Coming:
    """Let the pass that writes the rows count what has to be known of them."""
    rows, stray = frames.observed(rows, check.sql(frames.types(rows)) if check else "")
    rows, unknown = frames.observed(rows, f"{quoted(leaving.column)} IS NOT NULL" if leaving else "")
    return Coming(rows, stray, unknown)


def leaves(leaving: Leaving, schema: str, name: str) -> str:
    """Return the condition that a row of a table with this schema leaves, in Spark SQL.

    Raises:
        NotPublished: The table has no such column, so nobody can tell.
    """
    kinds = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
    if kinds.get(leaving.column) != "string":
        raise leaving.untold(name)
    return f"{quoted(leaving.column)} IN ({', '.join(map(string_literal, leaving.values))})"
