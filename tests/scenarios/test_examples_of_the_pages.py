"""Do the examples of the pages run as they stand there?"""

import re
import sqlite3
import sys
from datetime import datetime
from pathlib import Path

import pytest

import twice
from twice.cli.project import example_files

pytestmark = pytest.mark.spark
PAGES = Path(__file__).parents[2] / "docs/how-to"
DAY = "2024-10-07"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


@pytest.fixture
def project(tmp_path, spark, monkeypatch):
    """Return a maker of projects whose files of pipelines are the examples of a page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def make(page):
        for name, text in example_files("parquet").items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        (tmp_path / "pipelines/visits.py").unlink()
        for number, block in enumerate(blocks(page, "python")):
            (tmp_path / f"pipelines/example{number}.py").write_text(block)
        for block in blocks(page, "sql"):
            (tmp_path / block.splitlines()[0].removeprefix("-- ")).write_text(block)
        return twice.Project.open(tmp_path, spark=spark)

    return make


def states(project, name):
    at = DAY if project.pipeline(name).schedule else None
    return [twice.run(name, at=at, project=project).state for _ in range(2)]


def count(project, target):
    return twice.read(None, f"parquet:lake/{target}", project=project).count()


def test_choose_a_source(project, spark, tmp_path):
    home = project("choose-a-source.md")
    orders = [(1, 2.5, datetime(2024, 10, 7, 9))]
    spark.createDataFrame(orders, "id int, price double, ordered_at timestamp").createOrReplaceTempView("orders")
    with sqlite3.connect("rates.db") as database:
        database.execute("create table rates (currency, rate, day, changed_at)")
        database.execute("insert into rates values ('pln', 4.3, '2024-10-07', '2024-10-07T18:00Z')")
    signups = tmp_path / "landing/signups/2024-10-07"
    signups.mkdir(parents=True)
    (signups / "a.csv").write_text("name,day\nada,2024-10-07\n")
    with pytest.raises(twice.Waiting, match="_SUCCESS"):
        twice.run("signups", at=DAY, project=home)
    (signups / "_SUCCESS").touch()
    with pytest.raises(twice.Waiting, match=r"2024-10-11\.csv"):
        twice.run("visits", at="2024-10-10", project=home)
    for name in ("visits", "signups", "pages", "orders", "exchange_rates"):
        assert states(home, name) == ["published", "skipped"]
    assert [count(home, name) for name in ("visits", "signups", "pages", "orders", "rates")] == [6, 1, 4, 1, 1]
    spark.catalog.dropTempView("orders")


def test_transform_with_sql(project, spark):
    home = project("transform-with-sql.md")
    for name in ("long_visits", "pages_by_day"):
        assert states(home, name) == ["published", "skipped"]
    assert count(home, "pages_by_day") == 1
    sys.modules["twice_pipelines.example2"].test_doubled(spark)
