"""How do Spark's tasks put their rows where the driver can publish them?

Each task sends its rows as Arrow, in binary, and commits them in one transaction. A partition of few rows goes back to the
driver instead. Spark hands back the answer of one task for each partition, so a task that was retried, or ran twice by
speculation, counts once. Where the rows wait:

    table is there    each task in a table of its own, named by target, attempt, partition and task. It is not logged: should
                      the server crash it comes back empty, and the count that the task told no longer fits
    table is new      all tasks in one table, which the publish makes the new one by giving it its name. It is logged, as
                      the new table has to be. Each row is marked by the server with the transaction that wrote it. A task
                      answers with its own, and notes it in a journal beside the table: so what the tasks that do not
                      count wrote is known, and found. Partitions of few rows are put there by the driver in the end

What is not published is dropped, or swept by `twice tidy`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from psycopg import conninfo, sql

from twice.abilities import Work
from twice.errors import NotPublished
from twice.faults import reach
from twice.slices import quoted
from twice.stores.postgres import arrow, leftovers, misfits
from twice.stores.postgres.connections import connected, nothing_lands, parameters
from twice.stores.postgres.names import Name, checked, definitions
from twice.stores.postgres.sources import Shared, Source, Stored, file_of
from twice.stores.postgres.strays import Strays, Within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What a task sends back instead of staging it: a small result needs no table, and the driver no memory for a large one.
_FEW_BYTES = 256 * 1024
_ANSWER = "partition int, task bigint, name string, rows bigint, by bigint, strays bigint, held binary"
_NUMBERS = count()
# A vacuum would hold the table while it is published.
_NOT_VACUUMED = sql.SQL("autovacuum_enabled = false, toast.autovacuum_enabled = false")
# As it stands in a row: without the epoch.
_THIS_TRANSACTION = "select pg_current_xact_id()::xid::text"
_SAID = re.compile(r"ERROR:\s+([^\n]+)")
_NUL = "0x00"
_WHERE = re.compile(r"CONTEXT:\s+COPY [^\n]*, column ([^\n:]+)")


@dataclass(frozen=True)
class Staging:
    """What a task has to know to stage its rows: where, in which columns, in which table, and what to count."""

    address: str
    schema: str
    prefix: str
    types: Mapping[str, str]
    together: Together | None
    within: Within | None

    def table(self, partition: int, task: int) -> Name:
        """Name the table that a task fills."""
        if self.together:
            return self.together.table
        return Name(self.schema, checked(f"{self.prefix}_{partition}_{task}", "staged table"))


@dataclass(frozen=True)
class Together:
    """The table that all tasks fill, the server's file of it, and the table in which each task notes that it did."""

    table: Name
    journal: Name
    file: int

    @classmethod
    def made(cls, url: str, schema: str, prefix: str, work: Work, types: Mapping[str, str]) -> Together:
        """Make both, named as no other pass of this process names them."""
        number = next(_NUMBERS)
        table, journal = (Name(schema, checked(f"{prefix}_{what}_{number}")) for what in ("all", "by"))
        with connected(url) as connection, nothing_lands(work.name), connection.transaction():
            made = sql.SQL("create table {} ({}) with ({})").format(table.sql, definitions(types), _NOT_VACUUMED)
            connection.execute(made)
            connection.execute(sql.SQL("create table {} (by bigint, rows bigint)").format(journal.sql))
            file = file_of(connection, table)
        reach("postgres.staging.made")
        return cls(table, journal, file)

    def drop(self, url: str) -> None:
        """Drop both tables: no task needed them."""
        with connected(url) as connection:
            leftovers.drop(connection, [self.table, self.journal])

    def filled(self, answers: Sequence[Any]) -> Shared:
        """Say what the tasks that count put there."""
        by = tuple(answer["by"] for answer in answers)
        return Shared(self.table, sum(answer["rows"] for answer in answers), self.journal, by, self.file)


def staged(
    url: str,
    home: Name,
    work: Work,
    rows: Any,
    types: Mapping[str, str],
    within: Within | None,
    *,
    is_new: bool,
) -> Source:
    """Write the rows of a frame in one pass, and say where each partition's are; those of a new table are together.

    The tables are beside the target `home`, and named by it.
    """
    prefix = leftovers.prefix_of(home, work.attempt)
    together = Together.made(url, home.schema, prefix, work, types) if is_new else None
    staging = Staging(address_of(url), home.schema, prefix, types, together, within)
    with _refusals_told(work, rows):
        answers = arrow.mapped(_sendable(rows, types), _stage_with(staging), _ANSWER).collect()
    parts = _one_a_partition(answers)
    with _refusals_told(work, rows):
        held, stored = gathered(url, staging, parts)
    strays = sum(part["strays"] for part in parts) if within else None
    return Source(types, held, stored, rows, strays)


