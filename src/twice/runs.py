"""Who writes, for when, and what proves it?

A *slot* says where a run writes: pipeline, target and interval (or batch key). A *receipt* says
what was published there. Both are plain records; their text forms carry no path of a machine.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo

from twice.calls import HttpEffect, written
from twice.errors import Misuse
from twice.intervals import Interval, local_text, zone_named

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)(.*)", re.DOTALL)
_ATTEMPT = re.compile(r"[0-9a-f]{8}-\d+-[0-9a-f]{8}")
_SAFE_IN_SLOT = "/._-"
_MISREAD = frozenset('\\`"*?{}[]') | {chr(code) for code in range(32)}
_PART_BYTES = 200
_SLOTS_REMEMBERED = 100_000
# By pipeline and target, the zone of the calendar. Only what is shown depends on it.
_zones: dict[tuple[str, Target], ZoneInfo] = {}


def check_name(what: str, name: str) -> str:
    """Return a name that is safe in slots, file names and messages, or refuse it."""
    if not _NAME.fullmatch(name):
        raise Misuse(
            f"{name!r} cannot name a {what}.",
            fix="Use a letter, then letters, digits, '_' or '-', a hundred at most.",
        )
    return name


def check_path(what: str, path: str) -> str:
    """Return a path of a mounted disk; refuse an address, which would be taken for a folder without files.

    Raises:
        Misuse: It begins with a scheme, such as `s3://` or `file:`.
    """
    found = _SCHEME.match(path)
    if not found:
        return path
    scheme, rest = found.groups()
    local = scheme.lower() == "file:" and rest.startswith("/")
    raise Misuse(
        f"{what} {path!r} is an address ({scheme}) and not a path.",
        "Only paths of mounted disks are supported yet; an address would be taken for a folder of this name.",
        f"Write the path itself: {'/' + rest.lstrip('/')!r}."
        if local
        else "Mount the place, or copy the files, and write the path.",
    )


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """Where rows go: a store and a name in it, written `store:name`.

    A name with `/` is a path under the store's root; without it, a name in the catalog.
    """

    store: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `store:name`.

        >>> Target.parse("delta:lake/visits")
        Target(store='delta', name='lake/visits')
        """
        store, colon, name = text.partition(":")
        if not colon or not name:
            raise Misuse(f"{text!r} is not a target.", fix="Write <store>:<name>, for example 'delta:lake/visits'.")
        if name.startswith("//"):
            check_path("The target", text)
        check_name("store", store)
        if ":/" in name:  # a colon in a name of a table is none of a scheme
            check_path(f"The table of the target {text!r},", name)
        _check_table_name(text, name)
        return cls(store, name)

    @property
    def is_path(self) -> bool:
        """Tell a path under the store's root from a name in a catalog."""
        return "/" in self.name

    @property
    def text(self) -> str:
        """The target as written by its user."""
        return f"{self.store}:{self.name}"


def _check_table_name(text: str, name: str) -> None:
    parts = name.split("/")
    if name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise Misuse(
            f"The target {text!r} leaves the root of its store.",
            fix="Use a relative path without '..'; a [stores.X] with a root of its own reaches other places.",
        )
    if any(len(part.encode()) > _PART_BYTES for part in parts) or _MISREAD & set(name):
        raise Misuse(
            f"The target {text!r} holds a character or a length that some store or tool would misread.",
            fix="Leave out control characters, quotes, wildcards and brackets; 200 bytes a part at most.",
        )


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a run writes: the idempotency key.

    `part` is an interval, or a batch key, or empty for a pipeline with one slot.
    """

    pipeline: str
    target: Target
    part: Interval | str

    @property
    def text(self) -> str:
        """`v1:<pipeline>:<store>:<name>:<start>/<end>`, the same on every machine."""
        return f"v1:{self.pipeline}:{self.target.store}:{quote(self.target.name, safe=_SAFE_IN_SLOT)}:{self.part_text}"

    @property
    def part_text(self) -> str:
        """The interval or the key, as it stands in the text."""
        return self.part.text if isinstance(self.part, Interval) else "key=" + quote(self.part, safe="")

    @classmethod
    def parse(cls, text: str) -> Slot:
        """Read a slot back from its text."""
        return _parsed(text)

    @property
    def interval(self) -> Interval | None:
        """The interval, for a slot that has one."""
        return self.part if isinstance(self.part, Interval) else None

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which people see the slot: that of the calendar, as far as one was declared in this process."""
        return _zones.get((self.pipeline, self.target)) or zone_named("UTC")

    @property
    def label(self) -> str:
        """What people call the slot: its start, as the clocks of its zone show it, or its key."""
        if isinstance(self.part, Interval):
            return local_text(self.part.start, self.zone)
        return self.part or "(the only slot)"

    @property
    def shown(self) -> str:
        """The interval, as the clocks of its zone show it, or the key."""
        return self.part.shown_in(self.zone) if isinstance(self.part, Interval) else self.part_text


