"""What does the code of a pipeline say about itself?

The transform, the functions of its file that it calls, and the SQL in their texts, read without running
them: to name the likely reason why two clean runs differ, and to refuse what would reach outside.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from twice.pipelines import Pipeline

_SOURCES_OF_CHANCE = {
    "now": "now()",
    "current_timestamp": "current_timestamp()",
    "current_date": "current_date()",
    "localtimestamp": "localtimestamp()",
    "unix_timestamp": "unix_timestamp()",
    "rand": "rand()",
    "randn": "randn()",
    "random": "random()",
    "uuid": "uuid()",
    "uuid4": "uuid4()",
    "uuid1": "uuid1()",
    "shuffle": "shuffle()",
    "monotonically_increasing_id": "monotonically_increasing_id()",
    "spark_partition_id": "spark_partition_id()",
    "collect_list": "collect_list()",
    "collect_set": "collect_set()",
    "first": "first()",
    "last": "last()",
    "dropDuplicates": "dropDuplicates()",
    "drop_duplicates": "drop_duplicates()",
    "sample": "sample()",
    "today": "today()",
    "utcnow": "utcnow()",
    "time": "time()",
    "getpid": "getpid()",
    "hash": "hash()",
    "token_hex": "token_hex()",
    "choice": "choice()",
}
_ORDERS = frozenset({"orderBy", "sort", "sortWithinPartitions"})
_LIMITS = frozenset({"limit", "take", "head"})
_NAMES_A_COLUMN = frozenset({"withColumn", "alias"})
_UDFS = frozenset({"udf", "pandas_udf", "mapInPandas", "applyInPandas", "mapInArrow"})
_IN_SQL = re.compile(
    r"\b(now|current_timestamp|current_date|rand|randn|random|uuid|shuffle|monotonically_increasing_id|"
    r"spark_partition_id|collect_list|collect_set|first|last|unix_timestamp)\s*\(\s*\)?",
    re.IGNORECASE,
)
_SQL_COLUMN = re.compile(r"\bas\s+`?(\w+)`?", re.IGNORECASE)


@dataclass(frozen=True)
class Suspect:
    """An expression that need not give the same value twice, and the column that it fills, if that is said."""

    expression: str
    column: str
    line: int


@dataclass(frozen=True)
class Code:
    """The functions of a pipeline, as syntax trees."""

    pipeline: Pipeline

    @cached_property
    def file(self) -> Path | None:
        """The file that declares the transform."""
        try:
            found = inspect.getsourcefile(inspect.unwrap(self.pipeline.transform))
        except TypeError:
            return None
        return Path(found) if found else None

    @cached_property
    def trees(self) -> list[ast.AST]:
        """The transform, and the functions of its file that it reaches."""
        module = self._module
        defined = (
            {node.name: node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            if module
            else {}
        )
        first = defined.get(getattr(self.pipeline.transform, "__name__", ""))
        if first is None:
            return [tree for tree in (_tree_of(self.pipeline.transform),) if tree]
        reached: dict[str, ast.AST] = {}
        todo: list[ast.FunctionDef | ast.AsyncFunctionDef] = [first]
        while todo:
            function = todo.pop()
            reached[function.name] = function
            named = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            todo += [defined[name] for name in named & set(defined) if name not in reached]
        return list(reached.values())

    @cached_property
    def _module(self) -> ast.Module | None:
        if self.file is None or not self.file.is_file():
            return None
        try:
            return ast.parse(self.file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            return None

    @cached_property
    def sql(self) -> str:
        """The SQL of a transform that is written in SQL."""
        statement = getattr(self.pipeline.transform, "statement", None)
        return str(getattr(statement, "text", ""))

    @property
    def imports(self) -> dict[str, str]:
        """The names under which a file knows what it imports: name to module."""
        found: dict[str, str] = {}
        for node in ast.walk(self._module) if self._module else ():
            if isinstance(node, ast.Import):
                found |= {(one.asname or one.name).partition(".")[0]: one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {one.asname or one.name: node.module for one in node.names}
        return found

    def texts(self) -> Iterator[tuple[str, int]]:
        """Yield the texts of the code, with their lines."""
        for tree in self.trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value, node.lineno

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Yield what is called: `F.now`, `rows.limit`, `requests.post`."""
        for tree in self.trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    yield _dotted(node.func), node

    def suspects(self) -> list[Suspect]:
        """List the expressions that need not give the same value twice."""
        found = [*_suspects_in_sql(self.sql, 0)]
        for tree in self.trees:
            found += _suspects_in(tree, "", ordered=_is_ordered(tree))
        found += [
            Suspect(f"the UDF {name!r}", "", tree.lineno)
            for tree in self.trees
            if (name := _udf_name(tree)) and isinstance(tree, ast.FunctionDef)
        ]
        return list(dict.fromkeys(found))


def _tree_of(function: Callable[..., Any]) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return None


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_ordered(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in _ORDERS for node in ast.walk(tree))


def _udf_name(tree: ast.AST) -> str:
    for decorator in getattr(tree, "decorator_list", ()):
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _dotted(called).rpartition(".")[2] in _UDFS:
            return str(getattr(tree, "name", ""))
    return ""


def _suspects_in(node: ast.AST, column: str, *, ordered: bool) -> Iterator[Suspect]:
    """Walk a tree, remembering which column is being filled."""
    receiver, filled = None, column
    if isinstance(node, ast.Call):
        called = _dotted(node.func).rpartition(".")[2] or getattr(node.func, "attr", "")
        filled = _column_named(node, called) or column
        # In rows.limit(3).withColumn("a", x) the column is filled by x, and not by what comes before it.
        receiver = node.func if called == "withColumn" else None
        if called in _SOURCES_OF_CHANCE:
            yield Suspect(_SOURCES_OF_CHANCE[called], filled, node.lineno)
        elif called in _LIMITS and not ordered:
            yield Suspect(f"{called}() without an order", "", node.lineno)
        elif called in _UDFS:
            yield Suspect(f"{called}()", filled, node.lineno)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from (Suspect(s.expression, s.column or column, node.lineno) for s in _suspects_in_sql(node.value, 0))
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            named = str(key.value) if isinstance(key, ast.Constant) else column
            yield from _suspects_in(value, named, ordered=ordered)
        return
    for child in ast.iter_child_nodes(node):
        yield from _suspects_in(child, column if child is receiver else filled, ordered=ordered)


def _column_named(node: ast.Call, called: str) -> str:
    if called in _NAMES_A_COLUMN and node.args and isinstance(node.args[0], ast.Constant):
        return str(node.args[0].value)
    return ""


def _suspects_in_sql(text: str, line: int) -> Iterator[Suspect]:
    for match in _IN_SQL.finditer(text):
        column = _SQL_COLUMN.search(text, match.end())
        yield Suspect(f"{match[1].lower()}()", column[1] if column else "", line)
    if re.search(r"\blimit\s+\d", text, re.IGNORECASE) and not re.search(r"\border\s+by\b", text, re.IGNORECASE):
        yield Suspect("limit without an order", "", line)
