"""What does the guarantee cost? `make bench`.

A slice of ten million rows is overwritten through Twice and by hand, on Parquet and on Delta; a
rerun with nothing to do is compared with a bare PySpark script; `import twice` is timed; and the
driver's memory is looked at for a small and a large slice. Prints a table of ratios.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from measure import Cost, duel

import twice
from twice import settings
from twice.engine import Engine
from twice.project import Project
from twice.stores.registry import BUILT_IN

DAY = "2024-10-07"
SCHEMA = "id bigint, user bigint, page string, seconds int, day date"


def make_input(spark, folder: Path, rows: int) -> None:
    """Write the input once: five columns, about ninety bytes a row."""
    frame = spark.range(rows).selectExpr(
        "id",
        "id % 100003 AS user",
        "concat('/page/', id % 5003, '/', md5(cast(id % 9973 AS string))) AS page",
        "cast(id % 600 AS int) AS seconds",
        f"DATE '{DAY}' AS day",
    )
    frame.repartition(4).write.mode("overwrite").parquet(str(folder))


def pipeline_for(kind: str):
    """The job, as a user of Twice writes it."""

    @twice.pipeline(
        name=f"visits_{kind}",
        every="1 day",
        start=DAY,
        source=twice.files("landing/*.parquet", schema=SCHEMA),
        target=f"{kind}:ours/{kind}",
        pattern=twice.data_overwrite(slice="day"),
    )
    def visits(rows):
        return rows.where("seconds >= 0")

    return visits


class Bench:
    """One session, one input, both ways."""

    def __init__(self, root: Path, rows: int) -> None:
        self.root = root
        self.engine = Engine(settings.load(root), lambda: {"delta"})
        self.spark = self.engine.spark
        make_input(self.spark, root / "landing", rows)
        self.project = Project(settings.load(root), self.spark)
        self._jobs_seen = self._jobs()
        self._bytes_seen = self._bytes()

    def ours(self, kind: str):
        pipeline = pipeline_for(kind)
        return lambda _: twice.run(pipeline, at=DAY, force=True, project=self.project)

    def by_hand(self, kind: str):
        target = str(self.root / "theirs" / kind)

        def act(_):
            frame = self.spark.read.schema(SCHEMA).parquet(str(self.root / "landing")).where("seconds >= 0")
            if kind == "parquet":
                frame.write.mode("overwrite").parquet(f"{target}/day={DAY}")
            else:
                writer = frame.write.format("delta").mode("overwrite").partitionBy("day")
                writer.option("replaceWhere", f"day = DATE '{DAY}'").save(target)

        return act

    def after(self, cost: Cost) -> None:
        """Count Spark jobs and bytes on disk since the last time."""
        jobs, written = self._jobs(), self._bytes()
        cost.jobs, self._jobs_seen = jobs - self._jobs_seen, jobs
        cost.bytes_written, self._bytes_seen = written - self._bytes_seen, written

    def _jobs(self) -> int:
        return len(self.spark.sparkContext.statusTracker().getJobIdsForGroup(None))

    def _bytes(self) -> int:
        """Bytes that this process tree has written to files so far, as the kernel counts them."""
        java = [p for p in psutil.Process().children(recursive=True) if "java" in p.name()]
        return sum(p.io_counters().write_chars for p in (psutil.Process(), *java))


def compare_writes(bench: Bench, times: int) -> None:
    print(
        f"{'overwrite of one slice':28} {'CPU ratio':>9} {'wall ratio':>10} {'jobs':>9} {'bytes':>7}   CPU s ours/hand"
    )
    for kind in ("parquet", "delta"):
        ours, hand = bench.ours(kind), bench.by_hand(kind)
        for act in (ours, hand):
            act(-1)  # both warm
        bench.after(Cost(0, 0))
        result = duel(ours, hand, times, bench.after)
        jobs = f"{result.median('ours', 'jobs'):.0f}/{result.median('theirs', 'jobs'):.0f}"
        print(
            f"{kind:28} {result.ratio('cpu_seconds'):9.2f} {result.ratio('wall_seconds'):10.2f} {jobs:>9}"
            f" {result.ratio('bytes_written'):7.3f}   {result.median('ours', 'cpu_seconds'):.1f}/{result.median('theirs', 'cpu_seconds'):.1f}",
            flush=True,
        )


def compare_reruns(root: Path, times: int) -> None:
    """The whole command that finds nothing to do, against a bare script that starts and stops Spark."""
    from twice.cli.project import write_example

    project = root / "example"
    write_example(project, "delta")
    command = [sys.executable, "-m", "twice", "run", "visits", "--at", DAY]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    bare = [
        sys.executable,
        "-c",
        "from pyspark.sql import SparkSession as S; S.builder.master('local[2]').getOrCreate().stop()",
    ]
    skips, starts = [], []
    for _ in range(times):
        skips.append(_seconds(command, project))
        starts.append(_seconds(bare, project))
    skip, start = statistics.median(skips), statistics.median(starts)
    print(
        f"\nrerun with nothing to do     {skip:.2f} s; bare PySpark script {start:.1f} s; {start / skip:.0f} times faster"
    )


def _seconds(command: list[str], folder: Path) -> float:
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - began


def time_import(times: int) -> None:
    bare = statistics.median(_seconds([sys.executable, "-c", "pass"], Path.cwd()) for _ in range(times))
    ours = statistics.median(_seconds([sys.executable, "-c", "import twice"], Path.cwd()) for _ in range(times))
    print(f"import twice                 {(ours - bare) * 1000:.0f} ms over a bare interpreter")


def compare_memory(root: Path, rows: int) -> None:
    """The driver's Python must not grow with the rows."""
    grown = []
    for count in (rows // 20, rows):
        bench_root = root / f"memory{count}"
        bench_root.mkdir()
        code = (
            "import sys, resource; sys.path.insert(0, sys.argv[3]); from pathlib import Path; from overwrite import Bench;"
            "b = Bench(Path(sys.argv[1]), int(sys.argv[2]));"
            "[b.ours(kind)(0) for kind in ('parquet', 'delta')];"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
        )
        here = str(Path(__file__).parent)
        done = subprocess.run(
            [sys.executable, "-c", code, str(bench_root), str(count), here], capture_output=True, text=True, check=True
        )
        grown.append(f"{count:,} rows: {done.stdout.split()[-1]} MB")
    print(f"driver memory (Python)       {'; '.join(grown)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    assert set(BUILT_IN) >= {"parquet", "delta"}
    with tempfile.TemporaryDirectory(prefix="twice-bench-") as folder:
        root = Path(folder)
        # Ten repetitions in one JVM do not always fit into the default heap of one gigabyte.
        (root / "twice.toml").write_text('[spark]\nmaster = "local[2]"\n[spark.conf]\n"spark.driver.memory" = "4g"\n')
        print(f"{asked.rows:,} rows, {asked.times} pairs, {os.cpu_count()} cores\n")
        bench = Bench(root, asked.rows)
        compare_writes(bench, asked.times)
        bench.engine.stop()
        shutil.rmtree(root / "ours", ignore_errors=True)
        compare_reruns(root, max(asked.times, 5))
        time_import(max(asked.times, 9))
        compare_memory(root, asked.rows)


if __name__ == "__main__":
    main()
