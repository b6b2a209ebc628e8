"""How is a merge written with frames?

The source is computed once and kept; one aggregation over its keys finds NULL and repeated keys and
the bounds within which the table has to be read. One join with that part of the table tells which
rows really change. Stores write only those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from twice.abilities import LookBack
from twice.merges import (
    MergeRule,
    changes_text,
    refuse_duplicates,
    refuse_null_keys,
    refuse_null_order,
    refuse_repeated,
)
from twice.slices import moment_literal, quoted, string_literal
from twice.stores.frames import types

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ACTION = "_twice_action"
INSERT, UPDATE, DELETE = "insert", "update", "delete"
_FILE = "_twice_file"
_COPIES = "_twice_copies"
_THERE = "_twice_there_"
_RANK = "_twice_rank"
_SAMPLE = 5
_LISTED_VALUES = 100
_ROWS_A_FILE = 1_000_000
# Keys, and whole rows, that a driver and its executors hold without being noticed.
_KEYS_SENT_AT_MOST = 1_000_000
_ROWS_SENT_AT_MOST = 250_000


@dataclass(frozen=True)
class Source:
    """Checked source rows, computed once, and the part of the table in which their keys may be."""

    rows: DataFrame
    count: int
    tests: tuple[tuple[str, str], ...]

    @property
    def bounds(self) -> str:
        """A condition with literals that every row of the table with a key of the source fulfils."""
        return " AND ".join(f"{quoted(key)} {test}" for key, test in self.tests)

    def meets(self, rule: MergeRule, table: str, source: str) -> str:
        """Return the condition under which a row of the table meets one of the source."""
        equal = [f"{table}.{quoted(key)} = {source}.{quoted(key)}" for key in rule.keys]
        return " AND ".join([*equal, *(f"{table}.{quoted(key)} {test}" for key, test in self.tests)])


@dataclass(frozen=True)
class Changes:
    """The source rows that change something, each with its action, computed once."""

    rows: DataFrame
    inserted: int
    updated: int
    deleted: int
    files: tuple[str, ...]

    @property
    def total(self) -> int:
        """How many rows of the table change."""
        return self.inserted + self.updated + self.deleted

    @property
    def upserts(self) -> DataFrame:
        """The rows as the table will hold them, in few files."""
        kept = self.rows.where(f"{ACTION} <> '{DELETE}'").drop(ACTION, _FILE, _COPIES)
        return kept.coalesce(1 + self.total // _ROWS_A_FILE)

    def notes(self, count: int) -> tuple[str, ...]:
        """What the outcome says."""
        return (changes_text(self.inserted, self.updated, self.deleted, count),)


def prepared(rows: DataFrame, rule: MergeRule, layout: Sequence[str] = ()) -> Source:
    """Compute the source once, refuse keys that are NULL or repeated, and find its bounds.

    Raises:
        NotPublished: With the keys named.
    """
    from pyspark.sql import functions as F

    one_a_key = _one_a_key(rows, rule) if rule.order else rows
    # Kept where it was computed: a second look at it is no second read, and lost parts are an error.
    kept = one_a_key.localCheckpoint(eager=False)
    keys = [kept[quoted(key)] for key in rule.keys]
    groups = kept.groupBy(*keys).agg(F.count(F.lit(1)).alias("_twice_n"), *_order_nulls(kept, rule))
    found = groups.agg(
        F.sum("_twice_n").alias("rows"),
        F.sum(F.when(F.col("_twice_n") > 1, 1).otherwise(0)).alias("repeated"),
        F.sum(F.when(_any_null(rule.keys), F.col("_twice_n")).otherwise(0)).alias("null_keys"),
        F.sum("_twice_unordered").alias("unordered"),
        *(F.min(quoted(key)).alias(f"low_{n}") for n, key in _bounded(kept, rule)),
        *(F.max(quoted(key)).alias(f"high_{n}") for n, key in _bounded(kept, rule)),
        *(F.collect_set(quoted(key)).alias(f"set_{n}") for n, key in _bounded(kept, rule) if key in layout),
    ).first()
    facts = found.asDict() if found else {}
    refuse_null_keys(facts["null_keys"] or 0, rule.keys)
    refuse_null_order(facts["unordered"] or 0, rule.order or "")
    if facts["repeated"]:
        sample = groups.where("_twice_n > 1").limit(_SAMPLE).collect()
        refuse_duplicates(facts["repeated"], [row.asDict() for row in sample], rule)
    return Source(kept, facts["rows"] or 0, _tests(facts, _bounded(kept, rule)))


def _order_nulls(rows: DataFrame, rule: MergeRule) -> list[Column]:
    from pyspark.sql import functions as F

    unordered = F.sum(F.when(rows[quoted(rule.order)].isNull(), 1).otherwise(0)) if rule.order else F.max(F.lit(0))
    return [unordered.alias("_twice_unordered")]


def _any_null(keys: Sequence[str]) -> Column:
    from pyspark.sql import functions as F

    return F.expr(" OR ".join(f"{quoted(key)} IS NULL" for key in keys))


def _one_a_key(rows: DataFrame, rule: MergeRule) -> DataFrame:
    """Keep the rows of each key that come last (or first) in order, without exact copies."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = rows[quoted(rule.order or "")]
    # NULL comes first either way, so that it is kept and refused by name.
    by = order.asc_nulls_first() if rule.first else order.desc_nulls_first()
    window = Window.partitionBy(*(rows[quoted(key)] for key in rule.keys)).orderBy(by)
    first = rows.withColumn(_RANK, F.rank().over(window)).where(f"{_RANK} = 1").drop(_RANK)
    # Copies cannot be told where Spark cannot compare: they are then refused like any two rows with one key.
    comparable = not any(_is_unordered(field.dataType) for field in rows.schema.fields)
    return first.dropDuplicates() if comparable else first


