"""May a run that did not end well be tried again, and when?

The type of an error says what may have happened to the data, and that decides:

    nothing was published     try again
    the outcome is unknown    try again: a run asks the store first
    others were faster        try again, planned anew
    busy, held                later; it does not count as a try
    a person is needed        never: a misspelt project, rows that fail a test, a receipt that is invalidated, a foreign ledger

Tries come in two kinds. Some follow at once, seconds apart, in the same invocation. The others are *due*: their time is
recorded in the ledger, and `twice retry` takes them with what the first try was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from twice.errors import Busy, DataTestsFailed, Fenced, Held, Misuse, NotIdempotent, Overtaken, Waiting
from twice.intervals import parse_length
from twice.runs import digest

AGAIN, LATER, NEVER = "again", "later", "never"
_LOGGING_HOOKS = ("stamina.instrumentation._structlog", "stamina.instrumentation._logging")
_SPREAD = 0.25
_DOUBLINGS = 20


@dataclass(frozen=True)
class Retries:
    """How often a run is tried, for how long, and with which waits.

    Attributes:
        tries: How many tries there are in all, the first one included.
        at_once: How many of them one invocation may make, a few seconds apart.
        wait: How long a failed run waits before it is due again; twice as long after each further try.
        wait_at_most: The longest wait.
        for_at_most: How long after its first failure a run may still be tried.
    """

    tries: int = 5
    at_once: int = 1
    wait: str = "1 minute"
    wait_at_most: str = "1 hour"
    for_at_most: str = "1 day"

    def __post_init__(self) -> None:
        for name in ("tries", "at_once"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise Misuse(f"retries: {name}={value!r} is not a number of tries.", fix="Say 1 or more.")
        for text in (self.wait, self.wait_at_most, self.for_at_most):
            parse_length(text)

    def wait_after(self, tries: int, slot: str) -> timedelta:
        """Return how long to wait after so many tries.

        Runs that failed together do not come back together: each is up to a quarter later, by an amount that
        follows from slot and try, so that it is the same whoever computes it.
        """
        doubled = parse_length(self.wait) * (1 << min(max(tries - 1, 0), _DOUBLINGS))
        spread = int(digest(f"{slot} {tries}")[:8], 16) / 0xFFFFFFFF * _SPREAD
        return min(doubled, parse_length(self.wait_at_most)) * (1 + spread)

    def is_over(self, tries: int, since_first: timedelta) -> bool:
        """Tell whether a run that failed has had its last try."""
        return tries >= self.tries or since_first >= parse_length(self.for_at_most)


def retries(
    *,
    tries: int = 5,
    at_once: int = 1,
    wait: str = "1 minute",
    wait_at_most: str = "1 hour",
    for_at_most: str = "1 day",
) -> Retries:
    """Declare how often a run that did not end well is tried, and with which waits."""
    return Retries(tries, at_once, wait, wait_at_most, for_at_most)


def at_once(
    on: Callable[[Exception], bool | float], tries: int, first_wait: float, longest_wait: float
) -> Iterator[AbstractContextManager[Any]]:
    """Yield a context for each try that follows at once, with growing waits between; `on` says whether there is another.

    It may also say after how many seconds. Stamina would log each retry to standard output, where only answers belong. Whoever set hooks of their own keeps them.
    """
    import stamina
    from stamina.instrumentation import get_on_retry_hooks, set_on_retry_hooks

    hooks = get_on_retry_hooks()
    quiet = tuple(hook for hook in hooks if getattr(hook, "__module__", "") not in _LOGGING_HOOKS)
    if len(quiet) < len(hooks):
        set_on_retry_hooks(quiet)
    yield from stamina.retry_context(
        on=on, attempts=tries, timeout=None, wait_initial=first_wait, wait_max=longest_wait, wait_jitter=first_wait
    )


def verdict(error: BaseException) -> str:
    """Say whether a run that ended so is tried again, later without counting it, or never."""
    if isinstance(error, Busy | Held | Waiting):
        return LATER
    if isinstance(error, Misuse | NotIdempotent | DataTestsFailed):
        return NEVER
    if isinstance(error, Fenced) and not isinstance(error, Overtaken):
        return NEVER
    return AGAIN if isinstance(error, Exception) else NEVER
