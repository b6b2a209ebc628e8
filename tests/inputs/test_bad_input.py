"""Bad input, each with a clear message, the right kind of error, and the target as it was."""

import gzip
import json
import os
import random
import re
import resource
import socket
import sqlite3
import sys
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import twice
from twice.cli import main
from twice.errors import Misuse, NotPublished, OutcomeUnknown, TwiceError
from twice.faults import armed
from twice.ledger.schema import VERSION
from worlds import World

FIRST, SECOND = "2024-09-20", "2024-09-21"
SCHEMA = "id string, n int, day date"
ROWS = [("a", 1), ("b", 2)]
BOTH = pytest.mark.stores("parquet", "delta")
ONE = pytest.mark.stores("parquet")


def csv_of(rows, day, header="id,n,day"):
    return "".join(f"{line}\n" for line in [header, *(f"{one},{n},{day}" for one, n in rows)])


def json_of(rows, day):
    return "".join(json.dumps({"id": one, "n": n, "day": day}) + "\n" for one, n in rows)


def parquet_of(path, rows, day, **columns):
    table = {"id": [one for one, _ in rows], "n": pa.array([n for _, n in rows], pa.int32())}
    days = pa.array([datetime.fromisoformat(day).date()] * len(rows))
    table = {**table, "day": days, **columns}
    parquet.write_table(pa.table({name: values for name, values in table.items() if values is not None}), path)


def reading(pattern, **given):
    """Return the change of a pipeline that makes it read these files."""
    return {"sources": {"rows": twice.files(pattern, **{"schema": SCHEMA, **given})}}


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture(scope="module")
def template(spark, tmp_path_factory):
    """Return a maker of worlds with one published day, made once a store."""
    made = {}

    def of(kind):
        if kind not in made:
            world = World(tmp_path_factory.mktemp(kind) / "world", kind, spark)
            (world.folder / f"landing/{FIRST}.csv").write_text(csv_of(ROWS, FIRST))
            pipeline = replace(world.pipeline, **reading("landing/{execution_date}.csv"))
            assert twice.run(pipeline, at=FIRST, project=world.project).rows == 2
            made[kind] = world
        return made[kind]

    return of


@pytest.fixture
def filled(kind, template, tmp_path):
    """A world of the test's own with one published day."""
    return template(kind).copied(tmp_path / "world")


def bytes_of(world):
    """Return all files of the target with their content."""
    table = world.folder / world.target
    return {str(path): path.read_bytes() for path in sorted(table.rglob("*")) if path.is_file()}


def seen(world):
    """Return what a look at the target tells: its version and its receipts."""
    sight = world.sight()
    return sight.version, dict(sight.receipts), dict(sight.ended)


def refused(world, error, words, at=SECOND, **changed):
    """Run the second day, see it refused in these words, and see the target as it was."""
    before, files = seen(world), bytes_of(world)
    with pytest.raises(error, match=words) as raised:
        twice.run(replace(world.pipeline, **changed), at=at, project=world.project)
    world.reopen()
    after = bytes_of(world)
    assert (seen(world), {path: after.get(path) for path in files}) == (before, files)
    # A task that ends after its job was given up may leave a file of data, which no version names.
    assert all("_log" not in path and "_twice" not in path for path in after.keys() - files)
    assert raised.value.exit_code == error.exit_code
    return raised.value


def rows_of(world):
    found = world.store.read(world.target).collect()
    return sorted((row["id"], row["n"], row["day"].isoformat()) for row in found)


def command(world, *words):
    """Call the command line on a world; its lake must be as it was, to the byte."""
    before = bytes_of(world)
    try:
        return main([*words, "--project", str(world.folder)])
    except SystemExit as stop:
        return stop.code or 0
    finally:
        assert bytes_of(world) == before


# ------------------------------------------------------------------ files that are refused before they are read


@dataclass(frozen=True)
class Case:
    """One bad file: its name, its content, and the words that must be said about it."""

    name: str
    content: Any
    words: str
    error: type[TwiceError] = NotPublished

    def put(self, folder: Path) -> str:
        file = folder / self.name
        if callable(self.content):
            self.content(file)
        else:
            file.write_bytes(self.content.encode() if isinstance(self.content, str) else self.content)
        return self.name


def noise(count):
    return random.Random(7).randbytes(count)


def cut_parquet(file):
    parquet_of(file, [(str(n), n) for n in range(500)], SECOND)
    file.write_bytes(file.read_bytes()[:-40])


def zipped(text, keep=1.0):
    packed = gzip.compress(text.encode())
    return packed[: int(len(packed) * keep)]


