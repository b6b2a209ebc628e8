"""How is a dataset replaced without ever changing what was published before?

Each publish fills a new table that never changes again, and lets the one name that readers know point
at it. Pointing back is as quick as pointing forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from twice.abilities import PointsAtVersions, Rows, Staged, Work
from twice.errors import Misuse
from twice.patterns.data_overwrite import newer_slot
from twice.patterns.on_target import OnTarget
from twice.plans import Loss, Stage, Step
from twice.replays import Draft
from twice.runs import Receipt, Slot
from twice.sight import Sight


@dataclass(frozen=True)
class Proxy(OnTarget):
    """Write a new immutable version, and point the name at it.

    Attributes:
        keep: How many versions are kept; the one behind the name is never dropped. None keeps all.
    """

    name: ClassVar[str] = "proxy"
    points: ClassVar[bool] = True
    compares_head: ClassVar[bool] = True
    in_order: ClassVar[bool] = True
    appends: ClassVar[bool] = False

    keep: int | None = None

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep < 1:
            raise Misuse(f"keep={self.keep} leaves no version.", fix="Keep one or more, or leave it out to keep all.")

    @property
    def requires(self) -> tuple[type, ...]:
        """A store that can point a name at versions."""
        return (PointsAtVersions,)

    def superseded(self, slot: Slot, base: Sight) -> str:
        """Name the newer slot behind the name, for a walk over slots that were published before."""
        return newer_slot(slot, base) if slot.text in base.ended else ""

    def refusal(self, slot: Slot, base: Sight, *, forced: bool) -> str:
        """An older slot must not take the name from a newer one unasked."""
        newer = "" if forced else newer_slot(slot, base)
        return f"The name points at the newer slot {newer}, which this older one would replace." if newer else ""

    def action(self, before: Receipt | None) -> str:
        """A new version, always; what readers see is replaced."""
        return "replace" if before else "create"

    def losses(self, slot: Slot, base: Sight) -> tuple[Loss, ...]:
        """Versions that are not kept any more."""
        return (Loss(f"versions before the newest {self.keep}", asks=False),) if self.keep and base.exists else ()

    def stage(self, slot: Slot, zone: str, draft: Draft | None) -> Stage:
        """Fill a table where no view names it."""

        def act(store: Any, work: Work, rows: Rows) -> Staged:
            staged: Staged = store.stage_version(work, rows, self.keep)
            return staged

        return Stage("stage", "write a new version where no reader looks", act=act)

    def publish(self, slot: Slot, zone: str) -> Step:
        """Say what the one visible step does."""
        kept = f"; the newest {self.keep} versions are kept" if self.keep else ""
        return Step("publish", f"point {slot.target.text} at the new version, with the slot's receipt{kept}")
