"""Do results, figures and the status tell in one screen each what became of the runs?"""

import json
import os
import signal
import subprocess
import sys

import pytest

from twice.cli.results import write_whole

DAY = "2024-10-07"


@pytest.fixture
def failing(home):
    """A project whose runs fail before a JVM is needed: the header of the file is wrong."""
    (home.folder / f"landing/visits/{DAY}.csv").write_text("wrong,header\n1,2\n")
    return home


def results(home):
    return json.loads((home.folder / ".twice/run_results.json").read_text())


def test_a_failed_run_leaves_results_with_its_error_and_code(failing, twice):
    said = twice("run", "visits", "--at", DAY)
    found = results(failing)
    assert (said.code, found["exit_code"], found["command"], found["schema_version"]) == (1, 1, "run", 1)
    [slot] = found["results"]
    assert (slot["state"], slot["error"]["code"]) == ("failed", 1)
    assert slot["attempt"]
    assert slot["started_at"] is None  # it ended before work began
    assert found["ended_at"] >= found["started_at"]


def test_each_slot_of_a_backfill_is_in_the_results(home, twice):
    for day in ("2024-10-07", "2024-10-08"):
        (home.folder / f"landing/visits/{day}.csv").unlink()
    twice("backfill", "visits", "--from", "2024-10-07", "--to", "2024-10-09")
    assert [one["state"] for one in results(home)["results"]] == ["failed", "failed"]


def test_misuse_before_a_slot_is_known_leaves_older_results_alone(failing, twice):
    twice("run", "visits", "--at", DAY)
    before = results(failing)["invocation"]
    assert twice("run", "nobody", "--at", DAY).code == 2
    assert results(failing)["invocation"] == before


def test_a_command_that_was_killed_leaves_results_that_did_not_end(home):
    done = subprocess.run(
        [sys.executable, "-m", "twice", "run", "visits", "--at", DAY],
        env={**os.environ, "TWICE_FAULTS": "kill:lease.taken"},
        start_new_session=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    found = results(home)
    assert (found["ended_at"], found["exit_code"], found["results"][0]["state"]) == (None, None, "started")


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "one"
    write_whole(str(file), "old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_whole(str(file), "new")
    assert file.read_text() == "old\n"
    assert os.listdir(tmp_path) == ["one"]


def test_results_that_cannot_be_written_change_no_outcome(failing, twice, monkeypatch):
    monkeypatch.setenv("TWICE_RESULTS_FILE", "landing/visits/2024-10-08.csv/no.json")
    said = twice("run", "visits", "--at", DAY)
    assert said.code == 1
    assert "could not be written" in said.err


# -------------------------------------------------------------------- figures


def figures(text):
    from prometheus_client.parser import text_string_to_metric_families

    families = list(text_string_to_metric_families(text))
    return families, {(s.name, *sorted(s.labels.values())): s.value for f in families for s in f.samples}


def test_figures_are_well_formed_and_count_what_happened(failing, twice):
    for _ in range(2):
        twice("run", "visits", "--at", DAY)
    families, found = figures(twice("metrics").out)
    assert found["twice_runs", "failed", "visits"] == 2
    assert found["twice_slots_failing", "visits"] == 1
    assert found["twice_slots_due", "visits"] == 4
    assert found["twice_leases_held",] == 0
    assert all(family.documentation for family in families)
    assert {family.name: family.type for family in families} == {
        "twice_runs": "gauge",
        "twice_rows_published": "counter",
        "twice_last_success_timestamp_seconds": "gauge",
        "twice_last_success_age_seconds": "gauge",
        "twice_last_success_duration_seconds": "gauge",
        "twice_slots_failing": "gauge",
        "twice_slots_due": "gauge",
        "twice_runs_due_again": "gauge",
        "twice_runs_dead": "gauge",
        "twice_effects_owed": "gauge",
        "twice_leases_held": "gauge",
    }


def test_a_pipeline_that_is_gone_does_not_add_a_label(failing, twice):
    twice("run", "visits", "--at", DAY)
    failing.edit("pipelines/visits.py", "def visits(", "def others(")
    _, found = figures(twice("metrics").out)
    assert found["twice_runs", "(undeclared)", "failed"] == 1


def test_figures_go_to_a_file_for_a_collector(failing, twice):
    said = twice("metrics", "--file", "out/twice.prom")
    assert (said.code, said.out) == (0, "")
    assert "# HELP twice_runs " in (failing.folder / "out/twice.prom").read_text()
    assert os.listdir(failing.folder / "out") == ["twice.prom"]


# -------------------------------------------------------------------- the morning


def test_the_status_says_what_failed_why_since_when_and_what_to_type(failing, twice):
    for _ in range(2):
        twice("run", "visits", "--at", DAY)
    said = twice("status")
    [line] = [line for line in said.out.splitlines() if "2 times since" in line]
    assert line.startswith(f"visits {DAY}T00:00Z failed 2 times since 20")
    assert "header" in line
    assert line.endswith(f"then twice run visits --at {DAY}T00:00Z")
    attempt = twice("runs", "--output", "json").json["attempts"][0]["attempt"]
    assert f"See twice logs {attempt}" in line
    assert twice("status", "--output", "json").json["pipelines"][0]["failed"][0]["tries"] == 2


def test_thirty_pipelines_of_which_several_failed_fit_on_one_screen(home, twice):
    text = (home.folder / "pipelines/visits.py").read_text()
    for number in range(30):
        copy = text.replace("def visits(", f"def visits{number}(").replace("lake/visits", f"lake/visits{number}")
        (home.folder / f"pipelines/visits{number}.py").write_text(
            copy.replace("landing/visits/", f"landing/v{number}/")
        )
    (home.folder / "pipelines/visits.py").unlink()
    for number in (3, 7, 11):
        twice("backfill", f"visits{number}", "--from", DAY, "--to", "2024-10-11")
    lines = twice("status").out.splitlines()
    failed = [line for line in lines[31:] if " failed " in line]
    assert len(failed) == 9  # two slots and a count for each
    assert lines[31:40] == failed  # what failed stands first below the table
    assert lines[40].startswith("30 pipelines are missing 120 slots: ")
    assert len(lines) == 41
