"""What was intended, and what was confirmed?

The ledger records the intention before a run and the confirmation after it. Of what is published
it is a cache: wherever it disagrees with a store, the store decides.
"""

from twice.ledger.ledger import Ledger
from twice.ledger.records import AttemptRecord, Lease

__all__ = ["AttemptRecord", "Lease", "Ledger"]
