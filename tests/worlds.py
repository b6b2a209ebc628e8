"""A small project on any store, with hands to meddle with it."""

import copy
import json
import shutil
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import twice
from databases import Database
from twice import settings
from twice.fingerprint import Place
from twice.pipelines import Pipeline, pipeline
from twice.project import Project
from twice.prover import Snapshot
from twice.sources.files import Files
from twice.sources.filesets import FileSet
from twice.stores import manifest
from twice.stores.delta.jvm import VECTORS_OF_NEW_TABLES
from twice.stores.histories import name_of
from twice.stores.memory import MemoryStore
from twice.stores.merging import LABEL
from twice.stores.postgres import PostgresStore
from twice.stores.registry import store_class

STORES = ("memory", "parquet", "delta", "postgres")
WITHOUT_SPARK = ("memory", "postgres")
SCHEMA = "id string, day date"
NAME = "lake/out"


@dataclass(frozen=True)
class PlainFiles:
    """Files of JSON lines, read without Spark, for stores that take plain rows."""

    files: Files

    def resolve(self, place: Place):
        return PlainSet(self.files.resolve(place))


@dataclass(frozen=True)
class PlainSet:
    chosen: FileSet

    @property
    def facts(self):
        return self.chosen.facts

    @property
    def summary(self):
        return self.chosen.summary

    @property
    def absent(self):
        return self.chosen.absent

    def moved(self):
        return self.chosen.moved()

    def read(self, engine):
        rows = []
        for mark in self.chosen.marks:
            for line in (Path(self.chosen.root) / mark.path).read_text().splitlines():
                row = json.loads(line)
                rows.append({**row, **({"day": date.fromisoformat(row["day"])} if row.get("day") else {})})
        return rows


def needing(pattern):
    """Return the mark of a test that tries a pattern: it is for stores that carry it."""
    return pytest.mark.needs(*(ability.__name__ for ability in pattern.requires))


def lacks(item) -> bool:
    """Tell whether a test is about something that its store cannot do."""
    given = getattr(item, "callspec", None)
    kind = given.params.get("kind") if given else None
    needed = {name for mark in item.iter_markers("needs") for name in mark.args}
    return bool(needed) and kind in STORES and not needed <= {one.__name__ for one in store_class(kind).__mro__}


def same(rows):
    return rows


@contextmanager
def said_of_vectors(spark, answer):
    """Let a session say whether new tables of Delta have deletion vectors; None says nothing."""
    if answer is not None:
        spark.conf.set(VECTORS_OF_NEW_TABLES, answer)
    try:
        yield
    finally:
        spark.conf.unset(VECTORS_OF_NEW_TABLES)


def once_at(point, act):
    """Return a hook that acts the first time a fault point is reached, and never again."""
    done = []

    def hook(reached):
        if reached == point and not done:
            done.append(point)
            act()

    return hook


