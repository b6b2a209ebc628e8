"""What is asked before a pattern is advised, and in which order?

All of it is data: the questions, and a tree of them. Each way through the tree ends at the name of an advice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

YES, NO = "yes", "no"


@dataclass(frozen=True)
class Question:
    """One question, and its possible answers with what each means.

    A question without choices is answered with yes or no.
    """

    name: str
    text: str
    choices: Mapping[str, str] = field(default_factory=dict)

    @property
    def values(self) -> tuple[str, ...]:
        """The answers that are understood."""
        return tuple(self.choices) or (YES, NO)

    @property
    def flag(self) -> str:
        """The option of the command line, without its value."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def usage(self) -> str:
        """The option with all that may be said."""
        if self.choices:
            return f"{self.flag} {'|'.join(self.choices)}"
        return f"{self.flag} or {self.said(NO)}"

    def said(self, answer: str) -> str:
        """Return the option that gives an answer."""
        if self.choices:
            return f"{self.flag} {answer}"
        return self.flag if answer == YES else f"--no-{self.flag.removeprefix('--')}"


@dataclass(frozen=True)
class Fork:
    """A question of the tree, and where each answer leads: to another fork, or to an advice by its name."""

    question: str
    branches: Mapping[str, Fork | str]


QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (
        Question("keep_versions", "Must every version that was published stay readable, unchanged?"),
        Question(
            "data",
            "What does one run deliver?",
            {
                "full": "all rows of the table, or of the slot's own part of it",
                "increments": "changes: rows that are new, changed or deleted since the last run",
                "events": "new rows only, which never change afterwards",
                "files": "files of a folder that fills, some of them late, sent twice or not whole yet",
                "stream": "batches of a stream, which may be cut differently when it is replayed",
            },
        ),
        Question(
            "all_or_nothing",
            "Does one run load several inputs that must become visible together, all of them or none?",
        ),
        Question(
            "metadata",
            "Is there a metadata layer (a catalog with tables and views), where replacing a whole table is cheap?",
        ),
        Question("keys", "Does each row have a key that is the same every time the row is delivered?"),
        Question("backfills", "Will past slots be run again after newer ones, perhaps with corrected inputs?"),
    )
}

TREE = Fork(
    "keep_versions",
    {
        YES: "versions",
        NO: Fork(
            "data",
            {
                "full": Fork(
                    "all_or_nothing",
                    {YES: "together", NO: Fork("metadata", {YES: "periods", NO: "slices"})},
                ),
                "increments": Fork(
                    "keys",
                    {YES: Fork("backfills", {YES: "replayed changes", NO: "changes"}), NO: "changes without a key"},
                ),
                "events": Fork("keys", {YES: "events", NO: "events without a key"}),
                "files": Fork("keys", {YES: "files", NO: "files without a key"}),
                "stream": Fork(
                    "all_or_nothing",
                    {YES: "stream together", NO: Fork("keys", {YES: "stream", NO: "stream without a key"})},
                ),
            },
        ),
    },
)
