"""What a Python program can ask of Twice, on the memory store: no JVM anywhere."""

import json
import sys
from datetime import UTC, date, datetime, timedelta

import pytest

import twice
from twice import settings
from twice.handovers import take_over
from twice.project import Project

DAY = "2024-10-07"
NEXT = "2024-10-08"
TARGET = "memory:lake/visits"
BY_DAY = twice.data_overwrite(slice="day")


class Given:
    """A source of the user's own: plain rows with a fingerprint that the user declares."""

    def __init__(self, rows, mark="first", moved=()):
        self.rows, self.mark, self.moves = rows, mark, list(moved)

    def resolve(self, place):
        return self

    @property
    def facts(self):
        return [["given", self.mark]]

    @property
    def summary(self):
        return f"{len(self.rows)} rows"

    def moved(self):
        return self.moves

    def read(self, engine):
        return self.rows


def visits(day, *ids):
    return [{"id": one, "day": date.fromisoformat(day)} for one in ids]


@pytest.fixture
def project(tmp_path):
    return Project(settings.load(tmp_path))


@pytest.fixture
def publish(project):
    """Return `twice.publish` to one target of one project, with the rest as given."""

    def act(rows, at=DAY, **given):
        arguments = {"to": TARGET, "pattern": BY_DAY, "slot": twice.slot("visits", at=at), **given}
        return twice.publish(rows, project=project, **arguments)

    return act


@pytest.fixture
def run(project):
    def act(pipeline, **given):
        return twice.run(pipeline, project=project, **given)

    return act


def ids(project, target=TARGET):
    return sorted(row["id"] for row in twice.read(None, target, project=project))


def daily(transform=lambda rows: rows, **given):
    declared = {
        "name": "visits",
        "every": "1 day",
        "start": DAY,
        "source": Given(visits(DAY, "a", "b")),
        "target": TARGET,
        "pattern": BY_DAY,
        **given,
    }
    return twice.pipeline(**declared)(transform)


def test_nothing_here_has_loaded_spark(publish):
    before = "pyspark" in sys.modules
    publish(visits(DAY, "a"), inputs=["file 1"])
    assert ("pyspark" in sys.modules) == before


# ------------------------------------------------------------------ publish


def test_a_label_tells_a_repeat_from_a_correction(publish, project):
    first = publish(visits(DAY, "a"), inputs=["delivery 1"])
    again = publish(visits(DAY, "not looked at"), inputs=["delivery 1"])
    corrected = publish(visits(DAY, "b", "c"), inputs=["delivery 2"])
    assert [(o.state, o.generation) for o in (first, again, corrected)] == [
        ("published", 1),
        ("skipped", 1),
        ("published", 2),
    ]
    assert corrected.reason == "the inputs changed"
    assert ids(project) == ["b", "c"]


def test_labels_count_in_their_order_and_all_of_them(publish):
    publish(visits(DAY, "a"), inputs=["x", "y"])
    assert publish(visits(DAY, "a"), inputs=["x", "y"]).state == "skipped"
    assert publish(visits(DAY, "a"), inputs=["x"]).state == "published"


def test_no_inputs_at_all_are_inputs_too(publish):
    publish(visits(DAY, "a"), inputs=[])
    assert publish(visits(DAY, "a"), inputs=[]).state == "skipped"


def test_undeclared_inputs_replace_every_time(publish, project):
    publish(visits(DAY, "a"))
    outcome = publish(visits(DAY, "b"))
    assert (outcome.state, outcome.generation) == ("published", 2)
    assert "not declared" in outcome.reason
    assert ids(project) == ["b"]


def test_a_source_among_the_inputs_is_hashed_by_content(publish, project, tmp_path):
    (tmp_path / "landing").mkdir()
    file = tmp_path / f"landing/{DAY}.json"
    file.write_text("{}\n")
    source = twice.files("landing/{execution_date}.json", schema="id string")
    publish(visits(DAY, "a"), inputs=[source, "label"])
    file.touch()
    assert publish(visits(DAY, "a"), inputs=[source, "label"]).state == "skipped"
    file.write_text('{"id": "b"}\n')
    assert publish(visits(DAY, "b"), inputs=[source, "label"]).generation == 2
    assert ids(project) == ["b"]


