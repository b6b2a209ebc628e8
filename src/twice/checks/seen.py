"""What has a check to know about one pipeline?

Each target is looked at once. All checks are then functions of what was seen, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from twice.findings import NOTICE, WRONG, Finding
from twice.ledger import AttemptRecord
from twice.plans import accepted_as
from twice.runs import Receipt, Slot
from twice.sight import Sight

if TYPE_CHECKING:
    from twice.pipelines import Pipeline
    from twice.project import Project

_NAMED_AT_MOST = 5
_ALL = 1_000_000


@dataclass(frozen=True)
class Ledger:
    """What the ledger says about all pipelines.

    Attributes:
        id: Its own id, which the targets that it owns bear.
        receipts: What it believes to be published, by target.
        open: Attempts that began and of which no end is known, by pipeline.
        live: Attempts that hold a lease now.
        patience: Seconds after which an attempt without a lease is not at work any more.
    """

    id: str
    receipts: Mapping[str, Sequence[Receipt]]
    open: Mapping[str, Sequence[AttemptRecord]]
    live: frozenset[str]
    patience: float


@dataclass(frozen=True)
class Seen:
    """One pipeline with one look at its target.

    Attributes:
        pipeline: What is declared.
        sight: What the store says.
        ledger: What the ledger says.
        accepted: Slots whose rows somebody accepted as they are since the newest change from outside.
        now: The moment of the look.
    """

    pipeline: Pipeline
    sight: Sight
    ledger: Ledger
    accepted: frozenset[str]
    now: datetime

    @property
    def target(self) -> str:
        """The target as its user writes it."""
        return self.pipeline.target.text

    @property
    def known(self) -> Sequence[Receipt]:
        """What the ledger believes to be published to the target."""
        return self.ledger.receipts.get(self.target, ())

    @property
    def published(self) -> dict[Slot, Receipt]:
        """The pipeline's slots whose rows are vouched for."""
        receipts = {Slot.parse(text): one for text, one in self.sight.receipts.items() if self.sight.proof(text)}
        return {slot: one for slot, one in receipts.items() if slot.pipeline == self.pipeline.identity}

    @property
    def is_owned(self) -> bool:
        """Tell whether the target is this ledger's, or nobody's yet."""
        return self.sight.owner in ("", self.ledger.id)

    @property
    def is_at_work(self) -> bool:
        """Tell whether somebody works on the pipeline now, so that its records may be in between."""
        return any(record.attempt in self.ledger.live for record in self.ledger.open.get(self.pipeline.identity, ()))

    def wrong(self, check: str, what: str, remedy: str, **details: Any) -> Finding:
        """Return a finding about something that is not as it should be."""
        return Finding(check, WRONG, self.pipeline.name, self.target, what, remedy, details)

    def notice(self, check: str, what: str, remedy: str, **details: Any) -> Finding:
        """Return a finding about something that is worth knowing."""
        return Finding(check, NOTICE, self.pipeline.name, self.target, what, remedy, details)

    def run(self, slot: str, *options: str) -> str:
        """Return the command that runs a slot."""
        parsed = Slot.parse(slot)
        words = ["twice run", self.pipeline.name]
        if parsed.interval:
            words.append(f"--at {parsed.label}")
        elif parsed.part:
            words.append(f"--key {parsed.part}")
        return " ".join([*words, *options])


def ledger_of(project: Project) -> Ledger:
    """Read all that the checks ask of the ledger, once."""
    ledger = project.ledger
    receipts: dict[str, list[Receipt]] = {}
    for receipt, _ in ledger.published():
        receipts.setdefault(Slot.parse(receipt.slot).target.text, []).append(receipt)
    attempts: dict[str, list[AttemptRecord]] = {}
    for state in ("started", "unknown"):
        for record in ledger.attempts(state=state, limit=_ALL):
            attempts.setdefault(record.pipeline, []).append(record)
    return Ledger(ledger.id, receipts, attempts, ledger.live_attempts(), ledger.lease_seconds)


def seen_by(project: Project, pipeline: Pipeline, ledger: Ledger, now: datetime) -> Seen:
    """Look at a pipeline's target."""
    sight = project.store(pipeline.target.store).look(pipeline.target.name)

    def is_accepted(slot: str) -> bool:
        accepted = project.ledger.accepted(accepted_as(pipeline.pattern, Slot.parse(slot)))
        return bool(accepted) and accepted == sight.outside

    return Seen(pipeline, sight, ledger, frozenset(filter(is_accepted, sight.ended)), now)


def named(slots: Iterable[str]) -> str:
    """Name slots by their labels, in order, and of many the first ones."""
    labels = [slot.label for slot in sorted(map(Slot.parse, slots), key=lambda slot: slot.part_text)]
    more = f" and {len(labels) - _NAMED_AT_MOST} more" if labels[_NAMED_AT_MOST:] else ""
    return ", ".join(labels[:_NAMED_AT_MOST]) + more


def are(slots: Sequence[Any], one: str, many: str) -> str:
    """Return `1 slot is` or `3 slots are`, with words of the caller's."""
    return f"{len(slots)} {one if len(slots) == 1 else many}"
