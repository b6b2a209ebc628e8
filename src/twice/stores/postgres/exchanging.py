"""How does the table that the tasks filled take the place of a partition, where nobody can tell?

Within the transaction of a publish, where the rows that leave are all rows of one plain partition:

    dressed     the staged table gets what the partition has: constraints, defaults, indexes, triggers, and its bounds as a check
    locked      parent and partition are taken at once, or not at all: nobody waits, neither this publish nor a reader behind it
    asked       whether an older snapshot is open, and once more whether the partition is plain
    detached    the old partition is dropped
    attached    the staged table has its name and its place, and its indexes have the names of the old ones
    COMMIT      of the publish

Older snapshots are why this may be done only at times. All sessions read the catalog as it is now, so they find the new
partition. Its rows were committed by the tasks before this transaction began. Whoever took a snapshot later sees them all;
whoever took it before would see none of them, a day without rows. So it is not done while such a snapshot is open, and neither while a
session keeps one between two statements, old or not. One that is taken while the table is locked sees the new rows, whole.

Wherever something is not as it has to be, all of this is rolled back to where it began, and the rows are deleted and inserted.

What is true if the process dies: after each line but the last the server rolls back, and the old partition is where it was,
under its name, with its rows; the staged table is swept as ever. After COMMIT the receipt is there, and the new partition.
If the process is stopped while it holds the lock, the server ends its session after a few seconds, and readers go on.
Two at once: the second waits at the head's row, before any of this. The reply is lost: the receipt tells, as ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Rollback, sql

from twice.faults import reach
from twice.stores.postgres import filling, leaves, proofs
from twice.stores.postgres.connections import Connection, comma, one
from twice.stores.postgres.leaves import Extent, Leaf
from twice.stores.postgres.names import Name
from twice.stores.postgres.sources import Shared, Source

if TYPE_CHECKING:
    from twice.stores.postgres.publishing import Change

_WITHIN = "twice_within"
_MOMENT = "100ms"
# A reader waits for a publish that was stopped no longer than this.
_MOST_IDLE = "5s"
_CLAUSES = """
select format('alter column %%I set default %%s', a.attname, pg_get_expr(d.adbin, d.adrelid))
from pg_attribute a join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum where a.attrelid = %(leaf)s::oid
union all
select format('alter column %%I set not null', a.attname) from pg_attribute a
where a.attrelid = %(leaf)s::oid and a.attnum > 0 and a.attnotnull and not a.attisdropped
    and not exists (select from pg_constraint c where c.conrelid = a.attrelid and c.contype = 'n' and c.conkey = array[a.attnum])
union all
select format('add constraint %%I %%s', c.conname, pg_get_constraintdef(c.oid))
from pg_constraint c where c.conrelid = %(leaf)s::oid and c.contype in ('c', 'n')
union all
select format('add constraint %%I check (%%s)', %(within)s::text, pg_get_partition_constraintdef(%(leaf)s::oid))
"""
# The text that makes an index begins with its name and its table: what follows is the same for another table.
_INDEXES = """
select x.relname, c.oid is not null, i.indisunique,
    case when c.oid is not null then pg_get_constraintdef(c.oid)
        when starts_with(pg_get_indexdef(x.oid), opening) then substr(pg_get_indexdef(x.oid), length(opening) + 1) end
from pg_index i join pg_class x on x.oid = i.indexrelid
join pg_class l on l.oid = i.indrelid join pg_namespace n on n.oid = l.relnamespace
left join pg_constraint c on c.conindid = x.oid and c.conrelid = l.oid and c.contype in ('p', 'u')
cross join lateral format('CREATE %%sINDEX %%I ON %%I.%%I ',
    case when i.indisunique then 'UNIQUE ' else '' end, x.relname, n.nspname, l.relname) opening
