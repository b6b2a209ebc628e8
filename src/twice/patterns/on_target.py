"""What do patterns have in common that write one slot to the target itself?

Most of what a pattern could say, they leave out: one table, no companions, no steps before the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from twice.abilities import Staged, Work
from twice.columns import NamedColumn
from twice.plans import Loss, Prepare
from twice.replays import Draft
from twice.runs import Slot
from twice.sight import Past, Sight


class OnTarget:
    """A pattern that publishes one slot to the target itself."""

    points: ClassVar[bool] = False
    builds_on_all: ClassVar[bool] = False
    takes_in: ClassVar[bool] = False
    adds_up: ClassVar[bool] = True
    keep_days: int = 0

    @property
    def names(self) -> tuple[NamedColumn, ...]:
        """There are none."""
        return ()

    @property
    def conditions(self) -> tuple[str, ...]:
        """There are none."""
        return ()

    @property
    def keeps_history(self) -> bool:
        """Rows are kept in the target alone."""
        return False

    @property
    def shows_each(self) -> bool:
        """Readers see the result alone."""
        return False

    def table(self, slot: Slot, zone: str) -> str:
        """The target itself."""
        return slot.target.name

    def companions(self, slot: Slot, base: Sight, *, forced: bool) -> tuple[Slot, ...]:
        """A slot is done by itself."""
        return ()

    def draft(
        self, slot: Slot, base: Sight, companions: Sequence[Slot], past: Callable[[], Past], *, forced: bool
    ) -> Draft | None:
        """A slot is done on what is there."""
        return None

    def prepare(self, slot: Slot, zone: str) -> tuple[Prepare, ...]:
        """Nothing comes before the rows."""
        return ()

    def superseded(self, slot: Slot, base: Sight) -> str:
        """No later slot takes the place of an earlier one."""
        return ""

    def refusal(self, slot: Slot, base: Sight, *, forced: bool) -> str:
        """Any slot may be published at any time."""
        return ""

    def notes(self, slot: Slot, base: Sight) -> tuple[str, ...]:
        """Nothing of an older edition remains."""
        return ()

    def losses(self, slot: Slot, base: Sight) -> tuple[Loss, ...]:
        """Only what the slot published before leaves."""
        return ()

    def judge(self, staged: Staged, work: Work) -> Staged:
        """Whatever could be staged may be published."""
        return staged