NOT_READ = {
    "a zero-byte Parquet file": Case("x.parquet", b"", "'landing/x.parquet' is empty, which is not a Parquet file"),
    "a truncated Parquet file": Case("x.parquet", cut_parquet, "'landing/x.parquet' is not a whole Parquet file"),
    "a short Parquet file": Case("x.parquet", b"PAR1PAR1", "is not a whole Parquet file"),
    "a CSV called Parquet": Case("x.parquet", csv_of(ROWS, SECOND), "is not a whole Parquet file"),
    "a header in another order": Case(
        "x.csv", "n,id,day\n1,x,2024-09-21\n", "in another order: n, id, day instead of id, n, day"
    ),
    "a header that lacks a column": Case("x.csv", "id,day\nx,2024-09-21\n", "another header .* it lacks 'n'"),
    "a header with one more column": Case("x.csv", "id,n,day,more\n", "another header .* it has 'more'"),
    "a header with another name": Case("x.csv", "id,number,day\n", "it lacks 'n'; has 'number'"),
    "a header in other case": Case("x.csv", "ID,n,day\n", "it lacks 'id'; has 'ID'"),
    "a column twice in the header": Case("x.csv", "id,n,n,day\n", "'landing/x.csv'"),
    "no header": Case("x.csv", "x,1,2024-09-21\n", "another header than the schema"),
    "bytes that are no text": Case("x.csv", noise(5000), "'landing/x.csv' cannot be read as CSV"),
    "a zero-byte gzip": Case("x.csv.gz", b"", "'landing/x.csv.gz' is empty, which is not a gzip file"),
    "a zero-byte gzip of JSON": Case("x.jsonl.gz", b"", "'landing/x.jsonl.gz' is empty, which is not a gzip file"),
    "a gzip cut in its first bytes": Case("x.csv.gz", zipped(csv_of(ROWS, SECOND))[:12], "cannot be read as CSV"),
    "a gzip that is none": Case("x.csv.gz", csv_of(ROWS, SECOND), "cannot be read as CSV: Not a gzipped file"),
    "a folder in place of a file": Case("x.csv", Path.mkdir, "'landing/x.csv' is a folder", Misuse),
    "a link that leads nowhere": Case(
        "x.csv", lambda file: file.symlink_to("gone.csv"), "'landing/x.csv' cannot be looked at: No such file"
    ),
    "a link to itself": Case("x.csv", lambda file: file.symlink_to("x.csv"), "cannot be looked at: Too many levels"),
    "a pipe": Case("x.csv", os.mkfifo, "'landing/x.csv' is not a regular file"),
    "a device": Case("x.csv", lambda file: file.symlink_to("/dev/null"), "is not a regular file"),
    "a file that cannot be read": Case(
        "x.csv", lambda file: file.symlink_to("/proc/self/mem"), "'landing/x.csv' cannot be read: Input/output error"
    ),
    "a name that Spark passes over": Case("_x.csv", csv_of(ROWS, SECOND), "begins with '_' or '.'"),
    "a hidden name": Case(".x.csv", csv_of(ROWS, SECOND), "begins with '_' or '.'"),
    "a name of a copy that is not whole": Case("x.csv._COPYING_", csv_of(ROWS, SECOND), "ends with '._COPYING_'"),
    "a name with a colon": Case("a:b.csv", csv_of(ROWS, SECOND), "has a colon in its name"),
    "an ending that tells nothing": Case("x.data", csv_of(ROWS, SECOND), "format of .* cannot be told", Misuse),
}


@BOTH
@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", NOT_READ.values(), ids=NOT_READ.keys())
def test_a_file_that_would_be_misread_is_refused_by_name(filled, case):
    name = case.put(filled.folder / "landing")
    refused(filled, case.error, case.words, **reading(f"landing/{name}"))


@ONE
@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", ["a link that leads nowhere", "a pipe", "a folder in place of a file"])
def test_a_wildcard_does_not_pass_over_what_cannot_be_read(filled, case):
    folder = filled.folder / "landing/many"
    folder.mkdir()
    NOT_READ[case].put(folder)
    (folder / "good.csv").write_text(csv_of(ROWS, SECOND))
    refused(filled, NOT_READ[case].error, r"'landing/many/x\.csv'", **reading("landing/many/*"))


@ONE
def test_a_name_that_is_no_text_is_refused(filled):
    folder = filled.folder / "landing/many"
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/x\xff.csv")).write_text(csv_of(ROWS, SECOND))
    refused(filled, NotPublished, "landing/many/x", **reading("landing/many/*.csv"))


@ONE
@pytest.mark.timeout(60)
def test_a_socket_is_no_file(filled, monkeypatch):
    monkeypatch.chdir(filled.folder / "landing")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("x.csv")
        refused(filled, NotPublished, "is not a regular file", **reading("landing/x.csv"))


@BOTH
@pytest.mark.parametrize("pattern", ["landing/many/*.csv", "landing/many/{execution_date}.csv", "nowhere/**/*.csv"])
def test_an_empty_input_folder_is_told_with_the_pattern_and_a_way_out(filled, pattern):
    (filled.folder / "landing/many").mkdir()
    said = refused(filled, NotPublished, "No file matches", **reading(pattern))
    assert pattern.replace("{execution_date}", SECOND) in said.what
    assert "missing='empty'" in said.fix


@ONE
def test_one_bad_file_among_good_ones_is_named(filled):
    for number in range(5):
        parquet_of(filled.folder / f"landing/{number}.parquet", [(str(number), number)], SECOND)
    (filled.folder / "landing/3.parquet").write_bytes(b"")
    refused(filled, NotPublished, r"'landing/3\.parquet' is empty", **reading("landing/*.parquet"))


