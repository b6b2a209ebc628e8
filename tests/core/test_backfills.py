"""Which slots does a backfill take, who may work beside it, and where does it go on after a death? On memory, no JVM."""

import json
import threading
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import pytest

import twice
from twice.backfills import fill, slots_between
from twice.decide import Asked
from twice.errors import Busy, Misuse, NotPublished
from twice.faults import Died, armed, dying_at, recording
from twice.forecasts import outlook
from twice.ledger.sqlite import SqliteLedger
from twice.ledger.tallies import tallies
from twice.project import Project
from twice.runs import Receipt
from twice.sources import marking
from worlds import PlainFiles, World, once_at

DAYS = [f"2024-09-{day}" for day in range(20, 26)]
END = "2024-09-26"
MONTH = [f"2024-09-{day:02d}" for day in range(1, 31)]
MERGED = twice.stateful_merger(keys=["id"])


@pytest.fixture
def world(tmp_path):
    return filled(World(tmp_path / "world", "memory"))


@pytest.fixture
def history(tmp_path):
    return filled(World(tmp_path / "history", "memory", pattern=MERGED))


def filled(world, days=DAYS):
    for day in days:
        world.put(day, [f"of {day}", "all"])
    return world


def backfill(world, start=DAYS[0], end=END, **asked):
    return twice.backfill(world.pipeline, start, end, project=world.project, **asked)


def told(outcomes):
    return [(outcome.slot.label[:10], outcome.state) for outcome in outcomes]


def fails_on(world, *days):
    """Let the transform fail for some days."""

    def transform(rows):
        if rows[0]["day"].isoformat() in days:
            raise ValueError("no luck")
        return rows

    world.transform = transform


# ------------------------------------------------------------------ which slots


def test_missing_takes_what_was_never_published(world):
    world.run(DAYS[1])
    world.run(DAYS[3])
    world.put(DAYS[1], ["corrected"])
    outcomes = backfill(world, missing=True)
    assert told(outcomes) == [(day, "published") for day in DAYS if day not in (DAYS[1], DAYS[3])]
    assert world.by_day()[DAYS[1]] == ["all", f"of {DAYS[1]}"]
    assert backfill(world, missing=True) == []


def test_failed_takes_what_did_not_end_well(world):
    fails_on(world, DAYS[1], DAYS[4])
    with pytest.raises(NotPublished):
        backfill(world, end=DAYS[5])
    world.transform = lambda rows: rows
    assert told(backfill(world, failed=True)) == [(DAYS[1], "published"), (DAYS[4], "published")]
    assert backfill(world, failed=True) == []


def test_failed_takes_a_slot_whose_run_was_killed(world):
    with armed(dying_at("stage.after")), pytest.raises(Died):
        world.run(DAYS[2])
    assert told(backfill(world, failed=True)) == [(DAYS[2], "published")]


def test_failed_takes_a_killed_run_that_was_published_and_finds_it(world):
    with armed(dying_at("publish.after")), pytest.raises(Died):
        world.run(DAYS[2])
    assert told(backfill(world, failed=True)) == [(DAYS[2], "skipped")]
    assert backfill(world, failed=True) == []


def test_failed_takes_a_refused_slot(world):
    world.run(DAYS[0])
    world.overwrite_by_hand()
    with pytest.raises(twice.Fenced):
        world.run(DAYS[0])
    assert told(backfill(world, failed=True, force=True)) == [(DAYS[0], "published")]


def test_failed_leaves_a_slot_that_another_one_published_since(history):
    fails_on(history, DAYS[1])
    with pytest.raises(NotPublished):
        history.run(DAYS[1])
    history.transform = lambda rows: rows
    backfill(history)
    assert history.project.ledger.attempts(slot=history.slot(DAYS[1]))[0].state == "failed"
    assert backfill(history, failed=True) == []


def test_missing_and_failed_take_either(world):
    for day in DAYS[:4]:
        world.run(day)
    world.put(DAYS[0], ["a"])
    fails_on(world, DAYS[0])
    with pytest.raises(NotPublished):
        backfill(world, end=DAYS[1], force=True)
    fails_on(world)
    outcomes = backfill(world, missing=True, failed=True)
    assert told(outcomes) == [(day, "published") for day in (DAYS[0], DAYS[4], DAYS[5])]


# ------------------------------------------------------------------ side by side


