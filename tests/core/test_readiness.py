"""Does a run wait until its files are all there? No JVM anywhere."""

import json
import os
import sys

import pytest
from samples import slot_of

import twice
from twice import settings
from twice.cli import main
from twice.fingerprint import Place
from twice.intervals import Schedule
from twice.project import Project
from twice.sources.files import Files
from worlds import PlainFiles, World

DAILY = Schedule("1 day", "2024-09-01")
SCHEMA = "id string, day date"


class Forgets(dict):
    def recall(self, keys):
        return {}

    def remember(self, hashes):
        pass


@pytest.fixture
def put(tmp_path):
    def act(*names, text="{}\n"):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return act


@pytest.fixture
def resolve(tmp_path):
    def act(pattern, *, part="2024-09-20", schedule=DAILY, **rules):
        source = Files(pattern, schema=SCHEMA, format="json", **rules)
        return source.resolve(Place(str(tmp_path), slot_of(part), "UTC", Forgets(), lambda _: None, schedule))

    return act


def names(chosen):
    return [mark.path for mark in chosen.marks]


# ------------------------------------------------------------------ the next interval


def test_a_slot_waits_until_the_next_interval_has_a_file(resolve, put):
    put("in/2024-09-20.json")
    with pytest.raises(
        twice.Waiting, match=r"(?s)waits for its input of 2024-09-20T00:00Z.*'in/2024-09-21.json'.*safe"
    ):
        resolve("in/{execution_date}.json", ready="next")
    put("in/2024-09-21.json")
    assert names(resolve("in/{execution_date}.json", ready="next")) == ["in/2024-09-20.json"]


@pytest.mark.parametrize(
    ("every", "start", "slot", "following"),
    [
        ("1 month", "2024-09-01", "2024-09-01", "2024-10"),
        ("1 week", "2024-09-02", "2024-09-16", "2024-09"),
        ("0 0 * * mon", "2024-09-02", "2024-09-16", "2024-09"),
        ("1 year", "2024-01-01", "2024-01-01", "2025-01"),
    ],
)
def test_the_next_interval_is_the_one_of_the_calendar(resolve, put, tmp_path, every, start, slot, following):
    schedule = Schedule(every, start)
    source = Files("in/{start:%Y-%m}/{start:%d}.json", schema=SCHEMA, ready="next")
    part = slot_of(slot)
    part = type(part)(part.pipeline, part.target, schedule.at(slot))
    place = Place(str(tmp_path), part, "UTC", Forgets(), lambda _: None, schedule)
    after = schedule.after(schedule.at(slot)).start
    assert f"'in/{after:%Y-%m}/{after:%d}.json'" in str(source.waiting(place))
    assert f"{after:%Y-%m}" == following


def test_the_last_interval_of_a_calendar_that_ends_waits_too(resolve, put):
    put("in/2024-09-20.json")
    ends = Schedule("1 day", "2024-09-01", end="2024-09-21")
    with pytest.raises(twice.Waiting, match="2024-09-21"):
        resolve("in/{execution_date}.json", ready="next", schedule=ends)


def test_the_next_interval_is_not_looked_into(resolve, put):
    put("in/2024-09-20/a.json", "in/2024-09-21/odd:name.json")
    assert names(resolve("in/{execution_date}/*.json", ready="next")) == ["in/2024-09-20/a.json"]


def test_a_pattern_that_is_coarser_than_the_calendar_is_refused(resolve, put):
    put("in/2024-09-20.json")
    with pytest.raises(twice.Misuse, match="is the same for both"):
        resolve("in/{start:%Y}*.json", ready="next")


# ------------------------------------------------------------------ markers


@pytest.mark.parametrize(
    ("pattern", "done", "marker"),
    [
        ("in/{execution_date}/*.json", "_SUCCESS", "in/2024-09-20/_SUCCESS"),
        ("in/{execution_date}/*/x.json", "_SUCCESS", "in/2024-09-20/_SUCCESS"),
        ("in/{execution_date}/**/*.json", "_SUCCESS", "in/2024-09-20/_SUCCESS"),
        ("in/{start:%Y/%m}/{start:%d}-*.json", "{start:%d}.done", "in/2024/09/20.done"),
        ("in/{execution_date}.json", "{execution_date}.done", "in/2024-09-20.done"),
        ("in/{execution_date}/*.json", "../ready/{execution_date}", "in/ready/2024-09-20"),
        ("*.json", "all.done", "all.done"),
    ],
)
def test_a_slot_waits_for_its_marker(resolve, put, pattern, done, marker):
    files = pattern.replace("{execution_date}", "2024-09-20").replace("{start:%Y/%m}", "2024/09")
    put(files.replace("{start:%d}", "20").replace("**", "deep").replace("*", "x"))
    with pytest.raises(twice.Waiting, match=f"the marker '{marker}' is not there"):
        resolve(pattern, done=done)
    put(marker, text="")
    assert len(resolve(pattern, done=done).marks) == 1


