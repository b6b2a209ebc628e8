"""Which files does a slot read, and what are they read with?

Files that match a pattern are one set of rows. They are listed by `listing`, pinned by `marking`, and looked into by
`contents`; what Spark would pass over without a word fails the read.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twice import placeholders
from twice.abilities import Rows
from twice.errors import Misuse, NotPublished, Waiting, suggestion
from twice.fingerprint import Place
from twice.intervals import Interval
from twice.sources.contents import (
    FORMATS,
    check_columns,
    check_header,
    check_parquet,
    check_text,
    format_of,
    opener,
    schema_columns,
)
from twice.sources.listing import bad, folder_of, list_files, matching, spark_path
from twice.sources.marking import FileMark, is_still, mark_files, token

_SILENT = ("ignoreCorruptFiles", "ignoreMissingFiles")


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
        names = matching(place.root, self._pattern(place, place.slot.part))
        marker = self._marker(place)
        following = matching(place.root, self._pattern_of_next(place))[:1] if self.ready == "next" else []
        return [*names, *([marker.path] if marker and marker.path not in names else []), *following]

    def waiting(self, place: Place) -> Waiting | None:
        """Say what the slot still waits for, without looking into any file."""
        return self._waiting_beside(self._marker(place), place)

    def _waiting_beside(self, marker: Marker | None, place: Place) -> Waiting | None:
        if self.done is not None and marker is None:
            return _waiting(place, f"the marker {self._marker_path(place)!r} is not there")
        if self.ready == "next":
            following = self._pattern_of_next(place)
            if not matching(place.root, following):
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
        return os.path.normpath(os.path.join(folder_of(self._pattern(place, place.slot.part)), name))

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
            return not mark.young or is_still(mark)
        except OSError:
            return False

    def check(self) -> None:
        """Refuse files that Spark would misread without a word."""
        for mark in self.marks:
            path = mark.real
            if self.format == "parquet":
                check_parquet(mark.path, path)
            elif mark.size == 0 and path.endswith(".gz"):
                raise bad(mark.path, "is empty, which is not a gzip file.")
            elif self.format == "csv" and self.source.header and mark.size:
                check_header(mark.path, path, self._columns(), self.source)

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
            check_columns(mark, schema_columns(self.source.schema or ""), self.marks[0])
        elif opener(mark.real) and self.source.encoding.upper() in ("UTF-8", "UTF8"):
            own_lines = self.source.option("multiLine", "false").lower() == "true" or self.source.option("lineSep")
            check_text(mark, json_lines=self.format == "json" and not own_lines)
