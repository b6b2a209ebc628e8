"""Scenarios 32 to 50, 101, 111, 116: a day in the middle is done again, and the table is what it would have been."""

import os
import time

import pytest

import twice
from twice.backfills import backfill
from twice.decide import Asked
from twice.errors import Fenced, NotPublished, ProofGone
from twice.faults import Died, armed, dying_at
from twice.stores import manifest
from worlds import once_at

SCHEMA = "id string, brand string"
D20, D21, D22, D23, D24 = (f"2024-09-{day}" for day in range(20, 25))
DAYS = [D20, D21, D22, D23, D24]
END = "2024-09-25"
P = {
    D20: {"iphone-11": "apple", "iphone-12": "apple", "galaxy-a33": "samsun"},
    D21: {"galaxy-a32": "samsung", "iphone-13": "apple", "redmi-note-10": "xiaomi", "galaxy-a33": "samsung"},
    D22: {"galaxy-m54": "samsung", "iphone-14": "apple", "redmi-note-9": "xiaom"},
    D23: {"galaxy-m32": "samsung", "iphone-se-4": "apple", "pixel-7": "google", "redmi-note-9": "xiaomi"},
}
P[D24] = P[D23]
FIXED = {"galaxy-m12": "samsung", "iphone-se-5": "apple"}


def after(*days, **changed):
    """Return the table after some days, as a plain dict: what it would have been."""
    table = {}
    for day in days:
        table.update(changed.get(day, P[day]))
    return table


WHOLE = {"pattern": twice.stateful_merger(keys=["id"]), "schema": SCHEMA}
SHOWN = {"pattern": twice.stateful_merger(keys=["id"], visible="each"), "schema": SCHEMA}
KEPT = {"pattern": twice.stateful_merger(keys=["id"], form="history"), "schema": SCHEMA}


@pytest.fixture
def phones(make_world):
    return make_world(**WHOLE)


@pytest.fixture
def all_days(filled_once):
    return filled_once(first_pass, **WHOLE)


def put(world, day, rows):
    world.put_rows(day, [{"id": key, "brand": brand} for key, brand in rows.items()])


def table(world):
    rows = world.table_rows("id", "brand")
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def first_pass(world):
    for day in DAYS:
        put(world, day, P[day])
        world.run(day)


def replay(world, start, end=END, **asked):
    return backfill(world.project, world.pipeline, start, end, Asked(resuming=True, **asked))


def versions(world):
    sight = world.sight()
    return [sight.receipts[world.slot(day)].first_version for day in DAYS]


@pytest.mark.needs("KeepsVersions")
def test_32_first_pass(phones):
    for number, day in enumerate(DAYS):
        put(phones, day, P[day])
        phones.run(day)
        assert table(phones) == after(*DAYS[: number + 1])
        assert phones.sight().receipts[phones.slot(day)].rows == len(P[day])
    assert versions(phones) == sorted(set(versions(phones)))
    assert (len(table(phones)), table(phones)["redmi-note-9"]) == (12, "xiaomi")


@pytest.mark.needs("KeepsVersions")
def test_33_a_full_replay_ends_in_the_same_rows_in_one_publish(all_days):
    before = all_days.sight().version
    outcomes = replay(all_days, D20, force=True)
    assert [one.generation for one in outcomes] == [2] * 5
    assert table(all_days) == after(*DAYS)
    assert all_days.sight().version == before + 1


@pytest.mark.needs("KeepsVersions")
def test_34_and_35_a_backfill_from_the_middle_twice(all_days):
    old = versions(all_days)
    for generation in (2, 3):
        outcomes = replay(all_days, D22, force=True)
        assert [one.generation for one in outcomes] == [generation] * 3
        assert table(all_days) == after(*DAYS)
        now = versions(all_days)
        assert now[:2] == old[:2]
        assert min(now[2:]) > max(old)
        old = now
    assert all(outcome.state == "skipped" for outcome in replay(all_days, D20))


