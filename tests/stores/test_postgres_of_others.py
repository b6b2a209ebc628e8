"""What may a table be that somebody else made, and what of its own rules changes the rows that come?"""

from decimal import Decimal
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
import pytest

import twice
from databases import table
from twice.errors import Misuse, NotPublished
from twice.faults import armed
from twice.stores.postgres import PostgresStore
from worlds import once_at

pytestmark = [pytest.mark.stores("postgres")]

DAY, NEXT = "2024-09-20", "2024-09-21"


def in_types(rows):
    """Return rows as Arrow of the types that the tables here have."""
    kinds = {"id": pa.string(), "day": pa.date32(), "n": pa.int32(), "odd": pa.string()}
    return pa.table(
        {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items() if rows and name in rows[0]}
    )


def as_role(url, role):
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}:x@{parts.netloc.rpartition('@')[2]}"))


PLAIN = "create table OUT (id text, day date);"
PATTERNS = {
    "slice": twice.data_overwrite(slice="day"),
    "whole": twice.data_overwrite(),
    "partitions": twice.data_overwrite(partitions=["day"]),
    "merge": twice.merger(keys=["id", "day"]),
    "missing": twice.dedup_insert(keys=["id", "day"]),
    "history": twice.stateful_merger(keys=["id", "day"], form="history"),
    "append": twice.transactional_writer(),
}
OVERWRITES = ["slice", "whole", "partitions"]


def execute(world, statement):
    return world.database.execute(statement.replace("OUT", table(world.target)))


@pytest.fixture(params=PATTERNS)
def each(request, make_world):
    return make_world(pattern=PATTERNS[request.param])


# ------------------------------------------------------------------ rules of the table that keep rows away

TRIGGER = """
create function meddle() returns trigger language plpgsql as $$ begin {body} end $$;
create trigger meddles {when} on OUT for each row execute function meddle();
"""
LEAVES_OUT = "if new.id = 'b' then return null; end if; return new;"


def test_rows_that_a_trigger_leaves_out_are_not_reported_as_published(each):
    execute(each, PLAIN + TRIGGER.format(when="before insert", body=LEAVES_OUT))
    each.put(DAY, ["a", "b", "c"])
    with pytest.raises(NotPublished, match="took 2 of 3 rows"):
        each.run(DAY)
    assert each.records() == []
    assert each.sight().receipts == {}
    execute(each, "alter table OUT disable trigger meddles")
    assert each.run(DAY).rows == 3


@pytest.mark.parametrize(("pattern", "said"), [("merge", "updated 0 of 1"), ("history", "updated 0 of 1")])
def test_an_update_that_a_trigger_leaves_out_is_not_reported(make_world, pattern, said):
    world = make_world(pattern=PATTERNS[pattern], schema="id string, day date, n int", transform=in_types)
    execute(world, "create table OUT (id text, day date, n int);")
    world.put_rows(DAY, [{"id": "a", "day": DAY, "n": 1}])
    world.run(DAY)
    execute(world, TRIGGER.format(when="before update", body="return null;"))
    world.put_rows(DAY, [{"id": "a", "day": DAY, "n": 2}])
    with pytest.raises(NotPublished, match=said):
        world.run(DAY)


def test_a_delete_that_a_trigger_leaves_out_is_not_reported(make_world):
    world = make_world(
        pattern=twice.merger(keys=["id", "day"], deleted="gone"), schema="id string, day date, gone boolean"
    )
    execute(world, PLAIN)
    world.put_rows(DAY, [{"id": "a", "day": DAY, "gone": False}])
    world.run(DAY)
    execute(world, TRIGGER.format(when="before delete", body="return null;"))
    world.put_rows(DAY, [{"id": "a", "day": DAY, "gone": True}])
    with pytest.raises(NotPublished, match="deleted 0 of 1"):
        world.run(DAY)


MEDDLING = {
    "changed": ("before insert", "new.id := new.id || '!'; new.day := new.day + 1; return new;"),
    "removed": ("after insert", "if new.id = 'b' then delete from {out} where id = 'b'; end if; return null;"),
}


# A rerun of a whole table finds every row again, wherever a trigger has put it.
@pytest.mark.parametrize(
    ("name", "how"),
    [
        (name, how)
        for name in (*OVERWRITES, "merge", "missing", "history")
        for how in MEDDLING
        if (name, how) != ("whole", "changed")
    ],
)
def test_rows_that_a_trigger_changes_or_takes_along_are_not_reported(make_world, name, how):
    world = make_world(pattern=PATTERNS[name])
    when, body = MEDDLING[how]
    execute(world, PLAIN + TRIGGER.format(when=when, body=body.format(out=table(world.target))))
    world.put(DAY, ["a", "b"])
    with pytest.raises(NotPublished, match="A trigger on it changed, added or removed rows"):
        world.run(DAY)
    assert world.records() == []


