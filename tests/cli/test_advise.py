"""How `twice advise` asks, answers, and refuses to wait for somebody who is not there."""

import io
import os
import re
import subprocess
import sys

import pytest

import twice as library
from twice import advice
from twice.stores.registry import BUILT_IN

OVERWRITE = ("advise", "--no-keep-versions", "--data", "full", "--no-all-or-nothing", "--no-metadata")


@pytest.fixture(autouse=True)
def _nobody_there(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture
def typed(monkeypatch):
    """Let somebody sit at a terminal and type these lines."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    return lambda *lines: monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))


@pytest.fixture
def unheard(monkeypatch):
    """Let this version of Twice carry no pattern but one."""
    names = [name for name in library.__all__ if name not in {found.pattern for found in advice.ADVICE.values()}]
    monkeypatch.setattr(library, "__all__", sorted([*names, "data_overwrite"]))


@pytest.fixture
def with_tape(monkeypatch):
    from twice.abilities import ReplacesTable, Store

    class Tape(Store, ReplacesTable):
        kind = "tape"
        lacks = {"ReplacesSlices": "a tape is written from its start"}  # noqa: RUF012 - as stores declare it

    monkeypatch.setitem(BUILT_IN, "tape", f"{__name__}:Tape")
    monkeypatch.setattr(sys.modules[__name__], "Tape", Tape, raising=False)


def pasted(out):
    """Return the lines that are there to be pasted."""
    return re.search(r"^import twice\n.*?(?=^\nThe same advice)", out, re.MULTILINE | re.DOTALL)[0]


# ------------------------------------------------------------------ by options


def test_options_alone_give_the_whole_answer(twice):
    said = twice(*OVERWRITE)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("Pattern: data_overwrite\nWhy: ")
    for heading in ("What it costs: ", "What it does not protect against:\n  - ", "Other ways:\n  - "):
        assert f"\n{heading}" in said.out
    assert 'pattern=twice.data_overwrite(slice="day"),' in pasted(said.out)


def test_the_lines_can_be_pasted_and_listed(twice, home):
    (home.folder / "pipelines/pasted.py").write_text(pasted(twice(*OVERWRITE).out).replace("visits", "pasted"))
    listed = {pipeline["name"]: pipeline["pattern"] for pipeline in twice("list", "--output", "json").json["pipelines"]}
    assert listed == {"visits": "data_overwrite", "pasted": "data_overwrite"}


def test_the_command_at_the_end_gives_the_same_advice(twice):
    said = twice("advise", "--keys", *OVERWRITE[1:], "--store", "delta")
    assert "\nMade no difference: --keys\n" in said.out
    again = re.search(r"^  twice (advise .*)$", said.out, re.MULTILINE)[1].split()
    repeated = twice(*again)
    assert "Made no difference" not in repeated.out
    assert repeated.out == said.out.replace("Made no difference: --keys\n", "")


def test_the_first_answer_may_be_enough(twice):
    said = twice("advise", "--keep-versions")
    assert (said.code, said.out.splitlines()[0]) == (0, "Pattern: proxy")
    assert said.out.endswith("  twice advise --keep-versions\n")


def test_json_gives_the_same_as_data(twice):
    text = twice(*OVERWRITE).out
    facts = twice(*OVERWRITE, "--output", "json").json
    assert facts["schema_version"] == 1
    assert (facts["pattern"], facts["carried"], facts["store"], facts["instead"]) == (
        "data_overwrite",
        True,
        None,
        None,
    )
    assert facts["lines"] == pasted(text)
    assert facts["command"] in text
    assert facts["answers"] == {"keep_versions": "no", "data": "full", "all_or_nothing": "no", "metadata": "no"}
    shown = " ".join(text.split())
    for sentence in (facts["why"], facts["cost"], *facts["not_protected"]):
        assert sentence in shown
    assert all(f"{way['code']}" in shown for way in facts["alternatives"])


# ------------------------------------------------------------------ questions left open


def test_without_a_terminal_missing_options_are_named_and_nobody_is_waited_for(twice):
    said = twice("advise", "--no-keep-versions")
    assert (said.code, said.out) == (2, "")
    assert "--data full|increments|events|files|stream; " in said.err
    assert "--metadata or --no-metadata" in said.err
    assert "--keep-versions or" not in said.err


def test_the_example_of_the_refusal_is_a_whole_command(twice):
    said = twice("advise")
    example = re.search(r"for example: twice (.*)", said.err)[1].split()
    assert twice(*example).code == 0


def test_missing_options_are_named_in_json_too(twice):
    said = twice("advise", "--data", "events", "--output", "json")
    assert said.code == 2
    assert said.json["error"]["type"] == "Misuse"
    assert said.json["error"]["why"] == (
        "May still be needed: --keep-versions or --no-keep-versions; --keys or --no-keys."
    )


def test_a_real_process_with_closed_input_ends_at_once():
    done = subprocess.run(
        [sys.executable, "-m", "twice", "advise"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TWICE_OUTPUT": "text"},
    )
    assert (done.returncode, done.stdout) == (2, "")


def test_a_misspelt_answer_is_told_so(twice):
    said = twice("advise", "--data", "ful")
    assert (said.code, said.out) == (2, "")
    assert "'ful' is not one of" in said.err


# ------------------------------------------------------------------ on a terminal


def test_on_a_terminal_questions_are_asked_until_the_answer_is_clear(twice, typed):
    typed("n", "full", "n", "n")
    said = twice("advise")
    assert (said.code, said.out) == (0, twice(*OVERWRITE).out)
    assert all(advice.QUESTIONS[name].text in said.err for name in ("keep_versions", "data"))
    assert advice.QUESTIONS["backfills"].text not in said.err
    assert "increments  changes: rows that are new" in said.err


def test_only_what_was_not_said_is_asked(twice, typed):
    typed("y")
    said = twice("advise", "--no-keep-versions", "--data", "events", "--output", "json")
    assert (said.code, said.json["pattern"]) == (0, "dedup_insert")
    assert advice.QUESTIONS["data"].text not in said.err


def test_an_answer_that_is_not_understood_is_asked_for_again(twice, typed):
    typed("perhaps", "", "n", "all", "events", "n")
    said = twice("advise", "--output", "json")
    assert (said.code, said.json["pattern"]) == (0, "transactional_writer")


def test_an_end_of_input_ends_the_questions(twice, typed):
    typed("n")
    said = twice("advise")
    assert (said.code, said.out) == (130, "")


# ------------------------------------------------------------------ what cannot be had


def test_a_pattern_that_this_version_does_not_carry_is_called_so_and_the_nearest_named(twice, unheard):
    said = twice("advise", "--no-keep-versions", "--data", "events", "--keys")
    shown = " ".join(said.out.split())
    assert said.out.startswith("Pattern: dedup_insert\n")
    assert f"Twice {library.__version__} does not carry dedup_insert yet. The nearest that it carries is" in shown
    assert 'twice.merger(keys=["visit_id"]) (not in this version): takes' in shown
    assert 'pattern=twice.data_overwrite(slice="day"),' in pasted(said.out)


def test_json_tells_what_is_not_carried(twice, unheard):
    facts = twice(
        "advise", "--no-keep-versions", "--data", "events", "--keys", "--store", "delta", "--output", "json"
    ).json
    assert (facts["carried"], facts["store"]["supported"]) == (False, None)
    assert "twice.dedup_insert(" in facts["lines"]
    assert facts["instead"]["pattern"] == "data_overwrite"
    assert "twice.data_overwrite(" in facts["instead"]["lines"]
    assert [way["carried"] for way in facts["alternatives"]] == [False, True]


def test_a_store_that_carries_the_pattern_is_said_to(twice):
    said = twice(*OVERWRITE, "--store", "delta")
    assert "\ndelta carries data_overwrite.\n" in said.out
    assert 'target="delta:lake/visits"' in said.out
    assert twice(*OVERWRITE, "--store", "delta", "--output", "json").json["store"] == {
        "kind": "delta",
        "supported": True,
        "reason": "",
        "fix": "",
    }


def test_a_store_that_cannot_is_told_why_and_what_else_could_be_done(twice, with_tape):
    said = twice(*OVERWRITE, "--store", "tape")
    shown = " ".join(said.out.split())
    assert said.code == 0
    assert "tape cannot carry data_overwrite. It needs ReplacesSlices; a tape is written from its start." in shown
    assert "The nearest that it carries on tape is twice.data_overwrite(): without slice=" in shown
    assert "a target that can: memory, parquet, delta" in shown
    assert "pattern=twice.data_overwrite()," in pasted(said.out)
    facts = twice(*OVERWRITE, "--store", "tape", "--output", "json").json
    assert (facts["store"]["supported"], facts["instead"]["code"]) == (False, "twice.data_overwrite()")


def test_where_nothing_near_can_be_had_no_lines_are_shown(twice, with_tape):
    said = twice("advise", "--no-keep-versions", "--data", "increments", "--no-keys", "--store", "tape")
    assert said.code == 0
    assert "There is nothing near it" in said.out
    assert "import twice" not in said.out


def test_an_unknown_store_is_refused_before_anything_is_asked(twice, typed):
    typed()
    said = twice("advise", "--store", "dleta")
    assert (said.code, said.out) == (2, "")
    assert said.err == "Misuse: There is no store 'dleta'.\n  Did you mean 'delta'?\n"


# ------------------------------------------------------------------ how it looks


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_there_are_no_control_characters_whatever_the_terminal(twice, typed, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    typed("n", "full", "n", "n")
    said = twice("advise")
    assert said.code == 0
    assert "\x1b" not in said.out + said.err


def test_on_a_narrow_terminal_prose_is_wrapped_and_code_is_not(twice, typed, monkeypatch):
    wide = twice(*OVERWRITE).out
    monkeypatch.setenv("COLUMNS", "50")
    typed("n", "full", "n", "n")
    said = twice("advise")
    assert pasted(said.out) == pasted(wide)
    prose = said.out.partition("\nTo paste")[0] + re.sub(r"^ *Your answer.*$", "", said.err, flags=re.MULTILINE)
    assert max(map(len, prose.splitlines())) <= 50
    assert f"\n  {' '.join(('twice', *OVERWRITE))}\n" in said.out


def test_on_a_wide_terminal_lines_stay_readable(twice, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert max(map(len, twice(*OVERWRITE).out.splitlines())) <= 100
