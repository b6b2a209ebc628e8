"""What is left of a folder after the power was cut? What was forced to disk, and nothing else.

A file has the content that it had when it was last forced to disk, and a folder the names. What was there before the disk was
watched has been there for long. Real disks mostly keep more, and never less.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twice.faults import armed


@contextmanager
def failing_once_at(point: str) -> Iterator[list[int]]:
    """Let the first fsync after a point fail, as a kernel tells of an error once; yield what was tried from then on."""
    real, tried = os.fsync, list[int]()

    def sync(descriptor: int) -> None:
        tried.append(descriptor)
        if len(tried) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    def begin(reached: str) -> None:
        if reached == point:
            os.fsync = sync  # type: ignore[assignment]

    try:
        with armed(begin):
            yield tried
    finally:
        os.fsync = real


class Disk:
    """All that lies in a folder, as far as it was forced to disk."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._names: dict[int, dict[str, int]] = {}
        self._contents: dict[int, bytes] = {}
        for place, _, files in os.walk(self.root):
            self._keep(place)
            for one in files:
                self._keep(os.path.join(place, one))

    def _keep(self, path: str) -> None:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = {one.name: one.inode() for one in os.scandir(path)}
        else:
            with open(path, "rb") as file:
                self._contents[found.st_ino] = file.read()

    @contextmanager
    def watched(self) -> Iterator["Disk"]:
        """Note whatever Python forces to disk in the block."""
        real = os.fsync

        def sync(descriptor: int) -> None:
            real(descriptor)
            self._keep(os.path.realpath(f"/proc/self/fd/{descriptor}"))

        os.fsync = sync  # type: ignore[assignment]
        try:
            yield self
        finally:
            os.fsync = real

    def left(self, to: Path) -> Path:
        """Write what a power cut would leave into another folder."""
        self._restore(os.stat(self.root).st_ino, to)
        return to

    def _restore(self, number: int, to: Path) -> None:
        to.mkdir(parents=True)
        for name, inode in self._names.get(number, {}).items():
            if inode in self._contents:
                (to / name).write_bytes(self._contents[inode])
            elif inode in self._names:
                self._restore(inode, to / name)
