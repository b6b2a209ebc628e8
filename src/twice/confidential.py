"""Where does a secret come from, and how does it stay one?

From the environment, from a file, or from the service file of a driver; never from a file of the
project. `Secret` holds one and never prints it. Values that were taken for a secret are masked in
all that Twice writes: see `masks`.
"""

from __future__ import annotations

import os
from typing import NoReturn

from twice.errors import Misuse
from twice.masks import MASK, hide

_MOST_BYTES = 1 << 16


class Secret:
    """A value that never prints itself: not by `str`, `repr`, `format`, JSON or pickle."""

    __slots__ = ("_value", "name")

    def __init__(self, value: str, name: str = "") -> None:
        self._value = hide(value)
        self.name = name

    def reveal(self) -> str:
        """Return the value, to be handed to the driver or the service that needs it."""
        return self._value

    def __repr__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise Misuse(
            f"The secret {self.name or MASK} cannot be pickled.",
            "It would stand in clear in the bytes, in the task of every executor, and in Spark's logs.",
            "Use it on the driver, or let the executors read it from their own environment.",
        )


def secret(name: str) -> Secret:
    """Take a secret from the environment variable `name`, or from the file that `<name>_FILE` names.

    Raises:
        Misuse: There is neither, or the file cannot be read.
    """
    found = from_environment(name)
    if found is None:
        raise Misuse(
            f"The secret {name} is not there.",
            "Secrets come from the environment or from a file, never from a file of the project.",
            f"Set {name}, or let {name}_FILE name a file that holds it.",
        )
    return Secret(found, name)


def from_environment(name: str) -> str | None:
    """Return the value of a variable, or the content of the file that `<name>_FILE` names; the file's is hidden."""
    if name in os.environ:
        return os.environ[name]
    file = os.environ.get(f"{name}_FILE")
    return hide(from_file(file, f"{name}_FILE")) if file else None


def from_file(path: str, asked_by: str) -> str:
    """Return the content of a file that holds one secret, without the line's end."""
    try:
        with open(path, encoding="utf-8") as file:
            content = file.read(_MOST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Misuse(f"{asked_by} names a file that cannot be read: {why}.") from None
    if len(content) > _MOST_BYTES or not content.strip():
        raise Misuse(f"{asked_by} names a file that holds no single secret.", fix="One secret, in one line of text.")
    return content.rstrip("\r\n")
