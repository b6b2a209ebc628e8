"""How does Spark read just these files, without asking the file system for each of them?

A list of a thousand paths costs Spark a thousand questions, and a job to ask them in. Where a folder holds nothing but files that are
read, the folder itself is named. Spark then lists it, and may find what was not there a moment ago; so what it found is counted, and if it is
more or less, the files are named one by one.

Counting is enough. A file that Spark did not find went away or was renamed after it was looked at, which the second look before
the publish tells by its token. So either nothing is published, or Spark found all files that were chosen, and then as many
as were chosen are these and no others. Where the files are named one by one and Spark still found fewer, it passes over some of
them, and nothing is read.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from twice.sources.listing import bad, is_hidden, spark_path
from twice.sources.marking import FileMark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def load_just(reader: Any, marks: Sequence[FileMark]) -> DataFrame:
    """Load these files and no others; the reader must read folders at any depth, and all that is in them.

    Raises:
        BadFile: Spark passes over one of them.
    """
    # The file behind a link was looked at, so that file is read, wherever the link points by now.
    real = [mark.real for mark in marks]
    frame: DataFrame
    paths = list(_paths(real))
    if len(paths) < len(real):
        frame = reader.load([spark_path(path) for path in paths])
        if len(_files_of(frame)) == len(real):
            return frame
    frame = reader.load([spark_path(path) for path in real])
    found = _files_of(frame)
    if len(found) != len(set(real)):
        seen = {unquote(urlparse(url).path) for url in found}
        missed = [mark.path for mark in marks if mark.real not in seen]
        raise bad(missed[0], f"is passed over by Spark, which found {len(found)} of {len(set(real))} files.")
    return frame


def _paths(files: Sequence[str]) -> Iterator[str]:
    """Yield folders of which all is read, and the files of others."""
    by_folder: defaultdict[str, list[str]] = defaultdict(list)
    for path in files:
        by_folder[os.path.dirname(path)].append(path)
    for folder, chosen in by_folder.items():
        if len(chosen) > 1 and _is_all_of(folder, chosen):
            yield folder
        else:
            yield from chosen


def _is_all_of(folder: str, chosen: Sequence[str]) -> bool:
    """Tell whether a folder holds these files, and nothing else that Spark would read."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    seen = {name for name in names if not is_hidden(name)}
    return len(set(chosen)) == len(chosen) and seen == {os.path.basename(path) for path in chosen}


def _files_of(frame: DataFrame) -> Any:
    """Return the files that Spark found, whether or not their rows are cached; their names stay in the JVM until they are asked for."""
    read: Any = frame
    return read._jdf.queryExecution().analyzed().collectLeaves().apply(0).relation().location().inputFiles()
