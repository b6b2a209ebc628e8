"""How do two versions of a table differ, told with frames?

By key where rows have one: one full join, of which only what differs is kept and counted. Without keys
whole rows are compared, copies included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twice.abilities import Difference
from twice.slices import quoted, unknown_column
from twice.stores.values import WHOLE_JSON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BEFORE, _AFTER, _KIND = "_twice_before", "_twice_after", "_twice_kind"
_ADDED, _REMOVED, _CHANGED = "added", "removed", "changed"


def compare(before: DataFrame, after: DataFrame, keys: Sequence[str], sample: int) -> Difference:
    """Count what was added, removed and changed, and show some rows of each."""
    for frame in (before, after):
        known = {column.lower() for column in frame.columns}
        for key in keys:
            if key.lower() not in known:
                raise unknown_column(key, frame.columns)
    found = (_by_key(before, after, keys) if keys else _by_row(before, after)).localCheckpoint(eager=False)
    counts = {row[_KIND]: row["count"] for row in found.groupBy(_KIND).count().collect()}
    shown = [
        (_plain(row[_BEFORE]), _plain(row[_AFTER]))
        for kind in (_CHANGED, _ADDED, _REMOVED)
        if counts.get(kind)
        for row in found.where(f"{_KIND} = '{kind}'").limit(sample).collect()
    ]
    changed = counts.get(_CHANGED, 0) if keys else None
    return Difference(counts.get(_ADDED, 0), counts.get(_REMOVED, 0), changed, tuple(shown))


def _by_key(before: DataFrame, after: DataFrame, keys: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    sides = []
    for frame, name in ((before, _BEFORE), (after, _AFTER)):
        row = F.struct(*(F.col(quoted(column)) for column in frame.columns))
        sides.append(
            frame.select(*(F.col(quoted(key)).alias(f"{name}_{n}") for n, key in enumerate(keys)), row.alias(name))
        )
    one, other = sides
    on = [one[f"{_BEFORE}_{n}"].eqNullSafe(other[f"{_AFTER}_{n}"]) for n, _ in enumerate(keys)]
    joined = one.join(other, on, "full").select(_BEFORE, _AFTER)
    # As text, since Spark cannot compare maps; a column that one side lacks is as good as NULL.
    written = {**WHOLE_JSON, "ignoreNullFields": "true", "sortKeys": "true"}
    differs = F.to_json(F.col(_BEFORE), written) != F.to_json(F.col(_AFTER), written)
    kind = (
        F.when(F.col(_BEFORE).isNull(), F.lit(_ADDED))
        .when(F.col(_AFTER).isNull(), F.lit(_REMOVED))
        .when(differs, F.lit(_CHANGED))
    )
    return joined.withColumn(_KIND, kind).where(f"{_KIND} IS NOT NULL")


def _by_row(before: DataFrame, after: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    def side(frame: DataFrame, others: DataFrame, name: str, kind: str) -> DataFrame:
        rows = _common(frame, others).exceptAll(_common(others, frame))
        row = F.struct(*(F.col(quoted(column)) for column in rows.columns))
        return rows.select(row.alias(name), F.lit(kind).alias(_KIND))

    removed = side(before, after, _BEFORE, _REMOVED)
    return removed.unionByName(side(after, before, _AFTER, _ADDED), allowMissingColumns=True)


def _common(frame: DataFrame, others: DataFrame) -> DataFrame:
    """Return rows in the columns of both, by name; what they lack is NULL."""
    from pyspark.sql import functions as F

    kinds = {field.name: field.dataType for field in (*others.schema.fields, *frame.schema.fields)}
    columns = [
        (F.col(quoted(name)) if name in frame.columns else F.lit(None)).cast(kind).alias(name)
        for name, kind in sorted(kinds.items())
    ]
    return frame.select(*columns)


def _plain(row: Any) -> dict[str, Any] | None:
    return None if row is None else dict(row.asDict())
