"""What is a step, and which fault points of the code does it pass?

Each step is named by the fault point that it ends at. `PASSES` names all points of the code that it passes.
"""

from typing import NamedTuple

from model.state import Runner, World, put

PASSES = {
    "look": (),
    "inputs.resolved": ("inputs.resolved",),
    "lease.taken": ("intended", "lease.taken"),
    "view.opened": ("view.open.before", "view.opened"),
    "stage.after": ("stage.before", "rows.ready", "stage.after"),
    "publish.before": ("looked.again", "publish.before"),
    "memory.publish": ("memory.publish",),
    "read.back": ("publish.after", "read.back"),
    "confirmed": ("confirmed",),
    "restore.before": ("restore.before",),
    "restore.after": ("restore.after",),
    "taken.over": ("taken.over",),
    "released": ("released",),
}
STAGED = ("staged", "sent", "answered")


class Step(NamedTuple):
    """One step: its name, what it did in words, and the world after it. `trouble` is a promise that it broke."""

    name: str
    text: str
    world: World
    trouble: str = ""
    outcome: str = ""
    slot: int | None = None
    forced: bool = False


def with_runner(world: World, place: int, runner: Runner) -> World:
    return world._replace(runners=put(world.runners, place, runner))
