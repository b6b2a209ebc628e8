"""How does a person move a ledger? From a file to a server and back, by commands. No JVM."""

from dataclasses import replace

import pytest

from twice.ledger import AttemptRecord
from twice.project import Project

RECORD = AttemptRecord(
    "", "v1:visits:parquet:lake/visits:a", "visits", "parquet:lake/visits", 1, "in", "code", "started"
)


@pytest.fixture
def used(home):
    """A project whose ledger holds two attempts."""
    ledger = Project.open(home.folder).ledger
    for fingerprint in ("one", "two"):
        ledger.end(ledger.intend(replace(RECORD, fingerprint=fingerprint)).attempt, "failed", "for a reason")
    return ledger


@pytest.mark.postgres
def test_a_ledger_moves_to_a_server_and_back(used, home, twice, postgres_url, monkeypatch):
    runs = twice("runs", "--output", "json").json
    assert "5 rows of ledger" in twice("ledger", "export", "a.jsonl").out
    monkeypatch.setenv("TWICE_LEDGER_URL", postgres_url)
    assert twice("runs", "--output", "json").json["attempts"] == []
    moved = twice("ledger", "import", "a.jsonl", "--output", "json").json
    assert (moved["ledger"], moved["rows"], moved["changed"]) == (used.id, 5, True)
    assert twice("runs", "--output", "json").json == runs
    again = twice("ledger", "import", "a.jsonl")
    assert (again.code, "are already in postgresql://" in again.out) == (0, True)
    assert used.id[:8] in twice("doctor").out
    assert twice("ledger", "export", "b.jsonl").code == 0
    monkeypatch.setenv("TWICE_LEDGER_URL", "sqlite:///.twice/back.db")
    assert twice("ledger", "import", "b.jsonl").code == 0
    assert twice("runs", "--output", "json").json == runs
    assert Project.open(home.folder).ledger.id == used.id


@pytest.mark.postgres
def test_no_command_shows_the_password_of_a_ledger(home, twice, postgres_url, monkeypatch):
    password = postgres_url.split(":")[2].split("@")[0]
    for url in (postgres_url, postgres_url + "_none", postgres_url.replace("@127", "@x@127")):
        monkeypatch.setenv("TWICE_LEDGER_URL", url)
        for words in (["status"], ["doctor"], ["runs"], ["ledger", "rebuild"], ["ledger", "export", "x"]):
            said = twice(*words)
            assert password not in said.out + said.err, words


def test_an_import_over_another_ledger_is_refused(used, home, twice, monkeypatch):
    assert twice("ledger", "export", "a.jsonl").code == 0
    used.intend(RECORD)
    said = twice("ledger", "import", "a.jsonl")
    assert (said.code, "is not empty" in said.err) == (2, True)
    assert len(used.attempts()) == 3


def test_there_is_nothing_to_export_before_the_first_run(home, twice):
    said = twice("ledger", "export", "a.jsonl")
    assert (said.code, "There is no ledger yet" in said.err) == (2, True)
    assert not (home.folder / "a.jsonl").exists()
    assert not (home.folder / ".twice").exists()
