"""Scenarios 22 to 31: changed rows are brought into a table, and applying them twice changes nothing more."""

import pytest

import twice
from twice.errors import NotPublished

KEYS = ["type", "version"]
SCHEMA = "type string, full_name string, version string, is_deleted boolean"
GALAXY = ("galaxy", "Galaxy Camera", "Android 11")
IPHONE = ("iphone", "APPLE iPhone 8 Plus (Silver, 256 GB)", "iOS 13")
HTC = ("htc", "Evo 3d", "Android 12L")
D1 = [GALAXY, IPHONE, HTC]
D2 = [
    ("galaxy", "Galaxy Camera V2", "Android 11"),
    IPHONE,
    ("mac", "MacBook Air (M1, 2020)", "macOS Ventura"),
    ("mac", "MacBook Pro (13-inch, M1, 2020)", "macOS Sonoma"),
    HTC,
]
NEW_IPHONE = ("iphone", "APPLE iPhone 28 Plus (Silver, 1256 GB)", "iOS 130")
NEW_HTC = ("htc", "Evo 3d - mobile phone", "Android 12L")
D3 = [(*GALAXY, True), (*NEW_IPHONE, False), (*NEW_HTC, False)]
AFTER_D3 = sorted([NEW_HTC, IPHONE, NEW_IPHONE], key=repr)


def merger(**options):
    return twice.merger(keys=KEYS, deleted="is_deleted", **options)


@pytest.fixture
def devices(make_world):
    return make_world(pattern=merger(), schema=SCHEMA)


def put(world, day, rows):
    named = [dict(zip(("type", "full_name", "version", "is_deleted"), (*row, False)[:4], strict=True)) for row in rows]
    world.put_rows(day, named)


def merge(world, day, rows, **asked):
    put(world, day, rows)
    return world.run(day, **asked)


def table(world):
    return world.table_rows("type", "full_name", "version")


def test_22_to_25_insert_update_and_their_reruns(devices):
    assert merge(devices, "2024-09-20", D1).notes == ("inserted 3, updated 0, deleted 0, left alone 0",)
    assert devices.run("2024-09-20").state == "skipped"
    devices.run("2024-09-20", force=True)
    assert table(devices) == sorted(D1, key=repr)
    assert merge(devices, "2024-09-21", D2).notes[0] == "inserted 2, updated 1, deleted 0, left alone 2"
    assert table(devices) == sorted(D2, key=repr)
    again = devices.run("2024-09-21", force=True)
    assert (again.state, again.notes[0]) == ("published", "inserted 0, updated 0, deleted 0, left alone 5")
    assert table(devices) == sorted(D2, key=repr)


def test_26_and_27_deleted_rows_go_and_do_not_come_back(devices):
    merge(devices, "2024-09-20", D1)
    merge(devices, "2024-09-21", D3)
    assert table(devices) == AFTER_D3
    devices.run("2024-09-21", force=True)
    assert table(devices) == AFTER_D3
    assert "is_deleted" not in devices.records()[0]


def test_28_rows_that_are_deleted_already_are_not_loaded(devices):
    merge(devices, "2024-09-20", D3)
    assert table(devices) == sorted([NEW_HTC, NEW_IPHONE], key=repr)


def test_30_a_null_key_is_refused_and_nothing_is_lost(devices):
    merge(devices, "2024-09-20", D1)
    with pytest.raises(NotPublished, match="1 row has NULL in a key column"):
        merge(devices, "2024-09-21", [*D2, ("mac", "no version", None)])
    assert table(devices) == sorted(D1, key=repr)


def test_31_a_merger_does_not_undo_other_runs(devices):
    merge(devices, "2024-09-20", D1)
    merge(devices, "2024-09-21", D2)
    again = devices.run("2024-09-20", force=True)
    assert table(devices) == sorted([GALAXY, *D2[1:]], key=repr)
    assert any("newer slots, up to 2024-09-21" in note for note in again.notes)


@pytest.mark.parametrize("before", [[], D1], ids=["new keys", "known keys"])
@pytest.mark.parametrize("copy", [GALAXY, ("galaxy", "another", "Android 11")], ids=["identical", "conflicting"])
def test_50_duplicate_keys_are_named_before_anything_is_written(devices, before, copy):
    if before:
        merge(devices, "2024-09-20", before)
    with pytest.raises(NotPublished, match="type='galaxy', version='Android 11'"):
        merge(devices, "2024-09-21", [*D1, copy])
    assert table(devices) == sorted(before, key=repr)


