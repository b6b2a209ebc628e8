"""What is the simplest store that keeps every promise? It is in `store`."""

from twice.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
