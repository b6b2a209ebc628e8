"""What went into a run?

A fingerprint is a digest of the inputs: for files their relative paths, sizes and content, for
tables their version, for anything else what the user declares. It decides between *skipped* and a
new generation. Code is not part of it: its digest is a field of its own.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from twice.abilities import Rows
from twice.intervals import Schedule
from twice.runs import Reading, Receipt, Slot, digest

if TYPE_CHECKING:
    from twice.marks import Taken

UNDECLARED = ""


@dataclass(frozen=True)
class Place:
    """Where a source is resolved: for which slot of which calendar, in which zone, under which root.

    `taken` tells what the target has taken in of files that are tracked.
    """

    root: str
    slot: Slot
    zone: str
    hashes: HashMemory
    look: Callable[[str], Any]
    schedule: Schedule | None = None
    taken: Callable[[], Taken] = field(default_factory=lambda: _nothing_taken)

    @property
    def run(self) -> Reading:
        """What a function of the user's may know of the run that it is called for."""
        return Reading(self.slot, self.zone)


def _nothing_taken() -> Taken:
    from twice.marks import Taken

    return Taken(lambda _: None)


class HashMemory(Protocol):
    """Remembers the content hash of files that have not changed since it was taken."""

    def recall(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return the hashes that are known under these keys."""

    def remember(self, hashes: Mapping[str, str]) -> None:
        """Keep the hashes of these keys."""


class Inputs(Protocol):
    """What one source chose for one slot, pinned as well as the source can pin it."""

    @property
    def facts(self) -> Any:
        """What the fingerprint is made of: plain values, the same on every machine."""

    @property
    def summary(self) -> str:
        """The inputs in a few words."""

    def moved(self) -> list[str]:
        """Look a second time, and name what is no longer as it was."""

    def read(self, engine: Any) -> Rows:
        """Return the rows."""


@runtime_checkable
class CallsCode(Protocol):
    """Inputs whose rows come from a function in a file of pipelines.

    They may have been resolved while that file was read with stand-ins for PySpark.
    """

    def with_source(self, source: Any) -> Inputs:
        """Return the same inputs, to be read by the same source of the file that was read in full."""


@runtime_checkable
class MayBeAbsent(Protocol):
    """Inputs that may be nothing at all, as it was declared."""

    @property
    def absent(self) -> str:
        """Say what is not there, as a part of a sentence; empty where there is something."""


class Source(Protocol):
    """Where a pipeline's rows come from.

    One that reads targets of stores names them in `reads`, and in `follows` those whose changes it follows.
    """

    def resolve(self, place: Place) -> Inputs:
        """Choose the inputs of a slot."""


def fingerprint_of(inputs: Mapping[str, Inputs], parameters: Mapping[str, Any]) -> str:
    """Digest the inputs of all sources and the declared parameters."""
    facts = {"inputs": {name: chosen.facts for name, chosen in inputs.items()}, "parameters": dict(parameters)}
    return digest(json.dumps(facts, sort_keys=True, default=_plain))


def absent_of(inputs: Mapping[str, Inputs]) -> dict[str, str]:
    """Return what is not there, in words, by the sources that have nothing."""
    return {name: chosen.absent for name, chosen in inputs.items() if isinstance(chosen, MayBeAbsent) and chosen.absent}


def gone_of(inputs: Mapping[str, Inputs], fingerprint: str, before: Receipt | None) -> str:
    """Say which inputs a slot was published from that are not there any more, or nothing.

    Inputs that are gone are no correction: somebody moved away what was done with. Of a receipt that does not say which sources
    had nothing, all of them must be gone.
    """
    if before is None or before.fingerprint == fingerprint:
        return ""
    absent = absent_of(inputs)
    if before.absent is None and len(absent) < len(inputs):
        return ""
    return ", ".join(why for name, why in absent.items() if name not in (before.absent or ()))


def _plain(value: Any) -> Any:
    """Write a value that JSON does not know in a way that is the same in every process."""
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return str(value)


def code_digest(function: Callable[..., Any]) -> str:
    """Digest what a function does, ignoring comments, layout and decorators."""
    return digest(_code_text(function))


def _code_text(function: Any) -> str:
    declared = getattr(function, "code_text", None)
    if isinstance(declared, str):
        return declared
    if isinstance(function, functools.partial):
        return repr((_code_text(function.func), function.args, sorted(function.keywords.items())))
    function = inspect.unwrap(function)
    called = function if hasattr(function, "__code__") or isinstance(function, type) else type(function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(called)))
    except (OSError, TypeError, SyntaxError):
        return _compiled_text(getattr(function, "__code__", None)) or f"{called.__module__}.{called.__qualname__}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list = []
    return ast.dump(tree)


def _compiled_text(code: CodeType | None) -> str:
    """Write compiled code down, and the code inside it, without any address."""
    if code is None:
        return ""
    constants = [_compiled_text(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return repr((code.co_code, constants, code.co_names))
