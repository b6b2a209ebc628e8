"""Which fault points does a piece of code name?"""

import ast
import re


def points_in(text):
    """Return the names that are given to `reach`, as patterns: what is filled in may be any word."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reach":
            parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
            yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else r"[\w.]+" for part in parts)
