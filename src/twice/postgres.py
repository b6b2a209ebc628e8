"""How is a PostgreSQL server reached, and what is said of it without its secret?

The store and the ledger ask for a connection in the same words. It goes to a primary alone, since a replica may not
show yet what was committed a moment ago; several hosts may be named, and the primary among them is taken. It gives up
on a server that is silent. What libpq understands is understood: URLs, key=value pairs, service files.

What is shown of an address is its hosts and its database, as libpq itself reads them. One that it cannot read is not
repeated: any part of it may be a part of a password. The driver is loaded when a server is asked for.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from twice.errors import Misuse, NotPublished

# The user's own come after these, and win.
_CALM: dict[str, Any] = {
    "application_name": "twice",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # half of a lease, so that its holder learns in time that it cannot renew it
}
_REFUSED = ("authentication failed", "does not exist", "no pg_hba.conf", "is not permitted to log in")
_READ_ONLY = ("read-only", "hot standby")


def need(what: str, *packages: str) -> None:
    """Refuse to go on without the packages that speak to PostgreSQL; none of them is loaded.

    Raises:
        Misuse: One is not installed.
    """
    missing = [package for package in packages if not find_spec(package)]
    if missing:
        raise Misuse(
            f"{what} needs {', '.join(missing)}, which is not installed.",
            fix="Install it with: pip install 'twice[postgres]'",
        )


def parameters(url: str, what: str) -> dict[str, Any]:
    """Return what libpq is told: the user's own, and what every connection needs.

    Raises:
        Misuse: The address cannot be read. What it holds is not shown.
    """
    return {**_CALM, **_read(url, what), "target_session_attrs": "read-write"}


def place(url: str, what: str) -> str:
    """Name the hosts and the database of an address, without user and password.

    Raises:
        Misuse: The address cannot be read.
    """
    asked = _read(url, what)
    hosts = str(asked.get("host") or asked.get("service") or "the default server").split(",")
    ports = str(asked.get("port") or "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    named = ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))
    return f"{named}/{asked.get('dbname') or ''}"


def refusal(error: Exception, what: str, where: str, why: str) -> Misuse | NotPublished:
    """Say why no connection was made to what is there: misuse if trying again will not help."""
    told = one_line(error)
    if any(words in told for words in _READ_ONLY):
        return Misuse(
            f"{what} {where} can only be read: it is a standby, or its role or its database is set to read only.",
            f"A standby may lack what was committed a moment ago, so it is not asked either. {why}",
            "Give the URL of the primary; several hosts may stand there, separated by commas.",
        )
    if any(words in told for words in _REFUSED):
        return Misuse(f"{what} {where} could not be reached: {told}.", why, "Correct the URL, the role or its rights.")
    return NotPublished(
        f"{what} {where} could not be reached: {told}.", why, "Run again when the server answers, or correct the URL."
    )


def one_line(error: Exception) -> str:
    """Return what a driver said, in one line."""
    return " ".join(str(error).split()).rstrip(".")


def _read(url: str, what: str) -> dict[str, Any]:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        asked = conninfo_to_dict(url)
    except ProgrammingError:
        asked = None
    # libpq takes what stands before a slash in a password for a port, and what follows an @ for a host, and repeats it.
    if asked is None or not str(asked.get("port") or "0").replace(",", "").isdigit() or "@" in str(asked.get("host")):
        raise Misuse(
            f"The address of {what[0].lower()}{what[1:]} cannot be read.",
            "It is not shown, since it may hold a password.",
            "Write postgresql://user:${PASSWORD}@host:5432/database; percent-encode what is special in a password.",
        ) from None
    return asked
