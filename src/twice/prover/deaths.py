"""Which deaths are died in this process, and in which order?

They cost a second each, so every point that a clean run passes is tried: a death that nothing may
handle, a lost reply, and a twin that does the whole work while the run pauses there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from twice.errors import TwiceError
from twice.faults import Action, Died, LostReply, armed, dying_at, recording
from twice.prover.grounds import Ground
from twice.prover.harness import recovers, survives
from twice.prover.trials import WARM, Trial
from twice.prover.verdicts import STUCK, Trouble

# A twin cannot work while the run pauses inside a store's lock, or in the middle of taking a lease.
_UNDER_A_LOCK = ("memory.", "parquet.", "delta.", "files.", "postgres.", "manifest.", "view.", "history.", "lease.")

TWIN = "twin"
DEATHS = {
    "died": (Died, "dies there (an exception that nothing may handle), then runs again"),
    "lost-reply": (LostReply, "loses the reply there, then runs again"),
}


def deaths_at(ground: Ground, way: str) -> Iterator[Trial]:
    """Yield one way to die in this process, at every point, from the publish outwards."""
    death, does = DEATHS[way]
    for point in by_telling(ground.points):
        yield Trial(point, way, WARM, does, lambda p=point: _dies(ground, dying_at(p, death)))  # type: ignore[misc]


def twins(ground: Ground) -> Iterator[Trial]:
    """Yield meetings with a twin, at every point at which nothing is locked."""
    does = "pauses there while a twin does all the work, then goes on, then runs again"
    for point in ground.points:
        if not point.startswith(_UNDER_A_LOCK):
            yield Trial(point, TWIN, WARM, does, lambda p=point: _meets_a_twin(ground, p))  # type: ignore[misc]


def by_telling(points: list[str]) -> list[str]:
    """Order points by their distance from the publish, later ones first."""
    publish = points.index("publish.after") if "publish.after" in points else len(points) // 2
    return sorted(points, key=lambda point: (abs(points.index(point) - publish), -points.index(point)))


def pairs(ground: Ground, seed: int) -> list[Trial]:
    """Return deaths at two points, one in the run and one in its rerun, in an order drawn by the seed."""
    found = [
        Trial(
            f"{first}+{second}",
            "died",
            WARM,
            f"dies at {first}, runs again, dies at {second}, then runs again",
            lambda a=first, b=second: _dies(ground, dying_at(a), again=dying_at(b)),  # type: ignore[misc]
        )
        for first in ground.points
        for second in ground.points
    ]
    random.Random(seed).shuffle(found)  # noqa: S311 - an order, not a secret
    return found


def _dies(ground: Ground, fault: Action, again: Action | None = None) -> Trouble | None:
    return survives(ground.fresh(), fault, ground.expected, ground.before, again=again)


def _meets_a_twin(ground: Ground, point: str) -> Trouble | None:
    """Pause at a point, let another driver fill the slot, and go on."""
    world = ground.fresh()
    twin = replace(world)
    troubles: list[Trouble] = []

    def let_it_work(reached: str) -> None:
        if reached == point and not met:
            met.append(reached)
            with armed(recording([])):
                try:
                    twin.act()
                except TwiceError as error:
                    troubles.append(Trouble(STUCK, f"the twin failed: {error}"))

    met: list[str] = []
    with armed(let_it_work):
        try:
            world.act()
        except TwiceError as error:
            # Who wakes up after a twin may be refused; what counts is the table, and that a rerun is fine.
            if error.exit_code not in (3, 4):
                troubles.append(Trouble(STUCK, f"woken up, the run failed: {error}"))
    return troubles[0] if troubles else recovers(world, ground.expected, ground.before)
