"""Two clean runs can agree by luck: `twice prove` makes the second one in other weather, and finds what depends on it."""

import shutil
import subprocess
import sys
from datetime import UTC, datetime

import pytest

import twice
from twice.cli.project import write_example
from twice.prover import verdicts, weather

ON_SPARK = [pytest.mark.spark, pytest.mark.timeout(600)]
CLEAN = "repeat/clean"
RETURNS = '    return rows.where("seconds > 0")'
BEFORE = """    import datetime, locale, os, time
    from pyspark.sql import Window, functions as F

    spark = rows.sparkSession
    of_a_day = Window.partitionBy("day")

    def here(called):
        return F.lit(str(called()))

    def by_workers(called):
        return F.udf(lambda text: str(called(text)))("visit_id")

    def formatted():
        locale.setlocale(locale.LC_ALL, "")
        try:
            return locale.format_string("%.2f", 1.5)
        finally:
            locale.setlocale(locale.LC_ALL, "C")

"""
# What a transform may depend on without a word of it in its inputs.
CHANCE = {
    "id_by_partition": "F.monotonically_increasing_id()",
    "partition": "F.spark_partition_id()",
    "dice": "F.rand()",
    "uuid": "F.expr('uuid()')",
    "now": "F.expr('now()')",
    "hash_by_workers": "by_workers(hash)",
    "hash": "here(lambda: hash('a'))",
    "folder": "here(os.getcwd)",
    "folder_of_workers": "by_workers(lambda _: os.getcwd())",
    "formatted": "here(formatted)",
    "first": "F.first('page').over(of_a_day)",
    "list": "F.collect_list('page').over(of_a_day)",
}
# The weather itself: were a part of it the same, what depends on that part could pass.
WEATHER = {
    "cores": "here(lambda: spark.sparkContext.defaultParallelism)",
    "pieces": "here(rows.rdd.getNumPartitions)",
    "shuffle_partitions": "here(lambda: spark.conf.get('spark.sql.shuffle.partitions'))",
    "adaptive": "here(lambda: spark.conf.get('spark.sql.adaptive.enabled'))",
    "seed": "here(lambda: os.environ.get('PYTHONHASHSEED'))",
    "zone": "here(lambda: time.tzname)",
    "today": "here(datetime.date.today)",
    "today_of_workers": "by_workers(lambda _: datetime.date.today())",
    "language": "F.expr(\"reflect('java.util.Locale', 'getDefault')\")",
}
SAME = {"session_zone": "here(lambda: spark.conf.get('spark.sql.session.timeZone'))", "upper": "F.upper('page')"}


def with_columns(columns):
    added = "".join(f"    rows = rows.withColumn({name!r}, {how})\n" for name, how in columns.items())
    return f"{BEFORE}{added}{RETURNS}"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a maker of example projects with another transform."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def make(kind, body):
        write_example(tmp_path, kind)
        file = tmp_path / "pipelines/visits.py"
        assert RETURNS in file.read_text()
        file.write_text(file.read_text().replace(RETURNS, body))
        return tmp_path

    return make


@pytest.fixture
def german(tmp_path_factory, monkeypatch):
    """Let this machine have a German locale, which nothing here runs in; return whether it has what one is made of."""
    folder = tmp_path_factory.mktemp("locales")
    monkeypatch.setenv("LOCPATH", str(folder))
    monkeypatch.delenv("LC_ALL", raising=False)
    made = shutil.which("localedef")
    return bool(made) and not subprocess.call([made, "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.utf8")])


def differing(project, spark=None):
    """Return the verdict, and the columns in which two clean runs differ."""
    proof = twice.prove("visits", project=project, spark=spark, only=CLEAN)
    (one,) = proof.tried
    assert one.survived or one.seen.startswith("two clean runs differ in column")
    names = one.seen.partition("differ in column")[2].partition(";")[0].removeprefix("s")
    return proof.verdict, {name.strip(" '") for name in names.split(",") if name}


