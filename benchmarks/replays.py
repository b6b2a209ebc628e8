"""What does a replay of past slots cost on Delta? `make bench`, after patterns.py.

Against what people do by hand: RESTORE to the version before the slot, then one MERGE a slot; thirty slots at once
against thirty commands; and against itself, for more slots and larger tables. Prints ratios. `--only invocations` runs a part.
"""

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

from measure import duel
from patterns import Bench, head, line, run

import twice
from twice.backfills import backfill
from twice.decide import Asked
from twice.replays import draft_before
from twice.runs import Slot
from twice.stores.delta import log
from twice.stores.delta.store import DeltaStore

FIRST = date(2024, 1, 1)
SLOTS = 3
CHANGED = 10_000
VERSIONS = 1_000
INVOCATIONS = 30
# Editions that are not measured: the one of the first filling, and those that warm the JVM up.
_FILLED, _WARM = 99, tuple(range(100, 106))
PIPELINE = """
import twice

@twice.pipeline(
    every="1 day", start="2024-01-01",
    source=twice.files("landing/{execution_date}.jsonl", schema="id bigint, day date"),
    target="delta:lake/devices", pattern=twice.stateful_merger(keys=["id"]),
)
def devices(rows):
    return rows
"""


class Replays:
    """A table of some size, merged into for a few days, once through Twice and once by hand."""

    def __init__(self, bench: Bench, name: str, rows: int, slots: int = SLOTS, changed: int = CHANGED) -> None:
        self.bench, self.name, self.changed = bench, name, changed
        self.spark, self.project, self.rows = bench.spark, bench.project, rows
        self.ours, self.theirs = bench.root / "ours" / name, bench.root / "theirs" / name
        self.edition = 0
        self.schema = bench.visits(rows).schema
        self.days = [FIRST + timedelta(days=number) for number in range(slots + 1)]
        self.pipeline = twice.pipeline(
            name=name,
            every="1 day",
            start=FIRST.isoformat(),
            source=twice.source(self.read, fingerprint=self.seen),
            target=f"delta:ours/{name}",
            pattern=twice.stateful_merger(keys=["id"]),
        )(lambda rows: rows)

    def seen(self, run) -> str:
        day = run.execution_time.date()
        return f"{day}:{self.edition if day != self.days[0] else 0}"

    def read(self, run):
        return self.batch(run.execution_time.date(), self.edition)

    def batch(self, day: date, edition: int):
        """The whole table on the first day, then some changes a day, others in each edition, from a file of their own."""
        if day == self.days[0]:
            return self.bench.visits(self.rows, 10)
        return self.spark.read.schema(self.schema).parquet(self._landed(day, edition))

    def land(self, *editions: int) -> None:
        """Write the files of some editions, so that reading is all that a repetition does with them."""
        for edition in editions:
            for day in self.days[1:]:
                self._changes(day, edition).coalesce(1).write.parquet(self._landed(day, edition))

    def _landed(self, day: date, edition: int) -> str:
        return str(self.bench.root / "landing" / self.name / f"{day}-{edition}")

    def _changes(self, day: date, edition: int):
        number = (day - FIRST).days
        # A row in each stretch of the table, at a place that is as good as chance: as cheap to make as they are few.
        stretch = self.rows // self.changed
        ids = self.spark.range(self.changed).selectExpr(
            f"id * {stretch} + pmod(xxhash64(id, {number}), {stretch}) AS id"
        )
        spread = self.bench.visits_of(ids, self.rows)
        return spread.selectExpr(
            "id", "visit", "day", "user", "page", f"seconds + {1000 * edition + number} AS seconds"
        )

    def fill(self) -> None:
        """Publish the first day, and all later ones in one replay."""
        twice.run(self.pipeline, at=FIRST.isoformat(), project=self.project)
        self.land(_FILLED)
        self.replay(_FILLED)

    def copy(self) -> None:
        """Give the other side the same table, as it was after the first day."""
        shutil.copytree(self.ours, self.theirs, ignore=shutil.ignore_patterns("_twice"))
        self.base = log.commit_versions(str(self.theirs))[0]

    def replay(self, edition: int) -> None:
        self.edition = edition
        end = self.days[-1] + timedelta(days=1)
        asked = Asked(force=True, resuming=True)
        backfill(self.project, self.pipeline, self.days[1].isoformat(), end.isoformat(), asked)

    def by_hand(self, edition: int) -> None:
        self.spark.sql(f"RESTORE TABLE delta.`{self.theirs}` TO VERSION AS OF {self.base}").collect()
        for day in self.days[1:]:
            self.batch(day, edition).createOrReplaceTempView("changes")
            self.spark.sql(
                f"MERGE INTO delta.`{self.theirs}` t USING changes s ON t.id = s.id"
                " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

    def restore(self) -> None:
        """Bring back the first day."""
        twice.restore(f"delta:ours/{self.name}", 0, project=self.project)


def compare_with_merges(bench: Bench, rows: int, times: int) -> None:
    """A replay against RESTORE and a MERGE a slot."""
    head(f"replay of {SLOTS} slots of {CHANGED:,} rows over {rows:,}")
    one = Replays(bench, "devices", rows)
    one.fill()
    one.copy()
    one.land(*range(times), *_WARM)
    for warm in _WARM:
        one.replay(warm), one.by_hand(warm)
    before = [len(log.commit_versions(str(table))) for table in (one.ours, one.theirs)]
    line("against RESTORE and a MERGE each", duel(one.replay, one.by_hand, times, lambda _: None))
    after = [len(log.commit_versions(str(table))) for table in (one.ours, one.theirs)]
    commits = [(now - then) / times for then, now in zip(before, after, strict=True)]
    print(f"commits each: {commits[0]:g} ours, {commits[1]:g} by hand")
    rows_of = [
        bench.spark.read.format("delta").load(str(table)).selectExpr("bit_xor(xxhash64(*))").first()[0]
        for table in (one.ours, one.theirs)
    ]
    print(f"both tables hold the same rows: {rows_of[0] == rows_of[1]}")


def compare_slots(bench: Bench, rows: int, times: int) -> None:
    """As many changes in ten times as many slots."""
    head(f"replay of {SLOTS * CHANGED:,} changes over {rows:,}")
    many = Replays(bench, "many_slots", rows, 10 * SLOTS, CHANGED // 10)
    few = Replays(bench, "few_slots", rows)
    for one in (many, few):
        one.fill()
        one.land(*range(times), *_WARM)
        for warm in _WARM:
            one.replay(warm)
    line(f"in {10 * SLOTS} slots, against {SLOTS}", duel(many.replay, few.replay, times, lambda _: None))


def compare_restores(bench: Bench, rows: int, times: int) -> None:
    """A restore of a table ten times as large."""
    head("restore")
    large, small = Replays(bench, "large", 10 * rows, 1), Replays(bench, "small", rows, 1)
    for one in (large, small):
        one.fill()
        one.restore()

    def act(one: Replays):
        return lambda _: one.restore()

    line(f"of {10 * rows:,} rows, against {rows:,}", duel(act(large), act(small), 2 * times + 1, lambda _: None))


def compare_invocations(bench: Bench, _: int, __: int) -> None:
    """Thirty slots by one command, against thirty commands."""
    head(f"{INVOCATIONS} slots, whole commands")
    projects = [bench.root / "at_once", bench.root / "one_by_one"]
    days = [(FIRST + timedelta(days=number)).isoformat() for number in range(INVOCATIONS + 1)]
    for project in projects:
        (project / "landing").mkdir(parents=True)
        (project / "twice.toml").write_text("")
        (project / "pipelines").mkdir()
        (project / "pipelines" / "devices.py").write_text(PIPELINE)
        for day in days[:-1]:
            rows = [json.dumps({"id": number, "day": day}) for number in range(100)]
            (project / "landing" / f"{day}.jsonl").write_text("\n".join(rows) + "\n")

    def command(project: Path, *words: str) -> None:
        subprocess.run([sys.executable, "-m", "twice", *words, "--yes"], cwd=project, check=True, capture_output=True)

    line(
        "by one backfill, against a run each",
        duel(
            lambda _: command(projects[0], "backfill", "devices", "--from", days[0], "--to", days[-1]),
            lambda _: [command(projects[1], "run", "devices", "--at", day) for day in days[:-1]],
            1,
            lambda _: None,
        ),
    )


def find_among_versions(bench: Bench, _: int, __: int) -> None:
    """Find the state before a slot among a thousand versions, without a JVM."""
    root = bench.root
    table = root / "many"
    folder = table / "_delta_log"
    folder.mkdir(parents=True)
    slots = []
    for version in range(VERSIONS):
        day = FIRST + timedelta(days=version)
        slot = f"v1:devices:delta:many/table:{day}T00:00Z/{day + timedelta(days=1)}T00:00Z"
        slots.append(slot)
        receipt = twice_receipt(slot)
        payload = log.Payload("publish", "me", "rows", (receipt,), table_id="t")
        info = {"timestamp": int(time.time() * 1000), "operation": "WRITE", "userMetadata": payload.to_text()}
        (folder / f"{version:020}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
    store = DeltaStore(str(root), None, None)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        sight = log.look(str(table))
        found = draft_before(
            Slot.parse(slots[VERSIONS // 2]), sight, replace(store.past("many/."), lost=lambda _: ""), forced=True
        )
        times.append(time.perf_counter() - began)
    assert found.base == VERSIONS // 2 - 1
    print(f"state before a slot among {VERSIONS:,} versions: {sorted(times)[2]:.2f} s without a JVM")


def twice_receipt(slot: str):
    from twice.runs import Receipt

    return Receipt(slot, 1, "0a1b2c3d-1-0a1b2c3d", "inputs", "code", "me", rows=1)


PARTS = {
    "find": find_among_versions,
    "merges": compare_with_merges,
    "slots": compare_slots,
    "restores": compare_restores,
    "invocations": compare_invocations,
}


if __name__ == "__main__":
    run(PARTS, 1_000_000, __doc__)
