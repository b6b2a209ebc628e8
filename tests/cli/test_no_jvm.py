"""A rerun with nothing to do is decided before a JVM starts: real processes, and a `java` that tells on its caller."""

import os
import subprocess
import sys

import pytest

DAY = "2024-10-07"
LOOKS = (
    ("status",),
    ("runs",),
    ("list",),
    ("config",),
    ("matrix",),
    ("show", "visits", "--at", DAY),
    ("plan", "visits", "--at", "2024-10-10"),
    ("plan", "--due"),
    ("check", "--quick"),
)


@pytest.fixture
def alone(published, tmp_path):
    """Return a caller of `python -m twice` whose `java` writes down that it was called, and fails."""
    called = tmp_path / "java-was-called"
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text(f'#!/bin/sh\necho "$@" >> "{called}"\nexit 1\n')
    java.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "TWICE_OUTPUT")}

    def call(*words, program=("-m", "twice")):
        done = subprocess.run(
            [sys.executable, *program, *words],
            cwd=published.folder,
            env={**kept, "PATH": f"{java.parent}{os.pathsep}{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done, called.exists()

    return call


@pytest.mark.stores("parquet", "delta")
def test_a_rerun_of_a_published_slot_calls_no_java(alone):
    done, called = alone("run", "visits", "--at", DAY)
    assert (done.returncode, done.stderr, called) == (0, "", False)
    assert done.stdout.startswith("visits 2024-10-07T00:00Z  skipped (published, and the inputs are the same)")


@pytest.mark.stores("parquet", "delta")
def test_a_backfill_with_nothing_to_do_calls_no_java(alone):
    done, called = alone("backfill", "visits", "--from", DAY, "--to", "2024-10-10")
    assert (done.returncode, called) == (0, False)
    assert done.stdout.endswith("0 published, 3 skipped, 0 failed\n")


@pytest.mark.stores("parquet", "delta")
def test_a_refusal_calls_no_java(alone, published):
    published.put(DAY, 9)
    done, called = alone("run", "visits", "--at", DAY)
    assert (done.returncode, called) == (2, False)
    assert "--yes" in done.stderr


@pytest.mark.stores("parquet", "delta")
@pytest.mark.parametrize("imports", ["", "from pyspark.sql import functions as F\n"], ids=["plain", "with functions"])
def test_a_rerun_does_not_even_load_pyspark(alone, published, imports):
    published.edit("pipelines/visits.py", "import twice\n", f"{imports}import twice\n")
    program = (
        "import sys; from twice.cli import main; code = main(sys.argv[1:]);"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'rich') if name in sys.modules]); sys.exit(code)"
    )
    done, called = alone("run", "visits", "--at", DAY, program=("-c", program))
    assert (done.returncode, done.stdout.splitlines()[-1], called) == (0, "[]", False)


@pytest.mark.stores("delta")
@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_looking_calls_no_java(alone, words):
    done, called = alone(*words)
    assert (done.returncode, called) == (0, False)


@pytest.mark.stores("parquet", "delta")
def test_a_slot_with_work_to_do_does_call_java(alone, published):
    """The control: this `java` would have been noticed."""
    lake = published.files("lake")
    done, called = alone("run", "visits", "--at", "2024-10-10")
    assert (done.returncode, called) == (2, True)
    assert "Spark did not start" in done.stderr
    assert "twice doctor" in done.stderr
    assert published.files("lake") == lake


DOWNSTREAM = """
import twice


@twice.pipeline(source=twice.table("{kind}:lake/visits"), target="{kind}:lake/counts", pattern=twice.data_overwrite())
def counts(rows):
    return rows.groupBy("day").count()
"""


@pytest.mark.stores("parquet", "delta")
def test_what_is_stale_downstream_and_what_a_backfill_would_do_is_told_without_java(
    alone, published, kind, twice, session
):
    (published.folder / "pipelines/counts.py").write_text(DOWNSTREAM.format(kind=kind))
    assert twice("run", "counts").code == 0
    done, called = alone("status")
    assert ("stale" in done.stdout, called) == (False, False)
    assert twice("run", "visits", "--at", "2024-10-10").code == 0
    done, called = alone("status")
    assert (done.returncode, called) == (0, False)
    assert "counts is stale: (the only slot), made from other inputs than there are now." in done.stdout
    files = published.files()
    done, called = alone("backfill", "visits", "--from", DAY, "--to", "2024-10-11", "--force", "--dry-run")
    assert (done.returncode, done.stdout.count("replace: asked for with --force"), called) == (0, 4, False)
    assert published.files() == files
    assert twice("run", "--due", "--yes").out.splitlines()[-2].startswith("[5/5] counts (the only slot)  published")
