"""What do readers of a partitioned table see, while a slot's partitions are replaced?

The same, whether a partition is emptied and filled or another table takes its place. The first is done for few rows, and wherever
somebody could tell the second: those tests fail if a partition is exchanged without asking.
"""

import threading
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql

import twice
from databases import table
from exchanges import Tasks
from twice.errors import NotPublished, ProofGone
from twice.faults import Died, armed, dying_at
from twice.stores.postgres import exchanging, leaves, reading
from twice.stores.postgres.names import Name
from worlds import once_at

pytestmark = [pytest.mark.stores("postgres")]

DAY, NEXT, LATER = "2024-09-20", "2024-09-21", "2024-09-22"
PATTERNS = pytest.mark.parametrize(
    "pattern",
    [twice.data_overwrite(slice="day"), twice.data_overwrite(partitions=["day"])],
    ids=["slice", "partitions"],
)
BY_LIST = {
    "by": "list (day)",
    "one": f"for values in ('{DAY}')",
    "two": f"for values in ('{NEXT}')",
}
BY_RANGE = {
    "by": "range (day)",
    "one": f"for values from ('{DAY}') to ('{NEXT}')",
    "two": f"for values from ('{NEXT}') to ('{LATER}')",
}
POINTS = ["dressed", "locked", "detached", "attached"]


@pytest.fixture
def days(make_world):
    """Return a maker of worlds whose table has one partition for each day."""

    def make(pattern, layout=BY_LIST, more=""):
        world = make_world(pattern=pattern)
        world.database.execute(
            f"create table {table(world.target)} (id text, day date) partition by {layout['by']};"
            f"create table one partition of {table(world.target)} {layout['one']};"
            + (f"create table two partition of {table(world.target)} {layout['two']};" if layout["two"] else "")
            + more.format(parent=table(world.target))
        )
        for day in (DAY, NEXT):
            world.put(day, ["a", "b"])
            world.run(day)
        return world

    return make


@pytest.fixture(params=["held", "staged"])
def either(request, monkeypatch):
    """Let rows be held by the driver, or staged by tasks."""
    if request.param == "staged":
        Tasks().installed(monkeypatch)


@pytest.fixture
def by_tasks(monkeypatch):
    """Let rows be staged by tasks, so that they could take the place of a partition."""
    return Tasks().installed(monkeypatch)


@contextmanager
def older_snapshot(world):
    """Open a transaction that sees what is there now, and has not read the table yet."""
    with psycopg.connect(world.database.url) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.execute("select from twice_heads")
        yield db


def all_of(db, world):
    """Return the rows as a session sees them."""
    return db.execute(f"select id, day::text from {table(world.target)} order by day, id").fetchall()


BEFORE = [("a", DAY), ("b", DAY), ("a", NEXT), ("b", NEXT)]
AFTER = [("c", DAY), ("a", NEXT), ("b", NEXT)]


def oids(world):
    return dict(world.database.execute("select relname::text, oid from pg_class where relname in ('one', 'two')"))


def staged(world):
    found = world.database.execute("select relname from pg_class where relname like 'twice\\_s\\_%'")
    return sorted(name for (name,) in found)


def replaced(world, ids=("c",)):
    """Publish the first day anew; tell whether another table took the place of its partition."""
    before = oids(world)
    world.put(DAY, list(ids))
    assert world.run(DAY).state == "published"
    assert world.by_day() == {DAY: list(ids), NEXT: ["a", "b"]}
    assert staged(world) == []
    assert world.run(DAY).state == "skipped"
    after = oids(world)
    assert after["two"] == before["two"]
    return after["one"] != before["one"]


@PATTERNS
@pytest.mark.usefixtures("either")
def test_an_older_snapshot_keeps_the_old_rows_of_a_day_that_is_replaced(days, pattern):
    world = days(pattern)
    with older_snapshot(world) as db:
        assert not replaced(world)
        assert all_of(db, world) == BEFORE


@PATTERNS
@pytest.mark.usefixtures("either")
def test_a_reader_that_does_not_end_holds_up_no_publish_and_no_other_reader(days, pattern):
    world = days(pattern)
    with psycopg.connect(world.database.url) as slow, psycopg.connect(world.database.url) as new:
        slow.execute(f"select count(*) from {table(world.target)}")
        new.execute("set lock_timeout = '2s'")
        world.put(DAY, ["c"])
        assert world.run(DAY).state == "published"
        assert new.execute(f"select id from {table(world.target)} where day = '{DAY}'").fetchall() == [("c",)]


