"""What Spark would read without a word as something else is noticed in a quick look, and nothing else is."""

import gzip
import json
import time

import pytest

import twice
from bad_inputs import BAD_ROWS, COLUMNS, GOOD, GOOD_ROWS, SCHEMA
from twice.errors import BadFile, Misuse
from twice.sources.contents import look_into
from twice.sources.misreading import CsvLines, JsonLines

NOTICED = (
    "quote never closed in the last field",
    "two objects",
    "two objects and a comma",
    "words behind the object",
    "duplicate keys",
    "a key in another case",
    "lone surrogate",
)
TWO = ["id", "name"]
SILENT = [case for case in BAD_ROWS if case.what in NOTICED]


def text_of(form, *lines):
    head = [COLUMNS.encode(), GOOD.encode()] if form == "csv" else [b'{"id": 7}']
    return b"".join(line + b"\n" for line in (*head, *lines, *head[1:]))


@pytest.mark.parametrize("case", SILENT, ids=lambda case: f"{case.form}: {case.what}")
def test_a_line_that_spark_would_misread_is_refused_where_no_row_may_be_set_aside(case, tmp_path):
    path = tmp_path / f"x.{case.form}"
    path.write_bytes(text_of(case.form, case.line))
    with pytest.raises(BadFile) as raised:
        look_into(path.name, str(path), twice.files(path.name, schema=SCHEMA), case.form)
    assert path.name in raised.value.what
    assert case.line[:20].decode() in raised.value.what.replace("\\\\", "\\")
    sifting = twice.files(path.name, schema=SCHEMA, max_quarantined=1)
    assert look_into(path.name, str(path), sifting, case.form).rows


def test_all_of_them_are_tried():
    assert len(SILENT) == len(NOTICED)


@pytest.mark.parametrize(
    "lines",
    [
        b'1,"a,"\n"a","b"\n"","",\n',
        b'1,5" pipe\n1,"a\\"b"\n1,"a\\\\"\n',
        b'1,"a""b"\n1,"ab""","c"\n',
        b'1,"a,"b"\n',
        b'# say,"so\n',
    ],
)
def test_quotation_marks_that_are_closed_are_left_alone(lines):
    CsvLines("x", TWO, comment=b"#").check(lines)


@pytest.mark.parametrize(
    "line", [b'1,"a', b'1,"a""', b'1,"', b'1,"a, b', b'"x","y"\n2,"z\n3,4', b'"a,b","c', b'1,"a\\']
)
def test_a_last_field_that_is_not_closed_is_told(line):
    with pytest.raises(BadFile, match=r"'x' has a quotation mark that is never closed: '"):
        CsvLines("x", TWO).check(line + b"\n")
    with pytest.raises(BadFile):
        CsvLines("x", ["id"]).check(b'"a\n')


@pytest.mark.parametrize("line", [b'"a', b'"1,a', b'1,2,"a', b'"1,a,2'])
def test_other_fields_that_are_not_closed_are_told_by_spark(line):
    CsvLines("x", TWO).check(line + b"\n")


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_a_mark_that_is_never_closed_is_told_where_rows_span_lines(name, tmp_path):
    path = tmp_path / name
    source = twice.files(name, schema="a int, b string", header=False, options={"multiLine": "true"})
    for content, is_bad in ((b'1,"a\nb"\n2,5" pipe\n', False), (b'1,"a\n2,b\n3,c\n', True), (b'1,"a""\n"\n', False)):
        path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        if is_bad:
            with pytest.raises(BadFile, match="has a quotation mark that is never closed"):
                look_into(name, str(path), source, "csv")
        else:
            look_into(name, str(path), source, "csv")


def test_doubled_marks_count_where_they_are_how_a_mark_is_escaped():
    CsvLines("x", TWO, escape='"').check(b'1,"a""b"\n')
    with pytest.raises(BadFile):
        CsvLines("x", TWO, escape='"').check(b'1,"a""b\n')
    CsvLines("x", TWO, escape="\\").check(b'1,"ab"",c\n')  # Spark ends such a field at the next separator
    with pytest.raises(BadFile):
        CsvLines("x", TWO, escape="\\").check(b'1,"a\\"\n')
    CsvLines("x", TWO, escape="").check(b'1,"a\\"\n')
    CsvLines("x", TWO, quote="").check(b'1,"a\n')
    CsvLines("x", TWO, separator="||").check(b'1||"a\n')
    with pytest.raises(BadFile):
        CsvLines("x", TWO, separator="\t", quote="'").check(b"1\t'a\n")


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": 1, "items": [{"id": 2}, {"id": 3}]}',
        b'{"id": 1, "name": "id"}',
        b'{"id": 1, "name": "}, {"}',
        b'  {"id": 1}  ',
        b'[{"id": 1}, {"id": 2}]',
        b"",
        b'{"id": 1',  # told by Spark itself
        *(case.line for case in GOOD_ROWS if case.form == "json"),
    ],
)
def test_lines_of_json_that_only_look_odd_are_left_alone(line):
    JsonLines("x", ["id", "name"]).check(line + b"\n" + b'{"id": 1}\n')


def test_a_key_that_stands_on_two_lines_is_there_once():
    JsonLines("x", ["id"]).check(b'{"id": 1}\n{"n": 1}\n{"id": 2}\n')
    with pytest.raises(BadFile, match=r"""a key twice in one JSON object: '\{"n": 1, "id": 1, "id": 2\}'"""):
        JsonLines("x", ["id"]).check(b'{"id": 1}\n{"n": 1, "id": 1, "id": 2}\n{"id": 2}\n')


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("pathGlobFilter", "*.csv"),
        ("modifiedAfter", "2024-01-01T00:00:00"),
        ("modifiedBefore", "2024-01-01T00:00:00"),
        ("recursiveFileLookup", "false"),
        ("columnPruning", "true"),
        ("unescapedQuoteHandling", "SKIP_VALUE"),
        ("unescapedQuoteHandling", "STOP_AT_DELIMITER"),
        ("enableDateTimeParsingFallback", "true"),
        ("header", "false"),
        ("PATHGLOBFILTER", "a*"),
    ],
)
def test_options_that_leave_something_out_without_a_word_are_refused(option, value):
    with pytest.raises(Misuse) as raised:
        twice.files("x.csv", schema=SCHEMA, options={option: value})
    assert option.lower() in raised.value.what.lower()
    assert raised.value.why
    assert raised.value.fix


def test_a_pattern_that_no_file_can_match_is_refused():
    with pytest.raises(Misuse, match=r"'a\\x00b\.csv' holds a NUL character"):
        twice.files("a\0b.csv", schema=SCHEMA, track=True)


@pytest.mark.parametrize("option", [{"recursiveFileLookup": "true"}, {"sep": ";"}, {"columnPruning": "false"}])
def test_options_that_leave_nothing_out_are_left_to_people(option):
    assert twice.files("x.csv", schema=SCHEMA, options=option).options == option


@pytest.mark.parametrize(
    ("checker", "line"),
    [
        (CsvLines("x", TWO), b'17,"Some name, quoted","another ""one""",12.50,2024-09-20,plain'),
        (
            JsonLines("x", ["id", "name", "amount", "day"]),
            json.dumps(
                {"id": 1, "name": "a", "amount": 12.5, "day": "2024-09-20", "tags": {"a": 1, "b": [1, 2]}}
            ).encode(),
        ),
    ],
)
def test_a_good_file_costs_one_quick_look(checker, line):
    piece = (line + b"\n") * (8_000_000 // len(line))
    started = time.process_time()
    checker.check(piece)
    assert time.process_time() - started < 1.0
