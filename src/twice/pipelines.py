"""What does a user declare?

A pipeline is one frozen record: sources, transform, target, pattern, calendar. It is still
callable with rows, so it is tested like the function it was. There is no registry: a project finds
pipelines by looking at its modules.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from twice import placeholders
from twice.columns import NO_CHANGES, ColumnPolicy, NamedColumn, refuse_keys
from twice.data_tests import DataTest, tests_of
from twice.errors import Misuse
from twice.fingerprint import Source, code_digest
from twice.intervals import Moment, Schedule
from twice.patterns.ingest import Ingest
from twice.plans import Pattern
from twice.rules import Rule
from twice.runs import Slot, Target, check_name, digest, show_slots_in
from twice.slices import quoted
from twice.sources.contents import incomparable_types
from twice.sources.files import Files
from twice.sources.queries import Query
from twice.sources.tracked import Tracked
from twice.transforms import Sql
from twice.tries import Retries

ON_CODE_CHANGE = ("show", "rerun")
_HANDS_ON = (lambda rows: rows).__code__.co_code


@dataclass(frozen=True)
class Pipeline:
    """Sources, transform, target and pattern, as one record."""

    name: str
    target: Target
    pattern: Pattern
    sources: Mapping[str, Source]
    transform: Callable[..., Any]
    schedule: Schedule | None = None
    was: str = ""
    on_code_change: str = "show"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    columns: ColumnPolicy = NO_CHANGES
    retries: Retries | None = None
    tags: tuple[str, ...] = ()
    tests: tuple[DataTest, ...] = ()

    def __post_init__(self) -> None:
        if self.schedule:
            show_slots_in(self.identity, self.target, self.schedule.tz)
        for files in self.files if self._hands_on else ():
            kinds = incomparable_types(files.schema or "")
            for option, role in (("keys=", "key"), ("order=", "order column")):
                refuse_keys(kinds, [one.name for one in self.pattern.names if one.option == option], role)

    def __call__(self, *rows: Any, **named: Any) -> Any:
        """Transform rows, as the undecorated function would."""
        return self.transform(*rows, **named)

    @property
    def identity(self) -> str:
        """The name in slots: a renamed pipeline keeps its first one."""
        return self.was or self.name

    @property
    def tracked(self) -> Tracked | None:
        """The source whose files are taken in, if the pipeline is an ingest."""
        return next((source for source in self.sources.values() if isinstance(source, Tracked)), None)

    @property
    def files(self) -> tuple[Files, ...]:
        """What is read from files, whether or not they are tracked."""
        named = (source.files if isinstance(source, Tracked) else source for source in self.sources.values())
        return tuple(source for source in named if isinstance(source, Files))

    @property
    def zone(self) -> str:
        """The zone of the calendar."""
        return self.schedule.zone if self.schedule else "UTC"

    @property
    def names(self) -> tuple[NamedColumn, ...]:
        """The columns that the declaration names."""
        tested = {name: NamedColumn(name, test.text) for test in self.tests for name in test.named}
        return (*self.pattern.names, *tested.values())

    def brings(self) -> list[str] | None:
        """Return the columns of the rows as far as the declaration tells them, or None: a function may add any."""
        source = next(iter(self.sources.values())) if len(self.sources) == 1 else None
        files = source.files if isinstance(source, Tracked) else source
        read = None
        if isinstance(files, Files) and files.schema:
            read = [*files.declared_columns, *filter(None, [files.file_column])]
        if isinstance(self.transform, Sql):
            return self.transform.columns({"rows": read} if read else {})
        return read if self._hands_on else None

    @property
    def _hands_on(self) -> bool:
        """Tell a function that returns what it is given; a parameter more, such as run, changes nothing of its code."""
        return getattr(getattr(self.transform, "__code__", None), "co_code", None) == _HANDS_ON

    @cached_property
    def code(self) -> str:
        """Digest of what the transform does, and of how its sources and its pattern are declared."""
        parts = [part for part in (self.pattern, *self.sources.values()) if is_dataclass(part)]
        declared = [re.sub(r" at 0x[0-9a-f]+", "", repr(part)) for part in parts]
        return digest("\n".join([code_digest(self.transform), *declared]))

    @property
    def warnings(self) -> list[str]:
        """What is allowed, and is probably a mistake."""
        if self.schedule is None:
            return []
        return [
            f"{source.pattern!r} names no slot: every run of {self.name} reads the same files"
            for source in self.sources.values()
            if isinstance(source, Files) and not placeholders.names_slot(source.pattern)
        ]

    def slot(
        self,
        at: Moment | None = None,
        key: str | None = None,
        *,
        now: datetime | None = None,
        besides: str = "",
    ) -> Slot:
        """Return the slot of a time or of a key; `besides` is what the caller takes instead of a time.

        Raises:
            Misuse: The time is no start of an interval, or its interval is still open at `now`.
        """
        if self.schedule is None:
            if at is not None:
                raise Misuse(
                    f"The pipeline {self.name!r} has no calendar.", fix="Leave --at out, or declare every= and start=."
                )
            return Slot(self.identity, self.target, key or "")
        if key is not None:
            raise Misuse(f"The pipeline {self.name!r} has a calendar, so its slots have no key.", fix="Use --at.")
        if at is None:
            raise Misuse(f"Which interval of {self.name!r}?", fix=self._which(now or datetime.now(UTC), besides))
        interval = self.schedule.at(at)
        if now is not None and interval.end > now:
            raise Misuse(
                f"The interval {interval.shown_in(self.schedule.tz)} is not closed yet.",
                "Its input may still be growing.",
                self._which(now, besides),
            )
        return Slot(self.identity, self.target, interval)

    def command(self, slots: Sequence[Slot]) -> str:
        """Return the command that runs some of its slots, all of them where they are several."""
        first = slots[0] if slots else None
        if first is None or (first.interval is None and not first.part) or (first.interval and len(slots) > 1):
            return f"twice run {self.name} --due"
        return (
            f"twice run {self.name} {f'--at {first.label}' if first.interval else f'--key {shlex.quote(first.label)}'}"
        )

    def _which(self, now: datetime, besides: str) -> str:
        newest = self.schedule.newest_closed(now) if self.schedule else None
        if self.schedule is None or newest is None:
            return f"Use --at TIME, the start of an interval{besides}. None is closed yet."
        return f"Use --at {self.schedule.shown(newest.start)} for the newest closed interval{besides}."

    def call(self, rows: Mapping[str, Any], run: Any) -> Any:
        """Call the transform with its sources, and with the run if it asks for it."""
        positional, named = _arguments(self.transform, rows, run)
        return self.transform(*positional, **named)


def _arguments(
    transform: Callable[..., Any], rows: Mapping[str, Any], run: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a transform is called with: its sources, a single one by its place, and the run if it asks for it."""
    wanted = {"run": run} if "run" in inspect.signature(transform).parameters else {}
    return ((rows["rows"],), wanted) if list(rows) == ["rows"] else ((), {**rows, **wanted})


