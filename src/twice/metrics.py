"""What would somebody who watches the runs want to be called for?

Figures from the ledger, in the text form of Prometheus. Labels are the pipelines that the project
declares, and states: their number is bounded by the code and never by slots or by time. Runs of
pipelines that the project no longer declares are counted together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from twice.errors import Misuse
from twice.ledger import effects, retries
from twice.ledger.tallies import last_success, tallies, troubles
from twice.pipelines import Pipeline
from twice.runs import Slot

if TYPE_CHECKING:
    from twice.project import Project

UNDECLARED = "(undeclared)"


def exposition(project: Project) -> str:
    """Return all figures, in the text form of Prometheus.

    Raises:
        Misuse: The library that writes it is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise Misuse(
            "The library for metrics is not installed.", fix="Install it with: pip install 'twice[metrics]'"
        ) from None
    registry = CollectorRegistry()
    registry.register(_Figures(project))
    return generate_latest(registry).decode()


class _Figures:
    """Computes the figures when they are asked for."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._name = {pipeline.identity: name for name, pipeline in project.pipelines.items()}

    def describe(self) -> Iterable[Any]:
        """Names are known only together with their figures."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield one family of figures after the other."""
        yield from self._runs()
        yield from self._successes()
        yield from self._slots()
        yield from self._waiting()
        yield _gauge(
            "twice_leases_held", "Leases that live attempts hold now.", len(self._project.ledger.live_leases())
        )

    def _runs(self) -> Iterator[Any]:
        runs, rows = Counter[tuple[str, str]](), Counter[str]()
        for tally in tallies(self._project.ledger):
            runs[self._label(tally.pipeline), tally.state] += tally.runs
            if tally.state == "published":
                rows[self._label(tally.pipeline)] += tally.rows
        yield _by("gauge", "twice_runs", "Runs in the ledger, by how they ended.", ("pipeline", "state"), runs)
        yield _by("counter", "twice_rows_published", "Rows of all publishes.", ("pipeline",), _keyed(rows))

    def _successes(self) -> Iterator[Any]:
        ended: dict[tuple[str, ...], float] = {}
        took: dict[tuple[str, ...], float] = {}
        for identity, name in self._name.items():
            found = last_success(self._project.ledger, identity)
            if found:
                began, done = (datetime.fromisoformat(moment).timestamp() for moment in found)
                ended[name,], took[name,] = done, max(done - began, 0.0)
        now = datetime.now(UTC).timestamp()
        age = {name: max(now - moment, 0.0) for name, moment in ended.items()}
        labels = ("pipeline",)
        yield _by(
            "gauge", "twice_last_success_timestamp_seconds", "When a pipeline last published, Unix time.", labels, ended
        )
        yield _by(
            "gauge", "twice_last_success_age_seconds", "How long ago that was when this was written.", labels, age
        )
        yield _by(
            "gauge", "twice_last_success_duration_seconds", "How long its last publishing run took.", labels, took
        )

    def _slots(self) -> Iterator[Any]:
        failing = Counter(dict.fromkeys(self._name.values(), 0))
        failing.update(self._label(trouble.pipeline) for trouble in troubles(self._project.ledger))
        text = "Slots whose newest run ended badly, with nothing confirmed since."
        yield _by("gauge", "twice_slots_failing", text, ("pipeline",), _keyed(failing))
        due = {(p.name,): _due(self._project, p) for p in self._project.pipelines.values() if p.schedule}
        text = "Closed intervals of the calendar of which the ledger knows no publish."
        yield _by("gauge", "twice_slots_due", text, ("pipeline",), due)

    def _waiting(self) -> Iterator[Any]:
        """Figures about what failed and was not given up, what was, and what is owed to others."""
        again, dead = (Counter(dict.fromkeys(self._name.values(), 0)) for _ in range(2))
        for row in retries.every(self._project.ledger):
            (dead if row.is_dead else again)[self._label(row.pipeline)] += 1
        owed = Counter(dict.fromkeys(self._name.values(), 0))
        owed.update(self._label(row.pipeline) for row in effects.counting(self._project.ledger))
        yield _by(
            "gauge", "twice_runs_due_again", "Failed runs that will be tried again.", ("pipeline",), _keyed(again)
        )
        yield _by("gauge", "twice_runs_dead", "Runs set aside after their last try.", ("pipeline",), _keyed(dead))
        text = "Calls in outside systems that are not confirmed."
        yield _by("gauge", "twice_effects_owed", text, ("pipeline",), _keyed(owed))

    def _label(self, identity: str) -> str:
        return self._name.get(identity, UNDECLARED)


def _due(project: Project, pipeline: Pipeline) -> int:
    """Count the closed intervals without a publish; their texts lie side by side in the order of time."""
    closed = list(pipeline.schedule.closed(datetime.now(UTC))) if pipeline.schedule else []
    if not closed:
        return 0
    first, last = (Slot(pipeline.identity, pipeline.target, one).text for one in (closed[0], closed[-1]))
    known = project.ledger.query("SELECT count(*) AS n FROM receipts WHERE slot >= ? AND slot <= ?", first, last)
    return max(len(closed) - int(known[0]["n"]), 0)


def _keyed(counts: Counter[str]) -> dict[tuple[str, ...], float]:
    return {(name,): count for name, count in counts.items()}


def _by(kind: str, name: str, text: str, labels: tuple[str, ...], values: Any) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def _gauge(name: str, text: str, value: float) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=value)
