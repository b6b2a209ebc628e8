"""What may happen to a pipeline, as a list of steps that can be told again to any world."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

from oracle import Added, Appended, Merged, Oracle, Partitioned, Pointed, United

import twice

DAYS = ("2024-09-21", "2024-09-22", "2024-09-23")  # the last one begins an ISO week
SCHEMA = "id string, v string, n int, gone boolean, day date"
POINTS = (
    "inputs.resolved",
    "intended",
    "lease.taken",
    "view.open.before",
    "stage.before",
    "stage.after",
    "looked.again",
    "publish.before",
    "publish.after",
    "read.back",
    "confirmed",
)
# Inside of the store's publish, where each has points of its own.
INSIDE = ("landing", "landed")
HAND = ("meddle", "restore")


@dataclass(frozen=True)
class Case:
    """A pattern, and the plain model of what it should do."""

    pattern: Callable[[], Any]
    oracle: Callable[[], Oracle]
    keyed: bool = False
    ordered: bool = False
    texts: tuple[str | None, ...] = ("x", "y", "", None)
    besides: tuple[str, ...] = HAND
    lineage: str = ""


def week(day):
    year, number, _ = date.fromisoformat(day).isocalendar()
    return f"{year}_w{number}"


def month(day):
    return day[:7].replace("-", "_")


def compact(day):
    return day.replace("-", "")


CASES = {
    "merger-delete": Case(
        lambda: twice.merger(keys=["id"], deleted="gone"), lambda: Merged(["id"], "gone"), keyed=True
    ),
    "merger-soft-two-keys": Case(
        lambda: twice.merger(keys=["id", "v"], deleted="gone", soft=True),
        lambda: Merged(["id", "v"], "gone", soft=True),
        keyed=True,
        texts=("x", "y", ""),
    ),
    "merger-order-partitions": Case(
        lambda: twice.merger(keys=["id"], deleted="gone", order="n", partitioned_by=["v"]),
        lambda: Merged(["id"], "gone", order="n"),
        keyed=True,
        ordered=True,
        texts=("x", "y", None),
    ),
    "merger-insert-only": Case(
        lambda: twice.merger(keys=["id"], insert_only=True), lambda: Merged(["id"], insert_only=True), keyed=True
    ),
    "dedup": Case(lambda: twice.dedup_insert(keys=["id"]), lambda: Added(["id"]), keyed=True),
    "dedup-order-window": Case(
        lambda: twice.dedup_insert(keys=["id"], order="n", window="1 day", on="day"),
        lambda: Added(["id"], "n", 1),
        keyed=True,
        ordered=True,
    ),
    "writer": Case(twice.transactional_writer, Appended),
    "writer-lineage": Case(
        lambda: twice.transactional_writer(lineage="by"),
        lambda: Appended(lineage="by"),
        lineage="by",
        # Not "meddle": in memory the rows that a stranger leaves lose their slot, although the column tells it.
        besides=("restore",),
    ),
    "proxy": Case(twice.proxy, Pointed, besides=("point",)),
    "proxy-keep": Case(lambda: twice.proxy(keep=2), lambda: Pointed(2), besides=("point",)),
    "cleaner-week": Case(twice.fast_metadata_cleaner, lambda: United("period", week), besides=()),
    "cleaner-full": Case(
        lambda: twice.fast_metadata_cleaner(period="month", full=True),
        lambda: United("period", month, full=True),
        besides=(),
    ),
    "keyed-rows": Case(lambda: twice.keyed(keys=["id"]), lambda: Merged(["id"]), keyed=True),
    "keyed-partition": Case(lambda: twice.keyed(partition="loaded_for"), lambda: Partitioned("loaded_for")),
    "keyed-table": Case(
        lambda: twice.keyed(table="{start:%Y%m%d}"), lambda: United("table_name", compact, shared=False), besides=()
    ),
}


def input_rows(random, case, day):
    """Draw the rows of a slot: few keys, now and then one twice, or none."""
    if random.randint(0, 7) == 7:
        return []
    ids = list("abcd"[: random.randint(1, 4)])
    if random.randint(0, 7) == 7:
        ids.append(random.choice(["a", None]))
    if not case.keyed:
        ids.append(random.choice(["a", None]))
    return [
        {
            "id": one,
            "v": random.choice(case.texts),
            "n": random.choice([1, 2, 3]) if case.ordered and random.randint(0, 20) else random.choice([1, 2, None]),
            "gone": random.choice([False, None, True]),
            "day": random.choice([day, day, day, None, *DAYS]),
        }
        for one in ids
    ]


def story(random, case, length, kind="memory"):
    """Draw what happens, step by step, as far as it can happen to a kind of store."""
    steps = [("put", day, input_rows(random, case, day)) for day in DAYS]
    besides = [one for one in case.besides if kind not in ("parquet", "postgres") or one not in HAND]
    kinds = ["run"] * 3 + ["put"] * 3 + ["die"] * 3 + ["twin"] * 7 + ["tidy", "forget", *besides * 2]
    points = POINTS if case.oracle().has_view else tuple(point for point in POINTS if "view" not in point)
    if case.oracle().has_view:
        # A rebuilt ledger takes over the view's name and not the tables behind it, so that every run is refused.
        kinds.remove("forget")
    while len(steps) < length + len(DAYS):
        step, day = random.choice(kinds), random.choice(DAYS)
        force = random.randint(0, 2) == 2
        if step == "run":
            # A name that is pointed back twice is accepted twice, since only the version pointed at is remembered.
            accept = random.randint(0, 4) == 4 and "point" not in case.besides
            steps.append((step, day, force, accept))
        elif step == "put":
            steps += [(step, day, input_rows(random, case, day)), ("run", day, False, False)]
        elif step == "die":
            steps.append((step, day, force, random.choice(points + INSIDE), random.choice(["Died", "LostReply"])))
        elif step == "twin":
            # Both should have something to do, and meet where one of them has seen what the other changes.
            steps.append(("put", day, input_rows(random, case, day)))
            other, point = random.choice([day, *DAYS]), random.choice(points + points[-7:-3])
            rows = input_rows(random, case, other) if random.randint(0, 2) else None
            steps.append((step, day, force, point, other, random.randint(0, 2) == 2, rows))
        elif step == "meddle":
            steps.append((step, day))
        elif step in ("restore", "point"):
            steps.append((step, random.randint(0, 9)))
        else:
            steps.append((step,))
    return steps
