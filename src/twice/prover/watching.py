"""What stands in a world besides the target, and what does it hold?

A transform that writes by hand writes somewhere else than the target. So every file of a world that is
neither the target's nor the ledger's is looked at: tables as multisets of rows, texts as multisets of
lines, anything else by its bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

# What tools leave behind by themselves says nothing about the pipeline; a log tells of runs, and may tell twice.
_TOOLS = frozenset({".twice", "__pycache__", ".git", ".venv", "_temporary", "metastore_db"})
_NOISE = (".crc", ".pyc", ".log", "_SUCCESS")
_TEXT = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".txt", ".md", ".sql", ".toml", ".yaml", ".yml", ".py")
_DELTA_LOG = "_delta_log"

Reader = Callable[[str], Iterable[Any]]


def files_in(folder: Path, without: Iterable[Path] = ()) -> list[Path]:
    """List the files that a user or a transform may have written."""
    left_out = {str(path) for path in without}
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(n for n in folders if n not in _TOOLS and os.path.join(place, n) not in left_out)
        found += [Path(place, name) for name in sorted(names) if not name.endswith(_NOISE)]
    return [path for path in found if str(path) not in left_out]


def stands_beside(folder: Path, without: Iterable[Path], read_delta: Reader) -> Mapping[str, tuple[str, ...]]:
    """Return what each table and file in a folder holds, by its path, as sorted texts."""
    beside: dict[str, list[str]] = {}
    tables: set[Path] = set()
    for path in files_in(folder, without):
        table = _delta_table(path, folder)
        if table:
            tables.add(table)
            continue
        # The parts of a Parquet table have names of their own in every run; the folder is what lasts.
        name = path.parent if path.suffix == ".parquet" else path
        beside.setdefault(_relative(name, folder), []).extend(_content(path))
    for table in tables:
        beside[_relative(table, folder)] = [canonical(row) for row in read_delta(str(table))]
    return {name: tuple(sorted(rows)) for name, rows in beside.items()}


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder))


def _delta_table(path: Path, folder: Path) -> Path | None:
    """Return the Delta table that a file belongs to."""
    for parent in path.parents:
        if (parent / _DELTA_LOG).is_dir():
            return parent
        if parent == folder:
            return None
    return None


def _content(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return _parquet_rows(path)
    content = path.read_bytes()
    if path.suffix in _TEXT:
        return content.decode("utf-8", errors="replace").splitlines()
    return [hashlib.sha256(content).hexdigest()]


def _parquet_rows(path: Path) -> list[str]:
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.ParquetFile(path).read()
    except (ArrowException, OSError) as error:
        return [f"cannot be read: {type(error).__name__}"]
    return [canonical(row) for row in table.to_pylist()]


def canonical(row: Any, without: frozenset[str] = frozenset()) -> str:
    """Write a row as a text that is the same whatever the order of its columns and of its maps."""
    values = row.asDict(recursive=True) if hasattr(row, "asDict") else dict(row)
    return "(" + ", ".join(f"{name}={_text(one)}" for name, one in sorted(values.items()) if name not in without) + ")"


def _text(value: Any) -> str:
    """Write a value so that equal values, and no others, are equal texts."""
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(f"{_text(key)}: {_text(one)}" for key, one in value.items())) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return value.isoformat() if isinstance(value, date) else repr(value)
