"""A table that is filled already is taken over with its rows, and given back."""

import pytest

import twice
from twice.abilities import KeepsVersions
from twice.errors import Fenced, Stranger
from twice.handovers import release, take_over
from twice.sight import NO_TABLE

DAYS = ("2024-09-20", "2024-09-21", "2024-09-22")
SCHEMA = "id string, v string"
OLD = {"a": "old", "b": "old"}
INPUTS = {DAYS[0]: {"b": "0", "c": "0"}, DAYS[1]: {"c": "1"}, DAYS[2]: {"d": "2"}}


@pytest.fixture
def world(make_world):
    """A table that somebody else has filled, and the inputs of a pipeline that shall go on with it."""
    world = make_world(pattern=twice.merger(keys=["id"]), schema=SCHEMA)
    if isinstance(world.store, KeepsVersions):
        world.pattern = twice.stateful_merger(keys=["id"], keep_days=500)
    world.fill_by_hand([{"id": key, "v": value} for key, value in OLD.items()], SCHEMA)
    for day, rows in INPUTS.items():
        put(world, day, rows)
    return world


def put(world, day, rows):
    world.put_rows(day, [{"id": key, "v": value} for key, value in rows.items()])


def table(world):
    return dict(world.table_rows("id", "v"))


def adopt(world):
    return take_over(world.store, world.project.ledger, world.target, world.pattern.keep_days)


def files(world):
    return sorted(path.name for path in world.table().rglob("*.parquet")) if not world.plain else []


def test_a_filled_table_is_refused_until_it_is_adopted(world):
    with pytest.raises(Stranger, match="twice adopt"):
        world.run(DAYS[0])
    before = files(world)
    sight = adopt(world)
    assert (sight.owner, sight.receipts, files(world)) == (world.project.ledger.id, {}, before)
    assert table(world) == OLD
    world.run(DAYS[0])
    assert table(world) == {**OLD, **INPUTS[DAYS[0]]}


@pytest.mark.needs("KeepsVersions")
def test_adopted_rows_are_the_state_before_the_first_slot(world):
    adopt(world)
    for day in DAYS:
        world.run(day)
    put(world, DAYS[0], {"a": "fixed"})
    plan = twice.plan(world.pipeline, at=DAYS[0], project=world.project)
    assert plan.draft.base != NO_TABLE
    world.run(DAYS[0])
    assert table(world) == {"a": "fixed", "b": "old", "c": "1", "d": "2"}
    twice.backfill(world.pipeline, DAYS[0], "2024-09-23", force=True, project=world.project)
    assert table(world) == {"a": "fixed", "b": "old", "c": "1", "d": "2"}


def test_a_released_table_is_refused_until_it_is_adopted_again(world):
    adopt(world)
    world.run(DAYS[0])
    release(world.store, world.project.ledger, world.target)
    before = table(world)
    with pytest.raises(Stranger, match="released"):
        world.run(DAYS[1])
    with pytest.raises(Fenced, match="does not belong"):
        release(world.store, world.project.ledger, world.target)
    assert table(world) == before
    adopt(world)
    assert world.run(DAYS[0]).state == "skipped"
    world.run(DAYS[1])
    assert table(world) == {**before, "c": "1"}


@pytest.mark.stores("delta")
def test_an_adopted_table_keeps_its_versions_for_longer(world):
    adopt(world)
    detail = world.spark.sql(f"DESCRIBE DETAIL delta.`{world.table()}`").first()
    assert detail["properties"]["delta.deletedFileRetentionDuration"] == "interval 500 days"


@pytest.mark.stores("parquet")
def test_a_folder_that_is_no_plain_parquet_table_is_not_adopted(world):
    (world.table() / "day=2024-09-20").mkdir()
    (world.table() / "day=2024-09-20" / "part.parquet").write_bytes(b"x")
    with pytest.raises(twice.Misuse, match="cannot be taken over"):
        adopt(world)
    assert not world.sight().exists


@pytest.mark.stores("parquet")
def test_a_tidy_leaves_files_of_an_adopted_table_that_no_version_names(world):
    folder = world.table() / "data" / "2024"
    folder.mkdir(parents=True)
    for number, path in enumerate(sorted(world.table().glob("*.parquet"))):
        path.rename(folder / f"part-{number}.parquet")
    adopt(world)
    drafts = [folder / "_draft.parquet", folder / "came-later.parquet"]
    for draft in drafts:
        draft.write_bytes(b"not ours")
    world.run(DAYS[0])
    world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    assert all(draft.exists() for draft in drafts)
    assert table(world) == {**OLD, **INPUTS[DAYS[0]]}
