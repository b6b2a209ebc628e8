"""Which states can be reached, and what is the shortest way to a broken promise?

Breadth first: nearer states come first, so the first counterexample is the shortest there is.
"""

from collections import deque
from dataclasses import dataclass

from model import faults, promises, runners, store
from model.rules import Rules
from model.state import Bounds, World, new_world
from model.step import Step


@dataclass(frozen=True)
class Explored:
    """How many states there are, and the shortest way to trouble, if there is any."""

    states: int
    trouble: str = ""
    trace: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        lines = [f"{number:3}. {line}" for number, line in enumerate(self.trace, 1)]
        return "\n".join([f"{self.trouble or 'nothing broken'} ({self.states} states)", *lines])


def explore(rules: Rules, bounds: Bounds) -> Explored:
    """Try everything that can happen within the bounds, until a promise is broken."""
    first = new_world(bounds)
    came: dict[World, tuple[World, str] | None] = {first: None}
    waiting = deque([first])
    ends: dict[object, str] = {}
    while waiting:
        world = waiting.popleft()
        key = (world.table, world.ledger, world.inputs, world.happened, world.removed)
        if key not in ends:
            ends[key] = promises.broken_at_the_end(rules, bounds, world)
        if ends[key]:
            return Explored(
                len(came), ends[key], (*_trace(came, world), "faults are over, and every slot is asked for")
            )
        for step, after in _after(rules, bounds, world):
            trouble = step.trouble or _broken(bounds, world, after, step)
            if trouble:
                return Explored(len(came), trouble, (*_trace(came, world), _told(step)))
            if after not in came:
                came[after] = (world, _told(step))
                waiting.append(after)
    return Explored(len(came))


def _after(rules: Rules, bounds: Bounds, world: World):
    found = (
        *runners.steps_of_runners(rules, bounds, world),
        *store.steps_of_the_store(rules, bounds, world),
        *faults.faults(rules, bounds, world),
        *faults.people(bounds, world),
    )
    for step in found:
        # Publishes under way have no order among themselves.
        requests = tuple(sorted(step.world.requests, key=lambda one: (one.attempt, one.kind)))
        yield step, step.world._replace(requests=requests)


def _broken(bounds: Bounds, before: World, after: World, step: Step) -> str:
    """Promises are about table and ledger: a step that leaves both alone breaks none."""
    if after.table is before.table and after.ledger is before.ledger:
        return ""
    manual = step.name in ("fault", "restore.after")
    broken = promises.broken_by_state(bounds, after)
    return broken or promises.broken_by_step(before, after, manual=manual, forced=step.forced)


def _told(step: Step) -> str:
    return f"{step.name}: {step.text}"


def _trace(came: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    lines: list[str] = []
    while (before := came[world]) is not None:
        world = before[0]
        lines.append(before[1])
    return tuple(reversed(lines))
