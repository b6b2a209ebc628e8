"""`twice prove` on ingests whose rows are in memory: files that change or vanish mean what the source says."""

import sys

import pytest

import twice

PROJECT = """
import twice
from inboxes import PlainTracked

tracked = twice.files("landing/*.jsonl", schema="id string, n int", track=True{source})


@twice.pipeline(source=PlainTracked(**vars(tracked)), target="memory:lake/inbox", pattern={pattern})
def inbox(rows):
    return rows
"""
APPEND = "twice.transactional_writer()"
WAYS = {
    "refuse": ("", APPEND),
    "ignore": (', on_changed_file="ignore"', APPEND),
    "replace": (', on_changed_file="replace", file_column="source_file"', APPEND),
    "apply": (', on_changed_file="apply"', 'twice.merger(keys=["id"])'),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_false_alarm_on_an_ingest(tmp_path, monkeypatch, way):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    source, pattern = WAYS[way]
    for folder in ("pipelines", "landing"):
        (tmp_path / folder).mkdir()
    (tmp_path / "twice.toml").write_text("")
    (tmp_path / "pipelines/inbox.py").write_text(PROJECT.format(source=source, pattern=pattern))
    for name in "ab":
        lines = (f'{{"id": "{name}{number}", "n": 1}}\n' for number in range(4))
        (tmp_path / f"landing/{name}.jsonl").write_text("".join(lines))
    proof = twice.prove("inbox", project=tmp_path)
    assert [(one.trial.name, one.seen) for one in proof.counterexamples] == []
    assert {
        "repeat/twice",
        "repeat/changed-input",
        "repeat/vanished-input",
        "repeat/ledger-lost",
        "marks.kept/died",
    } <= {one.trial.name for one in proof.tried}
    assert "called as it is" not in str(proof.notes)
