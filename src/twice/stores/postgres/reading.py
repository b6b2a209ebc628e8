"""How are a table's rows read, and what does the server know about them?

Few rows are fetched by the driver, as Arrow. Many are fetched by Spark's tasks, a range of pages each, all under one
snapshot that the driver holds open meanwhile: so a publish in between is seen by all of them or by none. They are kept
where they were fetched, since the snapshot ends with the reading, and a second one would be another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from psycopg import errors, sql
from psycopg.rows import dict_row

from twice.abilities import Repeated, Repeats, Trouble
from twice.data_tests import SAMPLE, Answer, DataTest, NotNull, check_columns
from twice.errors import NotPublished
from twice.stores import answering, finding
from twice.stores.postgres import arrow, bookkeeping, proofs, tasks
from twice.stores.postgres.connections import Connection, begin, comma, connected, fixed, one, readable
from twice.stores.postgres.kinds import Column, arrow_type, kind_of
from twice.stores.postgres.names import Name, column

_FEW_BYTES = 16 * 1024 * 1024
_PAGES_A_TASK = 4096  # 32 MB at PostgreSQL's usual 8 kB
_LEAVES = """
select n.nspname, c.relname, pg_relation_size(c.oid), current_setting('block_size')::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r'
    and (c.oid = to_regclass(%(name)s) or c.oid in (select relid from pg_partition_tree(to_regclass(%(name)s))))
