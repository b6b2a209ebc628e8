"""What is kept of the log of a run that did not end well?

Its traceback, what code logged through `logging` in its thread, and what the JVM of the driver wrote to its file meanwhile: of
runs side by side the lines stand together there. Each part is bounded, and secrets are masked. Nothing is decided by it, so a ledger
that cannot keep it hides nothing of how the run ended.
"""

from __future__ import annotations

import json
import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twice.errors import NotPublished
from twice.ledger.tables import insert
from twice.masks import mask

if TYPE_CHECKING:
    from twice.ledger.ledger import Ledger

Captured = Callable[[], Mapping[str, str]]

MOST_CHARACTERS = 32_000
_MOST_LINES = 500
_LEFT_OUT = "\n[…]\n"
_FORM = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


_here = threading.local()


@cache
def _listen() -> None:
    """Note every record as it is made, for the thread that makes it.

    Not by a handler: where the root has one, `logging.basicConfig` in a transform would do nothing.
    """
    made = logging.getLogRecordFactory()

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = made(*args, **kwargs)
        lines: deque[str] | None = getattr(_here, "lines", None)
        if lines is not None:
            with suppress(Exception):  # arguments that do not fit are the affair of whoever logs
                lines.append(_FORM.format(record))
        return record

    logging.setLogRecordFactory(make)


@contextmanager
def capturing(jvm_log: Path) -> Iterator[Captured]:
    """Keep what is logged while the block works, in this thread and by the JVM; yield what returns it, by its origin."""
    began = jvm_log.stat().st_size if jvm_log.exists() else 0
    _listen()
    outer, lines = getattr(_here, "lines", None), deque[str](maxlen=_MOST_LINES)
    _here.lines = lines
    try:
        yield lambda: {"python": "\n".join(lines), "jvm": _since(jvm_log, began)}
    finally:
        _here.lines = outer


def _since(file: Path, began: int) -> str:
    """Return the end of what was written to a file since it had so many bytes."""
    with suppress(OSError), file.open("rb") as log:
        end = log.seek(0, 2)
        begins = max(began, end - MOST_CHARACTERS)
        log.seek(begins)
        text = log.read().decode(errors="replace")
        # Half a line may hold half a secret, which nothing would know for one.
        return text if begins == began else text.partition("\n")[2]
    return ""


def keep(ledger: Ledger, attempt: str, error: BaseException, captured: Captured | None = None) -> None:
    """Keep the log of an attempt, with the traceback of what ended it."""
    told = "".join(traceback.format_exception(error))
    logged = captured() if captured else {}
    parts = {
        "traceback": _both_ends(mask(told)),
        **{name: mask(text)[-MOST_CHARACTERS:] for name, text in logged.items()},
    }
    with suppress(NotPublished), ledger.transaction() as db:
        row = {"attempt": attempt, "text": json.dumps({name: text for name, text in parts.items() if text})}
        insert(db, "logs", row, replacing=["attempt"])


def _both_ends(text: str) -> str:
    """Bound a traceback: what was raised first is told at its beginning, and what came of it at its end."""
    half = MOST_CHARACTERS // 2
    return text if len(text) <= MOST_CHARACTERS else text[:half] + _LEFT_OUT + text[-half:]


def find(ledger: Ledger, attempt: str) -> dict[str, str]:
    """Return the log of an attempt, by origin; empty if none was kept, or none any more."""
    found = ledger.query("SELECT text FROM logs WHERE attempt=?", attempt)
    return dict(json.loads(found[0]["text"])) if found else {}


def remove(ledger: Ledger, pipelines: list[str], before: str, *, dry_run: bool) -> int:
    """Remove the logs of attempts of some pipelines that began before a time; return how many there are."""
    old = "SELECT l.attempt FROM logs l JOIN attempts a ON a.attempt = l.attempt WHERE a.pipeline=? AND a.started_at<?"
    found = [(row["attempt"],) for name in pipelines for row in ledger.query(old, name, before)]
    if found and not dry_run:
        with ledger.transaction() as db:
            db.executemany("DELETE FROM logs WHERE attempt=?", found)
    return len(found)
