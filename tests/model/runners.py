"""What does a runner do next?

The model of `execute`: look, resolve, decide, lease, look and decide once more, stage, look again, publish, read back, confirm.
"""

from collections.abc import Iterator

from model.planning import Refused, decide
from model.rules import Rules
from model.state import Bounds, Plan, Request, Row, Runner, Table, World, put
from model.step import Step, with_runner
from model.truth import honest


def steps_of_runners(rules: Rules, bounds: Bounds, world: World) -> Iterator[Step]:
    for place, runner in enumerate(world.runners):
        if runner.at != "idle":
            found = _next(rules, bounds, world, place)
        elif runner.left and not _waits_for_its_like(bounds, world, place):
            found = begin(rules, bounds, world, place)
        else:
            continue
        for step in found:
            yield step._replace(text=f"runner {place + 1} {step.text}")


def _waits_for_its_like(bounds: Bounds, world: World, place: int) -> bool:
    """Of two runners that are alike, the first begins first: the other order is the same story."""
    fresh = [
        runner.at == "idle" and runner.left == left for runner, left in zip(world.runners, bounds.attempts, strict=True)
    ]
    return place > 0 and fresh[0] and bounds.attempts[0] == bounds.attempts[place]


def begin(rules: Rules, bounds: Bounds, world: World, place: int) -> Iterator[Step]:
    """Ask for any slot, with force where somebody has to help."""
    pending = rules.to_take_up(world.table) if bounds.each else ()
    for slot in pending[:1] or range(bounds.slots):
        helped = ("force", "accept") if "accept" in bounds.happenings else ("force",)
        for asked in ("following",) if pending else ("", *helped) if any(world.table.ended) else ("",):
            yield ask(rules, world, place, slot, asked)


def ask(rules: Rules, world: World, place: int, slot: int, asked: str) -> Step:
    runner = world.runners[place]
    attempt = 10 * (place + 1) + runner.left
    begun = Runner("looked", runner.left - 1, attempt, world.ledger.id, slot, asked, world.code, world.table)
    if not rules.looks_at_the_store_first:
        value, token = world.inputs[slot]
        begun = begun._replace(seen=None, rows=(Row(slot, value, token),))
    words = f"begins slot {slot + 1}" + (f" ({asked})" if asked else "")
    return Step("look", words, with_runner(world, place, begun))


def _next(rules: Rules, bounds: Bounds, world: World, place: int) -> Iterator[Step]:
    runner = world.runners[place]
    if runner.at == "looked":
        yield _resolve(rules, bounds, world, place)
    elif runner.at == "planned":
        yield from _lease(rules, bounds, world, place)
    elif runner.at == "leased" and bounds.pattern == "period" and rules.names_the_table_first:
        yield _name(with_runner(world, place, runner._replace(at="named")))
    elif runner.at in ("leased", "named"):
        rows = tuple(Row(part.slot, world.inputs[part.slot].value, part.generation) for part in _plan(runner).parts)
        yield Step("stage.after", "stages", with_runner(world, place, runner._replace(at="staged", rows=rows)))
    elif runner.at == "staged":
        yield _send(rules, world, place)
    elif runner.at == "answered":
        yield _read_back(rules, bounds, world, place)
    elif runner.at == "landed" and bounds.pattern == "period" and not world.table.named:
        yield _name(world)
    elif runner.at == "landed":
        yield _confirm(rules, bounds, world, place)


def _plan(runner: Runner) -> Plan:
    assert runner.plan
    return runner.plan


def _name(world: World) -> Step:
    return Step("view.opened", "lets the view name the table", world._replace(table=world.table._replace(named=True)))


def end(world: World, place: int) -> World:
    """End an attempt, and give its lease back."""
    runner = world.runners[place]
    leases = tuple(0 if holder == runner.attempt else holder for holder in world.ledger.leases)
    ledger = world.ledger._replace(leases=leases) if runner.ledger == world.ledger.id else world.ledger
    return with_runner(world._replace(ledger=ledger), place, Runner("idle", runner.left))


# ---------------------------------------------------------------- before the rows


def _resolve(rules: Rules, bounds: Bounds, world: World, place: int) -> Step:
    """Resolve the inputs, and decide on what was seen of the store."""
    runner = world.runners[place]
    table, inputs = runner.seen or world.table, world.inputs
    if not rules.looks_at_the_store_first:
        inputs = put(inputs, runner.slot, type(inputs[0])(*runner.rows[0][1:]))
    return _decided("inputs.resolved", rules, bounds, world, place, table, inputs, "planned")


def _decided(
    name: str, rules: Rules, bounds: Bounds, world: World, place: int, table: Table, inputs: tuple, at: str
) -> Step:
    runner = world.runners[place]
    if runner.asked == "accept" and at == "planned":
        world = world._replace(ledger=world.ledger._replace(accepted=table.outside))
    try:
        plan = decide(rules, bounds, table, world.ledger, runner.slot, inputs, runner.asked, runner.code)
    except Refused as why:
        return Step(name, f"refused: {why}", end(world, place), outcome="refused")
    if plan is None:
        accepted = bool(table.outside) and world.ledger.accepted == table.outside
        trouble = "" if accepted else honest(bounds, table, runner.slot, inputs[runner.slot].value, code=runner.code)
        return Step(name, "says skipped", end(world, place), trouble, "skipped")
    if rules.confirms_first:
        world = _believe(world, runner.ledger, plan)
    began = plan.version if runner.began is None else runner.began
    text = "plans " + ", ".join(f"slot {part.slot + 1} generation {part.generation}" for part in plan.parts)
    return Step(
        name, text, with_runner(world, place, runner._replace(at=at, plan=plan, seen=None, rows=(), began=began))
    )


