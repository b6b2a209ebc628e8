"""What does it cost to write a whole Spark job to PostgreSQL in one transaction? `python benchmarks/postgres.py`.

Rows of Parquet files go into a new table: through Twice, by Spark's own JDBC writer as it comes and with rewritten
batches, and by a bare COPY through ADBC, from Spark's tasks and from plain Python. JDBC and the tasks commit once for each
partition; JDBC by way of a table beside is atomic, as Twice and plain Python are. Then rows that are all there already are merged once more, against ON CONFLICT DO UPDATE. CPU is that of
this process, of the JVM, of its workers and of the whole server.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow.dataset
from adbc_driver_postgresql import dbapi
from measure import Cost, measured, server_cpu_seconds, tree_cpu_seconds
from overwrite import DAY, SCHEMA, make_input

import twice
from twice import jars, settings
from twice.project import Project
from twice.servers.postgres import PostgresServer
from twice.stores.postgres import arrow

OURS = "Twice"
COLUMNS = '"id" bigint, "user" bigint, "page" text, "seconds" integer, "day" date'
ON_CONFLICT = '"user" = excluded."user", page = excluded.page, seconds = excluded.seconds, day = excluded.day'
# Neither of them belongs to one of the ways: tables are vacuumed between the repetitions, and nothing is flushed within.
QUIET = {"autovacuum": "off", "max_wal_size": "16GB", "checkpoint_timeout": "1h"}


def pipeline_to(table: str, pattern):
    """The job, as a user of Twice writes it."""

    @twice.pipeline(
        name=table,
        every="1 day",
        start=DAY,
        source=twice.files("landing/*.parquet", schema=SCHEMA),
        target=f"postgres:{table}",
        pattern=pattern,
    )
    def visits(rows):
        return rows

    return visits


class Bench:
    """One server, one session, one input, all ways."""

    def __init__(self, root: Path, server: PostgresServer, rows: int) -> None:
        self.root, self.server, self.rows = root, server, rows
        os.environ["TWICE_POSTGRES_URL"] = server.url()
        driver = ",".join(map(str, jars.ensure(["postgres-jdbc"])))
        (root / "twice.toml").write_text(
            f'[spark]\nmaster = "local[2]"\n[spark.conf]\n"spark.driver.memory" = "4g"\n"spark.jars" = "{driver}"\n'
        )
        self.project = Project(settings.load(root), None)
        self.spark = self.project.engine.spark
        self.landing = str(root / "landing")
        make_input(self.spark, root / "landing", rows)
        self.db = psycopg.connect(server.url(), autocommit=True)

    def frame(self):
        return self.spark.read.schema(SCHEMA).parquet(self.landing)

    # ------------------------------------------------------------ a new table

    def load_ours(self, table: str) -> None:
        pipeline = pipeline_to(table, twice.data_overwrite(slice="day"))
        twice.run(pipeline, at=DAY, project=self.project)

    def load_ours_there(self, table: str) -> None:
        """The same into a table that is there, without rows: they are staged beside, and moved."""
        self.db.execute(f"create table {table} ({COLUMNS})")
        self.load_ours(table)

    def load_jdbc(self, table: str, more: str = "") -> None:
        address = f"jdbc:postgresql://127.0.0.1:{self.server.port}/postgres{more}"
        asked = psycopg.conninfo.conninfo_to_dict(self.server.url())
        options = {"user": asked["user"], "password": asked["password"], "driver": "org.postgresql.Driver"}
        self.frame().write.jdbc(address, table, mode="append", properties=options)

    def load_rewritten(self, table: str) -> None:
        self.load_jdbc(table, "?reWriteBatchedInserts=true")

    def load_staged(self, table: str) -> None:
        """What a careful user of JDBC does: into a table beside, and from there at once."""
        self.load_rewritten(f"{table}_beside")
        self.db.execute(f"create table {table} as select * from {table}_beside")
        self.db.execute(f"drop table {table}_beside")

    def load_from_tasks(self, table: str) -> None:
        self.db.execute(f"create table {table} ({COLUMNS})")
        self.copy_from_tasks(table)

    def copy_from_tasks(self, table: str) -> None:
        address = self.server.url()

        def send(batches):
            reader = pyarrow.RecordBatchReader.from_batches(*_schema_and(batches))
            with dbapi.connect(address) as connection, connection.cursor() as cursor:
                count = cursor.adbc_ingest(table, reader, mode="append")
                connection.commit()
            yield pyarrow.RecordBatch.from_pydict({"rows": [count]})

        arrow.mapped(self.frame(), send, "rows bigint").collect()

    def load_from_python(self, table: str) -> None:
        reader = pyarrow.dataset.dataset(self.landing).scanner().to_reader()
        with dbapi.connect(self.server.url()) as connection, connection.cursor() as cursor:
            cursor.execute(f"create table {table} ({COLUMNS})")
            cursor.adbc_ingest(table, reader, mode="append")
            connection.commit()

    # ------------------------------------------------------------ rows that are there already

    def ready_to_merge(self) -> None:
        """Fill two equal tables with a key, one through Twice."""
        for table in ("merged", "upserted"):
            self.db.execute(f"create table {table} ({COLUMNS}, primary key (id))")
        self.merge()
        self.copy_from_tasks("upserted")

    def merge(self) -> None:
        pipeline = pipeline_to("merged", twice.merger(keys=["id"]))
        twice.run(pipeline, at=DAY, project=self.project, force=True)

    def upsert(self) -> None:
        self.db.execute(f"create unlogged table given ({COLUMNS})")
        self.copy_from_tasks("given")
        self.db.execute(f"insert into upserted select * from given on conflict (id) do update set {ON_CONFLICT}")
        self.db.execute("drop table given")

    # ------------------------------------------------------------ what it cost

    def measured(self, act: Callable[[], None]) -> Cost:
        """Do something once, and return what it cost here and on the server; what it wrote is its WAL."""
        before = self._wal()
        cost = measured(act, lambda: tree_cpu_seconds() + server_cpu_seconds(self.server.pid))
        cost.bytes_written = self._wal() - before
        return cost

    def _wal(self) -> int:
        return int(self.db.execute("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()[0])


def _schema_and(batches):
    first = next(batches)

    def every():
        yield first
        yield from batches

    return first.schema, every()


def compare(bench: Bench, ways: dict[str, Callable[[int], None]], times: int, between: Callable[[int], None]) -> None:
    """Measure all ways in turns, once more than asked, since the first is a warm-up; print each against ours."""
    costs: dict[str, list[Cost]] = {way: [] for way in ways}
    for number in range(times + 1):
        for way, act in ways.items():
            cost = bench.measured(lambda act=act, number=number: act(number))
            between(number)
            if number:
                costs[way].append(cost)
    for way, theirs in costs.items():
        pairs = list(zip(costs[OURS], theirs, strict=True))
        print(
            f"{way:36} {_middle(theirs, 'cpu_seconds'):7.2f} {_middle(theirs, 'wall_seconds'):7.2f}"
            f" {_middle(theirs, 'bytes_written') / 2**20:8.1f}"
            f" {statistics.median(b.cpu_seconds / a.cpu_seconds for a, b in pairs):12.2f}"
            f" {statistics.median(b.wall_seconds / a.wall_seconds for a, b in pairs):12.2f}",
            flush=True,
        )


def _middle(costs: list[Cost], what: str) -> float:
    return statistics.median(getattr(cost, what) for cost in costs)


def compare_loads(bench: Bench, times: int) -> None:
    """Print what a load of a new table costs in every way."""
    ways = {
        OURS: bench.load_ours,
        "Twice, the table is there": bench.load_ours_there,
        "JDBC, default": bench.load_jdbc,
        "JDBC, rewritten batches": bench.load_rewritten,
        "JDBC, rewritten, by way of a table": bench.load_staged,
        "ADBC from tasks, not atomic": bench.load_from_tasks,
        "ADBC from Python, no Spark": bench.load_from_python,
    }
    tables = {way: f"load_{number}" for number, way in enumerate(ways)}

    def loaded(way: str, number: int) -> None:
        ways[way](f"{tables[way]}_{number}")

    def dropped(number: int) -> None:
        for table in tables.values():
            found = bench.db.execute("select to_regclass(%s)", [f"{table}_{number}"]).fetchone()
            if found and found[0]:
                rows = bench.db.execute(f"select count(*) from {table}_{number}").fetchone()
                if rows != (bench.rows,):
                    raise SystemExit(f"{table}_{number} holds {rows[0]} rows instead of {bench.rows}")
                bench.db.execute(f"drop table {table}_{number}")

    _head("load of a new table")
    compare(bench, {way: lambda n, way=way: loaded(way, n) for way in ways}, times, dropped)


def compare_merges(bench: Bench, times: int) -> None:
    """Print what it costs to merge rows that change nothing."""
    bench.ready_to_merge()

    def vacuumed(_: int) -> None:
        bench.db.execute("vacuum analyze merged")
        bench.db.execute("vacuum analyze upserted")

    vacuumed(0)
    _head("merge of rows that are there")
    ways = {OURS: lambda _: bench.merge(), "ON CONFLICT DO UPDATE": lambda _: bench.upsert()}
    compare(bench, ways, times, vacuumed)


def _head(what: str) -> None:
    print(f"\n{what:36} {'CPU s':>7} {'wall s':>7} {'WAL MB':>8} {'CPU / ours':>12} {'wall / ours':>12}", flush=True)


def compare_memory(rows: int) -> None:
    """The driver's Python must not grow with the rows."""
    code = (
        "import sys, resource, tempfile; sys.path.insert(0, sys.argv[2]); from pathlib import Path;"
        "from postgres import Bench; from twice.servers.postgres import PostgresServer as Server;"
        "folder, server = tempfile.TemporaryDirectory(), Server().__enter__();"
        "b = Bench(Path(folder.name), server, int(sys.argv[1])); b.load_ours('ours');"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024);"
        "b.project.engine.stop(); b.db.close(); server.__exit__(None, None, None)"
    )
    grown = []
    for count in (rows // 5, rows * 5):
        command = [sys.executable, "-c", code, str(count), str(Path(__file__).parent)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        grown.append(f"{count:,} rows: {done.stdout.split()[-1]} MB")
    print(f"\ndriver memory (Python)             {'; '.join(grown)}")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rows", type=int, default=1_000_000)
    asked.add_argument("--times", type=int, default=5)
    asked.add_argument("--only", default="loads,merges,memory", help="a part: loads, merges, memory")
    given = asked.parse_args()
    parts = given.only.split(",")
    print(f"{given.rows:,} rows, {given.times} rounds, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if {"loads", "merges"} & set(parts):
        with tempfile.TemporaryDirectory(prefix="twice-bench-") as folder, PostgresServer(settings=QUIET) as server:
            bench = Bench(Path(folder), server, given.rows)
            if "loads" in parts:
                compare_loads(bench, given.times)
            if "merges" in parts:
                compare_merges(bench, given.times)
            bench.db.close()
            bench.project.engine.stop()
    if "memory" in parts:
        compare_memory(given.rows)


if __name__ == "__main__":
    main()
