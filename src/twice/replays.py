"""From which state is a slot done again?

What an order-dependent slot does to a table depends on the slots before it. So a slot that is done
again, or late, starts from the state before it: the newest kept version that holds nothing but
earlier slots, each in its current generation. Earlier slots that this version lacks are done again
from what they were published from, later ones from what their inputs are now, and the result is
shown in one publish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twice.errors import Fenced, Misuse, NotPublished
from twice.runs import Slot
from twice.sight import Past, Sight, State, state_named

_NAMED_AT_MOST = 3


@dataclass(frozen=True)
class Draft:
    """Where a replay starts.

    Attributes:
        base: The version it starts from; `NO_TABLE` is an empty table.
        between: Earlier slots that the version lacks: they are done again, from what they were published from.
        passed: Better versions that cannot be read any more, with the reason.
    """

    base: int
    between: tuple[Slot, ...] = ()
    passed: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Say where the replay starts."""
        again = f", and does {named(self.between)} again as published" if self.between else ""
        return f"starts from {self.start}{again}"

    @property
    def start(self) -> str:
        """Name the state it starts from."""
        return state_named(self.base)


def draft_before(slot: Slot, sight: Sight, past: Past, *, forced: bool) -> Draft:
    """Find the state before a slot.

    Raises:
        NotPublished: No version is left to start from.
        Fenced: A change from outside that was accepted would be lost.
    """
    earlier = {other.text: other for other in published(sight, forced=forced) if _is_before(other, slot)}
    # A change from outside that somebody accepted belongs to the table; with force only the slots do.
    outside = "" if forced else sight.changed_outside
    passed = []
    for state in past.states:
        if not _holds_only(state, earlier, sight) or state.outside not in ("", outside):
            continue
        if state.outside != outside:
            raise Fenced(
                f"The state before {slot.label} is version {state.version}, from before a change from outside ({outside}).",
                "That change was accepted, and a replay from before it would lose it.",
                "Use --force to lose it.",
            )
        why = past.lost(state.version)
        if why:
            passed.append(f"version {state.version}: {why}")
            continue
        return Draft(state.version, _between(state, earlier), tuple(passed))
    raise NotPublished(
        f"The state before {slot.label} cannot be found: no version is left that holds only earlier slots.",
        ("Lost: " + "; ".join(passed) + ". " if passed else "") + "Nothing was published, and the target is as it was.",
        "Keep versions longer (keep=), or write the whole history to a new target.",
    )


def _holds_only(state: State, earlier: Mapping[str, Slot], sight: Sight) -> bool:
    """An older generation of an earlier slot would quietly come back, so each has to be the current one."""
    if not state.known or not all(
        slot in earlier and sight.fence(slot) == generation for slot, generation in state.holds.items()
    ):
        return False
    # What it lacks is done after what it holds, so it may lack only later slots.
    last = max((start_of(earlier[slot]) for slot in state.holds), default="")
    return all(start_of(slot) > last for slot in _between(state, earlier))


def _between(state: State, earlier: Mapping[str, Slot]) -> tuple[Slot, ...]:
    """Return the earlier slots that a version lacks."""
    return tuple(slot for text, slot in earlier.items() if text not in state.holds)


def later(slot: Slot, sight: Sight, *, forced: bool) -> tuple[Slot, ...]:
    """Return the published slots that come after one, oldest first."""
    return tuple(other for other in published(sight, forced=forced) if _is_before(slot, other))


def published(sight: Sight, *, forced: bool) -> list[Slot]:
    """Return the slots that belong in the table, by time; with force also those that were restored away."""
    texts = set(sight.receipts) - (frozenset() if forced else sight.gone)
    return sorted(map(Slot.parse, texts), key=start_of)


def start_of(slot: Slot) -> str:
    """Return what slots are put in order by.

    Raises:
        Misuse: It has no time.
    """
    if slot.interval is None:
        raise Misuse(
            f"The pipeline {slot.pipeline!r} has no calendar, so its slots have no order.",
            "What one of them does to the table depends on those before it.",
            "Declare every=, or use the pattern 'merger'.",
        )
    return slot.interval.start.isoformat()


def _is_before(one: Slot, other: Slot) -> bool:
    return start_of(one) < start_of(other)


def named(slots: Sequence[Slot]) -> str:
    """Name slots, and of many the first and the last."""
    labels = [slot.label for slot in slots]
    if len(labels) <= _NAMED_AT_MOST:
        return ", ".join(labels)
    return f"{labels[0]} to {labels[-1]} ({len(labels)} slots)"
