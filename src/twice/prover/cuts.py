"""What is tried on the way to a PostgreSQL server? The wire is cut around the COMMIT that publishes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from twice.errors import OutcomeUnknown, TwiceError
from twice.prover.databases import reached_through
from twice.prover.grounds import Ground
from twice.prover.harness import recovers
from twice.prover.trials import WARM, CannotBeTried, Trial
from twice.prover.verdicts import LIED, STUCK, Trouble, difference
from twice.prover.wires import AFTER, BEFORE, DURING, Wire

POINT = "postgres.commit"
_DOES = {
    BEFORE: "loses its connection just before COMMIT reaches the server, then runs again",
    AFTER: "loses its connection after the server has done COMMIT, and before it says so, then runs again",
    DURING: "loses its connection while COMMIT is on its way, then runs again",
}
WAYS = {f"cut-{how}": how for how in _DOES}
# Said in every transaction that publishes, and in no other one of a run.
_SAID = "twice_receipts"


def cuts(ground: Ground) -> Iterator[Trial]:
    """Yield the cuts, where there is a wire to be cut."""
    if ground.template.database is not None:
        for way, how in WAYS.items():
            yield Trial(POINT, way, WARM, _DOES[how], lambda h=how: _cut(ground, h))  # type: ignore[misc]


def _cut(ground: Ground, how: str) -> Trouble | None:
    world = ground.fresh()
    if world.database is None:
        raise AssertionError("a wire leads to a database")
    with Wire.to(world.database.url) as wire:
        far = replace(world, environment={**world.environment, **reached_through(world.database, wire)})
        fault = wire.expect(how, having=_SAID)
        try:
            far.act()
        except OutcomeUnknown:
            pass
        except TwiceError as error:
            return Trouble(STUCK, f"the run did not say that its outcome is unknown: {error}")
        else:
            trouble = difference(world.snapshot(), ground.expected, ground.before)
            if trouble:
                return Trouble(LIED, f"success, but {trouble.text}")
        if not fault.done.is_set():
            raise CannotBeTried("no COMMIT that publishes was seen")
    return recovers(world, ground.expected, ground.before)
