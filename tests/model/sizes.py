"""How large are the worlds that are tried?

Small ones in `make test`, in seconds; large ones in `make prove`. Each has a floor: an exploration that has become
empty would find nothing, and say that all is well.
"""

from typing import NamedTuple

from model.state import Bounds

DEATHS = frozenset({"death", "lost reply"})


class Size(NamedTuple):
    bounds: Bounds
    least_states: int


def _of(least_states: int, pattern: str, *also: str, deaths: frozenset[str] = DEATHS, **more) -> Size:
    return Size(Bounds(pattern, happenings=deaths.union(also), **more), least_states)


INPUTS = ("input changes", "input changes back")
LEDGERS = ("ledger lost", "ledger stale")
OUTSIDE = ("stranger writes", "restore", "restore by hand")

SMALL = {
    "slice": _of(6_000, "slice", *INPUTS),
    "slice, new code": _of(12_000, "slice", "input changes", "new code"),
    "slice, ledger lost or stale": _of(14_000, "slice", "input changes", *LEDGERS),
    "slice, leases": _of(7_000, "slice", "input changes", "lease runs out", leases=True),
    "slice, linked": _of(12_000, "slice", "tidy", store="links", slots=2, faults=1),
    "slice, linked, leases": _of(5_000, "slice", "tidy", "lease runs out", store="links", leases=True),
    "slice, linked, names end": _of(
        18_000, "slice", "tidy", "names end", deaths=frozenset(), store="links", slots=2, faults=2
    ),
    "slice, in a transaction": _of(7_000, "slice", "input changes", store="transacts"),
    "slice, given away": _of(6_000, "slice", "release", "ledger lost", deaths=frozenset(), slots=2, faults=1),
    "slice, accepted": _of(
        14_000, "slice", "accept", "input changes", *OUTSIDE, deaths=frozenset(), attempts=(2, 1), faults=2
    ),
    "append": _of(3_000, "append", "input changes"),
    "behind a view": _of(1_300, "period"),
    "ordered": _of(14_000, "ordered", "input changes", slots=2, faults=1),
    "ordered, corrected twice": _of(8_000, "ordered", "input changes", slots=2, attempts=(4,)),
    "ordered, shown slot by slot": _of(26_000, "ordered", "input changes", slots=2, faults=1, each=True),
    "ordered, changed from outside": _of(10_000, "ordered", *OUTSIDE, deaths=frozenset(), slots=2, faults=1),
    "ordered, filled before": _of(
        16_000, "ordered", "input changes", deaths=frozenset({"death"}), slots=2, faults=1, filled=True
    ),
}

LARGE = {
    "slice": _of(100_000, "slice", *INPUTS, *LEDGERS, "lease runs out", slots=1, leases=True, faults=3),
    "slice, two slots": _of(50_000, "slice", "input changes", slots=2),
    "slice, linked": _of(140_000, "slice", "tidy", "input changes", store="links", slots=2),
    "slice, in a transaction": _of(80_000, "slice", "input changes", store="transacts", slots=2),
    "slice, given away": _of(150_000, "slice", "release", "ledger lost", slots=2),
    "slice, changed from outside": _of(50_000, "slice", *OUTSIDE, "accept", "input changes", *LEDGERS, faults=3),
    "append": _of(20_000, "append", "input changes", *LEDGERS, "stranger writes", faults=3),
    "behind a view": _of(20_000, "period", *INPUTS, "ledger lost", faults=3),
    "ordered": _of(70_000, "ordered", "input changes", slots=2),
    "ordered, shown slot by slot": _of(100_000, "ordered", "input changes", slots=2, each=True),
    "ordered, three shown slot by slot": _of(
        50_000, "ordered", "input changes", slots=3, attempts=(3, 1), faults=1, each=True
    ),
    "ordered, changed from outside": _of(100_000, "ordered", *OUTSIDE, slots=2),
}
