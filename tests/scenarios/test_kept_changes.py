"""Change rows that are kept beside a table: what was there before the first slot, and what counts for nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

import twice
from twice.errors import Fenced, Misuse, NotPublished, ProofGone
from twice.faults import Died, armed, dying_at
from twice.handovers import take_over
from twice.prover import check, deaths_at_every_point
from twice.sight import Sight
from twice.stores import editions, manifest
from twice.stores.postgres import histories
from worlds import once_at

DAYS = ("2024-09-20", "2024-09-21", "2024-09-22")
SCHEMA = "id string, v string"
OLD = {"a": "old", "b": "old", "z": "old"}
INPUTS = {DAYS[0]: {"b": "0", "c": "0"}, DAYS[1]: {"c": "1", "a": "1"}, DAYS[2]: {"d": "2"}}
AFTER = {"a": "1", "b": "0", "c": "1", "d": "2", "z": "old"}
PATTERN = twice.stateful_merger(keys=["id"], form="history")


@pytest.fixture
def filled(make_world):
    """A table that somebody else has filled and that was taken over, and three inputs."""
    return a_filled_world(make_world)


def a_filled_world(make_world, rows=None, **settings):
    world = make_world(**{"pattern": PATTERN, "schema": SCHEMA, **settings})
    world.fill_by_hand(records(OLD if rows is None else rows), SCHEMA)
    take_over(world.store, world.project.ledger, world.target)
    for day, some in INPUTS.items():
        put(world, day, some)
    return world


def records(rows):
    return [{"id": key, "v": value} for key, value in rows.items()]


def change_by_hand(world, key, value):
    if world.kind == "memory":
        changed = [{**row, "v": value} if row["id"] == key else row for row in world.records()]
        world.memory.meddle(world.target, changed)
    elif world.database:
        world.database.execute(f"UPDATE {table_of(world)} SET v = '{value}' WHERE id = '{key}'")
    else:
        world.spark.sql(f"UPDATE delta.`{world.table()}` SET v = '{value}' WHERE id = '{key}'")


def table_of(world):
    return '"' + world.target.replace("/", "__") + '"'


def put(world, day, rows):
    world.put_rows(day, records(rows))


def table(world):
    return dict(world.table_rows("id", "v"))


def run_all(world, days=DAYS):
    for day in days:
        world.run(day)


def tidied(world, live=frozenset, *, keep_days=0, dry_run=False):
    return world.store.tidy(world.target, live, keep_days=keep_days, dry_run=dry_run)


# ---------------------------------------------------------------- what was there before the first slot


def test_a_correction_of_the_first_slot_gives_back_what_was_there_before(filled):
    run_all(filled)
    assert table(filled) == AFTER
    put(filled, DAYS[0], {"c": "0"})
    filled.run(DAYS[0])
    assert table(filled) == {**AFTER, "b": "old"}
    put(filled, DAYS[1], {})
    filled.run(DAYS[1])
    assert table(filled) == {"a": "old", "b": "old", "c": "0", "d": "2", "z": "old"}
    for day in DAYS:
        put(filled, day, {})
        filled.run(day)
    assert table(filled) == OLD
    assert len({one.adopted for one in filled.sight().receipts.values()}) == 1


def test_a_slot_from_before_the_first_published_one_comes_after_the_adopted_rows(filled):
    filled.run(DAYS[2])
    put(filled, "2024-09-19", {"z": "early", "d": "early"})
    filled.run("2024-09-19")
    assert table(filled) == {**OLD, "z": "early", "d": "2"}
    put(filled, "2024-09-19", {})
    filled.run("2024-09-19")
    assert table(filled) == {**OLD, "d": "2"}


def test_deleted_keys_come_back_and_order_is_kept(make_world):
    pattern = twice.stateful_merger(keys=["id"], deleted="gone", order="v", form="history")
    world = a_filled_world(
        make_world, {"a": "5", "b": "5"}, pattern=pattern, schema="id string, v string, gone boolean"
    )

    def day(at, *rows):
        world.put_rows(at, [dict(zip(("id", "v", "gone"), row, strict=True)) for row in rows])
        world.run(at)

    day(DAYS[0], ("a", "6", True), ("b", "3", False))
    assert table(world) == {"b": "5"}
    day(DAYS[1], ("a", "4", False))
    assert table(world) == {"a": "4", "b": "5"}
    day(DAYS[0], ("c", "1", False))
    assert table(world) == {"a": "5", "b": "5", "c": "1"}


def test_the_plan_says_what_becomes_of_the_rows(filled):
    def notes(day):
        return twice.plan(filled.pipeline, at=day, project=filled.project).notes

    assert any("before the first slot" in note for note in notes(DAYS[0]))
    filled.run(DAYS[0])
    assert notes(DAYS[1]) == ()


def test_columns_that_come_later_are_null_in_the_rows_from_before(make_world):
    world = a_filled_world(
        make_world,
        schema="id string, v string, w string",
        columns={"on_new_column": "add", "on_missing_column": "null"},
    )
    world.put_rows(DAYS[0], [{"id": "a", "v": "new", "w": "x"}])
    world.run(DAYS[0])
    assert dict(world.table_rows("id", "w")) == {"a": "x", "b": None, "z": None}
    world.put_rows(DAYS[0], [{"id": "b", "v": "new", "w": "y"}])
    world.run(DAYS[0])
    assert table(world) == {**OLD, "b": "new"}
    assert dict(world.table_rows("id", "w")) == {"a": None, "b": "y", "z": None}


@pytest.mark.stores("memory", "delta", "postgres")
def test_force_after_a_change_from_outside_makes_the_table_of_both(filled):
    run_all(filled)
    change_by_hand(filled, "z", "foreign")
    put(filled, "2024-09-23", {"e": "3"})
    with pytest.raises(ProofGone):
        filled.run("2024-09-23")
    filled.run("2024-09-23", force=True)
    assert table(filled) == {**AFTER, "e": "3"}
    assert not filled.sight().ended
    assert len({one.adopted for one in filled.sight().receipts.values()} - {""}) == 1


@pytest.mark.stores("memory", "delta", "postgres")
def test_rows_that_somebody_writes_between_adoption_and_the_first_slot_are_from_before(filled):
    change_by_hand(filled, "b", "touched")
    filled.run(DAYS[0])
    put(filled, DAYS[0], {})
    filled.run(DAYS[0])
    assert table(filled) == {**OLD, "b": "touched"}


@pytest.mark.stores("memory", "delta", "postgres")
def test_rows_that_somebody_writes_during_the_first_slot_are_not_lost(filled):
    with armed(once_at("looked.again", lambda: change_by_hand(filled, "b", "touched"))):
        filled.run(DAYS[0])
    assert table(filled) == {**OLD, **INPUTS[DAYS[0]]}
    put(filled, DAYS[0], {})
    filled.run(DAYS[0])
    assert table(filled) == {**OLD, "b": "touched"}


@pytest.mark.needs("KeepsVersions")
def test_a_restore_to_before_the_first_slot_is_healed_by_force(filled):
    before = filled.sight().version
    run_all(filled)
    twice.restore(f"{filled.kind}:{filled.target}", before, project=filled.project)
    assert table(filled) == OLD
    with pytest.raises(ProofGone):
        filled.run(DAYS[1])
    filled.run(DAYS[1], force=True)
    assert table(filled) == AFTER
    assert not filled.sight().ended


def test_a_lost_ledger_loses_nothing_of_it(filled):
    run_all(filled, DAYS[:2])
    filled.lose_ledger()
    sight = take_over(filled.store, filled.project.ledger, filled.target)
    found = [(receipt, sight.version) for receipt in sight.receipts.values()]
    filled.project.ledger.rebuild([f"{filled.kind}:{filled.target}"], found)
    assert filled.run(DAYS[0]).state == "skipped"
    put(filled, DAYS[0], {})
    filled.run(DAYS[0])
    assert table(filled) == {**OLD, **INPUTS[DAYS[1]]}


def test_two_first_slots_at_once_adopt_the_rows_once(filled):
    with armed(once_at("publish.before", lambda: filled.twin().run(DAYS[1]))):
        filled.run(DAYS[0])
    assert table(filled) == {**OLD, "b": "0", "c": "1", "a": "1"}
    assert len({one.adopted for one in filled.sight().receipts.values()}) == 1
    for day in DAYS[:2]:
        put(filled, day, {})
        filled.run(day)
    assert table(filled) == OLD


@pytest.mark.stores("memory", "postgres")
def test_two_first_slots_that_publish_at_the_same_moment(filled):
    gate, met = threading.Barrier(2, timeout=60), set()

    def meet(point):
        if point == "publish.before" and threading.get_ident() not in met:
            met.add(threading.get_ident())
            gate.wait()

    with armed(meet), ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(filled.twin().run, day) for day in DAYS[:2]]
    assert [one.result().state for one in runs] == ["published"] * 2
    assert table(filled) == {**OLD, "b": "0", "c": "1", "a": "1"}
    assert len({one.adopted for one in filled.sight().receipts.values()}) == 1
    for day in DAYS[:2]:
        put(filled, day, {})
        filled.run(day)
    assert table(filled) == OLD


def test_two_at_once_on_the_first_slot_itself(filled):
    with armed(once_at("publish.before", lambda: filled.twin().run(DAYS[0]))):
        assert filled.run(DAYS[0]).state == "skipped"
    put(filled, DAYS[0], {})
    filled.run(DAYS[0])
    assert table(filled) == OLD


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", [True, False], ids=["the first slot", "a correction of it"])
def test_81_death_while_rows_are_adopted(make_world, copies_of, first):
    world = a_filled_world(make_world, script=lambda w: w.run(DAYS[0]))
    if not first:
        world.run(DAYS[0])
        put(world, DAYS[0], {"z": "corrected"})
    verdicts = check(deaths_at_every_point(copies_of(world)))
    assert len(verdicts) >= 10
    points = {verdict.point for verdict in verdicts}
    assert not first or any(point.endswith("history.adopted") for point in points)


@pytest.mark.stores("parquet", "delta")
@pytest.mark.parametrize("point", ["history.kept", "publish.before", "publish.after"])
def test_81_a_telling_death_while_rows_are_adopted(filled, point):
    with armed(dying_at(point)), pytest.raises(Died):
        filled.run(DAYS[0])
    filled.reopen()
    landed = point == "publish.after"
    assert table(filled) == ({**OLD, **INPUTS[DAYS[0]]} if landed else OLD)
    assert filled.run(DAYS[0]).state == ("skipped" if landed else "published")
    assert table(filled) == {**OLD, **INPUTS[DAYS[0]]}
    assert filled.named() <= filled.kept_names()
    put(filled, DAYS[0], {})
    filled.run(DAYS[0])
    assert table(filled) == OLD


def test_rows_of_a_death_are_counted_by_nobody(filled):
    point = "postgres.history.adopted" if filled.database else "history.adopted"
    with armed(dying_at(point)), pytest.raises(Died):
        filled.run(DAYS[0])
    assert not filled.sight().receipts
    # In a database they are part of the transaction, and go with it.
    left = filled.kept_names()
    assert len(left) == (0 if filled.database else 1)
    change = {"z": "later"}
    put(filled, DAYS[0], change)
    filled.run(DAYS[0])
    assert table(filled) == {**OLD, **change}
    assert not left & filled.named()
    assert set(tidied(filled).names) == left
    assert filled.kept_names() == filled.named()
    put(filled, DAYS[0], {})
    filled.run(DAYS[0])
    assert table(filled) == OLD


@pytest.mark.parametrize("rows", [[(None, "x"), ("a", "y")], [("a", "x"), ("a", "y")]], ids=["NULL", "repeated"])
def test_rows_without_a_key_of_their_own_are_refused_and_nothing_changes(make_world, rows):
    world = make_world(pattern=PATTERN, schema=SCHEMA)
    world.fill_by_hand([{"id": key, "v": value} for key, value in rows], SCHEMA)
    take_over(world.store, world.project.ledger, world.target)
    put(world, DAYS[0], {"c": "0"})
    before = world.sight()
    with pytest.raises(
        NotPublished, match="NULL in a key" if rows[0][0] is None else "holds a key in several rows: id='a'"
    ):
        world.run(DAYS[0])
    assert world.sight() == before
    assert not world.kept_names()


def test_a_mark_of_deletion_that_is_a_column_of_the_table_is_refused(make_world):
    pattern = twice.stateful_merger(keys=["id"], deleted="v", form="history")
    world = a_filled_world(
        make_world, pattern=pattern, columns={"on_missing_column": "null"}, schema="id string, v string"
    )
    world.put_rows(DAYS[0], [{"id": "a", "v": "false"}])
    with pytest.raises(Misuse, match="has the column 'v'"):
        world.run(DAYS[0])
    assert table(world) == OLD


@pytest.mark.needs("KeepsVersions")
def test_slots_that_were_published_without_a_history_are_refused(make_world):
    world = make_world(pattern=twice.stateful_merger(keys=["id"]), schema=SCHEMA)
    put(world, DAYS[0], INPUTS[DAYS[0]])
    world.run(DAYS[0])
    world.pattern = PATTERN
    put(world, DAYS[1], INPUTS[DAYS[1]])
    with pytest.raises(Fenced, match="no change rows in its history"):
        world.run(DAYS[1], force=True)
    assert table(world) == INPUTS[DAYS[0]]
    assert tidied(world).names == ()


# ---------------------------------------------------------------- what counts for nothing


def with_dead_rows(world):
    """Leave rows of an attempt that died, and of an edition that was replaced, behind; return the names."""
    run_all(world)
    before = world.kept_names()
    put(world, DAYS[2], {"d": "corrected"})
    with armed(dying_at("publish.before")), pytest.raises(Died):
        world.run(DAYS[2])
    world.run(DAYS[2])
    dead = world.kept_names() - world.named()
    assert dead & before
    assert world.database or dead - before
    return dead


def test_a_tidy_takes_away_what_no_receipt_names(filled):
    dead = with_dead_rows(filled)
    before = filled.kept_names()
    would = tidied(filled, dry_run=True)
    assert (set(would.names), would.change_rows) == (dead, len(dead))
    assert filled.kept_names() == before
    assert (tidied(filled, keep_days=1).names, filled.kept_names()) == ((), before)
    done = tidied(filled)
    assert (set(done.names), done.change_rows) == (dead, len(dead))
    assert filled.kept_names() == before - dead == filled.named()
    assert tidied(filled).names == tidied(filled, dry_run=True).names == ()
    assert table(filled) == {**AFTER, "d": "corrected"}
    for day in DAYS:
        put(filled, day, {})
        filled.run(day)
    assert table(filled) == OLD


def test_a_tidy_changes_no_row_and_ends_no_proof(filled):
    with_dead_rows(filled)
    before = filled.sight()
    assert tidied(filled).names
    after = filled.sight()
    assert (after.receipts, after.ended, after.data_version) == (before.receipts, {}, before.data_version)
    assert [filled.run(day).state for day in DAYS] == ["skipped"] * 3


@pytest.mark.stores("memory", "parquet", "delta")
def test_rows_of_a_live_attempt_are_never_removed(filled):
    filled.lease_seconds = 60
    filled.reopen()
    run_all(filled, DAYS[:2])
    seen = []

    def tidy():
        live = filled.project.ledger.live_attempts
        own = filled.kept_names() - filled.named()
        assert len(own) == 1
        seen.append((own, set(tidied(filled, live).names), own <= filled.kept_names()))

    with armed(once_at("publish.before", tidy)):
        filled.run(DAYS[2])
    ((own, removed, still_there),) = seen
    assert (removed, still_there) == (set(), True)
    assert own <= filled.named()
    assert table(filled) == AFTER


def run_asleep(world, day):
    """Run a slot, and tidy as if the run were dead when it is about to publish; return the names that were taken."""
    taken = []
    with armed(once_at("publish.before", lambda: taken.extend(tidied(world).names))), suppress(NotPublished):
        world.run(day)
    # On Parquet its staged files were swept too, so it had to end.
    assert world.run(day).state == ("published" if world.kind == "parquet" else "skipped")
    return taken


@pytest.mark.stores("memory", "parquet", "delta")
def test_a_sleeper_whose_rows_were_removed_keeps_them_anew(filled):
    run_all(filled, DAYS[:2])
    taken = run_asleep(filled, DAYS[2])
    assert len(taken) == 1
    assert not set(taken) & filled.named()
    assert filled.named() == filled.kept_names()
    assert table(filled) == AFTER
    put(filled, DAYS[2], {})
    filled.run(DAYS[2])
    assert table(filled) == {key: value for key, value in AFTER.items() if key != "d"}


@pytest.mark.stores("memory", "parquet", "delta")
def test_a_sleeper_that_adopts_keeps_the_rows_anew(filled):
    taken = run_asleep(filled, DAYS[0])
    assert len(taken) == 2
    assert filled.named() == filled.kept_names()
    put(filled, DAYS[0], {})
    filled.run(DAYS[0])
    assert table(filled) == OLD


def test_a_run_that_publishes_during_a_tidy_is_whole(filled):
    dead = with_dead_rows(filled)
    point = "postgres.history.swept" if filled.database else "history.fenced"
    put(filled, DAYS[1], {"a": "corrected"})
    with armed(once_at(point, lambda: filled.twin().run(DAYS[1]))):
        assert set(tidied(filled).names) == dead
    assert filled.named() <= filled.kept_names()
    assert table(filled) == {**AFTER, "a": "corrected", "c": "0", "d": "corrected"}
    put(filled, DAYS[1], {})
    filled.run(DAYS[1])
    assert table(filled) == {**AFTER, "a": "old", "c": "0", "d": "corrected"}


@pytest.mark.stores("memory", "parquet", "delta")
def test_a_publish_that_comes_before_the_head_is_moved_stops_the_tidy(filled, monkeypatch):
    dead = with_dead_rows(filled)
    real, done = filled.store.look, []

    def look(name):
        sight = real(name)
        if name == filled.target and len(done) < 2:
            done.append(name)
            # The last look before the head is moved.
            if len(done) == (1 if filled.kind == "memory" else 2):
                monkeypatch.undo()
                put(filled, DAYS[0], {"b": "meanwhile"})
                filled.twin().run(DAYS[0])
        return sight

    monkeypatch.setattr(filled.store, "look", look)
    swept = tidied(filled)
    assert swept.names == ()
    assert any("next tidy" in note for note in swept.notes)
    assert dead <= set(tidied(filled).names)
    assert filled.named() == filled.kept_names()


@pytest.mark.stores("memory", "parquet", "delta")
@pytest.mark.parametrize("point", ["history.fenced", "history.dropped"])
def test_81_a_tidy_that_dies_is_taken_up_by_the_next(filled, point):
    dead = with_dead_rows(filled)
    with armed(dying_at(point)), pytest.raises(Died):
        tidied(filled)
    assert filled.kept_names() == (filled.named() | dead if point == "history.fenced" else filled.named())
    assert table(filled) == {**AFTER, "d": "corrected"}
    tidied(filled)
    assert filled.kept_names() == filled.named()
    put(filled, DAYS[2], {})
    filled.run(DAYS[2])
    assert table(filled) == {key: value for key, value in AFTER.items() if key != "d"}


@pytest.mark.timeout(1800)
def test_81_death_while_change_rows_are_removed(make_world, copies_of):
    def script(world):
        tidied(world)
        world.run(DAYS[0])

    world = a_filled_world(make_world, script=script)
    with_dead_rows(world)
    put(world, DAYS[0], {"z": "corrected"})
    assert len(check(deaths_at_every_point(copies_of(world)))) >= 10


def test_a_tidy_of_a_table_that_was_never_published_leaves_all(make_world):
    world = make_world(pattern=PATTERN, schema=SCHEMA)
    put(world, DAYS[0], INPUTS[DAYS[0]])
    with armed(dying_at("publish.before")), pytest.raises(Died):
        world.run(DAYS[0])
    before = world.kept_names()
    assert world.database or before
    assert tidied(world).names == ()
    assert world.kept_names() == before
    world.run(DAYS[0])
    assert set(tidied(world).names) == before
    assert table(world) == INPUTS[DAYS[0]]


@pytest.mark.stores("parquet")
def test_files_of_removed_rows_go_with_the_versions_that_name_them(filled):
    with_dead_rows(filled)
    tidied(filled)
    folder = filled.table() / "_twice" / "history"
    named_files = {folder / file.path for file in manifest.newest(str(folder)).files}
    assert set((folder / "data").rglob("*.parquet")) == named_files


# ---------------------------------------------------------------- in the types of a database


@pytest.mark.stores("postgres")
def test_rows_come_back_in_the_types_that_they_had(make_world):
    world = make_world(pattern=PATTERN, schema=SCHEMA)
    name = table_of(world)
    world.database.execute(
        f"CREATE TABLE {name} (id uuid, v numeric, code varchar(3), more jsonb, at timestamp with time zone)"
    )
    key = "0d7d8d6e-6f0a-4c8e-9a6e-111111111111"
    row = [key, "1.123456789012345678901", "abc", '{"b":  1, "a": 2}', "2024-01-01T00:00:00.000001Z"]
    world.database.execute(f"INSERT INTO {name} VALUES (%s, %s, %s, %s, %s)", row)
    before = world.database.execute(f"SELECT id::text, v::text, code, more::text, at FROM {name}")
    take_over(world.store, world.project.ledger, world.target)
    changed = {"id": key, "v": 5, "code": "x", "more": {"c": 3}, "at": datetime(2024, 2, 1, tzinfo=UTC)}
    world.transform = lambda rows: [changed for _ in rows]
    put(world, DAYS[0], {"x": "x"})
    world.run(DAYS[0])
    assert world.database.execute(f"SELECT v::text, code FROM {name}") == [("5", "x")]
    put(world, DAYS[0], {})
    world.run(DAYS[0])
    assert world.database.execute(f"SELECT id::text, v::text, code, more::text, at FROM {name}") == before


@pytest.mark.stores("postgres")
def test_a_text_that_is_too_long_is_refused_and_not_cut(make_world):
    world = make_world(pattern=PATTERN, schema=SCHEMA)
    world.database.execute(f"CREATE TABLE {table_of(world)} (id text, v varchar(3))")
    world.database.execute(f"INSERT INTO {table_of(world)} VALUES ('a', 'old')")
    take_over(world.store, world.project.ledger, world.target)
    put(world, DAYS[0], {"a": "much too long"})
    with pytest.raises(NotPublished, match="too long"):
        world.run(DAYS[0])
    assert table(world) == {"a": "old"}


@pytest.mark.stores("postgres")
def test_a_history_of_an_older_twice_tells_when_rows_came_from_now_on(filled):
    run_all(filled)
    history = f'"{filled.target.replace("/", "__")}_{histories.ENDING}"'
    filled.database.execute(f"ALTER TABLE {history} DROP COLUMN twice_kept_at")
    put(filled, DAYS[2], {"d": "corrected"})
    assert tidied(filled).names == ()
    filled.run(DAYS[2])
    assert len(tidied(filled).names) == 1
    assert table(filled) == {**AFTER, "d": "corrected"}


# ---------------------------------------------------------------- without a store


def test_names_without_a_moment_are_old_and_recent_ones_stay():
    moments = {"aaaaaaaa-1-00000001": "", "aaaaaaaa-1-00000002": editions.now()}
    moments["aaaaaaaa-1-00000003"] = (datetime.now(UTC) - timedelta(days=3)).isoformat()
    found = editions.uncounted(moments, Sight(), frozenset, 1)
    assert found == ("aaaaaaaa-1-00000001", "aaaaaaaa-1-00000003")
    assert editions.uncounted(moments, Sight(), lambda: frozenset({"aaaaaaaa-1-12345678"}), 0) == ()
