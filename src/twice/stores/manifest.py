"""Which files are the table, which tables are the view, and what proves it?

A table is a folder with data files and a log of manifests, `_twice/log/00000007.json`. A version names every file of the
table with its slot, size and hash, and carries all receipts forward; a version of a view names tables instead. Its manifest
says what changed since an older version (`chains`). The highest number is the table. Version *n + 1* is created by linking a
whole file to a free name, so of two writers that saw version *n* one succeeds. A number is never used twice: a manifest that is
past its keeping becomes an empty tombstone, and what newer versions are told from stays beside it, as `00000007.base`.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from twice.abilities import Work
from twice.errors import Conflict, Fenced
from twice.faults import reach
from twice.runs import Receipt
from twice.sight import NO_TABLE, REPLACED, Sight
from twice.stores.chains import Difference, Key, Tables, Walk, difference, since_of
from twice.stores.durable import create_whole, sync_file, sync_way_to

LOG = os.path.join("_twice", "log")
FORMAT = 2
TABLE, VIEW = "table", "view"
_BASE = ".base"
_FACTS = ("table_id", "owner", "made_by", "data_version", "schema", "keep_days", "forgot")
_REPLACED = "replaced"
_FACTS_OF_VIEWS = ("kind", "current", "by", "sealed", "writer")


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
    were accepted as they are. `swept` are attempts whose staging was taken away, each with the version that named it first;
    `forgot` is the newest version that named some whose names are not kept any more.
    """

    version: int = NO_TABLE
    table_id: str = ""
    owner: str = ""
    schema: str = ""
    files: tuple[DataFile, ...] = ()
    receipts: Mapping[str, Receipt] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)
    swept: Mapping[str, int] = field(default_factory=dict)
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
    forgot: int = NO_TABLE

    @property
    def is_view(self) -> bool:
        """Tell whether this names tables instead of files."""
        return self.kind == VIEW

    def member(self, name: str) -> Member | None:
        """Return a member by its name."""
        return next((member for member in self.members if member.name == name), None)

    def tables(self) -> Tables:
        """The state as tables of keys and values, of which the first holds its facts."""
        facts = {name: getattr(self, name) for name in _FACTS + (_FACTS_OF_VIEWS if self.is_view else ())}
        replaced = self._replaced()
        known = ended_by_replacement(self.receipts, replaced)
        return {
            "facts": {**facts, _REPLACED: replaced},
            "files": {file.path: file for file in self.files},
            "receipts": self.receipts,
            "members": {member.name: member for member in self.members},
            "ended": {slot: why for slot, why in self.ended.items() if slot not in known},
            "older": self.older,
            "swept": self.swept,
        }

    def _replaced(self) -> int:
        """Return the version that replaced the whole table, if that ended all older receipts: one number says it for all."""
        told = {why.removeprefix(REPLACED) for why in set(self.ended.values()) if why.startswith(REPLACED)}
        version = max(map(int, told), default=NO_TABLE)
        return version if ended_by_replacement(self.receipts, version).items() <= self.ended.items() else NO_TABLE

    @classmethod
    def of(cls, version: int, tables: Tables) -> Manifest:
        """Return the version whose state some tables hold."""
        facts = dict(tables["facts"])
        replaced = facts.pop(_REPLACED, NO_TABLE)
        held: dict[str, Any] = {name: dict(tables.get(name, {})) for name in ("receipts", "ended", "older", "swept")}
        held |= {name: tuple(tables.get(name, {}).values()) for name in ("files", "members")}
        held["ended"] |= ended_by_replacement(held["receipts"], replaced)
        return cls(version, **facts, **held)


def ended_by_replacement(receipts: Mapping[str, Receipt], version: int) -> dict[str, str]:
    """Name the slots whose receipt was there before a version replaced the whole table."""
    return {slot: f"{REPLACED} {version}" for slot, one in receipts.items() if (one.first_version or 0) < version}


_RECORDS: Mapping[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "files": ("path", lambda values: DataFile(**values), asdict),
    "receipts": ("slot", Receipt.from_json, Receipt.to_json),
    "members": ("name", Member.from_json, asdict),
}


def written(change: Difference) -> bytes:
    """A manifest as it stands on disk: JSON, readable by other tools."""
    values: dict[str, Any] = {"format": FORMAT, "version": change.version, "since": change.since, **change.put["facts"]}
    for name, entries in change.put.items():
        if name in _RECORDS:
            values[name] = [_RECORDS[name][2](entry) for entry in entries.values()]
        elif name != "facts":
            values[name] = dict(entries)
    if change.since is not None:
        values["gone"] = {name: keys for name, keys in change.gone.items() if keys}
        empty = {name for name in (*change.put, "gone") if not values.get(name)}
        values = {name: value for name, value in values.items() if name not in empty}
    return json.dumps(values, indent=1).encode()


def parsed(content: bytes) -> Difference:
    """Read a manifest.

    Raises:
        Fenced: It was written by a newer Twice.
    """
    values: dict[str, Any] = json.loads(content)
    if values["format"] > FORMAT:
        raise Fenced("The table's manifest was written by a newer Twice.", fix="Upgrade Twice here.")
    if isinstance(values.get("swept"), list):
        # Of format 1, in which each manifest said all, and did not say when an attempt was swept.
        values["swept"] = dict.fromkeys(values["swept"], values["version"])
    put: dict[str, Mapping[str, Any]] = {name: values.get(name, {}) for name in ("ended", "older", "swept")}
    put["facts"] = {name: values[name] for name in (*_FACTS, _REPLACED, *_FACTS_OF_VIEWS) if name in values}
    for name, (key, read, _) in _RECORDS.items():
        put[name] = {one[key]: read(one) for one in values.get(name, ())}
    return Difference(values["version"], values.get("since"), put, values.get("gone", {}))


