"""What does a Delta log say about slots, without a JVM?

Each publish carries its receipts in the commit's `userMetadata`. Reading the commits backwards
tells the fence of each slot, and every commit since that could have taken its rows away: a restore
to an older version, a foreign change of data, a replacement of the whole table. Maintenance that
changes no data is passed over.

Log clean-up takes old commits away, so some publishes also carry all older receipts forward; a
receipt that is carried keeps the version in which it was first written.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from twice.errors import Fenced
from twice.runs import Receipt
from twice.sight import NO_TABLE, REPLACED, Sight, State

_COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\..*(parquet|json)")
_CHANGE = ('"dataChange":true', '"dataChange": true')
# A column that is dropped takes its values along, and no file says so.
_CHANGES_TABLE = ("CREATE OR REPLACE", "REPLACE TABLE", "DROP COLUMNS", "RENAME COLUMN", "REPLACE COLUMNS")
FORMAT = 1
MADE_BY = "twice"


@dataclass(frozen=True)
class Payload:
    """What one of our commits carries besides the rows.

    `scope` says what its rows replaced: the `table`, a `slice`, or `nothing`. A commit that `starts_from`
    an older version holds that version and its own rows, and nothing that came between.
    """

    kind: str
    owner: str
    scope: str
    receipts: tuple[Receipt, ...] = ()
    table_id: str = ""
    carried: Sight | None = None
    starts_from: int | None = None

    def carrying(self, sight: Sight) -> Payload:
        """Return the payload with all that was seen, so that older commits need not be read again."""
        return replace(self, carried=sight)

    def to_text(self) -> str:
        """The payload as `userMetadata`; what is carried is compressed."""
        values: dict[str, Any] = {
            MADE_BY: FORMAT,
            "kind": self.kind,
            "owner": self.owner,
            "scope": self.scope,
            "table_id": self.table_id,
            "receipts": [receipt.to_json() for receipt in self.receipts],
        }
        if self.starts_from is not None:
            values["starts_from"] = self.starts_from
        if self.carried is not None:
            values["carried_from"] = self.carried.version
            values["carried"] = base64.b64encode(zlib.compress(json.dumps(_plain(self.carried)).encode())).decode()
        return json.dumps(values)

    @classmethod
    def from_text(cls, text: str | None) -> Payload | None:
        """Read a payload, or return None for a commit that is not ours.

        Raises:
            Fenced: It was written by a newer Twice.
        """
        if not text or not text.startswith("{"):
            return None
        try:
            values = json.loads(text)
        except ValueError:
            return None
        if MADE_BY not in values:
            return None
        if values[MADE_BY] > FORMAT:
            raise Fenced("The table was published to by a newer Twice.", fix="Upgrade Twice here.")
        carried = json.loads(zlib.decompress(base64.b64decode(values["carried"]))) if "carried" in values else None
        return cls(
            kind=values["kind"],
            owner=values["owner"],
            scope=values["scope"],
            receipts=tuple(Receipt.from_json(receipt) for receipt in values["receipts"]),
            table_id=values["table_id"],
            carried=_sight(values["carried_from"], carried) if carried else None,
            starts_from=values.get("starts_from"),
        )


def _plain(sight: Sight) -> dict[str, Any]:
    """What a carrier keeps of a sight."""
    return {
        "receipts": [receipt.to_json() for receipt in sight.receipts.values()],
        "ended": dict(sight.ended),
        "gone": sorted(sight.gone),
        "outside": sight.outside,
        "data_version": sight.data_version,
    }


def _sight(version: int, values: Mapping[str, Any]) -> Sight:
    """Read back what a carrier kept."""
    receipts = [Receipt.from_json(receipt) for receipt in values["receipts"]]
    return Sight(
        version=version,
        receipts={receipt.slot: receipt for receipt in receipts},
        ended=values["ended"],
        gone=frozenset(values.get("gone", ())),
        outside=values["outside"],
        data_version=values["data_version"],
    )


@dataclass(frozen=True)
class Commit:
    """One entry of the log, as far as it matters here."""

    version: int
    operation: str = ""
    payload: Payload | None = None
    restored_to: int | None = None
    changes_data: bool = False
    table_id: str = ""
    milliseconds: int = 0


def log_folder(table: str) -> str:
    """Where a table's log is."""
    return os.path.join(table, "_delta_log")


def commit_versions(table: str) -> list[int]:
    """Return the versions whose commits are still there, oldest first."""
    try:
        names = os.listdir(log_folder(table))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name[:20]) for name in names if _COMMIT.fullmatch(name))


