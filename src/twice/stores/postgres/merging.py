"""How is a merge written in PostgreSQL's SQL?

The rule is that of `merges`, for rows that are a relation of the publishing transaction. What changes is put into a
temporary table first, each row with its action, so that unchanged rows are never written and every change is counted.
Nobody else writes to the table meanwhile: the transaction holds a lock that readers do not notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from twice.abilities import LookBack
from twice.merges import (
    MergeRule,
    changes_text,
    refuse_duplicates,
    refuse_null_keys,
    refuse_null_order,
    refuse_repeated,
)
from twice.stores.postgres import kinds, targets
from twice.stores.postgres.connections import Connection, comma, one
from twice.stores.postgres.kinds import Fitted
from twice.stores.postgres.names import Name, column
from twice.stores.postgres.targets import Target

_CHANGES, _MISSING = "twice_changes_of_merge", "twice_missing"
_ACTION, _RANK = "twice_action", "twice_rank"
_SAMPLE = 6


@dataclass(frozen=True)
class Changed:
    """How many rows a merge inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def total(self) -> int:
        """How many rows of the table changed."""
        return self.inserted + self.updated + self.deleted

    def notes(self, given: int) -> tuple[str, ...]:
        """What the outcome says."""
        return (changes_text(self.inserted, self.updated, self.deleted, given),)


def one_a_key(relation: sql.Composable, rule: MergeRule, fits: Fitted) -> sql.Composable:
    """Return the rows in the table's types; of each key those that come last (or first) in order, without exact copies."""
    relation = cast(relation, fits, rule.besides)
    if not rule.order:
        return relation
    by = sql.SQL("asc nulls first" if rule.first else "desc nulls first")
    ranked = sql.SQL("select *, rank() over (partition by {} order by {} {}) as {} from {} given").format(
        _columns(rule.keys), column(rule.order), by, column(_RANK), relation
    )
    names = [*fits.types, *rule.besides]
    distinct: sql.Composable = sql.SQL("distinct")
    if fits.incomparable:
        compared = (sql.SQL("{}::text" if one in fits.incomparable else "{}").format(column(one)) for one in names)
        distinct = sql.SQL("distinct on ({})").format(comma(compared))
    return sql.SQL("(select {} {} from ({}) ranked where {} = 1)").format(
        distinct, _columns(names), ranked, column(_RANK)
    )


def check(connection: Connection, relation: sql.Composable, rule: MergeRule, fits: Fitted) -> int:
    """Refuse rows whose keys are NULL or repeated as the table compares them, or that have no order; return how many count.

    Raises:
        NotPublished: With the keys named.
    """
    rule.check_columns(list(fits.source))
    source = one_a_key(relation, rule, fits)
    no_key = sql.SQL(" or ").join(sql.SQL("{} is null").format(column(key)) for key in rule.keys)
    no_order = sql.SQL("{} is null").format(column(rule.order)) if rule.order else sql.SQL("false")
    count, keyless, unordered, distinct = one(
        connection.execute(
            sql.SQL(
                "select count(*), count(*) filter (where {}), count(*) filter (where {}), {} from {} source"
            ).format(no_key, no_order, _distinct(rule.keys, source), source)
        )
    )
    refuse_null_keys(keyless, rule.keys)
    refuse_null_order(unordered, rule.order or "")
    if distinct < count:
        _refuse_repeated_keys(connection, source, rule)
    return int(count)


def _distinct(keys: Sequence[str], source: sql.Composable) -> sql.Composed:
    """Return how many keys there are.

    The server does not know staged rows, and guesses that they have few keys: grouping a million takes four times as long as
    sorting them, which is what it does here with one column. Several are slower to sort than to group.
    """
    if len(keys) == 1:
        return sql.SQL("count(distinct {})").format(column(keys[0]))
    return sql.SQL("(select count(*) from (select distinct {} from {} given) groups)").format(_columns(keys), source)


def _refuse_repeated_keys(connection: Connection, source: sql.Composable, rule: MergeRule) -> None:
    """Refuse keys that are in several rows of the source, if there are any, and name some."""
    groups = sql.SQL("select {0} from {1} source group by {0} having count(*) > 1").format(_columns(rule.keys), source)
    repeated = one(connection.execute(sql.SQL("select count(*) from ({}) groups").format(groups)))[0]
    query = sql.SQL("{} order by {} limit {}").format(groups, _columns(rule.keys), sql.Literal(_SAMPLE))
    sample = [dict(zip(rule.keys, row, strict=True)) for row in connection.execute(query).fetchall()]
    refuse_duplicates(repeated, sample, rule)


