"""What does a replay of past slots cost on Delta? `make bench`, after patterns.py.

Against what people do by hand: RESTORE to the version before the slot, then one MERGE a slot. Prints ratios.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

from measure import duel
from patterns import Bench, head, line

import twice
from twice.backfills import backfill
from twice.decide import Asked
from twice.replays import draft_before
from twice.runs import Slot
from twice.stores.delta import log
from twice.stores.delta.store import DeltaStore

FIRST = date(2024, 1, 1)
DAYS = 4
CHANGED = 10_000
VERSIONS = 1_000


class Replays:
    """A table of some size, merged into for a few days, once through Twice and once by hand."""

    def __init__(self, root: Path, rows: int) -> None:
        self.bench = Bench(root)
        self.spark, self.project, self.rows = self.bench.spark, self.bench.project, rows
        self.ours, self.theirs = root / "ours" / "devices", root / "theirs" / "devices"
        self.edition = 0
        self.days = [FIRST + timedelta(days=number) for number in range(DAYS)]
        self.pipeline = twice.pipeline(
            name="devices",
            every="1 day",
            start=FIRST.isoformat(),
            source=twice.source(self.read, fingerprint=self.seen),
            target="delta:ours/devices",
            pattern=twice.stateful_merger(keys=["id"]),
        )(lambda rows: rows)

    def seen(self, run) -> str:
        day = run.execution_time.date()
        return f"{day}:{self.edition if day != self.days[0] else 0}"

    def read(self, run):
        return self.batch(run.execution_time.date(), self.edition)

    def batch(self, day: date, edition: int):
        """The whole table on the first day, then ten thousand changes a day, others in each edition."""
        if day == self.days[0]:
            return self.bench.visits(self.rows, 10)
        number = (day - FIRST).days
        spread = self.bench.visits(self.rows).where(f"pmod(xxhash64(id, {number}), {self.rows // CHANGED}) = 0")
        return spread.selectExpr(
            "id", "visit", "day", "user", "page", f"seconds + {1000 * edition + number} AS seconds"
        )

    def fill(self) -> None:
        for day in self.days:
            twice.run(self.pipeline, at=day.isoformat(), project=self.project)
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

    def compare(self, times: int) -> None:
        head(f"replay of {DAYS - 1} slots of {CHANGED:,} rows over {self.rows:,}")
        for warm in range(2):
            self.replay(100 + warm), self.by_hand(100 + warm)
        before = [len(log.commit_versions(str(table))) for table in (self.ours, self.theirs)]
        line(
            "against RESTORE and a MERGE each",
            duel(self.replay, self.by_hand, times, lambda _: None),
        )
        after = [len(log.commit_versions(str(table))) for table in (self.ours, self.theirs)]
        commits = [(now - then) / times for then, now in zip(before, after, strict=True)]
        print(f"commits each: {commits[0]:g} ours, {commits[1]:g} by hand")
        rows = [
            self.spark.read.format("delta").load(str(table)).selectExpr("bit_xor(xxhash64(*))").first()[0]
            for table in (self.ours, self.theirs)
        ]
        print(f"both tables hold the same rows: {rows[0] == rows[1]}")

    def restore(self) -> None:
        """A restore changes what differs, whatever the size of the table."""
        began = time.perf_counter()
        twice.restore("delta:ours/devices", 0, project=self.project)
        print(f"restore of {self.rows:,} rows: {time.perf_counter() - began:.2f} s")


def many_versions(root: Path) -> None:
    """Find the state before a slot among a thousand versions, without a JVM."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twice-bench-") as folder:
        root = Path(folder)
        (root / "twice.toml").write_text('[spark]\nmaster = "local[2]"\n[spark.conf]\n"spark.driver.memory" = "4g"\n')
        print(f"{asked.rows:,} rows, {asked.times} pairs, {os.cpu_count()} cores; ratios are ours / by hand")
        many_versions(root)
        replays = Replays(root, asked.rows)
        replays.fill()
        replays.compare(asked.times)
        replays.restore()
        replays.bench.engine.stop()


if __name__ == "__main__":
    main()
