"""What does the ledger keep of one attempt, and of a lease?"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache

OPEN = "started"
_DEAD_STATES = ("Z", "X", "x")
RUNNING, DIED = "running", "died"
STAGING, PUBLISHING = "staging", "publishing"
STATES = (OPEN, "published", "skipped", "failed", "refused", "interrupted", "unknown", DIED)
SHOWN = (RUNNING, *STATES[1:])
BAD = ("failed", "refused", "interrupted", "unknown", DIED)


@dataclass(frozen=True)
class AttemptRecord:
    """One start of work on a slot.

    `asked` and `parameters` are JSON: what it was asked for, so that a retry is asked for the same. Both are empty where an
    older Twice, or a refusal, wrote the record. `step` is how far it came, `staging` or `publishing`.
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
    process_started: str = ""
    step: str = ""

    def seen(self, live: Collection[str]) -> AttemptRecord:
        """Return the attempt as it is now: one without an end is running, or died with its process.

        `live` are the attempts that hold a lease. One whose process lives on this host is running without one, too.
        """
        if self.state != OPEN:
            return self
        holder = Holder(self.host, self.pid, self.process_started)
        lives_here = bool(self.process_started) and holder.is_alive
        process = f"process {self.pid} on {self.host}"
        if self.attempt in live or lives_here:
            return replace(self, state=RUNNING, reason=f"{self.step} since {self.started_at[:19]}Z, {process}".lstrip())
        if self.host == socket.gethostname():
            return replace(self, state=DIED, reason=f"its {process} ended while {self.step or 'working'}.")
        return replace(self, state=DIED, reason=f"its lease ran out while {self.step or 'working'}; it was {process}.")


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
    def is_alive(self) -> bool:
        """Tell for sure that the process is there; a process of another host is never sure."""
        return self.host == socket.gethostname() and process_start(self.pid) == self.started

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
