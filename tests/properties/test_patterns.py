"""Any story, told to plain dicts, to the memory store and to a real one: all three end alike.

The dicts (oracle.py) judge the memory store in many short stories, without a JVM. Parquet and Delta are
compared with both in one long story a pattern, which is always the same.
"""

import itertools
from copy import deepcopy
from datetime import date
from random import Random

import pyarrow as pa
import pytest
from oracle import LeftOut, Lost, Refused
from stories import CASES, DAYS, SCHEMA, story

import twice
from twice.errors import TwiceError
from twice.faults import Died, LostReply, armed
from twice.handovers import take_over
from worlds import World, needing, once_at

INSIDE = {
    "memory": {"landing": "memory.publish", "landed": "publish.after"},
    "parquet": {"landing": "parquet.manifest.written", "landed": "parquet.manifest.linked"},
    "delta": {"landing": "delta.locked", "landed": "delta.committed"},
    "postgres": {"landing": "postgres.commit.before", "landed": "postgres.commit.after"},
}
STORIES, LENGTH, SPARK_LENGTH, DATABASE_STORIES = 10, 12, 5, 2
ARROW = pa.schema(
    [("id", pa.string()), ("v", pa.string()), ("n", pa.int64()), ("gone", pa.bool_()), ("day", pa.date32())]
)
# A reply can be lost only between a publish that was sent and its answer.
LOSABLE = ("landing", "landed", "publish.after")


