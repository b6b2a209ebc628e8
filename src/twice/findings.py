"""What was found wrong, or worth knowing, about a pipeline?

A finding is plain data: a check makes it, a person reads it, a monitor counts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

WRONG = "wrong"
NOTICE = "notice"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Finding:
    """One thing that somebody should look at.

    Attributes:
        check: The question that was asked, such as `duplicates` or `proofs`.
        severity: `wrong` if the table or its records are not what they should be, else `notice`.
        pipeline: The pipeline that it is about.
        target: The target that the pipeline writes.
        what: What is true, in a sentence or two.
        remedy: What to do about it.
        details: The facts as plain values; of each check they have the same keys.
    """

    check: str
    severity: str
    pipeline: str
    target: str
    what: str
    remedy: str
    details: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    @property
    def is_wrong(self) -> bool:
        """Tell whether something is wrong, and not only worth knowing."""
        return self.severity == WRONG

    def as_wrong(self) -> Finding:
        """Return the same finding for somebody who does not let it pass."""
        return replace(self, severity=WRONG)

    def to_json(self) -> dict[str, Any]:
        """The finding as plain values."""
        return asdict(replace(self, details=dict(self.details)))
