"""What does the page about types say? Written anew by: python tests/types_page.py"""

from pathlib import Path

from typed import INCOMPARABLE, NOT_KEPT, TYPES

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "types.md"
_VARIANT = "| `variant` | `variant` | `jsonb` | no |"


def page() -> str:
    """Return the whole page."""
    kept = {
        one.sql: f"| `{one.sql}` | `{one.sql}` | `{one.postgres}` | {'yes' if one.is_key else 'no'} |" for one in TYPES
    }
    return "\n".join(
        [
            "# Types",
            "",
            "Which types of Spark a table holds, as what, and which of them may be a key (`keys=` of `merger`, `dedup_insert`,",
            "`stateful_merger` and `keyed`) or the `order=` of changes. `tests/stores/test_types.py` puts all of them through every pattern:",
            "first publish, correction, replay, read back by Twice and by pyarrow, deltalake and psycopg. This page is written by",
            "`python tests/types_page.py`, and a test compares it.",
            "",
            "## Held",
            "",
            "| type | Parquet, Delta | PostgreSQL | key |",
            "|---|---|---|---|",
            *kept.values(),
            _VARIANT,
            "",
            "The memory store keeps values as they are. In the `jsonb` of PostgreSQL nested values are as Spark writes them in JSON: NULL fields",
            "are kept, times have microseconds, bytes are base64, and `NaN` and `Infinity` are texts. A nested column is read back as JSON.",
            "",
            "## Refused",
            "",
            "Before a row is staged, by name, in every pattern and at any depth. Exit 2, and the message says what to do. Delivered files",
            "(`keyed(file=...)`) hold what their format does.",
            "",
            "| type | why |",
            "|---|---|",
            *(f"| `{typed}` | {_WHY[typed.split(' ')[0]]} |" for typed in NOT_KEPT),
            "| `time` | Spark reads it from no file |",
            "| `char(n)`, `varchar(n)` in a `schema=` of files | Spark reads it from no file; write `string` |",
            *(f"| `{typed}` as a key or `order=`, at any depth | {_WHY[typed]} |" for typed in INCOMPARABLE),
            "",
            "## What is equal",
            "",
            "The same on every store, for keys and for telling whether a row changes:",
            "",
            "- `0.0` and `-0.0` are equal, and so are two `NaN`, also inside arrays and structs. Any of them may be what the table shows.",
            "- Decimals are equal if their values are: `1.5` and `1.50`.",
            "- Structs are equal if their fields are, NULL with NULL. A key itself is never NULL.",
            "- Maps are equal if they have the same entries, in whatever order. Variants are equal if they hold the same value of the same type;",
            "  on PostgreSQL, as all JSON there, if their numbers are equal.",
            "- Texts are equal if their bytes are. Blanks at the end count.",
            "",
            "A table that others made may have columns of `char(n)` and `varchar(n)`. Rows are compared as the table keeps them: in a `char(n)`",
            "blanks at the end do not count; of a `varchar(n)` blanks beyond its length are cut. Any other text that is too long is refused.",
            "Spark reads a `char(n)` of Delta with its blanks, PostgreSQL hands it over without them. A table that Twice makes has plain texts:",
            "what a frame knows of lengths is not handed on, and the blanks that Spark adds to a `char(n)` stay in the text.",
            "",
            "On PostgreSQL a column with an equality of its own, such as `citext`, `uuid` or `numeric`, is compared by that",
            "([write to PostgreSQL](../how-to/write-to-postgres.md)).",
            "",
        ]
    )


_WHY = {
    "interval": "other readers find a number, or Spark cannot hand it over",
    "void": "it is no type: the next run would have another one",
    "string": "texts are compared by their bytes, which a collation does not",
    "map": "Spark does not compare maps",
    "variant": "Spark does not compare variants",
}

if __name__ == "__main__":
    PAGE.write_text(page())
