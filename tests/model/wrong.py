"""Which protocols look right and are not?

Each changes one rule. `WRONG` says in which small world it must be caught, and which promise it breaks.
"""

from typing import NamedTuple

from model.rules import Rules


class ReceiptNotCompared(Rules):
    """The store lets every publish through."""

    def is_next(self, fence, generation, request):
        return True


class ComparedByOlder(Rules):
    """The store refuses a publish only if a newer generation is there."""

    def is_next(self, fence, generation, request):
        return fence <= generation


class LeaseTrusted(Rules):
    """Whoever holds the lease is not compared."""

    def is_next(self, fence, generation, request):
        return request.leased or fence + 1 == generation


class TakenOverWithoutFence(Rules):
    """Whoever took a lease over takes its holder for dead, and is not compared."""

    def is_next(self, fence, generation, request):
        return request.took_over or fence + 1 == generation


class DeadLeaseHonoured(Rules):
    """A lease ends only when it is given back or runs out, also that of a dead process."""

    def is_free(self, holder, *, alive, ran_out):
        return not holder or ran_out


class LedgerMarkedFirst(Rules):
    """The ledger is told before the store."""

    confirms_first = True


class NumberFromLedger(Rules):
    """The generation is what the ledger knows, and one."""

    def number(self, table, ledger, slot):
        return ledger.published[slot] + 1


class SkipFromLedger(Rules):
    """A slot that the ledger knows is skipped."""

    def is_done(self, table, ledger, slot, value, code):
        return ledger.published[slot] > 0


class DeleteThenInsert(Rules):
    """The old rows are removed in one commit, the new ones come in the next."""

    commits = (frozenset({"remove"}), frozenset({"rows", "receipt"}))


class ReceiptAfterTheRows(Rules):
    """The receipt is written in a commit of its own, after the rows."""

    commits = (frozenset({"rows"}), frozenset({"receipt"}))


class ViewBeforeTheTable(Rules):
    """What readers follow, and the receipt with it, moves before the rows are there."""

    commits = (frozenset({"receipt"}), frozenset({"rows"}))


class TableBeforeTheView(Rules):
    """A table is filled before its view names it."""

    names_the_table_first = False


class NoHeadRule(Rules):
    """A draft is published whatever happened since the state that it was computed from."""

    def is_unmoved(self, request, table):
        return True


class LatestPlusOne(Rules):
    """A list of files is linked to the next free number, not to the one after its base."""

    def may_link(self, request, table):
        return True


class CleanUpAfterTheUnknown(Rules):
    """A run that got no answer removes what it has staged."""

    cleans_up_the_unknown = True


class AnswerNotReadBack(Rules):
    """A run that got no answer believes that it landed."""

    reads_back = False


class TwinByNumber(Rules):
    """A receipt of the same generation counts as the same work."""

    def is_twin(self, found, part, code):
        return found.generation == part.generation


class TwinOfOtherCode(Rules):
    """The same inputs count as the same work, also where the code was what had to run again."""

    def is_twin(self, found, part, code):
        return (found.generation, found.value) == (part.generation, part.value)


class TidyIgnoresLiveRuns(Rules):
    """A tidy sweeps whatever no version uses."""

    def may_sweep(self, attempt, live):
        return True


class TidyNamesNobody(Rules):
    """A tidy removes files without naming the attempts in the log."""

    tidy_names_what_it_sweeps = False


class SweptNotCompared(Rules):
    """An attempt that was swept may publish when it wakes up."""

    def is_staged(self, request, table):
        return True


class OldPlansOutliveNames(Rules):
    """An attempt that was swept may publish once its name has ended."""

    def is_recent(self, began, table):
        return True


class InputsNotLookedAtTwice(Rules):
    """Rows are published although their input changed while it was read."""

    def is_unchanged(self, part, now):
        return True


class InputsComparedByValue(Rules):
    """The second look compares contents: a change that was undone is not noticed."""

    def is_unchanged(self, part, now):
        return part.value == now.value


