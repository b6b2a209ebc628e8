"""Rows that come to those of the same slot, rows that leave with them, and bodies that are kept beside a table.

Against the stores themselves: whatever pattern asks for it, a second batch adds to the first, nothing lands on a table that
moved, and what is kept outlives the process.
"""

import os
from collections import Counter

import pytest

from batches import DAY, FILE, OWNER, batch, framed, publish, receipt_alone, rows_of, slot_of, take, work_of
from twice.abilities import Leaving
from twice.columns import ColumnPolicy
from twice.errors import Conflict, Misuse, NotPublished
from twice.faults import Died, armed, dying_at, recording
from twice.slices import PredicateSlice
from twice.stores.files import FilesStore
from twice.stores.parquet import ParquetStore
from worlds import once_at

pytestmark = [pytest.mark.needs("TakesIn", "KeepsBeside")]


def ids(world, column=FILE):
    return sorted((row["id"], row[column]) for row in world.records())


def append_by_hand(world):
    """Add a row as somebody would who does not know Twice."""
    if world.kind == "memory":
        world.memory.meddle(world.target, [*world.memory.read(world.target), *rows_of(None, "foreign")])
    elif world.database:
        world.database.execute(f"insert into \"{world.target.replace('/', '__')}\" (id) values ('foreign')")
    else:
        frame = framed(world, rows_of(None, "foreign"))
        frame.write.format("delta").mode("append").save(str(world.table()))


@pytest.fixture
def filled(world):
    take(world, rows_of("a.csv", "a1", "a2"))
    take(world, rows_of("b.csv", "b1"))
    return world


# ------------------------------------------------------------------ rows that come and rows that leave


def test_a_second_batch_adds_to_the_first(filled):
    assert ids(filled) == [("a1", "a.csv"), ("a2", "a.csv"), ("b1", "b.csv")]
    sight = filled.sight()
    assert sight.fence(slot_of(filled)) == 2
    assert sight.proof(slot_of(filled))


def test_rows_leave_in_the_publish_in_which_others_come(filled):
    take(filled, rows_of(None, "unknown"))
    staged = take(filled, rows_of("a.csv", "a3", "a4", "a5"), Leaving(FILE, ("a.csv", "not there.csv")))
    assert staged.rows == 3
    assert ids(filled) == [("a3", "a.csv"), ("a4", "a.csv"), ("a5", "a.csv"), ("b1", "b.csv"), ("unknown", None)]


def test_rows_may_only_leave(filled):
    staged = take(filled, [], Leaving(FILE, ("a.csv",)))
    assert staged.rows == 0
    assert ids(filled) == [("b1", "b.csv")]
    take(filled, [], Leaving(FILE, ("b.csv",)))
    take(filled, rows_of("c.csv", "c1"))
    assert ids(filled) == [("c1", "c.csv")]


def test_nothing_leaves_where_nothing_is_named(filled):
    take(filled, rows_of("c.csv", "c1"), Leaving(FILE, ()))
    assert len(filled.records()) == 4


def test_names_with_odd_characters_and_many_of_them(world):
    odd = ["it's.csv", 'say "x".csv', "back\\slash.csv", "${spark.app.name}.csv", "tag=ü/é 1%.csv", "a`b.csv"]
    column = "source-file`s'é"
    for number, name in enumerate([*odd, "stays.csv"]):
        publish(
            world,
            work := work_of(world),
            world.store.stage_taken(work, framed(world, rows_of(name, str(number), column=column), column), None, None),
        )
    take(world, rows_of(odd[0], "new", column=column), Leaving(column, tuple(odd)))
    assert ids(world, column) == [("6", "stays.csv"), ("new", odd[0])]
    many = tuple(f"landing/2024/part-{number:05}.csv" for number in range(5_000))
    take(world, rows_of(many[-1], "last", column=column), Leaving(column, (*many, odd[0])))
    assert ids(world, column) == [("6", "stays.csv"), ("last", many[-1])]


@pytest.mark.stores("parquet", "delta")
def test_only_the_files_from_which_rows_leave_are_written_anew(filled):
    take(filled, [*rows_of("c.csv", "c1"), *rows_of("d.csv", "d1")])
    before = set(filled.all_files())
    staged = take(filled, rows_of("c.csv", "c2"), Leaving(FILE, ("c.csv",)))
    left = set(filled.all_files())
    gone = before - left
    assert (staged.rows, len(gone) in (1, 2), bool(before & left)) == (1, True, True)
    assert ids(filled) == [("a1", "a.csv"), ("a2", "a.csv"), ("b1", "b.csv"), ("c2", "c.csv"), ("d1", "d.csv")]


