"""Tests of a table's rows: a publish that breaks one shows nothing new, on every store and with every pattern; `check` asks all rows."""

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

import twice
from twice import settings
from twice.checks import Asked, look_over
from twice.data_tests import Answer, Scope
from twice.errors import DataTestsFailed, Misuse, NotPublished, Unsupported
from twice.faults import Died, armed, dying_at
from twice.findings import NOTICE, WRONG
from twice.project import Project
from twice.retrying import fill_slot
from worlds import needing

FIRST, SECOND, THIRD = "2024-09-20", "2024-09-21", "2024-09-22"
SCHEMA = "id string, day date, n int"
PATTERNS = {
    "slice": twice.data_overwrite(slice="day"),
    "table": twice.data_overwrite(),
    "partitions": twice.data_overwrite(partitions=["day"]),
    "merger": twice.merger(keys=["id"]),
    "stateful": twice.stateful_merger(keys=["id"]),
    "history": twice.stateful_merger(keys=["id"], form="history"),
    "dedup": twice.dedup_insert(keys=["id"]),
    "append": twice.transactional_writer(),
    "lineage": twice.transactional_writer(lineage="slot"),
    "proxy": twice.proxy(),
    "cleaner": twice.fast_metadata_cleaner(period="month"),
    "keyed partition": twice.keyed(partition="slot"),
}
ALL_PATTERNS = [pytest.param(pattern, id=name, marks=needing(pattern)) for name, pattern in PATTERNS.items()]


@pytest.fixture
def tested(make_world):
    """Return a maker of worlds whose pipeline has tests."""
    return lambda *tests, **settings: make_world(columns={"tests": tests}, schema=SCHEMA, **settings)


def put(world, day, *rows):
    world.put_rows(day, [{"id": one, "day": day, "n": n} for one, n in rows])


def state(world):
    return world.records(), world.sight().receipts, world.files_left() if world.kind == "parquet" else 0


def found(world, now=None, **asked):
    report = look_over(world.project, [world.pipeline], Asked(**asked), now)
    findings = [finding for finding in report.findings if finding.check == "tests"]
    assert all(sorted(one.details) == ["rows", "sample", "slots", "test"] for one in findings)
    assert json.dumps([one.to_json() for one in findings])
    return findings


# ---------------------------------------------------------------- the gate


@pytest.mark.parametrize("pattern", ALL_PATTERNS)
def test_rows_that_break_a_test_are_not_published(tested, pattern):
    world = tested(twice.not_null("n"), twice.unique("n"), twice.row_count(max=3), pattern=pattern)
    put(world, FIRST, ("a", 1), ("b", 2))
    assert world.run(FIRST).state == "published"
    before = state(world)
    put(world, SECOND, ("c", 7), ("d", 7), ("e", None), ("f", 9))
    with pytest.raises(DataTestsFailed) as refused:
        world.run(SECOND)
    what = refused.value.what
    assert what.startswith("The rows fail 3 tests.")
    assert "not_null(n): 1 row of" in what
    assert "(n=7, rows=2)" in what
    assert "has 4 rows" in what
    assert state(world) == before
    put(world, SECOND, ("c", 7), ("d", 8))
    assert world.run(SECOND).state == "published"


@pytest.mark.stores("memory", "parquet", "postgres")
def test_a_correction_that_breaks_a_test_leaves_the_rows_that_were_there(tested):
    world = tested(twice.unique("id"))
    put(world, FIRST, ("a", 1))
    world.run(FIRST)
    before = state(world)
    put(world, FIRST, ("a", 1), ("a", 2))
    with pytest.raises(NotPublished, match=r"unique\(id\)"):
        world.run(FIRST)
    assert state(world) == before
    assert [record.state for record in world.project.ledger.attempts()][:1] == ["failed"]


@pytest.mark.stores("memory", "parquet", "postgres")
def test_a_death_at_the_gate_leaves_nothing_visible(tested):
    world = tested(twice.unique("id"))
    put(world, FIRST, ("a", 1))
    with pytest.raises(Died), armed(dying_at("tested")):
        world.run(FIRST)
    assert not world.sight().receipts
    assert world.run(FIRST).state == "published"
    assert world.table_rows("id") == [("a",)]


def test_rows_that_a_merge_takes_away_need_no_values(tested):
    world = tested(
        twice.not_null("n"),
        pattern=twice.merger(keys=["id"], deleted="gone"),
        transform=same_with_mark,
    )
    put(world, FIRST, ("a", 1), ("b", 2))
    world.run(FIRST)
    put(world, SECOND, ("a", None))
    assert world.run(SECOND).state == "published"
    assert world.table_rows("id", "n") == [("b", 2)]


def same_with_mark(rows):
    """Mark rows without a number as deleted."""
    if isinstance(rows, list):
        return [{**row, "gone": row["n"] is None} for row in rows]
    return rows.selectExpr("*", "n is null as gone")


