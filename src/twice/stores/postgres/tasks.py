"""How do Spark's tasks put their rows where the driver can publish them?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twice.abilities import Work
from twice.stores.postgres.names import Name
from twice.stores.postgres.sources import Source


def staged(url: str, name: Name, work: Work, rows: Any, types: Mapping[str, str]) -> Source:
    """Write the rows of a frame in one pass."""
    return Source(types, rows.toArrow())
