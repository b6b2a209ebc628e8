"""What can be tried, what came of it, and by which command is it seen again?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twice.errors import count
from twice.prover.verdicts import NOT_DETERMINISTIC, NOT_PROVABLE, SURVIVED, Trouble

REPEAT = "repeat"
NO_TIME = "no time was left"
READ, WARM, REAL, CLUSTER = "read", "warm", "real", "cluster"


class CannotBeTried(Exception):
    """This trial does not apply to this pipeline or store; the message says why."""


@dataclass(frozen=True)
class Trial:
    """One thing to try: a way to die at a point, or a way to repeat.

    Attributes:
        point: The fault point, two of them joined by `+`, or `repeat`.
        way: How it dies there, or what is repeated.
        means: `read` without running anything, `warm` in this process, `real` with processes of its own, `cluster` with executors of their own.
        does: What is done, in words.
        attempt: Does it, and returns what is wrong.
    """

    point: str
    way: str
    means: str
    does: str
    attempt: Callable[[], Trouble | None] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """What `--only` calls it."""
        return f"{self.point}/{self.way}"


@dataclass(frozen=True)
class Tried:
    """What came of a trial."""

    trial: Trial
    verdict: str
    seen: str
    seconds: float
    replay: str = ""

    @property
    def survived(self) -> bool:
        """Tell whether it ended in the table of a clean run."""
        return self.verdict == SURVIVED

    def to_json(self) -> dict[str, Any]:
        """The trial as plain values."""
        return {
            "point": self.trial.point,
            "way": self.trial.way,
            "means": self.trial.means,
            "does": self.trial.does,
            "verdict": self.verdict,
            "seen": self.seen,
            "seconds": round(self.seconds, 2),
            "replay": self.replay,
        }


@dataclass(frozen=True)
class LeftOut:
    """A trial that was not made, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class Proof:
    """All that was tried on one pipeline, and what came of it; `known` counts the trials that there are."""

    pipeline: str
    slot: str
    store: str
    points: tuple[str, ...]
    tried: tuple[Tried, ...]
    left_out: tuple[LeftOut, ...]
    known: int
    notes: tuple[str, ...]
    seconds: float
    seconds_left_out: float
    seed: int

    @property
    def counterexamples(self) -> tuple[Tried, ...]:
        """The trials that did not survive."""
        return tuple(one for one in self.tried if not one.survived)

    @property
    def verdict(self) -> str:
        """`idempotent` where all was tried, else `no counterexample`; `not deterministic`, `not provable` or `not idempotent`."""
        kinds = {one.verdict for one in self.counterexamples}
        if not kinds:
            return "idempotent" if len(self.tried) == self.applicable else "no counterexample"
        if NOT_PROVABLE in kinds:
            return NOT_PROVABLE
        return NOT_DETERMINISTIC if kinds == {NOT_DETERMINISTIC} else "not idempotent"

    @property
    def applicable(self) -> int:
        """How many trials there are, without those that this pipeline or store cannot be tried with."""
        return self.known - sum(one.why != NO_TIME for one in self.left_out)

    @property
    def told(self) -> str:
        """The verdict as people read it: with what it rests on, where that is not all."""
        part = f" in {len(self.tried)} of {count(self.applicable, 'trial')}"
        return self.verdict + (part if self.verdict == "no counterexample" else "")

    @property
    def survived(self) -> bool:
        """Tell whether nothing was found."""
        return not self.counterexamples

    def alike(self) -> list[tuple[Tried, list[str]]]:
        """Return one counterexample of each kind, with the names of the others of which the same was seen."""
        found: dict[tuple[str, str], list[Tried]] = {}
        for one in self.counterexamples:
            found.setdefault((one.verdict, one.seen), []).append(one)
        return [(first, [one.trial.name for one in others]) for first, *others in found.values()]

    def by_point(self) -> dict[str, list[Tried]]:
        """Return what was tried at each point, in the order in which a run passes them; repeats come last."""
        found: dict[str, list[Tried]] = {point: [] for point in self.points}
        for one in self.tried:
            found.setdefault(one.trial.point, []).append(one)
        found[REPEAT] = found.pop(REPEAT, [])
        return {point: tried for point, tried in found.items() if tried}

    def left_out_by_reason(self) -> dict[str, list[str]]:
        """Return what was left out, by why."""
        found: dict[str, list[str]] = {}
        for one in self.left_out:
            found.setdefault(one.why, []).append(one.name)
        return found

    def to_json(self) -> dict[str, Any]:
        """The proof as plain values."""
        return {
            "pipeline": self.pipeline,
            "slot": self.slot,
            "store": self.store,
            "verdict": self.verdict,
            "trials": self.applicable,
            "points": list(self.points),
            "tried": [one.to_json() for one in self.tried],
            "left_out": [{"trial": one.name, "why": one.why} for one in self.left_out],
            "notes": list(self.notes),
            "seconds": round(self.seconds, 1),
            "seconds_left_out": round(self.seconds_left_out),
            "seed": self.seed,
        }
