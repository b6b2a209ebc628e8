"""What does a rerun with nothing to do cost on PostgreSQL? Real processes, one look, one connection."""

import os
import subprocess
import sys

import pytest

PIPELINE = '''
from dataclasses import dataclass
from datetime import date
from typing import Any

import twice


@dataclass(frozen=True)
class Plain:
    """Files whose rows are read without Spark."""

    files: Any

    def resolve(self, place):
        return PlainSet(self.files.resolve(place))


@dataclass(frozen=True)
class PlainSet:
    chosen: Any

    def __getattr__(self, name):
        return getattr(self.chosen, name)

    def read(self, engine):
        return [{"id": "1", "day": date(2024, 10, 7)}]


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    source=Plain(twice.files("landing/{execution_date}.csv", schema="id string, day date")),
    target="postgres:visits",
    pattern=twice.data_overwrite(slice="day"),
)
def visits(rows):
    return rows
'''
COUNTING = """
import sys
import psycopg
made, connect = [], psycopg.connect
def counted(*words, **named):
    made.append(1)
    return connect(*words, **named)
psycopg.connect = counted
from twice.cli import main
code = main(sys.argv[1:])
heavy = ("pyspark", "pyarrow", "adbc_driver_postgresql", "rich", "twice.stores.postgres.publishing", "twice.stores.postgres.periods")
print(len(made), [name for name in heavy if name in sys.modules])
sys.exit(code)
"""
WORDS = ("run", "visits", "--at", "2024-10-07")


@pytest.fixture
def twice_here(tmp_path, postgres_url):
    """Return a caller of `python` in a project whose slot is published; a `java` is not to be had."""
    folder = tmp_path / "project"
    (folder / "pipelines").mkdir(parents=True)
    (folder / "pipelines/visits.py").write_text(PIPELINE)
    (folder / "landing").mkdir()
    (folder / "landing/2024-10-07.csv").write_text("id,day\n1,2024-10-07\n")
    (folder / "twice.toml").touch()
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "TWICE_OUTPUT")}
    environment |= {"TWICE_POSTGRES_URL": postgres_url, "PATH": "/nowhere"}

    def call(*program):
        done = subprocess.run(
            [sys.executable, *program, *WORDS], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "published" in call("-m", "twice")
    return call


def test_it_is_one_look_on_one_connection_and_loads_little(twice_here):
    said, counted = twice_here("-c", COUNTING).splitlines()
    assert "skipped (published, and the inputs are the same)" in said
    assert counted == "1 []"
