"""Does a quiet command print results and errors, and nothing else? On the memory store, no JVM."""

import pytest
from test_backfill_commands import ALL, DAYS, PIPELINES, on_a_terminal

from twice.cli.output import say


@pytest.fixture
def folder(memory, tmp_path):
    (tmp_path / "pipelines/many.py").write_text(PIPELINES)
    for day in DAYS:
        (tmp_path / f"in/{day}.txt").write_text("a b")
    return tmp_path


def test_a_quiet_run_prints_what_became_of_it_and_no_plan(twice, folder):
    said = twice("run", "visits", "--at", DAYS[0])
    assert "stage" in said.out
    said = twice("run", "visits", "--at", DAYS[1], "--quiet")
    assert (said.code, said.err, len(said.out.splitlines())) == (0, "", 1)
    assert said.out.startswith("visits 2024-10-08T00:00Z  published")


def test_a_quiet_walk_prints_each_slot_and_the_sum(twice, folder):
    (folder / f"in/{DAYS[2]}.txt").write_text("broken")
    said = twice("backfill", "visits", *ALL, "-q")
    assert (said.code, said.err) == (1, "")
    assert (said.out.count("  published ("), said.out.count("  failed: ")) == (4, 1)
    assert said.out.endswith("4 published, 0 skipped, 1 failed\n")


def test_a_quiet_walk_in_json_leaves_standard_error_to_errors(twice, folder):
    (folder / f"in/{DAYS[2]}.txt").write_text("broken")
    loud = twice("backfill", "visits", *ALL, "--output", "json")
    said = twice("backfill", "visits", *ALL, "--force", "--yes", "--output", "json", "-q")
    assert (loud.err.count("[") > 1, len(said.json["outcomes"])) == (True, 4)
    assert [line.split("  ")[1].partition(":")[0] for line in said.err.splitlines() if line.startswith("[")] == [
        "failed"
    ]


def test_a_quiet_command_warns_of_nothing_and_still_refuses(twice, folder):
    text = PIPELINES.replace('{execution_date}.json"', 'all.json"').replace(', ready="next"', "")
    (folder / "pipelines/many.py").write_text(text)
    assert "warning: 'in/all.json' names no slot" in twice("plan", "patient", "--at", DAYS[0]).err
    said = twice("plan", "patient", "--at", DAYS[0], "--quiet")
    assert "warning" not in said.err
    said = twice("plan", "vists", "--at", DAYS[0], "--quiet")
    assert (said.code, "Did you mean 'visits'?" in said.err) == (2, True)


def test_a_quiet_walk_draws_no_bar(folder):
    code, shown = on_a_terminal(folder, "backfill", "visits", *ALL, "--quiet")
    assert (code, "━" in shown, "[5/5] visits 2024-10-11T00:00Z  published" in shown) == (0, False, True)


def test_a_command_is_quiet_for_itself_alone(twice, folder, capsys):
    twice("run", "visits", "--at", DAYS[0], "--quiet")
    say("heard")
    assert capsys.readouterr().err == "twice: heard\n"
