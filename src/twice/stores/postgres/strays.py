"""How many rows lie outside a slice, told by the tasks that send them?

A task holds its rows as Arrow, where a comparison costs next to nothing; the server would read all of them once more.
Only values that both compare in the same way are asked for: days, moments and whole numbers, in the table's own type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from twice.slices import ColumnSlice, Slice
from twice.stores.postgres import conditions, kinds
from twice.stores.postgres.kinds import Fitted

_ALIKE = ("date", "timestamp", "timestamp_ntz", "short", "integer", "long")


@dataclass(frozen=True)
class Within:
    """Rows whose column holds one value or, where there is an end, one from the first on and before it."""

    column: str
    first: Any
    end: Any = None

    def strays(self, batch: pa.RecordBatch) -> int:
        """Count the rows of a batch that lie outside; NULL does."""
        values = batch.column(self.column)
        if self.end is None:
            inside = pc.equal(values, pa.scalar(self.first))
        else:
            inside = pc.and_(pc.greater_equal(values, pa.scalar(self.first)), pc.less(values, pa.scalar(self.end)))
        return int(batch.num_rows - (pc.sum(inside).as_py() or 0))


class Strays:
    """Counts the rows outside a slice while they pass by; none if there is no slice to be asked about."""

    def __init__(self, within: Within | None) -> None:
        self.within = within
        self.count = 0

    def passing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hand batches on, and count."""
        for batch in batches:
            if self.within:
                self.count += self.within.strays(batch)
            yield batch


def told_by_tasks(bounds: Slice | None, fits: Fitted) -> Within | None:
    """Return the question that tasks answer as the server would, if there is one."""
    if not isinstance(bounds, ColumnSlice):
        return None
    typed = fits.types.get(bounds.column)
    kind = kinds.kind_of(typed) if typed and typed == fits.source.get(bounds.column) else ""
    return Within(bounds.column, *conditions.limits(bounds, kind)) if kind in _ALIKE else None
