"""In which ways do retries, effects and steps break their promises?

Like `ways`, of which these are part: each raises `Counterexample` where a promise is broken.
"""

import itertools
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import twice
from twice.decide import Asked
from twice.errors import EffectOwed, OutcomeUnknown, TwiceError
from twice.faults import Died, LostReply, armed, dying_at, recording
from twice.ledger import effects, retries
from twice.retrying import fill_slot, retry_due
from ways import DAY, Bench, demand, put, way
from worlds import World

CALLS: list[tuple[str, str]] = []
RAN: list[str] = []


def called(key, text):
    CALLS.append((key, text))


def calling(text):
    def transform(rows, run):
        run.effect("tell", call=called, text=text)
        return rows

    return transform


def count_of(calls):
    return sorted({key: len(list(found)) for key, found in itertools.groupby(sorted(key for key, _ in calls))}.values())


@way
def a_call_and_a_death_at_every_point(bench: Bench) -> None:
    """A run that registers a call dies at each point and is run twice again: one key, one call, or two if it died before the confirmation."""
    points: list[str] = []
    with armed(recording(points)):
        put(bench.world(transform=calling("a")), d20=["a"]).run(DAY)
    for point, death in itertools.product(points, (Died, LostReply)):
        CALLS.clear()
        world = put(bench.world(transform=calling("a")), d20=["a"])
        with armed(dying_at(point, death)), suppress(Died, LostReply, TwiceError):
            world.run(DAY)
        for _ in range(2):
            world.run(DAY)
        demand(count_of(CALLS), [2] if point == "effect.answered" else [1], f"calls per key after a death at {point}")


@way
def a_call_of_an_attempt_that_never_published(bench: Bench) -> None:
    """A run dies before its publish, another one publishes other rows: only the second one's call is made."""
    CALLS.clear()
    world = put(bench.world(transform=calling("first")), d20=["a"])
    with armed(dying_at("publish.before")), suppress(Died):
        world.run(DAY)
    world.put(DAY, ["b"])
    replace(world, transform=calling("second")).run(DAY)
    demand([text for _, text in CALLS], ["second"], "calls that were made")


@way
def a_call_registered_by_two_attempts(bench: Bench) -> None:
    """A run dies before its publish and is run again: both attempts intend the call under the same key."""
    CALLS.clear()
    world = put(bench.world(transform=calling("a")), d20=["a"])
    with armed(dying_at("publish.before")), suppress(Died):
        world.run(DAY)
    intended = [row.effect_key for row in effects.of_slot(world.project.ledger, world.slot(DAY))]
    world.run(DAY)
    demand([key for key, _ in CALLS], intended, "keys of the second attempt")


def trying(world: World, **policy):
    """Let a world's pipeline be tried again."""
    pipeline = replace(world.pipeline, retries=twice.retries(**policy))
    world.project.__dict__["pipelines"] = world.project.__dict__["whole_pipelines"] = {"out": pipeline}
    return pipeline


@way
def a_retry_of_a_forced_run_that_landed(bench: Bench) -> None:
    """A forced run gets no answer from the store although it landed: its retry finds its edition there and makes no other."""
    world = put(bench.world(), d20=["a"])
    pipeline = trying(world)
    world.run(DAY)
    really = world.memory.look

    def unreachable(_):
        raise OSError("no answer")

    def cut(point):
        if point == "publish.after":
            world.memory.look = unreachable

    with armed(cut), suppress(OutcomeUnknown):
        twice.run(pipeline, at=DAY, force=True, project=world.project)
    world.memory.look = really
    list(retry_due(world.project, datetime.now(UTC) + timedelta(hours=1)))
    demand(world.sight().fence(world.slot(DAY)), 2, "the edition after the retry")


@way
def a_forced_run_that_is_killed(bench: Bench) -> None:
    """A forced run is killed before its publish: whoever takes it up, the job or a walk, makes its edition."""
    for take_up in (_by_the_job, _by_a_walk):
        world = put(bench.world(), d20=["a"])
        pipeline = trying(world)
        world.run(DAY)
        with armed(dying_at("rows.ready")), suppress(Died):
            twice.run(pipeline, at=DAY, force=True, project=world.project)
        take_up(world, pipeline)
        demand(world.sight().fence(world.slot(DAY)), 2, "the edition after the kill")


