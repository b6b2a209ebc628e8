"""What did Spark mean?

Spark reports through several layers of exceptions and hundreds of lines. People need one: what was
wrong, and with which file or column.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_FILE = re.compile(r"Encountered error while reading file (\S+?)\.? ")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+\.)?(\w+(?:Exception|Error)): (.+)$", re.MULTILINE)
_CONDITION = re.compile(r"\[[A-Z_]+(?:\.[A-Z_]+)*\] [^\n]+")
_MOST = 400


def explain(error: BaseException) -> str:
    """Return one line that names the trouble, and the file where there is one."""
    text = _text(error)
    file = _FILE.search(text)
    condition = _CONDITION.findall(text)
    causes = _CAUSE.findall(text)
    if file:
        name = unquote(file[1].removeprefix("file://"))
        why = f"{causes[-1][0]}: {causes[-1][1]}" if causes else (condition[-1] if condition else "")
        return _short(f"{name} could not be read ({why})")
    if condition:
        return _short(condition[-1] if "[FAILED" in condition[0] else condition[0])
    lines = [line for line in text.splitlines() if line.strip()]
    return _short(f"{type(error).__name__}: {lines[0] if lines else ''}")


def _text(error: BaseException) -> str:
    """The message, with the JVM's own causes where there are some."""
    java = getattr(error, "java_exception", None)
    if java is not None:
        try:
            return f"{error}\n{java.toString()}"
        except Exception:  # noqa: BLE001 - the JVM may be gone, and what Python has must do
            return str(error)
    cause = getattr(error, "_stackTrace", None) or getattr(error, "_stacktrace", None) or ""
    return f"{error}\n{cause}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"
