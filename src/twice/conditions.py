"""Is a text one condition about a row, and nothing else?

`where=` and `check=` are SQL of the store, and stand in its statements as they are written. A comment at the end would take the
rest of the statement along, and a bracket that closes too early would let the condition end there and another one begin. So
a text is parsed once, in the dialect of the store, when its pipeline is declared.
"""

from __future__ import annotations

import re

from twice.errors import Misuse

# What is put in the place of a slot's own part, such as {execution_date}: it stands in quotes, or as a number.
_PART = re.compile(r"\{[^{}]*\}")
_FIX = "Write one comparison, or several with AND, OR and NOT, without comments and semicolons."


def check(text: str, dialect: str) -> None:
    """Refuse a text that is not one boolean expression in a dialect of SQL.

    Raises:
        Misuse: It is none, or there is more than that.
    """
    import sqlglot  # takes a tenth of a second, and most pipelines have no condition
    from sqlglot import errors, exp

    try:
        filled = _PART.sub("1", text)
        words = sqlglot.tokenize(filled, read=dialect)
        found = sqlglot.parse(filled, read=dialect)
    except errors.SqlglotError as error:
        raise Misuse(f"{text!r} is not a condition: {_said(error)}", fix=_FIX) from error
    if any(word.comments for word in words):
        raise Misuse(f"The condition {text!r} has a comment, which would end the statement it stands in.", fix=_FIX)
    if len(found) != 1 or any(word.token_type is sqlglot.TokenType.SEMICOLON for word in words):
        raise Misuse(f"{text!r} is not one condition: it has a semicolon.", fix=_FIX)
    # What a column or a function holds is not known here; a number, a text or a sum is no condition in any case.
    truths = (exp.Predicate, exp.Connector, exp.Not, exp.Boolean, exp.Column, exp.Func, exp.Dot, exp.Bracket)
    if found[0] is None or not isinstance(found[0].unnest(), truths):
        raise Misuse(f"{text!r} is not a condition: it is neither true nor false.", fix=_FIX)


def _said(error: Exception) -> str:
    """Return what the parser said, on one line and without the marks that a terminal would show as bold."""
    return re.sub(r"\x1b\[[0-9;]*m", "", " ".join(str(error).split()))
