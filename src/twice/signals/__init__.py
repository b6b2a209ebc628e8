"""Who is told of what happens to runs?

The log, the receiver of lineage, and functions of the user's. None of them is loaded unless the
settings ask for it, so a run that nobody watches costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twice.events import Tell

if TYPE_CHECKING:
    from twice.project import Project


def listeners_of(project: Project) -> tuple[Tell, ...]:
    """Return the listeners that the settings ask for; hooks come besides."""
    from twice.signals import lineage

    found: list[Tell] = []
    if project.settings["log.format"] != "off":
        from twice.signals.logs import Log

        found.append(Log(project.settings["log.format"], project.settings["log.level"]))
    if lineage.is_wanted(project.settings):
        found.append(lineage.Lineage(project))
    return tuple(found)
