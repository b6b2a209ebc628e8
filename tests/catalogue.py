"""Which inputs trip others, and what becomes of each of them in an ingest?

Names, files and rows, each with what it gets where bad ones may be set aside, and where none may. All of them are tried in
`scenarios/test_bad_inputs.py`, and `bad_inputs_page.py` writes them down for people.
"""

import gzip
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bad_inputs import BAD_FILES, BAD_ROWS, COLUMNS, GOOD, GOOD_ROWS

TAKEN, ASIDE, ROW_ASIDE, WAITS, REFUSED = "taken in", "set aside", "row set aside", "waits", "refused"
FORMS = {".csv": "csv", ".gz": "csv", ".json": "json", ".parquet": "parquet"}


@dataclass(frozen=True)
class Got:
    """What became of an input, and words that are said of it."""

    state: str
    words: str = ""


@dataclass(frozen=True)
class Case:
    """One input: how it is put into a folder, how many rows it has, and what it gets."""

    kind: str
    what: str
    form: str
    name: str | bytes
    put: Callable[[Path, int], object]
    rows: int
    tolerant: Got
    strict: Got


def good_line(number: int) -> bytes:
    return f"{number},a,1.50,2024-09-20".encode()


def good_csv(path: Path, number: int) -> None:
    """A row of its own in each file: the same content twice would be a copy."""
    path.write_bytes(COLUMNS.encode() + b"\n" + good_line(number) + b"\n")


# ---------------------------------------------------------------------------------- names

_HIDDEN = Got(WAITS, "its name begins with '_' or '.'")
_COLON = "has a colon in its name"
_NO_TEXT = "has a name that is not text"
_FINE = Got(TAKEN)


def _name(what: str, name: str | bytes, tolerant: Got = _FINE, strict: Got | None = None) -> Case:
    return Case("names", what, "csv", name, good_csv, 1, tolerant, strict or tolerant)


def _beside_what_it_matches(path: Path, number: int) -> None:
    good_csv(path, number)
    good_csv(path.parent / "data1.csv", number + 1000)


NAMES = (
    _name("`_x.csv`", "_x.csv", _HIDDEN),
    _name("`.x.csv`", ".x.csv", _HIDDEN),
    _name("`x.csv._COPYING_`", "x.csv._COPYING_", _HIDDEN),
    _name("`_x=1.csv`", "_x=1.csv"),
    Case("names", "`data[1].csv`, beside `data1.csv`", "csv", "data[1].csv", _beside_what_it_matches, 2, _FINE, _FINE),
    _name("`a{b}.csv`", "a{b}.csv"),
    _name("`a*.csv`", "a*.csv"),
    _name("`a?.csv`", "a?.csv"),
    _name("`a%2Fb.csv`", "a%2Fb.csv"),
    _name("a space", "a b.csv"),
    _name("a line feed", "a\nb.csv"),
    _name("quotation marks", "a'\"b.csv"),
    _name("a backtick", "a`b.csv"),
    _name("`;--`", "a;--b.csv"),
    _name("a drive letter", "C:\\x.csv", Got(ASIDE, _COLON), Got(REFUSED, _COLON)),
    _name("255 bytes", "x" * 251 + ".csv"),
    _name("an emoji", "a\U0001f600b.csv"),
    _name("a right-to-left mark", "a\u202eb.csv"),
    _name("bytes that are not UTF-8", b"a\xffb.csv", Got(ASIDE, _NO_TEXT), Got(REFUSED, _NO_TEXT)),
    _name("a dot at the end", "x.csv."),
)

# Names in the pattern itself, which people declare: these lead where they say, and NUL is in no name.
PATTERNS = (
    ("`../` in the pattern", "../beside-{}/*.csv", _FINE),
    ("an absolute pattern", "{root}/beside-{}/*.csv", _FINE),
    ("NUL in the pattern", "landing/a\0b-{}.csv", Got(REFUSED, "holds a NUL character")),
)

# ---------------------------------------------------------------------------------- files

# What a folder may hold besides whole files is left there for later runs, in place of being a bad file.
_LEFT_THERE = {
    "folder named x.csv": "it is a folder",
    "link to nothing": "it is a link to nothing",
    "link to itself": "it is a link to nothing",
}
_OTHER_WORDS = {"unreadable": "leads out of the folder"}
# Without a quarantine a header that stands again is a row like any other, and is broken by its types.
_BROKEN_ROW = {"header repeated": ""}


def _file(bad) -> Case:
    form = FORMS[os.path.splitext(bad.name)[1]]
    words = _OTHER_WORDS.get(bad.what, bad.words)
    tolerant = Got(WAITS, _LEFT_THERE[bad.what]) if bad.what in _LEFT_THERE else Got(ASIDE, words)
    strict = tolerant if tolerant.state == WAITS else Got(REFUSED, _BROKEN_ROW.get(bad.what, words))
    return Case("files", bad.what, form, bad.name, lambda path, _: bad.put(path.parent), 0, tolerant, strict)


def _two_parts(path: Path, number: int) -> None:
    head, line = COLUMNS.encode() + b"\n", good_line(number) + b"\n"
    path.write_bytes(gzip.compress(head) + gzip.compress(line))


