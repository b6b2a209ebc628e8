"""Scenario 90: a run that fails is tried again with growing waits, then set aside, and comes back when asked to."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest
import stamina

import twice
from twice.decide import Asked
from twice.errors import Held, LedgerAhead, Overtaken, ProofGone, Stranger
from twice.faults import Died, LostReply, armed, dying_at, recording
from twice.ledger import retries
from twice.retrying import Budget, fill_slot, retry_due
from twice.tries import AGAIN, LATER, NEVER, Retries, verdict
from worlds import World

DAY, NEXT = "2024-09-20", "2024-09-21"


class Failing:
    """A transform that fails so many times, and remembers for what it was called."""

    def __init__(self, times):
        self.times, self.seen = times, []

    def __call__(self, rows, run):
        self.seen.append((run.slot.label, run.generation, dict(run.parameters)))
        if len(self.seen) <= self.times:
            raise RuntimeError(f"failure {len(self.seen)}")
        return rows


class Persistent(World):
    """A world whose pipeline declares retries."""

    policy = Retries(tries=3, wait="10 minutes")
    parameters: ClassVar[dict] = {"limit": 7}

    @property
    def pipeline(self):
        return replace(super().pipeline, retries=self.policy, parameters=self.parameters)

    def reopen(self):
        super().reopen()
        self.project.__dict__["pipelines"] = {"out": self.pipeline}
        self.project.__dict__["whole_pipelines"] = self.project.__dict__["pipelines"]

    def row(self, day=DAY):
        return retries.find(self.project.ledger, self.slot(day))

    def retry(self, hours=0):
        return list(retry_due(self.project, datetime.now(UTC) + timedelta(hours=hours)))


def world_of(tmp_path, transform, name="world", **settings):
    made = Persistent(tmp_path / name, "memory", transform=transform, **settings)
    made.put(DAY, ["a"])
    made.put(NEXT, ["b"])
    return made


def test_90_retry_to_dead_letter_and_back(tmp_path):
    transform = Failing(4)
    world = world_of(tmp_path, transform)
    with pytest.raises(twice.NotPublished, match="failure 1"):
        world.run(DAY)
    first = world.row()
    assert (first.state, first.tries, first.generation) == ("due", 1, 1)
    assert world.retry() == []
    (second,) = world.retry(hours=1)
    (third,) = world.retry(hours=2)
    waits = [datetime.fromisoformat(r.due_at) - datetime.fromisoformat(r.last_failed_at) for r in (first, second.row)]
    assert timedelta(minutes=10) <= waits[0] < timedelta(minutes=13)
    assert timedelta(minutes=20) <= waits[1] < timedelta(minutes=26)
    assert (third.row.state, third.row.tries, third.row.kind) == ("dead", 3, "NotPublished")
    assert "failure 3" in third.row.error
    assert world.retry(hours=100) == []
    assert retries.requeue(world.project.ledger, world.slot(DAY), datetime.now(UTC))
    (fourth,) = world.retry()
    assert (fourth.row.state, fourth.row.tries) == ("due", 1)
    (fifth,) = world.retry(hours=1)
    assert (fifth.outcome.state, fifth.outcome.generation) == ("published", 1)
    assert world.row() is None
    assert transform.seen == [("2024-09-20T00:00Z", 1, {"limit": 7})] * 5
    assert world.rows() == [("a", DAY)]


def test_the_parameters_of_the_first_try_are_kept(tmp_path):
    transform = Failing(1)
    world = world_of(tmp_path, transform)
    with pytest.raises(twice.NotPublished):
        world.run(DAY)
    world.parameters = {"limit": 8}
    world.reopen()
    (ended,) = world.retry(hours=1)
    assert ended.outcome.state == "published"
    assert transform.seen[-1][2] == {"limit": 7}
    assert world.run(DAY).generation == 2


def test_a_run_is_given_up_when_its_time_is_over(tmp_path):
    world = world_of(tmp_path, Failing(9))
    world.policy = Retries(tries=99, wait="1 minute", for_at_most="1 hour")
    world.reopen()
    with pytest.raises(twice.NotPublished):
        world.run(DAY)
    long_ago = retries.moment_text(datetime.now(UTC) - timedelta(hours=2))
    retries.note(world.project.ledger, world.slot(DAY), lambda row: replace(row, first_failed_at=long_ago))
    (ended,) = world.retry(hours=1)
    assert ended.row.is_dead


def test_tries_at_once_go_through_stamina_and_count(tmp_path):
    transform = Failing(2)
    world = world_of(tmp_path, transform)
    world.policy = Retries(tries=4, at_once=3)
    with stamina.set_testing(True, attempts=3):
        assert world.run(DAY).state == "published"
    assert len(transform.seen) == 3
    assert retries.spent(world.project.ledger, datetime.now(UTC)) == 2
    always = world_of(tmp_path, Failing(9), "always")
    always.policy = Retries(tries=4, at_once=3)
    with stamina.set_testing(True, attempts=3), pytest.raises(twice.NotPublished):
        always.run(DAY)
    assert (always.row().tries, always.row().state) == (3, "due")


def test_a_forced_run_whose_publish_landed_is_not_forced_again(tmp_path):
    world = world_of(tmp_path, lambda rows: rows)
    world.run(DAY)

    really = world.memory.look

    def unreachable(_):
        raise OSError("the store does not answer")

    def cut(point):
        if point == "publish.after":
            world.memory.look = unreachable

    with armed(cut), pytest.raises(twice.OutcomeUnknown):
        world.run(DAY, force=True)
    world.memory.look = really
    assert (world.sight().fence(world.slot(DAY)), world.row().generation) == (2, 2)
    (ended,) = world.retry(hours=1)
    assert (ended.outcome.state, ended.outcome.generation) == ("skipped", 2)
    assert world.row() is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (twice.NotPublished(""), AGAIN),
        (twice.OutcomeUnknown(""), AGAIN),
        (Overtaken(""), AGAIN),
        (RuntimeError(), AGAIN),
        (twice.Busy(""), LATER),
        (Held(""), LATER),
        (twice.Waiting(""), LATER),
        (twice.Misuse(""), NEVER),
        (twice.Fenced(""), NEVER),
        (ProofGone(""), NEVER),
        (Stranger(""), NEVER),
        (LedgerAhead(""), NEVER),
        (KeyboardInterrupt(), NEVER),
    ],
)
def test_the_type_of_an_error_decides(error, expected):
    assert verdict(error) == expected


def test_misuse_and_waiting_leave_no_record(tmp_path):
    def misused(rows):
        raise twice.Misuse("declared wrongly")

    world = world_of(tmp_path, misused)
    with pytest.raises(twice.Misuse):
        world.run(DAY)
    assert world.row() is None


def test_busy_is_due_later_and_does_not_count(tmp_path):
    world = world_of(tmp_path, lambda rows: rows, lease_seconds=60.0)
    with world.project.ledger.lease(world.slot(DAY), "another"), pytest.raises(twice.Busy):
        world.run(DAY)
    assert (world.row().state, world.row().tries) == ("due", 0)
    (ended,) = world.retry(hours=1)
    assert ended.outcome.state == "published"


def test_without_retries_nothing_is_recorded(tmp_path):
    world = world_of(tmp_path, Failing(9))
    world.policy = None
    with pytest.raises(twice.NotPublished):
        world.run(DAY)
    assert world.row() is None


def test_later_slots_of_a_merger_wait_and_say_for_what(tmp_path):
    transform = Failing(1)
    world = world_of(tmp_path, transform, pattern=twice.merger(keys=["id"]))
    world.policy = Retries(tries=1)
    with pytest.raises(twice.NotPublished):
        world.run(DAY)
    assert world.row().is_dead
    with pytest.raises(Held, match=r"2024-09-21T00:00Z of out waits for 2024-09-20T00:00Z") as held:
        world.run(NEXT)
    assert "twice dead requeue out --at 2024-09-20T00:00Z" in held.value.fix
    assert held.value.exit_code == 4
    assert "would be held" in twice.plan(world.pipeline, at=NEXT, project=world.project).notes[-1]
    retries.requeue(world.project.ledger, world.slot(DAY), datetime.now(UTC))
    assert [ended.outcome.state for ended in world.retry(hours=1)] == ["published", "published"]


def test_independent_slots_do_not_wait(tmp_path):
    world = world_of(tmp_path, Failing(1))
    with pytest.raises(twice.NotPublished):
        world.run(DAY)
    assert world.run(NEXT).state == "published"


def test_a_walk_over_all_that_is_due_leaves_what_waits_alone(tmp_path):
    transform = Failing(1)
    world = world_of(tmp_path, transform)
    slot = world.pipeline.slot(DAY)
    with pytest.raises(twice.NotPublished):
        world.run(DAY)
    with pytest.raises(Held, match="due again"):
        fill_slot(world.project, world.pipeline, slot, Asked(resuming=True, by_calendar=True))
    assert len(transform.seen) == 1
    assert world.run(DAY).state == "published"


def test_the_budget_stops_a_storm(tmp_path):
    world = world_of(tmp_path, Failing(99), every="1 hour", start=f"{DAY}T00:00:00Z")
    world.project.settings.values["retries.per_hour"] = replace(
        world.project.settings.values["retries.per_hour"], value=2
    )
    for hour in range(4):
        with pytest.raises(twice.NotPublished):
            world.run(f"{DAY}T{hour:02}:00:00Z")
    *ends, last = world.retry(hours=1)
    assert (len(ends), last) == (2, Budget(left=2, per_hour=2))


def due_runs(world, count):
    now = datetime.now(UTC) - timedelta(minutes=1)
    from twice.retrying import new_row

    slots = [world.pipeline.slot(f"{DAY}T{n // 60:02}:{n % 60:02}:00Z") for n in range(count)]
    for slot in slots:
        row = new_row(slot, Asked(), 0, retries.plain(world.parameters), now)
        retries.note(world.project.ledger, slot.text, lambda _, row=row: row)
    return slots


def test_two_jobs_at_once_take_each_of_a_hundred_runs_once(tmp_path):
    calendar = {"every": "1 minute", "start": f"{DAY}T00:00:00Z", "pattern": twice.transactional_writer()}
    world = world_of(tmp_path, Failing(0), lease_seconds=60.0, **calendar)
    slots = due_runs(world, 100)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: world.retry(), range(2))
    assert {end.outcome.state for end in (*one, *other)} == {"published"}
    assert sorted(end.slot.text for end in (*one, *other)) == sorted(slot.text for slot in slots)
    assert one
    assert other
    # One attempt each; its transform may be called again after a lost compare.
    assert len(world.project.ledger.attempts(limit=1000)) == 100
    assert retries.every(world.project.ledger) == []
    assert len(world.rows()) == 100


def test_90_the_retry_job_dies_at_every_point(tmp_path):
    numbers = iter(range(1000))

    def prepared():
        world = world_of(tmp_path, Failing(0), f"w{next(numbers)}")
        for day in (DAY, NEXT):
            with armed(dying_at("stage.before")), pytest.raises(Died):
                world.run(day)
        return world

    points = []
    with armed(recording(points)):
        prepared().retry()
    assert {"retry.enlisted", "retry.taken", "retry.ended.well", "try.before"} <= set(points)
    for point in points:
        for death in (Died, LostReply):
            world = prepared()
            with armed(dying_at(point, death)), suppress(Died, LostReply):
                world.retry()
            world.retry(hours=1)
            assert world.rows() == [("a", DAY), ("b", NEXT)], (point, death)
            assert {receipt.generation for receipt in world.sight().receipts.values()} == {1}
            assert retries.every(world.project.ledger) == [], (point, death)


def test_a_process_that_dies_on_every_try_is_set_aside_in_the_end(tmp_path):
    world = world_of(tmp_path, Failing(0))
    for act in (lambda: world.run(DAY), world.retry, world.retry):
        with armed(dying_at("rows.ready")), pytest.raises(Died):
            act()
    (ended,) = world.retry()
    assert (ended.row.state, world.rows()) == ("dead", [])
    assert "ended before the run did" in ended.row.error


def test_a_process_that_died_on_its_last_try_after_the_publish_is_not_set_aside(tmp_path):
    world = world_of(tmp_path, Failing(0))
    for point in ("rows.ready", "rows.ready", "publish.after"):
        with armed(dying_at(point)), pytest.raises(Died):
            world.run(DAY) if world.row() is None and point == "rows.ready" else world.retry()
    (ended,) = world.retry()
    assert (ended.outcome.state, world.row()) == ("skipped", None)


def test_a_no_to_the_plan_is_no_failure(tmp_path):
    world = world_of(tmp_path, Failing(0))
    world.policy = Retries(tries=3, at_once=3)
    asked = []

    def no(plan):
        asked.append(plan)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fill_slot(world.project, world.pipeline, world.pipeline.slot(DAY), approve=no)
    assert (len(asked), world.row()) == (1, None)


def test_a_forced_run_stays_due_until_its_edition_is_there(tmp_path):
    world = world_of(tmp_path, lambda rows: rows)
    world.run(DAY)
    with armed(dying_at("rows.ready", LostReply)), pytest.raises(twice.NotPublished):
        world.run(DAY, force=True)
    assert world.run(DAY).state == "skipped"
    assert (world.row().is_forced, world.row().generation) == (True, 2)
    (ended,) = world.retry(hours=1)
    assert (ended.outcome.state, ended.outcome.generation, world.row()) == ("published", 2, None)


def killed_by_force(world, point="rows.ready"):
    """Publish a slot, then die while it is forced."""
    world.run(DAY)
    with armed(dying_at(point)), pytest.raises(Died):
        world.run(DAY, force=True)


def walk(world, **asked):
    return fill_slot(
        world.project, world.pipeline, world.pipeline.slot(DAY), Asked(resuming=True, by_calendar=True, **asked)
    )


@pytest.mark.parametrize(
    "point", ["intended", "lease.taken", "rows.ready", "publish.before", "publish.after", "confirmed"]
)
@pytest.mark.parametrize("taken_up_by", ["the job", "a walk", "a plain run, then the job"])
def test_a_forced_run_that_was_killed_is_taken_up_as_it_was_asked_for(tmp_path, point, taken_up_by):
    world = world_of(tmp_path, lambda rows: rows)
    killed_by_force(world, point)
    world.reopen()
    if taken_up_by == "a walk":
        walk(world)
    elif taken_up_by != "the job":
        assert world.run(DAY).state == "skipped"
    world.retry()
    assert (world.sight().fence(world.slot(DAY)), world.row()) == (2, None)
    assert world.retry(hours=9) == []
    assert walk(world).state == "skipped"
    assert world.sight().fence(world.slot(DAY)) == 2


def test_a_run_that_was_killed_keeps_its_parameters(tmp_path):
    transform = Failing(0)
    world = world_of(tmp_path, transform)
    with armed(dying_at("rows.ready")), pytest.raises(Died):
        world.run(DAY)
    world.parameters = {"limit": 8, "new": 1}
    world.reopen()
    (ended,) = world.retry()
    assert ended.outcome.state == "published"
    assert transform.seen[-1][2] == {"limit": 7, "new": 1}


def test_a_forced_run_that_is_killed_while_the_slot_waits_is_not_forgotten(tmp_path):
    world = world_of(tmp_path, Failing(1))
    with pytest.raises(twice.NotPublished):
        world.run(DAY)
    assert not world.row().is_forced
    with armed(dying_at("rows.ready")), pytest.raises(Died):
        world.run(DAY, force=True)
    world.retry()
    assert world.row().is_forced
    world.retry(hours=1)
    assert (world.sight().fence(world.slot(DAY)), world.row()) == (1, None)


def test_a_walk_that_fails_leaves_what_was_asked_for(tmp_path):
    world = world_of(tmp_path, lambda rows: rows)
    killed_by_force(world)
    with armed(dying_at("rows.ready", LostReply)), pytest.raises(twice.NotPublished):
        walk(world)
    assert (world.row().is_forced, world.row().tries, world.row().generation) == (True, 2, 2)


def test_a_walk_that_is_killed_on_every_try_is_set_aside_in_the_end(tmp_path):
    world = world_of(tmp_path, lambda rows: rows)
    for act in (lambda: world.run(DAY), lambda: walk(world), lambda: walk(world)):
        with armed(dying_at("rows.ready")), pytest.raises(Died):
            act()
    with pytest.raises(twice.NotPublished, match="ended before the run did"):
        walk(world)
    assert (world.row().state, world.rows()) == ("dead", [])


def test_a_walk_spends_of_the_budget_and_says_so(tmp_path):
    world = world_of(tmp_path, Failing(9))
    with pytest.raises(twice.NotPublished):
        world.run(DAY)
    per_hour = world.project.settings.values["retries.per_hour"]
    world.project.settings.values["retries.per_hour"] = replace(per_hour, value=1)
    long_ago = "2000-01-01T00:00:00.000Z"
    for _ in range(2):
        retries.note(world.project.ledger, world.slot(DAY), lambda row: replace(row, due_at=long_ago))
        with pytest.raises((twice.NotPublished, Held)) as ended:
            walk(world)
    assert "the budget of retries for this hour is used up" in ended.value.what
    assert world.row().tries == 2


def test_a_run_by_name_says_anew_what_is_asked(tmp_path):
    world = world_of(tmp_path, Failing(2))
    for force in (False, True):
        with pytest.raises(twice.NotPublished):
            world.run(DAY, force=force)
    assert (world.row().is_forced, world.row().tries) == (True, 2)


def test_a_budget_of_nothing_switches_retries_off(tmp_path):
    world = world_of(tmp_path, Failing(9))
    per_hour = world.project.settings.values["retries.per_hour"]
    world.project.settings.values["retries.per_hour"] = replace(per_hour, value=0)
    with pytest.raises(twice.NotPublished):
        world.run(DAY)
    assert world.row() is None


def test_asked_and_parameters_are_plain():
    assert json.loads(retries.plain({"b": 1, "a": [2]})) == {"a": [2], "b": 1}


@pytest.mark.parametrize("wrong", [{"tries": 0}, {"at_once": 0}, {"wait": "soon"}, {"for_at_most": "1"}])
def test_what_cannot_be_a_policy_is_misuse(wrong):
    with pytest.raises(twice.Misuse):
        twice.retries(**wrong)
