"""Whatever happens to a stateful merger, its table is what the slots that it holds would have made in order.

The model keeps, for every slot, the rows that it was last published from. A step ends in the table that
merging them in order gives, or in a refusal that left the table alone.
"""

from contextlib import suppress
from datetime import date, timedelta
from random import Random

import pytest

import twice
from databases import table
from twice.backfills import backfill
from twice.decide import Asked
from twice.errors import TwiceError
from twice.faults import Died, armed, dying_at
from twice.handovers import take_over

DAYS = [f"2024-09-{day}" for day in range(20, 25)]
SCHEMA = "id string, v int, gone boolean"
POINTS = (
    "inputs.resolved",
    "lease.taken",
    "stage.after",
    "looked.again",
    "publish.before",
    "publish.after",
    "read.back",
    "confirmed",
)
STEPS = ["run"] * 5 + ["put"] * 5 + ["force", "backfill", "backfill", "die", "die", "die", "lose", "twin", "twin"]
STEPS += ["maintain", "maintain"]
BY_HAND = {"parquet": [], "postgres": ["meddle", "accept"]}
FOREIGN = "foreign"
FORMS = {
    "versions": twice.stateful_merger(keys=["id"], deleted="gone"),
    "each": twice.stateful_merger(keys=["id"], deleted="gone", visible="each"),
    "history": twice.stateful_merger(keys=["id"], deleted="gone", form="history"),
}
# Rows that somebody else had written before the table was taken over.
ADOPTED = [{"id": "a", "v": -1}, {"id": "b", "v": -2}, {"id": "x", "v": -3}]
STORIES = [*range(6), *(pytest.param(seed, marks=pytest.mark.prove) for seed in range(6, 40))]
LENGTH, SPARK_LENGTH = 14, 9


def merged(inputs, before):
    """Merge the rows of each slot in turn into what was there before."""
    table = dict(before)
    for day in sorted(inputs):
        for row in inputs[day]:
            if row["gone"]:
                table.pop(row["id"], None)
            else:
                table[row["id"]] = row["v"]
    return table


class Story:
    """One world, and what its slots were published from."""

    def __init__(self, world, random):
        self.world, self.random = world, random
        self.before = dict(world.table_rows("id", "v"))
        self.inputs = {}
        self.published = {}
        self.generations = {}
        self.is_ours = True
        self.accepted = False
        for day in DAYS:
            self.put(day)

    def table(self):
        """What is there; of a row from outside that somebody accepted nobody knows whether a replay took it away."""
        rows = self.world.table_rows("id", "v")
        assert len(dict(rows)) == len(rows)
        return {one: v for one, v in rows if one != FOREIGN or not self.accepted}

    def expected(self):
        """What the slots make that are shown; those that a replay has taken out are not back yet."""
        pending = self.world.sight().pending
        shown = {day: rows for day, rows in self.published.items() if self.world.slot(day) not in pending}
        return merged(shown, self.before)

    def put(self, day):
        ids = self.random.sample("abcdef", self.random.randint(0, 4))
        rows = [{"id": one, "v": self.random.randint(0, 9), "gone": self.random.random() < 0.25} for one in ids]
        self.inputs[day] = rows
        self.world.put_rows(day, rows)

    def tell(self, steps):
        for _ in range(steps):
            kinds = STEPS + BY_HAND.get(self.world.kind, ["meddle", "restore", "accept"])
            step, day = self.random.choice(kinds), self.random.choice(DAYS)
            before = self.table()
            try:
                getattr(self, f"on_{step}")(day)
            except TwiceError:
                self.learn()
                assert self.world.pattern.shows_each or self.table() == before, (step, day)
            else:
                self.learn()
            if self.is_ours:
                assert self.table() == self.expected(), (step, day)

    def learn(self):
        """See which slots were published since, and remember what from."""
        sight = self.world.sight()
        for day in DAYS:
            generation = sight.fence(self.world.slot(day))
            if generation != self.generations.get(day, 0):
                self.generations[day] = generation
                self.published[day] = self.inputs[day]
        if not sight.ended:
            self.is_ours = True

    # ---------------------------------------------------------------- steps

    def on_run(self, day):
        self.world.run(day)

    def on_put(self, day):
        self.put(day)
        self.world.run(day)

    def on_force(self, day):
        self.world.run(day, force=True)

    def on_backfill(self, day):
        force = self.random.random() < 0.3
        backfill(self.world.project, self.world.pipeline, day, "2024-09-25", Asked(force, resuming=True))

    def on_die(self, day):
        self.put(day)
        with armed(dying_at(self.random.choice(POINTS))), suppress(Died, TwiceError):
            self.world.run(day)
        self.world.reopen()
        self.learn()
        self.world.run(day)

    def on_twin(self, day):
        """Another driver publishes another slot while this one is about to."""
        other, done = self.random.choice(DAYS), []

        def hook(reached):
            if reached == "looked.again" and not done:
                done.append(reached)
                with suppress(TwiceError):
                    self.world.twin().run(other, force=True)

        with armed(hook):
            self.world.run(day, force=True)

    def on_lose(self, _):
        if not self.published:
            return
        self.world.lose_ledger()
        sight = take_over(self.world.store, self.world.project.ledger, self.world.target)
        found = [(receipt, sight.version) for receipt in sight.receipts.values()]
        self.world.project.ledger.rebuild([f"{self.world.kind}:{self.world.target}"], found)

    def on_maintain(self, _):
        """Small files become large ones, and what no version of now needs is removed: replays may be refused from then on."""
        if not self.published:
            return
        world, ended = self.world, self.world.sight().ended
        if world.kind == "delta":
            world.spark.sql(f"OPTIMIZE delta.`{world.table()}`")
            if self.random.random() < 0.3:
                with_spark_settings(world.spark, f"VACUUM delta.`{world.table()}` RETAIN 0 HOURS")
        else:
            world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
        assert world.sight().ended == ended

    def meddle(self):
        world = self.world
        if world.kind == "memory":
            kept = [row for row in world.records() if row["id"] != FOREIGN]
            world.memory.meddle(world.target, [*kept, {"id": FOREIGN, "v": 0}])
        elif world.database:
            world.database.execute(f"DELETE FROM {table(world.target)} WHERE id = '{FOREIGN}'")
            world.database.execute(f"INSERT INTO {table(world.target)} VALUES ('{FOREIGN}', 0)")
        else:
            world.spark.sql(f"DELETE FROM delta.`{world.table()}` WHERE id = '{FOREIGN}'")
            world.spark.sql(f"INSERT INTO delta.`{world.table()}` VALUES ('{FOREIGN}', 0)")

    def on_meddle(self, _):
        if self.published:
            self.meddle()
            self.heal(DAYS[-1])

    def on_accept(self, day):
        """Somebody says that a change from outside is right; slots that are published after it build on it."""
        if not self.published:
            return
        self.meddle()
        self.accepted = True
        self.world.run(day, accept=True)

    def on_restore(self, _):
        version = self.world.sight().version
        if version < 1:
            return
        self.world.restore_by_hand(self.random.randint(0, version - 1))
        self.heal(self.random.choice(DAYS))

    def heal(self, day):
        """Unforced, a new edition is refused; by force the table is what its slots say.

        A version from the middle of a replay says itself what is missing, and any run goes on from there.
        """
        self.is_ours = not self.world.sight().ended
        before = self.table()
        self.put(day)
        if not self.is_ours and not self.world.sight().pending:
            with pytest.raises(twice.Fenced):
                self.world.run(day)
            assert self.table() == before
        self.world.run(day, force=True)
        self.learn()
        assert self.is_ours


