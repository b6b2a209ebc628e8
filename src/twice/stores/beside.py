"""Where are small bodies kept beside a table that is a folder, so that no reader takes them for rows?

In `_twice/kept`, one file each, under its label. Readers, Delta's VACUUM and all that looks for data pass over names that
begin with `_`. A file is written whole and forced to disk before its name appears, and the name is forced to disk before
`keep_beside` returns; so what a receipt names outlives a power cut. Whoever dies before that leaves a temporary file, or
a body that no receipt names: neither counts. Of two that keep under one label the second is refused.
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import quote, unquote

from twice.abilities import KeepsBeside, label_taken
from twice.stores.durable import keep_whole, remove_temporary, sync_way_to

_KEPT = os.path.join("_twice", "kept")


class Beside(KeepsBeside):
    """Bodies beside the tables of a store that keeps each in a folder."""

    @abstractmethod
    def table(self, name: str) -> str:
        """Return the folder of a table."""

    def keep_beside(self, name: str, label: str, body: bytes) -> None:
        """Write a file that never changes, and force it to disk with its name."""
        folder = self._folder(name)
        os.makedirs(folder, exist_ok=True)
        # Always: a folder that somebody else made may not be on disk yet.
        sync_way_to(folder)
        try:
            keep_whole(self._path(name, label), body, "beside")
        except FileExistsError:
            raise label_taken(label) from None

    def beside(self, name: str, label: str) -> bytes | None:
        """Read a file, or return None if it is not there."""
        try:
            with open(self._path(name, label), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def labels_beside(self, name: str) -> Mapping[str, float]:
        """List the files, each with its time."""
        try:
            entries = list(os.scandir(self._folder(name)))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {unquote(entry.name): entry.stat().st_mtime for entry in entries if not entry.name.startswith(".")}

    def drop_beside(self, name: str, labels: Sequence[str]) -> None:
        """Remove files, and what writers that died left behind."""
        if not os.path.isdir(self._folder(name)):
            return
        for label in labels:
            with suppress(FileNotFoundError):
                os.unlink(self._path(name, label))
        remove_temporary(self._folder(name))

    def _folder(self, name: str) -> str:
        return os.path.join(self.table(name), _KEPT)

    def _path(self, name: str, label: str) -> str:
        # Whatever a receipt names stays in the folder, and is never taken for something temporary.
        return os.path.join(self._folder(name), re.sub(r"^\.", "%2E", quote(label, safe="")))
