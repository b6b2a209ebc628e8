"""What must be true of every state, of every step, and once the faults are over?"""

from model import runners, store
from model.faults import MANUAL
from model.rules import Rules
from model.state import STRANGER, Bounds, Request, Runner, Table, World, rows_of
from model.truth import is_clean

_TRIES = 5
_MORE_THAN_ANY_HAS = 50


def broken_by_state(bounds: Bounds, world: World) -> str:
    table = world.table
    for slot, receipt in enumerate(table.receipts):
        if receipt and not table.ended[slot] and not is_clean(bounds, table, slot):
            return "I1 a receipt is a proof, and its rows are not those of a clean run"
        if world.ledger.published[slot] > table.fence(slot):
            return "I3 the ledger says published, and the store has no such receipt"
    if any(table.rows.count(row) > 1 for row in table.rows if row.slot != STRANGER):
        return "I1 rows are doubled"
    return ""


def broken_by_step(before: World, after: World, *, manual: bool, forced: bool) -> str:
    for slot, receipt in enumerate(before.table.receipts):
        if receipt and after.table.receipts[slot] != receipt and after.table.fence(slot) != receipt.generation + 1:
            return "I4 the fence of a slot fell, stood still or jumped under a publish"
        fell = visible(after.table, slot) < visible(before.table, slot)
        if fell and not manual and slot not in after.table.pending:
            return "I4 the visible generation of a slot fell"
    strange = [sum(row.slot == STRANGER for row in world.table.rows) for world in (before, after)]
    if strange[1] < strange[0] and not manual and not forced:
        return "I5 rows that a stranger wrote were lost"
    return ""


def visible(table: Table, slot: int) -> int:
    return max((row.generation for row in rows_of(table, slot)), default=0)


def broken_at_the_end(rules: Rules, bounds: Bounds, world: World) -> str:
    """I7, then I1: faults are over, everybody is dead, and one runner asks for every slot in order.

    People help only where people or strangers changed the table: they take it over, and they force.
    """
    helped = any(name in world.happened for name in MANUAL)
    world = world._replace(runners=(Runner("idle", 0),), requests=(), faults=0)
    if world.table.owner != world.ledger.id and (world.table.owner or world.table.rows):
        request = Request("adopt", 0, world.ledger.id, base=world.table)
        world = store.deliver(rules, bounds, world, request).world
    for slot in range(bounds.slots):
        outcome, asked = "", ""
        for number in range(_TRIES):
            pending = rules.to_take_up(world.table) if bounds.each else ()
            words = (pending[0], "following") if pending else (slot, asked)
            world, outcome = _alone(rules, bounds, world, number, *words)
            if outcome in ("skipped", "published") and not pending:
                break
            asked = "force" if helped and outcome == "refused" else ""
        by_design = bounds.pattern == "append" and world.table.fence(slot)
        if outcome not in ("skipped", "published") and not by_design:
            return f"I7 no attempt can finish slot {slot + 1}: {outcome or 'it waits for ever'}"
    if helped:
        return ""
    for slot, receipt in enumerate(world.table.receipts):
        current = receipt and (bounds.pattern == "append" or receipt.value == world.inputs[slot].value)
        current = current and (bounds.pattern == "append" or receipt.code == world.code)
        if not current or not is_clean(bounds, world.table, slot):
            return "I1 all is done again, and the table is not that of a clean run"
    return ""


def _alone(rules: Rules, bounds: Bounds, world: World, number: int, slot: int, asked: str) -> tuple[World, str]:
    """Run one attempt with nobody else there, under a name that no other had."""
    world = world._replace(runners=(Runner("idle", _MORE_THAN_ANY_HAS + number),))
    world = runners.ask(rules, world, 0, slot, asked).world
    while world.runners[0].at != "idle":
        found = [*runners.steps_of_runners(rules, bounds, world), *store.steps_of_the_store(rules, bounds, world)]
        if not found:
            return world, ""
        world, outcome = found[0].world, found[0].outcome
    return world, outcome