class Told:
    """One story, told to an oracle and to the worlds in step."""

    def __init__(self, case, worlds, kind):
        self.case, self.worlds, self.kind = case, worlds, kind
        self.oracle = case.oracle()
        self.states = []
        self.fingerprints = {}
        self.heard = set()

    def tell(self, steps):
        for step in steps:
            before = deepcopy(self.oracle)
            try:
                getattr(self, f"on_{step[0]}")(*step[1:])
            except LeftOut:
                self.oracle = before
            if step[0] != "put":
                self.compare()

    # ---------------------------------------------------------------- steps

    def on_put(self, day, rows):
        self.oracle.put(day, dated(rows))
        for world in self.worlds:
            world.put_rows(day, rows)

    def on_run(self, day, force, accept):
        expected = asked(lambda: self.oracle.run(day, force=force, accept=accept))
        self._all(expected, lambda world: world.run(day, force=force, accept=accept))

    def on_die(self, day, force, point, how):
        lost = how == "LostReply" and point in LOSABLE

        def die(reached):
            if reached == point:
                raise Lost if lost else Died

        expected = asked(lambda: self.oracle.run(day, force=force, hook=die))

        def act(world):
            with armed(self._dying(world, point, LostReply if lost else Died)):
                return world.run(day, force=force)

        self._all(expected, act)
        self.compare()
        self.tell([("run", day, False, False)])

    def _dying(self, world, point, how):
        """Die at a point; one inside of a publish counts only once the publish has begun."""
        kind = "parquet" if world.kind == "delta" and self.case.besides == ("point",) else world.kind
        fatal, begun = INSIDE[kind].get(point, point), []

        def die(reached):
            begun.extend([reached] * (reached == "publish.before"))
            if reached == fatal and (begun or point not in INSIDE[kind]):
                raise how

        return die

    def on_twin(self, day, force, point, other, other_force, rows):
        if point == "inputs.resolved" and (other == day or self.oracle.companions(other, self.oracle.table(day))):
            # The run has looked at the store and not yet at the ledger, which then knows more: it says that the
            # ledger is ahead, although the store has it all.
            return
        if self.kind == "delta" and self._depends_on_the_second_look(day, force, point, other, other_force, rows):
            return
        answers = []
        between = told_between(self.oracle, other, other_force, rows, answers)
        expected = asked(lambda: self.oracle.run(day, force=force, hook=once_at(point, between)))
        self._hear("twin" if answers else "", expected, *answers)
        for world in self.worlds:
            found = []

            def meanwhile(world=world, found=found):
                if rows is not None:
                    world.put_rows(other, rows)
                twin = world.twin()
                found.append(answer_of(lambda: twin.run(other, force=other_force)))

            def act(meanwhile=meanwhile, world=world):
                with armed(once_at(point, meanwhile)):
                    return world.run(day, force=force)

            agree(expected, answer_of(act), world)
            for one, another in zip(answers, found, strict=True):
                agree(one, another, world)

    def _depends_on_the_second_look(self, day, force, point, other, other_force, rows):
        """Tell whether two orders are right: Delta alone compares a merge that changes nothing once more."""
        seen = []
        for looks_twice in (False, True):
            oracle = deepcopy(self.oracle)
            oracle.looks_twice = looks_twice
            hook = once_at(point, told_between(oracle, other, other_force, rows, []))
            asked(lambda oracle=oracle, hook=hook: oracle.run(day, force=force, hook=hook))
            seen.append(table_text(oracle.seen()))
        return seen[0] != seen[1]

    def on_forget(self):
        """The ledger is lost: targets are another's until it is rebuilt from them."""
        owned = [day for day in DAYS if self.oracle.table(day).noted]
        for world in self.worlds:
            if (world.folder / ".twice/ledger.db").exists():
                world.lose_ledger()
            if owned:
                assert answer_of(lambda world=world: world.run(owned[0])) == "Stranger"
            sight = take_over(world.store, world.project.ledger, world.target)
            found = [(receipt, sight.version) for receipt in sight.receipts.values()]
            world.project.ledger.rebuild([f"{world.kind}:{world.target}"], found)
        self._hear("forget")
        self.oracle.forget()

    def on_tidy(self):
        for world in self.worlds:
            # Delta's own vacuum is slow, and keeps files for a week: only a view of versions is ours to sweep.
            if world.kind != "delta" or self.case.besides == ("point",):
                world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)

    def on_meddle(self, day):
        there = any(row["day"] == date.fromisoformat(day) for row in self.oracle.seen())
        if not there:
            return
        self._hear("meddle")
        self.oracle.meddle(day)
        for world in self.worlds:
            world.delete_by_hand(day)

    def on_restore(self, number):
        if not self.states:
            return
        versions, old = self.states[number % len(self.states)]
        self._hear("restore")
        self.oracle.restore(old)
        for world, version in zip(self.worlds, versions, strict=True):
            world.restore_by_hand(version)

    def on_point(self, number):
        table = self.oracle.table(DAYS[0])
        if not table.editions:
            return
        chosen = number % len(table.editions)
        self._hear("point")
        self.oracle.point(chosen)
        for world in self.worlds:
            target = f"{world.kind}:{world.target}"
            name = twice.versions(target, project=world.project)[chosen].name
            twice.point(target, name, project=world.project)

    # ---------------------------------------------------------------- comparing

    def _hear(self, *answers):
        """Note what happened, and after how much had happened to the slots before."""
        editions = tuple(sorted(one.generation for one in self.oracle.noted().values()))
        self.heard |= {(editions, bool(self.oracle.ended()), *map(str, answers)), str(answers[0])}

    def _all(self, expected, act):
        self._hear(expected)
        for world in self.worlds:
            agree(expected, answer_of(lambda world=world: act(world)), world)

    def compare(self):
        noted = self.oracle.noted()
        for world in self.worlds:
            sight = world.sight()
            days = {world.slot(day): day for day in DAYS}
            found = {days[slot]: receipt for slot, receipt in sight.receipts.items()}
            assert {day: one.generation for day, one in found.items()} == {
                day: one.generation for day, one in noted.items()
            }, world.kind
            for day, one in noted.items():
                assert one.rows in (None, found[day].rows), world.kind
            assert {days[slot] for slot in sight.ended} == self.oracle.ended(), world.kind
            for slot, receipt in sight.receipts.items():
                key = (days[slot], noted[days[slot]].content)
                assert self.fingerprints.setdefault(key, receipt.fingerprint) == receipt.fingerprint
            assert table_text(self._rows(world, days)) == table_text(self.oracle.seen()), world.kind
            if self.case.besides == ("point",) and noted:
                self._compare_versions(world, days)
        assert len(set(self.fingerprints.values())) == len(self.fingerprints)
        if "restore" in self.case.besides and self.kind != "parquet" and noted:
            versions = [world.sight().version for world in self.worlds]
            self.states.append((versions, deepcopy(self.oracle.table(DAYS[0]))))

    def _compare_versions(self, world, days):
        table = self.oracle.table(DAYS[0])
        found = twice.versions(f"{world.kind}:{world.target}", project=world.project)
        expected = [
            (one.day, one.generation, len(one.rows), number == table.current)
            for number, one in enumerate(table.editions)
        ]
        assert [(days[one.slot], one.generation, one.rows, one.current) for one in found] == expected, world.kind

    def _rows(self, world, days):
        lineage = self.case.lineage
        return [row | ({lineage: days[row[lineage]]} if lineage else {}) for row in world.records()]


