"""What the command line answers, where it says it, and how it ends."""

import io
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from twice.cli import _COMMANDS
from twice.errors import suggestion
from twice.faults import Died, armed, dying_at
from twice.project import Project
from twice.stores import manifest

DAY, SECOND, LAST = "2024-10-07", "2024-10-08", "2024-10-10"
SUBCOMMANDS = [
    *(("jars", word) for word in ("fetch", "list")),
    *(("ledger", word) for word in ("rebuild", "export", "import")),
    *(("dead", word) for word in ("list", "show", "requeue", "drop")),
    *(("effects", word) for word in ("list", "deliver", "confirm", "forget")),
]
GROUPS = {name for name, _ in SUBCOMMANDS}
WHOLE = [(name,) for name in _COMMANDS if name not in GROUPS] + SUBCOMMANDS


def published_days(store):
    """Return the days that the example's target has receipts of."""
    receipts = Project.open().store(store).look("lake/visits").receipts
    return sorted(re.search(r"(\d{4}-\d\d-\d\d)T", slot)[1] for slot in receipts)


def target_of(kind):
    return f"{kind}:lake/visits"


@pytest.fixture
def other_ledger(monkeypatch):
    """Let the next commands use another ledger than the one that owns the targets."""
    return lambda: monkeypatch.setenv("TWICE_LEDGER_URL", "sqlite:///.twice/other.db")


@pytest.fixture
def terminal(monkeypatch):
    """Let somebody sit at a terminal and type this."""

    class Typed(io.StringIO):
        def isatty(self):
            return True

    return lambda text: monkeypatch.setattr(sys, "stdin", Typed(text))


# ------------------------------------------------------------------ help and misspelt words


def test_help_lists_every_command_with_examples_and_exit_codes(twice):
    said = twice("--help")
    assert said.code == 0
    assert all(re.search(rf"^  {name} ", said.out, re.MULTILINE) for name in _COMMANDS)
    assert "Examples:" in said.out
    assert "Exit codes:" in said.out
    assert "\\b" not in said.out
    assert "\b" not in said.out


@pytest.mark.parametrize("words", WHOLE, ids=" ".join)
def test_help_of_a_command_shows_an_example_of_it(twice, words):
    said = twice(*words, "--help")
    assert said.code == 0
    assert "\\b" not in said.out
    assert "\b" not in said.out
    assert re.search(r"^\s*Examples?\b.*:$", said.out, re.MULTILINE)
    assert re.search(rf"^ +twice {' '.join(words)}\b", said.out, re.MULTILINE)


def test_the_version_is_told(twice):
    said = twice("--version")
    assert (said.code, bool(re.fullmatch(r"twice, version \d+\.\d+\.\d+\n", said.out))) == (0, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("rnu",), r"There is no command 'rnu'. Did you mean 'run'\?"),
        (("nonsense",), "There is no command 'nonsense'. There is: adopt, advise, backfill"),
        (("ledger", "rebild"), "rebild"),
        (("run", "visits", "--dew"), "No such option"),
        (("run", "visits", "--output", "xml"), "'xml' is not one of"),
        (("show",), "Missing argument"),
        (("plan",), "Use twice plan NAME --at TIME, or twice plan --due"),
        (("backfill", "visits"), "Missing option"),
    ],
)
def test_a_misspelt_command_or_option_is_told_so(twice, home, words, told):
    said = twice(*words)
    assert (said.code, said.out) == (2, "")
    assert re.search(told, said.err)


@pytest.mark.parametrize("command", ["plan", "run", "status", "runs", "tidy"])
def test_a_misspelt_pipeline_is_answered_with_the_nearest_name(twice, home, command):
    said = twice(command, "vists")
    assert (said.code, said.out) == (2, "")
    assert said.err == "Misuse: There is no pipeline 'vists'.\n  Did you mean 'visits'?\n"


def test_a_pipeline_unlike_any_other_is_answered_with_those_there_are(twice, home):
    said = twice("run", "quarterly", "--at", DAY)
    assert said.code == 2
    assert "There is: visits." in said.err


def test_a_project_folder_that_is_not_there_is_told_so(twice, home):
    said = twice("status", "--project", "elsewhere/nowhere")
    assert said.code == 2
    assert "elsewhere/nowhere" in said.err


def test_a_project_is_found_from_a_folder_inside_it(twice, home, monkeypatch):
    monkeypatch.chdir(home.folder / "landing/visits")
    said = twice("list", "--output", "json")
    assert [pipeline["name"] for pipeline in said.json["pipelines"]] == ["visits"]


# ------------------------------------------------------------------ init, list, matrix, config, jars, doctor