@pytest.mark.stores("delta")
def test_files_of_two_versions_are_compared_by_spark_where_they_are_many(all_days, monkeypatch):
    from twice.stores.delta import jvm

    monkeypatch.setattr(jvm, "_FEW_FILES", 0)
    replay(all_days, D22, force=True)
    assert table(all_days) == after(*DAYS)


@pytest.mark.needs("KeepsVersions")
def test_36_a_backfill_with_fixed_input(all_days):
    put(all_days, D23, FIXED)
    outcome = all_days.run(D23)
    assert (outcome.state, outcome.generation) == ("published", 2)
    assert table(all_days) == after(*DAYS, **{D23: FIXED})
    assert len(table(all_days)) == 14
    assert all_days.run(D24).state == "skipped"


@pytest.mark.needs("KeepsVersions")
def test_38_a_backfill_from_the_very_first_day(all_days):
    put(all_days, D20, {"iphone-11": "apple", "galaxy-a33": "samsun"})
    notes = all_days.run(D20).notes
    # A row goes. Of the state that the replay starts from it is true that all came.
    assert notes[0] == "merged 17 rows into an empty table: inserted 11, updated 0, deleted 0"
    assert len(table(all_days)) == 11
    assert "iphone-12" not in table(all_days)


@pytest.mark.needs("KeepsVersions")
def test_40_an_empty_first_day_and_an_empty_day_between(phones):
    put(phones, D20, {})
    assert phones.run(D20).rows == 0
    put(phones, D21, P[D21])
    phones.run(D21)
    assert table(phones) == after(D21)
    put(phones, D22, {})
    phones.run(D22)
    put(phones, D23, P[D23])
    phones.run(D23)
    put(phones, D22, P[D22])
    phones.run(D22)
    assert table(phones) == after(D21, D22, D23)


@pytest.mark.needs("KeepsVersions")
def test_a_slot_that_was_left_out_and_filled_later(phones):
    for day in (D20, D22, D23):
        put(phones, day, P[day])
        phones.run(day)
    put(phones, D21, P[D21])
    outcome = phones.run(D21)
    assert outcome.generation == 1
    assert table(phones) == after(D20, D21, D22, D23)
    assert phones.sight().fence(phones.slot(D22)) == 2


@pytest.mark.needs("KeepsVersions")
def test_many_slots_that_were_never_done_are_one_publish(phones):
    for day in DAYS:
        put(phones, day, P[day])
    outcomes = replay(phones, D20)
    assert [one.state for one in outcomes] == ["published"] * 5
    assert [one.rows for one in outcomes] == [len(P[day]) for day in DAYS]
    assert len({one.version_after for one in outcomes}) == 1
    assert table(phones) == after(*DAYS)


@pytest.mark.needs("KeepsVersions")
def test_a_backfill_ends_at_the_first_slot_that_cannot_be_done(phones):
    for day in (D20, D21, D23):
        put(phones, day, P[day])
    with pytest.raises(NotPublished):
        replay(phones, D20)
    assert table(phones) == after(D20, D21)


@pytest.mark.needs("KeepsVersions")
def test_116_a_replay_after_a_replay_keeps_the_new_rows_of_the_earlier_slot(all_days):
    put(all_days, D20, {"iphone-11": "apple inc"})
    all_days.run(D20)
    all_days.run(D22, force=True)
    expected = after(*DAYS, **{D20: {"iphone-11": "apple inc"}})
    assert table(all_days) == expected
    # No version holds just 20 and 21 in their new editions: they were done again from what they had been done from.
    assert all_days.sight().fence(all_days.slot(D21)) == 3
    put(all_days, D23, FIXED)
    all_days.run(D23)
    assert table(all_days) == after(*DAYS, **{D20: {"iphone-11": "apple inc"}, D23: FIXED})


