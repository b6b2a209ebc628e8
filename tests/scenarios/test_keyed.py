"""Scenarios 51 to 53: a name that never changes makes a write repeatable."""

import json

import pytest
from pyarrow import parquet

import twice
from disks import Disk, failing_once_at
from twice.errors import Misuse, NotPublished, ProofGone
from twice.faults import Died, armed, dying_at
from twice.prover import check, deaths_at_every_point

DAYS = {"2024-09-20": 3, "2024-09-21": 4, "2024-09-22": 3}


def put(world):
    for day, count in DAYS.items():
        world.put(day, [f"{day}-{number}" for number in range(count)])


def by_name(world, column):
    found: dict[str, int] = {}
    for row in world.records():
        found[row[column]] = found.get(row[column], 0) + 1
    return found


@pytest.mark.needs("UnitesTables")
def test_a_table_a_slot(make_world):
    world = make_world(pattern=twice.keyed(table="{start:%Y%m%d}"))
    put(world)
    for force in (False, True, True):
        for day in DAYS:
            world.run(day, force=force)
    assert by_name(world, "table_name") == {"20240920": 3, "20240921": 4, "20240922": 3}
    world.put("2024-09-21", ["only"])
    world.run("2024-09-21")
    assert by_name(world, "table_name")["20240921"] == 1


@pytest.mark.needs("UnitesTables")
def test_two_slots_under_one_name_are_refused(make_world):
    world = make_world(pattern=twice.keyed(table="{start:%Y%m}"))
    put(world)
    world.run("2024-09-20")
    with pytest.raises(twice.Fenced, match="is that of 2024-09-20T00:00Z as well"):
        world.run("2024-09-21")


def test_a_partition_a_slot(make_world):
    world = make_world(pattern=twice.keyed(partition="loaded_for"))
    put(world)
    for force in (False, True):
        for day in DAYS:
            world.run(day, force=force)
    assert by_name(world, "loaded_for") == DAYS
    world.put("2024-09-21", ["only"])
    world.run("2024-09-21")
    assert by_name(world, "loaded_for")["2024-09-21"] == 1


def test_rows_under_their_keys(make_world):
    world = make_world(pattern=twice.keyed(keys=["id"]))
    world.put("2024-09-20", ["a", "b"])
    world.run("2024-09-20")
    world.put("2024-09-21", ["b", "c"])
    for _ in range(2):
        world.run("2024-09-21", force=True)
    assert world.table_rows("id") == [("a",), ("b",), ("c",)]


@pytest.mark.needs("UnitesTables")
@pytest.mark.stores("memory")
def test_bad_names_are_refused(make_world):
    with pytest.raises(Misuse, match="the same for every slot"):
        twice.keyed(table="always")
    with pytest.raises(Misuse, match="one of keys="):
        twice.keyed()
    with pytest.raises(Misuse, match="format 'xlsx'"):
        twice.keyed(file="{execution_date}.xlsx")
    world = make_world(pattern=twice.keyed(table="../{start:%Y}"))
    put(world)
    with pytest.raises(Misuse, match="cannot name a container"):
        world.run("2024-09-20")


# ---------------------------------------------------------------- files


@pytest.fixture
def deliveries(make_world):
    """Return a maker of worlds that deliver a file a day; only the store of files can."""

    def make(file, transform=None, **options):
        world = make_world(pattern=twice.keyed(file=file, **options))
        world.kind, world.target = "files", "exports/devices"
        world.transform = transform or world.transform
        put(world)
        return world

    return make


def names(world):
    return sorted(path.name for path in world.table().iterdir() if not path.name.startswith("_"))


def lines(world, name):
    return (world.table() / name).read_text().splitlines()


@pytest.mark.stores("parquet")
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_51_each_file_is_there_once_and_whole(deliveries, ending):
    world = deliveries("{execution_date}." + ending, header=False)
    for force in (False, True, True):
        for day in DAYS:
            world.run(day, force=force)
    assert names(world) == [f"{day}.{ending}" for day in DAYS]
    for day, count in DAYS.items():
        path = world.table() / f"{day}.{ending}"
        assert (
            parquet.read_metadata(path).num_rows if ending == "parquet" else len(path.read_text().splitlines())
        ) == count
    assert world.run("2024-09-20").state == "skipped"


@pytest.mark.stores("parquet")
def test_52_changed_code_under_the_same_name(deliveries):
    world = deliveries("{execution_date}.csv", header=False)
    for day in DAYS:
        world.run(day)
    world.pattern = twice.keyed(file="{execution_date}.csv", header=True)
    for day in DAYS:
        world.run(day, force=True)
    assert names(world) == [f"{day}.csv" for day in DAYS]
    assert [len(lines(world, f"{day}.csv")) for day in DAYS] == [4, 5, 4]


@pytest.mark.stores("parquet")
@pytest.mark.parametrize("point", ["parquet.manifest.linked", "files.delivered"])
def test_a_delivery_that_the_disk_did_not_confirm_is_unknown(deliveries, point):
    world = deliveries("{execution_date}.csv", header=False)
    with Disk(world.folder).watched() as disk:
        with failing_once_at(point), pytest.raises(twice.OutcomeUnknown):
            world.run("2024-09-20")
        assert world.run("2024-09-20").state == "skipped"
    left = disk.left(world.folder.parent / "left") / world.table().relative_to(world.folder)
    assert len((left / "2024-09-20.csv").read_text().splitlines()) == 3


@pytest.mark.stores("parquet")
def test_53_death_at_every_point_shows_no_partial_file(deliveries, copies_of):
    world = deliveries("{execution_date}.jsonl", marker=".done")
    world.run("2024-09-20")
    world.put("2024-09-20", ["corrected"])
    world.script = lambda w: w.run("2024-09-20")
    seen = check(deaths_at_every_point(copies_of(world)))
    assert len(seen) >= 15


@pytest.mark.stores("parquet")
def test_a_delivery_that_is_due_is_completed_by_the_next_run(deliveries):
    world = deliveries("{execution_date}.jsonl", marker=".done")
    with armed(dying_at("parquet.manifest.linked")), pytest.raises(Died):
        world.run("2024-09-20")
    assert names(world) == []
    assert world.run("2024-09-20").state == "skipped"
    assert names(world) == ["2024-09-20.jsonl", "2024-09-20.jsonl.done"]
    assert [json.loads(line)["id"] for line in lines(world, "2024-09-20.jsonl")] == [
        f"2024-09-20-{n}" for n in range(3)
    ]


@pytest.mark.stores("parquet")
def test_a_file_that_was_changed_after_its_delivery_is_noticed(deliveries):
    world = deliveries("{execution_date}.csv")
    world.run("2024-09-20")
    (world.table() / "2024-09-20.csv").write_text("changed by hand")
    with pytest.raises(ProofGone, match="changed after its delivery"):
        world.run("2024-09-20")
    world.run("2024-09-20", force=True)
    assert len(lines(world, "2024-09-20.csv")) == 4


@pytest.mark.stores("parquet")
def test_a_file_of_somebody_else_is_left_alone(deliveries):
    world = deliveries("{execution_date}.csv")
    stranger = world.table() / "2024-09-20.csv"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("mine")
    with pytest.raises(NotPublished, match="did not deliver"):
        world.run("2024-09-20")
    assert stranger.read_text() == "mine"