def test_a_missing_source_among_the_inputs_is_named(publish, project):
    with pytest.raises(twice.NotPublished, match=r"No file matches 'landing/2024-10-07\.csv'"):
        publish(visits(DAY, "a"), inputs=[twice.files("landing/{execution_date}.csv", schema="id string")])
    assert ids(project) == []


def test_a_source_that_moves_under_the_publish_is_refused(publish, project):
    publish(visits(DAY, "a"), inputs=["one"])
    with pytest.raises(twice.NotPublished, match="'orders' changed while"):
        publish(visits(DAY, "b"), inputs=[Given([], "other", moved=["orders"])])
    assert ids(project) == ["a"]


def test_force_publishes_the_same_again(publish):
    publish(visits(DAY, "a"), inputs=["one"])
    outcome = publish(visits(DAY, "a"), inputs=["one"], force=True)
    assert (outcome.state, outcome.generation, outcome.reason) == ("published", 2, "asked for with --force")


def test_slots_of_one_job_stand_side_by_side(publish, project):
    publish(visits(DAY, "a"), inputs=["one"])
    publish(visits(NEXT, "b"), at=NEXT, inputs=["two"])
    publish(visits(DAY, "c"), inputs=["three"])
    assert ids(project) == ["b", "c"]


def test_rows_of_another_slot_are_refused(publish, project):
    with pytest.raises(twice.NotPublished, match="1 of 2 rows lie outside the slot's slice"):
        publish(visits(DAY, "a") + visits(NEXT, "b"), inputs=["one"])
    assert ids(project) == []


def test_another_job_cannot_write_the_target_too(publish, project):
    publish(visits(DAY, "a"), inputs=["one"])
    with pytest.raises(twice.Misuse, match="is written by the pipeline 'visits'"):
        publish(visits(DAY, "b"), inputs=["one"], slot=twice.slot("others", at=DAY))
    assert ids(project) == ["a"]


def test_an_outcome_says_all_in_plain_values(publish):
    outcome = publish(visits(DAY, "a", "b"), inputs=["one"])
    assert json.loads(json.dumps(outcome.to_json())) == {
        "state": "published",
        "slot": f"v1:visits:memory:lake/visits:{DAY}T00:00Z/{NEXT}T00:00Z",
        "generation": 1,
        "reason": "the first run of this slot",
        "version_before": None,
        "version_after": 0,
        "rows": 2,
        "attempt": outcome.attempt,
        "notes": [],
        "parsed": None,
        "quarantined": 0,
        "left": 0,
        "along": [],
    }


# ------------------------------------------------------------------ slots


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"at": DAY}, "2024-10-07T00:00Z/2024-10-08T00:00Z"),
        ({"at": "2024-10-07T06:00Z", "every": "6 hours"}, "2024-10-07T06:00Z/2024-10-07T12:00Z"),
        ({"at": "2024-10-01", "every": "1 month"}, "2024-10-01T00:00Z/2024-11-01T00:00Z"),
        ({"at": "2024-03-31", "zone": "Europe/Warsaw"}, "2024-03-30T23:00Z/2024-03-31T22:00Z"),
        ({"at": "2024-10-07T02:00+02:00", "every": "1 hour"}, "2024-10-07T00:00Z/2024-10-07T01:00Z"),
        ({"key": "order/7: late"}, "key=order%2F7%3A%20late"),
        ({}, "key="),
    ],
)
def test_a_slot_is_the_same_text_on_every_machine(publish, given, part):
    slot = twice.slot("visits", **given)
    outcome = publish([{"id": "a"}], slot=slot, pattern=twice.data_overwrite(), inputs=["one"])
    assert outcome.slot.text == f"v1:visits:memory:lake/visits:{part}"
    assert type(outcome.slot).parse(outcome.slot.text) == outcome.slot


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"at": DAY, "key": "a"}, "a time or a key, not both"),
        ({"at": "2024-10-07T05:30Z"}, "not the beginning of a day"),
        ({"at": "2024-10-07T05:00"}, "carries no offset"),
        ({"at": "yesterday"}, "'yesterday' is not a moment"),
        ({"at": DAY, "every": "1 fortnight"}, "not a length of time"),
        ({"at": DAY, "every": "now and then"}, "neither a length of time nor a cron line"),
        ({"at": DAY, "zone": "Mars/Olympus"}, "is not a time zone"),
    ],
)
def test_a_slot_that_names_no_interval_is_refused(publish, project, given, words):
    with pytest.raises(twice.Misuse, match=words):
        publish(visits(DAY, "a"), slot=twice.slot("visits", **given), inputs=["one"])
    assert ids(project) == []


