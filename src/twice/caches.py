"""How do rows that were read anew stay apart from rows that a transform cached earlier?

Spark answers a read from its cache if a plan that looks the same was cached in the session. A plan names files and tables, and
not what is in them: after a correction the same plan stands for other rows. So each plan carries what was read, as an option of
the reader, or as a condition that the optimiser takes away. Two plans look the same only if their rows are the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twice.runs import digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTION = "twice.content"  # of readers of files, which do not know it and hand it on


def content(*facts: object) -> str:
    """Return what a plan carries: a digest of whatever tells one content from another."""
    return digest(repr(facts))


def content_of_files(paths: Sequence[str]) -> str:
    """Tell files from others under the same names, by what no change of a file leaves as it was.

    A file that is not there is told by its name alone: reading it says what is wrong.
    """
    return content([(path, _token(path)) for path in paths])


def told_apart(rows: Any, *facts: object) -> Any:
    """Return a frame that is no other frame's equal unless these facts are the same. What is no frame stays as it is."""
    if not hasattr(rows, "sparkSession"):
        return rows
    from pyspark.sql import functions as F

    frame: DataFrame = rows
    return frame.where(F.lit(content(*facts)).isNotNull())


def _token(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ctime_ns, status.st_ino, status.st_mtime_ns, status.st_size