def merge(connection: Connection, target: Target, source: sql.Composable, rule: MergeRule, fits: Fitted) -> Changed:
    """Insert, update and delete what the rows change, one for each key, and leave the rest alone.

    Raises:
        NotPublished: The table itself holds a key that changes in several rows, or a rule of its own keeps rows away.
    """
    name = target.name
    connection.execute(_what_changes(name, source, rule, fits))
    changes = sql.Identifier("pg_temp", _CHANGES)
    connection.execute(sql.SQL("analyze {}").format(changes))
    _refuse_copies(connection, name, rule)
    counted = sql.SQL("select {0}, count(*) from {1} group by {0}").format(column(_ACTION), changes)
    # What there is none of is not asked for: a table that is published without a key of its own takes inserts alone.
    wanted: dict[str, int] = dict(connection.execute(counted).fetchall())
    done = {
        action: targets.check_taken(name, connection.execute(statement).rowcount, wanted[action], said)
        for action, (statement, said) in _statements(name, changes, rule, list(fits.types)).items()
        if action in wanted
    }
    written = sql.SQL("(select * from {} where {} <> 'delete')").format(changes, column(_ACTION))
    targets.check_keys(connection, target, written, rule.keys)
    connection.execute(sql.SQL("drop table {}").format(changes))
    return Changed(done.get("insert", 0), done.get("update", 0), done.get("delete", 0))


def _statements(
    name: Name, changes: sql.Composable, rule: MergeRule, stored: Sequence[str]
) -> dict[str, tuple[sql.Composed, str]]:
    """Return the statement of each action, in their order, and what the table did with so many rows."""
    where = sql.SQL("{} and {} = {}")
    meets, action = _meets(rule.keys), column(_ACTION, "c")
    # A row that has no more than its key never changes.
    sets = comma(sql.SQL("{} = {}").format(column(one), column(one, "c")) for one in stored if one not in rule.keys)
    values = comma(column(one, "c") for one in stored)
    return {
        "delete": (
            sql.SQL("delete from {} t using {} c where ").format(name.sql, changes)
            + where.format(meets, action, sql.Literal("delete")),
            "deleted",
        ),
        "update": (
            sql.SQL("update {} t set {} from {} c where ").format(name.sql, sets, changes)
            + where.format(meets, action, sql.Literal("update")),
            "updated",
        ),
        "insert": (
            sql.SQL("insert into {} ({}) select {} from {} c where {} = {}").format(
                name.sql, _columns(stored), values, changes, action, sql.Literal("insert")
            ),
            "took",
        ),
    }


def _what_changes(name: Name, source: sql.Composable, rule: MergeRule, fits: Fitted) -> sql.Composed:
    """Return the statement that makes a table of the rows that change something, each with its action."""
    stored = list(fits.types)
    is_there = sql.SQL("t.ctid is not null")
    gone = is_gone(rule, fits.source, "s")
    late: sql.Composable = sql.SQL("true") if rule.insert_only else sql.SQL("false")
    if rule.order and not rule.insert_only:
        late = sql.SQL("coalesce({} < {}, false)").format(column(rule.order, "s"), column(rule.order, "t"))
    same = sql.SQL("not ({})").format(_differ(fits))
    action = sql.SQL(
        "case when {is_there} and {late} then null when {is_there} and {gone} then 'delete' when {gone} then null"
        " when {is_there} and {same} then null when {is_there} then 'update' else 'insert' end"
    ).format(is_there=is_there, late=late, gone=gone, same=same)
    joined = sql.SQL("select {columns}, {action} as {name} from {source} s left join {table} t on {meets}").format(
        columns=comma(column(one, "s") for one in stored),
        action=action,
        name=column(_ACTION),
        source=source,
        table=name.sql,
        meets=sql.SQL(" and ").join(sql.SQL("{} = {}").format(column(key, "t"), column(key, "s")) for key in rule.keys),
    )
    return sql.SQL("create temporary table {} on commit drop as select * from ({}) found where {} is not null").format(
        sql.Identifier(_CHANGES), joined, column(_ACTION)
    )


