"""Scenario 81: death at every point, on every store, in every shape of the pattern."""

import itertools

import pytest

import twice
from twice.faults import Died, armed, dying_at
from twice.handovers import take_over
from twice.prover import check, deaths_at_every_point
from worlds import WITHOUT_SPARK, needing

pytestmark = [pytest.mark.timeout(1800)]

DAY, NEXT = "2024-09-20", "2024-09-21"
SHAPES = {
    "slice": twice.data_overwrite(slice="day"),
    "partitions": twice.data_overwrite(partitions=["day"]),
    "keep": twice.data_overwrite(slice="day", empty="keep"),
    "table": twice.data_overwrite(),
    "merger": twice.merger(keys=["id"]),
    "stateful": twice.stateful_merger(keys=["id"]),
    "stateful by history": twice.stateful_merger(keys=["id"], form="history"),
    "merger by partition": twice.merger(keys=["day", "id"], partitioned_by=["day"]),
    "dedup": twice.dedup_insert(keys=["id"]),
    "append": twice.transactional_writer(),
    "append with lineage": twice.transactional_writer(lineage="slot"),
    "proxy": twice.proxy(keep=2),
    "cleaner": twice.fast_metadata_cleaner(period="week"),
    "keyed table": twice.keyed(table="{start:%Y%m%d}"),
}
CORRECTED = [shape for shape in SHAPES if shape != "append"]


@pytest.fixture
def thorough(kind, request):
    """Memory, and the slice on every store, is tried at every point; other shapes where it tells most, or by `make prove`."""
    shape = request.node.callspec.params.get("shape")
    return kind in WITHOUT_SPARK or shape == "slice" or request.config.getoption("--every-kill")


@pytest.mark.parametrize("shape", [pytest.param(name, marks=needing(SHAPES[name])) for name in SHAPES])
def test_81_death_in_a_first_run(make_world, copies_of, thorough, shape):
    world = make_world(pattern=SHAPES[shape], script=lambda w: w.run(DAY))
    world.put(DAY, ["a", "b"])
    assert len(check(deaths_at_every_point(copies_of(world), thorough=thorough))) >= 10


@pytest.mark.parametrize("shape", [pytest.param(name, marks=needing(SHAPES[name])) for name in CORRECTED])
def test_81_death_while_a_corrected_slot_replaces_its_rows(make_world, copies_of, thorough, shape):
    world = make_world(pattern=SHAPES[shape], script=lambda w: w.run(NEXT))
    for day in (DAY, NEXT):
        world.put(day, [f"{day}-a", f"{day}-b"])
        world.run(day)
    # Of two known rows a merge leaves one alone and moves the other; a third is new.
    world.put(NEXT, [] if shape == "keep" else [f"{DAY}-a", f"{NEXT}-a", "corrected"])
    assert len(check(deaths_at_every_point(copies_of(world), thorough=thorough))) >= 10


@pytest.mark.needs("KeepsVersions")
@pytest.mark.parametrize("visible", ["result", "each"])
def test_81_death_in_a_replay_of_an_older_slot(make_world, copies_of, thorough, visible):
    world = make_world(pattern=twice.stateful_merger(keys=["id"], visible=visible), script=lambda w: w.run(DAY))
    for day, rows in ((DAY, ["a", "b"]), (NEXT, ["b", "c"]), ("2024-09-22", ["c", "d"])):
        world.put(day, rows)
        world.run(day)
    world.put(DAY, ["b", "e"])
    assert len(check(deaths_at_every_point(copies_of(world), thorough=thorough))) >= 10


@pytest.mark.needs("KeepsVersions")
def test_81_death_while_an_older_version_is_restored(make_world, copies_of, thorough):
    def script(world):
        twice.restore(f"{world.kind}:{world.target}", 0, project=world.project)

    world = make_world(pattern=twice.stateful_merger(keys=["id"]), script=script)
    for day, rows in ((DAY, ["a", "b"]), (NEXT, ["b", "c"])):
        world.put(day, rows)
        world.run(day)
    assert len(check(deaths_at_every_point(copies_of(world), thorough=thorough))) >= 4


def test_81_death_in_a_backfill(make_world, copies_of, thorough):
    def script(world):
        twice.backfill(world.pipeline, DAY, "2024-09-23", project=world.project)

    world = make_world(script=script)
    for day in (DAY, NEXT, "2024-09-22"):
        world.put(day, [day])
    assert len(check(deaths_at_every_point(copies_of(world), thorough=thorough))) >= 10


def test_81_death_while_a_target_is_taken_over(make_world, copies_of, thorough):
    def script(world):
        sight = take_over(world.store, world.project.ledger, world.target)
        world.project.ledger.rebuild(
            [f"{world.kind}:{world.target}"], [(receipt, sight.version) for receipt in sight.receipts.values()]
        )
        world.run(DAY)

    world = make_world(script=script)
    world.put(DAY, ["a"])
    world.run(DAY)
    world.lose_ledger()
    assert len(check(deaths_at_every_point(copies_of(world), thorough=thorough))) >= 2


@pytest.mark.stores("parquet")
def test_81_death_while_leftovers_are_swept(make_world, copies_of, thorough):
    def script(world):
        world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
        world.run(DAY)

    world = make_world(script=script)
    world.put(DAY, ["a"])
    world.run(DAY)
    with armed(dying_at("publish.before")), pytest.raises(Died):
        world.run(DAY, force=True)
    assert world.litter()
    assert len(check(deaths_at_every_point(copies_of(world), thorough=thorough))) >= 4


@pytest.mark.parametrize("shape", [pytest.param(name, marks=needing(SHAPES[name])) for name in CORRECTED])
def test_a_reader_sees_all_of_the_old_rows_or_all_of_the_new_ones(make_world, shape):
    world = make_world(pattern=SHAPES[shape])
    for day in (DAY, NEXT):
        world.put(day, [f"{day}-a", f"{day}-b"])
        world.run(day)
    world.put(NEXT, [f"{DAY}-a", f"{NEXT}-a", "corrected"])
    seen = [world.rows()]
    # While a SQL view changes, readers wait until COMMIT; one in this process would wait for itself.
    changing = False

    def look(point):
        nonlocal changing
        changing = point.endswith((".member.shown", ".version.shown")) or (
            changing and point != "postgres.commit.after"
        )
        if not changing and point.startswith(("publish", "memory", "parquet", "delta", "postgres", "view", "read")):
            seen.append(world.rows())

    with armed(look):
        world.run(NEXT)
    changes = [after for before, after in itertools.pairwise([*seen, world.rows()]) if before != after]
    assert changes == [world.rows()]
