"""What is peculiar to PostgreSQL, on a real server, with rows that the driver holds."""

import re
import threading
from datetime import UTC, date, datetime
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest

import twice
from databases import table
from twice.errors import Busy, LedgerAhead, Misuse, NotPublished, ProofGone
from twice.faults import LostReply, armed, dying_at
from twice.stores.postgres import PostgresStore
from twice.stores.postgres.connections import connected
from worlds import once_at

pytestmark = [pytest.mark.stores("postgres")]

DAY, NEXT = "2024-09-20", "2024-09-21"


@pytest.fixture
def filled(world):
    world.put(DAY, ["a", "b"])
    world.run(DAY)
    return world


def execute(world, statement, values=()):
    return world.database.execute(statement.replace("OUT", table(world.target)), values)


# ---------------------------------------------------------------- the transaction


def test_the_receipt_is_in_the_transaction_of_the_rows(filled):
    rows = execute(filled, "select distinct xmin from OUT")
    receipts = execute(filled, "select xmin from twice_receipts")
    assert rows == receipts
    assert len(rows) == 1


def test_a_publish_sees_what_was_committed_while_it_waited_whatever_the_database_says(world):
    execute(world, f"alter database {world.database.name} set default_transaction_isolation = 'serializable'")
    with connected(world.database.url) as connection:
        assert connection.execute("show transaction_isolation").fetchone() == ("read committed",)


def test_a_reply_that_is_lost_at_commit_is_decided_by_the_receipt(world):
    world.put(DAY, ["a"])
    with armed(dying_at("postgres.commit.after", LostReply)):
        outcome = world.run(DAY)
    assert (outcome.state, world.rows()) == ("published", [("a", DAY)])


def test_a_connection_that_breaks_before_commit_is_not_published(world):
    world.put(DAY, ["a"])

    def cut():
        world.database.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )

    with armed(once_at("postgres.head.moved", cut)), pytest.raises(NotPublished, match="COMMIT was not sent"):
        world.run(DAY)
    assert world.records() == []
    assert world.run(DAY).state == "published"


def test_of_two_publishes_of_one_slot_the_second_finds_the_first(world):
    world.put(DAY, ["a"])
    twin = world.twin(ledger_name="twin.db")
    world.run(DAY)
    with pytest.raises(twice.Fenced, match="another ledger"):
        twin.run(DAY)


def test_a_deadlock_is_tried_again_where_nothing_was_published(filled):
    """Another transaction holds the head and wants the receipt; the server ends ours, which is done again."""
    filled.put(DAY, ["c"])
    url = filled.database.url
    filled.project._stores["postgres"] = PostgresStore(f"{url}?options=-c%20deadlock_timeout%3D200ms", None)
    seen = []

    def cross():
        other.execute("update twice_heads set owner = owner")
        wants = threading.Thread(target=lambda: seen.append(other.execute("update twice_receipts set ended = ended")))
        wants.start()
        threading.Timer(2.0, other.rollback).start()

    crossing = armed(once_at("postgres.receipt.moved", cross))
    with psycopg.connect(url, options="-c deadlock_timeout=1h") as other, crossing:
        assert filled.run(DAY).state == "published"
    assert seen
    assert filled.rows() == [("c", DAY)]


def test_a_lock_that_somebody_holds_is_not_waited_for_for_ever(filled):
    filled.put(NEXT, ["c"])
    url = filled.database.url
    filled.project._stores["postgres"] = PostgresStore(f"{url}?options=-c%20lock_timeout%3D300ms", None)
    with psycopg.connect(url) as other:
        other.execute("update twice_heads set owner = owner")
        with pytest.raises(Busy, match="holds a lock"):
            filled.run(NEXT)
    assert filled.run(NEXT).state == "published"


def test_a_server_that_went_back_in_time_is_refused(filled):
    backup = filled.database.copied()
    filled.put(NEXT, ["c"])
    filled.run(NEXT)
    filled.put(DAY, ["d"])
    filled.run(DAY)
    filled.database = backup
    filled.reopen()
    with pytest.raises(LedgerAhead, match="the store has 1"):
        filled.run(DAY)
    with pytest.raises(LedgerAhead, match="the store has none"):
        filled.run(NEXT)
    assert filled.rows() == [("a", DAY), ("b", DAY)]


# ---------------------------------------------------------------- changes by others


