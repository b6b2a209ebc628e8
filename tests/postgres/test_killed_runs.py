"""Is a run that was really killed taken up again as it was asked for? On PostgreSQL, in a process of its own."""

import signal
from datetime import UTC, datetime, timedelta

import pytest

import twice
from databases import Database
from killed import killed_worker
from twice.decide import Asked
from twice.retrying import fill_slot, retry_due
from ways_after_failures import trying
from worlds import World

DAY = "2024-09-20"

pytestmark = pytest.mark.postgres


@pytest.fixture
def world(tmp_path, postgres_server):
    made = World(tmp_path / "world", "postgres", database=Database.made(postgres_server))
    made.put(DAY, ["a"])
    return made


def by_the_job(world, pipeline):
    (ended,) = retry_due(world.project, datetime.now(UTC) + timedelta(hours=1))
    return ended.outcome


def by_a_walk(world, pipeline):
    return fill_slot(world.project, pipeline, pipeline.slot(DAY), Asked(resuming=True, by_calendar=True))


@pytest.mark.parametrize("taken_up", [by_the_job, by_a_walk])
@pytest.mark.parametrize(
    ("point", "state"), [("lease.taken", "published"), ("publish.before", "published"), ("publish.after", "skipped")]
)
def test_a_forced_run_that_got_sigkill_is_forced_again_unless_it_landed(world, point, state, taken_up):
    pipeline = trying(world)
    twice.run(pipeline, at=DAY, project=world.project)

    def forced():
        twice.run(pipeline, at=DAY, force=True, project=world.project)

    assert killed_worker(forced, point) == -signal.SIGKILL
    outcome = taken_up(world, pipeline)
    assert (outcome.state, outcome.generation) == (state, 2)
    assert list(retry_due(world.project, datetime.now(UTC) + timedelta(hours=9))) == []
    assert world.sight().fence(world.slot(DAY)) == 2
    assert world.rows() == [("a", DAY)]
