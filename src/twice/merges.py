"""What does a merge do to a row?

One rule for every store. A source row meets the target row with the same key, or none, and is
inserted, updated, deleted or left alone. The memory store applies the rule to plain rows; the
others write it as joins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twice.columns import NamedColumn, refuse_keys
from twice.errors import Misuse, NotPublished, suggestion

Row = Mapping[str, Any]
_NAMED_AT_MOST = 5


@dataclass(frozen=True)
class MergeRule:
    """How source rows and target rows are brought together.

    Attributes:
        keys: Columns that identify a row. They are never NULL.
        deleted: Column that marks a source row as deleted.
        soft: Keep a deleted row with its mark, instead of taking it away.
        order: Column that tells older changes from newer ones; within one batch one row a key is left.
        first: Of several rows with one key in a batch, take the first in order and not the last.
        insert_only: Never touch a row that is there.
    """

    keys: tuple[str, ...]
    deleted: str | None = None
    soft: bool = False
    order: str | None = None
    first: bool = False
    insert_only: bool = False

    def __post_init__(self) -> None:
        if not self.keys:
            raise Misuse("A merge needs the columns that identify a row.", fix='For example keys=["id"].')
        if len(set(self.keys)) != len(self.keys):
            raise Misuse(f"The keys name a column twice: {', '.join(self.keys)}.")
        if self.soft and not self.deleted:
            raise Misuse("soft=True needs deleted=, the column that marks a deleted row.")
        if self.insert_only and self.deleted:
            raise Misuse("insert_only=True never touches a row that is there, so deleted= has no meaning with it.")
        if self.deleted in self.keys or self.order in self.keys:
            raise Misuse("The columns deleted= and order= cannot be keys.")

    @property
    def besides(self) -> tuple[str, ...]:
        """The columns of the source that the table does not keep: the mark of a hard delete."""
        return (self.deleted,) if self.deleted and not self.soft else ()

    @property
    def last_wins(self) -> bool:
        """Tell whether of several batches in turn the last row of a key alone tells what becomes of it."""
        return not self.order and not self.insert_only

    @property
    def names(self) -> tuple[NamedColumn, ...]:
        """The columns that the rule names."""
        order = [NamedColumn(self.order, "order=")] if self.order else []
        deleted = [NamedColumn(self.deleted, "deleted=", in_table=self.soft)] if self.deleted else []
        return (*(NamedColumn(key, "keys=") for key in self.keys), *order, *deleted)

    def stored(self, columns: Iterable[str]) -> list[str]:
        """Return the columns that the table keeps."""
        return [column for column in columns if column not in self.besides]

    def check_columns(self, columns: Sequence[str]) -> None:
        """Refuse rows that lack a column which the rule names."""
        for column in (*self.keys, self.deleted, self.order):
            if column is not None and column not in columns:
                raise Misuse(
                    f"The rows have no column {column!r}, which the pattern names.", fix=suggestion(column, columns)
                )


def refuse_incomparable(fields: Sequence[Mapping[str, Any]], rule: MergeRule) -> None:
    """Refuse keys and an order of types whose values cannot be compared; columns are given as Spark's JSON has them.

    Raises:
        Misuse: There is one.
    """
    refuse_keys(fields, rule.keys)
    refuse_keys(fields, [rule.order] if rule.order else [], "order column")


def refuse_null_keys(count: int, keys: Sequence[str]) -> None:
    """Refuse rows without a key: a rerun could not find them again."""
    if count:
        raise NotPublished(
            f"{count} {'row has' if count == 1 else 'rows have'} NULL in a key column ({', '.join(keys)}).",
            "A row without its key would be added again by every rerun, so nothing was published.",
            "Filter such rows in the transform, or give them a key.",
        )


def refuse_null_order(count: int, order: str) -> None:
    """Refuse rows that cannot be told older or newer."""
    if count:
        raise NotPublished(
            f"{count} {'row has' if count == 1 else 'rows have'} NULL in the order column {order!r}.",
            "Which of two changes is the newer one could not be told, so nothing was published.",
            "Fill the column in the transform.",
        )


def refuse_duplicates(count: int, sample: Sequence[Row], rule: MergeRule) -> None:
    """Name the keys that several source rows share."""
    if not count:
        return
    named = "; ".join(
        ", ".join(f"{key}={row[key]!r}" for key in rule.keys) for row in sorted(sample, key=repr)[:_NAMED_AT_MOST]
    )
    more = f" and {count - _NAMED_AT_MOST} more" if count > _NAMED_AT_MOST else ""
    raise NotPublished(
        f"{count} {'key appears' if count == 1 else 'keys appear'} in several rows of the source: {named}{more}.",
        f"They have the same {rule.order!r} and differ otherwise, so nothing was published."
        if rule.order
        else "Which of them counts is not declared, so nothing was published.",
        "Make the keys unique in the transform."
        if rule.order
        else "Make the keys unique in the transform, or declare order=, the column that tells which row counts.",
    )


# ---------------------------------------------------------------- plain rows


def key_of(row: Row, keys: Sequence[str]) -> tuple[Any, ...]:
    """Return a row's key, with the values that Spark takes for one made one at any depth: 0.0 and -0.0, NaN and NaN."""
    return tuple(_comparable(row[key]) for key in keys)


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, Mapping):
        return frozenset((name, _comparable(part)) for name, part in value.items())
    return tuple(map(_comparable, value)) if isinstance(value, list | tuple) else value


