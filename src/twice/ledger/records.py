"""What does the ledger keep of one attempt, and of a lease?"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache

OPEN = "started"
_DEAD_STATES = ("Z", "X", "x")
STATES = (OPEN, "published", "skipped", "failed", "refused", "interrupted", "unknown", "died")
BAD = ("failed", "refused", "interrupted", "unknown", "died")


@dataclass(frozen=True)
class AttemptRecord:
    """One start of work on a slot.

    `asked` and `parameters` are JSON: what it was asked for, so that a retry is asked for the same. Both are empty where an
    older Twice, or a refusal, wrote the record.
    """

    attempt: str
    slot: str
    pipeline: str
    target: str
    generation: int
    fingerprint: str
    code: str
    state: str
    reason: str = ""
    rows: int | None = None
    version_before: int | None = None
    version_after: int | None = None
    started_at: str = ""
    ended_at: str = ""
    host: str = ""
    pid: int = 0
    plan: str = ""
    asked: str = ""
    parameters: str = ""


@dataclass(frozen=True)
class Holder:
    """The process that holds a lease, so that a dead one is told from a slow one."""

    host: str
    pid: int
    started: str

    @classmethod
    def me(cls) -> Holder:
        """This process."""
        return cls(*_this_process())

    @property
    def is_dead(self) -> bool:
        """Tell for sure that the process is gone; a process of another host is never sure."""
        return self.host == socket.gethostname() and process_start(self.pid) != self.started


@dataclass(frozen=True)
class Lease:
    """A promise to others that someone works here. It saves work; it never gives safety."""

    name: str
    attempt: str
    holder: Holder


@cache
def _this_process() -> tuple[str, int, str]:
    """Look once who this is; a copy of the process, made by a fork, looks again."""
    pid = os.getpid()
    return socket.gethostname(), pid, process_start(pid)


os.register_at_fork(after_in_child=_this_process.cache_clear)


def process_start(pid: int) -> str:
    """Return what tells two processes of one number apart, or nothing if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
            return "" if fields[0] in _DEAD_STATES else fields[19]
    except FileNotFoundError:
        return "" if os.path.isdir("/proc/self") else _alive_without_proc(pid)
    except OSError:
        return ""


@cache
def machine_boot() -> str:
    """Tell one boot of the machine from another."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            return boot.read().strip()
    except OSError:
        return "unknown"


def _alive_without_proc(pid: int) -> str:
    """Where there is no /proc: the process exists, or it does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "alive"
    return "alive"
