"""What happens when the rows and the table differ in their columns?

Three questions, each with one answer declared beforehand: a column that is new, one that is missing,
one that has another type. The default refuses all three. A column is never dropped without a word.

Types are written as in Spark's JSON. Those that no store gives back as they came are refused by name, before a row is staged, and so
are keys whose values cannot be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twice.errors import Misuse, NotPublished, suggestion

ON_NEW = ("fail", "add")
ON_MISSING = ("fail", "null")
ON_TYPE = ("fail", "widen")
_WHOLE = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")

# Types that other readers of a table take for another one, or that Spark or Delta cannot read back, and what to do.
_NOT_KEPT = {
    "interval": "Store a length as a number, or as the two times between which it lies.",
    "time": "Store it as a text, or as a timestamp.",
    "char": "Cast it to string in the transform.",
    "varchar": "Cast it to string in the transform.",
    "string collate": "Cast it to string in the transform: texts are compared by their bytes.",
    "void": "Cast it in the transform, for example CAST(NULL AS string).",
}
_NOT_COMPARED = {
    "map": "Use array_sort(map_entries({})) in the transform as the key.",
    "variant": "Use a part of it with a type, such as {}:id::string, in the transform as the key.",
}
_COLLATIONS = "__COLLATIONS"

Types = Mapping[str, Any]


@dataclass(frozen=True)
class ColumnPolicy:
    """What is done about columns that are new, missing, or of another type."""

    on_new: str = "fail"
    on_missing: str = "fail"
    on_type: str = "fail"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("on_new_column", self.on_new, ON_NEW),
            ("on_missing_column", self.on_missing, ON_MISSING),
            ("on_type_change", self.on_type, ON_TYPE),
        ):
            if value not in known:
                raise Misuse(f"{name}={value!r} is unknown.", fix=f"Use one of: {', '.join(known)}.")


NO_CHANGES = ColumnPolicy()


@dataclass(frozen=True)
class Fit:
    """How rows are made to fit a table.

    Attributes:
        columns: The columns of the table afterwards, in order, with their types.
        added: Columns that the table gets.
        absent: Columns that the rows lack, and that are filled with NULL.
        widened: Columns of the table that get a wider type.
    """

    columns: Types
    added: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()

    @property
    def changes_table(self) -> bool:
        """Tell whether the table's own columns change."""
        return bool(self.added or self.widened)


@dataclass(frozen=True)
class NamedColumn:
    """A column that a declaration names by one of its options; whether rows bring it, and whether the table keeps it."""

    name: str
    option: str
    in_rows: bool = True
    in_table: bool = True


def unknown_columns(
    named: Sequence[NamedColumn], table: Sequence[str], rows: Sequence[str] | None, policy: ColumnPolicy, target: str
) -> Misuse | None:
    """Return why named columns cannot be there, or None; `table` is empty if there is none, `rows` None if nothing tells.

    Rows with a column that the table lacks are refused unless columns are added, so one that it lacks is no column. One that it
    has may be filled by the table.
    """
    from_rows = [one for one in named if one.in_rows and rows is not None and one.name not in (*rows, *table)]
    from_table = [one for one in named if one.in_table and table and policy.on_new == "fail" and one.name not in table]
    if not (from_rows or from_table):
        return None
    lacking = {one.name: f"{one.name!r} ({one.option})" for one in from_table or from_rows}
    here = ", ".join(lacking.values())
    what = f"The rows of the source have no column {here}, and the transform adds none."
    if from_table:
        what = f"The table {target} has no column {here}."
    there = table if from_table else rows or ()
    return Misuse(what, "A run would be refused, so nothing was started.", suggestion(next(iter(lacking)), there))


def fit(rows: Types, table: Types, policy: ColumnPolicy, name: str) -> Fit:
    """Decide how rows of some types go into a table of other types.

    Raises:
        NotPublished: They differ in a way that the policy does not allow.
    """
    refuse_look_alikes(rows, table, name)
    added = tuple(column for column in rows if column not in table)
    absent = tuple(column for column in table if column not in rows)
    columns, widened, problems = dict(table), [], []
    if policy.on_new == "fail":
        problems += [f"have a new column {column!r}" for column in added]
    if policy.on_missing == "fail":
        problems += [f"lack the column {column!r}" for column in absent]
    for column in (column for column in table if column in rows):
        wide = wider(rows[column], table[column]) if policy.on_type == "widen" else None
        if rows[column] == table[column]:
            continue
        if wide is None:
            problems.append(f"have {column!r} as {_text(rows[column])} instead of {_text(table[column])}")
        elif wide != table[column]:
            widened.append(column)
            columns[column] = wide
    if problems:
        raise NotPublished(
            f"The rows do not fit the table {name}: they {'; they '.join(problems)}.",
            "Nothing was published, and the target is as it was.",
            _way_out(problems, policy),
        )
    return Fit({**columns, **{column: rows[column] for column in added}}, added, absent, tuple(widened))


