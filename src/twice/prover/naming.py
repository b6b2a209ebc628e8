"""Is there a trial of this name? `--only` is checked before anything is copied or started.

The fault points are read from Twice's own code, where `reach` names them, so no list of them can be out of date. Whether a
run of a pipeline passes a point is known after a clean run.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import twice
from twice.errors import Misuse
from twice.prover import cuts, deaths, kills, repeats
from twice.prover.trials import REPEAT


def check_name(name: str) -> None:
    """Refuse a name that no trial of any pipeline has.

    Raises:
        Misuse: With the nearest name that there is.
    """
    point, slash, way = name.rpartition("/")
    if not slash:
        raise _unknown(name, "A trial is named POINT/WAY, for example publish.after/kill.")
    if point in _WAYS:
        known: Collection[str] = _WAYS[point]
    else:
        points = known_points()
        for one in point.split("+"):
            if one not in points:
                near = _nearest(one, {*points, *_WAYS})
                meant = f"Did you mean {point.replace(one, near) + '/' + way!r}?" if near else ""
                raise _unknown(name, meant or "`--output json` lists the points that a run passes.")
        known = _DEATHS
    if way not in known:
        near = _nearest(way, known)
        raise _unknown(
            name, f"Did you mean {f'{point}/{near}'!r}?" if near else f"Ways at {point}: {', '.join(sorted(known))}."
        )


def nearest(name: str, known: Collection[str]) -> str:
    """Return a fix for a trial that this pipeline does not have: the nearest one that it has."""
    near = _nearest(name, known)
    return f"Did you mean {near!r}?" if near else "`--output json` lists what is tried."


def known_points() -> set[str]:
    """Return the names of all fault points; a part that is filled in is some word that stands in the code."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(Path(twice.__file__).parent.rglob("*.py"))]
    patterns = {pattern for text in texts if "reach(" in text for pattern in points_in(text)}
    words = {word for text in texts for word in re.findall(r"\"([a-z][\w.]*\w)\"", text)}
    return {pattern.replace(_ANY_WORD, word).replace("\\", "") for pattern in patterns for word in words}


def points_in(text: str) -> Iterator[str]:
    """Yield the names that a piece of code gives to `reach`, as patterns: what is filled in may be any word."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reach":
            given = node.args[0]
            parts = given.values if isinstance(given, ast.JoinedStr) else [given]
            yield "".join(re.escape(str(one.value)) if isinstance(one, ast.Constant) else _ANY_WORD for one in parts)


def _nearest(name: str, known: Collection[str]) -> str:
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1)), "")


def _unknown(name: str, fix: str) -> Misuse:
    return Misuse(f"There is no trial {name!r}.", "Nothing was run.", fix)


_ANY_WORD = r"[\w.]+"
_DEATHS = frozenset({*deaths.DEATHS, deaths.TWIN, *kills.WAYS, *kills.ON_A_CLUSTER})
_WAYS = {REPEAT: repeats.WAYS, cuts.POINT: cuts.WAYS}
