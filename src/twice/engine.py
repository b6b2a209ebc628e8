"""Where does a Spark session come from, and when is it started?

At the first need and not before: a run with nothing to do never starts a JVM. A caller may bring
a session of their own; ours run in UTC, keep their log out of the terminal, and write timestamps
that other tools can compare. Settings that are secret reach the JVM through its socket, never on its
command line, which everybody on the machine can read. While an attempt works, Spark's jobs bear its
name; what a caller's own session said before is put back afterwards.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twice import interrupts, jars, session_settings
from twice.errors import Misuse
from twice.explain import explain
from twice.ledger.logs import Captured, capturing
from twice.masks import NAMES_A_SECRET
from twice.runs import Slot
from twice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSIONS = {"delta": "io.delta.sql.DeltaSparkSessionExtension"}
_CATALOGS = {"delta": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_JAVA_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
# A collector by name, or a file of options in which there may be one.
_MAY_NAME_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b|-XX:(Flags|VMOptionsFile)=|(^|\s)@\S")
_JOB_NAMES = ("spark.jobGroup.id", "spark.job.description")
_LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


class Engine:
    """Starts a Spark session when it is first needed, or hands out the caller's."""

    def __init__(
        self, settings: Settings, kinds: Callable[[], Iterable[str]] = tuple, spark: SparkSession | None = None
    ) -> None:
        self.settings = settings
        self._all_kinds = kinds
        self._needed: set[str] = set()
        self._spark = spark
        self._brought = spark is not None
        self._starting = threading.Lock()
        self._working = threading.local()
        self._logging = ExitStack()
        self.on_start: Callable[[], None] | None = None

    def need(self, kind: str) -> None:
        """Ask that a session which is not started yet can carry a kind of store."""
        self._needed.add(kind)

    @property
    def kinds(self) -> set[str]:
        """The kinds of store that a session started now would carry."""
        return self._needed | set(self._all_kinds())

    @property
    def started(self) -> bool:
        """Tell whether there is a session already."""
        return self._spark is not None

    @property
    def spark(self) -> SparkSession:
        """The session, started now if need be."""
        with self._starting:
            if self._spark is None:
                interrupts.check()
                self._spark = self._start()
        if self._working_for_slot and not session_settings.is_held(self._spark):
            session_settings.hold(self._spark)
        self._name_jobs(self._spark)
        return self._spark

    @property
    def _working_for_slot(self) -> bool:
        return getattr(self._working, "name", None) is not None

    @contextmanager
    def working_for(self, slot: Slot, attempt: str) -> Iterator[Captured]:
        """Let the Spark jobs of this thread bear the name of an attempt, and its sessions have the settings that a run needs.

        Yields what returns the log of this time.
        """
        work = self._working
        before = getattr(work, "name", None)
        work.name, work.were = (attempt, f"{slot.pipeline} {slot.label}"), None
        try:
            with session_settings.watched(), capturing(self.log_file) as captured:
                yield captured
        finally:
            if work.were is not None and self._spark is not None and not interrupts.asked():
                _set_job_names(self._spark, work.were)
            work.name, work.were = before, None

    def _name_jobs(self, spark: SparkSession) -> None:
        """Name the jobs of the attempt that this thread works for, once; without a JVM at hand nothing is named."""
        work = self._working
        if not self._working_for_slot or work.were is not None:
            return
        work.were = _job_names(spark)
        _set_job_names(spark, work.name)

    @property
    def zone_fact(self) -> dict[str, str]:
        """What a session in another zone than UTC adds to the fingerprint."""
        zone = self.settings.spark_conf.get("spark.sql.session.timeZone")
        if self._brought and self._spark is not None:
            zone = self._spark.conf.get("spark.sql.session.timeZone")
        return {} if zone in (None, "UTC", "Etc/UTC", "GMT", "Z") else {"session_zone": zone}

    def stop(self) -> None:
        """Stop a session that this engine started."""
        if self._spark is not None and not self._brought:
            if not interrupts.asked():  # else its JVM is gone
                self._spark.stop()
            self._spark = None
        self._logging.close()

    def _start(self) -> SparkSession:
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            raise Misuse("PySpark is not installed.", fix="Install it with: pip install 'twice[spark]'") from None
        if self.on_start:
            self.on_start()
        # Workers must run the interpreter of the driver, or they lack its packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        conf = self._conf()
        builder = SparkSession.builder.appName("twice")
        for name, value in conf.items():
            builder = builder.config(name, value)
        log = self.log_file
        log.parent.mkdir(parents=True, exist_ok=True)
        with _errors_to(log), interrupts.kept():
            try:
                _start_jvm({name: value for name, value in conf.items() if name not in self.settings.secret_spark_conf})
                self._logging.enter_context(_queries_logged_to(log))
                return builder.getOrCreate()
            except Exception as error:
                raise Misuse(
                    f"Spark did not start: {explain(error)}",
                    f"Its log is {log}.",
                    "Try: twice doctor",
                ) from error

    @property
    def log_file(self) -> Path:
        """Where the JVM's own messages go."""
        return self.settings.root / ".twice" / "spark.log"

    def _conf(self) -> dict[str, str]:
        conf = {
            "spark.master": str(self.settings["spark.master"]),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            "spark.databricks.delta.snapshotPartitions": "1",
            # A replay on Delta needs sixty pieces of generated code. Spark keeps a hundred, and so made most of them anew each time.
            "spark.sql.codegen.cache.maxEntries": "1000",
            "spark.redaction.regex": f"(?i){NAMES_A_SECRET}",
            _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={self._log4j().as_uri()}",
        }
        if str(self.settings["spark.master"]).startswith("local"):
            conf["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 2)
            # Delta's VACUUM would list a table of three files in ten thousand tasks.
            conf["spark.sql.sources.parallelPartitionDiscovery.parallelism"] = str(os.cpu_count() or 2)
            conf["spark.driver.bindAddress"] = conf["spark.driver.host"] = "127.0.0.1"
        conf |= self._store_conf()
        asked = dict(self.settings.spark_conf)
        # Both have a say in the JVM's options; elsewhere the project's own setting wins.
        if _JAVA_OPTIONS in self.settings.secret_spark_conf:
            raise Misuse(
                f"{_JAVA_OPTIONS} holds a variable, whose value would stand on the JVM's command line.",
                "Everybody on the machine can read it there.",
                "Write options that are no secret, and keep a secret one in a file: -XX:Flags=FILE or @FILE.",
            )
        options = (conf[_JAVA_OPTIONS], self._collector(), asked.pop(_JAVA_OPTIONS, ""))
        return conf | asked | {_JAVA_OPTIONS: " ".join(filter(None, options))}

    def _collector(self) -> str:
        """Return the garbage collector for a JVM that runs tasks itself, unless somebody chose one: a JVM refuses two."""
        runs_tasks = str(self.settings["spark.master"]).startswith("local")
        is_chosen = any(map(_MAY_NAME_COLLECTOR.search, _java_options(self.settings.spark_conf)))
        return "-XX:+UseParallelGC" if runs_tasks and not is_chosen else ""

    def _log4j(self) -> Path:
        file = self.settings.root / ".twice" / "log4j2.properties"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_LOG4J, encoding="utf-8")
        return file

    def _store_conf(self) -> dict[str, str]:
        wanted = sorted(self.kinds & set(_EXTENSIONS))
        if not wanted:
            return {}
        conf = {
            "spark.sql.extensions": ",".join(_EXTENSIONS[kind] for kind in wanted),
            "spark.sql.catalog.spark_catalog": _CATALOGS["delta"],
        }
        files = self._jars(wanted)
        return conf | ({"spark.jars": ",".join(map(str, files))} if files else {})

    def _jars(self, wanted: list[str]) -> list[Path]:
        source = self.settings["jars.from"]
        if self.settings["jars.folder"]:
            folder = self.settings.root / str(self.settings["jars.folder"])
            return [jar for kind in wanted for jar in jars.in_folder(folder, kind)]
        if source == "cluster":
            return []
        if source != "fetch":
            raise Misuse(f"jars.from={source!r} is not known.", fix="Use 'fetch' or 'cluster', or set jars.folder.")
        return jars.ensure(wanted)


