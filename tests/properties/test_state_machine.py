"""Any sequence of runs, deaths, corrections and meddling: Parquet and Delta against the memory model.

Two worlds do the same in step: one on the store under test, one on the memory store. After each
step both must have answered alike, and hold the same rows and the same receipts.
"""

import itertools

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import twice
from twice.faults import Died, LostReply, armed, dying_at
from twice.handovers import take_over
from worlds import World

DAYS = ("2024-09-20", "2024-09-21", "2024-09-22")
POINTS = (
    "intended",
    "stage.before",
    "stage.after",
    "looked.again",
    "publish.before",
    "publish.after",
    "read.back",
    "confirmed",
)
some_day = st.sampled_from(DAYS)
some_ids = st.lists(st.sampled_from("abcdef"), max_size=3, unique=True)


def attempt(world, act):
    """Return what an act ended in: a state, or the type of its error."""
    try:
        outcome = act(world)
    except (twice.TwiceError, Died) as error:
        return type(error).__name__
    return getattr(outcome, "state", "done")


class Repeated(RuleBasedStateMachine):
    """The rules are what happens to pipelines."""

    kind = "memory"
    spark = None
    folders = None

    @initialize()
    def fresh_worlds(self):
        place = next(self.folders)
        self.model = World(place / "model", "memory")
        self.real = World(place / "real", self.kind, self.spark)
        self.inputs = {}
        for number, day in enumerate(DAYS):
            self._put(day, [f"{number}"])

    def _put(self, day, ids):
        self.inputs[day] = sorted(ids)
        for world in (self.model, self.real):
            world.put(day, ids)

    def _both(self, act):
        expected, found = attempt(self.model, act), attempt(self.real, act)
        assert found == expected
        return found

    @rule(day=some_day, force=st.booleans())
    def run(self, day, force):
        ended = self._both(lambda world: world.run(day, force=force))
        if ended in ("published", "skipped"):
            # Success means that the rows are those of a clean run on the inputs as they are now.
            assert [one for one, where in self.real.rows() if where == day] == self.inputs[day]

    @rule(day=some_day, ids=some_ids)
    def change_input(self, day, ids):
        self._put(day, ids)

    @rule(day=some_day, point=st.sampled_from(POINTS), death=st.sampled_from([Died, LostReply]), force=st.booleans())
    def die(self, day, point, death, force):
        def act(world):
            with armed(dying_at(point, death)):
                return world.run(day, force=force)

        for world in (self.model, self.real):
            attempt(world, lambda w: _uncaught(act, w))

    @rule()
    def backfill(self):
        self._both(lambda world: twice.backfill(world.pipeline, DAYS[0], "2024-09-23", project=world.project))

    @rule()
    def lose_ledger(self):
        for world in (self.model, self.real):
            if (world.folder / ".twice/ledger.db").exists():
                world.lose_ledger()
            sight = take_over(world.store, world.project.ledger, world.target)
            world.project.ledger.rebuild(
                [f"{world.kind}:{world.target}"], [(r, sight.version) for r in sight.receipts.values()]
            )

    @precondition(lambda self: self.kind == "parquet")
    @rule()
    def tidy(self):
        self.real.tidy()

    @precondition(lambda self: self.kind == "delta" and self.real.sight().exists)
    @rule()
    def optimize(self):
        self.spark.sql(f"OPTIMIZE delta.`{self.real.table()}`")

    @precondition(lambda self: self.real.sight().exists)
    @rule(really=st.sampled_from([False, False, True]))
    def drop_by_hand(self, really):
        """Remove the whole table from outside: the ledger is then ahead of the store, in both worlds alike."""
        if really:
            self.model.drop()
            self.real.drop()

    @precondition(lambda self: self.kind == "delta" and self.model.sight().exists and self.real.rows())
    @rule(day=some_day)
    def meddle(self, day):
        """Delete a day's rows from outside: all proofs end, in both worlds alike, if there was a row."""
        if any(found == day for _, found in self.real.rows()):
            self.model.delete_by_hand(day)
            self.real.delete_by_hand(day)

    @invariant()
    def same_rows_and_receipts(self):
        if not hasattr(self, "real"):
            return
        assert self.real.rows() == self.model.rows()
        model, real = self.model.sight(), self.real.sight()
        assert _facts(real) == _facts(model)
        for day in DAYS:
            slot = self.real.slot(day)
            if real.proof(slot) and real.proof(slot).generation == model.fence(self.model.slot(day)):
                self._rows_fit_the_receipt(day, real)

    def _rows_fit_the_receipt(self, day, sight):
        found = [one for one, where in self.real.rows() if where == day]
        assert len(found) == sight.proof(self.real.slot(day)).rows
        assert len(found) == len(set(found))


def _uncaught(act, world):
    try:
        return act(world)
    except LostReply as error:
        raise Died(str(error)) from error


def _facts(sight):
    return {
        slot.split(":", 4)[4]: (receipt.generation, receipt.fingerprint, slot in sight.ended)
        for slot, receipt in sight.receipts.items()
    }


@pytest.mark.stores("memory", "parquet", "delta")
@pytest.mark.timeout(3000)
def test_any_sequence_ends_as_in_the_model(kind, session, quick):
    folders = (quick / str(number) for number in itertools.count())
    machine = type("Machine", (Repeated,), {"kind": kind, "spark": session, "folders": folders})
    examples, steps = {"memory": (20, 20), "parquet": (12, 15), "delta": (6, 12)}[kind]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
