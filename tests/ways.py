"""In which ways is a run repeated, so that a broken promise shows itself?

Each way builds worlds on a bench, does something that really happens to pipelines, and compares with what one clean
run leaves. It raises `Counterexample` where they differ. Its docstring is what the documentation says of it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import twice
from core.samples import receipt_of, slot_of
from databases import Database, table
from disks import Disk
from twice.abilities import Work
from twice.errors import Busy, Conflict, Misuse, ProofGone, Stranger, TwiceError
from twice.faults import Died, LostReply, armed, dying_at
from twice.handovers import take_over
from twice.prover import Counterexample, check, deaths_at_every_point
from twice.sight import Sight
from twice.stores import durable, sweep
from twice.stores import manifest as log
from twice.stores.delta import log as delta_log
from twice.stores.delta.log import Payload
from twice.stores.manifest import DataFile
from twice.stores.memory import MemoryStore
from worlds import World, once_at

DAY, NEXT, THIRD = "2024-09-20", "2024-09-21", "2024-09-22"


@dataclass
class Bench:
    """Where worlds are built: a folder, and what all of them are given."""

    folder: Path
    given: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "memory"
    spark: Any = None
    server: Any = None
    made: int = 0

    def new_folder(self) -> Path:
        self.made += 1
        return self.folder / str(self.made)

    def world(self, **settings: Any) -> World:
        database = Database.made(self.server) if self.server else None
        return World(self.new_folder(), self.kind, self.spark, database=database, **{**settings, **self.given})

    def copies_of(self, world: World) -> Callable[[], World]:
        return lambda: world.copied(self.new_folder())


Way = Callable[[Bench], None]
WAYS: dict[str, Way] = {}


def way(act: Way) -> Way:
    """Put a way on the list, under its name in words."""
    WAYS[act.__name__.replace("_", " ")] = act
    return act


def tried(act: Way, bench: Bench) -> None:
    """Go a way; a run that fails where a clean one would not is a counterexample too."""
    try:
        act(bench)
    except (TwiceError, Conflict) as error:
        raise Counterexample(f"{type(error).__name__}: {error}") from error


def demand(found: Any, expected: Any, what: str) -> None:
    if found != expected:
        raise Counterexample(f"{what}: {found!r} instead of {expected!r}")


def refused(act: Callable[[], Any], what: str, error: type[TwiceError] = TwiceError) -> None:
    try:
        act()
    except error:
        return
    raise Counterexample(f"{what} was not refused")


def put(world: World, **days: list[str]) -> World:
    for day, ids in days.items():
        world.put(f"2024-09-{day[1:]}", ids)
    return world


def sorted_rows(world: World) -> list[str]:
    return sorted(str(sorted(row.items())) for row in world.records())


def rebuilt(world: World) -> None:
    sight = take_over(world.store, world.project.ledger, world.target)
    pairs = [(receipt, sight.version) for receipt in sight.receipts.values()]
    world.project.ledger.rebuild([f"{world.kind}:{world.target}"], pairs)


# ---------------------------------------------------------------- deaths


@way
def death_at_every_point(bench: Bench) -> None:
    """A first run dies at every fault point, or loses the reply there, and runs again."""
    first = put(bench.world(script=lambda world: world.run(DAY)), d20=["a", "b"])
    check(deaths_at_every_point(bench.copies_of(first)))


@way
def death_in_a_correction(bench: Bench) -> None:
    """A run that publishes a corrected slot dies at every fault point, and runs again."""
    world = put(bench.world(script=lambda world: world.run(NEXT)), d20=["a", "b"], d21=["c"])
    for day in (DAY, NEXT):
        world.run(day)
    put(world, d21=["c", "d"])
    check(deaths_at_every_point(bench.copies_of(world)))


@way
def death_in_a_replay(bench: Bench) -> None:
    """A run that does an older slot again, with all later ones, dies at every fault point, and runs again."""
    world = bench.world(script=lambda world: world.run(DAY), pattern=twice.stateful_merger(keys=["id"]))
    for day, ids in ((DAY, ["a", "b"]), (NEXT, ["b", "c"]), (THIRD, ["c", "d"])):
        world.put(day, ids)
        world.run(day)
    put(world, d20=["b", "e"])
    check(deaths_at_every_point(bench.copies_of(world)))


@way
def death_in_a_backfill(bench: Bench) -> None:
    """A backfill of three slots dies at every fault point, and is asked for again."""
    world = bench.world(script=lambda world: twice.backfill(world.pipeline, DAY, "2024-09-23", project=world.project))
    put(world, d20=["a"], d21=["b"], d22=["c"])
    check(deaths_at_every_point(bench.copies_of(world)))


class StagingArea(MemoryStore):
    """A memory store whose staged rows lie outside the attempt, and whose publish may arrive late."""

    def __init__(self) -> None:
        super().__init__()
        self.staging: dict[str, Any] = {}
        self.late: list[Callable[[], None]] = []
        self.loses = False

    def stage_slice(self, work, rows, bounds):
        staged = super().stage_slice(work, rows, bounds)
        self.staging[work.attempt] = staged.handle
        return replace(staged, handle=("staged", work.attempt))

    def publish(self, work, staged, receipts):
        if self.loses:
            self.loses = False
            self.late.append(lambda: self.publish(work, staged, receipts))
            raise LostReply("the connection is gone")
        kind, rows, bounds = self.staging.get(work.attempt, ("slice", [], None))
        return super().publish(work, replace(staged, handle=(kind, rows, bounds or _Nothing())), receipts)

    def discard(self, work, staged):
        self.staging.pop(work.attempt, None)


class _Nothing:
    """The slice of rows whose files are gone: holds none."""

    def holds(self, row):
        return False


@way
def a_publish_that_arrives_after_its_reply_was_lost(bench: Bench) -> None:
    """The reply is lost, the run says *unknown*, and then its publish arrives after all."""
    world = put(bench.world(memory=StagingArea()), d20=["a", "b"])
    world.memory.loses = True
    refused(lambda: world.run(DAY), "a publish without an answer")
    for arrive in world.memory.late:
        arrive()
    demand(world.by_day(), {DAY: ["a", "b"]}, "rows after the late arrival")
    demand(world.run(DAY).state, "skipped", "the rerun")


# ---------------------------------------------------------------- repetitions


@way
def twice_in_a_row(bench: Bench) -> None:
    """Every slot is run twice; the second run skips, and moves no version."""
    world = put(bench.world(), d20=["a", "b"], d21=["c"])
    for day in (DAY, NEXT):
        world.run(day)
    before, version = world.snapshot(), world.sight().version
    for day in (DAY, NEXT):
        demand(world.run(day).state, "skipped", f"the second run of {day}")
    demand((world.snapshot(), world.sight().version), (before, version), "after the second runs")


@way
def twice_in_a_row_with_touched_files(bench: Bench) -> None:
    """The input is delivered again with the same content, and the slot is run again: it skips."""
    world = put(bench.world(), d20=["a", "b"])
    world.run(DAY)
    put(world, d20=["a", "b"])
    demand(world.run(DAY).state, "skipped", "the run after a delivery of the same bytes")


@way
def twice_by_force(bench: Bench) -> None:
    """A slot is published again with `--force`: the rows are the same."""
    world = put(bench.world(), d20=["a", "b"], d21=["b", "c"])
    for day in (DAY, NEXT):
        world.run(day)
    before = sorted_rows(world)
    world.run(NEXT, force=True)
    demand(sorted_rows(world), before, "rows after a forced rerun")


@way
def the_last_delivery_by_force(bench: Bench) -> None:
    """A day deletes a row, and that day is published again with `--force`: the row stays away."""
    world = bench.world(pattern=twice.merger(keys=["id"], deleted="gone"), schema="id string, gone boolean, day date")
    world.put_rows(DAY, [{"id": "a", "gone": False, "day": DAY}, {"id": "b", "gone": False, "day": DAY}])
    world.put_rows(NEXT, [{"id": "b", "gone": True, "day": NEXT}])
    for day in (DAY, NEXT):
        world.run(day)
    world.run(NEXT, force=True)
    demand(world.table_rows("id"), [("a",)], "rows after the deletion was replayed")


@way
def rows_without_a_key(bench: Bench) -> None:
    """A row without its key is refused, or at least found again by a forced rerun."""
    world = bench.world(pattern=twice.merger(keys=["id"]))
    world.put_rows(DAY, [{"id": None, "day": DAY}])
    try:
        world.run(DAY)
        world.run(DAY, force=True)
    except twice.NotPublished:
        pass
    if len(world.records()) > 1:
        raise Counterexample(f"the row was added twice: {world.records()}")


@way
def changed_input(bench: Bench) -> None:
    """Every slot is corrected and run again; the table is that of one clean run on the corrected inputs."""
    final = {"d20": ["a", "x"], "d21": ["y"]}
    corrected = put(bench.world(), d20=["a", "b"], d21=["c", "d"])
    clean = put(bench.world(), **final)
    for world in (corrected, clean):
        for day in (DAY, NEXT):
            world.run(day)
    put(corrected, **final)
    for day in (DAY, NEXT):
        corrected.run(day)
    demand(sorted_rows(corrected), sorted_rows(clean), "rows after the corrections")


@way
def an_older_slot_after_a_newer_one(bench: Bench) -> None:
    """Slots arrive in the wrong order; the table is that of the right order."""
    settings = {"pattern": twice.stateful_merger(keys=["id"]), "schema": "id string, v int, day date"}
    late, right = bench.world(**settings), bench.world(**settings)
    for world, order in ((late, (NEXT, DAY)), (right, (DAY, NEXT))):
        for number, day in enumerate((DAY, NEXT)):
            world.put_rows(day, [{"id": "a", "v": number, "day": day}, {"id": day, "v": number, "day": day}])
        for day in order:
            world.run(day)
    demand(sorted_rows(late), sorted_rows(right), "rows")


@way
def an_older_change_after_a_newer_one(bench: Bench) -> None:
    """Changes with an order column arrive late: the newest one stays."""
    world = bench.world(pattern=twice.merger(keys=["id"], order="v"), schema="id string, v int, day date")
    for day, number in ((DAY, 2), (NEXT, 1)):
        world.put_rows(day, [{"id": "a", "v": number, "day": day}])
        world.run(day)
    demand(world.table_rows("id", "v"), [("a", 2)], "rows")


@way
def an_append_that_is_corrected(bench: Bench) -> None:
    """The input of an append changes: the run is refused, and the rows stay as they were."""
    world = put(bench.world(pattern=twice.transactional_writer()), d20=["a"])
    world.run(DAY)
    put(world, d20=["a", "b"])
    refused(lambda: world.run(DAY), "a second edition of an append")
    demand(world.by_day(), {DAY: ["a"]}, "rows")


@way
def two_corrections_of_a_history(bench: Bench) -> None:
    """An older slot is corrected, then a newer one: the older correction stays."""
    world = bench.world(pattern=twice.stateful_merger(keys=["id"]))
    put(world, d20=["a"], d21=["b"])
    for day in (DAY, NEXT):
        world.run(day)
    put(world, d20=["corrected"])
    world.run(DAY)
    put(world, d21=["also"])
    world.run(NEXT)
    demand(world.by_day(), {DAY: ["corrected"], NEXT: ["also"]}, "rows")


def by_history(bench: Bench) -> World:
    """Return a world whose change rows are kept."""
    return bench.world(pattern=twice.stateful_merger(keys=["id"], form="history"))


@way
def rows_from_before_a_history(bench: Bench) -> None:
    """A filled table is taken over, its first slot changes a row of it, a correction does not: the row is as it was."""
    world = by_history(bench)
    world.fill_by_hand([{"id": one, "day": date(2024, 9, 1)} for one in ("a", "b")])
    take_over(world.store, world.project.ledger, world.target)
    put(world, d20=["a"], d21=["c"])
    for day in (DAY, NEXT):
        world.run(day)
    put(world, d20=["d"])
    world.run(DAY)
    demand(world.by_day(), {"2024-09-01": ["a", "b"], DAY: ["d"], NEXT: ["c"]}, "rows")


@way
def tidy_of_change_rows_against_a_sleeper(bench: Bench) -> None:
    """A tidy takes a run that has kept its change rows for dead: what it publishes then is made of rows that are there."""
    world = put(by_history(bench), d20=["a"], d21=["b"])
    world.run(DAY)
    tidy = partial(world.store.tidy, world.target, frozenset, keep_days=0, dry_run=False)
    with armed(once_at("publish.before", tidy)):
        world.run(NEXT)
    kept = world.memory._history[world.target]
    named = [receipt.history for receipt in world.sight().receipts.values()]
    demand([name for name in named if name not in kept], [], "change rows that are missing")


@way
def tidy_of_change_rows_during_a_live_run(bench: Bench) -> None:
    """A tidy comes while a run has kept its change rows and not published: they stay."""
    world = put(by_history(bench), d20=["a"], d21=["b"])
    world.lease_seconds = 60
    world.reopen()
    world.run(DAY)
    taken: list[str] = []

    def tidy() -> None:
        live = world.project.ledger.live_attempts
        taken.extend(world.store.tidy(world.target, live, keep_days=0, dry_run=False).names)

    with armed(once_at("publish.before", tidy)):
        world.run(NEXT)
    demand(taken, [], "change rows of a live run that were taken")


@way
def backfill(bench: Bench) -> None:
    """Three slots are run one by one, and as one backfill: the tables are the same."""
    one, other = bench.world(), bench.world()
    for world in (one, other):
        put(world, d20=["a"], d21=["b", "c"], d22=["d"])
    for day in (DAY, NEXT, THIRD):
        one.run(day)
    for _ in range(2):
        twice.backfill(other.pipeline, DAY, "2024-09-23", project=other.project)
    demand(sorted_rows(other), sorted_rows(one), "rows")
    demand(sorted(other.sight().receipts), sorted(one.sight().receipts), "receipts")


@way
def the_turn_of_the_year(bench: Bench) -> None:
    """Whole weeks are loaded, of January and of the last days of December: both stay."""
    world = bench.world(pattern=twice.fast_metadata_cleaner(period="week", full=True), start="2024-01-01")
    for day in ("2024-01-01", "2024-12-30"):
        world.put(day, [day])
        world.run(day)
    demand(world.by_day(), {"2024-01-01": ["2024-01-01"], "2024-12-30": ["2024-12-30"]}, "rows")


@way
def rows_of_another_day(bench: Bench) -> None:
    """An input holds rows of a neighbour's day: it is refused, and the neighbour is untouched."""
    world = put(bench.world(), d20=["a"])
    world.run(DAY)
    world.put(NEXT, ["stray"], as_day=DAY)
    refused(lambda: world.run(NEXT), "a row of another day")
    demand(world.by_day(), {DAY: ["a"]}, "rows")


