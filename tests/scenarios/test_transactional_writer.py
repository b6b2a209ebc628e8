"""Scenarios 63 to 68 and 117: all rows of a job are added together, once."""

import pytest

import twice
from twice.errors import Fenced, NotPublished, OutcomeUnknown, ProofGone
from twice.faults import armed
from twice.pipelines import pipeline
from twice.sources.files import Files
from worlds import PlainFiles, once_at

DAY, NEXT = "2024-09-20", "2024-09-21"
SCHEMA = "type string, full_name string, version string"
D1 = [
    ("galaxy", "Galaxy Camera", "Android 11"),
    ("iphone", "APPLE iPhone 8 Plus", "iOS 13"),
    ("htc", "Evo 3d", "Android 12L"),
]


def named(rows):
    return [dict(zip(("type", "full_name", "version"), row, strict=True)) for row in rows]


def both(first, second):
    return first + second if isinstance(first, list) else first.unionByName(second)


@pytest.fixture
def loads(world):
    """Return a runner of a pipeline that loads two files in one publish."""

    def source(name):
        files = Files(f"landing/{name}.jsonl", schema=SCHEMA)
        return PlainFiles(files) if world.plain else files

    def load(**asked):
        declared = pipeline(
            name="devices",
            every="1 day",
            start="2024-09-01",
            sources={"first": source("first"), "second": source("second")},
            target=f"{world.kind}:{world.target}",
            pattern=twice.transactional_writer(check="length(type) <= 6"),
        )(both)
        return twice.run(declared, at=DAY, project=world.project, **asked)

    return load


def test_63_to_66_all_or_nothing_then_a_fix_then_a_rerun(world, loads):
    world.put_rows("first", named(D1))
    world.put_rows("second", named([("htc11111111", "Evo 3d", "Android 52L")]))
    with pytest.raises(NotPublished, match="1 of 4 rows break the check"):
        loads()
    assert world.records() == []
    world.put_rows("second", named([("htc", "Evo 3d", "Android 52L")]))
    seen = []
    with armed(once_at("publish.before", lambda: seen.append(len(world.records())))):
        assert loads().rows == 4
    assert (seen, len(world.records())) == ([0], 4)
    assert loads().state == "skipped"
    assert len(world.records()) == 4


def test_68_a_lost_reply_does_not_add_the_rows_again(make_world):
    world = make_world(pattern=twice.transactional_writer())
    world.put(DAY, list("abcd"))

    def lose():
        raise ConnectionError("the reply is lost")

    with armed(once_at("publish.after", lose)):
        assert world.run(DAY).state == "published"
    assert world.run(DAY).state == "skipped"
    assert len(world.rows()) == 4


def test_a_second_edition_of_an_append_is_refused_whoever_asks(make_world):
    world = make_world(pattern=twice.transactional_writer())
    for day in (DAY, NEXT):
        world.put(day, ["a", "b"])
        world.run(day)
    with pytest.raises(Fenced, match="lineage="):
        world.run(DAY, force=True)
    world.put(DAY, ["a", "c"])
    with pytest.raises(Fenced, match="in the table already") as refused:
        world.run(DAY)
    assert "--force" not in str(refused.value)
    assert len(world.rows()) == 4


def test_rows_with_lineage_are_replaced_by_a_correction(make_world):
    world = make_world(pattern=twice.transactional_writer(lineage="loaded_by"))
    for day in (DAY, NEXT):
        world.put(day, ["a", "b"])
        world.run(day)
    world.put(DAY, ["c"])
    assert world.run(DAY).generation == 2
    assert world.by_day() == {DAY: ["c"], NEXT: ["a", "b"]}
    assert {row["loaded_by"] for row in world.records()} == {world.slot(DAY), world.slot(NEXT)}
    world.run(DAY, force=True)
    assert len(world.rows()) == 3