def test_a_soft_delete_keeps_the_row_with_its_mark(make_world):
    world = make_world(pattern=merger(soft=True), schema=SCHEMA)
    merge(world, "2024-09-20", D1)
    merge(world, "2024-09-21", D3)
    marked = {row[0:3]: row[3] for row in world.table_rows("type", "full_name", "version", "is_deleted")}
    assert marked == {GALAXY: True, IPHONE: False, NEW_IPHONE: False, NEW_HTC: False}


def test_an_order_column_lets_late_and_repeated_changes_pass_by(make_world):
    world = make_world(pattern=twice.merger(keys=["id"], order="at"), schema="id string, name string, at int")
    rows = [{"id": "a", "name": "new", "at": 5}, {"id": "a", "name": "old", "at": 3}, {"id": "b", "name": "b", "at": 1}]
    world.put_rows("2024-09-20", [*rows, rows[0]])
    world.run("2024-09-20")
    assert world.table_rows("id", "name", "at") == [("a", "new", 5), ("b", "b", 1)]
    world.put_rows("2024-09-21", [{"id": "a", "name": "late", "at": 4}, {"id": "b", "name": "newer", "at": 2}])
    assert world.run("2024-09-21").notes[0] == "inserted 0, updated 1, deleted 0, left alone 1"
    assert world.table_rows("id", "name", "at") == [("a", "new", 5), ("b", "newer", 2)]
    world.put_rows("2024-09-22", [{"id": "b", "name": name, "at": 7} for name in ("one", "other")])
    with pytest.raises(NotPublished, match="same 'at' and differ"):
        world.run("2024-09-22")
    world.put_rows("2024-09-22", [{"id": "b", "name": "b", "at": None}])
    with pytest.raises(NotPublished, match="NULL in the order column 'at'"):
        world.run("2024-09-22")


def test_insert_only_never_touches_what_is_there(make_world):
    world = make_world(pattern=twice.merger(keys=KEYS, insert_only=True), schema=SCHEMA)
    merge(world, "2024-09-20", D1)
    merge(world, "2024-09-21", D2)
    assert table(world) == sorted([GALAXY, *D2[1:]], key=repr)


def test_keys_that_look_alike_stay_apart(make_world):
    world = make_world(pattern=twice.merger(keys=["id"]), schema="id string, n int")
    alike = ["\u00e9", "e\u0301", "a", "a ", "01", "1", "", "NULL", "it's", "back`tick", "../up", "x" * 255]
    rows = [{"id": one, "n": 1} for one in alike]
    world.put_rows("2024-09-20", rows)
    world.run("2024-09-20")
    world.put_rows("2024-09-21", [{**row, "n": 2} for row in rows[::2]])
    assert world.run("2024-09-21").notes[0] == "inserted 0, updated 6, deleted 0, left alone 0"
    assert world.table_rows("id", "n") == sorted(((row["id"], 2 - i % 2) for i, row in enumerate(rows)), key=repr)


@pytest.mark.parametrize(("first", "second"), [(0.0, -0.0), (float("nan"), float("nan"))])
def test_zero_and_minus_zero_are_one_key_and_so_is_nan(make_world, first, second):
    world = make_world(pattern=twice.merger(keys=["id"]), schema="id double, n int")
    world.put_rows("2024-09-20", [{"id": first, "n": 1}])
    world.run("2024-09-20")
    world.put_rows("2024-09-21", [{"id": second, "n": 2}])
    world.run("2024-09-21")
    assert [n for _, n in world.table_rows("id", "n")] == [2]


def test_a_partitioned_table_leaves_other_partitions_alone(make_world):
    world = make_world(
        pattern=twice.merger(keys=["day", "id"], partitioned_by=["day"]), schema="id string, day date, n int"
    )
    for day, n in (("2024-09-20", 1), ("2024-09-21", 1)):
        world.put_rows(day, [{"id": one, "day": day, "n": n} for one in "ab"])
        world.run(day)
    before = world.partition_files("2024-09-20")
    world.put_rows("2024-09-22", [{"id": "a", "day": "2024-09-21", "n": 2}])
    world.run("2024-09-22")
    assert world.partition_files("2024-09-20") == before
    assert [n for *_, n in world.table_rows("day", "id", "n")] == [1, 1, 2, 1]


def test_an_identical_source_rewrites_nothing(devices):
    merge(devices, "2024-09-20", D1)
    files = devices.all_files()
    outcome = merge(devices, "2024-09-21", D1)
    assert (outcome.state, devices.all_files()) == ("published", files)
    assert devices.run("2024-09-21").state == "skipped"


