"""How are a table's rows made of all change rows that were ever kept?

Change rows are kept in a table beside the target, each under the name of the try that brought it. They are written in
the transaction that publishes, so none is left behind by a death. Of each key the rows that count are taken in the
order of their slots, and each does to the key what a merge would have done.

Rows that the table held before its first slot are copied in the same transaction, after the table is locked and before
anything in it changes: what others wrote until then is among them. They come before all slots. A death rolls the copy
back with the rest, and of two first slots the second waits at the head, is refused, and finds the name in the receipt.

A change row is kept in the types of the table, so that it comes back as it was; a text is kept whole, and is refused by
a column that is too short for it, not cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import sql

from twice.abilities import Editions
from twice.faults import reach
from twice.merges import MergeRule, refuse_keys_there, refuse_mark_in_table
from twice.stores.postgres import bookkeeping, kinds, merging
from twice.stores.postgres.connections import Connection, comma
from twice.stores.postgres.kinds import Fitted
from twice.stores.postgres.merging import Changed
from twice.stores.postgres.names import Name, column, definitions
from twice.stores.postgres.targets import Target

ENDING = "twice_history"
EDITION, KEPT_AT, _ID = "twice_edition", "twice_kept_at", "twice_row"
_TOUCHED, _STEPS, _BECOMES = "twice_touched", "twice_steps", "twice_becomes"
_GONE = "twice_gone"
_SAMPLE = 6


def history_of(name: Name) -> Name:
    """Return the table that keeps the change rows of another."""
    return name.with_ending(ENDING)


def merge(
    connection: Connection, target: Target, relation: sql.Composable, rule: MergeRule, fits: Fitted, editions: Editions
) -> Changed:
    """Keep the rows, and make the touched keys of the table what all kept rows say."""
    name = target.name
    history = history_of(name)
    types = {**_held(fits), **{mark: fits.source[mark] for mark in rule.besides}}
    kept = _shaped(connection, history, types)
    if editions.adopted:
        _adopt(connection, name, history, rule, fits, editions.adopted)
        reach("postgres.history.adopted")
    given = merging.one_a_key(relation, rule, fits)
    _keep(connection, history, list(types), given, editions.own)
    reach("postgres.history.kept")
    _number_steps(connection, name, history, rule, editions, kept)
    _fold(connection, history, rule, fits, kept)
    becomes = sql.Identifier("pg_temp", _BECOMES)
    as_merge = MergeRule(rule.keys, deleted=_GONE)
    source = {**_held(fits), _GONE: "boolean"}
    folded = Fitted(fits.table, source, fits.types, fits.fit.__class__(fits.fit.columns))
    changed = merging.merge(connection, target, merging.one_a_key(becomes, as_merge, folded), as_merge, folded)
    for table in (_TOUCHED, _STEPS, _BECOMES):
        connection.execute(sql.SQL("drop table {}").format(sql.Identifier("pg_temp", table)))
    return changed


def tells_when(connection: Connection, history: Name) -> bool:
    """Tell whether there is a history, and whether it says when its rows were kept."""
    return KEPT_AT in {one.name for one in bookkeeping.columns_of(connection, history)}


def _held(fits: Fitted) -> dict[str, str]:
    """Return the types in which values of a table are kept: compared as its own, and texts of any length."""
    collations = {one.name: f" collate {one.collation}" for one in fits.table if one.collation}
    return {one: kinds.as_long_as_it_is(typed) + collations.get(one, "") for one, typed in fits.types.items()}


def _shaped(connection: Connection, history: Name, types: Mapping[str, str]) -> Mapping[str, str]:
    """Make the history, or let it take on columns that are new or wider; return its columns."""
    known = {one.name: one.type for one in bookkeeping.columns_of(connection, history)}
    if not known:
        connection.execute(
            sql.SQL(
                "create table {} ({} bigint generated always as identity primary key, {} text not null, {})"
            ).format(history.sql, column(_ID), column(EDITION), definitions(types))
        )
        connection.execute(sql.SQL("create index on {} ({})").format(history.sql, column(EDITION)))
        known = dict(types)
    if KEPT_AT not in known:
        added = sql.SQL("alter table {} add column {} timestamp with time zone not null default now()")
        connection.execute(added.format(history.sql, column(KEPT_AT)))
    for one, typed in types.items():
        alter = ""
        if one not in known:
            alter = "alter table {0} add column {1} {2}"
        elif known[one] != typed and _wider(known[one], typed) != known[one]:
            alter = "alter table {0} alter column {1} type {2} using {1}::{2}"
        if alter:
            connection.execute(sql.SQL(alter).format(history.sql, column(one), sql.SQL(typed)))
            known[one] = typed
    return {one: typed for one, typed in known.items() if one not in (_ID, EDITION, KEPT_AT)}


def _keep(connection: Connection, history: Name, columns: Sequence[str], rows: sql.Composable, label: str) -> None:
    """Add rows to the history under a name."""
    named = comma(map(column, columns))
    connection.execute(
        sql.SQL("insert into {} ({}, {}) select {}, {} from {} rows").format(
            history.sql, column(EDITION), named, sql.Literal(label), named, rows
        )
    )


def _adopt(connection: Connection, name: Name, history: Name, rule: MergeRule, fits: Fitted, label: str) -> None:
    """Keep the rows that the table holds.

    Raises:
        Misuse: It has a column for the mark of deletion.
        NotPublished: A key is NULL, or several rows share it.
    """
    there = [one.name for one in fits.table]
    refuse_mark_in_table(there, rule)
    keys = comma(map(column, rule.keys))
    no_key = sql.SQL(" or ").join(sql.SQL("{} is null").format(column(key)) for key in rule.keys)
    query = sql.SQL("select {0} from {1} group by {0} having count(*) > 1 or {2} limit {3}")
    found = connection.execute(query.format(keys, name.sql, no_key, sql.Literal(_SAMPLE))).fetchall()
    refuse_keys_there([dict(zip(rule.keys, row, strict=True)) for row in found], rule)
    _keep(connection, history, [one for one in there if one in fits.types], name.sql, label)


def _wider(known: str, given: str) -> str:
    from twice.columns import wider

    found = wider(kinds.kind_of(given), kinds.kind_of(known))
    return kinds.type_of(found) if found else given


def _number_steps(
    connection: Connection,
    name: Name,
    history: Name,
    rule: MergeRule,
    editions: Editions,
    types: Mapping[str, str],
) -> None:
    """Put the change rows that count of the keys that are touched into a table, numbered key by key."""
    keys = comma(map(column, rule.keys))
    there = comma(column(key, "h") for key in rule.keys)
    looked = [editions.own, *([editions.replaced] if editions.replaced else [])]
    touched = sql.SQL("select {} from {} where {} = any({})").format(
        keys, history.sql, column(EDITION), sql.Literal(list(editions.names) if editions.whole else looked)
    )
    if editions.whole:
        touched = touched + sql.SQL(" union select {} from {}").format(keys, name.sql)
    connection.execute(
        sql.SQL("create temporary table {} on commit drop as select distinct {} from ({}) keys").format(
            sql.Identifier(_TOUCHED), keys, touched
        )
    )
    meets = sql.SQL(" and ").join(sql.SQL("{} = {}").format(column(key, "h"), column(key, "k")) for key in rule.keys)
    order = column(rule.order, "h") if rule.order else sql.SQL("null::integer")
    connection.execute(
        sql.SQL(
            "create temporary table {steps} on commit drop as"
            " select {there}, h.{id} as {id}, {order} as twice_place, {gone} as twice_was_gone,"
            " row_number() over (partition by {there} order by array_position({names}, h.{edition})) as twice_step"
            " from {history} h join pg_temp.{touched} k on {meets} where h.{edition} = any({names})"
        ).format(
            steps=sql.Identifier(_STEPS),
            there=there,
            id=column(_ID),
            order=order,
            gone=merging.is_gone(rule, types, "h"),
            names=sql.Literal(list(editions.names)),
            edition=column(EDITION),
            history=history.sql,
            touched=sql.Identifier(_TOUCHED),
            meets=meets,
        )
    )


def _fold(connection: Connection, history: Name, rule: MergeRule, fits: Fitted, kept: Mapping[str, str]) -> None:
    """Go through the steps of each key, and note which row it ends up as, or that it is gone.

    A row that is there stays if the next one is late, or if nothing may be touched; else the next one takes its place,
    or takes it away.
    """
    keys = comma(map(column, rule.keys))
    both = sql.SQL(" and ").join(sql.SQL("{} = {}").format(column(key, "f"), column(key, "s")) for key in rule.keys)
    late = (
        sql.SQL("true")
        if rule.insert_only
        else sql.SQL("coalesce(s.twice_place < f.twice_place, false)" if rule.order else "false")
    )
    folded = sql.SQL(
        "with recursive folded as ("
        " select {keys}, twice_step, case when not twice_was_gone then {id} end as {id},"
        " case when not twice_was_gone then twice_place end as twice_place"
        " from pg_temp.{steps} where twice_step = 1"
        " union all"
        " select {named}, s.twice_step,"
        " case when f.{id} is not null and {late} then f.{id} when not s.twice_was_gone then s.{id} end,"
        " case when f.{id} is not null and {late} then f.twice_place when not s.twice_was_gone then s.twice_place end"
        " from folded f join pg_temp.{steps} s on {both} and s.twice_step = f.twice_step + 1)"
        " select distinct on ({keys}) {keys}, {id} from folded order by {keys}, twice_step desc"
    ).format(
        keys=keys,
        id=column(_ID),
        steps=sql.Identifier(_STEPS),
        named=comma(column(key, "s") for key in rule.keys),
        late=late,
        both=both,
    )
    meets = sql.SQL(" and ").join(sql.SQL("{} = {}").format(column(key, "k"), column(key, "l")) for key in rule.keys)
    values = [
        sql.SQL("{}::{}").format(
            column(one, "k") if one in rule.keys else column(one, "h") if one in kept else sql.NULL,
            sql.SQL(typed),
        )
        for one, typed in _held(fits).items()
    ]
    selected = comma(
        sql.SQL("{} as {}").format(value, column(one)) for one, value in zip(fits.types, values, strict=True)
    )
    connection.execute(
        sql.SQL(
            "create temporary table {becomes} on commit drop as select {selected}, h.{id} is null as {gone}"
            " from pg_temp.{touched} k left join ({folded}) l on {meets} left join {history} h on h.{id} = l.{id}"
        ).format(
            becomes=sql.Identifier(_BECOMES),
            selected=selected,
            id=column(_ID),
            gone=column(_GONE),
            touched=sql.Identifier(_TOUCHED),
            folded=folded,
            meets=meets,
            history=history.sql,
        )
    )
