"""What does the page about bad inputs say? Written anew by: python tests/bad_inputs_page.py"""

from pathlib import Path

from catalogue import EVENTS, FILES, NAMES, PATTERNS, REFUSED, ROWS, TAKEN, Case, Got

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "bad-inputs.md"
_HEAD = ["| input | where bad ones may be set aside | where none may |", "|---|---|---|"]


def page() -> str:
    """Return the whole page."""
    return "\n".join(
        [
            "# Bad inputs",
            "",
            "Names, files and rows that trip others, and what an ingest (`twice.files(..., track=True)`) does with each. None is passed",
            "over without a word. The middle column is for `max_quarantined=` with `on_bad_file='set_aside'`, the last one for neither. All",
            "are tried into a Parquet table by `tests/scenarios/test_bad_inputs.py`, which prints what each got. This page is written by",
            "`python tests/bad_inputs_page.py`, and a test compares it.",
            "",
            "- *taken in*: its rows are in the table.",
            "- *set aside*: the file has a mark with the reason, in `twice files`; the others go on.",
            "- *row set aside*: the row is kept with file, line, text and reason, in `twice quarantine`; the others go on.",
            "- *waits*: nothing is done with it yet; the run and `twice files` name it, with the reason.",
            "- *refused*: the run fails and names the input, and the target is as it was.",
            "",
            "Every run has as many rows parsed as it handed on and set aside, and checks it.",
            "",
            "## Names",
            "",
            *_HEAD,
            *map(_line, NAMES),
            *(f"| {what} | {_got(got)} | {_got(got)} |" for what, _, got in PATTERNS),
            "",
            "## Files",
            "",
            *_HEAD,
            *map(_line, FILES),
            *(f"| {what} | {_got(got)} | {_got(got)} |" for what, got in EVENTS.items()),
            "",
            "`unreadable` is tried as a link to a file that cannot be read. A file that waits because its content is known is loaded with",
            "`on_copied_file='load'`; what a known name with new content means is said with `on_changed_file=`.",
            "",
            "## Rows",
            "",
            "The schema is `id bigint not null, name string, amount decimal(5,2), day date`, and the rule of the middle column `amount >= 0`.",
            "",
            *_HEAD,
            *map(_line, ROWS),
            "",
            "Where no row may be set aside, Spark reads the rows, and fails at the first that is broken. What it would read without a word as",
            "something else is looked for before, as far as a quick look at each line can tell. It cannot tell everything:",
            "",
            "- Of two equal keys Spark takes the last. Those of the schema's columns are noticed, and others only on a line that is taken apart.",
            '- A value behind the object and a comma (`{...}, "x": {...}`) is noticed only if an object or the end of the line tells of it.',
            "- With separators of several characters, quotation marks in the last field are not looked at.",
            "- Files in another encoding than UTF-8, in packings that only Spark unpacks, or with `multiLine` are not looked at line by line.",
            "",
        ]
    )


def _line(case: Case) -> str:
    return f"| {case.what} | {_got(case.tolerant)} | {_got(case.strict)} |"


def _got(got: Got) -> str:
    words = got.words.replace("|", "\\|").rstrip(".")
    if not words:
        return f"{got.state}: Spark's own words" if got.state == REFUSED else got.state
    return f"{got.state}: {words}" if got.state != TAKEN else got.state


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