# A run looks several times at a table, and of all that the newest version is told from little is new each time.
_parsed_before = lru_cache(maxsize=128)(parsed)


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
    while found:
        try:
            return load(table, found[-1])
        except Fenced:
            # A tidy may have buried what was the newest version when the folder was listed.
            before, found = found[-1], versions(table)
            if found[-1:] == [before]:
                raise
    return Manifest()


def load(table: str, version: int) -> Manifest:
    """Return one version's manifest.

    Raises:
        Fenced: The version is past its keeping, or never was, or a file that it is told from is gone or damaged.
    """
    refuse_buried(table, version)
    return Manifest.of(version, _folded(table, version).tables)


def refuse_buried(table: str, version: int) -> None:
    """Refuse a version that is past its keeping, or never was.

    Raises:
        Fenced: It is one.
    """
    if not _size(manifest_path(table, version)):
        raise Fenced(f"Version {version} of the table is not kept any more.", fix="Read a newer version.")


def kept(table: str) -> list[int]:
    """Return the numbers of the versions that are not past their keeping, oldest first."""
    return [version for version in versions(table) if _size(manifest_path(table, version))]


def walk(table: str) -> Walk:
    """Return a state that goes from version to version."""
    return Walk(lambda version: _read(table, version, parsed))


def steps(table: str, numbers: Iterable[int], going: Walk | None = None) -> Iterator[tuple[int, Mapping[Key, Any]]]:
    """Walk through versions, and tell what each has otherwise; those that are buried meanwhile are left out."""
    going = going or walk(table)
    for version in numbers:
        try:
            changed = going.to(version)
        except Fenced:
            if _size(manifest_path(table, version)):
                raise
            continue
        yield version, changed


def entries(table: str, name: str) -> Iterator[Any]:
    """Return what the versions that are kept have in a table; an entry may come more than once."""
    going = walk(table)
    for _, changed in steps(table, kept(table), going):
        yield from (going.tables[name][key] for place, key in changed if place == name and key in going.tables[name])


def _folded(table: str, version: int) -> Walk:
    going = Walk(lambda number: _read(table, number, _parsed_before))
    going.to(version)
    return going


def _read(table: str, version: int, read: Callable[[bytes], Difference]) -> Difference:
    """Read what one version says, also of one that is past its keeping while newer ones are told from it.

    Raises:
        Fenced: Its file is gone or damaged.
    """
    path = manifest_path(table, version)
    try:
        return read(_content(path) or _content(_base_path(table, version)))
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = "is gone" if isinstance(error, FileNotFoundError) else f"cannot be read: {error!r}"
        raise Fenced(
            f"{path} {why}. Newer versions of the table say only what changed since.",
            "Nothing was changed, and the data files are where they were.",
            f"Bring back {os.path.basename(path)} or {os.path.basename(_base_path(table, version))} from a backup of the folder.",
        ) from error


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def _base_path(table: str, version: int) -> str:
    return os.path.join(log_folder(table), f"{version:08}{_BASE}")


def append(table: str, manifest: Manifest) -> None:
    """Make a manifest the newest version, if its number is free.

    Raises:
        Conflict: Someone else has made that version; nothing of this one is visible.
    """
    folder = log_folder(table)
    if len(versions(table)) == 0:
        os.makedirs(folder, exist_ok=True)
        sync_way_to(folder)
    path = manifest_path(table, manifest.version)
    try:
        create_whole(path, written(_change(table, manifest)), "parquet.manifest")
    except (FileExistsError, Fenced):
        # Where the version before it was buried meanwhile, the number is taken too.
        if not os.path.exists(path):
            raise
        raise Conflict(f"version {manifest.version} exists") from None


def _change(table: str, manifest: Manifest) -> Difference:
    """Tell a version from one in the chain of that before it, which a tidy keeps; or all of it, where that is no longer."""
    number, after = manifest.version, manifest.tables()
    if _size(manifest_path(table, number - 1)):
        before = _folded(table, number - 1)
        since = since_of(number, before.chain[0])
        # Entries that are taken back are in no order, so an older state is read on its own.
        base = before if since == number - 1 else _folded(table, since)
        change = difference(number, since, base.tables, after, ordered=("files", "members"))
        if change:
            return change
    return Difference(number, None, after, {})


def bury(table: str, old: Iterable[int], needed: Container[int]) -> None:
    """Turn manifests into tombstones, so that their numbers are never used again; what newer ones are told from stays.

    Newer ones come first: whoever dies on the way leaves no version without what it is told from.
    """
    newest_first = sorted(old, reverse=True)
    for version in newest_first:
        if version in needed:
            with suppress(FileExistsError):
                os.link(manifest_path(table, version), _base_path(table, version))
                reach("parquet.sweep.linked")
    if newest_first:
        sync_file(log_folder(table))
        reach("parquet.sweep.bases")
    for version in newest_first:
        temporary = f"{manifest_path(table, version)}.{os.getpid()}.tombstone"
        with open(temporary, "wb"):
            pass
        os.replace(temporary, manifest_path(table, version))
    for name in os.listdir(log_folder(table)):
        if name.endswith(_BASE) and name[: -len(_BASE)].isdigit() and int(name[: -len(_BASE)]) not in needed:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(log_folder(table), name))


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
    if work.is_older_than(base.forgot):
        # It is older than names of swept attempts that are not kept any more: its own may be one of them.
        raise Conflict("whether the attempt's staging was swept is not known any more")
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