@pytest.mark.stores("parquet", "delta", "postgres")
def test_an_empty_first_batch_makes_a_table_with_its_columns(world):
    import pyarrow as pa

    if world.database:
        empty = pa.table({"id": pa.array([], pa.string()), FILE: pa.array([], pa.string())})
    else:
        empty = framed(world, [])
    staged = publish(world, work := work_of(world), world.store.stage_taken(work, empty, None, None))
    assert (staged.rows, world.records()) == (0, [])
    assert FILE in (
        world.store.fetch(world.target).column_names if world.database else world.store.read(world.target).columns
    )
    take(world, [{"id": "a1", FILE: "a.csv"}] if world.database else rows_of("a.csv", "a1"))
    assert ids(world) == [("a1", "a.csv")]


def test_rows_that_break_a_check_are_counted(filled):
    work = work_of(filled)
    rows = framed(filled, [*rows_of("a.csv", "good", "bad"), *rows_of("a.csv", "bad")])
    staged = filled.store.stage_taken(work, rows, PredicateSlice("id <> 'bad'"), Leaving(FILE, ("a.csv",)))
    assert (staged.rows, staged.outside) == (3, 2)
    filled.store.discard(work, staged)
    assert len(filled.records()) == 3


def test_rows_that_do_not_say_where_they_came_from_are_refused(filled):
    with pytest.raises(NotPublished, match=r"1 row has NULL in 'source_file'(.|\n)*nothing was published"):
        take(filled, [*rows_of("a.csv", "a3"), *rows_of(None, "x")], Leaving(FILE, ("a.csv",)))
    assert len(filled.records()) == 3


def test_a_table_that_does_not_tell_where_rows_came_from_is_refused(world):
    plain = [{"id": "a1", "day": DAY}]
    take(world, plain, schema="id string, day date")
    added = ColumnPolicy("add", "fail", "fail")
    with pytest.raises(NotPublished, match=r"has no column 'source_file' of texts(.|\n)*'a.csv'"):
        take(world, rows_of("a.csv", "a2"), Leaving(FILE, ("a.csv",)), columns=added)
    assert [row["id"] for row in world.records()] == ["a1"]


def test_rows_bring_a_new_column_while_others_leave(filled):
    rows = rows_of("a.csv", "a3", note="new")
    schema = f"id string, day date, {FILE} string, note string"
    take(filled, rows, Leaving(FILE, ("a.csv",)), schema=schema, columns=ColumnPolicy("add", "fail", "fail"))
    assert sorted((row["id"], row["note"]) for row in filled.records()) == [("a3", "new"), ("b1", None)]


@pytest.mark.stores("delta")
@pytest.mark.parametrize(
    "feature", ["delta.enableDeletionVectors", "delta.enableChangeDataFeed", "delta.enableRowTracking"]
)
def test_tables_that_keep_more_than_rows(filled, feature):
    filled.spark.sql(f"ALTER TABLE delta.`{filled.table()}` SET TBLPROPERTIES ('{feature}' = 'true')")
    take(filled, [*rows_of("c.csv", "c1"), *rows_of("d.csv", "d1")])
    before = filled.sight().version
    take(filled, rows_of("c.csv", "c2"), Leaving(FILE, ("c.csv",)))
    assert [one for one, _ in ids(filled)] == ["a1", "a2", "b1", "c2", "d1"]
    if feature == "delta.enableChangeDataFeed":
        feed = filled.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", before + 1)
        changed = Counter()
        for row in feed.load(str(filled.table())).collect():
            changed[row["id"]] += {"insert": 1, "delete": -1}[row["_change_type"]]
        assert {one: times for one, times in changed.items() if times} == {"c1": -1, "c2": 1}
    take(filled, rows_of("d.csv", "d2"), Leaving(FILE, ("d.csv", "c.csv")))
    assert [one for one, _ in ids(filled)] == ["a1", "a2", "b1", "d2"]


# ------------------------------------------------------------------ a table that moved


def staged_take(world):
    """Stage a batch in which rows leave, and return what publishes it."""
    work = work_of(world)
    staged = world.store.stage_taken(work, framed(world, rows_of("a.csv", "late")), None, Leaving(FILE, ("a.csv",)))
    return lambda: publish(world, work, staged)


def planned_take(world):
    """Plan a batch, and return what stages and publishes it."""
    base = world.sight()
    return lambda: take(world, rows_of("a.csv", "late"), Leaving(FILE, ("a.csv",)), base=base)