def pipeline(
    *,
    target: str,
    pattern: Pattern,
    source: Source | None = None,
    sources: Mapping[str, Source] | None = None,
    every: str | None = None,
    start: str | None = None,
    end: str | None = None,
    zone: str = "UTC",
    name: str | None = None,
    was: str = "",
    on_code_change: str = "show",
    on_new_column: str = "fail",
    on_missing_column: str = "fail",
    on_type_change: str = "fail",
    parameters: Mapping[str, Any] | None = None,
    retries: Retries | None = None,
    tags: Sequence[str] = (),
    tests: Sequence[DataTest] = (),
) -> Callable[[Callable[..., Any]], Pipeline]:
    """Declare a pipeline around the function that transforms its rows.

    Raises:
        Misuse: The declaration is not whole, or contradicts itself.
    """
    if (source is None) == (sources is None):
        raise Misuse("A pipeline has either source= or sources=.")
    if (every is None) != (start is None):
        raise Misuse("A calendar needs both every= and start=.", fix='For example every="1 day", start="2024-09-20".')
    if on_code_change not in ON_CODE_CHANGE:
        raise Misuse(f"on_code_change={on_code_change!r} is unknown.", fix=f"Use one of: {', '.join(ON_CODE_CHANGE)}.")
    check_no_empty(pattern)
    labels = tuple(check_name("tag", tag) for tag in ([tags] if isinstance(tags, str) else tags))
    columns = ColumnPolicy(on_new_column, on_missing_column, on_type_change)
    schedule = Schedule(every, start, zone, end) if every is not None and start is not None else None
    chosen = dict(sources) if sources is not None else {"rows": source}
    _check_sources(chosen, schedule)
    chosen = {label: _with_keys(one, pattern) for label, one in chosen.items()}
    tracked = [one for one in chosen.values() if isinstance(one, Tracked)]
    if tracked:
        pattern = _ingest(tracked, pattern, schedule, on_code_change)

    def declare(transform: Callable[..., Any]) -> Pipeline:
        if isinstance(transform, Sql):
            transform.statement.check_for(calendar=schedule is not None)
        _check_transform(transform, chosen)
        called = name or getattr(transform, "__name__", "")
        if not called:
            raise Misuse("A transform that is no function gives the pipeline no name.", fix="Declare it with name=.")
        return Pipeline(
            name=check_name("pipeline", called),
            target=Target.parse(target),
            pattern=pattern,
            sources=chosen,  # type: ignore[arg-type]
            transform=transform,
            schedule=schedule,
            was=check_name("pipeline", was) if was else "",
            on_code_change=on_code_change,
            parameters=dict(parameters or {}),
            columns=columns,
            retries=retries,
            tags=labels,
            tests=tests_of(tests),
        )

    return declare