@ONE
def test_files_of_several_formats_are_not_mixed(filled):
    (filled.folder / "landing/x.jsonl").write_text(json_of(ROWS, SECOND))
    refused(filled, Misuse, "several formats: csv, json", **reading("landing/*"))


# ------------------------------------------------------------------ rows that fail the read


def far_into_the_file(bad):
    """Return a CSV whose bad line comes long after what a look at its beginning could see."""
    good = csv_of([(f"row-{n}", n) for n in range(3000)], SECOND).encode()
    return good + (bad if isinstance(bad, bytes) else bad.encode()) + b"\n"


def good_ends_bad_middle(file):
    parquet_of(file, [(str(n), n) for n in range(500)], SECOND)
    whole = bytearray(file.read_bytes())
    whole[20 : len(whole) // 2] = noise(len(whole) // 2 - 20)
    file.write_bytes(bytes(whole))


def bad_checksum(file):
    packed = bytearray(gzip.compress(csv_of([(f"row-{n}", n) for n in range(3000)], SECOND).encode()))
    packed[-8] ^= 0xFF
    file.write_bytes(bytes(packed))


LONG = csv_of([(noise(9).hex(), n) for n in range(20_000)], SECOND)

READ = {
    "a truncated gzip": Case("x.csv.gz", zipped(LONG, 0.5), r"x\.csv\.gz"),
    "a short truncated gzip": Case("x.csv.gz", zipped(csv_of(ROWS, SECOND), 0.7), r"x\.csv\.gz"),
    "a truncated gzip of JSON": Case("x.jsonl.gz", zipped(json_of(ROWS * 50, SECOND), 0.5), r"x\.jsonl\.gz"),
    "too few fields": Case("x.csv", "id,n,day\nx,1\n", r"(?i)x\.csv.*malformed"),
    "too many fields": Case("x.csv", "id,n,day\nx,1,2024-09-21,more\n", r"(?i)x\.csv.*malformed"),
    "a word for a number": Case("x.csv", "id,n,day\nx,one,2024-09-21\n", r"(?i)x\.csv.*(malformed|one)"),
    "a number too large": Case("x.csv", "id,n,day\nx,99999999999,2024-09-21\n", r"(?i)x\.csv"),
    "a day that is none": Case("x.csv", "id,n,day\nx,1,2024-02-30\n", r"(?i)x\.csv"),
    "a quote never closed": Case("x.csv", 'id,n,day\n"x,1,2024-09-21\n', r"(?i)x\.csv.*malformed"),
    "a line break in a field": Case("x.csv", 'id,n,day\n"x\ny",1,2024-09-21\n', r"(?i)x\.csv.*malformed"),
    "a cut line of JSON": Case("x.jsonl", json_of(ROWS, SECOND)[:-9], r"x\.jsonl could not be read .*end-of-input"),
    "no JSON at all": Case("x.jsonl", csv_of(ROWS, SECOND), r"x\.jsonl could not be read .*JSON"),
    "a list in a line of JSON": Case("x.jsonl", "[1, 2]\n", r"(?i)x\.jsonl"),
    "a word for a number in JSON": Case(
        "x.jsonl", '{"id": "x", "n": "one", "day": "2024-09-21"}\n', r"(?i)x\.jsonl.*(malformed|one)"
    ),
    "a fraction for a number in JSON": Case("x.jsonl", '{"id": "x", "n": 1.5, "day": "2024-09-21"}\n', r"x\.jsonl"),
    "a Parquet file with a bad middle": Case("x.parquet", good_ends_bad_middle, r"x\.parquet"),
    "a footer that is noise": Case("x.parquet", b"PAR1" + noise(500) + b"PAR1", r"x\.parquet"),
    "another type in Parquet": Case(
        "x.parquet", lambda file: parquet_of(file, ROWS, SECOND, n=["one", "two"]), r"x\.parquet"
    ),
}
ALSO_ON_DELTA = ("a truncated gzip", "too few fields", "a cut line of JSON", "a Parquet file with a bad middle")


@ONE
@pytest.mark.parametrize("case", READ.values(), ids=READ.keys())
def test_a_row_that_cannot_be_read_fails_the_run_and_names_the_file(filled, case):
    name = case.put(filled.folder / "landing")
    refused(filled, case.error, case.words, **reading(f"landing/{name}"))


@pytest.mark.stores("delta")
@pytest.mark.parametrize("case", ALSO_ON_DELTA)
def test_a_row_that_cannot_be_read_leaves_delta_as_it_was(filled, case):
    name = READ[case].put(filled.folder / "landing")
    refused(filled, READ[case].error, READ[case].words, **reading(f"landing/{name}"))
    assert rows_of(filled) == [(one, n, FIRST) for one, n in ROWS]


# What Spark takes for good without a word: each of these lost or invented something.
SILENT = {
    "two objects in a line of JSON": Case("x.jsonl", json_of(ROWS, SECOND).replace("}\n{", "}{"), r"x\.jsonl"),
    "something after an object of JSON": Case("x.jsonl", json_of(ROWS, SECOND).replace("}\n", "} and\n"), r"x\.jsonl"),
    "a byte that is no text, far into a CSV": Case("x.csv", far_into_the_file(b"\xff\xfe,1,2024-09-21"), r"x\.csv"),
    "a gzip with a bad checksum": Case("x.csv.gz", bad_checksum, r"x\.csv\.gz"),
    "a Parquet file without a column": Case(
        "x.parquet", lambda file: parquet_of(file, ROWS, SECOND, n=None), r"x\.parquet.*'?n'?"
    ),
}


@ONE
@pytest.mark.parametrize("case", SILENT.values(), ids=SILENT.keys())
def test_what_spark_would_take_for_good_is_refused(filled, case):
    name = case.put(filled.folder / "landing")
    refused(filled, case.error, case.words, **reading(f"landing/{name}"))


NOT_NULL = "id string NOT NULL, n int, day date"
INSIDE = "id string, n int, day date, more struct<a: int NOT NULL>"


@ONE
@pytest.mark.parametrize(
    ("name", "content", "schema", "column"),
    [
        ("a b.csv", csv_of([("", 1), ("b", 2)], SECOND), NOT_NULL, "id"),
        ("a%20b.jsonl", json_of([("a", 1), (None, 2)], SECOND), NOT_NULL, "id"),
        ("nested.jsonl", json_of(ROWS, SECOND) + '{"id": "c", "more": {"b": 1}}\n', INSIDE, "more.a"),
        ("rows.parquet", [("a", 1), (None, 2)], NOT_NULL, "id"),
    ],
    ids=["csv", "json", "nested", "parquet"],
)
def test_a_null_where_the_schema_allows_none_fails_the_run_although_the_transform_looks_elsewhere(
    filled, name, content, schema, column
):
    path = filled.folder / "landing" / name
    parquet_of(path, content, SECOND) if name.endswith("parquet") else path.write_text(content)
    words = f"The column '{column}', which the schema declares as NOT NULL, is NULL in a row of .*/{re.escape(name)}"
    day_alone = {"transform": lambda rows: rows.selectExpr("'x' AS id", "1 AS n", "day")}
    refused(filled, NotPublished, words, **reading(f"landing/{name}", schema=schema), **day_alone)


@ONE
def test_parquet_files_that_differ_in_their_columns_are_refused(filled):
    parquet_of(filled.folder / "landing/x1.parquet", ROWS, SECOND)
    parquet_of(filled.folder / "landing/x2.parquet", ROWS, SECOND, n=None)
    refused(filled, NotPublished, r"x2\.parquet|'n'", **reading("landing/x*.parquet", schema=None))


@ONE
def test_a_broken_row_is_noticed_although_the_transform_looks_elsewhere(filled):
    """Spark parses only the columns that are asked for, so a line that is cut short passes unseen."""
    (filled.folder / "landing/x.csv").write_text(f"id,day,n\nx,{SECOND},1\ny,{SECOND}\n")
    changed = reading("landing/x.csv", schema="id string, day date, n int")
    refused(
        filled,
        NotPublished,
        r"x\.csv",
        **changed,
        transform=lambda rows: rows.selectExpr("id", "CAST(7 AS INT) n", "day"),
    )


@contextmanager
def session_setting(spark, name, value):
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


@BOTH
@pytest.mark.parametrize("case", ["a truncated gzip", "a Parquet file with a bad middle"])
def test_a_session_that_ignores_corrupt_files_does_not_lose_rows(filled, spark, case):
    good = filled.folder / f"landing/good{''.join(Path(READ[case].name).suffixes)}"
    if good.suffix == ".gz":
        good.write_bytes(zipped(csv_of(ROWS, SECOND)))
    else:
        parquet_of(good, ROWS, SECOND)
    READ[case].put(filled.folder / "landing")
    with session_setting(spark, "spark.sql.files.ignoreCorruptFiles", "true"):
        refused(
            filled, TwiceError, r"ignoreCorruptFiles|x\.(csv|parquet)", **reading(f"landing/*{''.join(good.suffixes)}")
        )


@pytest.mark.parametrize("option", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_an_option_that_ignores_files_is_refused_where_it_is_declared(option):
    with pytest.raises(Misuse, match=option):
        twice.files("landing/*.csv", schema=SCHEMA, options={option: "true"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"format": "cvs"}, r"(?s)format='cvs' is unknown.*Did you mean 'csv'"),
        ({"missing": "ignore"}, r"(?s)missing='ignore' is unknown.*'fail' or 'empty'"),
        ({"options": {"mode": "PERMISSIVE"}}, r"(?s)mode=PERMISSIVE.*_corrupt_record"),
        ({"options": {"mode": "dropmalformed"}}, r"(?s)mode=DROPMALFORMED.*_corrupt_record"),
        ({"options": {"MODE": "PERMISSIVE"}}, r"(?s)mode=PERMISSIVE.*_corrupt_record"),
    ],
)
def test_a_source_that_would_lose_rows_is_refused_where_it_is_declared(given, words):
    with pytest.raises(Misuse, match=words):
        twice.files("landing/*.csv", **{"schema": SCHEMA, **given})