def _from_the_future(path: Path, number: int) -> None:
    good_csv(path, number)
    later = time.time() + 86_400
    os.utime(path, (later, later))


def _link_inside(path: Path, number: int) -> None:
    """The file behind the link is not matched by the pattern, or it would be there twice."""
    good_csv(path.with_suffix(".text"), number)
    path.symlink_to(path.with_suffix(".text").name)


def _link_outside(path: Path, number: int) -> None:
    outside = path.parents[2] / f"outside-{number}.csv"
    good_csv(outside, number)
    path.symlink_to(outside)


def _loop(path: Path, number: int) -> None:
    good_csv(path.parent / "x.csv", number)
    path.symlink_to(path.parent)


def _made(what: str, name: str, put: Callable[[Path, int], object], tolerant: Got = _FINE, strict: Got = _FINE) -> Case:
    return Case("files", what, "csv", name, put, int(tolerant.state == TAKEN), tolerant, strict)


_OUT = "leads out of the folder"
_HELD = Got(WAITS, "it is a link to a folder that holds it")
FILES = (
    *map(_file, BAD_FILES),
    _made("gzip in two parts", "x.csv.gz", _two_parts),
    _made("changed in the future", "x.csv", _from_the_future),
    _made("link inside of the folder", "x.csv", _link_inside),
    _made("link out of the folder", "x.csv", _link_outside, Got(ASIDE, _OUT), Got(REFUSED, _OUT)),
    Case("files", "link to the folder that holds it", "csv", "loop", _loop, 1, _HELD, _HELD),
)

# What happens to files in the course of time: the same whether bad ones may be set aside or not.
EVENTS = {
    "still being written": Got(WAITS, "it is still being written"),
    "the same file in two folders": Got(WAITS, "has the content of landing/a.csv"),
    "a new name, the same content": Got(WAITS, "has the content of landing/base.csv"),
    "the same name, new content": Got(REFUSED, "was taken in already, and has other content now"),
    "vanishes while it is read": Got(REFUSED, "vanishing.csv"),
    "replaced while it is read": Got(REFUSED, "changed while"),
}

# ---------------------------------------------------------------------------------- rows

# What is told by name where no row may be set aside; the others are told by Spark, with the name of the file.
_STRICT_WORDS = {
    "quote never closed in the last field": "has a quotation mark that is never closed",
    "not UTF-8": "holds bytes that are not UTF-8",
    "a surrogate in UTF-8": "holds bytes that are not UTF-8",
    "duplicate keys": "has a key twice in one JSON object",
    "a key in another case": "has the key 'Name', which the schema declares in another case",
    "two objects": "has more than one JSON object on a line",
    "two objects and a comma": "has more than one JSON object on a line",
    "words behind the object": "has more than one JSON object on a line",
    "lone surrogate": "holds half of a surrogate pair",
    **dict.fromkeys(
        ("null key", "no key", "null key and broken rule"), "'id', which the schema declares as NOT NULL, is NULL"
    ),
}
# Where there is neither a rule nor a quarantine, rows have to be readable, and to have the values that the schema asks for.
_NOT_ASKED = ("broken rule", "duplicate keys inside")
# Spark gives the text with its NUL, and a row for each object of a list.
_READ_WHOLE = {("NUL", "csv"): 1, ("a list", "json"): 2}


def _row(bad) -> Case:
    works = bad.what in _NOT_ASKED or (bad.what, bad.form) in _READ_WHOLE
    strict = Got(TAKEN) if works else Got(REFUSED, _STRICT_WORDS.get(bad.what, ""))
    tolerant = Got(ROW_ASIDE, bad.reason) if bad.reason else _FINE
    return _lines(bad.what, bad.form, bad.line, tolerant, strict if bad.reason else _FINE)


def _lines(what: str, form: str, lines: bytes, tolerant: Got, strict: Got, rows: int = 1, end: bytes = b"\n") -> Case:
    def put(path: Path, number: int) -> None:
        before = COLUMNS.encode() + b"\n" + good_line(number) if form == "csv" else b'{"id": %d}' % number
        path.write_bytes(before + end + lines + b"\n")

    return Case("rows", f"{form.upper()}: {what}", form, f"x.{form}", put, rows + 1, tolerant, strict)


_MIXED = GOOD.encode() + b"\r\n" + GOOD.encode() + b"\r" + GOOD.encode()
ROWS = (
    *map(_row, BAD_ROWS),
    *map(_row, GOOD_ROWS),
    _lines("mixed line ends", "csv", _MIXED, _FINE, _FINE, rows=3, end=b"\r"),
    _lines(
        "10 000 fields",
        "csv",
        b",".join([b"1"] * 10_000),
        Got(ROW_ASIDE, "10000 fields instead of 4"),
        Got(REFUSED),
    ),
    _lines(
        "a line feed inside quotes",
        "csv",
        b'1,"a\nb",1.50,2024-09-20',
        Got(ROW_ASIDE, "a quotation mark is never closed"),
        Got(REFUSED),
        rows=2,
    ),
)

CASES = (*NAMES, *FILES, *ROWS)
