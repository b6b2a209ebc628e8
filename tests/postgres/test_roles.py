"""An owner that cannot log in, a writer that fills the open version, a reader that sees the view."""

import secrets

import psycopg
import pytest
from psycopg import errors

import twice
from databases import Database
from twice.stores.postgres import PostgresStore
from worlds import World

DAYS = ["2024-09-20", "2024-09-21"]
TARGET = "serving.devices"
PASSWORD = secrets.token_hex(8)


@pytest.fixture
def world(tmp_path, postgres_server):
    return World(
        tmp_path / "world", "postgres", None, twice.proxy(), target=TARGET, database=Database.made(postgres_server)
    )


@pytest.fixture
def names(world):
    """Roles are those of the whole server, so each test has its own."""
    ending = world.database.name.removeprefix("twice_world_")
    return [f"{kind}_{ending}" for kind in ("owner", "writer", "reader")]


@pytest.fixture
def roles(world, names):
    world.store.roles(TARGET, *names, apply=True)
    for name in names[1:]:
        world.database.execute(f"alter role {name} password '{PASSWORD}'")
    return names


def url_of(world, role):
    return world.database.server.url(world.database.name, user=role, password=PASSWORD)


def as_writer(world, roles):
    world.project._stores["postgres"] = PostgresStore(url_of(world, roles[1]), world.project.engine)
    return world


def refused(world, role, statement, error=errors.InsufficientPrivilege):
    with psycopg.connect(url_of(world, role)) as db, pytest.raises(error) as found:
        db.execute(statement)
    return str(found.value)


def read(world, role):
    with psycopg.connect(url_of(world, role)) as db:
        return sorted(one for (one,) in db.execute("select id from serving.devices").fetchall())


def test_the_writer_publishes_and_the_reader_sees_it(world, roles):
    as_writer(world, roles)
    world.put(DAYS[0], ["a", "b"])
    assert world.run(DAYS[0]).state == "published"
    assert read(world, roles[2]) == ["a", "b"]
    world.put(DAYS[1], ["c"])
    assert world.run(DAYS[1]).state == "published"
    assert world.run(DAYS[1]).state == "skipped"
    assert read(world, roles[2]) == ["c"]


def test_nobody_logs_in_as_the_owner(world, roles):
    world.database.execute(f"alter role {roles[0]} password '{PASSWORD}'")
    with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
        psycopg.connect(url_of(world, roles[0]))


@pytest.fixture
def published(world, roles):
    as_writer(world, roles)
    world.put(DAYS[0], ["a", "b"])
    world.run(DAYS[0])
    return roles


@pytest.mark.parametrize(
    "statement",
    [
        "insert into serving.devices__v1 values ('x', null)",
        "update serving.devices__v1 set id = 'x'",
        "delete from serving.devices__v1",
        "truncate serving.devices__v1",
        "drop table serving.devices__v1",
        "select * from serving.devices__v1",
        "insert into serving.devices values ('x', null)",
        "drop view serving.devices",
        "create or replace view serving.devices as select 1",
        "create table serving.mine (id text)",
        "update serving.twice_members set shown = false",
        "select serving.twice_show('devices')",
    ],
)
def test_the_writer_is_refused_everything_else(world, published, statement):
    assert "permission denied" in (told := refused(world, published[1], statement)) or "must be owner" in told


def test_a_version_that_the_writer_did_not_open_just_now_cannot_be_published_again(world, published):
    call = "select serving.twice_publish_version('devices', 'devices__v1', 's', 1, 0, '', null)"
    told = refused(world, published[1], call, errors.ObjectNotInPrerequisiteState)
    assert "was not opened in this transaction" in told


def test_a_type_that_is_more_than_a_type_is_refused(world, published):
    call = "select serving.twice_open_version('devices', 'devices__v9', 'v9', '{id}', '{\"text); drop table x; --\"}')"
    assert "no type" in refused(world, published[1], call, errors.RaiseException)


@pytest.mark.parametrize(
    "statement",
    [
        "select * from serving.devices__v1",
        "select * from serving.twice_receipts",
        "select * from serving.twice_members",
        "insert into serving.devices values ('x', null)",
        "select serving.twice_open_version('devices', 'devices__v9', 'v9', '{id}', '{text}')",
    ],
)
def test_the_reader_is_refused_everything_but_the_view(world, published, statement):
    assert "permission denied" in refused(world, published[2], statement)
    assert read(world, published[2]) == ["a", "b"]


