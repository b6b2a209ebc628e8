"""Views on a real server: what readers see while the tables behind them change."""

import threading
from collections import Counter

import psycopg
import pytest
from psycopg import errors

import twice
from twice.errors import Busy, Fenced, Misuse
from twice.faults import Died, armed, dying_at
from worlds import once_at

pytestmark = [pytest.mark.stores("postgres")]

WEEK = ["2023-11-06", "2023-11-07"]
NEXT = "2023-11-13"
VIEW = "lake__out"
PERIOD = "lake__out__2023_w45"


@pytest.fixture
def visits(make_world):
    return make_world(pattern=twice.fast_metadata_cleaner(period="week"), start="2022-12-26")


@pytest.fixture
def week(visits):
    load(visits, [*WEEK, NEXT])
    return visits


@pytest.fixture
def devices(make_world):
    world = make_world(pattern=twice.proxy())
    load(world, ["2024-09-20"])
    return world


def load(world, days, count=3):
    for day in days:
        world.put(day, [f"{day}-{number}" for number in range(count)])
        world.run(day)


def ids(db):
    return sorted(one for (one,) in db.execute(f"select id from {VIEW}").fetchall())


def connect(world, **more):
    return psycopg.connect(world.database.url, **more)


def older_snapshot(world):
    """Open a transaction whose snapshot is taken now, and that has not touched the view yet."""
    db = connect(world)
    db.execute("set transaction isolation level repeatable read")
    db.execute("select count(*) from pg_class")
    return db


# -------------------------------------------------------------------- what readers see


def test_an_older_snapshot_keeps_the_old_rows_of_a_period_that_is_replaced(week):
    with older_snapshot(week) as db, connect(week, autocommit=True) as now:
        before = ids(now)
        for round_ in range(3):
            week.put(WEEK[0], [f"corrected-{round_}"])
            week.run(WEEK[0])
        assert ids(db) == before
        assert ids(now) == sorted(["corrected-2", *(one for one in before if not one.startswith(WEEK[0]))])
        db.rollback()
    assert len(week.database.tables(f"{PERIOD}%")) == 4
    week.store.tidy(week.target, frozenset, keep_days=0, dry_run=False)
    assert week.database.tables(f"{PERIOD}%") == [PERIOD]
    assert "corrected-2" in [row["id"] for row in week.records()]


def test_an_older_snapshot_keeps_the_version_that_it_could_see(devices):
    with older_snapshot(devices) as db, connect(devices, autocommit=True) as now:
        before = ids(now)
        load(devices, ["2024-09-21", "2024-09-22"], 1)
        devices.store.point(devices.target, "v1", devices.project.ledger.id)
        devices.store.point(devices.target, "v3", devices.project.ledger.id)
        assert (ids(db), ids(now)) == (before, ["2024-09-22-0"])


def test_an_older_snapshot_reads_through_a_freeze(week):
    with older_snapshot(week) as db, connect(week, autocommit=True) as now:
        before = ids(now)
        week.store.freeze(week.target, "2023", ["2023_w45", "2023_w46"], week.project.ledger.id)
        assert ids(db) == ids(now) == before
    week.store.tidy(week.target, frozenset, keep_days=0, dry_run=False)
    assert week.database.tables(f"{VIEW}%") == [VIEW, "lake__out__2023"]
    assert [week.run(day).state for day in (*WEEK, NEXT)] == ["skipped"] * 3


