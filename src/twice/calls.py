"""What is called in an outside system once rows are published, written down as data?

An effect outlives the process that registered it: a rerun, or another command, has to be able to make the call. So it is
data: an HTTP request, or the name of a function of a module with plain arguments. It holds no secret: what stands as
`${VAR}` in a header is filled in from the environment when the call is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from twice.errors import Misuse

_MOST_BYTES = 4096
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})


@dataclass(frozen=True)
class HttpEffect:
    """One HTTP request, sent with the key of its effect in the header `Idempotency-Key`."""

    url: str
    json: Any = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 10.0

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise Misuse(f"{self.url!r} is no address that an effect can call.", fix="Begin with https:// or http://.")
        if "@" in self.url.partition("://")[2].partition("/")[0]:
            raise Misuse("The address of an effect holds a password.", fix="Put it in a header, as ${VAR}.")
        for name, value in self.headers.items():
            if name.lower() in _SECRET_HEADERS and "${" not in value:
                raise Misuse(
                    f"The header {name!r} of an effect holds its secret itself.",
                    "It would be kept in the ledger.",
                    f'Name a variable of the environment: headers={{"{name}": "Bearer ${{TOKEN}}"}}',
                )


def http_effect(
    url: str,
    *,
    json: Any = None,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    timeout: float = 10.0,
) -> HttpEffect:
    """Describe an HTTP request to be sent once the rows are published, each time with the same `Idempotency-Key`."""
    return HttpEffect(url, json, method, dict(headers or {}), timeout)


def written(call: HttpEffect | Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """Write a call down as text.

    Raises:
        Misuse: It is a function that no other process could find, its arguments are not plain, or it is too large.
    """
    if isinstance(call, HttpEffect):
        if arguments:
            raise Misuse("An HTTP effect takes no further arguments.", fix="Put them into json=.")
        text = _plain({"http": asdict(call)})
    else:
        text = _plain({"function": _named(call), "arguments": dict(arguments)})
    if len(text.encode()) > _MOST_BYTES:
        raise Misuse(
            f"The effect takes {len(text.encode()):,} bytes; {_MOST_BYTES:,} are allowed.",
            "It is kept in the ledger and, from the outbox, in the commit of the table.",
            "Send what the service needs to find the rows, and not the rows.",
        )
    return text


def _named(function: Callable[..., Any]) -> str:
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not callable(function) or not module or not name or "<" in name:
        raise Misuse(
            f"{name or function!r} cannot be the call of an effect: no other process could find it.",
            "If this run dies after its publish, another one has to make the call.",
            "Define a function at the top of a module and hand its arguments over: run.effect(name, call=send, to=...).",
        )
    return f"{module}:{name}"


def _plain(values: Any) -> str:
    try:
        return json.dumps(values, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Misuse(f"An effect is kept as JSON, and this one cannot be: {error}.", fix="Use plain values.") from None
