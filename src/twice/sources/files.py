"""Which files does a slot read, and are they still what they were?

The listing is our own, so that a name such as `data[1].csv` means that very file. Each file is
hashed by content; its inode and change time serve as a token for the second look, which also sees
a file that was replaced and put back.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import glob
import gzip
import io
import json
import os
import re
import stat
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from twice import placeholders
from twice.abilities import Rows
from twice.errors import Misuse, NotPublished, Waiting, suggestion
from twice.fingerprint import HashMemory, Place
from twice.intervals import Interval

FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_PARQUET_MAGIC = b"PAR1"
_PARQUET_LEAST_BYTES = 12
_RACY_SECONDS = 2.0
_SILENT = ("ignoreCorruptFiles", "ignoreMissingFiles")
_AFTER_OBJECT = re.compile(rb"\}[ \t]*[^\s,\]\}]")
_ESCAPED = re.compile(r"\[([*?[])\]")
_LINE_END = re.compile(rb"[\r\n]")
_LONGEST_LINE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Files:
    """Files that match a pattern, read as one set of rows.

    Attributes:
        pattern: Path under the project's folder, with wildcards and the slot's placeholders.
        schema: Columns as Spark writes them, "id bigint, day date"; CSV and JSON need one.
        format: csv, json (one object a line) or parquet; by default told by the file's ending.
        header: Whether CSV files begin with a header, which must then name the schema's columns.
        missing: What no matching file means: `fail`, or `empty` for no rows.
        options: More options for Spark's reader.
        ready: `next` waits until the pattern matches a file of the next interval.
        done: Path of a marker that must be there, relative to the pattern's folder, with placeholders.
    """

    pattern: str
    schema: str | None = None
    format: str | None = None
    header: bool = True
    missing: str = "fail"
    options: Mapping[str, str] = field(default_factory=dict)
    # When files may be read says nothing about their rows: it is left out of what counts as code.
    ready: str | None = field(default=None, repr=False)
    done: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        placeholders.check(self.pattern)
        self._check_readiness()
        if self.format is not None and self.format not in FORMATS.values():
            raise Misuse(f"format={self.format!r} is unknown.", fix=suggestion(self.format, set(FORMATS.values())))
        if self.missing not in ("fail", "empty"):
            raise Misuse(f"missing={self.missing!r} is unknown.", fix="Use 'fail' or 'empty'.")
        for name in _SILENT:
            if self.option(name, "false").lower() == "true":
                raise Misuse(
                    f"{name}=true would lose rows without a word.", fix="Leave it out; a bad file then fails the run."
                )
        mode = self.option("mode", "FAILFAST").upper()
        if mode != "FAILFAST" and "_corrupt_record" not in (self.schema or ""):
            raise Misuse(
                f"mode={mode} would drop or blank broken rows without a word.",
                fix="Leave FAILFAST, or add the column `_corrupt_record string` to the schema.",
            )

    def _check_readiness(self) -> None:
        if self.ready not in (None, "next"):
            raise Misuse(f"ready={self.ready!r} is unknown.", fix="Use ready='next', or done='_SUCCESS' for a marker.")
        if self.ready and not placeholders.names_slot(self.pattern):
            raise Misuse(
                f"ready='next' cannot tell the files of the next interval: {self.pattern!r} names no slot.",
                fix="Put {execution_date} or another placeholder into the pattern.",
            )
        if self.done is not None:
            placeholders.check(self.done)
            if not self.done or self.done.endswith(os.sep):
                raise Misuse(f"done={self.done!r} names no file.", fix="Write, for example, done='_SUCCESS'.")

    def option(self, name: str, default: str = "") -> str:
        """Return one of Spark's options, whose names ignore case."""
        return {key.lower(): str(value) for key, value in self.options.items()}.get(name.lower(), default)

    @property
    def encoding(self) -> str:
        """The encoding of text files."""
        return self.option("encoding") or self.option("charset", "UTF-8")

    def resolve(self, place: Place) -> FileSet:
        """List, check and hash the files of a slot.

        Raises:
            Waiting: A rule of readiness is not fulfilled yet.
        """
        # Readiness comes before the listing: what a marker vouches for is then listed whole.
        marker = self._marker(place)
        waiting = self._waiting_beside(marker, place)
        if waiting:
            raise waiting
        pattern = self._pattern(place, place.slot.part)
        names = [name for name in list_files(place.root, pattern) if marker is None or name != marker.path]
        if not names and self.missing == "fail":
            raise NotPublished(
                f"No file matches {pattern!r} for {place.slot.pipeline} at {place.slot.label}.",
                "Nothing was read and nothing was published.",
                "Check the path, or say missing='empty' if no file means no rows.",
            )
        marks = tuple(mark_files(place.root, names, place.hashes))
        chosen = FileSet(self, place.root, marks, self._format(names), marker)
        chosen.check()
        return chosen

    def counts_for(self, place: Place) -> list[str]:
        """Name all files whose presence or content counts for a slot: inputs, marker, one of the next interval."""
        names = _matching(place.root, self._pattern(place, place.slot.part))
        marker = self._marker(place)
        following = _matching(place.root, self._pattern_of_next(place))[:1] if self.ready == "next" else []
        return [*names, *([marker.path] if marker and marker.path not in names else []), *following]

    def waiting(self, place: Place) -> Waiting | None:
        """Say what the slot still waits for, without looking into any file."""
        return self._waiting_beside(self._marker(place), place)

    def _waiting_beside(self, marker: Marker | None, place: Place) -> Waiting | None:
        if self.done is not None and marker is None:
            return _waiting(place, f"the marker {self._marker_path(place)!r} is not there")
        if self.ready == "next":
            following = self._pattern_of_next(place)
            if not _matching(place.root, following):
                return _waiting(place, f"no file of the next interval matches {following!r}")
        return None

    def _pattern(self, place: Place, part: Interval | str) -> str:
        return placeholders.render(self.pattern, part, place.zone, escape=glob.escape)

    def _pattern_of_next(self, place: Place) -> str:
        following = self._pattern(place, _next_interval(place))
        if following == self._pattern(place, place.slot.part):
            raise Misuse(
                f"ready='next' cannot tell the files of the next interval: {self.pattern!r} is the same for both.",
                fix="Use placeholders as fine as the calendar, such as {start:%Y-%m-%dT%H}.",
            )
        return following

    def _marker_path(self, place: Place) -> str:
        """Return the marker's path, which starts from the pattern's last folder before any wildcard."""
        name = placeholders.render(self.done or "", place.slot.part, place.zone)
        return os.path.normpath(os.path.join(_folder(self._pattern(place, place.slot.part)), name))

    def _marker(self, place: Place) -> Marker | None:
        """Return the marker as it is now, or None where it is not asked for or not there."""
        if self.done is None:
            return None
        path = self._marker_path(place)
        try:
            status = os.stat(os.path.join(place.root, path))
        except OSError:
            return None
        return Marker(path, token(status)) if stat.S_ISREG(status.st_mode) else None

    def _format(self, names: list[str]) -> str:
        found = {self.format or format_of(name) for name in names} or {self.format or format_of(self.pattern)}
        if len(found) > 1:
            raise Misuse(f"{self.pattern!r} matches files of several formats: {', '.join(sorted(found))}.")
        form = found.pop()
        if form != "parquet" and not self.schema:
            raise Misuse(
                f"{self.pattern!r} needs a schema: guessed types change from file to file.",
                fix='Write schema="id bigint, day date, ...".',
            )
        return form


