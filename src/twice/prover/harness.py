"""How is a run made to die at every point it passes, and what is compared afterwards?

Deaths inside a warm process are fast: an exception that no handler may catch stands for the kill,
and another for the lost reply. Real kills of whole process groups are in `killers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from twice.errors import OutcomeUnknown, TwiceError
from twice.faults import Died, LostReply, armed, dying_at, recording


@dataclass(frozen=True)
class Snapshot:
    """What is compared: rows as a multiset, receipts by slot, and what the ledger believes."""

    rows: tuple[str, ...]
    receipts: Mapping[str, tuple[int, str]]
    ledger: Mapping[str, tuple[int, str]]


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
    trouble: str = ""


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
            yield Verdict(point, death.__name__, _survives(make_world(), point, death, expected))


def _survives(world: World, point: str, death: type[BaseException], expected: Snapshot) -> str:
    """Return what went wrong, or nothing."""
    died = False
    with armed(dying_at(point, death)):
        try:
            world.act()
        except death:
            died = True
        except TwiceError as error:
            died = True
            if not isinstance(error, OutcomeUnknown) and world.snapshot().receipts == expected.receipts:
                return f"exit code {error.exit_code} although the publish landed"
    if not died and (trouble := difference(world.snapshot(), expected)):
        return f"said to have succeeded, but {trouble}"
    try:
        world.act()
    except TwiceError as error:
        return f"the rerun failed: {error}"
    if trouble := difference(world.snapshot(), expected):
        return trouble
    world.tidy()
    return f"{world.litter()} files are left over" if world.litter() else difference(world.snapshot(), expected)


def difference(found: Snapshot, expected: Snapshot) -> str:
    """Say how two snapshots differ, or nothing."""
    if found.rows != expected.rows:
        return f"the rows differ: {_sample(found.rows, expected.rows)}"
    if found.receipts != expected.receipts:
        return f"the receipts differ: {found.receipts} instead of {expected.receipts}"
    if found.ledger != expected.ledger:
        return f"the ledger differs: {found.ledger} instead of {expected.ledger}"
    return ""


def _sample(found: Sequence[str], expected: Sequence[str]) -> str:
    extra = [row for row in found if row not in expected][:3]
    lost = [row for row in expected if row not in found][:3]
    return f"{len(found)} instead of {len(expected)}; extra {extra}, lost {lost}"


def check(verdicts: Iterator[Verdict]) -> list[Verdict]:
    """Return all verdicts, or raise the first counterexample.

    Raises:
        Counterexample: With the point, the death and what was found.
    """
    seen = []
    for verdict in verdicts:
        if verdict.trouble:
            raise Counterexample(f"{verdict.death} at {verdict.point}: {verdict.trouble}")
        seen.append(verdict)
    return seen
