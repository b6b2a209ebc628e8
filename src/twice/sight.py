"""What does a store say about a target, before anything is planned?

A sight is one consistent look at a target's receipts. Everything that decides whether a run
publishes, skips or refuses is computed from it, never from the ledger alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import accumulate, count
from types import MappingProxyType
from typing import Any

from twice.errors import Misuse
from twice.runs import Receipt, Slot

_EMPTY: Mapping[str, Any] = MappingProxyType({})
NO_TABLE = -1
# Why a proof ended, where a publish or a person did it through Twice and no stranger did.
REPLACED = "the whole table was replaced in version"
POINTS_AT = "the view points at"


def state_named(version: int) -> str:
    """Name a state of a table for people."""
    return "an empty table" if version == NO_TABLE else f"version {version}"


@dataclass(frozen=True)
class Sight:
    """One look at a target.

    Attributes:
        version: What the store calls the state of the table; `NO_TABLE` where there is none.
        head: Counter that every publish moves.
        table_id: The table's own id, so that a table dropped and made again is noticed downstream.
        owner: Id of the ledger that the target belongs to, or empty.
        receipts: The fence of each slot: the receipt of its highest generation ever published.
        ended: Slots whose receipt is no longer a proof, with the reason.
        gone: Those of them whose rows are surely not in the table any more.
        outside: Name of the newest change that no publish made, or empty; `--accept` is bound to it.
        filled: The table holds rows although no publish ever wrote to it.
        data_version: The newest version that changed rows; maintenance does not move it.
        swept: Attempts whose staging a tidy has taken away.
        forgot: The newest version that named such attempts whose names are not kept any more.
        points: The target is a name that points at one of several versions.
        sealed: Why no more is published to it, or empty.
        pinned: A version of it can be read again; not so where several tables are united.
        dropped: The table was dropped since the newest publish, where the store keeps receipts apart from it.
    """

    version: int = NO_TABLE
    head: int = 0
    table_id: str = ""
    owner: str = ""
    receipts: Mapping[str, Receipt] = field(default_factory=lambda: _EMPTY)
    ended: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    gone: frozenset[str] = frozenset()
    outside: str = ""
    filled: bool = False
    data_version: int = NO_TABLE
    swept: frozenset[str] = frozenset()
    forgot: int = NO_TABLE
    points: bool = False
    sealed: str = ""
    pinned: bool = True
    dropped: bool = False

    @property
    def exists(self) -> bool:
        """Tell whether there is a table at all."""
        return self.version != NO_TABLE

    def receipt(self, slot: str) -> Receipt | None:
        """Return the receipt of the slot's highest generation, whether or not its rows are there."""
        return self.receipts.get(slot)

    def fence(self, slot: str) -> int:
        """Return the highest generation ever published for the slot, or 0."""
        receipt = self.receipts.get(slot)
        return receipt.generation if receipt else 0

    @cached_property
    def changed_outside(self) -> str:
        """Name the newest change that no publish made to rows which are still there, or nothing."""
        return self.outside if set(self.ended) - self.gone else ""

    @cached_property
    def pending(self) -> tuple[str, ...]:
        """The slots that a replay has still to show, in order, while it is shown slot by slot.

        If the table holds one of them in an older edition, somebody brought back an older version since: there is no
        replay to go on with then.
        """
        proven = [receipt for slot, receipt in self.receipts.items() if slot not in self.ended]
        newest = max(proven, key=lambda receipt: receipt.first_version or 0, default=None)
        if newest is None or (set(newest.pending) & set(self.ended)) - self.gone:
            return ()
        return newest.pending

    @cached_property
    def writers(self) -> tuple[tuple[Slot, bool], ...]:
        """One slot of each kind of those that are published here, and whether its receipt names marks of files."""
        kinds: dict[Any, tuple[Slot, bool]] = {}
        for slot, receipt in zip(self._slots, self.receipts.values(), strict=True):
            has_marks = bool(receipt.marks)
            kinds.setdefault((slot.target, slot.pipeline, bool(slot.interval), has_marks), (slot, has_marks))
        return tuple(kinds.values())

    def overlapped(self, slot: Slot) -> Slot | None:
        """Return another published slot that shares a moment with this one, or None."""
        if slot.interval is None:
            return None
        timed, starts, ends_until = self._timed
        # Of those that begin before its end, from the last one back as long as any ends after its start.
        for number in reversed(range(bisect_left(starts, slot.interval.end))):
            if ends_until[number] <= slot.interval.start:
                return None
            other = timed[number]
            if other.part != slot.part and other.interval and other.interval.overlaps(slot.interval):
                return other
        return None

    @cached_property
    def _slots(self) -> tuple[Slot, ...]:
        return tuple(map(Slot.parse, self.receipts))

    @cached_property
    def _timed(self) -> tuple[list[Slot], list[datetime], list[datetime]]:
        """The slots with an interval by their starts, these starts, and for each the latest end up to it."""
        pairs = sorted(((one.interval, one) for one in self._slots if one.interval), key=lambda pair: pair[0])
        ends = accumulate((interval.end for interval, _ in pairs), max)
        return [slot for _, slot in pairs], [interval.start for interval, _ in pairs], list(ends)

    def of_attempt(self, attempt: str) -> list[Receipt]:
        """Return the receipts of one attempt: those of one publish."""
        return self._by_attempt.get(attempt, [])

    @cached_property
    def _by_attempt(self) -> Mapping[str, list[Receipt]]:
        found: dict[str, list[Receipt]] = {}
        for receipt in self.receipts.values():
            found.setdefault(receipt.attempt, []).append(receipt)
        return found

    def check_version(self, name: str, version: int) -> None:
        """Refuse the number of a version that never was; of older ones the store says whether they are kept.

        Raises:
            Misuse: The table has none of that number.
        """
        if not self.exists:
            raise Misuse(f"The table {name} does not exist yet.", fix="Run the pipeline that writes it.")
        if self.pinned and not 0 <= version <= self.version:
            raise Misuse(f"{name} has no version {version}; the newest is {self.version}.", fix="See: twice versions")

    def proof(self, slot: str) -> Receipt | None:
        """Return the slot's receipt if its rows are vouched for."""
        return None if slot in self.ended else self.receipts.get(slot)