@ONE
def test_a_csv_without_a_schema_is_refused(filled):
    (filled.folder / "landing/x.csv").write_text(csv_of(ROWS, SECOND))
    refused(filled, Misuse, r"(?s)needs a schema.*schema=", **reading("landing/x.csv", schema=None))


@ONE
def test_a_schema_that_is_none_is_told_so(filled):
    (filled.folder / "landing/x.csv").write_text(csv_of(ROWS, SECOND))
    refused(
        filled,
        NotPublished,
        "(?i)strin|datatype",
        **reading("landing/x.csv", schema="id array<strin>, n int, day date"),
    )


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("landing/{exection_date}.csv", r"(?s)\{exection_date\}.*is not a placeholder.*Did you mean 'execution_date'"),
        ("landing/{}.csv", r"\{\} in 'landing/\{\}.csv' is not a placeholder"),
        ("landing/{date:%Y}.csv", r"(?s)\{date:%Y\}.*is not a placeholder.*There is: end, execution_date, key, start"),
    ],
)
def test_an_unknown_placeholder_is_refused_where_it_is_declared(pattern, words):
    with pytest.raises(Misuse, match=words):
        twice.files(pattern, schema=SCHEMA)


@BOTH
def test_a_placeholder_of_another_kind_of_slot_is_refused(filled):
    refused(filled, Misuse, r"(?s)\{key\} needs a slot with a key", **reading("landing/{key}.csv"))
    (filled.folder / "landing/x.csv").write_text(csv_of(ROWS, SECOND))
    where = twice.data_overwrite(where="day = '{exection_date}'")
    refused(filled, Misuse, r"\{exection_date\} is not a placeholder", **reading("landing/x.csv"), pattern=where)