def read_commit(table: str, version: int) -> Commit:
    """Read one commit; the actions of our own are not looked at."""
    commit = Commit(version)
    path = os.path.join(log_folder(table), f"{version:020}.json")
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith('{"commitInfo"'):
                commit = _with_info(commit, json.loads(line)["commitInfo"])
                if commit.payload:
                    return commit
            elif line.startswith('{"metaData"'):
                commit = replace(commit, table_id=json.loads(line)["metaData"]["id"])
            elif not commit.changes_data and any(mark in line for mark in _CHANGE):
                commit = replace(commit, changes_data=True)
    return commit


def _with_info(commit: Commit, info: Mapping[str, Any]) -> Commit:
    operation = str(info.get("operation", ""))
    restored = None
    if operation == "RESTORE":
        # A restore to a point in time names no version: it may have gone back to anywhere.
        version = info.get("operationParameters", {}).get("version")
        restored = NO_TABLE if version is None else int(version)
    payload = Payload.from_text(info.get("userMetadata")) if operation != "RESTORE" else None
    return replace(
        commit,
        operation=operation,
        payload=payload,
        restored_to=restored,
        milliseconds=int(info.get("timestamp", 0)),
        table_id=payload.table_id if payload else commit.table_id,
        changes_data=commit.changes_data
        or operation.startswith(_CHANGES_TABLE)
        or bool(payload and payload.scope != "nothing"),
    )


@dataclass
class _Walk:
    """What a walk through the log, newest commit first, has gathered."""

    owner: str = ""
    table_id: str = ""
    receipts: dict[str, Receipt] = field(default_factory=dict)
    carried_ended: dict[str, str] = field(default_factory=dict)
    foreign: list[Commit] = field(default_factory=list)
    restores: list[Commit] = field(default_factory=list)
    replacements: list[tuple[int, frozenset[str]]] = field(default_factory=list)
    editions: dict[str, set[int]] = field(default_factory=dict)
    data_version: int = NO_TABLE
    carried: Sight | None = None

    @property
    def stop(self) -> int:
        """The version up to which the newest carrier speaks for all commits."""
        return self.carried.version if self.carried else NO_TABLE

    def take(self, commit: Commit) -> None:
        self.table_id = self.table_id or commit.table_id
        if commit.changes_data:
            self.data_version = max(self.data_version, commit.version)
        if commit.payload:
            self._take_ours(commit.version, commit.payload)
        elif commit.restored_to is not None:
            self.restores.append(commit)
        elif commit.changes_data:
            self.foreign.append(commit)

    def _take_ours(self, version: int, payload: Payload) -> None:
        self.owner = self.owner or payload.owner
        for receipt in payload.receipts:
            seen = receipt.first_seen_in(version)
            self.editions.setdefault(receipt.slot, set()).add(seen.first_version or 0)
            self._keep(seen)
        if payload.scope == "table":
            self.replacements.append((version, frozenset(receipt.slot for receipt in payload.receipts)))
        if payload.starts_from is not None:
            # What had been left behind came back by a restore: what else was in it then is not known here.
            self.foreign += [one for one in self.restores if payload.starts_from < (one.restored_to or 0) < version]
        # What is true after a commit that started from an older version is said by itself alone: a newer one
        # that carries what was seen before it speaks of a table that was left behind.
        if payload.carried and (not self.carried or payload.starts_from is not None):
            self._take_carried(payload.carried)

    def _take_carried(self, carried: Sight) -> None:
        self.carried = carried
        self.data_version = max(self.data_version, carried.data_version)
        for slot, receipt in carried.receipts.items():
            self.editions.setdefault(slot, set()).add(receipt.first_version or 0)
            if self._keep(receipt) or self.receipts[slot] == receipt:
                self.carried_ended.pop(slot, None)
                if slot in carried.ended:
                    self.carried_ended[slot] = carried.ended[slot]

    def _keep(self, receipt: Receipt) -> bool:
        known = self.receipts.get(receipt.slot)
        if known and known.generation >= receipt.generation:
            return False
        self.receipts[receipt.slot] = receipt
        self.carried_ended.pop(receipt.slot, None)
        return True

    def ended(self) -> dict[str, str]:
        found = {slot: why for slot, receipt in self.receipts.items() if (why := self._why_ended(slot, receipt))}
        return {**self.carried_ended, **found}

    def _why_ended(self, slot: str, receipt: Receipt) -> str:
        first = receipt.first_version if receipt.first_version is not None else NO_TABLE
        for commit in self.foreign:
            if commit.version > first:
                return f"the table was changed from outside in version {commit.version} ({commit.operation})"
        for commit in self.restores:
            if commit.version > first and (commit.restored_to or 0) < first:
                return f"the table was restored to version {commit.restored_to} in version {commit.version}, from before the slot's rows"
        for version, slots in self.replacements:
            if version > first and slot not in slots:
                return f"{REPLACED} {version}"
        return ""

    def gone(self, newest: int) -> frozenset[str]:
        """Return the slots whose rows surely went: by restores and our own replacements, and by nothing unknown."""
        carried = self.carried.gone if self.carried and not self.restores and not self.foreign else frozenset()
        found = {
            slot
            for slot, receipt in self.receipts.items()
            if self._knows_every_edition(receipt)
            and not any(commit.version > min(self.editions[slot]) for commit in self.foreign)
            and not any(self._has_rows(slot, first, newest) for first in self.editions[slot])
        }
        return frozenset(found | (carried & set(self.carried_ended)))

    def _knows_every_edition(self, receipt: Receipt) -> bool:
        """A restore may bring back any edition, so the versions of all of them have to be known."""
        return len(self.editions.get(receipt.slot, ())) == receipt.generation

    def _has_rows(self, slot: str, first: int, version: int) -> bool:
        """Tell whether rows that were written in one version may be in another: restores lead back from it."""
        while version >= first:
            replaced = max(
                (v for v, slots in self.replacements if first < v <= version and slot not in slots), default=-1
            )
            restores = [commit for commit in self.restores if first < commit.version <= version]
            last = max(restores, key=lambda commit: commit.version, default=None)
            if last is None or replaced > last.version:
                return replaced < 0
            if last.restored_to in (None, NO_TABLE):
                return True
            version = last.restored_to or 0
        return False

    @property
    def outside(self) -> str:
        newest = max([commit.version for commit in (*self.foreign, *self.restores)], default=NO_TABLE)
        replaced = max((version for version, _ in self.replacements), default=NO_TABLE)
        last = max(newest, replaced)
        if last != NO_TABLE:
            return f"version {last}"
        return self.carried.outside if self.carried else ""


