"""Scenarios 71 to 78: versions that never change, behind one name."""

import pytest

import twice
from twice.errors import Fenced, Misuse, ProofGone, Stranger

pytestmark = [pytest.mark.needs("PointsAtVersions")]

DAYS = ["2024-09-20", "2024-09-21", "2024-09-22", "2024-09-23"]
D1 = ["galaxy", "iphone", "htc"]
D4 = ["air-ventura", "pro-ventura", "pro-sonoma", "air-catalina"]


@pytest.fixture
def devices(make_world):
    return make_world(pattern=twice.proxy())


def publish(world, day, ids, **asked):
    world.put(day, ids)
    return world.run(day, **asked)


def ids(world):
    return sorted(one for one, _ in world.rows())


def versions(world):
    return twice.versions(f"{world.kind}:{world.target}", project=world.project)


def point(world, number):
    chosen = versions(world)[number - 1]
    twice.point(f"{world.kind}:{world.target}", chosen.name, project=world.project)


def test_71_to_73_two_publishes_and_a_rerun(devices):
    publish(devices, DAYS[0], D1)
    first = [(one.name, one.rows) for one in versions(devices)]
    assert (ids(devices), len(first)) == (sorted(D1), 1)
    publish(devices, DAYS[1], D4)
    assert ids(devices) == sorted(D4)
    assert [(one.name, one.rows) for one in versions(devices)][:1] == first
    assert devices.run(DAYS[1]).state == "skipped"
    assert len(versions(devices)) == 2
    assert devices.run(DAYS[1], force=True).generation == 2
    assert (ids(devices), len(versions(devices))) == (sorted(D4), 3)


def test_75_back_and_forward(devices):
    publish(devices, DAYS[0], D1)
    publish(devices, DAYS[1], D4)
    point(devices, 1)
    assert ids(devices) == sorted(D1)
    assert devices.run(DAYS[0]).state == "skipped"
    with pytest.raises(ProofGone, match=r"(?i)the view points at"):
        devices.run(DAYS[1])
    point(devices, 2)
    assert ids(devices) == sorted(D4)
    assert devices.run(DAYS[1]).state == "skipped"
    with pytest.raises(Misuse, match="not a version"):
        twice.point(f"{devices.kind}:{devices.target}", "data/nowhere", project=devices.project)


def test_a_slot_published_anew_after_a_rollback(devices):
    publish(devices, DAYS[0], D1)
    publish(devices, DAYS[1], D4)
    point(devices, 1)
    assert devices.run(DAYS[1], force=True).generation == 2
    assert ids(devices) == sorted(D4)


def test_77_retention_never_drops_the_one_behind_the_name(make_world):
    world = make_world(pattern=twice.proxy(keep=2))
    for day in DAYS:
        publish(world, day, [day])
    assert [one.slot for one in versions(world)] == [world.slot(day) for day in DAYS[2:]]
    assert ids(world) == [DAYS[3]]
    world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    assert ids(world) == [DAYS[3]]
    point(world, 1)
    assert ids(world) == [DAYS[2]]
    if world.database:
        assert len(world.database.tables("lake\\_\\_out\\_\\_%")) == 2
    elif world.kind != "memory":
        assert len(list((world.table() / "data").iterdir())) == 2


def test_an_older_slot_does_not_take_the_name_unasked(devices):
    publish(devices, DAYS[1], D4)
    with pytest.raises(Fenced, match="newer slot 2024-09-21"):
        publish(devices, DAYS[0], D1)
    assert ids(devices) == sorted(D4)


def test_78_writes_through_the_name_are_refused(devices, make_world):
    publish(devices, DAYS[0], D1)
    writer = devices.twin(pattern=twice.data_overwrite(slice="day"), name="out")
    with pytest.raises(Misuse, match="is a view"):
        writer.run(DAYS[0], force=True)
    assert ids(devices) == sorted(D1)


def test_a_table_does_not_become_a_view(make_world):
    world = make_world()
    publish(world, DAYS[0], D1)
    world.pattern = twice.proxy()
    with pytest.raises(Misuse, match="is a table"):
        publish(world, DAYS[1], D4)


@pytest.mark.stores("parquet", "delta", "postgres")
def test_78_second_writes_to_a_version_are_refused(devices):
    publish(devices, DAYS[0], D1)
    inside = devices.twin(target=f"{devices.target}/{versions(devices)[0].name}", pattern=twice.data_overwrite())
    with pytest.raises((Misuse, Stranger), match="never changes"):
        inside.run(DAYS[0], force=True)
    assert ids(devices) == sorted(D1)


def test_a_sealed_view_takes_no_more(devices):
    publish(devices, DAYS[0], D1)
    target = f"{devices.kind}:{devices.target}"
    twice.seal(target, "handed over to the archive", project=devices.project)
    with pytest.raises(Fenced, match=r"takes nothing more for .*: handed over"):
        publish(devices, DAYS[1], D4)
    assert ids(devices) == sorted(D1)
    twice.seal(target, "", project=devices.project)
    publish(devices, DAYS[1], D4)
    assert ids(devices) == sorted(D4)


def test_a_corrected_older_version_does_not_vouch_for_the_newer_one(devices):
    publish(devices, DAYS[0], D1)
    publish(devices, DAYS[1], D4)
    point(devices, 1)
    publish(devices, DAYS[0], ["corrected"])
    assert ids(devices) == ["corrected"]
    with pytest.raises(ProofGone):
        devices.run(DAYS[1])
    publish(devices, DAYS[0], ["corrected", "again"])
    assert ids(devices) == ["again", "corrected"]


@pytest.mark.stores("parquet", "delta")
def test_a_version_that_lost_a_file_is_not_vouched_for(devices):
    publish(devices, DAYS[0], D1)
    next((devices.table() / "data").rglob("part-*.parquet")).unlink()
    with pytest.raises(ProofGone, match="gone or changed"):
        devices.run(DAYS[0])
    devices.run(DAYS[0], force=True)
    assert ids(devices) == sorted(D1)
