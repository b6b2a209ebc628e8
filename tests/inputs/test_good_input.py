"""Input that looks odd and is good: it must simply work."""

import bz2
import gzip
import json
from dataclasses import replace
from datetime import date

import pyarrow as pa
import pytest
from pyarrow import parquet

import twice
from twice.errors import BadFile
from twice.fingerprint import Place
from twice.runs import Slot, Target
from twice.sources.listing import is_hidden, spark_path
from twice.sources.loading import load_just
from twice.sources.marking import mark_files
from worlds import World

FIRST, SECOND = "2024-09-20", "2024-09-21"
SCHEMA = "id string, day date"
BOTH = pytest.mark.stores("parquet", "delta")

NAMES = [
    "two words.csv",
    "a{b}.csv",
    "{execution_date}.csv",
    "a%2Fb.csv",
    "100%.csv",
    "it's.csv",
    'say "hi".csv',
    "new\nline.csv",
    "tab\tbed.csv",
    "😀.csv",
    "ü.csv",
    "star*.csv",
    "what?.csv",
    "back\\slash.csv",
    "caret^.csv",
    "hash#1.csv",
    "a,b;c&d=e+f~.csv",
    "`tick`$HOME.csv",
    "x" * 251 + ".csv",
    " leading and trailing .csv",
    "data[1].csv",
]


def csv_of(ids, day=SECOND):
    return "".join(f"{line}\n" for line in ["id,day", *(f"{one},{day}" for one in ids)])


def parquet_of(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path)


class Reader:
    """Reads the rows of a source in a folder, as a run of the second day would."""

    def __init__(self, spark, folder):
        self.spark, self.folder = spark, folder

    def recall(self, keys):
        return {}

    def remember(self, hashes):
        pass

    def chosen(self, pattern, part=None, **given):
        slot = Slot("out", Target("parquet", "lake/out"), part or twice.slot("out", at=SECOND).on(None).part)
        place = Place(str(self.folder), slot, "UTC", self, None)
        return twice.files(pattern, **{"schema": SCHEMA, **given}).resolve(place)

    def ids(self, pattern, part=None, **given):
        return sorted(row["id"] for row in self.chosen(pattern, part, **given).read(self).collect())

    def put(self, name, content):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def reader(spark, tmp_path):
    return Reader(spark, tmp_path)


# ------------------------------------------------------------------ names


@pytest.mark.spark
@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_an_odd_name_is_read_and_no_other(reader, name):
    reader.put(f"landing/{name}", csv_of(["right"]))
    reader.put("landing/other.csv", csv_of(["wrong"]))
    assert reader.ids("landing/{key}", part=name) == ["right"]


@pytest.mark.spark
def test_files_of_odd_names_are_all_found_by_a_wildcard_once_each(reader):
    for number, name in enumerate(NAMES):
        reader.put(f"landing/{name}", csv_of([f"{number:02}"]))
    assert reader.ids("landing/*.csv") == [f"{number:02}" for number in range(len(NAMES))]


@pytest.mark.spark
def test_folders_of_odd_names_are_walked(reader):
    folders = ["a b", "c{d}", "e%2F", "f[1]", "g\nh", "😀", "day=2024-09-21", "i*"]
    for number, folder in enumerate(folders):
        reader.put(f"landing/{folder}/x.csv", csv_of([str(number)]))
    assert reader.ids("landing/*/x.csv") == list("01234567")
    assert reader.ids("landing/**/*.csv") == list("01234567")


@pytest.mark.spark
def test_brackets_name_the_very_file_or_stand_for_a_choice(reader):
    reader.put("landing/data1.csv", csv_of(["plain"]))
    assert reader.ids("landing/data[1].csv") == ["plain"]
    reader.put("landing/data[1].csv", csv_of(["brackets"]))
    assert reader.ids("landing/data[1].csv") == ["brackets"]
    assert reader.ids("landing/data1.csv") == ["plain"]
    assert reader.ids("landing/data*.csv") == ["brackets", "plain"]
    assert [mark.path for mark in reader.chosen("landing/data[[]1].csv").marks] == ["landing/data[1].csv"]


