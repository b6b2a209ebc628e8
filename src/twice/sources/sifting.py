"""Which rows of the files may go on, and what becomes of the others?

Lines are read as text and parsed one by one, as Spark's own readers do where a row is a line; so each row that cannot be
used is known with its text. One pass counts the rows of each file and gathers those that are set aside. Their line
numbers are found by reading the files that they stand in once more: equal lines are equally bad.

Nothing gets lost on the way: the rows that Spark saw of each file are as many as were counted in Python when its bytes
were looked at, and each of them is either handed on or set aside.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from twice.asides import AsideRow, line_of, row_of, text_of
from twice.errors import NotPublished
from twice.rules import allowed
from twice.sources.judging import ANSWER, FILE, FORM, LINE, RAW, judged_rows, raw_of, reasons_of
from twice.sources.listing import bad
from twice.sources.packing import unpacked
from twice.sources.scanning import numbered

if TYPE_CHECKING:
    from twice.sources.filesets import FileSet
    from twice.sources.reasons import Reasons

_IN_MEMORY_BYTES = 8 << 20
_LINES_AT_ONCE = 100_000
_LINE_BYTES_AT_ONCE = 64 << 20
_MOST_SHOWN = 5


@dataclass
class FileRows:
    """What became of the rows of one file."""

    handed: int = 0
    aside: int = 0

    @property
    def parsed(self) -> int:
        """How many rows it has."""
        return self.handed + self.aside


@dataclass
class Sifted:
    """What one pass over the files found. The rows that were set aside are kept on disk, if they are many."""

    files: Mapping[str, FileRows]
    _rows: IO[bytes] = field(repr=False)

    @property
    def parsed(self) -> int:
        """How many rows the files have."""
        return sum(rows.parsed for rows in self.files.values())

    @property
    def set_aside(self) -> int:
        """How many of them were set aside."""
        return sum(rows.aside for rows in self.files.values())

    def rows(self) -> Iterator[AsideRow]:
        """Yield the rows that were set aside, by file and line."""
        self._rows.seek(0)
        yield from map(row_of, self._rows)


def sift(chosen: FileSet, spark: Any) -> Sifted:
    """Judge all rows, count them, and gather those that are set aside.

    Raises:
        BadFile: Spark and the look at the bytes do not see the same rows in a file.
        NotPublished: More rows would be set aside than may.
    """
    expected = chosen.expected()
    # Rows that are read again were allowed once: those that are still bad fail no run.
    parsed = sum(expected.values()) - len(chosen.again)
    gathering = _Gathering(chosen, allowed(chosen.source.max_quarantined, parsed))
    if expected:
        frame = judged_rows(chosen, spark)
        gathering.reasons = reasons_of(chosen, frame)
        for row in _tallied(chosen, frame).toLocalIterator():
            gathering.take(row)
        gathering.find_lines()
    for name, rows in expected.items():
        seen = gathering.files.get(name, FileRows()).parsed
        if seen != rows:
            raise bad(name, f"has {rows:,} rows by its lines, of which Spark saw {seen:,}.")
    return gathering.done(parsed)


def _tallied(chosen: FileSet, frame: Any) -> Any:
    """Count good rows by file, and rows that are set aside by file and text: one pass for both."""
    from pyspark.sql import functions as F

    aside = F.col(ANSWER).isNotNull()
    keys = [F.when(aside, column).alias(name) for name, column in ((LINE, F.col(LINE)), (FORM, F.col(FORM)))]
    raw = F.when(aside, raw_of(chosen, frame)).alias(RAW)
    return frame.groupBy(FILE, *keys, ANSWER, raw).count().orderBy(FILE, LINE, RAW)


@dataclass
class _Gathering:
    """Takes what Spark tallied, file by file, and keeps no more in memory than it must."""

    chosen: FileSet
    limit: int
    files: dict[str, FileRows] = field(default_factory=dict)
    shown: list[AsideRow] = field(default_factory=list)
    aside: int = 0
    reasons: Reasons | None = None
    spool: IO[bytes] = field(default_factory=lambda: tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES))  # noqa: SIM115 - lives as long as its rows
    name: str = ""
    again: frozenset[tuple[str, int, bytes]] = field(init=False)
    wanted: dict[bytes, tuple[str, str, int]] = field(default_factory=dict)
    wanted_bytes: int = 0

    def __post_init__(self) -> None:
        self.again = frozenset((row.file, row.line, row.raw_bytes) for row in self.chosen.again)

    def take(self, row: Any) -> None:
        """Take one line of the tally."""
        name, count = row[FILE], row["count"]
        rows = self.files.setdefault(name, FileRows())
        if row[ANSWER] is None:
            rows.handed += count
            return
        rows.aside += count
        raw = bytes(row[RAW])
        if (name, row[LINE], raw) not in self.again:
            self.aside += count
        if len(self.shown) >= _MOST_SHOWN and self.aside > self.limit:
            return  # the run fails, and enough is known to say why
        reason = self.reasons.of(row[FORM], raw, row[ANSWER]) if self.reasons else ""
        if row[LINE] is not None:
            for _ in range(count):
                self._keep(AsideRow(name, row[LINE], text_of(raw), row[FORM], reason))
            return
        if name != self.name or len(self.wanted) >= _LINES_AT_ONCE or self.wanted_bytes >= _LINE_BYTES_AT_ONCE:
            self.find_lines()
        self.name = name
        self.wanted[raw] = (row[FORM], reason, count)
        self.wanted_bytes += len(raw)

    def find_lines(self) -> None:
        """Find the numbers of the lines that were set aside, in the file that they stand in."""
        wanted, self.wanted, self.wanted_bytes = self.wanted, {}, 0
        left = sum(count for _, _, count in wanted.values())
        if not wanted:
            return
        mark = next(mark for mark in self.chosen.marks if mark.path == self.name)
        with unpacked(mark.path, mark.real, self.chosen.source.largest) as file:
            for number, line in numbered(mark.path, file):
                if line in wanted:
                    form, reason, _ = wanted[line]
                    self._keep(AsideRow(mark.path, number, text_of(line), form, reason))
                    left -= 1
        if left:
            raise bad(mark.path, "has lines that Spark read differently: it may have changed while it was read.")

    def _keep(self, row: AsideRow) -> None:
        if len(self.shown) < _MOST_SHOWN:
            self.shown.append(row)
        if self.aside <= self.limit:
            self.spool.write(line_of(row))

    def done(self, parsed: int) -> Sifted:
        """Return what was found.

        Raises:
            NotPublished: More rows would be set aside than may.
        """
        if self.aside > self.limit:
            raise _too_many(self, parsed)
        return Sifted(self.files, self.spool)


def _too_many(found: _Gathering, parsed: int) -> NotPublished:
    limit = found.chosen.source.max_quarantined
    most = "none" if not found.limit and not isinstance(limit, str) else f"{found.limit:,}"
    share = f" ({limit})" if isinstance(limit, str) else ""
    first = "; ".join(f"{row.file}:{row.line}: {row.reason}" for row in found.shown)
    more = found.aside - len(found.shown)
    return NotPublished(
        f"{found.aside:,} of {parsed:,} rows cannot be used, and {most}{share} may be set aside."
        f" {first}{f'; and {more:,} more' if more > 0 else ''}.",
        "Nothing was published, and the target is as it was.",
        "Correct the files, the schema or the rules, or allow more with max_quarantined=, and run again.",
    )
