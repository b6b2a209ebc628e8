"""What does one run of an ingest take in, and what does it leave for later?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from twice.abilities import Rows
from twice.marks import FORGOTTEN, SET_ASIDE, Mark, Taken
from twice.sources.filesets import FileSet

if TYPE_CHECKING:
    from twice.sources.tracked import Tracked

_NAMED = 3


@dataclass(frozen=True)
class Intake:
    """What one run takes in.

    Attributes:
        source: What was declared.
        files: The files, and rows set aside earlier, that are read.
        marks: Marks that change with the publish; those of files that are read lack their rows until they are counted.
        taken: What the target had taken in before.
        leaving: Files whose older rows leave; new ones come in their place, unless the file is a copy of another one now.
        waiting: Files that are left for later, each with the reason.
        copies: Files whose content is known under another name, which is named.
        more: How many files are left to later runs.
        replayed: Labels of rows set aside that are read again.
    """

    source: Tracked
    files: FileSet
    marks: tuple[Mark, ...]
    taken: Taken = field(repr=False)
    leaving: tuple[str, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    more: int = 0
    replayed: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Tell whether there is nothing to publish."""
        return not (self.marks or self.replayed)

    @property
    def news(self) -> str:
        """Why there is something to publish, in words."""
        if self.replayed:
            return "rows that were set aside are read again"
        if self.marks and not self.moves_rows and self._forgets:
            return "files are forgotten"
        changed, new = set(self.leaving), {mark.path for mark in self.marks} - set(self.leaving)
        return "; ".join(filter(None, ["there are new files" if new or not changed else "", _came_again(len(changed))]))

    @property
    def takes_away(self) -> str:
        """Name the files whose older rows leave, and how many rows these are; or nothing."""
        known = self.taken.by_path(self.leaving)
        rows = [known[path].rows if path in known else None for path in self.leaving]
        total = "" if None in rows else f"{sum(filter(None, rows)):,} "
        return f"the {total}older rows of {_listed([repr(path) for path in self.leaving])}" if self.leaving else ""

    @property
    def _forgets(self) -> bool:
        return all(mark.state == FORGOTTEN for mark in self.marks)

    @property
    def moves_rows(self) -> bool:
        """Tell whether rows come or go."""
        return bool(self.files.marks or self.files.again or self.leaving)

    @property
    def facts(self) -> Any:
        """What is done with each file, and the rows that are read again."""
        marks = sorted([mark.state, mark.path, mark.size, mark.content] for mark in self.marks)
        return [["taken in", *mark] for mark in marks] + [["again", label] for label in sorted(self.replayed)]

    @property
    def summary(self) -> str:
        """Count and size, and what is left for later."""
        return "; ".join((self.files.summary, *self.notes))

    @property
    def notes(self) -> tuple[str, ...]:
        """Name every file that is not taken in."""
        aside = {mark.path: mark.reason for mark in self.marks if mark.state == SET_ASIDE}
        notes = [
            _named(self.waiting, "waits", "wait"),
            _named({path: f"as {of}" for path, of in self.copies.items()}, "has known content", "have known content"),
            _named(aside, "is set aside", "are set aside"),
            f"{self.more} more {'is' if self.more == 1 else 'are'} left to the next run" if self.more else "",
        ]
        return tuple(filter(None, notes))

    def without(self, names: Iterable[str]) -> Intake:
        """Return the same without some files, which are left for later.

        Left out with them is what was decided because of them: copies of one that does not come now, and files with the content
        of one whose old rows stay.
        """
        gone, more = set[str](), set(names)
        while more - gone:
            gone |= more
            stays = {mark.content for mark in self.taken.by_path(gone).values() if mark.is_there}
            more = {path for path, other in self.copies.items() if other in gone}
            more |= {mark.path for mark in self.files.marks if mark.content in stays}
        return replace(
            self,
            files=self.files.without(gone),
            marks=tuple(mark for mark in self.marks if mark.path not in gone),
            leaving=tuple(path for path in self.leaving if path not in gone),
            copies={path: other for path, other in self.copies.items() if path not in gone},
            waiting={**self.waiting, **dict.fromkeys(sorted(gone), "it changed while it was read")},
        )

    def left_since(self, before: Intake | None) -> tuple[str, ...]:
        """Name the files that are left for later, and were not before."""
        known = before.waiting if before else {}
        new = {path: why for path, why in self.waiting.items() if path not in known}
        return tuple(filter(None, [_named(new, "waits", "wait")]))

    def moved(self) -> list[str]:
        """Name the files that changed since they were looked at."""
        return self.files.moved()

    def read(self, engine: Any) -> Rows:
        """Return the rows."""
        return self.files.read(engine)


def _came_again(count: int) -> str:
    """Say that known files are ingested anew."""
    if not count:
        return ""
    return f"{count} {'file that is' if count == 1 else 'files that are'} in the table changed, and {'its' if count == 1 else 'their'} older rows leave"


def _listed(shown: Sequence[str]) -> str:
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return f"{', '.join(shown[:_NAMED])}{more}"


def _named(found: Mapping[str, str], one: str, several: str) -> str:
    if not found:
        return ""
    shown = _listed([f"{path!r} ({why})" for path, why in found.items()])
    return f"{len(found)} {'file' if len(found) == 1 else 'files'} {one if len(found) == 1 else several}: {shown}"
