"""What does a name in a file of Python stand for?

Imports are followed as far as the file shows them: `dt.now` is `datetime.datetime.now` if the file says
`from datetime import datetime as dt`. What a file defines itself is its own.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from dataclasses import dataclass, field

FUNCTIONS = "pyspark.sql.functions"
_Function = ast.FunctionDef | ast.AsyncFunctionDef
# Modules that are imported under other names than their own.
_SAME = {"pyspark.sql.connect.functions": FUNCTIONS}


@dataclass(frozen=True)
class Names:
    """The names of one file.

    Attributes:
        imported: What the names of imports stand for.
        functions: The functions and classes that the file defines, at any depth.
        constants: What is assigned to names of the module.
        stars: Modules of which everything is imported.
    """

    imported: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, _Function | ast.ClassDef] = field(default_factory=dict)
    constants: Mapping[str, ast.expr] = field(default_factory=dict)
    stars: tuple[str, ...] = ()

    @classmethod
    def of(cls, tree: ast.Module) -> Names:
        """Read the names of a file."""
        imported: dict[str, str] = {}
        stars: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    imported[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                stars += [node.module for alias in node.names if alias.name == "*"]
                imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        functions = {n.name: n for n in ast.walk(tree) if isinstance(n, _Function | ast.ClassDef)}
        return cls(imported, functions, dict(_constants(tree)), tuple(stars))

    def full(self, node: ast.expr, own: frozenset[str] = frozenset()) -> str:
        """Return the full name of an expression, or nothing; `own` are names of the function's parameters."""
        if isinstance(node, ast.Attribute):
            before = self.full(node.value, own)
            return _canonical(f"{before}.{node.attr}") if before else ""
        if not isinstance(node, ast.Name) or node.id in own:
            return ""
        if node.id in self.imported:
            return _canonical(self.imported[node.id])
        if node.id in self.functions or node.id in self.constants:
            return ""
        if FUNCTIONS in self.stars and not hasattr(builtins, node.id):
            return f"{FUNCTIONS}.{node.id}"
        return f"builtins.{node.id}" if hasattr(builtins, node.id) else ""


def _canonical(name: str) -> str:
    for other, ours in _SAME.items():
        if name.startswith(other):
            return ours + name[len(other) :]
    return name


def _constants(tree: ast.Module) -> list[tuple[str, ast.expr]]:
    found: list[tuple[str, ast.expr]] = []
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value is not None:
            found += [(target.id, value) for target in targets if isinstance(target, ast.Name)]
    return found
