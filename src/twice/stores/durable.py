"""How does a file become durable, and a name appear whole or not at all?

Local disks only. The order matters: content, then the folder that names it, then the name that
readers look for. A failed fsync is never tried again, since the kernel may have dropped the pages.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable

from twice.errors import NotPublished
from twice.faults import reach

_TEMPORARY = ".tmp-"
_DAY_SECONDS = 86_400.0


def sync_file(path: str) -> None:
    """Force a file's content to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(paths: Iterable[str]) -> None:
    """Force the names in these folders to disk."""
    for path in sorted(set(paths)):
        sync_file(path)


def create_whole(path: str, content: bytes, point: str) -> None:
    """Create a file under its final name, whole, if and only if the name is free.

    Raises:
        FileExistsError: Someone else has the name.
        NotPublished: The content could not be written, and the name was not touched.
    """
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f"{_TEMPORARY}{secrets.token_hex(8)}")
    try:
        _write(temporary, content)
        reach(f"{point}.written")
        os.link(temporary, path)
        reach(f"{point}.linked")
        sync_file(folder)
    finally:
        _remove(temporary)


def _write(path: str, content: bytes) -> None:
    try:
        with open(path, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise NotPublished(
            f"{os.path.basename(os.path.dirname(path))}: a file could not be written: {error.strerror or error}.",
            "Nothing was published, and the target is as it was.",
            "See that the disk has room and the folder is writable, and run again.",
        ) from error


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def remove_temporary(folder: str, *endings: str) -> None:
    """Remove what was written and never got its name, once it is surely nobody's."""
    for entry in os.scandir(folder):
        is_temporary = entry.name.startswith(_TEMPORARY) or entry.name.endswith(endings)
        if is_temporary and time.time() - entry.stat().st_mtime > _DAY_SECONDS:
            _remove(entry.path)