@way
def a_correction_that_fails_a_test(bench: Bench) -> None:
    """A correction breaks a test of its pipeline: it is refused, and the rows that were there stay."""
    world = put(bench.world(columns={"tests": [twice.unique("id")]}), d20=["a"])
    world.run(DAY)
    put(world, d20=["b", "b"])
    refused(lambda: world.run(DAY), "a repeated id")
    demand(world.by_day(), {DAY: ["a"]}, "rows")


# ---------------------------------------------------------------- two at once


def beside(world: World, point: str, act: Callable[[World], Any], day: str = DAY, **asked: Any) -> str:
    """Run a slot, let a twin act when a point is reached, and say how the run ended."""
    with armed(once_at(point, lambda: act(world.twin()))):
        try:
            return world.run(day, **asked).state
        except TwiceError as error:
            return type(error).__name__


@way
def two_at_once(bench: Bench) -> None:
    """A twin does the same work while a run is about to publish: the rows are there once, and one of them skips."""
    world = put(bench.world(), d20=["a", "b"])
    ended = beside(world, "publish.before", lambda twin: twin.run(DAY))
    demand((ended, len(world.records()), world.sight().version), ("skipped", 2, 0), "outcome, rows, version")


@way
def two_at_once_that_append(bench: Bench) -> None:
    """A twin appends the same slot to a table that is there while a run is about to: its rows are there once."""
    world = put(bench.world(pattern=twice.transactional_writer()), d20=["a", "b"], d22=["c"])
    world.run(THIRD)
    ended = beside(world, "publish.before", lambda twin: twin.run(DAY))
    demand((ended, world.by_day()), ("skipped", {DAY: ["a", "b"], THIRD: ["c"]}), "outcome, rows")


