"""What does `twice.toml` say, and where did each value come from?"""

import os

import pytest

from twice import postgres
from twice.errors import Misuse
from twice.ledger.places import SqlitePlace
from twice.settings import DEFAULTS, FILE, StoreSettings, find_root, load


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("TWICE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def loaded(tmp_path):
    """Return a reader of a project file with this text."""

    def read(text, **overrides):
        (tmp_path / FILE).write_text(text, encoding="utf-8")
        return load(tmp_path, {name.replace("__", "."): value for name, value in overrides.items()})

    return read


# ------------------------------------------------------------------ where values come from


def test_without_a_file_all_are_defaults(tmp_path):
    found = load(tmp_path)
    assert {key: value.value for key, value in found.values.items()} == DEFAULTS
    assert {value.origin for value in found.values.values()} == {"default"}
    assert found.file is None


def test_the_command_line_wins_over_the_environment_the_file_and_the_default(loaded, monkeypatch):
    text, origins = "[spark]\nmaster = 'local[3]'\n", []
    origins.append(loaded("").values["spark.master"])
    origins.append(loaded(text).values["spark.master"])
    monkeypatch.setenv("TWICE_SPARK_MASTER", "local[2]")
    origins.append(loaded(text).values["spark.master"])
    origins.append(loaded(text, spark__master="local[1]").values["spark.master"])
    assert [(value.value, value.origin) for value in origins] == [
        ("local[*]", "default"),
        ("local[3]", "twice.toml"),
        ("local[2]", "environment (TWICE_SPARK_MASTER)"),
        ("local[1]", "command line"),
    ]


def test_an_option_that_was_not_given_does_not_count(loaded):
    assert loaded("", spark__master=None)["spark.master"] == "local[*]"


def test_a_number_may_come_from_the_environment(loaded, monkeypatch):
    monkeypatch.setenv("TWICE_LEASES_SECONDS", "7.5")
    assert loaded("[leases]\nseconds = 30\n")["leases.seconds"] == 7.5


def test_a_whole_number_is_a_number(loaded):
    assert loaded("[leases]\nseconds = 30\n")["leases.seconds"] == 30.0


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("text", "what", "meant"),
    [
        ("[leeses]\nseconds = 1", r"\[leeses\]", "leases"),
        ("[leases]\nsecond = 1", "leases.second ", "leases.seconds"),
        ("[project]\npipeline = 'x'", "project.pipeline ", "project.pipelines"),
        ("[spark]\nconfig = 'x'", "spark.config", "spark.conf"),
        ("[stores.lake]\nkind = 'delta'\nrot = 'x'", "stores.lake.rot", "root"),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(loaded, text, what, meant):
    with pytest.raises(Misuse, match=rf"{what}.* is not known.\n  Did you mean '{meant}'"):
        loaded(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[leases]\nseconds = 'soon'", "leases.seconds must be a number"),
        ("[leases]\nseconds = [1]", "leases.seconds must be a number"),
        ("[leases]\nseconds = true", "leases.seconds must be a number"),
        ("[retries]\ntries = 2.5", "retries.tries must be a whole number, not 2.5"),
        ("[retries]\nper_hour = 'many'", "retries.per_hour must be a number"),
        ("[leases]\nseconds = 2024-10-07", "leases.seconds must be a number"),
        ("[ledger]\nurl = 5", "ledger.url must be text"),
        ("[spark.master]\nx = 1", "spark.master must be text"),
        ("leases = 60", "leases in twice.toml must be a table"),
        ("stores = 'x'", "stores in twice.toml must be a table"),
        ("[spark]\nconf = 'x'", "spark.conf in twice.toml must be a table"),
        ("[stores.lake]\nroot = 'x'", r"\[stores.lake\] in twice.toml needs a kind"),
        ("[stores.lake]\nkind = 'delta'\nroot = 's3a://b/x'", r"root of \[stores.lake\] .* is an address \(s3a:\)"),
        ("[project]\npipelines = 'file:///x'", "project.pipelines .* is an address.*\n.*\n.*'/x'"),
        ("[stores]\nlake = 'delta'", r"stores.lake in twice.toml must be a table"),
        ("[stores.lake]\nkind = 'detla'", r"stores.lake.kind='detla' .*\n  Did you mean 'delta'"),
        ("[retries]\nwait = 'soon'", r"retries.wait: 'soon' is not a length of time"),
        ("[retries]\nwait_at_most = '1 month'", r"retries.wait_at_most: '1 month' is not"),
        ("[retries]\nfor_at_most = ''", r"retries.for_at_most: '' is not"),
        ("[leases]\nrenew_seconds = 60", r"leases.renew_seconds=60 must be .* less than leases.seconds=60"),
        ("[leases]\nrenew_seconds = 0", r"leases.renew_seconds=0 must be more than 0"),
    ],
)
def test_a_wrong_type_is_refused(loaded, text, what):
    with pytest.raises(Misuse, match=what):
        loaded(text)


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_a_lease_that_is_no_length_of_time_is_refused(loaded, seconds):
    with pytest.raises(Misuse, match=r"leases.seconds"):
        loaded(f"[leases]\nseconds = {seconds}\n")


@pytest.mark.parametrize(("seconds", "renewed"), [(120, 20), (60, 20), (6, 2), (0.3, 0.1)])
def test_two_renewals_may_fail_before_a_lease_ends_unless_it_is_said_otherwise(loaded, seconds, renewed):
    assert loaded(f"[leases]\nseconds = {seconds}\n")["leases.renew_seconds"] == pytest.approx(renewed)
    assert loaded(f"[leases]\nseconds = {seconds}\nrenew_seconds = 0.2\n")["leases.renew_seconds"] == 0.2


def test_a_lease_that_ends_at_once_as_in_a_proof_is_not_renewed(loaded):
    found = loaded("[leases]\nseconds = 30\nrenew_seconds = 5\n", leases__seconds=0.0)
    assert (found["leases.seconds"], found["leases.renew_seconds"]) == (0, 5)


def test_a_wrong_type_in_the_environment_is_refused(loaded, monkeypatch):
    monkeypatch.setenv("TWICE_TIDY_KEEP_DAYS", "a week")
    with pytest.raises(Misuse, match=r"tidy.keep_days must be a number, not 'a week'"):
        loaded("")


def test_what_is_no_toml_is_refused(loaded):
    with pytest.raises(Misuse, match=r"twice.toml cannot be read"):
        loaded("[leases\nseconds = 1")


def test_a_file_that_is_not_utf_8_is_refused(tmp_path):
    (tmp_path / FILE).write_bytes(b"# \xff\xfe\n")
    with pytest.raises(Misuse, match=r"twice.toml cannot be read"):
        load(tmp_path)


def test_a_file_that_is_too_large_is_refused(tmp_path):
    (tmp_path / FILE).write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(Misuse, match="larger than 1,048,576 bytes"):
        load(tmp_path)


# ------------------------------------------------------------------ variables


def test_a_variable_is_filled_in(loaded, monkeypatch):
    monkeypatch.setenv("HOST_OF_SPARK", "spark.example")
    assert loaded("[spark]\nmaster = 'spark://${HOST_OF_SPARK}:7077'")["spark.master"] == "spark://spark.example:7077"


def test_a_variable_that_is_not_set_is_refused(loaded):
    with pytest.raises(Misuse, match=r"spark.master needs the environment variable NOT_SET_ANYWHERE"):
        loaded("[spark]\nmaster = '${NOT_SET_ANYWHERE}'")


def test_a_variable_may_have_a_default(loaded, monkeypatch):
    text = "[spark]\nmaster = '${MASTER_OF_SPARK:-local[2]}'"
    assert loaded(text)["spark.master"] == "local[2]"
    monkeypatch.setenv("MASTER_OF_SPARK", "")
    assert loaded(text)["spark.master"] == ""


def test_a_variable_that_nobody_needs_may_be_missing(loaded):
    assert loaded("[spark]\nmaster = '${NOT_SET_ANYWHERE}'", spark__master="local[1]")["spark.master"] == "local[1]"


def test_stores_and_spark_settings_take_variables_too(loaded, monkeypatch):
    monkeypatch.setenv("LAKE", "shared/lake")
    found = loaded("[stores.lake]\nkind = 'delta'\nroot = '${LAKE}'\n[spark.conf]\n'a.b' = '${LAKE}'\n")
    assert found.stores == {"lake": StoreSettings("lake", "delta", "shared/lake")}
    assert found.spark_conf == {"a.b": "shared/lake"}


# ------------------------------------------------------------------ Spark's own settings


def test_spark_settings_become_text_as_spark_writes_it(loaded):
    text = "[spark.conf]\n'a.b' = true\n'a.c' = 2\n'a.d' = '2g'\n'a.e' = 0.5\n"
    assert loaded(text).spark_conf == {"a.b": "true", "a.c": "2", "a.d": "2g", "a.e": "0.5"}


@pytest.mark.parametrize("text", ["[spark.conf]\nspark.driver.memory = '2g'\n", "[spark.conf]\n'spark.x' = ['a']\n"])
def test_a_spark_setting_without_quotes_is_refused(loaded, text):
    with pytest.raises(Misuse, match="a name without quotes"):
        loaded(text)


# ------------------------------------------------------------------ the ledger and the root


@pytest.mark.parametrize(
    ("url", "path"), [("sqlite:///a/b.db", "a/b.db"), ("sqlite:////else/where.db", "/else/where.db")]
)
def test_a_ledger_is_under_the_project_or_where_it_says(loaded, tmp_path, url, path):
    assert loaded(f"[ledger]\nurl = '{url}'").ledger_place == SqlitePlace(str(tmp_path / path))


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://x", "ledger.db", ""])
def test_an_unknown_ledger_is_refused(loaded, url):
    with pytest.raises(Misuse, match=r"is not known.\n  Use sqlite:///path"):
        _ = loaded(f"[ledger]\nurl = '{url}'").ledger_place


def test_a_ledger_on_a_server_takes_its_password_from_the_environment_and_does_not_show_it(loaded, monkeypatch):
    monkeypatch.setenv("SECRET", "p%40ss")
    place = loaded("[ledger]\nurl = 'postgresql://ann:${SECRET}@host:5433/db?schema=orders'").ledger_place
    assert place.url == "postgresql://ann:p%40ss@host:5433/db?schema=orders"
    assert place.shown == "postgresql://host:5433/db (schema orders)"


def test_a_project_is_found_from_a_folder_inside_it(tmp_path):
    (tmp_path / FILE).touch()
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    assert find_root(inside) == tmp_path.resolve()


def test_a_folder_that_is_called_like_the_file_is_no_project(tmp_path):
    (tmp_path / "a" / FILE).mkdir(parents=True)
    (tmp_path / FILE).touch()
    assert find_root(tmp_path / "a") == tmp_path.resolve()


def test_the_url_of_a_store_comes_from_the_file_or_the_environment_and_is_not_shown(loaded, monkeypatch):
    monkeypatch.setenv("TWICE_POSTGRES_URL", "postgresql://u:hunter2@one/x")
    monkeypatch.setenv("PG_URL", "postgresql://u:hunter2@two/x")
    text = "[stores.a]\nkind = 'postgres'\nurl = '${PG_URL}'\n[stores.b]\nkind = 'postgres'\n"
    found = loaded(text)
    assert ["@two/" in found.stores["a"].url, "@one/" in found.stores["b"].url] == [True, True]
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hun/ter2@host/db",
        "postgresql://ann:x@hunter2@host/db",
        "postgresql://ann:hunter2@[host/db",
        "postgresql://ann:hunter2@host:port/db",
        "postgresql://ann:hunter 2@host:1/db?sslmode=%zz",
    ],
)
def test_an_address_that_libpq_misreads_is_refused_and_not_repeated(url):
    for ask in (postgres.place, postgres.parameters):
        with pytest.raises(Misuse, match="The address of the ledger cannot be read") as refused:
            ask(url, "The ledger")
        assert "hun" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://ann:hunter2@one:5433,two:5434/db", "one:5433,two:5434/db"),
        ("postgresql://ann@host/db?password=hunter2", "host/db"),
        ("host=one,two port=5433 dbname=db password=hunter2", "one:5433,two:5433/db"),
        ("service=warehouse", "warehouse/"),
        ("", "the default server/"),
    ],
)
def test_an_address_is_named_without_its_secret(url, place):
    assert postgres.place(url, "The ledger") == place


