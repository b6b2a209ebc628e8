"""`twice prove` on Parquet and Delta: the example of `twice init`, and pipelines that it has to see through."""

import shutil
import sys

import pytest
from declared_patterns import PATTERNS

import twice
from sessions import with_session
from twice.cli import main
from twice.cli.project import write_example
from twice.prover import archives, verdicts, worlds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

RETURNS = '    return rows.where("seconds > 0")'
OWN = '''
from pathlib import Path

from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import twice


def deliveries(spark, run):
    """Read a file in a way of one's own."""
    lines = Path(f"landing/visits/{run.execution_time:%Y-%m-%d}.csv").read_text().splitlines()[1:]
    return spark.createDataFrame([line.split(",") for line in lines], "id string, page string, seconds string, day string")


@F.udf(StringType())
def shouted(text):
    return text.upper() + "!"


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    end="2024-10-11",
    source=twice.source(deliveries, fingerprint="delivery of {execution_date}"),
    target="parquet:lake/visits",
    pattern=twice.data_overwrite(slice="day"),
)
def visits(rows):
    return rows.withColumn("page", shouted("page")).withColumn("day", F.to_date("day"))
'''


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a maker of example projects, with something changed in the transform."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def make(kind, returns=RETURNS, whole=None):
        write_example(tmp_path, kind)
        file = tmp_path / "pipelines/visits.py"
        text = file.read_text()
        assert RETURNS in text
        changed = text.replace(RETURNS, returns).replace(
            "import twice\n", "import twice\nfrom pyspark.sql import functions as F\n", 1
        )
        file.write_text(whole or changed)
        return tmp_path

    return make


def found(proof):
    return {one.trial.name: (one.verdict, one.seen) for one in proof.counterexamples}


@pytest.mark.stores("parquet", "delta")
def test_the_example_is_proven_in_the_time_that_it_is_given(kind, spark, project):
    proof = twice.prove("visits", project=project(kind), spark=spark, budget="60s")
    assert found(proof) == {}
    assert proof.verdict == "no counterexample"
    tried, left_out = {one.trial.name for one in proof.tried}, {one.name for one in proof.left_out}
    assert "publish.after/died" in tried
    assert {f"{point}/{way}" for point in proof.points for way in ("died", "kill")} <= tried | left_out
    assert {one.why for one in proof.left_out} >= {"no time was left"}
    assert proof.seconds_left_out > 0


@pytest.mark.prove
@pytest.mark.stores("parquet", "delta")
@pytest.mark.parametrize("shape", PATTERNS)
def test_no_false_alarm_on_any_cell(kind, spark, project, shape):
    folder = project(kind)
    file = folder / "pipelines/visits.py"
    pattern = PATTERNS[shape].replace('"id"', '"visit_id"')
    file.write_text(file.read_text().replace('twice.data_overwrite(slice="day")', pattern))
    proof = twice.prove("visits", project=folder, spark=spark, budget="90s")
    assert found(proof) == {}
    assert "publish.after/died" in {one.trial.name for one in proof.tried}


@pytest.mark.stores("parquet", "delta")
@pytest.mark.parametrize("trial", ["publish.after/kill", "rows.ready/kill-jvm"])
def test_a_real_death_is_died_and_survived(kind, spark, project, trial):
    proof = twice.prove("visits", project=project(kind), spark=spark, only=trial)
    assert [one.trial.name for one in proof.tried] == [trial]
    assert found(proof) == {}


@pytest.mark.postgres
@pytest.mark.parametrize(
    "trial",
    [
        "postgres.commit/cut-after",
        *(pytest.param(f"postgres.commit/cut-{how}", marks=pytest.mark.prove) for how in ("before", "during")),
        *(pytest.param(f"{name}", marks=pytest.mark.prove) for name in ("publish.after/kill", "publish.before/pause")),
    ],
)
def test_a_postgres_target_is_proven_on_a_server_of_its_own(spark, project, monkeypatch, trial):
    """The user's own server is never spoken to: there is none at this address."""
    monkeypatch.setenv("TWICE_POSTGRES_URL", "postgresql://ann@127.0.0.1:1/none")
    proof = twice.prove("visits", project=project("postgres"), spark=spark, only=trial)
    assert [one.trial.name for one in proof.tried] == [trial]
    assert found(proof) == {}
    assert proof.store == "postgres"