def _java_options(conf: Mapping[str, str]) -> Iterator[str]:
    """Return all that says how a driver's JVM is to be started, besides what Twice itself says."""
    yield from (conf.get(name, "") for name in (_JAVA_OPTIONS, _DEFAULT_JAVA_OPTIONS))
    yield from (os.environ.get(name, "") for name in _JAVA_VARIABLES)
    home = os.environ.get("SPARK_HOME", "")
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf"), "spark-defaults.conf")
    if defaults.is_absolute() and defaults.is_file():
        yield defaults.read_text(encoding="utf-8", errors="replace")


def _start_jvm(conf: dict[str, str]) -> None:
    """Start the JVM with what may stand on its command line; the rest follows through its socket."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._gateway is None:
        given = SparkConf(loadDefaults=False)
        for name, value in conf.items():
            given.set(name, value)
        SparkContext._ensure_initialized(conf=given)


def _job_names(spark: SparkSession) -> tuple[str | None, ...]:
    context: Any = spark.sparkContext
    return tuple(context.getLocalProperty(name) for name in _JOB_NAMES)


def _set_job_names(spark: SparkSession, values: tuple[str | None, ...]) -> None:
    context: Any = spark.sparkContext
    for name, value in zip(_JOB_NAMES, values, strict=True):
        context.setLocalProperty(name, value)


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Let a JVM that starts in this block inherit a log file as its standard error."""
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


@contextmanager
def _queries_logged_to(log: Path) -> Iterator[None]:
    """Keep what PySpark says of a query that fails, a page of JSON, with the JVM's messages and away from people."""
    from pyspark.logger import PySparkLogger

    logger, file = PySparkLogger.getLogger("DataFrameQueryContextLogger"), logging.FileHandler(log, delay=True)
    before, propagates = list(logger.handlers), logger.propagate
    for handler in before:
        logger.removeHandler(handler)
    logger.addHandler(file)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(file)
        file.close()
        logger.handlers, logger.propagate = before, propagates
