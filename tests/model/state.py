"""What is there, in a world small enough to try everything?

Records are tuples, so that a whole world is one value that can be met again. Slots are numbered in the
order of their times. A row stands for all rows of its slot.
"""

from dataclasses import dataclass
from typing import NamedTuple

STRANGER = -1  # the slot of rows that no publish wrote
MISSING = -1  # the value of rows whose files were removed
RELEASED = -1  # the owner of a table that was given back
NOBODY = 0


@dataclass(frozen=True)
class Bounds:
    """How large a world is, and what may happen in it.

    `pattern` is slice, append, ordered or period (a table behind a view). `store` is how it publishes: it
    assigns at once, links a whole list to the next number, or transacts and notices rivals at its commit.
    """

    pattern: str
    store: str = "assigns"
    slots: int = 1
    attempts: tuple[int, ...] = (2, 1)
    faults: int = 2
    happenings: frozenset[str] = frozenset({"death", "lost reply"})
    leases: bool = False
    each: bool = False
    filled: bool = False

    @property
    def in_order(self) -> bool:
        return self.pattern == "ordered"


class Row(NamedTuple):
    slot: int
    value: int
    generation: int


class Receipt(NamedTuple):
    generation: int
    attempt: int
    value: int
    version: int
    pending: tuple[int, ...] = ()
    code: int = 1


class Kept(NamedTuple):
    """An older version. `holds` is the generation of each slot in it; `strange` counts changes from outside."""

    rows: tuple[Row, ...]
    holds: tuple[int, ...]
    strange: int


class Table(NamedTuple):
    """What the store says.

    `strange` counts the changes from outside that are in the rows, `outside` is the version of the newest change that ended
    a proof. `named` tells whether readers reach the table: a view may not name it yet. `forgot` is the newest version that
    may have named swept attempts whose names are not kept any more.
    """

    rows: tuple[Row, ...]
    receipts: tuple[Receipt | None, ...]
    ended: tuple[bool, ...]
    holds: tuple[int, ...]
    owner: int = NOBODY
    version: int = 0
    strange: int = 0
    outside: int = 0
    swept: tuple[int, ...] = ()
    forgot: int = 0
    named: bool = True
    past: tuple[Kept, ...] = ()

    def fence(self, slot: int) -> int:
        found = self.receipts[slot]
        return found.generation if found else 0

    def gone(self, slot: int) -> bool:
        return self.ended[slot] and not self.holds[slot]

    @property
    def pending(self) -> tuple[int, ...]:
        proven = [one for one, ended in zip(self.receipts, self.ended, strict=True) if one and not ended]
        return max(proven, key=lambda one: one.version).pending if proven else ()


class Ledger(NamedTuple):
    """What the ledger believes: the generation of each slot, who holds each lease, and which change a person accepted."""

    id: int
    published: tuple[int, ...]
    leases: tuple[int, ...]
    ran_out: tuple[int, ...] = ()
    accepted: int = 0


class Input(NamedTuple):
    """What a slot reads. The token changes with every change, also with one that brings the old value back."""

    value: int = 1
    token: int = 0


class Part(NamedTuple):
    slot: int
    generation: int
    value: int
    token: int


class Plan(NamedTuple):
    """What is to be published. `start` are the rows that it builds on, or None for what is there at the publish."""

    parts: tuple[Part, ...]
    version: int
    strange: int
    start: Kept | None = None
    pending: tuple[int, ...] = ()
    draft: bool = False


class Runner(NamedTuple):
    """One process. `began` is the version of the first plan of its attempt."""

    at: str
    left: int
    attempt: int = 0
    ledger: int = 0
    slot: int = 0
    asked: str = ""
    code: int = 1
    seen: Table | None = None
    plan: Plan | None = None
    rows: tuple[Row, ...] = ()
    reply: str = ""
    began: int | None = None
    again: bool = False
    took_over: bool = False


class Request(NamedTuple):
    """Something sent to the store, which may arrive although its sender is dead. `base` is what it was computed from."""

    kind: str
    attempt: int
    owner: int
    plan: Plan | None = None
    rows: tuple[Row, ...] = ()
    base: Table | None = None
    phase: int = 0
    leased: bool = False
    took_over: bool = False
    forced: bool = False
    code: int = 1
    target: int = 0
    began: int | None = None


class World(NamedTuple):
    table: Table
    ledger: Ledger
    inputs: tuple[Input, ...]
    runners: tuple[Runner, ...]
    requests: tuple[Request, ...]
    faults: int
    happened: tuple[str, ...] = ()
    code: int = 1
    removed: tuple[int, ...] = ()  # attempts whose staged files are gone


def new_world(bounds: Bounds) -> World:
    nothing = (0,) * bounds.slots
    rows = (Row(STRANGER, 0, 0),) if bounds.filled else ()
    table = Table(rows, (None,) * bounds.slots, (False,) * bounds.slots, nothing, named=bounds.pattern != "period")
    runners = tuple(Runner("idle", left) for left in bounds.attempts)
    return World(table, Ledger(1, nothing, nothing), (Input(),) * bounds.slots, runners, (), bounds.faults)


def put(items: tuple, place: int, item: object) -> tuple:
    return (*items[:place], item, *items[place + 1 :])


def rows_of(table: Table, slot: int) -> tuple[Row, ...]:
    return tuple(row for row in table.rows if row.slot == slot) if table.named else ()