@pytest.mark.spark
def test_a_wildcard_leaves_out_what_writers_leave_behind(reader):
    for name in ("good.csv", "_SUCCESS", "_temporary.csv", ".good.csv.crc", ".hidden.csv"):
        reader.put(f"landing/{name}", csv_of([name]))
    assert reader.ids("landing/*") == ["good.csv"]


@pytest.mark.spark
def test_a_link_is_followed(reader):
    reader.put("kept/x.csv", csv_of(["a"]))
    (reader.folder / "landing").mkdir()
    (reader.folder / "landing/x.csv").symlink_to("../kept/x.csv")
    assert reader.ids("landing/*.csv") == ["a"]


# ------------------------------------------------------------------ content


CONTENTS = {
    "a byte order mark": ("x.csv", b"\xef\xbb\xbf" + csv_of(["a"]).encode(), {}, ["a"]),
    "line ends of Windows": ("x.csv", csv_of(["a", "b"]).replace("\n", "\r\n"), {}, ["a", "b"]),
    "no last line end": ("x.csv", csv_of(["a", "b"]).rstrip("\n"), {}, ["a", "b"]),
    "a header and no rows": ("x.csv", "id,day\n", {}, []),
    "a comma in quotes": ("x.csv", f'id,day\n"a,b",{SECOND}\n', {}, ["a,b"]),
    "a quoted header": ("x.csv", f'"id","day"\na,{SECOND}\n', {}, ["a"]),
    "no header": ("x.csv", f"a,{SECOND}\n", {"header": False}, ["a"]),
    "tabs": ("x.tsv", csv_of(["a"]).replace(",", "\t"), {"options": {"sep": "\t"}}, ["a"]),
    "semicolons by Spark's other name": (
        "x.csv",
        csv_of(["a"]).replace(",", ";"),
        {"options": {"delimiter": ";"}},
        ["a"],
    ),
    "an option in other case": ("x.csv", csv_of(["a"]).replace(",", ";"), {"options": {"SEP": ";"}}, ["a"]),
    "another encoding": ("x.csv", csv_of(["né"]).encode("latin-1"), {"options": {"encoding": "ISO-8859-1"}}, ["né"]),
    "two lines in a field": (
        "x.csv",
        f'id,day\n"a\nb",{SECOND}\n',
        {"options": {"multiLine": "true"}},
        ["a\nb"],
    ),
    "an empty first line": ("x.csv", "\n" + csv_of(["a"]), {}, ["a"]),
    "a remark above the header": ("x.csv", "# made today\n" + csv_of(["a"]), {"options": {"comment": "#"}}, ["a"]),
    "JSON with braces in a text": ("x.jsonl", json.dumps({"id": "a} b {c", "day": SECOND}), {}, ["a} b {c"]),
    "a very long field": ("x.csv", csv_of(["x" * 200_000]), {}, ["x" * 200_000]),
    "gzip": ("x.csv.gz", gzip.compress(csv_of(["a"]).encode()), {}, ["a"]),
    "gzip in two parts": (
        "x.csv.gz",
        gzip.compress(csv_of(["a"]).encode()) + gzip.compress(f"b,{SECOND}\n".encode()),
        {},
        ["a", "b"],
    ),
    "bzip2": ("x.csv.bz2", bz2.compress(csv_of(["a"]).encode()), {}, ["a"]),
    "JSON": ("x.jsonl", json.dumps({"id": "ü😀", "day": SECOND}), {}, ["ü😀"]),
    "JSON with more than was asked for": ("x.json", json.dumps({"id": "a", "day": SECOND, "n": 1}), {}, ["a"]),
    "JSON in bzip2": ("x.jsonl.bz2", bz2.compress(json.dumps({"id": "a", "day": SECOND}).encode()), {}, ["a"]),
    "an empty file of JSON": ("x.jsonl", "", {}, []),
    "an ending of its own": ("x.data", csv_of(["a"]), {"format": "csv"}, ["a"]),
    "an ending in other case": ("x.CSV", csv_of(["a"]), {}, ["a"]),
}


