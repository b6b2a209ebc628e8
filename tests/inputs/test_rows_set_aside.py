"""Rows that cannot be used are set aside one by one, with file, line and reason, and the others are handed on."""

import gzip
import json
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import parquet

import twice
from bad_inputs import BAD_ROWS, COLUMNS, GOOD, GOOD_ROWS, SCHEMA
from twice.errors import Misuse, NotPublished
from twice.fingerprint import Place
from twice.runs import Slot, Target
from twice.sources import sifting
from twice.sources.listing import BadFile

pytestmark = pytest.mark.spark
RULES = [twice.rule("amount >= 0")]
ALL = {"rules": RULES, "max_quarantined": "100%"}
SLOT = Slot("orders", Target("parquet", "lake/orders"), "")


class Memory:
    """Hashes that nobody remembers."""

    def recall(self, keys):
        return {}

    def remember(self, hashes):
        pass


@pytest.fixture
def engine(spark):
    return SimpleNamespace(spark=spark)


@pytest.fixture
def choose(tmp_path):
    """Return a chooser of files: written as they are given, then resolved as a source would."""

    def choose(pattern, files=None, **declared):
        for name, content in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        source = twice.files(pattern, **{"schema": SCHEMA, **declared})
        return source.resolve(Place(str(tmp_path), SLOT, "UTC", Memory(), lambda _: None))

    return choose


def lines_of(form, cases):
    head = [COLUMNS.encode()] if form == "csv" else []
    return b"".join(line + b"\n" for line in [*head, *(case.line for case in cases)])


@pytest.mark.parametrize("form", ["csv", "json"])
def test_every_bad_row_is_set_aside_with_its_line_and_a_reason_that_people_understand(choose, engine, form):
    cases = [case for case in BAD_ROWS if case.form == form]
    found = choose(f"x.{form}", {f"x.{form}": lines_of(form, cases)}, **ALL).sift(engine)
    told = {row.line: row for row in found.rows()}
    first = 2 if form == "csv" else 1
    assert (found.parsed, found.set_aside) == (len(cases), len(cases))
    for number, case in enumerate(cases, first):
        assert told[number].raw_bytes == case.line
        assert told[number].reason.startswith(case.reason), case.what


@pytest.mark.parametrize("form", ["csv", "json"])
def test_what_only_looks_odd_is_handed_on(choose, engine, form):
    cases = [case for case in GOOD_ROWS if case.form == form]
    chosen = choose(f"x.{form}", {f"x.{form}": lines_of(form, cases)}, **ALL)
    assert (chosen.sift(engine).parsed, list(chosen.sift(engine).rows())) == (len(cases), [])
    assert chosen.read(engine).count() == len(cases)


def test_good_rows_are_those_that_the_plain_read_gives(choose, engine):
    files = {"a.csv": f"{COLUMNS}\r\n{GOOD}\r\n\r\n2,,,\r\n", "b.csv.gz": gzip.compress(f"{COLUMNS}\n{GOOD}".encode())}
    plain = choose("*.csv*", files).read(engine)
    sifted = choose("*.csv*", max_quarantined=0).read(engine)
    assert sifted.schema == plain.schema
    assert sorted(map(str, sifted.collect())) == sorted(map(str, plain.collect()))
    assert sifted.count() == 3


def test_equal_bad_lines_are_told_each_with_its_number(choose, engine):
    found = choose("x.csv", {"x.csv": f"{COLUMNS}\nx\n{GOOD}\nx\n\nx\n"}, **ALL).sift(engine)
    assert [row.line for row in found.rows()] == [2, 4, 6]
    assert (found.parsed, found.set_aside) == (4, 3)


def test_lines_are_found_in_batches_that_fit_into_memory(choose, engine, monkeypatch):
    monkeypatch.setattr(sifting, "_LINES_AT_ONCE", 2)
    bad = "".join(f"x{number}\n" for number in range(7))
    found = choose("*.csv", dict.fromkeys(("a.csv", "b.csv"), f"{COLUMNS}\n{bad}"), **ALL).sift(engine)
    expected = {(name, number + 2, f"x{number}") for name in ("a.csv", "b.csv") for number in range(7)}
    assert {(row.file, row.line, row.raw) for row in found.rows()} == expected