def prepared(rows: Iterable[Row], rule: MergeRule) -> list[Row]:
    """Check plain source rows, and leave one row a key."""
    found = [dict(row) for row in rows]
    for row in found:
        rule.check_columns(list(row))
    refuse_null_keys(sum(any(row[key] is None for key in rule.keys) for row in found), rule.keys)
    if rule.order:
        refuse_null_order(sum(row[rule.order] is None for row in found), rule.order)
        found = _one_a_key(found, rule)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in found:
        groups.setdefault(key_of(row, rule.keys), []).append(row)
    repeated = [group[0] for group in groups.values() if len(group) > 1]
    refuse_duplicates(len(repeated), repeated, rule)
    return list(found)


def _one_a_key(rows: list[dict[str, Any]], rule: MergeRule) -> list[dict[str, Any]]:
    """Keep the rows that come last (or first) in order, and drop exact copies."""
    order = rule.order or ""
    pick = min if rule.first else max
    best: dict[tuple[Any, ...], Any] = {}
    for row in rows:
        key = key_of(row, rule.keys)
        best[key] = pick(best[key], row[order]) if key in best else row[order]
    kept = [row for row in rows if row[order] == best[key_of(row, rule.keys)]]
    return [row for number, row in enumerate(kept) if row not in kept[:number]]


@dataclass(frozen=True)
class Merged:
    """The rows after a merge, and what happened to them."""

    rows: tuple[Row, ...]
    inserted: int
    updated: int
    deleted: int


def changes_text(inserted: int, updated: int, deleted: int, rows: int) -> str:
    """Say what a merge did."""
    left = rows - inserted - updated - deleted
    return f"inserted {inserted}, updated {updated}, deleted {deleted}, left alone {left}"


def replay_text(inserted: int, updated: int, deleted: int, rows: int, start: str) -> str:
    """Say what a replay did to the state that it started from, which is not the one that readers saw before."""
    return f"merged {rows} rows into {start}: inserted {inserted}, updated {updated}, deleted {deleted}"


def changed_by_key(before: Iterable[Row], after: Iterable[Row], keys: Sequence[str]) -> tuple[int, int, int]:
    """Count the keys of plain rows that came, changed and went."""
    old, new = ({key_of(row, keys): row for row in rows} for rows in (before, after))
    updated = sum(old[key] != new[key] for key in old.keys() & new.keys())
    return len(new.keys() - old.keys()), updated, len(old.keys() - new.keys())


