"""What can a transform hand over to PostgreSQL, and of which kinds are its columns?

A Spark frame, of any size. Or, where no Spark is wanted, an Arrow table or a list of dictionaries: these are held by
the driver, and no JVM is started for them.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from twice import merges
from twice.abilities import Rows
from twice.columns import refuse_types
from twice.errors import NotPublished
from twice.merges import MergeRule
from twice.slices import column_taken
from twice.stores.postgres import arrow, kinds


def is_frame(rows: Rows) -> bool:
    """Tell a Spark frame from rows that are held here."""
    return hasattr(rows, "mapInArrow")


def held(rows: Rows) -> pa.Table:
    """Return rows that are held here as an Arrow table.

    Raises:
        NotPublished: The transform returned something else, or columns that hold several types.
    """
    if isinstance(rows, pa.Table):
        return rows
    if not isinstance(rows, list | tuple) or not all(isinstance(row, Mapping) for row in rows):
        raise NotPublished(
            f"The transform returned a {type(rows).__name__} instead of rows.",
            "Nothing was published, and the target is as it was.",
            "Return a Spark DataFrame, an Arrow table, or a list of dictionaries.",
        )
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise NotPublished(
                f"The column {name!r} holds values of several types: {' '.join(str(error).split())[:200]}",
                "Nothing was published, and the target is as it was.",
                "Make them one type in the transform.",
            ) from error
    return pa.table(columns)


def kinds_of(rows: Rows) -> dict[str, str]:
    """Return the kinds of the columns; of one that is NULL throughout it is empty."""
    if is_frame(rows):
        fields = json.loads(rows.schema.json())["fields"]
        refuse_types(fields)
        return {field["name"]: kinds.of_spark(field["type"], field["name"]) for field in fields}
    return {field.name: kinds.of_arrow(field.type, field.name) for field in held(rows).schema}


def refuse_incomparable(rows: Rows, rule: MergeRule) -> None:
    """Refuse keys and an order of types whose values cannot be compared, here as in any other store.

    Raises:
        Misuse: There is one.
    """
    fields = json.loads(rows.schema.json())["fields"] if is_frame(rows) else _fields(held(rows))
    merges.refuse_incomparable(fields, rule)


def _fields(table: pa.Table) -> list[dict[str, Any]]:
    """Return which columns of a table are maps, in the words of Spark's JSON; the others are compared as they are."""
    return [{"name": one.name, "type": "map" if pa.types.is_map(one.type) else ""} for one in table.schema]


def labelled(rows: Rows, column: str, label: str) -> Rows:
    """Return rows with one more column that holds a literal."""
    if is_frame(rows):
        from twice.stores import frames

        return frames.labelled(rows, column, label)
    table = held(rows)
    if column in table.column_names:
        raise column_taken(column)
    return table.append_column(column, pa.array([label] * table.num_rows, pa.string()))


def united(parts: Sequence[Rows]) -> Rows:
    """Return several results as one: frames if one of them is a frame."""
    frames_at_hand = [part for part in parts if is_frame(part)]
    if not frames_at_hand:
        return pa.concat_tables([held(part) for part in parts], promote_options="permissive")
    from twice.stores import frames

    session = frames_at_hand[0].sparkSession
    return frames.united([part if is_frame(part) else arrow.framed(session, held(part)) for part in parts])


def plain(table: pa.Table) -> list[list[Any]]:
    """Return the rows of a table as PostgreSQL takes them: what is nested as JSON."""
    from psycopg.types.json import Jsonb

    nested = [pa.types.is_nested(field.type) for field in table.schema]
    columns = [table.column(number).to_pylist(maps_as_pydicts="strict") for number in range(table.num_columns)]
    for number, is_nested in enumerate(nested):
        if is_nested:
            columns[number] = [None if value is None else Jsonb(value, json_text) for value in columns[number]]
    return [list(row) for row in zip(*columns, strict=True)]


def json_text(value: Any) -> str:
    """Return a nested value as JSON, as Spark writes it: numbers of any length, and as text what JSON has no word for."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(str(key))}:{json_text(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(_in_json(value))


def _in_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    is_no_number = isinstance(value, float) and not math.isfinite(value)
    return json.dumps(value) if is_no_number else value
