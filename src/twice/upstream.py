"""Which pipelines write what another one reads, and which published slots were made from other inputs than there are now?

A pipeline that reads a table of a store comes after the one whose target that table is. Files and
catalogs say nothing about who wrote them, so they give no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from types import SimpleNamespace
from typing import TYPE_CHECKING

from twice.errors import Misuse, TwiceError
from twice.fingerprint import fingerprint_of, gone_of
from twice.runs import Receipt, Slot, Target

if TYPE_CHECKING:
    from twice.pipelines import Pipeline
    from twice.project import Project


def upstream_of(pipeline: Pipeline, others: Iterable[Pipeline]) -> list[Pipeline]:
    """Return the pipelines whose targets a pipeline follows, or tables under them."""
    reads = {Target.parse(text) for source in pipeline.sources.values() for text in getattr(source, "follows", ())}
    return [other for other in others if other is not pipeline and any(_writes(other, table) for table in reads)]


def _writes(pipeline: Pipeline, table: Target) -> bool:
    """Tell whether a table is a pipeline's target, or one of several tables under it."""
    target = pipeline.target
    return table.store == target.store and f"{table.name}/".startswith(f"{target.name}/")


def upstream_first(pipelines: Iterable[Pipeline]) -> list[Pipeline]:
    """Put pipelines in an order in which none reads what a later one writes.

    Raises:
        Misuse: Some of them read each other's targets.
    """
    named = {pipeline.name: pipeline for pipeline in pipelines}
    needs = {name: [other.name for other in upstream_of(one, named.values())] for name, one in named.items()}
    try:
        return [named[name] for name in TopologicalSorter(needs).static_order()]
    except CycleError as error:
        circle = " reads ".join(repr(name) for name in reversed(error.args[1]))
        raise Misuse(
            f"These pipelines read each other's targets: {circle}.",
            "None of them could be run first; nothing was started.",
            "Let one of them read something else, or run them by name.",
        ) from None


@dataclass
class Compared:
    """Published slots whose inputs are not what they were: a run publishes the stale ones anew, and can none of those that are gone."""

    stale: list[Slot] = field(default_factory=list)
    gone: dict[Slot, str] = field(default_factory=dict)


def compared(project: Project, pipeline: Pipeline, published: Mapping[Slot, Receipt]) -> Compared:
    """Compare what published slots were made from with what there is now, and their code where that counts.

    A slot whose inputs cannot be told is left out. Of an ingest the files tell, each for itself.
    """
    found = Compared()
    if pipeline.tracked:
        return found
    # However many slots read a table, it is looked at once.
    look = cache(lambda store, name: project.store(store).look(name))
    for slot, receipt in published.items():
        place = replace(
            project.place(slot, pipeline.zone, pipeline.schedule),
            look=lambda store: SimpleNamespace(look=partial(look, store)),
        )
        other_code = pipeline.on_code_change == "rerun" and receipt.code != pipeline.code
        try:
            inputs = {name: source.resolve(place) for name, source in pipeline.sources.items()}
            fingerprint = fingerprint_of(inputs, project.job(pipeline, slot).parameters)
            gone = gone_of(inputs, fingerprint, receipt)
        except TwiceError as error:
            fingerprint, gone = receipt.fingerprint, getattr(error, "absent", "")
        if gone:
            found.gone[slot] = gone
        elif other_code or receipt.fingerprint != fingerprint:
            found.stale.append(slot)
    return found