# ------------------------------------------------------------------ transforms


def divides_by_zero(rows):
    return 1 / 0


def forgets_to_return(rows):
    rows.where("n > 0")


def returns_a_list(rows):
    return [{"id": "x", "n": 1, "day": SECOND}]


TRANSFORMS = {
    "raises": (divides_by_zero, NotPublished, "ZeroDivisionError: division by zero"),
    "raises in Spark": (
        lambda rows: rows.selectExpr("id", "raise_error('by hand') n", "day").selectExpr("id", "int(n) n", "day"),
        NotPublished,
        "by hand",
    ),
    "takes nothing": (lambda: None, NotPublished, "takes 0 positional arguments"),
    "forgets to return": (forgets_to_return, NotPublished, r"returned (None|nothing|no rows)"),
    "returns a list": (returns_a_list, NotPublished, r"(?i)returned a list|list.* not a (Spark )?(data)?frame"),
    "drops a column": (lambda rows: rows.drop("n"), NotPublished, "lack the column 'n'"),
    "drops the slice column": (lambda rows: rows.drop("day"), NotPublished, "lack the column 'day'"),
    "adds a column": (lambda rows: rows.selectExpr("*", "1 AS more"), NotPublished, "have a new column 'more'"),
    "changes a type": (
        lambda rows: rows.selectExpr("id", "CAST(n AS STRING) n", "day"),
        NotPublished,
        "have 'n' as string instead of integer",
    ),
    "names a column that is not there": (
        lambda rows: rows.select("id", "number", "day"),
        NotPublished,
        r"(?i)UNRESOLVED_COLUMN.*number",
    ),
    "leaves the slice column empty": (
        lambda rows: rows.selectExpr("id", "n", "CAST(NULL AS DATE) day"),
        NotPublished,
        "outside the slot's slice",
    ),
    "moves rows to another slot": (
        lambda rows: rows.selectExpr("id", "n", "day - 1 AS day"),
        NotPublished,
        "outside the slot's slice",
    ),
}


