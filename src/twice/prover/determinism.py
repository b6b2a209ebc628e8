"""Do two clean runs give the same rows, and if not, which column and which expression is it?

A pipeline that reads the clock or throws dice is not made idempotent by any write. It is told apart
from one that is written wrongly: rows are then compared without the columns that differ by themselves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from twice.lint import remarks_on
from twice.lint.rules import Remark
from twice.pipelines import Pipeline
from twice.prover.codes import Code
from twice.prover.verdicts import NOT_DETERMINISTIC, Trouble
from twice.prover.watching import canonical

_LAST_DIGITS = 1e-9
_ROUNDED = "likely: a sum or mean of floating-point numbers, whose last digits depend on the order of rows; use a decimal, or round it"
Rows = Sequence[Mapping[str, Any]]


def differing_columns(one: Rows, other: Rows) -> list[str]:
    """Name the columns by which two results differ, as few as explain it; none where the results are equal."""
    names = sorted({name for row in (*one, *other) for name in row})
    if _same(one, other, frozenset()):
        return []
    for name in names:
        if _same(one, other, frozenset({name})):
            return [name]
    by_themselves = [name for name in names if _values(one, name) != _values(other, name)]
    if by_themselves and _same(one, other, frozenset(by_themselves)):
        return by_themselves
    return names


def _same(one: Rows, other: Rows, without: frozenset[str]) -> bool:
    return Counter(canonical(row, without) for row in one) == Counter(canonical(row, without) for row in other)


def _values(rows: Rows, name: str) -> Counter[str]:
    return Counter(repr(row.get(name)) for row in rows)


def only_rounded(one: Rows, other: Rows, columns: Sequence[str]) -> bool:
    """Tell whether floating-point numbers differ, and only in their last digits."""

    def numbers(rows: Rows, name: str) -> list[float]:
        return sorted(value for row in rows if isinstance(value := row.get(name), float))

    return bool(columns) and all(
        len(pairs := list(zip(numbers(one, name), numbers(other, name), strict=False))) == len(one) == len(other)
        and all(math.isclose(*pair, rel_tol=_LAST_DIGITS) for pair in pairs)
        for name in columns
    )


def explained(pipeline: Pipeline, columns: Sequence[str], between: str, *, rounded: bool = False) -> Trouble:
    """Say that two runs differ, in which columns, and by which expression most likely, or by rounding."""
    named = ", ".join(repr(column) for column in columns)
    differ = f"{between} differ in {_noun(columns)} {named}"
    if rounded:
        return Trouble(NOT_DETERMINISTIC, f"{differ}; {_ROUNDED}")
    remarks = list(remarks_on(pipeline, ""))
    aimed = [one for one in remarks if one.fills in columns]
    likely = [_told(one) for one in aimed or remarks if one in aimed or not one.fills]
    likely = likely or [f"the UDF {name}" for name in Code(pipeline).udfs()]
    why = f"; likely: {', '.join(likely[:3])}" if likely else "; no usual suspect was found in its code"
    return Trouble(NOT_DETERMINISTIC, f"{differ}{why}")


def _noun(columns: Sequence[str]) -> str:
    return "column" if len(columns) == 1 else "columns"


def _told(remark: Remark) -> str:
    return remark.expression + (f" in line {remark.line}" if remark.line else "")
