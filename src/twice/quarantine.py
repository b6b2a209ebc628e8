"""Where are rows kept that were set aside, and when do they count?

They are kept beside the table while a run prepares, under labels that no other run has, and count through the receipt that names
them: a run that dies, or is refused, has set nothing aside. The receipt also tells how many rows were parsed, so that rows parsed are
rows handed on and rows set aside, for every run. Of an ingest the list goes on from publish to publish, until rows are read
again; it is kept with the marks too, so that after a restore it is the list of the version that is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twice.asides import AsideRow, bodies, decode
from twice.faults import reach
from twice.fingerprint import Inputs
from twice.keeping import keep_body
from twice.runs import Aside, Receipt
from twice.sources.filesets import FileSet
from twice.sources.intake import Intake
from twice.sources.sifting import Sifted


@dataclass(frozen=True)
class Kept:
    """How many rows were parsed, where they were counted, and what was set aside of them."""

    parsed: int | None = None
    aside: tuple[Aside, ...] = ()


def keep(store: Any, table: str, inputs: Mapping[str, Inputs], generation: int, attempt: str) -> Kept:
    """Keep the rows that were set aside while some inputs were read.

    Raises:
        NotPublished: They could not be kept.
    """
    sifted = list(_sifted(inputs))
    if not sifted:
        return Kept()
    aside = []
    for one in sifted:
        for rows, body in bodies(one.rows()):
            label = f"aside-{generation}-{attempt}-{hashlib.sha256(body).hexdigest()[:16]}"
            keep_body(store, table, label, body, "Rows that were set aside")
            aside.append(Aside(label, rows, generation))
    if aside:
        reach("aside.kept")
    return Kept(sum(one.parsed for one in sifted), tuple(aside))


def _sifted(inputs: Mapping[str, Inputs]) -> Iterator[Sifted]:
    for chosen in inputs.values():
        files = chosen.files if isinstance(chosen, Intake) else chosen
        if isinstance(files, FileSet) and files.sifted:
            yield files.sifted


def with_kept(receipt: Receipt, kept: Kept) -> Receipt:
    """Let a receipt name what was set aside."""
    return replace(receipt, parsed=kept.parsed, aside=kept.aside) if kept.parsed is not None else receipt


def rows_of(store: Any, table: str, aside: Sequence[Aside]) -> Iterator[AsideRow]:
    """Return rows that were set aside; those that somebody dropped are left out."""
    for one in aside:
        body = store.beside(table, one.label)
        if body is not None:
            yield from decode(body)


def set_aside_by(receipt: Receipt) -> int:
    """Return how many rows the newest edition of a slot set aside."""
    return sum(one.rows for one in receipt.aside if one.generation == receipt.generation)