"""


@dataclass(frozen=True)
class Reading:
    """What a task has to know to fetch a part of a table."""

    address: str
    snapshot: str
    columns: tuple[Column, ...]


def fetched(url: str, name: Name) -> pa.Table:
    """Return all rows as an Arrow table.

    Raises:
        NotPublished: There is no such table.
    """
    with connected(url) as connection:
        begin(connection)
        columns = _columns(connection, name)
    return _arrow(tasks.address_of(url), columns, sql.SQL("{}").format(name.sql))


def _columns(connection: Connection, name: Name) -> tuple[Column, ...]:
    columns = bookkeeping.columns_of(connection, name)
    if not columns:
        raise NotPublished(f"The table {name.table} does not exist yet.", fix="Run the pipeline that writes it.")
    return columns


def frame(url: str, name: Name, spark: Any) -> Any:
    """Return all rows as a frame; the driver holds no more than a few."""
    with connected(url) as connection:
        begin(connection, "isolation level repeatable read read only")
        columns = _columns(connection, name)
        if sum(size for _, _, size, _ in connection.execute(_LEAVES, {"name": name.text}).fetchall()) <= _FEW_BYTES:
            return arrow.framed(spark, fetched(url, name))
        connection.execute("set local idle_in_transaction_session_timeout = 0")
        parts = connection.execute(_LEAVES, {"name": name.text}).fetchall()
        snapshot = one(connection.execute("select pg_export_snapshot()"))[0]
        ranges = [
            (schema, table, start, start + _PAGES_A_TASK)
            for schema, table, size, block in parts
            for start in range(0, size // block + 1, _PAGES_A_TASK)
        ]
        reading = Reading(tasks.address_of(url), snapshot, columns)
        asked = spark.createDataFrame(ranges, "schema string, name string, low bigint, high bigint")
        found = arrow.mapped(asked.repartition(len(ranges)), _fetch_with(reading), _spark_schema(columns))
        return found.localCheckpoint(eager=True)


def _spark_schema(columns: Sequence[Column]) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(_schema(columns))


def _schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([(one.name, arrow_type(kind_of(one.type))) for one in columns])


def _fetch_with(reading: Reading) -> Any:
    def fetch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.to_pylist():
                pages = sql.SQL("{} where ctid >= {}::tid and ctid < {}::tid").format(
                    Name(part["schema"], part["name"]).sql,
                    sql.Literal(f"({part['low']},0)"),
                    sql.Literal(f"({part['high']},0)"),
                )
                yield from _arrow(reading.address, reading.columns, pages, reading.snapshot).to_batches()

    return fetch


def _arrow(address: str, columns: Sequence[Column], where: sql.Composable, snapshot: str = "") -> pa.Table:
    """Fetch rows as Arrow; what PostgreSQL alone knows comes as its text."""
    from adbc_driver_postgresql import dbapi

    schema = _schema(columns)
    as_text = [pa.types.is_string(kind) or pa.types.is_decimal(kind) for kind in schema.types]
    selected = comma(
        sql.SQL("{}::text").format(column(one.name)) if text else column(one.name)
        for one, text in zip(columns, as_text, strict=True)
    )
    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        if snapshot:
            cursor.execute("set transaction isolation level repeatable read read only")
            cursor.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)).as_string(None))
        cursor.execute(sql.SQL("select {}").format(fixed()).as_string(None))
        cursor.fetchall()
        cursor.execute(sql.SQL("select {} from {}").format(selected, where).as_string(None))
        found: pa.Table = cursor.fetch_arrow_table()
    return found.rename_columns(schema.names).cast(schema)


def repeats(url: str, name: Name, keys: Sequence[str], sample: int) -> Repeats:
    """Count the keys that are in several rows, and show some."""
    listed = comma(map(column, keys))
    groups = sql.SQL("select {0}, count(*) as rows from {1} group by {0} having count(*) > 1").format(listed, name.sql)
    with connected(url) as connection:
        begin(connection)
        totals = sql.SQL("select count(*), coalesce(sum(rows), 0) from ({}) groups").format(groups)
        count, rows = one(connection.execute(totals))
        if not count:
            return Repeats()
        query = sql.SQL("select * from ({}) groups order by rows desc, {} limit {}")
        found = connection.execute(query.format(groups, listed, sql.Literal(sample))).fetchall()
    return Repeats(count, int(rows), tuple(Repeated(dict(zip(keys, row, strict=False)), row[-1]) for row in found))


def answers(url: str, name: Name, tests: Sequence[DataTest]) -> list[Answer]:
    """Answer tests of a whole table."""
    with connected(url) as connection, readable(name.table):
        begin(connection)
        return answered(connection, name.sql, [one.name for one in _columns(connection, name)], tests)


def answered(
    connection: Connection, relation: sql.Composable, columns: Sequence[str], tests: Sequence[DataTest]
) -> list[Answer]:
    """Answer tests of a relation in one statement, and show rows of those that are broken in one each."""
    check_columns(tests, columns)
    found = [_plain(answering.expression(test, _quote)) for test in answering.asked(tests)]
    values = one(connection.execute(sql.SQL("select {} from {} rows").format(comma(found), relation))) if found else ()
    return answering.with_rows(tests, values, lambda test: _broken(connection, relation, test))


def _broken(connection: Connection, relation: sql.Composable, test: DataTest) -> list[Mapping[str, Any]]:
    lacks = _plain(answering.lacks([_quote(name) for name in test.named]))
    if isinstance(test, NotNull):
        query = sql.SQL("select * from {} rows where {} limit {}").format(relation, lacks, sql.Literal(SAMPLE))
        return list(connection.cursor(row_factory=dict_row).execute(query).fetchall())
    keys = comma(column(name) for name in test.named)
    several = sql.SQL("select {0}, count(*) from {1} rows where not ({2}) group by {0} having count(*) > 1")
    query = several.format(keys, relation, lacks) + sql.SQL(" order by count(*) desc, {} limit {}").format(
        keys, sql.Literal(SAMPLE)
    )
    return [answering.shown(test.named, row) for row in connection.execute(query).fetchall()]


def _plain(text: str) -> sql.Composed:
    """Return a text of SQL as it is; a brace in the name of a column asks for no part."""
    return sql.SQL(text.replace("{", "{{").replace("}", "}}")).format()


def _quote(name: str) -> str:
    return column(name).as_string(None)


def column_names(url: str, name: Name) -> list[str]:
    """Return the columns of a table, none if it is not there."""
    with connected(url) as connection, readable(name.table):
        return [one.name for one in bookkeeping.columns_of(connection, name)]


def rows_with(url: str, name: Name, values: Mapping[str, str], limit: int) -> list[dict[str, Any]]:
    """Find rows by what they hold; a text that is no value of a column's type is in no row."""
    with connected(url) as connection, readable(name.table):
        begin(connection)
        kinds = {one.name: one.type for one in _columns(connection, name)}
        finding.check(values, kinds)
        tests = [
            sql.SQL("{} = {}::{}").format(column(key), sql.Literal(text), sql.SQL(kinds[key]))
            for key, text in values.items()
        ]
        query = sql.SQL("select * from {} where {} limit {}").format(
            name.sql, sql.SQL(" and ").join(tests), sql.Literal(limit)
        )
        try:
            return connection.cursor(row_factory=dict_row).execute(query).fetchall()
        except errors.DataError:
            return []


def troubles(url: str, name: Name, target: str) -> list[Trouble]:
    """Tell whether changes by others would go unnoticed."""
    with connected(url) as connection:
        if not bookkeeping.Books(name.schema).are_there(connection):
            return []
        lacking = proofs.unguarded(connection, name)
    if not lacking:
        return []
    return [
        Trouble(
            "foreign",
            f"Changes of postgres:{target} by others would not be noticed: a trigger is missing or switched off.",
            "The next publish makes it, if its role may.",
            is_wrong=False,
            named=tuple(table.table for table in lacking),
        )
    ]
