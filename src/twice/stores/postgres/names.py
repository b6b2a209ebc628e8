"""Which table does a target's name mean, and which names does PostgreSQL understand?

A name is `table` or `schema.table`. A `/` becomes `__`, since PostgreSQL has no folders: so the tables behind
a view have names of their own. PostgreSQL cuts a name after 63 bytes, with a notice at most, and two long names
would then be one table; so longer ones are refused, and so is NUL. All names reach SQL through the composer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import sql

from twice.errors import Misuse
from twice.runs import digest

MOST_BYTES = 63
_ENDING_BYTES = 20


def checked(name: str, what: str = "column") -> str:
    """Return a name that PostgreSQL keeps as it is.

    Raises:
        Misuse: It is empty, longer than 63 bytes, or holds NUL.
    """
    if not name or "\0" in name or len(name.encode()) > MOST_BYTES:
        raise Misuse(
            f"PostgreSQL cannot keep {name!r} as the name of a {what}.",
            f"It has {len(name.encode())} bytes, and what is longer than {MOST_BYTES} is cut: two names could become one."
            if len(name.encode()) > MOST_BYTES
            else "It is empty or holds NUL.",
            f"Choose a name of {MOST_BYTES} bytes at most.",
        )
    return name


def column(name: str, of: str = "") -> sql.Identifier:
    """Return a column for the composer, of a table or alias if one is named."""
    return sql.Identifier(of, checked(name)) if of else sql.Identifier(checked(name))


def definitions(types: Mapping[str, str]) -> sql.Composed:
    """Return columns with their types, as a table is made of them."""
    return sql.SQL(", ").join(sql.SQL("{} {}").format(column(name), sql.SQL(typed)) for name, typed in types.items())


@dataclass(frozen=True)
class Name:
    """A table in a schema."""

    schema: str
    table: str

    @property
    def sql(self) -> sql.Identifier:
        """The table for the composer."""
        return sql.Identifier(self.schema, self.table)

    @property
    def text(self) -> str:
        """The table as PostgreSQL itself would write it, for `to_regclass`."""
        return self.sql.as_string(None)

    def beside(self, table: str) -> Name:
        """Return another table of the same schema."""
        return Name(self.schema, checked(table, "table"))

    def with_ending(self, ending: str) -> Name:
        """Return a table beside this one, named after it; of a long name a digest tells it from others."""
        whole = f"{self.table}_{ending}"
        if len(whole.encode()) <= MOST_BYTES:
            return self.beside(whole)
        start = self.table.encode()[: MOST_BYTES - _ENDING_BYTES - len(ending)].decode(errors="ignore")
        return self.beside(f"{start}_{digest(self.table)[:8]}_{ending}")


def parse(name: str, schema: str) -> Name:
    """Read a target's name; one without a schema is in the given one.

    Raises:
        Misuse: It does not name a table.
    """
    first, dot, rest = name.partition(".")
    named, table = (first, rest) if dot else (schema, name)
    if "." in table or "/" in named:
        raise Misuse(f"{name!r} does not name a table of PostgreSQL.", fix="Write table, or schema.table.")
    return Name(checked(named, "schema"), checked(table.replace("/", "__"), "table"))
