"""Where does a piece of SQL depend on more than its rows?

The text is cut into words, quoted parts and brackets, and not parsed: what is looked for shows in the
words, and the brackets tell which select, call or window a word belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from twice.lint.allowed import allowed_lines, is_allowed
from twice.lint.rules import (
    CLOCK,
    CLOCK_FUNCTIONS,
    LIMIT_INSTEAD,
    LIST_INSTEAD,
    LISTING_FUNCTIONS,
    ORDER,
    ORDER_FREE_FUNCTIONS,
    PICK_INSTEAD,
    PICKING_FUNCTIONS,
    RANDOM,
    RANKING_FUNCTIONS,
    SAMPLE_INSTEAD,
    SEEDED,
    WINDOW_INSTEAD,
    Remark,
    Rule,
    of_function,
)

_TOKENS = re.compile(
    r"""(?P<comment>--[^\r\n]*|/\*.*?\*/)"""
    r"""|(?P<quoted>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`)"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<number>\d+)|(?P<sign>[^\s\w])""",
    re.DOTALL,
)
_SET_OPERATORS = ("union", "intersect", "except", "minus")
_WITHOUT_BRACKETS = CLOCK_FUNCTIONS - {"now", "curdate"}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int
    depth: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


@dataclass(frozen=True)
class _Text:
    text: str

    @cached_property
    def tokens(self) -> Sequence[_Token]:
        found, depth = [], 0
        for match in _TOKENS.finditer(self.text):
            if match.lastgroup == "comment":
                continue
            depth -= match[0] == ")"
            found.append(_Token(match.lastgroup or "", match[0], match.start(), depth))
            depth += match[0] == "("
        return found

    def sign(self, index: int) -> str:
        """Return a token's text, or nothing beyond the ends."""
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def word(self, index: int) -> str:
        return self.tokens[index].word if 0 <= index < len(self.tokens) else ""

    def closing(self, opening: int) -> int:
        """Return the index of the bracket that closes one."""
        depth = self.tokens[opening].depth
        later = (n for n in range(opening + 1, len(self.tokens)) if self.tokens[n].depth == depth)
        return next((n for n in later if self.tokens[n].text == ")"), len(self.tokens))

    def around(self, index: int) -> str:
        """Return the function whose brackets a token stands in, or nothing."""
        depth = self.tokens[index].depth
        before = (n for n in range(index - 1, -1, -1) if self.tokens[n].depth < depth)
        opening = next(before, -1)
        return self.word(opening - 1) if opening > 0 else ""

    def named(self, index: int) -> str:
        """Return the name that the expression around a token gets: `... as name`."""
        depth = self.tokens[index].depth
        for n in range(index + 1, len(self.tokens)):
            if self.tokens[n].depth > depth:
                continue
            depth = self.tokens[n].depth
            if self.sign(n) == "," or self.word(n) == "from":
                return ""
            if self.word(n) == "as":
                return self.sign(n + 1).strip("`")
        return ""

    def follows(self, index: int, words: Sequence[str]) -> bool:
        return [self.word(index + n) for n in range(len(words))] == list(words)


def remarks_on(text: str, file: str = "", first_line: int = 1) -> Iterator[Remark]:
    """Say what in a query, or in an expression, differs from run to run."""
    allowed = allowed_lines(text)
    words = _Text(text)
    for index, rule, why, instead in _found(words):
        token = words.tokens[index]
        line = text.count("\n", 0, token.at) + 1
        column = token.at - text.rfind("\n", 0, token.at)
        place = (line + first_line - 1, column) if first_line else (0, 0)
        meant = is_allowed(allowed, rule.name, line, line)
        fills = words.named(index)
        yield Remark(rule, file, *place, token.text, why or rule.why, instead or rule.instead, meant, fills)


_Found = Iterator[tuple[int, Rule, str, str]]


def _found(text: _Text) -> _Found:
    for index, token in enumerate(text.tokens):
        if not token.word or text.sign(index - 1) in (".", ":"):
            continue
        if text.sign(index + 1) == "(":
            yield from _of_call(text, index)
        elif _is_bare_clock(text, index):
            yield index, CLOCK, "", ""
        elif token.word == "limit" and _is_cut(text, index) and not _is_ordered(text, index):
            yield index, ORDER, "", LIMIT_INSTEAD


def _of_call(text: _Text, index: int) -> _Found:
    token = text.tokens[index]
    has_arguments = text.sign(index + 2) != ")"
    rule = of_function(token.word, arguments=has_arguments)
    if rule:
        yield index, rule, SEEDED if token.word in ("rand", "randn", "random") and has_arguments else "", ""
    elif token.word in PICKING_FUNCTIONS | LISTING_FUNCTIONS and not _has_order(text, index):
        yield index, ORDER, "", LIST_INSTEAD if token.word in LISTING_FUNCTIONS else PICK_INSTEAD
    elif token.word == "tablesample":
        repeats = text.word(text.closing(index + 1) + 1) == "repeatable"
        yield index, RANDOM, SEEDED if repeats else "", SAMPLE_INSTEAD
    elif token.word in RANKING_FUNCTIONS and _is_ordered_by_nothing(text, index):
        yield index, ORDER, "", WINDOW_INSTEAD


def _is_bare_clock(text: _Text, index: int) -> bool:
    """Tell a clock without brackets from a name: `as current_date`, `current_date.x`."""
    is_name = text.word(index - 1) == "as" or text.sign(index + 1) == "."
    return text.word(index) in _WITHOUT_BRACKETS and not is_name


def _is_cut(text: _Text, index: int) -> bool:
    """Tell a limit that leaves some rows out from a column of that name, `limit 0` and `limit all`."""
    following = text.sign(index + 1)
    return following.isdigit() and int(following) > 0


def _is_ordered(text: _Text, index: int) -> bool:
    """Tell whether the select of a limit has an order of its own."""
    depth = text.tokens[index].depth
    for n in range(index - 1, -1, -1):
        token = text.tokens[n]
        if token.depth < depth or (token.depth == depth and token.word in _SET_OPERATORS):
            return False
        if token.depth == depth and token.word == "order" and text.word(n + 1) == "by":
            return True
    return False


def _has_order(text: _Text, index: int) -> bool:
    """Tell whether the result of a call is the same for every order of the rows."""
    if text.around(index) in ORDER_FREE_FUNCTIONS:
        return True
    after = text.closing(index + 1) + 1
    if text.word(after) == "filter":
        after = text.closing(after + 1) + 1
    if text.follows(after, ("within", "group")):
        return True
    if text.word(after) != "over":
        named = text.word(after + (text.word(after) == "as"))
        return _is_ordered_later(text, named)
    return text.sign(after + 1) != "(" or bool(_window_order(text, after + 1))


def _is_ordered_later(text: _Text, name: str) -> bool:
    """Tell whether a result gets a name, under which it is put in order elsewhere in the query."""
    for index, token in enumerate(text.tokens):
        if token.word in ORDER_FREE_FUNCTIONS and text.sign(index + 1) == "(":
            inside = range(index + 2, text.closing(index + 1))
            if name and name in map(text.word, inside):
                return True
    return False


def _window_order(text: _Text, opening: int) -> Sequence[_Token]:
    """Return what a window is ordered by: all behind `order by`, up to the frame."""
    inside = range(opening + 1, text.closing(opening))
    depth = text.tokens[opening].depth + 1
    start = next((n + 2 for n in inside if text.tokens[n].depth == depth and text.follows(n, ("order", "by"))), None)
    if start is None:
        return ()
    end = next((n for n in inside if n >= start and text.word(n) in ("rows", "range")), inside.stop)
    return text.tokens[start:end]


def _is_ordered_by_nothing(text: _Text, index: int) -> bool:
    """Tell whether a window is ordered by constants alone, so that all of its rows are equal."""
    after = text.closing(index + 1) + 1
    if text.word(after) != "over" or text.sign(after + 1) != "(":
        return False
    order = [token for token in _window_order(text, after + 1) if token.text not in (",", "(", ")")]
    constant = all(token.kind == "number" or token.word in ("null", "select", "asc", "desc") for token in order)
    return bool(order) and constant
