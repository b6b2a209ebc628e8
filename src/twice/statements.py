"""What does a piece of SQL ask for, and how is it run for one slot?

One query and no command. The slot's times are bound by Spark as parameters and never pasted into the
text. Rows are offered under names of the user's choice, as common table expressions over temporary
views whose own names nobody else has: so two threads on one session cannot exchange their rows.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from twice.errors import Misuse, NotPublished, suggestion
from twice.intervals import Interval
from twice.runs import Slot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OF_INTERVAL = ("start", "end", "execution_time")
OF_KEY = ("key",)
_BEGINNINGS = ("select", "with", "from", "values", "table")
_QUOTED = r"""\b[rR]'[^']*'|\b[rR]"[^"]*"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`"""
_PIECES = re.compile(rf"(?P<quoted>{_QUOTED})|(?P<comment>--[^\r\n]*|/\*.*?\*/)", re.DOTALL)
_LAYOUT = re.compile(rf"{_QUOTED}|\s+", re.DOTALL)
_BOUND_LATE = "spark.sql.legacy.parameterSubstitution.constantsOnly"
_one_at_a_time = threading.Lock()
# `a:b` looks into a value, `a::int` is a cast, `struct<a:int>` a type: none of them is a parameter.
_PARAMETER = re.compile(r"(?<![\w:)\]]):([A-Za-z_]\w*)")


@dataclass(frozen=True, repr=False)
class Statement:
    """One SQL query with the slot's named parameters in it; `origin` is the file that it stands in, where known."""

    text: str
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise Misuse(f"The SQL is a {type(self.text).__name__} instead of a text.")
        self._check_one_query()
        for name in sorted(self.parameters - {*OF_INTERVAL, *OF_KEY}):
            raise Misuse(f":{name} is not a parameter of a slot.", fix=suggestion(name, OF_INTERVAL + OF_KEY))

    def _check_one_query(self) -> None:
        if not self._bare.strip(" ;"):
            raise Misuse("The SQL is empty.", fix="Write a query, such as: select * from rows")
        if ";" in self._bare.rstrip("; "):
            raise Misuse(
                "The SQL holds several statements.",
                fix="Write one query; `with a as (...)` gives a name to a part of it.",
            )
        word = re.sub(r"^[( ]*(\w*).*", r"\1", self._bare)
        if word.lower() not in _BEGINNINGS:
            raise Misuse(
                f"The SQL begins with {word!r}, so it is not a query.",
                "Only the pattern of a pipeline changes a table.",
                "Write a select; the rows that it gives are published.",
            )

    def __repr__(self) -> str:
        """Return what counts as code: the text without its comments and layout."""
        return f"Statement({self.normal!r})"

    def _pieces(self) -> Iterator[tuple[str, str]]:
        """Cut the text into what is quoted, comments, and the rest."""
        end = 0
        for found in _PIECES.finditer(self.text):
            yield "rest", self.text[end : found.start()]
            yield found.lastgroup or "rest", found[0]
            end = found.end()
        yield "rest", self.text[end:]

    @cached_property
    def _bare(self) -> str:
        """The text with a letter for whatever is quoted, and without comments and layout."""
        letters = {"quoted": "q", "comment": " "}
        return " ".join("".join(letters.get(kind, piece) for kind, piece in self._pieces()).split())

    @cached_property
    def normal(self) -> str:
        """The text without comments, layout and the semicolon at its end."""
        text = "".join(" " if kind == "comment" else piece for kind, piece in self._pieces())
        return _LAYOUT.sub(lambda found: " " if found[0].isspace() else found[0], text).strip(" ;")

    @cached_property
    def parameters(self) -> frozenset[str]:
        """The named parameters that the text holds."""
        return frozenset(_PARAMETER.findall(self._bare))

    def check_for(self, *, calendar: bool) -> None:
        """Refuse parameters that a pipeline with, or without, a calendar does not have."""
        for name in sorted(self.parameters - set(OF_INTERVAL if calendar else OF_KEY)):
            raise Misuse(
                f":{name} in the SQL needs a slot with {'a key' if calendar else 'an interval'}.",
                fix="Scheduled pipelines have :start, :end and :execution_time; keyed ones have :key.",
            )

    def frame(self, spark: Any, rows: Mapping[str, Any], slot: Slot | None) -> DataFrame:
        """Run the query over rows that it knows by these names.

        Raises:
            NotPublished: Some rows are no frame of Spark.
        """
        for name, offered in rows.items():
            if not hasattr(offered, "createOrReplaceTempView"):
                raise NotPublished(
                    f"SQL reads Spark DataFrames, and {name!r} is a {type(offered).__name__}.",
                    "Nothing was published, and the target is as it was.",
                    "Use a function as the transform of rows that are not Spark's.",
                )
        views = {name: f"twice_{secrets.token_hex(12)}" for name in rows}
        try:
            for name, view in views.items():
                rows[name].createOrReplaceTempView(view)
            arguments = _arguments(slot.part) if slot and self.parameters else {}
            with _binding(spark) if arguments else nullcontext():
                found: DataFrame = spark.sql(self._over(views), args=arguments)
            return found
        finally:
            # The frame has found its rows by now, and does not look for the views again.
            for view in views.values():
                spark.catalog.dropTempView(view)

    def _over(self, views: Mapping[str, str]) -> str:
        """Put the query in brackets, where no command can stand, behind the names of its rows."""
        named = ", ".join(f"{_quoted(name)} AS (TABLE {view})" for name, view in views.items())
        query = "".join(piece.replace(";", " ") if kind == "rest" else piece for kind, piece in self._pieces())
        return f"{'WITH ' if named else ''}{named} SELECT * FROM (\n{query}\n)"  # noqa: S608 - the user's own text


@contextmanager
def _binding(spark: Any) -> Iterator[None]:
    """Let Spark bind parameters although a parser of Delta or Iceberg stands before its own.

    Spark 4.1 hands parameters to its parser, and those of others lose them on the way. By this
    setting they are bound after parsing, as they were before 4.1. It is the session's, so one thread
    at a time has it.
    """
    with _one_at_a_time:
        before = spark.conf.get(_BOUND_LATE, None)
        spark.conf.set(_BOUND_LATE, "true")
        try:
            yield
        finally:
            spark.conf.unset(_BOUND_LATE) if before is None else spark.conf.set(_BOUND_LATE, before)


def _arguments(part: Interval | str) -> dict[str, Any]:
    """Return the values of the parameters for an interval or a key."""
    if isinstance(part, Interval):
        return {"start": part.start, "end": part.end, "execution_time": part.start}
    return {"key": part}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
