"""How does a slot's time enter a path or a condition?

`{start:%Y%m%d}`, `{end:...}`, `{execution_date}` and `{key}`, and nothing else: an unknown
placeholder is refused, so that a misspelt one never reads the wrong files.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from twice.errors import Misuse, suggestion
from twice.intervals import Interval, zone_named

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
KNOWN = ("start", "end", "execution_date", "key")


def names_slot(template: str) -> bool:
    """Tell whether the template depends on the slot at all."""
    return bool(_PLACEHOLDER.search(template))


def render(template: str, part: Interval | str, zone: str, escape: Callable[[str], str] = str) -> str:
    """Fill in a slot's times, in the pipeline's zone, or its key.

    >>> day = Interval.of("2024-10-07T00:00Z", "2024-10-08T00:00Z")
    >>> render("landing/{execution_date}/*.csv", day, "UTC")
    'landing/2024-10-07/*.csv'
    """
    return _PLACEHOLDER.sub(lambda match: escape(_value(match[1], part, zone)), template)


def check(template: str) -> None:
    """Refuse a template with an unknown placeholder."""
    for inside in _PLACEHOLDER.findall(template):
        name = inside.partition(":")[0]
        if name not in KNOWN:
            raise Misuse(f"{{{inside}}} in {template!r} is not a placeholder.", fix=suggestion(name, KNOWN))


def _value(inside: str, part: Interval | str, zone: str) -> str:
    name, _, form = inside.partition(":")
    if name == "key" and isinstance(part, str):
        return part
    if name in ("start", "end", "execution_date") and isinstance(part, Interval):
        moment = part.end if name == "end" else part.start
        return moment.astimezone(zone_named(zone)).strftime(form or "%Y-%m-%d")
    if name in KNOWN:
        raise Misuse(
            f"{{{inside}}} needs a slot with {'a key' if name == 'key' else 'an interval'}.",
            fix="Scheduled pipelines have {start}, {end} and {execution_date}; keyed ones have {key}.",
        )
    raise Misuse(f"{{{inside}}} is not a placeholder.", fix=suggestion(name, KNOWN))