def merged(target: Iterable[Row], source: Iterable[Row], rule: MergeRule) -> Merged:
    """Apply a merge to plain rows."""
    rows: dict[tuple[Any, ...], list[Row]] = {}
    for row in target:
        rows.setdefault(key_of(row, rule.keys), []).append(row)
    counts = {"insert": 0, "update": 0, "delete": 0, "none": 0}
    for row in source:
        key = key_of(row, rule.keys)
        there = rows.get(key, [])
        actions = {_action(row, one, rule) for one in there} or {_action(row, None, rule)}
        changes = actions - {"none"}
        if changes and len(there) > 1:
            refuse_repeated([row], rule)
        action = changes.pop() if changes else "none"
        counts[action] += 1
        if action == "delete":
            del rows[key]
        elif action != "none":
            rows[key] = [{column: row[column] for column in rule.stored(row)}]
    kept = tuple(row for group in rows.values() for row in group)
    return Merged(kept, counts["insert"], counts["update"], counts["delete"])


def live(source: Iterable[Row], rule: MergeRule) -> list[Row]:
    """Return the source rows that are not marked as deleted, in the columns that the table keeps."""
    kept = source if not rule.besides else [row for row in source if not _is_true(row[rule.deleted or ""])]
    return [{name: row[name] for name in rule.stored(row)} for row in kept]


def refuse_repeated(sample: Sequence[Row], rule: MergeRule) -> None:
    """Name keys that the table itself holds in several rows: they cannot be changed as one.

    Raises:
        NotPublished: There are some.
    """
    if sample:
        named = "; ".join(", ".join(f"{key}={row[key]!r}" for key in rule.keys) for row in sample)
        raise NotPublished(
            f"The table itself holds a key in several rows: {named}.",
            "Which of them a change is about is not known, so nothing was published.",
            "Remove the copies from the table, or add columns to keys= that tell them apart.",
        )


def refuse_mark_in_table(columns: Iterable[str], rule: MergeRule) -> None:
    """Refuse to take over a table that has a column for the mark of deletion: what it holds could not be given back.

    Raises:
        Misuse: It has.
    """
    for mark in set(rule.besides) & set(columns):
        raise Misuse(
            f"The table held rows before its first slot, and it has the column {mark!r}, which marks rows as deleted.",
            "Such a mark is not kept in the table, so its older values would be lost.",
            "Rename the column of the table, or that of the changes.",
        )


def refuse_keys_there(found: Sequence[Row], rule: MergeRule) -> None:
    """Name keys of rows from before the first slot that are NULL, or that several of them share.

    Raises:
        NotPublished: There are some.
    """
    if any(row[key] is None for row in found for key in rule.keys):
        raise NotPublished(
            f"The table holds rows from before its first slot with NULL in a key column ({', '.join(rule.keys)}).",
            "A row without its key could not be given back, so nothing was published.",
            "Fill the column, or take such rows out of the table.",
        )
    refuse_repeated(found, rule)


def _action(row: Row, there: Row | None, rule: MergeRule) -> str:
    gone = bool(rule.deleted) and not rule.soft and _is_true(row[rule.deleted or ""])
    if there is None:
        # The live guard: a deleted row that is not there stays away, also when its batch is replayed.
        return "none" if gone else "insert"
    if rule.insert_only or (rule.order and _is_late(row[rule.order], there[rule.order])):
        return "none"
    if gone:
        return "delete"
    same = all(_comparable(row[column]) == _comparable(there[column]) for column in rule.stored(row))
    return "none" if same else "update"


def _is_true(mark: Any) -> bool:
    """Read a mark as Spark casts it."""
    return mark.strip().lower() in ("true", "t", "yes", "y", "1") if isinstance(mark, str) else bool(mark)


def _is_late(ours: Any, theirs: Any) -> bool:
    return bool(theirs is not None and ours < theirs)