@pytest.mark.spark
@pytest.mark.parametrize(("name", "content", "given", "ids"), CONTENTS.values(), ids=CONTENTS.keys())
def test_content_that_looks_odd_is_read(reader, name, content, given, ids):
    reader.put(f"landing/{name}", content)
    assert reader.ids(f"landing/{name}", **given) == ids


@pytest.mark.spark
def test_parquet_columns_go_by_name_and_no_schema_is_needed(reader):
    parquet_of(reader.folder / "landing/x.parquet", day=[date(2024, 9, 21)], id=["a"])
    assert reader.ids("landing/*.parquet", schema=None) == ["a"]
    assert reader.ids("landing/*.parquet") == ["a"]


@pytest.mark.spark
def test_folders_that_look_like_partitions_add_no_columns(reader):
    parquet_of(reader.folder / "landing/id=wrong/x.parquet", id=["right"], day=[date(2024, 9, 21)])
    assert reader.ids("landing/**/*.parquet", schema=None) == ["right"]


@pytest.mark.spark
def test_a_broken_row_is_kept_where_a_column_for_it_was_declared(reader):
    reader.put("landing/x.jsonl", json.dumps({"id": "a", "day": SECOND}) + "\n{broken\n")
    chosen = reader.chosen(
        "landing/x.jsonl", schema=f"{SCHEMA}, _corrupt_record string", options={"mode": "PERMISSIVE"}
    )
    rows = chosen.read(reader).cache()
    assert sorted((row["id"] or "", row["_corrupt_record"] or "") for row in rows.collect()) == [
        ("", "{broken"),
        ("a", ""),
    ]


def test_the_fingerprint_goes_by_content_and_place_and_not_by_time(tmp_path):
    reader = Reader(None, tmp_path)
    reader.put("landing/x.csv", csv_of(["a"]))
    before = reader.chosen("landing/x.csv").facts
    reader.put("landing/x.csv", csv_of(["a"]))
    assert reader.chosen("landing/x.csv").facts == before
    reader.put("landing/x.csv", csv_of(["b"]))
    assert reader.chosen("landing/x.csv").facts != before


# ------------------------------------------------------------------ published


@BOTH
def test_no_file_may_mean_no_rows(world):
    source = twice.files("landing/{execution_date}/*.jsonl", schema=SCHEMA, missing="empty")
    pipeline = replace(world.pipeline, sources={"rows": source})
    outcome = twice.run(pipeline, at=SECOND, project=world.project)
    assert (outcome.state, outcome.rows) == ("published", 0)
    assert twice.run(pipeline, at=SECOND, project=world.project).state == "skipped"
    folder = world.folder / f"landing/{SECOND}"
    folder.mkdir()
    (folder / "x.jsonl").write_text(json.dumps({"id": "a", "day": SECOND}))
    assert twice.run(pipeline, at=SECOND, project=world.project).rows == 1
    (folder / "x.jsonl").unlink()
    assert twice.run(pipeline, at=SECOND, project=world.project).state == "skipped"
    assert twice.run(pipeline, at=SECOND, force=True, project=world.project).rows == 0
    assert world.rows() == []


@BOTH
@pytest.mark.parametrize("target", ["lake/two words", "lake/100%2F, ü 😀 it's"])
def test_a_target_may_have_an_odd_name(kind, spark, tmp_path, target):
    world = World(tmp_path / "it's a world%20", kind, spark, target=target)
    world.put(FIRST, ["a"])
    world.put(SECOND, ["b"])
    assert [world.run(day).state for day in (FIRST, SECOND)] == ["published", "published"]
    assert world.run(FIRST).state == "skipped"
    world.put(FIRST, ["c"])
    assert world.run(FIRST).generation == 2
    assert world.rows() == [("b", SECOND), ("c", FIRST)]


