"""`twice prove` on pipelines whose rows are in memory: what it tries, what it finds, what it refuses."""

import json
import os
import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest
from declared_patterns import PATTERNS

import twice
from twice.cli import main
from twice.errors import Misuse, NotProvable
from twice.prover import verdicts
from twice.prover.pages import page
from twice.prover.reports import junit_xml

pytestmark = [pytest.mark.timeout(600)]

BY_HAND = """with open("by_hand.csv", "a") as file:
    file.writelines(row["id"] + "\\n" for row in rows)
return rows"""


def open_ended(folder):
    """Let the calendar of a project begin long ago and never end."""
    file = folder / "pipelines/visits.py"
    text = file.read_text()
    assert 'start="2024-10-07"' in text
    file.write_text(text.replace('    end="2024-10-11",\n', "").replace('start="2024-10-07"', 'start="2015-01-01"'))
    return folder


def found(proof):
    return [(one.trial.name, one.verdict, one.seen) for one in proof.counterexamples]


@pytest.mark.parametrize("shape", PATTERNS)
def test_no_false_alarm_on_any_pattern(memory_project, shape):
    proof = twice.prove("visits", project=memory_project(pattern=PATTERNS[shape]))
    assert found(proof) == []
    assert proof.verdict == "idempotent"
    ways = {one.trial.name for one in proof.tried}
    assert {"repeat/twice", "repeat/ledger-lost", "repeat/ledger-stale", "repeat/backfill"} <= ways
    assert {"repeat/changed-input", "repeat/vanished-input", "repeat/older-after-newer"} <= ways
    assert {f"{point}/{way}" for point in proof.points for way in ("died", "lost-reply")} <= ways


def test_the_project_itself_is_not_touched(memory_project):
    folder = memory_project()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    twice.prove("visits", project=folder, only="publish.after/died")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_transform_that_appends_by_hand_is_caught_and_its_command_shows_it_again(memory_project, capsys, monkeypatch):
    monkeypatch.chdir(memory_project(BY_HAND))
    assert main(["prove", "visits", "--only", "stage.after/died"]) == 5
    said = capsys.readouterr().out
    assert "stage.after/died: side effect repeated" in said
    assert "in by_hand.csv: 16 rows instead of 12; extra 2024-10-10-0" in said
    again = said.partition("Again: twice ")[2].splitlines()[0].split()
    assert again == ["prove", "visits", "--at", "2024-10-10", "--only", "stage.after/died"]
    assert main(again) == 5
    assert "in by_hand.csv: 16 rows instead of 12" in capsys.readouterr().out


def test_modules_of_the_project_are_those_of_the_copy(memory_project):
    folder = memory_project("from helpers import note\nnote(rows)\nreturn rows")
    (folder / "helpers.py").write_text(
        "from pathlib import Path\n\n\ndef note(rows):\n"
        "    with (Path(__file__).parent / 'notes.csv').open('a') as file:\n        file.write('a run\\n')\n"
    )
    proof = twice.prove("visits", project=folder, only="stage.after/died")
    assert [one.verdict for one in proof.counterexamples] == [verdicts.EFFECT]
    assert not (folder / "notes.csv").exists()
    assert "helpers" not in sys.modules


def test_a_transform_that_appends_by_hand_survives_where_it_is_not_run_again(memory_project):
    assert twice.prove("visits", project=memory_project(BY_HAND), only="publish.after/died").survived


def test_a_clock_is_not_deterministic_and_the_rest_is_compared_without_it(memory_project):
    body = 'import datetime\nreturn [{**row, "loaded": datetime.datetime.now().isoformat()} for row in rows]'
    proof = twice.prove("visits", project=memory_project(body))
    assert proof.verdict == "not deterministic"
    assert [one.trial.name for one in proof.counterexamples] == ["repeat/clean"]
    seen = proof.counterexamples[0].seen
    assert seen == "two clean runs differ in column 'loaded'; likely: datetime.datetime.now() in line 49"


def test_a_clock_does_not_hide_rows_that_are_written_twice(memory_project):
    body = f'import random\nrows = [{{**row, "dice": random.random()}} for row in rows]\n{BY_HAND}'
    proof = twice.prove("visits", project=memory_project(body))
    assert proof.verdict == "not idempotent"
    kinds = {one.trial.name: one.verdict for one in proof.counterexamples}
    assert kinds["repeat/clean"] == verdicts.NOT_DETERMINISTIC
    assert kinds["stage.after/died"] == verdicts.EFFECT