@pytest.mark.needs("KeepsVersions")
def test_a_key_that_was_deleted_and_comes_back(make_world):
    pattern = twice.stateful_merger(keys=["id"], deleted="gone")
    world = make_world(pattern=pattern, schema="id string, brand string, gone boolean")

    def day(at, *rows):
        world.put_rows(at, [{"id": key, "brand": brand, "gone": gone} for key, brand, gone in rows])

    day(D20, ("a", "one", False), ("b", "one", False))
    day(D21, ("a", "one", True))
    day(D22, ("a", "three", False))
    replay(world, D20, D23)
    assert dict(world.table_rows("id", "brand")) == {"a": "three", "b": "one"}
    day(D22, ("b", "three", True))
    world.run(D22)
    assert world.table_rows("id", "brand") == []
    day(D21, ("c", "two", False))
    world.run(D21)
    assert dict(world.table_rows("id", "brand")) == {"a": "one", "c": "two"}


@pytest.mark.needs("KeepsVersions")
def test_50_duplicate_keys_in_a_days_file_are_named(all_days):
    before = table(all_days)
    all_days.put_rows(D22, [{"id": "x", "brand": "1"}, {"id": "x", "brand": "2"}])
    with pytest.raises(NotPublished, match="id='x'"):
        all_days.run(D22)
    assert table(all_days) == before


@pytest.mark.needs("KeepsVersions")
def test_the_inputs_of_a_later_slot_that_changed_are_told_and_taken(all_days):
    put(all_days, D22, {"galaxy-m54": "samsung"})
    put(all_days, D24, {"last": "one"})
    plan = twice.plan(all_days.pipeline, at=D22, project=all_days.project)
    assert plan.action == "replay"
    assert any("inputs changed since" in note and "2024-09-24" in note for note in plan.notes)
    all_days.run(D22)
    assert table(all_days) == after(*DAYS, **{D22: {"galaxy-m54": "samsung"}, D24: {"last": "one"}})


@pytest.mark.needs("KeepsVersions")
def test_a_replay_needs_the_inputs_of_later_slots(all_days):
    before = table(all_days)
    put(all_days, D22, {"galaxy-m54": "samsung"})
    (all_days.folder / f"landing/{D24}.jsonl").unlink()
    with pytest.raises(NotPublished):
        all_days.run(D22)
    assert table(all_days) == before


@pytest.mark.needs("KeepsVersions")
def test_an_earlier_slot_whose_inputs_are_gone_stops_a_replay_that_needs_them(all_days):
    all_days.run(D20, force=True)
    before = table(all_days)
    (all_days.folder / f"landing/{D21}.jsonl").unlink()
    with pytest.raises(NotPublished, match=r"needs 2024-09-2.*to be done again"):
        all_days.run(D23, force=True)
    put(all_days, D21, {"other": "rows"})
    with pytest.raises(NotPublished, match="no longer what they were"):
        all_days.run(D23, force=True)
    assert table(all_days) == before


@pytest.mark.needs("KeepsVersions")
def test_a_slot_without_a_calendar_is_refused(phones):
    with pytest.raises(twice.Misuse, match="no calendar"):
        twice.publish(
            [],
            to=f"{phones.kind}:other/table",
            pattern=phones.pattern,
            slot=twice.slot("phones", key="a"),
            inputs=["a"],
            project=phones.project,
        )


# ---------------------------------------------------------------- slot by slot


@pytest.fixture
def all_days_shown(filled_once):
    return filled_once(first_pass, **SHOWN)


def states_of(world, act):
    """Return the states that a reader sees while something is done, each once."""
    seen = [table(world)]

    def look(_):
        now = table(world)
        if now != seen[-1]:
            seen.append(now)

    with armed(look):
        act()
    return seen


