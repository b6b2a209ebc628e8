"""In which way did a rerun not end in the table of a clean run, and which column is it?"""

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import twice
from twice.errors import Misuse
from twice.lint import remarks_on
from twice.prover.budget import Budget, seconds_of
from twice.prover.determinism import differing_columns, explained, only_rounded
from twice.prover.verdicts import (
    BYSTANDER,
    DOUBLED,
    EFFECT,
    LEDGER,
    LOST,
    RECEIPT,
    TORN,
    Snapshot,
    difference,
    rows_differ,
)
from twice.prover.watching import canonical, stands_beside

CLEAN = Snapshot(("a", "b"), {"s": (1, "f")}, {"s": (1, "f")}, {"out.csv": ("x",)})


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (("a", "b", "a", "b"), DOUBLED),
        (("a", "b", "b"), DOUBLED),
        (("a",), LOST),
        ((), LOST),
        (("a", "c"), TORN),
        (("a", "b", "c"), TORN),
    ],
)
def test_rows_are_doubled_lost_or_torn(found, verdict):
    assert rows_differ(found, CLEAN.rows).kind == verdict


def test_equal_rows_in_another_order_are_no_trouble():
    assert rows_differ(("b", "a"), CLEAN.rows) is None


@pytest.mark.parametrize(("found", "verdict"), [(("b",), BYSTANDER), (("a", "a", "b"), BYSTANDER), (("a",), LOST)])
def test_rows_that_were_there_before_are_a_bystanders(found, verdict):
    assert rows_differ(found, CLEAN.rows, before=("a",)).kind == verdict


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({"receipts": {}}, RECEIPT),
        ({"receipts": {"s": (2, "f")}}, RECEIPT),
        ({"ledger": {}}, LEDGER),
        ({"beside": {"out.csv": ("x", "x")}}, EFFECT),
        ({"beside": {"out.csv": ("x",), "new.csv": ("y",)}}, EFFECT),
        ({"beside": {}}, LOST),
    ],
)
def test_what_stands_beside_the_rows_is_compared_too(changed, verdict):
    assert difference(Snapshot(**{**vars(CLEAN), **changed}), CLEAN).kind == verdict


def test_a_clean_run_is_like_itself():
    assert difference(CLEAN, CLEAN) is None


@pytest.mark.parametrize(
    ("other", "columns"),
    [
        ([{"id": 1, "at": 5}, {"id": 2, "at": 6}], ["at"]),
        ([{"id": 1, "at": 8}, {"id": 2, "at": 7}], ["at"]),  # the same values, on other rows
        ([{"id": 3, "at": 5}, {"id": 2, "at": 8}], ["at", "id"]),
        ([{"id": 1, "at": 7}], ["at", "id"]),
        ([{"id": 2, "at": 8}, {"id": 1, "at": 7}], []),
    ],
)
def test_the_fewest_columns_that_explain_a_difference_are_named(other, columns):
    assert differing_columns([{"id": 1, "at": 7}, {"id": 2, "at": 8}], other) == columns


def declared(transform):
    source = twice.source(list, fingerprint="x")
    return twice.pipeline(source=source, target="memory:lake/x", pattern=twice.data_overwrite(), name="x")(transform)


def chancy(rows):
    rows = rows.limit(3).withColumn("at", F.now()).withColumn("dice", F.expr("rand() * 6")).withColumn("n", F.lit(1))
    return rows.select(F.collect_list("x").alias("all"), F.expr("uuid() as name"))


def likely(transform, *columns):
    return explained(declared(transform), columns, "two runs").text.partition("; ")[2]


def test_expressions_of_chance_are_found_with_the_columns_that_they_fill():
    found = {(one.expression, one.fills) for one in remarks_on(declared(chancy), "")}
    assert found == {
        ("limit(3)", ""),
        ("F.now()", "at"),
        ("rand", "dice"),
        ("F.collect_list('x')", "all"),
        ("uuid", "name"),
    }


def test_the_expression_that_fills_a_column_is_named_and_no_other():
    assert likely(chancy, "dice").startswith("likely: rand in line ")
    assert likely(chancy, "all").startswith("likely: F.collect_list('x') in line ")


def test_where_no_expression_fills_the_column_those_are_named_that_concern_all():
    assert likely(chancy, "n").startswith("likely: limit(3) in line ")


def test_sql_is_read_too():
    query = twice.sql("select id, now() as at from rows limit 3")
    assert likely(query, "at").startswith("likely: now in line ")
    assert likely(query, "id").startswith("likely: limit in line ")


def test_a_function_that_spark_calls_is_the_last_suspect():
    @F.udf(StringType())
    def looked_up(key):
        return key.upper()

    def with_udf(rows):
        return rows.withColumn("at", looked_up("id"))

    assert likely(with_udf, "at") == "likely: the UDF looked_up"


def test_an_honest_transform_is_not_suspected():
    honest = lambda rows: rows.where("seconds > 0").orderBy("id").limit(3)  # noqa: E731
    assert likely(honest, "id") == "no usual suspect was found in its code"


def test_texts_and_tables_beside_the_target_are_rows(tmp_path):
    from pyarrow import Table, parquet

    (tmp_path / "table").mkdir()
    for name in ("one", "two"):
        parquet.write_table(Table.from_pylist([{"id": name}]), tmp_path / f"table/{name}.parquet")
    (tmp_path / "notes.csv").write_text("b\na\n")
    (tmp_path / "run.log").write_text("says what it likes")
    (tmp_path / "target").mkdir()
    (tmp_path / "target/part.csv").write_text("not looked at")
    assert stands_beside(tmp_path, [tmp_path / "target"], lambda _: []) == {
        "table": ("(id='one')", "(id='two')"),
        "notes.csv": ("a", "b"),
    }


def test_a_row_is_the_same_text_in_any_order_of_columns_and_maps():
    assert canonical({"a": {1: 2, 3: 4}, "b": [None]}) == canonical({"b": [None], "a": {3: 4, 1: 2}})
    assert canonical({"a": "1"}) != canonical({"a": 1})


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("5m", 300), ("1h", 3600), ("1.5 m", 90), ("7", 7)])
def test_lengths_of_time(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 days", "-1m"])
def test_what_is_no_length_of_time_is_refused(text):
    with pytest.raises(Misuse, match="is not a length of time"):
        seconds_of(text)


def test_what_took_long_is_expected_to_take_long_again():
    budget = Budget(100.0)
    assert budget.allows("real")
    budget.took("real", 200.0)
    assert not budget.allows("real")
    assert budget.allows("warm")
    assert budget.needed(["real", "real"]) == 400


def test_numbers_that_differ_in_their_last_digits_alone_are_told_as_rounded():
    one, other = [{"id": 1, "sum": 0.1 + 0.2}, {"id": 2, "sum": 1.0}], [{"id": 2, "sum": 1.0}, {"id": 1, "sum": 0.3}]
    assert differing_columns(one, other) == ["sum"]
    assert only_rounded(one, other, ["sum"])
    assert not only_rounded(one, [{"id": 1, "sum": 0.31}, {"id": 2, "sum": 1.0}], ["sum"])
    assert not only_rounded(one, [{"id": 1, "sum": None}, {"id": 2, "sum": 1.0}], ["sum"])
    assert not only_rounded(one, other, ["id", "sum"])
    assert not only_rounded(one, other, [])
