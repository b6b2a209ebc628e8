"""Fixtures only: the command line called in this process, on projects that `twice init` made."""

import hashlib
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sessions import with_session
from twice.cli import main
from twice.cli.project import visits_csv
from twice.stores.memory import MemoryStore


@dataclass(frozen=True)
class Said:
    """How a command ended: its exit code, what it answered, and what it told on the way."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@dataclass(frozen=True)
class Home:
    """The folder of a project, with hands to look into it."""

    folder: Path

    def files(self, under=""):
        """Return all files with a digest of their content, Python's own caches left aside."""
        found = (path for path in (self.folder / under).rglob("*") if path.is_file() or path.is_symlink())
        return {
            str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in found
            if "__pycache__" not in path.parts
        }

    def put(self, day, count):
        (self.folder / f"landing/visits/{day}.csv").write_text(visits_csv(day, count), encoding="utf-8")

    def edit(self, name, old, new):
        file = self.folder / name
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch):
    """Settings, colours and caches of the machine have no say in these tests."""
    for name in ("TWICE_OUTPUT", "TWICE_LEDGER_URL", "TWICE_ENV", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def twice(capsys):
    """Return a caller of the command line that keeps what was said."""

    def call(*words):
        capsys.readouterr()
        code = main(list(words))
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


@pytest.fixture
def home(tmp_path, monkeypatch, twice):
    """A project that was just made, as the current folder."""
    monkeypatch.chdir(tmp_path)
    assert twice("init").code == 0
    return Home(tmp_path)


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """One memory store for all commands of a test, in a project of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twice.toml").touch()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "in").mkdir()
    store = MemoryStore()
    monkeypatch.setattr("twice.project.make_store", lambda *given: store)
    return store


@pytest.fixture
def session(spark, monkeypatch):
    """The shared session, used by every command of the test."""
    with_session(monkeypatch, spark)
    return spark


@pytest.fixture(scope="session")
def template(spark, tmp_path_factory):
    """Return a maker of published example projects, one a store, made once."""
    made = {}

    def of(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(f"{kind}-template")
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                patch.setattr(sys, "dont_write_bytecode", True)
                patch.setattr(sys, "path", list(sys.path))
                with_session(patch, spark)
                assert main(["init", "--store", kind]) == 0
                assert main(["backfill", "visits", "--from", "2024-10-07", "--to", "2024-10-10"]) == 0
            made[kind] = folder
        return made[kind]

    return of


@pytest.fixture
def published(kind, template, tmp_path, monkeypatch):
    """A project of which three of four days are published, as the current folder."""
    folder = tmp_path / "project"
    shutil.copytree(template(kind), folder)
    monkeypatch.chdir(folder)
    return Home(folder)
