"""What may be removed from a Parquet table, and when?

Staging of dead attempts is swept in two steps. First a version is published that names them: from
then on their own publish is refused, should one of them wake up. Only then are their files
removed. Files that only old versions name are removed when these are past their keeping, whole
folders and single files alike: where some rows of an attempt were replaced, the others stay.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from twice.abilities import LiveAttempts, Swept
from twice.errors import Conflict
from twice.faults import reach
from twice.runs import is_attempt, is_of
from twice.sight import NO_TABLE
from twice.stores import manifest as log
from twice.stores.durable import remove_temporary
from twice.stores.manifest import Manifest

_DAY_SECONDS = 86_400.0
_NAMED_DAYS = 30


@dataclass(frozen=True)
class _Used:
    """What the kept versions name: files, and the attempts in whose folders they are; and what these versions are told from."""

    files: frozenset[str]
    attempts: frozenset[str]
    with_members: frozenset[str]
    bases: frozenset[int]


def sweep(table: str, live: LiveAttempts, *, keep_days: float, dry_run: bool) -> Swept:
    """Remove what no kept version and no live attempt uses."""
    while True:
        current = log.newest(table)
        if current.version == NO_TABLE:
            return _sweep_unborn(table, live, dry_run=dry_run)
        expired = frozenset(_past_keeping(table, current, keep_days))
        kept = [version for version in log.kept(table) if version not in expired]
        used = _used(table, kept)
        staged = list(_attempts_staged(table))
        reach("sweep.listed")
        alive = live()
        dead = tuple(sorted(a for a in staged if a not in used.attempts and not is_of(a, alive)))
        replaced = list(_files_replaced(table, used))
        files = [*_files_of(table, dead), *replaced]
        found = Swept(len(files), sum(map(_size, files)), dead)
        if dry_run:
            return found
        # Buried first: a replay that plans later cannot start from them, and one that planned before loses the compare.
        log.bury(table, expired, used.bases)
        reach("parquet.sweep.buried")
        if replaced or not set(dead) <= set(current.swept):
            try:
                log.append(table, naming(table, current, dead))
            except Conflict:
                continue
            reach("parquet.sweep.named")
        for attempt in dead:
            shutil.rmtree(os.path.join(table, "data", attempt), ignore_errors=True)
        for file in replaced:
            with contextlib.suppress(FileNotFoundError):
                os.remove(file)
        remove_temporary(log.log_folder(table), ".tombstone")
        return found


def _sweep_unborn(table: str, live: LiveAttempts, *, dry_run: bool) -> Swept:
    """A table that was never published has no log to name attempts in: leave what may be alive."""
    staged = list(_attempts_staged(table))
    alive = live()
    dead = tuple(a for a in staged if not is_of(a, alive))
    note = ("the table was never published, so staging was left for its next run",) if dead and not dry_run else ()
    return Swept(attempts=dead if dry_run else (), notes=note)


def _attempts_staged(table: str) -> Iterator[str]:
    try:
        yield from filter(is_attempt, sorted(os.listdir(os.path.join(table, "data"))))
    except FileNotFoundError:
        return


def naming(table: str, current: Manifest, dead: Iterable[str]) -> Manifest:
    """Return the next version, in which the dead are named, and names end whose version is long past.

    An attempt that was named began before the version that names it. So once a name ended, every attempt is refused that is as
    old as it: the one that had the name, and with it any that has been at work for so long.
    """
    following = log.successor(current, "tidy")
    limit = time.time() - _NAMED_DAYS * _DAY_SECONDS
    swept = {one: v for one, v in current.swept.items() if os.path.getmtime(log.manifest_path(table, v)) >= limit}
    forgot = max((version for one, version in current.swept.items() if one not in swept), default=NO_TABLE)
    named = {**dict.fromkeys(dead, following.version), **swept}
    return replace(following, swept=named, forgot=max(forgot, current.forgot))


def _used(table: str, kept: Iterable[int]) -> _Used:
    named: dict[str, set[str]] = {"files": set(), "members": set()}
    bases, going = set[int](), log.walk(table)
    for _, changed in log.steps(table, kept, going):
        bases.update(going.chain)
        for name, key in changed:
            if name in named and key in going.tables[name]:
                named[name].add(key)
    members = _attempts_of(named["members"])
    return _Used(frozenset(named["files"]), _attempts_of(named["files"]) | members, members, frozenset(bases))


def _attempts_of(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(path.split(os.sep)[1] for path in paths if path.startswith(f"data{os.sep}"))


def _files_replaced(table: str, used: _Used) -> Iterator[str]:
    """Files of published attempts that no kept version names any more, each with its checksum.

    An attempt publishes once and under a name that no other has: a kept version names a file of it, so whatever it is to publish is
    published, also if it is live. Folders of an adopted table that somebody else named are not looked into.
    """
    published = filter(is_attempt, used.attempts - used.with_members)
    for file in _files_of(table, published):
        place, name = os.path.split(file)
        data = name.removeprefix(".").removesuffix(".crc")
        if data.endswith(".parquet") and os.path.relpath(os.path.join(place, data), table) not in used.files:
            yield file


def _past_keeping(table: str, current: Manifest, keep_days: float) -> list[int]:
    """Versions that were replaced longer ago than they are kept; the newest is never one."""
    limit = time.time() - max(keep_days, current.keep_days) * _DAY_SECONDS
    pairs = itertools.pairwise(log.versions(table))
    replaced_at = {old: os.path.getmtime(log.manifest_path(table, new)) for old, new in pairs if old != current.version}
    return [version for version in log.kept(table) if replaced_at.get(version, limit) < limit]


def _files_of(table: str, attempts: Iterable[str]) -> list[str]:
    return [
        os.path.join(place, name)
        for attempt in attempts
        for place, _, names in os.walk(os.path.join(table, "data", attempt))
        for name in names
    ]


def _size(path: str) -> int:
    """Return the bytes of a file, none if another tidy was faster."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0
