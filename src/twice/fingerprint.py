"""What went into a run?

A fingerprint is a digest of the inputs: for files their relative paths, sizes and content, for
tables their version, for anything else what the user declares. It decides between *skipped* and a
new generation. Code is not part of it: its digest is a field of its own.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from twice.abilities import Rows
from twice.runs import Slot, digest

UNDECLARED = ""


@dataclass(frozen=True)
class Place:
    """Where a source is resolved: for which slot, in which zone, under which root."""

    root: str
    slot: Slot
    zone: str
    hashes: HashMemory
    look: Callable[[str], Any]


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


class Source(Protocol):
    """Where a pipeline's rows come from."""

    def resolve(self, place: Place) -> Inputs:
        """Choose the inputs of a slot."""


def fingerprint_of(inputs: Mapping[str, Inputs], parameters: Mapping[str, Any]) -> str:
    """Digest the inputs of all sources and the declared parameters."""
    facts = {"inputs": {name: chosen.facts for name, chosen in inputs.items()}, "parameters": dict(parameters)}
    return digest(json.dumps(facts, sort_keys=True, default=str))


def code_digest(function: Callable[..., Any]) -> str:
    """Digest what a function does, ignoring comments, layout and decorators."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        code = getattr(function, "__code__", None)
        return digest(repr((code.co_code, code.co_consts, code.co_names)) if code else repr(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list = []
    return digest(ast.dump(tree))
