"""How is a whole process group killed at a fault point, as a power cut would?

A run is started as a process group of its own: Python, the JVM and its workers. At the point it
gets SIGKILL, all of it; nothing can clean up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
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


def run_command(words: Sequence[str], folder: Path, fault: str = "") -> Ended:
    """Run `twice` in a process group of its own, armed with a fault or with none."""
    environment = {name: value for name, value in os.environ.items() if name != "TWICE_FAULTS"}
    if fault:
        environment["TWICE_FAULTS"] = fault
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "twice", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        timeout=_MOST_SECONDS,
        check=False,
    )
    return Ended(done.returncode, done.stdout)


def recorded_points(words: Sequence[str], folder: Path) -> list[str]:
    """Run a command to its end, and return the fault points that it reached, once each."""
    file = folder / "points.txt"
    ended = run_command(words, folder, f"record:{file}")
    if ended.code:
        raise RuntimeError(f"the clean run failed: {ended.output}")
    points = list(dict.fromkeys(file.read_text(encoding="utf-8").split()))
    file.unlink()
    return points
