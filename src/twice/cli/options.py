"""Which options can be given together?

An option that is given counts, or the command is refused before anything is opened: none is passed over.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from twice.errors import Misuse

_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
_Called = TypeVar("_Called", bound=Callable[..., Any])


def refuse_repeated(command: click.Command, words: list[str]) -> None:
    """Refuse a command line that gives an option twice with two meanings.

    Raises:
        Misuse: An option is there twice, of which only the last would count.
    """
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    parser = command.make_parser(click.Context(command, resilient_parsing=True))
    parser.ignore_unknown_options = True  # what is misspelt is told by the command itself
    for parameter, times in Counter(parser.parse_args(args=list(words))[2]).items():
        if times > 1 and _has_one_value(parameter):
            raise _refusal(f"{_shown(parameter)} is given {times} times", "Only the last one would count.")


def contradicting(one: str, *others: str, why: str) -> Callable[[_Called], _Called]:
    """Refuse a command that is given one parameter with any of some others; it stands right above the function.

    Raises:
        Misuse: Two of them are given.
    """

    def around(called: _Called) -> _Called:
        @functools.wraps(called)
        def call(*args: Any, **options: Any) -> Any:
            if _given(one):
                refuse_for(_flag(one), *others, why=why)
            return called(*args, **options)

        return call  # type: ignore[return-value]

    return around


def refuse_for(what: str, *others: str, why: str) -> None:
    """Refuse options that say nothing about what the command was called for.

    Raises:
        Misuse: One of them is given.
    """
    for other in filter(_given, others):
        raise _refusal(f"{what} and {_flag(other)} contradict each other", why)


def _given(name: str) -> bool:
    """Tell whether a parameter of this command was given, by a word or by the environment."""
    context = click.get_current_context()
    value = context.params.get(name)
    return context.get_parameter_source(name) in _GIVEN and value not in (None, False, ())


def _flag(name: str) -> str:
    return _shown(next(one for one in click.get_current_context().command.params if one.name == name))


def _refusal(what: str, why: str) -> Misuse:
    return Misuse(f"{what}.", f"{why} Nothing was done.", "Leave one of them out.")


def _has_one_value(parameter: click.Parameter) -> bool:
    """Tell an option of one value from an argument, and from a flag that says the same however often it is given."""
    if not isinstance(parameter, click.Option) or parameter.multiple or parameter.count:
        return False
    return bool(parameter.secondary_opts) or not parameter.is_flag


def _shown(parameter: click.Parameter) -> str:
    options = [word for word in parameter.opts if word.startswith("--")]
    return options[0] if options else str(parameter.name).upper()