def _differ(fits: Fitted, aliases: Mapping[str, str] | None = None) -> sql.Composed:
    """Return whether a row of the source, s, is another one than that of the table, t; what cannot be compared is as text."""
    compared = {name: "{}::text" if name in fits.incomparable else "{}" for name in fits.types}
    one = comma(sql.SQL(how).format(column((aliases or {}).get(name, name), "s")) for name, how in compared.items())
    other = comma(sql.SQL(how).format(column(name, "t")) for name, how in compared.items())
    return sql.SQL("({}) is distinct from ({})").format(one, other)


def cast(relation: sql.Composable, fits: Fitted, besides: Sequence[str] = ()) -> sql.Composable:
    """Return the rows with the table's columns, in its types."""
    selected = [sql.SQL("{} as {}").format(_value(name, fits), column(name)) for name in fits.types] + [
        sql.SQL("{}").format(column(name)) for name in besides
    ]
    return sql.SQL("(select {} from {} given)").format(comma(selected), relation)


def _value(name: str, fits: Fitted) -> sql.Composable:
    if name in fits.fit.absent:
        return sql.SQL("null::{}").format(sql.SQL(fits.types[name]))
    typed = fits.cast_of(name)
    value = sql.SQL("{}::{}").format(column(name), sql.SQL(typed)) if typed else column(name)
    most = kinds.most_of(fits.types[name])
    if most is None or fits.source.get(name) == fits.types[name]:
        return value
    # What the table makes of a text before it is compared: it cuts blanks, and refuses anything else that is too much.
    cut = "(case when length(rtrim({0}, ' ')) <= {1} then left({0}, {1}) else {0} end)"
    return sql.SQL(cut).format(value, sql.Literal(most))


def live(relation: sql.Composable, rule: MergeRule, fits: Fitted) -> sql.Composable:
    """Return the source rows that are not marked as deleted, one a key, in the columns that the table keeps."""
    return sql.SQL("(select {} from {} s where not {})").format(
        _columns(fits.types), one_a_key(relation, rule, fits), is_gone(rule, fits.source, "s")
    )


def is_gone(rule: MergeRule, types: Mapping[str, str], of: str) -> sql.Composable:
    """Return whether a row is marked as deleted, read as Spark would cast the mark."""
    if not rule.besides:
        return sql.SQL("false")
    mark = column(rule.besides[0], of)
    kind = kinds.kind_of(types[rule.besides[0]])
    if kind == "boolean":
        return sql.SQL("coalesce({}, false)").format(mark)
    if kind == "string":
        return sql.SQL("coalesce(lower(btrim({})) in ('true', 't', 'yes', 'y', '1'), false)").format(mark)
    return sql.SQL("coalesce({} <> 0, false)").format(mark)


def _with_keys(rows: sql.Composable, keys: Sequence[str]) -> sql.Composed:
    """Return the rows whose key is known; where a part of it is NULL, none can be referenced."""
    known = sql.SQL(" and ").join(sql.SQL("{} is not null").format(column(key)) for key in keys)
    return sql.SQL("(select * from {} rows where {})").format(rows, known)


def _refuse_copies(connection: Connection, name: Name, rule: MergeRule) -> None:
    """Refuse a change of a key that several rows of the table hold."""
    keys = comma(column(key, "t") for key in rule.keys)
    found = connection.execute(
        sql.SQL(
            "select {0} from {1} t join {2} c on {3} group by {0} having count(*) > 1 order by {0} limit {4}"
        ).format(keys, name.sql, sql.Identifier("pg_temp", _CHANGES), _meets(rule.keys), sql.Literal(_SAMPLE))
    ).fetchall()
    refuse_repeated([dict(zip(rule.keys, row, strict=True)) for row in found], rule)


def _meets(keys: Sequence[str]) -> sql.Composed:
    return sql.SQL(" and ").join(sql.SQL("{} = {}").format(column(key, "t"), column(key, "c")) for key in keys)


def _columns(names: Mapping[str, str] | Sequence[str]) -> sql.Composed:
    return comma(map(column, names))


