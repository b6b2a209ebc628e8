"""Is everything as it should be, as far as one can see without changing anything?

Each module answers one question about one pipeline, with a function of what was seen of it. Here they
are asked in turn, with one look at each target, and what could not be asked is told as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from twice.abilities import FindsRepeats, Inspects, KeepsVersions, Store, UnitesTables
from twice.checks.code import remarks_on_plan
from twice.checks.duplicates import SAMPLE, duplicates, unique_columns
from twice.checks.inputs import inputs_gone
from twice.checks.proofs import ended_proofs, foreign_changes
from twice.checks.records import disagreements, open_attempts, owner
from twice.checks.seen import Ledger, Seen, ledger_of, seen_by
from twice.checks.starts import starting_versions
from twice.checks.tables import dropped_tables, stale_views, store_troubles
from twice.checks.tested import broken_tests, miscounted_slots
from twice.errors import Misuse, TwiceError
from twice.explain import explain
from twice.findings import NOTICE, WRONG, Finding
from twice.lint import as_finding, remarks_on
from twice.sight import Past
from twice.upstream import compared

if TYPE_CHECKING:
    from twice.lint.rules import Remark
    from twice.pipelines import Pipeline
    from twice.project import Project


@dataclass(frozen=True)
class Asked:
    """How far the checks go.

    `quick` starts no JVM. `plan` calls the transforms and looks at Spark's plans for their rows. `strict` takes
    what the lint finds for wrong.
    """

    quick: bool = False
    plan: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        if self.quick and self.plan:
            raise Misuse("Spark's plans need a JVM, which a quick look rules out.", fix="Leave one of the two out.")


@dataclass
class Report:
    """What was found, what was looked at, and what was left out; code that several pipelines use is told once."""

    pipelines: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """How many findings say that something is wrong."""
        return sum(finding.severity == WRONG for finding in self.findings)

    @property
    def notices(self) -> int:
        """How many findings are only worth knowing."""
        return sum(finding.severity == NOTICE for finding in self.findings)


def look_over(
    project: Project, pipelines: Sequence[Pipeline], asked: Asked | None = None, now: datetime | None = None
) -> Report:
    """Ask all questions about some pipelines."""
    report, moment, depth = Report(), now or datetime.now(UTC), asked or Asked()
    ledger = ledger_of(project)
    for pipeline in pipelines:
        report.pipelines.append(pipeline.name)
        report.findings += _guarded(pipeline, lambda one: _of(project, one, ledger, moment, depth, report))
        report.findings += _guarded(pipeline, lambda one: _linted(project, one, moment, depth, report))
    return report


def _guarded(pipeline: Pipeline, look: Callable[[Pipeline], Iterator[Finding]]) -> Iterator[Finding]:
    """A target that cannot be looked at is a finding, and does not keep the others from being looked at."""
    try:
        yield from look(pipeline)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other pipelines are still looked at
        what = error.what if isinstance(error, TwiceError) else explain(error)
        remedy = error.fix if isinstance(error, TwiceError) and error.fix else f"Try: twice status {pipeline.name}"
        yield Finding("look", WRONG, pipeline.name, pipeline.target.text, what, remedy, {"error": type(error).__name__})


def _of(
    project: Project, pipeline: Pipeline, ledger: Ledger, now: datetime, asked: Asked, report: Report
) -> Iterator[Finding]:
    store = project.store(pipeline.target.store)
    seen = seen_by(project, pipeline, ledger, now)
    yield from owner(seen)
    dropped = dropped_tables(seen, lambda table: store.look(table).exists)
    yield from disagreements(seen, frozenset(slot for slots in dropped.values() for slot in slots))
    yield from open_attempts(seen)
    yield from ended_proofs(seen)
    yield from stale_views(seen, dropped, _unfilled(store, seen))
    past = _past(store, seen)
    yield from foreign_changes(seen, next(iter(past.states), None))
    yield from starting_versions(seen, past)
    yield from inputs_gone(seen, compared(project, pipeline, seen.published).gone)
    troubles = list(_inspected(store, seen, asked, report))
    yield from troubles
    is_whole = not any(trouble.check == "files" for trouble in troubles)
    yield from _repeated(store, seen, asked, report, is_whole=is_whole)
    yield from miscounted_slots(seen)
    yield from _tested(store, seen, asked, report, is_whole=is_whole)


def _linted(project: Project, pipeline: Pipeline, now: datetime, asked: Asked, report: Report) -> Iterator[Finding]:
    remarks = list(remarks_on(pipeline, str(project.root)))
    if asked.plan:
        try:
            remarks += remarks_on_plan(project, pipeline, now, remarks)
        except Exception as error:  # noqa: BLE001 - it is the user's code that failed, and a run would tell
            why = error.what if isinstance(error, TwiceError) else explain(error)
            report.left_out.append(f"Spark's plan for {pipeline.name}: {why.rstrip('.')}")
    for remark in (one for one in remarks if not one.is_allowed and one not in report.remarks):
        report.remarks += [remark] if remark.line else []
        finding = as_finding(pipeline, remark)
        yield finding.as_wrong() if asked.strict else finding


def _unfilled(store: Store, seen: Seen) -> Iterable[str]:
    return store.unfilled(seen.pipeline.target.name) if isinstance(store, UnitesTables) else ()


def _past(store: Store, seen: Seen) -> Past:
    """Return the older versions, or the newest one where no slot starts from them: they may be many.

    Names for several tables have none of their own.
    """
    if not isinstance(store, KeepsVersions) or seen.sight.points or not seen.sight.pinned or not seen.sight.exists:
        return Past()
    found = store.past(seen.pipeline.target.name)
    states = found.states if seen.pipeline.pattern.keep_days else itertools.islice(found.states, 1)
    return Past(tuple(states), found.lost)


def _inspected(store: Store, seen: Seen, asked: Asked, report: Report) -> Iterator[Finding]:
    name = seen.pipeline.target.name
    if not isinstance(store, Inspects) or not seen.sight.exists:
        return
    yield from store_troubles(seen, store.inspect(name))
    if store.is_in_catalog(name) and asked.quick:
        report.left_out.append(f"the SQL view of {seen.target}, which only Spark's catalog can show (--quick)")
    elif store.is_in_catalog(name):
        yield from store_troubles(seen, store.inspect_catalog(name))


def _repeated(store: Store, seen: Seen, asked: Asked, report: Report, *, is_whole: bool) -> Iterator[Finding]:
    name, columns = seen.pipeline.target.name, unique_columns(seen.pipeline.pattern)
    if not columns or not seen.sight.exists or not isinstance(store, FindsRepeats):
        return
    if asked.quick and store.needs_spark_to_count(name):
        report.left_out.append(f"duplicates in {seen.target}, which only Spark can count (--quick)")
    elif not is_whole:
        report.left_out.append(f"duplicates in {seen.target}, of which files are missing")
    else:
        yield from duplicates(seen, columns, store.repeats(name, columns, SAMPLE))


def _tested(store: Store, seen: Seen, asked: Asked, report: Report, *, is_whole: bool) -> Iterator[Finding]:
    name, tests = seen.pipeline.target.name, seen.pipeline.tests
    if not any(test.named for test in tests) or not seen.sight.exists or not isinstance(store, FindsRepeats):
        return
    if asked.quick and store.needs_spark_to_count(name):
        report.left_out.append(f"tests of {seen.target}, which only Spark can answer (--quick)")
    elif not is_whole:
        report.left_out.append(f"tests of {seen.target}, of which files are missing")
    else:
        yield from broken_tests(seen, store.answers(name, tests))


__all__ = ["Asked", "Report", "look_over"]