def without(german):
    """Return the columns that are the same where no other locale can be made."""
    return set() if german else {"formatted"}


class TestOnSpark:
    pytestmark = ON_SPARK

    @pytest.mark.stores("parquet")
    def test_the_second_clean_run_is_made_in_other_weather_and_finds_what_depends_on_it(
        self, kind, spark, project, german
    ):
        columns = {**WEATHER, **CHANCE}
        folder = project(kind, with_columns({**columns, **SAME}))
        assert differing(folder, spark) == ("not deterministic", set(columns) - without(german))

    @pytest.mark.prove
    @pytest.mark.stores("parquet")
    @pytest.mark.parametrize("name", CHANCE)
    def test_each_alone_is_found(self, kind, spark, project, german, name):
        assert differing(project(kind, with_columns({name: CHANCE[name]})), spark)[1] == {name} - without(german)

    @pytest.mark.stores("parquet")
    def test_where_a_file_lies_is_found_and_what_it_is_called_is_no_false_alarm(self, kind, spark, project):
        columns = {
            "file": "F.input_file_name()",
            "name": "F.element_at(F.split(F.input_file_name(), '/'), -1)",
            "piece": "F.spark_partition_id()",
        }
        assert differing(project(kind, with_columns(columns)), spark) == ("not deterministic", {"file", "piece"})

    @pytest.mark.stores("parquet")
    def test_a_limit_after_a_repartition_is_found(self, kind, spark, project):
        limited = RETURNS.replace('where("seconds > 0")', "repartition(4).limit(3)")
        verdict, columns = differing(project(kind, limited), spark)
        assert verdict == "not deterministic"
        assert "visit_id" in columns

    @pytest.mark.stores("parquet", "delta")
    def test_what_depends_on_its_inputs_alone_is_no_false_alarm(self, kind, spark, project):
        columns = {
            "file": "F.col('_metadata.file_name')",
            "count": "F.count('*').over(of_a_day)",
            "list": "F.sort_array(F.collect_list('page').over(of_a_day))",
            "key": "F.xxhash64('visit_id')",
            "mean": "F.avg(F.col('seconds').cast('decimal(9, 2)')).over(of_a_day)",
        }
        assert differing(project(kind, with_columns(columns)), spark) == ("no counterexample", set())


@pytest.mark.parametrize(
    "value",
    ["date.today()", "datetime.now().hour", "time.tzname", "time.time() // 86400", "os.getcwd()", "formatted()"],
)
def test_in_one_process_the_clock_the_zone_the_locale_and_the_folder_are_varied(memory_project, german, value):
    before = (
        "import locale, os, time\nfrom datetime import datetime\n\n\ndef formatted():\n"
        "    locale.setlocale(locale.LC_ALL, '')\n    said = locale.format_string('%.1f', 1.5)\n"
        "    locale.setlocale(locale.LC_ALL, 'C')\n    return said\n\n\n"
    )
    folder = memory_project(f"return [{{**row, 'value': str({value})}} for row in rows]", before=before)
    expected = set() if value.removesuffix("()") in without(german) else {"value"}
    assert differing(folder)[1] == expected


def test_whatever_this_process_says_the_other_one_says_something_else(monkeypatch):
    first = weather.other_process()
    for name, value in first.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(weather, "_language", lambda: "de")
    second = weather.other_process()
    assert all(first[name] != second[name] for name in first)


def test_a_second_clean_run_that_fails_is_a_counterexample(memory_project):
    folder = memory_project(f"assert date.today().year == {datetime.now(UTC).year}\nreturn rows")
    proof = twice.prove("visits", project=folder)
    assert [(one.trial.name, one.verdict) for one in proof.counterexamples] == [(CLEAN, verdicts.STUCK)]
    assert proof.verdict == "not idempotent"


def test_what_was_not_varied_is_said(memory_project):
    proof = twice.prove("visits", project=memory_project(), budget="4s")
    assert "cores and hash seed were not varied: rows in memory end with their process" in proof.notes
