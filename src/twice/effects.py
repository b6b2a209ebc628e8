"""How are calls in outside systems made, and made again only where that is promised?

After the publish, each with a key that is the same in every attempt. What is promised: a call is made only if its rows are
published; it is made at least once as long as the ledger lives; and once it is confirmed it is never made again. Between the
call and the confirmation a death makes it be called once more, with the same key: once only if the service honours the key.

A service that asks to be left alone for a while is waited for if that is seconds. Otherwise the time is recorded with its
answer, in one step, and nobody calls before it but by name. Whoever dies before that record does not know of it, and calls.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

from twice.errors import Busy, EffectOwed, Misuse, NotPublished
from twice.explain import explain
from twice.faults import reach
from twice.http_calls import NotNow, Refused, request
from twice.ledger import Ledger
from twice.ledger import effects as records
from twice.ledger.effects import CONFIRMED, OWED, REFUSED, UNKNOWN, EffectRecord
from twice.ledger.retries import moment_text
from twice.runs import Effect, Receipt, Slot
from twice.tries import at_once

_MOST_BYTES = 16_384
_TRIES, _FIRST_WAIT, _LONGEST_WAIT = 3, 0.2, 5.0
_ANSWER_KEPT = 500


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
    owed: list[EffectOwed] = []
    records.published(ledger, receipt)
    reach("effects.counted")
    for row in records.of_slot(ledger, receipt.slot):
        notes += _told(row)
        if row.published and row.form == "direct" and row.state in OWED:
            try:
                deliver(outside, ledger, row)
            except EffectOwed as error:  # one service that does not answer holds up no call of another
                owed.append(error)
    if owed:
        raise owed[0]
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


def deliver(outside: Outside, ledger: Ledger, row: EffectRecord, *, by_name: bool = False) -> bool:
    """Make one call, with its key, and record the answer; False if somebody else is at it or it is settled.

    A call that a person asked for `by_name` is made although the service asked to be left alone.

    Raises:
        EffectOwed: It got no answer, was refused, or has to wait.
    """
    try:
        with ledger.lease(f"effect {row.effect_key}", f"effect-{secrets.token_hex(6)}"):
            if not by_name:
                _leave_alone(ledger, row)
            if not records.call_begins(ledger, row):
                return False
            reach("effect.before")
            said = _answer(outside, row)
            reach("effect.answered")
            records.ended(ledger, row, said.state, said.text, said.not_before)
            reach("effect.confirmed")
    except Busy:
        return False
    if said.state != CONFIRMED:
        raise _owed(row, said)
    return True


def _leave_alone(ledger: Ledger, row: EffectRecord) -> None:
    """See, alone with the effect, that its service has not asked to be left alone."""
    for known in records.find(ledger, row.effect_key):
        if known.waits:
            raise _later(
                f"The effect {row.label} is owed, and its service asked to be left alone until {known.not_before}.",
                known.not_before,
                f"Run again then, or: twice effects deliver. At once: twice effects deliver {row.effect_key[:12]}",
            )


def _owed(row: EffectRecord, said: _Answer) -> EffectOwed:
    if said.state == REFUSED:
        what, fix = "was refused", f"twice effects deliver {row.effect_key[:12]}"
    else:
        what = "got no answer that counts"
        then = f" after {said.not_before}, for which its service asked" if said.not_before else ""
        fix = f"Run again{then}, or: twice effects deliver"
    return _later(f"The effect {row.label} {what}: {said.text}", said.not_before, fix)


def _later(what: str, not_before: str, fix: str) -> EffectOwed:
    error = EffectOwed(what, "Its rows are published. The call carries the same key whenever it is made again.", fix)
    error.not_before = not_before
    return error


@dataclass(frozen=True)
class _Answer:
    """The state that a call leaves its effect in, what was answered, and until when its service wants to be left alone."""

    state: str
    text: str
    not_before: str = ""


def _answer(outside: Outside, row: EffectRecord) -> _Answer:
    if not outside.performed:
        return _Answer(CONFIRMED, "recorded, and not called")
    try:
        return _Answer(CONFIRMED, _called(outside, json.loads(row.call), row.effect_key)[:_ANSWER_KEPT])
    except (Refused, Misuse) as refused:
        return _Answer(REFUSED, explain(refused))
    except NotNow as later:
        return _Answer(records.CALLING, explain(later), _after(later.wait) if later.wait else "")
    except Exception as error:  # noqa: BLE001 - whatever broke, the call may have been made: it stays owed
        return _Answer(records.CALLING, explain(error))


def _after(seconds: float) -> str:
    return moment_text(datetime.now(UTC) + timedelta(seconds=seconds))


def _called(outside: Outside, call: dict[str, Any], key: str) -> str:
    act = request(call["http"], key) if "http" in call else _function(outside, call, key)
    for one_try in at_once(_is_passing, _TRIES, _FIRST_WAIT, _LONGEST_WAIT):
        with one_try:
            return act()
    raise AssertionError("a call is answered, or raises")


def _is_passing(error: Exception) -> bool | float:
    """Tell whether a call is made again at once, or after how many seconds; not where its service asks for more patience."""
    if isinstance(error, NotNow) and error.wait:
        return error.wait if error.wait <= _LONGEST_WAIT else False
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
