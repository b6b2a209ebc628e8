"""Which lines of a text file are rows?

Lines end as Hadoop ends them, for Spark reads them so: with a line feed, a carriage return, or both. Blank lines, lines of
comment and the header of a CSV file are no rows. Files are read in pieces, each a number of whole lines, so that memory
does not grow with the file; lines of a piece are looked at one by one only where something in it asks for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from twice.sources.listing import bad

_PIECE_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 256 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Java's trim takes all of these from the ends of a line.
_BLANK_IN_CSV = bytes(range(0x21))
BLANK_IN_JSON = b" \t\r\n"
_MAYBE_BLANK = re.compile(rb"\n[\x00-\x20]")
_LISTED = re.compile(rb"\n[ \t]*\[")


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Read some bytes, none at the end."""


@dataclass(frozen=True)
class Lines:
    """How the lines of a kind of file are told apart. With `one_row_each`, a list of JSON objects is a row, and a bad one."""

    form: str
    header: bool = False
    comment: bytes = b""
    one_row_each: bool = False

    def is_row(self, line: bytes) -> bool:
        """Tell whether a line is one that Spark would parse; a header is still among them."""
        if self.form == "json":
            return bool(line.strip(BLANK_IN_JSON))
        return bool(line.strip(_BLANK_IN_CSV)) and not (self.comment and line.startswith(self.comment))


@dataclass
class Tally:
    """What was counted in a file: rows, or None where a line may hold several; the header; where it stands again."""

    rows: int | None = 0
    header: bytes | None = None
    header_again: int = 0


def pieces(name: str, file: Readable) -> Iterator[bytes]:
    """Yield whole lines, many at a time, each ended by a line feed; the last line may have had no end.

    Raises:
        BadFile: A line is too long to be a row of anything.
    """
    begun: list[bytes] = []
    length = 0
    held = b""  # a carriage return at the end of a piece: the line feed that belongs to it may follow
    first = True
    while chunk := file.read(_PIECE_BYTES):
        if first:
            chunk, first = chunk.removeprefix(_BYTE_ORDER_MARK), False
        chunk = held + chunk
        held = b"\r" if chunk.endswith(b"\r") else b""
        chunk = _ended_alike(chunk.removesuffix(b"\r") if held else chunk)
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*begun, chunk[:end]])
            begun, length = [], 0
        begun.append(chunk[end:])
        length += len(chunk) - end
        if length > _LONGEST_LINE_BYTES:
            raise bad(name, f"has a line of more than {_LONGEST_LINE_BYTES:,} bytes.")
    rest = b"".join(begun)
    if rest or held:
        yield rest + b"\n"


def _ended_alike(chunk: bytes) -> bytes:
    return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in chunk else chunk


def numbered(name: str, file: Readable) -> Iterator[tuple[int, bytes]]:
    """Yield every line with its number, as an editor counts them."""
    number = 0
    for piece in pieces(name, file):
        for line in piece[:-1].split(b"\n"):
            number += 1
            yield number, line


def count(piece: bytes, before: int, lines: Lines, tally: Tally) -> None:
    """Add what a piece holds to the tally; `before` is how many lines came before it."""
    if lines.header and tally.header is None:
        piece, passed = _after_header(piece, lines, tally)
        before += passed
        if not piece:
            return
    opened = b"\n" + piece
    if lines.form == "json" and not lines.one_row_each and b"[" in piece and _LISTED.search(opened):
        tally.rows = None  # Spark makes a row of each object in the list
    if tally.rows is None:
        return
    looks_plain = not (
        (tally.header is not None and tally.header in piece)
        or (lines.comment and b"\n" + lines.comment in opened)
        or _MAYBE_BLANK.search(opened)
    )
    tally.rows += piece.count(b"\n") if looks_plain else _rows_one_by_one(piece, before, lines, tally)


def _after_header(piece: bytes, lines: Lines, tally: Tally) -> tuple[bytes, int]:
    """Find the header, and return what follows it with the number of lines that came before that."""
    start = passed = 0
    while start < len(piece) and tally.header is None:
        end = piece.index(b"\n", start)
        line = piece[start:end]
        if lines.is_row(line):
            tally.header = line
        start, passed = end + 1, passed + 1
    return piece[start:], passed


def _rows_one_by_one(piece: bytes, before: int, lines: Lines, tally: Tally) -> int:
    found = 0
    for number, line in enumerate(piece[:-1].split(b"\n"), before + 1):
        if not lines.is_row(line):
            continue
        if lines.header and line == tally.header:
            tally.header_again = tally.header_again or number
        found += 1
    return found
