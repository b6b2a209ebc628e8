"""Is everybody told what happens to runs, and does nobody who is told change it?"""

import json
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import twice
from twice import settings
from twice.errors import Misuse, NotPublished
from twice.events import KINDS, Event, announce
from twice.faults import Died, armed, dying_at
from twice.ledger.records import Holder
from twice.ledger.untold import Untold
from twice.project import Project
from twice.signals.lineage import run_id
from twice.stores.memory import MemoryStore
from worlds import World

DAY = "2024-09-20"


@pytest.fixture(autouse=True)
def _nobody_else_listens(monkeypatch, tmp_path):
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE_DISABLED", "TWICE_LOG_FORMAT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))


def failing(rows):
    raise ValueError("the rows are wrong")


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path / "world", "memory")
    made.put(DAY, ["a", "b"])
    return made


@pytest.fixture
def heard(world):
    found = []
    world.project.listen(found.append)
    return found


def kinds(events):
    return [event.kind for event in events]


# -------------------------------------------------------------------- events


def test_a_publish_is_told_with_its_attempt_rows_and_slot(world, heard):
    outcome = world.run(DAY)
    assert kinds(heard) == ["started", "published"]
    assert {event.attempt for event in heard} == {outcome.attempt}
    assert (heard[1].rows, heard[1].generation, heard[1].slot.text) == (2, 1, world.slot(DAY))


def test_a_skip_is_told_as_a_skip_and_nothing_else(world, heard):
    world.run(DAY)
    heard.clear()
    world.run(DAY)
    assert kinds(heard) == ["skipped"]


def test_a_failure_is_told_once_with_its_error(world, heard):
    with pytest.raises(NotPublished):
        twice.run(World(world.folder, "memory", transform=failing).pipeline, at=DAY, project=world.project)
    assert kinds(heard) == ["started", "failed"]
    assert heard[1].state == "failed"
    assert heard[1].error.exit_code == 1


def test_a_run_that_is_refused_before_it_is_planned_is_told_too(world, heard):
    with pytest.raises(NotPublished):
        world.run("2024-09-21")
    assert kinds(heard) == ["failed"]


def test_a_job_that_publishes_without_a_pipeline_is_told_of(world, heard):
    twice.publish(
        [{"id": "a", "day": None}],
        to="memory:lake/other",
        pattern=twice.data_overwrite(),
        slot=twice.slot("job"),
        inputs=["v1"],
        project=world.project,
    )
    assert kinds(heard) == ["started", "published"]


@pytest.mark.parametrize("trouble", [RuntimeError("no"), SystemExit(7)])
def test_a_listener_that_fails_changes_nothing_and_is_said(world, capsys, trouble):
    after = []

    def bad(event):
        raise trouble

    world.project.listen(bad)
    world.project.listen(after.append)
    assert world.run(DAY).state == "published"
    assert kinds(after) == ["started", "published"]
    assert capsys.readouterr().err.count("The run is not affected") == 2


def test_a_death_in_a_listener_is_a_death(world):
    def dies(event):
        raise Died("here")

    with pytest.raises(Died):
        announce(Event("started", world.pipeline.slot(DAY)), [dies])


def test_an_unknown_kind_is_refused_where_it_is_declared():
    with pytest.raises(Misuse, match="Did you mean 'published'"):
        twice.on("publishd")
    with pytest.raises(Misuse, match="names the events"):
        twice.on()


# -------------------------------------------------------------------- hooks

