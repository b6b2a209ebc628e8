"""What the determinism lint says of code, and above all what it lets pass."""

import importlib.util
import textwrap

import pytest

import twice
from twice.lint import python_code, remarks_on
from twice.lint.rules import RULES
from twice.lint.sql_text import remarks_on as sql_remarks

HEAD = """\
import datetime as times
import os
import random
import secrets
import time
import uuid
from datetime import date, datetime, timedelta
from pyspark.sql import Window
from pyspark.sql import functions as F

"""


@pytest.fixture
def lint(tmp_path):
    """Return a reader of the body of a transform, or of a whole file with one."""

    def read(body, head=HEAD, before=""):
        text = head + before + "def transform(rows, run):\n" + textwrap.indent(textwrap.dedent(body), "    ") + "\n"
        path = tmp_path / "code.py"
        path.write_text(text)
        file = python_code.File.read(str(path), "code.py")
        line = next(number for number, one in enumerate(text.splitlines(), 1) if one.startswith("def transform("))
        return list(python_code.remarks_on(file, file.function_at(line, "transform")))

    return read


def loaded(file):
    """Import a file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rules(remarks):
    return [remark.rule.name for remark in remarks if not remark.is_allowed]


BROKEN = {
    "clock": [
        "return rows.withColumn('at', F.lit(datetime.now()))",
        "return rows.withColumn('at', F.lit(times.datetime.utcnow()))",
        "today = date.today()\nreturn rows.where(F.col('day') == today)",
        "return rows.withColumn('at', F.lit(time.time()))",
        "return rows.withColumn('at', F.lit(time.strftime('%Y')))",
        "return rows.withColumn('at', F.current_timestamp())",
        "return rows.withColumn('at', F.current_date())",
        "return rows.withColumn('at', F.now())",
        "return rows.withColumn('at', F.unix_timestamp())",
        "return rows.withColumn('at', F.expr('current_timestamp()'))",
        "return rows.selectExpr('*', 'now() as at')",
    ],
    "random": [
        "return rows.withColumn('x', F.rand())",
        "return rows.withColumn('x', F.randn(42))",
        "return rows.withColumn('x', F.uuid())",
        "return rows.withColumn('x', F.lit(str(uuid.uuid4())))",
        "return rows.withColumn('x', F.lit(random.choice('ab')))",
        "return rows.withColumn('x', F.lit(secrets.token_hex(4)))",
        "return rows.withColumn('x', F.lit(os.urandom(4)))",
        "return rows.withColumn('x', F.shuffle('xs'))",
        "return rows.sample(0.1)",
        "return rows.where('id > 1').sample(fraction=0.1, seed=3)",
        "return rows.randomSplit([1.0, 2.0])[0]",
    ],
    "hash": ["return rows.withColumn('x', F.lit(hash('text')))", "return [{'x': hash(row['id'])} for row in rows]"],
    "environment": [
        "return rows.withColumn('x', F.lit(os.environ['REGION']))",
        "return rows.withColumn('x', F.lit(os.environ.get('REGION')))",
        "return rows.withColumn('x', F.lit(os.getenv('REGION')))",
    ],
    "set-order": [
        "return rows.select(*{'a', 'b'})",
        "names = set(rows.columns)\nreturn rows.select(list(names))",
        "names = set(rows.columns)\nreturn rows.select([F.col(name) for name in names])",
        "for name in set(rows.columns):\n    yield {'name': name}",
        "out = []\nfor name in {'a', 'b'}:\n    out.append(name)\nreturn out",
        "return rows.withColumn('x', F.lit(','.join(set(rows.columns))))",
    ],
    "layout": [
        "return rows.withColumn('n', F.monotonically_increasing_id())",
        "return rows.withColumn('n', F.spark_partition_id())",
        "return rows.withColumn('f', F.input_file_name())",
        "return rows.rdd.zipWithIndex().toDF()",
    ],
    "order": [
        "return rows.limit(10)",
        "top = rows.where('id > 3')\nreturn top.limit(3)",
        "return rows.orderBy('id').join(rows, 'id').limit(3)",
        "first = rows.first()\nreturn rows.where(F.col('id') == first['id'])",
        "return rows.dropDuplicates(['id'])",
        "return rows.orderBy('day').drop_duplicates(['id'])",
        "return rows.groupBy('id').agg(F.first('day'))",
        "return rows.groupBy('id').agg(F.max('day')).limit(3)",
        "return rows.groupBy('id').agg(F.collect_list('day').alias('days'))",
        "return rows.groupBy('id').agg(F.concat_ws(',', F.collect_set('day')))",
        "return rows.withColumn('x', F.last('day').over(Window.partitionBy('id')))",
        "w = Window.partitionBy('id').orderBy(F.lit(1))\nreturn rows.withColumn('n', F.row_number().over(w))",
        "w = Window.partitionBy('id').orderBy('id')\nreturn rows.withColumn('n', F.row_number().over(w))",
    ],
}


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule, codes in BROKEN.items() for code in codes])
def test_code_that_differs_from_run_to_run_is_remarked_on_once(lint, rule, code):
    assert rules(lint(code)) == [rule]


FINE = [
    "return rows.withColumn('loaded_for', F.lit(run.execution_time))",
    "return rows.where(F.col('day') >= run.execution_time - timedelta(days=3))",
    "return rows.withColumn('at', F.lit(datetime(2024, 1, 1)))",
    "return rows.withColumn('at', F.lit(datetime.fromisoformat('2024-01-01')))",
    "return rows.withColumn('at', F.unix_timestamp('day'))",
    "print(datetime.now())\nreturn rows",
    "begin = 1\nlog = None\nlog.info('began at %s', time.time())\nreturn rows",
    "return rows.withColumn('key', F.xxhash64('id')).withColumn('other', F.hash('id'))",
    "return rows.withColumn('key', F.lit(str(uuid.uuid5(uuid.NAMESPACE_URL, 'x'))))",
    "dice = random.Random(7)\nreturn rows.withColumn('x', F.lit(dice.random()))",
    "random.seed(7)\nreturn rows.withColumn('x', F.lit(random.random()))",
    "return rows.orderBy('id').limit(10)",
    "return rows.sort('id').where('id > 3').select('id').limit(10)",
    "top = rows.orderBy('id')\nreturn top.limit(10)",
    "return rows.limit(0)",
    "return rows.dropDuplicates()",
    "return rows.distinct()",
    "return rows.groupBy('id').agg(F.sort_array(F.collect_list('day')))",
    "return rows.groupBy('id').agg(F.size(F.collect_set('day')).alias('days'))",
    "return rows.groupBy('id').agg(F.max('day'), F.max_by('name', 'day'))",
    "w = Window.partitionBy('id').orderBy('day')\nreturn rows.withColumn('x', F.first('day').over(w))",
    "w = Window.partitionBy('id').orderBy('day', 'n')\nreturn rows.withColumn('n', F.row_number().over(w))",
    "return rows.select(sorted(set(rows.columns)))",
    "return rows.select(*sorted({'b', 'a'}))",
    "return rows.where(F.lit(len(set(rows.columns)) > 3))",
    "return [row for row in rows if row['id'] in {'a', 'b'}]",
    "total = 0\nfor name in {'a', 'b'}:\n    total += 1\nreturn rows",
    "return rows.where(F.col('id').isin(*[1, 2]))",
    "return [{'first': row['first'], 'rand': row['rand']} for row in rows]",
    "frame = rows.toPandas()\nreturn frame.sample(frac=1, random_state=3)",
    "return helper(rows).limit(3)",
    "return rows.withColumn('n', F.lit(hash(3)))",
    "return rows.withColumn('x', F.expr('rank() over (partition by id order by day)'))",
    "newest = rows.agg(F.max('day')).first()[0]\nreturn rows.where(F.col('day') == newest)",
    "newest = rows.select(F.max('day')).head()[0]\nreturn rows.where(F.col('day') == newest)",
    "days = F.collect_set('day')\nreturn rows.groupBy('id').agg(F.sort_array(days))",
    (
        "grouped = rows.groupBy('id').agg(F.collect_list('day').alias('days'))\n"
        "return grouped.withColumn('days', F.sort_array('days'))"
    ),
    (
        "grouped = rows.groupBy('id').agg(F.collect_list('day').alias('days'))\n"
        "return grouped.where(F.size(F.col('days')) > 1).select('id')"
    ),
    "now = run.execution_time\nreturn rows.withColumn('at', F.lit(now))",
]


@pytest.mark.parametrize("code", FINE)
def test_code_that_gives_the_same_rows_every_time_is_let_pass(lint, code):
    assert lint(code) == []


def test_a_remark_says_where_it_is_why_it_matters_and_what_to_write_instead(lint):
    (remark,) = lint("return rows.withColumn('at', F.lit(datetime.now()))")
    assert (remark.place, remark.expression) == (f"code.py:{HEAD.count(chr(10)) + 2}:40", "datetime.now()")
    assert "wall clock" in remark.why
    assert "run.execution_time" in remark.instead


def test_a_transform_is_found_in_its_file_whatever_kind_of_function_it_is(tmp_path):
    file = tmp_path / "shapes.py"
    file.write_text(
        "import functools\nimport time\n\n\n"
        "def plain(rows, at=3):\n    return time.time()\n\n\n"
        "partial = functools.partial(plain, at=4)\n"
        "short = lambda rows: time.time()\n\n\n"
        "@functools.cache\ndef decorated(rows):\n    return time.time()\n\n\n"
        "class Callable:\n    def __call__(self, rows):\n        return time.time()\n"
    )
    module = loaded(file)
    for transform, line in (
        (module.plain, 6),
        (module.partial, 6),
        (module.short, 10),
        (module.decorated, 15),
        (module.Callable(), 20),
    ):
        (remark,) = remarks_on(pipeline_of(transform), str(tmp_path))
        assert (remark.file, remark.line) == ("shapes.py", line)


def test_a_method_in_a_chain_is_remarked_on_at_its_own_line(lint):
    chain = "return (\n    rows.where('id > 3')\n    .limit(5){}\n    .withColumn('x', F.rand()){}\n)"
    first = HEAD.count("\n") + 2
    found = lint(chain.format("", ""))
    assert [(one.rule.name, one.line - first, one.column, one.expression) for one in found] == [
        ("order", 2, 10, "limit(5)"),
        ("random", 3, 26, "F.rand()"),
    ]
    assert rules(lint(chain.format("  # twice: allow(order) any five will do", ""))) == ["random"]
    assert rules(lint(chain.format("", "  # twice: allow(random) a sample"))) == ["order"]


def test_a_seed_is_said_not_to_be_enough(lint):
    (remark,) = lint("return rows.withColumn('x', F.rand(42))")
    assert "A seed is not enough" in remark.why


@pytest.mark.parametrize(
    "before",
    [
        "def stamped(rows):\n    return rows.withColumn('at', F.current_timestamp())\n\n\n",
        "AT = datetime.now()\n\n\ndef stamped(rows):\n    return rows.withColumn('at', F.lit(AT))\n\n\n",
        "def inner():\n    return datetime.now()\n\n\ndef stamped(rows):\n    return rows.withColumn('at', F.lit(inner()))\n\n\n",
        "def stamped(rows, at=datetime.now()):\n    return rows.withColumn('at', F.lit(at))\n\n\n",
    ],
    ids=["function", "constant", "function of a function", "default"],
)
def test_what_the_transform_uses_of_its_file_is_looked_at_too(lint, before):
    assert rules(lint("return stamped(rows)", before=before)) == ["clock"]
    assert rules(lint("return rows.transform(stamped)", before=before)) == ["clock"]


def test_what_the_transform_does_not_use_is_left_alone(lint):
    before = "STARTED = datetime.now()\n\n\ndef report(rows):\n    return random.random()\n\n\n"
    assert lint("return rows", before=before) == []


@pytest.mark.parametrize(
    "head",
    [
        "from pyspark.sql.functions import rand\n",
        "from pyspark.sql.functions import *\n",
        "import pyspark.sql.functions as fn\nrand = fn.rand\n",
    ],
)
def test_functions_are_known_however_they_are_imported(lint, head):
    body = "return rows.withColumn('x', fn.rand())" if "fn" in head else "return rows.withColumn('x', rand())"
    assert rules(lint(body, head=head)) == ["random"]


def test_a_name_that_is_the_users_own_is_not_sparks(lint):
    before = "def rand():\n    return 4\n\n\ndef hash(text):\n    return 1\n\n\n"
    assert lint("return rows.withColumn('x', F.lit(rand() + hash('a')))", before=before) == []


UNMARKED = """\
@F.udf("string")
def tag(value):
    return value + str(uuid.uuid4())


