"""Which calls in outside systems were intended, made and answered?

One row for an effect of an attempt, written before the publish. It counts once the store holds that attempt's receipt. What is
true if the process dies:

    after the intention    the row is there; if the publish did not land it never counts
    after the publish      whoever looks next finds the receipt and the row, and makes the call
    during the call        the row says *calling*: it is called again, with the same key
    after the answer       the same: the service sees the same key once more
    after the confirmation it is never called again

An effect that a receipt names and that has no row was lost with a ledger. Whether it was called is *unknown*, and stays so until
somebody says what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from twice.ledger.ledger import Ledger
from twice.ledger.retries import moment_text
from twice.runs import Effect, Receipt, Slot

INTENDED, CALLING, CONFIRMED, REFUSED, UNKNOWN, FORGOTTEN = (
    "intended",
    "calling",
    "confirmed",
    "refused",
    "unknown",
    "forgotten",
)
OWED = (INTENDED, CALLING)
SETTLED = (CONFIRMED, FORGOTTEN)


@dataclass(frozen=True)
class EffectRecord:
    """One effect of one attempt; it counts if that attempt published."""

    effect_key: str
    attempt: str
    slot: str
    pipeline: str
    target: str
    generation: int
    name: str
    form: str
    call: str
    published: int
    state: str
    tries: int = 0
    answer: str = ""
    intended_at: str = ""
    called_at: str = ""
    confirmed_at: str = ""
    not_before: str = ""

    @property
    def waits(self) -> bool:
        """Tell whether its service asked to be left alone until later than now."""
        return self.not_before > _now()

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.name} of {self.pipeline} {Slot.parse(self.slot).label} (generation {self.generation})"


def intend(ledger: Ledger, slot: Slot, attempt: str, wanted: Sequence[Effect], before: Receipt | None) -> None:
    """Record what is to be called once the attempt has published, in place of what it intended before.

    `before` is the receipt that the publish replaces: its own effects count from now on, whether or not anyone said so.
    """
    with ledger.transaction() as db:
        if before:
            _mark(db, before)
        db.execute(
            "DELETE FROM effects WHERE slot=? AND attempt=? AND published=0 AND state=?", (slot.text, attempt, INTENDED)
        )
        for effect in wanted:
            _insert(db, _record(slot, attempt, effect, INTENDED, published=0))


def published(ledger: Ledger, receipt: Receipt) -> None:
    """Let the effects of a receipt count, and forget those of attempts that can never publish that edition any more."""
    slot = Slot.parse(receipt.slot)
    known = of_slot(ledger, receipt.slot)
    if not _needs_marking(receipt, known):
        return
    with ledger.transaction() as db:
        _mark(db, receipt)
        db.execute(
            "DELETE FROM effects WHERE slot=? AND published=0 AND generation<=? AND state=?",
            (receipt.slot, receipt.generation, INTENDED),
        )
        for effect in receipt.effects:
            found = db.execute(
                "SELECT 1 FROM effects WHERE effect_key=? AND published=1 LIMIT 1", (effect.key,)
            ).fetchone()
            if not found:
                _insert(db, _record(slot, receipt.attempt, effect, UNKNOWN, published=1))


def _needs_marking(receipt: Receipt, known: Sequence[EffectRecord]) -> bool:
    counting = {row.effect_key for row in known if row.published}
    return any(effect.key not in counting for effect in receipt.effects) or any(not row.published for row in known)


def of_slot(ledger: Ledger, slot: str) -> list[EffectRecord]:
    """Return all effects of a slot."""
    return _records(ledger.query("SELECT * FROM effects WHERE slot=? ORDER BY generation, name", slot))


def counting(ledger: Ledger) -> list[EffectRecord]:
    """Return all effects whose rows are published and that are not settled."""
    rows = ledger.query("SELECT * FROM effects WHERE published=1 AND state NOT IN (?, ?)", *SETTLED)
    return sorted(_records(rows), key=lambda row: (row.slot, row.generation, row.name))


def settled(ledger: Ledger, effects: Iterable[Effect]) -> frozenset[str]:
    """Return the keys of those effects that nobody has to deal with any more."""
    return frozenset(
        effect.key
        for effect in effects
        if ledger.query("SELECT 1 FROM effects WHERE effect_key=? AND state IN (?, ?)", effect.key, *SETTLED)
    )


def find(ledger: Ledger, key: str) -> list[EffectRecord]:
    """Return the effects whose key begins so and whose rows are published."""
    return _records(ledger.query("SELECT * FROM effects WHERE published=1 AND effect_key LIKE ?", key + "%"))


def call_begins(ledger: Ledger, row: EffectRecord) -> bool:
    """Record that a call is about to be made; False if the effect was settled meanwhile."""
    with ledger.transaction() as db:
        done = db.execute(
            "SELECT 1 FROM effects WHERE effect_key=? AND state IN (?, ?)", (row.effect_key, *SETTLED)
        ).fetchone()
        if done:
            return False
        db.execute(
            "UPDATE effects SET state=?, tries=tries+1, called_at=? WHERE effect_key=? AND attempt=?",
            (CALLING, _now(), row.effect_key, row.attempt),
        )
        return True


def ended(ledger: Ledger, row: EffectRecord, state: str, answer: str, not_before: str = "") -> None:
    """Record what came of a call, or what a person says came of it, and until when its service is left alone."""
    with ledger.transaction() as db:
        confirmed = _now() if state in SETTLED else ""
        db.execute(
            "UPDATE effects SET state=?, answer=?, confirmed_at=?, not_before=? WHERE effect_key=? AND published=1",
            (state, answer, confirmed, not_before, row.effect_key),
        )


def _record(slot: Slot, attempt: str, effect: Effect, state: str, *, published: int) -> EffectRecord:
    return EffectRecord(
        effect_key=effect.key,
        attempt=attempt,
        slot=slot.text,
        pipeline=slot.pipeline,
        target=slot.target.text,
        generation=effect.generation,
        name=effect.name,
        form=effect.form,
        call=effect.call,
        published=published,
        state=state,
        intended_at=_now(),
    )


def _mark(db: Any, receipt: Receipt) -> None:
    db.execute(
        "UPDATE effects SET published=1 WHERE slot=? AND attempt=? AND generation=?",
        (receipt.slot, receipt.attempt, receipt.generation),
    )


def _insert(db: Any, row: EffectRecord) -> None:
    values = asdict(row)
    marks = ", ".join("?" * len(values))
    sql = f"INSERT INTO effects ({', '.join(values)}) VALUES ({marks}) ON CONFLICT (effect_key, attempt) DO NOTHING"  # noqa: S608 - fixed names
    db.execute(sql, tuple(values.values()))


def _records(rows: Iterable[Any]) -> list[EffectRecord]:
    return [EffectRecord(**{one.name: row[one.name] for one in fields(EffectRecord)}) for row in rows]


def _now() -> str:
    return moment_text(datetime.now(UTC))
