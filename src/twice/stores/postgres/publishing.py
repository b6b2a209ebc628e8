"""What happens in the one transaction that makes rows visible?

    target      where the plan was computed from all of it, it is compared with what the plan saw
    receipt     the slot's row is made or moved on, if it is at the generation that the plan saw; else nothing happens
    head        the target's counter moves, if the owner is right and, where asked, if it is what the plan saw; from here
                on nobody else publishes to the target, and no other slot may fill the partitions that are to be filled
    table       it is made, or gets its new columns
    rows        they are copied or taken from the staged tables, whose counts are compared; old ones go, new ones come
    proof       triggers that notice changes by others
    COMMIT      everything is visible, or nothing

What is true if the process dies: before COMMIT is sent the server rolls back, and readers see the old rows. After it,
the receipt is there with the rows. Between the two nobody knows, until the receipt is looked for on a new connection.
Two at once: of two that publish one slot the second waits at the receipt's row, and then finds another generation.
Of two slots the second waits at the head's row; what a merge reads is read after that, so it never has to be done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from psycopg import sql

from twice.abilities import Editions, Leaving, LookBack, Staged, Work
from twice.errors import Conflict
from twice.faults import reach
from twice.merges import MergeRule
from twice.runs import Receipt
from twice.sight import REPLACED
from twice.slices import Slice
from twice.stores.postgres import (
    bookkeeping,
    conditions,
    filling,
    histories,
    leftovers,
    merging,
    misfits,
    periods,
    proofs,
    shapes,
    targets,
    unmoved,
    versions,
    views,
)
from twice.stores.postgres.bookkeeping import Books
from twice.stores.postgres.connections import Connection, begin, commit, connected, nothing_lands, one
from twice.stores.postgres.kinds import Fitted
from twice.stores.postgres.merging import Changed
from twice.stores.postgres.names import Name, column
from twice.stores.postgres.periods import Place
from twice.stores.postgres.sources import Source
from twice.stores.postgres.targets import Target

_FIRST = """
insert into {receipts} (target, slot, generation, receipt, changes)
values (%(target)s, %(slot)s, %(generation)s, %(receipt)s, {now})
on conflict do nothing returning changes
"""
_AGAIN = """
update {receipts} set generation = %(generation)s, receipt = %(receipt)s, changes = {now}, ended = '', gone = false
where target = %(target)s and slot = %(slot)s and generation = %(generation)s - 1 returning changes
"""
_KEPT = """
select ended = '' and not gone and r.changes = {now} from {receipts} r where target = %(target)s and slot = %(slot)s
"""
_OTHERS = """
select exists (select from {receipts}
    where target = %(target)s and slot <> all(%(slots)s) and receipt -> 'partitions' ?| %(partitions)s)
"""
_HEAD = """
insert into {heads} (target, n, tables, relations, table_id)
values (%(target)s, case when to_regclass(%(table)s) is null then -1 else 0 end,
    array_remove(array[case when to_regclass(%(table)s) is not null then %(table)s end], null),
    array_remove(array[to_regclass(%(table)s)::oid], null), coalesce(to_regclass(%(table)s)::oid::text, ''))
on conflict do nothing
"""
_MOVE = """
update {heads} h set n = n + 1, owner = %(owner)s
where target = %(target)s and owner in ('', %(owner)s) and (n = %(base)s or not %(compares)s)
    and not more ? 'sealed'
returning n, tables, relations, {there}, more -> 'shape'
"""
_LEFT = """
update {heads} h set tables = %(tables)s, relations = {there},
    table_id = case when table_id = '' or %(made)s then coalesce(({there})[1]::text, '') else table_id end,
    data_version = case when %(changed)s then n else data_version end,
    changes = changes + (select count(*) from {changes} c
        where c.relation = any(h.relations) and not c.relation = any({there})),
    outside = case when %(outside)s = '' then outside else %(outside)s end,
    more = more || jsonb_build_object('shape', {made_of})