"""
MARKED = """\
def plain(value):
    return value + str(uuid.uuid4())


tag = F.udf(plain).asNondeterministic()


"""


def test_a_udf_that_spark_takes_for_deterministic_is_remarked_on(lint):
    assert rules(lint("return rows.withColumn('x', tag('id'))", before=UNMARKED)) == ["udf", "random"]
    assert rules(lint("return rows.withColumn('x', tag('id'))", before=MARKED)) == ["random"]
    steady = UNMARKED.replace("str(uuid.uuid4())", "'!'")
    assert lint("return rows.withColumn('x', tag('id'))", before=steady) == []


def test_a_comment_with_a_reason_lets_a_rule_pass_on_its_line_and_no_other_rule(lint):
    stamped = "return rows.withColumn('at', F.current_timestamp())"
    assert rules(lint(f"{stamped}  # twice: allow(clock) the time of loading is meant")) == []
    assert rules(lint(f"{stamped}  # twice: allow(clock)")) == ["clock"]
    assert rules(lint(f"{stamped}  # twice: allow(random) no")) == ["clock"]
    both = "return rows.withColumn('x', F.rand()).limit(3)  # twice: allow(random, order) a sample for people"
    assert rules(lint(both)) == []


def test_every_rule_has_an_example():
    assert set(BROKEN) | {"udf"} == set(RULES)


# ---------------------------------------------------------------- SQL

BROKEN_SQL = {
    "clock": ["select *, current_timestamp() as at from rows", "select current_date, id from rows", "select now()"],
    "random": [
        "select rand() from rows",
        "select uuid() as id from rows",
        "select * from rows tablesample (5 percent)",
    ],
    "layout": ["select monotonically_increasing_id() from rows", "select input_file_name() from rows"],
    "order": [
        "select * from rows limit 5",
        "select * from (select * from rows order by id) limit 5",
        "select * from rows order by id union all select * from rows limit 5",
        "select id, first(day) from rows group by id",
        "select id, collect_list(day) from rows group by id",
        "select first_value(day) over (partition by id) from rows",
        "select row_number() over (partition by id order by 1) from rows",
        "select row_number() over (order by (select null)) from rows",
    ],
}
FINE_SQL = [
    "select * from rows order by id limit 5",
    "select * from (select * from rows order by id limit 5)",
    "select * from rows limit 0",
    "select 'now()' as text, `rand` from rows -- current_timestamp()",
    "select /* rand() */ id from rows",
    "select id as current_date from rows",
    "select t.current_date, t.first from rows t",
    "select :execution_time as at from rows",
    "select sort_array(collect_list(day)) from rows group by id",
    "select size(collect_set(day)) from rows group by id",
    "select first_value(day) over (partition by id order by day) from rows",
    "select first(day) over w from rows window w as (partition by id order by day)",
    "with a as (select id, collect_list(day) as days from rows group by id) select id, sort_array(days) from a",
    "select listagg(id, ',') within group (order by id) from rows",
    "select row_number() over (partition by id order by day desc nulls first) from rows",
    "select max_by(name, day), max(day) from rows group by id order by 1 nulls last",
    "select current_timestamp() from rows -- twice: allow(clock) the time of loading is meant",
]


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule, texts in BROKEN_SQL.items() for text in texts])
def test_sql_that_differs_from_run_to_run_is_remarked_on_once(rule, text):
    assert rules(sql_remarks(text)) == [rule]


@pytest.mark.parametrize("text", FINE_SQL)
def test_sql_that_gives_the_same_rows_every_time_is_let_pass(text):
    assert rules(sql_remarks(text)) == []


def pipeline_of(transform, **sources):
    return twice.pipeline(
        name="out",
        target="memory:out",
        pattern=twice.merger(keys=["id"]),
        **(sources or {"source": twice.files("x.csv", schema="id int")}),
    )(transform)


def test_a_query_in_a_file_of_python_is_remarked_on_where_it_stands(tmp_path):
    file = tmp_path / "queries.py"
    file.write_text('import twice\n\nquery = twice.sql("""\nselect id,\n       now() as at\nfrom rows""")\n')
    module = loaded(file)
    (remark,) = remarks_on(pipeline_of(module.query), str(tmp_path))
    assert (remark.place, remark.rule.name) == ("queries.py:5:8", "clock")


def test_a_query_in_a_file_of_its_own_is_remarked_on_where_it_stands(tmp_path):
    (tmp_path / "top.sql").write_text("select *\nfrom rows\nlimit 3\n")
    (tmp_path / "queries.py").write_text("import twice\n\nquery = twice.sql(file='top.sql')\n")
    module = loaded(tmp_path / "queries.py")
    (remark,) = remarks_on(pipeline_of(module.query), str(tmp_path))
    assert (remark.place, remark.rule.name) == ("top.sql:3:1", "order")


def a_clock():
    import time

    return time.time()


def test_functions_and_queries_of_sources_are_looked_at_too(tmp_path):
    read = twice.source(a_clock, fingerprint="day {execution_date}")
    asked = twice.source(list, fingerprint=a_clock)
    query = twice.query("select rand() from a", tables={"a": "memory:a"})
    for source, rule in ((read, "clock"), (asked, "clock"), (query, "random")):
        assert rules(remarks_on(pipeline_of(lambda rows: rows, source=source), str(tmp_path))) == [rule]