def gathered(url: str, staging: Staging, parts: Sequence[Any]) -> tuple[pa.Table, tuple[Stored, ...]]:
    """Return the rows that came back with the answers, and where the others are; together they are if one was."""
    few = [_from_bytes(part["held"]) for part in parts if part["held"]]
    held = pa.concat_tables(few) if few else pa.table({})
    filled = [part for part in parts if part["name"]]
    together = staging.together
    if together is None:
        return held, tuple(Stored(Name(staging.schema, part["name"]), part["rows"]) for part in filled)
    if not filled:
        together.drop(url)
        return held, ()
    if held.num_rows:
        rows, by = _copied(staging, together.table, held.to_reader())
        filled.append({"rows": rows, "by": by})
    return pa.table({}), (together.filled(filled),)


def _one_a_partition(answers: Sequence[Any]) -> list[Any]:
    """Return the answers in the order of their partitions.

    Raises:
        NotPublished: There are two for one partition.
    """
    by_partition: dict[int, Any] = {}
    for answer in answers:
        if answer["partition"] in by_partition:
            raise NotPublished(
                f"Two tasks answered for the partition {answer['partition']}.",
                "Which of them counts is not known, so nothing was published.",
                "Run again.",
            )
        by_partition[answer["partition"]] = answer
    return [by_partition[number] for number in sorted(by_partition)]


@contextmanager
def _refusals_told(work: Work, rows: DataFrame) -> Iterator[None]:
    """Copy rows; if the server refuses one, say what it said.

    Raises:
        NotPublished: It does.
    """
    try:
        yield
    except Exception as error:
        raise _refused(error, work, rows) or error from error


def _refused(error: Exception, work: Work, rows: DataFrame) -> NotPublished | None:
    """Say what the server told a task, if that is why Spark failed."""
    said = _SAID.search(str(error))
    if said is None:
        return None
    if leftovers.STAGED in said[1]:
        return NotPublished(
            f"A table in which rows of {work.name} were staged is gone: {said[1].strip()}.",
            "A tidy swept it, or somebody dropped it; nothing was published, and the target is as it was.",
            "Run again.",
        )
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


def _sendable(rows: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """Return the rows in types that both Arrow and the staged table have: nested ones as text."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, ByteType, MapType, StructType, VariantType

    from twice.stores.values import WHOLE_JSON

    columns = []
    for field in rows.schema.fields:
        value = rows[quoted(field.name)]
        if isinstance(field.dataType, ArrayType | MapType | StructType | VariantType):
            value = F.to_json(value, WHOLE_JSON)
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
        strays = Strays(staging.within)
        few, is_all = _few(remaining)
        found = sum(batch.num_rows for batch in few)
        if not found and is_all:
            return
        if is_all:
            held = _to_bytes(list(strays.passing(few)))
            yield _answer(partition, task, rows=found, strays=strays.count, held=held)
            return
        table = staging.table(partition, task)
        reader = pa.RecordBatchReader.from_batches(few[0].schema, strays.passing(chain(few, remaining)))
        rows, by = _copied(staging, table, reader)
        yield _answer(partition, task, name=table.table, rows=rows, by=by, strays=strays.count)

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


def _copied(staging: Staging, table: Name, reader: pa.RecordBatchReader) -> tuple[int, int]:
    """Fill a table in one transaction; return how many rows came, and which transaction it was."""
    from adbc_driver_postgresql import dbapi

    made = sql.SQL("create unlogged table {} ({})").format(table.sql, definitions(staging.types))
    with dbapi.connect(staging.address) as connection:
        with connection.cursor() as cursor:
            if not staging.together:
                cursor.execute(made.as_string(None))
            rows = int(cursor.adbc_ingest(table.table, reader, mode="append", db_schema_name=table.schema))
            by = _noted(cursor, staging.together.journal, rows) if staging.together else 0
        connection.commit()
    return rows, by


def _noted(cursor: Any, journal: Name, rows: int) -> int:
    """Note the transaction at hand and its rows, and return its number."""
    cursor.execute(_THIS_TRANSACTION)
    by = int(cursor.fetchone()[0])
    noted = sql.SQL("insert into {} values ({}, {})").format(journal.sql, sql.Literal(by), sql.Literal(rows))
    cursor.execute(noted.as_string(None))
    return by


def _answer(
    partition: int, task: int, *, rows: int, strays: int, name: str = "", by: int = 0, held: bytes = b""
) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([partition], pa.int32()),
            "task": pa.array([task], pa.int64()),
            "name": pa.array([name], pa.string()),
            "rows": pa.array([rows], pa.int64()),
            "by": pa.array([by], pa.int64()),
            "strays": pa.array([strays], pa.int64()),
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