@BOTH
@pytest.mark.parametrize(("transform", "error", "words"), TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_a_transform_that_goes_wrong_publishes_nothing(filled, transform, error, words):
    (filled.folder / "landing/x.csv").write_text(csv_of([("new", 3)], SECOND))
    refused(filled, error, words, **reading("landing/x.csv"), transform=transform)
    assert filled.project.ledger.attempts()[0].state == "failed"


@BOTH
def test_a_new_table_without_its_slice_column_is_refused(kind, spark, tmp_path):
    world = World(tmp_path / "world", kind, spark, pattern=twice.data_overwrite(slice="dya"))
    world.put(SECOND, ["a"])
    with pytest.raises(TwiceError, match=r"(?s)no column 'dya'.*Did you mean 'day'"):
        world.run(SECOND)
    assert not world.sight().exists


@BOTH
def test_a_slice_column_of_a_type_that_names_no_slot_is_refused(kind, spark, tmp_path):
    world = World(tmp_path / "world", kind, spark, pattern=twice.data_overwrite(slice="day"))
    world.put(SECOND, ["a"])
    world.transform = lambda rows: rows.selectExpr("id", "CAST(1.5 AS DOUBLE) AS day")
    with pytest.raises(TwiceError, match=r"type double, which cannot stand for a slot"):
        world.run(SECOND)
    assert not world.sight().exists


# ------------------------------------------------------------------ times


@BOTH
@pytest.mark.parametrize(
    ("at", "words"),
    [
        (datetime(2024, 9, 21), "2024-09-21T00:00:00 carries no offset"),
        ("2024-09-21T00:00:00", r"(?s)carries no offset.*Write 2024-09-21T00:00:00Z"),
        ("2024-09-21T07:30Z", r"(?s)not the start of an interval.*--at 2024-09-21T00:00Z"),
        ("2024-08-31", "lies before the calendar"),
        (datetime.now(UTC) + timedelta(days=3), "not the start of an interval"),
        ((datetime.now(UTC) + timedelta(days=3)).date().isoformat(), r"(?s)is not closed yet.*newest closed interval"),
        (None, r"(?s)Which interval of 'out'.*--at .*newest closed interval"),
    ],
)
def test_a_time_that_names_no_closed_interval_is_refused(filled, at, words):
    refused(filled, Misuse, words, at=at)


# ------------------------------------------------------------------ the project


SETTINGS = {
    "unknown section": (
        "[spak]\nmaster = 'local'\n",
        r"\[spak\] in twice\.toml is not known\.\n  Did you mean 'spark'",
    ),
    "unknown key": ("[spark]\nmastr = 'local'\n", r"spark\.mastr in twice\.toml is not known\.\n  Did you mean 'spark"),
    "key without a section": ("master = 'local'\n", r"\[master\] in twice\.toml is not known"),
    "section that is a word": ("spark = 'local'\n", r"spark in twice\.toml must be a table"),
    "number that is a word": ("[leases]\nseconds = 'many'\n", r"leases\.seconds must be a number, not 'many'"),
    "word that is a number": ("[spark]\nmaster = 4\n", r"spark\.master must be text, not 4"),
    "conf without quotes": ("[spark.conf]\nspark.driver.memory = '2g'\n", r"without quotes"),
    "conf that is a word": ("[spark]\nconf = 'x'\n", r"spark\.conf in twice\.toml must be a table"),
    "store without a kind": ("[stores.raw]\nroot = 'raw'\n", r"\[stores\.raw\] in twice\.toml needs a kind"),
    "store with an unknown key": (
        "[stores.raw]\nkind = 'parquet'\nrot = 'raw'\n",
        r"stores\.raw\.rot in twice\.toml is not known\.\n  Did you mean 'root'",
    ),
    "store that is a word": (
        "[stores]\nraw = 'parquet'\n",
        r"stores\.raw in twice\.toml must be a table: \[stores\.raw\]",
    ),
    "unset variable": ("[spark]\nmaster = '${NOT_SET_ANYWHERE}'\n", "variable NOT_SET_ANYWHERE, which is not set"),
    "no TOML": ("[spark\nmaster\n", r"twice\.toml cannot be read: .*line 1"),
    "a key twice": ("[spark]\nmaster = 'a'\nmaster = 'b'\n", r"twice\.toml cannot be read: .*line 3"),
    "no text": (b"\xff\xfe\x00", r"twice\.toml cannot be read"),
    "far too large": ("# x\n" * 300_000, r"twice\.toml is larger than"),
    "unknown ledger": ("[ledger]\nurl = 'mysql://host/db'\n", r"The ledger 'mysql' is not known"),
}


@ONE
@pytest.mark.parametrize(("toml", "words"), SETTINGS.values(), ids=SETTINGS.keys())
def test_a_project_file_that_is_wrong_is_refused_and_says_where(filled, capsys, toml, words):
    file = filled.folder / "twice.toml"
    file.write_bytes(toml if isinstance(toml, bytes) else toml.encode())
    assert command(filled, "run", "out", "--at", SECOND) == 2
    said = capsys.readouterr().err
    assert said.startswith("Misuse: ")
    with pytest.raises(Misuse, match=words):
        _ = twice.Project.open(filled.folder).ledger


PIPELINE = """
import twice

@twice.pipeline(
    every="1 day",
    start="2024-09-01",
    source=twice.files("landing/{execution_date}.csv", schema="id string, n int, day date"),
    target="KIND:lake/out",
    pattern=twice.data_overwrite(slice="day"),
)
def out(rows):
    return rows
"""

MODULES = {
    "a syntax error": (PIPELINE + "\ndef broken(:\n    pass\n", r"out\.py, line 14: SyntaxError"),
    "an indentation error": (PIPELINE.replace("    return", "return"), r"out\.py, line 12: IndentationError"),
    "an import that is not there": ("import twice\nimport no_such_thing\n", r"out\.py, line 2: ModuleNotFoundError"),
    "an error while it is loaded": (PIPELINE + "\n\nx = 1 / 0\n", r"out\.py, line 15: ZeroDivisionError"),
    "a misspelt argument": (PIPELINE.replace("every=", "evry="), r"out\.py, line 4: TypeError.*evry"),
    "a misspelt name": (PIPELINE.replace("twice.files", "twice.fils"), r"out\.py, line 7: AttributeError.*'fils'"),
    "a misspelt unit": (PIPELINE.replace("1 day", "1 dya"), r"every='1 dya'.*\(in out\.py, line 4\)"),
    "an unknown placeholder": (
        PIPELINE.replace("{execution_date}", "{exection_date}"),
        r"is not a placeholder.*\(in out\.py, line 7\)\n  Did you mean 'execution_date'",
    ),
    "an unknown store": (PIPELINE.replace("KIND", "parket"), r"There is no store 'parket'.*\n  Did you mean 'parquet'"),
    "a target that leaves its root": (PIPELINE.replace("lake/out", "../out"), r"leaves the root.*\(in out\.py, line"),
    "two pipelines on one target": (
        PIPELINE + PIPELINE.replace("def out", "def also"),
        r"The pipelines 'out' and 'also' both write KIND:lake/out",
    ),
    "no pipeline of that name": (
        PIPELINE.replace("def out", "def outs"),
        r"no pipeline 'out'.*\n  Did you mean 'outs'",
    ),
}


@BOTH
@pytest.mark.parametrize(("code", "words"), MODULES.values(), ids=MODULES.keys())
def test_a_module_of_pipelines_that_is_wrong_is_refused_and_says_where(filled, capsys, code, words):
    (filled.folder / "pipelines").mkdir()
    (filled.folder / "pipelines/out.py").write_text(textwrap.dedent(code).replace("KIND", filled.kind))
    (filled.folder / f"landing/{SECOND}.csv").write_text(csv_of(ROWS, SECOND))
    assert command(filled, "run", "out", "--at", SECOND) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Misuse: ")
    with pytest.raises(Misuse, match=words.replace("KIND", filled.kind)):
        twice.run("out", at=SECOND, project=filled.folder)


EXITS = {
    "a module": "import sys\n\nsys.exit(0)\n",
    "a transform": PIPELINE.replace("return rows", "raise SystemExit(0)"),
}


@ONE
@pytest.mark.parametrize("code", EXITS.values(), ids=EXITS.keys())
def test_an_exit_of_the_users_code_is_not_taken_for_success(filled, monkeypatch, spark, code):
    (filled.folder / "pipelines").mkdir()
    (filled.folder / "pipelines/out.py").write_text(code.replace("KIND", filled.kind))
    (filled.folder / f"landing/{SECOND}.csv").write_text(csv_of(ROWS, SECOND))
    monkeypatch.setattr(twice.Project, "open", classmethod(lambda cls, _=None: filled.project))
    assert command(filled, "run", "out", "--at", SECOND) in (1, 2, 3)


@ONE
def test_two_pipelines_of_one_name_are_refused(filled):
    (filled.folder / "pipelines").mkdir()
    for number in (1, 2):
        code = PIPELINE.replace("KIND:lake/out", f"parquet:lake/{number}")
        (filled.folder / f"pipelines/p{number}.py").write_text(code)
    with pytest.raises(Misuse, match="Two pipelines are called 'out'"):
        _ = twice.Project.open(filled.folder).pipelines


# ------------------------------------------------------------------ the ledger


@pytest.fixture
def ledger_at(filled, monkeypatch, capsys):
    """Return a caller of `twice run` with the ledger somewhere else."""
    (filled.folder / "pipelines").mkdir()
    (filled.folder / "pipelines/out.py").write_text(PIPELINE.replace("KIND", filled.kind))
    (filled.folder / f"landing/{SECOND}.csv").write_text(csv_of(ROWS, SECOND))

    def call(url=None):
        if url:
            monkeypatch.setenv("TWICE_LEDGER_URL", url)
        code = command(filled, "run", "out", "--at", SECOND)
        return code, capsys.readouterr().err

    return call


@BOTH
@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////sys/ledger.db",
        "sqlite:////proc/ledger.db",
        "sqlite:////dev/null/ledger.db",
        "sqlite:///landing/2024-09-20.csv/ledger.db",
        "sqlite:///landing",
        "sqlite:///" + "x" * 300,
    ],
    ids=["read-only", "no folder for files", "under a device", "under a file", "a folder", "too long"],
)
def test_a_ledger_in_an_impossible_place_is_told_so(ledger_at, url):
    code, said = ledger_at(url)
    assert code == 2
    assert said.startswith("Misuse: The ledger ")
    assert "cannot be opened" in said
    assert "nothing was started" in said
    assert "set [ledger] url in twice.toml" in said