@pytest.mark.parametrize("name", ["", "1st", "a b", "a/b", "a:b", "é", "x" * 101, "a\n"])
def test_a_name_that_some_store_would_misread_is_refused(name):
    with pytest.raises(twice.Misuse, match="cannot name a pipeline"):
        twice.slot(name, at=DAY)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("lake/visits", "is not a target"),
        ("memory:", "is not a target"),
        ("memory:../visits", "leaves the root"),
        ("memory:/visits", "leaves the root"),
        ("memory:lake//visits", "leaves the root"),
        ("memory:lake/*", "would misread"),
        ("memory:lake/a\nb", "would misread"),
        ("memory:" + "x" * 201, "would misread"),
        ("me mory:lake/visits", "cannot name a store"),
    ],
)
def test_a_target_that_some_store_would_misread_is_refused(publish, target, words):
    with pytest.raises(twice.Misuse, match=words):
        publish(visits(DAY, "a"), to=target, inputs=["one"])


def test_an_unknown_store_is_refused_with_a_suggestion(publish):
    with pytest.raises(twice.Misuse, match=r"(?s)no store 'memry'.*Did you mean 'memory'"):
        publish(visits(DAY, "a"), to="memry:lake/visits", inputs=["one"])


# ------------------------------------------------------------------ keys


def keyed(**given):
    return twice.pipeline(
        name="orders",
        source=Given([{"id": "x", "batch": "b1"}, {"id": "y", "batch": "b2"}]),
        target=TARGET,
        pattern=twice.data_overwrite(slice="batch"),
        **given,
    )


def test_a_key_is_a_slot_of_its_own(run, project):
    seen = []

    @keyed()
    def orders(rows, run):
        seen.append(run.key)
        return [row for row in rows if row["batch"] == run.key]

    assert [run(orders, key=key).state for key in ("b1", "b2", "b1")] == ["published", "published", "skipped"]
    assert seen == ["b1", "b2"]
    assert ids(project) == ["x", "y"]


@pytest.mark.parametrize(
    "key", ["it's", "a/b", "a%2Fb", "a b", "new\nline", "😀", "key=k", "2024-10-07/2024-10-08", ":"]
)
def test_a_key_may_hold_anything(run, project, key):
    @keyed()
    def pipeline(rows, run):
        return [{**row, "batch": run.key} for row in rows[:1]]

    outcome = run(pipeline, key=key)
    assert type(outcome.slot).parse(outcome.slot.text) == outcome.slot
    assert run(pipeline, key=key).state == "skipped"
    assert run(pipeline, key=key, force=True).generation == 2
    assert twice.read(None, TARGET, project=project) == [{"id": "x", "batch": key}]


def test_a_key_enters_a_path_as_it_is(run, project, tmp_path):
    (tmp_path / "landing").mkdir()
    for name in ("part[1]", "part1"):
        (tmp_path / f"landing/{name}.json").write_text(json.dumps({"id": name}))

    class Named(Given):
        def __init__(self):
            super().__init__([])
            self.files = twice.files("landing/{key}.json", schema="id string")

        def resolve(self, place):
            names = [mark.path for mark in self.files.resolve(place).marks]
            return Given([{"id": name, "batch": place.slot.part} for name in names])

    pipeline = twice.pipeline(
        name="orders", source=Named(), target=TARGET, pattern=twice.data_overwrite(slice="batch")
    )(lambda rows: rows)
    run(pipeline, key="part[1]")
    assert ids(project) == ["landing/part[1].json"]


