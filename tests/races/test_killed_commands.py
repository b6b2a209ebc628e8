"""Is every table that of one clean run after two command lines ran side by side, were killed, and lost their ledger, while inputs changed?

`TWICE_SEED=7` repeats what is done, though not to the moment; `TWICE_CHAOS_SECONDS=3600` makes the story longer.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from sessions import QUICK_JVM

SECONDS = 45
SECONDS_IN_FULL = 600
DAYS = [f"2024-09-{day:02}" for day in range(2, 10)]
KEYS = 12
NAMES = ("days", "devices", "orders")
# How a command may end that was not killed: done; not known, or not now, because of the other one.
DONE, UNKNOWN, NOT_NOW = 0, 3, 4
# What a command may refuse, by its own words: an input that was corrected under it, a target that the other one was
# taking over, and a ledger that was lost under it.
RIGHT_REFUSALS = (
    "changed while this run was reading it",
    "changed while it was being taken over",
    "belongs to another ledger",
    "ledger rebuild",
)

SETTINGS = """
[spark]
master = 'local[1]'
[spark.conf]
'spark.driver.memory' = '1g'
'spark.sql.warehouse.dir' = '{folder}/warehouse'
'spark.driver.extraJavaOptions' = '{java}'
[leases]
seconds = 4
renew_seconds = 1
[stores.warehouse]
kind = "postgres"
url = "{url}"
"""

PIPELINES = """
import twice

landing = twice.files("landing/{execution_date}.jsonl", schema="id string, day date, n int, gone boolean")
calendar = dict(every="1 day", start="2024-09-02", end="2024-09-10", source=landing)


@twice.pipeline(target="parquet:lake/days", pattern=twice.data_overwrite(slice="day"), **calendar)
def days(rows):
    return rows.where("not gone").drop("gone")


@twice.pipeline(target="delta:lake/devices", pattern=twice.stateful_merger(keys=["id"], deleted="gone"), **calendar)
def devices(rows):
    return rows


@twice.pipeline(target="warehouse:orders", pattern=twice.data_overwrite(slice="day"), **calendar)
def orders(rows):
    return rows.where("not gone").drop("gone")
