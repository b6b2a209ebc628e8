"""What could be otherwise when a run is made again, though nothing that it declares has changed?

Two clean runs that are made alike agree by luck: they split their files alike and hash alike, on one day and in one zone. So
the second one is made in other weather: in a process of its own with another number of cores, another seed of hashes, another
zone, another day and, where this machine has one, another locale; with other partitions, other pieces of files, rows in
another order, and in another folder. Where no process of its own can run the pipeline, what this process can change is changed.
"""

from __future__ import annotations

import functools
import locale
import os
import runpy
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

from twice.pipelines import Pipeline
from twice.prover.codes import Code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
# Another day, month, year, day of the week and hour.
_LATER = timedelta(days=397, hours=5)
_ZONES = ("Asia/Kolkata", "America/St_Johns")
_LANGUAGES = ("de", "fr")
# A decimal comma, and other names of days and months than in English.
_LOCALES = ("de_DE.UTF-8", "fr_FR.UTF-8", "es_ES.UTF-8", "it_IT.UTF-8", "pl_PL.UTF-8", "pt_BR.UTF-8", "ru_RU.UTF-8")
_SEEDS = ("4711", "4712")
_CORES = (3, 2)
_PARTS = 5
# Each setting has two values, of which that is taken which the first run has not.
_CONF = {
    "spark.sql.shuffle.partitions": ("7", "5"),
    "spark.sql.adaptive.enabled": ("false", "true"),
    "spark.sql.files.minPartitionNum": ("7", "5"),
    # Files are cut into as many pieces as there are to be, however small they are.
    "spark.sql.files.openCostInBytes": ("1", "4194304"),
    "spark.sql.autoBroadcastJoinThreshold": ("-1", "10485760"),
    "spark.sql.leafNodeDefaultParallelism": ("7", "5"),
}
_DEPENDS_ON_PIECES = ("input_file_name", "input_file_block")
_NO_LOCALE = "the locale of Python was not varied: this machine has none in another language"
VARIED = "cores, partitions, pieces of files, order of rows, hash seed, locale, zone, folder and day"


@contextmanager
def another_day(zone: str = "") -> Iterator[None]:
    """Let Python's clock go on from another day while the block works, in a zone if one is named; Spark's clock is not Python's."""
    import time_machine

    # A moment without a zone leaves that of the process as it is.
    later = datetime.now(ZoneInfo(zone) if zone else UTC) + _LATER
    with time_machine.travel(later if zone else later.timestamp(), tick=True):
        yield


def other_conf(spark: SparkSession | None) -> dict[str, str]:
    """Return settings of a session that none of this one's equals."""
    if spark is None:
        return {}
    return {name: _other(values, str(spark.conf.get(name, None))) for name, values in _CONF.items()}


def other_cores(spark: SparkSession) -> str:
    """Return a master on this machine with another number of cores."""
    return f"local[{_other(_CORES, spark.sparkContext.defaultParallelism)}]"


def other_environment() -> dict[str, str]:
    """Return what this process can say otherwise to code that asks its environment."""
    found = _other_locale()
    return {"LC_ALL": found} if found else {}


def other_process() -> dict[str, str]:
    """Return what another process is told besides, before it starts."""
    language = _other(_LANGUAGES, _language())
    return {
        "PYTHONHASHSEED": _other(_SEEDS, os.environ.get("PYTHONHASHSEED", "")),
        "TZ": other_zone(),
        "JAVA_TOOL_OPTIONS": f"-Duser.language={language} -Duser.country={language.upper()}",
    }


def notes() -> list[str]:
    """Say what this machine could not vary."""
    return [] if _other_locale() else [_NO_LOCALE]


def shuffled(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline whose transform gets its frames in other partitions, with their rows in another order.

    Rows forget behind a shuffle which file they were read from, so a transform that asks gets them as they are read.
    """
    code = Code(pipeline)
    words = (*(name for name, _ in code.calls()), *(text for text, _ in code.texts()))
    if any(one in word for word in words for one in _DEPENDS_ON_PIECES):
        return pipeline
    transform = pipeline.transform

    @functools.wraps(transform)
    def on_shuffled(*rows: Any, **named: Any) -> Any:
        return transform(*map(_shuffled, rows), **{name: _shuffled(one) for name, one in named.items()})

    return replace(pipeline, transform=on_shuffled)


def _shuffled(rows: Any) -> Any:
    return rows.repartition(_PARTS) if hasattr(rows, "_jdf") and hasattr(rows, "repartition") else rows


def _other(values: tuple[_T, _T], than: _T) -> _T:
    first, second = values
    return second if first == than else first


def other_zone() -> str:
    """Return a zone that is not this process's own."""
    return _other(_ZONES, os.environ.get("TZ", ""))


def _language() -> str:
    return (locale.getlocale()[0] or "C").partition("_")[0]


def _other_locale() -> str:
    """Return the name of a locale that this machine has, of another language than this process speaks, or nothing."""
    before = locale.setlocale(locale.LC_TIME)
    try:
        for name in (name for name in _LOCALES if not name.startswith(_language())):
            with suppress(locale.Error):
                return locale.setlocale(locale.LC_TIME, name)
    finally:
        locale.setlocale(locale.LC_TIME, before)
    return ""


if __name__ == "__main__":  # Spark starts its workers by this module, so that their clocks are those of the run.
    with another_day():
        runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
