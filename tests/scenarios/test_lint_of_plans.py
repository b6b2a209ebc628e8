"""What Spark's analysed plan tells the determinism lint that the code does not."""

import pytest

import twice
from twice.checks import Asked, look_over
from twice.lint.spark_plan import remarks_on
from worlds import World

pytestmark = pytest.mark.spark
DAY = "2024-09-20"


@pytest.fixture(scope="module")
def rows(spark):
    rows = spark.createDataFrame([(1, "a"), (1, "b")], "id int, name string")
    rows.createOrReplaceTempView("plan_rows")
    yield rows
    spark.catalog.dropTempView("plan_rows")


BROKEN = {
    "select *, current_timestamp() as at from plan_rows": "clock",
    "select current_date(), id from plan_rows": "clock",
    "select * from (select id, now() as at from plan_rows)": "clock",
    "select id, rand() as x from plan_rows": "random",
    "select id, uuid() as x from plan_rows": "random",
    "select * from plan_rows tablesample (50 percent)": "random",
    "select monotonically_increasing_id() as n from plan_rows": "layout",
    "select input_file_name() as f from plan_rows": "layout",
    "select * from plan_rows limit 1": "order",
    "select * from (select * from plan_rows order by id) join plan_rows using (id) limit 1": "order",
    "select id, first(name) from plan_rows group by id": "order",
    "select id, concat_ws(',', collect_list(name)) from plan_rows group by id": "order",
    "select first(name) over (partition by id) from plan_rows": "order",
}
FINE = [
    "select id, max(name) from plan_rows group by id",
    "select * from plan_rows order by id, name limit 1",
    "select id from (select * from plan_rows order by id, name) where id > 0 limit 1",
    "select * from plan_rows limit 0",
    "select id, sort_array(collect_list(name)) from plan_rows group by id",
    "select id, size(collect_set(name)) from plan_rows group by id",
    "select id, sort_array(names) from (select id, collect_list(name) as names from plan_rows group by id)",
    "select first(name) over (partition by id order by name) from plan_rows",
    "select row_number() over (partition by id order by name) from plan_rows",
    "select distinct id from plan_rows",
    "select *, timestamp'2024-01-01' as at from plan_rows",
]


def test_plans_that_differ_from_run_to_run_are_remarked_on_once(spark, rows):
    found = {text: [remark.rule.name for remark in remarks_on(spark.sql(text))] for text in BROKEN}
    assert found == {text: [rule] for text, rule in BROKEN.items()}


def test_plans_that_give_the_same_rows_every_time_are_let_pass(spark, rows):
    assert {text: list(remarks_on(spark.sql(text))) for text in FINE} == {text: [] for text in FINE}


def test_frames_are_told_apart_too(rows):
    from pyspark.sql import functions as F

    random = F.udf(lambda: 4).asNondeterministic()
    steady = F.udf(lambda value: value)
    assert [remark.rule.name for remark in remarks_on(rows.dropDuplicates(["id"]))] == ["order"]
    assert list(remarks_on(rows.dropDuplicates())) == []
    assert [remark.rule.name for remark in remarks_on(rows.withColumn("x", random()))] == ["udf"]
    assert list(remarks_on(rows.withColumn("x", steady("id")))) == []


CHOSEN = {"by": "rand"}


def hidden(rows):
    from pyspark.sql import functions

    return rows.withColumn("x", getattr(functions, CHOSEN["by"])())


def test_what_the_code_hides_shows_in_the_plan_and_only_if_it_is_asked_for(spark, tmp_path):
    world = World(tmp_path / "world", "parquet", spark, transform=hidden)
    world.put(DAY, ["a"])
    world.run(DAY)
    assert twice.check([world.pipeline], project=world.project) == []
    (lint,) = twice.check([world.pipeline], plan=True, project=world.project)
    assert (lint.check, lint.severity, lint.details["rule"]) == ("lint", "notice", "random")
    assert "in Spark's plan: rand(" in lint.what


def shown(rows):
    from pyspark.sql import functions as F

    return rows.withColumn("x", F.rand())  # twice: allow(random) a sample for people


def test_what_the_code_is_allowed_is_not_told_by_the_plan(spark, tmp_path):
    world = World(tmp_path / "world", "parquet", spark, transform=shown)
    world.put(DAY, ["a"])
    world.run(DAY)
    assert twice.check([world.pipeline], plan=True, project=world.project) == []


def test_a_plan_that_cannot_be_had_is_told_as_left_out(spark, tmp_path):
    world = World(tmp_path / "world", "parquet", spark)
    world.put(DAY, ["a"])
    world.run(DAY)
    broken = world.twin(transform=lambda rows: rows.select("nowhere"))
    report = look_over(broken.project, [broken.pipeline], Asked(plan=True))
    assert report.findings == []
    assert len(report.left_out) == 1
    assert report.left_out[0].startswith("Spark's plan for out: ")
    assert "nowhere" in report.left_out[0]
