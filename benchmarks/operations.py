"""What does it cost to record runs, to ask about a million of them, and to be told of one?

    python benchmarks/operations.py                      all
    python benchmarks/operations.py --only record        recording, asking, telling, and a small run on Spark

Recording is measured against the bare transactions that it consists of, by hand, in turns. Questions are whole
commands, from the start of the interpreter to the last line. Telling is a run of the memory store, with and without.
"""

import argparse
import os
import random
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from twice.intervals import Schedule
from twice.ledger import AttemptRecord
from twice.ledger.records import OPEN
from twice.ledger.sqlite import SqliteLedger
from twice.ledger.tallies import count_all
from twice.runs import Receipt, Slot, Target

PIPELINES = 30
REPETITIONS = 9
QUESTIONS = (
    ("status",),
    ("runs",),
    ("runs", "p7"),
    ("runs", "p7", "--state", "failed"),
    ("runs", "--state", "died"),
    ("show", "p7", "--at", "2024-10-07"),
    ("show", "ATTEMPT"),
    ("list",),
    ("metrics",),
)
TOML = """[ledger]
url = "sqlite:///.twice/ledger.db"
"""
DECLARED = """import twice

def declare(name):
    return twice.pipeline(
        name=name, every="1 day", start="2024-10-01", end="2024-11-01",
        source=twice.files("landing/{execution_date}.csv", schema="id string"),
        target=f"parquet:lake/{name}", pattern=twice.data_overwrite(slice="day"),
    )(lambda rows: rows)

"""


def slot_of(number: int) -> Slot:
    day = (datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=number % 3000)).date().isoformat()
    return Slot(f"p{number % PIPELINES}", Target("memory", "lake/t"), Schedule("1 day", "2024-01-01").at(day))


# ---------------------------------------------------------------- recording


def record_one(ledger: SqliteLedger, number: int) -> None:
    slot = slot_of(number)
    blank = AttemptRecord("", slot.text, slot.pipeline, slot.target.text, 1, "f" * 32, "c" * 32, OPEN, plan="{}" * 400)
    attempt = ledger.intend(blank).attempt
    with ledger.lease(slot.text, attempt):
        receipt = Receipt(slot.text, 1, attempt, "f" * 32, "c" * 32, ledger.id, rows=7, first_version=number)
        ledger.confirm(attempt, receipt, number)


def by_hand(path: Path, number: int) -> None:
    """Do the same four transactions with nothing around them."""
    text = slot_of(number).text

    def transaction(*statements: tuple[str, tuple[object, ...]]) -> None:
        db = sqlite3.connect(path, timeout=60, isolation_level=None)
        db.execute("PRAGMA synchronous=FULL")
        db.execute("BEGIN IMMEDIATE")
        for sql, values in statements:
            db.execute(sql, values)
        db.execute("COMMIT")
        db.close()

    attempt = f"bare-{number}-{random.random()}"
    row = (attempt, text, "p", "t", 1, "f" * 32, "c" * 32, OPEN, "", "2024", "", "h", 1, "{}" * 400)
    names = "attempt,slot,pipeline,target,generation,fingerprint,code,state,reason,started_at,ended_at,host,pid,plan"
    transaction(
        ("UPDATE facts SET value = CAST(value AS INTEGER) + 1 WHERE name='attempts'", ()),
        (f"INSERT INTO attempts ({names}) VALUES ({','.join('?' * 14)})", row),
    )
    transaction(("INSERT OR REPLACE INTO leases VALUES (?,?,?,?,?,?,?)", (text, attempt, "h", 1, "s", "b", 1.0)))
    transaction(
        ("INSERT OR REPLACE INTO receipts VALUES (?,?,?,?,?,?,?)", (text, "p", "t", 1, "{}" * 150, number, "2024")),
        ("INSERT OR REPLACE INTO versions VALUES (?,?,?,?,?,?,?)", ("t", number, text, 1, attempt, 7, "2024")),
        ("UPDATE attempts SET state='published', ended_at='2024', rows=7 WHERE attempt=?", (attempt,)),
    )
    transaction(("DELETE FROM leases WHERE name=?", (text,)))