def check_look_back(
    connection: Connection, relation: sql.Composable, look_back: LookBack, types: Mapping[str, str]
) -> None:
    """Refuse a window over a column that holds no time, and rows without one."""
    if kinds.kind_of(types.get(look_back.column, "text")) not in ("date", "timestamp", "timestamp_ntz"):
        raise look_back.no_time()
    query = sql.SQL("select count(*) from {} source where {} is null").format(relation, column(look_back.column))
    look_back.refuse_unknown(one(connection.execute(query))[0])


def insert_missing(
    connection: Connection,
    target: Target,
    relation: sql.Composable,
    rule: MergeRule,
    fits: Fitted,
    look_back: LookBack | None,
) -> Changed:
    """Insert the rows whose key the table, or the part of it that is looked at, does not hold.

    Raises:
        NotPublished: A rule of the table keeps rows away.
    """
    name, source = target.name, one_a_key(relation, rule, fits)
    meets = sql.SQL(" and ").join(sql.SQL("{} = {}").format(column(key, "t"), column(key, "s")) for key in rule.keys)
    window: sql.Composable = sql.SQL("")
    if look_back:
        # It reaches back to the oldest row of the source, if that is older: a rerun has to find its own rows.
        time = column(look_back.column)
        typed = sql.SQL(fits.types[look_back.column])
        window = sql.SQL(" and {} >= (select least(min({}), {}::{}) from {} oldest)").format(
            column(look_back.column, "t"), time, sql.Literal(look_back.since.replace(tzinfo=None)), typed, source
        )
    missing = sql.SQL("select {} from {} s where not exists (select from {} t where {}{})").format(
        comma(column(one, "s") for one in fits.types), source, name.sql, meets, window
    )
    columns = _columns(fits.types)
    if not target.has_triggers:
        insert = sql.SQL("insert into {} ({}) {}").format(name.sql, columns, missing)
        return Changed(connection.execute(insert).rowcount)
    # Only a trigger lets a row go, so only then is it worth to count them before.
    missed = sql.Identifier("pg_temp", _MISSING)
    made = sql.SQL("create temporary table {} on commit drop as {}").format(sql.Identifier(_MISSING), missing)
    wanted = connection.execute(made).rowcount
    insert = sql.SQL("insert into {} ({}) select {} from {}").format(name.sql, columns, columns, missed)
    inserted = targets.check_taken(name, connection.execute(insert).rowcount, wanted)
    targets.check_keys(connection, target, missed, rule.keys)
    return Changed(inserted)


def replace_in_place(
    connection: Connection, target: Target, rows: sql.Composable, fits: Fitted, here: sql.Composable
) -> Changed:
    """Let the rows that meet a condition be others: those whose key stays are changed, and only others leave or come.

    A key that is there outside of the condition is inserted again, and refused by the constraint that makes it a key.

    Raises:
        NotPublished: Several rows have one key.
    """
    _refuse_repeated_keys(connection, _with_keys(rows, target.key), MergeRule(target.key))
    named = list(fits.types)
    aliases = [f"twice_{number}" for number in range(len(named))]
    # The condition names columns as they are, so those of the rows are given other names beside it.
    given = sql.SQL("(select {} from {} rows) s").format(
        comma(
            sql.SQL("{} as {}").format(column(one), column(alias)) for one, alias in zip(named, aliases, strict=True)
        ),
        rows,
    )
    of = dict(zip(named, aliases, strict=True))
    both = sql.SQL(" and ").join(
        sql.SQL("{} = {}").format(column(key, "t"), column(of[key], "s")) for key in target.key
    )
    parts = {
        "table": target.name.sql,
        "given": given,
        "both": both,
        "here": here,
        "columns": comma(map(column, named)),
        "values": comma(column(alias, "s") for alias in aliases),
        "sets": comma(sql.SQL("{} = {}").format(column(one), column(of[one], "s")) for one in named),
        "differ": _differ(fits, of),
    }
    deleted, updated, inserted = (
        connection.execute(sql.SQL(statement).format(**parts)).rowcount
        for statement in (
            "delete from {table} t where ({here}) and not exists (select from {given} where {both})",
            "update {table} t set {sets} from {given} where ({here}) and {both} and {differ}",
            (
                "insert into {table} ({columns}) select {values} from {given}"
                " where not exists (select from {table} t where ({here}) and {both})"
            ),
        )
    )
    return Changed(inserted, updated, deleted)
