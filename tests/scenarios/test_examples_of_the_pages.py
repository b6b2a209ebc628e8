"""Do the examples of the pages run as they stand there?

A page is walked from top to bottom, in a project of its own:

    ```csv      after a line that names a file: that file, written when the walk comes by
    ```sql      the file that its first line names
    ```python   with a declaration: a file of pipelines; without one: a script

A comment behind a `print(...)` is what the script has to print. A pipeline that no script has run is run
twice at the end. A page that declares no pipeline starts from the project of `twice init`, filled.
"""

import os
import re
import sqlite3
import sys
from datetime import datetime
from pathlib import Path

import psycopg
import pytest

import twice
from twice.cli.project import example_files

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
DAY = "2024-10-07"
BLOCK = re.compile(r"(?:`([^`\n]+)`[^`\n]*:\n\n)?^```(csv|sql|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    if "```python" in page.read_text()
)


def is_declaration(block):
    return "twice.pipeline(" in block


class Walk:
    """A project in an empty folder, filled as a page says."""

    def __init__(self, folder, spark, capsys):
        self.folder, self.spark, self.capsys = folder, spark, capsys
        self.names = {"spark": spark, "twice": twice}

    def begin(self, *, with_pipeline):
        for name, text in example_files("parquet").items():
            self.write(name, text)
        if not with_pipeline:
            (self.folder / "pipelines/visits.py").unlink()
            return
        twice.backfill("visits", DAY, "2024-10-11")

    def write(self, name, text):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def page(self, name):
        blocks = BLOCK.findall((ROOT / name).read_text())
        self.begin(with_pipeline=not any(is_declaration(text) for *_, text in blocks))
        for number, (file, language, text) in enumerate(blocks):
            if language == "csv":
                self.write(file, text)
            elif language == "sql":
                self.write(text.splitlines()[0].removeprefix("-- "), text)
            elif is_declaration(text):
                self.write(f"pipelines/example{number}.py", text)
            else:
                self.script(name, text)
        return twice.Project.open(self.folder)

    def script(self, page, text):
        self.capsys.readouterr()
        exec(compile(text, page, "exec"), self.names)
        expected = PRINTED.findall(text)
        if expected:
            assert self.capsys.readouterr().out.splitlines() == expected


@pytest.fixture
def walk(tmp_path, spark, monkeypatch, capsys):
    """Return a walk in a fresh folder; all projects that are opened share the session of the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    really_open = twice.Project.open
    monkeypatch.setattr(twice.Project, "open", lambda *given, **named: really_open(*given, **{**named, "spark": spark}))
    return Walk(tmp_path, spark, capsys)


def states(project, name):
    at = DAY if project.pipeline(name).schedule else None
    return [twice.run(name, at=at, project=project).state for _ in range(2)]


def is_published(project, name):
    target = project.pipeline(name).target
    return project.store(target.store).look(target.name).exists


def count(project, target):
    return twice.read(None, f"parquet:lake/{target}", project=project).count()


def sources_of_the_page(walk):
    """Make what the sources of the page read: a table of the catalog, a database, a folder that is not whole yet."""
    orders = [(1, 2.5, datetime(2024, 10, 7, 9))]
    walk.spark.createDataFrame(orders, "id int, price double, ordered_at timestamp").createOrReplaceTempView("orders")
    with sqlite3.connect("rates.db") as database:
        database.execute("create table rates (currency, rate, day, changed_at)")
        database.execute("insert into rates values ('pln', 4.3, '2024-10-07', '2024-10-07T18:00Z')")
    walk.write("landing/signups/2024-10-07/a.csv", "name,day\nada,2024-10-07\n")


def a_frame(walk):
    """Make the frame of a job that somebody already has."""
    walk.names["df"] = walk.spark.sql("select 1 as id, date'2024-10-07' as day")


def stand_in_for_airflow(walk):
    """Airflow is not installed: its operator is a record here."""
    walk.names["BashOperator"] = dict


def a_schema(walk):
    """Make the schema that the statements of the page make, without the roles: those are the whole server's."""
    with psycopg.connect(os.environ["TWICE_POSTGRES_URL"], autocommit=True) as database:
        database.execute("create schema devices")


WITH_TESTS_OF_THEIR_OWN = ("docs/how-to/choose-a-source.md", "docs/how-to/transform-with-sql.md")
GIVEN = {
    "docs/how-to/bring-your-own-spark.md": a_frame,
    "docs/how-to/roles-on-postgres.md": a_schema,
    "docs/how-to/schedule-with-cron-or-airflow.md": stand_in_for_airflow,
}


@pytest.fixture
def _database(page, request, monkeypatch):
    """Give an empty database to a page that writes to one."""
    if "postgres:" in (ROOT / page).read_text():
        monkeypatch.setenv("TWICE_POSTGRES_URL", request.getfixturevalue("postgres_url"))


@pytest.mark.usefixtures("_database")
@pytest.mark.parametrize("page", [page for page in PAGES if page not in WITH_TESTS_OF_THEIR_OWN])
def test_the_examples_run(walk, page):
    GIVEN.get(page, lambda _: None)(walk)
    project = walk.page(page)
    for name in project.pipelines:
        assert is_published(project, name) or states(project, name) == ["published", "skipped"]


def test_choose_a_source(walk):
    sources_of_the_page(walk)
    home = walk.page("docs/how-to/choose-a-source.md")
    with pytest.raises(twice.Waiting, match="_SUCCESS"):
        twice.run("signups", at=DAY, project=home)
    walk.write("landing/signups/2024-10-07/_SUCCESS", "")
    with pytest.raises(twice.Waiting, match=r"2024-10-11\.csv"):
        twice.run("visits", at="2024-10-10", project=home)
    for name in ("visits", "signups", "pages", "orders", "exchange_rates"):
        assert states(home, name) == ["published", "skipped"]
    assert [count(home, name) for name in ("visits", "signups", "pages", "orders", "rates")] == [6, 1, 4, 1, 1]
    walk.spark.catalog.dropTempView("orders")


def test_transform_with_sql(walk):
    home = walk.page("docs/how-to/transform-with-sql.md")
    for name in ("long_visits", "pages_by_day"):
        assert states(home, name) == ["published", "skipped"]
    assert count(home, "pages_by_day") == 1
    doubled = next(
        module
        for name, module in sys.modules.items()
        if name.startswith("twice_pipelines") and hasattr(module, "test_doubled")
    )
    doubled.test_doubled(walk.spark)
