"""Scenarios 80 and 112: two drivers with JVMs of their own, on one slot and on one table."""

import pytest
from drivers import RECEIPTS, Driver, Reader

from worlds import World

pytestmark = [pytest.mark.timeout(3000)]

DAY = "2024-09-20"
TIMES = 100
ROWS = 5
RECEIPTS_EACH = 50
RECEIPTS_EACH_IN_FULL = 500


@pytest.fixture
def drivers(request):
    started = []

    def start(*arguments, **settings):
        started.extend(Driver(*arguments, **settings) for _ in range(2))
        for driver in started:
            driver.wait_until_ready()
        return started

    yield start
    for driver in started:
        driver.stop()


@pytest.mark.stores("parquet", "delta")
def test_80_two_processes_on_one_slot_a_hundred_times(kind, spark, tmp_path, drivers):
    """Without leases: the store's compare alone decides."""
    world = World(tmp_path / "world", kind, spark, start="2020-01-01")
    world.put(DAY, ["0"] * ROWS)
    world.put("2024-09-19", ["bystander"])
    world.run("2024-09-19")
    bystander = world.data_files("2024-09-19")
    pair = drivers(world.folder, kind, 0.0)
    outcomes = []

    def slot_as_read():
        return [one for one, day in world.rows() if day == DAY]

    with Reader(slot_as_read) as reader:
        for number in range(TIMES):
            world.put(DAY, [str(number)] * ROWS)
            for driver in pair:
                driver.ask(DAY)
            outcomes.append(tuple(sorted(driver.answer() for driver in pair)))
    assert {first for first, _ in outcomes} | {second for _, second in outcomes} <= {
        "published",
        "skipped",
        "Overtaken 4",
        "Busy 4",
    }
    assert all(outcome.count("published") == 1 for outcome in outcomes), outcomes
    assert world.sight().fence(world.slot(DAY)) == TIMES
    assert slot_as_read() == [str(TIMES - 1)] * ROWS
    torn = [seen for seen in reader.seen if seen and (len(seen) != ROWS or len(set(seen)) != 1)]
    assert torn == []
    numbers = [int(seen[0]) for seen in reader.seen if seen]
    assert numbers == sorted(numbers), "a reader saw an older generation after a newer one"
    assert len(set(numbers)) > TIMES / 10
    assert world.data_files("2024-09-19") == bystander


@pytest.mark.stores("delta")
def test_112_two_processes_publish_different_slots_and_none_is_lost(kind, spark, tmp_path, drivers, request):
    """Receipts alone, so that the commits come as closely together as they can; a thousand in `make prove`."""
    each = RECEIPTS_EACH_IN_FULL if request.config.getoption("--every-kill") else RECEIPTS_EACH
    world = World(tmp_path / "world", kind, spark, start="2020-01-01", every="1 day")
    make_empty_table(world)
    pair = drivers(world.folder, kind, 0.0, body=RECEIPTS)
    for name, driver in zip("ab", pair, strict=True):
        driver.ask(f"{name} {each}")
    said = [driver.answer() for _ in range(each) for driver in pair]
    assert len(set(said)) == 2 * each
    assert set(said) <= set(world.sight().receipts)


@pytest.mark.stores("parquet", "delta")
def test_112_two_processes_publish_different_slots_with_rows(kind, spark, tmp_path, drivers):
    world = World(tmp_path / "world", kind, spark, start="2020-01-01")
    days = [f"2024-01-{day:02}" for day in range(1, 21)]
    for day in days:
        world.put(day, [f"{day}-{number}" for number in range(3)])
    pair = drivers(world.folder, kind, 60.0)
    for left, right in zip(days[::2], days[1::2], strict=True):
        pair[0].ask(left)
        pair[1].ask(right)
        assert {driver.answer() for driver in pair} == {"published"}
    assert world.by_day() == {day: [f"{day}-{number}" for number in range(3)] for day in days}


def make_empty_table(world):
    """Make the table that the receipts go to, under the ledger that all drivers share."""
    from twice.abilities import Staged, Work
    from twice.runs import Receipt

    slot = "v1:out:delta:lake/out:key=first"
    work = Work(world.target, slot, "first", 1, world.sight())
    frame = world.spark.createDataFrame([], "id string, day date")
    staged = world.store.stage_table(work, frame)
    receipt = Receipt(slot, 1, "first", "fingerprint", "code", world.project.ledger.id)
    assert isinstance(staged, Staged)
    world.store.publish(work, staged, [receipt])
