"""What does the store do with what it was sent?

A request outlives its sender. A store that assigns does all at once; one that links a list of files or transacts looks first,
and compares again at its commit.
"""

from collections.abc import Iterator

from model.rules import Rules
from model.state import MISSING, Bounds, Kept, Plan, Receipt, Request, Row, Table, World
from model.step import Step, with_runner


def steps_of_the_store(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    for request in world.requests:
        yield deliver(rules, bounds, world, request)


def deliver(rules: Rules, bounds: Bounds, world: World, request: Request) -> Step:
    """Let one request go one step further in the store."""
    others = tuple(one for one in world.requests if one is not request)
    world = world._replace(requests=others)
    if request.kind != "publish":
        return _change_hands(rules, world, request)
    begins = 0 if bounds.store == "assigns" else 1
    if not _is_allowed(rules, bounds, request, world.table):
        return Step(
            "memory.publish", f"the publish of {_sender(request)} is refused", _answer(world, request, "refused")
        )
    if request.phase < begins:
        begun = request._replace(phase=1, base=world.table)
        return Step(
            "memory.publish", f"the publish of {_sender(request)} begins", world._replace(requests=(*others, begun))
        )
    if bounds.store == "links" and not rules.may_link(request, world.table):
        return Step(
            "memory.publish",
            f"the publish of {_sender(request)} is compared again on the new head",
            world._replace(requests=(*others, request._replace(phase=0, base=None))),
        )
    number = request.phase - begins
    landed = _land(rules.commits[number], bounds, world, request)
    trouble = _owned(request, world.table)
    if number + 1 < len(rules.commits):
        more = request._replace(phase=request.phase + 1)
        return Step(
            "memory.publish",
            f"a part of the publish of {_sender(request)} lands",
            landed._replace(requests=(*others, more)),
        )
    answered = _answer(landed, request, "landed")
    return Step("memory.publish", f"the publish of {_sender(request)} LANDS", answered, trouble, forced=request.forced)


def _sender(request: Request) -> str:
    return f"runner {request.attempt // 10}"


def _owned(request: Request, table: Table) -> str:
    return "I5 a publish landed in a table of another ledger" if table.owner not in (0, request.owner) else ""


def _is_allowed(rules: Rules, bounds: Bounds, request: Request, table: Table) -> bool:
    """The slot rule, the head rule, the owner, and what a tidy took."""
    plan = request.plan
    assert plan
    fences = all(rules.is_next(table.fence(part.slot), part.generation, request) for part in plan.parts)
    head = not bounds.in_order or rules.is_unmoved(request, table)
    is_there = rules.is_staged(request, table) and rules.is_recent(request.began, table)
    return fences and head and rules.is_owner(request, table) and is_there


def _land(what: frozenset[str], bounds: Bounds, world: World, request: Request) -> World:
    """Make what one commit holds visible."""
    plan = request.plan
    assert plan
    table = request.base if bounds.store == "links" and request.base else world.table
    slots = {part.slot for part in plan.parts}
    staged = tuple(row._replace(value=MISSING) if request.attempt in world.removed else row for row in request.rows)
    version = world.table.version + 1
    rows, holds, receipts, ended = table.rows, table.holds, table.receipts, table.ended
    if "remove" in what:
        rows = tuple(row for row in rows if row.slot not in slots)
    if "rows" in what:
        rows = _rows_after(bounds, plan, rows, staged)
    if "receipt" in what:
        start = plan.start.holds if plan.draft and plan.start else holds
        parts = {part.slot: part for part in plan.parts}
        holds = tuple(parts[slot].generation if slot in parts else start[slot] for slot in range(bounds.slots))
        receipts = tuple(
            Receipt(parts[slot].generation, request.attempt, parts[slot].value, version, plan.pending, request.code)
            if slot in parts
            else table.receipts[slot]
            for slot in range(bounds.slots)
        )
        ended = tuple(
            slot not in parts
            and (bool(receipts[slot]) and holds[slot] != receipts[slot].generation if plan.draft else table.ended[slot])
            for slot in range(bounds.slots)
        )
    made = table._replace(
        rows=rows,
        receipts=receipts,
        ended=ended,
        holds=holds,
        owner=request.owner,
        version=version,
        strange=0 if plan.draft else table.strange,
        outside=version if plan.draft and any(ended) else table.outside if any(ended) else 0,
        named=world.table.named,
        past=with_past(bounds, world.table),
    )
    return world._replace(table=made)


def with_past(bounds: Bounds, table: Table) -> tuple[Kept, ...]:
    """Keep the version, where anything could go back to it."""
    if not table.version or not (bounds.in_order or "restore" in bounds.happenings):
        return ()
    return (*table.past, Kept(table.rows, table.holds, table.strange))


def _rows_after(bounds: Bounds, plan: Plan, rows: tuple[Row, ...], staged: tuple[Row, ...]) -> tuple[Row, ...]:
    if plan.start is not None:
        return plan.start.rows + tuple(sorted(staged))
    slots = {row.slot for row in staged}
    kept = rows if bounds.pattern == "append" else tuple(row for row in rows if row.slot not in slots)
    return tuple(sorted(kept + staged))


def _answer(world: World, request: Request, reply: str) -> World:
    for place, runner in enumerate(world.runners):
        if runner.at == "sent" and runner.attempt == request.attempt:
            return with_runner(world, place, runner._replace(at="answered", reply=reply))
    return world


def _change_hands(rules: Rules, world: World, request: Request) -> Step:
    """Take a table over, give it back, or bring an older version back: the whole table as it was seen, changed in one thing."""
    base = request.base
    assert base
    name = {"adopt": "taken.over", "release": "released", "restore": "restore.after"}[request.kind]
    if not rules.may_change_hands(request, world.table):
        return Step(name, f"{request.kind} is refused: the table moved", world)
    version = world.table.version + 1
    made = base._replace(version=version, named=world.table.named)
    if request.kind == "restore":
        kept = base.past[request.target]
        ended = tuple(
            receipt is not None and (holds != receipt.generation or bool(kept.strange))
            for receipt, holds in zip(base.receipts, kept.holds, strict=True)
        )
        now = Kept(base.rows, base.holds, base.strange)
        made = made._replace(
            rows=kept.rows, holds=kept.holds, ended=ended, strange=kept.strange, outside=version, past=(*base.past, now)
        )
        return Step(name, "an older version is restored", world._replace(table=made))
    made = made._replace(owner=request.owner)
    if request.kind == "release" or request.owner != world.ledger.id:
        return Step(name, f"{request.kind} is done", world._replace(table=made))
    believed = tuple(made.fence(slot) for slot in range(len(made.receipts)))
    ledger = world.ledger._replace(published=believed)
    return Step(name, "the table is taken over", world._replace(table=made, ledger=ledger))