def planned_receipt(world):
    base = world.sight()
    return lambda: receipt_alone(world, base)


WAYS = [staged_take, planned_take, planned_receipt]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", ["", "another"])
def test_nothing_lands_after_a_publish_of_another(filled, way, key):
    late = way(filled)
    take(filled, rows_of("c.csv", "c1"), key=key)
    with pytest.raises(Conflict):
        late()
    assert [one for one, _ in ids(filled)] == ["a1", "a2", "b1", "c1"]


@pytest.mark.parametrize("way", WAYS)
def test_nothing_lands_after_a_receipt_of_another(filled, way):
    late = way(filled)
    receipt_alone(filled, key="another")
    with pytest.raises(Conflict):
        late()
    assert [one for one, _ in ids(filled)] == ["a1", "a2", "b1"]


@pytest.mark.stores("memory", "delta", "postgres")
@pytest.mark.parametrize("way", WAYS)
def test_nothing_lands_after_a_foreign_change(filled, way):
    late = way(filled)
    append_by_hand(filled)
    with pytest.raises(Conflict):
        late()
    assert sorted(row["id"] for row in filled.records()) == ["a1", "a2", "b1", "foreign"]


@pytest.mark.stores("memory", "delta")
@pytest.mark.parametrize("way", WAYS)
def test_nothing_lands_after_a_foreign_restore(filled, way):
    late = way(filled)
    filled.restore_by_hand(filled.sight().version - 1)
    with pytest.raises(Conflict):
        late()
    assert [one for one, _ in ids(filled)] == ["a1", "a2"]


@pytest.mark.stores("memory", "parquet", "delta")
@pytest.mark.parametrize("way", WAYS)
def test_nothing_lands_after_a_restore(filled, way):
    late = way(filled)
    sight = filled.sight()
    filled.store.restore(filled.target, sight, sight.version - 1, OWNER)
    with pytest.raises(Conflict):
        late()
    assert [one for one, _ in ids(filled)] == ["a1", "a2"]


@pytest.mark.stores("parquet")
@pytest.mark.parametrize("way", [staged_take, planned_receipt])
def test_nothing_lands_where_a_file_was_lost(filled, way):
    late = way(filled)
    os.unlink(filled.store.files(filled.target)[0])
    with pytest.raises(Conflict):
        late()


@pytest.mark.stores("postgres")
@pytest.mark.parametrize("way", WAYS)
def test_nothing_lands_where_the_table_was_dropped(filled, way):
    late = way(filled)
    filled.database.execute("drop table lake__out")
    with pytest.raises(Conflict):
        late()
    assert filled.database.tables() == []


@pytest.mark.stores("delta")
@pytest.mark.parametrize("way", WAYS)
def test_a_foreign_change_in_the_last_moment_is_a_conflict(filled, way):
    late = way(filled)
    with armed(once_at("delta.locked", lambda: append_by_hand(filled))), pytest.raises(Conflict):
        late()
    assert [one for one, _ in ids(filled) if one] == ["a1", "a2", "b1", "foreign"]


@pytest.mark.stores("postgres")
@pytest.mark.parametrize("way", WAYS)
def test_a_foreign_change_after_the_look_comes_after_the_publish(filled, way):
    """It is not in the count that the receipt holds, so the next look finds it."""
    late = way(filled)
    with armed(once_at("postgres.receipt.moved", lambda: append_by_hand(filled))):
        late()
    assert "foreign" in [row["id"] for row in filled.records()]
    assert slot_of(filled) in filled.sight().ended


@pytest.mark.stores("delta")
@pytest.mark.parametrize("way", WAYS)
def test_maintenance_loses_nothing(filled, way):
    late = way(filled)
    filled.spark.sql(f"OPTIMIZE delta.`{filled.table()}`")
    try:
        late()
        landed = way is not planned_receipt
    except Conflict:
        landed = False
    assert [one for one, _ in ids(filled)] == (["b1", "late"] if landed else ["a1", "a2", "b1"])


# ------------------------------------------------------------------ a receipt alone


def test_a_receipt_alone_leaves_the_rows(filled):
    before = filled.records()
    receipt_alone(filled)
    assert filled.records() == before
    assert filled.sight().fence(slot_of(filled)) == 3
    assert filled.sight().proof(slot_of(filled))


