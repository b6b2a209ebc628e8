"""What does a shell offer, and does it stay quiet whatever is wrong? Real shells and processes; no JVM."""

import os
import shutil
import subprocess
import sys

import pytest

PIPELINES = """
import sys

from pyspark.sql import functions as F

import twice

print("said by a module")
print("told by a module", file=sys.stderr)
DAYS = {"source": twice.files("landing/{execution_date}.csv", schema="id string"), "start": "2024-10-07"}
WHOLE = {"pattern": twice.data_overwrite()}


@twice.pipeline(target="parquet:lake/visits", every="1 day", end="2024-10-10", tags=["nightly"], **DAYS, **WHOLE)
def visits(rows):
    return rows.where(F.col("id") != "")


@twice.pipeline(target="parquet:lake/orders", every="6 hours", end="2024-10-08", tags=["nightly", "shop"], **DAYS, **WHOLE)
def orders(rows):
    return rows
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/shop.py").write_text(PIPELINES)
    (tmp_path / "twice.toml").write_text("[env.prod]\n[env.staging]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def offered(project):
    """Return what is offered for the last word of a line, as the script of a shell asks for it."""

    def ask(line, shell="bash"):
        words = line.split(" ")
        variables = {"_TWICE_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        done = subprocess.run(
            [sys.executable, "-m", "twice"],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [text.partition(",")[2] for text in done.stdout.splitlines() if text]

    return ask


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("twice pl", ["plan"]),
        ("twice run ", ["visits", "orders"]),
        ("twice run v", ["visits"]),
        ("twice backfill visits ", ["orders"]),
        ("twice run visits --at ", ["2024-10-09", "2024-10-08", "2024-10-07"]),
        ("twice run --at 2024-10-08 vi", ["visits"]),
        ("twice show visits --at 2024-10-08", ["2024-10-08"]),
        (
            "twice backfill orders --from ",
            ["2024-10-07T18:00Z", "2024-10-07T12:00Z", "2024-10-07T06:00Z", "2024-10-07"],
        ),
        ("twice run --select ", ["visits", "orders", "tag:nightly", "tag:shop"]),
        ("twice run --select tag:n", ["tag:nightly"]),
        ("twice run --select +o", ["+orders"]),
        ("twice run --exclude tag:shop,v", ["tag:shop,visits"]),
        ("twice read ", ["visits", "orders", "parquet:lake/visits", "parquet:lake/orders"]),
        ("twice versions parquet:lake/o", ["parquet:lake/orders"]),
        ("twice status --env ", ["prod", "staging"]),
        ("twice completion f", ["fish"]),
        ("twice dead show ", ["visits", "orders"]),
        ("twice run nonsense --at ", ["2024-10-09", "2024-10-08", "2024-10-07"]),
        ("twice nonsense ", []),
        ("twice run --env nonsense v", []),
        ("twice run --at 2024-10-07 --at 2024-10-08 v", ["visits"]),
    ],
)
def test_a_shell_is_offered_what_goes_on_as_it_was_begun(offered, line, words):
    assert offered(line) == words


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pipelines/shop.py", "raise SystemExit(3)"),
        ("pipelines/shop.py", "def ("),
        ("twice.toml", "[sparc]"),
        ("twice.toml", "[ledger]\nurl = '${NOT_SET_ANYWHERE}'"),
    ],
)
def test_whatever_is_wrong_nothing_is_printed_into_the_prompt(offered, project, file, text):
    (project / file).write_text(text)
    assert offered("twice run ") == []
    assert offered("twice run visits --at ") == []


def test_completing_writes_nothing_and_loads_no_spark(project):
    before = sorted(path for path in project.rglob("*") if "__pycache__" not in path.parts)
    program = (
        "import sys, atexit; atexit.register(lambda: print([n for n in ('pyspark', 'py4j', 'pyarrow', 'rich')"
        " if n in sys.modules], file=sys.stderr)); from twice.cli import entry; entry()"
    )
    variables = {"_TWICE_COMPLETE": "bash_complete", "COMP_WORDS": "twice run visits --at ", "COMP_CWORD": "4"}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert (done.stdout.count("2024-10"), done.stderr) == (3, "[]\n")
    assert sorted(path for path in project.rglob("*") if "__pycache__" not in path.parts) == before


@pytest.mark.parametrize(
    ("line", "reply"),
    [("twice run --select tag:n", "tag:nightly"), ("twice read parquet:lake/v", "parquet:lake/visits")],
)
def test_bash_completes_words_with_a_colon(project, line, reply):
    """The script in a real bash, asked as readline asks it: with the words that COMP_WORDBREAKS leaves whole."""
    bash = shutil.which("bash")
    script = subprocess.run(
        [sys.executable, "-m", "twice", "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout
    words = line.split()
    program = (
        f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
        f"_twice_completion '{project}/twice'\n"
        'printf "%s\\n" "${COMPREPLY[@]}"; printf "breaks %s\\n" "${COMP_WORDBREAKS//[^:]}"\n'
    )
    (project / "twice").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m twice "$@"\n')
    (project / "twice").chmod(0o755)
    done = subprocess.run([bash, "--norc", "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.stderr) == ([reply, "breaks "], "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(twice, shell):
    said = twice("completion", shell)
    assert (said.code, f"_TWICE_COMPLETE={shell}_complete" in said.out, said.err) == (0, True, "")


def test_zsh_and_fish_get_the_same_words(offered, project):
    for shell in ("zsh", "fish"):
        variables = {
            "_TWICE_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": "twice run o",
            "COMP_CWORD": "o" if shell == "fish" else "2",
        }
        done = subprocess.run(
            [sys.executable, "-m", "twice"],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, "orders" in done.stdout, "visits" in done.stdout) == (0, True, False)


def test_another_shell_is_refused_with_those_that_there_are(twice):
    said = twice("completion", "tcsh")
    assert (said.code, "'bash', 'zsh', 'fish'" in said.err) == (2, True)
