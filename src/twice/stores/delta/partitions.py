"""What is a partition of a Delta table called, and how is it found by its name?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

from twice.errors import NotPublished
from twice.slices import string_literal

NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_name(values: Mapping[str, str | None], columns: Sequence[str]) -> str:
    """Name a partition; values are quoted, so that one with a slash is still one value."""
    named = {column: values.get(column) for column in columns}
    return "/".join(f"{quote(c, safe='')}={NULL if v is None else quote(v, safe='')}" for c, v in named.items())


def holds_partition(name: str, names_in_log: Mapping[str, str]) -> str:
    """Return the condition that a file of the log is in the partition of that name.

    Raises:
        NotPublished: The table has no column of such a name any more.
    """
    tests = []
    for part in name.split("/"):
        column, _, value = part.partition("=")
        if unquote(column) not in names_in_log:
            raise NotPublished(
                f"The slot filled the partition {name}, and the table has no column {unquote(column)} now.",
                "Rows of an older generation could stay behind, so nothing was published.",
                "Give the column its old name (ALTER TABLE ... RENAME COLUMN), or write to a new target.",
            )
        literal = "NULL" if value == NULL else string_literal(unquote(value))
        tests.append(f"partitionValues[{string_literal(names_in_log[unquote(column)])}] <=> {literal}")
    return "(" + " AND ".join(tests) + ")"
