"""Which store can carry which pattern?

Computed from what patterns need and stores have; there is no table to keep by hand. A pair that
cannot hold its promise is refused before anything is touched, with the reason and the ways out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from twice import conditions
from twice.abilities import Delivery, FindsRepeats, Store, TransactsTables
from twice.data_tests import DataTest
from twice.errors import Misuse, Unsupported
from twice.merges import MergeRule
from twice.patterns.data_overwrite import DataOverwrite
from twice.patterns.dedup_insert import DedupInsert
from twice.patterns.fast_metadata_cleaner import FastMetadataCleaner
from twice.patterns.ingest import Ingest
from twice.patterns.keyed import KeyedFile, KeyedPartition, KeyedRows, KeyedTable
from twice.patterns.merger import Merger
from twice.patterns.proxy import Proxy
from twice.patterns.stateful_merger import StatefulMerger
from twice.patterns.transactional_writer import TransactionalWriter
from twice.plans import Pattern
from twice.stores.registry import kinds, store_class

VARIANTS: dict[str, Pattern] = {
    "data_overwrite (table)": DataOverwrite(),
    "data_overwrite (slice)": DataOverwrite(slice="day"),
    "data_overwrite (partitions)": DataOverwrite(partitions=("day",)),
    "merger": Merger(MergeRule(("id",))),
    "merger (ingest)": Ingest(Merger(MergeRule(("id",)))),
    "stateful_merger": StatefulMerger(MergeRule(("id",))),
    "stateful_merger (history)": StatefulMerger(MergeRule(("id",)), form="history"),
    "dedup_insert": DedupInsert(MergeRule(("id",), insert_only=True)),
    "dedup_insert (ingest)": Ingest(DedupInsert(MergeRule(("id",), insert_only=True))),
    "fast_metadata_cleaner": FastMetadataCleaner(),
    "keyed (rows)": KeyedRows(MergeRule(("id",))),
    "keyed (partition)": KeyedPartition("slot"),
    "keyed (table)": KeyedTable(),
    "keyed (file)": KeyedFile("{execution_date}.csv", Delivery("csv")),
    "proxy": Proxy(),
    "transactional_writer": TransactionalWriter(),
    "transactional_writer (lineage)": TransactionalWriter(lineage="slot"),
    "transactional_writer (ingest)": Ingest(TransactionalWriter()),
    "transactional_writer (tables)": TransactionalWriter(tables=("orders", "lines")),
}


@dataclass(frozen=True)
class Cell:
    """Whether one store carries one pattern, and if not, why."""

    pattern: str
    store: str
    supported: bool
    reason: str = ""


def missing(pattern: Pattern, store: type[Store]) -> list[type]:
    """Return the abilities that the pattern needs and the store lacks."""
    return [ability for ability in pattern.requires if ability not in store.__mro__]


def check(pattern: Pattern, kind: str, pipeline: str, tests: Sequence[DataTest] = ()) -> None:
    """Refuse a pair that cannot hold its promise.

    Raises:
        Unsupported: With the reason, what else the store can carry, and which stores can.
        Misuse: The pattern has a condition that is none in the store's SQL, or the tests are not about one table.
    """
    store = store_class(kind)
    lacking = missing(pattern, store)
    if not lacking:
        for text in pattern.conditions:
            conditions.check(text, store.dialect)
        if tests:
            _check_tests(pattern, store, pipeline)
        return
    ability = lacking[0].__name__
    others = [other for other in kinds() if not missing(pattern, store_class(other))]
    carried = [name for name, variant in VARIANTS.items() if not missing(variant, store)]
    ways = [f"Use {', '.join(map(repr, carried))} ({kind} supports it)"] if carried else []
    ways += [f"a target that can: {', '.join(others)}"] if others else []
    raise Unsupported(
        f"{kind} cannot carry the pattern {pattern.name!r} for pipeline {pipeline!r}.",
        f"It needs {ability}; {store.lacks.get(ability, 'the store does not have it')}.",
        (", or ".join(ways) + ".") if ways else "",
    )


def _check_tests(pattern: Pattern, store: type[Store], pipeline: str) -> None:
    if FindsRepeats not in store.__mro__:
        raise Unsupported(
            f"{store.kind} cannot answer the tests of pipeline {pipeline!r}.",
            "It delivers files, which are not read back before they are published.",
            "Declare the tests on the table that the files are made of.",
        )
    if TransactsTables in pattern.requires:
        raise Misuse(
            f"tests= are about the rows of one table, and pipeline {pipeline!r} writes several.",
            fix="Leave tests= out, or write each table by a pipeline of its own.",
        )


def cells(only: Iterable[str] | None = None) -> list[Cell]:
    """Return the whole matrix, pattern by pattern."""
    chosen = list(only) if only is not None else kinds()
    return [_cell(name, pattern, kind) for name, pattern in VARIANTS.items() for kind in chosen]


def _cell(name: str, pattern: Pattern, kind: str) -> Cell:
    store = store_class(kind)
    lacking = missing(pattern, store)
    why = "; ".join(dict.fromkeys(store.lacks.get(a.__name__, f"lacks {a.__name__}") for a in lacking))
    return Cell(name, kind, not lacking, why)