@pytest.mark.parametrize(
    "statement",
    [
        "insert into OUT values ('x', '2024-09-20')",
        "update OUT set id = 'x' where id = 'a'",
        "delete from OUT where id = 'a'",
        "truncate OUT",
        "alter table OUT rename to away; create table OUT (id text, day date)",
        "drop table OUT",
    ],
)
def test_97_a_change_by_others_ends_the_proof(filled, statement):
    execute(filled, statement)
    with pytest.raises(ProofGone):
        filled.run(DAY)
    assert filled.run(DAY, force=True).state == "published"
    assert ("a", DAY) in filled.rows()
    assert filled.run(DAY).state == "skipped"


def test_a_statement_that_changes_nothing_does_not_count(filled):
    execute(filled, "delete from OUT where id = 'nobody'")
    execute(filled, "update OUT set id = 'x' where false")
    execute(filled, "vacuum OUT")
    execute(filled, "analyze OUT")
    assert filled.run(DAY).state == "skipped"


def test_a_change_that_is_committed_during_a_publish_is_seen_afterwards(filled):
    filled.put(NEXT, ["c"])

    def change():
        execute(filled, "insert into OUT values ('x', '2024-09-21')")

    with armed(once_at("postgres.head.moved", change)), pytest.raises(ProofGone, match="changed from outside"):
        filled.run(NEXT)
    assert filled.run(NEXT, force=True).state == "published"
    assert filled.by_day()[NEXT] == ["c"]


def test_what_was_accepted_is_asked_once_and_again_when_something_else_happens(filled):
    execute(filled, "delete from OUT where id = 'a'")
    assert filled.run(DAY, accept=True).state == "skipped"
    assert filled.run(DAY).state == "skipped"
    execute(filled, "delete from OUT where id = 'b'")
    with pytest.raises(ProofGone):
        filled.run(DAY)


def test_an_acceptance_does_not_outlive_a_backup(filled):
    backup = filled.database.copied()
    execute(filled, "delete from OUT where id = 'a'")
    assert filled.run(DAY, accept=True).state == "skipped"
    filled.database = backup
    filled.reopen()
    execute(filled, "delete from OUT")
    with pytest.raises(ProofGone):
        filled.run(DAY)


def test_an_acceptance_of_a_table_that_was_made_again_does_not_outlive_a_backup(filled):
    backup = filled.database.copied()
    again = "alter table OUT rename to away; create table OUT (id text, day date)"
    execute(filled, f"{again}; insert into OUT select * from away")
    assert filled.run(DAY, accept=True).state == "skipped"
    filled.database = backup
    filled.reopen()
    execute(filled, again)
    with pytest.raises(ProofGone, match="made again"):
        filled.run(DAY)


def test_an_acceptance_of_a_whole_table_that_was_replaced_does_not_outlive_a_backup(make_world):
    world = make_world(pattern=twice.data_overwrite())
    for day in (DAY, NEXT):
        world.put(day, ["a"])
    world.run(NEXT)
    backup = world.database.copied()
    world.run(DAY, force=True)
    assert world.run(NEXT, accept=True).state == "skipped"
    world.database = backup
    world.reopen()
    world.run(DAY, force=True)
    with pytest.raises(ProofGone):
        world.run(NEXT)


def test_an_acceptance_of_what_a_view_does_not_show_does_not_outlive_a_backup(make_world):
    world = make_world(pattern=twice.proxy())
    for day in (DAY, NEXT):
        world.put(day, ["a"])
    world.run(DAY)
    backup = world.database.copied()
    world.run(NEXT)
    twice.point(f"postgres:{world.target}", "v1", project=world.project)
    assert world.run(NEXT, accept=True).state == "skipped"
    assert world.run(NEXT).state == "skipped"
    world.database = backup
    world.reopen()
    world.run(NEXT, force=True)
    twice.point(f"postgres:{world.target}", "v1", project=world.project)
    with pytest.raises(ProofGone):
        world.run(NEXT)


def test_what_was_accepted_stays_so_when_old_changes_are_counted_and_not_listed_any_more(filled):
    for one in "ab":
        execute(filled, f"delete from OUT where id = '{one}'")
    execute(filled, "update twice_changes set at = at - interval '40 days'")
    filled.run(DAY, accept=True)
    filled.store.tidy(filled.target, frozenset, keep_days=30, dry_run=False)
    assert len(noted(filled)) == 1
    assert filled.run(DAY).state == "skipped"


