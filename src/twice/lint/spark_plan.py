"""What in Spark's own plan of a frame depends on more than its rows?

The analysed plan knows what the code does not show: what a helper of another package does, what a
query of the catalog holds, what a column was made of. It is walked in the JVM and nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from twice.lint.rules import (
    CLOCK,
    DISTINCT_INSTEAD,
    LAYOUT,
    LIMIT_INSTEAD,
    LIST_INSTEAD,
    ORDER,
    PICK_INSTEAD,
    RANDOM,
    SAMPLE_INSTEAD,
    SEEDED,
    UDF,
    Remark,
    Rule,
)

_RULES = {
    **dict.fromkeys(("CurrentTimestamp", "CurrentDate", "CurrentTime", "Now", "LocalTimestamp"), CLOCK),
    **dict.fromkeys(("Rand", "Randn", "RandStr", "Uniform", "Uuid", "Shuffle"), RANDOM),
    **dict.fromkeys(("MonotonicallyIncreasingID", "SparkPartitionID"), LAYOUT),
    **dict.fromkeys(("InputFileName", "InputFileBlockStart", "InputFileBlockLength"), LAYOUT),
}
_PICKING = frozenset({"First", "Last", "AnyValue"})
_LISTING = frozenset({"CollectList", "CollectSet", "ListAgg"})
_ORDER_FREE = frozenset({"SortArray", "ArraySort", "Size", "ArraySize", "ArrayMax", "ArrayMin", "ArrayContains"})
_UDFS = ("PythonUDF", "PythonUDAF", "ScalaUDF", "PythonUDTF")
# Below a limit, these leave the rows in the order that they had.
_KEEP_ORDER = frozenset({"Project", "Filter", "SubqueryAlias", "LocalLimit", "GlobalLimit", "View", "ResolvedHint"})
# A column of a plan is written with a number that no other has: `sort_array(days#12, true)`.
_PUT_IN_ORDER = re.compile(r"(?:sort_array|array_sort|size|array_size|array_max|array_min)\([^()]*?#(\d+)")
_SHOWN_AT_MOST = 80


def remarks_on(frame: Any) -> Iterator[Remark]:
    """Say what in the analysed plan of a frame differs from run to run, each thing once."""
    seen = set()
    plan = frame._jdf.queryExecution().analyzed()
    for remark in _in_plan(plan, frozenset(_PUT_IN_ORDER.findall(plan.toString()))):
        key = (remark.rule, remark.expression)
        if key not in seen:
            seen.add(key)
            yield remark


def _in_plan(plan: Any, ordered: frozenset[str]) -> Iterator[Remark]:
    """Walk a plan; `ordered` are the numbers of columns that are put in order somewhere in it."""
    yield from _in_node(plan)
    for expression in _each(plan.expressions()):
        is_ordered = expression.getClass().getSimpleName() == "Alias" and str(expression.exprId().id()) in ordered
        yield from _in_expression(expression, "SortArray" if is_ordered else plan.nodeName())
    for child in (*_each(plan.children()), *_each(plan.subqueries())):
        yield from _in_plan(child, ordered)


def _in_node(plan: Any) -> Iterator[Remark]:
    kind = plan.nodeName()
    if kind in ("GlobalLimit", "Tail") and not _is_none(plan.limitExpr()) and not _is_sorted(plan.child()):
        yield _remark(ORDER, f"limit {plan.limitExpr().toString()}", instead=LIMIT_INSTEAD)
    elif kind == "Sample":
        yield _remark(RANDOM, "a sample of rows", why=SEEDED, instead=SAMPLE_INSTEAD)
    elif kind == "Deduplicate" and plan.keys().size() < plan.child().output().size():
        names = ", ".join(key.name() for key in _each(plan.keys()))
        yield _remark(ORDER, f"one row for each {names}", instead=DISTINCT_INSTEAD)


def _is_none(limit: Any) -> bool:
    return str(limit.toString()) == "0"


def _is_sorted(plan: Any) -> bool:
    while plan.nodeName() in _KEEP_ORDER:
        plan = plan.child()
    return bool(plan.nodeName() == "Sort" and getattr(plan, "global")())


def _in_expression(expression: Any, around: str) -> Iterator[Remark]:
    kind = expression.getClass().getSimpleName()
    if kind in _RULES:
        seeded = kind in ("Rand", "Randn")
        yield _remark(_RULES[kind], _text(expression), why=SEEDED if seeded else "")
        return
    if kind in _UDFS and not expression.deterministic():
        yield _remark(UDF, _text(expression), why="It is marked as not deterministic: a rerun may give other rows.")
    if kind in _PICKING | _LISTING and around not in (*_ORDER_FREE, "WindowExpression"):
        yield _remark(ORDER, _text(expression), instead=LIST_INSTEAD if kind in _LISTING else PICK_INSTEAD)
    # An aggregate is wrapped by one that tells its mode; what matters is around that.
    inside = around if kind in ("AggregateExpression", "Alias") else kind
    if kind == "WindowExpression" and not expression.windowSpec().orderSpec().size():
        inside = "Aggregate"
    for child in _each(expression.children()):
        yield from _in_expression(child, inside)


def _remark(rule: Rule, expression: str, why: str = "", instead: str = "") -> Remark:
    return Remark(rule, "", 0, 0, f"in Spark's plan: {expression}", why or rule.why, instead or rule.instead)


def _text(expression: Any) -> str:
    text = str(expression.toString())
    return text if len(text) <= _SHOWN_AT_MOST else text[: _SHOWN_AT_MOST - 3] + "..."


def _each(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    yield from (sequence.apply(number) for number in range(sequence.size()))