def test_a_key_with_brackets_finds_its_marker(resolve, put):
    put("in/part[1]/a.json", "in/part[1]/_SUCCESS")
    assert names(resolve("in/{key}/*.json", part="part[1]", done="_SUCCESS")) == ["in/part[1]/a.json"]


def test_a_marker_that_the_pattern_matches_is_no_input(resolve, put):
    put("in/2024-09-20/a.json", "in/2024-09-20/DONE")
    assert names(resolve("in/{execution_date}/*", done="DONE")) == ["in/2024-09-20/a.json"]


def test_a_folder_and_a_dangling_link_are_no_marker(resolve, put, tmp_path):
    put("in/2024-09-20.json")
    (tmp_path / "in/a.done").mkdir()
    (tmp_path / "in/b.done").symlink_to("nowhere")
    for done in ("a.done", "b.done"):
        with pytest.raises(twice.Waiting):
            resolve("in/{execution_date}.json", done=done)


def test_a_marker_is_no_part_of_the_fingerprint(resolve, put):
    put("in/2024-09-20.json", "in/2024-09-20.done")
    marked = resolve("in/{execution_date}.json", done="{execution_date}.done")
    assert marked.facts == resolve("in/{execution_date}.json").facts


def test_a_marker_that_goes_away_or_comes_anew_during_the_run_is_noticed(resolve, put, tmp_path):
    put("in/2024-09-20.json", "in/a.done")
    chosen = resolve("in/{execution_date}.json", done="a.done")
    assert chosen.moved() == []
    os.replace(tmp_path / "in/a.done", tmp_path / "in/kept")
    assert chosen.moved() == ["in/a.done"]
    put("in/a.done", text="again")
    assert chosen.moved() == ["in/a.done"]


