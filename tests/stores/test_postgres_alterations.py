"""Do statements that change a table without firing a trigger end the proofs of its slots, and maintenance none?"""

import re
from contextlib import suppress

import pytest
from psycopg.errors import LockNotAvailable

import twice
from databases import table
from twice.errors import Misuse, ProofGone
from twice.faults import armed
from twice.stores.postgres import PostgresStore
from worlds import once_at

pytestmark = [pytest.mark.stores("postgres")]

DAY, NEXT = "2024-09-20", "2024-09-21"
PARTED = """
create table OUT (id text, day date) partition by range (day);
create table d20 partition of OUT for values from ('2024-09-20') to ('2024-09-21');
create table d21 partition of OUT for values from ('2024-09-21') to ('2024-09-22');
create table empty partition of OUT for values from ('2024-09-22') to ('2024-09-23')
"""
OTHERS = "create table others (id text, day date); insert into others values ('x', '2024-09-19')"
ATTACHED = "alter table OUT attach partition others for values from ('2024-09-19') to ('2024-09-20')"
SWITCHED_OFF = "alter table OUT disable trigger all; {}; alter table OUT enable trigger all"
ON_AGAIN = ", ".join(f"enable always trigger twice_{one}" for one in ("insert", "update", "delete", "truncate"))


def execute(world, statement):
    return world.database.execute(statement.replace("OUT", table(world.target)))


@pytest.fixture
def filled(world):
    for day, ids in ((DAY, ["a", "b"]), (NEXT, ["c"])):
        world.put(day, ids)
        world.run(day)
    return world


@pytest.fixture
def parted(make_world):
    world = make_world(pattern=twice.data_overwrite(slice="day"))
    execute(world, PARTED)
    for day, ids in ((DAY, ["a", "b"]), (NEXT, ["c"])):
        world.put(day, ids)
        world.run(day)
    return world


def ends_all_proofs(world, said):
    for day in (DAY, NEXT):
        with pytest.raises(ProofGone, match=f"(?i){said}"):
            world.run(day)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("alter table OUT alter id type text using upper(id)", "truncated or written anew"),
        ("alter table OUT alter id type varchar(9)", "the column id was given another type"),
        ("alter table OUT alter id type text using upper(id); vacuum full OUT", "truncated or written anew"),
        ("alter table OUT drop column id", "the column id was dropped"),
        ("alter table OUT drop column id; alter table OUT add column id text", "the column id was dropped"),
        ("alter table OUT rename id to name", "the column id was renamed to name"),
        (SWITCHED_OFF.format("delete from OUT where id = 'a'"), "switched off"),
        ("alter table OUT disable trigger twice_delete; delete from OUT where id = 'a'", "switched off"),
        ("drop trigger twice_delete on OUT; delete from OUT where id = 'a'", "switched off"),
        ("set session_replication_role = replica; delete from OUT where id = 'a'", "changed from outside"),
        ("set session_replication_role = replica; truncate OUT", "changed from outside"),
        (f"alter table OUT disable trigger all; truncate OUT; alter table OUT {ON_AGAIN}", "truncated or written anew"),
    ],
)
def test_what_changes_a_table_ends_all_proofs(filled, statement, said):
    changed, *maintained = statement.split("; vacuum")
    execute(filled, changed)
    for one in maintained:
        execute(filled, f"vacuum{one}")
    ends_all_proofs(filled, said)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("drop table d20", "the partition public.d20 was detached or dropped"),
        ("alter table OUT detach partition d20", "the partition public.d20 was detached or dropped"),
        (
            "drop table d20; create table d20 partition of OUT for values from ('2024-09-20') to ('2024-09-21')",
            "the partition public.d20 was detached or dropped",
        ),
        (
            f"{OTHERS}; {ATTACHED}",
            "the partition public.others was attached with rows in it",
        ),
        ("truncate d20", "changed from outside|truncated"),
        ("alter table d20 disable trigger all; delete from d20; alter table d20 enable trigger all", "switched off"),
        ("alter table OUT alter id type text using upper(id)", "truncated or written anew"),
    ],
)
def test_what_changes_a_partition_ends_all_proofs(parted, statement, said):
    execute(parted, statement)
    ends_all_proofs(parted, said)
    assert parted.run(NEXT, force=True).state == "published"
    with pytest.raises(ProofGone, match=f"(?i){said}"):
        parted.run(DAY)


@pytest.mark.parametrize(
    "statement",
    [
        "vacuum full OUT",
        "vacuum freeze OUT",
        "create index by_id on OUT (id); cluster OUT using by_id",
        "create index by_id on OUT (id); reindex table OUT",
        "alter table OUT add column more text",
        "alter table OUT set (fillfactor = 90); analyze OUT; comment on table OUT is 'seen'; grant select on OUT to public",
        "alter table OUT add constraint known check (id <> 'x')",
    ],
)
def test_maintenance_ends_no_proof(filled, parted, statement):
    for world in (filled, parted):
        for one in statement.split("; "):
            if not (world is parted and one.startswith(("cluster", "alter table OUT set"))):
                execute(world, one)
        assert [world.run(day).state for day in (DAY, NEXT)] == ["skipped", "skipped"]


