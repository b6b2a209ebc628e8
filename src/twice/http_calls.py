"""How is the HTTP request of an effect sent, and what does the answer say about sending it again?

    below 300                        done
    408, 409, 425, 429, 5xx          not now: again, and not before the time that `Retry-After` names, if it names one
    no answer                        the same, with no time
    anything else                    refused: it is not repeated by itself

`Retry-After` is a number of seconds or a date. A date is read by the service's own clock, if the answer says what that shows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from twice.errors import Misuse

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_RETRIED_STATUS = frozenset({408, 409, 425, 429})
_SERVER_ERROR, _REDIRECT = 500, 300
LONGEST_WAIT = 86_400.0
"""The longest wait in seconds that a service is granted: a header that is wrong must not silence an effect for good."""


class Refused(Exception):
    """The service will not do it, however often it is asked."""


class NotNow(ConnectionError):
    """The service may do it later; `wait` is how many seconds it asked for, if it did."""

    def __init__(self, said: str, wait: float | None) -> None:
        super().__init__(said)
        self.wait = wait


def request(wanted: dict[str, Any], key: str) -> Callable[[], str]:
    """Return what sends a request with its key, and returns the answer.

    The act raises `NotNow` or `Refused`, or what the connection raised.

    Raises:
        Misuse: The library is not installed, or a variable of the environment is not set.
    """
    try:
        import httpx2
    except ImportError:
        raise Misuse("httpx2 is not installed.", fix="Install it with: pip install 'twice[http]'") from None
    headers = {name: _filled(value) for name, value in wanted["headers"].items()}

    def act() -> str:
        response = httpx2.request(
            wanted["method"],
            wanted["url"],
            json=wanted["json"],
            headers={**headers, "Idempotency-Key": key},
            timeout=wanted["timeout"],
        )
        status = int(response.status_code)
        said = f"HTTP {status}: {response.text[:200]}"
        if status < _REDIRECT:
            return said
        if status >= _SERVER_ERROR or status in _RETRIED_STATUS:
            raise NotNow(said, asked_wait(response.headers, datetime.now(UTC)))
        raise Refused(said)

    return act


def asked_wait(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return how many seconds a service asks to be left alone, a day at most; None if it does not say so.

    >>> asked_wait({"Retry-After": "120"}, datetime(2024, 10, 7, tzinfo=UTC))
    120.0
    >>> asked_wait({"Retry-After": "Mon, 07 Oct 2024 00:02:00 GMT"}, datetime(2024, 10, 7, tzinfo=UTC))
    120.0
    """
    said = headers.get("Retry-After", "").strip()
    if said.isascii() and said.isdigit():
        return min(float(said), LONGEST_WAIT)
    until, theirs = _moment(said), _moment(headers.get("Date", ""))
    return None if until is None else min(max((until - (theirs or now)).total_seconds(), 0.0), LONGEST_WAIT)


def _moment(text: str) -> datetime | None:
    from email.utils import parsedate_to_datetime  # it loads sockets and more, and few answers name a date

    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _filled(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise Misuse(f"An effect needs the environment variable {match[1]}, which is not set.")
        return os.environ[match[1]]

    return _VARIABLE.sub(value, text)
