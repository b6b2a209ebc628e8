"""What does the log say of each run?

One line for each event, on standard error: JSON for machines, or words for people. Every line bears
the run (its attempt) and the slot, and so does every line that code of the user's logs through
`logging` or `structlog` while its run is at work. Secrets are masked.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO, cast

import structlog

from twice.events import ENDS, Event, utc_now
from twice.masks import masked

_LEVEL_OF = {"failed": "error", "dead": "error", "retried": "warning", "quarantined": "warning"}
_NOISY = ("py4j", "urllib3", "openlineage")


class Log:
    """Writes events down, and binds run and slot to what is logged meanwhile in the same thread."""

    def __init__(self, kind: str, level: str) -> None:
        self._logger = structlog.wrap_logger(
            structlog.PrintLogger(cast("TextIO", _StandardError())),
            processors=[structlog.contextvars.merge_contextvars, *_processors(), _renderer(kind)],
            wrapper_class=structlog.make_filtering_bound_logger(level),
        )
        _take_in_the_users_log(kind, level)

    def __call__(self, event: Event) -> None:
        """Write one line."""
        if event.kind == "started":
            structlog.contextvars.bind_contextvars(run=event.attempt, slot=event.slot.text)
        facts = event.to_json()
        kind = facts.pop("event")
        write = getattr(self._logger, _LEVEL_OF.get(event.kind, "info"))
        write(f"run {kind}", timestamp=facts.pop("at"), **facts)
        if event.kind in ENDS:
            structlog.contextvars.unbind_contextvars("run", "slot")


class _StandardError:
    """Standard error as it is when a line is written: while a JVM starts, it is exchanged for a moment."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _processors() -> list[Any]:
    return [structlog.processors.add_log_level, structlog.processors.format_exc_info, _stamped, _masked]


def _stamped(_: Any, __: str, values: Any) -> Any:
    values.setdefault("timestamp", utc_now())
    return values


def _masked(_: Any, __: str, values: Any) -> Any:
    return masked(values)


def _renderer(kind: str) -> Any:
    if kind == "json":
        return structlog.processors.JSONRenderer()
    return structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, sort_keys=False)


def _take_in_the_users_log(kind: str, level: str) -> None:
    """Let what transforms log through `logging` come in the same form, unless the program has a log of its own."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(_StandardError())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.add_logger_name,
                *_processors(),
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _masked, _renderer(kind)],
        )
    )
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