def _check_transform(transform: Any, sources: Mapping[str, Any]) -> None:
    """Refuse what cannot be called with the sources.

    Raises:
        Misuse: With what it asks for, and what it is given.
    """
    named = getattr(transform, "__name__", type(transform).__name__)
    if not callable(transform):
        raise Misuse(
            f"The transform is of the type {named}, which cannot be called.",
            fix="Declare a function, or twice.sql(...).",
        )
    try:
        signature = inspect.signature(transform)
    except (TypeError, ValueError):  # some of Python's own do not tell
        return
    positional, by_name = _arguments(transform, sources, None)
    try:
        signature.bind(*positional, **by_name)
    except TypeError as error:
        wanted = ", ".join(sources)
        raise Misuse(
            f"The transform {named!r} cannot be called with its sources: {error}.",
            f"It is given {' and '.join(map(repr, sources))}, and 'run' if it has a parameter of that name.",
            f"Write: def {named}({wanted}):",
        ) from None


def check_no_empty(declared: Any) -> None:
    """An option that is empty would be taken for one that was left out: `slice=""` for the whole table.

    Raises:
        Misuse: There is one.
    """
    for one in fields(declared) if is_dataclass(declared) else ():
        value = getattr(declared, one.name)
        check_no_empty(value)
        texts = value if isinstance(value, tuple) else (value,) if one.default is None else ()
        if any(isinstance(text, str) and not text.strip() for text in texts):
            raise Misuse(
                f"{one.name}={value!r} names nothing.",
                "It is not taken for an option that was left out.",
                f"Leave {one.name}= out, or name what you mean.",
            )


def _with_keys(source: Source | None, pattern: Pattern) -> Source | None:
    """Let rows without a key be set aside where they can be: no merge could take them."""
    if isinstance(source, Tracked):
        return replace(source, files=_with_keys(source.files, pattern))  # type: ignore[arg-type]
    keys = getattr(getattr(pattern, "rule", None), "keys", ())
    if not isinstance(source, Files) or not source.quarantines:
        return source
    named = [key for key in keys if key in source.declared_columns]
    return replace(source, rules=(*source.rules, *(Rule(f"{quoted(key)} IS NOT NULL") for key in named)))


def _ingest(tracked: Sequence[Tracked], pattern: Pattern, schedule: Schedule | None, on_code_change: str) -> Ingest:
    """Return the pattern as files are taken in by it, if all that is declared fits together."""
    if len(tracked) > 1:
        raise Misuse("A pipeline takes in the files of one source.", fix="Declare a pipeline for each of them.")
    if schedule is not None:
        raise Misuse(
            "What an ingest has taken in is told by the marks of the files, so it has no calendar.",
            fix="Leave every= and start= out, or track=True.",
        )
    if on_code_change == "rerun":
        raise Misuse(
            "Files that were taken in are not read again, so on_code_change='rerun' has no meaning for an ingest.",
            fix="Leave it out; twice files forget takes a file in again.",
        )
    ingest = Ingest.of(pattern)
    said = tracked[0].on_changed_file
    if said == "replace" and not ingest.adds:
        raise Misuse(
            f"on_changed_file='replace' cannot be kept by {pattern.name}: a row that was merged may come from several files.",
            fix="Use 'apply' to bring the new rows in over the old ones, 'refuse' or 'ignore'; or transactional_writer.",
        )
    if said == "apply" and ingest.adds:
        raise Misuse(
            "on_changed_file='apply' would add the rows of a changed file to its old ones.",
            fix="Use 'replace' with file_column=, 'refuse' or 'ignore'; or a pattern with keys.",
        )
    return ingest


def _check_sources(sources: Mapping[str, Source | None], schedule: Schedule | None) -> None:
    for source in sources.values():
        if isinstance(source, Query):
            source.statement.check_for(calendar=schedule is not None)
        if isinstance(source, Files) and source.ready and schedule is None:
            raise Misuse(
                "ready='next' needs a calendar: without one there is no next interval.",
                fix="Declare every= and start=, or use done= with a marker.",
            )