def test_a_trigger_that_fills_a_column_is_no_trouble(each):
    execute(each, "create table OUT (id text, day date, at timestamptz default now(), n int default 7);")
    execute(each, TRIGGER.format(when="before insert or update", body="new.n := 8; return new;"))
    each.put(DAY, ["a", "b"])
    assert each.run(DAY).state == "published"
    found = [(row["id"], row["n"], row["at"] is not None) for row in each.records()]
    assert sorted(found) == [("a", 8, True), ("b", 8, True)]
    assert each.run(DAY).state == "skipped"


# ------------------------------------------------------------------ what is no table, or hides its rows


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("create table real (id text, day date); create view OUT as select * from real", "is a view"),
        (
            "create table real (id text, day date); create materialized view OUT as select * from real",
            "materialized view",
        ),
        (PLAIN + "create rule r as on insert to OUT do instead nothing", "has the rule r"),
        (
            PLAIN
            + "create table log (id text); create rule r as on insert to OUT do instead insert into log values (new.id)",
            "has the rule r",
        ),
        (PLAIN + "create rule r as on delete to OUT do instead nothing", "has the rule r"),
        (PLAIN + "create table heir () inherits (OUT)", "inherits from it: heir"),
    ],
    ids=["view", "materialized", "nothing", "elsewhere", "undeleted", "heir"],
)
def test_what_cannot_be_written_with_a_promise_is_refused_before_a_row_is_staged(each, made, said):
    execute(each, made)
    each.put(DAY, ["a"])
    with pytest.raises(Misuse, match=said):
        each.run(DAY)
    assert each.sight().receipts == {}


def test_a_rule_that_comes_after_the_rows_were_staged_is_refused_too(world):
    execute(world, PLAIN)
    world.put(DAY, ["a"])
    rule = "create rule r as on insert to OUT do instead nothing"
    with armed(once_at("postgres.staged", lambda: execute(world, rule))), pytest.raises(Misuse, match="has the rule r"):
        world.run(DAY)
    assert world.sight().receipts == {}


def test_rows_that_row_level_security_hides_are_refused_not_doubled(make_world):
    world = make_world(pattern=PATTERNS["slice"])
    role = f"writer_{world.database.name}"
    execute(
        world,
        PLAIN
        + f"create role {role} login password 'x'; grant all on schema public to {role}; grant all on OUT to {role};",
    )
    execute(world, f"insert into OUT values ('a', '{DAY}'); alter table OUT enable row level security;")
    execute(
        world,
        "create policy blind on OUT for select using (false); create policy writes on OUT for insert with check (true)",
    )
    world.put(DAY, ["a"])
    owner = world.project._stores["postgres"]
    try:
        world.project._stores["postgres"] = PostgresStore(as_role(world.database.url, role), world.project.engine)
        with pytest.raises(Misuse, match="Row level security hides rows"):
            world.run(DAY, force=True)
        execute(world, f"alter role {role} bypassrls")
        world.run(DAY, force=True)
        world.project._stores["postgres"] = owner
        assert world.rows() == [("a", DAY)]
    finally:
        execute(world, f"drop owned by {role} cascade; drop role {role}")


# ------------------------------------------------------------------ tables that reference it

PARENT = """
create table OUT (id text primary key, day date, n int);
create table child (of text references OUT on delete {action}, what text);
"""


@pytest.mark.parametrize("action", ["cascade", "set null", "no action", "restrict"])
@pytest.mark.parametrize("name", OVERWRITES)
def test_an_overwrite_leaves_the_rows_of_others_that_reference_what_stays(make_world, name, action):
    world = make_world(pattern=PATTERNS[name], schema="id string, day date, n int", transform=in_types)
    execute(world, PARENT.format(action=action))
    world.put_rows(DAY, [{"id": one, "day": DAY, "n": 1} for one in "abc"])
    world.run(DAY)
    execute(world, "insert into child values ('a', 'same'), ('b', 'changed')")
    world.put_rows(
        DAY, [{"id": "a", "day": DAY, "n": 1}, {"id": "b", "day": DAY, "n": 2}, {"id": "d", "day": DAY, "n": 1}]
    )
    assert world.run(DAY).state == "published"
    assert world.table_rows("id", "n") == [("a", 1), ("b", 2), ("d", 1)]
    assert execute(world, "select of, what from child order by 1") == [("a", "same"), ("b", "changed")]


