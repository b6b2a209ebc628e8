"""What does the code of a pipeline say about itself?

The transform and the functions of its file that it calls, read without running them, to refuse what would
reach outside. What in it differs from run to run is a question for `twice.lint`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from twice.pipelines import Pipeline

_UDFS = frozenset({"udf", "pandas_udf", "mapInPandas", "applyInPandas", "mapInArrow"})


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
            named = {node.id for node in _walked(function) if isinstance(node, ast.Name)}
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
            for node in _walked(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value, node.lineno

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Yield what is called: `F.now`, `rows.limit`, `requests.post`."""
        for tree in self.trees:
            for node in _walked(tree):
                if isinstance(node, ast.Call):
                    yield _dotted(node.func), node

    def udfs(self) -> list[str]:
        """Name the functions that Spark calls for rows, of which it cannot know what they depend on."""
        declared = [name for tree in self.trees if (name := _udf_name(tree))]
        return declared or [name for name, _ in self.calls() if name.rpartition(".")[2] in _UDFS]


def _walked(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, without the calls that effects register: those have a key, and a proof makes none."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.Call) and _dotted(child.func).rpartition(".")[2] == "effect"):
            yield from _walked(child)


def _tree_of(function: Callable[..., Any]) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return None


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _udf_name(tree: ast.AST) -> str:
    for decorator in getattr(tree, "decorator_list", ()):
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _dotted(called).rpartition(".")[2] in _UDFS:
            return str(getattr(tree, "name", ""))
    return ""
