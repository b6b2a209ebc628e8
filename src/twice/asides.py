"""How are rows kept that were set aside?

With the file and the line that they stood in, their raw text, and why they were set aside. A body is gzip over lines of
JSON; its bytes follow from its rows alone, so that a run that is done again writes the same bodies. What is not UTF-8 in
a raw text is kept byte by byte, as surrogates, and comes back as the same bytes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice

from twice.errors import NotPublished

ROWS_IN_A_BODY = 10_000
_MAKES_BYTES_TEXT = "surrogateescape"


@dataclass(frozen=True, slots=True)
class AsideRow:
    """One row that was set aside.

    `form` tells what the raw text is: a line of `csv` or `json`, or a `row` of a Parquet file written as JSON.
    `line` counts from 1, as an editor does; for a row of a Parquet file it is its number.
    """

    file: str
    line: int
    raw: str
    form: str
    reason: str

    @property
    def raw_bytes(self) -> bytes:
        """The raw text as it stood in the file."""
        return self.raw.encode("utf-8", _MAKES_BYTES_TEXT)


def text_of(raw: bytes) -> str:
    """Return bytes as text, from which the same bytes come back."""
    return raw.decode("utf-8", _MAKES_BYTES_TEXT)


def line_of(row: AsideRow) -> bytes:
    """Write one row as a line of JSON."""
    return json.dumps(asdict(row), sort_keys=True).encode() + b"\n"


def row_of(line: bytes) -> AsideRow:
    """Read one row back."""
    return AsideRow(**json.loads(line))


def bodies(rows: Iterable[AsideRow]) -> Iterator[tuple[int, bytes]]:
    """Cut rows into bodies, each with the number of its rows; no more than one body is held in memory."""
    remaining = iter(rows)
    while chunk := list(islice(remaining, ROWS_IN_A_BODY)):
        yield len(chunk), encode(chunk)


def encode(rows: Iterable[AsideRow]) -> bytes:
    """Write the rows of one body."""
    return gzip.compress(b"".join(map(line_of, rows)), mtime=0)


def decode(body: bytes) -> list[AsideRow]:
    """Read the rows of one body.

    Raises:
        NotPublished: The body is damaged.
    """
    try:
        return [row_of(line) for line in gzip.decompress(body).splitlines()]
    except (OSError, EOFError, zlib.error, ValueError, TypeError) as error:
        raise NotPublished(
            f"Rows that were set aside cannot be read back: {error}.",
            "What is kept beside the table is damaged; the table itself is as it was.",
            "Restore the folder from a backup, or drop these rows with: twice quarantine drop",
        ) from error
