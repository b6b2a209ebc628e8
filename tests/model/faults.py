"""What may befall the runners, and what do people and strangers do?

Every fault costs one of the few that a world has; what is not a death or a lost reply happens at most once.
"""

from collections.abc import Iterator

from model.rules import Rules
from model.state import RELEASED, STRANGER, Bounds, Input, Ledger, Request, Row, Runner, Table, World, put
from model.step import STAGED, Step, with_runner
from model.store import with_past

# What people and strangers do may bring older rows back, and then somebody has to help.
MANUAL = ("stranger writes", "restore by hand", "restore")


def faults(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    if not world.faults:
        return
    struck = world._replace(faults=world.faults - 1)
    for place, runner in enumerate(world.runners):
        if runner.at != "idle" and "death" in bounds.happenings:
            yield Step("death", f"runner {place + 1} DIES", with_runner(struck, place, Runner("idle", runner.left)))
        if runner.at == "sent" and "lost reply" in bounds.happenings:
            lost = with_runner(struck, place, runner._replace(at="answered", reply="lost"))
            yield Step("lost reply", f"runner {place + 1} LOSES THE REPLY", lost)
    for name, happen in HAPPENINGS.items():
        for step in happen(rules, bounds, struck) if name in bounds.happenings else ():
            # An input changes once for each slot, all else once in a world.
            once = f"{name} {step.slot}" if step.slot is not None else name
            if once not in world.happened:
                yield step._replace(world=step.world._replace(happened=tuple(sorted((*world.happened, once)))))


def people(bounds: Bounds, world: World) -> Iterator[Step]:
    """Take a table over as soon as it is not this ledger's; that is no fault."""
    asked = any(request.kind == "adopt" for request in world.requests)
    if not asked and world.table.owner != world.ledger.id and (world.table.owner or world.table.rows):
        request = Request("adopt", 0, world.ledger.id, base=world.table)
        yield Step(
            "look", "a person looks, and asks for twice adopt", world._replace(requests=(*world.requests, request))
        )


def _input_changes(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    for slot, before in enumerate(world.inputs):
        inputs = put(world.inputs, slot, Input(2, before.token + 1))
        yield Step("fault", f"the INPUT of slot {slot + 1} CHANGES", world._replace(inputs=inputs), slot=slot)


def _input_changes_back(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    for slot, before in enumerate(world.inputs):
        if before.value > 1:
            inputs = put(world.inputs, slot, Input(1, before.token + 1))
            yield Step("fault", f"the INPUT of slot {slot + 1} CHANGES BACK", world._replace(inputs=inputs), slot=slot)


def _new_code(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    yield Step("fault", "NEW CODE is deployed", world._replace(code=2))


def _ledger_lost(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    nothing = (0,) * bounds.slots
    yield Step("fault", "the LEDGER IS LOST", world._replace(ledger=Ledger(world.ledger.id + 1, nothing, nothing)))


def _ledger_stale(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    nothing = (0,) * bounds.slots
    if any(world.ledger.published):
        yield Step(
            "fault", "an OLD LEDGER is put back", world._replace(ledger=Ledger(world.ledger.id, nothing, nothing))
        )


def _lease_runs_out(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    for place, runner in enumerate(world.runners):
        if runner.attempt and runner.attempt in world.ledger.leases:
            ledger = world.ledger._replace(ran_out=(*world.ledger.ran_out, runner.attempt))
            yield Step("fault", f"runner {place + 1} SLEEPS PAST ITS LEASE", world._replace(ledger=ledger))


def _stranger_writes(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    table = world.table
    if not any(table.receipts):
        return
    strange = (Row(STRANGER, 0, 0),)
    others = tuple(row for row in table.rows if row.slot)
    rows = table.rows + strange if bounds.pattern in ("append", "ordered") else (*others, Row(0, 9, 0))
    changed = _from_outside(bounds, table, rows, table.holds, ended=tuple(map(bool, table.receipts)))
    yield Step("fault", "a STRANGER WRITES to the table", world._replace(table=changed))


def _restore_by_hand(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    table = world.table
    for number, kept in enumerate(table.past):
        if kept.rows != table.rows:
            ended = tuple(
                before or (receipt is not None and (holds != receipt.generation or bool(kept.strange)))
                for before, receipt, holds in zip(table.ended, table.receipts, kept.holds, strict=True)
            )
            changed = _from_outside(bounds, table, kept.rows, kept.holds, ended)
            yield Step("fault", f"version {number + 1} is RESTORED BY HAND", world._replace(table=changed))


def _from_outside(bounds: Bounds, table: Table, rows: tuple, holds: tuple, ended: tuple) -> Table:
    return table._replace(
        rows=rows,
        holds=holds,
        ended=ended,
        version=table.version + 1,
        strange=table.strange + 1,
        outside=table.version + 1,
        past=with_past(bounds, table),
    )


def _restore(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    for number, kept in enumerate(world.table.past):
        if kept.rows != world.table.rows and world.table.owner == world.ledger.id:
            request = Request("restore", 0, world.ledger.id, base=world.table, target=number)
            asked = world._replace(requests=(*world.requests, request))
            yield Step("restore.before", f"a person asks for twice restore to version {number + 1}", asked)


def _release(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    if world.table.owner == world.ledger.id:
        request = Request("release", 0, RELEASED, base=world.table)
        yield Step("look", "a person asks for twice release", world._replace(requests=(*world.requests, request)))


def _tidy(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    """Sweep what dead attempts have staged, and name them in the log before their files go."""
    living = [runner.attempt for runner in world.runners if runner.at in STAGED]
    staged = sorted({*living, *(request.attempt for request in world.requests if request.kind == "publish")})
    live = [one for one in world.ledger.leases if one and one not in world.ledger.ran_out]
    dead = tuple(one for one in staged if rules.may_sweep(one, live))
    if not dead or not world.table.version:
        return
    table = world.table
    if rules.tidy_names_what_it_sweeps:
        named = tuple(sorted({*table.swept, *dead}))
        table = table._replace(swept=named, version=table.version + 1, past=with_past(bounds, table))
    wrong = [one for one in dead if one in live and one in living]
    trouble = "I8 a tidy removed what a live run has staged" if wrong else ""
    yield Step(
        "fault", f"a TIDY sweeps {list(dead)}", world._replace(table=table, removed=(*world.removed, *dead)), trouble
    )


def _names_end(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    """Leave out the names of what was swept, in a later tidy; what had them may still wake up."""
    table = world.table
    if table.swept:
        ended = table._replace(swept=(), forgot=table.version, version=table.version + 1, past=with_past(bounds, table))
        yield Step("fault", "a TIDY leaves out the NAMES of what was swept", world._replace(table=ended))


HAPPENINGS = {
    "input changes": _input_changes,
    "input changes back": _input_changes_back,
    "new code": _new_code,
    "ledger lost": _ledger_lost,
    "ledger stale": _ledger_stale,
    "lease runs out": _lease_runs_out,
    "stranger writes": _stranger_writes,
    "restore by hand": _restore_by_hand,
    "restore": _restore,
    "release": _release,
    "tidy": _tidy,
    "names end": _names_end,
}