def test_a_slot_of_a_table_that_was_made_again_and_published_to_is_accepted_once(filled):
    filled.put(NEXT, ["c"])
    filled.run(NEXT)
    execute(filled, "alter table OUT rename to away; create table OUT (id text, day date)")
    assert filled.run(NEXT, force=True).state == "published"
    with pytest.raises(ProofGone, match="made again"):
        filled.run(DAY)
    for asked in ({"accept": True}, {}):
        assert filled.run(DAY, **asked).state == "skipped"


def test_a_writer_without_rights_on_the_bookkeeping_is_noticed_all_the_same(filled):
    execute(filled, "drop role if exists clerk; create role clerk; grant insert on OUT to clerk")
    execute(filled, "set role clerk; insert into OUT values ('x', '2024-09-20')")
    with pytest.raises(ProofGone):
        filled.run(DAY)


def noted(world):
    return execute(world, "select operation from twice_changes order by transaction")


@pytest.mark.parametrize(
    "statement",
    [
        "insert into OUT values ('x', '2024-09-20')",
        "update OUT set id = id",
        "delete from OUT where id = 'a'",
        "truncate OUT",
        "copy OUT from program 'printf \"x\\t2024-09-20\\n\"'",
        "merge into OUT t using (values ('a')) s (id) on t.id = s.id when matched then delete",
        "begin; savepoint one; delete from OUT; rollback to one; delete from OUT where id = 'a'; commit",
    ],
)
def test_every_change_by_others_is_noted_once(filled, statement):
    execute(filled, statement)
    assert len(noted(filled)) == 1
    with pytest.raises(ProofGone):
        filled.run(DAY)


def test_statements_that_change_no_row_are_not_noted_even_after_one_that_did(filled):
    nothing = (
        "insert into {0} select * from {0} where false; update {0} set id = id where false; delete from {0} where false"
    )
    with psycopg.connect(filled.database.url, autocommit=True) as session:
        session.execute(nothing.format(table(filled.target)))
        assert noted(filled) == []
        session.execute(f"delete from {table(filled.target)} where id = 'a'")
        for statement in nothing.format(table(filled.target)).split(";"):
            session.execute(statement)
    assert noted(filled) == [("DELETE",)]


def test_what_others_write_after_a_publish_of_the_same_session_is_noted(filled):
    with psycopg.connect(filled.database.url, autocommit=True) as session:
        with session.transaction():
            session.execute("select set_config('twice.publishing', 'an attempt', true)")
            session.execute(f"delete from {table(filled.target)} where id = 'a'")
        session.execute(f"update {table(filled.target)} set id = id where false")
        assert noted(filled) == []
        session.execute(f"delete from {table(filled.target)}")
    assert noted(filled) == [("DELETE",)]


def test_rows_that_change_in_a_child_of_the_table_are_noted(filled):
    execute(filled, "create table child () inherits (OUT)")
    execute(filled, "insert into child values ('x', '2024-09-20')")
    assert noted(filled) == []
    execute(filled, "update OUT set id = 'y' where id = 'x'")
    assert noted(filled) == [("UPDATE",)]


def test_where_the_server_does_not_count_every_statement_is_noted(filled):
    execute(filled, "set track_counts = off; delete from OUT where false")
    assert noted(filled) == [("DELETE",)]


# ---------------------------------------------------------------- names, types and rights


@pytest.mark.parametrize("name", ["x" * 64, "ä" * 32, "a.b.c", 'quo"te'])
def test_names_that_postgresql_would_cut_or_misread_are_refused(world, name):
    world.target = name
    world.put(DAY, ["a"])
    with pytest.raises(Misuse):
        world.run(DAY)
    assert execute(world, "select count(*) from pg_tables where schemaname = 'public'") == [(0,)]


def test_a_name_of_63_bytes_and_one_with_a_schema(make_world):
    for name in ("x" * 63, "sales.visits"):
        world = make_world(target=name)
        world.database.execute("create schema sales")
        world.put(DAY, ["a"])
        world.run(DAY)
        world.run(DAY)
        assert world.rows() == [("a", DAY)]