def look(table: str) -> Sight:
    """Read a table's receipts from its log."""
    versions = commit_versions(table)
    if not versions:
        return Sight()
    walk = _Walk()
    for version in reversed(versions):
        if version <= walk.stop:
            break
        walk.take(read_commit(table, version))
    receipts, ended = walk.receipts, walk.ended()
    if any(NO_TABLE < (restore.restored_to or 0) <= walk.stop for restore in walk.restores):
        ended = {**_ended_by_states(table, receipts), **ended}
    if versions[0] > walk.stop + 1:
        receipts, ended = _beyond_the_log(table, versions[0], receipts, ended)
    return Sight(
        version=versions[-1],
        head=versions[-1],
        table_id=walk.table_id,
        owner=walk.owner,
        receipts=receipts,
        ended=ended,
        gone=walk.gone(versions[-1]) & set(ended),
        outside=walk.outside,
        filled=not receipts and (walk.data_version != NO_TABLE or versions[0] > 0),
        data_version=walk.data_version,
    )


def _ended_by_states(table: str, receipts: Mapping[str, Receipt]) -> dict[str, str]:
    """Tell whose rows a restore left out that went back to before what a carrier speaks of."""
    newest = states(table)[-1]
    if not newest.known:
        # The version that it went back to is cleaned from the log; when its slots were first written is known.
        return {}
    return {
        slot: "a restore brought back a version without the slot's rows, or with changes from outside"
        for slot, receipt in receipts.items()
        if newest.holds.get(slot) != receipt.generation or newest.outside
    }


def states(table: str) -> list[State]:
    """Tell of every version that is in the log whose rows it holds, oldest first."""
    versions = commit_versions(table)
    now = State(NO_TABLE, known=not versions or versions[0] == 0)
    found = {NO_TABLE: now}
    fences: dict[str, int] = {}
    for version in versions:
        commit = read_commit(table, version)
        for receipt in commit.payload.receipts if commit.payload else ():
            fences[receipt.slot] = max(receipt.generation, fences.get(receipt.slot, 0))
        now = replace(_state_after(commit, now, found, fences), version=version, made_at=_moment(commit.milliseconds))
        if commit.payload is None and commit.changes_data and commit.table_id and version:
            # Somebody gave the table other columns or another layout: older files may not fit into it any more.
            found = {one: replace(state, known=state.known and one == NO_TABLE) for one, state in found.items()}
        found[version] = now
        if version == 0 and not commit.payload:
            # Somebody else's table, which was taken over as it was: there is no state before it.
            del found[NO_TABLE]
    return list(found.values())