@lru_cache(_SLOTS_REMEMBERED)
def _parsed(text: str) -> Slot:
    """Read a slot; a walk over many of them reads each in every look at their table."""
    version, *rest = text.split(":", 4)
    if re.fullmatch(r"v[2-9]\d*", version) and rest:
        raise Misuse(f"The slot {text!r} was written by a newer Twice.", fix="Upgrade Twice here.")
    if version != "v1" or len(rest) != 4:  # noqa: PLR2004 - pipeline, store, name, part
        raise Misuse(f"{text!r} is not a slot.", fix="A slot reads v1:<pipeline>:<store>:<name>:<start>/<end>.")
    pipeline, store, name, part = rest
    start, slash, end = part.partition("/")
    if slash and not part.startswith("key="):
        return Slot(pipeline, Target(store, unquote(name)), Interval.of(start, end))
    return Slot(pipeline, Target(store, unquote(name)), unquote(part.removeprefix("key=")))


def show_slots_in(pipeline: str, target: Target, zone: ZoneInfo) -> None:
    """Let slots be shown by the clocks of a zone. Their text, their order and their equality stay in UTC."""
    _zones[pipeline, target] = zone


@dataclass(frozen=True, slots=True)
class Effect:
    """A call in an outside system that belongs to one edition of a slot.

    `key` follows from slot, generation and name, so it is the same in every attempt. The `form` is `direct`, made by the
    run itself, or `outbox`, delivered later. In a receipt the call itself is kept for the outbox alone.
    """

    key: str
    name: str
    generation: int
    form: str
    call: str = ""

    @classmethod
    def of(cls, slot: Slot, generation: int, name: str, form: str, call: str) -> Effect:
        """Name the effect of an edition."""
        return cls(digest(f"{slot.text} {generation} {name}"), name, generation, form, call)


