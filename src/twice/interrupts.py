"""What do SIGINT and SIGTERM do to a command?

The first one ends the work in hand cleanly, with exit code 130 or 143; a second one ends the process at once. Only the command
line installs handlers (`handled`); called from Python, Ctrl-C is an ordinary KeyboardInterrupt.

- **An attempt is interrupted while it looks, reads and stages, and nowhere else.** From the publish to the record of its end it is
  held back (`held_back`): the store is read back and the ledger told, then the command ends.
- **The JVM of this process ends first**, before anything is cleaned up. So no call waits for an answer, no task writes on, no lock of a
  table is kept, and threads that wait for Spark come back with an error.
- **Nothing else begins** once an interrupt was asked for: `check` raises before each piece of work, in every thread.
- **An error that follows from the interrupt is the interrupt** (`first`), unless the outcome is unknown: then that is told.
- **Of slots of copies nothing is told** (`of_copies`): a proof that is interrupted says so, and what it worked on is removed.

The second signal kills the JVM and leaves. What is true then is what is true after SIGKILL at that point.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from twice.errors import OutcomeUnknown

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHELL_ADDS = 128
_SECONDS_TO_END = 10.0
_POLL_SECONDS = 0.05
_STDERR = 2  # written to directly: a handler may interrupt the very stream that it would print to
_PATIENCE = (
    b"\ntwice: interrupted; what is being published is completed first. A second signal ends the process at once.\n"
)
# PySpark's own word for the program that it starts a JVM for; it stands on that JVM's command line from the first moment on.
_OF_PYSPARK = "pyspark-shell"


class Interrupted(KeyboardInterrupt):
    """A signal asked the command to end. Not an error: no handler of errors treats it as one."""


_asked: signal.Signals | None = None
_is_handled = False
_held_back: set[int] = set()
_told: list[str] = []
_is_unknown = False


@contextmanager
def handled() -> Iterator[None]:
    """Let SIGINT and SIGTERM end the work in the block cleanly. A signal that the parent chose to ignore stays ignored."""
    global _is_handled  # noqa: PLW0603 - one process, one disposition of its signals
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _handle)
    _is_handled = True
    root = logging.getLogger()
    root.addFilter(_is_news)
    try:
        yield
    finally:
        if _asked:
            _end_jvm(signal.SIGTERM)
        root.removeFilter(_is_news)
        _is_handled = False


def _handle(number: int, _: Any) -> None:
    global _asked  # noqa: PLW0603 - as above
    if _asked:
        _end_jvm(signal.SIGKILL)
        os._exit(_SHELL_ADDS + number)
    _asked = signal.Signals(number)
    if _held_back:
        os.write(_STDERR, _PATIENCE)
    else:
        _end_jvm(signal.SIGTERM)
    if threading.get_ident() not in _held_back:
        raise Interrupted(_asked.name)


def asked() -> bool:
    """Tell whether an interrupt was asked for."""
    return _asked is not None


def exit_code() -> int:
    """Return how the process ends that was interrupted: as a shell would count it, or 3 if a slot's outcome is unknown."""
    if _is_unknown:
        return OutcomeUnknown.exit_code
    return _SHELL_ADDS + (_asked or signal.SIGINT)


def check() -> None:
    """Begin nothing new once an interrupt was asked for.

    Raises:
        Interrupted: It was.
    """
    if _asked:
        raise Interrupted(_asked.name)


@contextmanager
def held_back() -> Iterator[None]:
    """Hold interrupts of this thread back while the block works; `let_through` opens it for a while.

    Raises:
        Interrupted: One was asked for before.
    """
    me = threading.get_ident()
    outer = me in _held_back
    # First in the set, then the check: the handler does it the other way round, so that one of both notices the other.
    _held_back.add(me)
    try:
        check()
        yield
    finally:
        if not outer:
            _held_back.discard(me)
            if _asked and not _held_back:
                _end_jvm(signal.SIGTERM)


@contextmanager
def let_through() -> Iterator[None]:
    """Let interrupts through again while the block works, inside of `held_back`.

    Raises:
        Interrupted: One was asked for, before the block, in it or just now.
    """
    me = threading.get_ident()
    outer = me in _held_back
    _held_back.discard(me)
    try:
        if _asked and not _held_back:
            _end_jvm(signal.SIGTERM)
        check()
        yield
    finally:
        if outer:
            _held_back.add(me)
    check()


@contextmanager
def first() -> Iterator[None]:
    """Tell of the interrupt, and not of the errors that it causes; what is unknown stays unknown.

    Raises:
        Interrupted: In place of an error that came after it.
    """
    try:
        yield
    except OutcomeUnknown:
        raise
    except Exception as error:
        if _asked:
            raise Interrupted(_asked.name) from error
        raise


def tell(text: str, *, unknown: bool = False) -> None:
    """Say what is true of a slot that was in hand."""
    global _is_unknown  # noqa: PLW0603 - as above
    _is_unknown = _is_unknown or unknown
    _told.append(text)


def told() -> list[str]:
    """Return what is true of the slots that were in hand."""
    return list(_told)


@contextmanager
def of_copies(text: str) -> Iterator[None]:
    """Tell this alone of an interrupt of the block, whose slots are those of copies."""
    global _is_unknown  # noqa: PLW0603 - as above
    before, was_unknown = told(), _is_unknown
    try:
        yield
    finally:
        _told[:] = [*before, text] if _asked else before
        _is_unknown = was_unknown


@contextmanager
def kept() -> Iterator[None]:
    """Keep the handlers while a library starts in the block.

    PySpark puts its own in their place, which speaks to the JVM in the midst of another call.
    """
    if not _is_handled:
        yield
        return
    real = signal.signal
    signal.signal = lambda number, _: signal.getsignal(number)  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = real


def _is_news(record: logging.LogRecord) -> bool:
    """Keep out what py4j logs of an interrupt that was asked for: as the root logger, so no logger of its own can be told."""
    return not (_asked and os.path.basename(os.path.dirname(record.pathname)) == "py4j")


def _be_quiet() -> None:
    """Let PySpark and py4j print no traceback of a JVM that is ended on purpose."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    pyspark: Any = sys.modules.get("pyspark")
    context = pyspark.SparkContext._active_spark_context if pyspark else None
    if server := getattr(context, "_accumulatorServer", None):
        server.handle_error = lambda *_: None


def _end_jvm(how: signal.Signals) -> None:
    """End the JVMs that PySpark started for this process, whether they are up yet or not, and wait until they are gone."""
    try:
        import psutil
    except ImportError:
        return  # it comes with Spark
    _be_quiet()
    jvms = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if _OF_PYSPARK in child.cmdline():
                child.send_signal(how)
                jvms.append(child)
    until = time.monotonic() + _SECONDS_TO_END
    for jvm in jvms:
        with suppress(psutil.Error):
            # Not `wait`, which would take the exit status away from PySpark, and that would wait for it in vain.
            while jvm.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
            jvm.kill()