@pytest.mark.needs("KeepsVersions")
def test_33_and_36_each_state_is_shown_as_it_is_reached(all_days_shown):
    old = versions(all_days_shown)
    steps = [after(*DAYS[:count]) for count in range(1, 5)]  # the fifth day changes nothing
    assert states_of(all_days_shown, lambda: replay(all_days_shown, D20, force=True))[1:] == steps
    now = versions(all_days_shown)
    assert now == sorted(set(now))
    assert min(now) > max(old)
    put(all_days_shown, D23, FIXED)
    seen = states_of(all_days_shown, lambda: all_days_shown.run(D23))
    assert seen[1:] == [after(*DAYS[:4], **{D23: FIXED}), after(*DAYS, **{D23: FIXED})]
    assert not all_days_shown.sight().pending
    assert all_days_shown.run(D24).state == "skipped"


@pytest.mark.needs("KeepsVersions")
@pytest.mark.parametrize("point", ["publish.after", "confirmed"])
def test_a_replay_that_died_half_way_is_taken_up_by_the_next_run_of_any_slot(all_days_shown, point):
    put(all_days_shown, D22, {"galaxy-m54": "fixed"})
    with armed(dying_at(point)), pytest.raises(Died):
        all_days_shown.run(D22)
    assert table(all_days_shown) == {**after(D20, D21), "galaxy-m54": "fixed"}
    assert len(all_days_shown.sight().pending) == 2
    all_days_shown.reopen()
    put(all_days_shown, "2024-09-25", {"new": "one"})
    told = twice.plan(all_days_shown.pipeline, at=D20, project=all_days_shown.project).notes
    assert any("a replay is under way, and is completed first" in note for note in told)
    all_days_shown.run("2024-09-25")
    assert table(all_days_shown) == {**after(*DAYS, **{D22: {"galaxy-m54": "fixed"}}), "new": "one"}
    assert not all_days_shown.sight().ended


# ---------------------------------------------------------------- what is kept, and for how long


@pytest.mark.needs("KeepsVersions")
def test_45_an_entry_that_the_ledger_lost_is_found_in_the_store(all_days):
    with all_days.project.ledger.transaction() as db:
        db.execute("DELETE FROM receipts WHERE slot=?", (all_days.slot(D21),))
        db.execute("DELETE FROM versions WHERE slot=?", (all_days.slot(D21),))
    before = versions(all_days)
    assert [one.generation for one in replay(all_days, D22, force=True)] == [2, 2, 2]
    assert table(all_days) == after(*DAYS)
    assert versions(all_days)[:2] == before[:2]


@pytest.mark.needs("KeepsVersions")
@pytest.mark.stores("parquet", "delta")
def test_45_and_49_an_older_version_and_the_slots_between_serve_as_well(all_days):
    expire(all_days, D21)
    plan = twice.plan(all_days.pipeline, at=D22, force=True, project=all_days.project)
    assert plan.draft.base == all_days.sight().receipts[all_days.slot(D20)].first_version
    assert [slot.label[:10] for slot in plan.draft.between] == [D21]
    all_days.run(D22, force=True)
    assert table(all_days) == after(*DAYS)


@pytest.mark.needs("KeepsVersions")
@pytest.mark.stores("parquet", "delta")
def test_49_without_the_version_and_the_inputs_nothing_changes(all_days):
    expire(all_days, D21)
    (all_days.folder / f"landing/{D21}.jsonl").unlink()
    before = all_days.sight()
    with pytest.raises(NotPublished, match=f"needs {D21}") as raised:
        all_days.run(D22, force=True)
    assert all_days.kind == "parquet" or "deletedFileRetentionDuration" in str(raised.value)
    assert all_days.sight() == before


def expire(world, day):
    """Let the version that a slot made be past its keeping."""
    version = world.sight().receipts[world.slot(day)].first_version
    if world.kind == "parquet":
        manifest.bury(str(world.table()), [version], needed={version})
    else:
        following = world.table() / "_delta_log" / f"{version + 1:020}.json"
        os.utime(following, (time.time() - 400 * 86_400,) * 2)