@dataclass(frozen=True, slots=True)
class Aside:
    """Rows that were set aside while an edition of a slot was made, and where they are kept beside the table."""

    label: str
    rows: int
    generation: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was published in a slot, carried inside the store's own commit.

    `partitions` are those that the slot fills, `once` those that older generations filled: a restore
    may bring their rows back. `lineage` is the column that carries the slot in its rows, if one does.
    `pending` are later slots of a replay that is shown slot by slot, and that has not reached them yet.
    `history` names the slot's change rows, where these are kept, and `adopted` the rows that the table held before its first
    slot. `effects` are the calls that belong to it, and older ones
    that were still owed. `marks` names what is kept beside the table about the files that it took in. `parsed` rows came out
    of its files, of which `aside` tells those that were set aside. `absent` names the sources that had nothing; it is None where
    an older Twice wrote the receipt. `first_version` is the version of the table in which this receipt was first written. It is None until
    the store has said so, and a receipt that is carried forward keeps it.
    """

    slot: str
    generation: int
    attempt: str
    fingerprint: str
    code: str
    owner: str
    rows: int = 0
    partitions: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    lineage: str = ""
    pending: tuple[str, ...] = ()
    history: str = ""
    adopted: str = ""
    effects: tuple[Effect, ...] = ()
    marks: str = ""
    parsed: int | None = None
    aside: tuple[Aside, ...] = ()
    absent: tuple[str, ...] | None = None
    published_at: str = ""
    first_version: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The receipt as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Receipt:
        """Read a receipt, ignoring fields that a later Twice may have added."""
        known = {one.name for one in fields(cls)}
        kept = {name: value for name, value in values.items() if name in known}
        kept["partitions"] = tuple(kept.get("partitions", ()))
        kept["once"] = tuple(kept.get("once", ()))
        kept["pending"] = tuple(kept.get("pending", ()))
        kept["absent"] = None if kept.get("absent") is None else tuple(kept["absent"])
        kept["effects"] = tuple(Effect(**effect) for effect in kept.get("effects", ()))
        kept["aside"] = tuple(Aside(**aside) for aside in kept.get("aside", ()))
        return cls(**kept)

    def first_seen_in(self, version: int) -> Receipt:
        """Note the version of the commit that carried the receipt, unless it is known already."""
        return self if self.first_version is not None else replace(self, first_version=version)


def filled_by_another(
    partitions: Iterable[str], receipts: Mapping[str, Receipt], own: Iterable[str]
) -> tuple[str, str] | None:
    """Return a partition that another slot fills, and that slot, if there is one."""
    asked, ours = set(partitions), set(own)
    shared = [(part, slot) for slot in receipts.keys() - ours for part in asked.intersection(receipts[slot].partitions)]
    return min(shared, default=None)


class _OfSlot:
    """What follows from a slot alone."""

    __slots__ = ()
    slot: Slot

    @property
    def interval(self) -> Interval:
        """The run's interval."""
        if not isinstance(self.slot.part, Interval):
            raise Misuse(f"The pipeline {self.slot.pipeline!r} has no calendar, so its runs have no interval.")
        return self.slot.part

    @property
    def execution_time(self) -> datetime:
        """The logical time of the run: the start of its interval, UTC, never the wall clock."""
        return self.interval.start

    @property
    def key(self) -> str:
        """The batch key, for a slot that has one."""
        return self.slot.part if isinstance(self.slot.part, str) else ""


@dataclass(frozen=True, slots=True)
class Run(_OfSlot):
    """What a transform may know about the run it works for.

    `parameters` are those that the pipeline declares; a run that is tried again has those of its first try.
    """

    slot: Slot
    generation: int
    attempt: str
    zone: str = "UTC"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    effects: dict[str, Effect] = field(default_factory=dict, compare=False, repr=False)
    steps: Any = field(default=None, compare=False, repr=False)

    def effect(
        self, name: str, *, call: HttpEffect | Callable[..., Any], outbox: bool = False, **arguments: Any
    ) -> None:
        """Register a call in an outside system, made once the rows are published and never if they are not.

        A function is called with `key=` and the arguments. From the outbox, the effect is part of the table's own
        commit and is delivered by `twice effects deliver`.

        Raises:
            Misuse: The name is taken, or the call cannot be written down.
        """
        check_name("effect", name)
        if name in self.effects:
            raise Misuse(f"Two effects of a run are called {name!r}.", fix="Give each a name of its own.")
        form = "outbox" if outbox else "direct"
        self.effects[name] = Effect.of(self.slot, self.generation, name, form, written(call, arguments))


@dataclass(frozen=True, slots=True)
class Reading(_OfSlot):
    """What a source may know about the run that reads it: nothing that differs from one attempt to the next."""

    slot: Slot
    zone: str = "UTC"


def new_attempt(ledger_id: str, counter: int) -> str:
    """Name one start of work on a slot. It names staging; it never decides what is visible."""
    return f"{ledger_id[:8]}-{counter}-{secrets.token_hex(4)}"


def new_try(attempt: str) -> str:
    """Name one try of an attempt. It begins as the attempt does, and no other try has it."""
    return f"{_beginning(attempt)}-{secrets.token_hex(4)}"


def is_of(name: str, attempts: Iterable[str]) -> bool:
    """Tell whether a name is that of one of some attempts, or of a try of it."""
    return _beginning(name) in map(_beginning, attempts)


def _beginning(name: str) -> str:
    return name.rpartition("-")[0]


def is_attempt(name: str) -> bool:
    """Tell whether a folder was named by `new_attempt`, and is therefore ours to remove."""
    return bool(_ATTEMPT.fullmatch(name))


def digest(text: str) -> str:
    """Short stable digest of a text, for names and comparisons."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