def with_spark_settings(spark, statement):
    """Let a statement throw old files away at once."""
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    session.sql(statement)


@pytest.fixture(params=FORMS)
def world(make_world, request):
    return make_world(pattern=FORMS[request.param], schema=SCHEMA)


def adopted(make_world, form):
    """Return a world whose table somebody else has filled."""
    world = make_world(pattern=FORMS[form], schema=SCHEMA)
    world.fill_by_hand(ADOPTED, "id string, v bigint" if world.database else "id string, v int")
    take_over(world.store, world.project.ledger, world.target)
    return world


@pytest.mark.stores("memory")
@pytest.mark.parametrize("seed", STORIES)
def test_any_story_ends_in_the_table_that_its_slots_make(world, seed):
    Story(world, Random(seed)).tell(LENGTH)


@pytest.mark.stores("memory")
@pytest.mark.parametrize("form", ["versions", "history"])
@pytest.mark.parametrize("seed", STORIES)
def test_any_story_of_an_adopted_table_ends_in_what_was_there_and_its_slots(make_world, form, seed):
    Story(adopted(make_world, form), Random(seed)).tell(LENGTH)


@pytest.mark.stores("postgres")
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.prove) for seed in range(3, 20))])
def test_a_story_of_an_adopted_table_in_a_database(make_world, seed):
    Story(adopted(make_world, "history"), Random(seed)).tell(LENGTH)


@pytest.mark.stores("parquet", "delta")
@pytest.mark.parametrize("seed", [7])
def test_a_story_on_a_real_store_ends_in_the_table_that_its_slots_make(world, seed):
    Story(world, Random(seed)).tell(SPARK_LENGTH)


def test_four_hundred_slots_are_done_again_in_one_publish(make_world):
    """However many batches there are, one row a key is joined with the table."""
    world = make_world(pattern=twice.stateful_merger(keys=["id"]), schema="id string, v int", start="2023-01-01")
    days = [(date(2023, 1, 1) + timedelta(days=number)).isoformat() for number in range(401)]
    rows = [[{"id": f"shared {n % 37}", "v": n}, {"id": f"own {n}", "v": n}] for n in range(400)]
    for day, batch in zip(days, rows, strict=False):
        world.put_rows(day, batch)
    backfill(world.project, world.pipeline, days[0], days[-1], Asked(force=True, resuming=True))
    rows[1] = [{"id": "late", "v": 1}]
    world.put_rows(days[1], rows[1])
    before = world.sight().version
    assert len(world.run(days[1]).along) == 399
    assert world.sight().version == before + 1
    assert dict(world.table_rows("id", "v")) == {row["id"]: row["v"] for batch in rows for row in batch}
