"""What does a network do to a COMMIT, and how is it made to do so?

A `Wire` stands between clients and a PostgreSQL server on this machine. It reads just enough of what
is said to see a COMMIT, in a simple query or in a prepared statement, and can then

    BEFORE          cut the connection: the server never sees it
    AFTER           let it pass, wait for the server's reply, and cut without handing that on
    DURING          let it pass and cut at once: whether it landed is for the server to say
    SILENT_BEFORE   hand nothing on any more in either direction, cut only when `hang_up` is called
    SILENT_AFTER    the same, after the server has replied

or delay all that passes. A fault is meant for one COMMIT, by default the next one; `having` is a text that
must have been said in the same transaction. Connections are not encrypted on the way: a client that asks
for it is told that this server cannot.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

BEFORE = "before"
AFTER = "after"
DURING = "during"
SILENT_BEFORE = "silent before"
SILENT_AFTER = "silent after"
CUTS = (BEFORE, AFTER, DURING)

_LOOPBACK = "127.0.0.1"
_ASKS_FOR_ENCRYPTION = (80877103, 80877104)
_CANCELS = 80877102
_CHUNK = 1 << 16
_READY = b"Z"
_ENDS = ("COMMIT", "END")


@dataclass
class Fault:
    """One fault, meant for the n-th COMMIT of a transaction in which a text was said."""

    how: str
    having: bytes = b""
    number: int = 1
    done: threading.Event = field(default_factory=threading.Event)


class Wire:
    """A way to a server that can be cut."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listening = socket.create_server((_LOOPBACK, 0))
        self._links: set[_Link] = set()
        self._fault: Fault | None = None
        self._lock = threading.Lock()
        self.port: int = self._listening.getsockname()[1]
        self.delay_seconds = 0.0
        self.commits = 0

    @classmethod
    def to(cls, url: str) -> Self:
        """Return a wire to the server of a URL."""
        parts = urlsplit(url)
        return cls(parts.hostname or _LOOPBACK, parts.port or 5432)

    def through(self, url: str) -> str:
        """Return a URL of the same database that goes through this wire."""
        parts = urlsplit(url)
        who = parts.netloc.rpartition("@")[0]
        return urlunsplit(
            parts._replace(netloc=f"{who}@{_LOOPBACK}:{self.port}" if who else f"{_LOOPBACK}:{self.port}")
        )

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        self.hang_up()

    def expect(self, how: str, *, having: str = "", number: int = 1) -> Fault:
        """Do this to a COMMIT that is yet to come; `done` of the answer is set when it happened."""
        with self._lock:
            self._fault = Fault(how, having.encode(), number)
            return self._fault

    def hang_up(self) -> None:
        """Cut all connections."""
        for link in list(self._links):
            link.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed when the block is left
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._server, timeout=10)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        link = _Link(self, client, server)
        self._links.add(link)
        link.run()
        if not link.mute:
            self._links.discard(link)

    def fault_for(self, said: bytes) -> Fault | None:
        """Return what is to be done to a COMMIT after this was said in its transaction."""
        with self._lock:
            self.commits += 1
            fault = self._fault
            if fault is None or fault.having not in said:
                return None
            fault.number -= 1
            if fault.number:
                return None
            self._fault = None
            return fault