def refuse_look_alikes(rows: Iterable[str], table: Iterable[str], name: str) -> None:
    """Spark takes `Day` and `day` for one column, and a table cannot hold both; one that is new neither.

    Raises:
        NotPublished: Two columns are such.
    """
    theirs = dict.fromkeys(table)
    lower = {column.lower(): column for column in theirs}
    for column in rows:
        known = lower.setdefault(column.lower(), column)
        if known != column:
            of = f" of the table {name}" if known in theirs else f", which the rows for {name} have too,"
            raise NotPublished(
                f"The column {column!r} differs from {known!r}{of} in capital letters alone.",
                "Nothing was published, and the target is as it was.",
                "Rename the column in the transform.",
            )


def refuse_types(fields: Iterable[Mapping[str, Any]]) -> None:
    """Refuse columns, at any depth, of types that no store gives back as they came.

    Raises:
        Misuse: There is one.
    """
    for path, kind in _parts(fields):
        fix = next((fix for name, fix in _NOT_KEPT.items() if re.match(rf"{name}\b", kind)), "")
        if fix:
            raise Misuse(
                f"The column {path!r} has the type {kind}, which no table keeps.",
                "It would come back as something else, or not at all. Nothing was published.",
                fix,
            )


def refuse_keys(fields: Iterable[Mapping[str, Any]], keys: Iterable[str], role: str = "key") -> None:
    """Refuse keys, or another column that is compared, of types whose values are neither equal nor in order.

    Raises:
        Misuse: There is one.
    """
    named = set(keys)
    for path, kind in _parts(field for field in fields if field["name"] in named):
        if kind in _NOT_COMPARED:
            raise Misuse(
                f"The {role} {path!r} has the type {kind}, whose values cannot be compared.",
                "A row could not be found again by it. Nothing was published.",
                _NOT_COMPARED[kind].format(path),
            )


def _parts(fields: Iterable[Mapping[str, Any]], within: str = "") -> Iterator[tuple[str, str]]:
    """Yield the types of columns and of all that is in them, each with where it is, such as `lines.element.price`."""
    for field in fields:
        path = f"{within}{field['name']}"
        collated = field.get("metadata", {}).get(_COLLATIONS, {})
        yield from ((f"{within}{part}", f"string collate {name.rpartition('.')[2]}") for part, name in collated.items())
        yield from _parts_of(field["type"], path)


def _parts_of(kind: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(kind, str):
        yield path, kind
        return
    yield path, str(kind["type"])
    yield from _parts(kind.get("fields", ()), f"{path}.")
    for part in ("element", "key", "value"):
        if f"{part}Type" in kind:
            yield from _parts_of(kind[f"{part}Type"], f"{path}.{part}")


def _way_out(problems: list[str], policy: ColumnPolicy) -> str:
    asked = []
    if policy.on_new == "fail" and any("new column" in problem for problem in problems):
        asked.append("on_new_column='add'")
    if policy.on_missing == "fail" and any("lack the column" in problem for problem in problems):
        asked.append("on_missing_column='null'")
    if policy.on_type == "fail" and any("instead of" in problem for problem in problems):
        asked.append("on_type_change='widen' (if the type only grows)")
    declare = f", or declare {' and '.join(asked)}" if asked else ", or write to a new target"
    return f"Adapt the transform{declare}."


def wider(one: Any, other: Any) -> Any | None:
    """Return the type that holds every value of both, or None."""
    if one == other:
        return one
    if not isinstance(one, str) or not isinstance(other, str):
        return None
    if one in _WHOLE and other in _WHOLE:
        return max(one, other, key=_WHOLE.index)
    if {one, other} == {"float", "double"}:
        return "double"
    return _wider_decimal(one, other)


def _wider_decimal(one: str, other: str) -> str | None:
    found = [_DECIMAL.fullmatch(kind) for kind in (one, other)]
    if not all(found):
        return None
    (p1, s1), (p2, s2) = ((int(match[1]), int(match[2])) for match in found if match)
    scale, whole = max(s1, s2), max(p1 - s1, p2 - s2)
    wide = f"decimal({whole + scale},{scale})"
    # Only a type that one side has already: another would surprise both.
    return wide if wide in (one, other) else None


def _text(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind.get("type", kind))
