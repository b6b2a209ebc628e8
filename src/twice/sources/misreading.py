"""Which lines would Spark read without a word as something else?

A quotation mark that is never closed in the last field of a CSV line, more than one JSON object on a line, a key that is there
twice, half of a surrogate pair: Spark gives a row for each of them. Here a quick look at each line finds those that might be so,
and only these are taken apart. Good files cost the quick look alone.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twice.sources.keys import Keys, misspelt, names_of
from twice.sources.listing import bad
from twice.sources.reasons import HALF_PAIR, fields_of

_GOES_ON = re.compile(rb"\}[ \t]*(?:[^\s,\]\}]|,[ \t]*\{)")
_MAYBE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_HALF_PAIR = re.compile(HALF_PAIR)
_SHOWN = 80


@dataclass
class CsvLines:
    """Looks for quotation marks that are never closed where Spark does not notice: in the last field."""

    name: str
    columns: Sequence[str]
    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    comment: bytes = b""
    _before: bytes = field(init=False)

    def __post_init__(self) -> None:
        # What the last mark of a line follows if it may be one that opens a field, or one that closes none.
        self._before = (self.separator + self.escape).encode()

    def check(self, piece: bytes) -> None:
        """Look at some whole lines.

        Raises:
            BadFile: A quotation mark is never closed.
        """
        if len(self.separator) != 1 or len(self.quote) != 1 or self.quote.encode() not in piece:
            return
        for line in self._suspected(piece):
            if not (self.comment and line.startswith(self.comment)) and self._is_open_at_its_end(line):
                raise bad(self.name, f"has a quotation mark that is never closed: {_shown(line)}.")

    def _suspected(self, piece: bytes) -> Iterator[bytes]:
        quote, before = self.quote.encode(), self._before
        for line in piece.split(b"\n"):
            at = line.rfind(quote)
            if at == 0 or (at > 0 and line[at - 1] in before):
                yield line

    def _is_open_at_its_end(self, line: bytes) -> bool:
        """Tell whether the last field is never closed. If another one is, Spark finds too few fields, and says so."""
        text = line.decode(errors="replace")
        try:
            self._fields(text)
        except csv.Error as error:
            return "unexpected end" in str(error) and self._has_all_fields(text + self.quote)
        return False

    def _has_all_fields(self, text: str) -> bool:
        try:
            return len(self._fields(text)) == len(self.columns)
        except csv.Error:
            return True

    def _fields(self, text: str) -> list[str]:
        return fields_of(text, self.separator, self.quote, self.escape, doubled=self.escape == self.quote)


@dataclass
class JsonLines:
    """Looks for lines of which Spark would read a part, or the last of two values."""

    name: str
    columns: Sequence[str]
    keys: Keys = field(default_factory=dict)
    _keys: list[bytes] = field(init=False)
    _spelt: Mapping[bytes, Sequence[bytes]] = field(init=False)

    def __post_init__(self) -> None:
        self._keys = [_written(column) for column in self.columns]
        spelt: dict[bytes, list[bytes]] = {}
        for name in sorted(names_of(self.keys)):
            spelt.setdefault(_written(name).lower(), []).append(_written(name))
        self._spelt = spelt

    def check(self, piece: bytes) -> None:
        """Look at some whole lines.

        Raises:
            BadFile: One of them is not one object with each key once, or holds what is no character.
        """
        lines = piece.split(b"\n")
        suspected: list[bytes] = []
        if _GOES_ON.search(piece):
            suspected.extend(line for line in lines if _GOES_ON.search(line))
        if piece.count(b"}\n") != piece.count(b"\n"):
            suspected.extend(line for line in lines if line and not line.endswith(b"}"))
        for key in self._keys:
            suspected.extend([line for line in lines if line.count(key) > 1])
        if _MAYBE_HALF.search(piece):
            suspected.extend(line for line in lines if _MAYBE_HALF.search(line))
        if self._is_spelt_otherwise(piece):
            suspected.extend(line for line in lines if self._is_spelt_otherwise(line))
        for line in dict.fromkeys(suspected):
            why = _why_misread(line, self.keys)
            if why:
                raise bad(self.name, f"{why}: {_shown(line)}.")

    def _is_spelt_otherwise(self, piece: bytes) -> bool:
        """Tell whether a declared key may be there in another case; it may also be a value."""
        lowered = piece.lower()
        return any(lowered.count(key) != sum(map(piece.count, as_declared)) for key, as_declared in self._spelt.items())


def _written(key: str) -> bytes:
    return json.dumps(key, ensure_ascii=False).encode()


class _Repeated(Exception):
    """A key is there twice in one object."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Repeated
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_each_once)


def _why_misread(line: bytes, keys: Keys) -> str:
    """Say what Spark would not notice; of a line that is broken, it does. Braces inside of texts are nothing to worry about."""
    text = line.decode(errors="replace").strip()
    try:
        found, end = _DECODER.raw_decode(text)
    except _Repeated:
        return "has a key twice in one JSON object"
    except (RecursionError, ValueError):
        return ""
    if end < len(text):
        return "has more than one JSON object on a line"
    if _HALF_PAIR.search(text.replace(r"\\", "")):
        return "holds half of a surrogate pair, which is no character"
    key = misspelt(found, keys)
    return f"has the key {key!r}, which the schema declares in another case" if key else ""


def _shown(line: bytes) -> str:
    return repr(line[:_SHOWN].decode(errors="replace"))