@dataclass(frozen=True)
class State:
    """One version of a target that is still known, and whose rows it held.

    Attributes:
        version: What the store calls it; `NO_TABLE` is the state before the first publish.
        holds: The slots whose rows are in it, each with its generation.
        outside: Name of the newest change to those rows that no publish made, or empty.
        known: Whether all that happened up to it is known.
        made_at: When it was made, or empty.
    """

    version: int
    holds: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    outside: str = ""
    known: bool = True
    made_at: str = ""

    def leaves_of(self, sight: Sight, published: AbstractSet[str], version: int) -> Sight:
        """Return what is true of a target's slots when a version starts from this state and publishes some slots.

        Of the others, those are in it that are in this state, and vouched for as they were there.
        """
        lacking = {slot for slot, found in sight.receipts.items() if self.holds.get(slot) != found.generation}
        lacking -= published
        kept = {} if not self.outside else self._unvouched(sight, lacking | published)
        why = f"version {version} starts from an older one, from before the slot's rows"
        # A new name wherever something went away: whoever accepted an older change has not accepted this.
        outside = f"version {version}" if lacking else self.outside if kept else ""
        # Of a slot that is here in an older edition, some rows are.
        gone = frozenset(lacking - set(self.holds))
        return replace(sight, ended={**kept, **dict.fromkeys(lacking, why)}, gone=gone, outside=outside)

    def _unvouched(self, sight: Sight, others: AbstractSet[str]) -> dict[str, str]:
        """Return the slots that are here with a change from outside, and why they are not vouched for."""
        why = f"the table starts from version {self.version}, which was changed from outside"
        known = {} if sight.changed_outside == self.outside else dict.fromkeys(self.holds, why)
        return {slot: reason for slot, reason in {**known, **sight.ended}.items() if slot not in others}


@dataclass(frozen=True)
class Step:
    """One version that is still known, by what it brought: slots that came in another generation, and how many it holds."""

    version: int
    made_at: str
    came: tuple[str, ...]
    holds: int


@dataclass(frozen=True)
class Past:
    """The versions of a target that a draft could start from, newest first.

    Stores read them one by one, for as long as somebody asks for an older one; a second question begins at the newest again.
    `lost` says why the rows of a version cannot be read any more, or nothing. `told` returns the steps where the store
    need not compare whole states for them.
    """

    states: Iterable[State] = ()
    lost: Callable[[int], str] = field(default=lambda _: "", repr=False)
    told: Callable[[], Iterable[Step]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", _Kept(self.states))

    def steps(self) -> Iterable[Step]:
        """Tell what each version brought, oldest first."""
        return self.told() if self.told else self._compared()

    def _compared(self) -> Iterator[Step]:
        before: Mapping[str, int] = _EMPTY
        known = (state for state in self.states if state.version != NO_TABLE)
        for state in sorted(known, key=lambda state: state.version):
            came = tuple(slot for slot, generation in state.holds.items() if before.get(slot) != generation)
            yield Step(state.version, state.made_at, came, len(state.holds))
            before = state.holds


class _Kept:
    """What an iterator gave so far, and then the rest of it, for everybody who asks."""

    def __init__(self, found: Iterable[State]) -> None:
        self._rest = iter(found)
        self._had: list[State] = []

    def __iter__(self) -> Iterator[State]:
        for number in count():
            if number == len(self._had):
                try:
                    self._had.append(next(self._rest))
                except StopIteration:
                    return
            yield self._had[number]
