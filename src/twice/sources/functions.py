"""How do rows come from a function of the user's?

From an API, a database, a generator: whatever Twice does not know. The function gives the rows, and
a declared fingerprint says when they are other rows.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from twice.abilities import Rows
from twice.caches import told_apart
from twice.errors import SourceFailed
from twice.fingerprint import Place, code_digest
from twice.sources.declared import Answer, Declared, called, check_parameters, name_of


@dataclass(frozen=True)
class Function:
    """Rows that a function returns, with a declared fingerprint.

    The function is given `spark` and `run`, whichever it has a parameter for. Spark is started for
    it only if it asks.
    """

    read: Callable[..., Any] = field(repr=False)
    fingerprint: Declared
    code: str = field(init=False)

    def __post_init__(self) -> None:
        check_parameters(self.read, "read", ("spark", "run"))
        object.__setattr__(self, "code", code_digest(self.read))

    @property
    def name(self) -> str:
        """What people call the source."""
        return name_of(self.read)

    def resolve(self, place: Place) -> FunctionInputs:
        """Ask for the fingerprint."""
        return FunctionInputs(self, self.fingerprint.ask(place))


@dataclass(frozen=True)
class FunctionInputs:
    """What a function will read for one slot, as far as its fingerprint tells."""

    source: Function
    answer: Answer

    @property
    def facts(self) -> Any:
        """The declared fingerprint."""
        return [["function", self.answer.facts]]

    @property
    def summary(self) -> str:
        """Name and fingerprint."""
        return f"{self.source.name}, {self.answer.summary}"

    def moved(self) -> list[str]:
        """Ask for the fingerprint again."""
        return [self.source.name] if self.answer.moved() else []

    def with_source(self, source: Any) -> FunctionInputs:
        """Return the same inputs, to be read by the function of a file that was read in full."""
        return replace(self, source=source)

    def read(self, engine: Any) -> Rows:
        """Call the function. What it reads may be other rows each time: no frame of it is taken for an earlier one.

        Raises:
            SourceFailed: It raised, or returned nothing.
        """
        name = f"the source function {self.source.name!r}"
        offered = {"spark": lambda: engine.spark, "run": lambda: self.answer.place.run}
        rows = called(self.source.read, offered, name)
        if rows is None:
            raise SourceFailed(
                f"The source function {self.source.name!r} returned nothing.",
                "Nothing was published, and the target is as it was.",
                "Return the rows.",
            )
        return told_apart(rows, secrets.token_hex(16))
