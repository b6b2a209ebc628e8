"""What did a target look like, and how did it come about?

A version is named by its number, or by a slot: then it is the state after that slot, in the editions
that the slots have now.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

from twice.abilities import Difference, KeepsVersions
from twice.errors import Misuse, NotPublished
from twice.intervals import parse_moment, zone_named
from twice.replays import named, published, start_of
from twice.runs import Slot, Target
from twice.sight import Past, Sight, State, Step

if TYPE_CHECKING:
    from twice.project import Project


@dataclass(frozen=True)
class KeptVersion:
    """One version of a table.

    `slots` are those that were published in it; `lost` says why its rows cannot be read any more.
    """

    version: int
    made_at: str
    slots: tuple[str, ...]
    holds: int
    rows: int | None
    attempt: str
    current: bool
    lost: str


def versions(project: Project, target: Target) -> list[KeptVersion]:
    """List the versions of a table that its store still knows, oldest first."""
    past = _past(project, target)
    seen: dict[int, list[dict[str, object]]] = {}
    for row in project.ledger.versions(target.text):
        seen.setdefault(int(row["version"]), []).append(row)
    steps = list(past.steps())
    return [
        _kept(step, seen.get(step.version, ()), past.lost(step.version), current=step is steps[-1]) for step in steps
    ]


def _kept(step: Step, noted: Sequence[Mapping[str, object]], lost: str, *, current: bool) -> KeptVersion:
    return KeptVersion(
        version=step.version,
        made_at=step.made_at or next((str(row["published_at"]) for row in noted), ""),
        slots=tuple(slot.label for slot in sorted(map(Slot.parse, step.came), key=lambda slot: slot.part_text)),
        holds=step.holds,
        rows=sum(int(str(row["rows"])) for row in noted) if noted else None,
        attempt=next((str(row["attempt"]) for row in noted), ""),
        current=current,
        lost=lost,
    )


def version_named(project: Project, target: Target, text: str) -> int:
    """Return the version of a number, or of the state after the slot that starts at a time.

    Raises:
        Misuse: Neither is known.
        NotPublished: No version shows the state after that slot alone.
    """
    if re.fullmatch(r"-?\d+", text):
        project.store(target.store).look(target.name).check_version(target.text, int(text))
        return int(text)
    zone = next((p.zone for p in project.pipelines.values() if p.target == target), "UTC")
    return _state_after(project, target, parse_moment(text, zone_named(zone)).astimezone(UTC).isoformat(), text)


def _state_after(project: Project, target: Target, moment: str, text: str) -> int:
    sight = project.store(target.store).look(target.name)
    wanted = {slot.text: slot for slot in published(sight, forced=False) if start_of(slot) <= moment}
    if not wanted:
        raise Misuse(f"Nothing of {target.text} was published for {text}, or for a time before it.")
    states = list(_past(project, target).states)
    # What somebody changed from outside is not what the slots say, unless there is nothing else.
    for state in sorted(states, key=lambda state: bool(state.outside)):
        # Of many versions few hold as many slots, and only those are asked for each.
        if len(state.holds) == len(wanted) and _is_current(state, sight) and set(state.holds) == set(wanted):
            return state.version
    latest = max(wanted.values(), key=start_of)
    raise NotPublished(
        f"No version shows the state after {latest.label} alone: {_why_none(sight, states, wanted)}.",
        f"In the table are {named(published(sight, forced=False))}.",
        f"See the versions that there are: twice versions {target.text}",
    )


def _is_current(state: State, sight: Sight) -> bool:
    return all(sight.fence(slot) == generation for slot, generation in state.holds.items())


def _why_none(sight: Sight, states: Sequence[State], wanted: Mapping[str, Slot]) -> str:
    """Say what stood beside some slots in the version in which the last of them came, in the generation that it has now."""
    last = max(wanted, key=lambda slot: sight.receipts[slot].first_version or 0)
    came = sight.receipts[last].first_version
    it = "it" if wanted[last] == max(wanted.values(), key=start_of) else wanted[last].label
    state = next((one for one in states if one.version == came), None)
    if came is None or state is None:
        return f"version {came}, in which {it} was published, is not kept any more"
    others = sorted(map(Slot.parse, set(state.holds) - set(wanted)), key=start_of)
    together = [slot for slot in others if _first_version(sight, slot) == came]
    if together:
        return f"{it} was published together with {named(together)}"
    if others:
        return f"when {it} was published, as version {came}, {named(others)} stood in the table already"
    return "the table was restored or changed since"


def _first_version(sight: Sight, slot: Slot) -> int | None:
    receipt = sight.receipt(slot.text)
    return receipt.first_version if receipt else None


def _past(project: Project, target: Target) -> Past:
    store = project.store(target.store)
    if not store.look(target.name).exists:
        raise Misuse(f"The table {target.name} does not exist yet.", fix="Run the pipeline that writes it.")
    if not isinstance(store, KeepsVersions):
        raise Misuse(f"{target.text} has no versions.")
    return store.past(target.name)


def difference(
    project: Project, target: Target, one: str, other: str, *, keys: Sequence[str] = (), sample: int = 5
) -> Difference:
    """Tell how two versions of a target differ, by the keys that its pattern declares or that are given."""
    store = project.store(target.store)
    before, after = (store.read(target.name, version_named(project, target, text)) for text in (one, other))
    return store.compare(before, after, tuple(keys) or keys_of(project, target), sample)


def keys_of(project: Project, target: Target) -> tuple[str, ...]:
    """Return the keys of the pattern that writes a target, if it has some."""
    patterns = [p.pattern for p in project.pipelines.values() if p.target == target]
    rules = [getattr(pattern, "rule", None) for pattern in patterns]
    return next((rule.keys for rule in rules if rule is not None), ())