def timed(act, writers: int, times: int) -> tuple[float, float]:
    """Return the seconds, of the clock and of the CPU, that so many writers need for so many runs each."""

    def work(writer: int) -> None:
        for number in range(times):
            act(writer * times + number)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(writers)]
    began, used = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began, time.process_time() - used


def measure_recording(folder: Path) -> None:
    for writers, times in ((1, 100), (16, 12)):
        walls, cpus, ours = [], [], []
        for repetition in range(REPETITIONS):
            ledger = SqliteLedger(str(folder / f"ours{writers}-{repetition}.db"))
            bare = SqliteLedger(str(folder / f"bare{writers}-{repetition}.db"))
            with bare.transaction() as db:
                db.execute("INSERT INTO facts VALUES ('attempts', '0')")
            mine = timed(lambda number, ledger=ledger: record_one(ledger, number), writers, times)
            plain = timed(lambda number, bare=bare: by_hand(Path(bare.path), number), writers, times)
            found = ledger.query(
                "SELECT count(*) AS n, count(DISTINCT attempt) AS names FROM attempts WHERE state='published'"
            )
            counted = int(ledger.query("SELECT value FROM facts WHERE name='attempts'")[0]["value"])
            lost = writers * times - min(found[0]["n"], found[0]["names"], counted)
            walls.append(mine[0] / plain[0])
            cpus.append(mine[1] / plain[1])
            ours.append(mine[0] / (writers * times) * 1000)
        print(
            f"record, {writers:2} writers: {statistics.median(ours):.2f} ms a run, ours / bare {told(walls)},"
            f" CPU {told(cpus)}, lost updates {lost}"
        )


