"""What did a slot choose to read, and is it read whole?

The files that a source chose, pinned. Each is looked into before Spark reads it; where rows may be set aside, `sifting`
tells the good ones from the others, and the good ones alone are handed on.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from twice.abilities import Rows
from twice.asides import AsideRow
from twice.caches import OPTION, content
from twice.errors import Misuse
from twice.sources.contents import Look, check_beginning, check_same_columns, look_into
from twice.sources.judging import good_rows
from twice.sources.listing import bad
from twice.sources.loading import load_just
from twice.sources.marking import FileMark, is_as_marked, token
from twice.sources.origins import check_one_name_each, with_origin
from twice.sources.requiring import refusing_nulls
from twice.sources.sifting import FileRows, Sifted, sift
from twice.sources.values import with_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from twice.sources.files import Files

NEVER_SILENT = ("ignoreCorruptFiles", "ignoreMissingFiles")


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
    """The files that one slot reads. `again` are rows that were set aside earlier, to be read once more with them."""

    source: Files
    root: str
    marks: tuple[FileMark, ...]
    format: str
    marker: Marker | None = None
    again: tuple[AsideRow, ...] = ()
    _looks: dict[str, Look] = field(init=False, repr=False, compare=False, default_factory=dict)
    _sifted: list[Sifted] = field(init=False, repr=False, compare=False, default_factory=list)

    @property
    def facts(self) -> Any:
        """Relative path, size and content of each file; times only save hashing."""
        return [["files", mark.path, mark.size, mark.content] for mark in self.marks]

    @property
    def summary(self) -> str:
        """Count and size."""
        size = sum(mark.size for mark in self.marks)
        return f"{len(self.marks)} file{'s' * (len(self.marks) != 1)}, {size:,} bytes"

    @property
    def absent(self) -> str:
        """What is not there, where no file means no rows."""
        return "" if self.marks or self.again else f"no file matches {self.source.pattern!r}"

    def moved(self) -> list[str]:
        """Name the files whose token or, where a token is too young to be trusted, content changed."""
        marker = [self.marker.path] if self.marker and self.marker.moved(self.root) else []
        return marker + [mark.path for mark in self.marks if not self._still(mark)]

    def _still(self, mark: FileMark) -> bool:
        return is_as_marked(self.root, mark)

    def check(self) -> None:
        """Refuse files whose first or last bytes tell that Spark would misread them without a word."""
        for mark in self.marks:
            check_beginning(mark.path, mark.real, self.source, self.format)

    def with_looks(self, looks: Mapping[str, Look]) -> FileSet:
        """Return the same files, some of which were looked into already."""
        self._looks.update(looks)
        return self

    def without(self, names: Collection[str]) -> FileSet:
        """Return the same set without some files."""
        kept = tuple(mark for mark in self.marks if mark.path not in names)
        looks = {path: look for path, look in self._looks.items() if path not in names}
        return replace(self, marks=kept).with_looks(looks)

    def counts(self) -> Mapping[str, int | None]:
        """Return how many rows each file hands on; None where only Spark can tell. Every file is read to its end, once.

        Raises:
            BadFile: A file cannot be used.
        """
        if self.sifted:
            return {mark.path: self.sifted.files.get(mark.path, FileRows()).handed for mark in self.marks}
        return {mark.path: self._look(mark).rows for mark in self.marks}

    def sift(self, engine: Any) -> Sifted | None:
        """Judge the rows in one pass; None where a bad row fails the read and nothing is set aside.

        Raises:
            BadFile: A file cannot be used.
            NotPublished: More rows would be set aside than may.
        """
        if not self.source.quarantines:
            return None
        if not self._sifted:
            check_one_name_each(self.marks)
            self._look_into_all()
            self._sifted.append(sift(self, engine.spark))
        return self._sifted[0]

    @property
    def sifted(self) -> Sifted | None:
        """What became of the rows, if they were judged already."""
        return self._sifted[0] if self._sifted else None

    def read(self, engine: Any) -> Rows:
        """Read all files as one frame; a broken row fails the read, or is left out because it was set aside."""
        spark = engine.spark
        if self.sift(engine):
            return good_rows(self, spark) if self.marks or self.again else self._no_rows(spark)
        self._look_into_all()
        if not self.marks:
            return self._no_rows(spark)
        frame = self.frame(spark)
        if self.source.schema:
            frame = refusing_nulls(frame, self.struct(spark))
        column = self.source.file_column
        if column is None:
            return frame
        check_one_name_each(self.marks)
        self._check_new(column, frame)
        return with_origin(frame, self.marks, self.root, column, ["*"])

    def frame(self, spark: Any) -> DataFrame:
        """Return the rows as Spark's own reader gives them; of text files each value as it was written, or the read fails."""
        reader = spark.read.format(self.format)
        values = self.source.values(self.format) if self.format != "parquet" else None
        if self.source.schema:
            reader = reader.schema(values.texts(self.struct(spark)) if values else self.source.schema)
        for name, value in {**self._options(), **self.source.options}.items():
            reader = reader.option(name, value)
        frame = load_just(reader.option(OPTION, self.content), self.marks)
        return with_values(frame, self.struct(spark), values) if values else frame

    @property
    def content(self) -> str:
        """What tells a read of these files from one of the same files with other content, even if that is put back later."""
        return content(self.marks)

    def struct(self, spark: Any) -> StructType:
        """Return the declared columns with their types; of Parquet files without a schema, their own."""
        from pyspark.sql.types import StructType

        if self.source.schema:
            declared: StructType = StructType.fromDDL(self.source.schema)  # type: ignore[assignment]
            return declared
        if not self.marks:
            raise Misuse(
                f"The columns of {self.source.pattern!r} are not known, since there is no file.",
                fix='Write schema="id bigint, day date, ...".',
            )
        return self.frame(spark).schema

    def expected(self) -> Mapping[str, int]:
        """Return how many rows Spark has to see of each file, rows that are read again included."""
        again = Counter(row.file for row in self.again)
        return {mark.path: self._look(mark).rows or 0 for mark in self.marks} | {
            name: rows + (self._looks[name].rows or 0 if name in self._looks else 0) for name, rows in again.items()
        }

    def headers(self) -> set[str]:
        """Return the lines of header that the files begin with."""
        found = (self._look(mark).header for mark in self.marks)
        return {header.decode(errors="surrogateescape") for header in found if header}

    def _no_rows(self, spark: Any) -> Rows:
        column = self.source.file_column
        empty = spark.createDataFrame([], self.source.schema)
        return empty if column is None else empty.selectExpr("*", f"cast(null as string) as `{column}`")

    def _check_new(self, column: str, frame: DataFrame) -> None:
        if column.lower() in {name.lower() for name in frame.columns}:
            raise Misuse(
                f"file_column={column!r} is a column of {self.marks[0].path!r} already.",
                fix="Choose a name that the files do not have.",
            )

    def _options(self) -> dict[str, Any]:
        """What makes Spark fail on anything that it would otherwise pass over."""
        options: dict[str, Any] = {"recursiveFileLookup": "true", **dict.fromkeys(NEVER_SILENT, "false")}
        if self.format in ("csv", "json"):
            options["mode"] = "FAILFAST"
        if self.format == "csv":
            # The header was checked above, by name; enforceSchema=false makes Spark check it again.
            # Without column pruning a short line is noticed even if the transform needs no more of it.
            header = self.source.header
            options |= {"header": header, "enforceSchema": not header, "columnPruning": "false"}
            options |= {"unescapedQuoteHandling": "RAISE_ERROR", **self.source.as_written()}
        return options

    def _look_into_all(self) -> None:
        """Refuse content that Spark reads without a word as something else: one more look at the bytes."""
        for mark in self.marks:
            self._look(mark)
            if self.format == "parquet" and not self.source.schema and mark is not self.marks[0]:
                check_same_columns(mark.path, mark.real, self.marks[0].path, self.marks[0].real)

    def _look(self, mark: FileMark) -> Look:
        if mark.path not in self._looks:
            look = look_into(mark.path, mark.real, self.source, self.format)
            if self.source.quarantines and look.rows is None:
                raise bad(
                    mark.path,
                    "is packed in a way that only Spark unpacks, so its lines cannot be counted; use gzip or bzip2.",
                )
            self._looks[mark.path] = look
        return self._looks[mark.path]