@BOTH
def test_a_ledger_of_a_newer_twice_is_refused(filled, ledger_at):
    with sqlite3.connect(filled.folder / ".twice/ledger.db") as db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")
    code, said = ledger_at()
    assert code == 2
    assert f"has schema {VERSION + 1}; this Twice knows up to {VERSION}" in said
    assert "Upgrade Twice" in said


@BOTH
@pytest.mark.parametrize("content", [noise(20_000), b"SQLite format 3\0" + noise(5000)], ids=["noise", "a good start"])
def test_a_damaged_ledger_is_told_with_the_way_back(filled, ledger_at, content):
    (filled.folder / ".twice/ledger.db").write_bytes(content)
    code, said = ledger_at()
    assert code == 2
    assert "It is damaged: move the file away, then run twice ledger rebuild" in said


@ONE
def test_a_ledger_with_a_table_gone_is_told_with_the_way_back(filled, ledger_at):
    with sqlite3.connect(filled.folder / ".twice/ledger.db") as db:
        db.execute("DROP TABLE receipts")
    code, said = ledger_at()
    assert code in (1, 2)
    assert "no such table: receipts" in said
    assert "twice ledger rebuild" in said


# ------------------------------------------------------------------ a full disk


@contextmanager
def no_file_larger_than(size, process=0):
    """Let a process fail to write beyond a size, as on a disk without room."""
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, before)