@way
def two_at_once_that_append_before_rows_are_staged(bench: Bench) -> None:
    """A twin appends the same slot after a run was planned and before it looks at the table again: its rows are there once."""
    world = put(bench.world(pattern=twice.transactional_writer()), d20=["a", "b"], d22=["c"])
    world.run(THIRD)
    ended = beside(world, "stage.before", lambda twin: twin.run(DAY))
    demand((ended, world.by_day()), ("skipped", {DAY: ["a", "b"], THIRD: ["c"]}), "outcome, rows")


@way
def two_at_once_with_newer_input(bench: Bench) -> None:
    """While a run is about to publish, its input is corrected and a twin publishes that: the older run is fenced off."""

    def corrected(twin: World) -> None:
        put(twin, d20=["new"])
        twin.run(DAY)

    world = put(bench.world(), d20=["first"])
    world.run(DAY)
    put(world, d20=["old", "older"])
    demand(beside(world, "publish.before", corrected), "Overtaken", "how the older run ended")
    demand(world.by_day(), {DAY: ["new"]}, "rows")


@way
def two_slots_at_once(bench: Bench) -> None:
    """Another slot is published while a run is about to publish: both are there, each with its own receipt."""
    world = put(bench.world(), d20=["a"], d21=["b"], d22=["c"])
    world.run(THIRD)
    beside(world, "publish.before", lambda twin: twin.run(NEXT))
    demand(world.by_day(), {DAY: ["a"], NEXT: ["b"], THIRD: ["c"]}, "rows")
    for day in (DAY, NEXT):
        demand(world.run(day).state, "skipped", f"the rerun of {day}")


@way
def a_replay_beside_a_later_slot(bench: Bench) -> None:
    """While an older slot is done again, a later one is published for the first time: it is not lost."""
    world = put(bench.world(pattern=twice.stateful_merger(keys=["id"])), d20=["a"], d21=["b"], d22=["c"])
    for day in (DAY, NEXT):
        world.run(day)
    put(world, d20=["corrected"])
    beside(world, "publish.before", lambda twin: twin.run(THIRD))
    world.run(DAY)
    demand(world.by_day(), {DAY: ["corrected"], NEXT: ["b"], THIRD: ["c"]}, "rows")


