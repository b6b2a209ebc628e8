"""Which version of a table does a slot read?

A table is pinned by its version, so it cannot move under a run. The fingerprint is the newest
version that changed rows: maintenance does not make a downstream slot stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twice.abilities import Rows, Store
from twice.caches import told_apart
from twice.errors import InputsAbsent, Misuse
from twice.fingerprint import Place
from twice.runs import Target


@dataclass(frozen=True)
class Table:
    """Rows of a table of any store, now or as of a version."""

    target: str
    version: int | None = None

    def __post_init__(self) -> None:
        Target.parse(self.target)

    @property
    def reads(self) -> tuple[str, ...]:
        """The targets that are read."""
        return (self.target,)

    @property
    def follows(self) -> tuple[str, ...]:
        """The targets whose changes are followed: not one that is read as of a version."""
        return (self.target,) if self.version is None else ()

    def resolve(self, place: Place) -> TableVersion:
        """Pin the table's version."""
        target = Target.parse(self.target)
        if target == place.slot.target:
            raise Misuse(f"The pipeline {place.slot.pipeline!r} reads its own target {self.target!r}.")
        store: Store = place.look(target.store)
        sight = store.look(target.name)
        if sight.dropped or not sight.exists:
            raise InputsAbsent(
                f"the table {self.target!r} does not exist", " yet", "Run the pipeline that writes it first."
            )
        if self.version is not None and not sight.pinned:
            raise Misuse(
                f"{self.target!r} unites several tables, so it has no version to read.", fix="Leave version= out."
            )
        if self.version is not None:
            sight.check_version(self.target, self.version)
            return TableVersion(store, target, self.version, self.version, sight.table_id)
        version = sight.version if sight.pinned else None
        return TableVersion(store, target, version, sight.data_version, sight.table_id)


@dataclass(frozen=True)
class TableVersion:
    """One version of one table; several tables under one name have none that could be read again."""

    store: Store
    target: Target
    version: int | None
    data_version: int
    table_id: str

    @property
    def facts(self) -> Any:
        """The table's name, its own id, and the version that last changed its rows."""
        return [["table", self.target.text, self.table_id, self.data_version]]

    @property
    def summary(self) -> str:
        """Name and version."""
        return f"{self.target.text} at version {self.version}" if self.version is not None else self.target.text

    def moved(self) -> list[str]:
        """A version does not change; several tables may."""
        if self.version is not None:
            return []
        return [] if self.store.look(self.target.name).data_version == self.data_version else [self.target.text]

    def read(self, engine: Any) -> Rows:
        """Read the pinned version."""
        rows = self.store.read(self.target.name, self.version)
        return told_apart(rows, self.target.text, self.table_id, self.version, self.data_version)