@pytest.mark.stores("memory", "delta")
def test_117_an_append_that_was_restored_away_is_brought_back_once(make_world):
    world = make_world(pattern=twice.transactional_writer())
    for day in (DAY, NEXT):
        world.put(day, [day])
        world.run(day)
    world.restore_by_hand(0)
    assert world.by_day() == {DAY: [DAY]}
    with pytest.raises(ProofGone):
        world.run(NEXT)
    assert world.run(NEXT, force=True).generation == 2
    assert world.by_day() == {DAY: [DAY], NEXT: [NEXT]}
    with pytest.raises(Fenced, match="in the table already"):
        world.run(NEXT, force=True)


@pytest.mark.stores("memory", "delta")
def test_rows_of_which_nobody_knows_are_not_added_again(make_world):
    world = make_world(pattern=twice.transactional_writer())
    for day in (DAY, NEXT):
        world.put(day, [day])
        world.run(day)
    world.delete_by_hand(DAY)
    with pytest.raises(Fenced, match="in the table already"):
        world.run(NEXT, force=True)


@pytest.mark.stores("delta")
def test_an_append_restored_away_and_back_is_not_added_again(make_world):
    world = make_world(pattern=twice.transactional_writer())
    for day in (DAY, NEXT):
        world.put(day, [day])
        world.run(day)
    world.restore_by_hand(0)
    world.restore_by_hand(1)
    with pytest.raises(Fenced, match="in the table already"):
        world.run(NEXT, force=True)
    assert len(world.rows()) == 2


def test_appends_of_two_slots_go_side_by_side(make_world):
    world = make_world(pattern=twice.transactional_writer())
    for day in (DAY, NEXT, "2024-09-22"):
        world.put(day, [day])
    world.run("2024-09-22")
    with armed(once_at("publish.before", lambda: world.twin().run(NEXT))):
        world.run(DAY)
    assert len(world.rows()) == 3


@pytest.mark.stores("delta")
def test_63_a_constraint_of_the_table_refuses_all_rows(make_world):
    world = make_world(pattern=twice.transactional_writer())
    world.put(DAY, ["a"])
    world.run(DAY)
    world.spark.sql(f"ALTER TABLE delta.`{world.table()}` ADD CONSTRAINT short CHECK (length(id) <= 6)")
    world.put(NEXT, ["b", "much too long"])
    with pytest.raises(NotPublished):
        world.run(NEXT)
    assert world.by_day() == {DAY: ["a"]}
    world.put(NEXT, ["b"])
    world.run(NEXT)
    assert world.by_day() == {DAY: ["a"], NEXT: ["b"]}


@pytest.mark.stores("memory")
def test_rows_whose_inputs_are_not_declared_cannot_be_appended(world):
    with pytest.raises(twice.Misuse, match="inputs=") as refused:
        twice.publish(
            [{"id": "a"}],
            to="memory:lake/out",
            pattern=twice.transactional_writer(),
            slot=twice.slot("out", at=DAY),
            project=world.project,
        )
    assert not isinstance(refused.value, OutcomeUnknown)


def test_lineage_that_is_declared_later_does_not_find_older_rows(make_world):
    world = make_world(pattern=twice.transactional_writer(), columns={"on_new_column": "add"})
    world.put(DAY, ["a"])
    world.run(DAY)
    world.pattern = twice.transactional_writer(lineage="loaded_by")
    world.put(NEXT, ["b"])
    world.run(NEXT)
    with pytest.raises(Fenced, match="without their slot"):
        world.run(DAY, force=True)
    assert len(world.rows()) == 2


def test_lineage_does_not_take_the_place_of_a_column(make_world):
    world = make_world(pattern=twice.transactional_writer(lineage="id"))
    world.put(DAY, ["a"])
    with pytest.raises(twice.Misuse, match="column 'id' already"):
        world.run(DAY)


@pytest.mark.stores("delta")
def test_an_older_edition_that_a_restore_brought_back_is_not_forgotten(make_world):
    world = make_world(pattern=twice.transactional_writer())
    world.put(DAY, ["a"])
    world.run(DAY)
    world.put(NEXT, ["b"])
    world.run(NEXT)
    world.restore_by_hand(0)
    world.run(NEXT, force=True)
    world.restore_by_hand(1)
    with pytest.raises(Fenced, match="in the table already"):
        world.run(NEXT, force=True)