def _by_the_job(world, pipeline):
    list(retry_due(world.project))


def _by_a_walk(world, pipeline):
    fill_slot(world.project, pipeline, pipeline.slot(DAY), Asked(resuming=True, by_calendar=True))


@way
def a_service_that_asks_for_time(bench: Bench) -> None:
    """A call got the answer that its service wants to be left alone for a while: it is not called before."""
    CALLS.clear()
    world = put(bench.world(transform=calling("a")), d20=["a"])
    with armed(dying_at("publish.after")), suppress(Died):
        world.run(DAY)
    (row,) = effects.of_slot(world.project.ledger, world.slot(DAY))
    effects.published(world.project.ledger, world.sight().receipts[world.slot(DAY)])
    later = retries.moment_text(datetime.now(UTC) + timedelta(hours=1))
    effects.ended(world.project.ledger, row, effects.CALLING, "HTTP 429", later)
    with suppress(EffectOwed):
        world.run(DAY)
    demand(CALLS, [], "calls before the time that the service asked for")


@way
def a_run_that_kills_its_process_every_time(bench: Bench) -> None:
    """A run dies on every try: after the last one it is set aside."""
    world = put(bench.world(), d20=["a"])
    pipeline = trying(world, tries=3)
    with armed(dying_at("rows.ready")), suppress(Died):
        twice.run(pipeline, at=DAY, project=world.project)
    for _ in range(2):
        with armed(dying_at("rows.ready")), suppress(Died):
            list(retry_due(world.project))
    list(retry_due(world.project))
    row = retries.find(world.project.ledger, world.slot(DAY))
    demand(row.state if row else world.sight().exists, "dead", "the run after its last try")


def stepping(first):
    @twice.step
    def second(rows):
        RAN.append("second")
        return rows

    return lambda rows, run: second(first(rows, run=run), run=run)


@twice.step
def kept(rows):
    RAN.append("first")
    return rows


def changed_code():
    @twice.step
    def kept(rows):
        RAN.append("changed")
        return [row for row in rows if row["id"] != "a"]

    return kept


STEPS = [kept]


def in_steps(rows, run):
    return stepping(STEPS[0])(rows, run)


@way
def a_step_whose_code_is_corrected_between_two_attempts(bench: Bench) -> None:
    """A run dies after its first step, whose code is corrected then: the step is run again."""
    STEPS[0] = kept
    world = put(bench.world(transform=in_steps), d20=["a", "b"])
    with armed(dying_at("step.marker.linked")), suppress(Died):
        world.run(DAY)
    STEPS[0] = changed_code()
    world.run(DAY)
    demand(world.by_day().get(DAY), ["b"], "rows after the correction")


@way
def an_input_that_changes_during_a_step_and_changes_back(bench: Bench) -> None:
    """An input changes while a step reads it, and is put back: what the step read meanwhile is not kept."""
    STEPS[0] = kept
    world = put(bench.world(transform=in_steps), d20=["wrong"])
    wrong = (world.folder / f"landing/{DAY}.jsonl").read_text()
    world.put(DAY, ["right"])
    file = world.folder / f"landing/{DAY}.jsonl"
    right = file.read_text()

    def meddle(point):
        if point == "inputs.resolved":
            file.write_text(wrong)

    with armed(meddle), suppress(TwiceError):
        world.run(DAY)
    demand(list((world.folder / ".twice/steps").glob("*/*")), [], "what was kept of rows that moved")
    file.write_text(right)
    world.run(DAY)
    demand(world.by_day().get(DAY), ["right"], "rows after the input was put back")


@way
def a_step_that_is_killed_and_run_again(bench: Bench) -> None:
    """A run dies after its first step is whole: the next attempt does not run it again."""
    STEPS[0] = kept
    world = put(bench.world(transform=in_steps), d20=["a"])
    RAN.clear()
    with armed(dying_at("step.marker.linked")), suppress(Died):
        world.run(DAY)
    world.run(DAY)
    demand(RAN, ["first", "second"], "steps that were run")