def dated(rows):
    """Return rows of a story as a reader sees them."""
    return [row | {"day": date.fromisoformat(row["day"]) if row["day"] else None} for row in rows]


def told_between(oracle, day, force, rows, answers):
    """Return what a twin does while a run is half way: it may find other rows, and it runs a slot."""

    def act():
        if rows is not None:
            oracle.put(day, dated(rows))
        answers.append(asked(lambda: oracle.run(day, force=force)))

    return act


def asked(act):
    """Return what the oracle says a run ends in."""
    try:
        return act()
    except Refused as error:
        return str(error)
    except Died:
        return "Died"


def answer_of(act):
    """Return what a run ended in: its outcome, or the name of its error."""
    try:
        return act()
    except (TwiceError, Died) as error:
        return type(error).__name__


def agree(expected, found, world):
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected, world.kind
        return
    assert (found.state, found.generation) == (expected.state, expected.generation), world.kind
    assert expected.rows in (None, found.rows), world.kind
    # PostgreSQL counts while it publishes, so with the reply the counts are lost.
    told = [note for note in found.notes if note.startswith("inserted")]
    assert not expected.note or expected.note in found.notes or (world.database and not told)


def table_text(rows):
    return sorted(str(sorted(row.items())) for row in rows)


def tell(case, kind, session, folder, steps, database=None):
    """Tell a story to fresh worlds."""
    kinds = ["memory"] if kind == "memory" else ["memory", kind]
    worlds = [
        World(folder / one, one, None if one == "memory" else session, pattern=case.pattern(), schema=SCHEMA)
        for one in kinds
    ]
    if database:
        worlds[-1].database, worlds[-1].transform = database, typed
        worlds[-1].reopen()
    Told(case, worlds, kind).tell(steps)


def typed(rows):
    """Return the rows of a story in the types that they have: a column of NULL alone would not tell."""
    return pa.Table.from_pylist(rows, ARROW)


def richest(name, kind):
    """Return the story in which most happens, by what the oracle alone says."""

    def richness(steps):
        told = Told(CASES[name], [], kind)
        told.tell(steps)
        return len(told.heard)

    stories = (story(Random(f"{name} {seed}"), CASES[name], SPARK_LENGTH, kind) for seed in range(60))
    return max(stories, key=richness)


def trouble_in(steps, teller):
    """Return what goes wrong in a story, or nothing."""
    try:
        teller(steps)
    except Exception as error:  # noqa: BLE001 - any error is a story that ends badly
        return error
    return None


def shortened(steps, teller):
    """Leave out steps one by one, as long as the story still ends badly in the same way."""
    how = type(trouble_in(steps, teller))
    for number in reversed(range(len(steps))):
        without = steps[:number] + steps[number + 1 :]
        if isinstance(trouble_in(without, teller), how):
            steps = without
    return steps


def check(steps, teller):
    trouble = trouble_in(steps, teller)
    if trouble:
        short = shortened(steps, teller)
        raise AssertionError("\n".join(["This story ends badly:", *map(str, short)])) from trouble_in(short, teller)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.stores("memory")
def test_memory_does_what_plain_dicts_do(kind, name, quick):
    case, numbers = CASES[name], itertools.count()
    for seed in range(STORIES):
        check(
            story(Random(f"{name} {seed}"), case, LENGTH),
            lambda steps: tell(case, "memory", None, quick / str(next(numbers)), steps),
        )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.stores("parquet", "delta")
@pytest.mark.timeout(600)
def test_stores_do_what_memory_does(kind, name, session, quick):
    # Not shortened: with Spark that would take long.
    tell(CASES[name], kind, session, quick, richest(name, kind))


@pytest.mark.parametrize("name", [pytest.param(name, marks=needing(case.pattern())) for name, case in CASES.items()])
@pytest.mark.stores("postgres")
@pytest.mark.timeout(600)
def test_postgres_does_what_plain_dicts_do(kind, name, quick, new_database):
    for seed in range(DATABASE_STORIES):
        steps = story(Random(f"{name} {seed}"), CASES[name], LENGTH, kind)
        tell(CASES[name], kind, None, quick / str(seed), steps, new_database())