@pytest.mark.stores("parquet")
@pytest.mark.parametrize(
    "trial",
    [
        "publish.before/pause",
        "rows.ready/disk-full",
        *(pytest.param(name, marks=pytest.mark.prove) for name in ("rows.ready/fsync", "repeat/at-once")),
        *(pytest.param(f"rows.ready/{way}", marks=pytest.mark.prove) for way in ("kill-executor", "speculation")),
    ],
)
def test_a_real_mishap_is_survived(kind, spark, project, trial):
    proof = twice.prove("visits", project=project(kind), spark=spark, only=trial)
    assert [one.trial.name for one in proof.tried] == [trial]
    assert found(proof) == {}


@pytest.mark.stores("parquet")
def test_a_run_alone_leaves_an_archive_of_classes_that_later_ones_start_from(
    kind, spark, project, tmp_path, monkeypatch
):
    archive = tmp_path / "cache" / "classes.jsa"
    monkeypatch.setattr(archives, "_archive", lambda: archive)
    assert "SharedArchiveFile" not in str(archives.quick())
    proof = twice.prove("visits", project=project(kind), spark=spark, only="repeat/alone")
    assert found(proof) == {}
    assert archive.stat().st_size > 1_000_000
    # A JVM that must have the archive starts only if it fits.
    strictly = {name: value.replace("-Xlog:disable", "-Xshare:on") for name, value in archives.quick().items()}
    assert "SharedArchiveFile" in strictly["SPARK_SUBMIT_OPTS"]
    monkeypatch.setattr(worlds, "quick", lambda: strictly)
    proof = twice.prove("visits", project=project(kind), spark=spark, only="publish.after/kill")
    assert found(proof) == {}


@pytest.mark.stores("parquet", "delta")
def test_an_append_by_hand_gives_exit_5_and_a_command_that_shows_it_again(kind, spark, project, monkeypatch, capsys):
    with_session(monkeypatch, spark)
    by_hand = f'    rows.write.format("{kind}").mode("append").save("lake/by_hand")\n{RETURNS}'
    folder = project(kind, by_hand)
    monkeypatch.chdir(folder)
    assert main(["prove", "visits", "--only", "stage.after/died"]) == 5
    said = capsys.readouterr().out
    assert "side effect repeated" in said
    assert "in lake/by_hand: 24 rows instead of 18" in said
    again = said.partition("Again: twice ")[2].splitlines()[0].split()
    assert main(again) == 5
    assert not (folder / "lake").exists()


@pytest.mark.stores("parquet")
def test_the_clock_and_dice_are_named_with_their_columns(kind, spark, project):
    chance = '    return rows.withColumn("loaded", F.current_timestamp()).withColumn("dice", F.expr("rand() * 6"))'
    proof = twice.prove("visits", project=project(kind, chance), spark=spark, only="repeat/clean")
    assert proof.verdict == "not deterministic"
    verdict, seen = found(proof)["repeat/clean"]
    assert verdict == verdicts.NOT_DETERMINISTIC
    assert seen.startswith("two clean runs differ in columns 'dice', 'loaded'; likely: ")
    assert "F.current_timestamp() in line" in seen
    assert "rand in line" in seen


@pytest.mark.stores("parquet")
def test_a_pipeline_with_its_own_source_and_udf_is_proven_as_it_is(kind, spark, project):
    folder = project(kind, whole=OWN)
    for trial in ("stage.after/died", "publish.after/kill"):
        proof = twice.prove("visits", project=folder, spark=spark, only=trial)
        assert found(proof) == {}
        assert len(proof.tried) == 1
    assert any("is called as it is" in note for note in proof.notes)


@pytest.mark.stores("parquet")
def test_a_table_that_is_read_is_copied(kind, spark, project, tmp_path):
    folder = project(kind)
    (folder / "pipelines/pages.py").write_text(
        'import twice\n\n\n@twice.pipeline(source=twice.table("parquet:lake/visits"), target="parquet:lake/pages",\n'
        "    pattern=twice.data_overwrite())\ndef pages(rows):\n    return rows.groupBy('page').count()\n"
    )
    twice.run("visits", at="2024-10-07", project=folder, spark=spark)
    table = {path: path.read_bytes() for path in (folder / "lake").rglob("*") if path.is_file()}
    proof = twice.prove("pages", project=folder, spark=spark, only="publish.before/died")
    assert found(proof) == {}
    assert {path: path.read_bytes() for path in (folder / "lake").rglob("*") if path.is_file()} == table
    shutil.rmtree(folder / "lake")
    with pytest.raises(twice.Misuse, match="does not exist yet"):
        twice.prove("pages", project=folder, spark=spark, only="publish.before/died")
