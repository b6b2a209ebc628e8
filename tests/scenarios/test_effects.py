"""Scenario 92: calls in outside systems, killed before, during and after, against a real service."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import stamina

import twice
from services import DROP, SLOW, service
from twice.effects import Outside, complete, deliver
from twice.errors import EffectOwed
from twice.faults import Died, LostReply, armed, dying_at, recording
from twice.http_calls import asked_wait
from twice.ledger import effects, retries
from twice.prover import check, deaths_at_every_point
from twice.retrying import retry_due
from twice.runs import Effect
from ways_after_failures import trying
from worlds import once_at

DAY, NEXT = "2024-09-20", "2024-09-21"


@pytest.fixture(autouse=True)
def quick_retries():
    with stamina.set_testing(True, attempts=3):
        yield


@pytest.fixture
def told():
    with service() as running:
        yield running


def telling(url, *, outbox=False, **options):
    def transform(rows, run):
        body = {"day": run.slot.label, "generation": run.generation}
        run.effect("notify", call=twice.http_effect(url, json=body, **options), outbox=outbox)
        return rows

    return transform


def key_of(world, day=DAY, generation=1):
    return Effect.of(world.pipeline.slot(day), generation, "notify", "", "").key


def rows_of(world, day=DAY):
    return effects.of_slot(world.project.ledger, world.slot(day))


def deliver_all(world):
    """Do what `twice effects deliver` does."""
    for receipt in world.sight().receipts.values():
        effects.published(world.project.ledger, receipt)
    for row in effects.counting(world.project.ledger):
        if row.state in effects.OWED:
            deliver(world.project.outside, world.project.ledger, row)


def run_and_deliver(world):
    world.run(DAY)
    deliver_all(world)


def memory_world(make_world, transform):
    world = make_world(transform=transform)
    world.put(DAY, ["a"])
    return world


@pytest.mark.stores("memory", "delta", "postgres")
def test_92_a_call_is_made_after_the_publish_and_never_again_once_confirmed(make_world, told):
    world = memory_world(make_world, telling(told.url))
    assert world.run(DAY).state == "published"
    assert told.calls == [(key_of(world), {"day": "2024-09-20T00:00Z", "generation": 1})]
    assert world.run(DAY).state == "skipped"
    world.put(DAY, ["a", "b"])
    world.run(DAY)
    assert dict(told.per_key) == {key_of(world): 1, key_of(world, generation=2): 1}


@pytest.mark.stores("memory", "postgres")
def test_92_the_outbox_is_delivered_afterwards_and_only_if_published(make_world, told):
    world = memory_world(make_world, telling(told.url, outbox=True))
    with armed(dying_at("publish.before")), pytest.raises(Died):
        world.run(DAY)
    deliver_all(world)
    assert told.calls == []
    outcome = world.run(DAY)
    assert "outbox" in outcome.notes[-1]
    assert told.calls == []
    deliver_all(world)
    deliver_all(world)
    assert dict(told.per_key) == {key_of(world): 1}


def expected_calls(point):
    """A death between the call and its confirmation makes one more call; any other death none."""
    return (1, 2) if point == "effect.answered" else (1,)


@pytest.mark.stores("memory", "delta", "postgres")
@pytest.mark.parametrize("outbox", [False, True])
@pytest.mark.parametrize("death", [Died, LostReply])
def test_92_killed_at_every_point_calls_per_key_are_as_promised(make_world, told, outbox, death):
    clean = memory_world(make_world, telling(told.url, outbox=outbox))
    points = []
    with armed(recording(points)):
        run_and_deliver(clean)
    assert {"effects.intended", "effects.counted", "effect.before", "effect.answered", "effect.confirmed"} <= set(
        points
    )
    for point in points:
        told.calls.clear()
        world = memory_world(make_world, telling(told.url, outbox=outbox))
        with armed(dying_at(point, death)), suppress(Died, LostReply, twice.TwiceError):
            run_and_deliver(world)
        world.reopen()
        run_and_deliver(world)
        calls = told.per_key
        assert set(calls) == {key_of(world)}, point
        assert calls[key_of(world)] in expected_calls(point), (point, calls)
        assert [row.state for row in rows_of(world)] == ["confirmed"], point
        run_and_deliver(world)
        assert told.per_key == calls, point
        assert world.rows() == [("a", DAY)], point


@pytest.mark.stores("memory")
def test_92_death_at_every_point_leaves_the_table_as_a_clean_run_would(make_world, copies_of, told):
    world = make_world(transform=telling(told.url), script=lambda w: w.run(DAY))
    world.put(DAY, ["a"])
    assert len(check(deaths_at_every_point(copies_of(world)))) >= 20


@pytest.mark.stores("memory")
@pytest.mark.parametrize("trouble", [503, 429, DROP])
def test_trouble_that_passes_is_tried_again_with_the_same_key(make_world, told, trouble):
    world = memory_world(make_world, telling(told.url))
    told.orders = [trouble, trouble]
    world.run(DAY)
    assert dict(told.per_key) == {key_of(world): 3}
    assert rows_of(world)[0].answer.startswith("HTTP 200")


@pytest.mark.stores("memory")
def test_an_answer_that_comes_too_late_is_asked_for_again(make_world, told):
    world = memory_world(make_world, telling(told.url, timeout=0.2))
    told.orders = [SLOW]
    world.run(DAY)
    assert dict(told.per_key) == {key_of(world): 2}


@pytest.mark.stores("memory")
def test_without_an_answer_the_rows_are_published_and_the_call_is_owed(make_world, told):
    world = memory_world(make_world, telling(told.url))
    told.orders = [503] * 3
    with pytest.raises(EffectOwed, match="HTTP 503") as owed:
        world.run(DAY)
    assert owed.value.exit_code == 3
    assert world.rows() == [("a", DAY)]
    assert rows_of(world)[0].state == "calling"
    assert world.project.ledger.attempts()[0].state == "published"
    assert world.run(DAY).state == "skipped"
    assert [row.state for row in rows_of(world)] == ["confirmed"]


@pytest.mark.stores("memory")
@pytest.mark.parametrize("status", [429, 503])
def test_a_service_that_asks_for_seconds_is_given_them(make_world, told, status):
    world = memory_world(make_world, telling(told.url))
    told.orders = [(status, {"Retry-After": "1"})]
    with stamina.set_testing(False):
        world.run(DAY)
    assert dict(told.per_key) == {key_of(world): 2}
    assert 1.0 <= told.times[1] - told.times[0] < 4.0
    assert [(row.state, row.not_before) for row in rows_of(world)] == [("confirmed", "")]


@pytest.mark.stores("memory")
@pytest.mark.parametrize("wait", ["600", "date"])
@pytest.mark.parametrize("outbox", [False, True])
def test_a_service_that_asks_for_more_is_not_called_before(make_world, told, wait, outbox):
    world = memory_world(make_world, telling(told.url, outbox=outbox))
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=600), usegmt=True)
    told.orders = [(429, {"Retry-After": later if wait == "date" else wait})]
    with pytest.raises(EffectOwed, match="HTTP 429"):
        run_and_deliver(world)
    (row,) = rows_of(world)
    asked = datetime.fromisoformat(row.not_before) - datetime.now(UTC)
    assert timedelta(seconds=590) < asked <= timedelta(seconds=601)
    with pytest.raises(EffectOwed, match=f"left alone until {row.not_before}") as owed:
        run_and_deliver(world)
    assert owed.value.not_before == row.not_before
    assert len(told.calls) == 1
    with world.project.ledger.transaction() as db:
        db.execute("UPDATE effects SET not_before='2000-01-01T00:00:00.000Z'")
    run_and_deliver(world)
    assert dict(told.per_key) == {key_of(world): 2}
    assert [one.state for one in rows_of(world)] == ["confirmed"]


@pytest.mark.stores("memory")
def test_one_service_that_is_left_alone_holds_up_no_other(make_world, told):
    def transform(rows, run):
        run.effect("a", call=twice.http_effect(told.url, json="a"))
        run.effect("b", call=twice.http_effect(told.url, json="b"))
        return rows

    world = memory_world(make_world, transform)
    told.orders = [(503, {"Retry-After": "600"})]
    with pytest.raises(EffectOwed, match="The effect a of"):
        world.run(DAY)
    assert [body for _, body in told.calls] == ["a", "b"]
    assert [row.state for row in rows_of(world)] == ["calling", "confirmed"]


@pytest.mark.stores("memory")
def test_a_retry_is_not_due_before_the_service_wants_to_be_called(make_world, told):
    world = memory_world(make_world, telling(told.url))
    pipeline = trying(world, tries=3, at_once=3, wait="1 minute")
    told.orders = [(503, {"Retry-After": "7200"})]
    with pytest.raises(EffectOwed):
        twice.run(pipeline, at=DAY, project=world.project)
    (due,) = retries.every(world.project.ledger)
    assert (due.due_at, due.tries) == (rows_of(world)[0].not_before, 1)
    assert list(retry_due(world.project, datetime.now(UTC) + timedelta(hours=1))) == []
    assert len(told.calls) == 1


NOW = datetime(2024, 10, 7, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "1.5"}, None),
        ({"Retry-After": "٣"}, None),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": " 30 "}, 30.0),
        ({"Retry-After": "9" * 400}, 86_400.0),
        ({"Retry-After": "Mon, 07 Oct 2024 12:01:00 GMT"}, 60.0),
        ({"Retry-After": "Monday, 07-Oct-24 12:01:00 GMT"}, 60.0),
        ({"Retry-After": "Mon Oct  7 12:01:00 2024"}, 60.0),
        ({"Retry-After": "Mon, 07 Oct 2024 11:00:00 GMT"}, 0.0),
        ({"Retry-After": "Sun, 07 Oct 2044 11:00:00 GMT"}, 86_400.0),
        ({"Retry-After": "Mon, 07 Oct 2024 15:01:00 GMT", "Date": "Mon, 07 Oct 2024 15:00:00 GMT"}, 60.0),
    ],
)
def test_what_a_service_asks_for_is_read_and_bounded(headers, expected):
    assert asked_wait(headers, NOW) == expected


@pytest.mark.stores("memory")
def test_a_refusal_is_not_repeated(make_world, told):
    world = memory_world(make_world, telling(told.url))
    told.orders = [422]
    with pytest.raises(EffectOwed, match=r"was refused: .*HTTP 422"):
        world.run(DAY)
    assert "was refused" in world.run(DAY).notes[-1]
    assert len(told.calls) == 1
    assert deliver(Outside(), world.project.ledger, rows_of(world)[0])
    assert [row.state for row in rows_of(world)] == ["confirmed"]


@pytest.mark.stores("memory")
@pytest.mark.parametrize("outbox", [False, True])
def test_after_a_lost_ledger_a_call_is_unknown_and_is_not_made_silently(make_world, told, outbox):
    world = memory_world(make_world, telling(told.url, outbox=outbox))
    world.run(DAY)
    calls = len(told.calls)
    world.lose_ledger()
    from twice.handovers import take_over

    sight = take_over(world.store, world.project.ledger, world.target)
    world.project.ledger.rebuild([f"memory:{world.target}"], [(r, sight.version) for r in sight.receipts.values()])
    assert "is unknown" in world.run(DAY).notes[-1]
    deliver_all(world)
    assert len(told.calls) == calls
    (row,) = rows_of(world)
    assert (row.state, bool(row.call)) == ("unknown", outbox)
    effects.ended(world.project.ledger, row, effects.CONFIRMED, "seen in the service")
    assert world.run(DAY).notes == ()


@pytest.mark.stores("memory")
@pytest.mark.parametrize("outbox", [False, True])
def test_what_an_older_edition_owes_is_carried_on(make_world, told, outbox):
    world = memory_world(make_world, telling(told.url, outbox=outbox))
    with armed(dying_at("publish.after")), pytest.raises(Died):
        world.run(DAY)
    world.put(DAY, ["a", "b"])
    world.run(DAY)
    assert [effect.generation for effect in world.sight().receipts[world.slot(DAY)].effects] == [1, 2]
    deliver_all(world)
    assert dict(told.per_key) == {key_of(world): 1, key_of(world, generation=2): 1}
    world.put(DAY, ["c"])
    world.run(DAY)
    assert [effect.generation for effect in world.sight().receipts[world.slot(DAY)].effects] == [3]


@pytest.mark.stores("memory")
def test_an_attempt_that_never_published_calls_nothing(make_world, told):
    world = memory_world(make_world, telling(told.url))
    with armed(dying_at("publish.before")), pytest.raises(Died):
        world.run(DAY)
    quiet = replace(world, transform=lambda rows: rows)
    assert quiet.run(DAY).state == "published"
    assert told.calls == []
    assert complete(Outside(), world.project.ledger, list(world.sight().receipts.values())) == ()


CALLED = []


def record(key, **arguments):
    CALLED.append((key, arguments))
    return "done"


@pytest.mark.stores("memory")
def test_a_function_is_called_with_its_key_and_arguments_also_by_a_rerun(make_world):
    CALLED.clear()

    def transform(rows, run):
        run.effect("notify", call=record, to="ops", rows=len(rows))
        return rows

    world = memory_world(make_world, transform)
    with armed(dying_at("publish.after")), pytest.raises(Died):
        world.run(DAY)
    assert world.run(DAY).state == "skipped"
    assert [(key_of(world), {"to": "ops", "rows": 1})] == CALLED
    assert rows_of(world)[0].answer == "done"


@pytest.mark.stores("memory")
@pytest.mark.parametrize(
    ("register", "message"),
    [
        (lambda run: run.effect("notify", call=lambda key: None), "no other process could find it"),
        (lambda run: run.effect("notify", call=record, what=object()), "kept as JSON"),
        (lambda run: run.effect("notify", call=record, what="x" * 5000), "4,096 are allowed"),
        (lambda run: [run.effect("notify", call=record) for _ in range(2)], "Two effects"),
        (lambda run: run.effect("notify", call=twice.http_effect("ftp://x")), "no address"),
        (lambda run: twice.http_effect("https://x", headers={"Authorization": "s3cret"}), "secret itself"),
        (lambda run: twice.http_effect("https://a:b@x/"), "password"),
    ],
)
def test_what_cannot_be_an_effect_is_misuse_and_publishes_nothing(make_world, register, message):
    world = memory_world(make_world, lambda rows, run: register(run) or rows)
    with pytest.raises(twice.Misuse, match=message):
        world.run(DAY)
    assert not world.sight().exists


@pytest.mark.stores("memory")
def test_too_much_for_a_commit_is_refused(make_world):
    def transform(rows, run):
        for number in range(6):
            run.effect(f"e{number}", call=record, outbox=True, text="x" * 3000)
        return rows

    world = memory_world(make_world, transform)
    with pytest.raises(twice.NotPublished, match="16,384 are allowed"):
        world.run(DAY)
    assert not world.sight().exists


@pytest.mark.stores("memory")
def test_a_secret_of_the_environment_is_sent_and_kept_nowhere(make_world, told, monkeypatch):
    monkeypatch.setenv("NOTIFY_TOKEN", "canary-1234")
    world = memory_world(make_world, telling(told.url, headers={"Authorization": "Bearer ${NOTIFY_TOKEN}"}))
    world.run(DAY)
    assert len(told.calls) == 1
    assert b"canary-1234" not in (world.folder / ".twice/ledger.db").read_bytes()
    assert "canary-1234" not in json.dumps([r.to_json() for r in world.sight().receipts.values()])


@pytest.mark.stores("memory")
def test_a_run_whose_call_is_owed_is_told_and_recorded_as_published(make_world, told):
    world = memory_world(make_world, telling(told.url))
    told.orders = [503] * 9
    heard = []
    world.project.listen(heard.append)
    with pytest.raises(EffectOwed):
        world.run(DAY)
    assert [event.kind for event in heard] == ["started", "published"]
    assert [one.state for one in world.project.ledger.attempts()] == ["published"]


@pytest.mark.stores("memory")
def test_a_run_that_a_twin_overtook_ends_although_the_twins_call_is_owed(make_world, told):
    world = memory_world(make_world, telling(told.url))
    told.orders = [503] * 9

    def twin():
        with suppress(EffectOwed):
            world.twin().run(DAY)

    with armed(once_at("intended", twin)), pytest.raises(EffectOwed):
        world.run(DAY)
    assert sorted(one.state for one in world.project.ledger.attempts()) == ["published", "skipped"]


@pytest.mark.stores("memory")
@pytest.mark.parametrize("act", ["published", "call_begins", "ended"])
def test_a_ledger_that_fails_after_the_publish_leaves_a_call_owed_and_no_lie(make_world, told, monkeypatch, act):
    world = memory_world(make_world, telling(told.url))

    def broken(*_):
        raise twice.NotPublished("The ledger cannot be used.")

    with monkeypatch.context() as patched:
        patched.setattr(effects, act, broken)
        with pytest.raises(EffectOwed, match="The ledger cannot be used"):
            world.run(DAY)
    assert world.rows() == [("a", DAY)]
    assert world.run(DAY).state == "skipped"
    assert set(told.per_key) == {key_of(world)}
    assert [row.state for row in rows_of(world)] == ["confirmed"]
