"""How is another process made to die, to sleep or to fail at a fault point?

A run is started as a process group of its own: Python, the JVM and its workers. At the point it
gets SIGKILL, all of it or one part; or it is stopped, and woken up when another has done its work.
The group ends with the block that waits for it, also when that is interrupted or waits too long.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from twice import interrupts

_MOST_SECONDS = 300
_SECONDS_TO_END = 10


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
    with ExitStack() as started:
        running = [started.enter_context(_started(words, folder, "", settings)) for _ in range(count)]
        return [_ended(process) for process in running]


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


@contextmanager
def _started(
    words: Sequence[str], folder: Path, fault: str, settings: Mapping[str, str] | None, module: str = "twice"
) -> Iterator[subprocess.Popen[str]]:
    """Start a command, and kill its group if the block that waits for it does not come to its end."""
    environment = {name: value for name, value in os.environ.items() if name != "TWICE_FAULTS"} | dict(settings or {})
    if fault:
        environment["TWICE_FAULTS"] = fault
    with interrupts.held_back():  # else it could have begun before it can be ended
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", module, *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        interrupts.check()
        yield process
    except BaseException:
        _kill(process)
        raise


def _ended(process: subprocess.Popen[str]) -> Ended:
    output, _ = process.communicate(timeout=_MOST_SECONDS)
    return Ended(process.returncode, output)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a group, and wait until none of it can write any more: its output ends when the last of them has ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_SECONDS_TO_END)


def recorded_points(words: Sequence[str], folder: Path, settings: Mapping[str, str] | None = None) -> list[str]:
    """Run a command to its end, and return the fault points that it reached, once each."""
    file = folder / "points.txt"
    ended = run_command(words, folder, f"record:{file}", settings)
    if ended.code:
        raise RuntimeError(f"the clean run failed: {ended.output}")
    points = list(dict.fromkeys(file.read_text(encoding="utf-8").split()))
    file.unlink()
    return points
