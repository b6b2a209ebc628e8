"""Which stores are there, and how is one found by its kind?

Built-in stores are loaded when they are named, so that one store never pays for another's
packages. Third parties add a kind through the entry point group `twice.stores`.
"""

from __future__ import annotations

import importlib

from twice.abilities import Opening, Store
from twice.errors import Misuse, suggestion

BUILT_IN = {
    "memory": "twice.stores.memory:MemoryStore",
    "parquet": "twice.stores.parquet:ParquetStore",
    "delta": "twice.stores.delta:DeltaStore",
    "files": "twice.stores.files:FilesStore",
    "postgres": "twice.stores.postgres:PostgresStore",
}
GROUP = "twice.stores"


def store_class(kind: str) -> type[Store]:
    """Return the class of a kind of store.

    Raises:
        Misuse: No such kind is installed.
    """
    path = BUILT_IN.get(kind) or _third_party().get(kind)
    if path is None:
        raise Misuse(f"There is no store {kind!r}.", fix=suggestion(kind, [*BUILT_IN, *_third_party()]))
    module, _, name = path.partition(":")
    found: type[Store] = getattr(importlib.import_module(module), name)
    return found


def kinds() -> list[str]:
    """Return all kinds that are installed."""
    return [*BUILT_IN, *sorted(set(_third_party()) - set(BUILT_IN))]


def is_kind(kind: str) -> bool:
    """Tell whether a kind is installed; those of others are looked for only where it is none of ours."""
    return kind in BUILT_IN or kind in _third_party()


def _third_party() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=GROUP)}


def make_store(kind: str, opening: Opening) -> Store:
    """Open a store of a kind."""
    return store_class(kind).opened(opening)
