"""How are rows added to those of the same slot in a Delta table, while some of these leave?

In one transaction that is opened on the version which the plan saw, and that reads all of it: whatever changes a row
meanwhile is a conflict. The rows that leave are found and left out by Delta's own DELETE, which works in this transaction
and knows deletion vectors, change feeds and numbers of rows. Whoever dies before the commit leaves files that no version
names.
"""

from __future__ import annotations

from dataclasses import replace

from twice.abilities import Leaving, Rows, Staged, TakesIn, Work
from twice.errors import NotPublished
from twice.faults import reach
from twice.slices import Slice
from twice.stores import taking
from twice.stores.delta.staging import Stages


class Takes(Stages, TakesIn):
    """Takes rows in, for the store of Delta tables."""

    def stage_taken(self, work: Work, rows: Rows, check: Slice | None, leaving: Leaving | None) -> Staged:
        """Write the rows, and what Delta leaves of the files from which some go."""
        transaction = self._open(work, base=work.base.version)
        leaves = taking.leaves(leaving, transaction.schema, work.name) if leaving and transaction.exists else ""
        come = taking.coming(self._fits(transaction, rows, work, ()), check, leaving)
        if transaction.exists:
            transaction.reads_all()
        staged = self._stage(work, transaction, come.rows, {}, transaction.partition_columns, "rows")
        try:
            if leaving:
                leaving.refuse_unknown(come.unknown())
        except NotPublished:
            self.discard(work, staged)
            raise
        staged = replace(staged, outside=come.stray())
        if not leaves:
            return staged
        actions = staged.handle.actions.concat(transaction.delete(leaves))
        reach("delta.rows.left")
        return replace(staged, handle=replace(staged.handle, actions=actions))
