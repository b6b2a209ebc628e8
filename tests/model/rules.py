"""What does the protocol ask for?

One short method or value for each rule, so that a wrong protocol is one line: see `wrong`.
"""

from collections.abc import Sequence

from model.state import NOBODY, Input, Kept, Ledger, Part, Receipt, Request, Table


class Rules:
    """The protocol of Twice."""

    # ------------------------------------------------------------ planning

    looks_at_the_store_first = True
    names_the_table_first = True

    def number(self, table: Table, ledger: Ledger, slot: int) -> int:
        """A generation is the fence and one."""
        return table.fence(slot) + 1

    def is_done(self, table: Table, ledger: Ledger, slot: int, value: int, code: int) -> bool:
        """A slot is skipped if its newest receipt is a proof for these inputs and, where that is asked for, for this code."""
        found = table.receipts[slot]
        return found is not None and (found.value, found.code) == (value, code) and not table.ended[slot]

    def may_write(self, table: Table, ledger: Ledger) -> bool:
        """A target belongs to one ledger; one that is filled and nobody's has to be taken over first."""
        return table.owner == ledger.id or (table.owner == NOBODY and not table.rows)

    def is_vouched_for(self, table: Table, slots: Sequence[int]) -> bool:
        """What a publish builds on must be proven."""
        return not any(table.receipts[slot] and table.ended[slot] for slot in slots)

    def is_accepted(self, table: Table, ledger: Ledger) -> bool:
        """A person accepts one change from outside, and is asked again after the next."""
        return bool(table.outside) and ledger.accepted == table.outside

    def may_append(self, table: Table, slot: int) -> bool:
        """An append has no second edition, unless its rows are gone."""
        return table.receipts[slot] is None or table.gone(slot)

    def may_start_from(self, kept: Kept, table: Table, earlier: Sequence[int]) -> bool:
        """A replay starts where nothing but earlier slots is held, each in its current generation."""
        held = [slot for slot, generation in enumerate(kept.holds) if generation]
        lacking = [slot for slot in earlier if slot not in held]
        current = all(slot in earlier and kept.holds[slot] == table.fence(slot) for slot in held)
        return current and not kept.strange and all(slot > max(held, default=-1) for slot in lacking)

    def is_as_published(self, value: int, receipt: Receipt) -> bool:
        """An earlier slot is done again only from what it was published from."""
        return value == receipt.value

    def declared(self, later: tuple[int, ...]) -> tuple[int, ...]:
        """A replay that shows each slot says which ones have to follow."""
        return later

    def to_take_up(self, table: Table) -> tuple[int, ...]:
        """Whoever comes goes on with such a replay before anything else."""
        return table.pending

    # ------------------------------------------------------------ leases and the second look

    def is_free(self, holder: int, *, alive: bool, ran_out: bool) -> bool:
        """A lease is taken over from the dead at once, and from the silent when it ran out."""
        return not holder or not alive or ran_out

    def is_unchanged(self, part: Part, now: Input) -> bool:
        """Inputs are compared by change token: a value may come back."""
        return part.token == now.token

    # ------------------------------------------------------------ the publish

    confirms_first = False
    commits: tuple[frozenset[str], ...] = (frozenset({"rows", "receipt"}),)

    def is_next(self, fence: int, generation: int, request: Request) -> bool:
        """The slot rule."""
        return fence + 1 == generation

    def is_unmoved(self, request: Request, table: Table) -> bool:
        """The head rule, for what was computed from a state of the whole table."""
        return request.plan is None or request.plan.version == table.version

    def is_owner(self, request: Request, table: Table) -> bool:
        """Nobody publishes to what another ledger has taken over."""
        return table.owner in (NOBODY, request.owner)

    def is_staged(self, request: Request, table: Table) -> bool:
        """An attempt whose staging was swept is refused."""
        return request.attempt not in table.swept

    def is_recent(self, began: int | None, table: Table) -> bool:
        """An attempt that is older than names of swept ones that ended is refused: its own may be one of them."""
        return began is None or began >= table.forgot

    def may_link(self, request: Request, table: Table) -> bool:
        """A list is linked as the number after the one that it was computed from."""
        return request.base is not None and request.base.version == table.version

    def may_change_hands(self, request: Request, table: Table) -> bool:
        """A table is taken over, given back or restored as it was seen, or not at all."""
        return request.base is not None and request.base.version == table.version

    # ------------------------------------------------------------ afterwards

    reads_back = True
    cleans_up_the_unknown = False
    tidy_names_what_it_sweeps = True

    def is_mine(self, found: Receipt, part: Part, attempt: int) -> bool:
        """My receipt is there."""
        return found.generation == part.generation and found.attempt == attempt

    def is_twin(self, found: Receipt, part: Part, code: int) -> bool:
        """Somebody else did the same work, with the same code where that matters."""
        return (found.generation, found.value, found.code) == (part.generation, part.value, code)

    def may_sweep(self, attempt: int, live: Sequence[int]) -> bool:
        """What a live run has staged stays."""
        return attempt not in live
