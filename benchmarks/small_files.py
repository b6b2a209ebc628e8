"""What does an ingest of many small files cost beside one plain read and write of them?

A thousand CSV files lie in one folder. *By hand* Spark reads the folder with a schema and writes the rows, to Parquet files or to a
Delta table. *Ours* is an ingest of the same files into a new table: all files are unknown, so each is hashed, looked into, read, marked and noted in
the ledger. A third way sets bad rows aside, of which there are none. All three are taken in turns in one session. Each
repetition has a ledger of its own, so that no hash is remembered, and a target of its own.
"""

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from measure import Cost, measured

import twice
from twice import settings
from twice.engine import Engine
from twice.project import Project

SCHEMA = "id bigint, user bigint, page string, seconds int, day date"
WAYS = ("hand", "ours", "aside")
_ROWS_IN_FILE = 1_000


def fill(folder: Path, files: int) -> None:
    """Write the files, a thousand rows each."""
    folder.mkdir(parents=True)
    for number in range(files):
        first = number * _ROWS_IN_FILE
        rows = (
            f"{one},{one % 100_003},/page/{one % 5_003}/of/{one % 97},{one % 600},2024-10-07"
            for one in range(first, first + _ROWS_IN_FILE)
        )
        (folder / f"part-{number:05}.csv").write_text("id,user,page,seconds,day\n" + "\n".join(rows) + "\n")


class Bench:
    """One session and one folder of files, taken in again and again."""

    def __init__(self, root: Path, files: int) -> None:
        self.root, self.number, self.rows = root, 0, files * _ROWS_IN_FILE
        fill(root / "landing", files)
        self._write_settings()
        self.engine = Engine(settings.load(root), lambda: {"delta"})
        self.spark = self.engine.spark

    def once(self, way: str, kind: str) -> Cost:
        """Take the files in once, in one way, and return what it cost."""
        self.number += 1
        act, table = self._by_hand(kind) if way == "hand" else self._ingest(kind, way)
        cost = measured(act)
        rows = (
            self.spark.read.format("delta").load(table).count() if kind == "delta" else self._parquet_rows(table, way)
        )
        assert rows == self.rows, f"{rows} rows in {table}"
        return cost

    def _parquet_rows(self, table: str, way: str) -> int:
        return self.spark.read.parquet(*_data_files(table) if way != "hand" else [table]).count()

    def _by_hand(self, kind: str) -> tuple[Callable[[], None], str]:
        table = str(self.root / f"by_hand{self.number}")

        def act() -> None:
            rows = self.spark.read.schema(SCHEMA).option("header", "true").csv(str(self.root / "landing"))
            rows.write.format(kind).save(table)

        return act, table

    def _ingest(self, kind: str, way: str) -> tuple[Callable[[], None], str]:
        name = f"visits{self.number}"
        limit = {"max_quarantined": "1%"} if way == "aside" else {}

        @twice.pipeline(
            name=name,
            source=twice.files("landing/*.csv", schema=SCHEMA, track=True, **limit),
            target=f"{kind}:lake/{name}",
            pattern=twice.transactional_writer(),
        )
        def visits(rows: Any) -> Any:
            return rows

        self._write_settings()
        project = Project(settings.load(self.root), self.spark)
        project.ledger  # noqa: B018 - a new ledger makes its tables once, and not in each run
        return lambda: twice.run(visits, project=project), str(self.root / "lake" / name)

    def _write_settings(self) -> None:
        (self.root / "twice.toml").write_text(
            f'[ledger]\nurl = "sqlite:///.twice/ledger{self.number}.db"\n'
            '[spark]\nmaster = "local[2]"\n[spark.conf]\n"spark.driver.memory" = "4g"\n'
        )


def _data_files(table: str) -> Iterator[str]:
    return (str(path) for path in Path(table).rglob("*.parquet"))


def small_files(root: Path, files: int, times: int, kinds: Sequence[str] = ("delta", "parquet")) -> None:
    """Measure each kind of table: a round to warm up, then the others, each told as it ends."""
    bench = Bench(root, files)
    for kind in kinds:
        rounds = []
        for number in range(times + 1):
            rounds.append({way: bench.once(way, kind) for way in WAYS})
            print(f"{kind} {number or 'warming up'}: {json.dumps(_told(rounds[-1:]))}", flush=True)
        print(f"{files:,} files of {_ROWS_IN_FILE:,} rows into {kind}: {json.dumps(_told(rounds[1:]))}", flush=True)
    bench.engine.stop()


def _told(rounds: list[dict[str, Cost]]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for what in ("cpu_seconds", "wall_seconds"):
        told[what] = {way: round(statistics.median(getattr(one[way], what) for one in rounds), 2) for way in WAYS}
        for way in WAYS[1:]:
            ratios = [getattr(one[way], what) / getattr(one["hand"], what) for one in rounds]
            told[f"{way} / hand, {what}"] = [
                round(one, 2) for one in (statistics.median(ratios), min(ratios), max(ratios))
            ]
    return told