@pytest.mark.needs("KeepsVersions")
@pytest.mark.stores("delta")
def test_a_table_keeps_its_versions_for_as_long_as_the_pattern_says(phones):
    put(phones, D20, P[D20])
    phones.run(D20)
    detail = phones.spark.sql(f"DESCRIBE DETAIL delta.`{phones.table()}`").first()
    assert detail["properties"]["delta.deletedFileRetentionDuration"] == "interval 366 days"
    assert detail["properties"]["delta.logRetentionDuration"] == "interval 367 days"


@pytest.mark.needs("KeepsVersions")
@pytest.mark.stores("parquet")
def test_a_tidy_keeps_the_versions_that_a_replay_may_need(all_days):
    all_days.store.tidy(all_days.target, frozenset, keep_days=0, dry_run=False)
    all_days.run(D22, force=True)
    assert versions(all_days)[:2] == [0, 1]
    assert table(all_days) == after(*DAYS)


@pytest.mark.needs("KeepsVersions")
@pytest.mark.stores("delta")
def test_47_maintenance_between_runs_and_between_publish_and_bookkeeping(phones):
    def maintain():
        phones.spark.sql(f"OPTIMIZE delta.`{phones.table()}`").collect()
        phones.spark.sql(f"VACUUM delta.`{phones.table()}`").collect()

    for day in DAYS:
        put(phones, day, P[day])
        with armed(once_at("publish.after", maintain)):
            phones.run(day)
        maintain()
    assert table(phones) == after(*DAYS)
    put(phones, D23, FIXED)
    phones.run(D23)
    assert table(phones) == after(*DAYS, **{D23: FIXED})


# ---------------------------------------------------------------- against neighbours


@pytest.mark.needs("KeepsVersions")
def test_101_a_neighbour_that_publishes_meanwhile_is_in_the_replay(all_days):
    put(all_days, "2024-09-25", {"new": "one"})
    put(all_days, D22, {"galaxy-m54": "fixed"})
    with armed(once_at("looked.again", lambda: all_days.twin().run("2024-09-25"))):
        all_days.run(D22)
    assert table(all_days) == {**after(*DAYS, **{D22: {"galaxy-m54": "fixed"}}), "new": "one"}
    assert all_days.sight().fence(all_days.slot("2024-09-25")) == 2


@pytest.mark.needs("KeepsVersions")
@pytest.mark.stores("memory", "delta")
def test_101_a_foreign_change_meanwhile_refuses_the_replay_and_stays(all_days):
    put(all_days, D22, {"galaxy-m54": "fixed"})
    with armed(once_at("looked.again", lambda: meddle(all_days))), pytest.raises(ProofGone):
        all_days.run(D22)
    assert table(all_days) == {**after(*DAYS), "pixel-7": "foreign"}


@pytest.mark.needs("KeepsVersions")
@pytest.mark.stores("delta")
def test_101_an_optimize_meanwhile_loses_nothing(all_days):
    put(all_days, D22, {"galaxy-m54": "fixed"})
    optimize = f"OPTIMIZE delta.`{all_days.table()}`"
    with armed(once_at("looked.again", lambda: all_days.spark.sql(optimize).collect())):
        all_days.run(D22)
    assert table(all_days) == after(*DAYS, **{D22: {"galaxy-m54": "fixed"}})


@pytest.mark.needs("KeepsVersions")
@pytest.mark.stores("memory")
def test_111_a_replay_that_loses_again_and_again_still_finishes(phones):
    phones.lease_seconds = 60
    phones.reopen()
    first_pass(phones)
    put(phones, D22, {"galaxy-m54": "fixed"})
    later = iter([f"2024-09-{day}" for day in range(25, 31)])

    def publish_another(point):
        if point == "looked.again" and (day := next(later, None)):
            put(phones, day, {day: "one"})
            twin = phones.twin()
            with armed(lambda _: None):
                try:
                    twin.run(day)
                except twice.Busy:
                    refused.append(day)

    refused = []
    with armed(publish_another):
        phones.run(D22)
    assert refused
    assert table(phones)["galaxy-m54"] == "fixed"


