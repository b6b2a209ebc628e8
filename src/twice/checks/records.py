"""Do the ledger and the store tell the same?

What is published is decided by the store. A ledger that knows less is behind and catches up by
itself. One that knows more than the store means that the table was dropped, replaced or brought back
from a backup. Attempts of which no end is known are told apart from those that are at work.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import datetime

from twice.checks.seen import Seen, are, named
from twice.findings import Finding
from twice.ledger import AttemptRecord
from twice.ledger.records import OPEN, process_start
from twice.runs import Receipt

_REBUILD = "To believe the store: twice ledger rebuild"
_LEAST_PATIENCE_SECONDS = 60.0


def owner(seen: Seen) -> Iterator[Finding]:
    """Report a target that another ledger owns, or none."""
    found = seen.sight.owner
    if found == "released":
        yield seen.notice(
            "owner",
            f"{seen.target} was released: no ledger owns it, and its pipeline is refused.",
            f"Take it over again: twice adopt {seen.target}",
            owner=found,
        )
    elif not seen.is_owned and not found.startswith("frozen:"):
        yield seen.wrong(
            "owner",
            f"{seen.target} belongs to another ledger ({found[:8]}; this one is {seen.ledger.id[:8]}): {_why_another(seen)}.",
            f"After a loss: twice ledger rebuild. To take it from another project: twice adopt {seen.target}",
            owner=found,
        )


def _why_another(seen: Seen) -> str:
    """Say why a target has another owner, as far as this ledger knows."""
    if seen.known:
        return "another project has taken it over"
    if seen.ledger.receipts:
        return "this project never published to it"
    return "this ledger knows of no publish at all: it is new, or the one before it was lost"


def ahead(seen: Seen) -> list[Receipt]:
    """Return what the ledger knows and the store does not have."""
    return [receipt for receipt in seen.known if receipt.generation > seen.sight.fence(receipt.slot)]


def disagreements(seen: Seen, dropped: frozenset[str]) -> Iterator[Finding]:
    """Report receipts that only one of the two has; slots of dropped tables are told elsewhere."""
    lost = sorted(receipt.slot for receipt in ahead(seen) if receipt.slot not in dropped)
    if lost:
        yield seen.wrong(
            "ledger",
            f"The ledger knows of publishes that {seen.target} does not have, of {named(lost)}."
            " The table was dropped, replaced or brought back from a backup.",
            f"To publish from the inputs again: {seen.run(lost[0], '--force')}. {_REBUILD}",
            slots=lost,
            side="store",
        )
    if not seen.is_owned or seen.is_at_work:
        return
    known = {receipt.slot: receipt for receipt in seen.known}
    others = sorted(slot for slot, found in seen.sight.receipts.items() if _contradicts(known.get(slot), found))
    if others:
        yield seen.wrong(
            "ledger",
            f"{are(others, 'slot was', 'slots were')} published by another attempt than the ledger says: {named(others)}."
            " An old copy of the ledger or of the table was put back.",
            _REBUILD,
            slots=others,
            side="both",
        )
    proven = {slot: found for slot, found in seen.sight.receipts.items() if seen.sight.proof(slot)}
    behind = sorted(slot for slot, found in proven.items() if _lags(known.get(slot), found))
    if behind:
        yield seen.notice(
            "ledger",
            f"The ledger has not noted {are(behind, 'publish', 'publishes')} of {seen.target}: {named(behind)}."
            " A run was killed after it had published, or an old copy of the ledger was put back.",
            f"Nothing is lost, and the next run of each notes it: {seen.run(behind[0])}. {_REBUILD}",
            slots=behind,
            side="ledger",
        )


def _contradicts(known: Receipt | None, found: Receipt) -> bool:
    if known is None or known.generation != found.generation or not (known.attempt and found.attempt):
        return False
    return known.attempt != found.attempt


def _lags(known: Receipt | None, found: Receipt) -> bool:
    return known is None or known.generation < found.generation


def open_attempts(seen: Seen) -> Iterator[Finding]:
    """Report attempts that nobody works on and of which no end is known, the newest of each slot.

    One whose slot was published since is of no interest any more.
    """
    host = socket.gethostname()
    mine = [record for record in seen.ledger.open.get(seen.pipeline.identity, ()) if record.target == seen.target]
    newest = {record.slot: record for record in sorted(mine, key=lambda record: record.started_at)}
    for _, record in sorted(newest.items()):
        if record.attempt in seen.ledger.live or _is_settled(seen, record):
            continue
        if record.state != OPEN or _is_dead(record, seen, host):
            yield _open_attempt(seen, record)


def _is_settled(seen: Seen, record: AttemptRecord) -> bool:
    """Tell whether the slot was published after this attempt had begun, or shows the same inputs all the same."""
    receipt = seen.sight.proof(record.slot)
    if receipt is None or receipt.attempt == record.attempt:
        return False
    is_same = bool(record.fingerprint) and record.fingerprint == receipt.fingerprint
    return is_same or receipt.published_at[:19] >= record.started_at[:19]


def _is_dead(record: AttemptRecord, seen: Seen, host: str) -> bool:
    if record.host == host and not process_start(record.pid):
        return True
    age = (seen.now - datetime.fromisoformat(record.started_at)).total_seconds()
    return age > max(seen.ledger.patience, _LEAST_PATIENCE_SECONDS)


def _open_attempt(seen: Seen, record: AttemptRecord) -> Finding:
    receipt = seen.sight.receipt(record.slot)
    landed = bool(receipt and receipt.attempt == record.attempt)
    began = f"Attempt {record.attempt} on {named([record.slot])} began at {record.started_at[:19]}"
    ended = "nobody works on it any more" if record.state == OPEN else "ended without knowing its outcome"
    outcome = "Its rows are published." if landed else "The store does not have its receipt."
    return seen.notice(
        "attempts",
        f"{began} and {ended}. {outcome}",
        f"The next run notes it: {seen.run(record.slot)}" if landed else f"Run it again: {seen.run(record.slot)}",
        attempt=record.attempt,
        slot=record.slot,
        state=record.state,
        host=record.host,
        pid=record.pid,
        published=landed,
    )