PIPELINES = """
import twice
from pyspark.sql import functions as F

@twice.pipeline(source=twice.source(lambda: [{"id": 1}], fingerprint="1"), target="memory:lake/out",
                pattern=twice.data_overwrite())
def out(rows):
    return rows

@twice.on("published", "skipped")
def heard(event):
    with open("heard.txt", "a") as file:
        file.write(f"{event.kind} {event.slot.pipeline} {event.attempt}\\n")
"""
ALERTS = """
def told(event):
    with open("alerts.txt", "a") as file:
        file.write(event.kind + "\\n")
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    (folder / "pipelines").mkdir(parents=True)
    (folder / "pipelines/out.py").write_text(PIPELINES)
    (folder / "alerts.py").write_text(ALERTS)
    (folder / "twice.toml").write_text(
        "[hooks]\npublished = 'alerts:told'\nskipped = ['alerts:told', 'alerts:missing']\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder
    sys.modules.pop("alerts", None)


def open_home(folder, memory):
    return Project(settings.load(folder), stores={"memory": memory})


def test_hooks_of_the_file_of_pipelines_and_of_the_project_file_are_called(home, capsys):
    memory = MemoryStore()
    for _ in range(2):
        assert twice.run("out", project=open_home(home, memory)).rows == 1
    lines = (home / "heard.txt").read_text().splitlines()
    assert [line.split()[:2] for line in lines] == [["published", "out"], ["skipped", "out"]]
    assert (home / "alerts.txt").read_text() == "published\nskipped\n"
    assert "alerts:missing" in capsys.readouterr().err


def test_a_hook_that_needs_no_spark_does_not_load_it_for_a_skip(home):
    program = (
        "import sys, twice; from twice import settings; from twice.project import Project; from pathlib import Path\n"
        "from twice.events import Event\n"
        "project = Project(settings.load(Path.cwd())); slot = project.pipeline('out').slot()\n"
        "project.announce(Event('skipped', slot)); print('pyspark' in sys.modules, 'structlog' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=home)
    assert done.stdout == "False False\n"
    assert (home / "heard.txt").read_text().startswith("skipped out")


def test_hooks_are_silent_where_signals_are_off(home):
    project = Project(settings.load(home, {"signals.enabled": False}), stores={"memory": MemoryStore()})
    twice.run("out", project=project)
    assert not (home / "heard.txt").exists()
    assert not (home / "alerts.txt").exists()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[hooks]\npublishd = 'a:b'", "publishd"),
        ("[hooks]\npublished = 'no function'", "must name functions"),
        ("[hooks]\npublished = 3", "must name functions"),
        ("[signals]\nenabled = 'perhaps'", "true or false"),
    ],
)
def test_what_cannot_be_a_hook_is_refused(tmp_path, text, match):
    (tmp_path / "twice.toml").write_text(text)
    with pytest.raises(Misuse, match=match):
        settings.load(tmp_path)


# -------------------------------------------------------------------- logs


def test_each_line_of_the_log_bears_run_and_slot_and_no_secret(tmp_path):
    program = f"""
import logging, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from worlds import World
import twice
from twice import settings
from twice.project import Project
def transform(rows):
    logging.getLogger("mine").warning("connecting to db://me:%s@host", "hunter2hunter2")
    raise ValueError("token=abcdefgh is refused")
world = World(Path({str(tmp_path / "w")!r}), "memory", transform=transform)
world.put({DAY!r}, ["a"])
project = Project(settings.load(world.folder, {{"log.format": "json"}}), stores={{"memory": world.memory}})
try:
    twice.run(world.pipeline, at={DAY!r}, project=project)
except twice.NotPublished:
    pass
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines][::2] == ["run started", "run failed"]
    assert len({line["run"] for line in lines}) == 1
    assert all(line["slot"].startswith("v1:out:memory:") for line in lines)
    assert lines[1]["logger"] == "mine"
    assert lines[2]["error"]["code"] == 1
    assert "hunter2" not in done.stderr
    assert "abcdefgh" not in done.stderr


@pytest.mark.parametrize("setting", [{"log.format": "xml"}, {"log.format": "text", "log.level": "loud"}])
def test_a_log_that_nobody_knows_is_refused_before_anything_starts(world, setting):
    with pytest.raises(Misuse, match="not known"):
        settings.load(world.folder, setting)


# -------------------------------------------------------------------- lineage


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.broken:
            self.send_error(400)
            return
        self.server.events.append(json.loads(body))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def receiver():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.events, server.broken = [], False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def told(world):
    """A world whose lineage goes to a file; return what was sent so far."""
    file = world.folder / "events.jsonl"
    world.project = reopened(world)

    def read():
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines]

    return read


def reopened(world, **more):
    overrides = {"leases.seconds": 0.0, "openlineage.file": "events.jsonl", **more}
    return Project(settings.load(world.folder, overrides), stores={"memory": world.memory})


def sent(events):
    return [(event["eventType"], event["run"]["runId"]) for event in events]