# ------------------------------------------------------------------ declarations


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ready": "soon"}, "Use ready='next', or done="),
        ({"ready": "next", "pattern": "in/*.json"}, "names no slot"),
        ({"done": ""}, "names no file"),
        ({"done": "a/"}, "names no file"),
        ({"done": "{exection_date}.done"}, "Did you mean 'execution_date'"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused(given, why):
    with pytest.raises(twice.Misuse, match=why):
        Files(**{"pattern": "in/{execution_date}.json", "schema": SCHEMA, **given})


def test_the_next_interval_needs_a_calendar(resolve):
    source = twice.files("in/{key}.json", schema=SCHEMA, ready="next")
    with pytest.raises(twice.Misuse, match="needs a calendar"):
        twice.pipeline(source=source, target="memory:out", pattern=twice.data_overwrite())
    with pytest.raises(twice.Misuse, match="needs a calendar"):
        resolve("in/{key}.json", part="k", schedule=None, ready="next")


def test_a_job_of_ones_own_can_wait_too(put, tmp_path):
    put("in/2024-09-20.json")
    asked = {
        "to": "memory:out",
        "pattern": twice.data_overwrite(),
        "slot": twice.slot("out", at="2024-09-20"),
        "inputs": [twice.files("in/{execution_date}.json", schema=SCHEMA, ready="next")],
        "project": Project(settings.load(tmp_path)),
    }
    with pytest.raises(twice.Waiting):
        twice.publish([{"id": 1}], **asked)
    put("in/2024-09-21.json")
    assert twice.publish([{"id": 1}], **asked).state == "published"


def test_when_files_may_be_read_is_no_change_of_code():
    assert repr(Files("in/{execution_date}.json", ready="next", done="x")) == repr(Files("in/{execution_date}.json"))


# ------------------------------------------------------------------ runs: scenario 21 and 89


class Patient(World):
    """A world whose files have rules of readiness."""

    rules: dict = {}  # noqa: RUF012 - set by each test

    @property
    def pipeline(self):
        source = Files("landing/{execution_date}.jsonl", schema=SCHEMA, **self.rules)
        return twice.pipeline(
            name="out",
            every="1 day",
            start=self.start,
            source=PlainFiles(source),
            target="memory:lake/out",
            pattern=self.pattern,
        )(self.transform)


@pytest.fixture
def patient(tmp_path):
    def make(**rules):
        world = Patient(tmp_path / "world", "memory", None)
        world.rules = rules
        return world

    return make


def test_a_run_waits_for_the_next_partition_and_changes_nothing(patient):
    world = patient(ready="next")
    world.put("2024-09-20", ["a"])
    for _ in range(2):
        with pytest.raises(twice.Waiting) as raised:
            world.run("2024-09-20")
    assert raised.value.exit_code == 1
    assert (world.rows(), world.sight().exists, world.project.ledger.attempts()) == ([], False, [])
    world.put("2024-09-21", ["b"])
    assert world.run("2024-09-20").state == "published"
    with pytest.raises(twice.Waiting):
        world.run("2024-09-21")
    assert world.by_day() == {"2024-09-20": ["a"]}


def test_a_run_waits_for_its_marker_and_changes_nothing(patient):
    world = patient(done="{execution_date}.done")
    world.put("2024-09-20", ["a"])
    with pytest.raises(twice.Waiting):
        world.run("2024-09-20")
    assert not world.sight().exists
    (world.folder / "landing/2024-09-20.done").touch()
    assert [world.run("2024-09-20").state for _ in range(2)] == ["published", "skipped"]


@pytest.mark.parametrize("rules", [{"done": "{execution_date}.done"}, {"ready": "next"}])
def test_a_published_delivery_that_is_moved_away_with_its_marker_is_gone_and_waits_for_nothing(patient, rules):
    world = patient(**rules)
    world.put("2024-09-20", ["a"])
    world.put("2024-09-21", ["b"])
    marker = world.folder / "landing/2024-09-20.done"
    marker.touch()
    world.run("2024-09-20")
    marker.unlink()
    (world.folder / "landing/2024-09-21.jsonl").unlink()
    with pytest.raises(twice.Waiting):
        world.run("2024-09-20")
    (world.folder / "landing/2024-09-20.jsonl").unlink()
    outcome = world.run("2024-09-20")
    assert outcome.reason == "its inputs are gone, and its rows stay: no file matches 'landing/2024-09-20.jsonl'"
    with pytest.raises(twice.Waiting):
        world.run("2024-09-21")
    assert world.by_day() == {"2024-09-20": ["a"]}


def test_a_backfill_tells_a_failure_before_what_waits(patient):
    world = patient(done="{execution_date}.done")
    world.put("2024-09-21", ["b"], as_day="2024-09-22")
    (world.folder / "landing/2024-09-21.done").touch()
    with pytest.raises(twice.NotPublished, match="outside the slot's slice"):
        twice.backfill(world.pipeline, "2024-09-20", "2024-09-22", project=world.project)


def test_a_delivery_that_is_taken_back_during_the_run_is_not_published(patient):
    world = patient(done="{execution_date}.done")
    world.put("2024-09-20", ["a"])
    marker = world.folder / "landing/2024-09-20.done"
    marker.touch()

    def taken_back(rows):
        marker.unlink()
        return rows

    world.transform = taken_back
    with pytest.raises(twice.NotPublished, match=r"2024-09-20.done' changed while"):
        world.run("2024-09-20")
    assert world.rows() == []


# ------------------------------------------------------------------ the command line

PIPELINES = """
import twice



@twice.pipeline(every="1 day", start="2024-09-20", end="2024-09-22", target="memory:out",
                source=twice.files("in/{execution_date}.json", schema="id string", ready="next"),
                pattern=twice.data_overwrite(slice="day"))
def out(rows): return rows
"""


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/out.py").write_text(PIPELINES)
    (tmp_path / "twice.toml").touch()

    def act(*words):
        capsys.readouterr()
        code = main(list(words))
        return code, *capsys.readouterr()

    return act


def test_what_is_due_and_waits_is_no_failure(command, put):
    put("in/2024-09-20.json")
    code, out, _ = command("run", "--due")
    assert code == 0
    assert "[1/2] out 2024-09-20T00:00Z  waiting: out waits for its input of 2024-09-20T00:00Z: no file" in out
    assert out.endswith("0 published, 0 skipped, 2 waiting, 0 failed\n")
    assert json.loads(command("run", "--due", "--output", "json")[1])["errors"] == []
    assert len(json.loads(command("run", "--due", "--output", "json")[1])["waiting"]) == 2


def test_a_stretch_or_a_slot_that_was_asked_for_and_waits_ends_with_1(command, put):
    put("in/2024-09-20.json")
    code, _, err = command("run", "out", "--at", "2024-09-20")
    assert (code, err.partition(":")[0]) == (1, "Waiting")
    assert command("backfill", "out", "--from", "2024-09-20", "--to", "2024-09-22")[0] == 1
    assert command("plan", "out", "--at", "2024-09-20")[0] == 1
    assert "No runs yet." in command("runs")[1]


def test_status_tells_waiting_from_missing(command, put):
    put("in/2024-09-20.json", "in/2024-09-21.json")
    code, out, _ = command("status")
    assert code == 0
    assert "out is missing 2024-09-20T00:00Z. Use twice run out --due" in out
    assert "out waits for its input of 2024-09-21T00:00Z: no file of the next interval matches" in out
    (facts,) = json.loads(command("status", "--output", "json")[1])["pipelines"]
    assert (facts["missing"], list(facts["waiting"])) == (["2024-09-20T00:00Z"], ["2024-09-21T00:00Z"])
