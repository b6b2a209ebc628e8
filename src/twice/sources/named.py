"""What are the inputs of a pipeline called, in a way that stays the same from slot to slot?

Targets of stores by their text; files by the folder that all slots share. A function has no name that
others would know it by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from twice.fingerprint import Source
from twice.sources.files import Files

FOLDER = "file:"
_VARIES = re.compile(r"[*?\[{]")


def reads_of(sources: Iterable[Source]) -> tuple[str, ...]:
    """Return the names of inputs: `store:name` of a target, or `file:folder`.

    >>> reads_of([Files("landing/visits/{execution_date}.csv", schema="id string")])
    ('file:landing/visits',)
    """
    found: list[str] = []
    for source in sources:
        if isinstance(source, Files):
            found.append(FOLDER + _shared_folder(source.pattern))
        found += getattr(source, "reads", ())
    return tuple(dict.fromkeys(found))


def _shared_folder(pattern: str) -> str:
    """Return the path up to the first part that differs from slot to slot; a whole path if none does."""
    parts = pattern.split("/")
    kept = []
    for part in parts:
        if _VARIES.search(part):
            break
        kept.append(part)
    return "/".join(kept) or "."
