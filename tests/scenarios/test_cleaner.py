"""Scenarios 1 to 12 and 106: one table per period behind a view, cleaned by replacing it."""

from collections import Counter

import pytest

import twice
from twice.errors import Misuse, NotPublished
from twice.faults import armed
from worlds import once_at

pytestmark = [pytest.mark.needs("UnitesTables")]

WEEK = ["2023-11-06", "2023-11-07", "2023-11-08", "2023-11-09"]


BY_WEEK = {"pattern": twice.fast_metadata_cleaner(period="week"), "start": "2022-12-26"}


@pytest.fixture
def visits(make_world):
    return make_world(**BY_WEEK)


def put(world, day, count=5):
    world.put(day, [f"{day}-{number}" for number in range(count)])


def load(world, days, count=5, **asked):
    for day in days:
        put(world, day, count)
        world.run(day, **asked)


def ids(world):
    return sorted(row["id"] for row in world.records())


def tables(world):
    return sorted({row["period"] for row in world.records()})


def load_week(world):
    load(world, WEEK)


@pytest.fixture
def week(filled_once):
    return filled_once(load_week, **BY_WEEK)


def test_1_and_2_a_week_and_its_replay(week):
    assert (len(ids(week)), max(Counter(ids(week)).values()), tables(week)) == (20, 1, ["2023_w45"])
    before = ids(week)
    for day in WEEK:
        assert week.run(day).state == "skipped"
    for day in WEEK:
        week.run(day, force=True)
    assert (ids(week), tables(week)) == (before, ["2023_w45"])


def test_3_a_week_with_a_corrected_monday(week):
    put(week, WEEK[0], 4)
    outcome = week.run(WEEK[0])
    assert (outcome.state, len(ids(week))) == ("published", 19)
    assert f"{WEEK[0]}-4" not in ids(week)
    assert all(week.run(day).state == "skipped" for day in WEEK)


def test_4_and_6_one_day_alone_replays_its_week_and_the_plan_says_so(week):
    before = ids(week)
    plan = twice.plan(week.pipeline, at=WEEK[1], force=True, project=week.project)
    assert plan.action == "replay"
    assert [slot.label[:10] for slot in plan.companions] == [WEEK[0], WEEK[2], WEEK[3]]
    assert "done again in the same publish" in plan.notes[0]
    assert week.run(WEEK[1], force=True).generation == 2
    assert week.run(WEEK[0], force=True).generation == 3
    assert ids(week) == before


def test_a_replay_whose_inputs_are_gone_changes_nothing(week):
    before = ids(week)
    (week.folder / f"landing/{WEEK[2]}.jsonl").unlink()
    put(week, WEEK[0], 1)
    with pytest.raises(NotPublished):
        week.run(WEEK[0])
    assert ids(week) == before


@pytest.mark.stores("parquet", "delta", "postgres")
def test_7_other_periods_are_not_rewritten(week):
    load(week, ["2023-11-13"])
    before = week.member_files("2023_w45")
    week.run("2023-11-13", force=True)
    assert week.member_files("2023_w45") == before
    assert len(ids(week)) == 25


@pytest.mark.parametrize(
    "days", [["2024-01-01", "2024-12-30", "2024-12-31", "2025-01-01"], ["2023-01-01", "2023-12-25"]]
)
def test_8_years_do_not_collide(visits, days):
    load(visits, days)
    assert len(ids(visits)) == 5 * len(days)
    for day in days:
        visits.run(day, force=True)
    assert len(ids(visits)) == 5 * len(days)


def test_9_the_first_run_may_be_in_the_middle_of_a_week(visits):
    load(visits, ["2023-11-08"])
    assert (len(ids(visits)), tables(visits)) == (5, ["2023_w45"])


def test_10_a_reader_always_finds_the_view(week):
    seen = []

    def hook(point):
        if point.startswith(("stage", "publish", "view")):
            seen.append(len(ids(week)))

    with armed(hook):
        week.run(WEEK[1], force=True)
    assert set(seen) == {20}


