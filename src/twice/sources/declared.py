"""What does the user say of an input that cannot be pinned?

A query or a function has no version and no content to hash, so its user declares the fingerprint:
a text with the slot's placeholders, or a function of the run. The function is called at the first
look and again at the second. It must not need Spark, since it decides whether a JVM is started.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twice import placeholders
from twice.errors import Misuse, SourceFailed, TwiceError
from twice.explain import explain_code
from twice.fingerprint import Place, code_digest

_MOST_SHOWN = 60
_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, repr=False)
class Declared:
    """A fingerprint as its user declares it: a text with placeholders, or a function of the run."""

    given: str | Callable[..., Any]

    def __post_init__(self) -> None:
        if isinstance(self.given, str):
            placeholders.check(self.given)
        else:
            check_parameters(self.given, "fingerprint", ("run",))
        if self.given == "":
            raise Misuse(
                "fingerprint='' says nothing about the inputs.",
                fix="Write a text that changes with them, such as 'delivery {execution_date}'.",
            )

    def __repr__(self) -> str:
        """Return what counts as code: the text, or what the function does."""
        return f"Declared({self.given!r})" if isinstance(self.given, str) else f"Declared({code_digest(self.given)})"

    def ask(self, place: Place) -> Answer:
        """Return what is true of the slot's inputs now.

        Raises:
            SourceFailed: The function raised, returned nothing, or no plain values.
        """
        return Answer(self, place, self._text(place))

    def _text(self, place: Place) -> str:
        if isinstance(self.given, str):
            return json.dumps(placeholders.render(self.given, place.slot.part, place.zone))
        name = f"the fingerprint function {name_of(self.given)!r}"
        return _plain_text(called(self.given, {"run": lambda: place.run}, name), name)


@dataclass(frozen=True)
class Answer:
    """What a declared fingerprint was at the first look, as JSON."""

    asked: Declared
    place: Place
    text: str

    @property
    def facts(self) -> Any:
        """The plain values."""
        return json.loads(self.text)

    @property
    def summary(self) -> str:
        """The values in a few words."""
        short = self.text if len(self.text) <= _MOST_SHOWN else self.text[: _MOST_SHOWN - 1] + "…"
        return f"declared as {short}"

    def moved(self) -> bool:
        """Ask again, and tell whether the answer is another one."""
        return self.asked.ask(self.place).text != self.text


def _plain_text(value: Any, name: str) -> str:
    if value is None:
        raise _failed(
            f"{name} returned nothing", "Return what changes when the rows change: a version, a count, a time."
        )
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise _failed(
            f"{name} returned something that is not plain: {error}",
            "Return texts, numbers, lists or dicts; write a time as a text with .isoformat().",
        ) from error


def name_of(function: Callable[..., Any]) -> str:
    """Return what people call a function."""
    return getattr(function, "__name__", None) or type(function).__name__


def check_parameters(function: Any, what: str, offered: tuple[str, ...]) -> None:
    """Refuse what cannot be called, or asks for something that it will not get."""
    if not callable(function):
        raise Misuse(
            f"{what}= is a {type(function).__name__}, which cannot be called.",
            fix=f"Give a function of {_of(offered)}.",
        )
    for name, parameter in _parameters(function).items():
        optional = parameter.default is not parameter.empty or parameter.kind in _COLLECTING
        if not optional and (name not in offered or parameter.kind is parameter.POSITIONAL_ONLY):
            raise Misuse(
                f"The function {name_of(function)!r} asks for {name!r}, which it is not given.",
                fix=f"Its parameters go by their names: {_of(offered)}, or none.",
            )


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return what a function asks for; some of Python's own do not tell, and are given nothing."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _of(offered: tuple[str, ...]) -> str:
    return " and ".join(f"`{name}`" for name in offered)


def called(function: Callable[..., Any], offered: Mapping[str, Callable[[], Any]], name: str) -> Any:
    """Call a function with those arguments that it asks for by name; the others are not even made.

    Raises:
        SourceFailed: It raised, or left the process. Errors of Twice, such as Waiting, are its own to raise.
    """
    try:
        return function(**{key: offered[key]() for key in _parameters(function) if key in offered})
    except TwiceError:
        raise
    except SystemExit as left:
        raise _failed(f"{name} called exit({left.code!r})", "Raise an error instead.") from left
    except Exception as error:
        raise _failed(
            f"{name} failed: {explain_code(error)}", "Correct the cause; --debug shows the whole error."
        ) from error


def _failed(what: str, fix: str) -> SourceFailed:
    return SourceFailed(f"{what[:1].upper()}{what[1:]}.", "Nothing was published, and the target is as it was.", fix)