KEYS = ['it\'s "so"', "back\\slash", "a/b%2F", "new\nline 😀", "{x} [1]*=", "1", "01"]


@BOTH
def test_a_key_may_hold_anything(kind, spark, tmp_path):
    world = World(tmp_path / "world", kind, spark)
    (world.folder / "landing/x.jsonl").write_text(json.dumps({"id": "row", "day": SECOND}))

    @twice.pipeline(
        source=twice.files("landing/x.jsonl", schema=SCHEMA),
        target=f"{kind}:lake/out",
        pattern=twice.data_overwrite(slice="batch"),
    )
    def orders(rows, run):
        from pyspark.sql import functions as F

        return rows.withColumn("batch", F.lit(run.key))

    for key in KEYS:
        assert twice.run(orders, key=key, project=world.project).state == "published"
    assert all(twice.run(orders, key=key, project=world.project).state == "skipped" for key in KEYS)
    twice.run(orders, key=KEYS[0], project=world.project, force=True)
    assert sorted(row["batch"] for row in world.store.read("lake/out").collect()) == sorted(KEYS)


@BOTH
def test_partition_values_come_back_as_they_went_in(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["id"]))
    ids = ["a/b", "x=y", "100%", "%2F", "01", "1", "..", "new\nline", "it's", "😀", " ", "NULL"]
    world.put(SECOND, ids)
    world.run(SECOND)
    assert sorted(one for one, _ in world.rows()) == sorted(ids)
    world.put(SECOND, ids[:3])
    world.run(SECOND)
    assert sorted(one for one, _ in world.rows()) == sorted(ids[:3])


@BOTH
def test_an_empty_partition_value_is_not_turned_into_null(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["id"]))
    world.put(SECOND, ["", "a"])
    if world.kind == "delta":
        with pytest.raises(twice.NotPublished, match="Delta would read it back as NULL"):
            world.run(SECOND)
        return
    world.run(SECOND)
    assert {row["id"] for row in world.store.read(world.target).collect()} == {"", "a"}


HIDDEN_OR_NOT = (
    *("a.json", "_a.json", ".a.json", "a.json._COPYING_", "a._COPYING_.json", "._COPYING_", "_a=1.json", ".a=1.json"),
    *(
        "_a=1.json._COPYING_",
        "_metadata",
        "_common_metadata",
        "_metadata=1",
        "=_",
        "a_",
        "a.",
        "_=",
        "_",
        "._a.json.crc",
    ),
)


@pytest.mark.spark
def test_a_name_is_hidden_if_and_only_if_spark_passes_over_it(tmp_path, spark):
    """Of a folder, and of files that are named one by one; what is passed over nevertheless fails the read."""
    for name in HIDDEN_OR_NOT:
        (tmp_path / name).write_text(name)
    reader = spark.read.format("text").option("recursiveFileLookup", "true")
    read = {row.value for row in reader.load(str(tmp_path)).collect()}
    assert read == {name for name in HIDDEN_OR_NOT if not is_hidden(name)}
    one_by_one = reader.load([spark_path(str(tmp_path / name)) for name in HIDDEN_OR_NOT])
    assert {row.value for row in one_by_one.collect()} == read

    marks = tuple(mark_files(str(tmp_path), sorted(read), Forgetful()))
    frame = load_just(reader, marks)
    assert {row.value for row in frame.cache().collect()} == read
    try:
        assert load_just(reader, marks).count() == len(read), "what is cached names no files, and is there all the same"
    finally:
        frame.unpersist()
    with pytest.raises(BadFile, match="'=_' is passed over by Spark, which found 4 of 8 files"):
        load_just(reader.option("pathGlobFilter", "a*"), marks)


class Forgetful:
    """No hash is known."""

    def recall(self, keys):
        return {}

    def remember(self, hashes):
        pass
