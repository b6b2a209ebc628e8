"""What do `twice adopt`, `run` and `tidy` say of a table whose change rows are kept? All of it without a JVM."""

import json
import os
import subprocess
import sys

import psycopg
import pytest

PIPELINE = """
import json
from pathlib import Path

import twice

PLACE = Path(__file__).parents[1] / "rows.json"


def rows(run):
    return json.loads(PLACE.read_text())


devices = twice.pipeline(
    name="devices",
    every="1 day",
    start="2024-10-07",
    end="2024-10-08",
    source=twice.source(rows, fingerprint=lambda: PLACE.read_text()),
    target="postgres:devices",
    pattern=twice.stateful_merger(keys=["id"], form="history"),
)(lambda rows: rows)
"""


@pytest.fixture
def command(tmp_path, postgres_url):
    (tmp_path / "twice.toml").write_text("")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "devices.py").write_text(PIPELINE)

    def call(*words):
        done = subprocess.run(
            [sys.executable, "-m", "twice", *words],
            cwd=tmp_path,
            env={**os.environ, "TWICE_POSTGRES_URL": postgres_url},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "starting Spark" not in done.stderr
        return done.stdout

    return call


def test_an_adopted_table_is_given_back_and_replaced_rows_are_counted_before_they_go(command, tmp_path, postgres_url):
    def given(rows):
        (tmp_path / "rows.json").write_text(json.dumps(rows))

    def table():
        with psycopg.connect(postgres_url) as db:
            return dict(db.execute("SELECT id, name FROM devices").fetchall())

    with psycopg.connect(postgres_url) as db:
        db.execute(
            "CREATE TABLE devices (id bigint, name text); INSERT INTO devices VALUES (1, 'camera'), (2, 'phone')"
        )
    given([{"id": 2, "name": "fone"}])
    command("adopt", "postgres:devices", "--yes")
    assert "what was there before the first slot" in command("plan", "devices", "--at", "2024-10-07")
    command("run", "devices", "--at", "2024-10-07", "--yes")
    assert table() == {1: "camera", 2: "fone"}
    given([{"id": 3, "name": "tablet"}])
    command("run", "devices", "--at", "2024-10-07", "--yes")
    assert table() == {1: "camera", 2: "phone", 3: "tablet"}
    told = "1 change row under 1 name that no receipt names"
    assert told not in command("tidy", "--dry-run")
    assert f"{told} would be removed" in command("tidy", "--dry-run", "--keep-days", "0")
    swept = json.loads(command("tidy", "--keep-days", "0", "--yes", "--output", "json"))["targets"]["postgres:devices"]
    assert (swept["change_rows"], len(swept["names"])) == (1, 1)
    assert told not in command("tidy", "--keep-days", "0", "--yes")
    assert table() == {1: "camera", 2: "phone", 3: "tablet"}
