"""Does a secret stay one, whatever goes wrong?"""

import copy
import json
import os
import pickle
import subprocess
import sys

import pytest

import twice
from twice import settings
from twice.confidential import Secret
from twice.errors import Misuse, NotPublished
from twice.explain import explain
from twice.masks import mask, says_secret


def test_a_secret_never_prints_itself():
    secret = Secret("swordfish-1", "DOOR")
    said = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r}",
        "{}".format(secret),  # noqa: UP032 - one more way in which people print
        f"{[secret]}",
        json.dumps(secret, default=str),
    ]
    assert "swordfish" not in "".join(said)
    assert secret.reveal() == "swordfish-1"
    assert copy.deepcopy({"a": secret})["a"] == secret
    with pytest.raises(Misuse, match="cannot be pickled"):
        pickle.dumps(secret)


def test_a_secret_comes_from_the_environment_or_from_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("DOOR", "from-the-environment")
    assert twice.secret("DOOR").reveal() == "from-the-environment"
    monkeypatch.delenv("DOOR")
    (tmp_path / "door").write_text("from-a-file\n")
    monkeypatch.setenv("DOOR_FILE", str(tmp_path / "door"))
    assert twice.secret("DOOR").reveal() == "from-a-file"
    monkeypatch.delenv("DOOR_FILE")
    with pytest.raises(Misuse, match="DOOR_FILE"):
        twice.secret("DOOR")


def test_a_secret_parameter_enters_no_fingerprint_by_its_value():
    from twice.fingerprint import fingerprint_of

    one, other = ({"token": Secret(value)} for value in ("first-value", "other-value"))
    assert fingerprint_of({}, one) == fingerprint_of({}, other)


@pytest.mark.parametrize(
    "name", ["PGPASSWORD", "db_pwd", "API_KEY", "spark.hadoop.fs.s3a.access.key", "MY_DSN", "authToken"]
)
def test_names_that_say_secret(name):
    assert says_secret(name)


@pytest.mark.parametrize("name", ["PATH", "spark.master", "keys", "HOME", "monkey", "PWD", "OLDPWD"])
def test_names_that_do_not(name):
    assert not says_secret(name)


@pytest.mark.parametrize(
    ("text", "gone", "kept"),
    [
        ("postgresql://me:hunter2@db/x refused", "hunter2", "postgresql://me:"),
        ("password=hunter22 host=db", "hunter22", "host=db"),
        ("Authorization token: abcdef.ghi", "abcdef.ghi", "Authorization"),
        ("nothing is secret here: 12:30", "", "nothing is secret here: 12:30"),
    ],
)
def test_addresses_and_pairs_are_masked(text, gone, kept):
    assert kept in mask(text)
    assert not gone or gone not in mask(text)


def test_errors_and_explanations_hold_no_secret(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "tok-123456789")
    assert "tok-123" not in str(NotPublished("a tok-123456789", "b tok-123456789", "c tok-123456789"))
    assert "tok-123" not in explain(ValueError("said tok-123456789"))


def test_a_setting_that_was_filled_in_shows_where_it_comes_from(monkeypatch, tmp_path):
    (tmp_path / "key").write_text("file-secret-9\n")
    monkeypatch.setenv("WHERE", "sqlite:///elsewhere.db")
    (tmp_path / "twice.toml").write_text(
        f"[ledger]\nurl = '${{WHERE}}'\n[spark.conf]\n'spark.one' = '${{file:{tmp_path}/key}}'\n'spark.two' = 'plain'\n"
    )
    found = settings.load(tmp_path)
    assert found["ledger.url"] == "sqlite:///elsewhere.db"
    assert found.values["ledger.url"].shown == "${WHERE}"
    assert found.spark_conf["spark.one"] == "file-secret-9"
    assert found.secret_spark_conf == {"spark.one"}
    assert "file-secret-9" not in mask("it was file-secret-9")


def test_a_file_that_is_not_there_is_refused_by_the_name_of_the_setting(tmp_path):
    (tmp_path / "twice.toml").write_text("[spark.conf]\n'spark.one' = '${file:/nowhere/at/all}'\n")
    with pytest.raises(Misuse, match=r"spark\.one"):
        settings.load(tmp_path)


# -------------------------------------------------------------------- twelve canaries