@PATTERNS
@pytest.mark.usefixtures("either")
def test_a_polling_reader_sees_whole_days_alone(days, pattern):
    world = days(pattern)
    over, seen = threading.Event(), set()

    def poll():
        with psycopg.connect(world.database.url, autocommit=True) as db:
            while not over.is_set():
                found = db.execute(f"select string_agg(id, '' order by day, id) from {table(world.target)}")
                seen.add(found.fetchone()[0])

    reader = threading.Thread(target=poll)
    reader.start()
    editions = [["c"], ["d", "e"], ["f", "g", "h"]]
    for ids in editions:
        world.put(DAY, ids)
        world.run(DAY)
    over.set()
    reader.join()
    assert seen <= {"abab", *("".join(ids) + "ab" for ids in editions)}
    assert "abab" in seen


@PATTERNS
@pytest.mark.usefixtures("either")
def test_a_partition_keeps_its_oid_its_grants_its_index_and_the_views_on_it(days, pattern):
    world = days(pattern)
    world.database.execute(
        "create view seen as select id from one; grant select on one to public; create index on one (id)"
    )
    question = "select oid, relacl, relhasindex from pg_class where relname in ('one', 'seen') order by oid"
    before = world.database.execute(question)
    world.put(DAY, ["c"])
    world.run(DAY)
    assert world.database.execute(question) == before
    assert world.database.execute("select id from seen") == [("c",)]


@PATTERNS
@pytest.mark.usefixtures("by_tasks")
@pytest.mark.parametrize("layout", [BY_LIST, BY_RANGE], ids=["list", "range"])
def test_staged_rows_take_the_place_of_a_whole_partition(days, pattern, layout):
    world = days(pattern, layout)
    kept = world.database.row_versions(world.target, NEXT)
    assert replaced(world, ["c", "d", "e"])
    assert world.database.row_versions(world.target, NEXT) == kept
    assert world.database.execute("select n_dead_tup from pg_stat_user_tables where relname = 'one'") == [(0,)]
    assert replaced(world, ["f"])


KEPT = """
alter table {parent} add primary key (id, day), add constraint short check (length(id) < 9), alter column id set default 'z';
create index lower_ids on {parent} (lower(id)) where id <> 'q'; alter table one add constraint own check (id <> 'never')
"""
SAID = """
select relname::text, pg_get_expr(relpartbound, oid), relpersistence::text, reloptions, relacl::text from pg_class where relname = 'one'
union all select indexrelid::regclass::text, pg_get_indexdef(indexrelid), (select inhparent::regclass::text from pg_inherits
    where inhrelid = indexrelid), null, null from pg_index where indrelid = 'one'::regclass
union all select conname, pg_get_constraintdef(oid), contype::text || conislocal || coninhcount, null, null
    from pg_constraint where conrelid = 'one'::regclass
union all select tgname, pg_get_triggerdef(oid), tgenabled::text, null, null from pg_trigger where tgrelid = 'one'::regclass
union all select attname, attislocal || ' ' || attinhcount, (select pg_get_expr(adbin, adrelid) from pg_attrdef
    where adrelid = attrelid and adnum = attnum), null, null from pg_attribute where attrelid = 'one'::regclass and attnum > 0
order by 1, 2
"""


@pytest.mark.usefixtures("by_tasks")
def test_what_takes_the_place_of_a_partition_has_all_that_it_had(days):
    world = days(twice.data_overwrite(slice="day"), more=KEPT)
    before = world.database.execute(SAID)
    assert len(before) > len(("one", "pkey", "lower", "id", "day", "short", "own"))
    assert replaced(world)
    assert world.database.execute(SAID) == before
    assert world.database.execute("select n_distinct from pg_stats where tablename = 'one' and attname = 'id'") != []


@pytest.mark.usefixtures("by_tasks")
def test_rows_that_the_table_refuses_are_refused_as_ever(days):
    world = days(twice.data_overwrite(slice="day"), more=KEPT)
    for ids, said in ((["c", "c"], "duplicate key"), (["long enough"], "short"), (["never"], "own")):
        world.put(DAY, ids)
        with pytest.raises(NotPublished, match=said):
            world.run(DAY)
        assert (world.by_day()[DAY], staged(world)) == (["a", "b"], [])
    assert replaced(world)


