"""Is every good row there once, and every bad one accounted for, if a folder is fed by one process while two others take it in and are killed?

`TWICE_SEED=7` repeats what the feeder does and whom the killer strikes; the seed of every run is printed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from feeder import Edition, Feeder, edition_of
from ingest_driver import BEGUN, fed_inbox, run_once

from inboxes import COLUMN
from sessions import QUICK_JVM
from twice.faults import Died, armed, dying_at
from twice.intakes import files_of, taken_by
from twice.marks import PUBLISHED, SEEN, SET_ASIDE
from twice.quarantine import rows_of

HERE = Path(__file__).parent
FED_SECONDS = 20
FED_SECONDS_IN_FULL = 120
RUNS_UNTIL_SETTLED = 20
STORIES = 8
STORIES_IN_FULL = 100
# How a run may end while others feed, publish and die: nothing else is right.
ENDS = {"published", "skipped", "NotPublished", "InputsMoved", "Waiting", "Overtaken", "Busy"}


class Killed:
    """A process that is killed now and then, and started again; its life begins with its first run."""

    def __init__(self, command, log, chance, least, most):
        self.command, self.log, self.chance, self.between = command, log, chance, (least, most)
        self.deaths = 0
        self.start()

    def start(self):
        path = os.pathsep.join((str(HERE.parent), os.environ.get("PYTHONPATH", "")))
        self.process = subprocess.Popen(
            [*self.command, str(self.log)], env={**os.environ, "PYTHONPATH": path}, start_new_session=True
        )
        self.until = None

    def look(self):
        """Kill it if its time has come; it never ends by itself."""
        assert self.process.poll() is None, "an ingest ended by itself"
        if self.until is None:
            if self.lives_begun() > self.deaths:
                self.until = time.monotonic() + self.chance.uniform(*self.between)
        elif time.monotonic() > self.until:
            self.kill()
            self.deaths += 1
            self.start()

    def ends(self):
        """Return what it told of its runs; of the last words of a life some may be missing."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def lives_begun(self):
        return sum(end["state"] == BEGUN for end in self.ends())

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def fed(folder, kind, address, seed, seconds, lives):
    """Feed a folder, take it in with two processes, kill them at random; return how their runs ended."""
    chance = random.Random(seed)
    # A run of Spark takes seconds, and would never see all files of a batch at rest.
    manner = ["good rows", "1"] if kind == "postgres" else ["bad rows", "12"]
    feeding = [sys.executable, str(HERE / "feeder.py"), str(folder), str(seed), str(seconds), *manner]
    feeder = subprocess.Popen(feeding, stdout=subprocess.PIPE, text=True)
    logs = [folder / f"ends-{number}.jsonl" for number in range(2)]
    driving = [sys.executable, str(HERE / "ingest_driver.py"), str(folder), kind, address]
    ingests = [Killed(driving, log, chance, *lives) for log in logs]
    try:
        while feeder.poll() is None:
            time.sleep(0.02)
            for one in ingests:
                one.look()
    finally:
        for one in ingests:
            one.kill()
        feeder.kill()
        acts = feeder.communicate()[0].strip()
    assert feeder.returncode == 0
    ends = [end for one in ingests for end in one.ends() if end["state"] != BEGUN]
    tally = dict(Counter(end["state"] for end in ends))
    print(f"seed {seed}: {acts} acts, {sum(one.deaths for one in ingests)} kills, runs ended {tally}")
    assert "published" in tally, "nothing was published while the folder was fed"
    return ends


def settled(inbox, most=RUNS_UNTIL_SETTLED):
    """Run until there is nothing to do."""
    ends = [run_once(inbox)]
    while ends[-1]["state"] != "skipped" and len(ends) < most:
        ends.append(run_once(inbox))
    assert ends[-1]["state"] == "skipped", ends
    return ends


class Account:
    """What is in the table, what its marks say, and what was ever in the folder."""

    def __init__(self, inbox):
        self.inbox = inbox
        told = map(json.loads, (inbox.folder / "editions.jsonl").read_text().splitlines())
        self.editions = {one["content"]: Edition(**{**one, "good": tuple(one["good"])}) for one in told}
        landing = inbox.folder / "landing"
        self.there = {
            f"landing/{path.name}": edition_of(path.name, path.read_bytes()) for path in sorted(landing.iterdir())
        }
        self.taken = taken_by(inbox.project, inbox.pipeline)
        self.marks = {mark.path: mark for mark in self.taken.all()}
        self.rows = Counter((row[COLUMN], row["id"]) for row in inbox.records())

    def check(self):
        self.check_rows()
        self.check_files()
        self.check_runs()
        self.check_list()

    def held(self):
        return {path: mark for path, mark in self.marks.items() if mark.is_there}

    def check_rows(self):
        """Each row is there once, from one content that its file really had; and the counts of the marks add up."""
        expected = Counter(
            (path, one) for path, mark in self.held().items() for one in self.editions[mark.content].good
        )
        assert self.rows == expected
        assert sum(mark.rows for mark in self.held().values()) == self.rows.total()

    def check_files(self):
        """Of each file that is in the folder the last content is in the table, once, or the file is set aside by name."""
        holders = Counter(mark.content for mark in self.held().values())
        assert set(holders.values()) <= {1}, "a copy was taken in"
        for path, edition in self.there.items():
            mark = self.marks.get(path)
            if edition.is_bad_file:
                assert mark, path
                assert mark.state == SET_ASIDE, mark
                assert mark.reason, mark
            elif mark and mark.is_there:
                assert (mark.state, mark.content) == (PUBLISHED, edition.content), mark
            else:
                assert mark is None or mark.state == SEEN, mark
                assert edition.content in holders, path

    def check_runs(self):
        """Whatever a run parsed it handed on or set aside: for each one that was published, by whomever."""
        aside = Counter()
        for one in self.inbox.sight().receipt(self.inbox.pipeline.slot().text).aside:
            aside[one.generation] += one.rows
        for generation, _ in self.taken.history():
            made = [mark for mark in self.taken.at_generation(generation).all() if mark.generation == generation]
            read = [self.editions[mark.content] for mark in made if mark.state == PUBLISHED]
            assert sum(mark.rows for mark in made if mark.state == PUBLISHED) == sum(len(one.good) for one in read)
            assert aside[generation] == sum(one.wrong for one in read), generation

    def check_list(self):
        """`twice files list` names every file."""
        known = {mark.path for mark in files_of(self.inbox.project, self.inbox.pipeline)}
        assert set(self.there) <= known