@pytest.mark.needs("KeepsVersions")
def test_readers_of_a_long_replay_see_two_states(phones):
    days = [f"2024-09-{day:02}" for day in range(1, 31)]
    for number, day in enumerate(days):
        put(phones, day, {"same": str(number), day: "one"})
    replay(phones, days[0], "2024-10-01")
    old = table(phones)
    put(phones, days[0], {"first": "fixed"})
    seen = []
    with armed(lambda _: seen.append(table(phones))):
        phones.run(days[0])
    new = table(phones)
    assert new == {**dict.fromkeys(days[1:], "one"), "first": "fixed", "same": "29"}
    assert all(state in (old, new) for state in seen)
    assert seen == sorted(seen, key=lambda state: state == new)
    assert phones.sight().version == 1


# ---------------------------------------------------------------- from outside


@pytest.mark.needs("KeepsVersions")
@pytest.mark.stores("memory", "delta")
def test_97_a_foreign_change_stops_a_run_until_told(all_days):
    meddle(all_days)
    put(all_days, "2024-09-25", {"new": "one"})
    with pytest.raises(ProofGone, match="builds on"):
        all_days.run("2024-09-25")
    all_days.run("2024-09-25", accept=True)
    assert table(all_days) == {**after(*DAYS), "new": "one", "pixel-7": "foreign"}
    put(all_days, "2024-09-26", {"new": "two"})
    all_days.run("2024-09-26")
    put(all_days, D23, FIXED)
    with pytest.raises(Fenced, match="would lose it"):
        all_days.run(D23, accept=True)
    all_days.run(D23, force=True)
    assert table(all_days) == {**after(*DAYS, **{D23: FIXED}), "new": "two"}
    assert not all_days.sight().ended
    assert all_days.run(D20).state == "skipped"


def meddle(world):
    if world.kind == "memory":
        changed = [{**row, "brand": "foreign"} if row["id"] == "pixel-7" else row for row in world.records()]
        world.memory.meddle(world.target, changed)
    else:
        world.spark.sql(f"UPDATE delta.`{world.table()}` SET brand = 'foreign' WHERE id = 'pixel-7'")


@pytest.mark.needs("KeepsVersions")
@pytest.mark.stores("memory", "delta")
def test_97_a_restore_by_hand_stops_a_run_until_told(all_days):
    all_days.restore_by_hand(all_days.sight().receipts[all_days.slot(D22)].first_version)
    assert table(all_days) == after(D20, D21, D22)
    put(all_days, "2024-09-25", {"new": "one"})
    with pytest.raises(ProofGone):
        all_days.run("2024-09-25")
    assert all_days.run(D20).state == "skipped"
    all_days.run(D23, force=True)
    assert table(all_days) == after(*DAYS)
    all_days.run("2024-09-25")
    assert table(all_days) == {**after(*DAYS), "new": "one"}


@pytest.mark.needs("KeepsVersions")
@pytest.mark.stores("parquet")
def test_97_a_lost_file_stops_a_run_and_force_brings_its_rows_back(all_days):
    (all_days.table() / all_days.all_files()[-1]).unlink()
    put(all_days, "2024-09-25", {"new": "one"})
    with pytest.raises(ProofGone, match="builds on"):
        all_days.run("2024-09-25")
    all_days.run("2024-09-25", force=True)
    assert table(all_days) == {**after(*DAYS), "new": "one"}
    assert not all_days.sight().ended


# ---------------------------------------------------------------- back in time


def target(world):
    return f"{world.kind}:{world.target}"


@pytest.mark.needs("KeepsVersions")
def test_versions_tell_their_slots_and_a_slot_names_a_version(all_days):
    found = twice.versions(target(all_days), project=all_days.project)
    assert [len(one.slots) for one in found] == [1] * 5
    assert [one.holds for one in found] == [1, 2, 3, 4, 5]
    assert [one.current for one in found] == [False] * 4 + [True]
    assert not any(one.lost for one in found)
    assert [one.rows for one in found] == [len(P[day]) for day in DAYS]
    rows = twice.read(all_days.spark, target(all_days), as_of=D22, project=all_days.project)
    plain = rows if isinstance(rows, list) else [row.asDict() for row in rows.collect()]
    assert {row["id"]: row["brand"] for row in plain} == after(D20, D21, D22)


