"""The commands for names that stand for several tables."""

import pytest

DECLARED = """
import twice

source = twice.files("landing/visits/{execution_date}.csv", schema="visit_id string, user_id string, page string, event_time timestamp, seconds int")


def same(rows):
    return rows


editions = twice.pipeline(
    name="editions", every="1 day", start="2024-10-07", source=source, target="parquet:lake/editions", pattern=twice.proxy()
)(same)
daily = twice.pipeline(
    name="daily", every="1 day", start="2024-10-07", source=source, target="parquet:lake/daily",
    pattern=twice.fast_metadata_cleaner(period="day"),
)(same)
"""
TARGET = "parquet:lake/editions"


@pytest.fixture
def views(home, session):
    text = (home.folder / "landing/visits/2024-10-07.csv").read_text().splitlines()[0]
    columns = ", ".join(f"{name} string" for name in text.split(","))
    start = DECLARED.index('schema="') + len('schema="')
    end = DECLARED.index('")', start)
    (home.folder / "pipelines/views.py").write_text(DECLARED[:start] + columns + DECLARED[end:], encoding="utf-8")
    return home


@pytest.mark.spark
def test_versions_are_listed_pointed_at_and_sealed(twice, views):
    assert twice("versions", TARGET).code == 2
    for day in ("2024-10-07", "2024-10-08"):
        assert twice("run", "editions", "--at", day, "--yes").code == 0
    listed = twice("versions", TARGET, "--output", "json").json["versions"]
    assert [version["current"] for version in listed] == [False, True]
    assert twice("point", TARGET, "1").code == 2  # nobody can be asked
    assert twice("point", TARGET, "1", "--yes").out == f"{TARGET} points at {listed[0]['name']} now.\n"
    assert "nothing to do" in twice("point", TARGET, listed[0]["name"]).out
    refused = twice("run", "editions", "--at", "2024-10-08")
    assert (refused.code, "The view points at" in refused.err) == (4, True)
    assert twice("point", TARGET, "9").code == 2
    assert twice("point", TARGET, "2", "--yes").code == 0
    assert twice("run", "editions", "--at", "2024-10-08").code == 0
    assert twice("seal", TARGET, "--why", "archived").code == 0
    sealed = twice("run", "editions", "--at", "2024-10-09", "--yes")
    assert (sealed.code, "archived" in sealed.err, "twice seal parquet:lake/editions --undo" in sealed.err) == (
        4,
        True,
        True,
    )
    assert twice("seal", TARGET, "--undo").code == 0
    assert twice("run", "editions", "--at", "2024-10-09", "--yes").code == 0


@pytest.mark.spark
def test_periods_are_frozen_and_evolved(twice, views):
    for day in ("2024-10-07", "2024-10-08"):
        assert twice("run", "daily", "--at", day, "--yes").code == 0
    evolved = twice("evolve", "daily", "--add", "country string", "--output", "json").json
    assert evolved["tables"] == ["20241007", "20241008"]
    assert twice("evolve", "daily", "--add", "country").code == 2
    assert twice("evolve", "daily", "--add", "region nonsense").code == 2
    assert twice("freeze", "daily", "--into", "hour", "--before", "2024-11-01").code == 2
    dry = twice("freeze", "daily", "--into", "month", "--before", "2024-11-01", "--dry-run", "--output", "json").json
    assert dry["frozen"] == {"2024_10": ["20241007", "20241008"]}
    assert twice("freeze", "daily", "--into", "month", "--before", "2024-11-01").code == 2  # nobody can be asked
    assert twice("freeze", "daily", "--into", "month", "--before", "2024-11-01", "--yes").code == 0
    assert twice("freeze", "daily", "--into", "month", "--before", "2024-11-01", "--yes").out.startswith(
        "daily has no periods"
    )
    assert "skipped" in twice("run", "daily", "--at", "2024-10-07").out
    status = twice("status", "daily", "--output", "json").json["pipelines"][0]
    assert (status["published"], status["unproven"], status["trouble"]) == (2, {}, "")


def test_views_of_pipelines_that_have_none_are_refused(twice, home):
    assert "does not exist yet" in twice("versions", "parquet:lake/visits").err
    assert "no view with versions" in twice("seal", "parquet:lake/visits").err
    assert "has no periods" in twice("freeze", "visits", "--into", "year", "--before", "2024-11-01").err
