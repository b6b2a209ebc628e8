"""Where is a table of PostgreSQL published, whole and with its receipt? The store is in `store`."""

from twice.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
