"""Batches of rows that are given to a store itself, whatever pattern would ask for it."""

import itertools
from datetime import date

from twice.abilities import Leaving, Staged, Work
from twice.runs import Receipt, new_attempt

DAY = date(2024, 9, 20)
FILE = "source_file"
OWNER = "0123456789abcdef"
NUMBERS = itertools.count(1)


def slot_of(world, key=""):
    return f"v1:out:{world.kind}:{world.target}:key={key}"


def rows_of(file, *ids, column=FILE, **more):
    return [{"id": one, "day": DAY, column: file, **more} for one in ids]


def framed(world, rows, column=FILE, schema=""):
    """Return rows as the store takes them; a frame knows its columns without a row."""
    if world.plain:
        return rows
    return world.spark.createDataFrame(rows, schema or f"id string, day date, `{column.replace('`', '``')}` string")


def work_of(world, base=None, key="", **more):
    base = base or world.sight()
    slot = slot_of(world, key)
    attempt = new_attempt(OWNER, next(NUMBERS))
    return Work(world.target, slot, attempt, base.fence(slot) + 1, base, compares_head=True, **more)


def publish(world, work, staged):
    receipt = Receipt(work.slot, work.generation, work.attempt, "f", "c", OWNER, rows=staged.rows)
    world.store.publish(work, staged, [receipt])
    return staged


def take(world, rows, leaving=None, *, check=None, base=None, schema="", **more):
    work = work_of(world, base, **more)
    column = leaving.column if leaving else FILE
    return publish(world, work, world.store.stage_taken(work, framed(world, rows, column, schema), check, leaving))


def receipt_alone(world, base=None, key=""):
    return publish(world, work_of(world, base, key), Staged(0, handle=None, keeps=True))


def batch(world):
    """Keep a body, and publish a batch in which rows come and leave."""
    work = work_of(world)
    world.store.keep_beside(world.target, f"{work.attempt}.marks", b"marks")
    staged = world.store.stage_taken(work, framed(world, rows_of("a.csv", "a3")), None, Leaving(FILE, ("a.csv",)))
    receipt = Receipt(work.slot, work.generation, work.attempt, "f", "c", OWNER, marks=f"{work.attempt}.marks")
    world.store.publish(work, staged, [receipt])
