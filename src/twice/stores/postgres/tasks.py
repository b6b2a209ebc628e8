"""How do Spark's tasks put their rows where the driver can publish them?

Each task sends its rows as Arrow, in binary, into a table of its own: named by target, attempt, partition and task, and
filled in one transaction. A partition of few rows goes back to the driver instead. Spark hands back the answer of one
task for each partition, so a task that was retried, or ran twice by speculation, counts once; what the others staged
is dropped, or swept by `twice tidy`. A table is not logged: should the server crash it comes back empty, and the count
that the task told no longer fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from psycopg import conninfo, sql

from twice.abilities import Work
from twice.errors import NotPublished
from twice.runs import digest
from twice.slices import quoted
from twice.stores.postgres import arrow, misfits
from twice.stores.postgres.connections import Connection, connected, parameters
from twice.stores.postgres.names import MOST_BYTES, Name, checked, definitions
from twice.stores.postgres.sources import Source, Stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What a task sends back instead of staging it: a small result needs no table, and the driver no memory for a large one.
_FEW_BYTES = 256 * 1024
_ANSWER = "partition int, task bigint, name string, rows bigint, held binary"
_STAGED = "twice_s"
_SAID = re.compile(r"ERROR:\s+([^\n]+)")
_NUL = "0x00"
_WHERE = re.compile(r"CONTEXT:\s+COPY [^\n]*, column ([^\n:]+)")


@dataclass(frozen=True)
class Staging:
    """What a task has to know to stage its rows."""

    address: str
    schema: str
    prefix: str
    types: Mapping[str, str]

    def table(self, partition: int, task: int) -> Name:
        """Name the table of one task."""
        return Name(self.schema, checked(f"{self.prefix}_{partition}_{task}", "staged table"))


def staged(url: str, name: Name, work: Work, rows: Any, types: Mapping[str, str]) -> Source:
    """Write the rows of a frame in one pass, and say where each partition's are."""
    staging = Staging(address_of(url), name.schema, prefix_of(name, work.attempt), types)
    try:
        answers = arrow.mapped(_sendable(rows, types), _stage_with(staging), _ANSWER).collect()
    except Exception as error:
        raise _refused(error, work, rows) or error from error
    by_partition: dict[int, Any] = {}
    for answer in answers:
        if answer["partition"] in by_partition:
            raise NotPublished(
                f"Two tasks answered for the partition {answer['partition']}.",
                "Which of them counts is not known, so nothing was published.",
                "Run again.",
            )
        by_partition[answer["partition"]] = answer
    parts = [by_partition[number] for number in sorted(by_partition)]
    stored = tuple(Stored(Name(name.schema, part["name"]), part["rows"]) for part in parts if part["name"])
    few = [_from_bytes(part["held"]) for part in parts if part["held"]]
    return Source(types, pa.concat_tables(few) if few else pa.table({}), stored, rows)


def _refused(error: Exception, work: Work, rows: DataFrame) -> NotPublished | None:
    """Say what the server told a task, if that is why Spark failed."""
    said = _SAID.search(str(error))
    if said is None:
        return None
    where = _WHERE.search(str(error))
    column_of = f" in the column {where[1]!r}" if where else ""
    # Of the texts that Spark holds, PostgreSQL takes all but those with NUL.
    file = misfits.file_of(rows, where[1], "\0") if where and _NUL in said[1] else ""
    read_from = f" It was read from {file}." if file else ""
    return NotPublished(
        f"PostgreSQL refuses a row of {work.name}{column_of}: {said[1].strip()}.{read_from}",
        "Nothing was published, and the target is as it was.",
        "Correct the rows in the transform.",
    )


def address_of(url: str) -> str:
    """Return how tasks reach the server; libpq reads it, and so does ADBC."""
    return conninfo.make_conninfo(**parameters(url))


