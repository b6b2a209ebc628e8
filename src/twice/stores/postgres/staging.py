"""What does an attempt do before it publishes?

It puts its rows where no reader looks, fits them to the table's columns, and asks what the pattern wants to know of
them: how many there are, how many lie outside the slot's slice, which partitions they fill, whether their keys are
right. Rows that the driver holds are copied for that into a temporary table, which is rolled back; so an error of
type, length or sign shows itself before anything is published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from psycopg import sql

from twice.abilities import Answers, Editions, Leaving, LookBack, Rows, Staged, Work
from twice.data_tests import Answer, DataTest
from twice.errors import Misuse
from twice.faults import reach
from twice.merges import MergeRule
from twice.slices import Slice, missing_column
from twice.stores import answering
from twice.stores.postgres import (
    bookkeeping,
    conditions,
    merging,
    misfits,
    periods,
    reading,
    targets,
    tasks,
    versions,
    views,
)
from twice.stores.postgres.bookkeeping import Books
from twice.stores.postgres.connections import Connection, begin, comma, connected, nothing_lands, one
from twice.stores.postgres.kinds import Column, Fitted, fitted, kind_of, nested_as_text
from twice.stores.postgres.names import Name, checked, column
from twice.stores.postgres.periods import Place
from twice.stores.postgres.publishing import Change
from twice.stores.postgres.rows import held, is_frame, kinds_of, refuse_incomparable
from twice.stores.postgres.sources import Source
from twice.stores.postgres.strays import told_by_tasks

_REPLICATED = "select exists (select from pg_publication where puballtables)"
_REPLICATED_BY_SCHEMA = """
    or exists (select from pg_publication_namespace p where p.pnnspid = (select oid from pg_namespace where nspname = %(schema)s))
