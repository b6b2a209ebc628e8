"""Where does a Spark session come from, and when is it started?

At the first need and not before: a run with nothing to do never starts a JVM. A caller may bring
a session of their own; ours run in UTC, keep their log out of the terminal, and write timestamps
that other tools can compare.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from twice import jars
from twice.errors import Misuse
from twice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSIONS = {"delta": "io.delta.sql.DeltaSparkSessionExtension"}
_CATALOGS = {"delta": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
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
                self._spark = self._start()
            return self._spark

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
            self._spark.stop()
            self._spark = None

    def _start(self) -> SparkSession:
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            raise Misuse("PySpark is not installed.", fix="Install it with: pip install 'twice[spark]'") from None
        if self.on_start:
            self.on_start()
        # Workers must run the interpreter of the driver, or they lack its packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("twice")
        for name, value in self._conf().items():
            builder = builder.config(name, value)
        log = self.log_file
        log.parent.mkdir(parents=True, exist_ok=True)
        with _errors_to(log):
            try:
                return builder.getOrCreate()
            except Exception as error:
                raise Misuse(
                    f"Spark did not start: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
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
        options = (conf[_JAVA_OPTIONS], asked.pop(_JAVA_OPTIONS, ""))
        return conf | asked | {_JAVA_OPTIONS: " ".join(filter(None, options))}

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
