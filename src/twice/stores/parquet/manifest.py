"""Which files are the table, and what proves it?

A table is a folder with data files and a log of manifests, `_twice/log/00000007.json`. A manifest
names every file of the table with its slot, size and hash, and carries all receipts forward. The
highest number is the table. Version *n + 1* is created by linking a whole file to a free name, so
of two writers that saw version *n* one succeeds. A number is never used twice: a manifest that is
past its keeping becomes an empty tombstone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from twice.errors import Conflict, Fenced
from twice.runs import Receipt
from twice.sight import NO_TABLE
from twice.stores.durable import create_whole, sync_folders

LOG = os.path.join("_twice", "log")
FORMAT = 1


@dataclass(frozen=True)
class DataFile:
    """One file of the table."""

    path: str
    size: int
    content: str
    slot: str
    partition: str = ""


@dataclass(frozen=True)
class Manifest:
    """One version of the table."""

    version: int = NO_TABLE
    table_id: str = ""
    owner: str = ""
    schema: str = ""
    files: tuple[DataFile, ...] = ()
    receipts: Mapping[str, Receipt] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)
    swept: tuple[str, ...] = ()
    data_version: int = NO_TABLE
    made_by: str = ""

    def to_bytes(self) -> bytes:
        """The manifest as it stands on disk: JSON, readable by other tools."""
        values = {
            "format": FORMAT,
            "version": self.version,
            "table_id": self.table_id,
            "owner": self.owner,
            "made_by": self.made_by,
            "data_version": self.data_version,
            "schema": self.schema,
            "files": [asdict(file) for file in self.files],
            "receipts": [receipt.to_json() for receipt in self.receipts.values()],
            "ended": dict(self.ended),
            "swept": list(self.swept),
        }
        return json.dumps(values, indent=1).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Manifest:
        """Read a manifest.

        Raises:
            Fenced: It was written by a newer Twice.
        """
        values: dict[str, Any] = json.loads(content)
        if values["format"] > FORMAT:
            raise Fenced("The table's manifest was written by a newer Twice.", fix="Upgrade Twice here.")
        receipts = [Receipt.from_json(receipt) for receipt in values["receipts"]]
        return cls(
            version=values["version"],
            table_id=values["table_id"],
            owner=values["owner"],
            made_by=values["made_by"],
            data_version=values["data_version"],
            schema=values["schema"],
            files=tuple(DataFile(**file) for file in values["files"]),
            receipts={receipt.slot: receipt for receipt in receipts},
            ended=values["ended"],
            swept=tuple(values["swept"]),
        )


def log_folder(table: str) -> str:
    """Where a table's manifests are."""
    return os.path.join(table, LOG)


def manifest_path(table: str, version: int) -> str:
    """Where one version's manifest is."""
    return os.path.join(log_folder(table), f"{version:08}.json")


def versions(table: str) -> list[int]:
    """Return the numbers of all manifests and tombstones, oldest first."""
    try:
        names = os.listdir(log_folder(table))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def newest(table: str) -> Manifest:
    """Return the newest manifest, or an empty one with the version `NO_TABLE`."""
    found = versions(table)
    return load(table, found[-1]) if found else Manifest()


def load(table: str, version: int) -> Manifest:
    """Return one version's manifest.

    Raises:
        Fenced: The version is past its keeping, or never was.
    """
    try:
        with open(manifest_path(table, version), "rb") as file:
            content = file.read()
    except FileNotFoundError:
        content = b""
    if not content:
        raise Fenced(f"Version {version} of the table is not kept any more.", fix="Read a newer version.")
    return Manifest.from_bytes(content)


def append(table: str, manifest: Manifest) -> None:
    """Make a manifest the newest version, if its number is free.

    Raises:
        Conflict: Someone else has made that version; nothing of this one is visible.
    """
    folder = log_folder(table)
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
        sync_folders([os.path.dirname(folder), table, os.path.dirname(table)])
    try:
        create_whole(manifest_path(table, manifest.version), manifest.to_bytes(), "parquet.manifest")
    except FileExistsError:
        raise Conflict(f"version {manifest.version} exists") from None


def bury(table: str, version: int) -> None:
    """Turn a manifest into a tombstone, so that its number is never used again."""
    temporary = f"{manifest_path(table, version)}.{os.getpid()}.tombstone"
    with open(temporary, "wb"):
        pass
    os.replace(temporary, manifest_path(table, version))


def successor(base: Manifest, made_by: str) -> Manifest:
    """Return the next version with nothing changed yet."""
    return replace(base, version=base.version + 1, made_by=made_by)
