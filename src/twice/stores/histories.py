"""Where are the change rows of a stateful merger kept, on stores that write through Spark?

In a table of the same store beside the target, to which every try adds its rows under a name of its own.
They are inert: a row counts once a receipt of the target names it.

    adopted     rows that the table held before its first slot are added, under a name of their own; once, by the first slot
    kept        the change rows of the slot are added
    published   one commit of the target shows the rows, and its receipt names the change rows and the adopted ones

An attempt that dies before its publish, or loses against a twin, leaves rows behind that nobody looks at: the next one adds
them anew under other names, and of two first slots at once the one that is refused takes up the names of the other. After a
lost reply the receipt tells which names count.

Rows that no receipt names are taken away by a tidy. It lists what is kept, then looks at the target, and then moves the
target's head: whoever planned before that is refused and tries again under a new name, also one that was asleep. Only then do
the rows go. A tidy that dies in between has lost nothing, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import quote

from twice.abilities import Editions, KeepsHistory, LiveAttempts, Rows, Staged, Swept, Work
from twice.columns import ColumnPolicy
from twice.errors import Conflict
from twice.faults import reach
from twice.merges import MergeRule, refuse_mark_in_table
from twice.runs import Receipt, Slot
from twice.sight import NO_TABLE, Sight
from twice.stores import frames, merging, preparing
from twice.stores.editions import left, now, says_all, uncounted

_ANY_COLUMNS = ColumnPolicy("add", "null", "widen")
_PIPELINE = "history"


class _Tables(Protocol):
    """What a store with tables can do already."""

    def look(self, name: str) -> Sight:
        """Read a table's receipts."""

    def read(self, name: str, version: int | None = None) -> Rows:
        """Return a table's rows."""

    def schema_of(self, name: str) -> str:
        """Return a table's columns as JSON."""

    def stage_append(self, work: Work, rows: Rows, lineage: str | None, check: None) -> Staged:
        """Write rows to be added."""

    def stage_merge(self, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str]) -> Staged:
        """Write what a merge changes."""

    def publish(self, work: Work, staged: Staged, receipts: Sequence[Receipt]) -> tuple[str, ...]:
        """Publish staged rows."""

    def counted(self, history: str, names: Iterable[str]) -> Mapping[str, int]:
        """Tell how many rows a history keeps under each of some names; those that it does not know are left out."""

    def drop_batches(self, history: str, names: Iterable[str]) -> None:
        """Take the rows under some names out of a history, in one commit."""

    def move_head(self, name: str, sight: Sight) -> None:
        """Refuse every publish that was planned until now, in a commit that changes no row."""


class Histories(KeepsHistory):
    """Keeps change rows in a table beside the target."""

    def stage_history(
        self: Any, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str], editions: Editions
    ) -> Staged:
        """Add the rows to the history, and merge what the touched keys become into the target."""
        rule.check_columns(frames.checked(rows).columns)
        schema = self.schema_of(work.name) if work.base.exists else ""
        source = preparing.prepared(frames.fitted(rows, schema, work, rule.besides)[0], rule)
        if editions.adopted and work.base.data_version != NO_TABLE:
            there = _adopted(self, work, rule, frames.schema_text(merging.stored(source.rows, rule)))
            _keep(self, work, there, editions.adopted)
            reach("history.adopted")
        _keep(self, work, source.rows, editions.own)
        reach("history.kept")
        history = frames.with_columns_of(
            self.read(history_of(work.name)), frames.schema_text(frames.labelled(source.rows, merging.LABEL, ""))
        )
        whole = self.read(work.name) if editions.whole else None
        becomes = merging.from_history(history, source, rule, editions, whole)
        staged: Staged = self.stage_merge(work, becomes, MergeRule(rule.keys, deleted=merging.GONE), layout)
        return replace(staged, rows=source.given, answers=merging.answers(source, rule))

    def history_beside(self: Any, name: str) -> str:
        """Name the table that keeps the change rows of another, or nothing if there is none."""
        history = history_of(name)
        return history if says_all(self.look(name)) and _kept(self.look(history)) else ""

    def tidy_history(
        self: Any, name: str, history: str, live: LiveAttempts, *, keep_days: float, dry_run: bool
    ) -> Swept:
        """Take away change rows that count for nothing; of a table that was never published none can be told."""
        kept = _kept(self.look(history))
        sight = self.look(name)
        dead = uncounted(kept, sight, live, keep_days) if sight.exists else ()
        found = self.counted(history, dead) if dead else {}
        swept = Swept(change_rows=sum(found.values()), names=tuple(sorted(found)))
        if dry_run or not found:
            return swept
        try:
            self.move_head(name, sight)
            reach("history.fenced")
            self.drop_batches(history, found)
        except Conflict as error:
            return Swept(notes=(left(error),))
        reach("history.dropped")
        return swept


def _kept(sight: Sight) -> dict[str, str]:
    """Tell under which names rows were kept, and when; a table of that name may also be somebody else's."""
    own = {slot: one for slot, one in sight.receipts.items() if Slot.parse(slot).pipeline == _PIPELINE}
    return {name_of(slot): receipt.published_at for slot, receipt in own.items()}


def name_of(slot: str) -> str:
    """Return the name of rows that were kept in a slot of the history."""
    return str(Slot.parse(slot).part)


def _adopted(store: _Tables, work: Work, rule: MergeRule, schema: str) -> Rows:
    """Return the rows that the plan saw in the table, as the history keeps them."""
    there = frames.checked(store.read(work.name, work.base.version))
    refuse_mark_in_table(there.columns, rule)
    merging.refuse_keys_there(there, rule)
    return frames.with_columns_of(there, schema)


def _keep(store: _Tables, work: Work, rows: Any, own: str) -> None:
    """Add rows to the history in a commit of their own, whose slot is their name."""
    name = history_of(work.name)
    target = Slot.parse(work.slot).target
    slot = f"v1:{_PIPELINE}:{target.store}:{quote(name, safe='/._-')}:key={own}"
    kept = Work(name=name, slot=slot, attempt=own, generation=1, base=store.look(name), columns=_ANY_COLUMNS)
    staged = store.stage_append(kept, frames.labelled(rows, merging.LABEL, own), None, None)
    receipt = Receipt(slot, 1, own, "", "", kept.base.owner, rows=staged.rows, published_at=now())
    store.publish(kept, staged, [receipt])


def history_of(name: str) -> str:
    """Name the table that keeps the change rows of another."""
    return f"{name}/_twice/history" if "/" in name else f"{name}_history"
