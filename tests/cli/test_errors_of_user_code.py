"""The error of a transform is told with the user's own line, and without a page of Spark's. In a process with a JVM of its own."""

import subprocess
import sys

import pytest

PIPELINES = """
import twice
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

IN = twice.files("in.csv", schema="id int")


@F.udf(IntegerType())
def price(number):
    return 1 // (int(number) - 1)


@twice.pipeline(source=IN, target="parquet:lake/worker", pattern=twice.data_overwrite())
def worker(rows):
    return rows.select("id", price("id").alias("price"))


@twice.pipeline(source=IN, target="parquet:lake/column", pattern=twice.data_overwrite())
def column(rows):
    kept = rows.where("id > 0")
    return kept.select("idd")


@twice.pipeline(source=IN, target="parquet:lake/driver", pattern=twice.data_overwrite())
def driver(rows):
    return rows.limit(int("x"))
"""


@pytest.mark.spark
def test_each_error_names_the_line_of_the_user_in_one_line(tmp_path):
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/shop.py").write_text(PIPELINES)
    (tmp_path / "in.csv").write_text("id\n1\n")
    done = subprocess.run(
        [sys.executable, "-m", "twice", "run", "--due"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines() if "failed: " in line]
    assert [line.partition("written: ")[2].partition(" ")[0] for line in failed] == [
        "ZeroDivisionError:",
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION]",
        "ValueError:",
    ]
    assert [line[line.rindex("(") :] for line in failed] == [
        "(pipelines/shop.py, line 11, in price)",
        "(pipelines/shop.py, line 22, in column)",
        "(pipelines/shop.py, line 27, in driver)",
    ]
    assert done.stderr.splitlines() == ["twice: starting Spark (local[*])"]
    assert "DataFrameQueryContextLogger" in (tmp_path / ".twice/spark.log").read_text()
