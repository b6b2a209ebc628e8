"""What does a version of a log hold, if its files say only what changed?

A state is a few tables of keys and values. Version *n* says what differs from an older one, its *base*, which says what
differs from its own, down to one that says all: the *root*. The base follows from the number alone, with its last digit that
is not zero one lower: 4730 is told from 4720, 4720 from 4710, … 4700, 4600, … 4000, 3000. So a chain is as long as the sum of the
digits, and a change is written again once for every digit of the number: both grow with the logarithm of the history.

The base of version *n* + 1 is version *n*, or is in its chain. So whoever keeps the chain of one version keeps all that newer
ones refer to, also those that are made at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_DIGIT = 10
ABSENT: Any = object()

Tables = Mapping[str, Mapping[str, Any]]
Key = tuple[str, str]


@dataclass(frozen=True)
class Difference:
    """What one version says: entries that it puts, and keys that are gone, by their table. Without a base it says all."""

    version: int
    since: int | None
    put: Tables
    gone: Mapping[str, Sequence[str]]


def since_of(version: int, root: int) -> int:
    """Return the version that another one, above zero, is told from; nothing is told from what is older than the root."""
    step = 1
    while version % (step * _DIGIT) == 0:
        step *= _DIGIT
    return max(version - step, root)


def difference(version: int, since: int, before: Tables, after: Tables, ordered: Sequence[str]) -> Difference | None:
    """Tell a state from an older one, or return None where it has to say all: that is no longer, or the order is another.

    The first table holds facts, which any version may change and which do not count.
    """
    put, gone = {}, {}
    for name, entries in after.items():
        then = before.get(name, {})
        put[name] = {key: value for key, value in entries.items() if not _is_same(then.get(key, ABSENT), value)}
        gone[name] = [key for key in then if key not in entries]
        # What is put stands after all else.
        order = [key for key in then if key in entries and key not in put[name]] + [*put[name]]
        if name in ordered and order != [*entries]:
            return None
    _, *counted = after
    changes = sum(len(put[name]) + len(gone[name]) for name in counted)
    return Difference(version, since, put, gone) if changes < sum(len(after[name]) for name in counted) else None


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (one is not ABSENT and other is not ABSENT and one == other)


class Walk:
    """A state that goes from version to version of a log, in any order, and knows what changed on the way.

    It takes back what the versions after the nearest common base put, and applies what lies between that base and the
    new version: from one to the next that is a few entries on average. Entries that were taken back are in no order.
    """

    def __init__(self, read: Callable[[int], Difference]) -> None:
        self._read = read
        self._undo: list[tuple[int, list[tuple[str, str, Any]]]] = []
        self.tables: dict[str, dict[str, Any]] = {}

    @property
    def chain(self) -> list[int]:
        """The versions from which the present one is told, from the root to itself."""
        return [version for version, _ in self._undo]

    def to(self, version: int) -> dict[Key, Any]:
        """Go to a version, and return the keys whose values are others than before, with those that they had."""
        ahead: list[Difference] = []
        there, number = set(self.chain), version
        while number not in there:
            ahead.append(self._read(number))
            found = ahead[-1].since
            if found is None:
                number = -1
                break
            number = found
        touched: dict[Key, Any] = {}
        while self._undo and self._undo[-1][0] != number:
            for name, key, value in reversed(self._undo.pop()[1]):
                self._put(touched, name, key, value)
        for one in reversed(ahead):
            self._apply(touched, one)
        return {key: was for key, was in touched.items() if not _is_same(self.tables[key[0]].get(key[1], ABSENT), was)}

    def _apply(self, touched: dict[Key, Any], change: Difference) -> None:
        gone = [(name, key, ABSENT) for name, keys in change.gone.items() for key in keys]
        put = [(name, key, value) for name, entries in change.put.items() for key, value in entries.items()]
        undo = [(name, key, self._put(touched, name, key, value)) for name, key, value in (*gone, *put)]
        self._undo.append((change.version, undo))

    def _put(self, touched: dict[Key, Any], name: str, key: str, value: Any) -> Any:
        """Give a key a value, after all others of its table, and return the one that it had."""
        table = self.tables.setdefault(name, {})
        before = table.pop(key, ABSENT)
        touched.setdefault((name, key), before)
        if value is not ABSENT:
            table[key] = value
        return before
