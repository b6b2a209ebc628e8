"""Which files match a pattern, and which of them may be read?

The listing is our own, so that a name such as `data[1].csv` means that very file.
"""

from __future__ import annotations

import glob
import os
import re
import stat

from twice.errors import BadFile, Misuse

COPYING = "._COPYING_"
_ESCAPED = re.compile(r"\[([*?[])\]")


def list_files(root: str, pattern: str) -> list[str]:
    """List regular files under the root, sorted, by our own rules.

    A pattern that is itself the name of a file means that file. Names that Spark passes over are left out by
    wildcards, and refused where they are asked for.
    """
    return [regular(root, name) for name in matching(root, pattern)]


def matching(root: str, pattern: str) -> list[str]:
    """Return the names that match, whatever they are, sorted."""
    literal = pattern.replace("[[]", "[").replace("[*]", "*").replace("[?]", "?")
    if os.path.lexists(os.path.join(root, literal)):
        return [literal]
    if os.path.lexists(os.path.join(root, pattern)):
        return [pattern]
    found = sorted(set(glob.glob(pattern, root_dir=root, recursive=True)))
    fixed = _fixed_parts(pattern)
    return [name for name in found if not any(map(is_hidden, name.split(os.sep)[fixed:]))]


def is_hidden(name: str) -> bool:
    """Tell whether Spark passes over files and folders of this name.

    These are its rules for all readers of files: a leading `_` is hidden unless the name has a `=`, as folders of partitions have,
    and what `hdfs dfs -put` has not copied whole ends with `._COPYING_`.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith(COPYING)


def _fixed_parts(pattern: str) -> int:
    """Count the leading parts of a pattern that name one folder: these may be called what they like."""
    parts = pattern.split(os.sep)
    return next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))


def folder_of(pattern: str) -> str:
    """Return the folder that a pattern names before its first wildcard; an escaped one is none."""
    folders = pattern.split(os.sep)[:-1]
    wild = (number for number, part in enumerate(folders) if glob.has_magic(_ESCAPED.sub("", part)))
    return _ESCAPED.sub(r"\1", os.sep.join(folders[: next(wild, len(folders))]))


def regular(root: str, name: str) -> str:
    """Return the name of a file that may be read, or refuse it."""
    status = status_of(root, name)
    real = os.path.basename(os.path.realpath(os.path.join(root, name)))
    if stat.S_ISDIR(status.st_mode):
        raise Misuse(f"{name!r} is a folder.", fix=f"Write {name}/* to read the files in it.")
    if not stat.S_ISREG(status.st_mode):
        raise bad(name, "is not a regular file.")
    why = misnamed(name, real)
    if why:
        raise bad(name, why)
    return os.path.relpath(os.path.join(root, name), root) if not os.path.isabs(name) else name


def misnamed(name: str, real: str) -> str:
    """Say why a name, or that of the file behind it, cannot be read by Spark, or nothing."""
    if is_hidden(os.path.basename(name)) or is_hidden(real):
        return f"begins with '_' or '.', or ends with '{COPYING}', and Spark would pass over it without a word."
    if not _is_text(name):
        return "has a name that is not text."
    if ":" in os.path.basename(name) or ":" in real:
        return "has a colon in its name, which Spark takes for the end of a scheme."
    return ""


def status_of(root: str, name: str) -> os.stat_result:
    """Look at a file, or say by name that this cannot be done."""
    try:
        return os.stat(os.path.join(root, name))
    except OSError as error:
        raise bad(name, f"cannot be looked at: {error.strerror or error}.") from error


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def bad(name: str, why: str) -> BadFile:
    """Say what is wrong with a file."""
    return BadFile(name, why)


def spark_path(path: str) -> str:
    """Write a path so that Spark takes it for this very file and not for a pattern."""
    return "".join("\\" + char if char in "\\*?[]{}^" else char for char in os.path.abspath(path))
