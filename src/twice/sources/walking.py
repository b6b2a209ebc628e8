"""Which files lie in a folder, now?

One pass with `os.scandir` and one `stat` for each file. Patterns mean what they mean for `listing.matching`, and what that
would pass over is named here, with the reason as its kind: nothing in a folder is left out without a word. Each folder is
read once, whatever the pattern; the order of the files is that of the disk.
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import methodcaller
from typing import NamedTuple

from twice.errors import Misuse
from twice.sources.listing import folder_of, is_hidden

FILE = "file"
LINK = "link"  # to a regular file inside of the pattern's folder
OUTSIDE = "link to the outside"  # it, or a folder on the way to it, leads out of the pattern's folder
LEFT_OUT = "left out"  # it, or the file behind it, has a name that Spark passes over
FOLDER = "folder"
SPECIAL = "not a regular file"
DANGLING = "link to nothing"
LOOP = "link to a folder that holds it"
UNREADABLE = "unreadable"
FILES = (FILE, LINK, OUTSIDE)  # what can be read

Known = Callable[[str, int, int], bool]

_NO_STATUS = os.stat_result([0] * 10)
_MAY_BE_HIDDEN = ("_", ".")  # at the beginning, told in full by `is_hidden`
_ANY_DEPTH = "**"
_TYPE = 0o170000  # the bits of a mode that tell files, folders and the others apart
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
_LEADS_NOWHERE = (*_NOT_THERE, errno.ELOOP)


class Entry(NamedTuple):
    """One name that a pattern matches, as it is now; `kind` tells whether it is a file that can be taken in."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    kind: str


def walk(root: str, pattern: str, known: Known | None = None) -> Iterator[Entry]:
    """Return all that matches a pattern under a root, files and what is no file, as it is found.

    A link to a file is followed, and so is one to a folder, unless that folder holds the link. A folder that cannot be
    read is an entry of its own. Files of which `known` says so, by path, size and time, are passed over.
    """
    if pattern.endswith(os.sep):
        raise Misuse(f"{pattern!r} names folders.", fix=f"Write {pattern}* for the files in them.")
    walking = _Walk(root, pattern, known or _nothing_is_known)
    named = _named(root, pattern)
    if named is not None:
        return walking.look(named, outside=False)
    return walking.all() if glob.has_magic(pattern) else iter(())