@pytest.mark.parametrize(
    ("body", "before", "said"),
    [
        ('requests.post("x", json=rows)\nreturn rows', "import requests\n", "calls requests.post()"),
        ('open("/tmp/by_hand.csv", "a").close()\nreturn rows', "", "'/tmp/by_hand.csv'"),
        ('write("s3://bucket/by_hand")\nreturn rows', "", "'s3://bucket/by_hand'"),
        (
            "return tell(rows)",
            "import smtplib\ndef tell(rows):\n    smtplib.SMTP('x')\n    return rows\n",
            "smtplib.SMTP()",
        ),
    ],
)
def test_what_would_reach_outside_is_not_provable_and_is_never_run(memory_project, monkeypatch, body, before, said):
    monkeypatch.setitem(sys.modules, "requests", object())
    proof = twice.prove("visits", project=memory_project(body, before=before))
    assert (proof.verdict, proof.survived, proof.points) == ("not provable", False, ())
    (found,) = proof.counterexamples
    assert said in found.seen
    assert found.replay == "twice prove visits --at 2024-10-10 --only repeat/effects"
    assert proof.to_json()["verdict"] == "not provable"
    assert "not provable" in page(proof)
    assert 'type="not provable"' in junit_xml(proof)


def test_what_was_not_provable_is_tried_again_by_its_own_command(memory_project):
    proof = twice.prove("visits", project=memory_project(), only="repeat/effects")
    assert [(one.trial.name, one.survived) for one in proof.tried] == [("repeat/effects", True)]


def test_a_name_in_a_catalog_is_refused(memory_project):
    folder = memory_project()
    file = folder / "pipelines/visits.py"
    file.write_text(file.read_text().replace("memory:lake/visits", "delta:visits"))
    with pytest.raises(NotProvable, match="a name in a catalog"):
        twice.prove("visits", project=folder)


def test_a_source_in_a_database_is_refused(memory_project):
    folder = memory_project()
    file = folder / "pipelines/visits.py"
    text = re.sub(r"source=Lines\(.*\),", 'source=twice.table("postgres:lake/orders"),', file.read_text())
    file.write_text(text)
    with pytest.raises(NotProvable, match="a table of a PostgreSQL server"):
        twice.prove("visits", project=folder)


def test_a_pipeline_that_does_not_run_is_refused_with_its_reason(memory_project):
    with pytest.raises(Misuse, match=r"does not succeed in a copy of the project: .*division by zero"):
        twice.prove("visits", project=memory_project("return [{'id': 1 / 0}]"))


def test_without_input_there_is_nothing_to_prove(memory_project):
    folder = memory_project()
    for file in folder.glob("landing/*"):
        file.unlink()
    with pytest.raises(Misuse, match="None of the last 4 closed slots has input files") as refused:
        twice.prove("visits", project=folder)
    assert "'landing/{execution_date}.jsonl'" in refused.value.why
    assert refused.value.fix == "Name a slot: --at TIME."


def test_a_calendar_without_end_is_searched_for_the_newest_slot_that_has_input(memory_project):
    folder = open_ended(memory_project())
    for day in ("2024-10-07", "2024-10-08"):
        (folder / f"landing/{day}.jsonl").rename(folder / f"landing/{day.replace('2024', '2016')}.jsonl")
    (folder / "landing/2024-10-10.jsonl").unlink()
    (folder / "landing/notes.jsonl").touch()
    proof = twice.prove("visits", project=folder, only="publish.after/died")
    assert proof.slot == "2024-10-09T00:00Z"
    assert (
        proof.notes[0] == "none of the last 30 closed slots has input files; 2024-10-09T00:00Z was found further back"
    )


def test_a_published_slot_is_proven_where_the_names_of_files_tell_no_time(memory_project, monkeypatch):
    folder = open_ended(memory_project())
    monkeypatch.setattr("twice.placeholders.moments_in", lambda *_: [])
    with pytest.raises(Misuse, match="no older slot of visits was found"):
        twice.prove("visits", project=folder)
    for day in ("2024-10-07", "2024-10-08", "2024-10-10"):
        twice.run("visits", at=day, project=folder)
    (folder / "landing/2024-10-10.jsonl").unlink()
    assert twice.prove("visits", project=folder, only="repeat/effects").slot == "2024-10-08T00:00Z"