NOTHING = "create function nothing() returns trigger language plpgsql as 'begin return null; end';"
OWN = {
    "a view": "create view seen as select id from one",
    "a grant of a column": "grant select (id) on one to public",
    "an index": "create index on one (id)",
    "a policy": "create policy own on one using (true)",
    "row security": "alter table one enable row level security",
    "a trigger": NOTHING + "create trigger own after insert on one for each row execute function nothing()",
    "a trigger that is called like ours": NOTHING
    + "create trigger twice_own after insert on one for each row execute function nothing()",
    "a trigger of the table": NOTHING + "create trigger own after delete on {parent} execute function nothing()",
    "a rule": "create rule own as on update to one do also select 1",
    "a comment": "comment on table one is 'the first day'",
    "a comment on a column": "comment on column one.id is 'the first day'",
    "an option": "alter table one set (fillfactor = 50)",
    "an option of its key": "alter table {parent} add primary key (id, day); alter index one_pkey set (fillfactor = 50)",
    "statistics": "create statistics own on id, day from one",
    "statistics of a column": "alter table one alter column id set statistics 10",
    "a foreign key": "create table other (id text primary key); insert into other values ('a'), ('b'), ('c');"
    "alter table one add foreign key (id) references other",
    "a function on its rows": "create function own(one) returns text language sql as 'select 1::text'",
    "a publication": "create publication own for table two",
    "an identity": "alter table one replica identity full",
    "an owner": "alter table one owner to pg_monitor",
    "an owner of the table": "alter table {parent} owner to pg_monitor",
    "a collation": 'alter table {parent} alter column id type text collate "C"',
    "a storage": "alter table one alter column id set storage external",
    "a default partition": "create table rest partition of {parent} default",
    "inheritance above": "create table above (id text, day date) partition by list (day);"
    "alter table above attach partition {parent} for values in ('2024-09-20', '2024-09-21')",
    "another schema": "create schema other; alter table one set schema other; set search_path = other, public",
}


@pytest.fixture
def two_days(postgres_url):
    """Return a session in a database with a table of two partitions."""
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(
            "create table days (id text, day date) partition by list (day);"
            f"create table one partition of days {BY_LIST['one']}; create table two partition of days {BY_LIST['two']}"
        )
        yield db


def plain_one(db):
    """Return the partition that may be exchanged, where rows of the first day leave."""
    extent = leaves.of_partitions([f"day={DAY}"], {"id": "text", "day": "date"})
    return leaves.found(db, Name("public", "days"), extent)


@pytest.mark.parametrize("own", OWN)
def test_a_partition_with_something_of_its_own_is_not_plain(two_days, own):
    assert plain_one(two_days).name == Name("public", "one")
    two_days.execute(OWN[own].format(parent="days"))
    assert plain_one(two_days) is None


def test_a_partition_of_another_role_is_not_plain(two_days):
    two_days.execute("set role pg_monitor")
    assert plain_one(two_days) is None


@pytest.mark.usefixtures("by_tasks")
def test_a_partition_that_is_not_plain_is_emptied_and_filled(days):
    world = days(twice.data_overwrite(slice="day"))
    world.database.execute("select pg_create_physical_replication_slot('own')")
    try:
        assert not replaced(world)
    finally:
        world.database.execute("select pg_drop_replication_slot('own')")
    assert replaced(world, ["d"])
    world.database.execute("create view seen as select id from one")
    assert not replaced(world, ["e"])
    assert world.database.execute("select id from seen") == [("e",)]


@pytest.mark.parametrize("own", [OWN["a view"], OWN["an index"], "grant select on one to public"])
def test_what_a_partition_gets_while_rows_are_staged_is_not_lost(days, by_tasks, own):
    world = days(twice.data_overwrite(slice="day"))
    by_tasks.meanwhile.append(lambda _: world.database.execute(own))
    before = oids(world)
    world.put(DAY, ["c"])
    world.run(DAY)
    assert (oids(world), world.by_day()[DAY]) == (before, ["c"])


@pytest.mark.usefixtures("by_tasks")
def test_a_partition_whose_changes_could_no_longer_be_noticed_is_emptied_and_filled(days, monkeypatch):
    world = days(twice.data_overwrite(slice="day"))
    refused = "create trigger t after insert on pg_class for each statement execute function twice_note_change()"
    monkeypatch.setattr(exchanging.proofs, "_trigger", lambda *_: sql.SQL(refused))
    assert not replaced(world)
    world.database.execute(f"insert into one values ('foreign', '{DAY}')")
    with pytest.raises(ProofGone):
        world.run(DAY)


