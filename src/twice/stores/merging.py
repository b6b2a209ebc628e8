"""How is a merge written with frames?

The source is computed once and kept; one aggregation over its keys finds NULL and repeated keys and
the bounds within which the table has to be read. One join with that part of the table tells which
rows really change. Stores write only those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from twice import merges
from twice.abilities import Editions, LookBack
from twice.merges import (
    MergeRule,
    changes_text,
    refuse_duplicates,
    refuse_null_keys,
    refuse_null_order,
    refuse_repeated,
)
from twice.slices import moment_literal, quoted, string_literal
from twice.stores.frames import types, united

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ACTION = "_twice_action"
LABEL, GONE = "_twice_edition", "_twice_gone"
INSERT, UPDATE, DELETE = "insert", "update", "delete"
_FILE = "_twice_file"
_COPIES = "_twice_copies"
_THERE = "_twice_there_"
_RANK = "_twice_rank"
_AGAIN = "_twice_again"
_BATCH = "_twice_batch"
_STEPS = "_twice_steps"
_ROW = "_twice_row"
_AFTER = "_twice_after"
_BATCHES_AT_ONCE = 20
_SAMPLE = 5
_LISTED_VALUES = 100
_ROWS_A_FILE = 1_000_000
# Keys, and whole rows, that a driver and its executors hold without being noticed.
_KEYS_SENT_AT_MOST = 1_000_000
_ROWS_SENT_AT_MOST = 250_000


@dataclass(frozen=True)
class Source:
    """Checked source rows, computed once, and the part of the table in which their keys may be.

    `batches` are the rows of each of several batches; `rows` may be fewer, if only the last of a key are left.
    """

    rows: DataFrame
    count: int
    tests: tuple[tuple[str, str], ...]
    batches: tuple[int, ...] = ()
    digest: tuple[int, Decimal] = (0, Decimal(0))

    @property
    def given(self) -> int:
        """How many rows there were, also those of which a later one is left."""
        return sum(self.batches) if self.batches else self.count

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
    """The source rows that change something, each with its action, computed once.

    `matched` are those whose key is in the table, `new` the others, if there are any.
    """

    matched: DataFrame
    new: DataFrame | None
    inserted: int
    updated: int
    deleted: int
    files: tuple[str, ...]

    @property
    def rows(self) -> DataFrame:
        """All of them."""
        return self.matched if self.new is None else self.matched.unionByName(self.new)

    @property
    def total(self) -> int:
        """How many rows of the table change."""
        return self.inserted + self.updated + self.deleted

    @property
    def upserts(self) -> DataFrame:
        """The rows as the table will hold them, in few files."""
        kept = self.rows.where(f"{ACTION} <> '{DELETE}'").drop(ACTION)
        return kept.coalesce(1 + self.total // _ROWS_A_FILE)

    def notes(self, count: int) -> tuple[str, ...]:
        """What the outcome says."""
        return (changes_text(self.inserted, self.updated, self.deleted, count),)


def prepared(rows: DataFrame, rule: MergeRule, layout: Sequence[str] = ()) -> Source:
    """Compute the source once, refuse keys that are NULL or repeated, and find its bounds.

    Raises:
        NotPublished: With the keys named.
    """
    one_a_key = _one_a_key(rows, rule) if rule.order else rows
    # Kept where it was computed: a second look at it is no second read, and lost parts are an error.
    return _checked_source(one_a_key.localCheckpoint(eager=False), rule, layout, ())


def prepared_batches(batches: Sequence[DataFrame], rule: MergeRule, layout: Sequence[str] = ()) -> Source:
    """Compute several batches once, each checked by itself.

    Where the last row of a key alone counts, the others are left out; elsewhere every row knows its batch.

    Raises:
        NotPublished: With the keys named.
    """
    from pyspark.sql import functions as F

    numbered = [
        (_one_a_key(rows, rule) if rule.order else rows).withColumn(_BATCH, F.lit(number))
        for number, rows in enumerate(batches)
    ]
    # A plan of hundreds of inputs takes Spark longer than its rows do.
    parts = [
        united(numbered[start : start + _BATCHES_AT_ONCE]).localCheckpoint(eager=len(batches) > _BATCHES_AT_ONCE)
        for start in range(0, len(numbered), _BATCHES_AT_ONCE)
    ]
    if rule.last_wins:
        return _last_of_each_key(united(parts), rule, layout, len(batches))
    source = _checked_source(united(parts), rule, layout, (_BATCH,))
    counts = {row[_BATCH]: row["count"] for row in source.rows.groupBy(_BATCH).count().collect()}
    return replace(source, batches=tuple(counts.get(number, 0) for number in range(len(batches))))


def _checked_source(kept: DataFrame, rule: MergeRule, layout: Sequence[str], by: Sequence[str]) -> Source:
    """Look at the keys of rows that were computed, each batch by itself."""
    from pyspark.sql import functions as F

    keys = [kept[quoted(key)] for key in (*by, *rule.keys)]
    groups = kept.groupBy(*keys).agg(F.count(F.lit(1)).alias("_twice_n"), *_order_nulls(kept, rule))
    found = groups.agg(
        F.sum("_twice_n").alias("rows"),
        F.sum(F.when(F.col("_twice_n") > 1, 1).otherwise(0)).alias("repeated"),
        F.sum(F.when(_any_null(rule.keys), F.col("_twice_n")).otherwise(0)).alias("null_keys"),
        F.sum("_twice_unordered").alias("unordered"),
        *_digest(rule),
        *_extremes(kept, rule, layout),
    ).collect()
    facts = found[0].asDict()
    refuse_null_keys(facts["null_keys"] or 0, rule.keys)
    refuse_null_order(facts["unordered"] or 0, rule.order or "")
    if facts["repeated"]:
        sample = groups.where("_twice_n > 1").limit(_SAMPLE).collect()
        refuse_duplicates(facts["repeated"], [row.asDict() for row in sample], rule)
    return Source(kept, facts["rows"] or 0, _tests(facts, _bounded(kept, rule)), digest=_joined_digest(found))


def _last_of_each_key(numbered: DataFrame, rule: MergeRule, layout: Sequence[str], batches: int) -> Source:
    """Check batches and keep the last row of each key, in one pass."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_key = Window.partitionBy(*map(quoted, rule.keys)).orderBy(F.col(_BATCH).desc())
    again = F.lag(_BATCH).over(by_key) == F.col(_BATCH)
    ranked = numbered.withColumn(_RANK, F.row_number().over(by_key)).withColumn(_AGAIN, again)
    kept = ranked.localCheckpoint(eager=False)
    is_last = F.col(_RANK) == 1
    found = (
        kept.groupBy(_BATCH)
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.count_if(is_last).alias("last"),
            F.count_if(F.col(_AGAIN) | _any_null(rule.keys)).alias("refused"),
            *_digest(rule, is_last),
            *_extremes(kept, rule, layout),
        )
        .collect()
    )
    if any(row["refused"] for row in found):
        _checked_source(numbered, rule, layout, (_BATCH,))
    counts = {row[_BATCH]: row["rows"] for row in found}
    last = kept.where(is_last).drop(_RANK, _AGAIN, _BATCH)
    return Source(
        last,
        sum(row["last"] for row in found),
        _tests(_overall(found, _bounded(kept, rule)), _bounded(kept, rule)),
        tuple(counts.get(number, 0) for number in range(batches)),
        _joined_digest(found),
    )