@way
def a_newer_slot_that_changes_no_row_beside_an_older_one(bench: Bench) -> None:
    """A newer slot is merged by a pattern that compares no head, and changes no row; the older one about to publish comes before it."""
    world = bench.world(pattern=twice.stateful_merger(keys=["id"]), schema="id string, v int, day date")
    for day, value in ((DAY, 1), (NEXT, 2), (THIRD, 1)):
        world.put_rows(day, [{"id": "a", "v": value, "day": DAY}])
    world.run(DAY)
    beside(world, "publish.before", lambda twin: twin.twin(pattern=twice.merger(keys=["id"])).run(THIRD), NEXT)
    demand(world.table_rows("id", "v"), [("a", 1)], "rows")


@way
def a_late_row_in_the_partition_of_a_neighbour(bench: Bench) -> None:
    """Two slots fill one partition while neither has seen the other: the second one does not take the first one's rows."""
    world = put(bench.world(pattern=twice.data_overwrite(partitions=["day"])), d20=["a"], d22=["c"])
    world.run(THIRD)
    world.put(NEXT, ["late"], as_day=DAY)
    demand(beside(world, "publish.before", lambda twin: twin.run(NEXT)), "NotPublished", "how the second one ended")
    demand(world.by_day(), {DAY: ["late"], THIRD: ["c"]}, "rows")


@way
def the_same_key_at_once(bench: Bench) -> None:
    """Two slots insert the same key at the same time: it is there once."""
    world = put(bench.world(pattern=twice.dedup_insert(keys=["id"])), d20=["a", "same"], d21=["b", "same"])
    beside(world, "publish.before", lambda twin: twin.run(NEXT))
    world.run(DAY)
    demand(sorted(one for one, _ in world.rows()), ["a", "b", "same"], "keys")


@way
def an_input_that_changes_while_it_is_read(bench: Bench) -> None:
    """The input changes between the first look and the reading: nothing is published from it."""
    world = put(bench.world(), d20=["old"])
    ended = beside(world, "stage.before", lambda twin: put(twin, d20=["new", "newer"]))
    demand((ended, world.rows()), ("InputsMoved", []), "outcome and rows")
    world.run(DAY)
    demand(world.by_day(), {DAY: ["new", "newer"]}, "rows")


@way
def an_input_that_changes_and_changes_back(bench: Bench) -> None:
    """The input changes before it is read, and back before the second look: rows and fingerprint must agree."""
    world = put(bench.world(), d20=["old"])

    def hook(point: str) -> None:
        if point in ("stage.before", "stage.after"):
            put(world, d20=["new"] if point == "stage.before" else ["old"])

    with armed(hook):
        try:
            world.run(DAY)
        except TwiceError:
            demand(world.rows(), [], "rows of a run that failed")
    world.run(DAY)
    demand(world.by_day(), {DAY: ["old"]}, "rows")


@way
def a_slot_that_moves_before_its_lease_is_taken(bench: Bench) -> None:
    """Inputs are resolved; then they are corrected and a twin publishes them: the run looks at them again, and skips."""

    def corrected(twin: World) -> None:
        put(twin, d20=["new"])
        twin.run(DAY)

    world = put(bench.world(), d20=["old", "older"])
    demand(beside(world, "intended", corrected), "skipped", "how the older run ended")
    demand(world.by_day(), {DAY: ["new"]}, "rows")


@way
def a_stranger_right_after_the_publish(bench: Bench) -> None:
    """Somebody overwrites the table before the publish is read back: the run does not say that all is well."""
    world = put(bench.world(), d20=["a"])
    demand(beside(world, "publish.after", lambda twin: twin.overwrite_by_hand()), "ProofGone", "outcome")


@way
def a_stranger_before_the_transaction(bench: Bench) -> None:
    """Somebody overwrites the table after a replay was planned, and before it publishes: it does not build on those rows."""
    world = put(by_history(bench), d20=["a"], d21=["b"])
    world.run(DAY)
    demand(beside(world, "publish.before", lambda twin: twin.overwrite_by_hand(), NEXT), "ProofGone", "outcome")


@way
def a_stranger_within_the_transaction(bench: Bench) -> None:
    """Somebody overwrites the table after the transaction compared it, and before it writes the receipt: nothing builds on that."""
    world = put(by_history(bench), d20=["a"], d21=["b"])
    world.run(DAY)
    ended = beside(world, "postgres.target.compared", lambda twin: twin.overwrite_by_hand(), NEXT)
    demand(ended, "ProofGone", "outcome")


@way
def a_stranger_who_looks_before_inserting(bench: Bench) -> None:
    """While a merge is about to commit, somebody inserts the same key where it is not there: it is there once."""
    world = put(bench.world(pattern=twice.dedup_insert(keys=["id"])), d20=["a"], d21=["b"])
    world.run(DAY)
    there = table(world.target)
    insert = f"insert into {there} select 'b', date '{NEXT}' where not exists (select from {there} where id = 'b')"
    with ThreadPoolExecutor(1) as threads:
        inserting = []

        def begin(twin: World) -> None:
            inserting.append(threads.submit(twin.database.execute, insert))
            twin.database.wait_for(inserting[0])

        beside(world, "postgres.rows.moved", begin, NEXT)
        inserting[0].result()
    demand(sorted(one for one, _ in world.rows()), ["a", "b"], "keys")


@way
def a_newer_slot_within_the_transaction(bench: Bench) -> None:
    """While an older slot replaces the whole table, a newer one is published: it is not replaced by the older rows."""
    world = put(bench.world(pattern=twice.data_overwrite()), d19=["first"], d20=["a"], d21=["b"])
    world.run("2024-09-19")
    beside(world, "postgres.receipt.moved", lambda twin: twin.run(NEXT))
    demand(world.rows(), [("b", NEXT)], "rows")


