"""Which files of a table are not as they were written, and how does it go on without what was in them?

A look compares each file with the size that the manifest gives. The slots of one that is gone, or has another size, are
no longer vouched for. A slot is published again by force; files that were taken in are not read again, so an ingest can
only go on with what is left. Whoever accepts that gets a version that names the files as they are: what is gone is left
out, what was changed is measured anew. It is a change from outside like any other: nothing in it is vouched for until
more is published.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from twice.errors import NotPublished
from twice.sources.marking import content_hash
from twice.stores import footers
from twice.stores import manifest as log
from twice.stores.durable import sync_file
from twice.stores.manifest import DataFile, Manifest


def damage(table: str, current: Manifest) -> dict[str, str]:
    """Name the slots that have lost a file, or have one of another size."""
    return ended_by(damaged_files(table, current), current)


def damaged_files(table: str, current: Manifest) -> dict[DataFile, str]:
    """Return the files that are not as they were written, with what became of them."""
    return {file: why for file in current.files if (why := damage_of(table, file))}


def ended_by(damaged: Mapping[DataFile, str], current: Manifest) -> dict[str, str]:
    """Name the slots that have lost a file; a merged file has rows of any slot."""
    return {slot: why for file, why in damaged.items() for slot in _slots_of(file, current)}


def damage_of(table: str, file: DataFile) -> str:
    """Say what became of a file, or nothing."""
    try:
        size = os.path.getsize(os.path.join(table, file.path))
    except OSError:
        return f"its file {file.path} is gone"
    return f"its file {file.path} has {size} bytes instead of {file.size}" if size != file.size else ""


def outside(ended: Mapping[str, str]) -> str:
    """Name the changes by which slots are no longer vouched for."""
    return "; ".join(sorted(set(ended.values())))


def accepted(manifest: Manifest) -> dict[str, str]:
    """Return the slots of which a version has what somebody accepted: their own edition, and not vouched for."""
    own = {slot: found.generation for slot, found in manifest.receipts.items()}
    return {slot: why for slot, why in manifest.ended.items() if manifest.older.get(slot) == own[slot]}


def named_as_they_are(table: str, current: Manifest) -> Manifest | None:
    """Return the next version, in which all files are as they were found; None if they are as they were written.

    Raises:
        NotPublished: A file holds no rows that could be taken as they are.
    """
    ended = damage(table, current)
    if not ended:
        return None
    following = log.successor(current, "accept")
    # Of slots whose rows were there, some may still be.
    there = {slot: found.generation for slot, found in current.receipts.items() if slot not in current.ended}
    return replace(
        following,
        files=tuple(filter(None, (_as_it_is(table, file, current.schema) for file in current.files))),
        ended={**current.ended, **ended},
        older={**there, **current.older},
        data_version=following.version,
    )


def _as_it_is(table: str, file: DataFile, schema: str) -> DataFile | None:
    """Measure a file anew if it was changed; one that is gone is none."""
    path = os.path.join(table, file.path)
    if not damage_of(table, file):
        return file
    if not os.path.lexists(path):
        return None
    if not footers.holds_columns(path, [field["name"] for field in json.loads(schema)["fields"]]):
        raise NotPublished(
            f"{path} is no Parquet file with the table's columns any more, so there are no rows in it to be accepted.",
            "Nothing was published, and the target is as it was.",
            "Put the file back from a backup. Or remove it, and use --accept again: its rows are then left out.",
        )
    # Spark refuses to read a file whose checksum beside it is that of another content.
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.crc"))
    # Whoever wrote it may not have waited for the disk.
    sync_file(path)
    return replace(file, size=os.path.getsize(path), content=content_hash(path))


def _slots_of(file: DataFile, current: Manifest) -> list[str]:
    return [file.slot] if file.slot else list(current.receipts)