@dataclass
class World:
    """Inputs by day, a pipeline, a store and a ledger, in one folder."""

    folder: Path
    kind: str
    spark: Any = None
    pattern: Any = field(default_factory=lambda: twice.data_overwrite(slice="day"))
    transform: Callable[..., Any] = same
    schema: str = SCHEMA
    columns: dict[str, str] = field(default_factory=dict)
    every: str = "1 day"
    start: str = "2024-09-01"
    name: str = "out"
    target: str = NAME
    missing: str = "fail"
    lease_seconds: float = 0.0
    memory: MemoryStore = field(default_factory=MemoryStore)
    script: Callable[["World"], None] | None = None
    ledger_name: str = "ledger.db"
    database: Database | None = None

    def copied(self, folder: Path) -> "World":
        """Return the same world in another folder, to be killed in this one's stead."""
        shutil.copytree(self.folder, folder)
        database = self.database.copied() if self.database else None
        return replace(self, folder=folder, memory=copy.deepcopy(self.memory), database=database)

    def __post_init__(self):
        (self.folder / "landing").mkdir(parents=True, exist_ok=True)
        self.reopen()

    def reopen(self):
        overrides = {
            "leases.seconds": self.lease_seconds,
            "ledger.url": f"sqlite:///.twice/{self.ledger_name}",
        }
        self.project = Project(settings.load(self.folder, overrides), self.spark)
        self.project._stores["memory"] = self.memory
        if self.database:
            self.project._stores["postgres"] = PostgresStore(self.database.url, self.project.engine)

    @property
    def pipeline(self) -> Pipeline:
        source = Files("landing/{execution_date}.jsonl", schema=self.schema, missing=self.missing)
        return pipeline(
            name=self.name,
            every=self.every,
            start=self.start,
            source=PlainFiles(source) if self.plain else source,
            target=f"{self.kind}:{self.target}",
            pattern=self.pattern,
            **self.columns,
        )(self.transform)

    def twin(self, **changes) -> "World":
        """Return another driver of the same project: same folder, same ledger, same store."""
        return replace(self, **changes)

    @property
    def plain(self) -> bool:
        """Tell whether rows are lists, and no Spark is there."""
        return self.kind == "memory" or self.spark is None

    @property
    def store(self):
        return self.project.store(self.kind)

    def put(self, day: str, ids: list[str], as_day: str | None = None):
        self.put_rows(day, [{"id": one, "day": as_day or day} for one in ids])

    def put_rows(self, day: str, rows: list[dict[str, Any]]):
        lines = [json.dumps(row) for row in rows]
        (self.folder / f"landing/{day}.jsonl").write_text("".join(line + "\n" for line in lines))

    def archive(self, *days: str):
        """Move the files of some days away, as whoever clears a landing zone does."""
        (self.folder / "archive").mkdir(exist_ok=True)
        for day in days:
            (self.folder / f"landing/{day}.jsonl").rename(self.folder / f"archive/{day}.jsonl")

    def run(self, day: str, **asked):
        return twice.run(self.pipeline, at=day, project=self.project, **asked)

    def slot(self, day: str) -> str:
        return self.pipeline.slot(day).text

    def sight(self):
        return self.store.look(self.target)

    def rows(self) -> list[tuple[str, str]]:
        return sorted((row["id"], row["day"].isoformat()) for row in self.records())

    def records(self) -> list[dict[str, Any]]:
        if self.kind == "files":
            found = (path for path in sorted(self.table().glob("*")) if path.is_file())
            return [{"id": line, "day": path.name} for path in found for line in path.read_text().splitlines()]
        try:
            found = self.database.rows(self.store, self.target) if self.database else self.store.read(self.target)
        except twice.NotPublished:
            return []
        return found if isinstance(found, list) else [row.asDict() for row in found.collect()]

    def table_rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return the rows as sorted tuples of some columns."""
        return sorted((tuple(row[column] for column in columns) for row in self.records()), key=repr)

    def by_day(self) -> dict[str, list[str]]:
        days: dict[str, list[str]] = {}
        for one, day in self.rows():
            days.setdefault(day, []).append(one)
        return days

    # ---------------------------------------------------------------- for the prover

    def act(self):
        assert self.script
        self.reopen()
        self.script(self)

    def snapshot(self) -> Snapshot:
        receipts = self.sight().receipts
        believed = {
            receipt.slot: (receipt.generation, receipt.fingerprint) for receipt, _ in self.project.ledger.published()
        }
        return Snapshot(
            tuple(sorted(str(sorted(row.items())) for row in self.records())),
            {slot: (receipt.generation, receipt.fingerprint) for slot, receipt in receipts.items()},
            believed,
        )

    def tidy(self):
        # A tidy of Delta takes long, and leaves its files for a week in any case.
        if self.kind == "parquet" or (self.pattern.keeps_history and self.kind != "delta"):
            self.store.tidy(self.target, frozenset, keep_days=0, dry_run=False)

    def litter(self) -> int:
        names = self.kept_names() - self.named() if self.pattern.keeps_history and self.kind != "delta" else ()
        return len(names) + (self.files_left() if self.kind == "parquet" else 0)

    def named(self) -> set[str]:
        """Return the names of change rows that the receipts name."""
        receipts = self.sight().receipts.values()
        return {name for one in receipts for name in (one.history, one.adopted)} - {""}

    def kept_names(self) -> set[str]:
        """Return the names under which there are change rows in the history."""
        if self.kind == "memory":
            return {name for name, batch in self.memory._history.get(self.target, {}).items() if batch.rows}
        if self.database:
            return self.database.kept_names(self.target)
        if self.kind == "parquet":
            newest = manifest.newest(str(self.table() / "_twice" / "history"))
            return {name_of(slot) for slot, receipt in newest.receipts.items() if receipt.rows}
        history = self.table() / "_twice" / "history"
        if not history.exists():
            return set()
        rows = self.spark.read.format("delta").load(str(history)).select(LABEL).distinct().collect()
        return {row[LABEL] for row in rows}

    def files_left(self) -> int:
        """Count the files of a Parquet table that no version names."""
        table = str(self.table())
        newest = manifest.newest(table)
        # Versions that a replay may start from are kept, and so are their files.
        files = [file.path for file in manifest.entries(table, "files")] if newest.keep_days else []
        files += [file.path for member in newest.members for file in member.files]
        named = {Path(path) for path in self.store.files(self.target)} | {self.table() / path for path in files}
        data = Path(self.store.table(self.target)) / "data"
        return sum(file not in named for file in data.rglob("*.parquet"))

    # ---------------------------------------------------------------- meddling from outside

    def lose_ledger(self):
        (self.folder / ".twice" / self.ledger_name).unlink()
        self.reopen()

    def table(self) -> Path:
        return Path(self.store.table(self.target))

    def fill_by_hand(self, rows: list[dict[str, Any]], schema: str = SCHEMA):
        """Make a table, or add to it, as somebody would who does not know Twice."""
        if self.kind == "memory":
            self.memory.meddle(self.target, rows)
        elif self.database:
            self.database.fill(self.target, schema, rows)
        else:
            frame = self.spark.createDataFrame([tuple(row.values()) for row in rows], schema)
            frame.coalesce(1).write.format(self.kind).mode("append").save(str(self.table()))

    def overwrite_by_hand(self):
        """Replace the whole table as somebody would who does not know Twice."""
        if self.kind == "memory":
            self.memory.meddle(self.target, [{"id": "foreign", "day": date(2024, 9, 20)}])
            return
        if self.database:
            self.database.overwrite(self.target, [("foreign", date(2024, 9, 20))])
            return
        frame = self.spark.createDataFrame([("foreign", date(2024, 9, 20))], SCHEMA)
        frame.write.format(self.kind).mode("overwrite").save(str(self.table()))

    def delete_by_hand(self, day: str):
        """Take a slot's rows away behind the ledger's back."""
        if self.kind == "memory":
            kept = [row for row in self.memory.read(self.target) if row["day"] != date.fromisoformat(day)]
            self.memory.meddle(self.target, kept)
        elif self.database:
            self.database.delete_day(self.target, day)
        elif self.kind == "delta":
            self.spark.sql(f"DELETE FROM delta.`{self.table()}` WHERE day = DATE '{day}'")
        else:
            for path in self._files_of(day):
                path.unlink()

    def _files_of(self, day: str) -> list[Path]:
        files = manifest.newest(str(self.table())).files
        return [self.table() / file.path for file in files if file.slot == self.slot(day)]

    def restore_by_hand(self, version: int):
        """Bring back an old version behind the ledger's back."""
        if self.kind == "memory":
            self.memory.meddle(self.target, [], restored_to=version)
        else:
            self.spark.sql(f"RESTORE TABLE delta.`{self.table()}` TO VERSION AS OF {version}")

    def drop_member(self, name: str):
        """Drop one table behind a view."""
        if self.kind == "memory":
            self.memory._tables.pop(f"{self.target}/{name}")
        else:
            shutil.rmtree(self.table() / name)

    def member_files(self, name: str) -> list[str]:
        """Return the names of the data files of one table behind a view, or which rows are where in it."""
        if self.database:
            return self.database.places(f"{self.target}/{name}")
        return sorted(str(path) for path in (self.table() / name).rglob("*.parquet"))

    def drop(self):
        if self.kind == "memory":
            self.memory._tables.pop(self.target, None)
        elif self.database:
            self.database.drop_all()
        else:
            shutil.rmtree(self.table())

    def data_files(self, day: str) -> dict[str, bytes]:
        """Return the bytes of the files that hold a day, for comparing to the byte."""
        if self.kind == "memory":
            return {
                "rows": repr([row for row in self.memory.read(self.target) if row["day"].isoformat() == day]).encode()
            }
        if self.database:
            return {"rows": self.database.row_versions(self.target, day)}
        if self.kind == "delta":
            frame = self.spark.read.format("delta").load(str(self.table())).where(f"day = DATE '{day}'")
            paths = [Path(path.removeprefix("file:").replace("//", "/", 1)) for path in frame.inputFiles()]
        else:
            paths = self._files_of(day)
        return {str(path): path.read_bytes() for path in paths}

    def all_files(self) -> list[str]:
        """Return the names of the files that are the table now."""
        if self.kind in WITHOUT_SPARK:
            return []
        if self.kind == "parquet":
            return sorted(file.path for file in manifest.newest(str(self.table())).files)
        return sorted(self.spark.read.format("delta").load(str(self.table())).inputFiles())

    def partition_files(self, day: str) -> list[str]:
        """Return the names of the files in a day's partition."""
        return [path for path in self.all_files() if f"={day}" in path]
