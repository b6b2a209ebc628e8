"""Which file did a row come from?

Spark tells the file behind a link as a URL. Files under the project's folder are named by what follows that folder, which
costs no more than cutting a text; the others are looked up in a small table. So a name is exact, whatever is in it, and
a thousand files cost no more than one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twice.errors import Misuse
from twice.sources.listing import bad
from twice.sources.marking import FileMark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_REAL = "_twice_real"
_NAMED = "_twice_named"


def check_one_name_each(marks: Sequence[FileMark]) -> None:
    """Refuse two names of one file: nobody could tell which of them a row came from.

    Raises:
        BadFile: There are two.
    """
    names: dict[str, str] = {}
    for mark in marks:
        other = names.setdefault(mark.real, mark.path)
        if other != mark.path:
            raise bad(mark.path, f"is the same file as {other!r}: their rows could not be told apart.")


def check_column(column: str | None, schema: str | None, columns: Sequence[str]) -> None:
    """Refuse a column for the file's name that is none, or that the files have already.

    Raises:
        Misuse: It is.
    """
    if column is None:
        return
    if not isinstance(column, str) or not column.strip() or column.startswith("_twice_"):
        raise Misuse(f"file_column={column!r} names no column.", fix="Write, for example, file_column='source_file'.")
    if schema and column.lower() in {name.lower() for name in columns}:
        raise Misuse(
            f"file_column={column!r} is a column of the schema already.",
            fix="Choose a name that the files do not have.",
        )


def with_origin(frame: DataFrame, marks: Sequence[FileMark], root: str, column: str, kept: Sequence[Any]) -> DataFrame:
    """Return the frame's kept columns, and one that holds the path of each row's file as it is marked."""
    from pyspark.sql import functions as F

    home = os.path.join(os.path.realpath(root), "")
    elsewhere = {mark.real: mark.path for mark in marks if mark.real != home + mark.path}
    real = real_path(frame.metadataColumn("_metadata").getField("file_path"))
    here = F.substr(F.col(_REAL), F.lit(_units(home) + 1))
    if not elsewhere:
        return frame.select(*kept, real.alias(_REAL)).withColumn(column, here).drop(_REAL)
    table = F.explode(F.from_json(F.lit(json.dumps(elsewhere)), "map<string,string>")).alias(_NAMED + "_real", _NAMED)
    named = frame.sparkSession.range(1).select(table)
    found = frame.select(*kept, real.alias(_REAL)).join(
        F.broadcast(named), F.col(_REAL) == F.col(_NAMED + "_real"), "left"
    )
    return found.withColumn(column, F.coalesce(F.col(_NAMED), here)).drop(_REAL, _NAMED, _NAMED + "_real")


def real_path(url: Column) -> Column:
    """Read a URL of a file as its path; a plus is a plus in it, which url_decode takes for a blank."""
    from pyspark.sql import functions as F

    path = F.when(url.startswith("file://"), F.substr(url, F.lit(8))).otherwise(F.substr(url, F.lit(6)))
    # Decoding is dear, and is done for every row; few names need it.
    return F.when(path.contains("%"), F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B")))).otherwise(path)


def _units(text: str) -> int:
    """Spark counts the characters of a text as Python does."""
    return len(text)