def test_partitions_without_rows_come_and_go_without_ending_a_proof(parted):
    execute(parted, "create table later partition of OUT for values from ('2024-10-01') to ('2024-10-02')")
    execute(parted, "alter table OUT detach partition empty")
    execute(parted, "vacuum full d20")
    assert [parted.run(day).state for day in (DAY, NEXT)] == ["skipped", "skipped"]
    # Rows that others put past the parent's triggers into a partition of which no publish knows.
    execute(parted, "insert into later values ('x', '2024-10-01')")
    ends_all_proofs(parted, "the partition public.later was attached with rows in it")


def test_what_was_accepted_is_asked_again_when_something_else_happens(filled):
    execute(filled, SWITCHED_OFF.format("delete from OUT where id = 'a'"))
    assert filled.run(DAY, accept=True).state == "skipped"
    assert filled.run(DAY).state == "skipped"
    execute(filled, SWITCHED_OFF.format("delete from OUT where id = 'b'"))
    with pytest.raises(ProofGone, match="switched off"):
        filled.run(DAY)
    assert filled.run(DAY, force=True).state == "published"
    assert filled.store.inspect(filled.target) == []


def test_a_change_that_a_later_publish_saw_first_still_ends_the_proofs_of_others(filled):
    execute(filled, "alter table OUT alter id type text using upper(id)")
    filled.put(NEXT, ["d"])
    assert filled.run(NEXT, force=True).state == "published"
    with pytest.raises(ProofGone, match="truncated or written anew"):
        filled.run(DAY)
    assert filled.run(NEXT).state == "skipped"


def test_a_partition_that_is_attached_during_a_publish_is_not_taken_for_its_own(parted):
    execute(parted, OTHERS)
    parted.put(NEXT, ["d"])
    attach = once_at("postgres.table.ready", lambda: execute(parted, ATTACHED))
    with armed(attach), pytest.raises(ProofGone, match="attached with rows in it"):
        parted.run(NEXT)
    ends_all_proofs(parted, "attached with rows in it")


def test_nobody_alters_a_table_between_the_comparison_and_the_rows_of_a_publish(filled):
    filled.put(NEXT, ["d"])

    def alter():
        with suppress(LockNotAvailable):
            execute(filled, "set lock_timeout = '300ms'; alter table OUT alter id type text using upper(id)")

    with armed(once_at("postgres.table.made", alter)):
        filled.run(NEXT)
    assert filled.by_day() == {DAY: ["a", "b"], NEXT: ["d"]}
    assert filled.run(DAY).state == "skipped"


def test_receipts_from_before_this_was_noted_hold_until_the_next_publish_notes_it(filled):
    execute(
        filled,
        "update twice_heads set more = '{}'; alter table OUT disable trigger all; alter table OUT enable trigger all",
    )
    assert [filled.run(day).state for day in (DAY, NEXT)] == ["skipped", "skipped"]
    filled.put(NEXT, ["d"])
    filled.run(NEXT)
    assert execute(filled, "select distinct tgenabled::text from pg_trigger where tgname like 'twice%'") == [("A",)]
    assert filled.run(DAY).state == "skipped"
    execute(filled, "alter table OUT rename id to name")
    ends_all_proofs(filled, "renamed")


def test_a_role_that_does_not_own_the_table_says_what_it_cannot_notice(world):
    execute(world, "drop role if exists helper; create role helper login password 'h'")
    execute(world, "grant create, usage on schema public to helper; create table OUT (id text, day date)")
    execute(world, "grant select, insert, update, delete, trigger on OUT to helper")
    url = re.sub(r"//[^@]*@", "//helper:h@", world.database.url)
    world.project._stores["postgres"] = PostgresStore(url, None)
    world.put(DAY, ["a"])
    assert any("write as a replica are not noticed" in note for note in world.run(DAY).notes)
    assert world.run(DAY).state == "skipped"
    execute(world, "alter table OUT disable trigger twice_delete; delete from OUT")
    with pytest.raises(ProofGone, match="switched off"):
        world.run(DAY)


@pytest.mark.parametrize(
    "pattern", [twice.data_overwrite(slice="day"), twice.data_overwrite(), twice.merger(keys=["id"])]
)
def test_rows_of_tables_that_inherit_are_left_alone(make_world, pattern):
    world = make_world(pattern=pattern)
    world.put(DAY, ["a"])
    world.run(DAY)
    world.put(NEXT, ["b"])
    execute(world, "create table heir () inherits (OUT)")
    with pytest.raises(Misuse, match="heir"):
        world.run(NEXT)
    execute(world, f"insert into heir values ('x', '{NEXT}')")
    with pytest.raises(twice.TwiceError):
        world.run(NEXT, force=True)
    assert execute(world, "select id from heir") == [("x",)]
    execute(world, "alter table heir no inherit OUT")
    assert world.run(NEXT).state == "published"
