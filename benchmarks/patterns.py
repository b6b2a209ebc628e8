"""What do the patterns win or cost on Delta? `make bench`, after overwrite.py.

Merges, deduplicated inserts and periods behind a view are measured against the statements that people
write by hand, on equal copies of one table. Prints a table of ratios. `--only merge,dedup` runs some of it.
"""

import argparse
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measure import Cost, Duel, duel, measured

import twice
from twice import settings
from twice.engine import Engine
from twice.merges import MergeRule
from twice.project import Project
from twice.stores import preparing

DAYS = 10
PERIODS = 200
WARM = 6
WARM_IF_LONG = 2
PERIOD_ROWS = 5_000
FILES_A_DAY = 10
MERGER = twice.merger(keys=["day", "visit"], partitioned_by=["day"])
VECTORS = "spark.databricks.delta.properties.defaults.enableDeletionVectors"


@dataclass(frozen=True)
class Pair:
    """Two equal tables: one is written through Twice, the other by hand."""

    name: str
    ours: Path
    theirs: Path


class Bench:
    """One session, and tables in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.engine = Engine(settings.load(root), lambda: {"delta"})
        self.spark = self.engine.spark
        self.project = Project(settings.load(root), self.spark)
        self._editions = 0
        self._written: Path | None = None

    # ---------------------------------------------------------------- tables and sources

    def visits(self, rows: int, files: int | None = None):
        """The rows of a table: ten days, ids in the order of days, a text as their key, about 120 bytes a row."""
        return self.visits_of(self.spark.range(0, rows, 1, files), rows)

    def visits_of(self, ids, rows: int):
        """Some of the rows, by their ids."""
        return ids.selectExpr(
            "id",
            "md5(cast(id AS string)) AS visit",
            f"date_add(DATE '2024-10-01', cast(id DIV {rows // DAYS} AS int)) AS day",
            "id % 100003 AS user",
            "concat('/page/', id % 5003, '/', md5(cast(id % 9973 AS string))) AS page",
            "cast(id % 600 AS int) AS seconds",
        )

    def pair(self, rows: int, files: int = 2 * DAYS, *, by_day: bool = True, vectors: bool = False) -> Pair:
        """Fill a table through Twice, and copy it for the other side."""
        self._editions += 1
        name = f"table{self._editions}"
        self.spark.conf.set(VECTORS, str(vectors).lower())
        frame = self.visits(rows, files)
        pattern = twice.data_overwrite(partitions=["day"]) if by_day else twice.data_overwrite()
        twice.publish(
            frame, to=f"delta:ours/{name}", pattern=pattern, slot=twice.slot("bench", key="base"), project=self.project
        )
        self.spark.conf.set(VECTORS, "false")
        ours, theirs = self.root / "ours" / name, self.root / "theirs" / name
        shutil.copytree(ours, theirs, ignore=shutil.ignore_patterns("_twice"))
        return Pair(name, ours, theirs)

    def source(self, frame) -> Callable[[], object]:
        """Write source rows to a file, and return a way to read them: both sides read the same bytes."""
        self._editions += 1
        path = str(self.root / "sources" / str(self._editions))
        frame.coalesce(2).write.parquet(path)
        return lambda: self.spark.read.schema(frame.schema).parquet(path)

    # ---------------------------------------------------------------- the two sides

    def publish(self, pair: Pair, rows, pattern) -> None:
        self._editions += 1
        slot = twice.slot("bench", key=f"{self._editions}")
        twice.publish(rows, to=f"delta:ours/{pair.name}", pattern=pattern, slot=slot, project=self.project)
        self._written = pair.ours

    def merge_by_hand(self, pair: Pair, rows, on: str) -> None:
        rows.createOrReplaceTempView("changes")
        self.spark.sql(
            f"MERGE INTO delta.`{pair.theirs}` t USING changes s ON {on}"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        self._written = pair.theirs

    def insert_by_hand(self, pair: Pair, rows, keys: list[str]) -> None:
        there = self.spark.read.format("delta").load(str(pair.theirs)).select(*keys)
        rows.join(there, keys, "left_anti").write.format("delta").mode("append").save(str(pair.theirs))
        self._written = pair.theirs

    def fight(self, ours, theirs, sources, times: int, warm: int = WARM) -> Duel:
        """Warm both sides up, then measure them in turns; each repetition has a source of its own."""
        ready = [sources(number) for number in range(times + warm)]
        for source in ready[times:]:
            for act in (ours, theirs):
                act(source())
        return duel(lambda n: ours(ready[n]()), lambda n: theirs(ready[n]()), times, self.after)

    def after(self, cost: Cost) -> None:
        """Count the bytes of data that the last commit added to its table."""
        if self._written is not None:
            cost.bytes_written = last_commit(self._written).bytes


@dataclass(frozen=True)
class Committed:
    """What a commit says of data files."""

    added: int
    removed: int
    bytes: int


def last_commit(table: Path) -> Committed:
    """Read the newest commit of a Delta table; a file that gets a deletion vector is not written anew."""
    newest = max((table / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    marked = {add["path"] for add in adds} & {remove["path"] for remove in removes}
    size = sum(add["deletionVector"]["sizeInBytes"] if add["path"] in marked else add["size"] for add in adds)
    return Committed(len(adds) - len(marked), len(removes) - len(marked), size)


# ---------------------------------------------------------------- printing


def head(title: str) -> None:
    print(f"\n{title:50} {'CPU':>6} {'wall':>6} {'bytes':>6}   CPU s ours/hand, bytes ours/hand")


def line(name: str, result: Duel) -> None:
    cpu = [result.median(side, "cpu_seconds") for side in ("ours", "theirs")]
    size = [result.median(side, "bytes_written") for side in ("ours", "theirs")]
    ratio = f"{size[0] / size[1]:6.3f}" if size[1] else f"{'-':>6}"
    kept = f", {size[0]:,.0f}/{size[1]:,.0f}" if size[1] else ""
    print(
        f"{name:50} {result.ratio('cpu_seconds'):6.2f} {result.ratio('wall_seconds'):6.2f} {ratio}"
        f"   {cpu[0]:.2f}/{cpu[1]:.2f}{kept}",
        flush=True,
    )


# ---------------------------------------------------------------- what is measured


def compare_merges(bench: Bench, rows: int, times: int) -> None:
    """One percent of the table changes, all of it within one day: against MERGE on the key, without and with the day.

    Both tables are as merges of Twice make them, with deletion vectors, or have none.
    """
    head(f"merge of 1 % within one of ten days, {rows:,} rows")
    day, spread = rows // DAYS, spread_over_a_day(rows)
    together = f"id >= {6 * day} AND id < {7 * day} AND id DIV {rows // 100} % 10 = {{0}} % 10"
    on_key, on_both = "t.visit = s.visit", "t.day = s.day AND t.visit = s.visit"
    cases = (
        ("spread over the day, ON t.visit = s.visit", spread, on_key, True),
        ("neighbours, ON t.visit = s.visit", together, on_key, True),
        ("no vectors, neighbours, ON t.visit = s.visit", together, on_key, False),
        ("no vectors, spread, ON t.visit = s.visit", spread, on_key, False),
        ("no vectors, spread, ON t.day = s.day AND ...", spread, on_both, False),
    )
    editions = itertools.count()
    for vectors, of_one_table in itertools.groupby(cases, lambda case: case[-1]):
        pair = bench.pair(rows, files=FILES_A_DAY * DAYS, vectors=vectors)
        for name, which, on, _ in of_one_table:
            result = bench.fight(
                lambda frame, pair=pair: bench.publish(pair, frame, MERGER),
                lambda frame, pair=pair, on=on: bench.merge_by_hand(pair, frame, on),
                lambda _, which=which: bench.source(changes(bench, rows, which, next(editions))),
                times,
                WARM_IF_LONG,
            )
            line(name, result)
        if not vectors:
            line("a bare copy of the day, and no merge", bare_copies(bench, pair, rows, times))
        forget(pair)


def spread_over_a_day(rows: int) -> str:
    """Choose other rows each time, by chance: those of the last time lie together in files of their own."""
    day = rows // DAYS
    return f"id >= {3 * day} AND id < {4 * day} AND pmod(xxhash64(id, {{0}}), 10) = 0"


def bare_copies(bench: Bench, pair: Pair, rows: int, times: int) -> Duel:
    """What every merge without vectors has to do at least where the changes are spread: read the day and write it."""
    there = bench.spark.read.format("delta").load(str(pair.theirs)).where("day = DATE '2024-10-04'")
    copies = str(bench.root / "copies")
    return bench.fight(
        lambda _: there.write.mode("overwrite").parquet(copies),
        lambda frame: bench.merge_by_hand(pair, frame, "t.visit = s.visit"),
        lambda n: bench.source(changes(bench, rows, spread_over_a_day(rows), 100 + n)),
        times,
        WARM_IF_LONG,
    )


def changes(bench: Bench, rows: int, which: str, edition: int):
    """Return some rows of the table, each with a value that no other edition has."""
    return changed(bench.visits(rows).where(which.format(edition)), edition)


def changed(frame, edition: int):
    return frame.selectExpr("id", "visit", "day", "user", "page", f"seconds + {1000 * (edition + 1)} AS seconds")


def forget(pair: Pair) -> None:
    shutil.rmtree(pair.ours)
    shutil.rmtree(pair.theirs)


def check_identical(bench: Bench, rows: int) -> None:
    """A source that changes nothing rewrites no file."""
    pair = bench.pair(rows)
    source = bench.source(bench.visits(rows).where("id % 10 = 0"))
    bench.publish(pair, source(), twice.merger(keys=["day", "id"], partitioned_by=["day"]))
    bench.merge_by_hand(pair, source(), "t.id = s.id")
    ours, theirs = last_commit(pair.ours), last_commit(pair.theirs)
    print(
        f"\nmerge of an identical source: files added/removed {ours.added}/{ours.removed}; by hand {theirs.added}/{theirs.removed}"
    )
    forget(pair)


def compare_unchanged(bench: Bench, rows: int, times: int) -> None:
    """The source holds the whole table, of which ninety percent is as it was."""
    head(f"merge of a source that is 90 % unchanged, {rows:,} rows")
    scattered, clustered = "pmod(xxhash64(id), 10) = {0} % 10", f"id DIV {rows // 10} = {{0}} % 10"
    cases = (
        ("deletion vectors, scattered", scattered, True),
        ("no deletion vectors, clustered", clustered, False),
        ("no deletion vectors, scattered", scattered, False),
    )
    for name, which, vectors in cases:
        pair = bench.pair(rows, by_day=False, vectors=vectors, files=10)
        state = "seconds"

        def edition(n: int, which=which):
            # Each edition holds the changes of all editions before it: nine tenths are as the table has them.
            nonlocal state
            state = f"if({which.format(n)}, {-n - 1}, {state})"
            columns = ("id", "visit", "day", "user", "page", f"{state} AS seconds")
            return bench.source(bench.visits(rows).selectExpr(*columns))

        # The warm-ups come first.
        ready = [edition(n) for n in range(times + WARM)]
        ours = lambda frame, pair=pair: bench.publish(pair, frame, twice.merger(keys=["id"]))  # noqa: E731
        theirs = lambda frame, pair=pair: bench.merge_by_hand(pair, frame, "t.id = s.id")  # noqa: E731
        for warm in ready[:WARM]:
            ours(warm()), theirs(warm())
        line(
            name,
            duel(
                lambda n, ours=ours, ready=ready: ours(ready[n + WARM]()),
                lambda n, theirs=theirs, ready=ready: theirs(ready[n + WARM]()),
                times,
                bench.after,
            ),
        )
        forget(pair)


def compare_inserts(bench: Bench, rows: int, times: int) -> None:
    """Two percent arrive, and half of it is there already: against left_anti and append."""
    head(f"dedup insert of {rows // 50:,} into {rows:,}")
    half = rows // 100
    for name, old, keys in (
        ("the old keys lie anywhere", "id % 100 = 0", ["visit"]),
        ("the key holds the day, and the old ones are recent", f"id >= {rows - half}", ["day", "visit"]),
    ):
        pair = bench.pair(rows)

        def batch(n: int, old=old):
            new = bench.visits(rows * 2).where(f"id >= {rows + n * half} AND id < {rows + (n + 1) * half}")
            return bench.source(bench.visits(rows).where(old).union(new))

        line(
            name,
            bench.fight(
                lambda frame, pair=pair, keys=keys: bench.publish(pair, frame, twice.dedup_insert(keys=keys)),
                lambda frame, pair=pair, keys=keys: bench.insert_by_hand(pair, frame, keys),
                batch,
                times,
            ),
        )
        forget(pair)


def compare_views(bench: Bench, _: int, times: int) -> None:
    """One period through a view of two hundred, against the same query on one table with partitions."""
    view = make_view(bench, "periods", PERIODS)
    table = str(bench.root / "theirs" / "periods")
    labels = [member for member in sorted(os.listdir(bench.root / "ours" / "periods")) if member[0] != "_"]
    whole = bench.spark.range(PERIODS * PERIOD_ROWS).selectExpr(
        "id", "id % 7 AS n", f"array({', '.join(map(repr, labels))})[cast(id DIV {PERIOD_ROWS} AS int)] AS period"
    )
    whole.repartitionByRange(4, "period").write.format("delta").partitionBy("period").save(table)

    def ask(frame, number):
        found = frame.where(f"period = '{labels[number * 7 % PERIODS]}'").selectExpr("count(*)", "sum(n)").first()
        assert found[0] == PERIOD_ROWS, found

    head(f"query of one period of {PERIODS}")
    ours = lambda n: ask(twice.read(bench.spark, f"delta:{view}", project=bench.project), n)  # noqa: E731
    theirs = lambda n: ask(bench.spark.read.format("delta").load(table), n)  # noqa: E731
    cold = measured(lambda: ours(0))
    for number in range(6):
        ours(number), theirs(number)
    bench._written = None
    line("through the view, read anew each time", duel(ours, theirs, 2 * times + 1, bench.after))
    kept = twice.read(bench.spark, f"delta:{view}", project=bench.project)
    loaded = bench.spark.read.format("delta").load(table)
    ask(kept, 0), ask(loaded, 0)
    line(
        "through a frame that is kept",
        duel(lambda n: ask(kept, n), lambda n: ask(loaded, n), 2 * times + 1, bench.after),
    )
    print(f"first read in a session: {cold.wall_seconds:.1f} s, CPU {cold.cpu_seconds:.1f} s")


def make_view(bench: Bench, name: str, periods: int) -> str:
    """Fill one period through Twice, and copy its table for the others."""
    view = f"ours/{name}"
    clean(bench, view)
    store = bench.project.store("delta")
    (first,) = (entry for entry in (bench.root / view).iterdir() if not entry.name.startswith("_"))
    for number in range(1, periods):
        label = f"1999_{number:03}"
        store.open_member(view, label, "period", PERIODS, "clean")
        shutil.copytree(first, first.parent / label)
    return view


def clean(bench: Bench, view: str) -> None:
    """Publish one period, by force if it is there."""
    frame = bench.spark.range(PERIOD_ROWS).selectExpr("id", "id % 7 AS n")
    pattern, slot = twice.fast_metadata_cleaner(period="day", full=True), twice.slot("clean", at="2024-10-01")
    twice.publish(frame, to=f"delta:{view}", pattern=pattern, slot=slot, force=True, project=bench.project)


def compare_cleaning(bench: Bench, _: int, times: int) -> None:
    """Clean one period of two hundred, and one of twenty."""
    large, small = make_view(bench, "large", PERIODS), make_view(bench, "small", PERIODS // 10)
    head("cleaning one period")
    for _ in range(3):
        clean(bench, large), clean(bench, small)
    bench._written = None
    result = duel(lambda _: clean(bench, large), lambda _: clean(bench, small), 4 * times + 1, bench.after)
    line(f"of {PERIODS}, against one of {PERIODS // 10}", result)


def share_of_checks(bench: Bench, rows: int, times: int) -> None:
    """How much of a merge is the look at its keys?"""
    pair = bench.pair(rows)
    pattern = twice.merger(keys=["day", "id"], partitioned_by=["day"])
    rule = MergeRule(("day", "id"))
    kept = []

    def check(frame):
        kept.append(preparing.prepared(frame, rule, ["day"]))

    condition = f"id % 10 = 0 AND id < {rows // 2}"
    ready = [bench.source(changed(bench.visits(rows).where(condition), n)) for n in range(times + 1)]
    check(ready[times]()), bench.publish(pair, ready[times](), pattern)
    looks = duel(lambda n: check(ready[n]()), lambda n: bench.publish(pair, ready[n](), pattern), times, bench.after)
    plain = duel(
        lambda n: ready[n]().localCheckpoint(eager=True),
        lambda n: check(ready[n]()),
        times,
        bench.after,
    )
    share = looks.ratio("cpu_seconds")
    print(
        f"\nlook at the keys of {rows // 20:,} rows: {share:.0%} of the merge's CPU, of which computing the rows alone"
        f" {share * plain.ratio('cpu_seconds'):.0%}"
    )
    forget(pair)


PARTS = {
    "dedup": compare_inserts,
    # A table as small as the others would show little but what Spark and Delta take for any statement.
    "merge": lambda bench, rows, times: compare_merges(bench, 6 * rows, times),
    "identical": lambda bench, rows, _: check_identical(bench, rows // 20),
    "view": compare_views,
    "clean": compare_cleaning,
    "unchanged": lambda bench, rows, times: compare_unchanged(bench, rows // 20, times),
    "checks": lambda bench, rows, times: share_of_checks(bench, rows // 5, times),
}


def run(parts: dict[str, Callable[[Bench, int, int], None]], rows: int, what: str) -> None:
    """Measure all parts, or those that are asked for, in one session."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--rows", type=int, default=rows, help="rows of the large tables")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", default=",".join(parts), help=f"some of {','.join(parts)}")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twice-bench-") as folder:
        root = Path(folder)
        (root / "twice.toml").write_text('[spark]\nmaster = "local[2]"\n[spark.conf]\n"spark.driver.memory" = "4g"\n')
        print(f"{asked.rows:,} rows, {asked.times} pairs, {os.cpu_count()} cores; ratios are ours / by hand")
        bench = Bench(root)
        for part in asked.only.split(","):
            parts[part](bench, asked.rows, asked.times)
        bench.engine.stop()


if __name__ == "__main__":
    run(PARTS, 10_000_000, __doc__)