class _Link:
    """One connection, in both directions."""

    def __init__(self, wire: Wire, client: socket.socket, server: socket.socket) -> None:
        self._wire = wire
        self._client = client
        self._server = server
        self._waiting: Fault | None = None
        self._silent = threading.Event()
        self.mute = False
        self._listener = _Listener()
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        """Hand on what is said until one side hangs up."""
        back = threading.Thread(target=self._hand_back, daemon=True)
        try:
            if self._greet():
                back.start()
                self._hand_on()
        except OSError:
            pass
        self._end()

    def _end(self) -> None:
        """Let the other side know that one has gone; a mute connection tells nobody."""
        if not self.mute:
            self.cut()

    def cut(self) -> None:
        """End the connection on both sides, without a farewell."""
        for side in (self._client, self._server):
            with suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()

    def _greet(self) -> bool:
        """Hand on the first message, which has no type; encryption is declined."""
        while True:
            head = _exactly(self._client, 8)
            length, code = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
            rest = _exactly(self._client, length - 8)
            if code not in _ASKS_FOR_ENCRYPTION:
                self._server.sendall(head + rest)
                return code != _CANCELS
            self._client.sendall(b"N")

    def _hand_on(self) -> None:
        for message in _messages(self._client):
            time.sleep(self._wire.delay_seconds)
            commits = self._listener.hears(message)
            fault = self._wire.fault_for(self._listener.said) if commits else None
            if commits:
                self._listener.said = b""
            if fault is None:
                self._say(message)
            elif not self._faulted(fault, message):
                return

    def _say(self, message: bytes) -> None:
        if not self._silent.is_set():
            self._server.sendall(message)

    def _faulted(self, fault: Fault, message: bytes) -> bool:
        """Do what was asked for; tells whether the connection lives on."""
        self.mute = fault.how in (SILENT_BEFORE, SILENT_AFTER)
        if fault.how in (BEFORE, SILENT_BEFORE):
            self._silent.set()
            fault.done.set()
            return self.mute
        if fault.how in (AFTER, SILENT_AFTER):
            self._waiting = fault
            self._server.sendall(message)
            return True
        self._silent.set()  # a fast reply must not slip through
        self._server.sendall(message)
        fault.done.set()
        return False

    def _hand_back(self) -> None:
        with suppress(OSError):
            for message in _messages(self._server):
                if self._waiting:
                    self._silent.set()
                    if message[:1] == _READY:  # the COMMIT was answered, and the answer is kept back
                        fault, self._waiting = self._waiting, None
                        fault.done.set()
                        if fault.how == AFTER:
                            break
                elif not self._silent.is_set():
                    self._client.sendall(message)
        self._end()


class _Listener:
    """Understands as much of the protocol as it takes to see a COMMIT."""

    def __init__(self) -> None:
        self.said = b""
        self._statements: set[bytes] = set()
        self._portals: set[bytes] = set()

    def hears(self, message: bytes) -> bool:
        """Tell whether a message of the client asks for a COMMIT."""
        kind, body = message[:1], message[5:]
        if kind == b"Q":
            self.said += body
            return _is_commit(body.rstrip(b"\0"))
        if kind == b"P":
            name, query = body.split(b"\0", 2)[:2]
            self.said += query
            _put(self._statements, name, _is_commit(query))
        elif kind == b"B":
            portal, name = body.split(b"\0", 2)[:2]
            _put(self._portals, portal, name in self._statements)
        return kind == b"E" and body.split(b"\0", 1)[0] in self._portals


def _put(names: set[bytes], name: bytes, belongs: bool) -> None:
    if belongs:
        names.add(name)
    else:
        names.discard(name)


def _is_commit(query: bytes) -> bool:
    """Tell whether the last statement of a query is a COMMIT."""
    last = query.decode("utf-8", "replace").strip().rstrip(";").rpartition(";")[2].split()
    return bool(last) and last[0].upper() in _ENDS


def _messages(side: socket.socket) -> Iterator[bytes]:
    """Yield whole messages: a type, a length, and a body."""
    held = b""
    while True:
        chunk = side.recv(_CHUNK)
        if not chunk:
            return
        held += chunk
        while len(held) >= 5 and len(held) > (length := int.from_bytes(held[1:5], "big")):  # noqa: PLR2004 - a type and a length
            yield held[: length + 1]
            held = held[length + 1 :]


def _exactly(side: socket.socket, number: int) -> bytes:
    held = b""
    while len(held) < number:
        chunk = side.recv(number - len(held))
        if not chunk:
            raise ConnectionResetError
        held += chunk
    return held