def test_a_rerun_sets_the_same_rows_aside_in_the_same_order(choose, engine):
    files = {f"{name}.csv": lines_of("csv", [case for case in BAD_ROWS if case.form == "csv"]) for name in "abc"}
    first, second = (list(choose("*.csv", files, **ALL).sift(engine).rows()) for _ in range(2))
    assert first == second
    assert len(first) == len({(row.file, row.line) for row in first})


def test_one_row_too_many_fails_and_names_the_first(choose, engine):
    files = {"x.csv": f"{COLUMNS}\n{GOOD}\nx\n3,a,-1,2024-09-20\n"}
    words = r"2 of 3 rows cannot be used, and 1 may be set aside\. x\.csv:3: 1 field.*x\.csv:4: breaks the rule"
    with pytest.raises(NotPublished, match=words):
        choose("x.csv", files, rules=RULES, max_quarantined=1).read(engine)
    with pytest.raises(NotPublished, match=r"and 1 \(50%\) may be set aside"):
        choose("x.csv", files, rules=RULES, max_quarantined="50%").read(engine)
    assert choose("x.csv", files, rules=RULES, max_quarantined="67%").read(engine).count() == 1


def test_with_rules_alone_the_first_broken_one_fails_the_run(choose, engine):
    with pytest.raises(NotPublished, match=r"and none may be set aside\. x\.csv:2: breaks the rule: amount >= 0"):
        choose("x.csv", {"x.csv": f"{COLUMNS}\n1,a,-1,2024-09-20\n"}, rules=RULES).read(engine)


def test_a_rule_that_is_null_lets_the_row_pass(choose, engine):
    assert choose("x.csv", {"x.csv": f"{COLUMNS}\n1,a,,\n"}, rules=RULES).read(engine).count() == 1


@pytest.mark.parametrize("text", ["nope > 1", "sum(amount) > 1", "amount", "amount >"])
def test_a_rule_that_spark_does_not_understand_is_misuse(choose, engine, text):
    with pytest.raises(Misuse, match=r"is no condition about the columns of 'x\.csv'"):
        choose("x.csv", {"x.csv": f"{COLUMNS}\n{GOOD}\n"}, rules=[twice.rule(text)]).read(engine)


def test_rows_that_were_set_aside_are_read_again_with_other_rules(choose, engine):
    files = {"x.csv": f"{COLUMNS}\n{GOOD}\nx\n3,a,-1,2024-09-20\n"}
    before = choose("x.csv", files, **ALL, file_column="source")
    rows = tuple(before.sift(engine).rows())
    again = replace(before, marks=(), again=rows, source=replace(before.source, rules=(), max_quarantined=0))
    assert [(row["id"], row["source"]) for row in again.read(engine).collect()] == [(3, "x.csv")]
    assert list(again.sift(engine).rows()) == [rows[0]]
    both = replace(again, marks=before.marks, source=replace(before.source, rules=(), max_quarantined=1))
    assert sorted(row["id"] for row in both.read(engine).collect()) == [1, 3, 3]
    assert (both.sift(engine).parsed, both.sift(engine).set_aside) == (5, 2)


def test_lines_of_bytes_that_are_no_text_come_back_as_they_were(choose, engine):
    chosen = choose("x.csv", {"x.csv": f"{COLUMNS}\n".encode() + b"1,\xff,1,2024-09-20\n"}, **ALL)
    rows = tuple(chosen.sift(engine).rows())
    again = replace(chosen, marks=(), again=rows)
    assert tuple(again.sift(engine).rows()) == rows