CANARIES = {number: f"canary-{number:02}-{'kqzxv'[number % 5] * 6}" for number in range(1, 13)}
PIPELINES = """
import logging, os, urllib.parse
import twice

TOKEN = twice.secret("CANARY_TOKEN")
FILED = twice.secret("CANARY_FILED")

def declare(name, read, fingerprint, **more):
    return twice.pipeline(name=name, source=twice.source(read, fingerprint=fingerprint),
        target=f"memory:lake/{name}", pattern=twice.data_overwrite(),
        parameters={"token": TOKEN, "filed": FILED}, **more)

def rows():
    return [{"id": 1}]

@declare("raises", rows, "1")
def raises(rows):
    if logging.getLogger().handlers:  # without a log of ours what user code prints is its own affair
        logging.getLogger("user").warning("with %s and %s", TOKEN, os.environ["CANARY_PASSWORD"])
    raise RuntimeError(f"db://me:{os.environ['CANARY_ADDRESS']}@host said no to {TOKEN.reveal()} {FILED.reveal()}"
                       f" password={os.environ['CANARY_PAIR']} {os.environ['CANARY_PASSWORD']}")

def broken_read():
    raise OSError("cannot log in with " + os.environ["CANARY_API_KEY"])

@declare("reads", broken_read, "1")
def reads(rows):
    return rows

def broken_fingerprint():
    raise ValueError("no mark for " + os.environ["CANARY_CREDENTIAL"])

@declare("marks", rows, broken_fingerprint)
def marks(rows):
    return rows

@declare("works", rows, "1")
def works(rows):
    return rows

@twice.on("started", "published", "failed")
def hook(event):
    raise ValueError("hook knows " + os.environ["CANARY_SECRET"] + " " + repr(event))
"""
TOML = """
[ledger]
url = "sqlite:///.twice/ledger.db"
[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "${CANARY_SPARK}"
"spark.some.option" = "${CANARY_PLAIN}"
"spark.from.file" = "${file:secret.txt}"
[openlineage]
url = "http://user:${CANARY_LINEAGE}@127.0.0.1:9/"
"""
COMMANDS = (
    ("run", "raises", "--log-format", "json"),
    ("run", "raises", "--log-format", "text", "--debug"),
    ("run", "raises", "--output", "json", "--debug"),
    ("run", "reads", "--debug"),
    ("run", "marks", "--debug"),
    ("run", "works", "--log-format", "json"),
    ("run", "works", "--nonsense"),
    ("run", "--due", "--yes", "--output", "json"),
    ("plan", "raises"),
    ("status",),
    ("status", "--output", "json"),
    ("runs", "--output", "json"),
    ("config",),
    ("config", "--output", "json"),
    ("metrics",),
    ("doctor",),
    ("check", "--quick", "--output", "json"),
    ("list", "--output", "json"),
    ("prove", "works", "--budget", "5s", "--report", "prove.html", "--junit", "prove.xml", "--output", "json"),
    ("prove", "raises", "--budget", "5s", "--report", "bad.html", "--junit", "bad.xml", "--output", "json"),
)


@pytest.mark.slow
def test_twelve_canaries_are_found_nowhere(tmp_path):
    home = tmp_path / "home"
    (home / "pipelines").mkdir(parents=True)
    (home / "pipelines/all.py").write_text(PIPELINES)
    (home / "twice.toml").write_text(TOML)
    outside = tmp_path / "outside"
    outside.mkdir()
    (home / "secret.txt").write_text(CANARIES[1] + "\n")
    (outside / "filed").write_text(CANARIES[2] + "\n")
    planted = {
        "CANARY_TOKEN": CANARIES[3],
        "CANARY_FILED_FILE": str(outside / "filed"),
        "CANARY_PASSWORD": CANARIES[4],
        "CANARY_ADDRESS": CANARIES[5],
        "CANARY_PAIR": CANARIES[6],
        "CANARY_API_KEY": CANARIES[7],
        "CANARY_CREDENTIAL": CANARIES[8],
        "CANARY_SECRET": CANARIES[9],
        "CANARY_SPARK": CANARIES[10],
        "CANARY_PLAIN": CANARIES[11],
        "CANARY_LINEAGE": CANARIES[12],
    }
    said = ""
    for words in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "twice", *words],
            cwd=home,
            env={**os.environ, **planted},
            capture_output=True,
            text=True,
            check=False,
        )
        said += f"\n$ {' '.join(words)}\n{done.stdout}{done.stderr}"
        assert all(canary not in " ".join(words) for canary in CANARIES.values())
    leaks = [number for number, canary in CANARIES.items() if canary in said]
    assert leaks == [], said
    (home / "secret.txt").unlink()
    for file in home.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            content = file.read_bytes()
            assert [n for n, canary in CANARIES.items() if canary.encode() in content] == [], file
    # The failures were those that were meant, and were told.
    for sign in ("said no to ***", "cannot log in with ***", "no mark for ***", "hook knows ***", "${CANARY_PLAIN}"):
        assert sign in said, sign
    assert (home / ".twice/run_results.json").exists()
