"""A column that a declaration names and that cannot be there is told before Spark starts."""

import json

import pytest

import twice
from twice.columns import NO_CHANGES, ColumnPolicy, NamedColumn, unknown_columns
from twice.errors import Misuse
from twice.stores.delta import named_files
from worlds import World

DAY, NEXT = "2024-09-20", "2024-09-21"
NAMED = (NamedColumn("id", "keys="), NamedColumn("dya", "slice="), NamedColumn("gone", "deleted=", in_table=False))


@pytest.mark.parametrize(
    ("table", "rows", "policy", "said"),
    [
        (["id", "day"], None, NO_CHANGES, "The table delta:out has no column 'dya' (slice=)."),
        (["id", "day"], None, ColumnPolicy("add"), None),
        ([], None, NO_CHANGES, None),
        ([], ["id", "day", "gone"], NO_CHANGES, "The rows of the source have no column 'dya' (slice=)"),
        ([], ["id", "day"], ColumnPolicy("add"), "no column 'dya' (slice=), 'gone' (deleted=)"),
        (["id", "day"], ["id", "day", "gone"], NO_CHANGES, "The table delta:out has no column 'dya' (slice=)."),
        (["id", "dya"], ["id", "dya", "gone"], NO_CHANGES, None),
        (["id", "dya"], ["id", "gone"], NO_CHANGES, None),  # the table may fill it
        (["id", "dya", "day"], ["id", "dya", "day"], NO_CHANGES, "have no column 'gone' (deleted=)"),
    ],
)
def test_what_cannot_be_there_is_told_and_nothing_else(table, rows, policy, said):
    trouble = unknown_columns(NAMED, table, rows, policy, "delta:out")
    assert (trouble is None) == (said is None)
    if trouble:
        assert said in trouble.what
        assert trouble.fix == "Did you mean 'day'?" or "'gone'" in said


PATTERNS = {
    "slice=": lambda name: twice.data_overwrite(slice=name),
    "partitions=": lambda name: twice.data_overwrite(partitions=[name]),
    "keys=": lambda name: twice.merger(keys=[name]),
    "order=": lambda name: twice.merger(keys=["id"], order=name),
    "on=": lambda name: twice.dedup_insert(keys=["id"], window="1 day", on=name),
    "not_null(dya)": None,
}


@pytest.mark.parametrize("option", PATTERNS)
def test_a_plan_and_a_run_refuse_a_column_that_the_table_does_not_have(tmp_path, option):
    world = World(tmp_path / "world", "memory", pattern=twice.transactional_writer())
    world.put(DAY, ["a"])
    world.run(DAY)
    calls = []
    changed = {"pattern": PATTERNS[option]("dya")} if PATTERNS[option] else {}
    tests = {} if changed else {"tests": [twice.not_null("dya")]}
    world = world.twin(transform=lambda rows: calls.append(1) or rows, columns=tests, **changed)
    world.put(NEXT, ["b"])
    for ask in (world.run, lambda day: twice.plan(world.pipeline, at=day, project=world.project)):
        with pytest.raises(Misuse) as refused:
            ask(NEXT)
        assert f"'dya' ({option})" in refused.value.what
        assert refused.value.fix == "Did you mean 'day'?"
    assert not calls


def test_a_published_slot_is_skipped_whatever_is_named(tmp_path):
    world = World(tmp_path / "world", "memory")
    world.put(DAY, ["a"])
    world.run(DAY)
    assert world.twin(columns={"tests": [twice.not_null("idd")]}).run(DAY).state == "skipped"


def pipeline(transform, **source):
    files = twice.files("in/*.csv", schema="id int NOT NULL, `the day` date", **source)
    return twice.pipeline(name="p", source=files, target="memory:out", pattern=twice.merger(keys=["id"]))(transform)


def same(rows):
    """Hand rows on."""
    return rows


def with_run(rows, run):
    return rows


def other(rows):
    return rows.select("id")


@pytest.mark.parametrize(
    ("transform", "found"),
    [
        (same, ["id", "the day"]),
        (with_run, ["id", "the day"]),
        (lambda rows: rows, ["id", "the day"]),
        (other, None),
        (twice.sql("select * from rows"), ["id", "the day"]),
        (twice.sql("select *, upper(id) as name from rows where id > 1"), ["id", "the day", "name"]),
        (twice.sql("select r.id, `the day` as day, cast(id as string) from rows r"), ["id", "day", "id"]),
        (twice.sql("select upper(id) from rows"), None),
        (twice.sql("select * except (id) from rows"), None),
        (twice.sql("select * from rows lateral view explode(x) t as y"), None),
        (twice.sql("select * from (select id from rows)"), None),
        (twice.sql("with rows as (select 1 as z) select * from rows"), None),
        (twice.sql("select id from rows union select id from rows"), None),
    ],
)
def test_which_columns_rows_have_is_known_only_where_nothing_can_add_one(transform, found):
    assert pipeline(transform).brings() == found


def test_the_column_of_the_file_is_one_that_the_source_brings():
    assert pipeline(same, file_column="file").brings() == ["id", "the day", "file"]


def test_a_source_without_a_schema_tells_nothing():
    source = twice.files("in/*.parquet")
    told = twice.pipeline(name="p", source=source, target="memory:out", pattern=twice.merger(keys=["id"]))(same)
    assert told.brings() is None


def test_a_delta_table_tells_its_columns_without_spark(tmp_path):
    table = tmp_path / "table"
    assert named_files.columns(str(table)) == []
    (table / "_delta_log").mkdir(parents=True)
    for version, fields in enumerate((["id"], ["id", "day"], None)):
        schema = json.dumps({"type": "struct", "fields": [{"name": name, "type": "string"} for name in fields or ()]})
        metadata = {"metaData": {"id": "x", "schemaString": schema, "configuration": {}}}
        line = {"add": {"path": "f"}} if fields is None else metadata
        (table / f"_delta_log/{version:020}.json").write_text(json.dumps(line, separators=(",", ":")) + "\n")
    assert named_files.columns(str(table)) == ["id", "day"]