def _state_after(commit: Commit, before: State, found: Mapping[int, State], fences: Mapping[str, int]) -> State:
    """Return whose rows are there after a commit; only its own version and time are not told."""
    payload = commit.payload
    if payload is None and commit.restored_to is None:
        return replace(before, outside=f"version {commit.version}") if commit.changes_data and before.holds else before
    if payload is None:
        return found.get(NO_TABLE if commit.restored_to is None else commit.restored_to, State(NO_TABLE, known=False))
    if payload.starts_from is not None:
        before = found.get(payload.starts_from, State(NO_TABLE, known=False))
    elif payload.carried and not before.known:
        before = _state_of(payload.carried)
    new = {receipt.slot: receipt.generation for receipt in payload.receipts}
    if payload.starts_from is not None and before.outside:
        lacks = any({**before.holds, **new}.get(slot) != fence for slot, fence in fences.items())
        before = replace(before, outside=f"version {commit.version}" if lacks else before.outside)
    if payload.scope == "table":
        return replace(before, holds=new, outside="", known=True)
    return replace(before, holds={**before.holds, **new}) if new else before


def _state_of(sight: Sight) -> State:
    """Tell whose rows a version holds, of which the log no longer tells how it came about."""
    holds = {slot: receipt.generation for slot, receipt in sight.receipts.items() if slot not in sight.gone}
    return State(sight.version, holds, sight.changed_outside, known=all(r.attempt for r in sight.receipts.values()))


def _moment(milliseconds: int) -> str:
    found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return found.isoformat(timespec="seconds").replace("+00:00", "Z")


def days_of(interval: str, default: float) -> float:
    """Read `interval 30 days`, as Delta's properties write it."""
    words = interval.lower().replace("interval", "").split()
    units = {"second": 1 / 86_400, "minute": 1 / 1440, "hour": 1 / 24, "day": 1.0, "week": 7.0}
    try:
        return (
            sum(float(count) * units[unit.rstrip("s")] for count, unit in zip(words[::2], words[1::2], strict=True))
            or default
        )
    except (KeyError, ValueError):
        return default


def checkpoints_of(table: str) -> dict[int, list[str]]:
    """Return the paths of checkpoints, by the version that they tell of."""
    found: dict[int, list[str]] = {}
    for name in sorted(os.listdir(log_folder(table))):
        if _CHECKPOINT.fullmatch(name):
            found.setdefault(int(name[:20]), []).append(os.path.join(log_folder(table), name))
    return found


def uncarried(table: str) -> tuple[int, float]:
    """Return how many of our commits no carrier speaks for, and the age of the oldest that is needed, in milliseconds."""
    found, oldest, stop = 0, 0, NO_TABLE
    for version in reversed(commit_versions(table)):
        if version <= stop:
            break
        commit = read_commit(table, version)
        if commit.payload:
            oldest = min(commit.milliseconds, modified(table, version))
            found += commit.payload.carried is None
            stop = max(stop, commit.payload.carried.version if commit.payload.carried else NO_TABLE)
    return found, time.time() * 1000 - oldest if oldest else 0.0


def _beyond_the_log(
    table: str, oldest: int, receipts: Mapping[str, Receipt], ended: Mapping[str, str]
) -> tuple[dict[str, Receipt], dict[str, str]]:
    """Commits that nobody speaks for were cleaned away: what they did to older receipts is not known."""
    lost = {
        slot: found
        for slot, found in _lost(table)
        if slot not in receipts or receipts[slot].generation < found.generation
    }
    known = {**receipts, **lost}
    unsure = {
        slot: "commits since it were cleaned from the log"
        for slot, r in receipts.items()
        if (r.first_version or 0) < oldest
    }
    gone = dict.fromkeys(lost, "its receipt went with the cleaned log")
    return known, {**unsure, **ended, **gone}


def modified(table: str, version: int) -> int:
    """When a commit's file was written, in milliseconds: Delta cleans its log by this time."""
    return int(os.path.getmtime(os.path.join(log_folder(table), f"{version:020}.json")) * 1000)


def _lost(table: str) -> Iterator[tuple[str, Receipt]]:
    """Bring back the fences of slots whose commits were cleaned: the newest checkpoint has them."""
    checkpoints = checkpoints_of(table)
    for path in checkpoints[max(checkpoints)] if checkpoints else ():
        for txn in actions_kept(path, "txn"):
            slot = str(txn["appId"])
            if slot.startswith("v1:"):
                yield slot, Receipt(slot, int(txn["version"]), "", "", "", "", first_version=NO_TABLE)


def actions_kept(checkpoint: str, kind: str, parts: Sequence[str] = ()) -> Iterator[Mapping[str, Any]]:
    """Yield the actions of a kind that a checkpoint keeps, whichever way it is written; of many, only some parts."""
    if checkpoint.endswith(".json"):
        with open(checkpoint, encoding="utf-8") as lines:
            yield from (json.loads(line)[kind] for line in lines if line.startswith(f'{{"{kind}"'))
        return
    from pyarrow import parquet

    columns = [f"{kind}.{part}" for part in parts] or [kind]
    rows = parquet.ParquetFile(checkpoint).read(columns=columns).to_pylist()
    yield from (row[kind] for row in rows if row.get(kind) and any(value is not None for value in row[kind].values()))