def test_slots_are_worked_on_side_by_side_and_told_in_their_order(world):
    together = threading.Barrier(3, timeout=30)
    met, seen, callers = set(), [], set()

    def transform(rows):
        # A slot that lost a race for the new table is computed again, and then it is alone.
        if rows[0]["day"] not in met:
            met.add(rows[0]["day"])
            together.wait()
        return rows

    def on_slot(ended):
        seen.append(ended.slot)
        callers.add(threading.current_thread())

    world.transform = transform
    outcomes = backfill(world, jobs=3, on_slot=on_slot)
    assert told(outcomes) == [(day, "published") for day in DAYS]
    assert sorted(slot.label for slot in seen) == [outcome.slot.label for outcome in outcomes]
    assert callers == {threading.current_thread()}
    assert world.by_day() == {day: ["all", f"of {day}"] for day in DAYS}
    assert told(backfill(world, jobs=3)) == [(day, "skipped") for day in DAYS]


def test_a_slot_that_fails_does_not_stop_those_beside_it(world):
    fails_on(world, DAYS[2])
    with pytest.raises(NotPublished, match="no luck"):
        backfill(world, jobs=2)
    assert sorted(world.by_day()) == [day for day in DAYS if day != DAYS[2]]


def test_an_error_in_the_project_stops_what_has_not_begun(world):
    def transform(rows):
        raise Misuse("declared wrongly")

    world.transform = transform
    ended = []
    with pytest.raises(Misuse, match="declared wrongly"):
        backfill(world, jobs=2, on_slot=ended.append)
    assert len(ended) < len(DAYS)


def test_an_error_that_nobody_foresaw_is_raised_after_what_is_at_work_has_ended(world, monkeypatch):
    def broken(self, pipeline, slot):
        raise ZeroDivisionError

    monkeypatch.setattr(Project, "job", broken)
    with pytest.raises(ZeroDivisionError):
        backfill(world, jobs=2)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("twice-slot")]


def test_a_slot_that_a_neighbour_held_up_is_done_after_the_others(world):
    held = world.project.ledger
    slot, name = world.slot(DAYS[1]), "other"
    held.lease_seconds = 60.0
    lease = held.lease(slot, name)

    def transform(rows):
        if rows[0]["day"].isoformat() == DAYS[5]:
            lease.__exit__(None, None, None)
        return rows

    world.transform = transform
    checked = twice.backfills.check_free
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twice.backfills.check_free", lambda *given: (checked(*given), lease.__enter__()))
        outcomes = backfill(world, jobs=2)
    assert told(outcomes) == [(day, "published") for day in DAYS]


