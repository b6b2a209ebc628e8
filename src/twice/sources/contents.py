"""What would Spark misread in a file without a word?

A Parquet file that was cut short, a column that is missing, a header in another order, bytes that are no text, lines
that are not what they seem (see `misreading`): all of them are looked for before Spark reads, and named. `look_into` does all of it for one file;
`bad_file` says the same as data. Rows are counted on the way, since every byte is read.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twice.errors import BadFile, Misuse, suggestion
from twice.sources.keys import Keys
from twice.sources.listing import bad, regular
from twice.sources.misreading import CsvLines, JsonLines
from twice.sources.packing import CANNOT_BE_READ, Unpacked, check_size, disguise, opener, unpacked
from twice.sources.reasons import rows_of
from twice.sources.scanning import Tally, count, pieces

if TYPE_CHECKING:
    from twice.sources.files import Files

FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
# The words with which Spark lets the type of a column begin.
_TYPES = [
    "array",
    "bigint",
    "binary",
    "boolean",
    "byte",
    "date",
    "dec",
    "decimal",
    "double",
    "float",
    "geography",
    "geometry",
    "int",
    "integer",
    "interval",
    "long",
    "map",
    "numeric",
    "real",
    "short",
    "smallint",
    "string",
    "struct",
    "time",
    "timestamp",
    "timestamp_ltz",
    "timestamp_ntz",
    "tinyint",
    "variant",
    "void",
]
_OF_A_LENGTH = ("char", "character", "varchar")
_NAME = re.compile(r"`(?:[^`]|``)*`|[^\s:]+")
# A field of that name is followed by a colon.
_NOT_ORDERED = re.compile(r"\b(map(?=\s*<)|variant(?!\s*:))", re.IGNORECASE)
_TEXT = re.compile(r"'[^']*'")
_WORD = re.compile(r"[\s:]*(\w+)")
_NESTED = re.compile(r"[\s:]*(struct|array|map)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_PARQUET_MAGIC = b"PAR1"
_PARQUET_ENCRYPTED = b"PARE"
_PARQUET_LEAST_BYTES = 12
_LONGEST_HEADER_BYTES = 4 << 20


@dataclass(frozen=True)
class Look:
    """What a look into a file found: its rows, where they can be counted without Spark, and the line of its header."""

    rows: int | None
    header: bytes | None = None


def bad_file(name: str, root: str, source: Files, form: str) -> str | None:
    """Say why a file cannot be used, or None: the end of a sentence that begins with its name."""
    if os.path.isdir(os.path.join(root, name)):
        return "is a folder."
    try:
        regular(root, name)
        path = os.path.realpath(os.path.join(root, name))
        check_size(name, os.stat(path), source.largest)
        check_beginning(name, path, source, form)
        look_into(name, path, source, form)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}."
    except BadFile as error:
        return error.reason
    return None


def check_beginning(name: str, path: str, source: Files, form: str) -> None:
    """Look at the first and last bytes of a file, which tell at once what is not worth reading.

    Raises:
        BadFile: It cannot be used.
    """
    size = os.path.getsize(path)
    if form == "parquet":
        check_parquet(name, path)
    elif size == 0 and path.endswith(".gz"):
        raise bad(name, "is empty, which is not a gzip file.")
    elif size and opener(path):
        _check_disguise(name, path, source)
        if form == "csv" and source.header:
            check_header(name, path, source.declared_columns, source)


def look_into(name: str, path: str, source: Files, form: str) -> Look:
    """Read a file to its end, and count its rows.

    Raises:
        BadFile: Spark would read it without a word as something else.
    """
    if form == "parquet":
        return Look(check_footer(name, path, source.declared_columns))
    if opener(path) is None:
        return Look(None)
    lines = source.lines(form)
    as_text = source.is_utf8 and not source.quarantines
    tally = Tally(0 if lines else None)
    misread = _misreading(name, source, form)
    decoder = codecs.getincrementaldecoder("utf-8")()
    before = marks = 0
    with unpacked(name, path, source.largest) as file:
        try:
            for piece in pieces(name, file):
                marks += piece.count(source.quote.encode()) if form == "csv" and not lines else 0
                if as_text:
                    decoder.decode(piece)
                    if lines:
                        misread.check(piece)
                if lines:
                    count(piece, before, lines, tally)
                    before += piece.count(b"\n")
        except UnicodeDecodeError as error:
            raise bad(
                name, f"holds bytes that are not UTF-8 ({error.reason}); say options={{'encoding': ...}}."
            ) from error
    if marks % 2 and as_text and len(source.separator) == 1:
        _check_closed(name, path, source)
    if tally.header_again and source.quarantines:
        raise bad(name, f"has its header again in line {tally.header_again}: it may be several files in one.")
    return Look(tally.rows, tally.header)


def _check_closed(name: str, path: str, source: Files) -> None:
    """Where rows span lines, a quotation mark that is never closed would swallow all rows behind it."""
    doubled = source.escape == source.quote
    with opener(path)(path, "rt", encoding="utf-8-sig", newline="") as text:
        try:
            for _ in rows_of(text, source.separator, source.quote, source.escape, doubled=doubled):
                pass
        except csv.Error as error:
            raise bad(name, "has a quotation mark that is never closed.") from error


def format_of(name: str) -> str:
    """Tell the format by the ending, `.gz` and the like left aside."""
    stem = name
    for packed in (".gz", ".bz2", ".zst", ".snappy", ".lz4"):
        stem = stem.removesuffix(packed)
    ending = os.path.splitext(stem)[1].lower()
    if ending not in FORMATS:
        raise Misuse(
            f"The format of {name!r} cannot be told from its ending.", fix="Say format='csv', 'json' or 'parquet'."
        )
    return FORMATS[ending]


def schema_columns(schema: str) -> list[str]:
    """Return the column names of a schema text.

    >>> schema_columns("id bigint, price decimal(10,2), `odd name` string")
    ['id', 'price', 'odd name']
    """
    return [_column_name(definition) for definition in _definitions(schema)]


def schema_keys(schema: str) -> Keys:
    """Return the keys of the JSON objects that a schema text declares, at every depth.

    >>> schema_keys("id bigint, at struct<x: int, y: array<struct<z int>>>, named map<string, struct<n int>>")
    {'id': {}, 'at': {'x': {}, 'y': {'z': {}}}, 'named': {None: {'n': {}}}}
    """
    return {_column_name(one): _keys_inside(_NAME.sub("", one, count=1)) for one in _definitions(schema)}


def _keys_inside(kind: str) -> Keys:
    nested = _NESTED.match(kind)
    if nested is None:
        return {}
    if nested[1].lower() == "struct":
        return schema_keys(nested[2])
    inner = _keys_inside(_definitions(nested[2])[-1])
    return inner if nested[1].lower() == "array" or not inner else {None: inner}


def check_types(schema: str) -> None:
    """Refuse a column whose type Spark does not know, or reads from no file, without asking Spark.

    Raises:
        Misuse: With the type that was probably meant.
    """
    for definition in _definitions(schema):
        name = _NAME.match(definition)
        written = _WORD.match(definition, name.end() if name else 0)
        kind = written[1].lower() if written else ""
        if kind in _OF_A_LENGTH:
            raise Misuse(
                f"The column {_column_name(definition)!r} of the schema has the type {kind}, which Spark reads from no file.",
                "No slot could be published.",
                "Write string: a table that has such a column takes it as its own.",
            )
        if kind not in _TYPES:
            raise Misuse(
                f"The column {_column_name(definition)!r} of the schema has {f'the type {kind!r}' if kind else 'no type'}.",
                fix=suggestion(kind, _TYPES),
            )


def incomparable_types(schema: str) -> list[dict[str, Any]]:
    """Return the columns of a schema that are, or hold, maps or variants, each with that type.

    >>> incomparable_types("id int, tags array<map<string, int>>, `map` struct<variant: int>")
    [{'name': 'tags', 'type': 'map'}]
    """
    told = {_column_name(one): _TEXT.sub("", _NAME.sub("", one, count=1)) for one in _definitions(schema)}
    return [
        {"name": name, "type": found[1].lower()} for name, kind in told.items() if (found := _NOT_ORDERED.search(kind))
    ]


def _definitions(schema: str) -> list[str]:
    """Cut a schema text into its columns."""
    definitions, depth, quote, part = [], 0, "", ""
    for char in schema + ",":
        if quote:
            quote = "" if char == quote else quote
        elif char in "`'\"":
            quote = char
        depth += 0 if quote else (char in "(<") - (char in ")>")
        if char == "," and depth == 0 and not quote:
            definitions.append(part.strip())
            part = ""
        else:
            part += char
    return [definition for definition in definitions if definition]


def _column_name(definition: str) -> str:
    quoted = re.match(r"`((?:[^`]|``)*)`", definition)
    if quoted:
        return quoted[1].replace("``", "`")
    return re.split(r"[\s:]", definition, maxsplit=1)[0]


def check_parquet(name: str, path: str) -> None:
    """A Parquet file begins and ends with its magic; Spark reads an empty one as no rows."""
    with open(path, "rb") as file:
        head = file.read(4)
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(max(0, size - 4))
        tail = file.read(4)
    if size == 0:
        raise bad(name, "is empty, which is not a Parquet file: a writer may have died.")
    if _PARQUET_ENCRYPTED in (head, tail):
        raise bad(name, "is encrypted, and there is no key for it.")
    if head != _PARQUET_MAGIC or tail != _PARQUET_MAGIC or size < _PARQUET_LEAST_BYTES:
        raise bad(name, "is not a whole Parquet file: it was cut short, or is something else.")


def check_footer(name: str, path: str, declared: list[str]) -> int:
    """Spark fills a column that a Parquet file lacks with nulls. Returns how many rows the file holds."""
    footer = _footer(name, path)
    names = {column.lower() for column in footer.schema.to_arrow_schema().names}
    missing = [column for column in declared if column.lower() not in names]
    if missing:
        raise bad(name, f"lacks the column {', '.join(map(repr, missing))}.")
    rows: int = footer.num_rows
    return rows


def check_same_columns(name: str, path: str, first: str, first_path: str) -> None:
    """Without a schema, all files have the columns of the first one."""
    if _typed(_footer(name, path)) != _typed(_footer(first, first_path)):
        raise bad(name, f"has other columns than {first!r}; declare a schema that all files have.")


def _footer(name: str, path: str) -> Any:
    from pyarrow import parquet

    try:
        return parquet.read_metadata(path)
    except (OSError, ValueError) as error:
        words = "".join(filter(str.isprintable, " ".join(str(error).split())))  # bytes of the file may be among them
        raise bad(name, f"is not a whole Parquet file: {words.rstrip(' .')}.") from error


def _typed(footer: Any) -> set[tuple[str, str]]:
    """A Parquet schema as Spark compares it: names without their case, types, in any order."""
    return {(field.name.lower(), str(field.type)) for field in footer.schema.to_arrow_schema()}


def _misreading(name: str, source: Files, form: str) -> CsvLines | JsonLines:
    if form == "json":
        return JsonLines(name, source.declared_columns, schema_keys(source.schema or ""))
    comment = source.option("comment").encode()
    return CsvLines(name, source.declared_columns, source.separator, source.quote, source.escape, comment)


def _check_disguise(name: str, path: str, source: Files) -> None:
    """A packed file that is not called so, an archive in an archive, a Parquet file called CSV."""
    try:
        with opener(path)(path, "rb") as file:
            what = disguise(Unpacked(name, path, file, source.largest).read(1 << 10))
    except CANNOT_BE_READ:
        return  # told better by what reads it next
    if what:
        raise bad(name, f"is {what}{' once it is unpacked' if opener(path) is not open else ''}, and not text.")


def check_header(name: str, path: str, columns: list[str], source: Files) -> None:
    """Spark gives columns by position: a header in another order would swap them."""
    opened = opener(path)
    if opened is None:
        return
    try:
        with opened(path, "rb") as file:
            beginning = io.BufferedReader(_Beginning(Unpacked(name, path, file, source.largest)))
            header = _header(_text(beginning, source), source)
            ",".join(header).encode()
    except UnicodeError as error:
        raise bad(name, f"cannot be read as CSV: its header is not {source.encoding}.") from error
    except (*CANNOT_BE_READ, LookupError, TypeError, csv.Error) as error:
        raise bad(name, f"cannot be read as CSV: {error}.") from error
    if header == columns:
        return
    missing = [column for column in columns if column not in header]
    extra = [column for column in header if column not in columns]
    if missing or extra:
        words = (("lacks", missing), ("has", extra))
        what = "; ".join(f"{word} {', '.join(map(repr, found))}" for word, found in words if found)
        raise bad(name, f"has another header than the schema: it {what}.")
    raise bad(name, f"has its columns in another order: {', '.join(header)} instead of {', '.join(columns)}.")


class _Beginning(io.RawIOBase):
    """The first bytes of a file, as many as a header may have."""

    def __init__(self, file: Unpacked) -> None:
        self._file, self._left = file, _LONGEST_HEADER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._file.read(min(len(buffer), self._left))
        buffer[: len(chunk)] = chunk
        self._left -= len(chunk)
        return len(chunk)


def _text(beginning: io.BufferedReader[Any], source: Files) -> io.TextIOWrapper:
    """Decode no more than the header needs; what follows it may be anything, and is looked at later."""
    encoding, errors = ("utf-8-sig", "surrogateescape") if source.is_utf8 else (source.encoding, "strict")
    return io.TextIOWrapper(beginning, encoding, errors, newline="")


def _header(lines: io.TextIOWrapper, source: Files) -> list[str]:
    separator = source.separator
    comment = source.option("comment")
    kept = (line for line in lines if line.strip() and not (comment and line.startswith(comment)))
    if len(separator) > 1:
        return next(kept, "").rstrip("\r\n").split(separator)
    header = next(csv.reader(kept, delimiter=separator, quotechar=source.quote or None), [])
    strips = source.option("ignoreLeadingWhiteSpace", "false").lower() == "true"
    return [name.strip() for name in header] if strips else header
