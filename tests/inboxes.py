"""A small ingest on any store: a folder that fills, and hands to meddle with it."""

import gzip
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

import twice
from databases import table
from twice.fingerprint import Place
from twice.intakes import files_of, taken_by
from twice.pipelines import Pipeline, pipeline
from twice.sources.filesets import FileSet
from twice.sources.intake import Intake
from twice.sources.tracked import Tracked
from twice.stores import manifest
from worlds import World

COLUMN = "source_file"
LONG_AGO = 1_700_000_000


@dataclass(frozen=True)
class PlainSet(FileSet):
    """JSON lines, read without Spark, for stores that take plain rows."""

    def read(self, engine: Any):
        rows = []
        for mark in self.marks:
            origin = {self.source.file_column: mark.path} if self.source.file_column else {}
            path = Path(self.root) / mark.path
            with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
                lines = file.read().splitlines()
            rows += [{**json.loads(line), **origin} for line in lines]
        return rows


class PlainTracked(Tracked):
    """The same files, read without Spark."""

    def resolve(self, place: Place) -> Intake:
        return _plain(super().resolve(place))

    def forgetting(self, place, paths):
        return _plain(super().forgetting(place, paths))


def _plain(intake: Intake) -> Intake:
    given = intake.files
    return replace(intake, files=PlainSet(given.source, given.root, given.marks, given.format, again=given.again))


@dataclass
class Inbox(World):
    """A folder `landing` that is taken in by one pipeline."""

    pattern: Any = field(default_factory=twice.transactional_writer)
    schema: str = "id string, n int"
    source: dict[str, Any] = field(default_factory=dict)
    target: str = "lake/inbox"
    name: str = "inbox"
    files: str = "landing/**/*.jsonl"

    @property
    def pipeline(self) -> Pipeline:
        tracked = twice.files(self.files, schema=self.schema, track=True, **self.source)
        return pipeline(
            name=self.name,
            source=PlainTracked(**vars(tracked)) if self.plain else tracked,
            target=f"{self.kind}:{self.target}",
            pattern=self.pattern,
            **self.columns,
        )(self.transform)

    def drop_in(self, name: str, ids: str, n: int = 1, *, age: float | None = 1000.0) -> Path:
        """Put a file with one row for each letter into the folder; by default as if it had been there for a while."""
        text = "".join(json.dumps({"id": one, "n": n}) + "\n" for one in ids)
        return self.drop_in_text(name, text, age=age)

    def drop_in_text(self, name: str, text: str, *, age: float | None = 1000.0) -> Path:
        path = self.folder / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if age is not None:
            self.clock = getattr(self, "clock", 0) + 1
            os.utime(path, (LONG_AGO + self.clock, LONG_AGO + self.clock))
        return path

    def run(self, **asked):  # an ingest has one slot
        return twice.run(self.pipeline, project=self.project, **asked)

    def change_by_hand(self):
        """Add a row as somebody would who does not know Twice; to Parquet by writing one of its files anew."""
        row = {"id": "z", "n": 0}
        if self.kind == "memory":
            self.memory.meddle(self.target, [*self.memory.read(self.target), row])
        elif self.database:
            self.database.execute(f"INSERT INTO {table(self.target)} (id, n) VALUES ('z', 0)")
        elif self.kind == "delta":
            self.spark.sql(f"INSERT INTO delta.`{self.table()}` VALUES ('z', 0)")
        else:
            path = self.table() / manifest.newest(str(self.table())).files[0].path
            there = parquet.read_table(path)
            parquet.write_table(pa.concat_tables([there, pa.Table.from_pylist([row], there.schema)]), path)

    def ids(self) -> str:
        return "".join(sorted(row["id"] for row in self.records()))

    def marks(self) -> dict[str, Any]:
        """Return what the table says of each file."""
        return {mark.path.removeprefix("landing/"): mark for mark in taken_by(self.project, self.pipeline).all()}

    def states(self) -> dict[str, str]:
        """Return what people are told of each file."""
        return {mark.path.removeprefix("landing/"): mark.state for mark in files_of(self.project, self.pipeline)}