def _next_interval(place: Place) -> Interval:
    if place.schedule is None or place.slot.interval is None:
        raise Misuse(
            f"ready='next' needs a calendar, and the slot of {place.slot.pipeline} has none.",
            fix="Declare every= and start=, or use done= with a marker.",
        )
    return place.schedule.after(place.slot.interval)


def _waiting(place: Place, why: str) -> Waiting:
    return Waiting(
        f"{place.slot.pipeline} waits for its input of {place.slot.label}: {why}.",
        "Nothing was read and nothing was published.",
        "Run again later; that is always safe.",
    )


@dataclass(frozen=True)
class Marker:
    """A file that says that the others are whole."""

    path: str
    token: tuple[int, int, int, int]

    def moved(self, root: str) -> bool:
        """Tell whether it went away or was written anew: the files may be about to change."""
        try:
            return token(os.stat(os.path.join(root, self.path))) != self.token
        except OSError:
            return True


@dataclass(frozen=True)
class FileMark:
    """One file as it was at the first look: content, and the token that tells any change."""

    path: str
    size: int
    content: str
    token: tuple[int, int, int, int]
    real: str
    young: bool


@dataclass(frozen=True)
class FileSet:
    """The files that one slot reads."""

    source: Files
    root: str
    marks: tuple[FileMark, ...]
    format: str
    marker: Marker | None = None

    @property
    def facts(self) -> Any:
        """Relative path, size and content of each file; times only save hashing."""
        return [["files", mark.path, mark.size, mark.content] for mark in self.marks]

    @property
    def summary(self) -> str:
        """Count and size."""
        size = sum(mark.size for mark in self.marks)
        return f"{len(self.marks)} file{'s' * (len(self.marks) != 1)}, {size:,} bytes"

    def moved(self) -> list[str]:
        """Name the files whose token or, where a token is too young to be trusted, content changed."""
        marker = [self.marker.path] if self.marker and self.marker.moved(self.root) else []
        return marker + [mark.path for mark in self.marks if not self._still(mark)]

    def _still(self, mark: FileMark) -> bool:
        try:
            if (
                os.path.realpath(os.path.join(self.root, mark.path)) != mark.real
                or token(os.stat(mark.real)) != mark.token
            ):
                return False
            # A change in the same granule of the clock as the first look leaves the token as it was.
            return not mark.young or content_hash(mark.real) == mark.content
        except OSError:
            return False

    def check(self) -> None:
        """Refuse files that Spark would misread without a word."""
        for mark in self.marks:
            path = mark.real
            if self.format == "parquet":
                _check_parquet(mark.path, path)
            elif mark.size == 0 and path.endswith(".gz"):
                raise _bad(mark.path, "is empty, which is not a gzip file.")
            elif self.format == "csv" and self.source.header and mark.size:
                _check_header(mark.path, path, self._columns(), self.source)

    def _columns(self) -> list[str]:
        return [name for name in schema_columns(self.source.schema or "") if name != "_corrupt_record"]

    def read(self, engine: Any) -> Rows:
        """Read all files as one frame; a broken row fails the read."""
        for mark in self.marks:
            self._check_content(mark)
        spark = engine.spark
        if not self.marks:
            return spark.createDataFrame([], self.source.schema)
        reader = spark.read.format(self.format)
        if self.source.schema:
            reader = reader.schema(self.source.schema)
        for name, value in {**self._options(), **self.source.options}.items():
            reader = reader.option(name, value)
        # The file behind a link was looked at, so that file is read, wherever the link points by now.
        return reader.load([spark_path(mark.real) for mark in self.marks])

    def _options(self) -> dict[str, Any]:
        """What makes Spark fail on anything that it would otherwise pass over."""
        options: dict[str, Any] = {"recursiveFileLookup": "true", **dict.fromkeys(_SILENT, "false")}
        if self.format in ("csv", "json"):
            options["mode"] = "FAILFAST"
        if self.format == "csv":
            # The header was checked above, by name; enforceSchema=false makes Spark check it again.
            # Without column pruning a short line is noticed even if the transform needs no more of it.
            header = self.source.header
            options |= {"header": header, "enforceSchema": not header, "columnPruning": "false"}
        return options

    def _check_content(self, mark: FileMark) -> None:
        """Refuse content that Spark reads without a word as something else: one more look at the bytes."""
        if self.format == "parquet":
            _check_columns(mark, schema_columns(self.source.schema or ""), self.marks[0])
        elif _opener(mark.real) and self.source.encoding.upper() in ("UTF-8", "UTF8"):
            own_lines = self.source.option("multiLine", "false").lower() == "true" or self.source.option("lineSep")
            _check_text(mark, json_lines=self.format == "json" and not own_lines)


