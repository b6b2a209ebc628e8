"""What `twice check` prints, how it ends, and what a monitor reads."""

import pytest

STAMPED = 'return rows.where("seconds > 0").withColumn("at", F.current_timestamp())'


def stamp(home):
    """Let the example's transform read the clock."""
    home.edit("pipelines/visits.py", "import twice\n", "import twice\nfrom pyspark.sql import functions as F\n")
    home.edit("pipelines/visits.py", 'return rows.where("seconds > 0")', STAMPED)


def test_a_new_project_has_nothing_wrong_with_it_and_is_left_as_it_is(twice, home):
    before = home.files()
    said = twice("check")
    assert (said.code, said.out, said.err) == (0, "1 pipeline: nothing found.\n", "")
    assert home.files() == before


def test_what_the_lint_finds_is_worth_knowing_and_wrong_only_if_one_is_strict(twice, home):
    stamp(home)
    said = twice("check")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "visits (parquet:lake/visits)"
    assert lines[1].startswith("  notice  lint: pipelines/visits.py:20:55: F.current_timestamp() (clock).")
    assert "run.execution_time" in lines[2]
    assert "# twice: allow(clock)" in lines[2]
    assert lines[-1] == "1 pipeline: 0 wrong, 1 notice."
    assert twice("check", "--strict").code == 5


def test_a_comment_with_a_reason_silences_the_lint(twice, home):
    stamp(home)
    home.edit("pipelines/visits.py", STAMPED, STAMPED + "  # twice: allow(clock) the time of loading is meant")
    assert twice("check", "--strict").out == "1 pipeline: nothing found.\n"


def test_a_monitor_reads_the_same_keys_every_time(twice, home):
    assert twice("check", "--output", "json").json == {
        "schema_version": 1,
        "wrong": 0,
        "notices": 0,
        "pipelines": ["visits"],
        "findings": [],
        "left_out": [],
    }
    stamp(home)
    found = twice("check", "visits", "--quick", "--output", "json").json
    assert (found["wrong"], found["notices"]) == (0, 1)
    (finding,) = found["findings"]
    assert sorted(finding) == ["check", "details", "pipeline", "remedy", "severity", "target", "what"]
    assert finding["details"] == {
        "rule": "clock",
        "file": "pipelines/visits.py",
        "line": 20,
        "column": 55,
        "expression": "F.current_timestamp()",
    }


def test_misuse_is_told_before_anything_is_looked_at(twice, home):
    said = twice("check", "visit")
    assert (said.code, "Did you mean 'visits'?" in said.err) == (2, True)
    said = twice("check", "--quick", "--plan")
    assert (said.code, "Leave one of the two out." in said.err) == (2, True)


@pytest.mark.stores("parquet")
def test_a_lost_file_ends_with_exit_5_and_the_command_that_mends_it_does(twice, published, session):
    next(iter(published.folder.glob("lake/visits/data/*/*.parquet"))).unlink()
    said = twice("check")
    assert said.code == 5
    assert "visits (parquet:lake/visits)\n  wrong   proofs: 1 slot is no longer vouched for: 2024-10-0" in said.out
    assert said.out.endswith("1 pipeline: 1 wrong, 0 notices.\n")
    command = said.out.partition("again: twice ")[2].partition(".")[0].split()
    assert command[:2] == ["run", "visits"]
    assert twice(*command, "--yes").code == 0
    assert twice("check").out == "1 pipeline: nothing found.\n"
