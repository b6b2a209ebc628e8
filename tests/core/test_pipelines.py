"""What does a user declare, and what is refused at once?"""

import pytest
from samples import moment

import twice
from twice.errors import Misuse
from twice.patterns.data_overwrite import DataOverwrite
from twice.pipelines import pipeline
from twice.runs import Run, Target
from twice.sources.files import Files

SOURCE = Files("in/{execution_date}.csv", schema="id int")
DAILY = {"every": "1 day", "start": "2024-09-01"}
NOW = moment("2024-09-21T12:00Z")


def declared(transform=None, **changes):
    values = {"target": "memory:lake/out", "pattern": DataOverwrite(slice="day"), "source": SOURCE, **changes}
    return pipeline(**values)(transform or doubled)


def doubled(rows):
    return [2 * row for row in rows]


def test_a_pipeline_is_still_callable():
    assert declared()([1, 2]) == [2, 4]


def test_a_pipeline_is_named_by_its_function_or_by_its_user():
    assert (declared().name, declared(name="other").name) == ("doubled", "other")
    assert declared().target == Target("memory", "lake/out")


def test_a_renamed_pipeline_keeps_its_slots():
    assert declared(was="first", **DAILY).slot("2024-09-20").pipeline == "first"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"source": None}, "either source= or sources="),
        ({"sources": {"a": SOURCE}}, "either source= or sources="),
        ({"every": "1 day"}, "needs both every= and start="),
        ({"start": "2024-09-01"}, "needs both every= and start="),
        ({"every": "", "start": "2024-09-01"}, "every="),
        ({"on_code_change": "run"}, "Use one of: show, rerun"),
        ({"name": "a b"}, "cannot name a pipeline"),
        ({"was": "a:b"}, "cannot name a pipeline"),
        ({"target": "lake/out"}, "is not a target"),
        ({**DAILY, "zone": "Mars"}, "is not a time zone"),
        ({**DAILY, "end": "soon"}, "is not a moment"),
        ({"transform": lambda: None}, "cannot be called with its sources: too many positional"),
        ({"transform": lambda rows, day: []}, r"missing a required argument: 'day'.\n.*'rows', and 'run' if"),
        ({"transform": lambda run, rows: []}, "multiple values for argument 'run'"),
        (
            {"sources": {"a": SOURCE, "b": SOURCE}, "source": None},
            r"missing a required argument: 'rows'.*\n.*'a' and 'b'",
        ),
        ({"transform": 5}, "of the type int, which cannot be called"),
    ],
)
def test_a_declaration_that_is_not_whole_is_refused(changes, why):
    with pytest.raises(Misuse, match=why):
        declared(**changes)


# ------------------------------------------------------------------ slots


def test_a_scheduled_pipeline_has_a_slot_for_every_interval():
    assert declared(**DAILY).slot("2024-09-20", now=NOW).text == (
        "v1:doubled:memory:lake/out:2024-09-20T00:00Z/2024-09-21T00:00Z"
    )


def test_an_interval_that_is_still_open_is_refused_and_the_newest_closed_is_named():
    with pytest.raises(Misuse, match=r"is not closed yet(.|\n)*--at 2024-09-20T00:00Z"):
        declared(**DAILY).slot("2024-09-21", now=NOW)


def test_a_scheduled_pipeline_asks_which_interval():
    with pytest.raises(Misuse, match=r"Which interval(.|\n)*--at 2024-09-20T00:00Z for the newest closed interval\.$"):
        declared(**DAILY).slot(now=NOW)
    with pytest.raises(Misuse, match=r"newest closed interval, or all\.$"):
        declared(**DAILY).slot(now=NOW, besides=", or all")


def test_a_calendar_has_no_keys_and_keys_have_no_calendar():
    with pytest.raises(Misuse, match="its slots have no key"):
        declared(**DAILY).slot(key="pl")
    with pytest.raises(Misuse, match="has no calendar"):
        declared().slot("2024-09-20")


def test_a_pipeline_without_a_calendar_has_one_slot_or_one_a_key():
    assert [declared().slot(key=key).part for key in (None, "", "01")] == ["", "", "01"]


# ------------------------------------------------------------------ calling the transform


def test_a_transform_is_given_the_run_if_it_asks_for_it():
    run = Run(declared(**DAILY).slot("2024-09-20"), 1, "attempt")
    told = declared(lambda rows, run: (rows, run.execution_time), name="told")
    assert told.call({"rows": [1]}, run) == ([1], moment("2024-09-20"))
    assert declared().call({"rows": [1]}, run) == [2]


def test_several_sources_are_given_by_name():
    both = declared(
        lambda left, right: left + right, name="both", source=None, sources={"left": SOURCE, "right": SOURCE}
    )
    assert both.call({"right": [2], "left": [1]}, None) == [1, 2]


def test_a_calendar_over_the_same_files_is_warned_of():
    careless = declared(source=Files("in/*.csv", schema="id int"), **DAILY)
    assert careless.warnings == ["'in/*.csv' names no slot: every run of doubled reads the same files"]
    assert declared(**DAILY).warnings == declared(source=Files("in/*.csv", schema="id int")).warnings == []


def test_the_code_of_a_pipeline_is_that_of_its_function():
    assert declared().code == declared(name="other", **DAILY).code


# ------------------------------------------------------------------ a file of pipelines

FIRST = """
@twice.pipeline(source=twice.files("in.csv", schema="id int"), target="memory:first", pattern=twice.data_overwrite())
def first(rows):
    return rows
"""
SECOND = """
@twice.pipeline(source=twice.table("memory:first"), target="memory:second", pattern=twice.data_overwrite())
def second(rows):
    return rows
"""


@pytest.fixture
def read(tmp_path):
    """Return what writes a file of pipelines, reads it, and names those that it declares."""

    def act(*parts):
        (tmp_path / "pipelines").mkdir()
        (tmp_path / "pipelines/shop.py").write_text("".join(["import functools, twice\n", *parts]))
        return list(twice.Project.open(tmp_path).pipelines)

    return act


def test_all_pipelines_of_a_file_are_found(read):
    assert read(FIRST, SECOND) == ["first", "second"]


@pytest.mark.parametrize("option", ["", 'name="other", '])
def test_two_functions_of_one_name_are_refused_since_the_first_would_never_run(read, option):
    again = SECOND.replace("def second", "def first").replace("source=", f"{option}source=")
    with pytest.raises(Misuse, match=r"shop.py declares two .* called 'first', in lines 4 and 8\.\n .*would never run"):
        read(FIRST, again)


def test_a_helper_may_have_the_name_of_a_pipeline_that_follows(read):
    assert read("\n@functools.cache\ndef second():\n    return 1\n", SECOND) == ["second"]


@pytest.mark.parametrize("wrong", [FIRST.replace("memory:", "memry:"), SECOND.replace("memory:first", "memry:first")])
def test_a_store_that_is_not_there_is_refused_before_anything_is_read(read, wrong):
    with pytest.raises(Misuse, match=r"no store 'memry', which the pipeline .*\n  Did you mean 'memory'"):
        read(wrong)
