"""What SQL says, and what is refused of it at once: no JVM anywhere."""

import subprocess
import sys

import pytest

import twice
from twice import settings
from twice.fingerprint import code_digest
from twice.project import Project
from twice.runs import Run
from twice.sight import Sight
from twice.statements import Statement

DAILY = {"every": "1 day", "start": "2024-10-07"}
REST = {"target": "memory:lake/out", "pattern": twice.data_overwrite()}


@pytest.fixture
def project(tmp_path):
    return Project(settings.load(tmp_path))


def publish_lands(project, *lands):
    return twice.publish(
        [{"land": land} for land in lands],
        to="memory:lake/lands",
        pattern=twice.data_overwrite(),
        slot=twice.slot("lands"),
        inputs=list(lands),
        project=project,
    )


# ------------------------------------------------------------------ the text


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "SELECT 1;",
        "select ';' as a, \"it;s\" as b, `c;d` from rows ; -- done; really",
        "/* one; two */ select 1",
        "(select 1) union all (select 2)",
        "with a as (select 1) select * from a",
        "from rows select id",
        "values(1), (2)",
        "select*from rows",
        "table rows",
        "select r'\\' as a, 'it\\'s; :no' as b, -- :neither\n 1 as c",
    ],
)
def test_one_query_is_one_query(text):
    assert Statement(text).parameters == frozenset()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        (" ; -- nothing", "is empty"),
        ("select 1; select 2", "several statements"),
        ("select 1; drop table x", "several statements"),
        ("drop table rows", "begins with 'drop', so it is not a query"),
        ("insert into x select 1", "begins with 'insert'"),
        ("-- select\ndelete from x", "begins with 'delete'"),
        ("select :strat", r"(?s):strat is not a parameter.*Did you mean 'start'\?"),
        ("select :a, :b", ":a is not a parameter"),
        (7, "a int instead of a text"),
    ],
)
def test_what_is_not_one_query_is_refused(text, why):
    with pytest.raises(twice.Misuse, match=why):
        Statement(text)


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("select * from rows where day>=:start and day < :end", {"start", "end"}),
        ("select f(:execution_time,:key)", {"execution_time", "key"}),
        ("select a::int, v:start, v[0]:end, f():key, `a`:key, ':start', cast(s as struct<key:int>)", set()),
        ("select ':start' -- :end\n, /* :key */ 1", set()),
    ],
)
def test_parameters_are_told_from_what_only_looks_like_them(text, parameters):
    assert Statement(text).parameters == parameters


def test_comments_and_layout_are_no_code_and_quotes_are():
    text = "select  id, 'a  b' as t\n\tfrom rows -- why\n where id > 1 ;"
    assert Statement(text).normal == "select id, 'a  b' as t from rows where id > 1"
    assert code_digest(twice.sql(text)) == code_digest(
        twice.sql("select id, 'a  b' as t from /* x */ rows where id > 1")
    )
    assert code_digest(twice.sql(text)) != code_digest(twice.sql(text.replace("a  b", "a b")))


# ------------------------------------------------------------------ transforms


def declared(transform, **given):
    return twice.pipeline(**{"name": "out", "source": twice.files("in/*.parquet"), **REST, **given})(transform)


def test_the_text_is_the_code_of_the_pipeline():
    codes = {declared(twice.sql(text)).code for text in ("select 1", "select 2", "select  2 -- two")}
    assert len(codes) == 2


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "either a text or a file"),
        ({"text": "select 1", "file": "a.sql"}, "either a text or a file"),
        ({"file": "nowhere.sql"}, "(?s)'nowhere.sql' cannot be read: No such file.*beside test_sql.py"),
    ],
)
def test_a_transform_is_a_text_or_a_file(given, why):
    with pytest.raises(twice.Misuse, match=why):
        twice.sql(**given)


def test_a_pipeline_of_sql_needs_a_name_and_the_parameters_of_its_slots():
    with pytest.raises(twice.Misuse, match=r"Declare it with name="):
        declared(twice.sql("select 1"), name=None)
    with pytest.raises(twice.Misuse, match=":start in the SQL needs a slot with an interval"):
        declared(twice.sql("select :start"))
    with pytest.raises(twice.Misuse, match=":key in the SQL needs a slot with a key"):
        declared(twice.sql("select :key"), source=twice.files("in/{execution_date}.parquet"), **DAILY)


def test_sql_over_plain_rows_is_told_so():
    with pytest.raises(twice.NotPublished, match="SQL reads Spark DataFrames, and 'rows' is a list"):
        declared(twice.sql("select * from rows"))([1])
    with pytest.raises(twice.NotPublished, match="'a' is a list"):
        declared(twice.sql("select * from a")).call({"a": [1]}, Run(declared(len).slot(), 1, "x"))
    with pytest.raises(twice.Misuse, match="no rows to read"):
        twice.sql("select 1")()


