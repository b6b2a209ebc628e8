"""What does the log of a Delta table tell of its troubles: files that are gone, keys that came twice?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from twice.abilities import Repeated, Repeats, Trouble
from twice.stores.delta import log, named_files

_NAMED = 3


def with_writers(found: Repeats, table: str) -> Repeats:
    """Say of repeated keys which commits brought them."""
    commits = named_files.writers(table, {path for one in found.sample for path in one.files})
    return replace(found, sample=tuple(_brought(one, table, commits) for one in found.sample))


def _brought(one: Repeated, table: str, commits: Mapping[str, log.Commit]) -> Repeated:
    """Name the slots, and the commits of others, that wrote the files of a key."""
    found = [commits[path] for path in one.files if path in commits]
    slots = {receipt.slot for commit in found if commit.payload for receipt in commit.payload.receipts}
    others = {f"version {commit.version} ({commit.operation})" for commit in found if not commit.payload}
    files = tuple(os.path.relpath(path, table) for path in one.files)
    return replace(one, files=files, slots=tuple(sorted(slots)), strangers=tuple(sorted(others)))


def missing_files(name: str, table: str) -> list[Trouble]:
    """Return what is wrong with a table whose newest version names files that are not there."""
    missing = named_files.missing_files(table) if log.commit_versions(table) else []
    if not missing:
        return []
    return [
        Trouble(
            "files",
            f"{len(missing)} {'file' if len(missing) == 1 else 'files'} that delta:{name} names cannot be found:"
            f" {', '.join(missing[:_NAMED])}.",
            "A reader of these rows fails. Put the files back from a backup, or go back to a version that does not"
            f" need them: twice versions delta:{name}",
            named=tuple(missing),
        )
    ]


def other_tables_shown(view: str, shown: set[str] | None, expected: set[str]) -> Sequence[Trouble]:
    """Compare the tables that a SQL view shows with those that it should."""
    if shown == expected:
        return ()
    return [
        Trouble(
            "views",
            f"The SQL view {view} "
            + ("is not there." if shown is None else "does not show the tables that the view names now."),
            "The next run of the pipeline writes it anew; readers of twice.read are not affected.",
            is_wrong=bool(shown is not None and shown - expected),
            named=tuple(sorted((shown or set()) ^ expected)),
        )
    ]
