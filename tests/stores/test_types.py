"""Every type as a value and as a key, through every pattern: what is read back, by Twice and by other libraries, is what went in."""

import json
from contextlib import nullcontext
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import twice
from databases import Database, table
from twice.errors import Misuse
from twice.stores.postgres.rows import json_text
from typed import ARROW, INCOMPARABLE, KEYS, NOT_KEPT, SCHEMA, TYPES, told
from worlds import World, needing, said_of_vectors

FIRST, NEXT = "2024-09-20", "2024-09-21"
NAMES = [one.name for one in TYPES]
BY_KEY = {
    "merger": lambda keys: twice.merger(keys=keys),
    "merger-order": lambda keys: twice.merger(keys=keys, order="n"),
    "dedup": lambda keys: twice.dedup_insert(keys=keys),
    "rows": lambda keys: twice.keyed(keys=keys),
    "versions": lambda keys: twice.stateful_merger(keys=keys),
    "history": lambda keys: twice.stateful_merger(keys=keys, form="history"),
}
BY_SLOT = {
    "table": twice.data_overwrite(),
    "slice": twice.data_overwrite(slice="day"),
    "partitions": twice.data_overwrite(partitions=["day"]),
    "partition": twice.keyed(partition="slot"),
    "named": twice.keyed(table="d{start:%Y%m%d}"),
    "proxy": twice.proxy(),
    "cleaner": twice.fast_metadata_cleaner(),
    "lineage": twice.transactional_writer(lineage="slot"),
}
WHOLE = ("table", "proxy")
JSON = [one.name for one in TYPES if one.postgres == "jsonb"]
IN_ZONE = [one.name for one in TYPES if "timestamp" in one.sql and "ntz" not in one.sql]


class Story:
    """A world whose transform returns the rows that were given for a day, and the ways to read what became of them."""

    def __init__(self, world, pattern):
        self.world, self.batches = world, {}
        world.pattern, world.transform = pattern, self.made

    def made(self, _, run):
        rows = self.batches[run.slot.interval.start.date().isoformat()]
        if self.world.kind == "memory":
            return rows
        if self.world.spark is None:
            return pa.Table.from_pylist(rows, schema=ARROW)
        return self.world.spark.createDataFrame([tuple(one[name] for name in ARROW.names) for one in rows], SCHEMA)

    def run(self, day, rows):
        """Give other rows for a day, and run it."""
        self.batches[day] = rows
        self.world.put(day, [str(datetime.now(UTC))])
        return self.world.run(day)

    def check(self, expected):
        """Compare the table with a model of it, as Twice and as another library reads it."""
        if self.world.database:
            expected = [{**one, **{name: in_json(one[name]) for name in JSON}} for one in expected]
        wanted = as_told(expected)
        assert as_told(self.read()) == wanted
        assert as_told(self.read_by_another()) == wanted

    def read(self):
        rows = self.world.records()
        if self.world.database:
            return [{**one, **{name: one[name] and json.loads(one[name]) for name in JSON}} for one in rows]
        return [{**one, **{name: in_zone(one[name]) for name in IN_ZONE}} for one in rows]

    def read_by_another(self):
        world = self.world
        if world.database:
            names = ", ".join(ARROW.names)
            found = world.database.execute(f"select {names} from {table(world.target)}")
            return [dict(zip(ARROW.names, one, strict=True)) for one in found]
        if world.kind == "delta" and not world.pattern.points and world.table().joinpath("_delta_log").exists():
            return DeltaTable(world.table()).to_pyarrow_table().to_pylist()
        if world.kind == "parquet" and world.store.files(world.target):
            paths = world.store.files(world.target)
            return [one for path in paths for one in pq.ParquetFile(path).read().to_pylist()]
        return self.read()


def as_told(rows):
    return sorted((tuple(told(one[name]) for name in ARROW.names) for one in rows), key=repr)


def in_json(value):
    return None if value is None else json.loads(json_text(value))


