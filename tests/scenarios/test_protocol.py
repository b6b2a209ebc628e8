"""Scenarios 80 to 82, 96, 99, 100, 103, 105, 107 to 110, 113: attacks on the protocol, on every store."""

import threading

import pytest

import twice
from twice.errors import LedgerAhead, ProofGone, Stranger
from twice.faults import Died, armed, dying_at
from twice.handovers import take_over
from worlds import once_at


def fill(world):
    world.put("2024-09-20", ["a", "b"])
    world.put("2024-09-21", ["c"])
    world.run("2024-09-20")
    world.run("2024-09-21")


@pytest.fixture
def two_days(filled_once):
    return filled_once(fill)


def rebuild(world):
    sight = take_over(world.store, world.project.ledger, world.target)
    world.project.ledger.rebuild(
        [f"{world.kind}:{world.target}"], [(receipt, sight.version) for receipt in sight.receipts.values()]
    )


def test_82_reruns_of_unchanged_inputs_change_nothing(two_days):
    before = two_days.snapshot()
    version = two_days.sight().version
    for day in ("2024-09-21", "2024-09-20", "2024-09-20"):
        assert two_days.run(day).state == "skipped"
    assert two_days.snapshot() == before
    assert two_days.sight().version == version


def test_96_a_lost_ledger_is_rebuilt_from_the_store(two_days):
    before = two_days.snapshot()
    two_days.lose_ledger()
    with pytest.raises(Stranger, match="ledger rebuild"):
        two_days.run("2024-09-20")
    rebuild(two_days)
    assert two_days.snapshot() == before
    assert two_days.run("2024-09-20").state == "skipped"


def test_99_rows_gone_number_left(two_days):
    two_days.overwrite_by_hand()
    with pytest.raises(twice.Fenced):
        two_days.run("2024-09-20")
    outcome = two_days.run("2024-09-20", force=True)
    assert outcome.state == "published"
    assert [one for one, day in two_days.rows() if day == "2024-09-20"] == ["a", "b"]
    assert two_days.run("2024-09-20").state == "skipped"


def test_97_rows_deleted_by_hand_are_noticed(two_days):
    two_days.delete_by_hand("2024-09-20")
    with pytest.raises(ProofGone, match="no longer vouched for"):
        two_days.run("2024-09-20")
    assert two_days.run("2024-09-20", force=True).generation == 2
    assert ("a", "2024-09-20") in two_days.rows()


def test_119_accepted_once_not_for_ever(two_days):
    two_days.delete_by_hand("2024-09-20")
    assert two_days.run("2024-09-20", accept=True).state == "skipped"
    assert two_days.run("2024-09-20").state == "skipped"
    two_days.run("2024-09-21", force=True)
    two_days.delete_by_hand("2024-09-21")
    with pytest.raises(ProofGone):
        two_days.run("2024-09-21")


def test_100_ledger_lost_and_input_changed_publishes_generation_two(two_days):
    two_days.lose_ledger()
    two_days.put("2024-09-20", ["corrected"])
    with pytest.raises(Stranger, match="ledger rebuild"):
        two_days.run("2024-09-20")
    rebuild(two_days)
    outcome = two_days.run("2024-09-20")
    assert (outcome.state, outcome.generation) == ("published", 2)
    assert two_days.by_day() == {"2024-09-20": ["corrected"], "2024-09-21": ["c"]}


def test_103_two_ledgers_take_turns_only_by_adoption(two_days):
    two_days.ledger_name = "other.db"
    two_days.reopen()
    two_days.put("2024-09-20", ["theirs"])
    with pytest.raises(Stranger, match="twice adopt"):
        two_days.run("2024-09-20")
    rebuild(two_days)
    assert two_days.run("2024-09-20").generation == 2
    two_days.ledger_name = "ledger.db"
    two_days.reopen()
    two_days.put("2024-09-21", ["mine"])
    with pytest.raises(Stranger):
        two_days.run("2024-09-21")
    assert two_days.by_day() == {"2024-09-20": ["theirs"], "2024-09-21": ["c"]}


