"""With which options is the JVM of a session started?"""

import pytest

from twice import settings
from twice.engine import Engine

OPTIONS = "spark.driver.extraJavaOptions"
PARALLEL = "-XX:+UseParallelGC"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    names = (
        "JDK_JAVA_OPTIONS",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "SPARK_SUBMIT_OPTS",
        "SPARK_HOME",
        "SPARK_CONF_DIR",
    )
    for name in (*names, "TWICE_SPARK_MASTER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def options(tmp_path):
    """Return the options of the JVM that would be started for a project file with this text."""

    def told(text=""):
        (tmp_path / settings.FILE).write_text(text, encoding="utf-8")
        return Engine(settings.load(tmp_path))._conf()[OPTIONS].split()

    return told


def test_a_local_session_has_the_collector_that_suits_tasks(options):
    assert PARALLEL in options()


def test_a_driver_that_leaves_tasks_to_a_cluster_has_the_collector_of_java(options):
    assert PARALLEL not in options("[spark]\nmaster = 'spark://host:7077'\n")


@pytest.mark.parametrize("chosen", ["-XX:+UseG1GC", "-Xmn1g -XX:+UseZGC", "-XX:Flags=java.flags", "@java.options"])
@pytest.mark.parametrize("name", [OPTIONS, "spark.driver.defaultJavaOptions"])
def test_a_collector_that_the_project_may_have_chosen_is_the_only_one(options, name, chosen):
    assert PARALLEL not in options(f"[spark.conf]\n'{name}' = '{chosen}'\n")


def test_options_of_the_project_that_name_no_collector_stand_beside_ours(options):
    found = options(f"[spark.conf]\n'{OPTIONS}' = '-XX:+UseGCOverheadLimit -Dmail=me@host'\n")
    assert {PARALLEL, "-XX:+UseGCOverheadLimit"} <= set(found)


@pytest.mark.parametrize("variable", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"])
def test_a_collector_that_the_environment_chose_is_the_only_one(options, monkeypatch, variable):
    monkeypatch.setenv(variable, "-Xmx1g -XX:+UseSerialGC")
    assert PARALLEL not in options()


@pytest.mark.parametrize(("variable", "below"), [("SPARK_CONF_DIR", "."), ("SPARK_HOME", "conf")])
def test_a_collector_that_the_defaults_of_spark_name_is_the_only_one(options, monkeypatch, tmp_path, variable, below):
    folder = tmp_path / "spark" / below
    folder.mkdir(parents=True)
    (folder / "spark-defaults.conf").write_text("spark.driver.defaultJavaOptions -XX:+UseG1GC\n")
    monkeypatch.setenv(variable, str(tmp_path / "spark"))
    assert PARALLEL not in options()