def _lease(rules: Rules, bounds: Bounds, world: World, place: int) -> Iterator[Step]:
    """Take the lease, then decide once more on what is there now. A lease that is held is waited for."""
    runner = world.runners[place]
    took_over = False
    if bounds.leases and runner.ledger == world.ledger.id:
        holder = world.ledger.leases[runner.slot]
        alive = any(other.attempt == holder for other in world.runners)
        if not rules.is_free(holder, alive=alive, ran_out=holder in world.ledger.ran_out):
            return
        took_over = bool(holder)
        leases = put(world.ledger.leases, runner.slot, runner.attempt)
        world = world._replace(ledger=world.ledger._replace(leases=leases))
    world = with_runner(world, place, runner._replace(took_over=took_over))
    yield _consider_again("lease.taken", rules, bounds, world, place)


def _consider_again(name: str, rules: Rules, bounds: Bounds, world: World, place: int) -> Step:
    """Inputs that were resolved before the slot moved may be the older ones: then they are resolved again."""
    runner = world.runners[place]
    before = _plan(runner).parts[0]
    inputs = world.inputs
    if world.table.fence(runner.slot) + 1 == before.generation:
        inputs = put(inputs, runner.slot, type(inputs[0])(before.value, before.token))
    return _decided(name, rules, bounds, world, place, world.table, inputs, "leased")


# ---------------------------------------------------------------- publish


def _send(rules: Rules, world: World, place: int) -> Step:
    """Look at the inputs again, and send the publish."""
    runner = world.runners[place]
    plan = _plan(runner)
    if not all(rules.is_unchanged(part, world.inputs[part.slot]) for part in plan.parts):
        return Step("publish.before", "sees that its input moved, ends", end(world, place), outcome="not published")
    request = Request(
        "publish",
        runner.attempt,
        runner.ledger,
        plan,
        runner.rows,
        leased=runner.attempt in world.ledger.leases,
        took_over=runner.took_over,
        forced=runner.asked == "force",
        code=runner.code,
        began=runner.began,
    )
    sent = with_runner(world, place, runner._replace(at="sent", rows=()))
    return Step("publish.before", "sends its publish", sent._replace(requests=(*world.requests, request)))


# ---------------------------------------------------------------- afterwards


def _read_back(rules: Rules, bounds: Bounds, world: World, place: int) -> Step:
    """Read the store back, and apply the slot rule."""
    runner = world.runners[place]
    part = _plan(runner).parts[0]
    found = world.table.receipts[runner.slot]
    mine = not rules.reads_back or (found is not None and rules.is_mine(found, part, runner.attempt))
    if not mine and not (found and rules.is_twin(found, part, runner.code)):
        return _not_found(rules, bounds, world, place)
    if world.table.ended[runner.slot]:
        return Step("read.back", "its rows are already gone, refused", end(world, place), outcome="refused")
    trouble = honest(bounds, world.table, runner.slot, part.value, part.generation, runner.code)
    if mine:
        return Step("read.back", "finds its receipt", with_runner(world, place, runner._replace(at="landed")), trouble)
    return Step("read.back", "finds a twin's receipt, says skipped", end(world, place), trouble, "skipped")


def _not_found(rules: Rules, bounds: Bounds, world: World, place: int) -> Step:
    """Neither this attempt nor a twin has published: say what is known, or plan again."""
    runner = world.runners[place]
    if runner.reply == "landed":
        return Step("read.back", "was replaced since, says published", end(world, place), outcome="published")
    if runner.reply == "lost":
        if rules.cleans_up_the_unknown:
            world = world._replace(removed=(*world.removed, runner.attempt))
        return Step("read.back", "says that the outcome is unknown", end(world, place), outcome="unknown")
    fenced = world.table.fence(runner.slot) + 1 != _plan(runner).parts[0].generation
    is_old = not rules.is_recent(runner.began, world.table)
    if runner.attempt in world.table.swept or is_old or fenced or runner.again:
        return Step("read.back", "is swept, fenced or starved, ends", end(world, place), outcome="refused")
    planned = with_runner(world, place, runner._replace(again=True, reply=""))
    return _consider_again("read.back", rules, bounds, planned, place)


def _confirm(rules: Rules, bounds: Bounds, world: World, place: int) -> Step:
    """Tell the ledger, and go on with a replay that is shown slot by slot."""
    runner = world.runners[place]
    said = end(_believe(world, runner.ledger, _plan(runner)), place)
    pending = rules.to_take_up(said.table) if bounds.each else ()
    if pending:
        following = Runner(
            "looked", runner.left, runner.attempt, runner.ledger, pending[0], "following", runner.code, said.table
        )
        return Step("confirmed", "says published, and goes on with the replay", with_runner(said, place, following))
    return Step("confirmed", "says published", said, outcome="published")


def _believe(world: World, ledger_id: int, plan: Plan) -> World:
    if ledger_id != world.ledger.id:
        return world
    published = world.ledger.published
    for part in plan.parts:
        published = put(published, part.slot, max(published[part.slot], part.generation))
    return world._replace(ledger=world.ledger._replace(published=published))
