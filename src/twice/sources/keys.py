"""Does a JSON object spell its keys as the schema does?

Spark passes over a key in another case, at every depth, and gives NULL for the column. So such a key is looked for wherever the
schema declares a struct: in Python by `misreading` where no row may be set aside, in Spark where rows are judged one by one.
Keys that the schema does not have in any case are passed over, as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

# The keys of an object, each with those of the objects inside; of a map, whose keys are data, None stands for all.
Keys = Mapping[str | None, Any]


def names_of(keys: Keys) -> set[str]:
    """Return all keys that are declared, at any depth."""
    found = {name for name in keys if name is not None}
    return found.union(*(names_of(inner) for inner in keys.values()))


def misspelt(found: Any, keys: Keys) -> str | None:
    """Return the first key that is declared in another case, or None."""
    if isinstance(found, list):
        return next(filter(None, (misspelt(one, keys) for one in found)), None)
    if not isinstance(found, dict) or not keys:
        return None
    lowered = {name.lower() for name in keys if name is not None}
    for name, value in found.items():
        if name.lower() in lowered and name not in keys:
            return str(name)
        inner = misspelt(value, keys.get(name, keys.get(None, {})))
        if inner:
            return inner
    return None


def has_misspelt(line: Column, struct: StructType, options: Mapping[str, str]) -> Column:
    """Tell in SQL whether a line of JSON has a key that is declared in another case."""
    from pyspark.sql import functions as F

    levels = list(_levels(struct))
    names = sorted({name for level in levels for name in level.names})
    either = "|".join(rf"\Q{name}\E" for name in names)
    # Where no key anywhere looks so, there is nothing to be taken apart.
    looks_so = line.rlike(rf'"(?!(?:{either})")(?iu:{either})"\s*:')
    said = [_is_misspelt(line, level, options) for level in levels]
    return looks_so & F.coalesce(F.array_contains(F.array(*said), F.lit(True)), F.lit(False))


@dataclass(frozen=True)
class _Level:
    """The objects at one place of a line: what their keys may be, what reads the line as far as them, and how they are got."""

    names: tuple[str, ...]
    reads: Callable[[DataType], DataType]
    gets: Callable[[Column], Column]


def _is_misspelt(line: Column, level: _Level, options: Mapping[str, str]) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType, StringType

    schema: Any = level.reads(MapType(StringType(), StringType()))
    keys = F.flatten(F.transform(level.gets(F.array(F.from_json(line, schema, dict(options)))), F.map_keys))
    lowered = [name.lower() for name in level.names]
    return F.exists(keys, lambda key: F.lower(key).isin(lowered) & ~key.isin(list(level.names)))


def _levels(struct: StructType, reads: Any = lambda kind: kind, gets: Any = lambda found: found) -> Iterator[_Level]:
    """Yield each struct of a schema; what is got is an array of objects, none of them NULL."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    there = _without_null(gets)
    yield _Level(tuple(struct.names), reads, there)
    for field in struct.fields:

        def reads_field(kind: DataType, name: str = field.name) -> DataType:
            above: DataType = reads(StructType().add(name, kind))
            return above

        def gets_field(found: Column, name: str = field.name) -> Column:
            return F.transform(there(found), lambda one: one.getField(name))

        yield from _inside(field.dataType, reads_field, gets_field)


def _inside(kind: DataType, reads: Any, gets: Any) -> Iterator[_Level]:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        yield from _levels(kind, reads, gets)
    elif isinstance(kind, ArrayType):
        many = _without_null(gets)
        yield from _inside(
            kind.elementType, lambda inner: reads(ArrayType(inner)), lambda found: F.flatten(many(found))
        )
    elif isinstance(kind, MapType):
        many = _without_null(gets)
        yield from _inside(
            kind.valueType,
            lambda inner: reads(MapType(StringType(), inner)),
            lambda found: F.flatten(F.transform(many(found), F.map_values)),
        )


def _without_null(gets: Any) -> Any:
    from pyspark.sql import functions as F

    return lambda found: F.filter(gets(found), lambda one: one.isNotNull())
