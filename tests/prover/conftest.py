"""Fixtures only: projects whose pipelines are proven, on the memory store or on Spark."""

import sys
from pathlib import Path

import pytest

MEMORY = '''
import json
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import twice
from twice.sources.files import Files


class Lines(Files):
    """Files of JSON lines, read without Spark."""

    def resolve(self, place):
        return Chosen(super().resolve(place))


@dataclass(frozen=True)
class Chosen:
    files: object

    @property
    def facts(self):
        return self.files.facts

    @property
    def summary(self):
        return self.files.summary

    def moved(self):
        return self.files.moved()

    def read(self, engine):
        texts = [(Path(self.files.root) / mark.path).read_text() for mark in self.files.marks]
        rows = [json.loads(line) for text in texts for line in text.splitlines()]
        return [{**row, "day": date.fromisoformat(row["day"])} for row in rows]


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    end="2024-10-11",
    source=Lines("landing/{execution_date}.jsonl", schema="id string, day date"),
    target="memory:lake/visits",
    pattern=PATTERN,
)
def visits(rows, run):
    BODY
'''
DAYS = ("2024-10-07", "2024-10-08", "2024-10-09", "2024-10-10")


@pytest.fixture
def memory_project(tmp_path, monkeypatch):
    """Return a maker of projects on the memory store: a pattern, and the body of the transform."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def make(body="return rows", pattern='twice.data_overwrite(slice="day")', before=""):
        folder = tmp_path / "project"
        (folder / "pipelines").mkdir(parents=True)
        (folder / "landing").mkdir()
        (folder / "twice.toml").write_text("")
        text = (
            MEMORY.replace("PATTERN", pattern)
            .replace("BODY", body.replace("\n", "\n    "))
            .replace("import json\n", f"import json\n{before}", 1)
        )
        (folder / "pipelines/visits.py").write_text(text)
        for day in DAYS:
            lines = [f'{{"id": "{day}-{n}", "day": "{day}"}}\n' for n in range(4)]
            (folder / f"landing/{day}.jsonl").write_text("".join(lines))
        return Path(folder)

    return make
