"""Does every death end in the table of one clean run?

The kill harness. It records the fault points that a clean pass reaches, then builds a fresh world
for each of them, dies there, runs again, and compares rows, receipts, ledger and leftovers. On top
of it `proving` does the same to a pipeline of the user's, in copies of its project.
"""

from twice.prover.harness import Counterexample, Verdict, World, check, deaths_at_every_point, points_of
from twice.prover.verdicts import Snapshot, Trouble

__all__ = [
    "Counterexample",
    "Snapshot",
    "Trouble",
    "Verdict",
    "World",
    "check",
    "deaths_at_every_point",
    "points_of",
]
