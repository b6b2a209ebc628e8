"""What does a query read, and when are its rows other rows?

A query cannot be pinned by itself. Either it reads tables of stores that Twice pins for it, and their
versions are the fingerprint; or its user declares the fingerprint; or both.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twice.abilities import Rows
from twice.caches import told_apart
from twice.errors import Misuse
from twice.fingerprint import Place
from twice.runs import Slot
from twice.sources.declared import Answer, Declared
from twice.sources.tables import Table, TableVersion
from twice.statements import Statement


@dataclass(frozen=True)
class Query:
    """Rows of a SQL query, run on the run's Spark session.

    `tables` are pinned and known to the query by their names; whatever else it reads, from Spark's
    catalog, is vouched for by the declared fingerprint.
    """

    statement: Statement
    tables: Mapping[str, Table]
    fingerprint: Declared | None

    def __post_init__(self) -> None:
        if not self.tables and self.fingerprint is None:
            raise Misuse(
                "A query needs tables= or fingerprint=: by itself it does not tell when its rows are other rows.",
                "Without that a rerun could not be told from a correction.",
                "Name tables of stores with tables={'a': 'delta:lake/a'}, or declare"
                " fingerprint='orders of {execution_date}' or a function of the run.",
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """The targets that are read."""
        return tuple(table.target for table in self.tables.values())

    @property
    def follows(self) -> tuple[str, ...]:
        """The targets whose changes are followed."""
        return tuple(target for table in self.tables.values() for target in table.follows)

    def resolve(self, place: Place) -> QueryInputs:
        """Pin the tables, and ask for the fingerprint."""
        self.statement.check_for(calendar=place.slot.interval is not None)
        pinned = {name: table.resolve(place) for name, table in self.tables.items()}
        return QueryInputs(self, place.slot, pinned, self.fingerprint.ask(place) if self.fingerprint else None)


@dataclass(frozen=True)
class QueryInputs:
    """What a query reads for one slot."""

    source: Query
    slot: Slot
    tables: Mapping[str, TableVersion]
    answer: Answer | None

    @property
    def facts(self) -> Any:
        """The versions of the tables, and the declared fingerprint."""
        pinned = [[name, *fact] for name, table in sorted(self.tables.items()) for fact in table.facts]
        return [["query", self.answer.facts if self.answer else None], *pinned]

    @property
    def summary(self) -> str:
        """Tables and fingerprint."""
        pinned = [table.summary for table in self.tables.values()]
        return f"a query, {', '.join([*pinned, *([self.answer.summary] if self.answer else [])])}"

    def moved(self) -> list[str]:
        """Ask for the fingerprint again; versions do not change."""
        return ["query"] if self.answer and self.answer.moved() else []

    def read(self, engine: Any) -> Rows:
        """Run the query. What it reads besides its tables may be other rows each time."""
        rows = {name: table.read(engine) for name, table in self.tables.items()}
        found = self.source.statement.frame(engine.spark, rows, self.slot)
        return told_apart(found, secrets.token_hex(16)) if self.answer else found
