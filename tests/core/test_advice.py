"""Does every way through the tree end in an advice that is whole, true and ready to paste?"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import twice
from twice import matrix
from twice.advice import (
    ADVICE,
    NO,
    QUESTIONS,
    TREE,
    YES,
    Advice,
    Fork,
    Question,
    Way,
    advise,
    carried,
    command,
    led_there,
    next_question,
    open_questions,
    refusal,
    usable,
)
from twice.errors import Misuse
from twice.pipelines import Pipeline
from twice.stores.registry import BUILT_IN, store_class

PAGE = Path(__file__).parents[2] / "docs/how-to/choose-a-pattern.md"


def ways(place=TREE, answers=None):
    """Yield the answers of every way through the tree, and the name of the advice at its end."""
    answers = answers or {}
    if isinstance(place, str):
        yield answers, place
        return
    for answer, branch in place.branches.items():
        yield from ways(branch, {**answers, place.question: answer})


def forks(place=TREE):
    if isinstance(place, Fork):
        yield place
        for branch in place.branches.values():
            yield from forks(branch)


WAYS = list(ways())
each_way = pytest.mark.parametrize(("answers", "end"), WAYS, ids=[end for _, end in WAYS])
each_advice = pytest.mark.parametrize("advice", ADVICE.values(), ids=ADVICE)


def declared(lines):
    """Run the lines as a file of pipelines would be, and return what they declare."""
    names = {}
    exec(compile(lines, "pasted.py", "exec"), names)
    return [value for value in names.values() if isinstance(value, Pipeline)]


# ------------------------------------------------------------------ the tree


@each_way
def test_every_way_through_the_tree_ends_in_an_advice(answers, end):
    assert advise(answers) is ADVICE[end]
    assert next_question(answers) is None
    assert open_questions(answers) == []


def test_every_advice_and_every_question_is_reached():
    assert {end for _, end in WAYS} == set(ADVICE)
    assert {fork.question for fork in forks()} == set(QUESTIONS)


@pytest.mark.parametrize("fork", list(forks()), ids=lambda fork: fork.question)
def test_a_question_has_a_branch_for_each_answer_and_is_asked_only_where_it_changes_the_end(fork):
    assert set(fork.branches) == set(QUESTIONS[fork.question].values)
    ends = [{end for _, end in ways(branch)} for branch in fork.branches.values()]
    assert len(set().union(*ends)) == sum(map(len, ends))


@each_way
def test_no_question_is_asked_twice_on_a_way(answers, end):
    asked = []
    given = {}
    while question := next_question(given):
        asked.append(question.name)
        given[question.name] = answers[question.name]
    assert asked == list(answers)


@each_way
def test_answers_that_are_not_asked_for_change_nothing(answers, end):
    surplus = {name: question.values[0] for name, question in QUESTIONS.items() if name not in answers}
    assert advise({**surplus, **answers}) is ADVICE[end]
    assert led_there({**surplus, **answers}) == answers


# ------------------------------------------------------------------ scenario 98, one by one


@pytest.mark.parametrize(
    ("said", "pattern"),
    [
        ({"data": "full", "metadata": YES}, "fast_metadata_cleaner"),
        ({"data": "full", "metadata": NO}, "data_overwrite"),
        ({"data": "increments", "keys": YES, "backfills": NO}, "merger"),
        ({"data": "increments", "keys": YES, "backfills": YES}, "stateful_merger"),
        ({"data": "stream", "keys": YES}, "keyed"),
        ({"data": "full", "all_or_nothing": YES}, "transactional_writer"),
        ({"data": "stream", "all_or_nothing": YES}, "transactional_writer"),
        ({"keep_versions": YES}, "proxy"),
        ({"data": "events", "keys": YES}, "dedup_insert"),
        ({"data": "events", "keys": NO}, "transactional_writer"),
        ({"data": "files", "keys": YES}, "dedup_insert"),
        ({"data": "files", "keys": NO}, "transactional_writer"),
        ({"data": "stream", "keys": NO}, "transactional_writer"),
        ({"data": "increments", "keys": NO}, "data_overwrite"),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else value,
)
def test_the_situation_leads_to_its_pattern(said, pattern):
    assert advise({"keep_versions": NO, "all_or_nothing": NO, **said}).pattern == pattern


def test_files_that_arrive_in_a_folder_are_tracked():
    for end in ("files", "files without a key"):
        advice = ADVICE[end]
        for way in (advice.way, *advice.alternatives):
            (pipeline,) = declared(advice.lines(way))
            assert pipeline.tracked
            assert {kind for kind in BUILT_IN if not matrix.missing(pipeline.pattern, store_class(kind))} == {
                "memory",
                "parquet",
                "delta",
                "postgres",
            }


# ------------------------------------------------------------------ what an advice says


@each_advice
def test_an_advice_says_why_what_it_costs_and_what_it_does_not_protect_against(advice):
    for text in (advice.why, advice.cost, *advice.not_protected):
        assert re.fullmatch(r"[A-Z].*\.", text)
        assert "  " not in text
    assert advice.situation
    assert advice.not_protected
    assert advice.alternatives
    assert all(way.difference and not way.difference.endswith(".") for way in advice.alternatives)
    assert advice.way not in advice.alternatives


@each_advice
def test_the_lines_parse_and_are_narrow_enough_to_paste(advice):
    for way in (advice.way, *advice.alternatives):
        lines = advice.lines(way)
        (function,) = [node for node in ast.parse(lines).body if isinstance(node, ast.FunctionDef)]
        assert function.decorator_list
        assert f"pattern={way.code}," in lines
        assert not re.search("STORE|PATTERN", lines)
        assert max(map(len, lines.splitlines())) <= 100


@each_advice
def test_the_lines_of_a_pattern_that_is_there_declare_a_pipeline_with_it(advice):
    for way in (advice.way, *advice.alternatives):
        if carried(way.pattern):
            (pipeline,) = declared(advice.lines(way))
            assert getattr(pipeline.pattern, "inner", pipeline.pattern).name == way.pattern
            assert pipeline.target.store == advice.store
            assert pipeline.warnings == []


@each_advice
def test_the_store_of_the_lines_carries_the_pattern(advice):
    assert not carried(advice.pattern) or refusal(advice.way, advice.store) is None


@each_advice
def test_there_is_always_something_that_this_version_carries(advice):
    assert usable(advice) is not None
    assert usable(advice, "parquet") is not None


def test_the_lines_name_the_store_that_was_asked_for():
    assert 'target="delta:lake/visits"' in ADVICE["slices"].lines(store="delta")
    assert 'target="parquet:lake/visits"' in ADVICE["slices"].lines()


# ------------------------------------------------------------------ what can be had is asked, not listed


def test_a_pattern_is_carried_if_it_is_a_public_name(monkeypatch):
    assert carried("data_overwrite")
    assert not carried("wishful_writer")
    monkeypatch.setattr(twice, "__all__", [*twice.__all__, "wishful_writer"])
    assert carried("wishful_writer")


def test_every_pattern_of_the_matrix_is_one_that_somebody_may_be_advised():
    advised = {way.pattern for advice in ADVICE.values() for way in (advice.way, *advice.alternatives)}
    assert {name.partition(" ")[0] for name in matrix.VARIANTS} <= advised


def test_the_nearest_is_the_first_alternative_that_is_there(monkeypatch):
    advice = made(Way("wishful_writer"), Way("dreamt_up"), Way("data_overwrite", {"slice": "day"}, "is there"))
    assert usable(advice).difference == "is there"
    assert usable(made(Way("wishful_writer"), Way("dreamt_up"))) is None


def test_a_store_that_cannot_carry_the_pattern_is_named_with_the_reason(with_tape):
    way = Way("data_overwrite", {"slice": "day"})
    found = refusal(way, "tape")
    assert found.why == "It needs ReplacesSlices; a tape is written from its start."
    assert "a target that can: memory, parquet, delta" in found.fix
    assert usable(made(way, Way("data_overwrite")), "tape") == Way("data_overwrite")
    assert usable(made(way), "tape") is None


def test_an_unknown_store_is_refused():
    with pytest.raises(Misuse, match="There is no store 'dleta'"):
        refusal(Way("data_overwrite"), "dleta")


def made(way, *alternatives):
    return Advice("a case", way, "Why.", "Cost.", ("Nothing.",), alternatives, "PATTERN on STORE")


@pytest.fixture
def with_tape(monkeypatch):
    monkeypatch.setitem(BUILT_IN, "tape", "test_matrix:Tape")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


# ------------------------------------------------------------------ open questions


def test_without_answers_every_question_is_open_in_the_order_of_asking():
    assert [question.name for question in open_questions({})] == list(QUESTIONS)
    assert next_question({}).name == TREE.question


def test_only_questions_that_may_still_be_asked_are_open():
    assert [question.name for question in open_questions({"data": "events"})] == ["keep_versions", "keys"]
    assert [question.name for question in open_questions({"keep_versions": NO, "keys": NO, "data": "full"})] == [
        "all_or_nothing",
        "metadata",
    ]


def test_an_advice_too_early_names_what_is_missing_and_a_whole_command():
    with pytest.raises(Misuse) as early:
        advise({"keep_versions": NO, "data": "increments"})
    assert early.value.why == "May still be needed: --keys or --no-keys; --backfills or --no-backfills."
    assert early.value.fix.endswith("twice advise --no-keep-versions --data increments --no-keys")


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"keep_versions": "perhaps"}, r"'perhaps' does not answer: Must every .*\n  Use one of: yes, no."),
        ({"data": "ful"}, r"'ful' does not answer: What .*\n  Use one of: full, increments, events, files, stream."),
        ({"date": "full"}, "There is no question 'date'.\n  Did you mean 'data'?"),
    ],
)
def test_an_answer_that_is_not_understood_is_refused(answers, told):
    with pytest.raises(Misuse, match=told):
        advise(answers)


def test_a_question_knows_its_option():
    plain = Question("all_or_nothing", "Together?")
    assert (plain.usage, plain.said(YES)) == ("--all-or-nothing or --no-all-or-nothing", "--all-or-nothing")
    chosen = Question("data", "What?", {"full": "all", "stream": "some"})
    assert (chosen.usage, chosen.said("full")) == ("--data full|stream", "--data full")


def test_the_command_holds_the_answers_and_the_store():
    assert command({"keep_versions": NO, "data": "events"}, "delta") == (
        "twice advise --no-keep-versions --data events --store delta"
    )


# ------------------------------------------------------------------ the page, and what is loaded


def test_the_table_of_the_page_is_made_of_the_advices():
    page = PAGE.read_text()
    for advice in ADVICE.values():
        cells = (advice.situation, f"`{advice.pattern}`", advice.cost, " ".join(advice.not_protected))
        assert f"| {' | '.join(cells)} |" in page


def test_the_drawing_of_the_page_is_the_tree():
    drawn = PAGE.read_text().partition("## The questions")[2].partition("## The answers")[0]
    drawing = re.search(r"```\n(.*?)```", drawn, re.DOTALL)[1]
    assert re.findall(r"^ +(?:yes|no)  +(\w+)$", drawing, re.MULTILINE) == [ADVICE[end].pattern for _, end in WAYS]
    assert re.findall(r"--[\w-]+$", drawing, re.MULTILINE) == [QUESTIONS[fork.question].flag for fork in forks()]


def test_an_advice_loads_no_spark_and_no_click():
    code = (
        "import sys; from twice.advice import advise, usable; usable(advise({'keep_versions': 'yes'}), 'delta');"
        "print([m for m in ('pyspark', 'pyarrow', 'rich', 'click') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