def test_a_pipeline_without_calendar_or_key_has_one_slot(run, project):
    only = twice.pipeline(source=Given([{"id": "a"}]), target=TARGET, pattern=twice.data_overwrite())(everything)
    assert [run(only).state for _ in range(2)] == ["published", "skipped"]
    assert run(only).slot.label == "(the only slot)"


def everything(rows):
    return rows


def test_a_time_for_a_keyed_pipeline_and_a_key_for_a_scheduled_one_are_refused(run):
    with pytest.raises(twice.Misuse, match="has no calendar"):
        run(keyed()(everything), at=DAY)
    with pytest.raises(twice.Misuse, match="has a calendar, so its slots have no key"):
        run(daily(), key="b1")


# ------------------------------------------------------------------ pipelines


def test_several_sources_arrive_by_name(run, project):
    @twice.pipeline(
        every="1 day",
        start=DAY,
        sources={"visits": Given(visits(DAY, "a", "b")), "banned": Given([{"id": "b"}], "banned")},
        target=TARGET,
        pattern=BY_DAY,
    )
    def allowed(visits, banned, run):
        out = {row["id"] for row in banned}
        assert run.execution_time == datetime(2024, 10, 7, tzinfo=UTC)
        return [row for row in visits if row["id"] not in out]

    assert run(allowed, at=DAY).rows == 1
    assert ids(project) == ["a"]


def test_any_of_several_sources_makes_a_slot_stale(run, project):
    def declared(mark):
        sources = {"left": Given(visits(DAY, "a")), "right": Given(visits(DAY, mark), mark)}
        return daily(lambda left, right: left + right, source=None, sources=sources)

    assert [run(declared(mark), at=DAY).generation for mark in ("x", "x", "y")] == [1, 1, 2]
    assert ids(project) == ["a", "y"]


def test_a_pipeline_is_still_the_function_it_was():
    assert daily(lambda rows: rows[:1])(visits(DAY, "a", "b")) == visits(DAY, "a")


def test_parameters_are_part_of_the_fingerprint(run):
    outcomes = [run(daily(parameters={"rate": rate}), at=DAY) for rate in (1, 1, 2)]
    assert [(o.state, o.generation) for o in outcomes] == [("published", 1), ("skipped", 1), ("published", 2)]
    assert outcomes[2].reason == "the inputs changed"


def keeps_all(rows):
    return rows


def keeps_one(rows):
    return rows[:1]


def test_a_change_of_code_is_shown_and_by_default_no_more(run, project):
    run(daily(keeps_all), at=DAY)
    outcome = run(daily(keeps_one), at=DAY)
    assert outcome.state == "skipped"
    assert outcome.notes == ("the code changed since this slot was published",)
    assert ids(project) == ["a", "b"]


def test_a_change_of_code_runs_again_where_that_was_asked_for(run, project):
    run(daily(keeps_all, on_code_change="rerun"), at=DAY)
    outcome = run(daily(keeps_one, on_code_change="rerun"), at=DAY)
    assert (outcome.state, outcome.generation, outcome.reason) == ("published", 2, "the code changed")
    assert ids(project) == ["a"]
    assert run(daily(keeps_one, on_code_change="rerun"), at=DAY).state == "skipped"


def plain():
    def keeps(rows):
        return rows

    return keeps


def commented():
    def keeps(rows):
        # A comment, and another layout.

        return (rows)  # fmt: skip

    return keeps


def test_a_comment_is_no_change_of_code():
    assert daily(plain()).code == daily(commented()).code
    assert daily(plain()).code != daily(keeps_one).code