def test_a_key_that_the_table_holds_twice_is_not_updated_as_one(make_world):
    schema = "id string, day date, n int"
    world = make_world(pattern=twice.transactional_writer(), schema=schema)
    world.put_rows("2024-09-20", [{"id": "a", "day": "2024-09-20", "n": n} for n in (1, 9)])
    world.run("2024-09-20")
    world.pattern = twice.merger(keys=["id"])
    world.put_rows("2024-09-21", [{"id": "a", "day": "2024-09-20", "n": 5}])
    with pytest.raises(NotPublished, match="holds a key in several rows: id='a'"):
        world.run("2024-09-21")
    world.put_rows("2024-09-21", [{"id": "b", "day": "2024-09-20", "n": 5}])
    world.run("2024-09-21")
    assert world.table_rows("id", "n") == [("a", 1), ("a", 9), ("b", 5)]


@pytest.mark.stores("parquet")
def test_rows_of_one_slot_are_not_looked_for_in_merged_files(make_world):
    world = make_world(pattern=twice.merger(keys=["id"]))
    world.put("2024-09-20", ["a"])
    world.run("2024-09-20")
    world.pattern = twice.data_overwrite(slice="day")
    world.put("2024-09-20", ["b"])
    with pytest.raises(twice.Misuse, match="was merged into"):
        world.run("2024-09-20")
    assert world.rows() == [("a", "2024-09-20")]


@pytest.mark.parametrize("pattern", [twice.merger, twice.dedup_insert])
def test_columns_with_names_that_need_quoting(make_world, pattern):
    key, value = 'select-`key`\'s-"name"', "from"
    schema = ", ".join(f"`{name.replace('`', '``')}` string" for name in (key, value, "a.b"))
    world = make_world(pattern=pattern(keys=[key]), schema=schema)
    world.put_rows("2024-09-20", [{key: "a", value: "1", "a.b": "x"}])
    world.run("2024-09-20")
    world.put_rows("2024-09-21", [{key: "a", value: "2", "a.b": "y"}, {key: "b", value: "2", "a.b": None}])
    world.run("2024-09-21")
    updated = "2" if pattern is twice.merger else "1"
    assert [(row[key], row[value]) for row in sorted(world.records(), key=lambda row: row[key])] == [
        ("a", updated),
        ("b", "2"),
    ]


@pytest.mark.stores("parquet", "delta")
def test_partitions_that_look_alike_stay_apart(make_world):
    world = make_world(
        pattern=twice.merger(keys=["p", "id"], partitioned_by=["p"]), schema="p string, id string, n int"
    )
    parts = ["1", "01", "a/b", "a=b", "NULL", "__x"]
    world.put_rows("2024-09-20", [{"p": p, "id": "k", "n": 1} for p in parts])
    world.run("2024-09-20")
    world.put_rows("2024-09-21", [{"p": "1", "id": "k", "n": 2}, {"p": "a/b", "id": "k", "n": 2}])
    assert world.run("2024-09-21").notes[0] == "inserted 0, updated 2, deleted 0, left alone 0"
    assert dict(world.table_rows("p", "n")) == {p: 2 if p in ("1", "a/b") else 1 for p in parts}
    world.put_rows("2024-09-22", [{"p": "", "id": "k", "n": 3}, {"p": "1", "id": "k", "n": 3}])
    if world.kind == "delta":
        with pytest.raises(NotPublished, match="empty text"):
            world.run("2024-09-22")
    else:
        world.run("2024-09-22")
        assert ("", 3) in world.table_rows("p", "n")


@pytest.mark.stores("parquet", "delta")
def test_keys_that_have_one_hash_are_told_apart(devices, monkeypatch):
    from pyspark.sql import functions as F

    monkeypatch.setattr(F, "xxhash64", lambda *columns: F.length(F.concat_ws("|", *columns)).cast("bigint"))
    merge(devices, "2024-09-20", [("ab", "one", "c"), ("ac", "two", "c"), ("abcd", "three", "c")])
    merge(devices, "2024-09-21", [("ac", "two, changed", "c"), ("ad", "new", "c")])
    assert table(devices) == [
        ("ab", "one", "c"),
        ("abcd", "three", "c"),
        ("ac", "two, changed", "c"),
        ("ad", "new", "c"),
    ]


@pytest.mark.stores("parquet", "delta")
def test_a_source_that_is_too_large_to_be_sent_merges_alike(devices, monkeypatch):
    from twice.stores import preparing

    monkeypatch.setattr(preparing, "_BYTES_SENT_AT_MOST", 0)
    merge(devices, "2024-09-20", D1)
    merge(devices, "2024-09-21", D2)
    assert table(devices) == sorted(D2, key=repr)
    merge(devices, "2024-09-22", D3)
    assert NEW_HTC in table(devices)
    assert GALAXY not in table(devices)
