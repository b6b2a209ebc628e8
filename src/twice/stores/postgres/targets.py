"""What may a target be, and does it keep the rows that come just as they were staged?

A table that others made has rules of its own. Some make a promise impossible, so they are refused before a row is staged,
and once more under the lock that publishes:

    no table         a view, a materialized view, a foreign table: the server keeps no rows of it in this transaction
    heirs            tables that inherit from it: a DELETE takes their rows too
    rules            ON ... DO INSTEAD: what is said to be written is not
    row security     policies that hide rows from the role: what it cannot see is neither replaced nor compared

Others change rows on the way. A statement tells how many it put there; where triggers of others stand on the table, what was
written is looked for afterwards, since a trigger may also change a row or take another one along.

Tables that reference it are not a rule of its own, but a DELETE may empty or remove their rows. So an overwrite of such a
table changes the rows whose key stays in place, and deletes only those whose key is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from twice.errors import Misuse, NotPublished
from twice.stores.postgres.connections import Connection, one
from twice.stores.postgres.names import Name, column

_ASKED = """
with recursive family (id) as (select to_regclass(%(name)s)::oid union all select inhrelid from pg_inherits join family on inhparent = id)
select c.relkind::text,
    (select i.inhrelid::regclass::text from pg_inherits i where i.inhparent = c.oid and c.relkind = 'r' order by 1 limit 1),
    (select r.rulename::text from pg_rewrite r where r.ev_class = c.oid and r.is_instead and r.ev_enabled <> 'D'
        and r.rulename <> '_RETURN' order by 1 limit 1),
    row_security_active(c.oid),
    exists (select from pg_trigger t where t.tgrelid in (select id from family) and not t.tgisinternal
        and t.tgenabled not in ('D', 'R') and not starts_with(t.tgname::text, 'twice_')),
    (select coalesce(jsonb_agg(distinct (select jsonb_agg(a.attname order by a.attname) from pg_attribute a
            where a.attrelid = k.confrelid and a.attnum = any(k.confkey))), '[]')
        from pg_constraint k where k.contype = 'f' and k.conparentid = 0 and k.confrelid in (select id from family))
from pg_class c where c.oid = to_regclass(%(name)s)
"""
_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
    "I": "an index",
    "c": "a type",
}


@dataclass(frozen=True)
class Target:
    """A table as far as it matters to a publish: whether others have triggers on it, and by which keys it is referenced."""

    name: Name
    has_triggers: bool = False
    referenced_by: tuple[tuple[str, ...], ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which other tables know its rows; none if none does.

        Raises:
            Misuse: They are known by several keys.
        """
        if len(self.referenced_by) > 1:
            keys = " and ".join(f"({', '.join(one)})" for one in self.referenced_by)
            raise Misuse(
                f"Other tables reference {self.name.table} by {keys}.",
                "An overwrite changes rows in place by one key alone, and would take the rows of the others along.",
                "Use twice.merger(keys=[...]), or drop one of the foreign keys.",
            )
        return self.referenced_by[0] if self.referenced_by else ()


def asked(connection: Connection, name: Name) -> Target:
    """Return what stands on and around a table; one that is not there has nothing.

    Raises:
        Misuse: It is no table, or one that cannot be written with a promise.
    """
    found = connection.execute(_ASKED, {"name": name.text}).fetchone()
    if found is None:
        return Target(name)
    *refused, has_triggers, keys = found
    _refuse(name, *refused)
    return Target(name, has_triggers, tuple(tuple(key) for key in keys))


def _refuse(name: Name, kind: str, heir: str | None, rule: str | None, hides_rows: bool) -> None:
    """Refuse what makes it impossible to say what the table holds.

    Raises:
        Misuse: There is something.
    """
    if kind not in "rp":
        raise Misuse(
            f"{name.table} is {_KINDS.get(kind, 'no table')}.",
            "Rows are written to tables alone; nothing was published.",
            "Name the table behind it, or another one.",
        )
    if heir:
        raise Misuse(
            f"The table {name.table} has a table that inherits from it: {heir}.",
            "Its rows would be replaced with those of the table. Nothing was published.",
            f"Use a partitioned table, or: ALTER TABLE {heir} NO INHERIT {name.table}",
        )
    if rule:
        raise Misuse(
            f"The table {name.table} has the rule {rule}, which does something else instead of what is asked.",
            "Rows that are published would not be there. Nothing was published.",
            f"DROP RULE {rule} ON {name.table}, or write to another table.",
        )
    if hides_rows:
        raise Misuse(
            f"Row level security hides rows of {name.table} from this role.",
            "Rows that it cannot see would be neither replaced nor found by their key. Nothing was published.",
            "Use the role that owns the table, or: ALTER ROLE <role> BYPASSRLS",
        )


# -------------------------------------------------------------------- rows that did not come as they were staged


def check_taken(name: Name, taken: int, staged: int, what: str = "took") -> int:
    """Compare how many rows a statement put into a table with how many it was given, and return them.

    Raises:
        NotPublished: A rule of the table kept some away.
    """
    if taken != staged:
        raise NotPublished(
            f"The table {name.table} {what} {taken} of {staged} rows.",
            "A trigger on it leaves rows out. Nothing was published, and the target is as it was.",
            "Filter the rows in the transform, and correct or drop the trigger.",
        )
    return taken


def check_there(connection: Connection, target: Target, condition: sql.Composable, staged: int) -> None:
    """Where others have triggers on a table: see that the rows of an overwrite are where the next one looks for them.

    Raises:
        NotPublished: There are more or less.
    """
    if not target.has_triggers:
        return
    query = sql.SQL("select count(*) from {} where {}").format(target.name.sql, condition)
    found = one(connection.execute(query))[0]
    if found != staged:
        raise _changed(target.name, f"{found} rows where {staged} were written")


def check_keys(connection: Connection, target: Target, rows: sql.Composable, keys: Sequence[str]) -> None:
    """Where others have triggers on a table: see that the keys that were written are there.

    Raises:
        NotPublished: Some are not.
    """
    if not target.has_triggers:
        return
    meets = sql.SQL(" and ").join(sql.SQL("{} = {}").format(column(key, "t"), column(key, "s")) for key in keys)
    query = sql.SQL("select count(*) from {} s where not exists (select from {} t where {})")
    found = one(connection.execute(query.format(rows, target.name.sql, meets)))[0]
    if found:
        raise _changed(target.name, f"no row for {found} of the keys that were written")


def _changed(name: Name, found: str) -> NotPublished:
    return NotPublished(
        f"The table {name.table} holds {found}.",
        "A trigger on it changed, added or removed rows, so a rerun could not find them again. Nothing was published.",
        "Do in the transform what the trigger does, and drop it or let it leave these rows alone.",
    )
