"""What does a command say where there is no project, or where no pipeline could be read?"""

import os

import pytest

TARGET = "parquet:lake/visits"
NEED_A_PROJECT = (
    "doctor|list|plan visits --at 2024-10-07|run visits --at 2024-10-07|run --due|run visits --due"
    "|backfill visits --from 2024-10-07 --to 2024-10-08|retry|dead list|dead show visits|dead requeue visits"
    "|dead drop visits --yes|files list visits|files show visits a|files forget visits a|quarantine list"
    "|quarantine show visits|quarantine replay visits|quarantine drop visits --yes|effects list|effects deliver"
    "|effects confirm abc|effects forget abc|status|metrics|runs|logs visits|show visits|check|check --quick"
    f"|read {TARGET}|versions {TARGET}|restore {TARGET} 1|diff {TARGET} 1 2|point {TARGET} 1|seal {TARGET}"
    "|freeze visits --into year --before 2024-01-01|evolve visits --add x|roles postgres:a.b|adopt "
    f"{TARGET}|release {TARGET} --yes|tidy|tidy --dry-run|prove visits|ledger rebuild --yes|ledger export x|config"
).split("|")
NEED_PIPELINES = [
    "list",
    "plan visits --at 2024-10-07",
    "run visits --at 2024-10-07",
    "run --due",
    "retry",
    "backfill visits --from 2024-10-07 --to 2024-10-08",
    "quarantine list",
    "effects deliver",
    "status",
    "check --quick",
    "tidy",
    "prove visits",
    "ledger rebuild --yes",
    "doctor",
]


def test_every_command_that_needs_a_project_is_named_here():
    from twice.cli import _COMMANDS

    without = {"init", "demo", "jars", "advise", "matrix", "completion"}
    assert {words.split()[0] for words in NEED_A_PROJECT} == set(_COMMANDS) - without


@pytest.mark.parametrize("words", NEED_A_PROJECT)
def test_outside_a_project_a_command_is_refused_and_leaves_nothing_behind(twice, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    said = twice(*words.split())
    assert said.code == 2
    assert "There is no project in" in said.out + said.err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("words", NEED_PIPELINES)
def test_a_folder_of_pipelines_that_is_not_there_is_named(twice, home, words):
    home.edit("twice.toml", '"pipelines"', '"pipeline"')
    before = home.files()
    said = twice(*words.split())
    assert said.code == 2
    assert "project.pipelines names no folder: 'pipeline' (twice.toml)" in said.out + said.err
    assert home.files() == before


@pytest.mark.parametrize("words", ["run --due", "retry", "check", "status", "tidy", "ledger rebuild --yes"])
def test_a_project_without_a_pipeline_has_nothing_that_could_be_due(twice, home, words):
    (home.folder / "pipelines/visits.py").unlink()
    said = twice(*words.split())
    assert said.code == 2
    assert said.err.startswith(f"Misuse: There are no pipelines in {home.folder}")
    assert not (home.folder / ".twice").exists()


def test_what_python_published_without_a_project_file_can_be_looked_at(twice, tmp_path, monkeypatch):
    from twice.project import Project

    monkeypatch.chdir(tmp_path)
    assert Project.open().ledger.id
    assert twice("runs").code == 0
    said = twice("show", TARGET)
    assert (said.code, said.err.partition(",")[0]) == (2, f"Misuse: There is no table {TARGET}")
