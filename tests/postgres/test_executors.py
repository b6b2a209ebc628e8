"""Is each partition counted once, when executors die in the middle of staging or tasks are started twice?

The server itself holds a task up when it begins to fill a staged table, so that the moment is known: a trigger on each such
table counts with a sequence, which no rollback takes back, and lets the first task wait. Tasks fill one table together where
the target is new, and one each where it is there.
"""

import os
import shlex
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from databases import Database
from twice.cli.project import visits_csv, write_example
from twice.prover.clusters import two_hosts
from twice.prover.killers import run_command

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.prove, pytest.mark.timeout(600)]

PARTITIONS, ROWS = 4, 100_000
KEPT = sum(n * 7 % 90 > 0 for n in range(ROWS))  # the example leaves out visits that did not last
SECONDS = 12
WORDS = ("run", "visits", "--at", "2024-10-07", "--yes")
HOLD_UP = """
CREATE SEQUENCE tries;
CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.tries') = 1 THEN
        PERFORM pg_sleep({seconds});
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION hold_up_later() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
    made regclass;
BEGIN
    FOR made IN SELECT objid FROM pg_event_trigger_ddl_commands() WHERE object_identity ~ 'twice_s_.*[0-9]"?$'
        AND object_identity !~ '_by_[0-9]+"?$' LOOP
        EXECUTE format('CREATE TRIGGER hold_up BEFORE INSERT ON %s FOR EACH STATEMENT EXECUTE FUNCTION hold_up()', made);
    END LOOP;
END $$;
CREATE EVENT TRIGGER hold_up ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION hold_up_later();
"""
THERE = "CREATE TABLE lake__visits (visit_id text, day date, page text, seconds integer)"
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
}


class Project:
    """The example of `twice init` on a database of its own, with rows in several partitions."""

    def __init__(self, folder, server):
        self.folder, self.database = folder, Database.made(server)
        write_example(folder, "postgres")
        code = folder / "pipelines/visits.py"
        assert "return rows" in code.read_text()
        code.write_text(code.read_text().replace("return rows", f"return rows.repartition({PARTITIONS})"))
        (folder / "landing/visits/2024-10-07.csv").write_text(visits_csv("2024-10-07", ROWS))
        self.database.execute(HOLD_UP.replace("{seconds}", str(SECONDS)))

    def run(self, master, **settings):
        chosen = {"TWICE_POSTGRES_URL": self.database.url, "TWICE_SPARK_MASTER": master, **settings}
        return run_command(WORDS, self.folder, "", chosen)

    def staged_tables(self):
        return self.database.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'twice\\_s\\_%'")

    def tries(self):
        return self.database.execute("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tries")[0][0]

    def held_up(self, running):
        """Return the port of the task that is held up, as soon as one is."""
        while not running.done():
            found = self.database.execute(
                "SELECT client_port FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
            )
            if found:
                return found[0][0]
            time.sleep(0.1)
        raise AssertionError(f"no task was held up: {running.result().output}")

    def is_clean_after_tidy(self):
        tidied = run_command(("tidy",), self.folder, "", {"TWICE_POSTGRES_URL": self.database.url})
        assert (tidied.code, self.staged_tables()) == (0, [])

    def is_whole(self):
        query = "SELECT count(*), count(DISTINCT visit_id) FROM lake__visits"
        return self.database.execute(query) == [(KEPT, KEPT)]


@pytest.fixture(params=["new", "there"])
def project(tmp_path, postgres_server, request):
    made = Project(tmp_path / "project", postgres_server)
    if request.param == "there":
        made.database.execute(THERE)
    return made


def executor_with(port):
    """Return the executor whose worker speaks to the server from a port."""
    for process in psutil.Process().children(recursive=True):
        try:
            if any(one.laddr.port == port for one in process.net_connections("tcp") if one.laddr):
                return next(one.pid for one in process.parents() if "ExecutorBackend" in " ".join(one.cmdline()))
        except psutil.Error:
            continue  # it ended meanwhile
    raise AssertionError("no worker speaks to the server")


def test_an_executor_that_is_killed_in_the_middle_of_staging_counts_once(project):
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(project.run, "local-cluster[2,1,1024]")
        os.kill(executor_with(project.held_up(running)), signal.SIGKILL)
        ended = running.result()
    assert ended.code == 0, ended.output
    assert project.tries() > PARTITIONS
    assert project.is_whole()
    project.is_clean_after_tidy()


def test_a_task_that_is_started_twice_counts_once(project):
    arguments = shlex.join(word for name, value in SPECULATION.items() for word in ("--conf", f"{name}={value}"))
    with two_hosts(project.folder / "cluster") as master:
        ended = project.run(master, PYSPARK_SUBMIT_ARGS=f"{arguments} pyspark-shell")
    assert ended.code == 0, ended.output
    assert project.tries() > PARTITIONS
    assert project.is_whole()
    project.is_clean_after_tidy()
