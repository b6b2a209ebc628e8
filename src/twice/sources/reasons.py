"""Why can a line not be read?

Spark says of a line no more than that it is malformed, and which columns stayed empty. People want the column and the
value, so the line is looked at once more, as closely as its form allows. What Spark and this look see differently is
still set aside: the reason is then less exact, and never a guess.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from twice.asides import text_of
from twice.rules import Rule
from twice.sources.keys import Keys, misspelt

# What Spark answers of a row, in words that take little room: one of these, then the columns that stayed empty.
NOT_TEXT, NUL, WIDE, TORN, SEVERAL, REPEATED, HALF = "text", "nul", "wide", "torn", "several", "repeated", "half"
MISQUOTED, MISSPELT = "misquoted", "misspelt"
NULL, BROKEN = "null", "rule"
# Half of a surrogate pair, in a line out of which backslashes that stand for themselves were taken; Java reads it alike.
HALF_PAIR = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_MOST_SHOWN = 60
_MOST_COLUMNS = 3


@dataclass(frozen=True)
class Column:
    """A declared column: its name, and its type as Spark writes it."""

    name: str
    type: str


@dataclass(frozen=True)
class Reasons:
    """Turns what Spark answered of a row into words."""

    columns: Sequence[Column]
    required: Sequence[str]
    rules: Sequence[Rule]
    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    keys: Keys = field(default_factory=dict)

    def of(self, form: str, raw: bytes, answer: str) -> str:
        """Say why a row was set aside."""
        kind, *details = answer.split(" ")
        if kind == NOT_TEXT:
            return _not_text(raw)
        if kind == TORN:
            empty = [self.columns[int(number)] for number in details]
            return self._torn_csv(raw, empty) if form == "csv" else _torn_json(raw, empty)
        if kind == MISSPELT:
            return _misspelt_key(raw, self.keys)
        if kind in _SAID:
            return _SAID[kind] + (_repeated_keys(raw) if kind == REPEATED else "")
        return "; ".join(map(self._of_value, [kind, *details]))

    def _of_value(self, told: str) -> str:
        kind, _, rest = told.partition(":")
        if kind == BROKEN:
            return self.rules[int(rest)].words
        return f"{self.required[int(rest)]} is NULL"

    def _torn_csv(self, raw: bytes, empty: Sequence[Column]) -> str:
        try:
            fields = fields_of(text_of(raw), self.separator, self.quote, self.escape)
        except csv.Error:
            return "a quotation mark is never closed"
        if len(fields) != len(self.columns):
            return f"{len(fields)} field{'s' * (len(fields) != 1)} instead of {len(self.columns)}"
        values = {column.name: value for column, value in zip(self.columns, fields, strict=True)}
        return _unfit([(column, values[column.name]) for column in empty if values[column.name]])


def fields_of(line: str, separator: str, quote: str, escape: str, *, doubled: bool = True) -> list[str]:
    """Take a line of CSV apart. `doubled`: two quotation marks in a row stand for one.

    Raises:
        csv.Error: A quotation mark is never closed, or closed before the field ends.
    """
    if len(separator) > 1:
        return line.split(separator)
    return next(rows_of([line], separator, quote, escape, doubled=doubled), [])


def rows_of(lines: Iterable[str], separator: str, quote: str, escape: str, *, doubled: bool) -> Iterator[list[str]]:
    """Take lines of CSV apart, which may go on in the next one inside of quotation marks.

    Raises:
        csv.Error: A quotation mark is never closed, or closed before the field ends.
    """
    options: dict[str, Any] = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    escaped = escape if escape and escape != quote else None
    return csv.reader(lines, delimiter=separator, escapechar=escaped, doublequote=doubled, strict=True, **options)


_SAID = {
    NUL: "holds a NUL character",
    WIDE: "has more fields than Spark reads of one line; options={'maxColumns': ...} sets another limit",
    SEVERAL: "has more than one JSON object on the line",
    REPEATED: "has a key twice",
    MISQUOTED: "has a quotation mark inside of a field that is not escaped",
    HALF: "holds half of a surrogate pair, which is no character",
}


def _not_text(raw: bytes) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"bytes that are not UTF-8: 0x{raw[error.start]:02x} at position {error.start + 1}"
    return "bytes that are not UTF-8"


def _torn_json(raw: bytes, empty: Sequence[Column]) -> str:
    text = text_of(raw)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        return f"not a whole JSON object: {error.msg[:1].lower()}{error.msg[1:]} at position {error.pos + 1}"
    except (RecursionError, ValueError):
        return "not a JSON object that can be read"
    if not isinstance(found, dict):
        return f"{_shown(found)} is no JSON object"
    return _unfit([(column, found[column.name]) for column in empty if found.get(column.name) is not None])


def _unfit(values: Sequence[tuple[Column, Any]]) -> str:
    said = [f"{column.name} = {_shown(value)} is no {column.type}" for column, value in values[:_MOST_COLUMNS]]
    return "; ".join(said) or "cannot be read with the declared schema"


def _misspelt_key(raw: bytes, keys: Keys) -> str:
    try:
        key = misspelt(json.loads(text_of(raw)), keys)
    except (RecursionError, ValueError):
        key = None
    return f"has {f'the key {key!r}' if key else 'a key'}, which the schema declares in another case"


def _repeated_keys(raw: bytes) -> str:
    repeated: list[str] = []

    def noting(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        repeated.extend(dict.fromkeys(name for name in names if names.count(name) > 1))
        return dict(pairs)

    try:
        json.loads(text_of(raw), object_pairs_hook=noting)
    except (RecursionError, ValueError):
        return ""
    return f": {', '.join(map(_shown, repeated[:_MOST_COLUMNS]))}" if repeated else ""


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 1] + "…"
