"""Who is told, in the terms of OpenLineage, what was read and written?

A run that begins work sends START, and then exactly one of COMPLETE (published, or a twin did it), FAIL
(failed, refused, unknown) and ABORT (died, interrupted). Its id follows from the attempt's name, so a receiver knows
a repeated event when it sees one. What is owed is kept in the ledger:

    died after                    what is true                          who makes up for it
    the ledger's `untold` entry   nothing was sent                      the next run sends START and the end
    START                         the end is owed                       a later run sends it, once how it ended is known
    the end was sent              it may still be called owed           the next run sends the same end again
    the entry was taken away      all was told                          nobody has to

So an end is sent at least once, and more than once only if a process dies between the sending and the
note of it. A process that lives is never spoken for: one that is paused tells of its end when it wakes up.
A receiver that does not answer costs one wait and no outcome: it is left alone for a minute then, and what it
missed is sent by a later run.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import TYPE_CHECKING, Any

from twice.errors import Misuse
from twice.events import ENDS, Event, utc_now
from twice.faults import reach
from twice.ledger import AttemptRecord
from twice.ledger.records import OPEN
from twice.ledger.untold import Untold
from twice.masks import mask
from twice.runs import Slot, Target
from twice.settings import Settings
from twice.sources.named import FOLDER

if TYPE_CHECKING:
    from twice.project import Project

_RUNS = uuid.UUID("8d1f1f0c-6b0e-5f0e-9a5e-7d1c0f2b9a11")
_PRODUCER = "https://twice.dev/twice"
_SCHEMA = "https://twice.dev/schemas/slot-run-facet-1.json"
_LEFT_ALONE_SECONDS = 60.0
_ENDS_AS = {"published": "COMPLETE", "skipped": "COMPLETE", "died": "ABORT", "interrupted": "ABORT", OPEN: "ABORT"}


def is_wanted(settings: Settings) -> bool:
    """Tell whether anybody is to be told: by `[openlineage]`, or by the client's own settings."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if settings["openlineage.url"] or settings["openlineage.file"]:
        return True
    if any(name.startswith(("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")) for name in os.environ):
        return True
    places = (settings.root, os.path.expanduser("~/.openlineage"))
    return any(os.path.isfile(os.path.join(place, "openlineage.yml")) for place in places)


def run_id(attempt: str) -> str:
    """Return the run's id, the same whoever tells of it and however often."""
    return str(uuid.uuid5(_RUNS, attempt))


