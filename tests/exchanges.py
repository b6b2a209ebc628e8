"""Rows that are staged as Spark's tasks stage them, without Spark, so that they can take a partition's place."""

from dataclasses import dataclass, field

from twice.stores.postgres import leaves, leftovers, staging, tasks
from twice.stores.postgres.rows import held
from twice.stores.postgres.sources import Source


@dataclass
class Tasks:
    """Two tasks for each result; `meanwhile` is done when they have committed, with what they know of their tables."""

    meanwhile: list = field(default_factory=list)

    def installed(self, monkeypatch):
        """Let these stand in for Spark's tasks, and small partitions be worth an exchange."""
        monkeypatch.setattr(staging, "is_frame", lambda _: True)
        monkeypatch.setattr(tasks, "staged", self.staged)
        monkeypatch.setattr(leaves, "LARGE_BYTES", 0)
        return self

    def staged(self, url, home, work, rows, types, within, *, are_together):
        prefix = leftovers.prefix_of(home, work.attempt)
        together = tasks.Together.made(url, home.schema, prefix, work, types) if are_together else None
        made = tasks.Staging(tasks.address_of(url), home.schema, prefix, types, together, None)
        table = held(rows)
        answers = [self._answer(made, number, table.slice(number, 1 if not number else None)) for number in range(2)]
        found, stored = tasks.gathered(url, made, [answer for answer in answers if answer])
        for act in self.meanwhile:
            act(together)
        return Source(types, found, stored)

    def _answer(self, made, number, part):
        if not part.num_rows:
            return None
        table = made.table(number, number)
        rows, by = tasks._copied(made, table, part.to_reader())
        return {"name": table.table, "rows": rows, "by": by, "held": b""}