class InputsBeforeTheStore(Rules):
    """Inputs are resolved first, and the store is looked at afterwards."""

    looks_at_the_store_first = False


class ReplayNotDeclared(Rules):
    """A replay that shows each slot does not say which ones have to follow."""

    def declared(self, later):
        return ()


class ReplayNotTakenUp(Rules):
    """Who comes after the death of such a replay does not go on with it."""

    def to_take_up(self, table):
        return ()


class OldEditionComesBack(Rules):
    """A replay starts from any version that holds only earlier slots, whatever their generations."""

    def may_start_from(self, kept, table, earlier):
        return not kept.strange and all(slot in earlier for slot, there in enumerate(kept.holds) if there)


class ProofNotAsked(Rules):
    """A run builds on whatever is there, vouched for or not."""

    def is_vouched_for(self, table, slots):
        return True


class AcceptedForEver(Rules):
    """Whoever accepted one change from outside has accepted all that follow."""

    def is_accepted(self, table, ledger):
        return bool(ledger.accepted)


class SecondAppend(Rules):
    """An append of a slot that is there already is let through."""

    def may_append(self, table, slot):
        return True


class OwnerNotCompared(Rules):
    """The store does not ask whose the table is by now."""

    def is_owner(self, request, table):
        return True


class FilledTableNotTakenOver(Rules):
    """A table that holds a stranger's rows is written to without being taken over."""

    def may_write(self, table, ledger):
        return True


class HandsChangedBlindly(Rules):
    """A table is taken over, given back or restored as it was seen, although it moved since."""

    def may_change_hands(self, request, table):
        return True


class Caught(NamedTuple):
    size: str
    promise: str


WRONG = {
    ReceiptNotCompared: Caught("append", "I1"),
    ComparedByOlder: Caught("append", "I1"),
    LeaseTrusted: Caught("slice, leases", "I4"),
    TakenOverWithoutFence: Caught("slice, leases", "I4"),
    DeadLeaseHonoured: Caught("slice, leases", "I7"),
    LedgerMarkedFirst: Caught("slice", "I7"),
    NumberFromLedger: Caught("slice, ledger lost or stale", "I7"),
    SkipFromLedger: Caught("slice", "I1"),
    DeleteThenInsert: Caught("slice", "I1"),
    ReceiptAfterTheRows: Caught("append", "I1"),
    ViewBeforeTheTable: Caught("slice", "I1"),
    TableBeforeTheView: Caught("behind a view", "I1"),
    NoHeadRule: Caught("ordered", "I1"),
    LatestPlusOne: Caught("slice, linked", "I4"),
    CleanUpAfterTheUnknown: Caught("slice", "I1"),
    AnswerNotReadBack: Caught("slice", "I6"),
    TwinByNumber: Caught("slice", "I6"),
    TwinOfOtherCode: Caught("slice, new code", "I6"),
    TidyIgnoresLiveRuns: Caught("slice, linked, leases", "I8"),
    TidyNamesNobody: Caught("slice, linked", "I1"),
    SweptNotCompared: Caught("slice, linked", "I1"),
    OldPlansOutliveNames: Caught("slice, linked, names end", "I1"),
    InputsNotLookedAtTwice: Caught("slice", "I1"),
    InputsComparedByValue: Caught("slice", "I1"),
    ReplayNotDeclared: Caught("ordered, shown slot by slot", "I7"),
    ReplayNotTakenUp: Caught("ordered, shown slot by slot", "I7"),
    OldEditionComesBack: Caught("ordered, corrected twice", "I1"),
    ProofNotAsked: Caught("ordered, changed from outside", "I5"),
    AcceptedForEver: Caught("slice, accepted", "I6"),
    SecondAppend: Caught("append", "I1"),
    OwnerNotCompared: Caught("slice, given away", "I5"),
    FilledTableNotTakenOver: Caught("ordered, filled before", "I5"),
    HandsChangedBlindly: Caught("slice, given away", "I4"),
}

# Changes of one rule that break no promise, since another rule covers for it: here the second look.
COVERED = {InputsBeforeTheStore: "slice"}
