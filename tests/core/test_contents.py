"""What would Spark misread in a file without a word?"""

import gzip
from dataclasses import replace

import pytest
from samples import slot_of

import twice
from bad_inputs import BAD_FILES, COLUMNS, GOOD, GOOD_FILE, SCHEMA, parquet_file
from twice.errors import Misuse, TwiceError
from twice.fingerprint import Place
from twice.sources.contents import bad_file, format_of


class Memory:
    """Hashes that nobody remembers."""

    def recall(self, keys):
        return {}

    def remember(self, hashes):
        pass


def chosen(root, pattern, **declared):
    source = twice.files(pattern, **{"schema": SCHEMA, **declared})
    return source.resolve(Place(str(root), slot_of("2024-09-20"), "UTC", Memory(), lambda _: None))


@pytest.fixture(autouse=True)
def _inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("case", BAD_FILES, ids=lambda case: case.what)
def test_a_bad_file_is_told_as_data(case, tmp_path):
    name = case.put(tmp_path)
    source = twice.files(name, schema=SCHEMA, max_quarantined=1)
    assert case.words in (bad_file(name, str(tmp_path), source, format_of(name)) or "nothing")


@pytest.mark.parametrize("case", BAD_FILES, ids=lambda case: case.what)
def test_a_bad_file_fails_the_run_by_its_name(case, tmp_path):
    name = case.put(tmp_path)
    with pytest.raises(TwiceError) as raised:
        chosen(tmp_path, name, max_quarantined=1).counts()
    assert name in raised.value.what
    assert case.words.removeprefix("is ") in raised.value.what


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", GOOD_FILE),
        ("x.csv.gz", gzip.compress(GOOD_FILE, mtime=0)),
        ("x.csv.gz", gzip.compress(f"{COLUMNS}\n".encode(), mtime=0) + gzip.compress(f"{GOOD}\n".encode(), mtime=0)),
        ("x.csv", b"\xef\xbb\xbf" + GOOD_FILE.replace(b"\n", b"\r\n")),
        ("x.json", b'{"id": 1}'),
        ("x.parquet", lambda path: parquet_file(path, 1)),
    ],
)
def test_a_good_file_is_told_to_be_good_and_its_rows_are_counted(name, content, tmp_path):
    if callable(content):
        content(tmp_path / name)
    else:
        (tmp_path / name).write_bytes(content)
    found = chosen(tmp_path, name)
    assert bad_file(name, str(tmp_path), found.source, found.format) is None
    assert found.counts() == {name: 1}


def test_a_limit_in_bytes_takes_the_place_of_the_others(tmp_path):
    bomb = next(case for case in BAD_FILES if case.what == "gzip bomb")
    name = bomb.put(tmp_path)
    large = twice.files(name, schema=SCHEMA, max_expanded="1 GiB")
    assert bad_file(name, str(tmp_path), large, "csv") is None
    small = replace(large, max_expanded=10)
    assert "unpacks to more than 10 bytes" in (bad_file(name, str(tmp_path), small, "csv") or "")


@pytest.mark.parametrize("size", ["much", "5 XB", -1, 0, True, 1.5])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(Misuse, match="is no size"):
        twice.files("x.csv", max_expanded=size)


def test_rows_are_not_counted_where_only_spark_can_tell(tmp_path):
    (tmp_path / "x.csv").write_bytes(GOOD_FILE)
    assert chosen(tmp_path, "x.csv", options={"multiLine": "true"}).counts() == {"x.csv": None}
    (tmp_path / "y.csv").write_bytes(GOOD_FILE.decode().encode("utf-16"))
    assert chosen(tmp_path, "y.csv", options={"encoding": "utf-16"}).counts() == {"y.csv": None}


def test_bytes_that_are_not_utf8_are_rows_to_be_set_aside_only_where_some_may_be(tmp_path):
    (tmp_path / "x.csv").write_bytes(GOOD_FILE + b"2,\xff,1,2024-09-20\n")
    assert chosen(tmp_path, "x.csv", max_quarantined=1).counts() == {"x.csv": 2}
    with pytest.raises(TwiceError, match=r"'x\.csv' holds bytes that are not UTF-8"):
        chosen(tmp_path, "x.csv").counts()


# ------------------------------------------------------------------ types of a schema


@pytest.mark.parametrize(
    "schema",
    [
        "id BIGINT NOT NULL, price decimal(10, 2), `odd name` string COMMENT 'a, b', tags array<string>",
        "id: long, s struct<a: int, b: string>, m map<string, int>, t timestamp_ntz, i interval day to second",
        "`a``b` string, v variant, x binary,",
    ],
)
def test_types_that_spark_knows_are_let_through(schema):
    assert twice.files("a.json", schema=schema).schema == schema


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("id int, name strng", r"'name' of the schema has the type 'strng'.\n  Did you mean 'string'"),
        ("`odd name` integr", r"'odd name' .* 'integr'.\n  Did you mean 'integer'"),
        ("id", r"'id' of the schema has no type"),
        ("id int, name: 7", r"'name' .* the type '7'"),
        ("id int, name VARCHAR(3)", r"'name' .* the type varchar, which Spark reads from no file(.|\n)*Write string"),
    ],
)
def test_a_type_that_spark_does_not_know_is_refused_where_it_is_declared(schema, words):
    with pytest.raises(twice.Misuse, match=words):
        twice.files("a.csv", schema=schema)


@pytest.mark.parametrize(
    ("column", "said"),
    [("tags array<map<string, int>>", "map"), ("tags: VARIANT NOT NULL", "variant")],
)
def test_a_key_that_cannot_be_compared_is_refused_where_it_is_declared(column, said):
    def declared(pattern, transform):
        source = twice.files("a.json", schema=f"id int, {column}")
        return twice.pipeline(name="a", source=source, target="parquet:lake/a", pattern=pattern)(transform)

    for pattern, role in (
        (twice.merger(keys=["id", "tags"]), "key"),
        (twice.dedup_insert(keys=["tags"]), "key"),
        (twice.stateful_merger(keys=["id"], order="tags"), "order column"),
    ):
        with pytest.raises(
            twice.Misuse, match=f"The {role} 'tags' has the type {said}, whose values cannot be compared"
        ):
            declared(pattern, lambda rows: rows)
    declared(twice.merger(keys=["id"]), lambda rows: rows)
    declared(twice.merger(keys=["tags"]), lambda rows: rows.withColumn("tags", rows["id"]))