@pytest.mark.stores("parquet", "delta")
def test_12_strangers_are_ignored_and_untouched(week):
    stranger = week.table() / "2023_w44audit"
    week.spark.range(3).write.parquet(str(stranger))
    load(week, ["2023-11-13"])
    assert (len(ids(week)), len(list(stranger.glob("*.parquet")))) == (25, len(list(stranger.glob("*.parquet"))))
    assert tables(week) == ["2023_w45", "2023_w46"]


def test_106_two_drivers_open_two_periods_at_once(visits):
    put(visits, WEEK[0])
    put(visits, "2023-11-13")
    with armed(once_at("view.open.before", lambda: visits.twin().run("2023-11-13"))):
        visits.run(WEEK[0])
    assert (len(ids(visits)), tables(visits)) == (10, ["2023_w45", "2023_w46"])


def test_a_day_that_is_added_while_the_week_is_replayed_is_not_lost(week):
    put(week, "2023-11-10")
    with armed(once_at("publish.before", lambda: week.twin().run("2023-11-10"))):
        week.run(WEEK[0], force=True)
    assert (len(ids(week)), max(Counter(ids(week)).values())) == (25, 1)


def test_full_loads_make_the_table_anew(make_world):
    world = make_world(pattern=twice.fast_metadata_cleaner(period="month", full=True))
    load(world, ["2024-09-20"], 3)
    load(world, ["2024-09-21"], 4)
    assert len(ids(world)) == 4
    put(world, "2024-09-20", 1)
    with pytest.raises(twice.Fenced, match="newer load 2024-09-21"):
        world.run("2024-09-20", accept=True)
    assert len(ids(world)) == 4


def test_there_is_a_limit_to_the_tables_of_a_view(make_world):
    world = make_world(pattern=twice.fast_metadata_cleaner(period="day", tables_at_most=2))
    load(world, ["2024-09-20", "2024-09-21"])
    with pytest.raises(NotPublished, match="already unites 2 tables"):
        load(world, ["2024-09-22"])
    assert len(ids(world)) == 10


@pytest.mark.parametrize("period", ["hour", "day", "week", "month", "year"])
def test_periods_that_do_not_hold_the_slot_are_refused(make_world, period):
    world = make_world(pattern=twice.fast_metadata_cleaner(period=period))
    put(world, "2024-09-20")
    if period == "hour":
        with pytest.raises(Misuse, match="does not lie within one hour"):
            world.run("2024-09-20")
    else:
        world.run("2024-09-20")
        assert len(ids(world)) == 5


def test_a_column_that_the_view_adds_cannot_come_from_the_rows(make_world):
    world = make_world(pattern=twice.fast_metadata_cleaner(by="day"))
    put(world, "2024-09-20")
    with pytest.raises(Misuse, match="column 'day' already"):
        world.run("2024-09-20")


def test_a_name_that_is_a_table_does_not_become_a_view(make_world):
    world = make_world()
    load(world, ["2024-09-20"])
    world.pattern = twice.fast_metadata_cleaner()
    with pytest.raises(Misuse, match="is a table"):
        load(world, ["2024-09-21"])


@pytest.mark.stores("memory", "parquet", "delta")
def test_a_period_that_someone_dropped_is_not_guessed_about(week):
    load(week, ["2023-11-13"])
    week.drop_member("2023_w45")
    assert len(ids(week)) == 5
    with pytest.raises(twice.Fenced, match="--force"):
        week.run(WEEK[0])
    for day in WEEK:
        week.run(day, force=True)
    assert len(ids(week)) == 25


def test_another_pipeline_does_not_write_a_view(week):
    other = week.twin(name="other")
    other.put("2023-11-20", ["stranger"])
    with pytest.raises(Misuse, match="written by the pipeline 'out'"):
        other.run("2023-11-20")
    assert len(ids(week)) == 20
