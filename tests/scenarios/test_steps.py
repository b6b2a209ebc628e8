"""A run of several steps goes on after its last whole one."""

import os
from contextlib import suppress
from datetime import date
from decimal import Decimal

import pytest

import twice
from twice.errors import InputsMoved
from twice.faults import Died, LostReply, armed, dying_at, recording
from twice.prover import check, deaths_at_every_point
from twice.steps import step

DAY = "2024-09-20"
RAN = []


def ran(name, rows):
    RAN.append(name)
    return rows


@twice.step
def one(rows):
    return ran("one", rows)


@twice.step
def two(rows, least=0):
    return ran("two", rows)


@twice.step
def three(rows):
    return ran("three", rows)


@twice.step
def four(rows):
    return ran("four", rows)


@twice.step
def five(rows):
    return ran("five", rows)


FIVE = (one, two, three, four, five)


def in_five(rows, run):
    for each in FIVE:
        rows = each(rows, run=run)
    return rows


@pytest.fixture
def stepping(make_world):
    RAN.clear()

    def make(transform=in_five):
        world = make_world(transform=transform)
        world.put(DAY, ["a", "b"])
        return world

    return make


def kept(world):
    return list((world.folder / ".twice/steps").glob("*/*"))


def killed_after(number):
    """Die when the marker of a step is linked, so that this one is whole."""
    return dying_at("step.marker.linked", visit=number)


@pytest.mark.stores("memory", "delta")
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_killed_after_each_of_five_steps_no_whole_step_runs_twice(stepping, number):
    world = stepping()
    with armed(killed_after(number)), pytest.raises(Died):
        world.run(DAY)
    assert len(RAN) == number
    world.reopen()
    assert world.run(DAY).state == "published"
    assert RAN == ["one", "two", "three", "four", "five"]
    assert world.rows() == [("a", DAY), ("b", DAY)]
    assert kept(world) == []


@pytest.mark.stores("memory")
def test_killed_inside_a_step_it_runs_again(stepping):
    world = stepping()
    with armed(dying_at("step.output.written", visit=3)), pytest.raises(Died):
        world.run(DAY)
    world.run(DAY)
    assert RAN == ["one", "two", "three", "three", "four", "five"]


@pytest.mark.stores("memory")
def test_death_at_every_point_leaves_the_table_as_a_clean_run_would(make_world, copies_of):
    world = make_world(transform=in_five, script=lambda w: w.run(DAY))
    world.put(DAY, ["a"])
    copies, points = copies_of(world), []
    with armed(recording(points)):
        copies().act()
    assert {"step.before", "step.output.written", "step.marker.linked", "steps.swept"} <= set(points)
    assert len(check(deaths_at_every_point(copies))) >= 20


@pytest.mark.stores("memory")
@pytest.mark.parametrize("death", [Died, LostReply])
def test_what_is_kept_goes_after_the_publish_whenever_it_died(stepping, death):
    for point in ("publish.after", "read.back", "confirmed", "steps.swept"):
        world = stepping()
        with armed(dying_at(point, death)), suppress(Died, LostReply):
            world.run(DAY)
        world.run(DAY)
        assert kept(world) == [], point


