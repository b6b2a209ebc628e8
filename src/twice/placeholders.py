"""How does a slot's time enter a path or a condition?

`{start:%Y%m%d}`, `{end:...}`, `{execution_date}` and `{key}`, and nothing else: an unknown
placeholder is refused, so that a misspelt one never reads the wrong files.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from twice.errors import Misuse, suggestion
from twice.intervals import Interval, zone_named

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_DATE = "%Y-%m-%d"
_SOME_TIME = datetime(2024, 11, 12, 13, 14, 15, tzinfo=UTC)
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


def as_wildcards(template: str) -> str:
    """Return the pattern that the files of all slots match.

    >>> as_wildcards("landing/{execution_date}/*.csv")
    'landing/*/*.csv'
    """
    return _PLACEHOLDER.sub("*", template)


def moments_in(template: str, names: Iterable[str], zone: str) -> Iterator[datetime]:
    """Yield a moment of the interval that each name was made for, as far as the name tells it.

    >>> names = ["landing/20241007.csv", "landing/notes.csv"]
    >>> [moment.isoformat() for moment in moments_in("landing/{start:%Y%m%d}.csv", names, "UTC")]
    ['2024-10-07T00:00:00+00:00']
    """
    parts = _PLACEHOLDER.split(template)
    forms = [inside.partition(":")[2] or _DATE for inside in parts[1::2]]
    starts = [number for number, inside in enumerate(parts[1::2]) if not inside.startswith("end")]
    telling = _telling(forms, starts or range(len(forms)))
    # Each time is as long as any other one of its form, but for names of months and days.
    parts[1::2] = (f"(.{{{len(_SOME_TIME.strftime(form))}}})" for form in forms)
    parts[::2] = (fnmatch.translate(text.replace("**/", "*")).removesuffix(r"\Z") for text in parts[::2])
    form = "\0".join(forms[number] for number in telling)
    for found in filter(None, (re.fullmatch("".join(parts), name) for name in names if telling)):
        # A name may tell no time, and a form may name a part of it twice.
        with suppress(ValueError, re.error):
            wall = datetime.strptime("\0".join(found[number + 1] for number in telling), form)  # noqa: DTZ007 - its zone follows
            moment = wall.replace(tzinfo=zone_named(zone)).astimezone(UTC)
            yield moment if starts else moment - timedelta(microseconds=1)


def _telling(forms: Sequence[str], numbers: Iterable[int]) -> list[int]:
    """Return those of some forms which together tell the most, without those that repeat what another one tells."""
    chosen: list[int] = []
    told: set[str] = set()
    for number in sorted(numbers, key=lambda number: -len(forms[number])):
        asked = set(re.findall("%-?.", forms[number]))
        if not asked <= told:
            chosen.append(number)
            told |= asked
    return chosen


def _value(inside: str, part: Interval | str, zone: str) -> str:
    name, _, form = inside.partition(":")
    if name == "key" and isinstance(part, str):
        return part
    if name in ("start", "end", "execution_date") and isinstance(part, Interval):
        moment = part.end if name == "end" else part.start
        return moment.astimezone(zone_named(zone)).strftime(form or _DATE)
    if name in KNOWN:
        raise Misuse(
            f"{{{inside}}} needs a slot with {'a key' if name == 'key' else 'an interval'}.",
            fix="Scheduled pipelines have {start}, {end} and {execution_date}; keyed ones have {key}.",
        )
    raise Misuse(f"{{{inside}}} is not a placeholder.", fix=suggestion(name, KNOWN))