def _overall(found: Sequence[Any], keys: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """Return the extremes of all batches."""
    overall: dict[str, Any] = {}
    for number, _ in keys:
        for name, pick in ((f"low_{number}", min), (f"high_{number}", max)):
            overall[name] = pick((row[name] for row in found if row[name] is not None), default=None)
        if found and f"set_{number}" in found[0]:
            overall[f"set_{number}"] = {value for row in found for value in row[f"set_{number}"]}
    return overall


def _extremes(rows: DataFrame, rule: MergeRule, layout: Sequence[str]) -> list[Column]:
    """Return what the bounds are made of: the ends of each key, and the values of those that lay the table out."""
    from pyspark.sql import functions as F

    bounded = _bounded(rows, rule)
    return [
        *(F.min(quoted(key)).alias(f"low_{n}") for n, key in bounded),
        *(F.max(quoted(key)).alias(f"high_{n}") for n, key in bounded),
        *(F.collect_set(quoted(key)).alias(f"set_{n}") for n, key in bounded if key in layout),
    ]


def _digest(rule: MergeRule, counting: Column | None = None) -> tuple[Column, Column]:
    """Return what tells two sets of keys apart, without looking for each of them."""
    from pyspark.sql import functions as F

    hashed = F.xxhash64(*(F.col(quoted(key)) for key in rule.keys))
    if counting is not None:
        hashed = F.when(counting, hashed)
    return F.bit_xor(hashed).alias("digest_xor"), F.try_sum(hashed.cast("decimal(38,0)")).alias("digest_sum")


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
    return stored(rows.where(~_is_gone(rows, rule)), rule) if rule.besides else rows


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
    keys = changed.matched.select(*map(quoted, rule.keys))
    sent = _hinted(keys, changed.total - changed.inserted)
    return target.join(sent, list(rule.keys), "left_anti").select(*map(quoted, target.columns))


def changes(source: Source, target: DataFrame, rule: MergeRule) -> Changes:
    """Join the source with the table, and keep what changes it.

    Raises:
        NotPublished: The table itself holds a key that changes in several rows.
    """
    from pyspark.sql import functions as F

    rows, columns = source.rows, rule.stored(source.rows.columns)
    located = _with_file(target)
    # Of rows that are too many to travel the keys do, and leave less of the table to be joined.
    searched = located if source.count <= _ROWS_SENT_AT_MOST else _hits(source, located, rule)
    there = searched.select(
        *(F.col(quoted(column)).alias(f"{_THERE}{number}") for number, column in enumerate(columns)), _FILE
    )
    on = [rows[quoted(key)] == there[f"{_THERE}{columns.index(key)}"] for key in rule.keys]
    joined = _hinted(rows, source.count, _ROWS_SENT_AT_MOST).join(there, on, "inner")
    found = joined.select(
        *(rows[quoted(column)] for column in columns),
        _action(rows, there, columns, rule).alias(ACTION),
        _FILE,
    ).localCheckpoint(eager=False)
    groups = found.groupBy(ACTION, _FILE).agg(F.count(F.lit(1)).alias("n"), *_digest(rule)).collect()
    matched = sum(row["n"] for row in groups)
    if _is_all_of(source, groups):
        return _counted_changes(found, None, 0, groups)
    lacking = _lacking(source, found, columns, rule)
    counts = lacking.agg(F.count(F.lit(1)).alias("n"), F.count(ACTION).alias("inserted")).collect()[0]
    if matched + counts["n"] > source.count:
        _refuse_copies(found, rule)
    return _counted_changes(found, lacking.where(f"{ACTION} IS NOT NULL"), counts["inserted"], groups)


def _is_all_of(source: Source, groups: Sequence[Any]) -> bool:
    """Tell whether the table holds every key of the source, and each of them once."""
    return sum(row["n"] for row in groups) == source.count and _joined_digest(groups) == source.digest


def _joined_digest(groups: Sequence[Any]) -> tuple[int, Decimal]:
    """Return the digest of all keys from those of their parts; one without keys has none."""
    xor, total = 0, Decimal(0)
    for row in groups:
        xor, total = xor ^ (row["digest_xor"] or 0), total + (row["digest_sum"] or Decimal(0))
    return xor, total


def _lacking(source: Source, found: DataFrame, columns: Sequence[str], rule: MergeRule) -> DataFrame:
    """Return the source rows whose key the table lacks; those that are deleted already have nothing to do."""
    from pyspark.sql import functions as F

    keys = found.select(*map(quoted, rule.keys))
    rows = source.rows.join(_hinted(keys, source.count), list(rule.keys), "left_anti")
    # The live guard: a deleted row that is not there stays away, also when its batch is replayed.
    action = F.when(~_is_gone(rows, rule), F.lit(INSERT)).alias(ACTION)
    return rows.select(*(rows[quoted(column)] for column in columns), action).localCheckpoint(eager=False)


def _refuse_copies(found: DataFrame, rule: MergeRule) -> None:
    """Refuse changes of keys that the table holds in several rows."""
    from pyspark.sql import functions as F

    keys = [found[quoted(key)] for key in rule.keys]
    copies = found.groupBy(*keys).agg(F.count(F.lit(1)).alias("n"), F.count(ACTION).alias("changed"))
    sample = copies.where("n > 1 AND changed > 0").limit(_SAMPLE).collect()
    refuse_repeated([row.asDict() for row in sample], rule)


def _counted_changes(found: DataFrame, new: DataFrame | None, inserted: int, groups: Sequence[Any]) -> Changes:
    """Leave out what stays as it is."""
    totals = Counter[str]()
    for row in groups:
        totals[row[ACTION] or ""] += row["n"]
    files = tuple(sorted({row[_FILE] for row in groups if row[ACTION]}))
    changed = found.where(f"{ACTION} IS NOT NULL").drop(_FILE)
    return Changes(changed, new if inserted else None, inserted, totals[UPDATE], totals[DELETE], files)


def changes_of_batches(source: Source, target: DataFrame | None, rule: MergeRule) -> Changes:
    """Merge several batches in turn into the table, and keep what changes it: one row a key, however many batches.

    Without a table all that is left in the end is inserted.

    Raises:
        NotPublished: The table itself holds a key that changes in several rows.
    """
    from pyspark.sql import functions as F

    if rule.last_wins:
        return _all_new(source, rule) if target is None else changes(source, target, rule)
    rows, columns = source.rows, rule.stored([name for name in source.rows.columns if name != _BATCH])
    there = _there(source, target, columns, rule)
    steps = _steps(rows, [name for name in rows.columns if name != _BATCH], rule)
    on = [steps[quoted(key)] == there[f"{_THERE}{columns.index(key)}"] for key in rule.keys]
    joined = steps.join(_hinted(there, source.count, _ROWS_SENT_AT_MOST), on, "left")
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    before = F.struct(*(there[f"{_THERE}{number}"].alias(name) for number, name in enumerate(columns)))
    folded = joined.withColumn(
        _AFTER,
        F.aggregate(F.col(_STEPS), F.when(F.col(_FILE).isNotNull(), before), _step(columns, rule)),
    )
    after = F.col(_AFTER)
    same = F.lit(True)
    for number, name in enumerate(columns):
        same = same & _equal(after[name], there[f"{_THERE}{number}"], kinds[name])
    action = (
        F.when(F.col(_FILE).isNull(), F.when(after.isNotNull(), F.lit(INSERT)))
        .when(after.isNull(), F.lit(DELETE))
        .when(~same, F.lit(UPDATE))
    )
    found = folded.withColumn(ACTION, action).where(f"{ACTION} IS NOT NULL")
    values = [(steps[quoted(name)] if name in rule.keys else after[name].alias(name)) for name in columns]
    return _changes_of(found.select(*values, ACTION, _FILE, _COPIES), rule)


def _all_new(source: Source, rule: MergeRule) -> Changes:
    """Insert what is not marked as deleted: there is no table yet."""
    from pyspark.sql import functions as F

    rows = live(source.rows, rule).withColumn(ACTION, F.lit(INSERT))
    return Changes(rows.where("false"), rows, rows.count(), 0, 0, ())


def refuse_keys_there(rows: DataFrame, rule: MergeRule) -> None:
    """Refuse rows of a table whose keys are NULL or repeated.

    Raises:
        NotPublished: With the keys named.
    """
    from pyspark.sql import functions as F

    groups = rows.groupBy(*map(quoted, rule.keys)).agg(F.count(F.lit(1)).alias("_twice_n"))
    found = groups.where((F.col("_twice_n") > 1) | _any_null(rule.keys)).limit(_SAMPLE).collect()
    merges.refuse_keys_there([row.asDict() for row in found], rule)


def from_history(
    history: DataFrame, source: Source, rule: MergeRule, editions: Editions, there: DataFrame | None
) -> DataFrame:
    """Return the rows that keys of a table become of all change rows that count; a key that ends up without one is gone.

    `history` has the name of each row in the column `LABEL`. Only keys that the source, or the rows that it
    replaces, touch are looked at; for the whole table all keys, also those that `there`, the table itself, has.
    """
    from pyspark.sql import functions as F

    spark, keys = history.sparkSession, [quoted(key) for key in rule.keys]
    columns = rule.stored(source.rows.columns)
    numbers = spark.createDataFrame(
        [(name, n) for n, name in enumerate(editions.names)], f"{LABEL} string, {_BATCH} int"
    )
    counting = history.join(F.broadcast(numbers), LABEL)
    if editions.whole:
        touched = counting.select(*keys)
        touched = touched.union(there.select(*keys)) if there is not None else touched
    else:
        replaced = history.where(F.col(LABEL) == F.lit(editions.replaced)).select(*keys)
        touched = source.rows.select(*keys).union(replaced)
        counting = counting.join(_hinted(touched.distinct(), source.count), list(rule.keys), "left_semi")
    steps = _steps(counting, source.rows.columns, rule)
    kinds = {field.name: field.dataType.simpleString() for field in source.rows.schema.fields}
    nothing = F.lit(None).cast("struct<" + ",".join(f"{quoted(name)}:{kinds[name]}" for name in columns) + ">")
    folded = steps.withColumn(_AFTER, F.aggregate(F.col(_STEPS), nothing, _step(columns, rule)))
    joined = touched.distinct().join(folded, list(rule.keys), "left")
    after = F.col(_AFTER)
    values = [F.col(quoted(name)) if name in rule.keys else after[name].alias(name) for name in columns]
    return joined.select(*values, after.isNull().alias(GONE))


def _steps(numbered: DataFrame, columns: Sequence[str], rule: MergeRule) -> DataFrame:
    """Return for each key its rows in the order of their batches."""
    from pyspark.sql import functions as F

    row = F.struct(*(F.col(quoted(name)) for name in columns)).alias(_ROW)
    rows = F.collect_list(F.struct(F.col(_BATCH), row))
    in_turn = F.array_sort(rows, lambda one, other: one[_BATCH] - other[_BATCH])
    return numbered.groupBy(*map(quoted, rule.keys)).agg(in_turn.alias(_STEPS))


def _step(columns: Sequence[str], rule: MergeRule) -> Callable[[Column, Column], Column]:
    """Return what one batch does to a row of the table, which may be none."""
    from pyspark.sql import functions as F

    def step(row: Column, batch: Column) -> Column:
        new = batch[_ROW]
        kept = F.struct(*(new[name].alias(name) for name in columns))
        gone = F.lit(False)
        if rule.deleted and not rule.soft:
            gone = F.coalesce(new[rule.deleted].cast("boolean"), F.lit(False))
        late = F.lit(rule.insert_only)
        if rule.order and not rule.insert_only:
            late = F.coalesce(new[rule.order] < row[rule.order], F.lit(False))
        stays = row.isNotNull() & late
        return F.when(stays, row).when(~gone, kept)

    return step


def _there(source: Source, target: DataFrame | None, columns: Sequence[str], rule: MergeRule) -> DataFrame:
    """Return the rows of the table whose key is in the source, with their file, and how often the key is there."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if target is None:
        named = [F.col(quoted(column)).alias(f"{_THERE}{number}") for number, column in enumerate(columns)]
        none = source.rows.where("false").select(*named)
        return none.withColumn(_FILE, F.lit(None).cast("string")).withColumn(_COPIES, F.lit(0))
    hits = _hits(source, _with_file(target), rule)
    same_key = Window.partitionBy(*(hits[quoted(key)] for key in rule.keys))
    return hits.select(
        *(hits[quoted(column)].alias(f"{_THERE}{number}") for number, column in enumerate(columns)),
        _FILE,
        F.count(F.lit(1)).over(same_key).alias(_COPIES),
    )


def _with_file(target: DataFrame) -> DataFrame:
    """Return rows with the file that each is in; after a join Spark no longer knows it."""
    from pyspark.sql import functions as F

    return target.select("*", F.col("_metadata.file_path").alias(_FILE))


def _changes_of(found: DataFrame, rule: MergeRule) -> Changes:
    """Keep the changes, count them, and refuse those of a key that the table holds in several rows."""
    from pyspark.sql import functions as F

    kept = found.localCheckpoint(eager=False)
    groups = kept.groupBy(ACTION, _FILE).agg(F.count(F.lit(1)).alias("n"), F.max(_COPIES).alias("copies")).collect()
    if any(row["copies"] and row["copies"] > 1 for row in groups):
        sample = kept.where(f"{_COPIES} > 1").limit(_SAMPLE).collect()
        refuse_repeated([row.asDict() for row in sample], rule)
    there = [row for row in groups if row[ACTION] != INSERT]
    inserted = sum(row["n"] for row in groups if row[ACTION] == INSERT)
    new = kept.where(f"{ACTION} = '{INSERT}'").drop(_FILE, _COPIES)
    return _counted_changes(kept.where(f"{ACTION} <> '{INSERT}'").drop(_COPIES), new, inserted, there)


def _action(source: DataFrame, there: DataFrame, columns: Sequence[str], rule: MergeRule) -> Column:
    """Return what becomes of a row of the table that a source row meets: NULL leaves it alone."""
    from pyspark.sql import functions as F

    late = F.lit(rule.insert_only)
    if rule.order and not rule.insert_only:
        order = there[f"{_THERE}{columns.index(rule.order)}"]
        late = F.coalesce(source[quoted(rule.order)] < order, F.lit(False))
    kinds = {field.name: field.dataType for field in source.schema.fields}
    same = F.lit(True)
    for number, column in enumerate(columns):
        same = same & _equal(source[quoted(column)], there[f"{_THERE}{number}"], kinds[column])
    return F.when(late, F.lit(None)).when(_is_gone(source, rule), F.lit(DELETE)).when(~same, F.lit(UPDATE))


def _is_gone(source: DataFrame, rule: MergeRule) -> Column:
    """Tell whether a source row is marked as deleted, and so to be taken away."""
    from pyspark.sql import functions as F

    if not rule.deleted or rule.soft:
        return F.lit(False)
    return F.coalesce(source[quoted(rule.deleted)].cast("boolean"), F.lit(False))


def _equal(one: Column, other: Column, kind: Any) -> Column:
    """Compare two values; those that Spark cannot compare are compared as text."""
    from pyspark.sql import functions as F

    if _is_unordered(kind):
        one, other = F.to_json(F.struct(one)), F.to_json(F.struct(other))
    return one.eqNullSafe(other)


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
