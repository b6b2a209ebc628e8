"""What became of each slot of one command, for a machine that reads it afterwards?

`run_results.json` is written twice: when the first slot is worked on, with `ended_at` empty, and at the
end. Each time the file appears whole, in place of the one before it. So a command that was killed leaves
a file that says it did not end, and never one that tells of an older command as if it were its own.
If the file cannot be written, a warning says so, and the outcome of the command stays what it is.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from twice import interrupts
from twice.backfills import SlotEnd
from twice.cli.output import say
from twice.errors import TwiceError, Waiting
from twice.events import ENDS, Event, error_facts, utc_now
from twice.explain import explain
from twice.masks import masked
from twice.project import Project

SCHEMA_VERSION = 1


class Results:
    """Collects how the slots of one command ended."""

    def __init__(self, project: Project, command: str) -> None:
        self._file = os.path.join(project.root, str(project.settings["results.file"]))
        self._facts: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "invocation": secrets.token_hex(8),
            "command": command,
            "ledger": project.ledger.id,
            "started_at": utc_now(),
            "ended_at": None,
            "exit_code": None,
        }
        self._slots: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Note what happens to a slot while the command works."""
        with self._lock:
            is_first = not self._slots
            entry = self._entry(event.slot.text)
            if event.kind == "started":
                entry |= {"state": "started", "started_at": event.at, "attempt": event.attempt}
                entry["generation"] = event.generation
                entry["attempts"] += 1
            elif event.kind in ENDS:
                entry |= {"state": event.state or event.kind, "ended_at": event.at, "reason": event.reason}
                entry["attempt"] = entry["attempt"] or event.attempt
        if is_first and event.kind == "started":
            self._write()

    def add(self, ended: SlotEnd) -> None:
        """Note how a slot ended."""
        with self._lock:
            entry = self._entry(ended.slot.text)
            entry["ended_at"] = entry["ended_at"] or utc_now()
            if ended.outcome:
                told = ended.outcome.to_json()
                entry |= {name: told[name] for name in ("state", "generation", "reason", "rows", "notes", "along")}
                entry["version"] = told["version_after"]
                entry["attempt"] = entry["attempt"] or told["attempt"]
            if ended.error:
                waits = isinstance(ended.error, Waiting)
                entry["state"] = "waiting" if waits else entry["state"] or "failed"
                entry |= {"reason": ended.error.what, "error": error_facts(ended.error)}

    def finish(self, exit_code: int, error: TwiceError | None = None) -> None:
        """Write all of it down."""
        self._facts |= {"ended_at": utc_now(), "exit_code": exit_code}
        self._facts["error"] = error_facts(error) if error else None
        self._write()

    def _entry(self, slot: str) -> dict[str, Any]:
        empty = {
            "slot": slot,
            "state": "",
            "attempt": "",
            "attempts": 0,
            "generation": None,
            "rows": None,
            "version": None,
            "reason": "",
            "started_at": None,
            "ended_at": None,
            "error": None,
        }
        return self._slots.setdefault(slot, empty)

    def _write(self) -> None:
        with self._lock:
            text = json.dumps(masked({**self._facts, "results": list(self._slots.values())}), indent=1)
        try:
            write_whole(self._file, text)
        except OSError as error:
            say(f"warning: {self._file} could not be written: {error.strerror or error}")


def write_whole(path: str, text: str) -> None:
    """Let a text appear under a name, whole, in place of what was there."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".tmp-{secrets.token_hex(8)}")
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text if text.endswith("\n") else text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


@contextmanager
def recorded(project: Project, command: str) -> Iterator[Results]:
    """Write down what a command does; whoever calls says its exit code, and an error says its own."""
    results = Results(project, command)
    project.listen(results)
    try:
        yield results
    except TwiceError as error:
        results.finish(error.exit_code, error)
        raise
    except KeyboardInterrupt:
        results.finish(interrupts.exit_code())
        raise
    except Exception as error:
        results.finish(3, TwiceError(explain(error)))
        raise
