"""How a merge is written into tables of Delta that keep more than rows: deletion vectors, change feeds, numbers of rows."""

import json
from contextlib import contextmanager
from dataclasses import replace

import pytest

import twice
from twice.errors import NotPublished
from twice.faults import Died, armed, dying_at
from twice.merges import MergeRule
from twice.stores import preparing
from twice.stores.delta import named_files
from twice.stores.delta.jvm import Transaction
from worlds import once_at, said_of_vectors

pytestmark = [pytest.mark.stores("delta")]

SCHEMA = "id string, place string, n int, gone boolean"
VECTORS, FEED, TRACKING = "delta.enableDeletionVectors", "delta.enableChangeDataFeed", "delta.enableRowTracking"
# Names that are written otherwise in a path, in its URL, and in the log.
PLACES = ("plain", "a b", "50%", "ü#1")
DAYS = [f"2024-09-{day}" for day in range(20, 29)]


@pytest.fixture
def make_table(make_world):
    """Return a function that makes a table of four places and twelve rows, with features, in as many files as places."""

    def make(*features):
        world = make_world(
            pattern=twice.merger(keys=["place", "id"], deleted="gone", partitioned_by=["place"]), schema=SCHEMA
        )
        world.expected = {}
        merge(world, DAYS[0], *((f"{number}", place, number) for place in PLACES for number in range(3)))
        for feature in {VECTORS, *features}:
            has_it = str(feature in features).lower()
            world.spark.sql(f"ALTER TABLE delta.`{world.table()}` SET TBLPROPERTIES ('{feature}' = '{has_it}')")
        return world

    return make


def merge(world, day, *rows):
    """Merge rows of a key, a place and a number (None deletes), check the table, and return the outcome."""
    world.put_rows(day, [{"id": one, "place": place, "n": n, "gone": n is None} for one, place, n in rows])
    outcome = world.run(day)
    for one, place, n in rows:
        world.expected[place, one] = n
    check(world)
    return outcome


def check(world):
    kept = sorted((one, place, n) for (place, one), n in world.expected.items() if n is not None)
    assert world.table_rows("id", "place", "n") == kept