@BOTH
def test_a_disk_that_is_full_for_spark_fails_the_run_and_the_next_one_mends_it(filled, spark):
    rows = [(noise(6).hex() + str(n * 7919), n) for n in range(40_000)]
    (filled.folder / f"landing/{SECOND}.csv").write_text(csv_of(rows, SECOND))
    changed = reading("landing/{execution_date}.csv")
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    before = seen(filled)
    with (
        no_file_larger_than(100_000, jvm),
        pytest.raises(NotPublished, match=r"(?i)file too large|no space|could not be .*written"),
    ):
        twice.run(replace(filled.pipeline, **changed), at=SECOND, project=filled.project)
    assert seen(filled) == before
    assert rows_of(filled) == [(one, n, FIRST) for one, n in ROWS]
    filled.reopen()
    assert twice.run(replace(filled.pipeline, **changed), at=SECOND, project=filled.project).rows == 40_000


@BOTH
def test_a_disk_that_is_full_for_the_ledger_starts_nothing(filled):
    (filled.folder / f"landing/{SECOND}.csv").write_text(csv_of(ROWS, SECOND))
    changed = reading("landing/{execution_date}.csv")
    with no_file_larger_than(512):
        said = refused(filled, NotPublished, r"The ledger .* cannot be used", **changed)
    assert "its disk has room" in said.fix
    assert twice.run(replace(filled.pipeline, **changed), at=SECOND, project=filled.project).state == "published"


@ONE
def test_a_disk_that_is_full_at_the_manifest_publishes_nothing(filled):
    """The link that makes a version visible was never made, and that is known for sure."""
    (filled.folder / f"landing/{SECOND}.csv").write_text(csv_of(ROWS, SECOND))
    changed = reading("landing/{execution_date}.csv")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_the_disk(point):
        if point == "publish.before":
            resource.setrlimit(resource.RLIMIT_FSIZE, (512, before[1]))

    try:
        with armed(fill_the_disk):
            refused(filled, NotPublished, r"(?i)file too large|no space", **changed)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert twice.run(replace(filled.pipeline, **changed), at=SECOND, project=filled.project).state == "published"


@pytest.mark.stores("delta")
def test_a_disk_that_is_full_at_the_commit_leaves_delta_as_it_was(filled, spark):
    (filled.folder / f"landing/{SECOND}.csv").write_text(csv_of(ROWS, SECOND))
    pipeline = replace(filled.pipeline, **reading("landing/{execution_date}.csv"))
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    before = resource.prlimit(jvm, resource.RLIMIT_FSIZE)
    there = seen(filled)

    def fill_the_disk(point):
        if point == "delta.locked":
            resource.prlimit(jvm, resource.RLIMIT_FSIZE, (256, before[1]))

    try:
        with armed(fill_the_disk), pytest.raises((NotPublished, OutcomeUnknown)) as raised:
            twice.run(pipeline, at=SECOND, project=filled.project)
    finally:
        resource.prlimit(jvm, resource.RLIMIT_FSIZE, before)
    filled.reopen()
    assert seen(filled) == there
    assert rows_of(filled) == [(one, n, FIRST) for one, n in ROWS]
    assert twice.run(pipeline, at=SECOND, project=filled.project).state == "published"
    assert re.search(r"(?i)file too large|no space", raised.value.what)


@BOTH
def test_a_disk_that_is_full_after_the_publish_is_mended_by_the_next_run(filled):
    """The rows are visible and proven: a ledger that cannot record it does not make that a failure."""
    (filled.folder / f"landing/{SECOND}.csv").write_text(csv_of(ROWS, SECOND))
    changed = reading("landing/{execution_date}.csv")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_the_disk(point):
        if point == "read.back":
            resource.setrlimit(resource.RLIMIT_FSIZE, (512, before[1]))

    try:
        with armed(fill_the_disk):
            outcome = twice.run(replace(filled.pipeline, **changed), at=SECOND, project=filled.project)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert outcome.state == "published"
    assert "the ledger could not record it" in outcome.notes[0]
    filled.reopen()
    assert twice.run(replace(filled.pipeline, **changed), at=SECOND, project=filled.project).state == "skipped"
    assert filled.project.ledger.known(outcome.slot.text).generation == 1
