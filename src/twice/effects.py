"""How are calls in outside systems made, and made again only where that is promised?

After the publish, each with a key that is the same in every attempt. What is promised: a call is made only if its rows are
published; it is made at least once as long as the ledger lives; and once it is confirmed it is never made again. Between the
call and the confirmation a death makes it be called once more, with the same key: once only if the service honours the key.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from twice.errors import Busy, EffectOwed, Misuse, NotPublished
from twice.explain import explain
from twice.faults import reach
from twice.ledger import Ledger
from twice.ledger import effects as records
from twice.ledger.effects import CONFIRMED, OWED, REFUSED, UNKNOWN, EffectRecord
from twice.runs import Effect, Receipt, Slot
from twice.tries import at_once

_MOST_BYTES = 16_384
_TRIES, _FIRST_WAIT, _LONGEST_WAIT = 3, 0.2, 5.0
_ANSWER_KEPT = 500
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_RETRIED_STATUS = frozenset({408, 409, 425, 429})
_SERVER_ERROR, _REDIRECT = 500, 300


class Refused(Exception):
    """The service will not do it, however often it is asked."""


@dataclass(frozen=True)
class Outside:
    """How this project calls outside systems.

    `load` reads the files of pipelines in full, so that their functions can be found. Where nothing is `performed`, as in
    a proof, a call is confirmed without being made.
    """

    load: Callable[[], Any] = lambda: None
    performed: bool = True


def owed_by(receipt: Receipt | None, ledger: Ledger) -> tuple[Effect, ...]:
    """Return the effects of an older edition that the next one has to carry on."""
    if receipt is None or not receipt.effects:
        return ()
    done = records.settled(ledger, receipt.effects)
    return tuple(effect for effect in receipt.effects if effect.key not in done)


def for_receipt(slot: Slot, own: Sequence[Effect], older: Sequence[Effect]) -> tuple[Effect, ...]:
    """Return what a receipt says of effects: the calls of the outbox, the names of the others.

    Raises:
        NotPublished: They would make the commit too large.
    """
    kept = tuple(effect if effect.form == "outbox" else replace(effect, call="") for effect in (*older, *own))
    size = sum(len(effect.call.encode()) + len(effect.name) + len(effect.key) for effect in kept)
    if size > _MOST_BYTES:
        raise NotPublished(
            f"The effects of {slot.label} take {size:,} bytes of the commit; {_MOST_BYTES:,} are allowed.",
            f"{len(older)} of {len(kept)} belong to older editions and were never delivered. Nothing was published.",
            "Deliver what is owed with: twice effects deliver",
        )
    return kept


def complete(outside: Outside, ledger: Ledger, receipts: Sequence[Receipt]) -> tuple[str, ...]:
    """Make the calls that published editions still owe, and return what people should know.

    Raises:
        EffectOwed: A call got no answer, or was refused. The rows are published all the same.
    """
    notes: list[str] = []
    for receipt in receipts:
        if receipt.effects:
            try:
                notes += _complete(outside, ledger, receipt)
            except NotPublished as error:  # what the ledger says of itself; the rows are published
                raise EffectOwed(
                    f"The effects of {Slot.parse(receipt.slot).label} may be owed: {error.what}",
                    "Its rows are published. A call carries the same key whenever it is made again.",
                    "Run again when the ledger answers, or: twice effects deliver",
                ) from error
    return tuple(notes)


def _complete(outside: Outside, ledger: Ledger, receipt: Receipt) -> list[str]:
    notes: list[str] = []
    records.published(ledger, receipt)
    reach("effects.counted")
    for row in records.of_slot(ledger, receipt.slot):
        notes += _told(row)
        if row.published and row.form == "direct" and row.state in OWED:
            deliver(outside, ledger, row)
    return notes


def _told(row: EffectRecord) -> tuple[str, ...]:
    if row.state == UNKNOWN:
        return (
            f"whether the effect {row.label} was called is unknown, since a ledger was lost; see twice effects list",
        )
    if row.state == REFUSED:
        return (f"the effect {row.label} was refused: {row.answer}; see twice effects list",)
    if row.form == "outbox" and row.state in OWED and row.published:
        return (f"the effect {row.label} is in the outbox; twice effects deliver calls it",)
    return ()


def deliver(outside: Outside, ledger: Ledger, row: EffectRecord) -> bool:
    """Make one call, with its key, and record the answer; False if somebody else is at it or it is settled.

    Raises:
        EffectOwed: It got no answer, or was refused.
    """
    try:
        with ledger.lease(f"effect {row.effect_key}", f"effect-{secrets.token_hex(6)}"):
            if not records.call_begins(ledger, row):
                return False
            reach("effect.before")
            state, answer = _answer(outside, row)
            reach("effect.answered")
            records.ended(ledger, row, state, answer)
            reach("effect.confirmed")
    except Busy:
        return False
    if state != CONFIRMED:
        raise EffectOwed(
            f"The effect {row.label} {'was refused' if state == REFUSED else 'got no answer that counts'}: {answer}",
            "Its rows are published. The call carries the same key whenever it is made again.",
            f"twice effects deliver {row.effect_key[:12]}"
            if state == REFUSED
            else "Run again, or: twice effects deliver",
        )
    return True


def _answer(outside: Outside, row: EffectRecord) -> tuple[str, str]:
    """Return the state that a call leaves its effect in, and what was answered."""
    if not outside.performed:
        return CONFIRMED, "recorded, and not called"
    try:
        return CONFIRMED, _called(outside, json.loads(row.call), row.effect_key)[:_ANSWER_KEPT]
    except (Refused, Misuse) as refused:
        return REFUSED, explain(refused)
    except Exception as error:  # noqa: BLE001 - whatever broke, the call may have been made: it stays owed
        return records.CALLING, explain(error)


def _called(outside: Outside, call: dict[str, Any], key: str) -> str:
    act = _request(call["http"], key) if "http" in call else _function(outside, call, key)
    for one_try in at_once(_is_passing, _TRIES, _FIRST_WAIT, _LONGEST_WAIT):
        with one_try:
            return act()
    raise AssertionError("a call is answered, or raises")


def _is_passing(error: Exception) -> bool:
    return isinstance(error, Exception) and not isinstance(error, Refused | Misuse)


def _function(outside: Outside, call: dict[str, Any], key: str) -> Callable[[], str]:
    module, _, name = call["function"].partition(":")
    outside.load()
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        raise Misuse(f"There is no function {call['function']} any more.") from None

    def act() -> str:
        answer = found(key=key, **call["arguments"])
        return "" if answer is None else str(answer)

    return act


def _request(wanted: dict[str, Any], key: str) -> Callable[[], str]:
    try:
        import httpx2
    except ImportError:
        raise Misuse("httpx2 is not installed.", fix="Install it with: pip install 'twice[http]'") from None
    headers = {name: _filled(value) for name, value in wanted["headers"].items()}

    def act() -> str:
        response = httpx2.request(
            wanted["method"],
            wanted["url"],
            json=wanted["json"],
            headers={**headers, "Idempotency-Key": key},
            timeout=wanted["timeout"],
        )
        status = int(response.status_code)
        said = f"HTTP {status}: {response.text[:200]}"
        if status < _REDIRECT:
            return said
        if status >= _SERVER_ERROR or status in _RETRIED_STATUS:
            raise ConnectionError(said)
        raise Refused(said)

    return act


def _filled(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise Misuse(f"An effect needs the environment variable {match[1]}, which is not set.")
        return os.environ[match[1]]

    return _VARIABLE.sub(value, text)
