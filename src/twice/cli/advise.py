"""How does a person find the pattern that fits: by questions on a terminal, or by options?"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import click

from twice import __version__, advice
from twice.advice import NO, QUESTIONS, YES, Advice, Question, Way
from twice.cli.output import Command, debug_option, output_option, print_json
from twice.errors import Unsupported

_WIDEST = 100


def _question_options(command: Command) -> Command:
    """Add one option for each question of the tree."""
    for question in reversed(QUESTIONS.values()):
        command = _option(question)(command)
    return command


def _option(question: Question) -> Callable[[Command], Command]:
    if question.choices:
        chosen = click.Choice(list(question.choices))
        return click.option(question.flag, question.name, type=chosen, help=question.text)
    return click.option(f"{question.flag}/{question.said(NO)}", question.name, default=None, help=question.text)


@click.command("advise")
@_question_options
@click.option("--store", help="Also say whether this kind of store carries the pattern, and use it in the lines.")
@output_option
@debug_option
def advise_command(store: str | None, output: str, **given: str | bool | None) -> None:
    """Say which pattern fits: why, what it costs, what it does not protect against, and the lines to paste.

    What is not said as an option is asked for on a terminal, as long as it can change the answer.

    \b
    Examples:
      twice advise
      twice advise --keep-versions
      twice advise --no-keep-versions --data events --keys --store delta
    """
    if store:
        _check_store(store)
    answers = {name: _as_answer(value) for name, value in given.items() if value is not None}
    if sys.stdin.isatty():
        answers = _asked(answers)
    answer = _Answer(advice.advise(answers), answers, store)
    if output == "json":
        print_json(answer.facts)
    else:
        print("\n".join(answer.told))


def _check_store(kind: str) -> None:
    from twice.stores.registry import store_class

    store_class(kind)


def _as_answer(value: str | bool) -> str:
    if isinstance(value, bool):
        return YES if value else NO
    return value


def _asked(answers: dict[str, str]) -> dict[str, str]:
    """Ask on standard error, so that the answer alone is on standard output."""
    whole = dict(answers)
    while question := advice.next_question(whole):
        whole[question.name] = _ask(question)
    return whole


def _ask(question: Question) -> str:
    for line in _wrapped(question.text):
        click.echo(line, err=True)
    if not question.choices:
        return _as_answer(click.confirm("  Your answer", default=None, err=True))
    longest = max(map(len, question.choices))
    for name, meaning in question.choices.items():
        for line in _wrapped(meaning, f"  {name.ljust(longest)}  "):
            click.echo(line, err=True)
    answer: str = click.prompt("  Your answer", type=click.Choice(list(question.choices)), err=True)
    return answer


@dataclass(frozen=True)
class _Answer:
    """An advice, the answers that led to it, and what this version and the store make of it."""

    advice: Advice
    answers: dict[str, str]
    store: str | None

    @property
    def carried(self) -> bool:
        return advice.carried(self.advice.pattern)

    @property
    def refusal(self) -> Unsupported | None:
        """Why the store cannot carry a pattern that this version has."""
        return advice.refusal(self.advice.way, self.store) if self.store and self.carried else None

    @property
    def instead(self) -> Way | None:
        """The way to take for now, where the advised one cannot be had."""
        found = advice.usable(self.advice, self.store)
        return found if found != self.advice.way else None

    @property
    def command(self) -> str:
        return advice.command(advice.led_there(self.answers), self.store)

    @property
    def idle(self) -> list[str]:
        """Options that were given and made no difference."""
        used = advice.led_there(self.answers)
        return [QUESTIONS[name].said(value) for name, value in self.answers.items() if name not in used]

    @property
    def facts(self) -> dict[str, Any]:
        """All of it as data."""
        return {
            "pattern": self.advice.pattern,
            "situation": self.advice.situation,
            "why": self.advice.why,
            "cost": self.advice.cost,
            "not_protected": list(self.advice.not_protected),
            "alternatives": [_way_facts(way) for way in self.advice.alternatives],
            "lines": self.advice.lines(store=self.store),
            "carried": self.carried,
            "store": self._store_facts(),
            "instead": self._instead_facts(),
            "answers": advice.led_there(self.answers),
            "no_difference": self.idle,
            "command": self.command,
        }

    def _store_facts(self) -> dict[str, Any] | None:
        if self.store is None:
            return None
        refusal = self.refusal
        supported = refusal is None if self.carried else None
        return {
            "kind": self.store,
            "supported": supported,
            "reason": refusal.why if refusal else "",
            "fix": refusal.fix if refusal else "",
        }

    def _instead_facts(self) -> dict[str, Any] | None:
        way = self.instead
        return {**_way_facts(way), "lines": self.advice.lines(way, self.store)} if way else None

    @property
    def told(self) -> list[str]:
        """All of it as lines of text; code and commands are never wrapped, so that they can be copied."""
        found = self.advice
        return [
            f"Pattern: {found.pattern}",
            *_wrapped(found.why, "Why: "),
            *_wrapped(found.cost, "What it costs: "),
            "What it does not protect against:",
            *_listed(found.not_protected),
            "Other ways:",
            *_listed(_way_text(way) for way in found.alternatives),
            *self._standing(),
            *self._paste(),
            "",
            "The same advice without a question:",
            f"  {self.command}",
            *([f"Made no difference: {', '.join(self.idle)}"] if self.idle else []),
        ]

    def _standing(self) -> list[str]:
        """Say plainly what cannot be had, and what to do instead."""
        if not self.carried:
            trouble = [f"Twice {__version__} does not carry {self.advice.pattern} yet."]
        elif self.refusal:
            trouble = [f"{self.store} cannot carry {self.advice.pattern}.", self.refusal.why, self.refusal.fix]
        else:
            return [f"{self.store} carries {self.advice.pattern}."] if self.store else []
        where = f" on {self.store}" if self.store else ""
        way = self.instead
        trouble.append(
            f"The nearest that it carries{where} is {way.code}: {way.difference}."
            if way
            else f"There is nothing near it that this version carries{where}."
        )
        return ["", *_wrapped(" ".join(filter(None, trouble)))]

    def _paste(self) -> list[str]:
        way = advice.usable(self.advice, self.store)
        if way is None:
            return []
        lines = self.advice.lines(way, self.store).rstrip()
        return ["", f"To paste into a file of pipelines, with {way.pattern}:", "", lines]


def _way_facts(way: Way) -> dict[str, Any]:
    return {
        "pattern": way.pattern,
        "code": way.code,
        "difference": way.difference,
        "carried": advice.carried(way.pattern),
    }


def _way_text(way: Way) -> str:
    later = "" if advice.carried(way.pattern) else " (not in this version)"
    return f"{way.code}{later}: {way.difference}."


def _listed(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in _wrapped(text, "  - ")]


def _wrapped(text: str, first: str = "") -> list[str]:
    """Break a text at the width of the terminal, its further lines under the first word."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    under = " " * len(first) if first.startswith(" ") else "  " if first else ""
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=under, break_long_words=False, break_on_hyphens=False
    )
