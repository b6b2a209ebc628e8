"""Does a backfill do what was said before it? On memory, no JVM."""

from datetime import UTC, datetime

import pytest

import twice
from twice.backfills import fill, is_one_publish, slots_between
from twice.decide import Asked
from twice.errors import TwiceError
from twice.faults import LostReply, armed, dying_at
from twice.forecasts import outlook
from ways_after_failures import trying
from worlds import World

DAYS = [f"2024-09-{day}" for day in range(20, 26)]
SHAPES = {
    "slice": twice.data_overwrite(slice="day"),
    "partitions": twice.data_overwrite(partitions=["day"]),
    "table": twice.data_overwrite(),
    "merger": twice.merger(keys=["id"]),
    "stateful": twice.stateful_merger(keys=["id"]),
    "stateful, each": twice.stateful_merger(keys=["id"], visible="each"),
    "stateful, history": twice.stateful_merger(keys=["id"], form="history"),
    "dedup": twice.dedup_insert(keys=["id"]),
    "append": twice.transactional_writer(lineage="slot"),
    "proxy": twice.proxy(),
    "cleaner": twice.fast_metadata_cleaner(period="week"),
    "rows": twice.keyed(keys=["id"]),
    "tables": twice.keyed(table="{start:%Y%m%d}"),
}
STORIES = {
    "new": ((), (), ()),
    "half": (DAYS[:3], (), ()),
    "corrected": (DAYS, DAYS[1:3], ()),
    "late": (DAYS[:2] + DAYS[3:], (), ()),
    "lost": (DAYS[:2], (), DAYS[3:4]),
    "corrected and lost": (DAYS[:5], DAYS[1:2], DAYS[3:4]),
    "fine": (DAYS, (), ()),
}
ENDS = {"create": "published", "replace": "published", "merge": "published", "replay": "published", "skip": "skipped"}


def state(ended):
    return ended.outcome.state if ended.outcome else "refused"


@pytest.mark.parametrize("force", [False, True], ids=["", "forced"])
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_backfill_does_what_its_outlook_said(tmp_path, shape, story, force):
    world = World(tmp_path / "world", "memory", pattern=SHAPES[shape])
    published, corrected, lost = STORIES[story]
    for day in DAYS:
        world.put(day, [f"of {day}"])
    for day in published:
        try:
            world.run(day)
        except TwiceError:
            continue  # a whole table takes no older slot
    for day in corrected:
        world.put(day, [f"corrected {day}"])
    for day in lost:
        (world.folder / f"landing/{day}.jsonl").unlink()
    slots = slots_between(world.pipeline, DAYS[0], "2024-09-26", datetime.now(UTC))
    asked = Asked(force, resuming=True)
    before = world.sight()
    said = outlook(world.project, world.pipeline, slots, asked)
    assert world.sight() == before
    ends = list(fill(world.project, world.pipeline, slots, asked))
    told = {found.slot: ENDS.get(found.action, "refused") for found in said.slots}
    assert [found.slot for found in said.slots] == slots
    assert {ended.slot: state(ended) for ended in ends} == {ended.slot: told[ended.slot] for ended in ends}
    assert all(told[slot] == "refused" for slot in slots[len(ends) :])
    assert [type(error) for error in said.errors] == [type(ended.error) for ended in ends if ended.error]
    if said.publish:
        assert world.sight().version == before.version + 1
        new = {slot for slot, receipt in world.sight().receipts.items() if before.fence(slot) < receipt.generation}
        assert {slot.text for slot in said.publish.slots} == new
    elif is_one_publish(world.pipeline):
        assert world.sight().version == before.version


def failed(world, day, *, tries):
    """Let a day fail; with one try it is set aside."""
    pipeline = trying(world, tries=tries, wait="10 minutes")
    with armed(dying_at("rows.ready", LostReply)), pytest.raises(twice.NotPublished):
        twice.run(pipeline, at=day, project=world.project)
    return pipeline


@pytest.mark.parametrize("first", [DAYS[0], DAYS[1]], ids=["from the failed slot", "after it"])
@pytest.mark.parametrize("tries", [1, 5], ids=["dead", "due"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_held_behind_a_failed_slot_is_said_before(tmp_path, shape, tries, first):
    world = World(tmp_path / "world", "memory", pattern=SHAPES[shape])
    for day in DAYS:
        world.put(day, [f"of {day}"])
    pipeline = failed(world, DAYS[0], tries=tries)
    slots = slots_between(pipeline, first, "2024-09-26", datetime.now(UTC))
    said = outlook(world.project, pipeline, slots, Asked(resuming=True))
    ends = list(fill(world.project, pipeline, slots, Asked(resuming=True)))
    assert [type(error) for error in said.errors] == [type(ended.error) for ended in ends if ended.error]
    if first == DAYS[0]:
        assert said.slots[0].notes[-1].startswith("it was set aside" if tries == 1 else "it failed and is due again")
        assert said.slots[0].notes[-1].endswith("this run takes it up")
        assert not said.errors
    elif pipeline.pattern.in_order:
        held, *others = said.slots
        assert (held.action, held.reason) == ("held", ends[0].error.what)
        way = f"twice dead requeue out --at {DAYS[0]}T00:00Z" if tries == 1 else f"twice run out --at {DAYS[0]}T00:00Z"
        assert way in held.to_json()["fix"]
        assert {found.reason for found in others} == {f"the backfill would end at {held.slot.label}"}
        assert said.counts == {"held": 1, "refused": 4}


def test_a_forced_run_that_waits_is_left_to_its_retry_and_holds_what_comes_after(tmp_path):
    world = World(tmp_path / "world", "memory", pattern=SHAPES["merger"])
    for day in DAYS[:2]:
        world.put(day, [f"of {day}"])
    world.run(DAYS[0])
    pipeline = trying(world, tries=5)
    with armed(dying_at("rows.ready", LostReply)), pytest.raises(twice.NotPublished):
        twice.run(pipeline, at=DAYS[0], force=True, project=world.project)
    slots = slots_between(pipeline, DAYS[0], DAYS[2], datetime.now(UTC))
    said = outlook(world.project, pipeline, slots, Asked(resuming=True))
    ends = list(fill(world.project, pipeline, slots, Asked(resuming=True)))
    assert [found.action for found in said.slots] == ["skip", "held"]
    assert said.slots[0].notes[-1].endswith("this run leaves that to twice retry")
    assert isinstance(ends[1].error, twice.Held)