def test_many_slots_of_one_ledger_and_one_store(tmp_path):
    world = World(tmp_path / "many", "memory", start="2024-07-01")
    days = [f"2024-07-{day:02}" for day in range(1, 31)]
    filled(world, days)
    outcomes = backfill(world, "2024-07-01", "2024-07-31", jobs=8)
    assert told(outcomes) == [(day, "published") for day in days]
    assert len({outcome.attempt for outcome in outcomes}) == len(days)
    assert {record.state for record in world.project.ledger.attempts()} == {"published"}


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (MERGED, "all that are to be done are one publish"),
        (twice.merger(keys=["id"]), "depends on the slots before it"),
        (twice.data_overwrite(), "depends on the slots before it"),
        (twice.fast_metadata_cleaner(), "computed from the whole table"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_slots_that_depend_on_each_other_are_not_worked_on_side_by_side(tmp_path, pattern, why):
    world = filled(World(tmp_path / "world", "memory", pattern=pattern))
    with pytest.raises(Misuse, match=why) as refused:
        backfill(world, jobs=2)
    assert pattern.name in refused.value.why
    assert world.project.ledger.attempts() == []


def test_no_slot_at_a_time_is_too_few(world):
    with pytest.raises(Misuse, match="0 slots at a time"):
        backfill(world, jobs=0)


PIPELINES = """
from pathlib import Path
import twice

with (Path(__file__).parents[1] / "loaded").open("a") as file:
    file.write("once ")


@twice.pipeline(every="1 day", start="2024-09-20", target="memory:out", pattern=twice.data_overwrite(slice="day"),
                source=twice.source(lambda run: [{"day": run.execution_time.date()}], fingerprint="{execution_date}"))
def out(rows): return rows
"""


def test_threads_open_everything_of_a_project_once(tmp_path, monkeypatch):
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/many.py").write_text(PIPELINES)
    (tmp_path / "twice.toml").touch()
    for number in range(5):
        (tmp_path / "loaded").write_text("")
        project = Project.open(tmp_path)
        together = threading.Barrier(8)
        found = []

        def ask(project=project, together=together, found=found):
            together.wait()
            found.append((project.whole_pipelines["out"], project.store("memory"), project.ledger, project.engine))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (number, len(set(map(id, (part for parts in found for part in parts))))) == (number, 4)
        assert (tmp_path / "loaded").read_text() == "once "


# ------------------------------------------------------------------ someone else at work


def test_a_backfill_is_refused_before_it_starts_while_a_slot_of_it_is_run(world):
    seen = []

    def meanwhile():
        with pytest.raises(Busy) as refused:
            backfill(world)
        seen.append(refused.value)
        assert told(backfill(world, end=DAYS[3])) == [(day, "published") for day in DAYS[:3]]

    world.lease_seconds = 60.0
    world.reopen()
    with armed(once_at("stage.before", meanwhile)):
        outcome = world.run(DAYS[3])
    assert f"2024-09-23T00:00Z of out is being run now by attempt {outcome.attempt}" in seen[0].what
    assert sorted(world.by_day()) == DAYS[:4]
    assert backfill(world)[3].state == "skipped"


def test_where_slots_build_on_all_a_run_of_any_slot_is_in_the_way(history):
    seen = []

    def meanwhile():
        with pytest.raises(Busy, match="2024-09-20T00:00Z of out is being run now") as refused:
            backfill(history, DAYS[4])
        seen.append(refused.value)

    history.lease_seconds = 60.0
    history.reopen()
    with armed(once_at("stage.before", meanwhile)):
        history.run(DAYS[0])
    assert "builds on all of the target" in seen[0].why
    assert len(history.sight().receipts) == 1


def test_a_lease_of_a_dead_attempt_is_in_nobodys_way(world):
    with armed(dying_at("stage.after")), pytest.raises(Died):
        world.run(DAYS[3])
    assert told(backfill(world)) == [(day, "published") for day in DAYS]


# ------------------------------------------------------------------ killed, and started again


def points_of(world, **asked):
    points = []
    with armed(recording(points)):
        backfill(world, **asked)
    return points


def all_points(tmp_path_factory, **settings):
    return points_of(filled(World(tmp_path_factory.mktemp("clean") / "world", "memory", **settings)))


@pytest.mark.parametrize("visit", [1, 3, 6])
def test_a_killed_backfill_goes_on_at_the_slot_where_it_stood(tmp_path, tmp_path_factory, visit):
    for number, point in enumerate(all_points(tmp_path_factory)):
        world = filled(World(tmp_path / f"{number}", "memory"))
        ended = []
        with armed(dying_at(point, visit=visit)), suppress(Died):
            backfill(world, on_slot=ended.append)
        if len(ended) == len(DAYS):
            continue  # this point is reached less often
        world.reopen()
        again = told(backfill(world))
        assert (point, again[: len(ended)]) == (point, [(day, "skipped") for day in DAYS[: len(ended)]])
        # The slot itself may have been published before the death; nothing after it was begun.
        assert (point, again[len(ended) + 1 :]) == (point, [(day, "published") for day in DAYS[len(ended) + 1 :]])
        assert world.by_day() == {day: ["all", f"of {day}"] for day in DAYS}
        assert {receipt.generation for receipt in world.sight().receipts.values()} == {1}


def test_a_killed_backfill_that_is_one_publish_shows_all_of_it_or_nothing(tmp_path, tmp_path_factory):
    for number, point in enumerate(all_points(tmp_path_factory, pattern=MERGED)):
        history = filled(World(tmp_path / f"{number}", "memory", pattern=MERGED))
        with armed(dying_at(point)), pytest.raises(Died):
            backfill(history)
        shown = len(history.sight().receipts)
        assert (point, shown in (0, len(DAYS))) == (point, True)
        history.reopen()
        state = "skipped" if shown else "published"
        assert (point, told(backfill(history))) == (point, [(day, state) for day in DAYS])
        assert history.sight().version == 0
        assert history.table_rows("id") == sorted([("all",), *((f"of {day}",) for day in DAYS)])
        assert len(history.project.ledger.published()) == len(DAYS)


def test_a_death_in_a_thread_is_a_death_of_the_backfill(world):
    with armed(dying_at("publish.before", visit=2)), pytest.raises(Died):
        backfill(world, jobs=2)
    world.reopen()
    states = dict(told(backfill(world, jobs=2)))
    assert sorted(states) == DAYS
    assert "published" in states.values()
    assert world.by_day() == {day: ["all", f"of {day}"] for day in DAYS}


# ------------------------------------------------------------------ how much is looked at


SHAPES = {
    "slice": twice.data_overwrite(slice="day"),
    "merger": twice.merger(keys=["id"]),
    "cleaner": twice.fast_metadata_cleaner(period="week"),
    "cleaner in a year": twice.fast_metadata_cleaner(period="year"),
    "stateful": MERGED,
    "each": twice.stateful_merger(keys=["id"], visible="each"),
    "history": twice.stateful_merger(keys=["id"], form="history"),
}


@pytest.mark.parametrize("shape", ["stateful", "each", "history"])
def test_all_corrected_slots_are_read_again_although_the_first_one_takes_the_others_along(tmp_path, shape):
    world = filled(World(tmp_path / "world", "memory", pattern=SHAPES[shape]))
    backfill(world)
    for day in DAYS[1:4]:
        world.put(day, [f"corrected {day}", "all"])
    backfill(world)
    clean = filled(World(tmp_path / "clean", "memory", pattern=SHAPES[shape]))
    for day in DAYS[1:4]:
        clean.put(day, [f"corrected {day}", "all"])
    backfill(clean)
    assert world.rows() == clean.rows()
    assert backfill(world)[0].state == "skipped"


def looked(world, of, monkeypatch):
    """Count what is asked of inputs, tables and the ledger while something is done."""
    counts = dict.fromkeys(("inputs", "tables", "settled", "receipts", "transactions", "statements"), 0)

    def counted(owner, name, kind):
        real = getattr(owner, name)

        def counting(*asked):
            counts[kind] += 1
            return real(*asked)

        patched.setattr(owner, name, counting)

    def traced(ledger):
        db = connect(ledger)
        db.set_trace_callback(lambda _: counts.update(statements=counts["statements"] + 1))
        return db

    connect = SqliteLedger._connect
    with monkeypatch.context() as patched:
        counted(PlainFiles, "resolve", "inputs")
        counted(type(world.store), "look", "tables")
        counted(type(world.store), "settle", "settled")
        counted(Receipt, "from_json", "receipts")
        counted(SqliteLedger, "transaction", "transactions")
        patched.setattr(SqliteLedger, "_connect", traced)
        # Whether a file is old enough for its hash to be remembered depends on how fast the test is.
        patched.setattr(marking, "is_young", lambda _: True)
        of()
    return counts


def month(tmp_path, shape, days):
    """Return a world with the inputs of some days of a month, in which no lease is renewed while anything is counted."""
    world = World(tmp_path / f"{shape} {days}", "memory", pattern=SHAPES[shape], lease_seconds=600)
    return filled(world, MONTH[:days])


def until(days):
    return f"2024-09-{days + 1:02d}"


@pytest.mark.parametrize("asked", ["new", "published", "corrected", "forced"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_walk_asks_for_grows_no_faster_than_its_slots(tmp_path, monkeypatch, shape, asked):
    counts = []
    for days in (8, 16, 24):
        world = month(tmp_path, shape, days)
        if asked != "new":
            backfill(world, MONTH[0], until(days))
        if asked == "corrected":
            world.put(MONTH[0], ["corrected", "all"])
        walk = partial(backfill, world, MONTH[0], until(days), force=asked == "forced")
        counts.append(looked(world, walk, monkeypatch))
    few, more, most = counts
    for kind in few:
        # Of what is asked for each pair of slots, the step from 16 to 24 would be 64 more than the one from 8 to 16.
        assert most[kind] - more[kind] <= more[kind] - few[kind] + 8, (kind, counts)


@pytest.mark.parametrize("shape", ["stateful", "cleaner in a year"])
def test_companions_are_leased_and_confirmed_together(tmp_path, monkeypatch, shape):
    counts = []
    for days in (8, 24):
        world = month(tmp_path, shape, days)
        backfill(world, MONTH[0], until(days))
        again = partial(world.run, MONTH[0], force=True)
        counts.append(looked(world, again, monkeypatch)["transactions"])
        known = world.project.ledger.generations(f"memory:{world.target}")
        assert known == {world.slot(day): 2 for day in MONTH[:days]}
    assert counts == [7, 7], "intend, two leases, the note that it publishes, confirm, two releases"


@pytest.mark.parametrize("shape", ["stateful", "each", "cleaner in a year"])
def test_what_is_kept_of_an_attempt_does_not_grow_with_the_table(tmp_path, shape):
    sizes = []
    for days in (12, 24):
        world = month(tmp_path, shape, days)
        backfill(world, MONTH[0], until(days))
        backfill(world, MONTH[0], until(days), force=True)
        sizes.append(max(len(one.plan) for one in world.project.ledger.attempts(limit=1000)))
    assert sizes[1] - sizes[0] < 10, sizes
    kept = [json.loads(one.plan) for one in world.project.ledger.attempts(limit=1000)]
    longest = max(kept, key=lambda plan: sum(plan["left_out"].values()))
    [(name, left_out)] = longest["left_out"].items()
    assert len(longest[name]) + left_out == 23
    assert longest[name] == [world.slot(day) for day in MONTH[1:11]]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_forced_backfill_resolves_the_inputs_of_a_slot_a_few_times_however_many_there_are(
    tmp_path, monkeypatch, shape
):
    world = filled(World(tmp_path / "world", "memory", pattern=SHAPES[shape]), MONTH)
    backfill(world, MONTH[0], "2024-10-01")
    slots = slots_between(world.pipeline, MONTH[0], "2024-10-01", datetime.now(UTC))
    said = looked(world, lambda: outlook(world.project, world.pipeline, slots, Asked(force=True)), monkeypatch)
    assert said["inputs"] == len(MONTH)
    assert said["tables"] <= 6, "each table once: of a month six weeks, if any"
    done = looked(world, lambda: backfill(world, MONTH[0], "2024-10-01", force=True), monkeypatch)
    assert len(MONTH) <= done["inputs"] <= 2 * len(MONTH)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_published_backfill_looks_once(tmp_path, monkeypatch, shape):
    world = filled(World(tmp_path / "world", "memory", pattern=SHAPES[shape]), MONTH)
    backfill(world, MONTH[0], "2024-10-01")
    done = looked(world, lambda: backfill(world, MONTH[0], "2024-10-01"), monkeypatch)
    tables = 6 if shape == "cleaner" else 1
    assert (done["inputs"], done["tables"], done["settled"]) == (len(MONTH), tables, tables)


@pytest.mark.parametrize(("there", "jobs"), [(30, 1), (30, 3), (20, 1)], ids=["", "side by side", "inputs are missing"])
def test_slots_that_are_left_as_they_are_share_one_look(tmp_path, monkeypatch, there, jobs):
    world = filled(World(tmp_path / "world", "memory"), MONTH[:there])
    backfill(world, MONTH[0], until(there) if there < len(MONTH) else "2024-10-01")
    slots = slots_between(world.pipeline, MONTH[0], "2024-10-01", datetime.now(UTC))
    ends = []
    walk = fill(world.project, world.pipeline, slots, Asked(resuming=True), jobs)
    assert looked(world, lambda: ends.extend(walk), monkeypatch)["tables"] == 1
    assert sum(one.outcome is not None and one.outcome.state == "skipped" for one in ends) == there


# ------------------------------------------------------------------ figures


def rows_published(world):
    [found] = [one for one in tallies(world.project.ledger) if one.state == "published"]
    return found.rows


def test_the_figures_count_the_rows_of_all_slots_of_a_publish(history):
    backfill(history, end=DAYS[3])
    assert rows_published(history) == 6
    history.put(DAYS[0], ["of 2024-09-20", "all", "more"])
    history.run(DAYS[0])
    assert rows_published(history) == 6 + 7


@pytest.mark.parametrize("point", ["publish.after", "confirmed"])
def test_the_figures_count_them_too_if_the_run_died_before_it_could_say_so(history, point):
    with armed(dying_at(point)), pytest.raises(Died):
        backfill(history, end=DAYS[3])
    assert {one.state for one in backfill(history, end=DAYS[3])} == {"skipped"}
    assert rows_published(history) == 6