def test_a_column_with_a_quote_works_and_one_of_64_bytes_is_refused(world):
    world.transform = lambda rows: [{'a"b': 1, **row} for row in rows]
    world.put(DAY, ["a"])
    world.run(DAY)
    assert world.records()[0]['a"b'] == 1
    world.transform = lambda rows: [{"x" * 64: 1, **row} for row in rows]
    world.put(NEXT, ["a"])
    with pytest.raises(Misuse, match="64 bytes"):
        world.run(NEXT)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [("id", "a\0b", "NUL"), ("n", 10**6, "overflow|out of range"), ("id", "x" * 30, "too long")],
)
def test_values_that_do_not_fit_leave_nothing_behind(world, column, value, said):
    execute(world, "create table OUT (id varchar(20), day date, n numeric(4,1))")
    rows = [{"id": str(one), "day": date(2024, 9, 20), "n": Decimal("1.0")} for one in range(900)]
    rows[800][column] = Decimal(value) if column == "n" else value
    world.transform = lambda _: pa.Table.from_pylist(
        rows, pa.schema([("id", pa.string()), ("day", pa.date32()), ("n", pa.decimal128(8, 1))])
    )
    world.columns = {"on_type_change": "widen"} if column != "n" else {}
    execute(world, "alter table OUT alter column n type numeric")
    if column == "n":
        execute(world, "alter table OUT add check (n < 1000)")
        said = "check constraint"
    world.put(DAY, ["a"])
    with pytest.raises(NotPublished, match=said):
        world.run(DAY)
    assert world.records() == []


def test_a_missing_schema_and_a_missing_right_are_named(world):
    world.target = "nowhere.visits"
    world.put(DAY, ["a"])
    with pytest.raises(Misuse, match="nowhere"):
        world.run(DAY)
    execute(world, "drop role if exists guest; create role guest login password 'g'; create schema closed")
    url = re.sub(r"//[^@]*@", "//guest:g@", world.database.url)
    world.target = "closed.visits"
    world.project._stores["postgres"] = PostgresStore(url, None)
    with pytest.raises(Misuse, match="GRANT"):
        world.run(DAY)


def test_without_the_right_to_make_triggers_the_run_says_so(world):
    execute(world, "drop role if exists filler; create role filler login password 'f'")
    execute(world, "grant create, usage on schema public to filler; create table OUT (id text, day date)")
    execute(world, "grant select, insert, update, delete on OUT to filler")
    url = re.sub(r"//[^@]*@", "//filler:f@", world.database.url)
    world.project._stores["postgres"] = PostgresStore(url, None)
    world.put(DAY, ["a"])
    outcome = world.run(DAY)
    assert any("proof by receipt only" in note for note in outcome.notes)
    assert world.run(DAY).state == "skipped"


def test_a_view_that_depends_on_the_table_goes_on(filled):
    execute(filled, "create view seen as select id from OUT")
    filled.put(DAY, ["c"])
    filled.run(DAY)
    assert execute(filled, "select id from seen") == [("c",)]


def test_a_column_that_a_view_needs_is_not_widened_under_it(world):
    world.columns = {"on_type_change": "widen"}
    world.transform = lambda rows: pa.Table.from_pylist([{**row, "n": 1} for row in rows]).cast(
        pa.schema([("id", pa.string()), ("day", pa.date32()), ("n", pa.int32())])
    )
    world.put(DAY, ["a"])
    world.run(DAY)
    execute(world, "create view seen as select n from OUT")
    world.transform = lambda rows: [{**row, "n": 1} for row in rows]
    world.put(NEXT, ["b"])
    with pytest.raises(Misuse, match="view"):
        world.run(NEXT)
    execute(world, "drop view seen")
    assert world.run(NEXT).state == "published"


def test_a_read_only_server_is_refused(world):
    execute(world, f"alter database {world.database.name} set default_transaction_read_only = on")
    world.put(DAY, ["a"])
    with pytest.raises(Misuse, match="can only be read"):
        world.run(DAY)


def test_a_password_is_never_shown(world, capsys):
    world.project._stores["postgres"] = PostgresStore("postgresql://u:hunter2@127.0.0.1:1/x", None)
    world.put(DAY, ["a"])
    with pytest.raises(NotPublished) as refused:
        world.run(DAY)
    broken = PostgresStore("postgresql://u:hunter2@[/x y", None)
    with pytest.raises(Misuse) as misread:
        broken.look("out")
    for text in (str(refused.value), str(misread.value), repr(broken), capsys.readouterr().out):
        assert "hunter2" not in text


def test_types_come_back_as_they_went(world):
    row = {
        "id": "a",
        "day": date(2024, 9, 20),
        "whole": 2**40,
        "part": 0.5,
        "exact": Decimal("12.50"),
        "at": datetime(2024, 9, 20, 1, 2, 3, tzinfo=UTC),
        "local": datetime(2024, 9, 20, 1, 2, 3),
        "yes": True,
        "raw": b"\0\1",
        "many": [1, 2],
    }
    world.transform = lambda _: [row, {**dict.fromkeys(row), "id": "b", "day": row["day"]}]
    world.put(DAY, ["a"])
    world.run(DAY)
    found = {one["id"]: one for one in world.records()}
    assert found["a"] == {**row, "many": "[1, 2]"}
    assert set(found["b"].values()) == {"b", row["day"], None}