def test_a_renamed_pipeline_keeps_its_slots(run, project):
    run(daily(), at=DAY)
    with pytest.raises(twice.Misuse, match=r"(?s)written by the pipeline 'visits'.*was='visits'"):
        run(daily(name="calls"), at=DAY)
    outcome = run(daily(name="calls", was="visits"), at=DAY)
    assert (outcome.state, outcome.slot.pipeline) == ("skipped", "visits")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"source": None}, "either source= or sources="),
        ({"sources": {}}, "either source= or sources="),
        ({"start": None}, "both every= and start="),
        ({"every": None}, "both every= and start="),
        ({"start": "2024-10-07T05:00Z"}, "not the beginning of a day"),
        ({"on_code_change": "maybe"}, "on_code_change='maybe' is unknown"),
        ({"name": "a b"}, "'a b' cannot name a pipeline"),
        ({"was": "a b"}, "'a b' cannot name a pipeline"),
        ({"zone": "Nowhere"}, "'Nowhere' is not a time zone"),
        ({"target": "lake"}, "'lake' is not a target"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused_at_once(given, words):
    with pytest.raises(twice.Misuse, match=words):
        daily(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"slice": "day", "where": "true"}, "one of slice=, where= and partitions="),
        ({"slice": "day", "partitions": ["day"]}, "one of slice=, where= and partitions="),
        ({"empty": "perhaps"}, r"(?s)empty='perhaps' is unknown.*clear, keep, fail"),
    ],
)
def test_a_pattern_that_contradicts_itself_is_refused_at_once(given, words):
    with pytest.raises(twice.Misuse, match=words):
        twice.data_overwrite(**given)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (twice.data_overwrite(slice=""), "slice='' names nothing"),
        (twice.data_overwrite(where=" "), "where=' ' names nothing"),
        (twice.data_overwrite(partitions=["day", ""]), "partitions=.* names nothing"),
        (twice.merger(keys=[""]), "keys=.* names nothing"),
        (twice.merger(keys=["id"], deleted=""), "deleted='' names nothing"),
        (twice.merger(keys=["id"], order=""), "order='' names nothing"),
        (twice.dedup_insert(keys=["id"], window="1 day", on=""), "on='' names nothing|takes both"),
        (twice.transactional_writer(check=""), "check='' names nothing"),
    ],
)
def test_an_option_that_is_empty_is_not_taken_for_one_that_was_left_out(pattern, words, publish, project):
    with pytest.raises(twice.Misuse, match=words):
        daily(pattern=pattern)
    with pytest.raises(twice.Misuse, match=words):
        publish(visits(DAY, "a"), pattern=pattern)
    assert not project.store("memory").look(TARGET.partition(":")[2]).exists


def test_a_list_of_no_partitions_does_not_mean_the_whole_table():
    with pytest.raises(twice.Misuse, match=r"partitions=\[\] names nothing"):
        twice.data_overwrite(partitions=[])


# ------------------------------------------------------------------ times


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (None, r"(?s)Which interval of 'visits'.*--at .*newest closed interval"),
        (datetime(2024, 10, 7), "carries no offset"),
        (20241007, "20241007 is not a moment"),
        ("2024-10-07T00:00", "carries no offset"),
        ("2024-10-07T05:00Z", r"(?s)not the start of an interval.*--at 2024-10-07T00:00Z"),
        ("2024-10-06", "lies before the calendar"),
        ("07.10.2024", "is not a moment"),
        ("2024-02-30", "is not a moment"),
        ("", "is not a moment"),
        ("0001-01-01", "lies before the calendar"),
        ("9999-12-31", r"is not closed yet|is not a moment"),
    ],
)
def test_a_time_that_names_no_interval_is_refused(run, project, at, words):
    with pytest.raises(twice.Misuse, match=words):
        run(daily(), at=at)
    assert ids(project) == []


def test_an_interval_that_is_still_open_is_refused(run):
    today = datetime.now(UTC).date()
    with pytest.raises(twice.Misuse, match=rf"(?s)is not closed yet.*--at {today - timedelta(days=1)}"):
        run(daily(), at=today.isoformat())


def test_an_aware_datetime_in_any_zone_names_its_moment(run):
    moment = datetime.fromisoformat("2024-10-07T02:00+02:00")
    assert run(daily(), at=moment).slot.label == "2024-10-07T00:00Z"


@pytest.mark.parametrize("zone", ["UTC", "Europe/Warsaw"])
def test_a_date_names_its_midnight_in_the_zone_of_the_pipeline(run, project, zone):
    day, pipeline = date(2024, 10, 7), daily(zone=zone)
    assert run(pipeline, at=day).slot == pipeline.slot(DAY)
    assert twice.plan(pipeline, at=day, project=project).skips
    done = twice.backfill(pipeline, day, date(2024, 10, 8), project=project)
    assert [outcome.state for outcome in done] == ["skipped"]
    slot = twice.slot("visits", at=day, zone=zone).on(pipeline.target)
    assert slot == pipeline.slot(DAY)