class Lineage:
    """Sends events, and what earlier runs could not send any more."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._untold = Untold(project.ledger)
        self._sender: Any = None
        self._away_until = 0.0

    def __call__(self, event: Event) -> None:
        """Send what an event means; a skip of a slot that is published is no run, and is not sent."""
        if event.kind == "started":
            self._untold.owe(event.attempt)
            reach("lineage.owed")
        if time.monotonic() < self._away_until:
            return
        if event.kind == "started":
            self._send("START", _Told.of(event, self._project))
            self._untold.note_start(event.attempt)
            reach("lineage.started")
        elif event.kind in ENDS and event.attempt:
            self._end(event)
            self._catch_up()

    def _end(self, event: Event) -> None:
        owed = self._untold.find(event.attempt)
        if owed is None:
            if event.kind != "failed":
                return  # a skip without work
            self._untold.owe(event.attempt)
        told = _Told.of(event, self._project)
        if owed is None or not owed.start_told:
            self._send("START", told)
        self._send(_ENDS_AS.get(event.state or event.kind, "FAIL"), told)
        reach("lineage.ended")
        self._untold.settle(event.attempt)

    def _catch_up(self) -> None:
        """Send the ends of runs that can no longer do so themselves."""
        for owed in self._untold.of_the_dead():
            record = self._project.ledger.attempt(owed.attempt)
            if record is None or not self._untold.claim(owed):
                continue
            told = _Told.from_record(record, self._project)
            if not owed.start_told:
                self._send("START", told)
            self._send(_ENDS_AS.get(record.state, "FAIL"), told)
            reach("lineage.ended")
            self._untold.settle(owed.attempt)

    def _send(self, kind: str, told: _Told) -> None:
        if self._sender is None:
            self._sender = _client(self._project.settings)
        try:
            self._sender.emit(told.event(kind))
        except Exception:
            self._away_until = time.monotonic() + _LEFT_ALONE_SECONDS
            raise


def _client(settings: Settings) -> Any:
    try:
        from openlineage.client import OpenLineageClient
    except ImportError:
        raise Misuse(
            "OpenLineage is asked for, and its client is not installed.",
            fix="Install it with: pip install 'twice[openlineage]'",
        ) from None
    # Where the code lies may name a user and a password of the repository.
    quiet: dict[str, Any] = {"facets": {"source_code_location": {"disabled": True}}}
    if settings["openlineage.file"]:
        place = str(settings.root / settings["openlineage.file"])
        return OpenLineageClient(
            config={"transport": {"type": "file", "log_file_path": place, "append": True}, **quiet}
        )
    if settings["openlineage.url"]:
        transport: dict[str, Any] = {
            "type": "http",
            "url": settings["openlineage.url"],
            "timeout": 5.0,
            "retry": {"total": 1},
        }
        if key := os.environ.get("OPENLINEAGE_API_KEY"):
            transport["auth"] = {"type": "api_key", "apiKey": key}
        return OpenLineageClient(config={"transport": transport, **quiet})
    here = settings.root / "openlineage.yml"
    if here.is_file():
        os.environ.setdefault("OPENLINEAGE_CONFIG", str(here))
    return OpenLineageClient(config=quiet)


class _Told:
    """What is known of a run when something is sent about it."""

    def __init__(self, project: Project, slot: Slot, attempt: str, generation: int, at: str) -> None:
        self.project = project
        self.slot = slot
        self.attempt = attempt
        self.generation = generation
        self.at = at
        self.reads: tuple[str, ...] = ()
        self.rows: int | None = None
        self.trouble = ""

    @classmethod
    def of(cls, event: Event, project: Project) -> _Told:
        told = cls(project, event.slot, event.attempt, event.generation, event.at)
        told.reads, told.rows = event.reads, event.rows
        told.trouble = str(event.error) if event.error else ""
        return told

    @classmethod
    def from_record(cls, record: AttemptRecord, project: Project) -> _Told:
        slot = Slot.parse(record.slot)
        told = cls(project, slot, record.attempt, record.generation, record.ended_at or utc_now())
        told.rows = record.rows
        told.trouble = "" if record.state in ("published", "skipped") else mask(record.reason) or "its process died"
        return told

    def event(self, kind: str) -> Any:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

        output = self._dataset(OutputDataset, self.slot.target.text)
        if kind == "COMPLETE" and self.rows is not None:
            output.outputFacets = {
                "outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(rowCount=self.rows)
            }
        return RunEvent(
            eventType=RunState[kind],
            eventTime=self.at,
            producer=_PRODUCER,
            run=Run(run_id(self.attempt), facets=self._facets(kind)),
            job=Job(namespace=self._namespace(), name=self.slot.pipeline),
            inputs=[self._dataset(InputDataset, name) for name in self.reads],
            outputs=[output],
        )

    def _namespace(self) -> str:
        named = self.project.settings["openlineage.namespace"] or os.environ.get("OPENLINEAGE_NAMESPACE")
        return str(named or "twice")

    def _facets(self, kind: str) -> dict[str, Any]:
        from openlineage.client.facet_v2 import error_message_run, nominal_time_run

        facets: dict[str, Any] = {"twice_slot": _slot_facet(self)}
        interval = self.slot.interval
        if interval:
            start, _, end = interval.text.partition("/")
            facets["nominalTime"] = nominal_time_run.NominalTimeRunFacet(start, end)
        if kind in ("FAIL", "ABORT") and self.trouble:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(self.trouble, "python")
        return facets

    def _dataset(self, made: Any, name: str) -> Any:
        """Name a dataset as OpenLineage does: a file by its path, anything else by its store."""
        if name.startswith(FOLDER):
            return made(namespace="file", name=str(self.project.root / name.removeprefix(FOLDER)))
        target = Target.parse(name)
        kind, named = self.project.kind(target.store), self.project.settings.stores.get(target.store)
        if kind in ("parquet", "delta", "files") and target.is_path:
            root = self.project.root / named.root if named else self.project.root
            return made(namespace="file", name=os.path.normpath(root / target.name))
        return made(namespace=kind, name=target.name)


def _slot_facet(told: _Told) -> Any:
    import attr
    from openlineage.client.generated.base import RunFacet

    @attr.define
    class SlotRunFacet(RunFacet):  # type: ignore[misc, unused-ignore]
        slot: str
        label: str
        generation: int
        attempt: str

        @staticmethod
        def _get_schema() -> str:
            return _SCHEMA

    return SlotRunFacet(told.slot.text, told.slot.label, told.generation, told.attempt)
