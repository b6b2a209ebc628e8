"""How is a file of pipelines read without loading Spark?

People write `from pyspark.sql import functions as F` at the top of their files, and importing
PySpark takes longer than deciding that there is nothing to do. So a file is first read with
stand-ins for PySpark's modules: enough for declarations, useless for work. Anything that a
stand-in cannot answer, and any pipeline that holds one, makes the file be read in full instead;
and before a transform is called, its file is read in full too.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

_one_at_a_time = threading.RLock()
_DEFERRED = ("pyspark", "delta", "pyarrow", "pandas")


class StandIn:
    """Stands for something of PySpark in a file that is only read for its declarations."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self._name}.{name}")

    def __call__(self, *_: Any, **__: Any) -> StandIn:
        """Stand for whatever the call would have returned."""
        return StandIn(f"{self._name}(...)")

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"

    def _refuse(self, *_: Any) -> Any:
        raise TypeError(f"{self!r} has no value")

    # Whatever would turn it into a text or a decision has to be read in full.
    __str__ = __format__ = __bool__ = __len__ = __iter__ = __eq__ = __hash__ = _refuse


class _Module(ModuleType):
    """A module of which every name is a stand-in."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.__name__}.{name}")


class _Finder(MetaPathFinder, Loader):
    """Answers the imports of heavy packages with stand-ins."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _DEFERRED:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty stand-in."""
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is executed."""


@contextmanager
def without_spark(*project_folders: str) -> Iterator[bool]:
    """Import with stand-ins inside the block, and forget afterwards whatever saw one of them.

    Yields whether stand-ins are used: where PySpark is loaded already there is nothing to save.
    """
    with _one_at_a_time:
        if any(name in sys.modules for name in _DEFERRED):
            yield False
            return
        before = set(sys.modules)
        finder = _Finder()
        sys.meta_path.insert(0, finder)
        try:
            yield True
        finally:
            sys.meta_path.remove(finder)
            for name in _tainted(set(sys.modules) - before, project_folders):
                del sys.modules[name]


def _tainted(new: set[str], project_folders: Sequence[str]) -> set[str]:
    """Return the new modules that saw a stand-in, and those that took something from one that did."""
    found = {name for name in new if _saw_stand_ins(sys.modules[name], project_folders)}
    while more := {name for name in new - found if _took_from(sys.modules[name], found)}:
        found |= more
    return found


def _took_from(module: ModuleType, tainted: set[str]) -> bool:
    names = (
        value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        for value in vars(module).values()
    )
    return any(isinstance(name, str) and name in tainted for name in names)


def _saw_stand_ins(module: ModuleType, project_folders: Sequence[str]) -> bool:
    file = getattr(module, "__file__", None) or ""
    return (
        isinstance(module, _Module)
        or any(file.startswith(folder) for folder in project_folders)
        or any(isinstance(value, StandIn | _Module) for value in vars(module).values())
    )


def holds_stand_in(value: Any, depth: int = 4) -> bool:
    """Tell whether a stand-in found its way into a declaration."""
    if isinstance(value, StandIn | _Module):
        return True
    if depth and isinstance(value, functools.partial):
        return any(holds_stand_in(part, depth - 1) for part in (*value.args, *value.keywords.values()))
    if depth == 0 or callable(value):
        return False
    if isinstance(value, dict):
        return any(holds_stand_in(part, depth - 1) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return any(holds_stand_in(part, depth - 1) for part in value)
    return any(holds_stand_in(part, depth - 1) for part in getattr(value, "__dict__", {}).values())


def uses_stand_in(function: Any) -> bool:
    """Tell whether a function, called now, would meet a stand-in under one of the names that it uses."""
    known = getattr(function, "__globals__", {})
    return any(isinstance(known.get(name), StandIn | _Module) for name in _names(getattr(function, "__code__", None)))


def _names(code: CodeType | None) -> Iterator[str]:
    """Yield the names that a piece of code uses, and the code inside it."""
    if code is not None:
        yield from code.co_names
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                yield from _names(inner)
