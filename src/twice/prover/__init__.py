"""Does every death end in the table of one clean run?

The kill harness. It records the fault points that a clean pass reaches, then builds a fresh world
for each of them, dies there, runs again, and compares rows, receipts, ledger and leftovers.
"""

from twice.prover.harness import Counterexample, Snapshot, Verdict, World, check, deaths_at_every_point, points_of

__all__ = ["Counterexample", "Snapshot", "Verdict", "World", "check", "deaths_at_every_point", "points_of"]
