"""Data pipelines that you can run twice.

A pipeline declares what it reads, how it transforms, where it writes and which idempotency pattern
protects the write. Every retry, crash, double start, backfill and restatement then ends in the
same table as one clean run. `import twice` loads no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twice.api import (
        backfill,
        check,
        current_files,
        data_overwrite,
        dedup_insert,
        diff,
        fast_metadata_cleaner,
        files,
        keyed,
        merger,
        plan,
        point,
        proxy,
        publish,
        query,
        read,
        register_views,
        restore,
        rule,
        run,
        seal,
        slot,
        source,
        sql,
        stateful_merger,
        table,
        transactional_writer,
        versions,
    )
    from twice.calls import http_effect
    from twice.confidential import Secret, secret
    from twice.data_tests import fresh, not_null, row_count, unique
    from twice.errors import (
        Busy,
        EffectOwed,
        Fenced,
        Held,
        Misuse,
        NotIdempotent,
        NotProvable,
        NotPublished,
        OutcomeUnknown,
        TwiceError,
        Unsupported,
        Waiting,
    )
    from twice.events import Event, on
    from twice.findings import Finding
    from twice.jobs import Outcome
    from twice.pipelines import Pipeline, pipeline
    from twice.project import Project
    from twice.prover.proving import prove
    from twice.steps import step
    from twice.tries import retries

__version__ = "0.1.0"

_WHERE = {
    "Busy": "errors",
    "EffectOwed": "errors",
    "Event": "events",
    "Fenced": "errors",
    "Finding": "findings",
    "Held": "errors",
    "Misuse": "errors",
    "NotIdempotent": "errors",
    "NotProvable": "errors",
    "NotPublished": "errors",
    "Outcome": "jobs",
    "OutcomeUnknown": "errors",
    "Pipeline": "pipelines",
    "Project": "project",
    "Secret": "confidential",
    "TwiceError": "errors",
    "Unsupported": "errors",
    "Waiting": "errors",
    "backfill": "api",
    "check": "api",
    "current_files": "api",
    "data_overwrite": "api",
    "dedup_insert": "api",
    "diff": "api",
    "fast_metadata_cleaner": "api",
    "files": "api",
    "fresh": "data_tests",
    "http_effect": "calls",
    "keyed": "api",
    "merger": "api",
    "not_null": "data_tests",
    "on": "events",
    "pipeline": "pipelines",
    "plan": "api",
    "point": "api",
    "prove": "prover.proving",
    "proxy": "api",
    "publish": "api",
    "query": "api",
    "read": "api",
    "register_views": "api",
    "restore": "api",
    "retries": "tries",
    "row_count": "data_tests",
    "rule": "api",
    "run": "api",
    "seal": "api",
    "secret": "confidential",
    "slot": "api",
    "source": "api",
    "sql": "api",
    "stateful_merger": "api",
    "step": "steps",
    "table": "api",
    "transactional_writer": "api",
    "unique": "data_tests",
    "versions": "api",
}

__all__ = [
    "Busy",
    "EffectOwed",
    "Event",
    "Fenced",
    "Finding",
    "Held",
    "Misuse",
    "NotIdempotent",
    "NotProvable",
    "NotPublished",
    "Outcome",
    "OutcomeUnknown",
    "Pipeline",
    "Project",
    "Secret",
    "TwiceError",
    "Unsupported",
    "Waiting",
    "backfill",
    "check",
    "current_files",
    "data_overwrite",
    "dedup_insert",
    "diff",
    "fast_metadata_cleaner",
    "files",
    "fresh",
    "http_effect",
    "keyed",
    "merger",
    "not_null",
    "on",
    "pipeline",
    "plan",
    "point",
    "prove",
    "proxy",
    "publish",
    "query",
    "read",
    "register_views",
    "restore",
    "retries",
    "row_count",
    "rule",
    "run",
    "seal",
    "secret",
    "slot",
    "source",
    "sql",
    "stateful_merger",
    "step",
    "table",
    "transactional_writer",
    "unique",
    "versions",
]


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name not in _WHERE:
        raise AttributeError(f"module 'twice' has no attribute {name!r}")
    return getattr(import_module(f"twice.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