def test_freshness_is_measured_back_from_the_end_of_the_interval(tested):
    world = tested(twice.fresh("day", within="1 day"), pattern=twice.transactional_writer())
    put(world, FIRST, ("a", 1))
    assert world.run(FIRST).state == "published"
    world.put_rows(THIRD, [{"id": "c", "day": FIRST, "n": 1}])
    with pytest.raises(DataTestsFailed, match="the newest time of 2024-09-22T00:00Z is 2024-09-20, before 2024-09-22"):
        world.run(THIRD)
    put(world, THIRD)
    with pytest.raises(DataTestsFailed, match="no row of 2024-09-22T00:00Z has a time there"):
        world.run(THIRD)


def at_half_past_ten(rows):
    """Give the rows a moment, half past ten in the evening in UTC."""
    if isinstance(rows, list):
        return [{**row, "at": datetime(2024, 9, 20, 22, 30, tzinfo=UTC)} for row in rows]
    return rows.selectExpr("*", "timestamp'2024-09-20 22:30:00+00:00' as at")


def test_a_moment_is_the_same_on_every_store(tested):
    world = tested(twice.fresh("at", within="1 hour"), transform=at_half_past_ten)
    put(world, FIRST, ("a", 1))
    with pytest.raises(DataTestsFailed, match=r"is 2024-09-20T22:30:00[+]00:00, before 2024-09-20T23:00[+]00:00"):
        world.run(FIRST)
    world.columns = {"tests": [twice.fresh("at", within="2 hours")]}
    assert world.run(FIRST).state == "published"
    assert not found(world, datetime(2024, 9, 21, 0, 30, tzinfo=UTC))
    (stale,) = found(world, datetime(2024, 9, 21, 0, 31, tzinfo=UTC))
    assert "is 2024-09-20T22:30:00+00:00, before 2024-09-20T22:31+00:00" in stale.what


@pytest.mark.stores("memory")
def test_a_test_that_warns_lets_the_rows_pass_and_says_so(tested):
    world = tested(twice.not_null("n", severity="warn"))
    put(world, FIRST, ("a", None))
    outcome = world.run(FIRST)
    assert outcome.state == "published"
    assert "warning: not_null(n): 1 row" in " ".join(outcome.notes)
    assert [(one.severity, one.details["test"]) for one in found(world)] == [(NOTICE, "not_null(n)")]


@pytest.mark.stores("memory")
def test_rows_that_break_a_test_are_not_tried_again(tested):
    world = tested(twice.not_null("n"))
    put(world, FIRST, ("a", None))
    calls = []
    world.transform = lambda rows: calls.append(1) or rows
    pipeline = twice.pipeline(
        name="out",
        every="1 day",
        start="2024-09-01",
        source=world.pipeline.sources["rows"],
        target="memory:lake/out",
        pattern=world.pattern,
        tests=[twice.not_null("n")],
        retries=twice.retries(tries=5, at_once=3),
    )(world.transform)
    with pytest.raises(DataTestsFailed):
        fill_slot(world.project, pipeline, pipeline.slot(FIRST))
    assert len(calls) == 1


@pytest.mark.stores("memory")
def test_rows_of_inputs_that_moved_are_told_as_moved_and_not_as_failing(tested):
    world = tested(twice.not_null("n"))
    put(world, FIRST, ("a", None))
    world.transform = lambda rows: put(world, FIRST, ("a", 1)) or rows
    with pytest.raises(NotPublished, match="changed while this run was reading it"):
        world.run(FIRST)


@pytest.mark.stores("memory", "postgres")
def test_slots_of_one_publish_are_counted_together(tested):
    world = tested(twice.row_count(min=1, max=2), pattern=twice.fast_metadata_cleaner(period="month"))
    for day in (FIRST, SECOND):
        put(world, day, (f"{day}-a", 1), (f"{day}-b", 2))
        world.run(day)
    put(world, FIRST, ("c", 1))
    assert world.run(FIRST).along
    put(world, FIRST, *((str(number), number) for number in range(5)))
    with pytest.raises(DataTestsFailed, match="2024-09-20T00:00Z and 1 other slot have 7 rows"):
        world.run(FIRST)


@pytest.mark.stores("memory", "parquet", "delta", "postgres")
def test_an_ingest_tests_what_it_takes_in(make_inbox):
    inbox = make_inbox(columns={"tests": [twice.unique("id"), twice.row_count(min=1)]})
    inbox.drop_in("one.jsonl", "ab")
    assert inbox.run().state == "published"
    inbox.drop_in("two.jsonl", "cc")
    with pytest.raises(DataTestsFailed, match=r"unique\(id\): 1 row of"):
        inbox.run()
    assert inbox.table_rows("id") == [("a",), ("b",)]
    assert not found(inbox)


@pytest.mark.stores("memory")
def test_a_line_of_code_without_a_pipeline_can_have_tests(make_world):
    world = make_world()
    slot = twice.slot("visits", at=FIRST)
    publish = {"to": "memory:visits", "pattern": twice.data_overwrite(), "slot": slot, "project": world.project}
    with pytest.raises(DataTestsFailed):
        twice.publish([{"id": None}], **publish, tests=[twice.not_null("id")])
    assert twice.publish([{"id": "a"}], **publish, tests=[twice.not_null("id")]).state == "published"


