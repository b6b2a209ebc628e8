"""What becomes of each file that a target does not know?

A file whose name, size and time are known is not looked at again. Of all others the content decides: a file may be new, a copy, changed or
only touched; it may have to wait, since it is still growing or its marker is missing; or it cannot be read at all. Nothing here is
remembered: the marks are those of the table's newest commit, so two that look at the same time come to the same answer or are
told apart at the publish.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from twice.errors import BadFile, NotPublished
from twice.fingerprint import Place
from twice.intervals import parse_length
from twice.marks import FORGOTTEN, PUBLISHED, SEEN, SET_ASIDE, Mark, Taken
from twice.sources import walking
from twice.sources.contents import Look, check_beginning, look_into
from twice.sources.filesets import FileSet
from twice.sources.intake import Intake
from twice.sources.listing import COPYING, misnamed
from twice.sources.marking import FileMark, content_hash_of, is_as_marked, mark_files
from twice.sources.packing import opener
from twice.sources.walking import Entry

if TYPE_CHECKING:
    from twice.sources.tracked import Tracked

_GROWING_SECONDS = 2.0
_BETWEEN_LOOKS_SECONDS = 0.5
_HASHED_AT_ONCE = 500
# What a folder may well hold besides files that are whole; it is named, and does no harm.
_LEFT_FOR_LATER = {
    walking.LEFT_OUT: f"its name begins with '_' or '.', or ends with '{COPYING}', as names of unfinished files do",
    walking.FOLDER: "it is a folder",
    walking.LOOP: "it is a link to a folder that holds it",
    walking.DANGLING: "it is a link to nothing",
}
_CANNOT_BE_READ = {
    walking.OUTSIDE: "leads out of the folder.",
    walking.SPECIAL: "is not a regular file.",
    walking.UNREADABLE: "cannot be looked at.",
}
_STILL_WRITTEN = "it is still being written"
# Stands for the file's own name in the name of its marker.
_OWN_NAME = "{file}"


class Sorting:
    """Tells what becomes of each file that the target does not know by name, size and time."""

    def __init__(self, source: Tracked, place: Place, taken: Taken) -> None:
        self.source = source
        self.place = place
        self.taken = taken
        self.chosen: list[FileMark] = []
        self.marks: list[Mark] = []
        self.leaving: dict[str, None] = {}  # in order, and quick to ask
        self.waiting: dict[str, str] = {}
        self.copies: dict[str, str] = {}
        self.contents: dict[str, str] = {}
        self.brought: dict[str, str] = {}
        self.passed_over: list[tuple[FileMark, Mark | None]] = []
        self.looks: dict[str, Look] = {}
        self.bytes = 0

    def intake(self, entries: Sequence[Entry]) -> Intake:
        """Sort the files, oldest first, until the batch is full."""
        there = self._settled(self._looked_at(entries))
        more = 0
        for number, (mark, known) in enumerate(self._marked(there)):
            if self._is_full(mark):
                more = len(there) - number
                break
            self._sort(mark, known)
        self._sort_copies_again()
        files = FileSet(self.source.files, self.place.root, tuple(self.chosen), self._format()).with_looks(self.looks)
        return Intake(
            self.source,
            files,
            tuple(self.marks),
            self.taken,
            tuple(self.leaving),
            self.waiting,
            self.copies,
            more,
        )

    def _sort_copies_again(self) -> None:
        """Take in copies of what leaves in this very run, so that no content is missing for the time of a run."""
        again, self.passed_over = self.passed_over, []
        for mark, known in again:
            if not self._holder(mark.content) and not self._is_full(mark):
                del self.copies[mark.path]
                self.marks = [one for one in self.marks if one.path != mark.path]
                self._sort(mark, known)
        if not self.chosen and not self.source.files.schema:
            # Without files or a schema nobody knows the columns of no rows: a later run lets the old rows leave.
            self.marks = [mark for mark in self.marks if mark.path not in self.leaving]
            self.leaving = {}

    def _format(self) -> str:
        return self.source.files.form_of([mark.path for mark in self.chosen])

    def _looked_at(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Leave out what is no file to be read, by name."""
        for entry in entries:
            if entry.kind in _LEFT_FOR_LATER:
                self.waiting[entry.path] = _LEFT_FOR_LATER[entry.kind]
                continue
            # What is no link has its own name; a thousand files are asked no more than that.
            real = os.path.join(self.place.root, entry.path)
            real = os.path.basename(real if entry.kind == walking.FILE else os.path.realpath(real))
            why = _CANNOT_BE_READ.get(entry.kind) or misnamed(entry.path, real)
            if why:
                self._refuse(Mark(entry.path, entry.size, entry.mtime_ns, "", None, 0, SET_ASIDE), why)
            else:
                yield entry

    def _settled(self, entries: Iterable[Entry]) -> list[Entry]:
        """Leave out what may still be growing, or whose marker is missing."""
        quiet = parse_length(self.source.quiet_for).total_seconds() if self.source.quiet_for else 0.0
        now = time.time()
        settled: list[Entry] = []
        young: list[Entry] = []
        for entry in entries:
            # A time that is yet to come was set by hand, or by a clock that is ahead.
            age = now - (entry.mtime_ns if entry.mtime_ns / 1e9 <= now else entry.ctime_ns) / 1e9
            if self.source.done and not self._is_done(entry.path):
                self.waiting[entry.path] = f"its marker {self._marker(entry.path)!r} is not there"
            elif abs(age) < quiet:
                self.waiting[entry.path] = f"it changed less than {self.source.quiet_for} ago"
            else:
                (young if age < _GROWING_SECONDS else settled).append(entry)
        return sorted([*settled, *self._grown_up(young)], key=oldest_first)

    def _grown_up(self, young: Sequence[Entry]) -> Iterator[Entry]:
        """Look twice at files that were written a moment ago."""
        if young:
            time.sleep(_BETWEEN_LOOKS_SECONDS)
        for entry in young:
            try:
                status = os.stat(os.path.join(self.place.root, entry.path))
            except OSError:
                self.waiting[entry.path] = "it went away"
                continue
            if (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime_ns):
                yield entry
            else:
                self.waiting[entry.path] = _STILL_WRITTEN

    def _is_done(self, path: str) -> bool:
        return os.path.isfile(os.path.join(self.place.root, self._marker(path)))

    def _marker(self, path: str) -> str:
        folder, name = os.path.split(path)
        return os.path.join(folder, (self.source.done or "").replace(_OWN_NAME, name))

    def _marked(self, entries: Sequence[Entry]) -> Iterator[tuple[FileMark, Mark | None]]:
        """Hash the files in turn, and find what is known of each name."""
        for start in range(0, len(entries), _HASHED_AT_ONCE):
            found = {entry.path: (entry.size, entry.mtime_ns) for entry in entries[start : start + _HASHED_AT_ONCE]}
            paths = list(found)
            known = self.taken.by_path(paths)
            marked = []
            for mark in self._hashed(paths):
                if (mark.size, mark.token[2]) == found[mark.path]:
                    marked.append(mark)
                else:
                    self.waiting[mark.path] = _STILL_WRITTEN
            self.contents.update(
                (content, mark.path) for content, mark in self.taken.by_content([one.content for one in marked]).items()
            )
            self._find_other_hashes(marked)
            for mark in marked:
                yield mark, known.get(mark.path)

    def _find_other_hashes(self, marked: Sequence[FileMark]) -> None:
        """Find contents, too, that were taken in while another algorithm was declared."""
        for algorithm in self.taken.hashes - {self.source.hash}:
            hashed = {mark.path: self._content_by(algorithm, mark) for mark in marked}
            found = self.taken.by_content(hashed.values())
            for mark in marked:
                if hashed[mark.path] in found:
                    self.contents.setdefault(mark.content, found[hashed[mark.path]].path)

    def _content_by(self, algorithm: str, mark: FileMark) -> str:
        """Hash a file by another algorithm; one that cannot be read any more is told of when it is read."""
        if algorithm == self.source.hash:
            return mark.content
        with suppress(BadFile):
            return content_hash_of(self.place.root, mark.path, algorithm)
        return ""

    def _has_content(self, mark: FileMark, known: Mark) -> bool:
        """Tell whether a file has the content that is known under its name, by whichever algorithm."""
        return bool(known.content) and known.content == self._content_by(known.content.partition(":")[0], mark)

    def _hashed(self, paths: Sequence[str]) -> Iterator[FileMark]:
        """Hash files; one that went away meanwhile waits, and one that cannot be read is bad."""
        try:
            yield from list(
                mark_files(self.place.root, paths, self.place.hashes, self.source.files.largest, self.source.hash)
            )
        except BadFile:
            yield from self._hashed_one_by_one(paths)

    def _hashed_one_by_one(self, paths: Sequence[str]) -> Iterator[FileMark]:
        for path in paths:
            try:
                yield from mark_files(
                    self.place.root, [path], self.place.hashes, self.source.files.largest, self.source.hash
                )
            except BadFile as error:
                if os.path.lexists(os.path.join(self.place.root, path)):
                    self._refuse(Mark(path, 0, 0, "", None, 0, SET_ASIDE), error.reason)
                else:
                    self.waiting[path] = "it went away"

    def _is_full(self, mark: FileMark) -> bool:
        if not self.chosen:
            return False
        files, size = self.source.batch_files, self.source.batch_bytes
        return bool((files and len(self.chosen) >= files) or (size and self.bytes + mark.size > size))

    def _sort(self, mark: FileMark, known: Mark | None) -> None:
        """Decide what becomes of one file."""
        if known and known.state in (PUBLISHED, SET_ASIDE) and self._has_content(mark, known):
            if known.state == SET_ASIDE and known.is_there:
                # It was bad in between, and is again what the table holds.
                whole = replace(known, size=mark.size, mtime_ns=mark.token[2], state=PUBLISHED, reason="")
                self.marks.append(whole)
            return  # only touched
        if known and known.is_there and known.state != FORGOTTEN and not self._takes_change(mark.path):
            return
        other = self._holder(mark.content)
        # The same bytes are other rows, or none, if the name says that they are packed in another way.
        is_copy = other is not None and other != mark.path and opener(other) is opener(mark.path)
        if other and is_copy and self.source.on_copied_file == "skip":
            self._pass_over(mark, known, other)
            return
        why = self._why_bad(mark)
        if not why:
            self._take(mark, known)
        elif is_as_marked(self.place.root, mark):
            self._refuse(Mark(mark.path, mark.size, mark.token[2], mark.content, None, 0, SET_ASIDE), why)
        else:
            # What was looked into is not what was hashed: it says nothing about that content.
            self.waiting[mark.path] = _STILL_WRITTEN

    def _holder(self, content: str) -> str | None:
        """Name the file from which the table will have this content; what leaves with this publish does not count."""
        there = self.contents.get(content)
        return self.brought.get(content) or (None if there in self.leaving else there)

    def _pass_over(self, mark: FileMark, known: Mark | None, other: str) -> None:
        """Leave a copy out; what the table has of an older content of this file leaves."""
        self.copies[mark.path] = other
        self.passed_over.append((mark, known))
        replaces = self.source.on_changed_file == "replace"
        if known is None or (known.state, known.content) == (SEEN, mark.content) or (known.is_there and not replaces):
            return
        if replaces and known.is_there:
            self._leaves(known)
        reason = f"has the content of {other}"
        self.marks.append(Mark(mark.path, mark.size, mark.token[2], mark.content, None, 0, SEEN, reason))

    def _why_bad(self, mark: FileMark) -> str:
        """Say why a file cannot be used; where that fails the run, its end is looked at when it is read."""
        files = self.source.files
        try:
            form = files.form_of([mark.path])
            check_beginning(mark.path, mark.real, files, form)
            if files.on_bad_file == "set_aside":
                self.looks[mark.path] = look_into(mark.path, mark.real, files, form)
        except BadFile as error:
            return error.reason
        except OSError as error:
            return f"cannot be read: {error.strerror or error}."
        return ""

    def _take(self, mark: FileMark, known: Mark | None) -> None:
        self.chosen.append(mark)
        self.bytes += mark.size
        self.brought[mark.content] = mark.path
        self.marks.append(Mark(mark.path, mark.size, mark.token[2], mark.content, None, 0, PUBLISHED))
        if known and known.is_there:
            self._leaves(known)

    def _leaves(self, known: Mark) -> bool:
        """Let the older rows of a file leave, if they can be told by their column.

        Raises:
            NotPublished: They have to leave, and came in before there was the column.
        """
        column = self.source.files.file_column
        if column and self.taken.column_of(known) == column:
            self.leaving[known.path] = None
            return True
        if known.state == PUBLISHED and self.source.on_changed_file == "replace":
            raise NotPublished(
                f"The file {known.path!r} has other content now, and its older rows do not carry it in {column!r}.",
                "They came in before the column was declared, and would stay beside the new ones; nothing was published.",
                "Give the new content a new name, or write to a new target that has the column from its first rows on.",
            )
        return False

    def _takes_change(self, path: str) -> bool:
        """Tell whether a known name with new content is taken in.

        Raises:
            NotPublished: The source says that this must not happen.
        """
        if self.source.on_changed_file == "refuse":
            raise NotPublished(
                f"The file {path!r} was taken in already, and has other content now.",
                "Its rows could be there twice, or be lost; nothing was published.",
                "Say what it means: on_changed_file='replace', 'apply' or 'ignore'; or give the new content a new name.",
            )
        if self.source.on_changed_file == "ignore":
            self.waiting[path] = "its content changed, which is ignored"
            return False
        return True

    def _refuse(self, mark: Mark, why: str) -> None:
        """Set a bad file aside, once, or fail. Rows of an older content stay, and the mark tells of them.

        Raises:
            BadFile: Bad files fail the run.
        """
        known = self.taken.by_path([mark.path]).get(mark.path)
        if known and known.state == SET_ASIDE and (known.content == mark.content or _same_look(known, mark)):
            return
        if self.source.files.on_bad_file != "set_aside":
            raise BadFile(mark.path, why)
        if known and known.is_there:
            mark = replace(mark, content=known.content, rows=known.rows, generation=known.generation)
            why += " The table has the rows of its older content."
        self.marks.append(replace(mark, reason=why))


def _same_look(one: Mark, other: Mark) -> bool:
    return (one.size, one.mtime_ns) == (other.size, other.mtime_ns)


def oldest_first(entry: Entry) -> tuple[int, str]:
    """Files that came first are taken in first."""
    return (entry.mtime_ns, entry.path)