# ------------------------------------------------------------------ queries as sources


def test_a_query_says_when_its_rows_are_other_rows():
    with pytest.raises(twice.Misuse, match=r"(?s)needs tables= or fingerprint=.*tables=\{'a': 'delta:lake/a'\}"):
        twice.query("select 1")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"fingerprint": ""}, "says nothing"),
        ({"fingerprint": 7}, "cannot be called"),
        ({"tables": {"a": "lake/a"}}, "is not a target"),
        ({"fingerprint": "x", "text": "drop table x"}, "not a query"),
    ],
)
def test_a_query_that_cannot_work_is_refused(given, why):
    with pytest.raises(twice.Misuse, match=why):
        twice.query(**{"text": "select 1", **given})


def test_a_query_has_the_parameters_of_its_slot(project):
    query = twice.query("select :start", fingerprint="x")
    with pytest.raises(twice.Misuse, match="needs a slot with an interval"):
        twice.pipeline(source=query, **REST)
    with pytest.raises(twice.Misuse, match="needs a slot with an interval"):
        twice.publish(
            [{"id": 1}],
            to="memory:out",
            pattern=twice.data_overwrite(),
            slot=twice.slot("out", key="k"),
            inputs=[query],
            project=project,
        )


def test_the_versions_of_its_tables_are_the_fingerprint_of_a_query(project):
    query = twice.query("select * from lands", tables={"lands": "memory:lake/lands"})
    one = declared(len, source=query)
    with pytest.raises(twice.NotPublished, match="does not exist yet"):
        twice.plan(one, project=project)
    publish_lands(project, "pl")
    first = facts_of(project, one)
    assert facts_of(project, one) == first
    publish_lands(project, "pl", "de")
    assert facts_of(project, one) != first
    assert resolved(project, one).summary == "a query, memory:lake/lands at version 1"
    assert resolved(project, declared(len, source=at_version(0))).summary == "a query, memory:lake/lands at version 0"


def at_version(version):
    return twice.query("select 1", tables={"lands": twice.table("memory:lake/lands", version=version)})


def resolved(project, pipeline):
    return project.job(pipeline, pipeline.slot()).resolve(Sight())["rows"]


def facts_of(project, pipeline):
    return resolved(project, pipeline).facts


def test_a_declared_fingerprint_of_a_query_is_asked_again(project):
    answers = [1, 1, 2]
    query = twice.query("select 1", fingerprint=lambda: answers.pop(0))
    chosen = resolved(project, declared(len, source=query))
    assert (chosen.facts, chosen.summary) == ([["query", 1]], "a query, declared as 1")
    assert [chosen.moved(), chosen.moved()] == [[], ["query"]]


def test_a_query_reads_no_target_of_its_own_pipeline(project):
    with pytest.raises(twice.Misuse, match="reads its own target"):
        resolved(project, declared(len, source=twice.query("select 1", tables={"me": "memory:lake/out"})))


def test_the_text_and_the_function_of_a_query_are_code():
    def one(): return 1  # fmt: skip

    def two(): return 2  # fmt: skip

    declarations = [("select 1", one), ("select  1", one), ("select 1", two), ("select 2", one), ("select 1", "x")]
    codes = [declared(len, source=twice.query(text, fingerprint=mark)).code for text, mark in declarations]
    assert codes[0] == codes[1]
    assert len(set(codes)) == 4


# ------------------------------------------------------------------ files of pipelines

FILE = """
import twice
from pyspark.sql import functions as F

lands = twice.pipeline(
    name="lands", target="parquet:lake/out", pattern=twice.data_overwrite(),
    source=twice.query("select * from a", tables={"a": "delta:lake/a"}),
)(twice.sql(file="lands.sql"))
"""
LOOK = """
import sys, twice
project = twice.Project.open(sys.argv[1])
print(project.pipelines["lands"].transform.statement.normal, sorted(project._kinds()), "pyspark" in sys.modules)
print(project._callable(project.pipelines["lands"]) is project.whole_pipelines["lands"])
"""


def test_a_file_beside_the_pipeline_is_read_without_spark_and_its_tables_are_known(tmp_path):
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/lands.py").write_text(FILE)
    (tmp_path / "pipelines/lands.sql").write_text("select land\nfrom rows\n")
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path.parent
    )
    assert (done.stdout, done.stderr) == ("select land from rows ['delta', 'parquet'] False\nTrue\n", "")
