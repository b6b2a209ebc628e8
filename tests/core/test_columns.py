"""Which types are refused before a row is staged, and how plain rows are compared."""

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twice.columns import refuse_keys, refuse_types
from twice.errors import Misuse
from twice.merges import MergeRule, merged
from twice.stores.repeats import without_spark
from types_page import PAGE, page


def field(typed, **metadata):
    return [{"name": "odd", "type": typed, "metadata": metadata}]


def array(typed):
    return {"type": "array", "elementType": typed, "containsNull": True}


def record(typed):
    return {"type": "struct", "fields": [{"name": "part", "type": typed, "metadata": {}}]}


def mapping(key, value):
    return {"type": "map", "keyType": key, "valueType": value}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (field("interval year to month"), "'odd' has the type interval year to month"),
        (field("interval"), "'odd' has the type interval"),
        (field("time(6)"), r"'odd' has the type time\(6\)"),
        (field("void"), "'odd' has the type void"),
        (field("char(5)"), r"'odd' has the type char\(5\)"),
        (field(array(record("void"))), r"'odd\.element\.part' has the type void"),
        (field(mapping("string", "interval day to second")), r"'odd\.value' has the type interval day to second"),
        (field("string", __COLLATIONS={"odd": "spark.UTF8_LCASE"}), "'odd' has the type string collate UTF8_LCASE"),
    ],
)
def test_a_type_that_no_table_gives_back_is_named_with_its_place(fields, said):
    with pytest.raises(Misuse, match=said) as caught:
        refuse_types(fields)
    assert len(str(caught.value).splitlines()) == 3


def test_every_other_type_is_taken():
    for typed in ("timestamp", "timestamp_ntz", "variant", "decimal(38,18)", mapping("string", array("date"))):
        refuse_types(field(typed))


@pytest.mark.parametrize(
    "typed", [mapping("string", "int"), "variant", array(mapping("string", "int")), record("variant")]
)
def test_a_key_that_cannot_be_compared_is_refused(typed):
    refuse_keys(field(typed), ["id"])
    with pytest.raises(Misuse, match=r"The key 'odd\S*' has the type (map|variant), whose values cannot be compared"):
        refuse_keys(field(typed), ["id", "odd"])


@pytest.mark.parametrize(
    ("one", "again"),
    [
        (0.0, -0.0),
        (math.nan, float("nan")),
        ([0.0, math.nan], [-0.0, math.nan]),
        ({"a": {"b": [0.0]}, "c": None}, {"c": None, "a": {"b": [-0.0]}}),
    ],
)
def test_equal_keys_are_one_however_they_are_written(one, again):
    rule = MergeRule(("id",))
    after = merged([{"id": one, "n": 1}], [{"id": again, "n": 2}], rule)
    assert (len(after.rows), after.inserted, after.updated) == (1, 0, 1)
    assert merged(after.rows, [{"id": one, "n": 2}], rule).updated == 0


@pytest.mark.parametrize(
    ("one", "again", "other"),
    [
        (0.0, -0.0, 1.0),
        (math.nan, math.nan, 0.0),
        ([0.0, math.nan], [-0.0, math.nan], [0.0]),
        ({"a": 0.0, "b": None}, {"a": -0.0, "b": None}, {"a": 0.0, "b": "x"}),
    ],
)
def test_a_key_in_several_rows_is_found_however_it_is_written(tmp_path, one, again, other):
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    for path, value in zip(paths, (one, again, other), strict=True):
        pq.write_table(pa.Table.from_pylist([{"id": value, "n": 1}]), path)
    found = without_spark(list(map(str, paths)), ["id", "n"], 5)
    assert (found.keys, found.rows, found.sample[0].rows) == (1, 2, 2)
    assert (str(found.sample[0].key), found.sample[0].files) == (str({"id": one, "n": 1}), tuple(map(str, paths[:2])))


def test_the_page_about_types_is_up_to_date():
    assert PAGE.read_text() == page(), "write it anew: python tests/types_page.py"
