"""How is another process made to die, to sleep or to fail at a fault point?

A run is started as a process group of its own: Python, the JVM and its workers. At the point it
gets SIGKILL, all of it or one part; or it is stopped, and woken up when another has done its work.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_MOST_SECONDS = 300


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    output: str

    @property
    def killed(self) -> bool:
        """Tell whether SIGKILL ended it."""
        return self.code == -signal.SIGKILL


def run_command(
    words: Sequence[str],
    folder: Path,
    fault: str = "",
    settings: Mapping[str, str] | None = None,
    module: str = "twice",
) -> Ended:
    """Run `twice`, or a module of it, in a process group of its own, armed with a fault or with none."""
    with _started(words, folder, fault, settings, module) as process:
        return _ended(process)


def run_together(words: Sequence[str], folder: Path, settings: Mapping[str, str], count: int = 2) -> list[Ended]:
    """Run the same command several times at once."""
    running = [_started(words, folder, "", settings) for _ in range(count)]
    ended = []
    for process in running:
        with process:
            ended.append(_ended(process))
    return ended


def run_asleep(
    words: Sequence[str], folder: Path, fault: str, settings: Mapping[str, str], meanwhile: Callable[[], None]
) -> Ended:
    """Run a command that is stopped at a point, do something meanwhile, and wake it up.

    If it ends without being stopped, nothing is done meanwhile.
    """
    with _started(words, folder, fault, settings) as process:
        state = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if state is not None and state.si_code == os.CLD_STOPPED:
            try:
                meanwhile()
            finally:
                os.kill(process.pid, signal.SIGCONT)
        return _ended(process)


def _started(
    words: Sequence[str], folder: Path, fault: str, settings: Mapping[str, str] | None, module: str = "twice"
) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TWICE_FAULTS"} | dict(settings or {})
    if fault:
        environment["TWICE_FAULTS"] = fault
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", module, *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _ended(process: subprocess.Popen[str]) -> Ended:
    """Wait for a process; one that takes too long is killed with its group."""
    try:
        output, _ = process.communicate(timeout=_MOST_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return Ended(process.returncode, output)


def recorded_points(words: Sequence[str], folder: Path, settings: Mapping[str, str] | None = None) -> list[str]:
    """Run a command to its end, and return the fault points that it reached, once each."""
    file = folder / "points.txt"
    ended = run_command(words, folder, f"record:{file}", settings)
    if ended.code:
        raise RuntimeError(f"the clean run failed: {ended.output}")
    points = list(dict.fromkeys(file.read_text(encoding="utf-8").split()))
    file.unlink()
    return points
