"""Where are the change rows of a stateful merger kept, on stores that write through Spark?

In a table of the same store beside the target, to which every try adds its rows under a name of its own.
They are inert: a row counts once a receipt of the target names it. So an attempt that dies, or loses
against a twin, leaves rows behind that nobody looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import quote

from twice.abilities import Editions, KeepsHistory, Rows, Staged, Work
from twice.columns import ColumnPolicy
from twice.errors import Misuse
from twice.faults import reach
from twice.merges import MergeRule
from twice.runs import Receipt, Slot
from twice.sight import Sight
from twice.stores import frames, merging

_ANY_COLUMNS = ColumnPolicy("add", "null", "widen")


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


class Histories(KeepsHistory):
    """Keeps change rows in a table beside the target."""

    def stage_history(
        self: Any, work: Work, rows: Rows, rule: MergeRule, layout: Sequence[str], editions: Editions
    ) -> Staged:
        """Add the rows to the history, and merge what the touched keys become into the target."""
        rule.check_columns(frames.checked(rows).columns)
        _refuse_adopted(work)
        schema = self.schema_of(work.name) if work.base.exists else ""
        source = merging.prepared(frames.fitted(rows, schema, work, rule.besides)[0], rule)
        _keep(self, work, frames.labelled(source.rows, merging.LABEL, editions.own), editions.own)
        reach("history.kept")
        history = frames.with_columns_of(
            self.read(history_of(work.name)), frames.schema_text(frames.labelled(source.rows, merging.LABEL, ""))
        )
        there = self.read(work.name) if editions.whole else None
        becomes = merging.from_history(history, source, rule, editions, there)
        staged: Staged = self.stage_merge(work, becomes, MergeRule(rule.keys, deleted=merging.GONE), layout)
        return replace(staged, rows=source.given)


def _keep(store: _Tables, work: Work, rows: Any, own: str) -> None:
    """Add rows to the history in a commit of their own, whose slot is their name."""
    name = history_of(work.name)
    target = Slot.parse(work.slot).target
    slot = f"v1:history:{target.store}:{quote(name, safe='/._-')}:key={own}"
    kept = Work(name=name, slot=slot, attempt=own, generation=1, base=store.look(name), columns=_ANY_COLUMNS)
    staged = store.stage_append(kept, rows, None, None)
    store.publish(kept, staged, [Receipt(slot, 1, own, "", "", kept.base.owner, rows=staged.rows)])


def history_of(name: str) -> str:
    """Name the table that keeps the change rows of another."""
    return f"{name}/_twice/history" if "/" in name else f"{name}_history"


def _refuse_adopted(work: Work) -> None:
    """Rows from before the first slot are in no history, and would be lost by the first rebuild."""
    if work.base.exists and not work.base.receipts and work.base.data_version >= 0:
        raise Misuse(
            f"The table {work.name} holds rows from before its first slot.",
            "They are in no history, so the rows of a slot could not be taken back from them.",
            'Use form="versions", or write to a new target.',
        )