@pytest.mark.stores("memory", "parquet", "postgres")
def test_a_receipt_alone_may_be_the_first(world):
    receipt_alone(world)
    assert (world.sight().fence(slot_of(world)), world.records()) == (1, [])
    receipt_alone(world)
    take(world, rows_of("a.csv", "a1"))
    assert (world.sight().fence(slot_of(world)), ids(world)) == (3, [("a1", "a.csv")])


@pytest.mark.stores("delta")
def test_a_receipt_alone_makes_no_table_without_columns(world):
    with pytest.raises(NotPublished, match="no columns to make one of"):
        receipt_alone(world)
    assert world.sight().exists is False


@pytest.mark.stores("parquet", "postgres")
def test_a_receipt_alone_needs_no_jvm(filled):
    if filled.kind == "parquet":
        filled.project._stores["parquet"] = ParquetStore(filled.store.root, None)
    assert receipt_alone(filled.twin()).rows == 0
    assert filled.sight().fence(slot_of(filled)) == 3


def test_a_receipt_alone_on_a_table_whose_proof_had_ended(filled):
    """Somebody took the change as it is: the plan knew of it."""
    if filled.kind == "parquet":
        os.unlink(filled.store.files(filled.target)[0])
    else:
        append_by_hand(filled)
    assert slot_of(filled) in filled.sight().ended
    receipt_alone(filled)
    assert filled.sight().fence(slot_of(filled)) == 3


# ------------------------------------------------------------------ bodies


def test_bodies_outlive_the_process_that_kept_them(filled):
    store = filled.store
    bodies = {"first": b"", "0123abcd-7-89abcdef.marks": bytes(range(256)) * 400, "../..": b"odd", ".tmp-x": b"dot"}
    for label, body in bodies.items():
        store.keep_beside(filled.target, label, body)
    filled.reopen()
    assert {label: filled.store.beside(filled.target, label) for label in bodies} == bodies
    kept = filled.store.labels_beside(filled.target)
    assert set(kept) == set(bodies)
    assert all(abs(moment - os.stat(filled.folder).st_mtime) < 3_600 for moment in kept.values())
    assert filled.store.labels_beside("lake/other") == {}
    filled.store.drop_beside(filled.target, ["first", "never there"])
    assert filled.store.beside(filled.target, "first") is None
    assert set(filled.store.labels_beside(filled.target)) == set(bodies) - {"first"}


def test_a_body_never_changes(filled):
    filled.store.keep_beside(filled.target, "one", b"1")
    with pytest.raises(NotPublished, match="'one' already"):
        filled.store.keep_beside(filled.target, "one", b"2")
    assert filled.store.beside(filled.target, "one") == b"1"


def test_a_body_makes_no_table(world):
    assert (world.store.beside(world.target, "one"), world.store.labels_beside(world.target)) == (None, {})
    world.store.drop_beside(world.target, ["one"])
    world.store.keep_beside(world.target, "one", b"1")
    sight = world.sight()
    assert (sight.exists, sight.filled, world.records()) == (False, False, [])
    take(world, rows_of("a.csv", "a1"))
    assert ids(world) == [("a1", "a.csv")]
    assert world.store.beside(world.target, "one") == b"1"


def test_readers_and_maintenance_pass_over_bodies(filled):
    filled.store.keep_beside(filled.target, "one", b"1")
    before = filled.sight()
    if filled.kind == "delta":
        spark, table = filled.spark, f"delta.`{filled.table()}`"
        filled.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        spark.sql(f"VACUUM {table} RETAIN 0 HOURS")
        filled.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    filled.store.tidy(filled.target, frozenset, keep_days=0, dry_run=False)
    assert filled.store.beside(filled.target, "one") == b"1"
    assert len(filled.records()) == 3
    if hasattr(filled.store, "inspect"):
        assert list(filled.store.inspect(filled.target)) == []
    assert filled.sight().receipts == before.receipts


def test_a_table_that_was_dropped_by_hand_begins_anew(filled):
    filled.store.keep_beside(filled.target, "one", b"1")
    filled.drop()
    assert filled.sight().exists is False
    take(filled, rows_of("a.csv", "a1"))
    filled.store.keep_beside(filled.target, "two", b"2")
    assert ids(filled) == [("a1", "a.csv")]


@pytest.mark.stores("parquet")
def test_plain_files_are_taken_over_beside_bodies(world):
    world.table().mkdir(parents=True)
    framed(world, rows_of("a.csv", "a1")).write.mode("append").parquet(str(world.table()))
    for path in world.table().glob("*"):
        if not path.name.endswith(".parquet"):
            path.unlink()
    world.store.keep_beside(world.target, "one", b"1")
    world.store.take_over(world.target, world.sight(), OWNER)
    take(world, rows_of("b.csv", "b1"), Leaving(FILE, ("a.csv",)))
    assert ids(world) == [("b1", "b.csv")]


