"""How are a table's rows made of all change rows that were ever kept?

Change rows are kept in a table beside the target, each under the name of the try that brought it. They are written in
the transaction that publishes, so none is left behind by a death. Of each key the rows that count are taken in the
order of their slots, and each does to the key what a merge would have done.
"""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import sql

from twice.abilities import Editions
from twice.merges import MergeRule
from twice.stores.postgres import bookkeeping, kinds, merging
from twice.stores.postgres.connections import Connection, comma
from twice.stores.postgres.kinds import Fitted
from twice.stores.postgres.merging import Changed
from twice.stores.postgres.names import Name, column, definitions

ENDING = "twice_history"
_EDITION, _ID = "twice_edition", "twice_row"
_TOUCHED, _STEPS, _BECOMES = "twice_touched", "twice_steps", "twice_becomes"
_GONE = "twice_gone"


def history_of(name: Name) -> Name:
    """Return the table that keeps the change rows of another."""
    return name.with_ending(ENDING)


def merge(
    connection: Connection, name: Name, relation: sql.Composable, rule: MergeRule, fits: Fitted, editions: Editions
) -> Changed:
    """Keep the rows, and make the touched keys of the table what all kept rows say."""
    history = history_of(name)
    kept = _keep(connection, history, merging.one_a_key(relation, rule, fits.source), fits.source, editions.own)
    _number_steps(connection, name, history, rule, editions, kept)
    _fold(connection, history, rule, fits, kept)
    becomes = sql.Identifier("pg_temp", _BECOMES)
    as_merge = MergeRule(rule.keys, deleted=_GONE)
    source = {**fits.types, _GONE: "boolean"}
    folded = Fitted(fits.table, source, fits.types, fits.fit.__class__(fits.fit.columns))
    changed = merging.merge(connection, name, becomes, as_merge, folded)
    for table in (_TOUCHED, _STEPS, _BECOMES):
        connection.execute(sql.SQL("drop table {}").format(sql.Identifier("pg_temp", table)))
    return changed


def _keep(
    connection: Connection, history: Name, rows: sql.Composable, types: Mapping[str, str], own: str
) -> Mapping[str, str]:
    """Add the rows to the history, which takes on every column that ever came; return its columns."""
    known = {one.name: one.type for one in bookkeeping.columns_of(connection, history)}
    if not known:
        connection.execute(
            sql.SQL(
                "create table {} ({} bigint generated always as identity primary key, {} text not null, {})"
            ).format(history.sql, column(_ID), column(_EDITION), definitions(types))
        )
        connection.execute(sql.SQL("create index on {} ({})").format(history.sql, column(_EDITION)))
        known = dict(types)
    for one, typed in types.items():
        alter = ""
        if one not in known:
            alter = "alter table {} add column {} {}"
        elif known[one] != typed and _wider(known[one], typed) != known[one]:
            alter = "alter table {} alter column {} type {}"
        if alter:
            connection.execute(sql.SQL(alter).format(history.sql, column(one), sql.SQL(typed)))
            known[one] = typed
    columns = comma(map(column, types))
    connection.execute(
        sql.SQL("insert into {} ({}, {}) select {}, {} from {} rows").format(
            history.sql, column(_EDITION), columns, sql.Literal(own), columns, rows
        )
    )
    return {one: typed for one, typed in known.items() if one not in (_ID, _EDITION)}


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
        keys, history.sql, column(_EDITION), sql.Literal(list(editions.names) if editions.whole else looked)
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
            edition=column(_EDITION),
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
        for one, typed in fits.types.items()
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
