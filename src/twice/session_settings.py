"""Which settings of a Spark session would weaken a run, and what is done about each?

Some settings make Spark or Delta pass over files, rows or checks without a word. While an attempt works they are pinned: the
session has the value that keeps the promise, whatever it had before, and gets its own back when the attempt ends. The rows that
a transform returns are evaluated under the pins, even if the transform itself set something else. Where a setting cannot be
pinned, because it changes what the project's own SQL means or outlives the run, the run is refused.

Guaranteed: inside `watched`, a session that was handed to `hold` has every pinned value, in all threads, until the last attempt
that holds it has ended. A process that dies takes its session with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twice import interrupts
from twice.errors import Misuse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IGNORE_CORRUPT = "spark.sql.files.ignoreCorruptFiles"
IGNORE_MISSING = "spark.sql.files.ignoreMissingFiles"

PINNED = {
    IGNORE_CORRUPT: "false",
    IGNORE_MISSING: "false",
    "spark.sql.execution.sortBeforeRepartition": "true",
    "spark.sql.json.enableExactStringParsing": "true",
    "spark.sql.legacy.csv.enableDateTimeParsingFallback": "false",
    "spark.sql.legacy.json.enableDateTimeParsingFallback": "false",
    "spark.sql.legacy.charVarcharAsString": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    "spark.sql.sources.outputCommitterClass": "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter",
    "spark.sql.sources.partitionOverwriteMode": "static",
    # Spark hands what a session says on to Hadoop, where it stands before `spark.hadoop.*` and the site's own files.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.cleanup.skipped": "false",
    "spark.databricks.delta.deletionVectors.propagateCloseFailure": "true",
    "spark.databricks.delta.dynamicPartitionOverwrite.enabled": "true",
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "true",
    "spark.databricks.delta.stalenessLimit": "0",
    "spark.databricks.delta.write.utcTimestampPartitionValues": "true",
}


def _is_on(value: str) -> bool:
    return value.lower() == "true"


@dataclass(frozen=True)
class Refused:
    """A setting with which no run begins: for which values, and what would happen."""

    name: str
    weakens: Callable[[str], bool]
    why: str


REFUSED = (
    Refused(
        "spark.sql.parser.escapedStringLiterals",
        _is_on,
        "Texts in the conditions that Twice writes would be read as other texts, and keys not found.",
    ),
    Refused(
        "spark.sql.parser.quotedRegexColumnNames",
        _is_on,
        "Names of columns that Twice writes would be read as patterns, and fit others too.",
    ),
    Refused(
        "spark.sql.preserveCharVarcharTypeInfo",
        _is_on,
        "Columns of rows would be CHAR and VARCHAR, which Spark cannot read back from files.",
    ),
    Refused(
        "spark.databricks.delta.write.txnAppId",
        bool,
        "Delta would pass over a write whose number it has seen, without a word.",
    ),
    Refused(
        "spark.databricks.delta.write.txnVersion",
        bool,
        "Delta would pass over a write whose number it has seen, without a word.",
    ),
    Refused(
        "spark.databricks.delta.properties.defaults.setTransactionRetentionDuration",
        bool,
        "A new table would forget which slots were published.",
    ),
    Refused(
        "spark.databricks.delta.properties.defaults.appendOnly",
        _is_on,
        "A new table could never be published to again.",
    ),
)


@dataclass
class _Held:
    """A session that attempts work with: what it said before, and how many they are."""

    session: Any
    before: dict[str, str | None] = field(default_factory=dict)
    attempts: int = 0


_lock = threading.Lock()
_all_held: dict[str, _Held] = {}
_watching = threading.local()


@contextmanager
def watched() -> Iterator[None]:
    """Let the sessions that this thread holds in the block have the pinned values until it ends."""
    outer = getattr(_watching, "held", None)
    held: dict[str, SparkSession] = {}
    _watching.held = held
    try:
        yield
    finally:
        _watching.held = outer
        for name in held:
            _let_go(name)


def hold(spark: SparkSession) -> None:
    """Refuse a session whose settings cannot be borne, and pin the others; outside of `watched` nothing is pinned.

    Raises:
        Misuse: With the setting named.
    """
    if not hasattr(spark, "_jsparkSession"):
        return
    for one in REFUSED:
        value = spark.conf.get(one.name, None) or ""
        if one.weakens(value):
            raise Misuse(
                f"The Spark session has {one.name}={value}.",
                f"{one.why} Nothing was published.",
                f'Take it out of [spark.conf], or call spark.conf.unset("{one.name}").',
            )
    held: dict[str, Any] | None = getattr(_watching, "held", None)
    if held is None:
        return
    name = str(spark._jsparkSession.sessionUUID())
    with _lock:
        if name not in held:
            held[name] = spark
            _all_held.setdefault(name, _Held(spark)).attempts += 1
        before = _all_held[name].before
        for setting, value in PINNED.items():
            found = spark.conf.get(setting, None)
            before.setdefault(setting, found)
            if found != value:
                spark.conf.set(setting, value)


def hold_all(rows: Iterable[Any]) -> None:
    """Hold the sessions that rows will be evaluated in; rows that are no frames have none."""
    sessions = {id(one.sparkSession): one.sparkSession for one in rows if hasattr(one, "sparkSession")}
    for spark in sessions.values():
        hold(spark)


def is_held(spark: SparkSession) -> bool:
    """Tell whether this thread holds a session already, without asking its JVM."""
    return any(one is spark for one in (getattr(_watching, "held", None) or {}).values())


def _let_go(name: str) -> None:
    """Give a session back what it said before, when the last attempt is done with it."""
    with _lock:
        held = _all_held[name]
        held.attempts -= 1
        if held.attempts:
            return
        del _all_held[name]
        if interrupts.asked():
            return  # its JVM is gone
        # A session that was stopped meanwhile has nothing to be given back.
        with suppress(Exception):
            for setting, value in held.before.items():
                held.session.conf.unset(setting) if value is None else held.session.conf.set(setting, value)
