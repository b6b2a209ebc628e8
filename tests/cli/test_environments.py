"""One project, several environments: which settings, which ledger, which targets? On the memory store where no other is named."""

import json

import pytest

from twice.project import Project

SHOP = """
import twice

DAYS = {"every": "1 day", "start": "2024-10-07", "end": "2024-10-09"}
ROWS = twice.source(lambda run: [{"id": "a"}], fingerprint="{execution_date}")


@twice.pipeline(source=ROWS, target="memory:lake/visits", pattern=twice.data_overwrite(), **DAYS)
def visits(rows):
    return rows
"""
TOML = """
[ledger]
url = "sqlite:///.twice/ledger.db"

[spark]
master = "local[2]"

[spark.conf]
"spark.driver.memory" = "1g"

[stores.lake]
kind = "parquet"
root = "dev"

[hooks]
dead = "alerts:note"

[env.prod]
spark.master = "local[4]"
hooks.dead = "alerts:page"

[env.prod.spark.conf]
"spark.driver.memory" = "8g"

[env.prod.stores.lake]
root = "prod"

[env.staging.ledger]
url = "sqlite:///staging.db"
"""
DAY = "2024-10-07"


@pytest.fixture
def shop(memory, tmp_path):
    (tmp_path / "pipelines/shop.py").write_text(SHOP)
    (tmp_path / "twice.toml").write_text(TOML)
    return tmp_path


def origins(said):
    return {one["key"]: (one["value"], one["origin"]) for one in said.json["settings"]}


def test_config_says_where_each_value_comes_from(twice, shop, monkeypatch):
    monkeypatch.setenv("TWICE_LEASES_SECONDS", "90")
    said = twice("config", "--env", "prod", "--output", "json")
    assert (said.json["env"], said.json["environments"]) == ("prod", ["prod", "staging"])
    found, own = origins(said), "twice.toml [env.prod]"
    assert found["spark.master"] == ("local[4]", own)
    assert found["spark.conf.spark.driver.memory"] == ("8g", own)
    assert found["stores.lake"] == ("parquet at prod", own)
    assert found["hooks.dead"] == ("alerts:page", own)
    assert found["leases.seconds"] == (90.0, "environment (TWICE_LEASES_SECONDS)")
    assert found["ledger.url"] == ("sqlite:///.twice/env/prod/ledger.db", "default")
    assert "Environment: prod (there is: prod, staging)." in twice("config", "--env", "prod").out
    dev = origins(twice("config", "--output", "json"))
    assert dev["spark.master"] == ("local[2]", "twice.toml")
    assert dev["stores.lake"] == ("parquet at dev", "twice.toml")
    assert dev["hooks.dead"] == ("alerts:note", "twice.toml")


def test_the_option_wins_over_the_variable(twice, shop, monkeypatch):
    monkeypatch.setenv("TWICE_ENV", "staging")
    assert twice("config", "--output", "json").json["env"] == "staging"
    assert twice("config", "--env", "prod", "--output", "json").json["env"] == "prod"
    monkeypatch.setenv("TWICE_ENV", "")
    assert twice("config", "--output", "json").json["env"] is None


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ("prd", "There is: prod, staging. Nothing was done.\n  Did you mean 'prod'?"),
        ("live", "There is: prod, staging. Nothing was done.\n  Leave --env and TWICE_ENV out"),
        ("", "There is no environment '' in twice.toml."),
    ],
)
@pytest.mark.parametrize(
    "words", [("run", "visits", "--at", DAY), ("config",), ("doctor",), ("tidy", "--yes")], ids=" ".join
)
def test_an_unknown_environment_starts_nothing(twice, shop, memory, words, env, told):
    said = twice(*words, "--env", env)
    assert (said.code, said.out, memory.look("lake/visits").exists) == (2, "", False)
    assert told in said.err


def test_each_environment_keeps_its_own_ledger_results_and_steps(twice, shop):
    assert twice("run", "visits", "--at", DAY, "--env", "prod").code == 0
    assert (shop / ".twice/env/prod/ledger.db").is_file()
    results = json.loads((shop / ".twice/env/prod/run_results.json").read_text())
    assert [one["state"] for one in results["results"]] == ["published"]
    assert not (shop / ".twice/ledger.db").exists()
    assert len(twice("runs", "--env", "prod", "--output", "json").json["attempts"]) == 1
    assert twice("runs", "--output", "json").json["attempts"] == []
    steps = [Project.open(env=env).kept.folder for env in (None, "prod", "staging")]
    assert steps == [str(shop / ".twice" / place / "steps") for place in ("", "env/prod", "env/staging")]


def test_a_target_belongs_to_one_environment_and_the_other_is_told_to_have_its_own(twice, shop, memory):
    assert twice("run", "visits", "--at", DAY, "--env", "prod").code == 0
    version = memory.look("lake/visits").version
    for words in (
        ("run", "visits", "--at", DAY),
        ("run", "visits", "--at", DAY, "--env", "staging", "--force", "--yes"),
    ):
        said = twice(*words)
        assert (said.code, memory.look("lake/visits").version) == (4, version)
        assert "memory:lake/visits belongs to another ledger" in said.err
        assert "Each environment (prod, staging), and the project without one, has its own ledger" in said.err
        assert "[env.NAME.stores.memory]" in said.err
        assert "twice adopt" not in said.err
    assert twice("run", "visits", "--at", DAY, "--env", "prod").out.count("skipped") == 1


def test_an_environment_shares_a_ledger_only_if_it_says_so(twice, shop):
    toml = (shop / "twice.toml").read_text()
    (shop / "twice.toml").write_text(toml + '\n[env.test.ledger]\nurl = "sqlite:///.twice/ledger.db"\n')
    assert twice("run", "visits", "--at", DAY).code == 0
    assert "skipped" in twice("run", "visits", "--at", DAY, "--env", "test").out


@pytest.mark.spark
@pytest.mark.stores("parquet", "delta")
def test_targets_of_a_real_store_are_kept_apart(twice, published, kind, session):
    """The owner in the table's own commit refuses the other environment; with a root of its own nothing is in the way."""
    published.edit("twice.toml", "[spark]", "[env.prod.spark]\nmaster = 'local[1]'\n\n[spark]")
    before = published.files("lake")
    said = twice("plan", "visits", "--at", DAY, "--env", "prod")
    assert (said.code, "Each environment (prod)" in said.err) == (4, True)
    assert twice("run", "visits", "--at", DAY, "--env", "prod", "--yes", "--force").code == 4
    assert published.files("lake") == before
    published.edit("twice.toml", "[spark]", f"[env.prod.stores.{kind}]\nkind = '{kind}'\nroot = 'prod'\n\n[spark]")
    said = twice("plan", "visits", "--at", DAY, "--env", "prod", "--output", "json")
    assert (said.code, said.json["plan"]["action"]) == (0, "create")
    assert twice("plan", "visits", "--at", DAY, "--output", "json").json["plan"]["action"] == "skip"