def in_zone(value):
    """Return a value with its times as they are everywhere: Spark hands them over in the zone of the process."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: in_zone(part) for name, part in value.items()}
    return [in_zone(part) for part in value] if isinstance(value, list) else value


def row(number, n, day, how=None, /, **other):
    values = {one.name: getattr(one, how) if how else None for one in TYPES}
    return {"id": number, "n": n, "day": date.fromisoformat(day), **values, **other}


@pytest.fixture
def story_of(kind, session, make_world, request):
    """Return a maker of stories on a store; Delta's tables are such that another library can read them."""
    with said_of_vectors(session, "false") if kind == "delta" else nullcontext():
        yield lambda pattern: Story(make_world(), pattern)


def merged(there, rows, keys, *, insert_only=False):
    """Merge rows into a model of the table: a dictionary by key."""
    for one in rows:
        key = tuple(told(one[name]) for name in keys)
        if not (insert_only and key in there):
            there[key] = one
    return there


def tell_by_key(story, name, keys, first, second, corrected, again):
    """Two slots, a correction of the newer one and then of the older one, each compared with a model."""
    replays, insert_only = name in ("versions", "history"), name == "dedup"
    story.run(FIRST, first)
    model = merged({}, first, keys)
    story.check(model.values())
    story.run(NEXT, second)
    before = dict(model)
    model = merged(model, second, keys, insert_only=insert_only)
    story.check(model.values())
    story.run(NEXT, corrected)
    model = merged(before if replays else model, corrected, keys, insert_only=insert_only)
    story.check(model.values())
    story.run(FIRST, again)
    model = merged({} if replays else model, again, keys, insert_only=insert_only)
    if replays:
        model = merged(model, corrected, keys)
    story.check(model.values())


@pytest.mark.parametrize("name", [pytest.param(one, marks=needing(make(["id"]))) for one, make in BY_KEY.items()])
def test_every_type_is_a_value_of_a_row_that_is_found_by_its_key(story_of, name):
    story = story_of(BY_KEY[name](["id"]))
    corrected = [row(2, 3, NEXT), row(4, 3, NEXT, "one"), row(6, 3, NEXT, "other")]
    tell_by_key(
        story,
        name,
        ["id"],
        [row(1, 1, FIRST, "one"), row(2, 1, FIRST, "other"), row(3, 1, FIRST)],
        [row(2, 2, NEXT, "one"), row(4, 2, NEXT, "other")],
        corrected,
        [row(1, 4, FIRST, "other"), row(3, 4, FIRST, "one")],
    )
    if name == "merger":
        respelled = [corrected[0], row(4, 3, NEXT, "respelled"), corrected[2]]
        assert story.run(NEXT, respelled).notes[0] == "inserted 0, updated 0, deleted 0, left alone 3"


@pytest.mark.parametrize("name", [pytest.param(one, marks=needing(make(["id"]))) for one, make in BY_KEY.items()])
def test_every_type_that_can_be_compared_is_a_key(story_of, name):
    keys = [one.name for one in KEYS]
    story = story_of(BY_KEY[name](keys))

    def rows(day, n, how):
        """Return a row of the first values, and for each type one that differs from it there alone."""
        differ = [row(number, n, day, how, **{one.name: one.other}) for number, one in enumerate(KEYS, 1)]
        return [row(0, n, day, how), *differ]

    tell_by_key(
        story,
        name,
        keys,
        rows(FIRST, 1, "one"),
        rows(NEXT, 2, "respelled"),
        rows(NEXT, 3, "respelled")[:1],
        rows(FIRST, 4, "one"),
    )


@pytest.mark.spark
@pytest.mark.parametrize("name", ["merger", pytest.param("history", marks=pytest.mark.prove)])
def test_frames_bring_every_type_to_postgresql(spark, postgres_server, tmp_path, name):
    keys = [one.name for one in KEYS]
    world = World(tmp_path / "world", "postgres", spark, database=Database.made(postgres_server))
    first, second = [row(1, 1, FIRST, "one"), row(2, 1, FIRST, "other")], [row(1, 2, NEXT, "respelled")]
    tell_by_key(Story(world, BY_KEY[name](keys)), name, keys, first, second, second, first)