def test_init_makes_a_project_and_run_again_changes_nothing(twice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = twice("init", "made")
    assert first.code == 0
    assert "made pipelines/visits.py" in first.out
    assert "cd made" in first.out
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = twice("init", "made", "--store", "delta")
    assert (again.code, "nothing was changed" in again.out) == (0, True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert twice("init", "made", "--output", "json").json == {"schema_version": 1, "made": []}


def test_init_never_writes_over_a_file(twice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/visits.py").write_text("# mine\n")
    assert twice("init").code == 0
    assert (tmp_path / "pipelines/visits.py").read_text() == "# mine\n"


def test_init_that_was_stopped_half_way_is_finished_by_the_next(twice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "landing").write_text("in the way")
    said = twice("init")
    assert (said.code, "cannot be made" in said.err) == (2, True)
    (tmp_path / "landing").unlink()
    assert twice("init").code == 0
    assert (tmp_path / f"landing/visits/{DAY}.csv").exists()


def test_list_names_the_pipelines(twice, home):
    said = twice("list")
    assert said.code == 0
    assert re.search(
        r"^visits +parquet:lake/visits +data_overwrite +1 day +UTC +2024-10-07 +2024-10-11$", said.out, re.MULTILINE
    )


def test_list_of_an_empty_project_says_how_to_begin(twice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twice.toml").touch()
    said = twice("list")
    assert (said.code, "twice init" in said.out) == (0, True)


def test_matrix_is_computed_for_every_store(twice):
    cells = twice("matrix", "--output", "json").json["cells"]
    assert {cell["store"] for cell in cells} >= {"memory", "parquet", "delta"}
    assert all(cell["supported"] or cell["reason"] for cell in cells)
    said = twice("matrix")
    assert re.search(r"^data_overwrite \(slice\) +yes +yes +yes +no", said.out, re.MULTILINE)


def test_config_tells_each_value_and_its_origin(twice, home, monkeypatch):
    monkeypatch.setenv("TWICE_LEASES_SECONDS", "7")
    monkeypatch.setenv("VAULT", "hunter2")
    with (home.folder / "twice.toml").open("a") as toml:
        toml.write(
            '[spark.conf]\n"spark.driver.memory" = "2g"\n'
            '"spark.hadoop.fs.s3a.secret.key" = "${VAULT}"\n'
            '"spark.ssl.keyPassword" = "swordfish"\n'
            '[stores.raw]\nkind = "parquet"\nroot = "raw"\n'
            "[retries]\ntries = 2.0\n"
        )
    said = twice("config", "--output", "json")
    found = {entry["key"]: (entry["value"], entry["origin"]) for entry in said.json["settings"]}
    assert found["leases.seconds"] == (7.0, "environment (TWICE_LEASES_SECONDS)")
    assert found["spark.master"] == ("local[*]", "twice.toml")
    assert found["tidy.keep_days"] == (7.0, "default")
    assert (str(found["retries.tries"][0]), str(found["retries.per_hour"][0])) == ("2", "100")
    assert found["spark.conf.spark.driver.memory"] == ("2g", "twice.toml")
    assert found["spark.conf.spark.hadoop.fs.s3a.secret.key"] == ("${VAULT}", "twice.toml")
    assert found["stores.raw"] == ("parquet at raw", "twice.toml")
    text = twice("config").out
    assert "hunter2" not in said.out + text
    assert "swordfish" not in said.out + text
    assert re.search(r"^leases\.seconds +7\.0 +environment \(TWICE_LEASES_SECONDS\)$", text, re.MULTILINE)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@host/db",
        "postgresql://ann@host/db?password=hunter2",
        "postgresql://ann:hunter2@${HOST}/db",
        "postgresql://ann:hun/ter@hunter2@host/db",
        "postgresql://ann:${VAULT}@host/db",
    ],
)
def test_config_shows_no_password_of_a_database(twice, home, monkeypatch, url):
    monkeypatch.setenv("VAULT", "hunter2")
    monkeypatch.setenv("HOST", "db.example")
    toml = f'[ledger]\nurl = "{url}"\n[stores.raw]\nkind = "postgres"\nurl = "{url}"\n'
    (home.folder / "twice.toml").write_text(toml)
    by_file = twice("config", "--output", "json")
    assert ("${VAULT}" in by_file.out, by_file.out.count("postgresql://ann")) == ("VAULT" in url, 1)
    monkeypatch.setenv("TWICE_LEDGER_URL", "postgresql://ann:hunter2@host/db")
    monkeypatch.setenv("TWICE_STORES_RAW_URL", "host=one password=hunter2")
    for said in (by_file.out, twice("config").out):
        assert "postgresql://ann" in said
        assert "hun" not in said


def test_jars_list_shows_what_is_pinned(twice, tmp_path, monkeypatch):
    monkeypatch.setenv("TWICE_JARS", str(tmp_path))
    said = twice("jars", "list")
    assert said.code == 0
    assert re.search(r"^delta: io\.delta:delta-spark\S+, io\.delta:\S+ \(not fetched yet\)$", said.out, re.MULTILINE)
    assert twice("jars", "list", "--output", "json").json["packages"]["delta"]["fetched"] == []


def test_jars_of_an_unknown_store_are_refused(twice):
    said = twice("jars", "fetch", "detla")
    assert (said.code, "Did you mean 'delta'?" in said.err) == (2, True)


@pytest.mark.spark
def test_doctor_finds_all_that_a_run_needs(twice, home):
    said = twice("doctor")
    assert (said.code, " NO " in said.out) == (0, False)
    checks = twice("doctor", "--output", "json").json["checks"]
    names = ["python", "java", "pyspark", "project", "pipelines", "jvm packages", "postgresql"]
    names += ["ledger", "disk", "pipeline visits"]
    assert [check["name"] for check in checks] == names


def test_doctor_names_what_is_not_there(twice, home, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home.edit("pipelines/visits.py", "import twice\n", "import twice\nimport no_such_module\n")
    said = twice("doctor")
    assert said.code == 2
    assert re.search(r"^java +NO +Java was not found\. Install Java 17", said.out, re.MULTILINE)
    assert re.search(r"^pipelines +NO +visits\.py, line \d+: ModuleNotFoundError", said.out, re.MULTILINE)
    assert re.search(r"^python +ok ", said.out, re.MULTILINE)


NAMES_NO_COLUMN = """
import twice

SOURCE = twice.files("landing/*.csv", schema="id int, day date")
SLICE = twice.data_overwrite(slice="dya")


@twice.pipeline(every="1 day", start="2024-10-07", target="parquet:lake/first", pattern=SLICE, source=SOURCE)
def first(rows):
    return rows


@twice.pipeline(target="parquet:lake/second", pattern=twice.merger(keys=["ids"]), source=SOURCE)
def second(rows):
    return rows
"""


def test_names_of_columns_that_are_none_are_found_without_a_jvm(twice, home):
    (home.folder / "pipelines/more.py").write_text(NAMES_NO_COLUMN)
    (home.folder / "landing").mkdir(exist_ok=True)
    (home.folder / "landing/a.csv").write_text("id,day\n1,2024-10-07\n")
    said = twice("doctor")
    assert said.code == 2
    told = " ".join(said.out.split())
    assert "have no column 'dya' (slice=), and the transform adds none." in told
    assert "have no column 'ids' (keys=), and the transform adds none." in told
    assert re.search(r"^pipeline visits +ok ", said.out, re.MULTILINE)
    for words in (("plan", "first", "--at", DAY), ("run", "first", "--at", DAY), ("plan", "second"), ("run", "second")):
        said = twice(*words)
        assert (said.code, "Did you mean" in said.err) == (2, True)


# ------------------------------------------------------------------ plan


def test_plan_of_a_new_slot_says_create_and_reads(twice, home):
    said = twice("plan", "visits", "--at", DAY)
    assert said.code == 0
    assert said.out.startswith("visits -> parquet:lake/visits  (data_overwrite, no table yet)\n")
    for line in (
        "  slot 2024-10-07T00:00Z/2024-10-08T00:00Z",
        "  create: the first run of this slot (generation 1)",
        "  reads rows: 1 file, 218 bytes",
    ):
        assert f"{line}\n" in said.out
    assert not (home.folder / "lake").exists()


@pytest.mark.stores("parquet", "delta")
@pytest.mark.parametrize("words", [(), ("--force",)], ids=["as it is", "forced"])
def test_plan_changes_no_target_and_records_no_attempt(twice, published, words):
    published.put(SECOND, 9)
    before, runs = published.files("lake"), twice("runs", "--output", "json").out
    for day in (DAY, SECOND, LAST):
        assert twice("plan", "visits", "--at", day, *words).code == 0
    assert published.files("lake") == before
    assert twice("runs", "--output", "json").out == runs


@pytest.mark.stores("parquet")
def test_plan_writes_nothing_at_all(twice, published, monkeypatch):
    monkeypatch.setattr("twice.sources.marking._RACY_SECONDS", 0.0)
    before = published.files()
    assert twice("plan", "visits", "--at", DAY).code == 0
    assert published.files() == before


@pytest.mark.parametrize("words", [("plan", "visits", "--at", DAY), ("tidy", "--dry-run")], ids=" ".join)
def test_looking_writes_nothing_at_all_in_a_new_project(twice, home, words):
    before = home.files()
    assert twice(*words).code == 0
    assert home.files() == before


@pytest.mark.stores("parquet", "delta")
def test_plan_tells_skip_replace_and_create_apart(twice, published):
    assert twice("plan", "visits", "--at", DAY, "--output", "json").json["plan"]["action"] == "skip"
    forced = twice("plan", "visits", "--at", DAY, "--force", "--output", "json").json["plan"]
    assert (forced["action"], forced["reason"], forced["generation"]) == ("replace", "asked for with --force", 2)
    published.put(DAY, 9)
    changed = twice("plan", "visits", "--at", DAY, "--output", "json").json
    assert (changed["plan"]["action"], changed["plan"]["reason"]) == ("replace", "the inputs changed")
    assert [step["name"] for step in changed["plan"]["steps"]] == ["stage", "publish"]
    assert changed["inputs"] == {"rows": "1 file, 313 bytes"}
    assert twice("plan", "visits", "--at", LAST, "--output", "json").json["plan"]["action"] == "create"


@pytest.mark.stores("parquet")
def test_the_hash_of_a_plan_stands_for_what_it_saw(twice, published):
    def plan(*words):
        return twice("plan", "visits", *words, "--output", "json").json["plan"]["hash"]

    assert plan("--at", DAY) == plan("--at", DAY)
    assert len({plan("--at", DAY), plan("--at", DAY, "--force"), plan("--at", SECOND)}) == 3


# ------------------------------------------------------------------ times


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (None, r"Which interval of 'visits'\?\n  Use --at 2024-10-10T00:00Z for the newest closed interval"),
        ("2024-10-07T05:00Z", r"not the start of an interval[\s\S]*use --at 2024-10-07T00:00Z"),
        ("2024-10-07T00:00", r"carries no offset from UTC[\s\S]*Write 2024-10-07T00:00:00Z"),
        ("2024-10-07 00:00:00", "carries no offset"),
        ("2024-10-06", "lies before the calendar, which starts at 2024-10-07T00:00Z"),
        ("2024-10-11", "lies after the calendar, which ends at 2024-10-11T00:00Z, exclusive"),
        ("tomorrow", r"'tomorrow' is not a moment[\s\S]*2024-10-07T06:00Z"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_time_that_names_no_interval_ends_with_2(twice, home, command, at, told):
    said = twice(command, "visits", *(["--at", at] if at else []))
    assert (said.code, said.out) == (2, "")
    assert re.search(told, said.err)
    assert not (home.folder / "lake").exists()


@pytest.mark.parametrize(
    "words", [("run", "visits"), ("plan", "visits"), ("show", "visits"), ("quarantine", "show", "visits")]
)
def test_only_a_command_that_has_due_names_it(twice, home, words):
    said = twice(*words)
    assert (said.code, said.out) == (2, "")
    assert "Use --at 2024-10-10T00:00Z for the newest closed interval" in said.err
    assert ("--due" in said.err) is (words[0] in ("run", "plan"))


@pytest.mark.parametrize("days", [0, 1, 400])
def test_a_future_interval_ends_with_2_and_names_the_newest_closed(twice, home, days):
    home.edit("pipelines/visits.py", 'end="2024-10-11",', "")
    today = datetime.now(UTC).date()
    said = twice("run", "visits", "--at", (today + timedelta(days=days)).isoformat())
    assert (said.code, said.out) == (2, "")
    assert "is not closed yet" in said.err
    assert f"--at {today - timedelta(days=1)}T00:00Z" in said.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from", "2024-10-08", "--to", "2024-10-08"), "is not after --from"),
        (("--from", "2024-10-01", "--to", "2024-10-02"), "No interval of 'visits' starts in"),
        (("--from", "2024-10-07T00:00", "--to", "2024-10-09"), "carries no offset"),
        (("--from", "then", "--to", "now"), "'then' is not a moment"),
    ],
)
def test_a_stretch_that_names_no_interval_ends_with_2(twice, home, words, told):
    said = twice("backfill", "visits", *words)
    assert (said.code, said.out) == (2, "")
    assert told in said.err


def test_run_without_a_name_asks_which(twice, home):
    said = twice("run")
    assert said.code == 2
    assert "twice run NAME --at TIME, or twice run --due" in said.err


# ------------------------------------------------------------------ run


@pytest.mark.spark
@pytest.mark.parametrize("store", ["parquet", "delta"])
def test_run_prints_the_plan_then_the_outcome_and_a_rerun_skips(twice, tmp_path, monkeypatch, session, store):
    monkeypatch.chdir(tmp_path)
    assert twice("init", "--store", store).code == 0
    said = twice("run", "visits", "--at", DAY)
    assert said.code == 0
    plan, outcome = said.out.rsplit("\n", 2)[:2]
    assert plan.startswith(f"visits -> {store}:lake/visits  (data_overwrite, no table yet)")
    assert outcome == (
        "visits 2024-10-07T00:00Z  published (the first run of this slot): 5 rows, generation 1, version 0"
    )
    again = twice("run", "visits", "--at", "2024-10-07T02:00+02:00")
    assert (again.code, again.out) == (
        0,
        "visits 2024-10-07T00:00Z  skipped (published, and the inputs are the same): 5 rows, generation 1, version 0\n",
    )


@pytest.mark.stores("parquet", "delta")
def test_replacing_without_a_terminal_needs_yes(twice, published, session):
    published.put(DAY, 9)
    lake = published.files("lake")
    said = twice("run", "visits", "--at", DAY)
    assert said.code == 2
    assert "would replace the published rows of 2024-10-07T00:00Z (the inputs changed)" in said.err
    assert "Say --yes" in said.err
    assert published.files("lake") == lake
    agreed = twice("run", "visits", "--at", DAY, "--yes")
    assert (agreed.code, "published (the inputs changed): 8 rows, generation 2" in agreed.out) == (0, True)
    assert twice("run", "visits", "--at", DAY).out.startswith("visits 2024-10-07T00:00Z  skipped")


@pytest.mark.stores("parquet", "delta")
def test_force_needs_yes_too_and_publishes_the_same_again(twice, published, session):
    lake = published.files("lake")
    assert twice("run", "visits", "--at", DAY, "--force").code == 2
    assert published.files("lake") == lake
    said = twice("run", "visits", "--at", DAY, "--force", "--yes", "--output", "json")
    outcome = said.json["outcome"]
    assert (outcome["state"], outcome["generation"], outcome["rows"]) == ("published", 2, 5)


@pytest.mark.stores("parquet")
def test_on_a_terminal_somebody_is_asked(twice, published, session, terminal):
    published.put(DAY, 9)
    lake = published.files("lake")
    terminal("n\n")
    said = twice("run", "visits", "--at", DAY)
    assert (said.code, "Stopped." in said.err) == (130, True)
    assert published.files("lake") == lake
    terminal("y\n")
    said = twice("run", "visits", "--at", DAY)
    assert (said.code, "generation 2" in said.out) == (0, True)


@pytest.mark.stores("parquet")
def test_an_end_of_input_at_the_question_is_no_consent(twice, published, session, terminal):
    published.put(DAY, 9)
    lake = published.files("lake")
    terminal("")
    assert twice("run", "visits", "--at", DAY).code == 130
    assert published.files("lake") == lake


@pytest.mark.stores("parquet", "delta")
def test_due_runs_what_is_missing_and_no_more(twice, published, session):
    said = twice("run", "visits", "--due")
    assert said.code == 0
    lines = said.out.splitlines()
    assert [line.split()[3] for line in lines[:4]] == ["skipped", "skipped", "skipped", "published"]
    assert lines[0].startswith("[1/4] visits 2024-10-07T00:00Z")
    assert lines[4] == "1 published, 3 skipped, 0 failed"
    assert twice("run", "--due").out.endswith("0 published, 4 skipped, 0 failed\n")


@pytest.mark.stores("parquet")
def test_due_replaces_a_stale_slot_only_with_yes(twice, published, session):
    published.put(SECOND, 9)
    lake = published.files("lake")
    said = twice("run", "--due")
    assert said.code == 2
    assert "1 of 4 slots would be replaced: 2024-10-08T00:00Z" in said.err
    assert published.files("lake") == lake
    assert twice("run", "--due", "--yes").out.endswith("2 published, 2 skipped, 0 failed\n")


@pytest.mark.stores("parquet", "delta")
def test_rows_changed_from_outside_end_with_4_until_accepted_or_forced(twice, published, session):
    if published.files("lake/visits/_delta_log"):
        session.sql(f"DELETE FROM delta.`{published.folder}/lake/visits` WHERE day = DATE '{DAY}'")
    else:
        for name in files_of(published, DAY):
            (published.folder / name).unlink()
    said = twice("run", "visits", "--at", DAY)
    assert (said.code, "no longer vouched for" in said.err) == (4, True)
    assert "--force" in said.err
    assert "--accept" in said.err
    assert twice("run", "visits", "--at", DAY, "--accept").out.startswith("visits 2024-10-07T00:00Z  skipped")
    assert twice("run", "visits", "--at", DAY).code == 0
    forced = twice("run", "visits", "--at", DAY, "--force", "--yes")
    assert (forced.code, "published" in forced.out) == (0, True)


def files_of(published, day):
    """Return the files of a Parquet table that hold a day."""
    files = manifest.newest(str(published.folder / "lake/visits")).files
    return [f"lake/visits/{file.path}" for file in files if f":{day}T" in file.slot]


# ------------------------------------------------------------------ backfill


@pytest.mark.spark
@pytest.mark.parametrize("store", ["parquet", "delta"])
def test_a_backfill_that_fails_half_way_publishes_the_rest_and_resumes(twice, tmp_path, monkeypatch, session, store):
    monkeypatch.chdir(tmp_path)
    twice("init", "--store", store)
    broken = tmp_path / "landing/visits/2024-10-08.csv"
    whole = broken.read_text()
    broken.write_text(whole.replace(",7,", ",seven,"))
    said = twice("backfill", "visits", "--from", "2024-10-07", "--to", "2024-10-10")
    assert said.code == 1
    lines = said.out.splitlines()
    states = [line.split()[3].rstrip(":") for line in lines if line.startswith("[")]
    assert states == ["published", "failed", "published"]
    assert "2024-10-08.csv" in said.out
    assert lines[-1] == "2 published, 0 skipped, 1 failed"
    broken.write_text(whole)
    again = twice("backfill", "visits", "--from", "2024-10-07", "--to", "2024-10-10")
    assert (again.code, again.out.splitlines()[-1]) == (0, "1 published, 2 skipped, 0 failed")
    assert published_days(store) == ["2024-10-07", "2024-10-08", "2024-10-09"]


@pytest.mark.stores("parquet", "delta")
def test_a_backfill_in_json_is_one_document_with_outcomes_and_errors(twice, published):
    (published.folder / "landing/visits/2024-10-10.csv").write_text("page,visit_id,seconds,day\n")
    said = twice("backfill", "visits", "--from", "2024-10-09", "--to", "2024-10-11", "--output", "json")
    assert said.code == 1
    assert [outcome["state"] for outcome in said.json["outcomes"]] == ["skipped"]
    (error,) = said.json["errors"]
    assert error["slot"].endswith("2024-10-10T00:00Z/2024-10-11T00:00Z")
    assert "another order" in error["error"]
    assert "[2/2] visits 2024-10-10T00:00Z  failed" in said.err


@pytest.mark.stores("parquet")
def test_a_backfill_asks_once_for_all_that_would_be_replaced(twice, published, session):
    lake = published.files("lake")
    said = twice("backfill", "visits", "--from", "2024-10-07", "--to", "2024-10-10", "--force")
    assert said.code == 2
    assert "3 of 3 slots would be replaced: 2024-10-07T00:00Z, 2024-10-08T00:00Z, 2024-10-09T00:00Z" in said.err
    assert published.files("lake") == lake


# ------------------------------------------------------------------ JSON and errors


ANSWERS = {
    "list": ("pipelines",),
    f"plan visits --at {DAY}": ("plan", "inputs"),
    f"run visits --at {DAY}": ("outcome",),
    "backfill visits --from 2024-10-07 --to 2024-10-10": ("outcomes", "waiting", "errors", "counts"),
    "status": ("pipelines", "effects"),
    "runs": ("attempts",),
    f"show visits --at {DAY}": ("slot", "label", "published", "proof", "rows", "receipt", "attempts"),
    "show TARGET": ("target", "note", "version", "owner", "mine", "slots"),
    "adopt TARGET --dry-run": ("target", "message"),
    "ledger rebuild": ("receipts", "targets", "lost", "troubles"),
    "matrix": ("cells",),
    "config": ("env", "environments", "settings"),
    "doctor": ("checks",),
    "jars list": ("folder", "packages"),
    "init": ("made",),
}


@pytest.mark.stores("parquet", "delta")
def test_every_answer_is_one_document_of_json_on_standard_output(twice, published, kind, monkeypatch):
    for command, keys in ANSWERS.items():
        said = twice(*command.replace("TARGET", target_of(kind)).split(), "--output", "json")
        assert (command, said.code) == (command, 0)
        assert (command, list(said.json)) == (command, ["schema_version", *keys])
        assert said.json["schema_version"] == 1
    monkeypatch.setenv("TWICE_OUTPUT", "json")
    assert twice("list").json == twice("list", "--output", "json").json


@pytest.mark.stores("parquet")
def test_progress_and_plan_go_to_standard_error_where_json_is_asked_for(twice, published, session):
    said = twice("run", "visits", "--at", LAST, "--output", "json")
    assert list(said.json) == ["schema_version", "outcome"]
    assert "create: the first run of this slot" in said.err


ERRORS = [
    (("run", "vists", "--at", DAY), "Misuse", 2, "There is no pipeline 'vists'."),
    (("run", "visits", "--at", "2024-10-07T05:00Z"), "Misuse", 2, "2024-10-07T05:00Z is not the start"),
    (("show", "nothing"), "Misuse", 2, "'nothing' is no attempt"),
    (("adopt", "parquet:lake/none"), "Misuse", 2, "There is no table parquet:lake/none."),
]


@pytest.mark.parametrize(("words", "name", "code", "what"), ERRORS, ids=[" ".join(words) for words, *_ in ERRORS])
@pytest.mark.parametrize("by", ["option", "option=", "environment"])
def test_an_error_is_one_document_of_json_too(twice, home, monkeypatch, words, name, code, what, by):
    if by == "environment":
        monkeypatch.setenv("TWICE_OUTPUT", "json")
    else:
        words += ("--output=json",) if by == "option=" else ("--output", "json")
    said = twice(*words)
    assert said.code == code
    assert list(said.json) == ["schema_version", "error"]
    assert set(said.json["error"]) == {"type", "what", "why", "fix"}
    assert said.json["error"]["type"] == name
    assert said.json["error"]["what"].startswith(what)
    assert said.err.startswith(f"{name}: {what}")


def test_an_option_wins_over_the_environment_in_errors_too(twice, home, monkeypatch):
    monkeypatch.setenv("TWICE_OUTPUT", "json")
    said = twice("run", "vists", "--at", DAY, "--output", "text")
    assert (said.code, said.out) == (2, "")


def test_a_pipeline_called_json_is_no_wish_for_json(twice, home):
    said = twice("plan", "json", "--at", DAY)
    assert (said.code, said.out) == (2, "")


@pytest.mark.parametrize("words", [("rnu",), ("run", "visits", "--dew"), ("backfill", "visits")], ids=" ".join)
def test_a_usage_error_is_json_where_that_is_asked_for(twice, home, monkeypatch, words):
    monkeypatch.setenv("TWICE_OUTPUT", "json")
    said = twice(*words)
    assert said.code == 2
    assert list(said.json) == ["schema_version", "error"]


def test_an_error_that_nobody_foresaw_ends_with_3_and_says_how_to_see_it(twice, home, monkeypatch):
    def breaks(*_, **__):
        raise RuntimeError("out of the blue")

    monkeypatch.setattr(Project, "open", breaks)
    said = twice("run", "visits", "--at", DAY)
    assert (said.code, said.out) == (3, "")
    assert "Unforeseen: RuntimeError: out of the blue" in said.err
    assert "Traceback" not in said.err
    assert "Traceback" in twice("run", "visits", "--at", DAY, "--debug").err
    assert "error" in twice("run", "visits", "--at", DAY, "--output", "json").json


def test_an_interrupt_ends_with_130(twice, home, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Project, "open", interrupted)
    said = twice("run", "visits", "--at", DAY)
    assert (said.code, "Running again is safe" in said.err) == (130, True)


def test_debug_shows_where_an_error_came_from(twice, home):
    assert "Traceback" not in twice("run", "vists", "--at", DAY).err
    said = twice("run", "vists", "--at", DAY, "--debug")
    assert (said.code, "Traceback" in said.err) == (2, True)


# ------------------------------------------------------------------ status, runs, show


@pytest.mark.stores("parquet", "delta")
def test_status_counts_what_is_published_and_names_what_is_missing(twice, published, kind):
    said = twice("status")
    assert said.code == 0
    shown = rf"^visits +{kind}:lake/visits +3 +1 +0 +0 +2024-10-09T00:00Z +\S+Z +15 +2$"
    assert re.search(shown, said.out, re.MULTILINE)
    assert "visits is missing 2024-10-10T00:00Z. Use twice run visits --due" in said.out
    (facts,) = twice("status", "visits", "--output", "json").json["pipelines"]
    assert facts["missing"] == ["2024-10-10T00:00Z"]
    assert facts["trouble"] == ""


@pytest.mark.stores("parquet")
def test_status_names_slots_that_are_no_longer_vouched_for(twice, published):
    for name in files_of(published, DAY):
        (published.folder / name).unlink()
    said = twice("status")
    assert re.search(r"visits 2024-10-07T00:00Z: its file .* is gone\. Use --force or --accept\.", said.out)


@pytest.mark.stores("parquet", "delta")
def test_runs_lists_attempts_newest_first(twice, published):
    (published.folder / "landing/visits/2024-10-10.csv").unlink()
    assert twice("run", "visits", "--at", LAST).code == 1
    attempts = twice("runs", "--output", "json").json["attempts"]
    assert [attempt["state"] for attempt in attempts] == ["failed", "published", "published", "published"]
    days = [re.search(r"(\d{4}-\d\d-\d\d)T", attempt["slot"])[1] for attempt in attempts]
    assert days == [LAST, "2024-10-09", SECOND, DAY]
    failed = twice("runs", "visits", "--state", "failed")
    assert failed.out.count("\n") == 2
    assert "No file matches" in failed.out
    assert len(twice("runs", "--limit", "2", "--output", "json").json["attempts"]) == 2


def test_runs_of_a_new_project_are_none_yet(twice, home):
    assert twice("runs").out == "No runs yet.\n"


def test_an_unknown_state_of_runs_is_refused(twice, home):
    said = twice("runs", "--state", "faild")
    assert (said.code, "failed" in said.err) == (2, True)


@pytest.mark.stores("parquet", "delta")
def test_show_tells_an_attempt_a_slot_and_a_target(twice, published, kind):
    newest = twice("runs", "--output", "json").json["attempts"][0]
    by_name = twice("show", newest["attempt"], "--output", "json").json["attempt"]
    assert by_name == newest
    counter = newest["attempt"].rpartition("-")[0]
    assert twice("show", counter, "--output", "json").json["attempt"] == newest
    slot = twice("show", "visits", "--at", "2024-10-09", "--output", "json").json
    assert (slot["published"], slot["proof"], slot["receipt"]["rows"]) == (True, "stands", 5)
    assert [attempt["attempt"] for attempt in slot["attempts"]] == [newest["attempt"]]
    missing = twice("show", "visits", "--at", LAST, "--output", "json").json
    assert (missing["published"], missing["receipt"]) == (False, None)
    target = twice("show", target_of(kind), "--output", "json").json
    assert (target["version"], target["mine"], len(target["slots"])) == (2, True, 3)
    assert "slot=2024-10-09T00:00Z  generation=1  rows=5" in twice("show", target_of(kind)).out


@pytest.mark.stores("parquet")
def test_show_files_lists_the_files_that_are_the_table(twice, published, session):
    listed = twice("show", "parquet:lake/visits", "--files").out.splitlines()
    assert sum(session.read.parquet(path).count() for path in listed) == 15
    said = twice("show", "parquet:lake/visits", "--files", "--output", "json").json
    assert (said["version"], said["files"]) == (2, listed)


@pytest.mark.stores("delta")
def test_show_files_of_another_store_is_refused(twice, published):
    said = twice("show", "delta:lake/visits", "--files")
    assert (said.code, "is not a Parquet target" in said.err) == (2, True)


def test_show_of_a_target_that_is_not_there_says_so(twice, home):
    assert twice("show", "parquet:lake/visits", "--output", "json").json["version"] is None
    listed = twice("show", "parquet:lake/visits", "--files", "--output", "json").json
    assert (listed["version"], listed["files"]) == (None, [])


@pytest.mark.parametrize("what", ["nothing", "paquet:lake/visits", "parquet:../x"])
def test_show_of_something_unknown_ends_with_2(twice, home, what):
    said = twice("show", what)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("Misuse: ")


# ------------------------------------------------------------------ ledger, adopt, tidy


@pytest.mark.stores("parquet", "delta")
def test_a_lost_ledger_ends_with_4_until_it_is_rebuilt(twice, published, session):
    (published.folder / ".twice/ledger.db").unlink()
    lake = published.files("lake")
    said = twice("run", "visits", "--at", DAY)
    assert (said.code, "twice ledger rebuild" in said.err) == (4, True)
    assert twice("doctor").code == 2
    assert "belongs to another ledger" in twice("status").out
    unasked = twice("ledger", "rebuild")
    assert (unasked.code, "Say --yes" in unasked.err) == (2, True)
    assert published.files("lake") == lake
    rebuilt = twice("ledger", "rebuild", "--yes")
    assert rebuilt.code == 0
    assert rebuilt.out.startswith("3 receipts read back from 1 target.\nNot brought back:\n")
    assert twice("run", "visits", "--due").out.endswith("1 published, 3 skipped, 0 failed\n")
    assert twice("ledger", "rebuild").out.startswith("4 receipts read back")


@pytest.mark.stores("parquet", "delta")
def test_adopt_takes_a_target_over_and_the_former_owner_is_refused(
    twice, published, session, kind, other_ledger, monkeypatch
):
    rows = published.files("lake")
    other_ledger()
    assert twice("run", "visits", "--at", DAY).code == 4
    dry = twice("adopt", target_of(kind), "--dry-run")
    assert (dry.code, "would be taken over" in dry.out, "3 receipts" in dry.out) == (0, True, True)
    unasked = twice("adopt", target_of(kind))
    assert (unasked.code, "Say --yes" in unasked.err) == (2, True)
    assert published.files("lake") == rows
    adopted = twice("adopt", target_of(kind), "--yes")
    assert (adopted.code, "belongs to this ledger now; 3 receipts" in adopted.out) == (0, True)
    assert "already" in twice("adopt", target_of(kind), "--yes").out
    assert "skipped" in twice("run", "visits", "--at", DAY).out
    assert rows.items() <= published.files("lake").items()
    monkeypatch.delenv("TWICE_LEDGER_URL")
    refused = twice("run", "visits", "--at", DAY)
    assert (refused.code, "twice adopt" in refused.err) == (4, True)


def test_adopt_of_nothing_and_of_nonsense_end_with_2(twice, home):
    assert "There is no table" in twice("adopt", "parquet:lake/none", "--yes").err
    assert "no target and no pipeline 'lake/none'" in twice("adopt", "lake/none", "--yes").err
    said = twice("adopt", "paquet:lake/visits", "--yes")
    assert (said.code, "Did you mean 'parquet'?" in said.err) == (2, True)


@pytest.mark.stores("parquet", "delta")
def test_tidy_dry_run_counts_and_removes_nothing(twice, published, session, kind, monkeypatch):
    monkeypatch.setenv("TWICE_LEASES_SECONDS", "0")
    with armed(dying_at("publish.before")), pytest.raises(Died):
        twice("run", "visits", "--at", LAST)
    before = published.files("lake")
    said = twice("tidy", "--dry-run", "--output", "json")
    assert (said.code, said.json["dry_run"], list(said.json["targets"])) == (0, True, [target_of(kind)])
    assert published.files("lake") == before
    assert twice("run", "visits", "--at", DAY).out.startswith("visits 2024-10-07T00:00Z  skipped")


@pytest.mark.stores("parquet")
def test_tidy_removes_what_its_dry_run_counted(twice, published, session, monkeypatch):
    monkeypatch.setenv("TWICE_LEASES_SECONDS", "0")
    with armed(dying_at("publish.before")), pytest.raises(Died):
        twice("run", "visits", "--at", LAST)
    would = twice("tidy", "--dry-run").out
    assert re.fullmatch(r"parquet:lake/visits: \d+ files \([\d,]+ bytes\) of 1 attempt would be removed\n", would)
    assert twice("tidy", "visits").out == would.replace("would be removed", "removed")
    assert "0 files (0 bytes) would be removed" in twice("tidy", "--dry-run").out
    assert twice("run", "visits", "--due").out.endswith("1 published, 3 skipped, 0 failed\n")


@pytest.mark.stores("parquet")
@pytest.mark.parametrize("days", ["-1", "-0.01", "nan"])
def test_tidy_refuses_days_that_keep_less_than_nothing(twice, published, days):
    lake = published.files("lake")
    said = twice("tidy", "--keep-days", days, "--yes")
    assert (said.code, "--keep-days must be 0 or more" in said.err) == (2, True)
    assert published.files("lake") == lake


@pytest.mark.stores("parquet")
def test_tidy_asks_before_it_removes_versions_that_the_project_keeps(twice, published):
    lake = published.files("lake")
    said = twice("tidy", "--keep-days", "0")
    assert (said.code, "replaced 0 to 7 days ago" in said.err, published.files("lake")) == (2, True, lake)
    assert "would be removed" in twice("tidy", "--keep-days", "0", "--dry-run").out
    assert (twice("tidy", "--keep-days", "8").code, published.files("lake")) == (0, lake)
    assert twice("tidy", "--keep-days", "0", "--yes").code == 0


@pytest.mark.stores("parquet")
def test_tidy_leaves_a_target_of_another_ledger_alone(twice, published, other_ledger):
    lake = published.files("lake")
    other_ledger()
    said = twice("tidy", "--keep-days", "0")
    assert (said.code, "belongs to another ledger" in said.err) == (2, True)
    assert published.files("lake") == lake


# ------------------------------------------------------------------ how it looks


@pytest.mark.stores("parquet")
@pytest.mark.parametrize("command", ["list", "status", "runs", "config", "matrix", "doctor"])
def test_output_that_is_not_read_by_a_terminal_is_plain(twice, published, command, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = twice(command)
    assert said.code == 0
    assert "\x1b" not in said.out + said.err
    assert not re.search("[─━│┃╭╮]", said.out)


def on_a_terminal(folder, command, **environment):
    """Run a command with a terminal of its own, and return what it drew there."""
    ours, theirs = os.openpty()
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "twice", *command],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, "TERM": "xterm-256color", "PYTHONDONTWRITEBYTECODE": "1", **environment},
        start_new_session=True,
    )
    os.close(theirs)
    drawn = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        drawn += piece
    os.close(ours)
    return process.wait(), drawn.decode()


COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")


def test_no_color_is_respected_on_a_terminal(home):
    code, drawn = on_a_terminal(home.folder, ["config"], NO_COLOR="1")
    assert (code, "ledger.url" in drawn) == (0, True)
    assert not COLOUR.search(drawn)


def test_a_dumb_terminal_gets_no_control_characters(home):
    code, drawn = on_a_terminal(home.folder, ["config"], TERM="dumb")
    assert (code, "\x1b" in drawn) == (0, False)


def test_a_narrow_terminal_is_respected(home):
    code, drawn = on_a_terminal(home.folder, ["config"], COLUMNS="60")
    assert code == 0
    assert max(len(line) for line in re.sub(r"\x1b\[[\d;]*m", "", drawn).splitlines()) <= 60


def test_a_suggestion_is_the_nearest_name_or_all_there_are():
    assert suggestion("vists", ["visits", "orders"]) == "Did you mean 'visits'?"
    assert suggestion("zzz", ["visits", "orders"]) == "There is: orders, visits."
    assert suggestion("zzz", []) == "There is none yet."


@pytest.mark.stores("parquet")
def test_a_copy_of_a_project_is_the_same_project(twice, published, tmp_path, monkeypatch):
    """Nothing in ledger, table or receipts names the folder or the machine."""
    shutil.copytree(published.folder, tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    shutil.rmtree(published.folder)
    assert twice("run", "visits", "--at", DAY).out.startswith("visits 2024-10-07T00:00Z  skipped")
