"""What happened to a run, told to whoever wants to know?

An event is a plain record. Logs, lineage, the results of an invocation and the functions of users are
listeners: each is called with the event, in the thread of the run, in their order. A listener never
changes the outcome of a run: what it raises becomes a warning on standard error, and a death passes
through. Events are told after what they tell of is recorded, so a listener never knows more than the
ledger; a process that dies in between has not told, and what relies on being told catches up from the
ledger (see `signals.lineage`).

    started       work on a slot has begun; the attempt has its name
    published     its rows are visible and recorded
    skipped       there was nothing to do, or a twin did it
    failed        it ended without a publish that is known; `state` says failed, refused, interrupted or unknown
    retried       a failed run is tried again, now or at a recorded time
    dead          the last allowed try failed, and the run was set aside
    quarantined   rows were set aside with a reason
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from twice.errors import Misuse, TwiceError, suggestion
from twice.explain import explain
from twice.masks import mask
from twice.runs import Slot

KINDS = ("started", "published", "skipped", "failed", "retried", "dead", "quarantined")
ENDS = ("published", "skipped", "failed")


def utc_now() -> str:
    """Wall-clock time, for people and machines to read: nothing is decided by it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Event:
    """One thing that happened to a run. Texts hold no secret."""

    kind: str
    slot: Slot
    attempt: str = ""
    generation: int = 0
    state: str = ""
    reason: str = ""
    rows: int | None = None
    version: int | None = None
    error: TwiceError | None = None
    reads: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    at: str = field(default_factory=utc_now)

    def to_json(self) -> dict[str, Any]:
        """The event as plain values, without what is not known."""
        values = {
            "event": self.kind,
            "at": self.at,
            "run": self.attempt,
            "slot": self.slot.text,
            "pipeline": self.slot.pipeline,
            "target": self.slot.target.text,
            "generation": self.generation or None,
            "state": self.state or self.kind,
            "reason": mask(self.reason),
            "rows": self.rows,
            "version": self.version,
            "error": error_facts(self.error) if self.error else None,
            **self.facts,
        }
        return {name: value for name, value in values.items() if value not in (None, "")}


def error_facts(error: TwiceError) -> dict[str, Any]:
    """Return an error as plain values."""
    return {
        "type": type(error).__name__,
        "code": error.exit_code,
        "what": error.what,
        "why": error.why,
        "fix": error.fix,
    }


Tell = Callable[[Event], None]


def to_nobody(_: Event) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Hook:
    """A function of the user's that wants to know of some kinds of events; still callable by hand."""

    kinds: tuple[str, ...]
    function: Callable[[Event], Any]

    def __call__(self, event: Event) -> Any:
        """Call the function."""
        return self.function(event)


def on(*kinds: str) -> Callable[[Callable[[Event], Any]], Hook]:
    """Let a function of a file of pipelines be called with every event of these kinds.

    Raises:
        Misuse: There is no such kind.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise Misuse(f"There is no event {kind!r}.", fix=suggestion(kind, KINDS))
    if not kinds:
        raise Misuse("A hook names the events that it wants.", fix=f"There are: {', '.join(KINDS)}.")
    return lambda function: Hook(kinds, function)


def announce(event: Event, listeners: Iterable[Tell]) -> None:
    """Tell all listeners. What one of them raises is said on standard error, and changes nothing else."""
    for listener in listeners:
        try:
            listener(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a signal must never change what it tells of
            name = getattr(listener, "__name__", type(listener).__name__)
            print(
                f"twice: warning: {name} failed when it was told that {event.slot.pipeline} {event.slot.label}"
                f" {event.kind}: {explain(error)}. The run is not affected.",
                file=sys.stderr,
                flush=True,
            )