"""


class Home:
    """A project on three stores, the files that it reads, and what its tables have to be."""

    def __init__(self, folder: Path, chance: random.Random, url: str):
        self.folder, self.chance = folder, chance
        self.numbers = 0
        (folder / "landing").mkdir(parents=True)
        (folder / "pipelines").mkdir()
        (folder / "twice.toml").write_text(SETTINGS.format(folder=folder, java=QUICK_JVM, url=url))
        (folder / "pipelines/all.py").write_text(PIPELINES)
        self.given = {}
        for day in DAYS:
            self.correct(day)

    def correct(self, day: str) -> None:
        """Give a day other rows, under one rename."""
        keys = self.chance.sample(range(KEYS), self.chance.randrange(1, KEYS))
        self.numbers += 1
        rows = [{"id": f"k{key}", "day": day, "n": self.numbers, "gone": self.chance.random() < 0.2} for key in keys]
        draft = self.folder / "draft"
        draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.replace(draft, self.folder / f"landing/{day}.jsonl")
        self.given[day] = rows

    def lose_the_ledger(self) -> None:
        shutil.rmtree(self.folder / ".twice", ignore_errors=True)

    def clean(self) -> dict[str, list[tuple]]:
        """Tell what one clean run gives, in other words than the product."""
        by_day = sorted((r["id"], r["day"], r["n"]) for rows in self.given.values() for r in rows if not r["gone"])
        merged: dict[str, tuple] = {}
        for day in DAYS:
            for row in self.given[day]:
                merged.pop(row["id"], None)
                if not row["gone"]:
                    merged[row["id"]] = (row["id"], row["day"], row["n"])
        return {"days": by_day, "devices": sorted(merged.values()), "orders": by_day}


class Command:
    """A command line in a process group of its own."""

    def __init__(self, home: Home, words: list[str], log: Path):
        self.words, self.log = words, log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "twice", *words],
                cwd=home.folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.began = time.monotonic()
        self.killed = False

    def kill(self) -> None:
        self.killed = True
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self) -> int:
        return self.process.wait(300)

    @property
    def ended_well(self) -> bool:
        """Tell whether its end is one of those that are right."""
        if self.process.returncode in (DONE, UNKNOWN, NOT_NOW):
            return True
        return any(words in self.said for words in RIGHT_REFUSALS)

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")


def words(chance: random.Random) -> list[str]:
    """Choose what somebody does."""
    name = chance.choice(NAMES)
    first, last = sorted(chance.sample([*DAYS, "2024-09-10"], 2))
    return chance.choice(
        [
            ["run", "--due", "--yes"],
            ["run", name, "--due", "--yes"],
            ["run", name, "--at", chance.choice(DAYS), "--yes"],
            ["run", name, "--at", chance.choice(DAYS), "--yes", "--force"],
            ["backfill", name, "--from", first, "--to", last, "--yes"],
            ["ledger", "rebuild", "--yes"],
            ["tidy", "--yes"],
            ["status"],
        ]
    )


def chaos(home: Home, chance: random.Random, seconds: float) -> list[Command]:
    """Let two commands run at any time, and disturb them; return all that there were."""
    until = time.monotonic() + seconds
    ended: list[Command] = []
    running: list[tuple[Command, float]] = []
    while time.monotonic() < until or running:
        for pair in list(running):
            command, fatal = pair
            if command.process.poll() is None and time.monotonic() - command.began > fatal:
                command.kill()
            if command.process.poll() is not None:
                running.remove(pair)
                ended.append(command)
        if time.monotonic() < until:
            while len(running) < 2:
                log = home.folder / f"said-{len(ended) + len(running)}.txt"
                # Half of them come to their end; the JVM alone takes some seconds.
                fatal = chance.choice((chance.uniform(1, 40), float("inf")))
                running.append((Command(home, words(chance), log), fatal))
            if chance.random() < 0.06:
                home.correct(chance.choice(DAYS))
            if chance.random() < 0.005:
                home.lose_the_ledger()
        time.sleep(0.1)
    return ended


def settle(home: Home, most: int = 6) -> None:
    """Do what the pages say after a night like this: read the ledger back, and run what is due."""
    for number in range(most):
        for command in (["ledger", "rebuild", "--yes"], ["run", "--due", "--yes"]):
            last = Command(home, command, home.folder / f"settling-{number}-{command[0]}.txt")
            last.wait()
        if last.process.returncode == DONE:
            return
        time.sleep(2)
    raise AssertionError(last.said)


def tables(home: Home, spark, database) -> dict[str, list[tuple]]:
    """Read the tables with other libraries: Arrow on the files that the newest manifest names, Delta's own, psycopg."""
    table = home.folder / "lake/days"
    shown = subprocess.run(
        [sys.executable, "-m", "twice", "show", "parquet:lake/days", "--files", "--output", "json"],
        cwd=home.folder,
        capture_output=True,
        check=True,
        text=True,
    )
    files = json.loads(shown.stdout)["files"]
    assert all(Path(one).is_relative_to(table) for one in files)
    by_arrow = ds.dataset(files).to_table().to_pylist()
    by_delta = spark.read.format("delta").load(str(home.folder / "lake/devices")).collect()
    by_psycopg = database.execute("SELECT id, day, n FROM orders")
    return {
        "days": sorted((row["id"], str(row["day"]), row["n"]) for row in by_arrow),
        "devices": sorted((row["id"], str(row["day"]), row["n"]) for row in by_delta),
        "orders": sorted((one, str(day), n) for one, day, n in by_psycopg),
    }


@pytest.mark.timeout(2 * 3600)
@pytest.mark.spark
@pytest.mark.stores("postgres")
def test_two_commands_killed_at_random_while_inputs_change_and_ledgers_are_lost(
    kind, spark, tmp_path, new_database, seed, request
):
    full = request.config.getoption("--every-kill")
    seconds = float(os.environ.get("TWICE_CHAOS_SECONDS") or (SECONDS_IN_FULL if full else SECONDS))
    chance, database = random.Random(seed), new_database()
    home = Home(tmp_path / "home", chance, database.url)
    ended = chaos(home, chance, seconds)
    tally = Counter("killed" if one.killed else one.process.returncode for one in ended)
    print(f"seed {seed}: {len(ended)} commands, {home.numbers - len(DAYS)} corrections, ended {dict(tally)}")
    wrong = [one for one in ended if not one.killed and not one.ended_well]
    assert not wrong, "\n\n".join(f"{one.words}: {one.process.returncode}\n{one.said}" for one in wrong)
    settle(home)
    assert tables(home, spark, database) == home.clean()