@pytest.mark.usefixtures("by_tasks")
def test_columns_of_a_partition_stay_in_their_order(days):
    world = days(twice.data_overwrite(slice="day"))
    world.transform = lambda rows: [{"day": row["day"], "id": row["id"]} for row in rows]
    assert replaced(world)
    assert world.database.execute("select one::text from one") == world.database.execute(
        "select (id, day)::text from one"
    )
    world.database.execute(
        f"alter table {table(world.target)} detach partition one; drop table one; create table one (day date, id text);"
        f"insert into one values ('{DAY}', 'c'); alter table {table(world.target)} attach partition one {BY_LIST['one']}"
    )
    assert not replaced(world, ["d"])


@pytest.mark.usefixtures("by_tasks")
def test_whatever_the_server_says_against_an_exchange_the_rows_are_published(days):
    world = days(twice.data_overwrite(slice="day"))
    world.database.execute(
        "create function stays() returns event_trigger language plpgsql as $$ begin"
        " if exists (select from pg_event_trigger_dropped_objects() where object_name = 'one') then"
        " raise 'it stays' using errcode = '58000'; end if; end $$;"
        "create event trigger stays on sql_drop execute function stays()"
    )
    assert not replaced(world)


LAYOUTS = {
    "two days in one": {"by": "range (day)", "one": f"for values from ('{DAY}') to ('{LATER}')"},
    "two values in one": {"by": "list (day)", "one": f"for values in ('{DAY}', '{NEXT}')"},
    "another column": {"by": "list (left(id, 0))", "one": "for values in ('')"},
    "hashes": {"by": "hash (day)", "one": "for values with (modulus 1, remainder 0)"},
    "a partition of partitions": {
        "by": "list (day)",
        "one": f"for values in ('{DAY}', '{NEXT}') partition by list (day)",
    },
}


@PATTERNS
@pytest.mark.usefixtures("by_tasks")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_not_just_one_partition_is_emptied_and_filled(days, pattern, layout):
    more = "create table below partition of one default;" if "partition by" in LAYOUTS[layout]["one"] else ""
    world = days(pattern, {"two": "", **LAYOUTS[layout]}, more)
    before = world.database.execute("select oid from pg_class where relname in ('one', 'below') order by oid")
    world.put(DAY, ["c"])
    world.run(DAY)
    assert world.by_day() == {DAY: ["c"], NEXT: ["a", "b"]}
    assert world.database.execute("select oid from pg_class where relname in ('one', 'below') order by oid") == before


@pytest.mark.usefixtures("by_tasks")
def test_rows_of_two_partitions_and_of_one_more_than_before_are_filled_in(days):
    world = days(twice.data_overwrite(partitions=["day"]))
    world.database.execute(f"create table three partition of {table(world.target)} for values in ('{LATER}')")
    before = oids(world)
    world.put_rows(DAY, [{"id": "c", "day": DAY}, {"id": "d", "day": LATER}])
    world.run(DAY)
    assert world.by_day() == {DAY: ["c"], NEXT: ["a", "b"], LATER: ["d"]}
    world.put_rows(DAY, [{"id": "e", "day": DAY}])
    world.run(DAY)
    assert (world.by_day(), oids(world)) == ({DAY: ["e"], NEXT: ["a", "b"]}, before)
    assert replaced(world, ["f"])


@pytest.mark.usefixtures("by_tasks")
def test_a_slice_by_a_condition_is_emptied_and_filled(days):
    world = days(twice.data_overwrite(where="day = date '{start:%Y-%m-%d}' and id <> 'z'"))
    assert not replaced(world)


def test_rows_of_a_task_that_does_not_count_do_not_come_with_the_partition(days, by_tasks):
    world = days(twice.data_overwrite(slice="day"))

    def commit_another(together):
        with psycopg.connect(world.database.url) as other:
            other.execute(f"insert into {together.table.text} values ('lost', '{DAY}')")
            other.execute(f"insert into {together.journal.text} values (pg_current_xact_id()::xid::text::bigint, 1)")

    by_tasks.meanwhile.append(commit_another)
    before = oids(world)
    world.put(DAY, ["c", "d", "e"])
    world.run(DAY)
    assert (oids(world), world.by_day()[DAY], staged(world)) == (before, ["c", "d", "e"], [])


def test_nobody_waits_for_a_task_that_still_writes(days, by_tasks):
    world = days(twice.data_overwrite(slice="day"))
    with psycopg.connect(world.database.url) as other:
        by_tasks.meanwhile.append(
            lambda together: other.execute(f"insert into {together.table.text} values ('lost', '{DAY}')")
        )
        before = oids(world)
        world.put(DAY, ["c"])
        world.run(DAY)
        assert (oids(world), world.by_day()[DAY]) == (before, ["c"])


