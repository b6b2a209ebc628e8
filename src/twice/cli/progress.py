"""How far is it, and how long will it take?

On a terminal a bar on standard error answers; elsewhere nothing is drawn. Rich knows what a terminal
can do, and respects NO_COLOR and TERM.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from twice.cli.output import is_quiet

_MINUTE, _HOUR = 60, 3600


@dataclass
class Bar:
    """Counts the slots that have ended, and judges the time that is left by those that took work.

    The first of these is not judged by: Spark starts in it.
    """

    total: int
    labels: Sequence[str]
    show: Callable[[int, str, str], None]
    ended: int = 0
    worked: int = 0
    warm_since: float = 0.0

    def advance(self, *, worked: bool) -> None:
        """Count one slot; one that was skipped took no time that could be judged by."""
        now = time.monotonic()
        self.ended += 1
        if worked and not self.warm_since:
            self.warm_since = now
        elif worked:
            self.worked += 1
        left = time_left(now - self.warm_since, self.worked, self.total - self.ended)
        self.show(self.ended, self.labels[self.ended] if self.labels[self.ended :] else "", left)


def time_left(elapsed: float, worked: int, left: int) -> str:
    """Say how long the rest will take, if all of it takes as long as what was worked on so far.

    >>> time_left(elapsed=60.0, worked=2, left=10)
    'about 5 min left'
    """
    if not (worked and left):
        return ""
    seconds = round(elapsed / worked * left)
    if seconds < _MINUTE:
        return f"about {seconds} s left"
    if seconds < _HOUR:
        return f"about {round(seconds / _MINUTE)} min left"
    return f"about {seconds / _HOUR:.1f} h left"


@contextmanager
def progress(what: str, total: int, labels: Sequence[str] = ()) -> Iterator[Bar | None]:
    """Draw a bar on standard error while the block works, if that is a terminal; else yield None.

    With `labels` it names what is worked on. A quiet command draws none.
    """
    if not total or is_quiet() or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    # A handle of its own: while a JVM starts, standard error is its log file.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as terminal:
        console = Console(file=terminal)
        if not console.is_interactive:
            yield None
            return
        columns = (
            TextColumn(what),
            TextColumn("{task.fields[slot]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        # What is printed to the same terminal meanwhile goes above the bar.
        with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as drawn:
            task = drawn.add_task(what, total=total, slot=labels[0] if labels else "", left="")
            yield Bar(
                total, labels, lambda ended, slot, left: drawn.update(task, completed=ended, slot=slot, left=left)
            )