# ------------------------------------------------------------------ plans


def test_a_plan_is_printed_as_the_command_line_prints_it(project):
    plan = twice.plan(daily(), at=DAY, project=project)
    assert str(plan).splitlines() == [
        "visits -> memory:lake/visits  (data_overwrite, no table yet)",
        "  slot 2024-10-07T00:00Z/2024-10-08T00:00Z",
        "  create: the first run of this slot (generation 1)",
        *(f"  {number}. {step.name:9} {step.text}" for number, step in enumerate(plan.steps, 1)),
        f"  plan {plan.hash}",
    ]
    assert len(plan.steps) >= 2


def test_a_plan_is_named_in_one_line_whatever_it_saw_of_the_target(run, project):
    run(daily(), at=DAY)
    plan = twice.plan(daily(), at=DAY, project=project, force=True)
    assert repr(plan) == (
        f"Plan('v1:visits:memory:lake/visits:2024-10-07T00:00Z/2024-10-08T00:00Z', 'replace', reason='{plan.reason}', hash='{plan.hash}')"
    )


# ------------------------------------------------------------------ tables as sources


@pytest.fixture
def upstream():
    return lambda *names: daily(source=Given(visits(DAY, *names), str(names)))


def downstream(**given):
    table = twice.table(TARGET, **given)
    return twice.pipeline(name="report", source=table, target="memory:lake/report", pattern=twice.data_overwrite())(
        everything
    )


def test_a_table_between_two_pipelines_is_pinned_and_makes_stale(run, project, upstream):
    run(upstream("a"), at=DAY)
    assert run(downstream()).state == "published"
    assert run(downstream()).state == "skipped"
    run(upstream("b", "c"), at=DAY)
    outcome = run(downstream())
    assert (outcome.state, outcome.generation, outcome.reason) == ("published", 2, "the inputs changed")
    assert ids(project, "memory:lake/report") == ["b", "c"]


def test_a_change_of_owner_does_not_make_a_table_stale(run, project, upstream, tmp_path):
    run(upstream("a"), at=DAY)
    run(downstream())
    other = Project(settings.load(tmp_path, {"ledger.url": "sqlite:///other.db"}))
    version = project.store("memory").look("lake/visits").version
    take_over(project.store("memory"), other.ledger, "lake/visits")
    assert project.store("memory").look("lake/visits").version == version + 1
    assert run(downstream()).state == "skipped"


def test_an_older_version_of_a_table_can_be_read(run, project, upstream):
    run(upstream("a"), at=DAY)
    run(upstream("b"), at=DAY)
    run(downstream(version=0))
    assert ids(project, "memory:lake/report") == ["a"]
    assert [row["id"] for row in twice.read(None, TARGET, version=0, project=project)] == ["a"]


def test_a_table_that_is_not_there_yet_is_named(run, project):
    with pytest.raises(twice.NotPublished, match=r"(?s)'memory:lake/visits' does not exist yet.*Run the pipeline"):
        run(downstream())
    assert ids(project, "memory:lake/report") == []


def test_a_pipeline_cannot_read_its_own_target(run):
    with pytest.raises(twice.Misuse, match="reads its own target 'memory:lake/visits'"):
        run(daily(source=twice.table(TARGET)), at=DAY)


def test_files_of_a_memory_table_are_refused(project):
    with pytest.raises(twice.Misuse, match="is not a Parquet target"):
        twice.current_files(TARGET, project=project)


# ------------------------------------------------------------------ plan and backfill


class ByDay(Given):
    """One row a day; days that are named as broken cannot be resolved."""

    def __init__(self, broken=()):
        super().__init__([])
        self.broken = set(broken)

    def resolve(self, place):
        day = place.slot.label[:10]
        if day in self.broken:
            raise twice.NotPublished(f"The input of {day} is broken.")
        return Given(visits(day, day), day)


