"""Which remarks did somebody allow, and why?

A comment on the line, `# twice: allow(clock) the time of loading is meant`, silences a rule there; in SQL
it begins with `--`. Without a reason it silences nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_COMMENT = re.compile(r"(?:#|--)\s*twice:\s*allow\(([\w\s,-]*)\)[ \t]*(\S.*)?")


def allowed_lines(text: str) -> Mapping[int, frozenset[str]]:
    """Return the rules that are allowed on each line, lines counted from 1."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        comment = _COMMENT.search(line)
        if comment and comment[2]:
            found[number] = frozenset(name.strip() for name in comment[1].split(","))
    return found


def is_allowed(allowed: Mapping[int, frozenset[str]], rule: str, first: int, last: int) -> bool:
    """Tell whether a rule is allowed on one of the lines of an expression."""
    return any(rule in allowed.get(line, ()) for line in range(first, max(first, last) + 1))