def test_a_publish_sends_start_and_complete_with_slot_and_datasets(world, told):
    attempt = world.run(DAY).attempt
    world.run(DAY)
    assert sent(told()) == [("START", run_id(attempt)), ("COMPLETE", run_id(attempt))]
    end = told()[1]
    assert end["run"]["facets"]["twice_slot"]["slot"] == world.slot(DAY)
    assert end["run"]["facets"]["nominalTime"]["nominalStartTime"].startswith(DAY)
    assert end["outputs"][0]["name"] == "lake/out"
    assert end["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert end["job"] == {"namespace": "twice", "name": "out", "facets": {}}


def test_a_failure_sends_start_and_fail_with_the_error(world, told):
    with pytest.raises(NotPublished):
        twice.run(World(world.folder, "memory", transform=failing).pipeline, at=DAY, project=world.project)
    assert [event["eventType"] for event in told()] == ["START", "FAIL"]
    assert "the rows are wrong" in told()[1]["run"]["facets"]["errorMessage"]["message"]


def test_a_run_that_ends_before_it_is_planned_sends_start_and_fail(world, told):
    with pytest.raises(NotPublished):
        world.run("2024-09-21")
    assert [event["eventType"] for event in told()] == ["START", "FAIL"]


POINTS = ("intended", "lineage.owed", "lineage.started", "lease.taken", "publish.before", "publish.after", "confirmed")


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_died_gets_exactly_one_end_when_the_next_one_notices(world, told, monkeypatch, point):
    with pytest.raises(Died), armed(dying_at(point)):
        world.run(DAY)
    died = world.project.ledger.attempts()[0].attempt
    # The process that died is this one: from now on it is another.
    monkeypatch.setattr(Holder, "me", classmethod(lambda cls: cls(socket.gethostname(), 1, "another")))
    monkeypatch.setattr(Holder, "is_dead", property(lambda holder: holder.started != "another"))
    world.project = reopened(world)
    world.run(DAY)
    world.run(DAY)
    world.run(DAY)
    ends = [kind for kind, run in sent(told()) if run == run_id(died)]
    landed = point in ("publish.after", "confirmed")
    if point == "intended":
        assert ends == []  # nothing had been sent, and nothing is owed
    else:
        assert ends == ["START", "COMPLETE" if landed else "ABORT"]
    assert Untold(world.project.ledger).of_the_dead() == []


def test_an_end_that_was_sent_and_not_noted_is_sent_again_as_the_same_run(world, told, monkeypatch):
    with pytest.raises(Died), armed(dying_at("lineage.ended")):
        world.run(DAY)
    monkeypatch.setattr(Holder, "is_dead", property(lambda holder: True))
    world.project = reopened(world)
    world.run(DAY)
    assert [kind for kind, _ in sent(told())] == ["START", "COMPLETE", "COMPLETE"]
    assert len({run for _, run in sent(told())}) == 1


def test_a_live_process_is_never_spoken_for(world, told):
    with pytest.raises(Died), armed(dying_at("publish.before")):
        world.run(DAY)  # this process lives on
    world.project = reopened(world)
    world.put("2024-09-21", ["c"])
    world.run("2024-09-21")
    assert [kind for kind, _ in sent(told())] == ["START", "START", "COMPLETE"]


def test_a_receiver_gets_them_over_http_and_one_that_is_away_gets_them_later(world, capsys):
    with receiver() as (server, url):
        server.broken = True
        world.project = reopened(world, **{"openlineage.file": "", "openlineage.url": url})
        assert world.run(DAY).state == "published"
        assert "The run is not affected" in capsys.readouterr().err
        assert server.events == []
        server.broken = False
        world.project = reopened(world, **{"openlineage.file": "", "openlineage.url": url})
        world.put("2024-09-21", ["c"])
        second = world.run("2024-09-21").attempt
        first = world.project.ledger.attempts()[1].attempt
        assert sorted(sent(server.events)) == sorted(
            [(kind, run_id(attempt)) for attempt in (first, second) for kind in ("START", "COMPLETE")]
        )


def test_nothing_is_loaded_where_nobody_asked_for_lineage(world):
    world.run(DAY)
    assert world.project.listeners == ()


def test_every_kind_is_explained():
    from twice import events

    assert all(kind in events.__doc__ for kind in KINDS)
