"""Rows of a user's function, with a fingerprint that the user declares: no JVM anywhere."""

import json
import subprocess
import sys
import textwrap
import time
from datetime import UTC, date, datetime
from functools import partial

import pytest

import twice
from twice import settings
from twice.errors import SourceFailed
from twice.project import Project
from twice.sight import Sight

DAY = "2024-10-07"
TARGET = "memory:lake/orders"


class Api:
    """Something outside that gives rows, and says how many there have been."""

    def __init__(self):
        self.revision = 1
        self.calls = []

    def read(self, run):
        self.calls.append(run.execution_time)
        return [{"id": self.revision, "day": run.execution_time.date()}]

    def fingerprint(self, run):
        return {"day": run.execution_time.isoformat(), "revision": self.revision}


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def project(tmp_path):
    return Project(settings.load(tmp_path))


@pytest.fixture
def run(project):
    def act(source, transform=lambda rows: rows, **asked):
        declared = twice.pipeline(
            name="orders",
            every="1 day",
            start=DAY,
            **(source if isinstance(source, dict) else {"source": source}),
            target=TARGET,
            pattern=twice.data_overwrite(slice="day"),
        )(transform)
        return twice.run(declared, at=DAY, project=project, **asked)

    return act


def rows_of(project):
    return twice.read(None, TARGET, project=project)


# ------------------------------------------------------------------ repeat and correction


def test_the_declared_fingerprint_tells_a_repeat_from_a_correction(run, project, api):
    source = twice.source(api.read, fingerprint=api.fingerprint)
    assert [run(source).state for _ in range(2)] == ["published", "skipped"]
    api.revision = 2
    assert run(source).generation == 2
    assert rows_of(project) == [{"id": 2, "day": date(2024, 10, 7)}]
    assert api.calls == [datetime(2024, 10, 7, tzinfo=UTC)] * 2


def test_a_text_with_placeholders_is_a_fingerprint_too(run, api):
    assert run(twice.source(api.read, fingerprint="orders of {execution_date}")).state == "published"
    assert run(twice.source(api.read, fingerprint="orders of 2024-10-07")).state == "skipped"
    assert run(twice.source(api.read, fingerprint="orders of {execution_date}, corrected")).generation == 2


def test_a_source_that_moves_under_the_run_is_not_published(run, project, api):
    def read(run):
        api.revision += 1
        return api.read(run)

    with pytest.raises(twice.NotPublished, match="'read' changed while this run was reading it"):
        run(twice.source(read, fingerprint=api.fingerprint))
    assert rows_of(project) == []


def test_the_order_of_keys_and_a_tuple_for_a_list_are_the_same_fingerprint(run, api):
    run(twice.source(api.read, fingerprint=lambda: {"a": [1, 2], "b": None}))
    assert run(twice.source(api.read, fingerprint=lambda: {"b": None, "a": (1, 2)})).state == "skipped"


# ------------------------------------------------------------------ what functions are given


def test_a_function_is_given_what_it_asks_for_by_name(run, project):
    seen = {}

    def told(run):
        seen.update(key=run.key, zone=run.zone, start=run.interval.start, slot=run.slot.label)
        assert not hasattr(run, "generation")
        assert not hasattr(run, "attempt")
        return [{"id": 1, "day": date(2024, 10, 7)}]

    run(twice.source(told, fingerprint="x"))
    assert seen == {"key": "", "zone": "UTC", "start": datetime(2024, 10, 7, tzinfo=UTC), "slot": "2024-10-07T00:00Z"}
    run(twice.source(lambda: [{"id": 2, "day": date(2024, 10, 7)}], fingerprint="y"))
    assert rows_of(project) == [{"id": 2, "day": date(2024, 10, 7)}]
    assert not project.engine.started


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"read": lambda session: []}, "asks for 'session', which it is not given(.|\n)*`spark` and `run`"),
        ({"read": lambda run, /: []}, "asks for 'run', which it is not given"),
        ({"read": [1]}, "read= is a list, which cannot be called"),
        ({"fingerprint": lambda spark: 1}, "asks for 'spark'(.|\n)*`run`, or none"),
        ({"fingerprint": None}, "fingerprint= is a NoneType"),
        ({"fingerprint": ""}, "says nothing"),
        ({"fingerprint": "{day}"}, "is not a placeholder"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(given, why):
    with pytest.raises(twice.Misuse, match=why):
        twice.source(**{"read": list, "fingerprint": "x", **given})


@pytest.mark.parametrize("fingerprint", [time.time, partial(max, 1, 2), lambda *_, **__: 3, lambda run=None: 4])
def test_any_callable_will_do(api, fingerprint):
    assert twice.source(api.read, fingerprint=fingerprint)


# ------------------------------------------------------------------ functions that fail


def leaves(run):
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"read": lambda: None}, "source function '<lambda>' returned nothing"),
        ({"read": lambda: [1 / 0]}, "source function '<lambda>' failed: ZeroDivisionError"),
        ({"read": leaves}, r"source function 'leaves' called exit\(0\)"),
        ({"fingerprint": lambda run: None}, "fingerprint function '<lambda>' returned nothing"),
        ({"fingerprint": lambda run: 1 / 0}, "fingerprint function '<lambda>' failed: ZeroDivisionError"),
        ({"fingerprint": leaves}, r"fingerprint function 'leaves' called exit\(0\)"),
        ({"fingerprint": lambda run: run.execution_time}, "not plain: Object of type datetime(.|\n)*isoformat"),
        ({"fingerprint": lambda run: {1, 2}}, "not plain: Object of type set"),
        ({"fingerprint": lambda run: {1: 2, "a": 3}}, "not plain"),
    ],
)
def test_a_function_that_fails_is_named_and_nothing_is_published(run, project, given, why):
    with pytest.raises(SourceFailed, match=why) as raised:
        run(twice.source(**{"read": lambda: [{"id": 1, "day": date(2024, 10, 7)}], "fingerprint": "x", **given}))
    assert raised.value.exit_code == 1
    assert rows_of(project) == []
    assert project.ledger.attempts()[0].state == "failed"


