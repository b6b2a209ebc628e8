"""What do cut wires, killed servers and killed processes do to a table? Nothing: no row is lost, doubled or half seen.

`make test` tries a part of it, `--every-kill` all. Counts and seeds are printed. No JVM: the driver holds the rows.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import psycopg
import pytest

import twice
from databases import Database, table
from killed import killed_worker
from postgres_torn import Reader
from twice.errors import Busy, Fenced, Misuse, NotPublished, OutcomeUnknown, TwiceError
from twice.faults import armed, recording
from twice.prover.wires import AFTER, BEFORE, CUTS, SILENT_BEFORE, Wire
from twice.servers.postgres import PostgresServer
from worlds import World

DAYS = ("2024-09-20", "2024-09-21", "2024-09-22")
SIZE = 20
SEED = 20240920
SECRET = "correct-horse"


@dataclass
class Through(Database):
    """The same database, behind a wire or with settings of its own."""

    way: str = ""

    @property
    def url(self):
        return self.way


@pytest.fixture(scope="module")
def own_server():
    with PostgresServer() as server:
        yield server


@pytest.fixture
def tries(request):
    """Return how often something is tried: a part of it unless all was asked for."""
    every = request.config.getoption("--every-kill")
    return lambda whole, part: whole if every else part


@pytest.fixture
def database(postgres_server):
    return Database.made(postgres_server)


class Story:
    """Editions of days, one after the other, and what the table has to hold after each."""

    def __init__(self, world, seed):
        self.world, self.chance, self.number = world, random.Random(seed), 0
        self.wanted = {}

    def next_edition(self):
        self.number += 1
        day = self.chance.choice(DAYS)
        self.wanted[day] = [f"{self.number}:{row}" for row in range(SIZE)]
        self.world.put(day, self.wanted[day])
        return day

    def check(self, direct):
        found = {}
        for one, day in direct.execute(f"SELECT id, day::text FROM {table(self.world.target)}"):
            found.setdefault(day, []).append(one)
        assert {day: sorted(ids) for day, ids in found.items()} == {
            day: sorted(ids) for day, ids in self.wanted.items()
        }, f"edition {self.number}"

    def check_ledger(self):
        published = {receipt.slot: receipt.generation for receipt, _ in self.world.project.ledger.published()}
        fences = {slot: receipt.generation for slot, receipt in self.world.sight().receipts.items()}
        assert published == fences


def told(outcomes, what):
    print(f"\n{what}, seed {SEED}: {sum(outcomes.values())} tries, {dict(outcomes)}")


# ------------------------------------------------------------------ the way is cut


@pytest.mark.parametrize(
    "pattern",
    [twice.data_overwrite(slice="day"), twice.data_overwrite(partitions=["day"])],
    ids=["slice", "partitions"],
)
def test_cuts_around_commit_lose_and_double_nothing(database, tmp_path, tries, pattern):
    outcomes = Counter()
    with Wire.to(database.url) as wire:
        far = Through(database.server, database.name, wire.through(database.url))
        world = World(tmp_path / "world", "postgres", database=far, pattern=pattern)
        story = Story(world, SEED)
        world.run(story.next_edition())
        with Reader(database.url, table(world.target), SIZE) as reader:
            for _ in range(tries(100, 12)):
                how, day = story.chance.choice(CUTS), story.next_edition()
                fault = wire.expect(how, having="twice_receipts")
                try:
                    state = world.run(day).state
                except OutcomeUnknown:
                    state = "unknown"
                assert fault.done.is_set()
                # What surely landed is found by its receipt; what surely did not is never said to be there.
                assert state == "published" if how == AFTER else True
                assert state == "unknown" if how == BEFORE else True
                outcomes[f"{how}: {state}"] += 1
                assert world.run(day).state == ("skipped" if state == "published" else "published") or how not in (
                    AFTER,
                    BEFORE,
                )
                story.check(database)
        story.check_ledger()
    told(outcomes, f"cuts around COMMIT ({reader.polls} polls of a reader)")


def test_a_cut_append_is_added_once(database, tmp_path, tries):
    outcomes, chance = Counter(), random.Random(SEED)
    with Wire.to(database.url) as wire:
        far = Through(database.server, database.name, wire.through(database.url))
        world = World(tmp_path / "world", "postgres", database=far, pattern=twice.transactional_writer())
        for number in range(tries(30, 6)):
            day = f"2024-09-{number + 1:02d}"
            world.put(day, [f"{number}:{row}" for row in range(SIZE)])
            if number:  # the first run makes the tables
                how = chance.choice(CUTS)
                fault = wire.expect(how, having="twice_receipts")
                try:
                    outcomes[f"{how}: {world.run(day).state}"] += 1
                except OutcomeUnknown:
                    outcomes[f"{how}: unknown"] += 1
                assert fault.done.is_set()
            world.run(day)
            found = database.execute(f"SELECT count(*), count(DISTINCT id) FROM {table(world.target)}")
            assert found == [((number + 1) * SIZE, (number + 1) * SIZE)]
    told(outcomes, "cut appends")


def test_a_connection_that_is_half_open_frees_its_locks_and_the_sleeper_is_refused(database, tmp_path):
    with Wire.to(database.url) as wire:
        short = "?options=-c%20idle_in_transaction_session_timeout%3D500"
        far = Through(database.server, database.name, wire.through(database.url) + short)
        world = World(tmp_path / "world", "postgres", database=far)
        for day in DAYS:
            world.put(day, ["0:first"])
            world.run(day)
        world.put(DAYS[0], ["1:sleeper"])
        ended = []

        def sleep():
            try:
                ended.append(world.run(DAYS[0]).state)
            except TwiceError as error:
                ended.append(error)

        fault = wire.expect(SILENT_BEFORE, having="twice_receipts")
        sleeper = threading.Thread(target=sleep)
        sleeper.start()
        assert fault.done.wait(20)
        other = world.twin(database=database)
        other.put(DAYS[0], ["2:other"])
        since = time.monotonic()
        assert other.run(DAYS[0]).state == "published"
        assert time.monotonic() - since < 15
        assert sleeper.is_alive()
        wire.hang_up()
        sleeper.join(20)
        assert isinstance(ended[0], Fenced | NotPublished | OutcomeUnknown), ended
        assert other.by_day()[DAYS[0]] == ["2:other"]


def test_a_slow_wire_is_only_slow(database, tmp_path):
    with Wire.to(database.url) as wire:
        wire.delay_seconds = 0.003
        world = World(
            tmp_path / "world", "postgres", database=Through(database.server, database.name, wire.through(database.url))
        )
        story = Story(world, SEED)
        for _ in range(3):
            assert world.run(story.next_edition()).state == "published"
            story.check(database)


# ------------------------------------------------------------------ the server is killed


def points_of(world, story):
    reached = []
    with armed(recording(reached)):
        world.run(story.next_edition())
    return [point for point in reached if not point.startswith("lease")]


def test_a_server_that_is_killed_at_any_moment_has_all_or_nothing(own_server, tmp_path, tries):
    outcomes = Counter()
    direct = Database.made(own_server)
    world = World(tmp_path / "world", "postgres", database=direct)
    story = Story(world, SEED)
    world.run(story.next_edition())
    points = points_of(world, story)
    with Reader(direct.url, table(world.target), SIZE) as reader:
        for _ in range(tries(50, 6)):
            fatal, day = story.chance.choice(points), story.next_edition()

            def hook(point, fatal=fatal):
                if point == fatal and own_server.pid:
                    own_server.kill()

            try:
                with armed(hook):
                    state = world.run(day).state
            except TwiceError as error:
                state = type(error).__name__
            own_server.kill()
            own_server.start()
            outcomes[state] += 1
            assert world.run(day).state in ("published", "skipped")
            story.check(direct)
    story.check_ledger()
    told(outcomes, f"server kills ({reader.polls} polls of a reader)")


# ------------------------------------------------------------------ the process is killed


def test_killed_processes_lose_and_double_nothing_and_leave_nothing(database, tmp_path, tries):
    outcomes = Counter()
    world = World(tmp_path / "world", "postgres", database=database)
    story = Story(world, SEED)
    world.run(story.next_edition())
    points = points_of(world, story)
    before = relations(database)
    with Reader(database.url, table(world.target), SIZE) as reader:
        for _ in range(tries(500, 30)):
            day = story.next_edition()
            by_time = story.chance.random() < 0.3
            fatal = "" if by_time else story.chance.choice(points)
            code = killed_worker(
                lambda day=day: world.run(day), fatal, story.chance.uniform(0.005, 0.1) if by_time else 0
            )
            outcomes["killed" if code == -signal.SIGKILL else f"ended with {code}"] += 1
            assert code in (0, -signal.SIGKILL)
            assert world.run(day).state in ("published", "skipped")
            story.check(database)
    story.check_ledger()
    world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    assert relations(database) == before
    told(outcomes, f"process kills ({reader.polls} polls of a reader)")


def relations(database):
    """Return all tables that are there, temporary ones too."""
    return database.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p', 'v') AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2"
    )


# ------------------------------------------------------------------ the server says no


@pytest.fixture
def filled(database, tmp_path):
    world = World(tmp_path / "world", "postgres", database=database)
    world.put(DAYS[0], ["a", "b"])
    world.run(DAYS[0])
    world.put(DAYS[0], ["c"])
    return world


def test_a_server_without_a_free_connection_fails_the_run_and_the_next_one_works(tmp_path):
    few = {"max_connections": "8", "superuser_reserved_connections": "0", "max_wal_senders": "0"}
    with PostgresServer(settings=few) as server:
        database = Database.made(server)
        world = World(tmp_path / "world", "postgres", database=database)
        world.put(DAYS[0], ["a"])
        held = []
        with suppress(psycopg.OperationalError):
            while True:
                held.append(psycopg.connect(database.url))
        with pytest.raises(NotPublished, match=r"could not be reached(.|\n)*too many clients"):
            world.run(DAYS[0])
        for one in held:
            one.close()
        assert world.run(DAYS[0]).state == "published"


def test_a_statement_that_takes_too_long_publishes_nothing(filled, database):
    limited = filled.twin(
        database=Through(database.server, database.name, database.url + "?options=-c%20statement_timeout%3D400")
    )
    with psycopg.connect(database.url) as other:
        other.execute(f"LOCK TABLE {table(filled.target)}")
        with pytest.raises((NotPublished, Busy)) as refused:
            limited.run(DAYS[0])
    assert "statement timeout" in str(refused.value)
    assert filled.by_day() == {DAYS[0]: ["a", "b"]}
    assert limited.run(DAYS[0]).state == "published"


def test_a_lock_that_is_not_to_be_had_is_told_and_publishes_nothing(filled, database):
    impatient = filled.twin(
        database=Through(database.server, database.name, database.url + "?options=-c%20lock_timeout%3D300")
    )
    with psycopg.connect(database.url) as other:
        other.execute(f"LOCK TABLE {table(filled.target)}")
        with pytest.raises((NotPublished, Busy), match="lock"):
            impatient.run(DAYS[0])
    assert filled.by_day() == {DAYS[0]: ["a", "b"]}
    assert impatient.run(DAYS[0]).state == "published"


def test_a_standby_is_refused(own_server, tmp_path):
    database = Database.made(own_server)
    world = World(tmp_path / "world", "postgres", database=database)
    world.put(DAYS[0], ["a"])
    world.run(DAYS[0])
    with own_server.copy_as_standby() as standby:
        lagging = world.twin(database=Database(standby, database.name))
        with pytest.raises(Misuse, match="it is a standby"):
            lagging.run(DAYS[0])


@pytest.fixture
def role(database):
    """Return a role that may log in and no more, and the address of the database for it."""
    name = f"twice_role_{os.getpid()}_{time.monotonic_ns()}"
    database.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{SECRET}'")
    mine = database.url.split("//")[1].split("@")[0]
    yield name, database.url.replace(mine, f"{name}:{SECRET}")
    database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_role_that_may_only_read_is_refused(filled, database, role):
    name, url = role
    database.execute(f"ALTER ROLE {name} SET default_transaction_read_only = on")
    with pytest.raises(Misuse, match="set to read only"):
        filled.twin(database=Through(database.server, database.name, url)).run(DAYS[0])


@pytest.mark.parametrize(
    ("granted", "missing"),
    [
        ([], "twice_heads"),
        (["ALL ON twice_heads, twice_receipts, twice_changes"], "lake__out"),
        (["ALL ON twice_heads, twice_receipts, twice_changes", "SELECT, INSERT ON lake__out"], "lake__out"),
    ],
    ids=["nothing", "the books", "no delete"],
)
def test_a_role_without_a_right_is_told_which_one(filled, database, role, granted, missing):
    name, url = role
    for right in granted:
        database.execute(f"GRANT {right} TO {name}")
    limited = filled.twin(database=Through(database.server, database.name, url))
    with pytest.raises(Misuse, match=rf"lacks a right(.|\n)*{missing}(.|\n)*GRANT .* TO <role>") as refused:
        limited.run(DAYS[0])
    assert SECRET not in str(refused.value)
    assert filled.by_day() == {DAYS[0]: ["a", "b"]}


def test_a_role_that_may_not_make_tables_is_told_so(database, role, tmp_path):
    _, url = role
    world = World(
        tmp_path / "world", "postgres", database=Through(database.server, database.name, url), target="lake/out"
    )
    world.put(DAYS[0], ["a"])
    with pytest.raises(Misuse, match="GRANT USAGE, CREATE ON SCHEMA") as refused:
        world.run(DAYS[0])
    assert SECRET not in str(refused.value)
