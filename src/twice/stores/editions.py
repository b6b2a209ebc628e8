"""Which change rows that are kept count for nothing?

Those under a name that no receipt of the target names: an attempt that died or lost left them, or a newer edition of
their slot took their place. What a live attempt has kept is left alone, and what was kept of late.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from twice.abilities import LiveAttempts
from twice.faults import reach
from twice.runs import is_of
from twice.sight import Sight


def now() -> str:
    """Return the time as it is noted of rows that are kept."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def says_all(sight: Sight) -> bool:
    """Tell whether every receipt says which change rows are its own; one that went with a cleaned log does not."""
    return all(receipt.history for receipt in sight.receipts.values())


def uncounted(kept: Mapping[str, str], sight: Sight, live: LiveAttempts, keep_days: float) -> tuple[str, ...]:
    """Return the names that may go, of those under which rows are kept since some moment; very old ones do not tell it."""
    if not says_all(sight):
        return ()
    reach("sweep.listed")
    alive = live()
    named = {name for receipt in sight.receipts.values() for name in (receipt.history, receipt.adopted)}
    limit = datetime.now(UTC) - timedelta(days=keep_days)
    return tuple(
        sorted(
            name
            for name, moment in kept.items()
            if name not in named and not is_of(name, alive) and (not moment or datetime.fromisoformat(moment) < limit)
        )
    )


def left(error: Exception) -> str:
    """Say that nothing was taken away."""
    return f"change rows were left for the next tidy: {error}"
