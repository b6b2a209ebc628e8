"""How is a transform written in SQL?

A query stands where a function would: its sources are tables of their names. Without comments and
layout it is what counts as the pipeline's code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twice.errors import Misuse
from twice.statements import Statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from twice.runs import Run


@dataclass(frozen=True)
class Sql:
    """A transform that is a query over its sources."""

    statement: Statement

    @property
    def code_text(self) -> str:
        """What counts as code."""
        return self.statement.normal

    def columns(self, of: Mapping[str, Sequence[str]]) -> list[str] | None:
        """Return the columns of its rows, given those of its sources, or None where the text alone does not tell."""
        from sqlglot import exp, parse_one
        from sqlglot.errors import SqlglotError

        try:
            query = parse_one(self.statement.normal, dialect="spark")
        except SqlglotError:
            return None
        if not isinstance(query, exp.Select):
            return None
        # What else a star may stand for is Spark's to say.
        others = any(query.find_all(exp.Join, exp.Lateral, exp.Subquery, exp.With, exp.Pivot))
        table = query.find(exp.Table)
        whole = of.get(table.name) if table and not others else None
        found: list[str] = []
        for one in query.selects:
            is_plain = isinstance(one, exp.Star) and not any(one.args.values())
            found += (whole or [""]) if is_plain else ["" if one.is_star else one.alias_or_name]
        return found if all(found) else None

    def __call__(self, rows: Any = None, /, *, run: Run | None = None, **named: Any) -> DataFrame:
        """Run the query over the only source, `rows`, or over sources of other names."""
        offered = named if rows is None else {"rows": rows, **named}
        if not offered:
            raise Misuse("The SQL has no rows to read.", fix="Call it with frames, as the pipeline would.")
        session = getattr(next(iter(offered.values())), "sparkSession", None)
        return self.statement.frame(session, offered, run.slot if run else None)


def statement_beside(caller: str, file: str) -> Statement:
    """Return the query in a file that stands beside the caller's.

    Raises:
        Misuse: It cannot be read.
    """
    path = os.path.join(os.path.dirname(os.path.abspath(caller)), file)
    try:
        with open(path, encoding="utf-8-sig") as opened:
            return Statement(opened.read(), path)
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(
            f"The SQL file {file!r} cannot be read: {getattr(error, 'strerror', None) or error}.",
            f"It was looked for beside {os.path.basename(caller)}.",
            "Give its path from the folder of the file of pipelines.",
        ) from error