where target = %(target)s
returning more -> 'shape'
"""
# What a merge reads has to be what is there at COMMIT, whoever else writes to the table.
_LOCK = "lock table {} in share row exclusive mode"
_END = """
update {receipts} set ended = %(why)s, gone = gone or %(gone)s where target = %(target)s and slot <> all(%(slots)s) and ended = ''
"""


@dataclass(frozen=True)
class Change:
    """What is done to one table with the rows of an attempt.

    `how` is `table`, `slice`, `partitions`, `append`, `take`, `merge`, `missing`, `history` or `version`. `given` are the rows that
    count, of a merge one for each key; `place` is that of a table behind a view. What else is there, each needs.
    """

    how: str
    name: Name
    source: Source
    fits: Fitted
    bounds: Slice | None = None
    partitions: tuple[str, ...] = ()
    rule: MergeRule | None = None
    look_back: LookBack | None = None
    editions: Editions | None = None
    lineage: str = ""
    leaving: Leaving | None = None
    given: int = 0
    others: tuple[Change, ...] = field(default=())
    place: Place | None = None
    keep: int | None = None


def publish(url: str, name: Name, work: Work, staged: Staged, receipts: Sequence[Receipt]) -> tuple[str, ...]:
    """Publish in one transaction; return what the outcome should say.

    Raises:
        Conflict: The target is not as the plan saw it, and nothing landed.
        NotPublished: The rows or the server refuse it, and nothing landed.
    """
    parts = [(part.source, part.fits) for part in _tables(staged)]
    with misfits.named(url, parts, work.name), connected(url) as connection:
        with nothing_lands(work.name):
            Books(name.schema).make(connection)
            if staged.handle and staged.handle.how == "version":
                views.make(connection, Books(name.schema))
            begin(connection)
            notes = _in_transaction(connection, name, work, staged, receipts)
            reach("postgres.commit.before")
        # An error from here on says nothing about the outcome: the receipt does.
        commit(connection, work.name)
        reach("postgres.commit.after")
        _drop_staged(connection, staged)
    return notes


def _tables(staged: Staged) -> tuple[Change, ...]:
    """Return what is done to each table that the attempt fills."""
    change: Change | None = staged.handle
    return (change, *change.others) if change else ()


def _drop_staged(connection: Connection, staged: Staged) -> None:
    """Drop the tables whose rows were published; if that fails, `twice tidy` does it."""
    with suppress(psycopg.Error):
        for part in _tables(staged):
            leftovers.drop(connection, [table for stored in part.source.stored for table in stored.tables])


def _in_transaction(
    connection: Connection, name: Name, work: Work, staged: Staged, receipts: Sequence[Receipt]
) -> tuple[str, ...]:
    books, change = Books(name.schema), staged.handle
    mark = "select set_config(%s, %s, true)"
    connection.execute(mark, [bookkeeping.PUBLISHING, work.attempt])
    changes = unmoved.check(connection, books, name, work.base) if work.compares_head else None
    reach("postgres.target.compared")
    _move_receipts(connection, books, name, staged, receipts, changes)
    reach("postgres.receipt.moved")
    head = _move_head(connection, books, name, work, receipts[0].owner)
    reach("postgres.head.moved")
    slots = [receipt.slot for receipt in receipts]
    _check_partitions(connection, books, name, staged, slots)
    shapes.hold(connection, head.tables)
    made_of = shapes.found(connection, head.tables)
    broken = _broken(connection, head, made_of)
    if broken and staged.keeps and work.slot not in work.base.ended:
        raise Conflict("the rows that were to be kept are gone")
    if broken:
        _end(connection, books, name, slots, broken, gone=broken == bookkeeping.DROPPED)
    changed = Changed()
    notes: tuple[str, ...] = ()
    tables = _tables(staged)
    for place, part in enumerate(tables):
        counted, said = _apply(connection, books, part, work, place, receipts[0], head.number)
        changed, notes = Changed(changed.total + counted.total), notes + said
    reach("postgres.rows.moved")
    replaced = bool(change and change.how == "table")
    if replaced:
        _end(connection, books, name, slots, f"{REPLACED} {head.number}", gone=True)
    _write_receipts(connection, books, name, receipts, head.number)
    filled = {*head.tables, *(part.name.text for part in tables if part.fits.types)}
    facts = {
        "target": name.table,
        "tables": sorted(filled),
        "made": broken == bookkeeping.DROPPED,
        "changed": bool(changed.total) or bool(change and change.how in ("table", "version")),
        # The number may come again, after a backup was brought back; the attempt does not.
        "outside": f"version {head.number} by {work.attempt}" if replaced or broken else "",
    }
    given = sql.Placeholder("tables") + sql.SQL("::text[]")
    parts = {"there": bookkeeping.there(given), "made_of": shapes.of(given, noted=True)}
    if shapes.attached(made_of, one(connection.execute(books.filled_in(_LEFT, **parts), facts))[0]):
        raise Conflict("a partition was attached meanwhile")
    return notes


def _move_receipts(
    connection: Connection, books: Books, name: Name, staged: Staged, receipts: Sequence[Receipt], changes: int | None
) -> None:
    """Apply the slot rule: each receipt follows the generation that the plan saw, and no other.

    Where all of the target was compared, foreign changes are as many as then: one that comes later ends the receipt.
    """
    now = books.filled_in(unmoved.CHANGES_NOW)
    if staged.keeps and changes is None:
        asked = {"target": name.table, "slot": receipts[0].slot}
        kept = connection.execute(books.filled_in(_KEPT, now=now), asked).fetchone()
        if not kept or not kept[0]:
            raise Conflict("the rows that were to be kept are gone")
    # In one order for all, so that two publishes of several slots never wait for each other in a circle.
    for receipt in sorted(receipts, key=lambda one: one.slot):
        statement = _FIRST if receipt.generation == 1 else _AGAIN
        values = {
            "target": name.table,
            "slot": receipt.slot,
            "generation": receipt.generation,
            "receipt": bookkeeping.json_of(receipt),
        }
        moved = connection.execute(books.filled_in(statement, now=now), values).fetchone()
        if moved is None:
            raise Conflict("the slot's fence moved")
        if changes is not None and moved[0] != changes:
            raise Conflict("the target was changed from outside")


@dataclass(frozen=True)
class _Head:
    """A target's head after it was moved: its number, its tables, their oids at the last publish and now, what they were."""

    number: int
    tables: list[str]
    left: list[int | None]
    found: list[int | None]
    shape: dict[str, Any] | None