@pytest.mark.stores("memory")
def test_a_plan_says_what_is_tested_and_a_skip_tests_nothing(tested):
    world = tested(twice.unique("id"), twice.row_count(min=1))
    put(world, FIRST, ("a", 1))
    plan = twice.plan(world.pipeline, at=FIRST, project=world.project)
    assert "publish only what passes unique(id), row_count(min 1)" in str(plan)
    world.run(FIRST)
    assert "test" not in [step.name for step in twice.plan(world.pipeline, at=FIRST, project=world.project).steps]


@pytest.mark.stores("memory")
def test_tests_change_nothing_about_what_is_published(make_world):
    with_tests, without = make_world(columns={"tests": [twice.unique("id")]}), make_world()
    assert with_tests.pipeline.code == without.pipeline.code


# ---------------------------------------------------------------- the whole table


def test_check_asks_all_rows_of_the_table(tested):
    world = tested(pattern=twice.transactional_writer())
    put(world, FIRST, ("a", 1), ("b", None))
    put(world, SECOND, ("a", 2))
    world.run(FIRST)
    world.run(SECOND)
    assert not found(world)
    world.columns = {
        "tests": [twice.unique("id"), twice.not_null("n"), twice.row_count(min=2), twice.fresh("day", within="2 days")]
    }
    now = datetime(2024, 9, 24, tzinfo=UTC)
    told = {one.details["test"]: one for one in found(world, now)}
    assert set(told) == {"unique(id)", "not_null(n)", "row_count(min 2)", "fresh(day, within 2 days)"}
    assert told["unique(id)"].details["sample"] == [{"id": "a", "rows": 2}]
    assert told["not_null(n)"].details["rows"] == 1
    assert told["row_count(min 2)"].details["slots"] == [world.slot(SECOND)]
    assert {one.severity for one in told.values()} == {WRONG}
    assert len(found(world, datetime(2024, 9, 22, 12, tzinfo=UTC))) == 3


@pytest.mark.stores("parquet", "delta")
def test_a_quick_check_names_the_tests_that_need_spark(tested):
    world = tested(twice.unique("id"))
    put(world, FIRST, ("a", 1))
    world.run(FIRST)
    left_out = look_over(world.project, [world.pipeline], Asked(quick=True)).left_out
    assert any("tests of" in one for one in left_out) == (world.kind == "delta")


# ---------------------------------------------------------------- declarations


@pytest.mark.parametrize(
    "declare",
    [
        twice.unique,
        lambda: twice.not_null("id", ""),
        lambda: twice.not_null("id", severity="loud"),
        twice.row_count,
        lambda: twice.row_count(min=3, max=2),
        lambda: twice.row_count(min=-1),
        lambda: twice.fresh("day", within="soon"),
        lambda: twice.pipeline(
            target="memory:x", pattern=twice.merger(keys=["id"]), source=twice.files("x"), tests="id"
        )(lambda rows: rows),
    ],
)
def test_a_test_that_cannot_be_asked_is_refused_where_it_stands(declare):
    with pytest.raises(Misuse):
        declare()


@pytest.mark.stores("memory", "parquet", "postgres")
def test_a_column_that_is_not_there_is_named_with_the_nearest_one(tested):
    world = tested(twice.not_null("idd"))
    put(world, FIRST, ("a", 1))
    with pytest.raises(Misuse, match="no column 'idd'") as refused:
        world.run(FIRST)
    assert refused.value.fix == "Did you mean 'id'?"
    assert not world.sight().receipts


def test_targets_that_cannot_be_tested_are_refused(tmp_path):
    project = Project(settings.load(tmp_path))

    def declared(target, pattern):
        return twice.pipeline(
            name="p", target=target, pattern=pattern, source=twice.files("x.csv"), tests=[twice.unique("id")]
        )(lambda rows: rows)

    files = declared("files:out", twice.keyed(file="{key}.csv"))
    with pytest.raises(Unsupported, match="files cannot answer the tests of pipeline 'p'"):
        project.job(files, files.slot(key="a"))
    several = declared("memory:out", twice.transactional_writer(tables=["orders", "lines"]))
    with pytest.raises(Misuse, match="writes several"):
        project.job(several, several.slot())


@pytest.mark.parametrize(
    ("newest", "is_fresh"),
    [
        (datetime(2024, 9, 20, 21, 59, tzinfo=UTC), False),
        (datetime(2024, 9, 20, 22, 0, tzinfo=UTC), True),
        (datetime(2024, 9, 20, 21, 59), False),
        (datetime(2024, 9, 20).date(), False),
        (datetime(2024, 9, 21).date(), True),
    ],
)
def test_a_day_is_one_of_the_pipelines_zone(newest, is_fresh):
    until = datetime(2024, 9, 21, 22, tzinfo=UTC)  # midnight in Warsaw
    scope = Scope("a slot", until, ZoneInfo("Europe/Warsaw"))
    assert (twice.fresh("at", within="1 day").broken(Answer(newest=newest), scope) == "") == is_fresh
