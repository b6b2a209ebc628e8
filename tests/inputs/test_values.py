"""A text in a file becomes the one value that it denotes, or is refused: on both ways of reading, whatever day it is."""

from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import twice
from twice.errors import BadFile, NotPublished
from twice.explain import explain
from twice.fingerprint import Place
from twice.runs import Slot, Target
from twice.sources.values import Values

pytestmark = pytest.mark.spark
SLOT = Slot("orders", Target("parquet", "lake/orders"), "")
WRONG = "wrong"
# By type and options: texts, and what Spark shows of the value that each denotes.
TEXTS = [
    (
        "int",
        {},
        {"": None, "1": "1", "+1": "1", "-0": "0", "007": "7"},
        [" 1", "1 ", "1.0", "1e3", "2147483648", "0x1", "1,000"],
    ),
    ("boolean", {}, {"": None, "true": "true", "FALSE": "false"}, ["yes", "1", "t", " true"]),
    (
        "double",
        {},
        {"1": "1.0", ".5": "0.5", "5.": "5.0", "1e3": "1000.0", "NaN": "NaN", "-Inf": "-Infinity", "0e-999": "0.0"},
        ["1d", "1f", "0x1p3", "1e999", "1e-999", "1,5", " 1", ".", "infinite"],
    ),
    ("float", {}, {"1.5": "1.5"}, ["1e39", "1e-50"]),
    ("double", {"nanValue": "n/a"}, {"n/a": "NaN", "1": "1.0"}, ["1d", "NA"]),
    (
        "decimal(5,2)",
        {},
        {"": None, "1.50": "1.50", "+1": "1.00", "1.2300": "1.23", "1e1": "10.00", "1.5E-1": "0.15", "0E-18": "0.00"},
        ["1,50", "1.234,50", "1.239", "1.5e-2", "12345", "999.999", ".", " 1", "1 ", "1d", "NaN"],
    ),
    (
        "decimal(38,18)",
        {},
        {
            "0.123456789012345678": "0.123456789012345678",
            "12345678901234567890.5": "12345678901234567890.500000000000000000",
        },
        ["0.1234567890123456789"],
    ),
    (
        "decimal(7,2)",
        {"locale": "de-DE"},
        {"1,50": "1.50", "1.234,50": "1234.50", "1234,5": "1234.50"},
        ["1,239", "1.50", "1.2345"],
    ),
    (
        "date",
        {},
        {"": None, "2024-02-29": "2024-02-29", "2024-9-1": "2024-09-01", "12024-01-01": "+12024-01-01"},
        [
            "2024",
            "2024-09",
            "2024-02-30",
            "2024-09-01 extra",
            "2024-09-01T00:00:00",
            " 2024-09-01",
            "2024-09-01 ",
            "24-09-01",
        ],
    ),
    (
        "date",
        {"dateFormat": "dd.MM.yyyy"},
        {"01.09.2024": "2024-09-01"},
        ["01.09.2024 extra", "2024-09-01", "31.02.2024"],
    ),
    (
        "timestamp",
        {},
        {
            "2024-09-01": "2024-09-01 00:00:00",
            "2024-09-01 10:00": "2024-09-01 10:00:00",
            "2024-09-01T10:00:00.123456Z": "2024-09-01 10:00:00.123456",
            "2024-09-01 10:00:00.1234560": "2024-09-01 10:00:00.123456",
            "2024-09-01 10:00:00+02": "2024-09-01 08:00:00",
            "2024-09-01 10:00:00 Europe/Berlin": "2024-09-01 08:00:00",
        },
        [
            "10:00",
            "T10:00",
            "2024",
            "2024-09-01 10",
            "2024-09-01 24:00",
            "2024-09-01 10:00:60",
            "2024-09-01 10:00 extra",
            "2024-09-01 10:00:00.1234567",
            "2024-09-01 10:00:00 CST",
            "1725148800",
        ],
    ),
    (
        "timestamp_ntz",
        {},
        {"2024-09-01T10:00:00.123456": "2024-09-01 10:00:00.123456"},
        ["10:00", "2024-09-01 10:00:00Z", "2024-09-01 10:00:00+02:00", "2024-09-01 10:00:00.1234567"],
    ),
    ("timestamp", {"timeZone": "Europe/Berlin"}, {"2024-09-01 10:00:00": "2024-09-01 08:00:00"}, ["10:00", "2024"]),
    (
        "timestamp",
        {"timestampFormat": "dd.MM.yyyy HH:mm"},
        {"01.09.2024 10:00": "2024-09-01 10:00:00"},
        ["10:00", "2024-09-01"],
    ),
    ("interval day to second", {}, {"": None, "1 10:00:00": "INTERVAL '1 10:00:00' DAY TO SECOND"}, ["x"]),
]


@pytest.mark.parametrize(
    ("type_", "options", "right", "wrong"), TEXTS, ids=[f"{one[0]} {one[1] or ''}" for one in TEXTS]
)
def test_a_text_becomes_the_one_value_that_it_denotes_or_is_wrong(spark, type_, options, right, wrong):
    values = Values("csv", {name.lower(): value for name, value in options.items()})
    wanted = StructType.fromDDL(f"v {type_}")[0].dataType
    text = F.col("text")
    shown = F.when(values.wrong(text, wanted), F.lit(WRONG)).otherwise(values.value(text, wanted).cast("string"))
    rows = spark.createDataFrame([(one,) for one in (None, *right, *wrong)], "text string")
    assert dict(rows.select("text", shown).collect()) == {None: None, **right, **dict.fromkeys(wrong, WRONG)}