def _move_head(connection: Connection, books: Books, name: Name, work: Work, owner: str) -> _Head:
    """Apply the head rule, and tell which tables the last publish left."""
    values = {
        "target": name.table,
        "table": name.text,
        "owner": owner,
        "base": work.base.version,
        "compares": work.compares_head,
    }
    connection.execute(books.filled_in(_HEAD), values)
    there = bookkeeping.there(sql.SQL("h.tables"))
    moved = connection.execute(books.filled_in(_MOVE, there=there), values).fetchone()
    if moved is None:
        raise Conflict("the head moved, or the target is not this ledger's any more")
    return _Head(*moved)


def _broken(connection: Connection, head: _Head, made_of: dict[str, Any]) -> str:
    """Say what happened to the tables since the last publish that ends its proofs, or nothing."""
    return bookkeeping.what_broke(head.left, head.found) or shapes.what_broke(connection, head.shape, made_of)[0]


def _check_partitions(connection: Connection, books: Books, name: Name, staged: Staged, slots: Sequence[str]) -> None:
    """Leave alone what other slots fill by now; whoever holds the head sees the receipts of all that held it before."""
    if not (staged.handle and staged.partitions):
        return
    asked = {"target": name.table, "slots": list(slots), "partitions": list(staged.partitions)}
    if one(connection.execute(books.filled_in(_OTHERS), asked))[0]:
        raise Conflict("another slot fills a partition of it now")


def _write_receipts(connection: Connection, books: Books, name: Name, receipts: Sequence[Receipt], number: int) -> None:
    """Note the version in which each receipt was first written."""
    for receipt in receipts:
        values = [bookkeeping.json_of(replace(receipt, first_version=number)), name.table, receipt.slot]
        connection.execute(
            books.filled_in("update {receipts} set receipt = %s where target = %s and slot = %s"), values
        )


def _end(connection: Connection, books: Books, name: Name, slots: list[str], why: str, *, gone: bool) -> None:
    """End the proofs of all other slots."""
    connection.execute(books.filled_in(_END), {"target": name.table, "slots": slots, "why": why, "gone": gone})