def test_a_connection_has_limits_and_goes_to_the_primary_whatever_the_user_says():
    told = postgres.parameters("postgresql://host/db?connect_timeout=3&target_session_attrs=any", "The ledger")
    assert (told["connect_timeout"], told["target_session_attrs"], told["keepalives_count"]) == ("3", "read-write", 3)


# ------------------------------------------------------------------ environments

TWO = """
[ledger]
url = "sqlite:///dev.db"

[results]
file = "dev.json"

[spark]
master = "local[2]"

[spark.conf]
"spark.a" = "file"
"spark.b" = "file"

[stores.lake]
kind = "delta"
root = "dev"
views = "shown"

[env.prod.spark]
master = "local[4]"

[env.prod.spark.conf]
"spark.b" = "prod"

[env.prod.stores.lake]
root = "prod"

[env.prod.stores.raw]
kind = "parquet"

[env.staging]
"""


def test_an_environment_overrides_the_file_key_by_key(tmp_path):
    (tmp_path / FILE).write_text(TWO)
    found = load(tmp_path, env="prod")
    assert (found.env, found.environments) == ("prod", ("prod", "staging"))
    assert (found["spark.master"], found.values["spark.master"].origin) == ("local[4]", "twice.toml [env.prod]")
    assert (found["results.file"], found.values["results.file"].origin) == ("dev.json", "twice.toml")
    assert found.spark_conf == {"spark.a": "file", "spark.b": "prod"}
    assert found.stores["lake"] == StoreSettings("lake", "delta", "prod", "shown")
    assert found.stores["raw"] == StoreSettings("raw", "parquet", "")
    own = {name for name, origin in found.origins.items() if origin == "twice.toml [env.prod]"}
    assert own == {"spark.master", "spark.conf.spark.b", "stores.lake", "stores.raw"}
    plain = load(tmp_path)
    assert (plain.env, plain["spark.master"], plain.stores["lake"].root, list(plain.stores)) == (
        "",
        "local[2]",
        "dev",
        ["lake"],
    )


