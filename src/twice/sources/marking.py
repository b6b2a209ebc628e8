"""Is a file still what it was?

Each file is hashed by content; its inode and change time serve as a token for the second look, which also sees
a file that was replaced and put back.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from twice.fingerprint import HashMemory
from twice.sources.listing import bad, status_of
from twice.sources.packing import check_size

ALGORITHMS = ("xxh3", "sha256")
_RACY_SECONDS = 2.0
# Memory of this size is used again and again; of larger pieces the system takes each back, and clears it anew.
_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class FileMark:
    """One file as it was at the first look: content, and the token that tells any change."""

    path: str
    size: int
    content: str
    token: tuple[int, int, int, int]
    real: str
    young: bool


def mark_files(
    root: str, names: Sequence[str], hashes: HashMemory, max_expanded: int | None = None, algorithm: str = "xxh3"
) -> Iterator[FileMark]:
    """Hash the files, asking the memory for those that have not changed since the last time."""
    statuses = {name: status_of(root, name) for name in names}
    for name, status in statuses.items():
        check_size(name, status, max_expanded)
    hashed_by = "" if algorithm == "xxh3" else f"{algorithm} "
    keys = {name: f"{hashed_by}{name}|{status.st_size}|{token(status)}" for name, status in statuses.items()}
    known = hashes.recall(list(keys.values()))
    fresh: dict[str, str] = {}
    for name in names:
        key, status = keys[name], statuses[name]
        content = known.get(key) or content_hash_of(root, name, algorithm)
        young = is_young(token(status))
        if key not in known and not young:
            fresh[key] = content
        yield FileMark(name, status.st_size, content, token(status), os.path.realpath(os.path.join(root, name)), young)
    if fresh:
        hashes.remember(fresh)


def content_hash_of(root: str, name: str, algorithm: str = "xxh3") -> str:
    """Hash a file, or say by name that it cannot be read."""
    try:
        return content_hash(os.path.join(root, name), algorithm)
    except OSError as error:
        raise bad(name, f"cannot be read: {error.strerror or error}.") from error


def content_hash(path: str, algorithm: str = "xxh3") -> str:
    """Hash a file's bytes with xxh3-128 or SHA-256; the algorithm's name is part of the result."""
    state = _hasher(algorithm)
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            state.update(chunk)
    return f"{algorithm}:{state.hexdigest()}"


def _hasher(algorithm: str) -> Any:
    if algorithm == "sha256":
        return hashlib.sha256()
    import xxhash

    return xxhash.xxh3_128()


def is_as_marked(root: str, mark: FileMark) -> bool:
    """Tell whether a file is what it was at the first look."""
    try:
        if os.path.realpath(os.path.join(root, mark.path)) != mark.real or token(os.stat(mark.real)) != mark.token:
            return False
        # A change in the same granule of the clock as the first look leaves the token as it was.
        return not mark.young or content_hash(mark.real, mark.content.partition(":")[0]) == mark.content
    except OSError:
        return False


def token(status: os.stat_result) -> tuple[int, int, int, int]:
    """What no change of a file leaves as it was: change time, inode, modification time, size."""
    return (status.st_ctime_ns, status.st_ino, status.st_mtime_ns, status.st_size)


def is_young(known: tuple[int, int, int, int]) -> bool:
    """Tell whether a second change could hide in the clock's granule of the first."""
    return time.time() - known[0] / 1e9 < _RACY_SECONDS
