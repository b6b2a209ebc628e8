"""How much time is left, what has to be left out, and how long would the whole take?"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from twice.errors import Misuse

_UNITS = {"s": 1, "m": 60, "h": 3600}
# Until one of a kind was tried, this many seconds are assumed for it.
_ASSUMED = {"read": 0.0, "warm": 4.0, "real": 20.0, "cluster": 60.0}
# The rest goes to stopping the JVM, and to trials that take longer than others of their kind.
_KEPT_FOR_TRIALS = 0.93


def seconds_of(text: str) -> float:
    """Read a length of time.

    >>> seconds_of("5m")
    300.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match:
        raise Misuse(f"{text!r} is not a length of time.", fix="Write 90s, 5m or 1h.")
    return float(match[1]) * _UNITS[match[2] or "s"]


@dataclass
class Budget:
    """Counts the seconds, and remembers what trials of each kind took."""

    seconds: float | None
    began: float = field(default_factory=time.monotonic)
    taken: dict[str, list[float]] = field(default_factory=dict)

    @property
    def spent(self) -> float:
        """The seconds since the beginning."""
        return time.monotonic() - self.began

    def took(self, means: str, seconds: float) -> None:
        """Remember what a trial took."""
        self.taken.setdefault(means, []).append(seconds)

    def expected(self, means: str) -> float:
        """Return what a trial of a kind is expected to take."""
        known = self.taken.get(means)
        return sum(known) / len(known) if known else _ASSUMED[means]

    def allows(self, means: str) -> bool:
        """Tell whether another trial of a kind would end in time."""
        return self.seconds is None or self.spent + self.expected(means) <= self.seconds * _KEPT_FOR_TRIALS

    def needed(self, means: Iterable[str]) -> float:
        """Return how long some trials would take."""
        return sum(map(self.expected, means))
