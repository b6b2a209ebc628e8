"""How does a name make a write repeatable?

Rows under keys that never change are written again over themselves. So is a container (a file, a
partition, a table) that is named by the execution time of its slot: whoever writes it again replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from twice.abilities import (
    DeliversFiles,
    Delivery,
    ReplacesSlices,
    ReplacesTable,
    Rows,
    Staged,
    UnitesTables,
    Work,
)
from twice.columns import NamedColumn
from twice.errors import Misuse
from twice.patterns.data_overwrite import rows_of_others
from twice.patterns.merger import Merger
from twice.patterns.on_target import OnTarget
from twice.placeholders import names_slot, render
from twice.plans import Loss, Prepare, Stage, Step
from twice.replays import Draft
from twice.runs import Receipt, Slot, check_path
from twice.sight import Sight
from twice.slices import ColumnSlice


@dataclass(frozen=True)
class KeyedRows(Merger):
    """Upsert rows under keys that are derived from what never changes."""

    name: ClassVar[str] = "keyed"


@dataclass(frozen=True)
class _KeyedContainer(OnTarget):
    """What the containers have in common: one slot, one container, in any order."""

    name: ClassVar[str] = "keyed"
    compares_head: ClassVar[bool] = False
    in_order: ClassVar[bool] = False
    appends: ClassVar[bool] = False

    def action(self, before: Receipt | None) -> str:
        """The container is new, or takes the place of its older edition."""
        return "replace" if before else "create"


@dataclass(frozen=True)
class KeyedPartition(_KeyedContainer):
    """A partition named by execution time: a column that the pattern fills.

    Attributes:
        by: The column; it holds the day of the slot, its first moment, or its key.
    """

    by: str = "slot"

    @property
    def names(self) -> tuple[NamedColumn, ...]:
        """The column that the pattern itself fills."""
        return (NamedColumn(self.by, "by=", in_rows=False),)

    @property
    def requires(self) -> tuple[type, ...]:
        """A store that can replace a slice."""
        return (ReplacesSlices,)

    def losses(self, slot: Slot, base: Sight) -> tuple[Loss, ...]:
        """Of a partition, what Twice did not write."""
        return rows_of_others(base)

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Write the rows with their partition."""
        bounds = ColumnSlice(self.by, slot, zone)

        def act(store: Any, work: Work, rows: Rows) -> Staged:
            staged: Staged = store.stage_slice(work, store.labelled(rows, self.by, bounds.label), bounds)
            return staged

        return Stage("stage", f"write the rows with {bounds.text} where no reader looks", act=act)

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step does."""
        text = ColumnSlice(self.by, slot, zone).text
        return Step("publish", f"replace the partition {text} and its receipt in one commit")


@dataclass(frozen=True)
class KeyedTable(_KeyedContainer):
    """A table named by execution time, behind a view that unites them.

    Attributes:
        named: The table's name, with placeholders of the slot.
        by: Column of the view that holds the name.
        tables_at_most: How many tables the view may unite.
    """

    named: str = "{start:%Y%m%d}"
    by: str = "table_name"
    tables_at_most: int = 1000

    def __post_init__(self) -> None:
        _check_names_slot(self.named)

    @property
    def requires(self) -> tuple[type, ...]:
        """A store that unites tables and replaces one."""
        return (UnitesTables, ReplacesTable)

    def _rendered(self, slot: Slot, zone: str) -> str:
        return _one_name(render(self.named, slot.part, zone))

    def table(self, slot: Slot, zone: str) -> str:
        """The slot's own table."""
        return f"{slot.target.name}/{self._rendered(slot, zone)}"

    def prepare(self, slot: Slot, zone: str) -> tuple[Prepare, ...]:
        """The view names the table before it is filled."""
        view, name = slot.target.name, self._rendered(slot, zone)

        def open_table(store: Any) -> None:
            store.open_member(view, name, self.by, self.tables_at_most, slot.pipeline)

        return (Prepare("view.open", f"let the view {slot.target.text} name the table {name}", act=open_table),)

    def refusal(self, slot: Slot, base: Sight, *, forced: bool) -> str:
        """Two slots under one name would replace each other for ever."""
        others = sorted(set(base.receipts) - {slot.text})
        return f"The name {self.named!r} is that of {Slot.parse(others[0]).label} as well." if others else ""

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Write the whole table."""

        def act(store: Any, work: Work, rows: Rows) -> Staged:
            staged: Staged = store.stage_table(work, store.like_siblings(work, rows))
            return staged

        return Stage("stage", "write the table where no reader looks", act=act)

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step does."""
        return Step("publish", f"replace the table {self._rendered(slot, zone)} and its receipt in one commit")


@dataclass(frozen=True)
class KeyedFile(_KeyedContainer):
    """A file named by execution time, delivered whole or not at all.

    Attributes:
        named: The file's name, with placeholders of the slot; its ending tells the format.
        delivery: Format, header and marker.
    """

    named: str
    delivery: Delivery

    def __post_init__(self) -> None:
        _check_names_slot(self.named)

    @property
    def requires(self) -> tuple[type, ...]:
        """A store that delivers files."""
        return (DeliversFiles,)

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Write the file where no reader looks."""
        name = _one_name(render(self.named, slot.part, zone))

        def act(store: Any, work: Work, rows: Rows) -> Staged:
            staged: Staged = store.stage_file(work, rows, name, self.delivery)
            return staged

        return Stage("stage", "write the file where no reader looks", act=act)

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step does."""
        name = render(self.named, slot.part, zone)
        marker = f", then {name}{self.delivery.marker}" if self.delivery.marker else ""
        return Step("publish", f"record the receipt and give the file its name {name}{marker}")


def format_by_ending(name: str) -> str:
    """Tell the format of a file by its name."""
    ending = name.rpartition(".")[2].lower()
    return "jsonl" if ending in ("json", "jsonl", "ndjson") else ending


def _check_names_slot(template: str) -> None:
    check_path("The name", template)
    if not names_slot(template):
        raise Misuse(
            f"The name {template!r} is the same for every slot.",
            fix="Put a placeholder in it, such as {execution_date}.",
        )


def _one_name(name: str) -> str:
    """Refuse a name that would leave its folder, or hide from readers."""
    if "/" in name or name.startswith((".", "_")) or not name or len(name.encode()) > _NAME_BYTES or "\0" in name:
        raise Misuse(
            f"{name!r} cannot name a container.", fix="Leave out '/' and a leading '.' or '_'; 200 bytes at most."
        )
    return name


_NAME_BYTES = 200
