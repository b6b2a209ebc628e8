"""Which files does a slot read, and what are they read with?

Files that match a pattern are one set of rows. They are listed by `listing`, pinned by `marking`, looked into by
`contents` and read by `filesets`; what Spark would pass over without a word fails the read.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from twice import placeholders
from twice.errors import InputsAbsent, Misuse, Waiting, suggestion
from twice.fingerprint import Place
from twice.intervals import Interval
from twice.rules import Rule, check_limit
from twice.runs import check_path
from twice.sources.contents import FORMATS, check_types, format_of, schema_columns
from twice.sources.filesets import NEVER_SILENT, FileSet, Marker
from twice.sources.listing import folder_of, list_files, matching
from twice.sources.marking import mark_files, token
from twice.sources.origins import check_column
from twice.sources.packing import bytes_of
from twice.sources.scanning import Lines
from twice.sources.values import CORRUPT, NULL_FIELD, Values

ON_BAD_FILE = ("fail", "set_aside")
_COUNTED = "What a run reads is all that its files hold, and is counted so."
_PASSED_OVER = "files that match the pattern would be passed over without a word."
# Options by name: the one value that changes nothing, why others are refused, and what to do.
_LEAVE_OUT = {
    "pathGlobFilter": ("*", _PASSED_OVER, "Leave it out, and write the pattern so that it names the files."),
    "modifiedAfter": ("", _PASSED_OVER, "Leave it out; track=True takes in each file once, whenever it changed."),
    "modifiedBefore": (
        "",
        _PASSED_OVER,
        "Leave it out; quiet_for='5 minutes' lets young files wait where files are tracked.",
    ),
    "recursiveFileLookup": ("true", _PASSED_OVER, "Leave it out; '**' in the pattern stands for folders at any depth."),
    "columnPruning": ("false", "lines with too few or too many fields would pass without a word.", "Leave it out."),
    "unescapedQuoteHandling": (
        "raise_error",
        "fields with a quotation mark inside could be kept with their quotes, blanked or read beyond their end.",
        "Leave it out; say options={'escape': ...} if the files do not double quotation marks.",
    ),
    "enableDateTimeParsingFallback": (
        "false",
        "texts that do not have the declared format would be read in other ones, and '10:00' as a time of today.",
        "Leave it out; say dateFormat or timestampFormat.",
    ),
    "header": ("", "it is said in another place already.", "Write header=True or header=False beside options=."),
}


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
        rules: Conditions that every row has to fulfil.
        file_column: Name of a column that is added, with the path of the file that a row came from.
        max_quarantined: How many rows, or which share of them, may be set aside: `100`, `"1%"`.
        on_bad_file: What a file means that cannot be used: `fail`, or `set_aside` where files are tracked.
        max_expanded: How large a file may become when it is unpacked: bytes, or `"50 GB"`.
    """

    pattern: str
    schema: str | None = None
    format: str | None = None
    header: bool = True
    missing: str = "fail"
    options: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    file_column: str | None = None
    # What follows says when files may be read, and what is done about those that cannot be used. It says nothing
    # about the rows, and is left out of what counts as code.
    ready: str | None = field(default=None, repr=False)
    done: str | None = field(default=None, repr=False)
    max_quarantined: int | str | None = field(default=None, repr=False)
    on_bad_file: str = field(default="fail", repr=False)
    max_expanded: int | str | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Return what counts as code. What is not declared is not named, so that a new attribute changes no one's code."""
        named = ("pattern", "schema", "format", "header", "missing", "options")
        added = [name for name in ("rules", "file_column") if getattr(self, name)]
        return f"Files({', '.join(f'{name}={getattr(self, name)!r}' for name in (*named, *added))})"

    def __post_init__(self) -> None:
        placeholders.check(self.pattern)
        check_path("The source", self.pattern)
        if "\0" in self.pattern:
            raise Misuse(f"{self.pattern!r} holds a NUL character, which no name of a file has.", fix="Take it out.")
        self._check_readiness()
        if self.format is not None and self.format not in FORMATS.values():
            raise Misuse(f"format={self.format!r} is unknown.", fix=suggestion(self.format, set(FORMATS.values())))
        if self.missing not in ("fail", "empty"):
            raise Misuse(f"missing={self.missing!r} is unknown.", fix="Use 'fail' or 'empty'.")
        self._check_options()
        mode = self.option("mode", "FAILFAST").upper()
        if mode != "FAILFAST" and CORRUPT not in (self.schema or ""):
            raise Misuse(
                f"mode={mode} would drop or blank broken rows without a word.",
                fix="Leave FAILFAST, or add the column `_corrupt_record string` to the schema.",
            )

        check_types(self.schema or "")
        check_column(self.file_column, self.schema, self.declared_columns)
        self._check_quarantine()

    def _check_options(self) -> None:
        """Refuse options of Spark's readers that leave files or values out without a word, or say again what is said here."""
        for name in NEVER_SILENT:
            if self.option(name, "false").lower() == "true":
                raise Misuse(
                    f"{name}=true would lose rows without a word.", fix="Leave it out; a bad file then fails the run."
                )
        for name, (lets_pass, why, fix) in _LEAVE_OUT.items():
            value = self.option(name)
            if value and value.lower() != lets_pass:
                raise Misuse(f"The option {name}={value!r} cannot be used: {why}", _COUNTED, fix)

    def _check_quarantine(self) -> None:
        check_limit(self.max_quarantined)
        bytes_of(self.max_expanded)
        if self.on_bad_file not in ON_BAD_FILE:
            raise Misuse(f"on_bad_file={self.on_bad_file!r} is unknown.", fix="Use 'fail' or 'set_aside'.")
        if not self.quarantines:
            return
        if self.option("mode") or CORRUPT in (self.schema or ""):
            raise Misuse(
                "mode= and `_corrupt_record` do nothing where broken rows are set aside.",
                fix="Leave them out; each row is kept with its text and the reason.",
            )
        if self.option("multiLine", "false").lower() == "true" or self.option("lineSep"):
            raise Misuse(
                "Rows that span lines, or end in a way of their own, cannot be set aside one by one.",
                fix="Leave multiLine and lineSep out, or leave rules= and max_quarantined= out.",
            )
        if not self.is_utf8:
            raise Misuse(
                f"Rows of files in {self.encoding} cannot be set aside: their lines are looked at as UTF-8.",
                fix="Convert the files to UTF-8, or leave rules= and max_quarantined= out.",
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
            check_path("The marker", self.done)
            if not self.done or self.done.endswith(os.sep):
                raise Misuse(f"done={self.done!r} names no file.", fix="Write, for example, done='_SUCCESS'.")

    def option(self, name: str, default: str = "") -> str:
        """Return one of Spark's options, whose names ignore case."""
        return self._lowered.get(name.lower(), default)

    def values(self, form: str) -> Values:
        """Say how texts of a form become values."""
        return Values(form, self._lowered)

    @cached_property
    def _lowered(self) -> Mapping[str, str]:
        return {key.lower(): str(value) for key, value in self.options.items()}

    @property
    def encoding(self) -> str:
        """The encoding of text files."""
        return self.option("encoding") or self.option("charset", "UTF-8")

    @property
    def is_utf8(self) -> bool:
        """Tell whether text files are in UTF-8."""
        return self.encoding.upper() in ("UTF-8", "UTF8")

    @property
    def separator(self) -> str:
        """What stands between the fields of a CSV file."""
        return (self.option("sep") or self.option("delimiter", ",")).replace("\\t", "\t")

    @property
    def quote(self) -> str:
        """What encloses a field of a CSV file."""
        return self.option("quote", '"')

    @property
    def escape(self) -> str:
        """What stands before a quotation mark inside of a field: another one, as in RFC 4180, if nothing else is said."""
        return self.option("escape", self.quote)

    @cached_property
    def declared_columns(self) -> list[str]:
        """The columns of the schema that files have; asked for with every file."""
        return [name for name in schema_columns(self.schema or "") if name != CORRUPT]

    @property
    def quarantines(self) -> bool:
        """Tell whether rows are judged one by one, and may be set aside; with rules alone none may."""
        return bool(self.rules) or self.max_quarantined is not None

    @property
    def largest(self) -> int | None:
        """How many bytes a file may have once it is unpacked, if that is said."""
        return bytes_of(self.max_expanded)

    def as_written(self) -> dict[str, str]:
        """Return the options with which Spark takes a line of CSV apart as RFC 4180 says, as far as no others are declared."""
        said = {"escape": self.escape, "nullValue": NULL_FIELD}
        return {name: value for name, value in said.items() if not self.option(name)}

    def lines(self, form: str) -> Lines | None:
        """Say which lines of a text file are rows; None where lines are not what Spark reads."""
        several = self.option("multiLine", "false").lower() == "true" or self.option("lineSep")
        if several or not _is_bytewise(self.encoding):
            return None
        comment = self.option("comment").encode() if form == "csv" else b""
        return Lines(form, form == "csv" and self.header, comment, one_row_each=self.quarantines)

    def resolve(self, place: Place) -> FileSet:
        """List, check and hash the files of a slot.

        Raises:
            Waiting: A rule of readiness is not fulfilled yet.
            InputsAbsent: There is no file, and that does not mean no rows.
        """
        # Readiness comes before the listing: what a marker vouches for is then listed whole.
        marker = self._marker(place)
        waiting = self._waiting_beside(marker, place)
        pattern = self._pattern(place, place.slot.part)
        absent = f"no file matches {pattern!r}"
        if waiting:
            waiting.absent = "" if matching(place.root, pattern) else absent
            raise waiting
        names = [name for name in list_files(place.root, pattern) if marker is None or name != marker.path]
        if not names and self.missing == "fail":
            raise InputsAbsent(
                absent,
                f" for {place.slot.pipeline} at {place.slot.label}",
                "Check the path, or say missing='empty' if no file means no rows.",
            )
        marks = tuple(mark_files(place.root, names, place.hashes, self.largest))
        chosen = FileSet(self, place.root, marks, self.form_of(names), marker)
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

    def form_of(self, names: Sequence[str]) -> str:
        """Return the one format that all of these files have; of none, the one that the pattern tells."""
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


def _is_bytewise(encoding: str) -> bool:
    """Tell whether lines, commas and blanks are the same bytes as in ASCII."""
    try:
        return "\n\r, ".encode(encoding) == b"\n\r, "
    except LookupError:
        return False


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