@pytest.mark.stores("postgres")
def test_bookkeeping_that_is_older_than_bodies_gets_what_it_lacks(filled):
    filled.database.execute("drop table twice_kept")
    take(filled, rows_of("c.csv", "c1"))
    assert filled.store.labels_beside(filled.target) == {}
    filled.store.keep_beside(filled.target, "one", b"1")
    assert filled.store.beside(filled.target, "one") == b"1"


@pytest.mark.stores("memory")
def test_bodies_beside_delivered_files(tmp_path):
    store = FilesStore(str(tmp_path), None)
    store.keep_beside("out/reports", "one", b"1")
    assert (store.beside("out/reports", "one"), list(store.labels_beside("out/reports"))) == (b"1", ["one"])
    assert store.look("out/reports").exists is False


# ------------------------------------------------------------------ deaths


def test_whoever_dies_leaves_the_old_rows_or_the_new_ones(filled, copies_of):
    copy, points = copies_of(filled), []
    with armed(recording(points)):
        batch(copy())
    assert {"memory": "memory.beside", "postgres": "postgres.beside.after"}.get(filled.kind, "beside.linked") in points
    assert filled.kind != "delta" or "delta.rows.left" in points
    for point in points:
        world = copy()
        with armed(dying_at(point)), pytest.raises(Died):
            batch(world)
        world.reopen()
        found, sight = [one for one, _ in ids(world)], world.sight()
        landed = sight.fence(slot_of(world)) == 3
        assert found == (["a3", "b1"] if landed else ["a1", "a2", "b1"]), point
        marks = sight.receipt(slot_of(world)).marks
        assert not landed or world.store.beside(world.target, marks) == b"marks", point
        batch(world)
        assert [one for one, _ in ids(world)] == ["a3", "b1"], point


# ------------------------------------------------------------------ one row among many


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"id": "a1"}, ["a1"]),
        ({FILE: "a.csv"}, ["a1", "a2"]),
        ({FILE: "a.csv", "id": "a2"}, ["a2"]),
        ({FILE: "b.csv", "id": "a2"}, []),
        ({"day": "2024-09-20", "id": "b1"}, ["b1"]),
        ({"day": "2024-09-21"}, []),
        ({"day": "no day"}, []),
        ({"id": "it's ${x} \\"}, []),
    ],
)
def test_rows_are_found_by_what_they_hold(filled, values, found):
    rows = filled.store.rows_with(filled.target, values, 10)
    assert sorted(row["id"] for row in rows) == found
    assert all(row["day"] == DAY and set(row) == {"id", "day", FILE} for row in rows)


def test_some_rows_are_enough(filled):
    assert len(filled.store.rows_with(filled.target, {FILE: "a.csv"}, 1)) == 1


def test_a_column_that_is_not_there_is_refused(filled):
    with pytest.raises(Misuse, match=r"'source_fil'(.|\n)*'source_file'"):
        filled.store.rows_with(filled.target, {"source_fil": "a.csv"}, 1)


@pytest.mark.stores("parquet")
def test_rows_of_all_types_are_found_without_a_jvm(world):
    texts = {"n": "7", "big": "-8", "d": "1.50", "at": "2024-09-20 10:00:00", "ok": "true", "x": "0.5"}
    kinds = {"n": "int", "big": "bigint", "d": "decimal(10,2)", "at": "timestamp_ntz", "ok": "boolean", "x": "double"}
    casts = [f"CAST('{texts[name]}' AS {kind}) AS {name}" for name, kind in kinds.items()]
    zoned = "make_timestamp(2024, 9, 20, 10, 0, 0, 'UTC') AS zoned"
    frame = world.spark.range(1).selectExpr("'a' AS id", *casts, "map('k', 1) AS m", zoned)
    publish(world, work := work_of(world), world.store.stage_taken(work, frame, None, None))
    store = ParquetStore(world.store.root, None)
    for name, text in {**texts, "zoned": "2024-09-20 10:00:00"}.items():
        assert [row["id"] for row in store.rows_with(world.target, {name: text}, 5)] == ["a"], name
    found = store.rows_with(world.target, {"zoned": "2024-09-20T12:00:00+02:00"}, 5)
    assert [row["zoned"].isoformat() for row in found] == ["2024-09-20T10:00:00+00:00"]
    assert store.rows_with(world.target, {"m": "1"}, 5) == []
