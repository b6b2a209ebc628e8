"""What may have happened to the data when something went wrong?

Errors are typed by the answer, because the answer decides the next move:

    TwiceError
      Misuse            2   nothing started; correct the project or the command
        Unsupported         this store cannot carry this pattern
        NotProvable         a proof of this pipeline would reach outside of its copies
      NotPublished      1   the slot shows nothing new; running again is safe
        BadFile             a file of the inputs cannot be used
        InputsAbsent        inputs of the slot are not there: not yet, or not any more
        InputsMoved         the inputs changed while they were being read
        SourceFailed        a function that was declared as a source did not do its part
        DataTestsFailed     the rows break a test of the pipeline; the same inputs break it again
        Waiting             the inputs are not ready yet; nothing is wrong
      OutcomeUnknown    3   the publish may or may not have landed; ask the store first
        EffectOwed          the rows are published, and a call that belongs to them is not confirmed
      Fenced            4   the store has moved on; this plan is stale
        Overtaken           other publishes were faster; the same run, planned anew, may pass
        ProofGone           the slot was published, and its rows are no longer vouched for
        Stranger            the target belongs to another ledger
        LedgerAhead         the ledger knows of a publish that the store does not
      Busy              4   someone else is working on the slot now
      Held              4   an earlier slot, or an earlier try of this one, has to be dealt with first
      NotIdempotent     5   a counterexample was found

The number is the exit code of the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from twice.masks import mask


class TwiceError(Exception):
    """Root of all errors: what is true, why, and the next move, one line each. None of them shows a secret."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, why: str = "", fix: str = "") -> None:
        self.what = mask(what)
        self.why = mask(why)
        self.fix = mask(fix)
        super().__init__("\n  ".join(line for line in (self.what, self.why, self.fix) if line))


class Misuse(TwiceError):
    """Nothing started: the project or the command has to be corrected."""

    exit_code = 2


class Unsupported(Misuse):
    """The store cannot keep the promise of the pattern, so nothing was touched."""


class NotProvable(Misuse):
    """A proof could not be kept apart from the real tables, files or services, so nothing was tried."""


class NotPublished(TwiceError):
    """The slot shows nothing new, and running it again is safe."""

    exit_code = 1


class BadFile(NotPublished):
    """A file of the inputs cannot be used. `reason` says why, as the end of a sentence that begins with its name."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"The input file {path!r} {reason}",
            "Nothing was published, and the target is as it was.",
            "Correct or remove the file, and run again.",
        )


class InputsAbsent(NotPublished):
    """Some inputs of a slot are not there; `absent` says which, as a part of a sentence."""

    def __init__(self, absent: str, of: str, fix: str) -> None:
        self.absent = absent
        super().__init__(f"{absent[:1].upper()}{absent[1:]}{of}.", "Nothing was read and nothing was published.", fix)


class InputsMoved(NotPublished):
    """Some inputs, which have `names`, changed between the first look at them and the publish."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        more = f", and {len(names) - 1} more." if len(names) > 1 else "."
        super().__init__(
            f"The input {names[0]!r} changed while this run was reading it{more}",
            "Its rows may be a mixture of old and new, so nothing was published.",
            "Run again: the new content is taken as it is then.",
        )


class SourceFailed(NotPublished):
    """A function that was declared as a source, or as its fingerprint, raised or gave something unusable."""


class DataTestsFailed(NotPublished):
    """Staged rows break tests of their pipeline. The same inputs break them again, so it is not tried again."""

    def __init__(self, what: str) -> None:
        super().__init__(
            what,
            "Nothing was published, and the target is as it was.",
            "Correct the inputs, the transform or the test, and run again.",
        )


class Waiting(NotPublished):
    """The inputs of a slot are not ready yet. Nothing is wrong, and a later run takes them.

    `absent` says which of them are not there at all, as a part of a sentence.
    """

    absent = ""


class OutcomeUnknown(TwiceError):
    """The publish may have landed: only the store can tell, and it did not yet."""

    exit_code = 3


class EffectOwed(OutcomeUnknown):
    """The rows are published and vouched for; a call in an outside system that belongs to them is not confirmed.

    `not_before` is the time until which its service asked to be left alone, if it did.
    """

    not_before: str = ""


class Fenced(TwiceError):
    """The store is no longer as the plan saw it; a new plan is needed."""

    exit_code = 4


class Overtaken(Fenced):
    """Other publishes moved the slot or its target during the run; run again, it may pass."""


class ProofGone(Fenced):
    """The slot was published, and since then its rows were restored, replaced or changed from outside."""


class Stranger(Fenced):
    """The target belongs to another ledger."""


class LedgerAhead(Fenced):
    """The ledger knows of a newer generation than the store: the store went back in time."""


class Busy(TwiceError):
    """Another attempt holds the lease of the slot or of its target."""

    exit_code = 4


class Held(TwiceError):
    """The slot is not to be worked on now: it, or one that it builds on, waits for a retry or for a person."""

    exit_code = 4


class NotIdempotent(TwiceError):
    """A sequence of runs was found that does not end in the table of one clean run."""

    exit_code = 5


class Conflict(Exception):
    """A store refused a publish and guarantees that nothing of it landed.

    It never reaches users: the executor looks at the store again and applies the slot rule.
    """


def suggestion(unknown: str, known: object) -> str:
    """Return a 'Did you mean' line for a misspelt name, or the list of what there is."""
    import difflib

    names = sorted(str(name) for name in known)  # type: ignore[attr-defined]
    close = difflib.get_close_matches(unknown, names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"There is: {', '.join(names)}." if names else "There is none yet."


def count(number: int, noun: str) -> str:
    """Return `1 row`, `2 rows`, `3 tries`."""
    nouns = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else nouns}"