def test_a_table_that_was_dropped_is_not_guessed_about(two_days):
    two_days.drop()
    with pytest.raises(LedgerAhead, match="nothing is guessed"):
        two_days.run("2024-09-20")
    assert two_days.run("2024-09-20", force=True).state == "published"
    assert two_days.by_day() == {"2024-09-20": ["a", "b"]}


@pytest.mark.stores("parquet", "delta")
def test_a_filled_table_is_not_taken_without_adoption(world):
    world.put("2024-09-20", ["a"])
    world.overwrite_by_hand()
    with pytest.raises(Stranger, match="did not write") as refused:
        world.run("2024-09-20")
    assert "twice adopt" in refused.value.fix
    assert ("--force" in refused.value.fix) == (world.kind == "parquet")


@pytest.mark.stores("memory", "delta")
def test_114_a_slot_restored_away_is_refused_and_forced_back_once(two_days):
    two_days.restore_by_hand(0)
    assert two_days.by_day() == {"2024-09-20": ["a", "b"]}
    assert two_days.run("2024-09-20").state == "skipped"
    with pytest.raises(ProofGone, match="restored to version 0"):
        two_days.run("2024-09-21")
    assert two_days.run("2024-09-21", force=True).generation == 2
    assert two_days.by_day() == {"2024-09-20": ["a", "b"], "2024-09-21": ["c"]}


@pytest.mark.stores("memory", "delta")
def test_a_version_that_was_changed_from_outside_is_not_vouched_for_when_it_comes_back(two_days):
    two_days.overwrite_by_hand()
    twice.restore(f"{two_days.kind}:{two_days.target}", 1, project=two_days.project)
    assert two_days.run("2024-09-20").state == "skipped"
    two_days.restore_by_hand(2)
    assert two_days.by_day() == {"2024-09-20": ["foreign"]}
    with pytest.raises(ProofGone):
        two_days.run("2024-09-20")


def test_105_tidy_against_a_live_run(world):
    """A run has staged and not yet published; tidy takes it for dead; it must not publish holes."""
    world.put("2024-09-20", ["a"])
    world.run("2024-09-20")
    world.put("2024-09-21", ["c"])

    def sweep(point):
        if point == "publish.before":
            world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)

    if world.kind == "parquet":
        with armed(sweep), pytest.raises(twice.NotPublished, match="swept"):
            world.run("2024-09-21")
    else:
        with armed(sweep):
            world.run("2024-09-21")
    assert world.run("2024-09-21").state in ("published", "skipped")
    assert world.by_day() == {"2024-09-20": ["a"], "2024-09-21": ["c"]}


def test_105_tidy_leaves_a_live_attempt_alone(world):
    world.lease_seconds = 60.0
    world.reopen()
    world.put("2024-09-20", ["a"])
    world.run("2024-09-20")
    world.put("2024-09-21", ["c"])

    def sweep(point):
        if point == "publish.before":
            live = world.project.ledger.live_attempts
            assert len(live()) == 1
            world.store.tidy(world.target, live, keep_days=0, dry_run=False)

    with armed(sweep):
        assert world.run("2024-09-21").state == "published"
    assert world.by_day() == {"2024-09-20": ["a"], "2024-09-21": ["c"]}


