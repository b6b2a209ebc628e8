"""Which files does a version of a Delta table name, and are they there?

A version names files of rows, and files that list the rows of others which do not count any more: deletion vectors. If either
is gone, its rows cannot be read.
"""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlparse

from twice.sight import NO_TABLE
from twice.stores.delta.log import (
    Commit,
    actions_kept,
    checkpoints_of,
    commit_versions,
    days_of,
    log_folder,
    modified,
    read_commit,
)

_KEPT = "delta.deletedFileRetentionDuration"
_KEPT_DAYS = 7
_DAY_MILLISECONDS = 86_400_000
_SAFE_SHARE = 0.95
_READ_OF_FILES = ("path", "deletionVector")
# Delta writes numbers to the base of 85 with other letters than Python reads.
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_PYTHONS_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_LETTERS_OF_A_NAME = 20


def lost(table: str, version: int) -> str:
    """Say why the rows of an older version cannot be read any more, or nothing."""
    commits = commit_versions(table)
    if version == NO_TABLE or version == commits[-1]:
        return ""
    checkpoint = max((one for one in checkpoints_of(table) if one <= version), default=NO_TABLE)
    needed = range(checkpoint + 1, version + 1)
    if not set(needed) <= set(commits):
        return "its log entries were cleaned (see delta.logRetentionDuration)"
    kept = days_of(_property(table, _KEPT), _KEPT_DAYS)
    # What was taken away since then may be vacuumed at any moment, and with it the table that starts from it.
    following = next(one for one in commits if one > version)
    if time.time() * 1000 - modified(table, following) > kept * _DAY_MILLISECONDS * _SAFE_SHARE:
        return f"it is older than the {kept:g} days that the table keeps ({_KEPT})"
    gone = next(iter(_gone(table, _files_at(table, checkpoint, needed))), "")
    return f"its file {os.path.basename(gone)} is gone, although the table keeps it for {kept:g} days" if gone else ""


def missing_files(table: str) -> list[str]:
    """Return the files that the newest version names and that are not there, as the log writes them."""
    newest = commit_versions(table)[-1]
    checkpoint = max((one for one in checkpoints_of(table) if one <= newest), default=NO_TABLE)
    return _gone(table, _files_at(table, checkpoint, range(checkpoint + 1, newest + 1)))


def not_there(table: str, adds: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the files, also those of vectors, that actions are about to add and that are not there."""
    return _gone(table, {path for add in adds for path in (str(add["path"]), _vector(add)) if path})


def _gone(table: str, files: Iterable[str]) -> list[str]:
    return sorted(path for path in files if not os.path.exists(_local(table, path)))


def _local(table: str, path: str) -> str:
    """Return where a file of the log is; a clone names the files of another table whole."""
    if "://" in path and not path.startswith("file:"):
        return table
    return os.path.join(table, unquote(urlparse(path).path if path.startswith("file:") else path))


def writers(table: str, paths: Iterable[str]) -> dict[str, Commit]:
    """Return the commit that first added each file, as far as the log still tells."""
    wanted, found = {os.path.realpath(path): path for path in paths}, dict[str, Commit]()
    for version in commit_versions(table):
        with open(os.path.join(log_folder(table), f"{version:020}.json"), encoding="utf-8") as lines:
            added = [json.loads(line)["add"]["path"] for line in lines if line.startswith('{"add"')]
        for path in added:
            asked = wanted.get(os.path.realpath(_local(table, path)))
            if asked and asked not in found:
                found[asked] = read_commit(table, version)
    return found


def columns(table: str) -> list[str]:
    """Return the columns of the table as it is now, none if it is not there."""
    schema = _metadata(table).get("schemaString") if commit_versions(table) else None
    return [str(field["name"]) for field in json.loads(schema)["fields"]] if schema else []


def _property(table: str, name: str) -> str:
    """Return a property of the table as it is now, or nothing."""
    return str(dict(_metadata(table).get("configuration") or {}).get(name, ""))


def _metadata(table: str) -> Mapping[str, Any]:
    """Return what the log says of the table as it is now, or nothing."""
    checkpoints = checkpoints_of(table)
    newest = max(checkpoints, default=NO_TABLE)
    for version in reversed([one for one in commit_versions(table) if one > newest]):
        with open(os.path.join(log_folder(table), f"{version:020}.json"), encoding="utf-8") as lines:
            for line in lines:
                if line.startswith('{"metaData"'):
                    found: Mapping[str, Any] = json.loads(line)["metaData"]
                    return found
    for path in checkpoints.get(newest, ()):
        for metadata in actions_kept(path, "metaData"):
            return metadata
    return {}


def _files_at(table: str, checkpoint: int, commits: Iterable[int]) -> set[str]:
    """Return the files of a version; a checkpoint may keep them in files of its own."""
    paths = list(checkpoints_of(table).get(checkpoint, ()))
    sidecars = [str(one["path"]) for path in paths for one in actions_kept(path, "sidecar")]
    paths += [os.path.join(log_folder(table), "_sidecars", name) for name in sidecars]
    vectors = {str(add["path"]): _vector(add) for path in paths for add in actions_kept(path, "add", _READ_OF_FILES)}
    for version in commits:
        with open(os.path.join(log_folder(table), f"{version:020}.json"), encoding="utf-8") as lines:
            actions = list(map(json.loads, lines))
        # A file that only gets another deletion vector is removed and added by one commit.
        for path in (action["remove"]["path"] for action in actions if "remove" in action):
            vectors.pop(path, None)
        vectors |= {action["add"]["path"]: _vector(action["add"]) for action in actions if "add" in action}
    return set(vectors) | set(filter(None, vectors.values()))


def _vector(add: Mapping[str, Any]) -> str:
    """Return the file that lists the rows of another which do not count, or nothing; a short list is in the log itself."""
    found = add.get("deletionVector") or {}
    kind, name = found.get("storageType"), str(found.get("pathOrInlineDv"))
    if kind == "p":
        return name
    if kind != "u":
        return ""
    folder, letters = name[:-_LETTERS_OF_A_NAME], name[-_LETTERS_OF_A_NAME:]
    number = base64.b85decode(letters.translate(str.maketrans(_LETTERS, _PYTHONS_LETTERS)))
    return os.path.join(folder, f"deletion_vector_{uuid.UUID(bytes=number)}.bin")