def test_a_key_of_another_slot_is_not_taken_over_by_an_overwrite_in_place(make_world):
    world = make_world(pattern=PATTERNS["slice"], schema="id string, day date, n int", transform=in_types)
    execute(world, PARENT.format(action="cascade"))
    world.put_rows(DAY, [{"id": "a", "day": DAY, "n": 1}])
    world.run(DAY)
    world.put_rows(NEXT, [{"id": "a", "day": NEXT, "n": 2}])
    with pytest.raises(NotPublished, match="duplicate key"):
        world.run(NEXT)
    assert world.table_rows("id", "n") == [("a", 1)]


def test_several_rows_of_one_key_are_refused_and_none_of_them_is_lost(make_world):
    world = make_world(pattern=PATTERNS["slice"], schema="id string, day date, n int", transform=in_types)
    execute(world, PARENT.format(action="cascade"))
    world.put_rows(DAY, [{"id": "a", "day": DAY, "n": 1}])
    world.run(DAY)
    world.put_rows(DAY, [{"id": "a", "day": DAY, "n": 1}, {"id": "a", "day": DAY, "n": 2}])
    with pytest.raises(NotPublished, match="in several rows"):
        world.run(DAY)


def test_a_table_that_is_referenced_by_two_keys_is_refused(make_world):
    world = make_world(pattern=PATTERNS["slice"], schema="id string, day date, n int", transform=in_types)
    execute(
        world,
        PARENT.format(action="cascade")
        + "alter table OUT add unique (n); create table other (n int references OUT (n))",
    )
    world.put_rows(DAY, [{"id": "a", "day": DAY, "n": 1}])
    with pytest.raises(Misuse, match=r"reference lake__out by \(id\) and \(n\)"):
        world.run(DAY)


# ------------------------------------------------------------------ keys and columns, as the table has them

# A type that has an equality of its own, as citext has it, which not every server has.
CASELESS = (
    """
create type caseless;
create function caseless_in(cstring) returns caseless language internal immutable strict as 'textin';
create function caseless_out(caseless) returns cstring language internal immutable strict as 'textout';
create type caseless (input = caseless_in, output = caseless_out, like = text, category = 'S');
create function compared(caseless, caseless) returns int language sql immutable strict
    as 'select bttextcmp(lower($1::text), lower($2::text))';
"""
    + "".join(
        f"create function is_{name}(caseless, caseless) returns bool language sql immutable strict as 'select compared($1, $2) {sign} 0';"
        f"create operator {sign} (leftarg = caseless, rightarg = caseless, function = is_{name});"
        for name, sign in {"lt": "<", "le": "<=", "eq": "=", "ge": ">=", "gt": ">"}.items()
    )
    + """
create operator class caseless_ops default for type caseless using btree as operator 1 <, operator 2 <=, operator 3 =,
    operator 4 >=, operator 5 >, function 1 compared(caseless, caseless);
"""
)
UUID = "c0ffee00-0000-4000-8000-00000000000a"


@pytest.mark.parametrize("name", ["merge", "missing", "history"])
@pytest.mark.parametrize(
    ("typed", "one", "other"),
    [
        ("uuid", UUID, UUID.upper()),
        ("char(4)", "a", "a  "),
        ("inet", "10.0.0.1", "10.0.0.1/32"),
        ("caseless", "a", "A"),
        ("numeric", "1.0", "1.00"),
    ],
)
def test_keys_are_compared_as_the_column_compares_them(make_world, name, typed, one, other):
    world = make_world(pattern=PATTERNS[name])
    execute(world, CASELESS + f"create table OUT (id {typed}, day date)")
    if typed == "numeric":
        world.transform = lambda rows: [{**row, "id": Decimal(row["id"])} for row in rows]
    world.put(DAY, [one])
    world.run(DAY)
    world.put_rows(NEXT, [{"id": other, "day": DAY}])
    world.run(NEXT)
    assert execute(world, "select count(*) from OUT") == [(1,)]
    world.put(DAY, [one, other])
    with pytest.raises(NotPublished, match="in several rows of the source"):
        world.run(DAY)


