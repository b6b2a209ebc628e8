"""In which way did a rerun not end in the table of one clean run?

Troubles are told apart by what they did to the data, because that decides where to look for the
cause: rows that doubled point at an append, a torn slot at a write that was not atomic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SURVIVED = "survived"
DOUBLED = "rows doubled"
LOST = "rows lost"
TORN = "rows torn"
BYSTANDER = "bystander touched"
EFFECT = "side effect repeated"
RECEIPT = "receipt missing"
LEDGER = "ledger wrong"
LIED = "exit code lied"
LITTER = "litter left"
STUCK = "rerun failed"
NOT_DETERMINISTIC = "not deterministic"
NOT_PROVABLE = "not provable"

_SHOWN = 3
_LONGEST_SHOWN = 160


@dataclass(frozen=True)
class Trouble:
    """What is wrong, in one of the words above and in a sentence."""

    kind: str
    text: str


@dataclass(frozen=True)
class Snapshot:
    """What is compared: rows as a multiset, receipts by slot, what the ledger believes, and what stands beside."""

    rows: tuple[str, ...]
    receipts: Mapping[str, tuple[int, str]]
    ledger: Mapping[str, tuple[int, str]]
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def difference(found: Snapshot, expected: Snapshot, before: Snapshot | None = None) -> Trouble | None:
    """Say how a snapshot differs from the one of a clean run, or nothing.

    `before` is what there was before the run: rows of other slots are told by it.
    """
    return (
        rows_differ(found.rows, expected.rows, before.rows if before else ())
        or _beside_differs(found.beside, expected.beside)
        or _receipts_differ(found.receipts, expected.receipts)
        or _ledger_differs(found.ledger, expected.ledger)
    )


def rows_differ(found: Iterable[str], expected: Iterable[str], before: Iterable[str] = ()) -> Trouble | None:
    """Say how two multisets of rows differ, or nothing."""
    here, there, others = Counter(found), Counter(expected), Counter(before)
    extra, lost = here - there, there - here
    if not extra and not lost:
        return None
    text = f"{here.total()} rows instead of {there.total()}; extra {_some(extra)}, lost {_some(lost)}"
    return Trouble(_kind_of_rows(extra, lost, there, others), text)


def _kind_of_rows(extra: Counter[str], lost: Counter[str], expected: Counter[str], others: Counter[str]) -> str:
    moved = extra | lost
    if others and all(row in others and row in expected for row in moved):
        return BYSTANDER
    if not lost and all(row in expected for row in extra):
        return DOUBLED
    return TORN if extra else LOST


def _beside_differs(found: Mapping[str, tuple[str, ...]], expected: Mapping[str, tuple[str, ...]]) -> Trouble | None:
    """Compare what was written outside the target."""
    for name in sorted({*found, *expected}):
        trouble = rows_differ(found.get(name, ()), expected.get(name, ()))
        if trouble:
            kind = EFFECT if trouble.kind in (DOUBLED, TORN) else trouble.kind
            return Trouble(kind, f"outside the target, in {name}: {trouble.text}")
    return None


def _receipts_differ(found: Mapping[str, tuple[int, str]], expected: Mapping[str, tuple[int, str]]) -> Trouble | None:
    if found == expected:
        return None
    return Trouble(RECEIPT, f"the receipts differ: {_plain(found)} instead of {_plain(expected)}")


def _ledger_differs(found: Mapping[str, tuple[int, str]], expected: Mapping[str, tuple[int, str]]) -> Trouble | None:
    if found == expected:
        return None
    return Trouble(LEDGER, f"the ledger differs: {_plain(found)} instead of {_plain(expected)}")


def _plain(receipts: Mapping[str, tuple[int, str]]) -> str:
    told = (f"{slot} generation {generation}" for slot, (generation, _) in sorted(receipts.items()))
    return ", ".join(told) or "none"


def _some(rows: Counter[str]) -> str:
    shown = [row if len(row) <= _LONGEST_SHOWN else row[: _LONGEST_SHOWN - 1] + "…" for row in sorted(rows)[:_SHOWN]]
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return f"{', '.join(shown) or 'none'}{more}"
