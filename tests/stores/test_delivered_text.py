"""What is delivered as text comes back as it was written: to other readers, and to the project's own source."""

import csv
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv

import twice
from twice.abilities import Delivery
from twice.fingerprint import Place
from twice.runs import Slot, Target
from twice.stores.files import _write

pytestmark = pytest.mark.spark
SCHEMA = "id bigint, text string, other string, amount decimal(38,18), ratio double, day date, at timestamp, wall timestamp_ntz"
NAMES = [part.split()[0] for part in SCHEMA.split(", ")]
SLOT = Slot("orders", Target("files", "out"), "")
QUOTED = ["", '"', '""', 'a"b', ",", "\n", "\r", "\r\n", "a\nb", "\\", '\\"', "'"]
BLANKS = [" ", "  a ", "\t", "\u00a0", "#x", "NULL", "null", "\0", "é", "\U0001f600"]
TEXTS = st.none() | st.sampled_from(QUOTED + BLANKS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
MOMENTS = st.datetimes()
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        TEXTS,
        TEXTS,
        st.none() | st.integers(1 - 10**38, 10**38 - 1).map(lambda number: Decimal(f"{number}E-18")),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.dates(),
        st.none() | MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
        st.none() | MOMENTS,
    ),
    min_size=60,
    max_size=80,
)
SEEN = ("id", "text", "other", "cast(amount as string)", "ratio", "day", "unix_micros(at)", "cast(wall as string)")


@pytest.fixture
def deliver(tmp_path):
    """Return a function that writes rows as the store stages them, and returns the path of the file."""
    number = iter(range(1000))

    def deliver(frame, form):
        folder = tmp_path / f"out-{next(number)}"
        assert _write(frame, str(folder), Delivery(form)) == frame.count()
        return next(path for path in folder.iterdir() if path.name.startswith("part-"))

    return deliver


@pytest.fixture
def read(spark):
    """Return a function that reads a file as a source does."""

    def read(path, schema, **declared):
        source = twice.files(path.name, schema=schema, **declared)
        place = Place(str(path.parent), SLOT, "UTC", SimpleNamespace(recall=lambda _: {}, remember=len), lambda _: None)
        return source.resolve(place).read(SimpleNamespace(spark=spark))

    return read


def seen(frame):
    """Rows as values that are compared exactly, in any order."""
    return sorted(repr(tuple(row)) for row in frame.selectExpr(*SEEN).collect())


def value_of(text, column):
    """What another program makes of a text."""
    if text is None or column in ("text", "other"):
        return text
    made = {"id": int, "amount": Decimal, "ratio": float, "day": date.fromisoformat}
    return made.get(column, datetime.fromisoformat)(text)


def values_of(lines):
    return [tuple(value_of(line[name], name) for name in NAMES) for line in lines]


BATCHES = settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@BATCHES
@given(rows=ROWS)
def test_delivered_csv_comes_back_as_it_was_written(rows, deliver, read, spark):
    frame = spark.createDataFrame(rows, SCHEMA)
    path = deliver(frame, "csv")
    with path.open(encoding="utf-8", newline="") as file:
        fields = list(csv.reader(file, strict=True))
    assert fields[0] == NAMES
    # Python's reader gives an empty text where a field is NULL; the readers below tell them apart.
    assert fields[1:] == [["" if text is None else text for text in line.values()] for line in by_arrow(path)]
    assert values_of(by_arrow(path)) == rows
    assert seen(read(path, SCHEMA, options={"multiLine": "true"})) == seen(frame)


def by_arrow(path):
    """Read a file as texts and NULLs, as those do who take an empty field for NULL and an empty text for itself."""
    said = arrow_csv.ConvertOptions(
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
        column_types=dict.fromkeys(NAMES, pa.string()),
    )
    return arrow_csv.read_csv(
        path, parse_options=arrow_csv.ParseOptions(newlines_in_values=True), convert_options=said
    ).to_pylist()


@BATCHES
@given(rows=ROWS)
def test_delivered_json_lines_come_back_as_they_were_written(rows, deliver, read, spark):
    frame = spark.createDataFrame(rows, SCHEMA)
    path = deliver(frame, "jsonl")
    lines = [json.loads(line, parse_float=str, parse_int=str) for line in path.read_text("utf-8").split("\n")[:-1]]
    assert values_of(lines) == rows
    assert seen(read(path, SCHEMA)) == seen(frame)


def test_csv_that_holds_no_line_breaks_is_read_without_being_told_so(deliver, read, spark):
    rows = [
        (number, text, "x", *[None] * 5)
        for number, text in enumerate([None, *QUOTED, *BLANKS])
        if not {*"\r\n"} & {*(text or "")}
    ]
    frame = spark.createDataFrame(rows, SCHEMA)
    path = deliver(frame, "csv")
    assert seen(read(path, SCHEMA)) == seen(frame)
    without_nul = frame.where("not ifnull(contains(text, '\\0'), false)")
    assert seen(read(path, SCHEMA, max_quarantined=1)) == seen(without_nul)


@pytest.mark.parametrize(
    ("form", "columns", "words"),
    [
        ("csv", "cast(null as string) as a", "'a' is NULL in a row, which CSV writes as an empty line"),
        ("csv", "1 as id, cast(unhex('ff') as string) as a", "'a' holds bytes that are not UTF-8"),
        ("jsonl", "1 as id, cast(unhex('ff') as string) as a", "'a' holds bytes that are not UTF-8"),
        ("csv", "1 as id, unhex('ff') as a", "'a' is binary, which CSV has no way to write"),
    ],
)
def test_what_a_form_cannot_hold_as_it_is_is_refused(deliver, spark, form, columns, words):
    with pytest.raises(Exception, match=words):
        deliver(spark.sql(f"select {columns}"), form)