@pytest.mark.parametrize("typed", ["caseless", "numeric", "double precision"])
def test_a_column_in_which_equal_values_differ_in_their_text_tells_no_partitions_apart(make_world, typed):
    world = make_world(pattern=twice.data_overwrite(partitions=["id"]))
    execute(world, CASELESS + f"create table OUT (id {typed}, day date)")
    if typed != "caseless":
        world.transform = lambda rows: [{**row, "id": 1.0 if typed.startswith("d") else Decimal(1)} for row in rows]
    world.put(DAY, ["a"])
    with pytest.raises(Misuse, match="cannot tell partitions apart"):
        world.run(DAY)


@pytest.mark.parametrize("name", ["merge", "history"])
@pytest.mark.parametrize("typed", ["json", "point"])
def test_values_that_the_server_cannot_compare_are_merged_by_their_text(make_world, name, typed):
    values = {"json": ['{"a": 1}', '{"a": 2}'], "point": ["(1,2)", "(3,4)"]}[typed]
    pattern = twice.merger(keys=["id"], order="n") if name == "merge" else PATTERNS["history"]
    world = make_world(pattern=pattern, schema="id string, day date, n int, odd string", transform=in_types)
    execute(world, f"create table OUT (id text, day date, n int, odd {typed})")
    for number, value in enumerate(values):
        world.put_rows(DAY, [{"id": "a", "day": DAY, "n": number, "odd": value}] * (1 if name == "history" else 2))
        world.run(DAY)
    assert execute(world, "select odd::text from OUT") == [(values[1],)]


def test_columns_that_the_table_fills_itself_are_left_to_it(each):
    execute(
        each,
        "create table OUT (id text, day date, serial serial, number int generated always as identity,"
        " made_at timestamptz not null default now(), next date generated always as (day + 1) stored);",
    )
    for day, ids in ((DAY, ["a", "b"]), (NEXT, ["c"])):
        each.put(day, ids)
        assert each.run(day).state == "published"
        assert each.run(day).state == "skipped"
    filled = execute(
        each, "select count(distinct serial), count(distinct number), count(made_at), count(next) from OUT"
    )
    ids = ["c"] if each.pattern == PATTERNS["whole"] else ["a", "b", "c"]
    assert (sorted(row["id"] for row in each.records()), filled) == (ids, [(len(ids),) * 4])


def test_a_row_that_is_there_keeps_what_the_table_filled_in_when_it_is_merged_again(make_world):
    world = make_world(pattern=twice.merger(keys=["id"]))
    execute(world, "create table OUT (id text, day date, serial serial)")
    world.put(DAY, ["a", "b"])
    world.run(DAY)
    before = execute(world, "select id, serial from OUT order by 1")
    world.put_rows(DAY, [{"id": one, "day": NEXT} for one in "ab"])
    world.run(DAY)
    assert execute(world, "select id, serial from OUT order by 1") == before


def test_rows_of_a_period_keep_what_the_table_filled_in_when_its_columns_change(make_world):
    world = make_world(pattern=twice.fast_metadata_cleaner(period="week"), columns={"on_new_column": "add"})
    world.put("2024-09-16", ["a", "b"])
    world.run("2024-09-16")
    ((member,),) = execute(world, "select relation from twice_members")
    execute(world, f"alter table {member} add column number int generated always as identity")
    before = execute(world, f"select id, number from {member} order by 1")
    world.transform = lambda rows: [{**row, "extra": 1} for row in rows]
    world.put("2024-09-17", ["c"])
    world.run("2024-09-17", accept=True)
    assert execute(world, f"select id, number from {member} where extra is null order by 1") == before
    assert execute(world, f"select count(distinct number), count(*) from {member}") == [(3, 3)]


# ------------------------------------------------------------------ where changes are handed on


def test_a_first_merge_lands_where_all_tables_are_published_and_the_second_says_what_is_missing(make_world):
    world = make_world(pattern=PATTERNS["merge"], schema="id string, day date, n int", transform=in_types)
    execute(world, "create publication everything for all tables")
    world.put_rows(DAY, [{"id": "a", "day": DAY, "n": 1}])
    assert world.run(DAY).state == "published"
    world.put_rows(DAY, [{"id": "a", "day": DAY, "n": 2}])
    with pytest.raises(NotPublished, match=r"(?s)replica identity.*ALTER TABLE"):
        world.run(DAY)
    execute(world, "alter table OUT replica identity full")
    assert world.run(DAY).state == "published"
    assert world.table_rows("id", "n") == [("a", 2)]


def test_a_check_of_the_table_is_told_as_its_own(each):
    execute(each, "create table OUT (id text constraint short check (length(id) < 3), day date)")
    each.put(DAY, ["a", "long"])
    with pytest.raises(NotPublished, match='violates check constraint "short"'):
        each.run(DAY)
    assert each.records() == []
