"""Are the answers of the command line true of the data? On a real server, and without a JVM."""

import json

import pytest

from twice.cli import main

PIPELINE = """
import json
from pathlib import Path

import twice

PLACE = Path(__file__).parents[1]


def file_of(run):
    return PLACE / f"{run.interval.text[:10]}.json"


def rows(run):
    return json.loads(file_of(run).read_text())


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    end="2024-10-10",
    source=twice.source(rows, fingerprint=lambda run: file_of(run).read_text()),
    target="postgres:visits",
    pattern=twice.PATTERN,
)
def visits(rows):
    return rows
"""
DAYS = ["2024-10-07", "2024-10-08", "2024-10-09"]
MERGED = 'merger(keys=["id"])'
SLICED = 'data_overwrite(slice="day")'


class Home:
    """A project on the server, and what its commands say."""

    def __init__(self, folder, capsys):
        self.folder = folder
        self.capsys = capsys

    def declare(self, pattern, **replaced):
        text = PIPELINE.replace("PATTERN", pattern)
        for old, new in replaced.items():
            assert old in text
            text = text.replace(old, new)
        (self.folder / "pipelines" / "visits.py").write_text(text)

    def put(self, day, *names):
        rows = [{"id": name, "day": day, "n": number} for number, name in enumerate(names)]
        (self.folder / f"{day}.json").write_text(json.dumps(rows))

    def call(self, *words):
        self.capsys.readouterr()
        code = main(list(words))
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def says(self, *words):
        code, out, err = self.call(*words)
        assert code == 0, err
        return out

    def json(self, *words):
        return json.loads(self.says(*words, "--output", "json"))

    def refuses(self, *words, code=2):
        found, out, err = self.call(*words)
        assert (found, out) == (code, ""), out + err
        return err


@pytest.fixture
def home(tmp_path, postgres_url, monkeypatch, capsys):
    (tmp_path / "twice.toml").write_text("")
    (tmp_path / "pipelines").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TWICE_POSTGRES_URL", postgres_url)
    made = Home(tmp_path, capsys)
    made.declare(SLICED)
    return made


@pytest.fixture
def three_days(home):
    """Three published days, of which each begins with the same key."""
    for number, day in enumerate(DAYS):
        home.put(day, "a", *"bcd"[: number + 1])
    home.says("backfill", "visits", "--from", DAYS[0], "--to", "2024-10-10")
    return home


# ------------------------------------------------------------------ status


def status_of(home):
    [found] = home.json("status")["pipelines"]
    return found


def test_a_published_slot_whose_input_changed_is_shown_as_stale(three_days):
    assert status_of(three_days)["stale"] == []
    three_days.put(DAYS[1], "x")
    assert status_of(three_days)["stale"] == [f"{DAYS[1]}T00:00Z"]
    said = three_days.says("status")
    assert (
        f"visits is stale: {DAYS[1]}T00:00Z, made from other inputs than there are now. Use twice run visits --at {DAYS[1]}T00:00Z"
        in said
    )
    three_days.says("run", "visits", "--due", "--yes")
    assert "stale" not in three_days.says("status")


def test_a_slot_of_older_code_is_stale_only_where_code_counts(three_days):
    three_days.declare(SLICED, **{"return rows\n": "return list(rows)\n"})
    assert status_of(three_days)["stale"] == []
    three_days.declare(SLICED, **{"return rows\n": "return list(rows)\n", "end=": 'on_code_change="rerun", end='})
    assert status_of(three_days)["stale"] == [f"{day}T00:00Z" for day in DAYS]


@pytest.mark.parametrize(("pattern", "rows"), [(SLICED, 9), (MERGED, None)])
def test_the_status_counts_rows_only_where_slots_tell_those_of_the_table(home, pattern, rows):
    home.declare(pattern)
    for number, day in enumerate(DAYS):
        home.put(day, "a", *"bcd"[: number + 1])
    home.says("backfill", "visits", "--from", DAYS[0], "--to", "2024-10-10")
    assert status_of(home)["rows"] == rows


# ------------------------------------------------------------------ causes


def test_a_row_is_looked_for_by_columns_and_values_that_are_named(three_days):
    assert "do not carry where they came from" in three_days.refuses("show", "visits", "--row-source", "id=a")
    three_days.declare('transactional_writer(lineage="slot")', **{"postgres:visits": "postgres:events"})
    three_days.says("run", "visits", "--due")
    assert "run=" in three_days.says("show", "visits", "--row-source", "id=b")
    said = three_days.refuses("show", "visits", "--row-source", "di=b")
    assert said == "Misuse: The table has no column 'di'.\n  There is: day, id, n, slot.\n"
    assert "has no row with n=many" in three_days.refuses("show", "visits", "--row-source", "n=many")


def test_a_misspelt_target_is_answered_with_the_nearest_name(three_days):
    said = three_days.refuses("show", "postgres:vists")
    assert "There is no table postgres:vists" in said
    assert "Did you mean 'postgres:visits'?" in said
    assert "mine: True" in three_days.says("show", "postgres:visits")


def test_a_target_that_no_run_has_made_yet_says_so(home):
    assert "Nothing was published to it yet." in home.says("show", "postgres:visits")


def test_a_beginning_that_several_attempts_share_is_told_as_one(three_days):
    names = [one["attempt"] for one in three_days.json("runs")["attempts"]]
    shared = names[0][:8]
    said = three_days.refuses("show", shared)
    assert f"Several attempts begin with {shared!r}" in said
    assert all(name in said for name in names)
    assert "is no attempt, no pipeline and no target" in three_days.refuses("show", "zzz")


@pytest.mark.parametrize("count", ["0", "-3"])
@pytest.mark.parametrize(
    "words", [("runs",), ("read", "visits"), ("files", "list", "visits"), ("quarantine", "show", "visits")]
)
def test_a_number_of_rows_below_one_is_refused(home, words, count):
    assert "'--limit'" in home.refuses(*words, "--limit", count)


def test_a_target_of_another_project_is_not_told_as_a_loss_of_this_ledger(three_days, monkeypatch):
    def owner():
        code, out, _ = three_days.call("check", "--quick", "--output", "json")
        [found] = [one for one in json.loads(out)["findings"] if one["check"] == "owner"]
        return code, found["what"]

    monkeypatch.setenv("TWICE_LEDGER_URL", "sqlite:///other.db")
    assert owner() == (5, HasText("this ledger knows of no publish at all: it is new, or the one before it was lost"))
    three_days.declare(SLICED, **{"postgres:visits": "postgres:others"})
    three_days.says("run", "visits", "--due")
    three_days.declare(SLICED)
    assert owner() == (5, HasText("this project never published to it"))


class HasText(str):
    """Equal to whatever holds it."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        return str(self) in str(other)


# ------------------------------------------------------------------ names and versions


def test_a_pipeline_may_be_named_wherever_its_target_may(three_days):
    assert "postgres:visits" in three_days.says("adopt", "visits", "--dry-run")
    assert "There is no target and no pipeline 'vists'" in three_days.refuses("adopt", "vists", "--yes")
    assert "postgres:visits belongs to nobody now" in three_days.says("release", "visits", "--yes")