@contextmanager
def polled(world):
    """Read the table all the time, and do not wait for a lock; what could not be read is an error."""
    over, errors = threading.Event(), []

    def poll():
        with psycopg.connect(world.database.url, autocommit=True) as db:
            db.execute("set lock_timeout = '50ms'")
            while not over.is_set():
                try:
                    all_of(db, world)
                except psycopg.errors.LockNotAvailable as error:
                    errors.append(error)

    reader = threading.Thread(target=poll)
    reader.start()
    yield errors
    over.set()
    reader.join()


@pytest.mark.usefixtures("by_tasks")
@pytest.mark.parametrize("read", ["{parent}", "one"])
def test_a_partition_that_somebody_reads_is_emptied_and_filled_and_nobody_waits(days, read):
    world = days(twice.data_overwrite(slice="day"))
    with psycopg.connect(world.database.url) as slow:
        slow.execute(f"select from {read.format(parent=table(world.target))}")
        with polled(world) as errors:
            assert not replaced(world)
    assert errors == []
    assert replaced(world, ["d"])


@pytest.mark.usefixtures("by_tasks")
def test_a_reader_of_another_partition_is_not_in_the_way(days):
    world = days(twice.data_overwrite(slice="day"))
    with psycopg.connect(world.database.url) as slow:
        slow.execute("select from two")
        assert replaced(world)


@contextmanager
def reading_for_a_second(world, then):
    """Run a statement that takes a while in a transaction with one snapshot; hand what it reads next to somebody."""
    at_work = threading.Event()

    def read():
        with psycopg.connect(world.database.url) as db:
            db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            db.execute("set application_name = 'slow'")
            at_work.set()
            db.execute("select pg_sleep(2) from (select 1 from twice_heads limit 1) heads")
            then(all_of(db, world))

    reader = threading.Thread(target=read)
    reader.start()
    at_work.wait()
    question = "select 1 from pg_stat_activity where application_name = 'slow' and backend_xmin is not null and query ~ 'sleep'"
    while not world.database.execute(question):
        pass
    yield reader
    reader.join()


@pytest.mark.usefixtures("by_tasks")
def test_a_statement_that_began_before_the_rows_were_staged_is_in_the_way(days):
    world, seen = days(twice.data_overwrite(slice="day")), []
    with reading_for_a_second(world, seen.append):
        assert not replaced(world)
    assert seen == [BEFORE]


def test_a_snapshot_from_after_the_rows_were_staged_sees_all_of_them(days, by_tasks):
    world, seen, slow = days(twice.data_overwrite(slice="day")), [], []

    def begin(_):
        slow.append(reading_for_a_second(world, seen.append))
        slow[0].__enter__()

    by_tasks.meanwhile.append(begin)
    before = oids(world)
    world.put(DAY, ["c"])
    world.run(DAY)
    assert oids(world)["one"] != before["one"]
    slow[0].__exit__(None, None, None)
    assert seen == [AFTER]


def test_a_snapshot_that_is_kept_between_statements_keeps_the_old_rows(days, by_tasks):
    world, open_ones = days(twice.data_overwrite(slice="day")), []

    def begin(_):
        open_ones.append(older_snapshot(world))
        open_ones.append(open_ones[0].__enter__())

    by_tasks.meanwhile.append(begin)
    before = oids(world)
    world.put(DAY, ["c"])
    world.run(DAY)
    assert (oids(world), all_of(open_ones[1], world)) == (before, BEFORE)
    open_ones[0].__exit__(None, None, None)


@pytest.mark.usefixtures("by_tasks")
@pytest.mark.parametrize("point", POINTS[1:])
def test_a_snapshot_that_is_taken_while_the_table_is_locked_sees_whole_days(days, point):
    world = days(twice.data_overwrite(slice="day"))
    with psycopg.connect(world.database.url) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with armed(once_at(f"postgres.partition.{point}", lambda: db.execute("select from twice_heads"))):
            was_replaced = replaced(world)
        assert all_of(db, world) == (AFTER if was_replaced else BEFORE)
        assert was_replaced == (point != "locked")


