"""Which rows may go on, beyond what their types say?

A rule is one SQL condition about one row. As with a CHECK of SQL, a row breaks it where the condition is false; where
it is NULL nothing is known, and NOT NULL in the schema says that a value has to be there. A pandera schema says the
same in other words, and is written as rules without loading pandera.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from twice.errors import Misuse

_SHARE = re.compile(r"(\d+(?:\.\d+)?) ?%")
_WHOLE = 100
_VARIES = re.compile(
    r"\b(rand|randn|random|uuid|now|current_date|current_timestamp|current_time|localtimestamp|unix_timestamp"
    r"|monotonically_increasing_id|spark_partition_id|input_file_name)\b\s*(\()?",
    re.IGNORECASE,
)
_WITHOUT_BRACKETS = ("current_date", "current_timestamp", "current_time", "localtimestamp")
_QUOTED = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`[^`]*`")


@dataclass(frozen=True)
class Rule:
    """One SQL condition that every row has to fulfil, with a name for people if it has one."""

    text: str
    name: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            raise Misuse(f"{self.text!r} is not a rule.", fix="Write a condition, such as twice.rule('amount >= 0').")
        bare = _QUOTED.sub("''", self.text)
        if ";" in bare or re.search(r"(?:^|\()\s*(?:select|with)\b", bare, re.IGNORECASE):
            raise Misuse(
                f"The rule {self.text!r} is a statement instead of a condition.",
                fix="Write what has to be true of each row, such as twice.rule('amount >= 0').",
            )
        for found in _VARIES.finditer(bare):
            if found[2] or found[1].lower() in _WITHOUT_BRACKETS:
                raise Misuse(
                    f"The rule {self.text!r} asks for {found[1].lower()}, which is another one in every run.",
                    "The same row would be good in one run and bad in the next.",
                    "Compare with a literal or with another column.",
                )

    @property
    def words(self) -> str:
        """What is said of a row that breaks it."""
        return f"breaks the rule {self.name!r}: {self.text}" if self.name else f"breaks the rule: {self.text}"


def rules_of(given: Any) -> tuple[Rule, ...]:
    """Return the rules that a user declared: one, several, or a pandera schema.

    Raises:
        Misuse: It is none of these, or the schema asks for something that cannot be said of one row in SQL.
    """
    if given is None:
        return ()
    if isinstance(given, Rule):
        return (given,)
    schema = given.to_schema() if callable(getattr(given, "to_schema", None)) else given
    if isinstance(getattr(schema, "columns", None), Mapping):
        return tuple(_rules_of_schema(schema))
    if isinstance(schema, Sequence) and all(isinstance(rule, Rule) for rule in schema):
        return tuple(schema)
    raise Misuse(f"rules={given!r} are no rules.", fix="Write rules=[twice.rule('amount >= 0')], or a pandera schema.")


def allowed(limit: int | str | None, parsed: int) -> int:
    """Return how many of the parsed rows may be set aside.

    >>> allowed("1%", 250), allowed(10, 250), allowed(None, 250)
    (2, 10, 0)
    """
    if isinstance(limit, str):
        return int(Decimal(_share(limit)) * parsed / _WHOLE)
    return limit or 0


def check_limit(limit: int | str | None) -> None:
    """Refuse a limit that is neither a count nor a share.

    Raises:
        Misuse: It is not.
    """
    if isinstance(limit, str) and _SHARE.fullmatch(limit) and Decimal(_share(limit)) <= _WHOLE:
        return
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0):
        return
    raise Misuse(f"max_quarantined={limit!r} is neither a count nor a share.", fix="Write max_quarantined=100 or '1%'.")


def _share(limit: str) -> str:
    found = _SHARE.fullmatch(limit)
    return found[1] if found else "0"


def _rules_of_schema(schema: Any) -> Iterator[Rule]:
    """Write a pandera schema as rules, or name what has no SQL."""
    for what in ("checks", "index", "unique"):
        if getattr(schema, what, None):
            raise _no_sql(f"the {what} of the whole frame")
    for name, column in schema.columns.items():
        if getattr(column, "regex", False):
            raise _no_sql(f"the column pattern {name!r}")
        if getattr(column, "unique", False):
            raise _no_sql(f"unique=True of the column {name!r}")
        if not getattr(column, "nullable", False):
            yield Rule(f"{_quoted(name)} is not null", f"{name} is there")
        for check in getattr(column, "checks", None) or ():
            yield _rule_of_check(name, check)


def _rule_of_check(column: str, check: Any) -> Rule:
    kind = str(getattr(check, "name", None) or type(check).__name__)
    told = dict(getattr(check, "statistics", None) or {})
    write = _CHECKS.get(kind)
    if write is None or getattr(check, "groupby", None) or not getattr(check, "ignore_na", True):
        raise _no_sql(f"the check {kind!r} of the column {column!r}")
    try:
        return Rule(write(_quoted(column), told), f"{column}: {kind}")
    except (KeyError, TypeError) as error:
        raise _no_sql(f"the check {kind!r} of the column {column!r} with {told!r}") from error


def _compared(sign: str, of: str) -> Callable[[str, dict[str, Any]], str]:
    return lambda column, told: f"{column} {sign} {_literal(told[of])}"


def _in_range(column: str, told: dict[str, Any]) -> str:
    low = ">=" if told.get("include_min", True) else ">"
    high = "<=" if told.get("include_max", True) else "<"
    return f"{column} {low} {_literal(told['min_value'])} and {column} {high} {_literal(told['max_value'])}"


def _among(word: str, of: str) -> Callable[[str, dict[str, Any]], str]:
    return lambda column, told: f"{column} {word} ({', '.join(map(_literal, _in_order(told[of])))})"


def _in_order(values: Any) -> list[Any]:
    """A set has another order in every process, and a rule counts as code."""
    return sorted(values, key=repr) if isinstance(values, set | frozenset) else list(values)


def _length(column: str, told: dict[str, Any]) -> str:
    signs = (("min_value", ">="), ("max_value", "<="), ("exact_value", "="))
    said = [f"length({column}) {sign} {int(told[of])}" for of, sign in signs if told.get(of) is not None]
    if not said:
        raise KeyError("min_value")
    return " and ".join(said)


# What pandera's built-in checks say, by their names; `str_matches` looks at the beginning of a text, as it does there.
_CHECKS: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "equal_to": _compared("=", "value"),
    "not_equal_to": _compared("<>", "value"),
    "greater_than": _compared(">", "min_value"),
    "greater_than_or_equal_to": _compared(">=", "min_value"),
    "less_than": _compared("<", "max_value"),
    "less_than_or_equal_to": _compared("<=", "max_value"),
    "in_range": _in_range,
    "isin": _among("in", "allowed_values"),
    "notin": _among("not in", "forbidden_values"),
    "str_matches": lambda column, told: f"{column} rlike {_literal('^(?:' + _pattern(told['pattern']) + ')')}",
    "str_contains": lambda column, told: f"{column} rlike {_literal(_pattern(told['pattern']))}",
    "str_startswith": lambda column, told: f"startswith({column}, {_literal(told['string'])})",
    "str_endswith": lambda column, told: f"endswith({column}, {_literal(told['string'])})",
    "str_length": _length,
}


def _pattern(given: Any) -> str:
    pattern = getattr(given, "pattern", given)
    if not isinstance(pattern, str) or "(?P" in pattern or getattr(given, "flags", re.UNICODE) != re.UNICODE:
        raise TypeError("a pattern that SQL does not know")
    return pattern


def _literal(value: Any) -> str:
    """Write a value as Spark reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, float):
        return f"double('{value!r}')"
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, datetime):
        return f"timestamp'{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"date'{value.isoformat()}'"
    raise TypeError(f"{value!r} has no literal")


def _quoted(column: str) -> str:
    return "`" + str(column).replace("`", "``") + "`"


def _no_sql(what: str) -> Misuse:
    return Misuse(
        f"The pandera schema asks for {what}, which cannot be said of one row in SQL.",
        "A rule that was left out would let rows pass without a word.",
        "Leave it out of the schema that is given as rules=, and check it in the transform.",
    )