def test_no_time_is_no_proof(memory_project):
    with pytest.raises(Misuse, match="The budget ended before the first trial; pass a larger `--budget`"):
        twice.prove("visits", project=memory_project(), budget="0s")


def test_what_the_time_did_not_allow_is_said(memory_project):
    slow = memory_project("time.sleep(0.3)\nreturn rows", before="import time\n")
    proof = twice.prove("visits", project=slow, budget="8s")
    late = [one for one in proof.left_out if one.why == "no time was left"]
    assert late
    assert proof.seconds_left_out > 0
    said = f"no counterexample in {len(proof.tried)} of {len(proof.tried) + len(late)} trials"
    assert (proof.verdict, proof.told, proof.survived) == ("no counterexample", said, True)
    told = proof.to_json()
    assert (told["verdict"], len(told["tried"]), told["trials"]) == (proof.verdict, len(proof.tried), proof.applicable)
    assert f"<title>Proof of visits {proof.slot}: {said}</title>" in page(proof)
    assert ">idempotent<" not in page(proof)


def test_one_trial_is_no_proof_of_all(memory_project, monkeypatch, capsys):
    monkeypatch.chdir(memory_project())
    assert main(["prove", "visits", "--only", "publish.after/died"]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"visits 2024-10-10T00:00Z -> memory: no counterexample in 1 of \d\d+ trials", first)


