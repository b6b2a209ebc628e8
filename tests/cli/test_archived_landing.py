"""A landing zone that is cleared every night: what people are told of published slots whose files were moved away."""

import json

import pytest

DAYS = ["2024-10-07", "2024-10-08", "2024-10-09"]
WHOLE = ("--from", "2024-10-07", "--to", "2024-10-10")


@pytest.fixture
def archived(published, session):
    """A project whose three published days have no files any more."""
    (published.folder / "archive").mkdir()
    for day in DAYS:
        (published.folder / f"landing/visits/{day}.csv").rename(published.folder / f"archive/{day}.csv")
    return published


@pytest.mark.stores("parquet", "delta")
def test_each_night_after_the_files_were_archived(twice, archived):
    rows = archived.files("lake")
    for night in range(2):
        archived.put("2024-10-10", 5)
        said = twice("run", "--due", "--yes")
        assert (said.code, said.out.splitlines()[-1]) == (0, f"{1 - night} published, {3 + night} skipped, 0 failed")
        why = "its inputs are gone, and its rows stay: no file matches 'landing/visits/2024-10-07.csv'"
        assert f"[1/4] visits 2024-10-07T00:00Z  skipped ({why}): 5 rows, generation 1" in said.out
    assert rows.items() <= archived.files("lake").items()


@pytest.mark.stores("parquet", "delta")
def test_where_no_file_means_no_rows_published_days_stay_too(twice, archived):
    archived.edit("pipelines/visits.py", '{execution_date}.csv"', '{execution_date}.csv", missing="empty"')
    said = twice("run", "--due", "--yes")
    assert (said.code, said.out.splitlines()[-1]) == (0, "1 published, 3 skipped, 0 failed")
    assert "skip: its inputs are gone" in twice("plan", "visits", "--at", DAYS[0]).out
    assert twice("backfill", "visits", *WHOLE, "--dry-run").out.count("skip: its inputs are gone") == 3
    forced = twice("run", "visits", "--due", "--force", "--yes")
    assert (forced.code, forced.out.count("The inputs of 2024-10-0"), forced.out.count(" are gone: ")) == (1, 3, 3)
    asked = twice("run", "visits", "--at", DAYS[0], "--force")
    assert (asked.code, "Without a terminal nobody can be asked" in asked.err) == (2, True)
    assert json.loads(twice("show", "visits", "--at", DAYS[0], "--output", "json").out)["rows"]["published"] == 5
    assert twice("run", "visits", "--at", DAYS[0], "--force", "--yes").code == 0
    assert json.loads(twice("show", "visits", "--at", DAYS[0], "--output", "json").out)["rows"]["published"] == 0


@pytest.mark.stores("parquet")
def test_status_and_check_name_slots_whose_inputs_are_gone_and_call_nothing_wrong(twice, archived):
    said = twice("status")
    labels = ", ".join(f"{day}T00:00Z" for day in DAYS)
    assert f"visits: inputs gone of {labels}; the rows stay as they were published." in said.out
    assert "stale" not in said.out
    (row,) = twice("status", "--output", "json").json["pipelines"]
    assert (row["gone"], row["stale"]) == ([f"{day}T00:00Z" for day in DAYS], [])
    said = twice("check", "--output", "json")
    (found,) = [one for one in said.json["findings"] if one["check"] == "inputs"]
    assert (said.code, found["severity"], len(found["details"]["slots"])) == (0, "notice", 3)
    assert found["what"].startswith("The inputs of 3 published slots are gone, of 2024-10-07T00:00Z, 2024-10-08T00:00Z")