def test_a_fingerprint_that_fails_at_the_second_look_publishes_nothing(run, project, api):
    answers = [1]
    with pytest.raises(SourceFailed, match="pop from empty list"):
        run(twice.source(api.read, fingerprint=answers.pop))
    assert rows_of(project) == []


def test_a_function_may_say_that_it_waits(run, project, api):
    def not_yet(run):
        raise twice.Waiting(f"The orders of {run.execution_time:%d.%m.} are still open.")

    with pytest.raises(twice.Waiting, match="are still open"):
        run(twice.source(api.read, fingerprint=not_yet))
    assert project.ledger.attempts() == []


# ------------------------------------------------------------------ beside other sources, and code


def test_functions_files_and_tables_mix(run, project, api, tmp_path):
    twice.publish(
        [{"land": "pl"}],
        to="memory:lake/lands",
        pattern=twice.data_overwrite(),
        slot=twice.slot("lands"),
        inputs=["first"],
        project=project,
    )
    sources = {
        "orders": twice.source(api.read, fingerprint=api.fingerprint),
        "lands": twice.table("memory:lake/lands"),
    }

    def joined(orders, lands, run):
        return [{**order, **land} for order in orders for land in lands]

    assert run({"sources": sources}, joined).state == "published"
    assert run({"sources": sources}, joined).state == "skipped"
    assert rows_of(project) == [{"id": 1, "day": date(2024, 10, 7), "land": "pl"}]


def test_what_the_functions_do_counts_as_code():
    def code(read, fingerprint):
        source = twice.source(read, fingerprint=fingerprint)
        return twice.pipeline(name="x", source=source, target="memory:out", pattern=twice.data_overwrite())(len).code

    def one(): return 1  # fmt: skip

    def two(): return 2  # fmt: skip

    assert code(one, "x") == code(one, "x")
    assert len({code(one, "x"), code(two, "x"), code(one, "y"), code(one, two), code(one, one)}) == 5


# ------------------------------------------------------------------ files of pipelines that are read without Spark

FILE = """
import os, twice
from datetime import date
from pyspark.sql import functions as F

def read(run):
    assert not type(F).__name__.startswith("_"), "read by a stand-in"
    return [{{"id": F.__name__, "day": run.execution_time.date()}}]

def fingerprint(run):
    return {fingerprint}

@twice.pipeline(every="1 day", start="2024-10-07", target="parquet:lake/out", pattern=twice.data_overwrite(slice="day"),
                source=twice.source(read, fingerprint=fingerprint))
def out(rows, run):
    return rows
"""
LOOK = """
import sys, twice
from twice.project import Project
from twice.stores.memory import MemoryStore

project = Project.open(sys.argv[1])
project._stores["parquet"] = MemoryStore()
project.pipelines
plan = twice.plan("out", at="2024-10-07", project=project)
print(plan.action, "pyspark" in sys.modules)
print(twice.run("out", at="2024-10-07", project=project).state)
print(twice.read(None, "parquet:lake/out", project=project)[0]["id"])
print(twice.run("out", at="2024-10-07", project=project).state, project.engine.started)
"""


def lived(folder, fingerprint):
    (folder / "pipelines").mkdir()
    (folder / "pipelines/out.py").write_text(textwrap.dedent(FILE.format(fingerprint=fingerprint)))
    done = subprocess.run([sys.executable, "-c", LOOK, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_fingerprint_is_asked_without_spark_and_rows_are_read_with_it(tmp_path):
    told = ["create False", "published", "pyspark.sql.functions", "skipped False"]
    assert lived(tmp_path, "{'revision': 7}") == told


def test_a_fingerprint_that_needs_pyspark_gets_it(tmp_path):
    told = ["create True", "published", "pyspark.sql.functions", "skipped False"]
    assert lived(tmp_path, "json.loads(json.dumps(F.__name__))".replace("json.", "__import__('json').")) == told


def test_a_plan_names_the_fingerprint(project, api):
    source = twice.source(api.read, fingerprint=lambda: "x" * 99)
    declared = twice.pipeline(name="x", source=source, target="memory:out", pattern=twice.data_overwrite())(len)
    inputs = project.job(declared, declared.slot()).resolve(Sight())
    assert inputs["rows"].summary == f'read, declared as "{"x" * 58}…'
    assert json.dumps(inputs["rows"].facts)
