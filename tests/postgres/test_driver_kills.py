"""What does SIGKILL of a whole Spark driver, its JVM included, or of its server, do to a table of PostgreSQL?

The rows are staged by tasks, in tables that are not logged, or in the one that becomes the table. Thirty drivers under `make prove`, one of them under `make test`.
"""

import random
import signal

import psycopg
import pytest

from databases import Database
from twice.cli.project import visits_csv, write_example
from twice.prover.killers import recorded_points, run_asleep, run_command
from twice.servers.postgres import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(900)]
SEED = 20241007
DRIVERS = 30
ROWS = 40_000  # more than a driver holds: tasks stage them in tables of their own
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

    def run_while(self, point, meanwhile):
        return run_asleep(WORDS, self.folder, f"pause:{point}", self.settings, meanwhile)

    def tidy(self):
        swept = run_command(("tidy",), self.folder, "", self.settings)
        assert swept.code == 0, swept.output


@pytest.fixture(scope="module")
def project(tmp_path_factory, postgres_server):
    return Project(tmp_path_factory.mktemp("driver"), postgres_server)


@pytest.fixture(scope="module")
def points(project):
    """Return the points that a driver passes once it has rows; the first run has made the tables."""
    project.next_edition()
    assert project.run().code == 0
    project.next_edition()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in project.settings.items():
            patch.setenv(name, value)
        reached = recorded_points(WORDS, project.folder)
    return reached[reached.index("stage.before") :]


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
    project.tidy()
    assert project.tables() == tables
    print(f"\ndriver {number}, seed {SEED + number}: killed at {fatal}")


FIRST_LOAD = ("postgres.staging.made", "postgres.staged", "postgres.commit.before", "postgres.commit.after")


@pytest.mark.parametrize(
    "point", ["postgres.table.made", *(pytest.param(one, marks=pytest.mark.prove) for one in FIRST_LOAD)]
)
def test_a_driver_that_is_killed_at_its_first_load_leaves_no_table_or_all_of_it(tmp_path, postgres_server, point):
    project = Project(tmp_path / "project", postgres_server)
    project.next_edition()
    ended = project.run(f"kill:{point}")
    assert ended.code == -signal.SIGKILL, ended.output
    is_there = ("public", "lake__visits") in project.tables()
    assert is_there == (point == "postgres.commit.after")
    before = project.rows() if is_there else None
    again = project.run()
    assert again.code == 0, again.output
    after = project.rows()
    assert before in (None, after)
    assert len(after) == len({visit for visit, _ in after}) > ROWS // 2
    project.tidy()
    assert not [table for _, table in project.tables() if table.startswith("twice_s_")]


@pytest.mark.parametrize(
    "point",
    [
        "postgres.staged",
        *(pytest.param(one, marks=pytest.mark.prove) for one in ("publish.before", "postgres.rows.moved")),
    ],
)
def test_a_server_that_is_killed_while_rows_are_staged_shows_nothing_of_them(tmp_path, point):
    with PostgresServer() as server:
        project = Project(tmp_path / "project", server)
        project.next_edition()
        assert project.run().code == 0
        before, tables = project.rows(), project.tables()
        project.next_edition()

        def crash():
            server.kill()
            server.start()

        ended = project.run_while(point, crash)
        assert ended.code == 1, ended.output
        assert project.rows() == before
        again = project.run()
        assert again.code == 0, again.output
        assert len(project.rows()) == len(before)
        assert project.rows() != before
        project.tidy()
        assert project.tables() == tables
