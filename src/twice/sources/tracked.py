"""What does a user declare of a folder that fills with files?

The folder is walked, and compared with the marks of what the target holds; `sorting` tells what becomes of each file that is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from twice import placeholders
from twice.asides import AsideRow
from twice.errors import Misuse, Waiting, suggestion
from twice.fingerprint import Place
from twice.intervals import parse_length
from twice.marks import FORGOTTEN, Mark
from twice.runs import check_path
from twice.sources.files import Files
from twice.sources.filesets import FileSet
from twice.sources.intake import Intake
from twice.sources.marking import ALGORITHMS
from twice.sources.sorting import Sorting, oldest_first
from twice.sources.walking import walk

CHANGED = ("refuse", "replace", "ignore", "apply")
COPIED = ("skip", "load")


@dataclass(frozen=True)
class Tracked:
    """Files of a folder that fills, each taken in once.

    Attributes:
        files: The pattern, and how files are read.
        on_changed_file: What a known name with new content means: `refuse` the run, `replace` the file's rows,
            `apply` the new rows over the old ones, or `ignore` it.
        on_copied_file: Whether known content under a new name is skipped or loaded.
        quiet_for: How long a file must not have changed, such as `5 minutes`.
        done: Name of a marker beside each file, with `{file}` for the file's own name.
        batch_files: How many files a run takes in at most.
        batch_bytes: How many bytes a run takes in at most; one file is always taken in.
        hash: `xxh3`, or `sha256` where somebody might forge a file.
    """

    files: Files
    on_changed_file: str = field(default="refuse", repr=False)
    on_copied_file: str = field(default="skip", repr=False)
    quiet_for: str | None = field(default=None, repr=False)
    done: str | None = field(default=None, repr=False)
    batch_files: int | None = field(default=None, repr=False)
    batch_bytes: int | None = field(default=None, repr=False)
    hash: str = field(default="xxh3", repr=False)

    def __post_init__(self) -> None:
        _one_of("on_changed_file", self.on_changed_file, CHANGED)
        _one_of("on_copied_file", self.on_copied_file, COPIED)
        _one_of("hash", self.hash, ALGORITHMS)
        for name, most in (("batch_files", self.batch_files), ("batch_bytes", self.batch_bytes)):
            if most is not None and most < 1:
                raise Misuse(f"{name}={most} would take in nothing.", fix="Give a number from 1, or leave it out.")
        if self.done is not None:
            check_path("The marker", self.done)
        if self.quiet_for:
            parse_length(self.quiet_for)
        if placeholders.names_slot(self.files.pattern):
            raise Misuse(
                f"{self.files.pattern!r} names a slot, and an ingest has only one.",
                "What was taken in is told by the marks of the files, and not by a time.",
                "Use wildcards such as landing/**/*.csv, or leave track=True out.",
            )
        if self.on_changed_file == "replace" and not self.files.file_column:
            raise Misuse(
                "on_changed_file='replace' has to find the rows of a file again.",
                fix='Add file_column="source_file", a column that carries each row\'s file, and keep it in the transform.',
            )
        # Told once and for all, and not by the files that happen to be there: a run that finds none needs it too.
        self.files.form_of([])

    @property
    def pattern(self) -> str:
        """The path with wildcards."""
        return self.files.pattern

    def resolve(self, place: Place) -> Intake:
        """Find what the target has not taken in yet.

        Raises:
            Waiting: Nothing was ever taken in, and there is nothing yet.
            BadFile: A file cannot be read, and bad files fail the run.
        """
        taken = place.taken()
        sorting = Sorting(self, place, taken)
        intake = sorting.intake(sorted(walk(place.root, self.pattern, taken.knows), key=oldest_first))
        if intake.nothing and not taken.label:
            what = intake.notes[0] if intake.notes else f"no file matches {self.pattern!r}"
            raise Waiting(
                f"{place.slot.pipeline} has nothing to take in yet: {what}.",
                "Nothing was read and nothing was published.",
                "Run again later; that is always safe.",
            )
        return intake

    def forgetting(self, place: Place, paths: Sequence[str]) -> Intake:
        """Take files for unknown from now on, so that the next run takes them in anew."""
        taken = place.taken()
        found = taken.by_path(paths)
        for path in paths:
            if path not in found or found[path].state == FORGOTTEN:
                raise Misuse(f"{place.slot.target.text} has no file {path!r}.", fix="See: twice files")
        marks = tuple(_forgotten(found[path]) for path in paths)
        return Intake(self, _none_of(self.files, place.root), marks, taken)

    def replaying(self, place: Place, rows: Sequence[AsideRow], labels: Sequence[str]) -> Intake:
        """Take in rows that were set aside, and no file."""
        again = replace(_none_of(self.files, place.root), again=tuple(rows))
        return Intake(self, again, (), place.taken(), replayed=tuple(labels))


def _forgotten(mark: Mark) -> Mark:
    """Return the mark of a file that is looked at anew; its content stays known while its rows are in the table."""
    content, rows = (mark.content, mark.rows) if mark.is_there else ("", None)
    return replace(mark, state=FORGOTTEN, reason="forgotten on request", content=content, rows=rows)


def _none_of(files: Files, root: str) -> FileSet:
    return FileSet(files, root, (), files.form_of([]))


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise Misuse(f"{name}={value!r} is unknown.", fix=suggestion(value, known))
