"""Publish, skip or refuse, and from which state?

The model of `decide` and `replays`: only what was seen of the table decides.
"""

from model.rules import Rules
from model.state import Bounds, Input, Kept, Ledger, Part, Plan, Table


class Refused(Exception):
    """The run ends, and says why."""


def decide(
    rules: Rules,
    bounds: Bounds,
    table: Table,
    ledger: Ledger,
    slot: int,
    inputs: tuple[Input, ...],
    asked: str,
    code: int,
) -> Plan | None:
    """Return the plan for a slot, or None for a skip."""
    if not rules.may_write(table, ledger):
        raise Refused("not ours")
    if asked == "following":
        return _next_of_replay(rules, table, ledger, slot, inputs)
    forced = asked == "force"
    if ledger.published[slot] > table.fence(slot) and not forced:
        raise Refused("the ledger is ahead")
    accepted = rules.is_accepted(table, ledger)
    if not forced and not accepted and not rules.is_vouched_for(table, [slot]):
        raise Refused("its proof is gone")
    seen = table._replace(ended=(False,) * bounds.slots) if accepted else table
    if not forced and rules.is_done(seen, ledger, slot, inputs[slot].value, code):
        return None
    if bounds.pattern == "append" and not rules.may_append(table, slot):
        raise Refused("a second edition")
    if bounds.in_order:
        return _in_order(rules, bounds, table, ledger, slot, inputs, forced=forced)
    return Plan((_part(rules, table, ledger, slot, inputs),), table.version, table.strange)


def _part(rules: Rules, table: Table, ledger: Ledger, slot: int, inputs: tuple[Input, ...]) -> Part:
    return Part(slot, rules.number(table, ledger, slot), *inputs[slot])


def _next_of_replay(rules: Rules, table: Table, ledger: Ledger, slot: int, inputs: tuple[Input, ...]) -> Plan:
    if table.pending[:1] != (slot,):
        raise Refused("somebody else has gone on with the replay")
    part = _part(rules, table, ledger, slot, inputs)
    return Plan((part,), table.version, table.strange, _as_it_is(table), table.pending[1:])


def _in_order(
    rules: Rules,
    bounds: Bounds,
    table: Table,
    ledger: Ledger,
    slot: int,
    inputs: tuple[Input, ...],
    *,
    forced: bool,
) -> Plan:
    """What a slot does depends on those before it, so the later ones are done with it."""
    if not forced and not rules.is_vouched_for(table, range(bounds.slots)):
        raise Refused("it builds on what is not vouched for")
    published = [one for one in range(bounds.slots) if table.receipts[one] and (forced or not table.gone(one))]
    later = tuple(one for one in published if one > slot)
    earlier = [one for one in published if one < slot]
    fresh = not later and table.receipts[slot] is None and not (forced and any(table.ended))
    start = _as_it_is(table) if fresh else _state_before(rules, table, earlier)
    between = [] if fresh else [one for one in earlier if not start.holds[one]]
    for one in between:
        receipt = table.receipts[one]
        if receipt is None or not rules.is_as_published(inputs[one].value, receipt):
            raise Refused("an earlier slot cannot be done again as it was")
    together = [slot, *between, *(() if bounds.each else later)]
    parts = tuple(_part(rules, table, ledger, one, inputs) for one in together)
    pending = rules.declared(later) if bounds.each else ()
    return Plan(parts, table.version, table.strange, start, pending, draft=not fresh)


def _as_it_is(table: Table) -> Kept:
    return Kept(table.rows, table.holds, table.strange)


def _state_before(rules: Rules, table: Table, earlier: list[int]) -> Kept:
    empty = Kept((), (0,) * len(table.holds), 0)
    for kept in (_as_it_is(table), *reversed(table.past), empty):
        if rules.may_start_from(kept, table, earlier):
            return kept
    raise Refused("no state is left to start from")