# ---------------------------------------------------------------- bounds


def _bounded(rows: DataFrame, rule: MergeRule) -> list[tuple[int, str]]:
    """Return the keys whose values can be written as literals."""
    kinds = ("string", "date", "int", "bigint", "smallint", "tinyint")
    known = types(rows)
    return [
        (number, key) for number, key in enumerate(rule.keys) if known[key] in kinds or known[key].startswith("decimal")
    ]


def _tests(facts: Mapping[str, Any], keys: Sequence[tuple[int, str]]) -> tuple[tuple[str, str], ...]:
    """Return for each key what its values in the source are, or between which they lie."""
    tests = []
    for number, key in keys:
        low, high, listed = facts[f"low_{number}"], facts[f"high_{number}"], facts.get(f"set_{number}")
        if low is None:
            continue
        if listed is not None and len(listed) <= _LISTED_VALUES:
            tests.append((key, f"IN ({', '.join(literal(value) for value in sorted(listed))})"))
        else:
            tests.append((key, f"BETWEEN {literal(low)} AND {literal(high)}"))
    return tuple(tests)


def literal(value: Any) -> str:
    """Write a value as a literal of Spark SQL."""
    if isinstance(value, str):
        return string_literal(value)
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return f"{value}BD" if isinstance(value, Decimal) else str(value)


def since(look_back: LookBack | None, rows: DataFrame) -> str:
    """Return the look-back window as a condition on the table.

    It reaches back to the oldest row of the source, if that is older: a rerun has to find its own rows.

    Raises:
        NotPublished: A row has no time.
    """
    if look_back is None:
        return ""
    from pyspark.sql import functions as F

    column = quoted(look_back.column)
    kind = types(rows).get(look_back.column, "")
    if not kind.startswith(("date", "timestamp")):
        raise look_back.no_time()
    start = f"DATE '{look_back.since:%Y-%m-%d}'" if kind == "date" else moment_literal(look_back.since, kind)
    found = rows.agg(
        F.min(F.least(F.expr(start), F.col(column))).cast("string").alias("first"),
        F.sum(F.when(F.col(column).isNull(), 1).otherwise(0)).alias("unknown"),
    ).first()
    look_back.refuse_unknown((found["unknown"] if found else 0) or 0)
    if not found or found["first"] is None:
        return f"{column} >= {start}"
    return f"{column} >= CAST({string_literal(found['first'])} AS {kind})"


# ---------------------------------------------------------------- what changes


def live(rows: DataFrame, rule: MergeRule) -> DataFrame:
    """Return the rows of a first load: what is marked as deleted is not there."""
    from pyspark.sql import functions as F

    if not rule.besides:
        return rows
    mark = rows[quoted(rule.besides[0])].cast("boolean")
    return stored(rows.where(~F.coalesce(mark, F.lit(False))), rule)


def stored(rows: DataFrame, rule: MergeRule) -> DataFrame:
    """Return the columns that the table keeps."""
    return rows.drop(*rule.besides)


def within(target: DataFrame, *conditions: str) -> DataFrame:
    """Return the part of the table that fulfils some conditions; an empty one asks nothing."""
    for condition in filter(None, conditions):
        target = target.where(condition)
    return target


def without(target: DataFrame, changed: Changes, rule: MergeRule) -> DataFrame:
    """Return the rows of the table that do not change, in the columns that it keeps."""
    keys = changed.rows.where(f"{ACTION} <> '{INSERT}'").select(*map(quoted, rule.keys))
    sent = _hinted(keys, changed.total - changed.inserted)
    return target.join(sent, list(rule.keys), "left_anti").select(*map(quoted, target.columns))


