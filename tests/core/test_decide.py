"""Is a slot published, skipped or refused? One fact a test, with no store and no ledger."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import receipt_of, slot_of, span

from twice.decide import Asked, Question, decide
from twice.errors import Fenced, LedgerAhead, Misuse, ProofGone, Stranger
from twice.intervals import Interval
from twice.merges import MergeRule
from twice.patterns.data_overwrite import DataOverwrite
from twice.patterns.ingest import Ingest
from twice.patterns.keyed import KeyedPartition
from twice.patterns.merger import Merger
from twice.patterns.transactional_writer import TransactionalWriter
from twice.runs import Slot, Target
from twice.sight import Past, Sight, State

SLOT = slot_of("2024-09-20")
NEWER = slot_of("2024-09-21")
BY_DAY = DataOverwrite(slice="day")
WHOLE = DataOverwrite()
INGEST = Ingest(TransactionalWriter())
QUESTION = Question(
    slot=SLOT,
    pattern=BY_DAY,
    zone="UTC",
    fingerprint="inputs",
    code="code",
    rerun_on_code=False,
    ledger_id="me",
    known={},
    accepted="",
    asked=Asked(),
)
FORCE = Asked(force=True)
ACCEPT = Asked(accept=True)


def ask(sight, **changes):
    return decide(replace(QUESTION, **changes), sight)


def seen(*receipts, **changes):
    """Return the sight of a table that holds these receipts, the last one the newest."""
    count = len(receipts) - 1
    values = {"version": count, "head": count, "owner": "me", "receipts": {r.slot: r for r in receipts}, **changes}
    return Sight(**values)


PUBLISHED = seen(receipt_of(SLOT))
ENDED = seen(receipt_of(SLOT), ended={SLOT.text: "somebody deleted them"}, outside="version 7")


# ------------------------------------------------------------------ create, skip, replace


def test_the_first_run_of_a_slot_creates_generation_1():
    plan = ask(Sight())
    assert (plan.action, plan.generation, plan.reason) == ("create", 1, "the first run of this slot")


def test_a_slot_beside_others_is_created():
    assert ask(seen(receipt_of(NEWER))).action == "create"


def test_a_rerun_with_the_same_inputs_is_skipped():
    plan = ask(PUBLISHED)
    assert (plan.action, plan.generation, plan.reason) == ("skip", 1, "published, and the inputs are the same")
    assert (plan.steps, plan.skips, plan.destroys) == ((), True, False)


def test_a_rerun_with_other_inputs_is_the_next_generation():
    plan = ask(seen(receipt_of(SLOT, 4)), fingerprint="others")
    assert (plan.action, plan.generation, plan.reason, plan.destroys) == ("replace", 5, "the inputs changed", True)


def test_force_publishes_the_same_inputs_again():
    plan = ask(PUBLISHED, asked=FORCE)
    assert (plan.action, plan.generation, plan.reason) == ("replace", 2, "asked for with --force")


def test_undeclared_inputs_are_never_the_same():
    plan = ask(seen(receipt_of(SLOT, fingerprint="")), fingerprint="")
    assert (plan.action, plan.reason.partition(",")[0]) == ("replace", "its inputs were not declared")


def test_undeclared_inputs_do_not_hinder_a_first_run():
    assert ask(Sight(), fingerprint="").action == "create"


# ------------------------------------------------------------------ code


def test_a_change_of_code_is_shown_and_skipped():
    plan = ask(PUBLISHED, code="other")
    assert (plan.action, plan.notes) == ("skip", ("the code changed since this slot was published",))


def test_a_change_of_code_is_shown_when_the_inputs_changed_too():
    plan = ask(PUBLISHED, code="other", fingerprint="others")
    assert (plan.action, plan.notes) == ("replace", ("the code changed since this slot was published",))


def test_a_change_of_code_reruns_where_that_was_asked_for():
    plan = ask(PUBLISHED, code="other", rerun_on_code=True)
    assert (plan.action, plan.generation, plan.reason, plan.notes) == ("replace", 2, "the code changed", ())


def test_the_same_code_is_skipped_where_changes_rerun():
    assert ask(PUBLISHED, rerun_on_code=True).action == "skip"


# ------------------------------------------------------------------ owner


def test_another_ledgers_target_is_refused():
    with pytest.raises(Stranger, match="belongs to another ledger"):
        ask(seen(receipt_of(SLOT), owner="them"))


def test_after_a_loss_the_refusal_names_the_rebuild():
    with pytest.raises(Stranger, match="If this project's ledger was lost"):
        ask(seen(receipt_of(SLOT), owner="them"), known={})


def test_a_target_that_was_taken_away_says_so():
    with pytest.raises(Stranger, match="Another project has taken the target over"):
        ask(seen(receipt_of(SLOT), owner="them"), known={SLOT.text: 1})


def test_receipts_without_an_owner_are_not_ours():
    with pytest.raises(Stranger, match="forgotten with its log"):
        ask(seen(receipt_of(SLOT), owner=""))


@pytest.mark.parametrize("asked", [FORCE, ACCEPT, Asked(force=True, accept=True, resuming=True)])
def test_nothing_that_is_asked_takes_another_ledgers_target(asked):
    with pytest.raises(Stranger):
        ask(seen(receipt_of(SLOT), owner="them"), asked=asked)


def test_a_filled_table_is_refused_until_it_is_adopted():
    with pytest.raises(Stranger, match="twice adopt memory:lake/out"):
        ask(Sight(version=3, filled=True))
    assert ask(Sight(version=3, filled=True, owner="me")).action == "create"


def test_a_folder_with_foreign_files_is_refused():
    with pytest.raises(Stranger, match="twice adopt"):
        ask(Sight(filled=True))


def test_force_publishes_to_a_filled_table():
    assert ask(Sight(version=3, filled=True), asked=FORCE).action == "create"


# ------------------------------------------------------------------ a ledger that is ahead


def test_a_store_that_went_back_in_time_is_refused():
    with pytest.raises(LedgerAhead, match=r"generation 3 of 2024-09-20T00:00Z, the store has 1"):
        ask(PUBLISHED, known={SLOT.text: 3})


def test_a_table_that_is_gone_is_refused():
    with pytest.raises(LedgerAhead, match="the store has none"):
        ask(Sight(), known={SLOT.text: 1})


@pytest.mark.parametrize("known", [{}, {SLOT.text: 1}, {SLOT.text: 2}])
def test_a_ledger_that_lags_or_agrees_changes_nothing(known):
    assert ask(seen(receipt_of(SLOT, 2)), known=known).action == "skip"


def test_force_publishes_on_what_the_store_has():
    assert ask(PUBLISHED, known={SLOT.text: 3}, asked=FORCE).generation == 2


# ------------------------------------------------------------------ neighbours


def test_another_pipelines_target_is_refused():
    with pytest.raises(Misuse, match="is written by the pipeline 'first'; 'out' cannot"):
        ask(seen(receipt_of(slot_of("2024-09-21", pipeline="first"))))


def test_one_table_under_two_names_is_refused():
    with pytest.raises(Misuse, match="was published to as memory:lake/same"):
        ask(seen(receipt_of(slot_of("2024-09-21", target="memory:lake/same"))))


HOURS = st.tuples(st.integers(0, 20), st.integers(1, 9)).map(lambda hours: (hours[0], sum(hours)))


@given(st.lists(HOURS, max_size=8), HOURS)
def test_a_slot_that_shares_a_moment_with_another_one_is_found_wherever_it_lies(others, own):
    first = datetime(2024, 9, 20, tzinfo=UTC)
    slot, *rest = (
        replace(SLOT, part=Interval(*(first + timedelta(hours=hour) for hour in hours))) for hours in (own, *others)
    )
    overlapping = {other for other in rest if other != slot and other.part.overlaps(slot.part)}
    found = seen(*map(receipt_of, rest)).overlapped(slot)
    assert found in overlapping if overlapping else found is None


def test_an_overlapping_calendar_is_refused():
    hourly = Slot("out", Target.parse("memory:lake/out"), span("2024-09-20T05:00Z", "2024-09-20T06:00Z"))
    with pytest.raises(Misuse, match="overlaps 2024-09-20T05:00Z/2024-09-20T06:00Z"):
        ask(seen(receipt_of(hourly)))


def test_a_calendar_that_only_touches_is_fine():
    hourly = Slot("out", Target.parse("memory:lake/out"), span("2024-09-21T00:00Z", "2024-09-21T01:00Z"))
    assert ask(seen(receipt_of(hourly))).action == "create"


@pytest.mark.parametrize(("slot", "other"), [(SLOT, slot_of("pl")), (slot_of("pl"), SLOT)])
def test_keys_and_intervals_do_not_mix(slot, other):
    with pytest.raises(Misuse, match="slots of another kind"):
        ask(seen(receipt_of(other)), slot=slot)


@pytest.mark.parametrize("asked", [FORCE, ACCEPT, Asked(resuming=True)])
def test_nothing_that_is_asked_mixes_two_pipelines(asked):
    with pytest.raises(Misuse):
        ask(seen(receipt_of(slot_of("2024-09-21", pipeline="first"))), asked=asked)


# ------------------------------------------------------------------ a proof that is gone


def test_rows_that_nobody_vouches_for_are_refused_with_the_reason():
    with pytest.raises(ProofGone, match="Somebody deleted them"):
        ask(ENDED)


def test_a_change_to_another_slot_does_not_matter():
    assert ask(seen(receipt_of(SLOT), receipt_of(NEWER), ended={NEWER.text: "deleted"})).action == "skip"


def test_accepted_rows_are_skipped():
    plan = ask(ENDED, asked=ACCEPT)
    assert (plan.action, plan.generation, plan.reason) == ("skip", 1, "its rows were accepted as they are")


def test_what_was_accepted_is_not_asked_again():
    assert ask(ENDED, accepted="version 7").reason == "its rows were accepted as they are"


@pytest.mark.parametrize("accepted", ["", "version 6", "version 70"])
def test_what_was_accepted_before_another_change_is_asked_again(accepted):
    with pytest.raises(ProofGone):
        ask(ENDED, accepted=accepted)


def test_an_acceptance_of_nothing_accepts_nothing():
    with pytest.raises(ProofGone):
        ask(replace(ENDED, outside=""), accepted="")


def test_accepted_rows_are_replaced_when_the_inputs_change():
    assert ask(ENDED, accepted="version 7", fingerprint="others").action == "replace"


def test_force_publishes_what_nobody_vouches_for():
    assert ask(ENDED, asked=FORCE).generation == 2


# ------------------------------------------------------------------ a whole table

REPLACED = seen(receipt_of(SLOT), receipt_of(NEWER), ended={SLOT.text: "the whole table was replaced in version 1"})


def test_an_older_slot_does_not_replace_a_newer_table_unasked():
    with pytest.raises(Fenced, match=r"newer slot 2024-09-21T00:00Z.*\n.*--force"):
        ask(seen(receipt_of(NEWER)), pattern=WHOLE)


def test_an_older_slot_replaces_a_newer_table_by_force():
    plan = ask(seen(receipt_of(NEWER)), pattern=WHOLE, asked=FORCE)
    assert (plan.action, plan.compares_head) == ("create", True)


def test_a_newer_slot_replaces_an_older_table():
    assert ask(seen(receipt_of(SLOT)), pattern=WHOLE, slot=NEWER).action == "create"


def test_a_superseded_slot_is_passed_over_when_resuming():
    plan = ask(REPLACED, pattern=WHOLE, asked=Asked(resuming=True))
    assert (plan.action, plan.reason) == ("skip", "the newer slot 2024-09-21T00:00Z has taken its place")


def test_a_superseded_slot_is_refused_when_it_is_asked_for_alone():
    with pytest.raises(ProofGone, match="whole table was replaced"):
        ask(REPLACED, pattern=WHOLE)


def test_a_superseded_slot_is_published_again_by_force():
    assert ask(REPLACED, pattern=WHOLE, asked=Asked(force=True, resuming=True)).action == "replace"


def test_a_slot_whose_table_nobody_replaced_is_not_superseded():
    with pytest.raises(ProofGone):
        ask(ENDED, pattern=WHOLE, asked=Asked(resuming=True))


def test_a_slice_is_never_superseded():
    with pytest.raises(ProofGone):
        ask(REPLACED, asked=Asked(resuming=True))


def test_keys_have_no_order_in_a_whole_table():
    assert ask(seen(receipt_of(slot_of("z"))), pattern=WHOLE, slot=slot_of("a")).action == "create"


# ------------------------------------------------------------------ the plan itself


def test_a_plan_has_one_step_that_publishes_after_the_one_that_stages():
    plan = ask(Sight())
    assert [step.name for step in plan.steps] == ["stage", "publish"]
    assert plan.publish.text == "replace the rows where day = 2024-09-20 and its receipt in one commit"


def test_only_a_whole_table_compares_the_head():
    assert [ask(Sight(), pattern=pattern).compares_head for pattern in (BY_DAY, WHOLE)] == [False, True]


def test_the_hash_of_a_plan_tells_what_it_saw():
    first = ask(Sight())
    others = [ask(seen(receipt_of(NEWER))), ask(Sight(), slot=NEWER), ask(Sight(outside="version 1"))]
    assert first.hash == ask(Sight()).hash
    assert first.hash not in [other.hash for other in others]


def test_a_plan_as_json_says_it_all():
    assert ask(PUBLISHED, fingerprint="others").to_json() == {
        "slot": SLOT.text,
        "target": "memory:lake/out",
        "pattern": "data_overwrite",
        "action": "replace",
        "reason": "the inputs changed",
        "companions": [],
        "starts_from": None,
        "pending": [],
        "generation": 2,
        "version_before": 0,
        "steps": [
            {"name": "stage", "does": "write the new rows where no reader looks"},
            {"name": "publish", "does": "replace the rows where day = 2024-09-20 and its receipt in one commit"},
        ],
        "rows_leave": [{"what": "the 3 rows of generation 1 of this slot", "asks": True}],
        "notes": [],
        "hash": ask(PUBLISHED, fingerprint="others").hash,
    }


ADOPTED = Sight(version=0, owner="me", data_version=0)
FOREIGN = Sight(version=0, filled=True, data_version=0)
FILES = "the 3 older rows of 'b.jsonl'"


@pytest.mark.parametrize(
    ("pattern", "sight", "changes", "losses"),
    [
        (BY_DAY, Sight(), {}, []),
        (BY_DAY, seen(receipt_of(NEWER), data_version=0), {}, []),
        (BY_DAY, PUBLISHED, {"fingerprint": "others"}, [("the 3 rows of generation 1 of this slot", True)]),
        (BY_DAY, FOREIGN, {"asked": FORCE}, [("rows that Twice did not write", True)]),
        (KeyedPartition(), FOREIGN, {"asked": FORCE}, [("rows that Twice did not write", True)]),
        (WHOLE, Sight(), {}, []),
        (WHOLE, ADOPTED, {}, [("the whole table, whose rows this pipeline did not publish", True)]),
        (WHOLE, FOREIGN, {"asked": FORCE}, [("the whole table, whose rows this pipeline did not publish", True)]),
        (WHOLE, seen(receipt_of(SLOT), data_version=0), {"slot": NEWER}, [("with the rows of 2024-09-20", False)]),
        (Merger(MergeRule(("id",))), ADOPTED, {}, []),
        (Merger(MergeRule(("id",), deleted="gone")), ADOPTED, {}, [("marks as deleted by 'gone'", False)]),
        (Merger(MergeRule(("id",), deleted="gone", soft=True)), ADOPTED, {}, []),
        (INGEST, PUBLISHED, {"takes_in": "new", "takes_away": FILES}, [(FILES, True)]),
        (INGEST, PUBLISHED, {"takes_in": "new"}, []),
        (INGEST, PUBLISHED, {}, []),
    ],
)
def test_a_plan_names_every_way_in_which_rows_leave(pattern, sight, changes, losses):
    if pattern is INGEST:
        sight = seen(replace(receipt_of(SLOT), marks="label"))
    plan = ask(sight, pattern=pattern, **changes)
    assert [(loss.what, loss.asks) for loss in plan.losses] == [(HasText(what), asks) for what, asks in losses]
    assert plan.destroys is any(asks for _, asks in losses)


class HasText(str):
    """Equal to whatever holds it."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        return str(self) in str(other)


def test_a_plan_for_no_table_has_no_version_before():
    assert ask(Sight()).to_json()["version_before"] is None


def test_the_past_of_a_table_begins_at_the_newest_version_for_everybody_who_asks():
    past = Past(State(version) for version in (3, 2, 1))
    first = iter(past.states)
    assert next(first).version == 3
    assert [state.version for state in past.states] == [3, 2, 1]
    assert [state.version for state in first] == [2, 1]


def test_an_older_version_of_a_table_is_read_when_somebody_asks_for_it():
    versions = iter([State(3), State(2)])
    assert next(iter(Past(versions).states)).version == 3
    assert next(versions).version == 2
