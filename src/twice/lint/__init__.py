"""Does the code of a pipeline give the same rows whenever it is run on the same inputs?

The functions that a user wrote are looked at as text, and the queries too; nothing is called. What a
remark is about can be meant: a comment on its line, with the reason, lets it pass.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twice.findings import NOTICE, Finding
from twice.lint import python_code, spark_plan, sql_text
from twice.lint.python_code import File
from twice.lint.rules import Remark
from twice.sources.declared import Declared
from twice.sources.functions import Function
from twice.sources.queries import Query
from twice.transforms import Sql

if TYPE_CHECKING:
    from twice.pipelines import Pipeline
    from twice.statements import Statement


def remarks_on(pipeline: Pipeline, root: str) -> Iterator[Remark]:
    """Say what in a pipeline's code differs from run to run: transform, functions of sources, queries.

    What a comment lets pass is told as well, and marked.
    """
    yield from _on(pipeline.transform, root)
    for source in pipeline.sources.values():
        if isinstance(source, Function):
            yield from _on(source.read, root)
        if isinstance(source, Query):
            yield from _on_statement(source.statement, root)
        declared = getattr(source, "fingerprint", None)
        if isinstance(declared, Declared) and callable(declared.given):
            yield from _on(declared.given, root)


def remarks_on_rows(rows: Any, told: Sequence[Remark]) -> Iterator[Remark]:
    """Say what of Spark's plan for a pipeline's rows differs from run to run, and does not show in its code.

    A rule that the code was remarked on for, or that it is allowed to break, is not told a second time.
    """
    known = {remark.rule for remark in told}
    frames = rows.values() if isinstance(rows, Mapping) else [rows]
    for frame in frames:
        if hasattr(frame, "_jdf"):
            yield from (remark for remark in spark_plan.remarks_on(frame) if remark.rule not in known)


def as_finding(pipeline: Pipeline, remark: Remark) -> Finding:
    """Return a remark as a finding that is worth knowing."""
    where = f"{remark.place}: " if remark.place else ""
    allow = f" If it is meant, say so on its line: # twice: allow({remark.rule.name}) and the reason."
    return Finding(
        "lint",
        NOTICE,
        pipeline.name,
        pipeline.target.text,
        f"{where}{remark.expression} ({remark.rule.name}). {remark.why}",
        remark.instead + (allow if remark.line else ""),
        {
            "rule": remark.rule.name,
            "file": remark.file,
            "line": remark.line,
            "column": remark.column,
            "expression": remark.expression,
        },
    )


def _on(called: Any, root: str) -> Iterator[Remark]:
    if isinstance(called, Sql):
        yield from _on_statement(called.statement, root)
        return
    while isinstance(called, functools.partial):
        called = called.func
    function = inspect.unwrap(called) if callable(called) else called
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None:
        return
    file = File.read(code.co_filename, _shown(code.co_filename, root))
    start = file.function_at(code.co_firstlineno, code.co_name) if file else None
    if file and start:
        yield from python_code.remarks_on(file, start)


def _on_statement(statement: Statement, root: str) -> Iterator[Remark]:
    shown = _shown(statement.origin, root) if statement.origin else ""
    if not statement.origin.endswith(".py"):
        yield from sql_text.remarks_on(statement.text, shown, 1 if shown else 0)
        return
    yield from sql_text.remarks_on(statement.text, shown, _line_in(statement))


def _line_in(statement: Statement) -> int:
    """Find the line of a file of Python on which the text of a query begins, or 0."""
    file = File.read(statement.origin, "")
    for node in ast.walk(file.tree) if file else ():
        if isinstance(node, ast.Constant) and node.value == statement.text:
            return node.lineno
    return 0


def _shown(path: str, root: str) -> str:
    """Return a path as people know it: from the root of the project, if it lies there."""
    whole = os.path.realpath(path)
    inside = os.path.relpath(whole, os.path.realpath(root))
    return whole if inside.startswith("..") else inside


__all__ = ["as_finding", "remarks_on", "remarks_on_rows"]
