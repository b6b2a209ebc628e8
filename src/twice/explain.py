"""What did Spark mean?

Spark reports through several layers of exceptions and hundreds of lines. People need one: what was
wrong, and with which file or column.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from twice.masks import mask

_FILE = re.compile(r"Encountered error while reading file (\S+?)\.? ")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+\.)?(\w+(?:Exception|Error)): (.+)$", re.MULTILINE)
_CONDITION = re.compile(r"\[[A-Z_]+(?:\.[A-Z_]+)*\] [^\n]+")
# What follows was written by whoever called raise_error, and needs no label.
_RAISED = "[USER_RAISED_EXCEPTION] "
_WORKERS = "Traceback (most recent call last):\n"
_PLACE = re.compile(r", line \d+, in [^)]+\)$")
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_OURS = os.path.dirname(__file__) + os.sep
_NOT_THE_USERS = re.compile(
    rf"<|{re.escape(_OURS)}|{re.escape(sysconfig.get_path('stdlib'))}/|.*/(site|dist)-packages/|.*/pyspark(\.zip)?/"
)
_MOST = 400
_MOST_CAUSES = 10


def explain(error: BaseException) -> str:
    """Return one line that names the trouble, and the file where there is one; secrets are masked."""
    text = _text(error)
    if _WORKERS in text:
        return _of_worker(text.rpartition(_WORKERS)[2])
    file = _FILE.search(text)
    condition = _CONDITION.findall(text)
    causes = _CAUSE.findall(text)
    if file:
        name = unquote(file[1].removeprefix("file://"))
        why = f"{causes[-1][0]}: {causes[-1][1]}" if causes else (condition[-1] if condition else "")
        return _short(f"{name} could not be read ({why})")
    if condition:
        return _short((condition[-1] if "[FAILED" in condition[0] else condition[0]).removeprefix(_RAISED).rstrip("; "))
    lines = [line for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    return _short(first if re.match(r"[\w.$]+(Exception|Error)\b", first) else f"{type(error).__name__}: {first}")


def explain_code(error: BaseException) -> str:
    """Return the same of an error in the user's code, with the last line of that code that was reached."""
    told = explain(error)
    frames = traceback.extract_tb(error.__traceback__)
    found = _users([(frame.filename, frame.lineno or 0, frame.name) for frame in frames])
    return f"{told} ({found})" if found and not _PLACE.search(told) else told


def _of_worker(trace: str) -> str:
    """Explain the error of a function that Spark called in a process of its own: the message holds the traceback."""
    frames = [(name, int(line), function) for name, line, function in _FRAME.findall(trace)]
    raised = [line for line in trace.splitlines() if line and not line.startswith(" ")]
    found = _users(frames)
    return _short(raised[0] if raised else "") + (f" ({found})" if found else "")


def _users(frames: Sequence[tuple[str, int, str]]) -> str:
    """Name the innermost line that is neither ours nor a library's."""
    own = [frame for frame in frames if not _NOT_THE_USERS.match(frame[0])]
    if not own:
        return ""
    file, line, function = own[-1]
    here = os.path.relpath(file)
    return f"{file if here.startswith(os.pardir) else here}, line {line}, in {function}"


def _text(error: BaseException) -> str:
    """The message, with the JVM's own causes where there are some."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        try:
            return _causes(java)
        except Exception:  # noqa: BLE001 - the JVM may be gone, and what Python has must do
            return str(error)
    cause = getattr(error, "_stackTrace", None) or getattr(error, "_stacktrace", None) or ""
    return f"{error}\n{cause}"


def _causes(java: Any) -> str:
    """The JVM's exception and what caused it, one line each at least."""
    lines = [str(java.toString())]
    with suppress(AttributeError):
        cause = java.getCause()
        while cause is not None and len(lines) < _MOST_CAUSES:
            lines.append(f"Caused by: {cause.toString()}")
            cause = cause.getCause()
    return "\n".join(lines)


def _short(text: str) -> str:
    text = mask(" ".join(text.split()))
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"