@way
def a_column_that_appears_at_the_publish(bench: Bench) -> None:
    """Another slot brings a new column while a run is about to publish: no row is left without it."""
    world = put(bench.world(columns={"on_new_column": "add"}), d20=["a"], d21=["b"], d22=["c"])
    world.run(THIRD)

    def wider(rows):
        return [{**row, "extra": 1} for row in rows]

    beside(world, "publish.before", lambda twin: twin.twin(transform=wider).run(NEXT))
    demand(sorted({tuple(sorted(row)) for row in world.records()}), [("day", "extra", "id")], "columns of the rows")


@way
def rows_to_be_kept_that_go_away(bench: Bench) -> None:
    """An empty delivery keeps the old rows, and somebody takes them away meanwhile: nothing is vouched for."""
    world = put(bench.world(pattern=twice.data_overwrite(slice="day", empty="keep")), d20=["a"])
    world.run(DAY)
    put(world, d20=[])
    demand(beside(world, "publish.before", lambda twin: twin.delete_by_hand(DAY)), "ProofGone", "outcome")


@way
def a_table_to_be_kept_that_is_dropped(bench: Bench) -> None:
    """An empty delivery keeps the old rows, and somebody drops the table meanwhile: nothing is vouched for."""
    world = put(bench.world(pattern=twice.data_overwrite(slice="day", empty="keep")), d20=["a"])
    world.run(DAY)
    put(world, d20=[])
    drop = f"drop table {table(world.target)}"
    demand(beside(world, "postgres.receipt.moved", lambda twin: twin.database.execute(drop)), "ProofGone", "outcome")


def by_others(bench: Bench, columns: str = "id text, day date", **settings: Any) -> World:
    """Return a world whose table somebody else made."""
    world = bench.world(**settings)
    world.database.execute(f"create table {table(world.target)} ({columns})")
    return world


def watched(world: World, body: str) -> None:
    """Put a trigger on the table that looks at each row before it is inserted."""
    made = f"create function meddle() returns trigger language plpgsql as $$ begin {body} return new; end $$"
    world.database.execute(
        f"{made}; create trigger t before insert on {table(world.target)} for each row execute function meddle()"
    )


@way
def an_heir_that_comes_before_the_publish(bench: Bench) -> None:
    """After the rows were staged, another table with a row of the same day inherits from the table: that row is left alone."""
    world = put(by_others(bench), d20=["a"])
    heir = f"create table heir () inherits ({table(world.target)}); insert into heir values ('theirs', '{DAY}')"
    demand(beside(world, "publish.before", lambda twin: twin.database.execute(heir)), "Misuse", "outcome")
    demand(world.database.execute("select id from heir"), [("theirs",)], "rows of the heir")


@way
def a_trigger_that_leaves_a_row_out(bench: Bench) -> None:
    """A trigger of the table's owner lets one of two rows go: the run does not say that two were published."""
    world = put(by_others(bench), d20=["a", "b"])
    watched(world, "if new.id = 'b' then return null; end if;")
    demand(beside(world, "publish.before", lambda twin: None), "NotPublished", "outcome")


@way
def a_trigger_that_moves_a_row(bench: Bench) -> None:
    """A trigger puts rows of a slice where no rerun looks for them: they are not published."""
    world = put(by_others(bench), d20=["a"])
    watched(world, "new.day := new.day + 1;")
    demand(beside(world, "publish.before", lambda twin: None), "NotPublished", "outcome")


@way
def a_trigger_that_changes_a_key(bench: Bench) -> None:
    """A trigger writes keys in another way than they come, so a merge would not find them again: they are not published."""
    world = put(by_others(bench, pattern=twice.merger(keys=["id"])), d20=["a"])
    watched(world, "new.id := upper(new.id);")
    demand(beside(world, "publish.before", lambda twin: None), "NotPublished", "outcome")


@way
def two_spellings_of_one_key(bench: Bench) -> None:
    """A key comes again with a blank behind it, in a column that makes no difference of that: its row is there once."""
    world = put(by_others(bench, "id char(4), day date", pattern=twice.merger(keys=["id"])), d20=["a"], d21=["a  "])
    for day in (DAY, NEXT):
        world.run(day)
    demand(len(world.records()), 1, "rows")


@way
def rows_of_others_that_reference_a_row(bench: Bench) -> None:
    """A slice is overwritten with the same row, which a row of another table references: that row stays."""
    world = put(by_others(bench, "id text primary key, day date"), d20=["a"])
    world.database.execute(f"create table child (of text references {table(world.target)} on delete cascade)")
    world.run(DAY)
    world.database.execute("insert into child values ('a')")
    put(world, d20=["a", "b"])
    world.run(DAY)
    demand(world.database.execute("select of from child"), [("a",)], "rows of others")


@way
def a_starved_run_holds_the_target(bench: Bench) -> None:
    """A run that lost twice holds the target: others wait until it is done."""
    world = put(bench.world(lease_seconds=60), d20=["a"])
    target = world.pipeline.target.text
    with world.project.ledger.lease(target, "the starved one"):
        refused(lambda: world.run(DAY), "a run beside a starved one", Busy)
    world.run(DAY)
    demand(world.by_day(), {DAY: ["a"]}, "rows")


@way
def a_reader_at_every_point(bench: Bench) -> None:
    """A reader looks at every fault point of a correction: it sees all of the old rows or all of the new ones."""
    world = put(bench.world(), d20=["a", "b"])
    world.run(DAY)
    put(world, d20=["c", "d"])
    old, seen = world.rows(), []
    with armed(lambda _: seen.append(world.rows())):
        world.run(DAY)
    for rows in seen:
        if rows not in (old, world.rows()):
            raise Counterexample(f"a reader saw {rows}")


@way
def a_replay_shown_slot_by_slot_beside_another_run(bench: Bench) -> None:
    """A replay that shows each slot dies after its first publish, and the newest slot is asked for."""
    world = put(
        bench.world(pattern=twice.stateful_merger(keys=["id"], visible="each")), d20=["a"], d21=["b"], d22=["c"]
    )
    for day in (DAY, NEXT, THIRD):
        world.run(day)
    put(world, d20=["corrected"])
    with armed(dying_at("confirmed")), suppress(Died):
        world.run(DAY)
    demand(world.twin().run(THIRD).state, "skipped", "the newest slot")
    demand(world.by_day(), {DAY: ["corrected"], NEXT: ["b"], THIRD: ["c"]}, "rows")