def list_files(root: str, pattern: str) -> list[str]:
    """List regular files under the root, sorted, by our own rules.

    A pattern that is itself the name of a file means that file. Names that begin with `_` or `.`
    are left out by wildcards, as by Spark, and refused where they are asked for.
    """
    return [_regular(root, name) for name in _matching(root, pattern)]


def _matching(root: str, pattern: str) -> list[str]:
    literal = pattern.replace("[[]", "[").replace("[*]", "*").replace("[?]", "?")
    if os.path.lexists(os.path.join(root, literal)):
        return [literal]
    if os.path.lexists(os.path.join(root, pattern)):
        return [pattern]
    found = sorted(set(glob.glob(pattern, root_dir=root, recursive=True)))
    fixed = _fixed_parts(pattern)
    return [name for name in found if not any(p.startswith(("_", ".")) for p in name.split(os.sep)[fixed:])]


def _fixed_parts(pattern: str) -> int:
    """Count the leading parts of a pattern that name one folder: these may be called what they like."""
    parts = pattern.split(os.sep)
    return next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))


def _folder(pattern: str) -> str:
    """Return the folder that a pattern names before its first wildcard; an escaped one is none."""
    folders = pattern.split(os.sep)[:-1]
    wild = (number for number, part in enumerate(folders) if glob.has_magic(_ESCAPED.sub("", part)))
    return _ESCAPED.sub(r"\1", os.sep.join(folders[: next(wild, len(folders))]))