def test_a_plan_says_what_a_run_would_do_and_does_nothing(run, project):
    pipeline = daily()
    plan = twice.plan(pipeline, at=DAY, project=project)
    assert (plan.action, plan.generation, [step.name for step in plan.steps]) == ("create", 1, ["stage", "publish"])
    assert project.store("memory").look("lake/visits").exists is False
    assert project.ledger.attempts() == []
    run(pipeline, at=DAY)
    assert twice.plan(pipeline, at=DAY, project=project).action == "skip"
    assert twice.plan(pipeline, at=DAY, force=True, project=project).action == "replace"
    changed = twice.plan(daily(parameters={"x": 1}), at=DAY, project=project)
    assert (changed.action, changed.reason, changed.destroys) == ("replace", "the inputs changed", True)
    assert ids(project) == ["a", "b"]


def test_a_backfill_fills_in_order_and_passes_over_what_is_there(project):
    pipeline = daily(source=ByDay())
    seen = []
    twice.run(pipeline, at=NEXT, project=project)
    outcomes = twice.backfill(pipeline, DAY, "2024-10-10", project=project, on_slot=lambda end: seen.append(end.slot))
    assert [(o.slot.label[:10], o.state) for o in outcomes] == [
        (DAY, "published"),
        (NEXT, "skipped"),
        ("2024-10-09", "published"),
    ]
    assert seen == [outcome.slot for outcome in outcomes]


def test_a_backfill_does_what_it_can_then_raises_the_worst_and_resumes(project):
    with pytest.raises(twice.NotPublished, match="2024-10-08 is broken"):
        twice.backfill(daily(source=ByDay(broken=[NEXT])), DAY, "2024-10-10", project=project)
    assert ids(project) == [DAY, "2024-10-09"]
    outcomes = twice.backfill(daily(source=ByDay()), DAY, "2024-10-10", project=project)
    assert [outcome.state for outcome in outcomes] == ["skipped", "published", "skipped"]
    assert ids(project) == [DAY, NEXT, "2024-10-09"]


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (NEXT, DAY, r"(?s)is not after.*exclusive"),
        (DAY, DAY, r"(?s)is not after.*exclusive"),
        ("2024-10-01", "2024-10-02", "No interval of 'visits' starts in"),
        (DAY, "2099-01-01", r"(?s)is not closed yet.*--to"),
        (datetime(2024, 10, 7), NEXT, "carries no offset"),
        (DAY, "soon", "'soon' is not a moment"),
    ],
)
def test_a_stretch_that_names_no_closed_interval_is_refused(project, start, end, words):
    with pytest.raises(twice.Misuse, match=words):
        twice.backfill(daily(source=ByDay()), start, end, project=project)
    assert ids(project) == []


@pytest.mark.timeout(10)
def test_a_stretch_without_end_is_refused_at_once(project):
    with pytest.raises(twice.Misuse, match=r"(?s)is not closed yet.*--to"):
        twice.backfill(daily(source=ByDay()), DAY, "9999-01-01", project=project)


def test_a_keyed_pipeline_has_nothing_to_backfill(project):
    with pytest.raises(twice.Misuse, match="nothing to backfill"):
        twice.backfill(keyed()(everything), DAY, NEXT, project=project)


# ------------------------------------------------------------------ transforms


def divides_by_zero(rows):
    return rows[: 1 / 0]


def drops_the_slice_column(rows):
    return [{"id": row["id"]} for row in rows]


def forgets_to_return(rows):
    rows.append(rows[0])


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (divides_by_zero, "ZeroDivisionError: division by zero"),
        (drops_the_slice_column, "no column 'day', which the pattern names"),
    ],
)
def test_a_transform_that_fails_publishes_nothing(run, project, transform, words):
    with pytest.raises(twice.TwiceError, match=words) as raised:
        run(daily(transform), at=DAY)
    assert raised.value.exit_code in (1, 2)
    assert ids(project) == []
    assert project.ledger.attempts()[0].state == "failed"
    assert run(daily(), at=DAY).generation == 1


def test_a_transform_that_forgets_to_return_is_told_so(run, project):
    with pytest.raises(twice.NotPublished, match=r"returned (None|nothing|no rows)"):
        run(daily(forgets_to_return), at=DAY)
    assert ids(project) == []