# ---------------------------------------------------------------- ledger, owner, time


@way
def ledger_lost(bench: Bench) -> None:
    """The ledger is lost: runs are refused until it is rebuilt, and then all is as it was."""
    world = put(bench.world(), d20=["a"])
    world.run(DAY)
    before = world.snapshot()
    world.lose_ledger()
    put(world, d20=["b"])
    refused(lambda: world.run(DAY), "a run with another ledger", Stranger)
    put(world, d20=["a"])
    rebuilt(world)
    demand(world.run(DAY).state, "skipped", "the run after the rebuild")
    demand(world.snapshot(), before, "after the rebuild")


@way
def the_table_changes_hands_at_the_publish(bench: Bench) -> None:
    """Another project takes the table over while a run is about to publish: the run is refused."""
    world = put(bench.world(), d20=["a"])
    world.run(DAY)
    put(world, d20=["b"])
    demand(
        beside(world, "publish.before", lambda twin: rebuilt(twin.twin(ledger_name="theirs.db"))), "Stranger", "outcome"
    )
    demand(world.by_day(), {DAY: ["a"]}, "rows")


@way
def the_table_changes_hands_before_rows_are_staged(bench: Bench) -> None:
    """Another project takes the table over after a run was planned, and before it opens the table: the run is refused."""
    world = put(bench.world(), d20=["a"])
    world.run(DAY)
    put(world, d20=["b"])
    ended = beside(world, "stage.before", lambda twin: rebuilt(twin.twin(ledger_name="theirs.db")))
    demand((ended, world.by_day()), ("Stranger", {DAY: ["a"]}), "outcome, rows")


@way
def ledger_stale(bench: Bench) -> None:
    """An old copy of the ledger is put back: the store is believed, and a correction is published."""
    world = put(bench.world(), d20=["a"])
    world.run(DAY)
    file = world.folder / ".twice" / world.ledger_name
    shutil.copy(file, world.folder / "old.db")
    put(world, d20=["b"])
    world.run(DAY)
    shutil.copy(world.folder / "old.db", file)
    world.reopen()
    put(world, d20=["c"])
    demand(world.run(DAY).generation, 3, "the next generation")
    demand(world.by_day(), {DAY: ["c"]}, "rows")
    demand(world.run(DAY).state, "skipped", "the run after it")


@way
def table_dropped(bench: Bench) -> None:
    """The table is dropped behind the ledger's back: a run is refused, nothing is guessed."""
    world = put(bench.world(), d20=["a"], d21=["b"])
    for day in (DAY, NEXT):
        world.run(day)
    world.drop()
    refused(lambda: world.run(DAY), "a run on a table that is gone")


@way
def restore_and_rerun(bench: Bench) -> None:
    """An older version is restored: its slots are skipped, those that went away are refused until they are forced."""
    world = put(bench.world(), d20=["a"], d21=["b"])
    for day in (DAY, NEXT):
        world.run(day)
    before = sorted_rows(world)
    twice.restore(f"memory:{world.target}", 0, project=world.project)
    demand(world.run(DAY).state, "skipped", "a slot that is still there")
    refused(lambda: world.run(NEXT), "a slot that was restored away")
    demand(world.run(NEXT, force=True).generation, 2, "the generation of the forced rerun: a fence never falls")
    demand(sorted_rows(world), before, "rows after the forced rerun")


@way
def a_stranger_writes(bench: Bench) -> None:
    """Somebody overwrites the table by hand: a run is refused until it is forced."""
    world = put(bench.world(), d20=["a"])
    world.run(DAY)
    world.overwrite_by_hand()
    refused(lambda: world.run(DAY), "a run over somebody's rows")
    world.run(DAY, force=True)
    demand(world.by_day(), {DAY: ["a"]}, "rows")


@way
def a_stranger_under_a_history(bench: Bench) -> None:
    """Somebody overwrites a table that slots build on: a new slot is refused, since it would build on that."""
    world = put(bench.world(pattern=twice.stateful_merger(keys=["id"])), d20=["a"], d21=["b"])
    world.run(DAY)
    world.overwrite_by_hand()
    refused(lambda: world.run(NEXT), "a slot on top of somebody's rows", ProofGone)


@way
def a_stranger_in_a_replay_shown_slot_by_slot(bench: Bench) -> None:
    """Somebody overwrites the table in the middle of such a replay: it is not gone on with over those rows."""
    world = put(bench.world(pattern=twice.stateful_merger(keys=["id"], visible="each")), d20=["a"], d21=["b"])
    for day in (DAY, NEXT):
        world.run(day)
    put(world, d20=["corrected"])
    with armed(dying_at("confirmed")), suppress(Died):
        world.run(DAY)
    world.overwrite_by_hand()
    before = world.rows()
    refused(lambda: world.run(NEXT), "a replay over somebody's rows")
    demand(world.rows(), before, "rows")


@way
def an_earlier_input_that_changed_since(bench: Bench) -> None:
    """A replay needs an earlier slot again as it was published, and its input is another one now: it is refused."""
    world = put(bench.world(pattern=twice.stateful_merger(keys=["id"])), d20=["a"], d21=["b"])
    for day in (DAY, NEXT):
        world.run(day)
    put(world, d20=["corrected"])
    world.run(DAY)
    put(world, d20=["changed again"], d21=["also"])
    refused(lambda: world.run(NEXT), "a replay from an input that nobody asked for", twice.NotPublished)
    demand(world.by_day(), {DAY: ["corrected"], NEXT: ["b"]}, "rows")


@way
def another_pipeline_on_the_same_target(bench: Bench) -> None:
    """A second pipeline writes to the target of the first: it is refused."""
    world = put(bench.world(), d20=["a"], d21=["b"])
    world.run(DAY)
    refused(lambda: world.twin(name="other").run(NEXT), "a second pipeline", Misuse)


@way
def a_run_that_fails(bench: Bench) -> None:
    """A transform fails: the run is recorded as failed, and the next one publishes."""
    world = put(bench.world(), d20=["a"])

    def broken(rows):
        raise ValueError("no")

    refused(lambda: world.twin(transform=broken).run(DAY), "a transform that fails", twice.NotPublished)
    demand([one.state for one in world.project.ledger.attempts()], ["failed"], "attempts")
    world.run(DAY)
    demand(world.by_day(), {DAY: ["a"]}, "rows")