"""
_SCHEMAS_SINCE = 150_000


class Stager:
    """Stages the rows of one attempt for one table; where it is one of several, as those of the target `home`."""

    def __init__(self, url: str, name: Name, work: Work, home: Name | None = None) -> None:
        self.url = url
        self.name = name
        self.work = work
        self.home = home or name
        self.place: Place | None = None

    def table(self, rows: Rows) -> Staged:
        """Stage rows that will be the whole table."""
        return self._plain("table", rows)

    def slice(self, rows: Rows, bounds: Slice) -> Staged:
        """Stage rows of a slice, counting those that lie outside it."""
        return self._plain("slice", rows, bounds=bounds)

    def append(self, rows: Rows, lineage: str | None, check: Slice | None) -> Staged:
        """Stage rows that will be added, counting those that break a check."""
        return self._plain("append", rows, bounds=check, lineage=lineage or "")

    def taken(self, rows: Rows, check: Slice | None, leaving: Leaving | None) -> Staged:
        """Stage rows that will be added while others leave, counting those that break a check."""
        return self._plain("take", rows, bounds=check, leaving=leaving)

    def version(self, rows: Rows, keep: int | None) -> Staged:
        """Stage rows that will be a version of their own."""
        return self._plain("version", rows, keep=keep)

    def partitions(self, rows: Rows, columns: Sequence[str]) -> Staged:
        """Stage rows, and name the partitions that they fall into."""
        with self._rehearsed(rows) as (connection, source, fits, relation):
            for name in columns:
                if name not in fits.types:
                    raise missing_column(name, fits.types)
                if any(one.name == name and not one.exact for one in fits.table):
                    raise Misuse(
                        f"The column {name!r} of {self.work.name} cannot tell partitions apart.",
                        f"Values of {fits.types[name]} may be equal though they are written differently.",
                        "Take another column for partitions=, or another type for this one.",
                    )
            given = merging.cast(relation, fits)
            texts = comma(sql.SQL("{}::text").format(column(name)) for name in columns)
            found = connection.execute(sql.SQL("select distinct {} from {} rows").format(texts, given)).fetchall()
        filled = tuple(sorted(conditions.partition_name(columns, row) for row in found))
        change = Change("partitions", self.name, source, fits, partitions=filled)
        return Staged(source.count, partitions=filled, handle=change, answers=self._answers(source, fits))

    def merge(self, rows: Rows, rule: MergeRule) -> Staged:
        """Stage rows that will be merged by key."""
        return self._by_key("merge", rows, rule)

    def missing(self, rows: Rows, rule: MergeRule, look_back: LookBack | None) -> Staged:
        """Stage rows of which those are inserted whose key is not there."""
        return self._by_key("missing", rows, rule, look_back=look_back)

    def history(self, rows: Rows, rule: MergeRule, editions: Editions) -> Staged:
        """Stage change rows that will be kept, and of which the table is made."""
        return self._by_key("history", rows, rule, editions=editions)

    def _plain(
        self,
        how: str,
        rows: Rows,
        *,
        bounds: Slice | None = None,
        lineage: str = "",
        leaving: Leaving | None = None,
        keep: int | None = None,
    ) -> Staged:
        with self._rehearsed(rows, bounds=bounds, is_version=how == "version") as (connection, source, fits, relation):
            outside = source.strays or 0
            if bounds is not None and source.types and source.strays is None:
                condition = conditions.condition(bounds, fits.types)
                query = sql.SQL("select count(*) from {} rows where ({}) is not true")
                outside = one(connection.execute(query.format(merging.cast(relation, fits), condition)))[0]
            if leaving and source.types:
                self._check_leaving(connection, source, fits, relation, leaving)
        change = Change(how, self.name, source, fits, bounds=bounds, lineage=lineage, leaving=leaving or None)
        handle = replace(change, place=self.place, keep=keep)
        return Staged(source.count, outside, handle=handle, answers=self._answers(source, fits))

    def _check_leaving(
        self, connection: Connection, source: Source, fits: Fitted, relation: sql.Composable, leaving: Leaving
    ) -> None:
        """See that the table tells where its rows came from, and that the rows which come do."""
        there = {one.name: kind_of(one.type) for one in fits.table}
        if there and there.get(leaving.column) != "string":
            raise leaving.untold(self.work.name)
        if leaving.column not in source.types:
            raise missing_column(leaving.column, source.types)
        query = sql.SQL("select count(*) from {} rows where {} is null")
        leaving.refuse_unknown(one(connection.execute(query.format(relation, column(leaving.column))))[0])

    def _by_key(
        self,
        how: str,
        rows: Rows,
        rule: MergeRule,
        *,
        look_back: LookBack | None = None,
        editions: Editions | None = None,
    ) -> Staged:
        given = 0
        with self._rehearsed(rows, rule.besides, rule) as (connection, source, fits, relation):
            if source.types:
                given = merging.check(connection, relation, rule, fits)
            if look_back and source.types:
                merging.check_look_back(connection, relation, look_back, source.types)
        change = Change(how, self.name, source, fits, rule=rule, look_back=look_back, editions=editions, given=given)
        return Staged(given, handle=change, answers=self._answers(source, fits, rule))

    def _answers(self, source: Source, fits: Fitted, rule: MergeRule | None = None) -> Answers:
        """Answer tests of the rows as the table will hold them; those of a merge that are marked as deleted are left out."""

        def answers(tests: Sequence[DataTest]) -> Sequence[Answer]:
            if not source.types:
                return answering.by_rows((), tests)
            with connected(self.url) as connection, nothing_lands(self.work.name):
                begin(connection)
                given = source.opened(connection)
                rows = merging.live(given, rule, fits) if rule else merging.cast(given, fits)
                return reading.answered(connection, rows, list(fits.types), tests)

        return answers

    @contextmanager
    def _rehearsed(
        self,
        rows: Rows,
        besides: Sequence[str] = (),
        rule: MergeRule | None = None,
        *,
        bounds: Slice | None = None,
        is_version: bool = False,
    ) -> Iterator[tuple[Connection, Source, Fitted, sql.Composable]]:
        """Put the rows where they wait, and open them in a transaction that is rolled back."""
        with connected(self.url) as connection, nothing_lands(self.work.name):
            begin(connection)
            table = self._columns(connection, is_version=is_version)
            may_become_table = not (table or rule or is_version) and self._may_be_renamed(connection)
            connection.execute("rollback")
        given = kinds_of(rows) or _kinds_of_table(table, besides)
        if rule and given:
            rule.check_columns(list(given))
            refuse_incomparable(rows, rule)
        for name in given:
            checked(name)
        fits = fitted(given, table, self.work, tuple(besides))
        if is_frame(rows):
            fits = nested_as_text(fits)
        is_new = may_become_table and fits.source == fits.types
        source = self._source(rows, fits, bounds, is_new=is_new)
        reach("postgres.staged")
        explaining = misfits.named(self.url, [(source, fits)], self.work.name)
        with explaining, connected(self.url) as connection, nothing_lands(self.work.name):
            begin(connection)
            yield connection, source, fits, source.opened(connection) if source.types else sql.SQL("(select)")
            connection.execute("rollback")

    def _columns(self, connection: Connection, *, is_version: bool) -> tuple[Column, ...]:
        """Return the columns that the rows have to fit: the table's own, or those of the one it will be made like."""
        books = Books(self.name.schema)
        if is_version:
            return bookkeeping.columns_of(connection, self.name)
        if views.are_there(connection, books):
            versions.refuse_version(connection, self.name)
            periods.refuse_names(connection, self.work, self.name)
            self.place = periods.place_of(connection, self.name)
        targets.asked(connection, self.name)
        table = bookkeeping.columns_of(connection, self.name)
        return table or (bookkeeping.columns_of(connection, self.place.like) if self.place and self.place.like else ())

    def _source(self, rows: Rows, fits: Fitted, bounds: Slice | None, *, is_new: bool) -> Source:
        if is_frame(rows):
            within = told_by_tasks(bounds, fits)
            return tasks.staged(self.url, self.home, self.work, rows, fits.source, within, is_new=is_new)
        return Source(fits.source, held(rows))

    def _may_be_renamed(self, connection: Connection) -> bool:
        """Tell whether a staged table may become the table: it is beside it, and nobody is told of what it is filled with.

        Where all tables of a schema are replicated, subscribers would get the rows under a name that they do not know.
        """
        if self.place or self.name.schema != self.home.schema:
            return False
        by_schema = _REPLICATED_BY_SCHEMA if connection.info.server_version >= _SCHEMAS_SINCE else ""
        query = _REPLICATED + by_schema
        return not one(connection.execute(query, {"schema": self.name.schema}))[0]


def _kinds_of_table(table: Sequence[Column], besides: Sequence[str]) -> Mapping[str, str]:
    """Return the kinds that an empty list of rows would have had: it names no column itself."""
    kept = {one.name: kind_of(one.type) for one in table if not one.filled}
    return {**kept, **dict.fromkeys(besides, "boolean")} if kept else {}