def check_ends(ends):
    """Every run that came to its end says what is true."""
    wrong = [end for end in ends if end["state"] not in ENDS]
    assert wrong == []
    for end in ends:
        if end["state"] == "published":
            assert end["parsed"] == end["rows"] + end["quarantined"], end


@pytest.mark.timeout(400)
@pytest.mark.stores("postgres")
def test_a_folder_that_is_fed_while_two_ingests_are_killed(kind, tmp_path, new_database, seed, request):
    """Twenty seconds, two minutes in `make prove`; no JVM."""
    seconds = FED_SECONDS_IN_FULL if request.config.getoption("--every-kill") else FED_SECONDS
    folder, address = tmp_path / "fed", new_database().url
    inbox = fed_inbox(folder, kind, address)
    ends = fed(folder, kind, address, seed, seconds, lives=(0.05, 4.0))
    ends += settled(inbox)
    check_ends(ends)
    Account(inbox).check()


@pytest.mark.prove
@pytest.mark.timeout(900)
@pytest.mark.stores("parquet", "delta")
def test_a_folder_with_bad_rows_that_is_fed_while_two_ingests_with_jvms_are_killed(kind, spark, tmp_path, seed):
    """Two minutes, with rows that are set aside."""
    folder = tmp_path / "fed"
    folder.mkdir()
    (folder / "twice.toml").write_text(
        "[spark]\nmaster = 'local[2]'\n[spark.conf]\n'spark.driver.memory' = '1g'\n"
        f"'spark.sql.warehouse.dir' = '{folder}/warehouse'\n'spark.driver.extraJavaOptions' = '{QUICK_JVM}'\n"
    )
    inbox = fed_inbox(folder, kind, spark=spark)
    ends = fed(folder, kind, "", seed, FED_SECONDS_IN_FULL, lives=(2.0, 40.0))
    ends += settled(inbox)
    check_ends(ends)
    account = Account(inbox)
    account.check()
    check_bad_rows(account)


POINTS = (
    "inputs.resolved",
    "intended",
    "lease.taken",
    "rows.ready",
    "stage.after",
    "marks.kept",
    "publish.before",
    "publish.after",
    "read.back",
    "confirmed",
)


@pytest.mark.timeout(600)
def test_stories_of_a_folder_between_runs_that_die(tmp_path, monkeypatch, seed, request):
    """One process, no clock and no server: what the feeder does comes between runs, some of which die where it hurts."""
    monkeypatch.setattr("twice.sources.sorting._BETWEEN_LOOKS_SECONDS", 0.0)
    for number in range(STORIES_IN_FULL if request.config.getoption("--every-kill") else STORIES):
        print(f"story {number}: TWICE_SEED={seed + number}")
        tell(tmp_path / str(number), random.Random(seed + number), seed + number)


def tell(folder, chance, seed):
    batches = chance.choice(({}, {}, {"batch_files": 1}, {"batch_files": 3}))
    inbox = fed_inbox(folder, "memory", **batches)
    feeder = Feeder(folder, seed, bad_rows=False, slowly=0.0)
    feeder.names = feeder.names[: chance.choice((3, 6, 24))]
    feeder.rename_in()
    ends = []
    for _ in range(chance.randrange(5, 50)):
        feeder.act()
        if chance.random() < 0.4:
            ends.append(run_once(inbox))
        elif chance.random() < 0.2:
            with suppress(Died), armed(dying_at(chance.choice(POINTS))):
                run_once(inbox)
            inbox.reopen()
    feeder.rename_in()
    ends += settled(inbox, most=60)
    check_ends(ends)
    Account(inbox).check()


def check_bad_rows(account):
    """Every bad row of what the table holds is kept beside it, with its file."""
    receipt = account.inbox.sight().receipt(account.inbox.pipeline.slot().text)
    kept = Counter(row.file for row in rows_of(account.inbox.store, account.inbox.target, receipt.aside))
    for path, mark in account.held().items():
        assert kept[path] >= account.editions[mark.content].wrong, path