def _regular(root: str, name: str) -> str:
    status = _status(root, name)
    real = os.path.basename(os.path.realpath(os.path.join(root, name)))
    if stat.S_ISDIR(status.st_mode):
        raise Misuse(f"{name!r} is a folder.", fix=f"Write {name}/* to read the files in it.")
    if not stat.S_ISREG(status.st_mode):
        raise _bad(name, "is not a regular file.")
    if os.path.basename(name).startswith(("_", ".")) or real.startswith(("_", ".")):
        raise _bad(name, "begins with '_' or '.', and Spark would pass over it without a word.")
    if not _is_text(name):
        raise _bad(name, "has a name that is not text.")
    if ":" in os.path.basename(name) or ":" in real:
        raise _bad(name, "has a colon in its name, which Spark takes for the end of a scheme.")
    return os.path.relpath(os.path.join(root, name), root) if not os.path.isabs(name) else name


def _status(root: str, name: str) -> os.stat_result:
    try:
        return os.stat(os.path.join(root, name))
    except OSError as error:
        raise _bad(name, f"cannot be looked at: {error.strerror or error}.") from error


def mark_files(root: str, names: list[str], hashes: HashMemory) -> Iterator[FileMark]:
    """Hash the files, asking the memory for those that have not changed since the last time."""
    statuses = {name: _status(root, name) for name in names}
    keys = {name: f"{name}|{status.st_size}|{token(status)}" for name, status in statuses.items()}
    known = hashes.recall(list(keys.values()))
    fresh: dict[str, str] = {}
    for name in names:
        key, status = keys[name], statuses[name]
        content = known.get(key) or content_hash_of(root, name)
        young = _young(token(status))
        if key not in known and not young:
            fresh[key] = content
        yield FileMark(name, status.st_size, content, token(status), os.path.realpath(os.path.join(root, name)), young)
    if fresh:
        hashes.remember(fresh)


def content_hash_of(root: str, name: str) -> str:
    """Hash a file, or say by name that it cannot be read."""
    try:
        return content_hash(os.path.join(root, name))
    except OSError as error:
        raise _bad(name, f"cannot be read: {error.strerror or error}.") from error


def content_hash(path: str) -> str:
    """Hash a file's bytes with xxh3-128; the algorithm's name is part of the result."""
    import xxhash

    state = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            state.update(chunk)
    return "xxh3:" + state.hexdigest()


def token(status: os.stat_result) -> tuple[int, int, int, int]:
    """What no change of a file leaves as it was: change time, inode, modification time, size."""
    return (status.st_ctime_ns, status.st_ino, status.st_mtime_ns, status.st_size)


def _young(known: tuple[int, int, int, int]) -> bool:
    """Tell whether a second change could hide in the clock's granule of the first."""
    return time.time() - known[0] / 1e9 < _RACY_SECONDS


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


def _check_parquet(name: str, path: str) -> None:
    """A Parquet file begins and ends with its magic; Spark reads an empty one as no rows."""
    with open(path, "rb") as file:  # it could be read a moment ago, to be hashed
        head = file.read(4)
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(max(0, size - 4))
        tail = file.read(4)
    if size == 0:
        raise _bad(name, "is empty, which is not a Parquet file: a writer may have died.")
    if head != _PARQUET_MAGIC or tail != _PARQUET_MAGIC or size < _PARQUET_LEAST_BYTES:
        raise _bad(name, "is not a whole Parquet file: it was cut short, or is something else.")