def test_even_a_superuser_does_not_change_a_version_by_mistake(world, published):
    for statement in ("delete from serving.devices__v1", "truncate serving.devices__v1"):
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="never changes"):
            world.database.execute(statement)


def test_a_search_path_of_the_caller_does_not_bend_the_functions(world, published):
    world.put(DAYS[1], ["c"])
    world.database.execute(
        "create schema bent; grant usage on schema bent to public;"
        "create function bent.format(text, text, text, text) returns text language plpgsql"
        " as $$ begin raise 'bent'; end $$"
    )
    bent = f"{url_of(world, published[1])}?options=-csearch_path%3Dbent,pg_catalog"
    with psycopg.connect(bent) as db, pytest.raises(errors.RaiseException, match="bent"):
        db.execute("select format('%s', 'a'::text, 'b'::text, 'c'::text)")
    world.project._stores["postgres"] = PostgresStore(bent, world.project.engine)
    assert world.run(DAYS[1]).state == "published"
    assert read(world, published[2]) == ["c"]


def test_a_role_that_may_not_publish_is_told_the_missing_grant(world, published):
    world.put(DAYS[1], ["c"])
    world.database.execute(f"revoke insert on serving.twice_receipts from {published[1]}")
    with pytest.raises(twice.Misuse, match="GRANT"):
        world.run(DAYS[1])
    assert read(world, published[2]) == ["a", "b"]


def test_given_again_the_statements_change_nothing(world, published, names):
    before = rights(world)
    admin = PostgresStore(world.database.url, world.project.engine)
    admin.roles(TARGET, *names, apply=True)
    assert rights(world) == before


def rights(world):
    return world.database.execute(
        "select relname, relacl::text, relowner::regrole::text from pg_class "
        "where relnamespace = 'serving'::regnamespace order by 1"
    )


def test_a_view_that_is_there_is_handed_over(world, names):
    world.database.execute("create schema serving")
    world.put(DAYS[0], ["a"])
    world.run(DAYS[0])
    world.store.roles(TARGET, *names, apply=True)
    owners = {owner for name, _, owner in rights(world) if name.startswith(("devices", "twice_")) and "idx" not in name}
    assert owners == {names[0]}
    for name in names[1:]:
        world.database.execute(f"alter role {name} password '{PASSWORD}'")
    as_writer(world, names)
    world.put(DAYS[1], ["b"])
    assert world.run(DAYS[1]).state == "published"
    assert read(world, names[2]) == ["b"]


def test_a_schema_with_other_targets_is_refused(world, names):
    world.database.execute("create schema serving")
    other = world.twin(target="serving.other", pattern=twice.data_overwrite(slice="day"), name="other")
    other.put(DAYS[0], ["a"])
    other.run(DAYS[0])
    with pytest.raises(twice.Misuse, match="holds other targets"):
        world.store.roles(TARGET, *names, apply=True)


def test_printed_statements_do_what_applied_ones_do(world, names):
    text = world.store.roles(TARGET, *names, apply=False)
    assert not world.database.execute(f"select 1 from pg_roles where rolname = '{names[0]}'")
    with psycopg.connect(world.database.url) as db:
        db.execute(";\n".join(text))
    for name in names[1:]:
        world.database.execute(f"alter role {name} password '{PASSWORD}'")
    as_writer(world, names)
    world.put(DAYS[0], ["a"])
    assert world.run(DAYS[0]).state == "published"
    assert read(world, names[2]) == ["a"]


def test_three_roles_have_three_names(world):
    with pytest.raises(twice.Misuse, match="three roles"):
        world.store.roles(TARGET, "one", "one", "two", apply=False)


def test_the_writer_keeps_bodies_and_the_reader_does_not_see_them(world, published):
    world.store.keep_beside(TARGET, "one", b"1")
    assert world.store.beside(TARGET, "one") == b"1"
    refused(world, published[1], "update serving.twice_kept set body = '2'")
    refused(world, published[2], "select * from serving.twice_kept")
    world.store.drop_beside(TARGET, ["one"])
    assert world.store.labels_beside(TARGET) == {}


def test_bookkeeping_that_is_older_than_bodies_gets_them_with_its_roles(world, published):
    world.database.execute("drop table serving.twice_kept")
    world.put(DAYS[1], ["c"])
    assert world.run(DAYS[1]).state == "published"
    with pytest.raises(twice.Misuse, match="lacks a right"):
        world.store.keep_beside(TARGET, "one", b"1")
    PostgresStore(world.database.url, None).roles(TARGET, *published, apply=True)
    world.store.keep_beside(TARGET, "one", b"1")
    assert world.store.beside(TARGET, "one") == b"1"
