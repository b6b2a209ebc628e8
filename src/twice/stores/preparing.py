"""What has to be known of a merge's source before it meets the table?

The source is computed once and kept. One aggregation over its keys finds NULL and repeated keys, and the bounds within
which the table has to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from twice.abilities import LookBack
from twice.merges import MergeRule, refuse_duplicates, refuse_incomparable, refuse_null_keys, refuse_null_order
from twice.slices import moment_literal, quoted, string_literal
from twice.stores.frames import fields_of, held_bytes, types, united
from twice.stores.values import LENGTH, is_unordered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BATCH = "_twice_batch"
_RANK = "_twice_rank"
_AGAIN = "_twice_again"
_BATCHES_AT_ONCE = 20
_SAMPLE = 5
_LISTED_VALUES = 100
# Keys, and whole rows, that a driver and its executors hold without being noticed.
KEYS_SENT_AT_MOST = 1_000_000
_BYTES_SENT_AT_MOST = 128 * 1024 * 1024
_TEXT_RANGES = (">= '", "<= '")


@dataclass(frozen=True)
class Source:
    """Checked source rows, computed once, and the part of the table in which their keys may be.

    `batches` are the rows of each of several batches; `rows` may be fewer, if only the last of a key are left. `size` is that
    of the rows in bytes, as executors hold them.
    """

    rows: DataFrame
    count: int
    tests: tuple[tuple[str, str], ...]
    batches: tuple[int, ...] = ()
    digest: tuple[int, int] = (0, 0)
    size: int = 0

    @property
    def is_light(self) -> bool:
        """Tell whether a driver and its executors can hold all rows without being noticed."""
        return self.count <= KEYS_SENT_AT_MOST and self.size <= _BYTES_SENT_AT_MOST

    @property
    def given(self) -> int:
        """How many rows there were, also those of which a later one is left."""
        return sum(self.batches) if self.batches else self.count

    @property
    def bounds(self) -> str:
        """A condition with literals that every row of the table with a key of the source fulfils."""
        return _all_of(self.tests)

    @property
    def quick_bounds(self) -> str:
        """Those of the bounds that are worth asking of every row of a file that was chosen by all of them: texts are slow."""
        return _all_of((key, test) for key, test in self.tests if not test.startswith(_TEXT_RANGES))

    def meets(self, rule: MergeRule, table: str, source: str) -> str:
        """Return the condition under which a row of the table meets one of the source."""
        equal = [f"{table}.{quoted(key)} = {source}.{quoted(key)}" for key in rule.keys]
        return " AND ".join([*equal, *(f"{table}.{quoted(key)} {test}" for key, test in self.tests)])


def prepared(rows: DataFrame, rule: MergeRule, layout: Sequence[str] = ()) -> Source:
    """Compute the source once, refuse keys that are NULL or repeated, and find its bounds.

    Raises:
        Misuse: The keys cannot be compared.
        NotPublished: With the keys named.
    """
    refuse_incomparable(fields_of(rows), rule)
    one_a_key = _one_a_key(rows, rule) if rule.order else rows
    # Kept where it was computed: a second look at it is no second read, and lost parts are an error.
    return _checked_source(one_a_key.localCheckpoint(eager=False), rule, layout, ())


def prepared_batches(batches: Sequence[DataFrame], rule: MergeRule, layout: Sequence[str] = ()) -> Source:
    """Compute several batches once, each checked by itself.

    Where the last row of a key alone counts, the others are left out; elsewhere every row knows its batch.

    Raises:
        Misuse: The keys cannot be compared.
        NotPublished: With the keys named.
    """
    from pyspark.sql import functions as F

    refuse_incomparable(fields_of(batches[0]), rule)
    numbered = [
        (_one_a_key(rows, rule) if rule.order else rows).withColumn(BATCH, F.lit(number))
        for number, rows in enumerate(batches)
    ]
    # A plan of hundreds of inputs takes Spark longer than its rows do.
    parts = [
        united(numbered[start : start + _BATCHES_AT_ONCE]).localCheckpoint(eager=len(batches) > _BATCHES_AT_ONCE)
        for start in range(0, len(numbered), _BATCHES_AT_ONCE)
    ]
    if rule.last_wins:
        return _last_of_each_key(united(parts), rule, layout, len(batches))
    source = _checked_source(united(parts), rule, layout, (BATCH,))
    counts = {row[BATCH]: row["count"] for row in source.rows.groupBy(BATCH).count().collect()}
    return replace(source, batches=tuple(counts.get(number, 0) for number in range(len(batches))))


def _checked_source(kept: DataFrame, rule: MergeRule, layout: Sequence[str], by: Sequence[str]) -> Source:
    """Look at the keys of rows that were computed, each batch by itself."""
    from pyspark.sql import functions as F

    keys = [kept[quoted(key)] for key in (*by, *rule.keys)]
    groups = kept.groupBy(*keys).agg(F.count(F.lit(1)).alias("_twice_n"), *_order_nulls(kept, rule))
    found = groups.agg(
        F.sum("_twice_n").alias("rows"),
        F.sum(F.when(F.col("_twice_n") > 1, 1).otherwise(0)).alias("repeated"),
        F.sum(F.when(any_null(rule.keys), F.col("_twice_n")).otherwise(0)).alias("null_keys"),
        F.sum("_twice_unordered").alias("unordered"),
        *digest_of(rule),
        *_extremes(kept, rule, layout),
    ).collect()
    facts = found[0].asDict()
    refuse_null_keys(facts["null_keys"] or 0, rule.keys)
    refuse_null_order(facts["unordered"] or 0, rule.order or "")
    if facts["repeated"]:
        sample = groups.where("_twice_n > 1").limit(_SAMPLE).collect()
        refuse_duplicates(facts["repeated"], [row.asDict() for row in sample], rule)
    tests = _tests(facts, _bounded(kept, rule))
    return Source(kept, facts["rows"] or 0, tests, digest=joined_digest(found), size=held_bytes(kept))


def _last_of_each_key(numbered: DataFrame, rule: MergeRule, layout: Sequence[str], batches: int) -> Source:
    """Check batches and keep the last row of each key, in one pass."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_key = Window.partitionBy(*map(quoted, rule.keys)).orderBy(F.col(BATCH).desc())
    again = F.lag(BATCH).over(by_key) == F.col(BATCH)
    ranked = numbered.withColumn(_RANK, F.row_number().over(by_key)).withColumn(_AGAIN, again)
    kept = ranked.localCheckpoint(eager=False)
    is_last = F.col(_RANK) == 1
    found = (
        kept.groupBy(BATCH)
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.count_if(is_last).alias("last"),
            F.count_if(F.col(_AGAIN) | any_null(rule.keys)).alias("refused"),
            *digest_of(rule, is_last),
            *_extremes(kept, rule, layout),
        )
        .collect()
    )
    if any(row["refused"] for row in found):
        _checked_source(numbered, rule, layout, (BATCH,))
    counts = {row[BATCH]: row["rows"] for row in found}
    last = kept.where(is_last).drop(_RANK, _AGAIN, BATCH)
    return Source(
        last,
        sum(row["last"] for row in found),
        _tests(_overall(found, _bounded(kept, rule)), _bounded(kept, rule)),
        tuple(counts.get(number, 0) for number in range(batches)),
        joined_digest(found),
        held_bytes(kept),
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


def digest_of(rule: MergeRule, counting: Column | None = None) -> tuple[Column, ...]:
    """Return what tells two sets of keys apart, without looking for each of them."""
    from pyspark.sql import functions as F

    hashed = F.xxhash64(*(F.col(quoted(key)) for key in rule.keys))
    if counting is not None:
        hashed = F.when(counting, hashed)
    # Summed in halves: two billion of them fit into a whole number, and decimals are slow.
    low, high = hashed.bitwiseAND(F.lit(0xFFFF_FFFF)), F.shiftrightunsigned(hashed, 32)
    return (
        F.bit_xor(hashed).alias("digest_xor"),
        F.try_sum(low).alias("digest_low"),
        F.try_sum(high).alias("digest_high"),
    )


def _order_nulls(rows: DataFrame, rule: MergeRule) -> list[Column]:
    from pyspark.sql import functions as F

    unordered = F.sum(F.when(rows[quoted(rule.order)].isNull(), 1).otherwise(0)) if rule.order else F.max(F.lit(0))
    return [unordered.alias("_twice_unordered")]


def any_null(keys: Sequence[str]) -> Column:
    """Say in SQL that one of the keys is NULL."""
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
    comparable = not any(is_unordered(field.dataType) for field in rows.schema.fields)
    return first.dropDuplicates() if comparable else first


# ---------------------------------------------------------------- bounds


def _bounded(rows: DataFrame, rule: MergeRule) -> list[tuple[int, str]]:
    """Return the keys whose values can be written as literals, and stand in files as they are read."""
    kinds = ("string", "date", "int", "bigint", "smallint", "tinyint")
    known = types(rows)
    return [
        (number, key)
        for number, key in enumerate(rule.keys)
        if (known[key] in kinds or known[key].startswith("decimal")) and LENGTH not in rows.schema[key].metadata
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
            # Not BETWEEN: Delta skips no files by it where a plan is not optimised.
            tests.extend([(key, f">= {literal(low)}"), (key, f"<= {literal(high)}")])
    return tuple(tests)


def _all_of(tests: Iterable[tuple[str, str]]) -> str:
    return " AND ".join(f"{quoted(key)} {test}" for key, test in tests)


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


def joined_digest(groups: Sequence[Any]) -> tuple[int, int]:
    """Return the digest of all keys from those of their parts; one without keys has none."""
    xor, total = 0, 0
    for row in groups:
        xor ^= row["digest_xor"] or 0
        total += ((row["digest_high"] or 0) << 32) + (row["digest_low"] or 0)
    return xor, total