def test_107_two_pipelines_in_one_process_carry_their_own_receipts(make_world):
    worlds = [make_world(name=name, target=f"lake/{name}") for name in ("left", "right")]
    for world in worlds:
        for day in range(10, 16):
            world.put(f"2024-09-{day}", [f"{world.name}-{day}"])
    threads = [
        threading.Thread(target=lambda w=world: [w.run(f"2024-09-{day}") for day in range(10, 16)]) for world in worlds
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for world in worlds:
        assert sorted(one for one, _ in world.rows()) == [f"{world.name}-{day}" for day in range(10, 16)]
        assert {slot.split(":")[1] for slot in world.sight().receipts} == {world.name}
        assert all(world.run(f"2024-09-{day}").state == "skipped" for day in range(10, 16))


def test_108_an_input_that_changes_under_the_run_is_not_published(two_days):
    two_days.put("2024-09-22", ["before"])

    def replace_input(point):
        if point == "stage.before":
            two_days.put("2024-09-22", ["after"])

    with armed(replace_input), pytest.raises(twice.NotPublished, match="changed while"):
        two_days.run("2024-09-22")
    assert "2024-09-22" not in two_days.by_day()
    assert two_days.run("2024-09-22").state == "published"
    assert two_days.by_day()["2024-09-22"] == ["after"]


def test_118_an_input_that_changes_and_changes_back_is_not_published(two_days):
    two_days.put("2024-09-22", ["A"])

    def swap(point):
        if point == "stage.before":
            two_days.put("2024-09-22", ["B"])
        elif point == "stage.after":
            two_days.put("2024-09-22", ["A"])

    with armed(swap), pytest.raises(twice.NotPublished, match="changed while"):
        two_days.run("2024-09-22")
    assert "2024-09-22" not in two_days.by_day()
    assert two_days.run("2024-09-22").state == "published"
    assert two_days.by_day()["2024-09-22"] == ["A"]


@pytest.mark.stores("memory", "parquet")
def test_109_old_receipts_survive_many_publishes_and_a_tidy(world):
    """On Delta the log is cleaned: see tests/stores/test_delta.py."""
    days = [f"2024-09-{number:02}" for number in range(1, 15)]
    for day in days:
        world.put(day, [day])
        world.run(day)
    world.tidy()
    assert world.run(days[0]).state == "skipped"
    world.lose_ledger()
    rebuild(world)
    assert world.run(days[0]).state == "skipped"
    assert len(world.project.ledger.published()) == len(days)


def test_110_another_pipeline_and_another_calendar_are_refused(two_days):
    two_days.put("2024-09-22", ["d"])
    two_days.name = "second"
    with pytest.raises(twice.Misuse, match="written by the pipeline 'out'"):
        two_days.run("2024-09-22")
    two_days.name = "out"
    two_days.every = "1 hour"
    two_days.put("2024-09-20", ["hourly"])
    with pytest.raises(twice.Misuse, match="another calendar"):
        two_days.run("2024-09-20T05:00Z")
    assert two_days.by_day() == {"2024-09-20": ["a", "b"], "2024-09-21": ["c"]}


def test_80_a_twin_that_lands_first_is_found_and_skipped(world):
    world.put("2024-09-20", ["a"])
    ended = []
    with armed(once_at("publish.before", lambda: ended.append(world.twin().run("2024-09-20").state))):
        ended.append(world.run("2024-09-20").state)
    assert ended == ["published", "skipped"]
    assert world.sight().fence(world.slot("2024-09-20")) == 1
    assert world.rows() == [("a", "2024-09-20")]


def test_80_a_late_twin_with_older_inputs_is_fenced(world):
    world.put("2024-09-20", ["old"])

    def race():
        world.put("2024-09-20", ["new"])
        assert world.twin().run("2024-09-20").state == "published"

    with armed(once_at("looked.again", race)), pytest.raises(twice.Fenced, match="from other inputs"):
        world.run("2024-09-20")
    assert world.rows() == [("new", "2024-09-20")]
    assert world.run("2024-09-20").state == "skipped"


def test_a_publish_that_landed_and_was_replaced_at_once_keeps_its_files(world):
    """Its twin keeps the rows it published: they must not be taken for a refused attempt's."""
    world.put("2024-09-20", ["a"])

    def race():
        world.put("2024-09-20", [])
        keeping = world.twin(pattern=twice.data_overwrite(slice="day", empty="keep"))
        assert keeping.run("2024-09-20").generation == 2

    with armed(once_at("publish.after", race)):
        outcome = world.run("2024-09-20")
    assert (outcome.state, outcome.generation) == ("published", 2)
    assert "generation 2 has replaced it" in outcome.reason
    assert world.rows() == [("a", "2024-09-20")]
    assert world.sight().ended == {}


def test_rows_that_were_to_be_kept_and_are_gone_are_not_vouched_for(make_world):
    world = make_world(pattern=twice.data_overwrite(slice="day", empty="keep"))
    world.put("2024-09-20", ["a"])
    world.run("2024-09-20")
    world.put("2024-09-20", [])
    race = once_at("publish.before", lambda: world.delete_by_hand("2024-09-20"))
    with armed(race), pytest.raises(ProofGone):
        world.run("2024-09-20")
    assert world.sight().proof(world.slot("2024-09-20")) is None


def test_a_run_that_waited_takes_the_inputs_of_now(world):
    """A twin publishes newer inputs before this run has its lease: it must not bring the older ones back."""
    world.put("2024-09-20", ["old"])

    def race():
        world.put("2024-09-20", ["new"])
        assert world.twin().run("2024-09-20").state == "published"

    with armed(once_at("intended", race)):
        assert world.run("2024-09-20").state == "skipped"
    assert world.rows() == [("new", "2024-09-20")]


def test_neighbours_publish_side_by_side(world):
    """Another slot moves the target between plan and publish: the slot rule alone decides."""
    days = {"2024-09-19": ["x"], "2024-09-20": ["a"], "2024-09-21": ["b"]}
    for day, ids in days.items():
        world.put(day, ids)
    world.run("2024-09-19")
    with armed(once_at("publish.before", lambda: world.twin().run("2024-09-21"))):
        assert world.run("2024-09-20").state == "published"
    assert world.by_day() == days


def test_a_whole_table_computed_before_a_neighbour_is_done_again(make_world):
    world = make_world(pattern=twice.data_overwrite())
    for day, one in (("2024-09-19", "x"), ("2024-09-20", "a"), ("2024-09-21", "b")):
        world.put(day, [one])
    world.run("2024-09-19")
    with armed(once_at("publish.before", lambda: world.twin().run("2024-09-20"))):
        assert world.run("2024-09-21").state == "published"
    assert world.rows() == [("b", "2024-09-21")]
    with pytest.raises(twice.Fenced):
        world.run("2024-09-20")


def test_a_whole_table_goes_on_day_by_day(make_world):
    """Slots that a newer one has replaced do not stand in the way of a backfill that is run again."""
    world = make_world(pattern=twice.data_overwrite())
    for number in (20, 21, 22):
        world.put(f"2024-09-{number}", [str(number)])
        twice.backfill(world.pipeline, "2024-09-20", f"2024-09-{number + 1}", project=world.project)
        assert world.rows() == [(str(number), f"2024-09-{number}")]


def test_113_a_clock_that_is_set_back_changes_nothing(two_days, monkeypatch):
    import datetime as dt
    import time

    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 3600)

    class Earlier(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return dt.datetime.now(tz) - dt.timedelta(hours=1)

    monkeypatch.setattr("twice.execute.datetime", Earlier)
    monkeypatch.setattr("twice.ledger.sqlite.datetime", Earlier)
    two_days.put("2024-09-20", ["later"])
    assert two_days.run("2024-09-20").generation == 2
    assert two_days.run("2024-09-21").state == "skipped"
    with armed(dying_at("publish.before")), pytest.raises(Died):
        two_days.run("2024-09-21", force=True)
    assert two_days.run("2024-09-21", force=True).generation == 2
    assert two_days.by_day() == {"2024-09-20": ["later"], "2024-09-21": ["c"]}


def test_a_stale_ledger_put_back_is_mended(two_days):
    ledger = two_days.folder / ".twice/ledger.db"
    old = ledger.read_bytes()
    two_days.put("2024-09-20", ["newer"])
    two_days.run("2024-09-20")
    ledger.write_bytes(old)
    two_days.reopen()
    assert two_days.run("2024-09-20").state == "skipped"
    two_days.put("2024-09-20", ["newest"])
    assert two_days.run("2024-09-20").generation == 3
    assert two_days.by_day() == {"2024-09-20": ["newest"], "2024-09-21": ["c"]}