where l.oid = %(leaf)s::oid order by x.relname
"""
# What is said of one of the two tables and not of the other.
_DIFFERENCES = """
select exists (select from (
    select format('%%s %%I %%s %%s %%s %%s', row_number() over (partition by a.attrelid order by a.attnum), a.attname,
        format_type(a.atttypid, a.atttypmod), a.attcollation, a.attnotnull, pg_get_expr(d.adbin, d.adrelid)) as said
    from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attrelid in (%(leaf)s::oid, %(staged)s::text::regclass::oid) and a.attnum > 0 and not a.attisdropped
    union all
    select format('%%I %%s', c.conname, pg_get_constraintdef(c.oid)) from pg_constraint c
    where c.conrelid in (%(leaf)s::oid, %(staged)s::text::regclass::oid) and c.contype in ('c', 'n') and c.conname <> %(within)s
    union all
    select format('%%s %%s %%s %%s %%s', c.relam, c.relowner, c.relacl, c.reloptions, c.reltablespace) from pg_class c
    where c.oid in (%(leaf)s::oid, %(staged)s::text::regclass::oid)
) both_said group by said having count(*) <> 2)
"""
_CONSTRAINT = "alter table {table} add constraint {name} {rest}"
_INDEX = "create index {name} on {table} {rest}"
_UNIQUE_INDEX = "create unique index {name} on {table} {rest}"
_OLDER_SNAPSHOTS = """
select exists (select from pg_stat_activity a
    where a.backend_xmin is not null and a.pid <> pg_backend_pid()
        and coalesce(a.datname, current_database()) = current_database()
        and (a.state is distinct from 'active'
            or age(a.backend_xmin) >= (select min(age(number)) from unnest(%(by)s::xid[]) number)))
