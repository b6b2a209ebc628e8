"""Which versions of a Parquet table are kept, whose rows does each hold, and can they still be read?

A table may have ten thousand versions with ten thousand slots each, so none is held whole. One state goes from version to
version, and what is asked of a version moves it there: in turn, that is a few entries each.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from twice.sight import NO_TABLE, State, Step
from twice.stores import manifest as log
from twice.stores.chains import Key
from twice.stores.parquet.damage import damage_of, outside


def states(table: str) -> Iterator[State]:
    """Return the versions that are kept, newest first, and then the empty table."""
    standing = _Standing(table)
    for version, _ in standing.through(reversed(log.kept(table))):
        yield State(version, _Holds(standing, version), outside(standing.accepted), made_at=_made_at(table, version))
    yield State(NO_TABLE)


def steps(table: str) -> Iterator[Step]:
    """Tell what each version that is kept brought, oldest first."""
    standing = _Standing(table)
    for version, came in standing.through(log.kept(table)):
        yield Step(version, _made_at(table, version), tuple(came), len(standing.holds))


class Lost:
    """Says which file of a version is gone, or nothing."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._walk = log.walk(table)
        self._damaged: dict[str, str] = {}

    def __call__(self, version: int) -> str:
        """Look at the files that the version has and the one before it had not."""
        if version == NO_TABLE:
            return ""
        log.refuse_buried(self.table, version)
        if not self._walk.chain:
            self._swept = log.newest(self.table).swept
        for path in (key for name, key in self._walk.to(version) if name == "files"):
            file = self._walk.tables["files"].get(path)
            why = file and ("its files were swept" if self._is_swept(path) else damage_of(self.table, file))
            if why:
                self._damaged[path] = why
            else:
                self._damaged.pop(path, None)
        return self._damaged[min(self._damaged)] if self._damaged else ""

    def _is_swept(self, path: str) -> bool:
        return any(part in self._swept for part in path.split(os.sep)[1:2])


class _Standing:
    """Whose rows a version holds, and of which slots they were accepted as they are, of one version at a time."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.holds: dict[str, int] = {}
        self.accepted: dict[str, str] = {}
        self._walk = log.walk(table)

    def through(self, numbers: Iterable[int]) -> Iterator[tuple[int, list[str]]]:
        """Go through versions, each with the slots that it holds in another edition than the one before."""
        for version, changed in log.steps(self.table, numbers, self._walk):
            yield version, self._follow(changed)

    def at(self, version: int) -> dict[str, int]:
        """Go to a version, and return the generation of each slot that it holds."""
        self._follow(self._walk.to(version))
        return self.holds

    def _follow(self, changed: Mapping[Key, Any]) -> list[str]:
        came = []
        slots = dict.fromkeys(key for name, key in changed if name in ("receipts", "ended", "older"))
        if ("facts", "replaced") in changed:
            # A version before or after it replaced the whole table: any receipt may count, or not.
            slots |= dict.fromkeys(self._has("receipts"))
        for slot in slots:
            before, now = self.holds.pop(slot, None), self._generation(slot)
            if now is not None:
                self.holds[slot] = now
            if now not in (None, before):
                came.append(slot)
            self.accepted.pop(slot, None)
            if slot in self._has("ended") and self._has("older").get(slot) == self._own(slot):
                self.accepted[slot] = self._has("ended")[slot]
        return came

    def _generation(self, slot: str) -> int | None:
        older: int | None = self._has("older").get(slot)
        return older if older is not None or slot in self._has("ended") or self._is_replaced(slot) else self._own(slot)

    def _is_replaced(self, slot: str) -> bool:
        receipt = self._has("receipts").get(slot)
        replaced: int = self._has("facts").get("replaced", NO_TABLE)
        return receipt is not None and (receipt.first_version or 0) < replaced

    def _own(self, slot: str) -> int | None:
        receipt = self._has("receipts").get(slot)
        return receipt.generation if receipt else None

    def _has(self, name: str) -> dict[str, Any]:
        return self._walk.tables.get(name, {})


class _Holds(Mapping[str, int]):
    """The slots that one version holds, with their generations; looked up when they are asked for."""

    def __init__(self, standing: _Standing, version: int) -> None:
        self._standing, self._version = standing, version

    def __getitem__(self, slot: str) -> int:
        return self._standing.at(self._version)[slot]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._standing.at(self._version)))

    def __len__(self) -> int:
        return len(self._standing.at(self._version))


def _made_at(table: str, version: int) -> str:
    """Tell when a version was made: versions are kept by the time of their manifests."""
    written = datetime.fromtimestamp(os.path.getmtime(log.manifest_path(table, version)), UTC)
    return written.isoformat(timespec="seconds").replace("+00:00", "Z")
