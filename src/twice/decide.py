"""Should this slot be published, skipped or refused?

Pure functions over one sight of the store, the fingerprint of the inputs and what was asked. The
ledger enters in two places only: to notice that a store went back in time, and to remember what a
person accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from twice.errors import (
    Fenced,
    InputsAbsent,
    LedgerAhead,
    Misuse,
    NotPublished,
    Overtaken,
    ProofGone,
    Stranger,
    Waiting,
)
from twice.plans import Loss, Pattern, Plan
from twice.replays import Draft, named, start_of
from twice.runs import Receipt, Slot
from twice.sight import Past, Sight


@dataclass(frozen=True)
class Asked:
    """What the caller asked for, beyond the slot itself.

    `resuming` marks a walk over many slots: a published one that a newer slot has replaced since
    is passed over instead of being refused. `along` are later slots to be done in the same publish.
    `following` marks the next slot of a replay that is shown slot by slot. `by_calendar` marks a walk over all that is
    due, which nobody asked for slot by slot: what waits for a retry or for a person is left alone.
    """

    force: bool = False
    accept: bool = False
    resuming: bool = False
    along: tuple[Slot, ...] = ()
    following: bool = False
    by_calendar: bool = False

    @property
    def lasting(self) -> dict[str, bool]:
        """What a retry has to be asked for, too: the rest belongs to one invocation."""
        return {"force": self.force, "accept": self.accept}


@dataclass(frozen=True)
class Question:
    """Everything a decision depends on.

    `known` are generations that the ledger has: of the slot, and of those it builds on, as far as the store lacks them. `takes_in` says
    what there is that the table lacks, whatever was published before: after a restore it may be the same files again.
    `takes_away` names the rows that leave for them. `gone` says which inputs that the slot was published from are not there any
    more, and `absent` is the error of a slot that cannot be made, since inputs are not there.
    """

    slot: Slot
    pattern: Pattern
    zone: str
    fingerprint: str
    code: str
    rerun_on_code: bool
    ledger_id: str
    known: Mapping[str, int]
    accepted: str
    asked: Asked
    takes_in: str = ""
    takes_away: str = ""
    gone: str = ""
    absent: InputsAbsent | Waiting | None = None
    past: Callable[[], Past] = Past
    environments: tuple[str, ...] = ()


def decide(question: Question, sight: Sight) -> Plan:
    """Return the plan for a slot: create, replace or skip.

    Raises:
        Misuse: Another pipeline or another calendar has written to the target.
        Fenced: The target is another ledger's, its proof is gone, or the ledger is ahead of it.
    """
    _check_declared(question)
    _check_kind(question, sight)
    _check_owner(question, sight)
    _check_ledger_ahead(question, sight)
    _check_neighbours(question.slot, sight)
    _check_takes_in(question, sight)
    if question.asked.following:
        _check_inputs(question)
        return _next_of_replay(question, sight)
    superseded = question.pattern.superseded(question.slot, sight) if question.asked.resuming else ""
    if superseded and not question.asked.force:
        return _plan(question, sight, "skip", f"the newer slot {superseded} has taken its place")
    _check_proof(question, sight)
    before = sight.receipt(question.slot.text)
    if before and not _is_forced(question, sight) and _is_current(question, before):
        return _plan(question, sight, "skip", _why_not(question, sight))
    if before and question.gone and not question.asked.force:
        # Whoever moves away what was published does not correct it.
        return _plan(question, sight, "skip", f"its inputs are gone, and its rows stay: {question.gone}")
    _check_inputs(question)
    _check_sealed(question, sight)
    _check_all_proofs(question, sight)
    refusal = question.pattern.refusal(question.slot, sight, forced=question.asked.force)
    if refusal:
        forcible = not question.pattern.refusal(question.slot, sight, forced=True)
        raise Fenced(refusal, fix="Use --force to do it all the same." if forcible else "")
    reason = _why_again(question, before) if before else "the first run of this slot"
    return _plan(question, sight, question.pattern.action(before), reason)


def _next_of_replay(question: Question, sight: Sight) -> Plan:
    """Go on with a replay that is shown slot by slot: the slot is merged into what is there.

    Raises:
        Fenced: Another run has gone on with it meanwhile.
    """
    if sight.pending[:1] != (question.slot.text,):
        raise Overtaken(
            f"{question.slot.label} is not the next slot of a replay of {question.slot.target.text}.",
            "Another run has gone on with it.",
            "Run again.",
        )
    pending = tuple(map(Slot.parse, sight.pending[1:]))
    reason = "the next slot of a replay that is shown slot by slot"
    pattern, slot = question.pattern, question.slot
    return Plan(
        slot=slot,
        pattern=pattern.name,
        action="merge",
        reason=reason,
        generation=sight.fence(slot.text) + 1,
        base=sight,
        pending=pending,
        stage=pattern.stage(slot, question.zone, None),
        publish=pattern.publish(slot, question.zone),
        compares_head=pattern.compares_head,
    )


def _check_declared(question: Question) -> None:
    if question.pattern.appends and not (question.fingerprint or question.absent):
        raise Misuse(
            f"The pattern {question.pattern.name!r} adds rows, and the inputs of {question.slot.pipeline!r} were not declared.",
            "A repeat could not be told from a correction, and would add its rows again.",
            "Declare inputs=[...], the names or sources that the rows come from.",
        )


def _check_kind(question: Question, sight: Sight) -> None:
    name, points = question.slot.target.text, question.pattern.points
    if sight.exists and sight.points != points:
        raise Misuse(
            f"{name} is {'a view' if sight.points else 'a table'}, which the pattern {question.pattern.name!r} does not write.",
            "Written through its name, the versions behind it would change." if sight.points else "",
            "Write to another target.",
        )


def _check_sealed(question: Question, sight: Sight) -> None:
    if sight.sealed:
        raise Fenced(
            f"{question.slot.target.text} takes nothing more for {question.slot.label}: {sight.sealed}.",
            "Nothing was published, and the target is as it was.",
            f"To allow it again: twice seal {question.slot.target.text} --undo" if sight.points else "",
        )


def _check_owner(question: Question, sight: Sight) -> None:
    if sight.owner.startswith("frozen:"):
        raise Fenced(
            f"The period of {question.slot.label} is being frozen into {sight.owner.partition(':')[2]}.",
            "Nothing was published, and the target is as it was.",
            "If nobody is at it, complete it: run the same twice freeze again.",
        )
    if sight.owner == question.ledger_id or not (sight.owner or sight.receipts):
        if sight.filled and not sight.owner and not question.asked.force:
            raise Stranger(
                f"The table {question.slot.target.text} already holds rows that Twice did not write.",
                "Publishing to it could replace them.",
                f"Take it over with: twice adopt {question.slot.target.text}"
                + ("" if sight.exists else ", or use --force to leave those files beside the table."),
            )
        return
    if sight.owner == "released":
        raise Stranger(
            f"The target {question.slot.target.text} was released: no ledger owns it.",
            "Its rows and receipts are there.",
            f"Take it over again with: twice adopt {question.slot.target.text}",
        )
    lost = not question.known
    what = (
        f"The target {question.slot.target.text} belongs to another ledger"
        f" ({sight.owner[:8] or 'forgotten with its log'}; this one is {question.ledger_id[:8]})."
    )
    if question.environments:
        names = ", ".join(question.environments)
        raise Stranger(
            what,
            f"Each environment ({names}), and the project without one, has its own ledger and needs its own targets."
            " Nothing was published.",
            f"Let the store {question.slot.target.store!r} have another root or url there: [env.NAME.stores.{question.slot.target.store}]."
            " Only if this environment's own ledger was lost: twice ledger rebuild",
        )
    raise Stranger(
        what,
        "If this project's ledger was lost, the receipts can be read back from the target."
        if lost
        else "Another project has taken the target over.",
        f"After a loss: twice ledger rebuild. To take the target from another project: twice adopt {question.slot.target.text}",
    )


def _check_ledger_ahead(question: Question, sight: Sight) -> None:
    ahead = [slot for slot, generation in question.known.items() if generation > sight.fence(slot)]
    if not ahead or question.asked.force:
        return
    first = min(ahead)
    raise LedgerAhead(
        f"The ledger knows generation {question.known[first]} of {Slot.parse(first).label},"
        f" the store has {sight.fence(first) or 'none'}.",
        "The table was replaced, dropped or brought back from a backup: nothing is guessed.",
        "Use --force to publish the slot again, or twice ledger rebuild to believe the store.",
    )


def _check_neighbours(slot: Slot, sight: Sight) -> None:
    for other, _ in sight.writers:
        if other.target != slot.target:
            raise Misuse(
                f"The table of {slot.target.text} was published to as {other.target.text}.",
                "Under two names a slot would be published twice.",
                f"Go on using {other.target.text}.",
            )
        if other.pipeline != slot.pipeline:
            raise Misuse(
                f"The target {slot.target.text} is written by the pipeline {other.pipeline!r}; {slot.pipeline!r} cannot write it too.",
                fix=f"Give it a target of its own; a renamed pipeline says was={other.pipeline!r}.",
            )
        if bool(other.interval) != bool(slot.interval):
            raise Misuse(
                f"The target {slot.target.text} holds slots of another kind ({other.shown}).",
                fix="A pipeline keeps its calendar or its keys; write to a new target.",
            )
    overlapped = sight.overlapped(slot)
    if overlapped:
        raise Misuse(
            f"The slot {slot.shown} overlaps {overlapped.shown}, which was published under another calendar.",
            fix="Keep `every` and `zone` as they were, or write to a new target.",
        )


def _check_takes_in(question: Question, sight: Sight) -> None:
    """What an ingest has taken in is told by its marks: a publish without them would have all files come again."""
    name = question.slot.target.text
    for other, has_marks in sight.writers:
        if has_marks and not question.pattern.takes_in:
            raise Misuse(
                f"{name} takes in files, each once; {question.slot.pipeline!r} would publish to it in another way.",
                "Which files were taken in would not be known any more.",
                "Go on with track=True, or write to a new target.",
            )
        if question.pattern.takes_in and not has_marks:
            raise Misuse(
                f"{name} was published to without marks of files ({other.label}).",
                "Files whose rows are there would be taken in once more.",
                "Take files in at a new target, or leave track=True out.",
            )


def _check_inputs(question: Question) -> None:
    """See that there is something to publish from.

    Raises:
        NotPublished: Inputs are not there, or published rows would be replaced by nothing where nobody named the slot.
    """
    if question.absent:
        raise question.absent
    if question.gone and (question.asked.resuming or question.asked.following):
        raise NotPublished(
            f"The inputs of {question.slot.label} are gone: {question.gone}.",
            "Its published rows would be replaced by nothing. That is done for one slot that you name, and never for many.",
            f"Bring the inputs back, or run {question.slot.label} alone with --force.",
        )


def _check_proof(question: Question, sight: Sight) -> None:
    reason = sight.ended.get(question.slot.text)
    if reason is None or question.asked.force or question.asked.accept:
        return
    if _is_accepted(question, sight):
        return
    raise ProofGone(
        f"The slot {question.slot.label} of {question.slot.pipeline} was published, and its rows are no longer vouched for.",
        f"{reason[:1].upper()}{reason[1:]}.",
        _way_on(question, "Use --force to publish it again, or --accept to take the rows as they are now."),
    )


def _way_on(question: Question, otherwise: str) -> str:
    """Say what helps; files that were taken in are not read again, so an ingest can only go on from what is there."""
    if not question.pattern.takes_in:
        return otherwise
    return (
        "Use --accept to go on from the rows as they are now, and take in the files that this version had not yet."
        f" To go back to another version: twice restore {question.slot.target.text}"
    )


def _is_accepted(question: Question, sight: Sight) -> bool:
    return bool(question.accepted) and question.accepted == sight.outside


def _check_all_proofs(question: Question, sight: Sight) -> None:
    """What is computed from the whole table needs all of it to be vouched for."""
    if not (question.pattern.builds_on_all and sight.ended) or question.asked.force or question.asked.accept:
        return
    if _is_accepted(question, sight):
        return
    ended = sorted(map(Slot.parse, sight.ended), key=start_of)
    reason = sight.ended[ended[0].text]
    raise ProofGone(
        f"The slot {question.slot.label} builds on {named(ended)}, whose rows are no longer vouched for.",
        f"{reason[:1].upper()}{reason[1:]}.",
        _way_on(
            question,
            "Use --force to make the table what its published slots say, or --accept to go on from the rows as they are now.",
        ),
    )


def _is_forced(question: Question, sight: Sight) -> bool:
    """Tell whether a slot is published although nothing changed; what an ingest has taken in, it does not take in again."""
    taken_in = question.pattern.takes_in and question.slot.text not in sight.ended
    return question.asked.force and not taken_in


def _why_not(question: Question, sight: Sight) -> str:
    if question.slot.text in sight.ended:
        return "its rows were accepted as they are"
    return "there is no new file" if question.pattern.takes_in else "published, and the inputs are the same"


def _is_current(question: Question, before: Receipt) -> bool:
    same_inputs = bool(question.fingerprint) and before.fingerprint == question.fingerprint and not question.takes_in
    return same_inputs and not (question.rerun_on_code and before.code != question.code)


def _why_again(question: Question, before: Receipt) -> str:
    if question.takes_in:
        return question.takes_in
    if question.asked.force:
        return (
            f"asked for with --force, and its inputs are gone: {question.gone}"
            if question.gone
            else "asked for with --force"
        )
    if not question.fingerprint:
        return "its inputs were not declared, so a repeat cannot be told from a correction"
    if before.fingerprint != question.fingerprint:
        return "the inputs changed"
    return "the code changed"


def _without_absent(question: Question, sight: Sight) -> Sight:
    """Count as gone what was restored away, also if others changed the table since: nobody asked for it back."""
    if not (question.pattern.builds_on_all and sight.ended) or question.asked.force:
        return sight
    newest = next(iter(question.past().states), None)
    absent = {slot for slot in sight.ended if newest and slot not in newest.holds}
    return replace(sight, gone=sight.gone | absent)


def _companions(question: Question, sight: Sight) -> tuple[Slot, ...]:
    """Return the slots that have to be done with this one, and those that were asked for besides."""
    found = question.pattern.companions(question.slot, sight, forced=question.asked.force)
    if not question.asked.along:
        return found
    return tuple(sorted({*found, *question.asked.along}, key=start_of))


def _told(companions: tuple[Slot, ...], sight: Sight) -> tuple[str, ...]:
    """Name the slots that are done with the asked one."""
    again = [slot for slot in companions if slot.text in sight.receipts]
    new = [slot for slot in companions if slot.text not in sight.receipts]
    notes = [f"done again in the same publish, from their inputs as they are now: {named(again)}"] if again else []
    return (*notes, *([f"done in the same publish: {named(new)}"] if new else []))


def _outlook(question: Question, sight: Sight, pending: tuple[Slot, ...]) -> tuple[str, ...]:
    """Say what readers see meanwhile, and how to take it back."""
    if not sight.exists:
        return ()
    commits = "one commit" if not pending else f"{len(pending) + 1} commits"
    undo = f"twice restore {question.slot.target.text} {sight.version}"
    return (f"{commits}: readers see version {sight.version} until then; to undo it: {undo}",)


def _shown(pending: tuple[Slot, ...]) -> tuple[str, ...]:
    """Say that readers will see the middle of it."""
    return (f"readers see each state as it is reached: then follow {named(pending)}, one publish each",)


def _plan(question: Question, sight: Sight, action: str, reason: str) -> Plan:
    pattern, slot = question.pattern, question.slot
    before = sight.receipt(slot.text)
    notes = pattern.notes(slot, sight) if action != "skip" else ()
    if before and before.code != question.code and not question.rerun_on_code:
        notes += ("the code changed since this slot was published",)
    fence = sight.fence(slot.text)
    if action == "skip":
        return Plan(slot, pattern.name, action, reason, fence, sight, notes=notes)
    present = _without_absent(question, sight)
    companions = _companions(question, present)
    draft = pattern.draft(slot, present, companions, question.past, forced=question.asked.force)
    pending = companions if pattern.shows_each else ()
    notes += _told(companions, sight) if not pending else _shown(pending)
    if draft:
        companions = (*draft.between, *(() if pending else companions))
        notes += (draft.text, *(f"passed over {why}" for why in draft.passed), *_outlook(question, sight, pending))
    action = "replay" if companions or pending or (draft and before) else action
    return Plan(
        slot=slot,
        pattern=pattern.name,
        action=action,
        reason=reason,
        generation=fence + 1,
        base=sight,
        companions=companions,
        draft=draft,
        pending=pending,
        prepare=pattern.prepare(slot, question.zone),
        stage=pattern.stage(slot, question.zone, draft),
        publish=pattern.publish(slot, question.zone),
        compares_head=pattern.compares_head,
        notes=notes,
        losses=_losses(question, sight, action, (*companions, *pending), draft),
    )


def _losses(
    question: Question, sight: Sight, action: str, others: tuple[Slot, ...], draft: Draft | None
) -> tuple[Loss, ...]:
    """Name every way in which rows leave: what is published anew, what came after a version, what patterns and inputs take away."""
    slot, before = question.slot, sight.receipt(question.slot.text)
    published = [one for one in sorted({slot, *others}, key=lambda one: one.part_text) if one.text in sight.receipts]
    found = list(question.pattern.losses(slot, sight))
    if action == "replay" and published:
        found.append(Loss(f"the rows of {named(published)}, for those that are made of their inputs now"))
    elif action == "replace" and before:
        found.append(Loss(f"the {before.rows:,} rows of generation {before.generation} of this slot"))
    if draft and draft.base != sight.version and sight.ended:
        found.append(Loss(f"what changed the table from outside since {draft.start}"))
    if question.takes_away:
        found.append(Loss(question.takes_away))
    return tuple(found)
