"""What makes two clean runs of the same code on the same inputs differ?

Every rule has a name, which a comment can allow, says why it is a problem, and what to write instead.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One way in which code is not deterministic."""

    name: str
    why: str
    instead: str


@dataclass(frozen=True)
class Remark:
    """One place where a rule is broken.

    `line` and `column` count from 1; both are 0 where only the expression is known. `is_allowed` marks
    one that a comment lets pass. `fills` names the column of the rows that the expression gives its value,
    where the code says so beside it.
    """

    rule: Rule
    file: str
    line: int
    column: int
    expression: str
    why: str
    instead: str
    is_allowed: bool = False
    fills: str = ""

    @property
    def place(self) -> str:
        """Where it is, as editors understand it."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


CLOCK = Rule(
    "clock",
    "The wall clock is another one in every run, so a rerun of a slot gives other rows.",
    "Use run.execution_time, the start of the slot, which is the same in every run (:execution_time in SQL).",
)
RANDOM = Rule(
    "random",
    "It is another value in every run, so a rerun of a slot gives other rows.",
    "Make it of columns that identify the row, such as F.sha2 or F.xxhash64 of a key, or uuid.uuid5 of it.",
)
SEEDED = "A seed is not enough: what a row gets depends on the partition that it lies in, and on its place there."
HASH = Rule(
    "hash",
    "Python's hash() of a text is another one in every process.",
    "Use F.xxhash64, F.sha2, zlib.crc32 or hashlib.",
)
ENVIRONMENT = Rule(
    "environment",
    "It depends on the machine or the process that runs it, which the fingerprint of the inputs does not tell.",
    "Declare the value with parameters= of the pipeline: then another value makes a new generation.",
)
SET_ORDER = Rule(
    "set-order",
    "A set of texts has another order in every process.",
    "Put it in order first: sorted(...).",
)
LAYOUT = Rule(
    "layout",
    "It depends on how the rows are spread over files and partitions, which differs with cores, sizes and retries.",
    "Number rows with row_number() over an order by a unique key, or make a key of their columns.",
)
ORDER = Rule(
    "order",
    "Which rows it takes, or in which order, is left to chance: it differs with partitions and retries.",
    "Put the rows in a total order first, by columns that no two rows share.",
)
UDF = Rule(
    "udf",
    "Spark takes a function for deterministic that is not, and may call it several times for one row.",
    "Make its result depend on its arguments alone; if that cannot be, mark it with .asNondeterministic().",
)
RULES = {rule.name: rule for rule in (CLOCK, RANDOM, HASH, ENVIRONMENT, SET_ORDER, LAYOUT, ORDER, UDF)}

LIMIT_INSTEAD = "Put the rows in order before: orderBy(a unique key).limit(n), in SQL: order by ... limit n."
DISTINCT_INSTEAD = "Choose the row: row_number() over a window by the keys, in a total order, and keep number 1."
PICK_INSTEAD = "Use F.min, F.max, or F.max_by / F.min_by over a unique column."
LIST_INSTEAD = "Put the list in order: F.sort_array(F.collect_list(...))."
SAMPLE_INSTEAD = "Choose rows by a hash of a unique key, such as F.abs(F.xxhash64(key)) % 100 < 5."
WINDOW_INSTEAD = "Order the window by columns that no two rows of a partition share."

# Functions of Spark, by the names that pyspark.sql.functions and SQL have in common.
CLOCK_FUNCTIONS = frozenset({"current_timestamp", "current_date", "current_time", "curdate", "now", "localtimestamp"})
CLOCK_WITHOUT_ARGUMENTS = frozenset({"unix_timestamp"})
RANDOM_FUNCTIONS = frozenset({"rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"})
LAYOUT_FUNCTIONS = frozenset(
    {
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
    }
)
PICKING_FUNCTIONS = frozenset({"first", "last", "first_value", "last_value", "any_value"})
LISTING_FUNCTIONS = frozenset({"collect_list", "collect_set", "array_agg", "listagg", "string_agg"})
RANKING_FUNCTIONS = frozenset({"row_number", "ntile", "lag", "lead", "nth_value"})
# Around a list, these give the same for every order of it.
ORDER_FREE_FUNCTIONS = frozenset(
    {
        "sort_array",
        "array_sort",
        "size",
        "array_size",
        "cardinality",
        "array_max",
        "array_min",
        "array_contains",
        "arrays_overlap",
        "exists",
        "forall",
    }
)


def of_function(name: str, *, arguments: bool) -> Rule | None:
    """Return the rule that a function of Spark breaks wherever it is called."""
    if name in CLOCK_FUNCTIONS or (name in CLOCK_WITHOUT_ARGUMENTS and not arguments):
        return CLOCK
    if name in RANDOM_FUNCTIONS:
        return RANDOM
    return LAYOUT if name in LAYOUT_FUNCTIONS else None
