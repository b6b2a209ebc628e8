"""Inputs that are moved away after their slot was published: its rows stay, and nothing takes their place unasked."""

import shutil

import pytest

import twice
from twice.errors import InputsAbsent, NotPublished
from twice.faults import armed
from worlds import needing, once_at

DAYS = ["2024-09-20", "2024-09-21", "2024-09-22"]
END = "2024-09-23"
ROWS = {"2024-09-20": ["a", "b"], "2024-09-21": ["c"], "2024-09-22": ["d"]}
PATTERNS = [
    twice.data_overwrite(slice="day"),
    twice.data_overwrite(partitions=["day"]),
    twice.merger(keys=["id"]),
    twice.dedup_insert(keys=["id"]),
    twice.transactional_writer(lineage="slot"),
    twice.stateful_merger(keys=["id"]),
    twice.stateful_merger(keys=["id"], form="history"),
    twice.fast_metadata_cleaner(period="week"),
    twice.keyed(keys=["id"]),
]
each_pattern = pytest.mark.parametrize(
    "pattern", [pytest.param(one, id=repr(one)[:40], marks=needing(one)) for one in PATTERNS]
)
each_meaning = pytest.mark.parametrize("missing", ["fail", "empty"])


def load(world):
    for day, ids in ROWS.items():
        world.put(day, ids)
        world.run(day)


@pytest.fixture
def archived(filled_once):
    """Return a maker of worlds of which all days are published, and the files of some moved away."""

    def make(*days, **settings):
        world = filled_once(load, start=DAYS[0], **settings)
        world.archive(*days)
        return world

    return make


def state(world):
    receipts = world.sight().receipts
    return world.by_day(), {slot: (one.generation, one.attempt) for slot, one in receipts.items()}


def backfilled(world, **asked):
    return twice.backfill(world.pipeline, DAYS[0], END, project=world.project, **asked)


@each_pattern
@each_meaning
def test_published_rows_stay_when_their_files_are_moved_away(archived, pattern, missing):
    world = archived(*DAYS, pattern=pattern, missing=missing)
    before = state(world)
    for day in DAYS:
        plan = twice.plan(world.pipeline, at=day, project=world.project)
        assert (plan.action, plan.losses) == ("skip", ())
        assert plan.reason.startswith("its inputs are gone, and its rows stay: no file matches 'landing/")
        assert world.run(day).state == "skipped"
    assert [outcome.state for outcome in backfilled(world)] == ["skipped"] * 3
    assert state(world) == before
    world.put(DAYS[2], ROWS[DAYS[2]])
    assert world.run(DAYS[2]).reason == "published, and the inputs are the same"


@each_meaning
def test_files_that_come_back_corrected_are_published(archived, missing):
    world = archived(*DAYS, missing=missing)
    world.put(DAYS[1], ["e"])
    assert (world.run(DAYS[1]).state, world.by_day()[DAYS[1]]) == ("published", ["e"])
    world.put(DAYS[0], [])
    assert (world.run(DAYS[0]).state, world.by_day()) == ("published", {DAYS[1]: ["e"], DAYS[2]: ["d"]})


def test_a_slot_that_was_never_published_names_what_is_not_there(make_world):
    world = make_world(start=DAYS[0])
    with pytest.raises(
        InputsAbsent, match=r"No file matches 'landing/2024-09-20.jsonl' for out at 2024-09-20T00:00Z\."
    ):
        world.run(DAYS[0])


@each_pattern
def test_without_its_files_a_slot_cannot_be_forced(archived, pattern):
    world = archived(*DAYS, pattern=pattern)
    before = state(world)
    with pytest.raises(InputsAbsent, match="No file matches"):
        world.run(DAYS[1], force=True)
    assert state(world) == before


def test_where_no_file_means_no_rows_one_slot_may_be_replaced_by_nothing_by_force(archived):
    world = archived(DAYS[1], missing="empty")
    plan = twice.plan(world.pipeline, at=DAYS[1], force=True, project=world.project)
    assert (plan.destroys, plan.why_asks.partition(":")[0]) == (True, "asked for with --force, and its inputs are gone")
    assert world.run(DAYS[1], force=True).state == "published"
    assert world.by_day() == {DAYS[0]: ["a", "b"], DAYS[2]: ["d"]}
    assert world.run(DAYS[1]).reason == "published, and the inputs are the same"


@each_pattern
def test_a_walk_replaces_nothing_by_nothing_also_by_force(archived, pattern):
    world = archived(DAYS[2], pattern=pattern, missing="empty")
    rows = world.by_day()
    with pytest.raises(NotPublished, match=r"inputs .* gone"):
        backfilled(world, force=True)
    assert world.by_day() == rows


def test_a_day_without_a_file_that_gets_one_is_published(make_world):
    world = make_world(start=DAYS[0], missing="empty")
    assert [world.run(DAYS[0]).state for _ in range(2)] == ["published", "skipped"]
    world.put(DAYS[0], ["a"])
    assert (world.run(DAYS[0]).state, world.by_day()) == ("published", {DAYS[0]: ["a"]})
    world.archive(DAYS[0])
    assert (world.run(DAYS[0]).state, world.by_day()) == ("skipped", {DAYS[0]: ["a"]})


REPLAYED = [PATTERNS[5], PATTERNS[7]]