def _check_columns(mark: FileMark, declared: list[str], first: FileMark) -> None:
    """Spark fills a column that a Parquet file lacks with nulls."""
    from pyarrow import parquet

    try:
        found = parquet.read_schema(mark.real)
    except (OSError, ValueError) as error:
        raise _bad(mark.path, f"is not a whole Parquet file: {error}.") from error
    names = {name.lower() for name in found.names}
    missing = [column for column in declared if column.lower() not in names]
    if missing:
        raise _bad(mark.path, f"lacks the column {', '.join(map(repr, missing))}.")
    if not declared and mark is not first and _typed(found) != _typed(parquet.read_schema(first.real)):
        raise _bad(mark.path, f"has other columns than {first.path!r}; declare a schema that all files have.")


def _typed(schema: Any) -> set[tuple[str, str]]:
    """A Parquet schema as Spark compares it: names without their case, types, in any order."""
    return {(field.name.lower(), str(field.type)) for field in schema}


def _check_text(mark: FileMark, *, json_lines: bool) -> None:
    """Spark replaces bytes that are no text, and reads one object a line whatever follows it."""
    opened = _opener(mark.real)
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
            raise _bad(
                mark.path, f"holds bytes that are not UTF-8 ({error.reason}); say options={{'encoding': ...}}."
            ) from error
        except (OSError, EOFError, zlib.error) as error:
            raise _bad(mark.path, f"cannot be read to its end: {error}.") from error
    if json_lines:
        _check_objects(mark, rest + b"\n")


def _check_objects(mark: FileMark, content: bytes) -> bytes:
    """Check the whole lines, and return the part of a line that is left; a huge line is left to Spark."""
    end = max(content.rfind(b"\n"), content.rfind(b"\r")) + 1
    lines, rest = content[:end], content[end:]
    if _AFTER_OBJECT.search(lines):
        for line in _LINE_END.split(lines):
            if _AFTER_OBJECT.search(line) and not _is_one_object(line):
                raise _bad(
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


def _opener(path: str) -> Any:
    """Return what opens a text file, unpacking it; None for packings that only Spark knows."""
    packings = {".gz": gzip.open, ".bz2": bz2.open, ".zst": None, ".snappy": None, ".lz4": None, ".deflate": None}
    return packings.get(os.path.splitext(path)[1], open)


def _check_header(name: str, path: str, columns: list[str], source: Files) -> None:
    """Spark gives columns by position: a header in another order would swap them."""
    opener = _opener(path)
    if opener is None:
        return
    encoding = source.encoding
    try:
        with opener(path, "rb") as file:
            utf8 = encoding.upper() in ("UTF-8", "UTF8")
            first = io.TextIOWrapper(file, encoding="utf-8-sig" if utf8 else encoding, newline="")
            header = _header(first, source)
    except (OSError, EOFError, LookupError, TypeError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise _bad(name, f"cannot be read as CSV: {error}.") from error
    if header == columns:
        return
    missing = [column for column in columns if column not in header]
    extra = [column for column in header if column not in columns]
    if missing or extra:
        words = (("lacks", missing), ("has", extra))
        what = "; ".join(f"{word} {', '.join(map(repr, found))}" for word, found in words if found)
        raise _bad(name, f"has another header than the schema: it {what}.")
    raise _bad(name, f"has its columns in another order: {', '.join(header)} instead of {', '.join(columns)}.")


def _header(lines: io.TextIOWrapper, source: Files) -> list[str]:
    separator = (source.option("sep") or source.option("delimiter", ",")).replace("\\t", "\t")
    comment = source.option("comment")
    kept = (line for line in lines if line.strip() and not (comment and line.startswith(comment)))
    if len(separator) > 1:
        return next(kept, "").rstrip("\r\n").split(separator)
    header = next(csv.reader(kept, delimiter=separator, quotechar=source.option("quote", '"') or None), [])
    strips = source.option("ignoreLeadingWhiteSpace", "false").lower() == "true"
    return [name.strip() for name in header] if strips else header


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bad(name: str, why: str) -> NotPublished:
    return NotPublished(
        f"The input file {name!r} {why}",
        "Nothing was published, and the target is as it was.",
        "Correct or remove the file, and run again.",
    )


def spark_path(path: str) -> str:
    """Write a path so that Spark takes it for this very file and not for a pattern."""
    return "".join("\\" + char if char in "\\*?[]{}^" else char for char in os.path.abspath(path))