def test_10_a_polling_reader_sees_only_whole_states(week):
    seen, failures, stop = Counter(), [], threading.Event()

    def poll():
        with connect(week, autocommit=True) as db:
            while not stop.is_set():
                try:
                    found = db.execute(f"select id from {VIEW} where day = '{WEEK[0]}'").fetchall()
                    seen["+".join(sorted({one.partition("/")[0] for (one,) in found})), len(found)] += 1
                except psycopg.Error as error:
                    failures.append(error)

    editions = [f"edition{number}" for number in range(8)]
    readers = [threading.Thread(target=poll, daemon=True) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for edition in editions:
            week.put(WEEK[0], [f"{edition}/{number}" for number in range(5)])
            week.run(WEEK[0])
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert failures == []
    first = f"{WEEK[0]}-0+{WEEK[0]}-1+{WEEK[0]}-2"
    assert set(seen) <= {(first, 3), *((edition, 5) for edition in editions)}
    assert sum(seen.values()) > 50


def test_a_filter_on_the_period_reads_one_table(week):
    plan = week.database.execute(f"explain select * from {VIEW} where period = '2023_w46'")
    assert "2023_w46" in str(plan)
    assert "2023_w45" not in str(plan)


def test_a_reader_that_does_not_end_is_waited_for_and_new_readers_pass(week, monkeypatch):
    monkeypatch.setattr("twice.stores.postgres.views._MOST_SECONDS", 1.5)
    week.put(WEEK[0], ["corrected"])
    with connect(week) as holder:
        holder.execute(f"select * from {VIEW}").fetchall()
        with pytest.raises(Busy, match="holds a lock"):
            week.run(WEEK[0])
        passed = once_at("postgres.view.waits", lambda: passes.append(len(week.records())))
        passes = []
        with armed(passed), pytest.raises(Busy):
            week.run(WEEK[0])
        assert passes == [9]
    assert week.run(WEEK[0]).state == "published"


# -------------------------------------------------------------------- strangers


def test_12_tables_with_names_like_ours_are_ignored(week):
    week.database.execute(
        f"create table {VIEW}audit (id text, day date); create table {PERIOD}_mine (id text, day date)"
    )
    week.database.execute(f"insert into {VIEW}audit values ('stranger'); insert into {PERIOD}_mine values ('stranger')")
    load(week, ["2023-11-20"])
    week.run(WEEK[0], force=True)
    assert len(week.records()) == 12
    assert week.database.execute(f"select count(*) from {VIEW}audit") == [(1,)]


def test_a_table_that_has_a_periods_name_is_not_put_behind_the_view(visits):
    visits.database.execute(f"create table {PERIOD} (id text, day date)")
    visits.put(WEEK[0], ["a"])
    with pytest.raises(Misuse):
        visits.run(WEEK[0])
    assert visits.database.tables() == [PERIOD]


def test_a_view_of_others_is_not_taken_over(visits):
    visits.database.execute(f"create view {VIEW} as select 1 as one")
    visits.put(WEEK[0], ["a"])
    with pytest.raises(Misuse, match="is a view that others made"):
        visits.run(WEEK[0])


def test_views_of_others_stay_and_see_the_new_rows(week):
    week.database.execute(f"create view counted as select day, count(*) as visits from {VIEW} group by day")
    week.put(WEEK[0], ["corrected"])
    week.run(WEEK[0])
    assert week.database.execute(f"select visits from counted where day = '{WEEK[0]}'") == [(1,)]
    week.store.add_column(week.target, "country", "string", week.project.ledger.id)
    assert week.database.execute(f"select visits from counted where day = '{WEEK[0]}'") == [(1,)]


def test_a_wider_column_makes_the_view_anew_with_its_grants_or_is_refused(visits):
    visits.columns = {"on_type_change": "widen"}
    visits.transform = lambda rows: _of_type(rows, "int32")
    load(visits, [WEEK[0]])
    visits.database.execute(f"grant select on {VIEW} to public; create view counted as select visits from {VIEW}")
    visits.transform = lambda rows: _of_type(rows, "int64")
    with pytest.raises(Misuse, match=r"public\.counted"):
        load(visits, [WEEK[1]])
    assert len(visits.records()) == 3
    visits.database.execute("drop view counted")
    load(visits, [WEEK[1]])
    assert len(visits.records()) == 6
    granted = (
        f"select count(*) from information_schema.table_privileges where table_name = '{VIEW}' and grantee = 'PUBLIC'"
    )
    assert visits.database.execute(granted) == [(1,)]


def _of_type(rows, kind):
    import pyarrow as pa

    table = pa.Table.from_pylist(rows)
    return table.append_column("visits", pa.array([1] * table.num_rows, kind))


def test_a_period_cannot_be_dropped_by_mistake_and_a_view_that_was_is_made_again(week):
    with pytest.raises(errors.DependentObjectsStillExist):
        week.database.execute(f"drop table {PERIOD}")
    week.database.execute(f"drop view {VIEW}")
    assert week.run(WEEK[0]).state == "skipped"
    assert len(week.records()) == 9
    week.database.execute(f"drop table {PERIOD} cascade")
    with pytest.raises(Fenced, match="--force"):
        week.run(WEEK[0])
    for day in WEEK:
        week.run(day, force=True)
    assert len(week.records()) == 9


def test_indexes_of_a_period_are_there_again_when_it_is_replaced(week):
    week.database.execute(f"create index on {PERIOD} (id)")
    week.run(WEEK[0], force=True)
    count = f"select count(*) from pg_indexes where tablename = '{PERIOD}'"
    assert week.database.execute(count) == [(1,)]


def test_rows_written_into_a_period_by_others_end_its_proofs_alone(week):
    week.database.execute(f"insert into {PERIOD} (id) values ('stranger')")
    with pytest.raises(Fenced, match="changed from outside"):
        week.run(WEEK[0])
    assert week.run(NEXT).state == "skipped"


def test_a_check_looks_at_the_tables_behind_a_view(week):
    assert week.store.inspect(week.target) == []
    week.database.execute(f"alter table {PERIOD} disable trigger twice_delete")
    assert [found.named for found in week.store.inspect(week.target)] == [(PERIOD,)]
    assert week.store.unfilled(week.target) == ()


def test_rows_are_not_written_past_the_view_that_unites_them(week):
    week.put("2023-11-10", ["x"])
    with pytest.raises(Misuse, match="Under two names"):
        week.twin(target=PERIOD, pattern=twice.data_overwrite(slice="day")).run("2023-11-10")
    with pytest.raises(Misuse, match="is a view"):
        week.twin(pattern=twice.data_overwrite(slice="day")).run("2023-11-10")
    assert len(week.records()) == 9


def test_a_period_that_was_only_opened_is_not_written_by_its_own_name(visits):
    visits.put(WEEK[0], ["x"])
    with armed(dying_at("stage.before")), pytest.raises(Died):
        visits.run(WEEK[0])
    visits.reopen()
    with pytest.raises(Misuse, match="behind the view"):
        visits.twin(target=PERIOD, pattern=twice.data_overwrite(slice="day"), name="other").run(WEEK[0])


def test_names_that_would_be_cut_are_refused(make_world):
    world = make_world(pattern=twice.fast_metadata_cleaner(period="week"), start="2022-12-26", target="v" * 60)
    world.put(WEEK[0], ["a"])
    with pytest.raises(Misuse, match="63"):
        world.run(WEEK[0])
    assert world.database.tables() == []


# -------------------------------------------------------------------- two at once, and deaths


def test_106_drivers_that_open_periods_at_once_lose_none(visits):
    days = ["2023-11-06", "2023-11-13", "2023-11-20", "2023-11-27"]
    failures = []
    for day in days:
        visits.put(day, [day])

    def drive(day):
        try:
            visits.twin().run(day)
        except Exception as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    drivers = [threading.Thread(target=drive, args=[day]) for day in days]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert failures == []
    assert [row["id"] for row in visits.records()] == days


@pytest.mark.parametrize("point", ["postgres.member.filled", "postgres.member.shown", "postgres.commit.after"])
def test_106_killed_between_table_and_view(visits, point):
    visits.put(WEEK[0], ["a"])
    with armed(dying_at(point)), pytest.raises(Died):
        visits.run(WEEK[0])
    visits.reopen()
    visits.run(WEEK[0])
    assert [row["id"] for row in visits.records()] == ["a"]
    assert visits.database.tables() == [VIEW, PERIOD]


@pytest.mark.parametrize("point", ["postgres.version.opened", "postgres.version.filled", "postgres.version.shown"])
def test_a_death_in_a_publish_leaves_no_version_behind(devices, point):
    before = devices.database.tables()
    devices.put("2024-09-21", ["new"])
    with armed(dying_at(point)), pytest.raises(Died):
        devices.run("2024-09-21")
    assert devices.database.tables() == before
    devices.reopen()
    devices.run("2024-09-21")
    assert [row["id"] for row in devices.records()] == ["new"]


# -------------------------------------------------------------------- versions


def test_78_the_server_refuses_changes_of_a_version_even_by_its_owner(devices):
    for statement in (
        "insert into lake__out__v1 values ('x')",
        "update lake__out__v1 set id = 'x'",
        "delete from lake__out__v1",
        "truncate lake__out__v1",
    ):
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="never changes"):
            devices.database.execute(statement)
    assert len(devices.records()) == 3


def test_78_the_server_refuses_writes_through_the_view(devices):
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="never changes"):
        devices.database.execute(f"insert into {VIEW} values ('x')")


def test_a_version_that_someone_dropped_is_not_vouched_for(devices):
    load(devices, ["2024-09-21"])
    devices.database.execute("drop table lake__out__v2 cascade")
    with pytest.raises(Fenced):
        devices.run("2024-09-21")
    devices.run("2024-09-21", force=True)
    assert len(devices.records()) == 3
