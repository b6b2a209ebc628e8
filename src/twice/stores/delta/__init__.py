"""Delta Lake tables, by path and by catalog name."""

from twice.stores.delta.store import DeltaStore

__all__ = ["DeltaStore"]
