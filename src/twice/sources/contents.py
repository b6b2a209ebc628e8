"""What would Spark misread in a file without a word?

A Parquet file that was cut short, a column that is missing, a header in another order, bytes that are no text, a second
JSON object on a line: all of them are looked for before Spark reads, and named.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import os
import re
import zlib
from typing import TYPE_CHECKING, Any

from twice.errors import Misuse
from twice.sources.listing import bad
from twice.sources.marking import FileMark

if TYPE_CHECKING:
    from twice.sources.files import Files

FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_PARQUET_MAGIC = b"PAR1"
_PARQUET_LEAST_BYTES = 12
_AFTER_OBJECT = re.compile(rb"\}[ \t]*[^\s,\]\}]")
_LINE_END = re.compile(rb"[\r\n]")
_LONGEST_LINE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20


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
    return [_column_name(definition) for definition in definitions if definition]


def _column_name(definition: str) -> str:
    quoted = re.match(r"`((?:[^`]|``)*)`", definition)
    if quoted:
        return quoted[1].replace("``", "`")
    return re.split(r"[\s:]", definition, maxsplit=1)[0]


def check_parquet(name: str, path: str) -> None:
    """A Parquet file begins and ends with its magic; Spark reads an empty one as no rows."""
    with open(path, "rb") as file:  # it could be read a moment ago, to be hashed
        head = file.read(4)
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(max(0, size - 4))
        tail = file.read(4)
    if size == 0:
        raise bad(name, "is empty, which is not a Parquet file: a writer may have died.")
    if head != _PARQUET_MAGIC or tail != _PARQUET_MAGIC or size < _PARQUET_LEAST_BYTES:
        raise bad(name, "is not a whole Parquet file: it was cut short, or is something else.")


def check_columns(mark: FileMark, declared: list[str], first: FileMark) -> None:
    """Spark fills a column that a Parquet file lacks with nulls."""
    from pyarrow import parquet

    try:
        found = parquet.read_schema(mark.real)
    except (OSError, ValueError) as error:
        raise bad(mark.path, f"is not a whole Parquet file: {error}.") from error
    names = {name.lower() for name in found.names}
    missing = [column for column in declared if column.lower() not in names]
    if missing:
        raise bad(mark.path, f"lacks the column {', '.join(map(repr, missing))}.")
    if not declared and mark is not first and _typed(found) != _typed(parquet.read_schema(first.real)):
        raise bad(mark.path, f"has other columns than {first.path!r}; declare a schema that all files have.")


def _typed(schema: Any) -> set[tuple[str, str]]:
    """A Parquet schema as Spark compares it: names without their case, types, in any order."""
    return {(field.name.lower(), str(field.type)) for field in schema}


def check_text(mark: FileMark, *, json_lines: bool) -> None:
    """Spark replaces bytes that are no text, and reads one object a line whatever follows it."""
    opened = opener(mark.real)
    decoder = codecs.getincrementaldecoder("utf-8")()
    rest = b""
    with opened(mark.real, "rb") as file:
        try:
            while chunk := file.read(_CHUNK_BYTES):
                decoder.decode(chunk)
                if json_lines:
                    rest = _check_objects(mark, rest + chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise bad(
                mark.path, f"holds bytes that are not UTF-8 ({error.reason}); say options={{'encoding': ...}}."
            ) from error
        except (OSError, EOFError, zlib.error) as error:
            raise bad(mark.path, f"cannot be read to its end: {error}.") from error
    if json_lines:
        _check_objects(mark, rest + b"\n")


def _check_objects(mark: FileMark, content: bytes) -> bytes:
    """Check the whole lines, and return the part of a line that is left; a huge line is left to Spark."""
    end = max(content.rfind(b"\n"), content.rfind(b"\r")) + 1
    lines, rest = content[:end], content[end:]
    if _AFTER_OBJECT.search(lines):
        for line in _LINE_END.split(lines):
            if _AFTER_OBJECT.search(line) and not _is_one_object(line):
                raise bad(
                    mark.path, f"has more than one JSON object on a line: {line[:80].decode(errors='replace')!r}."
                )
    return rest if len(rest) <= _LONGEST_LINE_BYTES else b""


def _is_one_object(line: bytes) -> bool:
    """A brace inside a text is nothing to worry about; a broken line is Spark's to report."""
    text = line.decode(errors="replace").strip()
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return True
    return end == len(text)


def opener(path: str) -> Any:
    """Return what opens a text file, unpacking it; None for packings that only Spark knows."""
    packings = {".gz": gzip.open, ".bz2": bz2.open, ".zst": None, ".snappy": None, ".lz4": None, ".deflate": None}
    return packings.get(os.path.splitext(path)[1], open)


def check_header(name: str, path: str, columns: list[str], source: Files) -> None:
    """Spark gives columns by position: a header in another order would swap them."""
    opened = opener(path)
    if opened is None:
        return
    encoding = source.encoding
    try:
        with opened(path, "rb") as file:
            utf8 = encoding.upper() in ("UTF-8", "UTF8")
            first = io.TextIOWrapper(file, encoding="utf-8-sig" if utf8 else encoding, newline="")
            header = _header(first, source)
    except (OSError, EOFError, LookupError, TypeError, UnicodeDecodeError, csv.Error, zlib.error) as error:
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


def _header(lines: io.TextIOWrapper, source: Files) -> list[str]:
    separator = (source.option("sep") or source.option("delimiter", ",")).replace("\\t", "\t")
    comment = source.option("comment")
    kept = (line for line in lines if line.strip() and not (comment and line.startswith(comment)))
    if len(separator) > 1:
        return next(kept, "").rstrip("\r\n").split(separator)
    header = next(csv.reader(kept, delimiter=separator, quotechar=source.option("quote", '"') or None), [])
    strips = source.option("ignoreLeadingWhiteSpace", "false").lower() == "true"
    return [name.strip() for name in header] if strips else header