def test_a_trial_that_does_not_exist_is_refused_with_the_nearest(memory_project):
    with pytest.raises(Misuse, match=r"Did you mean 'publish\.after/died'"):
        twice.prove("visits", project=memory_project(), only="publish.after/die")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("publish.after", "A trial is named POINT/WAY"),
        ("publsh.after/died", "Did you mean 'publish.after/died'"),
        ("publish.after/x", "Ways at publish.after: "),
        ("repeat/vanish-input", "Did you mean 'repeat/vanished-input'"),
        ("stage.after+publsh.after/died", "Did you mean 'stage.after+publish.after/died'"),
        ("postgres.commit/cut-never", "Did you mean 'postgres.commit/cut-"),
    ],
)
def test_a_misspelt_trial_is_refused_in_three_lines_before_anything_runs(
    memory_project, monkeypatch, capsys, asked, said
):
    monkeypatch.chdir(memory_project("raise AssertionError('it was run')"))
    assert main(["prove", "visits", "--only", asked]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Nothing was run." in told
    assert len(told) < 500


def test_a_point_that_the_run_does_not_pass_is_told_after_a_clean_run(memory_project):
    with pytest.raises(Misuse, match=r"visits has no trial 'parquet\.manifest\.linked/died'") as refused:
        twice.prove("visits", project=memory_project(), only="parquet.manifest.linked/died")
    assert len(str(refused.value)) < 500


def test_a_pair_dies_in_the_rerun_too(memory_project):
    proof = twice.prove("visits", project=memory_project(), only="stage.after+publish.after/died")
    assert proof.survived
    assert len(proof.tried) == 1


def test_the_reports_tell_the_same(memory_project, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(memory_project(BY_HAND))
    html, xml = tmp_path / "proof.html", tmp_path / "proof.xml"
    words = ["prove", "visits", "--budget", "20s", "--output", "json", "--report", str(html), "--junit", str(xml)]
    assert main(words) == 5
    proof = json.loads(capsys.readouterr().out)["proof"]
    named = [f"{one['point']}/{one['way']}" for one in proof["tried"] if one["verdict"] != "survived"]
    bad = set(named)
    assert "stage.after/died" in bad
    assert "publish.after/died" not in bad
    suite = ET.parse(xml).getroot()  # our own file
    assert {case.get("name") for case in suite if case.find("failure") is not None} == bad
    assert int(suite.get("tests")) == len(proof["tried"]) + len(proof["left_out"])
    text = html.read_text()
    assert "http" not in text
    assert "<script" not in text
    assert text.count("<li id=") == len(proof["points"])
    assert text.count('<li id="point') - text.count('class="bad"><details open>') > 0
    assert f"twice prove visits --at 2024-10-10 --only {named[0]}" in text
    assert all(f"{name}</code>" in text or name == named[0] for name in bad)


def test_the_page_escapes_what_rows_hold(memory_project):
    body = 'rows = [{**row, "id": "<script>" + row["id"]} for row in rows]\n' + BY_HAND
    proof = twice.prove("visits", project=memory_project(body), only="stage.after/died")
    assert "<script>" in proof.counterexamples[0].seen
    assert "<script>" not in page(proof)


def test_one_line_of_a_users_own_tests(memory_project):
    folder = memory_project(BY_HAND)
    (folder / "test_visits.py").write_text(
        "def test_survives(prove):\n    assert prove('visits', only='publish.after/died').survived\n\n"
        "def test_does_not(prove):\n    prove('visits', only='stage.after/died')\n"
    )
    words = [sys.executable, "-m", "pytest", "-p", "twice.prover.pytest_plugin", "-q", "--rootdir", str(folder)]
    ended = subprocess.run([*words, str(folder)], cwd=folder, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in ended.stdout
    assert "visits is not idempotent." in ended.stdout
    assert "Again: twice prove visits --at 2024-10-10 --only stage.after/died" in ended.stdout


def test_a_store_outside_of_the_project_is_given_a_root_in_the_world(memory_project, tmp_path):
    from twice.project import Project
    from twice.prover.isolation import copy_project
    from twice.settings import load

    folder, world = memory_project(), tmp_path / "world"
    (folder / "twice.toml").write_text(f"[stores.far]\nkind = 'parquet'\nroot = '{tmp_path}/far'\n")
    notes = copy_project(Project.open(folder, only_looking=True), world)
    assert load(world).stores["far"].root == ".outside/far"
    assert str(tmp_path / "far") in notes[0]
    assert not list(world.glob("landing/*"))


@pytest.mark.parametrize("in_file", ["", "[stores.far]\nkind = 'parquet'\nroot = 'near'\n"], ids=["new", "overridden"])
def test_a_store_of_an_environment_never_leads_out_of_the_world(memory_project, tmp_path, in_file):
    from twice.project import Project
    from twice.prover.isolation import NotProvable, copy_project
    from twice.settings import load

    folder, world = memory_project(), tmp_path / "world"
    kind = "" if in_file else "kind = 'parquet'\n"
    section = f"[env.prod.stores.far]\n{kind}root = '{tmp_path}/far'\n"
    (folder / "twice.toml").write_text(in_file + section)
    copy_project(Project.open(folder, only_looking=True, env="prod"), world)
    assert load(world, env="prod").stores["far"].root == ".outside/far"
    (folder / "twice.toml").write_text(
        in_file
        + section.replace("[env.prod.stores.far]", "[env.prod]")
        .replace("root", "stores.far.root")
        .replace("kind", "stores.far.kind")
    )
    with pytest.raises(NotProvable, match="outside of the project"):
        copy_project(Project.open(folder, only_looking=True, env="prod"), tmp_path / "other")


def test_a_proof_stays_in_the_environment_that_was_chosen(memory_project, monkeypatch):
    from twice.project import Project

    folder = memory_project(
        'rows = [{**row, "id": os.environ["TWICE_ENV"] + row["id"]} for row in rows]\nreturn rows', before="import os\n"
    )
    (folder / "twice.toml").write_text("[env.prod.spark]\nmaster = 'local[1]'\n")
    monkeypatch.delenv("TWICE_ENV", raising=False)
    home = Project.open(folder, only_looking=True, env="prod")
    assert twice.prove("visits", project=home, only="publish.after/died").survived
    assert "TWICE_ENV" not in os.environ


EFFECT = """run.effect("tell", call=tell, day=run.slot.label)
run.effect("post", call=twice.http_effect("https://example.org/x"), outbox=True)
return rows"""
TELL = """import requests


def tell(key, day):
    requests.post("https://example.org", json=day)


"""


def test_an_effect_with_a_key_is_provable_and_nobody_is_called(memory_project, monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", object())
    proof = twice.prove("visits", project=memory_project(body=EFFECT, before=TELL))
    assert found(proof) == []
    assert {"effects.intended", "effect.confirmed"} <= set(proof.points)
