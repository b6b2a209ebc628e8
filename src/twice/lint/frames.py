"""Is an expression a frame, and are its rows in an order?

Told from the code alone: a frame that the transform is given is in no order, `orderBy` puts one in
order, most methods keep it, a join or a group does not. What cannot be told is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

UNORDERED, ORDERED, UNKNOWN = "unordered", "ordered", ""
_ORDERING = frozenset({"orderBy", "sort"})
_KEEPING = frozenset(
    {
        "select",
        "selectExpr",
        "where",
        "filter",
        "withColumn",
        "withColumns",
        "withColumnRenamed",
        "withColumnsRenamed",
        "drop",
        "alias",
        "cache",
        "persist",
        "checkpoint",
        "localCheckpoint",
        "fillna",
        "dropna",
        "toDF",
        "limit",
        "hint",
    }
)
_MIXING = frozenset(
    {
        "agg",
        "coalesce",
        "count",
        "crossJoin",
        "cube",
        "distinct",
        "dropDuplicates",
        "drop_duplicates",
        "except",
        "exceptAll",
        "groupBy",
        "groupby",
        "intersect",
        "intersectAll",
        "join",
        "max",
        "mean",
        "min",
        "repartition",
        "repartitionByRange",
        "rollup",
        "sample",
        "sortWithinPartitions",
        "subtract",
        "sum",
        "union",
        "unionAll",
        "unionByName",
        "unpivot",
    }
)
_GROUPING = frozenset({"groupBy", "groupby", "cube", "rollup"})
_AGGREGATES = frozenset(
    {
        "any_value",
        "approx_count_distinct",
        "avg",
        "collect_list",
        "collect_set",
        "count",
        "countDistinct",
        "count_distinct",
        "first",
        "last",
        "max",
        "max_by",
        "mean",
        "median",
        "min",
        "min_by",
        "sum",
    }
)


def order_of(node: ast.expr, known: Mapping[str, str]) -> str:
    """Tell whether an expression is a frame in some order, in none, or nothing that is known."""
    if isinstance(node, ast.Name):
        return known.get(node.id, UNKNOWN)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return UNKNOWN
    before = order_of(node.func.value, known)
    if _is_one_row(node, node.func):
        return UNKNOWN
    if before == UNKNOWN or node.func.attr in _ORDERING:
        return ORDERED if before else UNKNOWN
    if node.func.attr in _KEEPING:
        return before
    return UNORDERED if node.func.attr in _MIXING else UNKNOWN


def _is_one_row(node: ast.Call, func: ast.Attribute) -> bool:
    """Tell whether a frame may have one row, which is in every order: an aggregate of all rows."""
    if func.attr == "agg":
        return not _is_grouped(func.value)
    named = (one.func for part in node.args for one in ast.walk(part) if isinstance(one, ast.Call))
    return func.attr == "select" and any(_last_name(one) in _AGGREGATES for one in named)


def _is_grouped(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and bool(node.args)
        and node.func.attr in _GROUPING
    )


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_window_ordered(node: ast.expr, known: Mapping[str, ast.expr]) -> bool | None:
    """Tell whether a window is in an order that tells its rows apart, or None if the code does not show it."""
    seen: set[str] = set()
    while isinstance(node, ast.Name) and node.id in known and node.id not in seen:
        seen.add(node.id)
        node = known[node.id]
    parts: dict[str, list[ast.expr]] = {}
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        parts[node.func.attr] = node.args
        node = node.func.value
    if not isinstance(node, ast.Name | ast.Attribute) or not parts.keys() & {"partitionBy", "orderBy"}:
        return None
    if isinstance(node, ast.Name) and node.id in seen | known.keys():
        return None
    order, partition = (set(map(ast.dump, parts.get(name, []))) for name in ("orderBy", "partitionBy"))
    constant = all(_is_literal(one) for one in parts.get("orderBy", []))
    return not constant and not order <= partition


def _is_literal(node: ast.expr) -> bool:
    """Tell whether a column is the same in every row: `F.lit(1)`."""
    name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    return name == "lit" or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lit")
