"""How is a file unpacked, and is it what its name says?

A packed file may grow two hundred times over, or to 64 MiB, whichever is more: what grows further was made to fill the
machine. The same holds for a file with holes, which says that it is large and takes no room. `max_expanded` sets a
limit in bytes in place of both.
"""

from __future__ import annotations

import bz2
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from twice.errors import Misuse
from twice.sources.listing import bad

CANNOT_BE_READ = (OSError, EOFError, zlib.error)
_GROWS_AT_MOST = 200
_MAY_GROW_TO = 64 << 20
_BLOCK_BYTES = 512
_UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_UNITS |= {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")
_LONGEST_MAGIC = 265
_PACKINGS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
_PACKINGS |= dict.fromkeys((".zst", ".snappy", ".lz4", ".deflate"))  # only Spark unpacks these
# Beginnings that no text has: a file that was packed, and not called so, or packed twice.
_MAGIC = (
    (re.compile(rb"\x1f\x8b"), "gzip"),
    (re.compile(rb"PK(?:\x03\x04|\x05\x06)"), "a zip archive"),
    (re.compile(rb"BZh[1-9]1AY&SY"), "bzip2"),
    (re.compile(rb"\xfd7zXZ\x00"), "xz"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "zstd"),
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), "a 7z archive"),
    (re.compile(rb".{257}ustar", re.DOTALL), "a tar archive"),
    (re.compile(rb"Obj\x01"), "Avro"),
    (re.compile(rb"PAR1[\x00-\x08\x15\x80-\xff]"), "Parquet"),
    (re.compile(rb"%PDF-"), "a PDF"),
    (re.compile(rb"SQLite format 3\x00"), "a SQLite database"),
)


def bytes_of(size: int | str | None) -> int | None:
    """Read a size such as `50 GB`.

    >>> bytes_of("2 MiB"), bytes_of(7), bytes_of(None)
    (2097152, 7, None)
    """
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found and found[2].upper() in _UNITS:
        return int(float(found[1]) * _UNITS[found[2].upper()])
    if size is None or (isinstance(size, int) and not isinstance(size, bool) and size > 0):
        return size
    raise Misuse(f"max_expanded={size!r} is no size.", fix="Write a number of bytes, or '50 GB'.")


def opener(path: str) -> Any:
    """Return what opens a text file, unpacking it; None for packings that only Spark knows."""
    return _PACKINGS.get(os.path.splitext(path)[1], open)


def limit_of(size: int, max_expanded: int | None) -> int:
    """Return how many bytes may come out of a file of this size."""
    return max_expanded if max_expanded is not None else max(size * _GROWS_AT_MOST, _MAY_GROW_TO)


def check_size(name: str, status: os.stat_result, max_expanded: int | None) -> None:
    """Refuse a file that says that it is large and takes no room, before a byte of it is read.

    Raises:
        BadFile: It does.
    """
    taken = status.st_blocks * _BLOCK_BYTES
    if status.st_size > limit_of(taken, max_expanded) and taken < status.st_size:
        raise bad(
            name,
            f"says that it has {status.st_size:,} bytes and takes {taken:,} on disk: it is mostly holes."
            " If that is right, say max_expanded='...' with the size that it may have.",
        )


class Unpacked:
    """A file that is read unpacked, up to the limit."""

    def __init__(self, name: str, path: str, file: Any, max_expanded: int | None) -> None:
        self._name, self._file, self._given = name, file, 0
        self._limit = limit_of(os.path.getsize(path), max_expanded) if opener(path) is not open else None

    def read(self, size: int) -> bytes:
        """Read some bytes.

        Raises:
            BadFile: More came out of the file than may.
        """
        chunk: bytes = self._file.read(size)
        self._given += len(chunk)
        if self._limit is not None and self._given > self._limit:
            raise bad(
                self._name,
                f"unpacks to more than {self._limit:,} bytes. If that is right, say max_expanded='...' with the"
                " size that it may have.",
            )
        return chunk


@contextmanager
def unpacked(name: str, path: str, max_expanded: int | None) -> Iterator[Unpacked]:
    """Open a file for reading, unpacked.

    Raises:
        BadFile: It cannot be read to its end, or too much comes out of it.
    """
    try:
        with opener(path)(path, "rb") as file:
            yield Unpacked(name, path, file, max_expanded)
    except CANNOT_BE_READ as error:
        raise bad(name, f"cannot be read to its end: {_said(error)}.") from error


def _said(error: BaseException) -> str:
    said = getattr(error, "strerror", None) or str(error)
    return said[:1].lower() + said[1:].rstrip(".")


def disguise(beginning: bytes) -> str | None:
    """Say what a file is that ought to be text, if its beginning tells."""
    return next((what for magic, what in _MAGIC if magic.match(beginning[:_LONGEST_MAGIC])), None)