@pytest.mark.parametrize("name", [pytest.param(one, marks=needing(pattern)) for one, pattern in BY_SLOT.items()])
def test_every_type_is_a_value_of_a_row_that_is_replaced_with_its_slot(story_of, name):
    story = story_of(BY_SLOT[name])
    first = [row(1, 1, FIRST, "one"), row(2, 1, FIRST, "other"), row(3, 1, FIRST)]
    second = [row(1, 2, NEXT, "other"), row(2, 2, NEXT)]
    story.run(FIRST, first)
    story.check(first)
    there = [] if name in WHOLE else first
    story.run(NEXT, second)
    story.check([*there, *second])
    second = [row(1, 3, NEXT, "respelled"), row(3, 3, NEXT, "one")]
    story.run(NEXT, second)
    story.check([*there, *second])
    if name not in WHOLE:
        first = [row(2, 4, FIRST, "one")]
        story.run(FIRST, first)
        story.check([*first, *second])


@pytest.fixture
def spark_world(kind, spark, make_world, request, tmp_path):
    """Return a world on a store whose rows are frames."""
    if kind != "postgres":
        return make_world()
    return World(tmp_path / "world", kind, spark, database=Database.made(request.getfixturevalue("postgres_server")))


@pytest.mark.spark
@pytest.mark.stores("parquet", "delta", "postgres")
def test_what_cannot_be_kept_or_compared_is_refused_by_name_before_a_row_is_staged(spark_world):
    world = spark_world
    world.put(FIRST, ["a"])

    def refused(typed, value, pattern, said):
        world.pattern = pattern
        world.transform = lambda rows: rows.selectExpr("id", "day", f"{value} AS odd")
        with pytest.raises(Misuse) as caught:
            world.run(FIRST)
        lines = str(caught.value).splitlines()
        assert lines[0] == said
        assert (len(lines), "Nothing was published." in lines[1]) == (3, True), typed

    for typed, (value, path) in NOT_KEPT.items():
        said = f"The column {path!r} has the type {typed}, which no table keeps."
        refused(typed, value, twice.data_overwrite(slice="day"), said)
        refused(typed, value, twice.merger(keys=["id"]), said)
    for typed, (value, path) in INCOMPARABLE.items():
        said = f"'{path}' has the type {typed}, whose values cannot be compared."
        for pattern in (twice.merger(keys=["odd"]), twice.dedup_insert(keys=["odd", "id"])):
            refused(typed, value, pattern, f"The key {said}")
        refused(typed, value, twice.merger(keys=["id"], order="odd"), f"The order column {said}")
        refused(typed, value, twice.stateful_merger(keys=["odd"], form="history"), f"The key {said}")
    if world.database:
        assert world.database.tables() == []
    else:
        assert not list(world.folder.rglob("*.parquet"))
    world.pattern, world.transform = twice.data_overwrite(slice="day"), lambda rows: rows
    assert world.run(FIRST).state == "published"


@pytest.mark.stores("parquet", "delta")
def test_a_variant_is_unchanged_while_its_value_and_its_type_are(world):
    world.pattern = twice.merger(keys=["id"])
    changes = []
    for text in ('{"a": 1, "b": [null]}', '{"b": [null], "a": 1}', '{"a": 1.0, "b": [null]}', None, None):
        value = f"parse_json('{text}')" if text else "cast(NULL AS variant)"
        world.transform = lambda rows, value=value: rows.selectExpr("id", "day", f"{value} AS any")
        world.put(FIRST, ["a"])
        changes.append(world.run(FIRST, force=True).notes[0])
    inserted, updated = ("inserted 1, updated 0", "inserted 0, updated 1")
    unchanged = "inserted 0, updated 0"
    assert [one.partition(", deleted")[0] for one in changes] == [inserted, unchanged, updated, updated, unchanged]


@pytest.mark.stores("parquet")
def test_versions_that_differ_by_a_microsecond_differ(world):
    before, after = (
        world.spark.sql(f"SELECT 1 AS id, TIMESTAMP '2024-05-06 07:08:09.12345{n}' AS moment, map('a', NULL) AS tags")
        for n in (6, 7)
    )
    found = world.store.compare(before, after, ["id"], 5)
    assert (found.added, found.removed, found.changed) == (0, 0, 1)
    assert world.store.compare(before, before, ["id"], 5).changed == 0
