"""Where does Spark start a slow task a second time?

Only on another host than the one on which the first is slow. So two workers stand on two addresses of this machine's
loopback, under a master of their own, and each has one executor.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from twice import interrupts
from twice.prover.archives import quick
from twice.prover.trials import CannotBeTried

_HOSTS = ("127.0.0.1", "127.0.0.2")
_ADDRESS = re.compile(r"spark://[\d.]+:\d+")
_MEMORY = "1g"
_SECONDS_TO_START = 60.0
_REGISTERED = "Successfully registered with master"


@contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """Start a master and two workers, and return the master's address; they end with the block."""
    folder.mkdir(parents=True)
    running: list[subprocess.Popen[bytes]] = []
    try:
        log = _start(running, folder, "master.Master", ("--host", _HOSTS[0], "--port", "0"))
        address = _said(log, _ADDRESS)
        logs = [
            _start(
                running,
                folder,
                "worker.Worker",
                ("--host", host, "--cores", "1", "--memory", _MEMORY, "--work-dir", str(folder / host), address),
            )
            for host in _HOSTS
        ]
        for one in logs:
            _said(one, re.compile(_REGISTERED))
        yield address
    finally:
        for process in reversed(running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(running: list[subprocess.Popen[bytes]], folder: Path, name: str, words: Sequence[str]) -> Path:
    spec = find_spec("pyspark")
    program = Path(spec.origin or "").parent / "bin" / "spark-class" if spec else Path()
    log = folder / f"{len(running)}.log"
    with log.open("wb") as out, interrupts.held_back():
        process = subprocess.Popen(  # noqa: S603 - Spark's own command
            [str(program), f"org.apache.spark.deploy.{name}", "--webui-port", "0", *words],
            env={**os.environ, **quick(), "PYSPARK_PYTHON": sys.executable},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        running.append(process)
    interrupts.check()
    return log


def _said(log: Path, pattern: re.Pattern[str]) -> str:
    """Wait until a process has written something, and return it."""
    until = time.monotonic() + _SECONDS_TO_START
    while time.monotonic() < until:
        found = pattern.search(log.read_text(encoding="utf-8", errors="replace"))
        if found:
            return found[0]
        time.sleep(0.1)
    raise CannotBeTried("a cluster of two hosts does not start on this machine's loopback")