def prefix_of(name: Name, attempt: str = "") -> str:
    """Return how the staged tables of a target begin, of one attempt if it is named."""
    prefix = f"{_STAGED}_{digest(name.table)[:8]}_{attempt}"
    if len(prefix.encode()) > MOST_BYTES:
        raise AssertionError("an attempt's name is short")
    return prefix


def _sendable(rows: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """Return the rows in types that both Arrow and the staged table have: nested ones as text."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, ByteType, MapType, StructType

    columns = []
    for field in rows.schema.fields:
        value = rows[quoted(field.name)]
        if isinstance(field.dataType, ArrayType | MapType | StructType):
            value = F.to_json(value)
        elif isinstance(field.dataType, ByteType):
            value = value.cast("short")
        elif types[field.name] == "text" and field.dataType.simpleString() != "string":
            value = value.cast("string")
        columns.append(value.alias(field.name))
    return rows.select(*columns)


def _stage_with(staging: Staging) -> Any:
    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise AssertionError("rows are staged by tasks")
        partition, task = context.partitionId(), context.taskAttemptId()
        remaining = iter(batches)
        few, is_all = _few(remaining)
        count = sum(batch.num_rows for batch in few)
        if not count and is_all:
            return
        if is_all:
            yield _answer(partition, task, "", count, _to_bytes(few))
            return
        table = staging.table(partition, task)
        yield _answer(partition, task, table.table, _copied(staging, table, few, remaining), b"")

    return stage


def _few(batches: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], bool]:
    """Take batches until there are too many rows to be sent back; tell whether those were all."""
    taken, size = [], 0
    for batch in batches:
        taken.append(batch)
        size += batch.nbytes
        if size > _FEW_BYTES:
            return taken, False
    return taken, True


def _copied(staging: Staging, table: Name, few: list[pa.RecordBatch], remaining: Iterator[pa.RecordBatch]) -> int:
    """Make the task's table and fill it, in one transaction."""
    from adbc_driver_postgresql import dbapi

    made = sql.SQL("create unlogged table {} ({})").format(table.sql, definitions(staging.types)).as_string(None)
    reader = pa.RecordBatchReader.from_batches(few[0].schema, chain(few, remaining))
    with dbapi.connect(staging.address) as connection:
        with connection.cursor() as cursor:
            cursor.execute(made)
            count = cursor.adbc_ingest(table.table, reader, mode="append", db_schema_name=table.schema)
        connection.commit()
    return int(count)


def _answer(partition: int, task: int, name: str, rows: int, held: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([partition], pa.int32()),
            "task": pa.array([task], pa.int64()),
            "name": pa.array([name], pa.string()),
            "rows": pa.array([rows], pa.int64()),
            "held": pa.array([held], pa.binary()),
        }
    )


def _to_bytes(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _from_bytes(content: bytes) -> pa.Table:
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


# ---------------------------------------------------------------- leftovers


def leftovers(connection: Connection, name: Name, attempt: str = "") -> list[tuple[Name, str, int]]:
    """Return the staged tables of a target, each with its attempt and its bytes."""
    prefix = prefix_of(name, attempt)
    found = connection.execute(
        "select c.relname, pg_total_relation_size(c.oid) from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = %s and starts_with(c.relname, %s) and c.relkind = 'r' order by c.relname",
        [name.schema, prefix],
    ).fetchall()
    skipped = len(prefix_of(name))
    return [(Name(name.schema, table), table[skipped:].rsplit("_", 2)[0], int(size)) for table, size in found]


def drop(connection: Connection, tables: Iterable[Name]) -> None:
    """Drop staged tables that nobody publishes any more."""
    for table in tables:
        connection.execute(sql.SQL("drop table if exists {}").format(table.sql))


def discard(url: str, name: Name, attempt: str) -> None:
    """Drop what an attempt staged."""
    with connected(url) as connection:
        drop(connection, [table for table, _, _ in leftovers(connection, name, attempt)])