@pytest.fixture
def read(spark, tmp_path):
    """Return a function that reads a line of a file as a source does."""

    def read(form, line, schema, **declared):
        (tmp_path / f"x.{form}").write_bytes(line)
        source = twice.files(f"x.{form}", schema=schema, header=False, **declared)
        place = Place(str(tmp_path), SLOT, "UTC", SimpleNamespace(recall=lambda _: {}, remember=len), lambda _: None)
        return [tuple(row) for row in source.resolve(place).read(SimpleNamespace(spark=spark)).collect()]

    return read


@pytest.mark.parametrize(
    ("form", "line", "schema", "words"),
    [
        ("csv", b'1,"1,50"\n', "id int, n decimal(5,2)", "x.csv: n = '1,50' is no decimal(5,2)"),
        ("csv", b"1,10:00\n", "id int, n timestamp", "x.csv: n = '10:00' is no timestamp"),
        ("json", b'{"n": 1.239}\n', "n decimal(5,2)", "x.json: n = '1.239' is no decimal(5,2)"),
        ("json", b'{"n": "10:00"}\n', "n timestamp", "x.json: n = '10:00' is no timestamp"),
        ("json", b'{"n": 1e999}\n', "n double", "x.json: n = '1e999' is no double"),
        ("json", b'{"n": {"a": [{"b": 1.239}]}}\n', "n struct<a: array<struct<b: decimal(5,2)>>>", "x.json: n = {"),
        ("json", b'{"n": {"a": 1.239}}\n', "n map<string, decimal(5,2)>", "x.json: n = {"),
    ],
)
def test_a_text_that_is_wrong_fails_the_read_with_its_file_and_column_or_is_set_aside(read, form, line, schema, words):
    with pytest.raises(Exception, match=r"cannot be read") as raised:
        read(form, line, schema)
    assert words in explain(raised.value)
    assert read(form, line, schema, max_quarantined=1) == []


@pytest.mark.parametrize("mode", [{}, {"max_quarantined": 0}], ids=["strict", "tolerant"])
def test_both_ways_of_reading_give_the_same_values(read, mode):
    line = b'{"a": 1.10, "b": {"c": [1.0, 2]}, "d": 0.12345678901234567890, "e": {"f": 12345678901234567890.5}, "g": "1.0"}\n'
    schema = "a string, b struct<c: array<string>>, d decimal(38,20), e map<string, decimal(38,1)>, g string"
    (found,) = read("json", line, schema, **mode)
    assert found[0] == "1.10"
    assert found[1].c == ["1.0", "2"]
    assert (str(found[2]), str(found[3]["f"]), found[4]) == ("0.12345678901234567890", "12345678901234567890.5", "1.0")
    assert read("csv", b'"a""b","",,"1"\n', "a string, b string, c string, d int", **mode) == [('a"b', "", None, 1)]
    backslashes = {"options": {"escape": "\\"}, **mode}
    assert read("csv", b'"a\\"b",x\n', "a string, b string", **backslashes) == [('a"b', "x")]


def test_broken_rows_are_kept_with_their_text_where_the_source_asks_for_that(read):
    found = read(
        "csv", b"1,1.239\nx,2\n3,4\n", "id int, n decimal(5,2), _corrupt_record string", options={"mode": "PERMISSIVE"}
    )
    assert found == [(1, None, "1,1.239"), (None, 2, "x,2"), (3, 4, None)]


NESTED = "id int, s struct<id: int, many: array<struct<a: int>>>, m map<string, struct<a: int>>, deep array<array<struct<a: int>>>"


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('{"ID": 1}', "ID"),
        ('{"s": {"ID": 1}}', "ID"),
        ('{"s": {"many": [null, {"a": 1}, {"A": 1}]}}', "A"),
        ('{"m": {"k": null, "l": {"A": 1}}}', "A"),
        ('{"deep": [null, [], [{"a": 1}, {"A": 1}]]}', "A"),
        ('{"id": 1, "Id": 2}', "Id"),
    ],
)
def test_a_key_in_another_case_is_refused_at_every_depth(read, line, key):
    words = f"has the key {key!r}, which the schema declares in another case"
    with pytest.raises(BadFile, match=words):
        read("json", line.encode(), NESTED)
    with pytest.raises(NotPublished, match=words):
        read("json", line.encode(), NESTED, max_quarantined=0)


def test_keys_that_are_not_declared_and_values_may_be_spelt_as_they_like(read):
    line = b'{"id": 1, "x": {"ID": 1}, "m": {"ID": {"a": 2}, "id": {"a": 3}}, "s": {"id": 4, "A": "ID"}, "y": "\\"ID\\": 1"}'
    plain, judged = (read("json", line, NESTED, **mode) for mode in ({}, {"max_quarantined": 0}))
    assert plain == judged
    assert (plain[0][0], plain[0][1].id, plain[0][2]["ID"].a) == (1, 4, 2)