def changes(source: Source, target: DataFrame, rule: MergeRule) -> Changes:
    """Join the source with the table, and keep what changes it.

    Raises:
        NotPublished: The table itself holds a key that changes in several rows.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rows = source.rows
    hits = _hits(source, target.select("*", F.col("_metadata.file_path").alias(_FILE)), rule)
    kept_columns = rule.stored(rows.columns)
    same_key = Window.partitionBy(*(hits[quoted(key)] for key in rule.keys))
    there = hits.select(
        *(hits[quoted(column)].alias(f"{_THERE}{number}") for number, column in enumerate(kept_columns)),
        _FILE,
        F.count(F.lit(1)).over(same_key).alias(_COPIES),
    )
    on = [rows[quoted(key)] == there[f"{_THERE}{kept_columns.index(key)}"] for key in rule.keys]
    joined = rows.join(_hinted(there, source.count, _ROWS_SENT_AT_MOST), on, "left")
    found = joined.withColumn(ACTION, _action(rows, there, kept_columns, rule)).where(f"{ACTION} IS NOT NULL")
    columns = (*map(quoted, kept_columns), ACTION, _FILE, _COPIES)
    kept = found.select(*(found[column] for column in columns)).localCheckpoint(eager=False)
    groups = kept.groupBy(ACTION, _FILE).agg(F.count(F.lit(1)).alias("n"), F.max(_COPIES).alias("copies")).collect()
    if any(row["copies"] and row["copies"] > 1 for row in groups):
        sample = kept.where(f"{_COPIES} > 1").limit(_SAMPLE).collect()
        refuse_repeated([row.asDict() for row in sample], rule)
    totals = Counter[str]()
    for row in groups:
        totals[row[ACTION]] += row["n"]
    files = tuple(sorted({row[_FILE] for row in groups if row[_FILE]}))
    return Changes(kept, totals[INSERT], totals[UPDATE], totals[DELETE], files)


def _action(source: DataFrame, there: DataFrame, columns: Sequence[str], rule: MergeRule) -> Column:
    """Return what becomes of a source row: NULL leaves the table alone."""
    from pyspark.sql import functions as F

    gone = F.lit(False)
    if rule.deleted and not rule.soft:
        gone = F.coalesce(source[quoted(rule.deleted)].cast("boolean"), F.lit(False))
    is_there = there[_FILE].isNotNull()
    late = F.lit(rule.insert_only)
    if rule.order and not rule.insert_only:
        order = there[f"{_THERE}{columns.index(rule.order)}"]
        late = F.coalesce(source[quoted(rule.order)] < order, F.lit(False))
    kinds = {field.name: field.dataType for field in source.schema.fields}
    same = F.lit(True)
    for number, column in enumerate(columns):
        pair = (source[quoted(column)], there[f"{_THERE}{number}"])
        ours, theirs = (F.to_json(F.struct(one)) for one in pair) if _is_unordered(kinds[column]) else pair
        same = same & ours.eqNullSafe(theirs)
    return (
        # The live guard: a deleted row that is not there stays away, also when its batch is replayed.
        F.when(~is_there, F.when(~gone, F.lit(INSERT)))
        .when(late, F.lit(None))
        .when(gone, F.lit(DELETE))
        .when(~same, F.lit(UPDATE))
    )


def _is_unordered(kind: Any) -> bool:
    """Tell whether Spark cannot compare values of a type: maps, at any depth."""
    return "map<" in kind.simpleString() or "variant" in kind.simpleString()


def missing(source: Source, target: DataFrame, rule: MergeRule) -> DataFrame:
    """Return the source rows whose key is not in the table."""
    hits = _hits(source, target, rule).select(*map(quoted, rule.keys))
    return source.rows.join(_hinted(hits, source.count), _equal_keys(rule), "left_anti")


def _hits(source: Source, target: DataFrame, rule: MergeRule) -> DataFrame:
    """Return the rows of the table whose key is in the source.

    Joined with the table, a small source travels to it. Spark would otherwise shuffle the whole
    table, since it never sends the left side of an outer or anti join.
    """
    keys = source.rows.select(*(source.rows[quoted(key)] for key in rule.keys))
    return target.join(_hinted(keys, source.count), _equal_keys(rule), "left_semi")


def _equal_keys(rule: MergeRule) -> list[str]:
    """Keys are compared by `=`: a source key is never NULL, and so finds no row whose key is."""
    return list(rule.keys)


def _hinted(rows: DataFrame, count: int, at_most: int = _KEYS_SENT_AT_MOST) -> DataFrame:
    from pyspark.sql import functions as F

    return F.broadcast(rows) if count <= at_most else rows
