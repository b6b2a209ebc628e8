"""Which files are the table, which tables are the view, and what proves it?

A table is a folder with data files and a log of manifests, `_twice/log/00000007.json`. A manifest
names every file of the table with its slot, size and hash, and carries all receipts forward. The
manifest of a view names tables instead. The highest number is the table. Version *n + 1* is created by linking a whole file to a free name, so
of two writers that saw version *n* one succeeds. A number is never used twice: a manifest that is
past its keeping becomes an empty tombstone.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from twice.abilities import Work
from twice.errors import Conflict, Fenced
from twice.faults import reach
from twice.runs import Receipt
from twice.sight import NO_TABLE, Sight
from twice.stores.durable import create_whole, sync_way_to

LOG = os.path.join("_twice", "log")
FORMAT = 1
TABLE, VIEW = "table", "view"


@dataclass(frozen=True)
class DataFile:
    """One file of the table."""

    path: str
    size: int
    content: str
    slot: str
    partition: str = ""


@dataclass(frozen=True)
class Member:
    """One table behind a view.

    Attributes:
        name: Its folder under the view's.
        label: The period that it holds, or empty.
        covers: Labels of the periods that were frozen into it.
        slot: The slot that filled it, where it was filled once and for all.
        generation: The edition of that slot.
        rows: How many rows it was filled with.
        made_at: When it was made.
        files: Its files, where the store has no other log of them.
        schema: Its columns, likewise.
    """

    name: str
    label: str = ""
    covers: tuple[str, ...] = ()
    slot: str = ""
    generation: int = 0
    rows: int = 0
    made_at: str = ""
    files: tuple[DataFile, ...] = ()
    schema: str = ""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Member:
        """Read a member."""
        files = tuple(DataFile(**file) for file in values["files"])
        return cls(**{**values, "files": files, "covers": tuple(values["covers"])})


@dataclass(frozen=True)
class Manifest:
    """One version of the table, or of the view.

    A view shows its `current` member, or all `members` with their label in the column `by`. `keep_days`
    is how long older versions are kept at least; `older` are slots that are in it in an older edition, or with files that
    were accepted as they are.
    """

    version: int = NO_TABLE
    table_id: str = ""
    owner: str = ""
    schema: str = ""
    files: tuple[DataFile, ...] = ()
    receipts: Mapping[str, Receipt] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)
    swept: tuple[str, ...] = ()
    keep_days: int = 0
    older: Mapping[str, int] = field(default_factory=dict)
    data_version: int = NO_TABLE
    made_by: str = ""
    kind: str = TABLE
    members: tuple[Member, ...] = ()
    current: str = ""
    by: str = ""
    sealed: str = ""
    writer: str = ""

    @property
    def is_view(self) -> bool:
        """Tell whether this names tables instead of files."""
        return self.kind == VIEW

    def member(self, name: str) -> Member | None:
        """Return a member by its name."""
        return next((member for member in self.members if member.name == name), None)

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
            "keep_days": self.keep_days,
            "older": dict(self.older),
        }
        if self.is_view:
            values |= {
                "kind": self.kind,
                "members": [asdict(member) for member in self.members],
                "current": self.current,
                "by": self.by,
                "sealed": self.sealed,
                "writer": self.writer,
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
            keep_days=values.get("keep_days", 0),
            older=values.get("older", {}),
            kind=values.get("kind", TABLE),
            members=tuple(Member.from_json(member) for member in values.get("members", ())),
            current=values.get("current", ""),
            by=values.get("by", ""),
            sealed=values.get("sealed", ""),
            writer=values.get("writer", ""),
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


def kept(table: str, version: int) -> Manifest | None:
    """Return one version's manifest, or nothing if it is past its keeping."""
    try:
        return load(table, version)
    except Fenced:
        if os.path.exists(path := manifest_path(table, version)) and os.path.getsize(path):
            raise
        return None


def append(table: str, manifest: Manifest) -> None:
    """Make a manifest the newest version, if its number is free.

    Raises:
        Conflict: Someone else has made that version; nothing of this one is visible.
    """
    folder = log_folder(table)
    if len(versions(table)) == 0:
        os.makedirs(folder, exist_ok=True)
        sync_way_to(folder)
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


Change = Callable[["Manifest", "Manifest"], "Manifest"]


def publish(table: str, work: Work, receipts: Sequence[Receipt], change: Change) -> None:
    """Make the next version, on exactly the one that it is computed from.

    `change` gets the newest version, and the next with the receipts in it already. It is called again when another
    slot moved the log meanwhile: its version is read, and all is compared, once more.

    Raises:
        Conflict: The plan saw something else, and nothing landed.
    """
    while True:
        base = newest(table)
        compare(base, work, receipts)
        following = change(base, _with_receipts(base, work, receipts))
        try:
            append(table, following)
        except Conflict:
            reach("manifest.rebase")
            continue
        return


def compare(base: Manifest, work: Work, receipts: Sequence[Receipt]) -> None:
    """The slot rule and, where the plan was computed from the whole table, the head rule."""
    for receipt in receipts:
        known = base.receipts.get(receipt.slot)
        if (known.generation if known else 0) + 1 != receipt.generation:
            raise Conflict("the slot's fence moved")
    if work.attempt in base.swept:
        raise Conflict("the attempt's staging was swept")
    if base.owner not in ("", receipts[0].owner):
        raise Conflict("another ledger took the table")
    if work.compares_head and base.version != work.base.version:
        raise Conflict("the head moved")


def _with_receipts(base: Manifest, work: Work, receipts: Sequence[Receipt]) -> Manifest:
    """Return the next version with nothing new but its receipts."""
    following = successor(base, f"publish {work.attempt}")
    new = {receipt.slot: replace(receipt, first_version=following.version) for receipt in receipts}
    return replace(
        following,
        table_id=base.table_id or uuid.uuid4().hex,
        owner=receipts[0].owner,
        keep_days=work.keep_days or base.keep_days,
        receipts={**base.receipts, **new},
        ended={slot: why for slot, why in base.ended.items() if slot not in new},
        older={slot: generation for slot, generation in base.older.items() if slot not in new},
    )


def take_over(table: str, base: Sight, owner: str, keep_days: int = 0) -> None:
    """Make a version that differs in its owner alone, and in how long older ones are kept."""
    current = newest(table)
    if current.version != base.version:
        raise Conflict("the table moved")
    kept = max(keep_days, current.keep_days)
    append(table, replace(successor(current, "adopt"), owner=owner, keep_days=kept))