def newest(world):
    """Return the files that the newest commit adds, removes, and marks rows in."""
    last = max((world.table() / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in last.read_text().splitlines()]
    added = {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    marked = added.keys() & removed
    assert all(added[path].get("deletionVector") for path in marked)
    return added.keys() - marked, removed - marked, marked


def test_a_feed_and_a_new_column_at_once_are_refused_by_name(make_table):
    world = make_table(FEED)
    world.columns, world.schema = {"on_new_column": "add"}, f"{SCHEMA}, more int"
    world.put_rows(DAYS[1], [{"id": "0", "place": "50%", "n": 10, "gone": False, "more": 1}])
    with pytest.raises(NotPublished, match="Add the column to the table first"):
        world.run(DAYS[1])
    check(world)
    world.spark.sql(f"ALTER TABLE delta.`{world.table()}` ADD COLUMN more int")
    world.run(DAYS[1], accept=True)
    world.expected["50%", "0"] = 10
    check(world)


def test_a_property_is_read_in_any_letters(make_table):
    world = make_table(VECTORS)
    world.spark.sql(f"ALTER TABLE delta.`{world.table()}` SET TBLPROPERTIES ('{FEED}' = 'True')")
    before = world.sight().version
    merge(world, DAYS[1], ("0", "50%", 10))
    feed = world.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", before + 1)
    changed = {row["_change_type"] for row in feed.load(str(world.table())).collect()}
    assert changed == {"update_preimage", "update_postimage"}


FEATURES = [(), (VECTORS,), (FEED,), (TRACKING,), (VECTORS, FEED), (VECTORS, TRACKING)]


@pytest.mark.parametrize("features", FEATURES, ids=lambda names: "+".join(name[12:] for name in names) or "none")
def test_merges_end_the_same_whatever_the_table_keeps(make_table, features):
    world = make_table(*features)
    counts = merge(
        world, DAYS[1], *((f"{number}", place, 100 + number) for place in PLACES for number in (1, 2, 3))
    ).notes[0]
    assert counts == "inserted 4, updated 8, deleted 0, left alone 0"
    merge(world, DAYS[2], *(("1", place, None) for place in PLACES), ("2", "plain", 7))
    merge(world, DAYS[3], *(("1", place, 5) for place in PLACES), ("0", "a b", 0))
    counts = merge(world, DAYS[4], *(("1", place, 5) for place in PLACES)).notes[0]
    assert counts == "inserted 0, updated 0, deleted 0, left alone 4"
    world.spark.sql(f"OPTIMIZE delta.`{world.table()}`")
    merge(world, DAYS[5], *((f"{number}", place, -number) for place in PLACES for number in range(4)))
    assert world.sight().ended == {}


def test_with_vectors_files_stay_and_their_rows_are_marked(make_table):
    world = make_table(VECTORS)
    merge(world, DAYS[1], ("0", "50%", 10), ("1", "ü#1", 11), ("new", "a b", 12))
    added, removed, marked = newest(world)
    assert (len(added), removed, len(marked)) == (3, set(), 2)


def test_with_vectors_a_file_of_which_less_than_half_is_left_is_written_anew(make_table):
    world = make_table(VECTORS)
    merge(world, DAYS[1], ("0", "50%", 10), ("1", "plain", 11))
    _, _, before = newest(world)
    merge(world, DAYS[2], ("1", "50%", 13), ("new", "plain", 14), ("0", "a b", 15))
    added, removed, marked = newest(world)
    assert removed < before
    assert (len(added), len(removed), len(marked)) == (4, 1, 1)
    merge(world, DAYS[3], ("2", "50%", 14))
    added, removed, marked = newest(world)
    assert (len(added), len(removed), marked) == (1, 1, set())
    for number, day in enumerate(DAYS[4:]):
        merge(world, day, *((f"{number % 3}", place, 100 * number) for place in PLACES))
        assert all(2 * cardinality <= rows for rows, cardinality in live_files(world))


def live_files(world):
    """Return of each file of the newest version how many rows it ever held, and how many of them are marked."""
    files = {}
    for commit in sorted((world.table() / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for gone in (action["remove"]["path"] for action in actions if "remove" in action):
            files.pop(gone, None)
        files |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    return [
        (json.loads(add["stats"])["numRecords"], (add.get("deletionVector") or {}).get("cardinality", 0))
        for add in files.values()
    ]


@pytest.mark.parametrize("said", [None, "true", "false"])
def test_a_new_table_of_a_merge_has_vectors_unless_the_session_says_otherwise(make_world, spark, said):
    with said_of_vectors(spark, said):
        world = make_world(pattern=twice.merger(keys=["id"]), schema="id string, n int")
        world.put_rows(DAYS[0], [{"id": "1", "n": 1}])
        world.run(DAYS[0])
    found = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES delta.`{world.table()}`").collect()}
    assert found.get(VECTORS, "false") == (said or "true")


@pytest.mark.parametrize("as_checkpoint", [False, True])
def test_a_file_of_vectors_that_is_gone_is_named(make_table, as_checkpoint):
    world = make_table(VECTORS)
    merge(world, DAYS[1], ("0", "50%", 10))
    if as_checkpoint:
        world.spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            world.spark._jsparkSession, str(world.table())
        ).checkpoint()
    (vector,) = world.table().glob("**/deletion_vector_*.bin")
    assert named_files.missing_files(str(world.table())) == []
    version = world.sight().version
    merge(world, DAYS[2], ("0", "new", 10))
    assert named_files.lost(str(world.table()), version) == ""
    vector.unlink()
    assert named_files.missing_files(str(world.table())) == [vector.name]
    assert vector.name in named_files.lost(str(world.table()), version)


def test_staged_files_that_are_gone_before_the_publish_are_staged_again(make_table):
    world = make_table(VECTORS)
    before = set(world.table().glob("**/*.*"))

    def lose():
        (vector,) = (path for path in set(world.table().glob("**/*.bin")) - before)
        vector.unlink()

    with armed(once_at("looked.again", lose)):
        merge(world, DAYS[1], ("0", "50%", 10))
    assert named_files.missing_files(str(world.table())) == []


def test_without_vectors_a_file_of_which_no_row_is_left_is_not_read_again(make_table, monkeypatch):
    world = make_table()
    read = []
    frame = Transaction.frame
    monkeypatch.setattr(Transaction, "frame", lambda self, *files: read.append(files) or frame(self, *files))
    merge(world, DAYS[1], *((f"{number}", "50%", 50 + number) for number in range(3)))
    looked = len(read)
    merge(world, DAYS[2], *((f"{number}", "50%", 60 + number) for number in range(2)))
    assert len(read) == 2 * looked + 1
    added, removed, _ = newest(world)
    assert (len(added), len(removed)) == (2, 1)


def test_with_vectors_a_row_that_only_goes_adds_no_file(make_table):
    world = make_table(VECTORS)
    merge(world, DAYS[1], ("0", "50%", None), ("2", "plain", None))
    added, removed, marked = newest(world)
    assert (added, removed, len(marked)) == (set(), set(), 2)


def test_a_session_that_wants_no_vectors_gets_none(make_table, spark):
    world = make_table(VECTORS)
    name = "spark.databricks.delta.merge.deletionVectors.persistent"
    spark.conf.set(name, "false")
    try:
        merge(world, DAYS[1], ("0", "50%", 10))
    finally:
        spark.conf.unset(name)
    added, removed, marked = newest(world)
    assert (len(removed), marked) == (1, set())
    assert added


def test_a_key_that_the_table_holds_twice_is_refused_with_vectors_too(make_table):
    world = make_table(VECTORS)
    world.spark.sql(f"INSERT INTO delta.`{world.table()}` VALUES ('0', 'plain', 99)")
    world.run(DAYS[0], accept=True)
    before = world.table_rows("id", "place", "n")
    world.put_rows(DAYS[1], [{"id": "0", "place": "plain", "n": 7, "gone": False}])
    with pytest.raises(NotPublished, match="holds a key in several rows"):
        world.run(DAYS[1], accept=True)
    assert world.table_rows("id", "place", "n") == before


@pytest.mark.parametrize("point", ["delta.files.written", "stage.after", "publish.after"])
def test_a_death_between_marks_and_commit_leaves_the_table_alone(make_table, point):
    world = make_table(VECTORS)
    world.put_rows(DAYS[1], [{"id": "0", "place": "50%", "n": 10, "gone": False}])
    with armed(dying_at(point)), pytest.raises(Died):
        world.run(DAYS[1])
    if point != "publish.after":
        check(world)
    merge(world, DAYS[1], ("0", "50%", 10))


def test_what_was_marked_for_a_refused_publish_is_not_marked(make_table):
    world = make_table(VECTORS)
    world.put_rows(DAYS[1], [{"id": "0", "place": "50%", "n": 10, "gone": False}])
    change = once_at(
        "stage.after", lambda: world.put_rows(DAYS[1], [{"id": "1", "place": "50%", "n": 1, "gone": False}])
    )
    with armed(change), pytest.raises(NotPublished, match="changed while"):
        world.run(DAYS[1])
    check(world)


def test_a_neighbour_that_marks_the_same_file_comes_first(make_table):
    world = make_table(VECTORS)
    world.put_rows(DAYS[1], [{"id": "0", "place": "50%", "n": 10, "gone": False}])
    world.put_rows(DAYS[2], [{"id": "1", "place": "50%", "n": 11, "gone": False}])
    with armed(once_at("stage.after", lambda: world.twin().run(DAYS[2]))):
        world.run(DAYS[1])
    world.expected |= {("50%", "0"): 10, ("50%", "1"): 11}
    check(world)


@contextmanager
def counted_files(world):
    """Note in how many files keys are looked for, of how many."""
    seen = []
    whole = Transaction.reads

    def reads(self, part):
        files = whole(self, part)
        seen.append((files.size(), len(world.spark.read.format("delta").load(str(world.table())).inputFiles())))
        return files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transaction, "reads", reads)
        yield seen


def test_keys_are_looked_for_in_their_partitions_alone(make_table):
    world = make_table()
    with counted_files(world) as seen:
        merge(world, DAYS[1], ("0", "50%", 10), ("2", "50%", 12))
    assert seen == [(1, 4)]


@pytest.mark.parametrize(
    "key",
    [
        "lpad(id, 5, '0')",
        "CAST(id AS INT)",
        "id",
        "CAST(id AS SMALLINT)",
        "CAST(id AS DECIMAL(12,2))",
        "date_add(DATE '2000-01-01', CAST(id AS INT))",
    ],
    ids=["string", "int", "bigint", "smallint", "decimal", "date"],
)
def test_keys_are_looked_for_within_their_range_alone(make_world, key):
    world = make_world(pattern=twice.merger(keys=["k"]), schema="id string, day date")

    def merge_keys(day, first, count, n):
        world.transform = lambda _: world.spark.range(first, first + count).selectExpr(f"{key} AS k", f"{n} AS n")
        world.put_rows(day, [{"id": "a", "day": day}])
        return world.run(day).notes[0]

    for number in range(3):
        merge_keys(DAYS[number], 1000 * number, 150, 1)
    with counted_files(world) as seen:
        assert merge_keys(DAYS[3], 1010, 120, 2) == "inserted 0, updated 120, deleted 0, left alone 0"
    ((found, of),) = seen
    assert (found, of > 2) == (1, True)


def test_a_window_counts_where_bounds_leave_out_no_file(make_world):
    world = make_world(
        pattern=twice.dedup_insert(keys=["id"], window="1 day", on="day"), schema="id string, day date, n int"
    )
    world.put_rows(DAYS[0], [{"id": "a", "day": DAYS[0], "n": 1}, {"id": "z", "day": DAYS[0], "n": 1}])
    world.run(DAYS[0])
    world.put_rows(DAYS[4], [{"id": "a", "day": DAYS[4], "n": 2}, {"id": "z", "day": DAYS[4], "n": 2}])
    world.run(DAYS[4])
    assert [row[1] for row in world.table_rows("id", "n")] == [1, 2, 1, 2]


KEYS = {
    "string": ("'1'", "'2 '"),
    "int": ("1", "2"),
    "decimal(10,2)": ("1", "2.50"),
    "double": ("0.0", "'NaN'", "1.5"),
    "timestamp": ("'2024-09-20 01:02:03'",),
    "binary": ("'1'", "'2'"),
    "boolean": ("true",),
}


@pytest.mark.parametrize("typed", KEYS)
@pytest.mark.parametrize("keys", [["k"], ["k", "more"]], ids=["one key", "two keys"])
def test_keys_of_every_type_are_found_again(make_world, typed, keys):
    """Zero is zero with any sign, although it has another hash."""
    world = make_world(pattern=twice.dedup_insert(keys=keys), schema="id string, day date")
    for day, sign in ((DAYS[0], ""), (DAYS[1], "-")):
        values = ", ".join(f"CAST({value} AS {typed})" for value in KEYS[typed])
        if typed == "double":
            values = values.replace("CAST(0.0", f"{sign}CAST(0.0")
        query = f"SELECT explode(array({values})) AS k, 'x' AS more, DATE '{day}' AS day"
        world.transform = lambda _, query=query: world.spark.sql(query)
        world.put_rows(day, [{"id": "a", "day": day}])
        world.run(day)
        assert len(world.records()) == len(KEYS[typed])


def test_what_travels_is_told_by_its_size_and_not_by_its_rows(spark):
    few_large = spark.range(1000).selectExpr("id", "repeat('x', 1000) AS text")
    source = preparing.prepared(few_large, MergeRule(("id",)))
    assert 1_000_000 < source.size < 3_000_000
    assert source.is_light
    assert not replace(source, size=200 * source.size).is_light
    assert not replace(source, count=2_000_000).is_light


def test_a_range_of_texts_chooses_files_and_is_not_asked_of_rows(spark):
    rows = spark.createDataFrame([("b", 7, "p"), ("d", 9, "p")], "word string, n int, part string")
    source = preparing.prepared(rows, MergeRule(("word", "n", "part")), ["part"])
    assert source.bounds == "`word` >= 'b' AND `word` <= 'd' AND `n` >= 7 AND `n` <= 9 AND `part` IN ('p')"
    assert source.quick_bounds == "`n` >= 7 AND `n` <= 9 AND `part` IN ('p')"