def test_a_row_of_parquet_is_kept_as_json_and_comes_back_exactly(choose, engine, tmp_path):
    at = datetime(2024, 1, 1, 1, 1, 1, 123456)
    columns = {"id": [1, None, 3], "at": [at] * 3, "v": [1.5, 2.5, -0.1], "b": [b"\xff", b"\x00", None]}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    schema = "id bigint not null, at timestamp_ntz, v double, b binary"
    chosen = choose("x.parquet", schema=schema, rules=[twice.rule("v > 0")], max_quarantined=2)
    rows = tuple(chosen.sift(engine).rows())
    assert [(row.line, row.reason) for row in rows] == [(2, "id is NULL"), (3, "breaks the rule: v > 0")]
    assert json.loads(rows[0].raw)["id"] is None
    source = replace(chosen.source, schema=schema.replace(" not null", ""), rules=())
    found = replace(chosen, marks=(), again=rows, source=source).read(engine).collect()
    assert sorted((row["v"], row["id"], row["at"], row["b"]) for row in found) == [
        (-0.1, 3, at, None),
        (2.5, None, at, b"\x00"),
    ]


def test_the_column_of_the_file_is_exact_for_every_name(choose, engine, tmp_path):
    names = ["a b.csv", "a%20b.csv", "a+b.csv", "é😀.csv", "x[1].csv", "per%2Fc.csv", "q?.csv", "ha#sh.csv", "n\nl.csv"]
    files = {f"in/{name}": f"{COLUMNS}\n{number},a,1,2024-09-20\n" for number, name in enumerate(names)}
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/y.csv").write_text(f"{COLUMNS}\n99,a,1,2024-09-20\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link.csv").symlink_to("../elsewhere/y.csv")
    expected = {f"in/{name}": number for number, name in enumerate(names)} | {"in/link.csv": 99}
    for declared in ({}, ALL):
        rows = choose("in/*.csv", files, file_column="source", **declared).read(engine)
        assert rows.columns[-1] == "source"
        assert {row["source"]: row["id"] for row in rows.collect()} == expected


def test_two_names_of_one_file_are_refused_where_rows_are_told_by_file(choose, engine, tmp_path):
    files = {"a.csv": f"{COLUMNS}\n{GOOD}\n"}
    choose("a.csv", files)
    (tmp_path / "b.csv").symlink_to("a.csv")
    for declared in ({"file_column": "source"}, ALL):
        with pytest.raises(BadFile, match=r"'b\.csv' is the same file as 'a\.csv'"):
            choose("*.csv", **declared).read(engine)


def test_a_difference_between_spark_and_the_bytes_fails_the_run(choose, engine, tmp_path):
    chosen = choose("x.csv", {"x.csv": f"{COLUMNS}\n{GOOD}\n"}, **ALL)
    assert chosen.counts() == {"x.csv": 1}
    (tmp_path / "x.csv").write_text(f"{COLUMNS}\n{GOOD}\n{GOOD}\n")
    with pytest.raises(BadFile, match=r"'x\.csv' has 1 rows by its lines, of which Spark saw 2"):
        chosen.read(engine)


def test_no_file_means_no_rows_and_the_column_is_there(choose, engine):
    rows = choose("*.csv", missing="empty", format="csv", file_column="source", **ALL).read(engine)
    assert (rows.columns, rows.count()) == (["id", "name", "amount", "day", "source"], 0)


def test_nothing_is_sifted_where_nothing_may_be_set_aside(choose, engine):
    chosen = choose("x.csv", {"x.csv": f"{COLUMNS}\n{GOOD}\n"})
    assert chosen.sift(engine) is None
    assert chosen.read(engine).collect()[0].asDict() == {
        "id": 1,
        "name": "a",
        "amount": Decimal("1.50"),
        "day": date(2024, 9, 20),
    }


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_line_is_parsed_once_to_be_judged_and_handed_on(choose, engine, form):
    cases = [case for case in GOOD_ROWS if case.form == form]
    good = choose(f"in/*.{form}", {f"in/a.{form}": lines_of(form, cases)}, **ALL).read(engine)
    plan = good._jdf.queryExecution().executedPlan().toString()
    assert plan.count(f"from_{form}(StructField") == 1, plan