@pytest.mark.stores("memory")
def test_what_cannot_be_removed_after_the_publish_stays_and_changes_nothing(stepping, monkeypatch):
    world = stepping()

    unlink = os.unlink

    def stuck(path, **options):
        if str(path).endswith(".json"):
            raise PermissionError(path)
        unlink(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", stuck)
        assert world.run(DAY).state == "published"
    assert kept(world)
    assert world.run(DAY).state == "skipped"
    assert not kept(world)


@pytest.mark.stores("memory")
def test_changed_inputs_run_all_steps_again(stepping):
    world = stepping()
    with armed(killed_after(3)), pytest.raises(Died):
        world.run(DAY)
    world.put(DAY, ["c"])
    RAN.clear()
    world.run(DAY)
    assert RAN == ["one", "two", "three", "four", "five"]
    assert world.rows() == [("c", DAY)]


@pytest.mark.stores("memory")
def test_changed_code_or_arguments_of_a_step_run_it_and_the_later_ones_again(stepping, monkeypatch):
    world = stepping()
    with armed(killed_after(4)), pytest.raises(Died):
        world.run(DAY)

    @step
    def three(rows):
        """The same name, other code."""
        return [row for row in ran("new three", rows) if row["id"] == "a"]

    monkeypatch.setitem(in_five.__globals__, "FIVE", (one, two, three, four, five))
    RAN.clear()
    world.run(DAY)
    assert RAN == ["new three", "four", "five"]
    assert world.rows() == [("a", DAY)]


@pytest.mark.stores("memory")
def test_a_plain_argument_is_part_of_a_step(stepping):
    least = [1]

    def transform(rows, run):
        return three(two(one(rows, run=run), run=run, least=least[0]), run=run)

    world = stepping(transform)
    with armed(killed_after(2)), pytest.raises(Died):
        world.run(DAY)
    least[0] = 2
    RAN.clear()
    world.run(DAY)
    assert RAN == ["two", "three"]


@pytest.mark.stores("memory")
def test_rows_that_were_read_while_their_input_changed_are_never_kept(stepping):
    world = stepping()
    before = (world.folder / f"landing/{DAY}.jsonl").read_text()

    def meddle(point):
        if point == "step.output.written":
            world.put(DAY, ["changed"])

    with armed(meddle), pytest.raises(InputsMoved):
        world.run(DAY)
    assert kept(world) == []
    (world.folder / f"landing/{DAY}.jsonl").write_text(before)
    assert world.run(DAY).state == "published"
    assert RAN == ["one", "one", "two", "three", "four", "five"]


@pytest.mark.stores("memory")
def test_force_shares_no_step_with_the_edition_before(stepping):
    world = stepping()
    world.run(DAY)
    RAN.clear()
    world.run(DAY, force=True)
    assert len(RAN) == 5


@pytest.mark.stores("memory")
def test_a_step_without_a_run_is_the_function_that_it_was():
    RAN.clear()
    assert one([{"id": "a"}]) == [{"id": "a"}]
    assert RAN == ["one"]


@pytest.mark.stores("memory")
def test_values_of_rows_are_kept_as_they_are(stepping):
    rows = [{"id": "a", "day": date(2024, 9, 20), "price": Decimal("1.50"), "tags": ["x"], "none": None}]

    @step
    def priced(_):
        return rows

    seen = []

    def transform(given, run):
        seen.append(priced(given, run=run))
        return given

    world = stepping(transform)
    world.run(DAY)
    assert seen == [rows]


@pytest.mark.stores("memory")
@pytest.mark.parametrize(
    ("result", "error"), [(None, "returned nothing"), ([{"id": object()}], "cannot be kept"), (3, "and not rows")]
)
def test_what_is_no_output_is_refused(stepping, result, error):
    @step
    def wrong(_):
        return result

    world = stepping(lambda rows, run: wrong(rows, run=run))
    with pytest.raises(twice.TwiceError, match=error):
        world.run(DAY)
    assert not world.sight().exists


@pytest.mark.stores("memory")
def test_tidy_removes_what_nobody_came_back_for(stepping):
    world = stepping()
    with armed(killed_after(2)), pytest.raises(Died):
        world.run(DAY)
    assert world.project.kept.tidy(lambda: [world.slot(DAY)], keep_days=0, dry_run=False) == 0
    assert world.project.kept.tidy(list, keep_days=7, dry_run=False) == 0
    assert world.project.kept.tidy(list, keep_days=0, dry_run=True) == 1
    assert world.project.kept.tidy(list, keep_days=0, dry_run=False) == 1
    assert kept(world) == []


@pytest.mark.stores("memory")
def test_tidy_leaves_the_steps_of_a_run_that_began_while_it_listed(stepping):
    world = stepping()

    def begin():
        with armed(killed_after(2)), pytest.raises(Died):
            world.run(DAY)
        return []

    assert world.project.kept.tidy(begin, keep_days=0, dry_run=False) == 0
    assert kept(world) != []


@pytest.mark.stores("memory")
def test_tidy_is_content_if_a_run_has_just_swept_what_it_saw(stepping, monkeypatch):
    world = stepping()
    with armed(killed_after(2)), pytest.raises(Died):
        world.run(DAY)
    really = os.listdir

    def listed(place):
        names = really(place)
        monkeypatch.setattr(os, "listdir", really)
        world.project.kept.sweep([world.pipeline.slot(DAY)])
        return names

    monkeypatch.setattr(os, "listdir", listed)
    assert world.project.kept.tidy(list, keep_days=0, dry_run=False) == 0
    assert kept(world) == []