def test_columns_of_types_that_only_postgresql_knows_read_the_text(world):
    execute(world, "create table OUT (id uuid, day date, more jsonb)")
    one = "00000000-0000-0000-0000-00000000000a"
    world.transform = lambda _: [{"id": one, "day": date(2024, 9, 20), "more": '{"a": 1}'}]
    world.put(DAY, ["a"])
    world.run(DAY)
    assert execute(world, "select id::text, more->>'a' from OUT") == [(one, "1")]
    world.transform = lambda _: [{"id": "no uuid", "day": date(2024, 9, 21), "more": "{}"}]
    world.put(NEXT, ["a"])
    with pytest.raises(NotPublished, match="no uuid"):
        world.run(NEXT)


PARTITIONED = """
create table OUT (id text, day date) partition by range (day);
create table early partition of OUT for values from ('2024-09-01') to ('2024-09-21');
create table late partition of OUT for values from ('2024-09-21') to ('2024-10-01');
"""


@pytest.mark.parametrize(
    "pattern",
    [
        twice.data_overwrite(slice="day"),
        twice.data_overwrite(partitions=["day"]),
        twice.merger(keys=["id", "day"]),
        twice.dedup_insert(keys=["id", "day"]),
        twice.stateful_merger(keys=["id", "day"], form="history"),
    ],
    ids=lambda pattern: pattern.name,
)
def test_a_partitioned_table_is_published_to_and_watched_in_every_part(make_world, pattern):
    world = make_world(pattern=pattern)
    execute(world, PARTITIONED)
    for day in (DAY, NEXT):
        world.put(day, ["a", "b"])
        world.run(day)
    world.put(NEXT, ["a", "c"])
    world.run(NEXT)
    kept = ["b"] if pattern.name in ("merger", "dedup_insert") else []
    assert world.by_day() == {DAY: ["a", "b"], NEXT: ["a", *kept, "c"]}
    assert execute(world, "select count(*) from early") == [(2,)]
    execute(world, "insert into late values ('x', '2024-09-21')")
    with pytest.raises(ProofGone):
        world.run(NEXT)


def test_a_row_that_no_partition_takes_leaves_nothing(make_world):
    world = make_world()
    execute(world, PARTITIONED)
    world.put("2024-10-05", ["a"])
    with pytest.raises(NotPublished, match="no partition"):
        world.run("2024-10-05")
    assert world.records() == []


# ---------------------------------------------------------------- several tables


def test_several_tables_and_their_receipt_are_one_transaction(make_world):
    world = make_world(pattern=twice.transactional_writer(tables=["orders", "sales.lines"], lineage="slot"))
    world.database.execute("create schema sales")
    world.transform = lambda rows: {"orders": rows, "sales.lines": [{"n": 1}, {"n": 2}]}
    world.put(DAY, ["a"])
    with armed(dying_at("postgres.rows.moved", LostReply)), pytest.raises(twice.TwiceError):
        world.run(DAY)
    assert world.database.execute("select to_regclass('sales.lines')") == [(None,)]
    assert world.run(DAY).state == "published"
    assert world.run(DAY).state == "skipped"
    both = 'select count(*) from "lake__out__orders" union all select count(*) from sales.lines'
    assert world.database.execute(both) == [(1,), (2,)]
    world.put(DAY, ["a", "b"])
    world.run(DAY)
    assert world.database.execute(both) == [(2,), (2,)]
    world.database.execute("delete from sales.lines")
    with pytest.raises(ProofGone, match="changed from outside"):
        world.run(DAY)


# ---------------------------------------------------------------- what is not there, and first uses


def test_two_first_runs_at_once_make_the_bookkeeping_once(world):
    world.put(DAY, ["a"])
    world.put(NEXT, ["b"])
    outcomes, errors = [], []

    def run(day):
        try:
            outcomes.append(world.run(day).state)
        except BaseException as error:  # noqa: BLE001 - the test tells of it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(day,)) for day in (DAY, NEXT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (errors, outcomes) == ([], ["published", "published"])
    assert world.rows() == [("a", DAY), ("b", NEXT)]


def test_an_older_version_is_not_read(filled):
    filled.put(DAY, ["c"])
    filled.run(DAY)
    with pytest.raises(Misuse, match="no version 0"):
        filled.store.read(filled.target, 0)