@pytest.mark.needs("KeepsVersions")
def test_a_slot_that_was_published_with_later_ones_names_no_version(phones):
    for day in DAYS:
        put(phones, day, P[day])
    replay(phones, D20)
    with pytest.raises(NotPublished, match=r"together with 2024-09-23T00:00Z, 2024-09-24T00:00Z"):
        twice.read(phones.spark, target(phones), as_of=D22, project=phones.project)


@pytest.mark.needs("KeepsVersions")
def test_a_restore_is_a_publish_and_proofs_follow_the_rows(all_days):
    before = all_days.sight()
    twice.restore(target(all_days), D22, project=all_days.project)
    assert table(all_days) == after(D20, D21, D22)
    sight = all_days.sight()
    assert sight.version == before.version + 1
    assert {slot: found.generation for slot, found in sight.receipts.items()} == dict.fromkeys(before.receipts, 1)
    assert set(sight.ended) == set(sight.gone) == {all_days.slot(D23), all_days.slot(D24)}
    assert all_days.run(D22).state == "skipped"
    with pytest.raises(ProofGone):
        all_days.run(D23)
    twice.restore(target(all_days), before.version, project=all_days.project)
    assert table(all_days) == after(*DAYS)
    assert not all_days.sight().ended
    assert all_days.run(D24).state == "skipped"


@pytest.mark.needs("KeepsVersions")
def test_a_restore_to_an_older_edition_does_not_vouch_for_it(all_days):
    old = all_days.sight().version
    put(all_days, D22, {"galaxy-m54": "fixed"})
    all_days.run(D22)
    twice.restore(target(all_days), old, project=all_days.project)
    assert table(all_days) == after(*DAYS)
    assert set(all_days.sight().ended) == {all_days.slot(day) for day in (D22, D23, D24)}
    put(all_days, "2024-09-25", {"new": "one"})
    with pytest.raises(ProofGone):
        all_days.run("2024-09-25")
    all_days.run("2024-09-25", force=True)
    assert table(all_days) == {**after(*DAYS, **{D22: {"galaxy-m54": "fixed"}}), "new": "one"}
    assert not all_days.sight().ended


@pytest.mark.needs("KeepsVersions")
def test_a_restore_to_what_is_no_version_is_refused(all_days):
    with pytest.raises(twice.Misuse, match="no version 99"):
        twice.restore(target(all_days), 99, project=all_days.project)
    with pytest.raises(twice.Misuse, match="Nothing of"):
        twice.restore(target(all_days), "2024-09-10", project=all_days.project)


@pytest.mark.needs("KeepsVersions")
def test_a_diff_of_two_slots_tells_what_came_went_and_changed(all_days):
    found = twice.diff(target(all_days), D21, D23, keys=["id"], project=all_days.project)
    assert (found.added, found.removed, found.changed) == (6, 0, 0)
    found = twice.diff(target(all_days), D22, D20, keys=["id"], project=all_days.project)
    assert (found.added, found.removed, found.changed) == (0, 6, 1)
    assert ({"id": "galaxy-a33", "brand": "samsung"}, {"id": "galaxy-a33", "brand": "samsun"}) in found.sample
    found = twice.diff(target(all_days), D22, D20, project=all_days.project)
    assert (found.added, found.removed, found.changed) == (1, 7, None)


# ---------------------------------------------------------------- with a history of change rows


@pytest.fixture
def kept(make_world):
    return make_world(**KEPT)


@pytest.fixture
def all_days_kept(filled_once):
    return filled_once(first_pass, **KEPT)


