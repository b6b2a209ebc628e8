"""Which functions of the user's are called with an event?

Those that a file of pipelines declares with `@twice.on(...)`, and those that `[hooks]` of the project
file names as `module:function`. They are called in the thread of the run, after what they are told of
was recorded; what they raise is said and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from twice import light
from twice.errors import Misuse
from twice.events import Event, Tell

if TYPE_CHECKING:
    from twice.project import Project


def hooks_for(project: Project, kind: str) -> Iterator[Tell]:
    """Yield what is to be called with an event of this kind."""
    for name in project.settings.hooks.get(kind, ()):
        yield _named(project, name)
    wanted = [hook for hook in project.hooks if kind in hook.kinds]
    if any(light.uses_stand_in(hook.function) for hook in wanted):
        # It was read with stand-ins for PySpark, and would meet one of them.
        _ = project.whole_pipelines
        wanted = [hook for hook in project.hooks if kind in hook.kinds]
    for hook in wanted:
        yield _called(hook.function, getattr(hook.function, "__name__", "a hook"))


def _named(project: Project, name: str) -> Tell:
    """Return a function that `[hooks]` names; it is looked for when it is called, so that an error is one of a hook."""

    def call(event: Event) -> None:
        module, _, function = name.partition(":")
        project.let_modules_be_found()
        found = getattr(import_module(module), function, None)
        if not callable(found):
            raise Misuse(f"[hooks] names {name}, and there is no such function.")
        found(event)

    return _called(call, name)


def _called(function: Callable[[Event], Any], name: str) -> Tell:
    def listener(event: Event) -> None:
        function(event)

    listener.__name__ = f"the hook {name}"
    return listener