def test_an_option_and_a_variable_win_over_an_environment(tmp_path, monkeypatch):
    (tmp_path / FILE).write_text(TWO)
    monkeypatch.setenv("TWICE_SPARK_MASTER", "local[8]")
    assert load(tmp_path, env="prod")["spark.master"] == "local[8]"
    assert load(tmp_path, {"spark.master": "local[9]"}, "prod")["spark.master"] == "local[9]"


def test_an_environment_never_takes_over_the_ledger_of_the_file(tmp_path, monkeypatch):
    (tmp_path / FILE).write_text(TWO + '\n[env.test.ledger]\nurl = "sqlite:///dev.db"\n')
    ledgers = {env: load(tmp_path, env=env).ledger_place.path for env in (None, "prod", "staging", "test")}
    assert ledgers == {
        None: str(tmp_path / "dev.db"),
        "prod": str(tmp_path / ".twice/env/prod/ledger.db"),
        "staging": str(tmp_path / ".twice/env/staging/ledger.db"),
        "test": str(tmp_path / "dev.db"),
    }
    monkeypatch.setenv("TWICE_LEDGER_URL", "sqlite:///said.db")
    assert load(tmp_path, env="prod").ledger_place.path == str(tmp_path / "said.db")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[env.prod.sparc]\nmaster = 'x'\n", r"\[env.prod.sparc\] in twice.toml is not known[\s\S]*'spark'"),
        ("[env.prod.spark]\nmastr = 'x'\n", r"env.prod.spark.mastr in twice.toml is not known[\s\S]*'spark.master'"),
        ("[env.prod.stores.lake]\nrot = 'x'\n", r"env.prod.stores.lake.rot in twice.toml is not known[\s\S]*'root'"),
        ("[env.prod.hooks]\ndeed = 'a:b'\n", r"hooks.deed in twice.toml is not known"),
        ("[env.prod.env.test]\n", r"\[env.prod.env\] in twice.toml is not known"),
        ("[env]\nprod = 'x'\n", "env in twice.toml must hold tables"),
        ("env = 'prod'\n", "env in twice.toml must hold tables"),
        ("[env.'../up']\n", "cannot name a environment|cannot name an environment"),
    ],
)
@pytest.mark.parametrize("env", [None, "prod"])
def test_a_section_of_an_environment_is_checked_also_when_it_is_not_chosen(tmp_path, text, told, env):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(Misuse, match=told):
        load(tmp_path, env=env)


def test_a_store_that_an_environment_adds_needs_a_kind(tmp_path):
    (tmp_path / FILE).write_text("[env.prod.stores.lake]\nroot = 'x'\n")
    assert load(tmp_path).stores == {}
    with pytest.raises(Misuse, match=r"\[stores.lake\] in twice.toml needs a kind"):
        load(tmp_path, env="prod")
