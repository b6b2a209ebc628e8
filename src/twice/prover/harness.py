"""How is a run made to die at every point it passes, and what is compared afterwards?

Deaths inside a warm process are fast: an exception that no handler may catch stands for the kill,
and another for the lost reply. Real kills of whole process groups are in `killers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from twice.errors import OutcomeUnknown, TwiceError
from twice.faults import Action, Died, LostReply, armed, dying_at, recording
from twice.prover.verdicts import LIED, LITTER, STUCK, Snapshot, Trouble, difference


class World(Protocol):
    """A fresh copy of target, ledger and inputs."""

    def act(self) -> None:
        """Do what is being proven, from whatever state the world is in."""

    def snapshot(self) -> Snapshot:
        """Return what there is now."""

    def litter(self) -> int:
        """Count the files that nothing uses."""

    def tidy(self) -> None:
        """Remove what nothing uses."""


@dataclass(frozen=True)
class Verdict:
    """What came of dying at one point, in one way."""

    point: str
    death: str
    trouble: Trouble | None = None


class Counterexample(AssertionError):
    """A death after which the rerun did not end in the table of a clean run."""


def points_of(world: World) -> list[str]:
    """Return the fault points of a clean pass, in the order in which they are reached."""
    points: list[str] = []
    with armed(recording(points)):
        world.act()
    return points


def deaths_at_every_point(make_world: Callable[[], World], *, thorough: bool = True) -> Iterator[Verdict]:
    """Die at each point of a clean pass, run again, and yield what came of it.

    A process that dies leaves everything as it is; a reply that is lost is an error which the run itself
    sees. If it is not to be thorough, the points before anything is written are passed over, and replies
    are lost only around the publish.
    """
    clean = make_world()
    points = list(dict.fromkeys(points_of(clean)))
    expected = clean.snapshot()
    first, publish = (points.index(name) if name in points else 0 for name in ("stage.before", "publish.before"))
    for number, point in enumerate(points):
        if not thorough and number < first:
            continue
        for death in (Died, LostReply) if thorough or number >= publish else (Died,):
            yield Verdict(point, death.__name__, survives(make_world(), dying_at(point, death), expected))


def survives(
    world: World, fault: Action, expected: Snapshot, before: Snapshot | None = None, *, again: Action | None = None
) -> Trouble | None:
    """Act under a fault, then without one, and say what went wrong, or nothing.

    With `again` the rerun meets a fault too, and a second rerun has to succeed.
    """
    for met in (fault, again) if again else (fault,):
        trouble = _first_act(world, met, expected, before)
        if trouble:
            return trouble
    return recovers(world, expected, before)


def _first_act(world: World, fault: Action, expected: Snapshot, before: Snapshot | None) -> Trouble | None:
    """Act under a fault; whoever lives through it must have told the truth."""
    with armed(fault):
        try:
            world.act()
        except (Died, LostReply):
            return None
        except TwiceError as error:
            return lies(world, error.exit_code, expected)
    trouble = difference(world.snapshot(), expected, before)
    return Trouble(LIED, f"said to have succeeded, but {trouble.text}") if trouble else None


def lies(world: World, exit_code: int, expected: Snapshot) -> Trouble | None:
    """Say whether a run that failed said so although its publish landed."""
    if exit_code != OutcomeUnknown.exit_code and world.snapshot().receipts == expected.receipts:
        return Trouble(LIED, f"exit code {exit_code} although the publish landed")
    return None


def recovers(world: World, expected: Snapshot, before: Snapshot | None = None) -> Trouble | None:
    """Run again with all faults over, and say what is not as after a clean run."""
    try:
        world.act()
    except TwiceError as error:
        return Trouble(STUCK, f"the rerun failed: {error}")
    trouble = difference(world.snapshot(), expected, before)
    if trouble:
        return trouble
    world.tidy()
    if left := world.litter():
        return Trouble(LITTER, f"{left} files are left over")
    return difference(world.snapshot(), expected, before)


def check(verdicts: Iterator[Verdict]) -> list[Verdict]:
    """Return all verdicts, or raise the first counterexample.

    Raises:
        Counterexample: With the point, the death and what was found.
    """
    seen = []
    for verdict in verdicts:
        if verdict.trouble:
            raise Counterexample(f"{verdict.death} at {verdict.point}: {verdict.trouble.text}")
        seen.append(verdict)
    return seen
