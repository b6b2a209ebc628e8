"""Which pipelines does `--select` name?

One function answers for all commands, from the declarations alone: no store is asked and nothing is started. A selector
that matches no pipeline is refused, in `--exclude` too, so that a misspelt one never selects less or more than was meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from twice.errors import Misuse, suggestion
from twice.pipelines import Pipeline
from twice.upstream import upstream_of

_TERM = re.compile(r"(?P<up>\+?)(?P<tag>tag:)?(?P<glob>[^+:\s]+)(?P<down>\+?)")
_Reads = Mapping[str, set[str]]


def selected(pipelines: Iterable[Pipeline], select: Sequence[str], exclude: Sequence[str] = ()) -> list[Pipeline]:
    """Return the pipelines that any selector matches, or all where there is none, without those that `exclude` matches.

    A selector is a name, a glob or `tag:` with one of them; `+` before it adds everything upstream, after it everything
    downstream. Spaces unite selectors, a comma takes those that match on both sides of it.

    Raises:
        Misuse: A selector matches no pipeline, or none is left.
    """
    named = {pipeline.name: pipeline for pipeline in pipelines}
    reads = {name: {other.name for other in upstream_of(one, named.values())} for name, one in named.items()}
    chosen = _united(named, reads, select) if select else set(named)
    left = chosen - _united(named, reads, exclude)
    if not left:
        raise Misuse(
            f"--exclude {' '.join(exclude)} leaves no pipeline.", "Nothing was done.", "Exclude fewer pipelines."
        )
    return [pipeline for name, pipeline in named.items() if name in left]


def _united(named: Mapping[str, Pipeline], reads: _Reads, selectors: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for text in selectors:
        # A variable of a shell that is not set must not stand for all pipelines, nor for none.
        for word in text.split() or [text]:
            both = set.intersection(*(_matching(named, reads, term) for term in word.split(",")))
            if not both:
                raise Misuse(
                    f"No pipeline matches all of {word!r}.",
                    "A comma selects what matches on both sides of it. Nothing was done.",
                    "Write a space where either may match.",
                )
            found |= both
    return found


def _matching(named: Mapping[str, Pipeline], reads: _Reads, term: str) -> set[str]:
    parts = _TERM.fullmatch(term)
    if not parts:
        raise Misuse(
            f"{term!r} selects nothing.",
            "Nothing was done.",
            "Write a name, a glob such as 'orders_*', or tag:NAME; +NAME adds what is upstream, NAME+ what is downstream.",
        )
    known = {name: [name] if not parts["tag"] else one.tags for name, one in named.items()}
    found = {name for name, words in known.items() if any(fnmatchcase(word, parts["glob"]) for word in words)}
    if not found:
        kind, shown = parts["tag"] or "", f"{parts['tag'] or ''}{parts['glob']}"
        there = {f"{kind}{word}" for words in known.values() for word in words}
        raise Misuse(f"{shown!r} matches no pipeline.", "Nothing was done.", suggestion(shown, there))
    upstream = _reached(found, lambda name: reads[name]) if parts["up"] else set()
    downstream = _reached(found, lambda name: {one for one in named if name in reads[one]}) if parts["down"] else set()
    return found | upstream | downstream


def _reached(start: set[str], following: Callable[[str], set[str]]) -> set[str]:
    """Return everything that is reached from some pipelines, however far; circles end where they began."""
    found, ahead = set(start), list(start)
    while ahead:
        new = following(ahead.pop()) - found
        found |= new
        ahead += new
    return found