@way
def two_clean_runs(bench: Bench) -> None:
    """Two clean runs on the same input, a day apart: if they differ, the pipeline is not deterministic."""
    seen = []
    for today in ("2030-01-01", "2030-01-02"):
        Clock.today = date.fromisoformat(today)
        world = put(bench.world(), d20=["a"])
        world.run(DAY)
        seen.append(sorted_rows(world))
    demand(seen[1], seen[0], "rows of the second clean run")


class Clock:
    """A wall clock that tests can set."""

    today = date(2030, 1, 1)


@way
def another_hash_seed(bench: Bench) -> None:
    """Two processes with different PYTHONHASHSEED run the same slot: the keys are the same."""
    kind = bench.given.get("key", "digest")
    seen = [_keys_with_seed(seed, kind) for seed in ("1", "2")]
    demand(seen[1], seen[0], "keys under the second seed")


def stable_key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _keys_with_seed(seed: str, kind: str) -> list[str]:
    code = (
        "import sys, json, tempfile, pathlib; import ways; from worlds import World\n"
        "key = ways.stable_key if sys.argv[1] == 'digest' else (lambda text: str(hash(text)))\n"
        "def keyed(rows): return [{**row, 'id': key(row['id'])} for row in rows]\n"
        "world = World(pathlib.Path(tempfile.mkdtemp()) / 'w', 'memory', transform=keyed)\n"
        "world.put(ways.DAY, ['a', 'b']); world.run(ways.DAY)\n"
        "print(json.dumps(sorted(one for one, _ in world.rows())))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, kind], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


# ---------------------------------------------------------------- the log of a Parquet table, without Spark

SLOTS = {day: slot_of(day, target="parquet:lake/out").text for day in (DAY, NEXT)}


class Linked:
    """A table as the Parquet store keeps it, with files that are plain text."""

    def __init__(self, folder: Path) -> None:
        self.table = str(folder / "lake" / "out")
        self.durable: list[str] = []

    def work(self, day: str, attempt: str, *, head: bool = False) -> Work:
        now = log.newest(self.table)
        sight = Sight(version=now.version, receipts=now.receipts)
        return Work("lake/out", SLOTS[day], attempt, sight.fence(SLOTS[day]) + 1, sight, compares_head=head)

    def stage(self, work: Work, text: str = "rows") -> DataFile:
        path = os.path.join("data", work.attempt, "a.parquet")
        whole = os.path.join(self.table, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        Path(whole).write_text(text)
        return DataFile(path, len(text), "xxh3:1", work.slot)

    def publish(self, work: Work, file: DataFile) -> None:
        receipt = receipt_of(work.slot, work.generation, attempt=work.attempt)

        def change(base, following):
            kept = tuple(one for one in base.files if one.slot != work.slot)
            return replace(following, files=(*kept, file))

        log.publish(self.table, work, [receipt], change)

    def run(self, day: str, number: int, **settings: Any) -> None:
        work = self.work(day, name(number), **settings)
        self.publish(work, self.stage(work))

    def attempts(self) -> dict[str, str]:
        """Return which attempt published each slot."""
        return {slot: receipt.attempt for slot, receipt in log.newest(self.table).receipts.items()}

    def holes(self) -> list[str]:
        """Return the files that the newest version names and that are not there."""
        return [
            one.path for one in log.newest(self.table).files if not os.path.exists(os.path.join(self.table, one.path))
        ]


def name(number: int) -> str:
    return f"0123abcd-{number}-89abcdef"


@way
def two_links_at_once(bench: Bench) -> None:
    """Another slot is linked into the log of a Parquet table at the very moment of a publish: both are in the newest version."""
    table = Linked(bench.new_folder())
    table.run(DAY, 1)
    work = table.work(DAY, name(2))
    file = table.stage(work, "corrected")
    with armed(once_at("parquet.manifest.written", lambda: table.run(NEXT, 3))):
        table.publish(work, file)
    newest = log.newest(table.table)
    demand(sorted(newest.receipts), sorted(SLOTS.values()), "receipts")
    demand(sorted(one.slot for one in newest.files), sorted(SLOTS.values()), "slots of the files")
    demand(log.versions(table.table), [0, 1, 2], "versions")


@way
def a_sleeper_wakes_after_a_tidy(bench: Bench) -> None:
    """A run sleeps at its publish while others publish and a tidy buries old versions: its link must not come first."""
    table = Linked(bench.new_folder())
    table.run(DAY, 1)
    work = table.work(NEXT, name(2))
    file = table.stage(work)

    def meanwhile() -> None:
        for number in (3, 4):
            table.run(DAY, number)
        log.bury(table.table, [1], needed={1})

    with armed(once_at("parquet.manifest.written", meanwhile)):
        table.publish(work, file)
    newest = log.newest(table.table)
    demand(newest.receipts.get(SLOTS[NEXT], receipt_of("none")).attempt, name(2), "the attempt that published the slot")


@way
def tidy_during_a_live_run(bench: Bench) -> None:
    """A tidy comes while a run has staged and not published: what a live run has staged stays."""
    table = Linked(bench.new_folder())
    table.run(DAY, 1)
    work = table.work(NEXT, name(2))
    file = table.stage(work)
    sweep.sweep(table.table, lambda: frozenset({name(2)}), keep_days=0, dry_run=False)
    table.publish(work, file)
    demand(table.holes(), [], "files that are missing")


@way
def tidy_against_a_sleeper(bench: Bench) -> None:
    """A tidy takes a sleeping run for dead; the run wakes up, and must not publish files that are gone."""
    table = Linked(bench.new_folder())
    table.run(DAY, 1)
    work = table.work(NEXT, name(2))
    file = table.stage(work)
    sweep.sweep(table.table, frozenset, keep_days=0, dry_run=False)
    with suppress(Conflict):
        table.publish(work, file)
    demand(table.holes(), [], "files that are missing")


@way
def a_sleeper_wakes_a_month_after_a_tidy(bench: Bench) -> None:
    """A tidy took a run for dead that sleeps; a month later its name has ended, and it must not publish files that are gone."""
    table = Linked(bench.new_folder())
    table.run(DAY, 1)
    work = table.work(NEXT, name(2))
    file = table.stage(work)
    sweep.sweep(table.table, frozenset, keep_days=0, dry_run=False)
    for version in log.versions(table.table):
        os.utime(log.manifest_path(table.table, version), (0, 0))
    table.stage(table.work(DAY, name(3)))
    sweep.sweep(table.table, frozenset, keep_days=0, dry_run=False)
    demand(sorted(log.newest(table.table).swept), [name(3)], "names of attempts that were swept")
    with suppress(Conflict):
        table.publish(work, file)
    demand(table.holes(), [], "files that are missing")


@way
def tidy_of_a_long_log(bench: Bench) -> None:
    """A tidy buries all versions of a table but the newest, which is told from some of them: nothing of it is lost."""
    table = Linked(bench.new_folder())
    for number in range(23):
        table.run((DAY, NEXT)[number == 4], number)
    demand(table.attempts(), {SLOTS[DAY]: name(22), SLOTS[NEXT]: name(4)}, "receipts")
    sweep.sweep(table.table, frozenset, keep_days=0, dry_run=False)
    table.run(DAY, 23)
    demand(table.attempts(), {SLOTS[DAY]: name(23), SLOTS[NEXT]: name(4)}, "receipts")
    demand(table.holes(), [], "files that are missing")


@way
def power_cut_at_the_publish(bench: Bench) -> None:
    """The power goes right after a manifest got its name: its content has been forced to disk before that."""
    forced: list[int] = []
    linked: list[bool] = []
    real_sync, real_link = os.fsync, os.link

    def sync(descriptor):
        forced.append(os.fstat(descriptor).st_ino)
        real_sync(descriptor)

    def link(source, target, **options):
        linked.append(os.stat(source).st_ino in forced)
        real_link(source, target, **options)

    table = Linked(bench.new_folder())
    durable.os.fsync, durable.os.link = sync, link
    try:
        table.run(DAY, 1)
    finally:
        durable.os.fsync, durable.os.link = real_sync, real_link
    demand(linked, [True], "manifests that were on disk before they were named")


@way
def power_cut_after_the_stage(bench: Bench) -> None:
    """The power goes while a run is about to publish: every file that it has staged has been forced to disk."""
    forced: list[int] = []
    real = os.fsync

    def sync(descriptor):
        forced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    world = put(bench.world(), d20=["a"])
    lost: list[str] = []

    def hook(point: str) -> None:
        if point == "publish.before":
            staged = (world.table() / "data").rglob("*.parquet")
            lost.extend(path.name for path in staged if path.stat().st_ino not in forced)

    durable.os.fsync = sync
    try:
        with armed(hook):
            world.run(DAY)
    finally:
        durable.os.fsync = real
    demand(lost, [], "staged files that a power cut would take")


@way
def power_cut_after_the_publish(bench: Bench) -> None:
    """The power goes when a run has said *published*: its rows are there, and vouched for."""
    world = put(bench.world(target="lake/deep/out"), d20=["a"], d21=["b"])
    with Disk(world.folder).watched() as disk:
        world.run(DAY)
        world.run(NEXT)
    left = replace(world, folder=disk.left(bench.new_folder()))
    demand(sorted(left.sight().ended), [], "slots that are not vouched for")
    demand(left.rows(), [("a", DAY), ("b", NEXT)], "rows after a power cut")


@way
def power_cut_after_a_death(bench: Bench) -> None:
    """A run dies as its manifest gets its name; a later one says *skipped*, and the power goes: the rows are there."""
    world = put(bench.world(), d20=["a"])
    with Disk(world.folder).watched() as disk:
        with armed(dying_at("parquet.manifest.linked")), suppress(Died):
            world.run(DAY)
        demand(world.run(DAY).state, "skipped", "what the later run says")
    left = replace(world, folder=disk.left(bench.new_folder()))
    demand(left.rows(), [("a", DAY)], "rows after a power cut")


@way
def power_cut_after_a_change_of_hands(bench: Bench) -> None:
    """A table gets another owner, and the power goes: it still has that owner."""
    folder = bench.new_folder()
    table = Linked(folder)
    table.run(DAY, 1)
    with Disk(folder).watched() as disk:
        log.take_over(table.table, Sight(version=0), "another")
    demand(log.newest(str(disk.left(bench.new_folder()) / "lake" / "out")).owner, "another", "the owner")


# ---------------------------------------------------------------- the log of a Delta table, without Spark


class DeltaLog:
    """A log as Delta writes it, with two slots that were published in versions 0 and 1."""

    def __init__(self, folder: Path) -> None:
        self.table = str(folder)
        self.version = 0
        os.makedirs(delta_log.log_folder(self.table))
        for day in (DAY, NEXT):
            payload = Payload("publish", "me", "slice", (receipt_of(SLOTS[day]),), table_id="ours")
            self.commit("WRITE", userMetadata=payload.to_text())

    def commit(self, operation: str, **info: Any) -> None:
        file = {"path": "a", "partitionValues": {}, "size": 3, "dataChange": True, "stats": "{}"}
        path = os.path.join(delta_log.log_folder(self.table), f"{self.version:020}.json")
        actions = [{"commitInfo": {"timestamp": 1, "operation": operation, **info}}, {"add": file}]
        Path(path).write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in actions))
        self.version += 1

    def ended(self) -> list[str]:
        return sorted(delta_log.look(self.table).ended)


@way
def a_stranger_in_a_delta_log(bench: Bench) -> None:
    """Somebody writes to a Delta table by hand: every proof has ended."""
    log_ = DeltaLog(bench.new_folder())
    demand(log_.ended(), [], "slots that are not vouched for")
    log_.commit("WRITE")
    demand(log_.ended(), sorted(SLOTS.values()), "slots that are not vouched for")


@way
def a_restore_in_a_delta_log(bench: Bench) -> None:
    """Somebody restores a Delta table by hand: the proof of what went away has ended, and no fence has fallen."""
    log_ = DeltaLog(bench.new_folder())
    log_.commit("RESTORE", operationParameters={"version": 0})
    demand(log_.ended(), [SLOTS[NEXT]], "slots that are not vouched for")
    demand(delta_log.look(log_.table).fence(SLOTS[NEXT]), 1, "the fence")
