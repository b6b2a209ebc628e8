"""What does the page about mutants say? Written anew by: python tests/mutants_page.py"""

from pathlib import Path

import mutants_after_failures  # noqa: F401 - puts its mutants on the list
import ways_after_failures  # noqa: F401 - puts its ways on the list
from model.wrong import WRONG
from mutants import MUTANTS
from ways import WAYS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "mutants.md"


def page() -> str:
    """Return the whole page."""
    return "\n".join(
        [
            "# Mutants",
            "",
            "Tools that find nothing may be blind. So the tests break Twice on purpose, one mistake at a time, and demand that",
            "each is caught, and that the same way finds nothing in the real code. This page is written by",
            "`python tests/mutants_page.py`, and a test compares it.",
            "",
            "## Mistakes in the code",
            "",
            "In stores, in the executor, in decisions, in patterns, in sources and in people's pipelines; in retries, effects and steps.",
            "",
            "| mistake | what it breaks | caught by |",
            "|---|---|---|",
            *(f"| {mutant.name} | {mutant.breaks} | {mutant.way} |" for mutant in MUTANTS),
            "",
            "The ways:",
            "",
            "| way | what happens |",
            "|---|---|",
            *(f"| {name} | {_sentence(way)} |" for name, way in WAYS.items()),
            "",
            "## Wrong protocols",
            "",
            "Each changes one rule of the protocol, and is caught in a model (`tests/model`) that tries every order of events in a",
            "small world. The last column names the promise that is found broken first.",
            "",
            "| protocol | what is wrong | world | broken |",
            "|---|---|---|---|",
            *(f"| {wrong.__name__} | {_sentence(wrong)} | {at.size} | {at.promise} |" for wrong, at in WRONG.items()),
            "",
            "| | promise |",
            "|---|---|",
            *(f"| {number} | {promise} |" for number, promise in PROMISES.items()),
            "",
        ]
    )


PROMISES = {
    "I1": "the rows are those of one clean run on the inputs of the receipt",
    "I3": "what the ledger says to be published is in the store",
    "I4": "the generation that readers see never falls, and no number is left out",
    "I5": "rows of strangers and tables of others are untouched",
    "I6": "success and a skip are said only where they are true",
    "I7": "once the faults are over, the next attempt finishes",
    "I8": "a tidy removes nothing that a live run uses",
}


def _sentence(thing: object) -> str:
    return " ".join((thing.__doc__ or "").split()).rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
