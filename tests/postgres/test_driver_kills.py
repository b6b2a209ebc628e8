"""What does SIGKILL of a whole Spark driver, its JVM included, do to a table of PostgreSQL, and what is left of its staging?

Thirty drivers under `make prove`, one of them under `make test`.
"""

import random
import signal

import psycopg
import pytest

from databases import Database
from twice.cli.project import visits_csv, write_example
from twice.prover.killers import recorded_points, run_command

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(900)]
SEED = 20241007
DRIVERS = 30
ROWS = 12
WORDS = ("run", "visits", "--at", "2024-10-07", "--yes")


class Project:
    """The example of `twice init`, on a database of its own. Each edition of its input has another page."""

    def __init__(self, folder, server):
        self.folder, self.database, self.edition = folder, Database.made(server), 0
        self.settings = {"TWICE_POSTGRES_URL": self.database.url, "TWICE_SPARK_MASTER": "local[2]"}
        write_example(folder, "postgres")

    def next_edition(self):
        self.edition += 1
        text = visits_csv("2024-10-07", ROWS).replace("/docs", f"/docs{self.edition}")
        (self.folder / "landing/visits/2024-10-07.csv").write_text(text)

    def rows(self):
        with psycopg.connect(self.database.url) as db:
            return sorted(db.execute("SELECT visit_id, page FROM lake__visits").fetchall())

    def tables(self):
        return self.database.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^pg_' AND schemaname <> 'information_schema'"
            " ORDER BY 1, 2"
        )

    def run(self, fault=""):
        return run_command(WORDS, self.folder, fault, self.settings)


@pytest.fixture(scope="module")
def project(tmp_path_factory, postgres_server):
    return Project(tmp_path_factory.mktemp("driver"), postgres_server)


@pytest.fixture(scope="module")
def points(project):
    """Return the points that a driver passes; the first run has made the tables."""
    project.next_edition()
    assert project.run().code == 0
    project.next_edition()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in project.settings.items():
            patch.setenv(name, value)
        return recorded_points(WORDS, project.folder)


@pytest.mark.parametrize(
    "number",
    [number if number == 0 else pytest.param(number, marks=pytest.mark.prove) for number in range(DRIVERS)],
)
def test_a_driver_that_is_killed_leaves_the_table_whole_and_nothing_after_tidy(project, points, number):
    tables = project.tables()
    before = project.rows()
    fatal = random.Random(SEED + number).choice(points)
    project.next_edition()
    ended = project.run(f"kill:{fatal}")
    assert ended.code == -signal.SIGKILL, ended.output
    seen = project.rows()
    again = project.run()
    assert again.code == 0, again.output
    after = project.rows()
    assert len(after) == len(before)
    assert {page for _, page in after} & {f"/docs{project.edition}"}
    assert seen in (before, after)
    swept = run_command(("tidy",), project.folder, "", project.settings)
    assert swept.code == 0, swept.output
    assert project.tables() == tables
    print(f"\ndriver {number}, seed {SEED + number}: killed at {fatal}")