def _named(root: str, pattern: str) -> str | None:
    """Return the path that a pattern names by itself, although it may look like one with wildcards."""
    literal = pattern.replace("[[]", "[").replace("[*]", "*").replace("[?]", "?")
    for name in (literal, pattern):
        if os.path.lexists(os.path.join(root, name)):
            return os.path.normpath(name)
    return None


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder to be read: which parts of the pattern its names may match, and whether it lies outside."""

    path: str
    parts: frozenset[int]
    outside: bool


class _Walk:
    def __init__(self, root: str, pattern: str, known: Known) -> None:
        self.root, self.known = root, known
        parts = [part for part in pattern.split(os.sep) if part not in ("", ".")]
        fixed = next((number for number, part in enumerate(parts) if glob.has_magic(part)), max(len(parts) - 1, 0))
        self.start = os.path.normpath(os.path.join("/" if pattern.startswith("/") else "", *parts[:fixed], ""))
        self.parts = parts[fixed:]
        self.matches = [_matcher(part) for part in self.parts]
        self.last = len(self.parts) - 1
        # Where every name matches at every depth, folders are looked into and are nothing of their own.
        self.names_folders = self.parts[-1] != _ANY_DEPTH and self.parts[-2:] != [_ANY_DEPTH, "*"]
        self.base = os.path.realpath(os.path.join(root, folder_of(pattern)))

    def all(self) -> Iterator[Entry]:
        """Read one folder after the other."""
        pending = [_Folder(self.start, self._with_none_between({0}), outside=False)]
        while pending:
            folder = pending.pop()
            try:
                opened = os.open(os.path.join(self.root, folder.path), os.O_RDONLY | os.O_DIRECTORY)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    yield _nothing_known(folder.path, UNREADABLE)
                continue
            try:
                yield from self._read(folder, opened, pending)
            except OSError:  # of the folder: what is wrong with a file is told with its kind
                yield _nothing_known(folder.path, UNREADABLE)
            finally:
                os.close(opened)

    def _read(self, folder: _Folder, opened: int, pending: list[_Folder]) -> Iterator[Entry]:
        """Return the files of one folder, and note the folders in it that are to be read.

        A million files pass here, each by the shortest way: looked at from the open folder, and not by its whole path.
        """
        prefix = "" if folder.path == os.curdir else os.path.join(folder.path, "")
        matches = self.matches[self.last] if self.last in folder.parts else _never
        goes_on = folder.parts != {self.last} or self.parts[self.last] == _ANY_DEPTH
        plain, is_file, known = not folder.outside, stat.S_IFREG, self.known
        with os.scandir(opened) as names:
            for found in names:
                name = found.name
                if matches(name):
                    if plain and name[0] not in _MAY_BE_HIDDEN and name[-1] != "_" and not found.is_symlink():
                        try:
                            status = found.stat()
                        except OSError:
                            status = _NO_STATUS  # the longer way says why
                        if status.st_mode & _TYPE == is_file:
                            path, size, modified = prefix + name, status.st_size, status.st_mtime_ns
                            if not known(path, size, modified):
                                yield Entry(path, size, modified, status.st_ctime_ns, status.st_ino, FILE)
                            continue
                    if _is_folder(found):
                        yield from self._enter(folder, found, prefix + name, pending, matched=True)
                    else:
                        yield from self.look(prefix + name, outside=folder.outside)
                elif goes_on and _is_folder(found):
                    yield from self._enter(folder, found, prefix + name, pending, matched=False)

    def _enter(
        self, folder: _Folder, found: os.DirEntry[str], path: str, pending: list[_Folder], *, matched: bool
    ) -> Iterator[Entry]:
        """Note a folder that is to be read, or say why it is not."""
        below = self._below(folder.parts, found.name)
        named = matched and self.names_folders
        if is_hidden(found.name):
            if below or named:
                yield _nothing_known(path, LEFT_OUT)
            return
        if named:
            yield _nothing_known(path, FOLDER)
        if not below:
            return
        if not found.is_symlink():
            pending.append(_Folder(path, below, folder.outside))
        elif self._holds_itself(path):
            yield _nothing_known(path, LOOP)
        else:
            pending.append(_Folder(path, below, self._leads_out(path)))

    def _below(self, parts: frozenset[int], name: str) -> frozenset[int]:
        """Return the parts of the pattern that names in a folder of this name may match."""
        stays = {number for number in parts if self.parts[number] == _ANY_DEPTH}
        steps = {number + 1 for number in parts - stays if number < self.last and self.matches[number](name)}
        return self._with_none_between(stays | steps)

    def _with_none_between(self, parts: set[int]) -> frozenset[int]:
        """Add what may follow at once: `**` also stands for no folder at all."""
        reached = set(parts)
        for number in range(self.last):
            if number in reached and self.parts[number] == _ANY_DEPTH:
                reached.add(number + 1)
        return frozenset(reached)

    def look(self, path: str, *, outside: bool) -> Iterator[Entry]:
        """Return one name that is no folder to be read, unless it vanished."""
        full = os.path.join(self.root, path)
        try:
            status = os.stat(full)
        except OSError as error:
            if error.errno not in _LEADS_NOWHERE:
                yield _nothing_known(path, UNREADABLE)
            elif os.path.islink(full):
                yield _nothing_known(path, DANGLING)
            return
        kind = self._kind(path, status, outside=outside)
        if kind not in FILES or not self.known(path, status.st_size, status.st_mtime_ns):
            yield Entry(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, kind)

    def _kind(self, path: str, status: os.stat_result, *, outside: bool) -> str:
        full = os.path.join(self.root, path)
        is_link = os.path.islink(full)
        behind = os.path.basename(os.path.realpath(full)) if is_link else ""
        if is_hidden(os.path.basename(path)) or is_hidden(behind):
            return LEFT_OUT
        if not stat.S_ISREG(status.st_mode):
            return FOLDER if stat.S_ISDIR(status.st_mode) else SPECIAL
        if is_link:
            return OUTSIDE if self._leads_out(path) else LINK
        return OUTSIDE if outside else FILE

    def _leads_out(self, path: str) -> bool:
        real = os.path.realpath(os.path.join(self.root, path))
        return not (real + os.sep).startswith(os.path.join(self.base, ""))

    def _holds_itself(self, path: str) -> bool:
        """Tell whether a link leads to one of the folders on the way to it."""
        target, above = self._folder(path), path
        while above != self.start:
            above = os.path.dirname(above) or os.curdir
            if self._folder(above) == target:
                return True
        return False

    def _folder(self, path: str) -> tuple[int, int] | None:
        """Tell folders apart, whatever the names under which they are reached."""
        try:
            status = os.stat(os.path.join(self.root, path))
        except OSError:
            return None
        return status.st_dev, status.st_ino


def _matcher(part: str) -> Callable[[str], object]:
    """Return what tells whether a name matches a part of a pattern, by the shortest way."""
    if part == _ANY_DEPTH:
        return _matcher("*")
    if part.startswith("*") and not glob.has_magic(part[1:]):
        return methodcaller("endswith", part[1:])
    return re.compile(fnmatch.translate(part)).match


def _nothing_is_known(_path: str, _size: int, _mtime_ns: int) -> bool:
    return False


def _never(_: str) -> bool:
    return False


def _is_folder(found: os.DirEntry[str]) -> bool:
    try:
        return found.is_dir()
    except OSError:
        return False


def _nothing_known(path: str, kind: str) -> Entry:
    return Entry(path, 0, 0, 0, 0, kind)