def told(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


# ---------------------------------------------------------------- asking


def make_project(folder: Path, runs: int) -> str:
    """Make a project of thirty pipelines whose ledger holds so many runs; return the name of one attempt."""
    (folder / "pipelines").mkdir(parents=True)
    declared = [f'p{number} = declare("p{number}")\n' for number in range(PIPELINES)]
    (folder / "pipelines/all.py").write_text(DECLARED + "".join(declared))
    (folder / "twice.toml").write_text(TOML)
    ledger = SqliteLedger(str(folder / ".twice/ledger.db"))
    first = datetime(2022, 1, 1, tzinfo=UTC)
    chance = random.Random(7)

    def rows():
        for number in range(runs):
            began = first + timedelta(seconds=number * 120)
            day = (datetime(1924, 1, 1, tzinfo=UTC) + timedelta(days=number // PIPELINES)).strftime("%Y-%m-%dT00:00Z")
            text = f"v1:p{number % PIPELINES}:parquet:lake/p{number % PIPELINES}:{day}/{day[:4]}-12-31T23:00Z"
            draw = chance.random()
            state = "published" if draw < 0.97 else "failed" if draw < 0.985 else "refused" if draw < 0.99 else "died"
            yield (
                f"{ledger.id[:8]}-{number}-{chance.getrandbits(32):08x}", text, f"p{number % PIPELINES}",
                f"parquet:lake/p{number % PIPELINES}", 1, "f" * 32, "c" * 32, state, "ok" if state == "published" else "why",
                100, None, number, began.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                (began + timedelta(seconds=9)).isoformat(timespec="milliseconds").replace("+00:00", "Z"), "host", 1, "{}",
            )  # fmt: skip

    with ledger.transaction() as db:
        db.executemany(f"INSERT INTO attempts VALUES ({','.join('?' * 17)}, '', '')", rows())
        count_all(db)
        # What failed was published later, but for the last hundred.
        db.execute(
            "INSERT OR REPLACE INTO receipts SELECT slot, pipeline, target, 1, '{}', 1, '2026-01-01' FROM attempts"
            " WHERE attempts.rowid < ?", (runs - 3000,)
        )  # fmt: skip
    return str(ledger.attempts(limit=1)[0].attempt)


def children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_questions(folder: Path, runs: int) -> None:
    attempt = make_project(folder, runs)
    size = os.path.getsize(folder / ".twice/ledger.db") >> 20
    print(f"questions over {runs:,} runs ({size} MB), whole command, median and best of {REPETITIONS}:")
    # An installed package has its bytecode; without it every start would compile all sources.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    for words in (("--version",), *QUESTIONS):
        command = [sys.executable, "-m", "twice", *(attempt if word == "ATTEMPT" else word for word in words)]
        seconds, cpu = [], []
        for _ in range(REPETITIONS + 1):
            began, used = time.perf_counter(), children_cpu_seconds()
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            seconds.append(time.perf_counter() - began)
            cpu.append(children_cpu_seconds() - used)
            if done.returncode:
                print(done.stderr)
        wall, spent = (f"{statistics.median(one[1:]) * 1000:4.0f} ms ({min(one) * 1000:.0f})" for one in (seconds, cpu))
        print(f"  {' '.join(words):28} {wall}, CPU {spent}")


# ---------------------------------------------------------------- telling


def measure_telling(folder: Path) -> None:
    """Measure what a log, a file of lineage and figures add to one run, in turns, on the memory store."""
    import twice
    from twice import metrics, settings
    from twice.project import Project
    from twice.stores.memory import MemoryStore

    folder.mkdir(parents=True)
    ways = {"nobody": {}, "log": {"log.format": "json"}, "lineage": {"openlineage.file": "events.jsonl"}}
    took: dict[str, list[float]] = {way: [] for way in (*ways, "figures")}
    projects = {
        way: Project(
            settings.load(folder, {"ledger.url": f"sqlite:///{way}.db", **more}), stores={"memory": MemoryStore()}
        )
        for way, more in ways.items()
    }
    declared = twice.pipeline(
        name="out",
        source=twice.source(lambda: [{"id": 1}], fingerprint="1"),
        target="memory:out",
        pattern=twice.data_overwrite(),
    )(lambda rows: rows)
    terminal, sys.stderr = sys.stderr, (folder / "log").open("w")
    try:
        for number in range(60):
            for way, project in projects.items():
                began = time.process_time()
                twice.run(declared, key=str(number), project=project)
                took[way].append(time.process_time() - began)
            began = time.process_time()
            metrics.exposition(projects["nobody"])
            took["figures"].append(time.process_time() - began)
    finally:
        sys.stderr.close()
        sys.stderr = terminal
    base = statistics.median(took["nobody"][5:])
    for way in ways:
        own = statistics.median(took[way][5:])
        print(f"a run on the memory store, told to {way}: {own * 1000:.1f} ms of CPU (+{(own - base) * 1000:.2f} ms)")
    print(f"figures of sixty runs: {statistics.median(took['figures'][5:]) * 1000:.1f} ms of CPU")


def measure_small_run(folder: Path) -> None:
    """Measure a small run on Spark, a warm session and three rows into Parquet: what telling costs is a share of it."""
    from measure import tree_cpu_seconds

    import twice
    from twice import settings
    from twice.project import Project

    folder.mkdir(parents=True)
    project = Project(settings.load(folder, {"log.format": "json"}))
    declared = twice.pipeline(
        name="out",
        source=twice.source(lambda spark: spark.createDataFrame([(1,), (2,), (3,)], "id int"), fingerprint="1"),
        target="parquet:lake/out",
        pattern=twice.data_overwrite(slice="id"),
    )(lambda rows, run: rows.where(f"id = {run.key}"))
    took = []
    terminal, sys.stderr = sys.stderr, (folder / "log").open("w")
    try:
        for number in range(1, 31):
            began = tree_cpu_seconds()
            twice.run(declared, key=str(number), project=project)
            took.append(tree_cpu_seconds() - began)
    finally:
        sys.stderr.close()
        sys.stderr = terminal
        project.close()
    print(f"a small run on Spark, warm: {statistics.median(took[10:]) * 1000:.0f} ms of CPU")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="record,ask,tell,small")
    parser.add_argument("--runs", type=int, default=1_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if "record" in asked.only:
            measure_recording(folder)
        if "ask" in asked.only:
            measure_questions(folder / "asked", asked.runs)
        if "tell" in asked.only:
            measure_telling(folder / "told")
        if "small" in asked.only:
            measure_small_run(folder / "small")


if __name__ == "__main__":
    main()
