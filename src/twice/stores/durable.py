"""How does a file become durable, and a name appear whole or not at all?

Local disks only. The order matters: content, then the folder that names it, then the name that
readers look for. A failed fsync is never tried again in the same run, since the kernel may have dropped the pages: what has its
name by then is published, and it is unknown whether it stays.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress

from twice.errors import NotPublished, OutcomeUnknown
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


def sync_way_to(path: str) -> None:
    """Force the name of a file or folder to disk, and those of all folders that lead to it: any of them may be new."""
    while not os.path.ismount(path):
        path = os.path.dirname(os.path.abspath(path))
        # A folder that may not be listed has been there before us.
        with suppress(PermissionError):
            sync_file(path)


def create_whole(path: str, content: bytes, point: str) -> None:
    """Create a file under its final name, whole, if and only if the name is free.

    Raises:
        FileExistsError: Someone else has the name.
        NotPublished: The content could not be written, and the name was not touched.
        OutcomeUnknown: It has its name, and the disk did not confirm that.
    """
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f"{_TEMPORARY}{secrets.token_hex(8)}")
    try:
        _write(temporary, content)
        reach(f"{point}.written")
        os.link(temporary, path)
        reach(f"{point}.linked")
        _confirm(path)
    finally:
        _remove(temporary)


def keep_whole(path: str, content: bytes, point: str) -> None:
    """Create a file like `create_whole`, of which nothing speaks yet: what is not confirmed does not count.

    Raises:
        FileExistsError: Someone else has the name.
        NotPublished: The content or the name could not be written.
    """
    try:
        create_whole(path, content, point)
    except OutcomeUnknown as error:
        raise NotPublished(error.what, "Nothing was published, and the target is as it was.", error.fix) from error


def _confirm(path: str) -> None:
    """Force a name to disk that readers see already."""
    try:
        sync_file(os.path.dirname(path))
    except OSError as error:
        raise OutcomeUnknown(
            f"{path} has its name, and the disk did not confirm it: {error.strerror or error}.",
            "It is unknown whether it stays there if the power is cut.",
            "Look for errors of the disk, then run again: Twice looks first what is there.",
        ) from error


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