@pytest.mark.parametrize("pattern", [pytest.param(one, id=one.name, marks=needing(one)) for one in REPLAYED])
@each_meaning
def test_a_replay_does_not_begin_without_the_inputs_of_what_it_does_again(archived, pattern, missing):
    world = archived(DAYS[2], pattern=pattern, missing=missing)
    before = state(world)
    world.put(DAYS[1], ["corrected"])
    with pytest.raises(NotPublished, match=r"2024-09-22T00:00Z has to be done again .* its inputs are gone: no file"):
        world.run(DAYS[1])
    with pytest.raises(NotPublished, match="its inputs are gone"):
        backfilled(world)
    assert state(world) == before
    world.put(DAYS[2], ROWS[DAYS[2]])
    assert world.run(DAYS[1]).state == "published"
    assert world.by_day()[DAYS[1]] == ["corrected"]
    assert world.by_day()[DAYS[2]] == ["d"]


@pytest.mark.needs("KeepsVersions")
@each_meaning
def test_a_replay_that_is_shown_slot_by_slot_does_not_go_on_without_inputs(archived, missing):
    world = archived(pattern=twice.stateful_merger(keys=["id"], visible="each"), missing=missing)
    world.put(DAYS[1], ["corrected"])
    with armed(once_at("publish.after", lambda: world.archive(DAYS[2]))), pytest.raises(NotPublished, match="o file"):
        world.run(DAYS[1])
    assert world.by_day() == {DAYS[0]: ["a", "b"], DAYS[1]: ["corrected"]}
    world.put(DAYS[2], ROWS[DAYS[2]])
    world.run(DAYS[1])
    assert world.by_day() == {DAYS[0]: ["a", "b"], DAYS[1]: ["corrected"], DAYS[2]: ["d"]}


def copying(world):
    """Return a pipeline that copies the world's table."""
    form = {"target": f"{world.kind}:lake/copies", "pattern": twice.data_overwrite(), "name": "copies"}
    return twice.pipeline(source=twice.table(f"{world.kind}:{world.target}"), **form)(lambda rows: rows)


@pytest.mark.stores("parquet", "delta")
def test_rows_stay_when_the_table_that_they_were_made_from_is_gone(archived):
    world = archived()
    assert twice.run(copying(world), project=world.project).rows == 4
    shutil.rmtree(world.table())
    again = twice.run(copying(world), project=world.project)
    why = f"its inputs are gone, and its rows stay: the table '{world.kind}:lake/out' does not exist"
    assert (again.state, again.reason) == ("skipped", why)
    with pytest.raises(InputsAbsent, match="does not exist yet"):
        twice.run(copying(world), force=True, project=world.project)


@pytest.mark.stores("postgres")
def test_a_table_that_was_dropped_is_an_input_that_is_not_there(archived):
    world = archived()
    assert twice.plan(copying(world), project=world.project).action == "create"
    world.database.execute("DROP TABLE lake__out")
    with pytest.raises(InputsAbsent, match="does not exist yet"):
        twice.plan(copying(world), project=world.project)


# ------------------------------------------------------------------ several sources


@pytest.fixture
def shop(tmp_path, make_world):
    """Return a maker of a pipeline of orders and of corrections, which come or do not."""
    world = make_world()

    def put(name, *ids):
        file = world.folder / f"{name}.txt"
        file.write_text("".join(f"{one}\n" for one in ids)) if ids else file.unlink(missing_ok=True)

    class Lines:
        def __init__(self, name, missing):
            self.files = twice.files(f"{name}.txt", schema="id string", format="csv", header=False, missing=missing)

        def resolve(self, place):
            chosen = self.files.resolve(place)

            class Read:
                facts, summary, absent = chosen.facts, chosen.summary, chosen.absent
                moved = staticmethod(chosen.moved)

                def read(self, engine):
                    return [{"id": line} for mark in chosen.marks for line in open(mark.real).read().split()]

            return Read()

    def run(**declared):
        sources = {"orders": Lines("orders", "fail"), "corrections": Lines("corrections", "empty")}
        form = {"target": "memory:lake/shop", "pattern": twice.data_overwrite(), "name": "shop", **declared}
        both = twice.pipeline(sources=sources, **form)(lambda orders, corrections: orders + corrections)
        outcome = twice.run(both, project=world.project)
        return outcome.state, sorted(row["id"] for row in world.store.read("lake/shop"))

    return put, run


@pytest.mark.stores("memory")
def test_a_source_that_had_nothing_then_and_now_is_not_gone(shop):
    put, run = shop
    put("orders", "a")
    assert run() == ("published", ["a"])
    put("orders", "b")
    assert run() == ("published", ["b"])
    assert run(parameters={"rate": 2}) == ("published", ["b"])


@pytest.mark.stores("memory")
def test_one_of_several_sources_that_is_gone_keeps_the_rows(shop):
    put, run = shop
    put("orders", "a")
    put("corrections", "c")
    assert run() == ("published", ["a", "c"])
    put("corrections")
    assert run() == ("skipped", ["a", "c"])
    put("orders", "b")
    assert run() == ("skipped", ["a", "c"])
    put("corrections", "d")
    assert run() == ("published", ["b", "d"])
    put("orders")
    assert run() == ("skipped", ["b", "d"])


@pytest.mark.stores("memory")
def test_new_code_that_asks_for_a_rerun_does_not_get_one_without_inputs(shop):
    put, run = shop
    put("orders", "a")
    assert run() == ("published", ["a"])
    put("orders")
    assert run(on_code_change="rerun", pattern=twice.data_overwrite(empty="keep")) == ("skipped", ["a"])