def _apply(
    connection: Connection, books: Books, change: Change, work: Work, place: int, receipt: Receipt, number: int
) -> tuple[Changed, tuple[str, ...]]:
    """Do to a table what the attempt is about, in the columns that it has now."""
    name = change.name
    if change.how == "version":
        return versions.fill(connection, change, receipt, number), ()
    if change.place:
        return periods.fill(connection, change, change.place)
    if bookkeeping.columns_of(connection, name) != change.fits.table:
        raise Conflict("the table has other columns now")
    target = targets.asked(connection, name)
    if not change.fits.types:
        return Changed(), ()
    taken = None if change.fits.table else filling.take_staged(connection, change)
    if taken is None:
        filling.shape(connection, name, change.fits)
    reach("postgres.table.made")
    notes = proofs.guard(connection, name, books.schema)
    reach("postgres.table.ready")
    if change.rule:
        connection.execute(sql.SQL(_LOCK).format(name.sql))
        return _by_key(connection, target, change, place, notes)
    there = change.source.count - taken.source.count if taken else 0
    done = _overwrite(connection, target, taken or change, place, _leaving(change, work))
    return replace(done, inserted=done.inserted + there), notes


def _by_key(
    connection: Connection, target: Target, change: Change, place: int, notes: tuple[str, ...]
) -> tuple[Changed, tuple[str, ...]]:
    rule, fits = change.rule, change.fits
    if rule is None:
        raise AssertionError("a change by key has a rule")
    relation = change.source.checked(connection).opened(connection, place)
    if change.how == "missing":
        done = merging.insert_missing(connection, target, relation, rule, fits, change.look_back)
    elif change.editions:
        done = histories.merge(connection, target, relation, rule, fits, change.editions)
    else:
        done = merging.merge(connection, target, merging.one_a_key(relation, rule, fits), rule, fits)
    return done, (*done.notes(change.given), *notes)


def _overwrite(
    connection: Connection, target: Target, change: Change, place: int, leaving: sql.Composable | None
) -> Changed:
    """Let rows take the place of those that leave. TRUNCATE would show an empty table to older snapshots."""
    if leaving is None or not change.fits.table:
        return Changed(filling.insert(connection, target.name, change, place))
    if target.key:
        rows = merging.cast(change.source.checked(connection).opened(connection, place), change.fits)
        done = merging.replace_in_place(connection, target, rows, change.fits, leaving)
    else:
        gone = sql.SQL("delete from {} where {}").format(target.name.sql, leaving)
        deleted = connection.execute(gone).rowcount
        done = Changed(filling.insert(connection, target.name, change, place), 0, deleted)
    if not change.leaving:
        targets.check_there(connection, target, leaving, change.source.count)
    return done


def _leaving(change: Change, work: Work) -> sql.Composable | None:
    """Return which rows leave, nothing if none do."""
    types = change.fits.types
    if change.how == "table":
        return sql.SQL("true")
    if change.how == "slice" and change.bounds:
        return conditions.condition(change.bounds, types)
    if change.how == "partitions":
        return conditions.in_any(_partitions(change, work), types)
    if change.leaving:
        values = sql.Literal(list(change.leaving.values))
        return sql.SQL("{} = any({}::text[])").format(column(change.leaving.column), values)
    if change.lineage:
        return sql.SQL("{} = {}").format(column(change.lineage), sql.Literal(work.slot))
    return None


def _partitions(change: Change, work: Work) -> list[str]:
    """Name the partitions whose rows leave: those that are filled, and those that the slot filled before."""
    before = work.base.receipt(work.slot)
    return sorted({*(before.partitions if before else ()), *change.partitions})


def take_over(url: str, name: Name, version: int, owner: str) -> None:
    """Make a ledger the owner of a target, if its head is where it was seen.

    Raises:
        Conflict: It moved.
    """
    books = Books(name.schema)
    with connected(url) as connection:
        with nothing_lands(name.table):
            books.make(connection)
            begin(connection)
            values = {"target": name.table, "table": name.text, "owner": owner, "base": version}
            connection.execute(books.filled_in(_HEAD), values)
            moved = connection.execute(
                books.filled_in(
                    "update {heads} set n = n + 1, owner = %(owner)s where target = %(target)s and n = %(base)s returning n, data_version"
                ),
                values,
            ).fetchone()
            if moved is None:
                raise Conflict("the target moved")
            if one(connection.execute("select to_regclass(%s) is not null", [name.text]))[0]:
                filled = one(connection.execute(sql.SQL("select exists (select from {})").format(name.sql)))[0]
                # Rows from before the first slot are a state of their own.
                if moved[1] < 0 and filled:
                    connection.execute(
                        books.filled_in("update {heads} set data_version = 0 where target = %(target)s"), values
                    )
                proofs.guard(connection, name, name.schema)
            reach("postgres.owner.before")
        commit(connection, name.table)