def test_32_to_36_both_forms_agree_after_every_step(kept):
    for number, day in enumerate(DAYS):
        put(kept, day, P[day])
        kept.run(day)
        assert table(kept) == after(*DAYS[: number + 1])
    old = versions(kept)
    outcomes = replay(kept, D22, force=True)
    assert [one.generation for one in outcomes] == [2, 2, 2]
    assert table(kept) == after(*DAYS)
    assert versions(kept)[:2] == old[:2]
    assert versions(kept)[2:] == sorted(set(versions(kept)[2:]))
    put(kept, D23, FIXED)
    kept.run(D23)
    assert table(kept) == after(*DAYS, **{D23: FIXED})
    assert kept.sight().fence(kept.slot(D24)) == 2


def test_a_history_needs_no_inputs_of_other_slots(all_days_kept):
    for day in (D20, D21, D24):
        (all_days_kept.folder / f"landing/{day}.jsonl").unlink()
    put(all_days_kept, D22, {"redmi-note-9": "fixed"})
    all_days_kept.run(D22)
    assert table(all_days_kept) == after(*DAYS, **{D22: {"redmi-note-9": "fixed"}})


def test_38_and_40_the_first_day_and_empty_days_of_a_history(kept):
    put(kept, D20, {})
    kept.run(D20)
    for day in (D22, D23):
        put(kept, day, P[day])
        kept.run(day)
    put(kept, D21, P[D21])
    kept.run(D21)
    assert table(kept) == after(D21, D22, D23)
    put(kept, D20, P[D20])
    kept.run(D20)
    assert table(kept) == after(D20, D21, D22, D23)
    put(kept, D22, {})
    kept.run(D22)
    assert table(kept) == after(D20, D21, D23)


def test_50_duplicate_keys_are_named_before_they_are_kept(all_days_kept):
    all_days_kept.put_rows(D22, [{"id": "x", "brand": "1"}, {"id": "x", "brand": "2"}])
    with pytest.raises(NotPublished, match="id='x'"):
        all_days_kept.run(D22)
    assert table(all_days_kept) == after(*DAYS)


def test_deleted_keys_and_order_in_a_history(make_world):
    pattern = twice.stateful_merger(keys=["id"], deleted="gone", order="n", form="history")
    world = make_world(pattern=pattern, schema="id string, n int, gone boolean")

    def day(at, *rows):
        world.put_rows(at, [dict(zip(("id", "n", "gone"), row, strict=True)) for row in rows])
        world.run(at)

    def found():
        return dict(world.table_rows("id", "n"))

    day(D20, ("a", 5, False), ("b", 1, False))
    day(D21, ("a", 3, False), ("b", 2, True))
    assert found() == {"a": 5}
    day(D22, ("b", 1, False))
    assert found() == {"a": 5, "b": 1}
    day(D20, ("a", 1, False))
    assert found() == {"a": 3, "b": 1}
    day(D21, ("c", 1, False))
    assert found() == {"a": 1, "b": 1, "c": 1}


@pytest.mark.stores("memory", "delta")
def test_97_force_makes_the_table_of_its_history_alone(all_days_kept):
    meddle(all_days_kept)
    put(all_days_kept, "2024-09-25", {"new": "one"})
    with pytest.raises(ProofGone):
        all_days_kept.run("2024-09-25")
    all_days_kept.run("2024-09-25", force=True)
    assert table(all_days_kept) == {**after(*DAYS), "new": "one"}
    assert not all_days_kept.sight().ended


def test_101_a_neighbour_that_publishes_meanwhile_is_in_the_history(all_days_kept):
    put(all_days_kept, "2024-09-25", {"galaxy-m54": "newer"})
    put(all_days_kept, D22, {"galaxy-m54": "fixed"})
    with armed(once_at("looked.again", lambda: all_days_kept.twin().run("2024-09-25"))):
        all_days_kept.run(D22)
    assert table(all_days_kept) == {**after(*DAYS, **{D22: {}}), "galaxy-m54": "newer"}
