"""Which files of a table are not as they were written, and how does it go on without what was in them?

A look compares each file with the size that the manifest gives. The slots of one that is gone, or has another size, are
no longer vouched for. Whoever accepts that gets a version that names the files as they are: what is gone is left out,
what was changed is measured anew, and the slots stay without their proof. So the table can be read and added to again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from twice.errors import NotPublished
from twice.sources.marking import content_hash
from twice.stores import footers
from twice.stores import manifest as log
from twice.stores.manifest import DataFile, Manifest


def damage(table: str, current: Manifest) -> Iterator[tuple[str, str]]:
    """Name the slots that have lost a file, or have one of another size; a merged file has rows of any slot."""
    for file in current.files:
        why = damage_of(table, file)
        if why:
            yield from ((slot, why) for slot in _slots_of(file, current))


def damaged_alone(table: str, current: Manifest) -> frozenset[str]:
    """Return the slots that have lost files of their own; of a merged file others' rows may still be there."""
    return frozenset(file.slot for file in current.files if file.slot and damage_of(table, file))


def damage_of(table: str, file: DataFile) -> str:
    """Say what became of a file, or nothing."""
    try:
        size = os.path.getsize(os.path.join(table, file.path))
    except OSError:
        return f"its file {file.path} is gone"
    return f"its file {file.path} has {size} bytes instead of {file.size}" if size != file.size else ""


def named_as_they_are(table: str, current: Manifest, slot: str) -> Manifest | None:
    """Return the next version, in which a slot's files, or all if none is named, are as they were found; None if they are.

    Raises:
        NotPublished: A file holds no rows that could be taken as they are.
    """
    meant = {
        file: why for file in current.files if (not slot or file.slot in ("", slot)) and (why := damage_of(table, file))
    }
    if not meant:
        return None
    ended = {each: why for file, why in meant.items() for each in _slots_of(file, current)}
    alone = damaged_alone(table, current)
    # Of slots that share a file with others, rows may still be there.
    still = {each: current.receipts[each].generation for each in ended if each not in alone}
    following = log.successor(current, "accept")
    return replace(
        following,
        files=tuple(filter(None, (_as_it_is(table, file) if file in meant else file for file in current.files))),
        ended={**current.ended, **ended},
        older={**still, **current.older},
        data_version=following.version,
    )


def _as_it_is(table: str, file: DataFile) -> DataFile | None:
    """Measure a file anew; one that is gone is none."""
    path = os.path.join(table, file.path)
    if not os.path.exists(path):
        return None
    if not footers.is_readable(path):
        raise NotPublished(
            f"{path} is no Parquet file any more, so there are no rows in it that could be accepted.",
            "Nothing was published, and the target is as it was.",
            "Put the file back from a backup. Or remove it, and use --accept again: its rows are then left out.",
        )
    # Spark refuses to read a file whose checksum beside it is that of another content.
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.crc"))
    return replace(file, size=os.path.getsize(path), content=content_hash(path))


def _slots_of(file: DataFile, current: Manifest) -> list[str]:
    return [file.slot] if file.slot else list(current.receipts)
