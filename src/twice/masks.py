"""What must not be shown, and how is it kept out of everything that people read?

Whatever Twice writes for people, into the ledger or into a report goes through `mask`, which covers

    values that were taken for a secret     twice.secret("NAME"), ${NAME} where the name or the key says so
    the environment                         values of variables whose names say so: PASSWORD, TOKEN, ...
    addresses                               the password in scheme://user:password@host
    pairs                                   password=..., token: ...

A value of fewer than six characters is not searched for: it would be found in ordinary words.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"
_LEAST_CHARACTERS = 6
_WORDS = (
    *("secret", "passw(?:or)?d", "passphrase", "[._-]pwd", "token", "credential", r"\bdsn", "_dsn"),
    *("access.?key", "api.?key", "private.?key", "account.?key", "sas.?key"),
)
NAMES_A_SECRET = "|".join(_WORDS)
_SAYS_SECRET = re.compile(NAMES_A_SECRET, re.IGNORECASE)
# Up to the last @: a password may hold @ or / that should have been percent-encoded. A port and a path are none.
# A long scheme is found by its end: without a bound, a long run of letters would be looked at from each of them.
_IN_ADDRESS = re.compile(r"(?P<before>[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s/:@'\"]*:)(?P<secret>(?!\d*/)[^\s'\"]+)(?=@)")
_IN_PAIR = re.compile(
    r"(?P<before>(?:passw(?:or)?d|passphrase|pwd|secret|token|api_?key|access_?key)['\"]?\s*[=:]\s*['\"]?(?:Bearer\s+)?)"
    r"(?P<secret>[^\s'\"&,;)]{4,})",
    re.IGNORECASE,
)
_known: set[str] = set()


def says_secret(name: str) -> bool:
    """Tell whether a name says that its value is a secret.

    >>> says_secret("PGPASSWORD"), says_secret("spark.hadoop.fs.s3a.secret.key"), says_secret("spark.master")
    (True, True, False)
    """
    return bool(_SAYS_SECRET.search(name))


def hide(value: str) -> str:
    """Remember a value that must not be shown from now on, and return it."""
    for part in (value, value.strip()):
        if len(part) >= _LEAST_CHARACTERS:
            _known.add(part)
    return value


def mask(text: str) -> str:
    """Return a text with everything covered that must not be shown."""
    return _without(_secrets(), text)


def masked(value: Any) -> Any:
    """Return plain values, nested in any way, with every text masked; what JSON does not know becomes a text."""
    return _masked(_secrets(), value)


def _masked(secrets: Sequence[str], value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _masked(secrets, part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(secrets, part) for part in value]
    return value if value is None or isinstance(value, bool | int | float) else _without(secrets, str(value))


def _secrets() -> list[str]:
    """Return what must not be shown, the longest first: one may be a part of another."""
    return sorted(_known | _of_environment(), key=len, reverse=True)


def _without(secrets: Sequence[str], text: str) -> str:
    for value in secrets:
        if value in text:
            text = text.replace(value, MASK)
    return _IN_PAIR.sub(_covered, _IN_ADDRESS.sub(_covered, text))


def _covered(found: re.Match[str]) -> str:
    # A reference to a variable is where a secret comes from, and no secret.
    return found[0] if found["secret"].startswith(("${", MASK)) else found["before"] + MASK


def _of_environment() -> set[str]:
    return {
        value.strip()
        for name, value in os.environ.items()
        if len(value.strip()) >= _LEAST_CHARACTERS
        and says_secret(name)
        and not name.endswith("_FILE")
        and not os.path.exists(value)
    }