@pytest.mark.usefixtures("by_tasks")
@pytest.mark.parametrize("written", ["{parent}", "one"])
def test_a_foreign_change_is_noticed_before_and_after_an_exchange(days, written):
    world = days(twice.data_overwrite(slice="day"))
    assert replaced(world)
    assert (world.sight().ended, list(world.store.inspect(world.target))) == ({}, [])
    insert = f"insert into {written.format(parent=table(world.target))} values ('x', '{DAY}')"
    world.database.execute(insert)
    assert set(world.sight().ended) == {world.slot(DAY), world.slot(NEXT)}
    before = oids(world)
    assert world.run(DAY, force=True).state == "published"
    assert (oids(world)["one"] != before["one"], set(world.sight().ended)) == (True, {world.slot(NEXT)})
    world.database.execute(insert)
    assert set(world.sight().ended) == {world.slot(DAY), world.slot(NEXT)}


@pytest.mark.usefixtures("by_tasks")
@pytest.mark.parametrize("point", [*(f"partition.{point}" for point in POINTS), "commit.before", "commit.after"])
def test_a_death_leaves_one_of_the_two_partitions_and_the_rerun_the_new_one(days, point):
    world = days(twice.data_overwrite(slice="day"), more=KEPT)
    before, said = oids(world), world.database.execute(SAID)
    world.put(DAY, ["c"])
    with armed(dying_at(f"postgres.{point}")), pytest.raises(Died):
        world.run(DAY)
    assert world.by_day() == {DAY: ["c"] if point == "commit.after" else ["a", "b"], NEXT: ["a", "b"]}
    assert (oids(world) == before) == (point != "commit.after")
    world.run(DAY)
    assert (world.by_day(), world.database.execute(SAID)) == ({DAY: ["c"], NEXT: ["a", "b"]}, said)
    assert oids(world)["one"] != before["one"]
    world.store.tidy(world.target, frozenset(), keep_days=0, dry_run=False)
    assert staged(world) == []
    assert world.run(DAY).state == "skipped"


@pytest.mark.usefixtures("by_tasks")
def test_a_publish_that_is_stopped_with_the_lock_keeps_readers_for_a_moment_alone(days, monkeypatch):
    world = days(twice.data_overwrite(slice="day"))
    monkeypatch.setattr(exchanging, "_MOST_IDLE", "200ms")
    seen = []

    def stop():
        seen.append(world.by_day())

    world.put(DAY, ["c"])
    with armed(once_at("postgres.partition.attached", stop)), pytest.raises(NotPublished, match="connection"):
        world.run(DAY)
    assert seen == [{DAY: ["a", "b"], NEXT: ["a", "b"]}]
    assert replaced(world)


@pytest.mark.usefixtures("by_tasks")
def test_two_days_that_are_published_at_once_both_land(days):
    world = days(twice.data_overwrite(slice="day"))
    world.put(DAY, ["c"])
    world.put(NEXT, ["d"])
    twin = world.twin()
    twin.reopen()
    states, before = [], oids(world)
    second = threading.Thread(target=lambda: states.append(twin.run(NEXT).state))
    with armed(once_at("postgres.partition.dressed", second.start)):
        states.append(world.run(DAY).state)
        second.join()
    assert (states, world.by_day()) == (["published", "published"], {DAY: ["c"], NEXT: ["d"]})
    assert oids(world)["one"] != before["one"]
    assert (world.sight().ended, staged(world)) == ({}, [])


class Listed(Exception):
    """What a reader asked of Spark."""


class Lister:
    """Stands where Spark would, and tells which parts of a table it was to read."""

    def createDataFrame(self, parts, _):  # noqa: N802 - Spark's name
        raise Listed([name for _, name, _, _ in parts])


@pytest.mark.usefixtures("by_tasks")
@pytest.mark.parametrize("point", ["locked", "detached"])
def test_a_reader_that_lists_the_partitions_during_an_exchange_misses_none(days, monkeypatch, point):
    world, listed = days(twice.data_overwrite(slice="day")), []
    monkeypatch.setattr(reading, "_FEW_BYTES", -1)

    def read():
        try:
            reading.frame(world.database.url, Name("public", world.target.replace("/", "__")), Lister())
        except Listed as found:
            listed.extend(found.args[0])

    reader = threading.Thread(target=read)
    waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"

    def begin():
        reader.start()
        while not world.database.execute(waiting):
            pass

    before = oids(world)
    world.put(DAY, ["c"])
    with armed(once_at(f"postgres.partition.{point}", begin)):
        world.run(DAY)
    reader.join()
    assert oids(world)["one"] != before["one"]
    assert sorted(listed) == ["one", "two"]