"""


@dataclass(frozen=True)
class _Dressed:
    """A staged table that is ready to be a partition, that partition, and the names of its indexes."""

    table: Name
    leaf: Leaf
    indexes: tuple[str, ...]

    def index(self, number: int) -> Name:
        """Return what an index is called until the old one is gone."""
        return _index_of(self.table, number)


def exchanged(connection: Connection, change: Change, extent: Extent | None, books: str) -> bool:
    """Let the table that the tasks filled be the partition whose rows leave; tell whether that was done.

    If it was not, nothing was, and nobody has waited.
    """
    shared = _all_of(change.source)
    if shared is None or extent is None:
        return False
    done = False
    try:
        with connection.transaction():
            _set(connection, "lock_timeout", _MOMENT)
            dressed = _dress(connection, change.name, shared, extent, books)
            _take(connection, change.name, shared, dressed.leaf)
            _swap(connection, change.name, dressed)
            connection.execute("set local lock_timeout to default")
            done = True
    except psycopg.Error as error:
        if leaves.is_the_end(connection, error):
            raise
        return False
    return done


def _all_of(source: Source) -> Shared | None:
    """Return the one table that holds all rows of an attempt: of rows that come now, snapshots of before would see none."""
    if len(source.stored) != 1 or (source.held is not None and source.held.num_rows):
        return None
    (stored,) = source.stored
    return stored if isinstance(stored, Shared) else None


def _set(connection: Connection, setting: str, value: str) -> None:
    connection.execute("select set_config(%s, %s, true)", [setting, value])


def _lock(connection: Connection, mode: str, *tables: Name) -> None:
    """Lock tables at once, or not at all; of a partitioned one the partitions are left alone."""
    listed = comma(sql.SQL("only {}").format(table.sql) for table in tables)
    connection.execute(sql.SQL("lock table {} in {} mode nowait").format(listed, sql.SQL(mode)))


def _dress(connection: Connection, parent: Name, shared: Shared, extent: Extent, books: str) -> _Dressed:
    """Make the staged table what the partition is, while readers and writers of that go on.

    Raises:
        Rollback: It is not to be exchanged.
    """
    # From here on nobody adds a partition to the one, or alters the other.
    _lock(connection, "share update exclusive", parent)
    leaf = leaves.found(connection, parent, extent)
    if leaf is None:
        raise Rollback
    _lock(connection, "share update exclusive", leaf.name)
    _lock(connection, "access exclusive", shared.name)
    if not shared.is_exact(connection):
        raise Rollback
    _try_to_take(connection, parent, shared, leaf)
    filling.vacuum_as_others(connection, shared.name)
    known = {"leaf": leaf.oid, "within": _WITHIN}
    clauses = [sql.SQL(text) for (text,) in connection.execute(_CLAUSES, known).fetchall()]
    connection.execute(sql.SQL("alter table {} {}").format(shared.name.sql, comma(clauses)))
    indexes = _indexed(connection, shared.name, leaf)
    if proofs.guard(connection, shared.name, books, is_new=True):
        # Changes by others would no longer be noticed, as they are now.
        raise Rollback
    connection.execute(sql.SQL("analyze {}").format(shared.name.sql))
    reach("postgres.partition.dressed")
    return _Dressed(shared.name, leaf, indexes)


def _indexed(connection: Connection, table: Name, leaf: Leaf) -> tuple[str, ...]:
    """Make the indexes of the partition on the staged table too, and return how the partition calls them.

    Raises:
        Rollback: How one of them is made is not understood.
    """
    found = connection.execute(_INDEXES, {"leaf": leaf.oid}).fetchall()
    for number, (_, is_constraint, is_unique, text) in enumerate(found):
        if text is None:
            raise Rollback
        made = _CONSTRAINT if is_constraint else _UNIQUE_INDEX if is_unique else _INDEX
        named = sql.Identifier(_index_of(table, number).table)
        connection.execute(sql.SQL(made).format(name=named, table=table.sql, rest=sql.SQL(text)))
    return tuple(str(name) for name, _, _, _ in found)


def _index_of(table: Name, number: int) -> Name:
    return table.with_ending(f"i{number}")


def _try_to_take(connection: Connection, parent: Name, shared: Shared, leaf: Leaf) -> None:
    """See whether parent and partition could be taken now, so that nothing is made in vain; they are let go at once.

    Raises:
        Rollback: An older snapshot is open.
    """
    with connection.transaction(force_rollback=True):
        _lock(connection, "access exclusive", parent, leaf.name)
    _refuse_older_snapshots(connection, shared)


def _take(connection: Connection, parent: Name, shared: Shared, leaf: Leaf) -> None:
    """Take parent and partition for this transaction alone, and see that no one can tell what will be done to them.

    Raises:
        Rollback: Somebody could.
    """
    _lock(connection, "access exclusive", parent, leaf.name)
    _set(connection, "idle_in_transaction_session_timeout", _MOST_IDLE)
    reach("postgres.partition.locked")
    now = leaves.plain(connection, parent, leaf.name)
    known = {"leaf": leaf.oid, "staged": shared.name.text, "within": _WITHIN}
    if now is None or (now.oid, now.bound) != (leaf.oid, leaf.bound) or _holds(connection, _DIFFERENCES, known):
        raise Rollback
    _refuse_older_snapshots(connection, shared)


def _refuse_older_snapshots(connection: Connection, shared: Shared) -> None:
    """See that no session has a snapshot which does not hold the staged rows, or keeps one for its next statement.

    Raises:
        Rollback: One does.
    """
    # What a transaction has asked about sessions is what it is told again, until it asks to hear of them anew.
    connection.execute("select pg_stat_clear_snapshot()")
    if _holds(connection, _OLDER_SNAPSHOTS, {"by": [str(number) for number in shared.by]}):
        raise Rollback


def _holds(connection: Connection, question: str, known: dict[str, Any]) -> bool:
    return bool(one(connection.execute(question, known))[0])


def _swap(connection: Connection, parent: Name, dressed: _Dressed) -> None:
    """Let the staged table be the partition: the old one goes, with its name."""
    leaf, bound = dressed.leaf.name, sql.SQL(dressed.leaf.bound)
    connection.execute(sql.SQL("alter table {} detach partition {}").format(parent.sql, leaf.sql))
    connection.execute(sql.SQL("drop table {}").format(leaf.sql))
    reach("postgres.partition.detached")
    renamed = sql.SQL("alter table {} rename to {}")
    connection.execute(renamed.format(dressed.table.sql, sql.Identifier(leaf.table)))
    connection.execute(sql.SQL("alter table {} attach partition {} {}").format(parent.sql, leaf.sql, bound))
    connection.execute(sql.SQL("alter table {} drop constraint {}").format(leaf.sql, sql.Identifier(_WITHIN)))
    for number, name in enumerate(dressed.indexes):
        called = sql.SQL("alter index {} rename to {}").format(dressed.index(number).sql, sql.Identifier(name))
        connection.execute(called)
    reach("postgres.partition.attached")
