"""What does `twice roles` print, and what does it do?"""

import json
import os
import subprocess
import sys

import psycopg
import pytest


@pytest.fixture
def twice_cli(tmp_path, postgres_url):
    (tmp_path / "twice.toml").write_text("")

    def call(*words):
        return subprocess.run(
            [sys.executable, "-m", "twice", *words],
            cwd=tmp_path,
            env={**os.environ, "TWICE_POSTGRES_URL": postgres_url},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def names(url):
    ending = url.rpartition("/")[2]
    return [f"{kind}_{ending}"[:60] for kind in ("o", "w", "r")]


@pytest.fixture
def given(postgres_url):
    owner, writer, reader = names(postgres_url)
    yield ["--owner", owner, "--writer", writer, "--reader", reader]
    with psycopg.connect(postgres_url, autocommit=True) as db:
        for name in (owner, writer, reader):
            db.execute(f"do $$ begin execute 'drop owned by {name}'; exception when undefined_object then end $$")
            db.execute(f"drop role if exists {name}")


def test_it_prints_statements_and_changes_nothing(twice_cli, postgres_url, given):
    told = twice_cli("roles", "postgres:serving.devices", *given)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("begin;\ncreate role")
    assert told.stdout.endswith("commit;\n")
    with psycopg.connect(postgres_url) as db:
        assert db.execute("select to_regnamespace('serving')").fetchone() == (None,)


def test_it_carries_them_out(twice_cli, postgres_url, given):
    done = twice_cli("roles", "postgres:serving.devices", *given, "--apply", "--yes", "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["applied"]
    with psycopg.connect(postgres_url) as db:
        owner = db.execute("select nspowner::regrole::text from pg_namespace where nspname = 'serving'").fetchone()
        assert owner == (given[1],)


def test_a_store_without_roles_is_refused(twice_cli):
    refused = twice_cli("roles", "parquet:lake/devices")
    assert refused.returncode == 2
    assert "has no roles" in refused.stderr
