"""Plain Parquet files behind a log of manifests."""

from twice.stores.parquet.store import ParquetStore

__all__ = ["ParquetStore"]
