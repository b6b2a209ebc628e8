"""What does Twice do when a PostgreSQL server is killed, and when its answer is lost?

The story of the demo, told on a table of a real server, with the ledger on it too. The run, the
server and the wire between them are broken one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from twice.cli.demo import DAY, Story
from twice.prover.killers import run_asleep
from twice.prover.wires import AFTER, Wire
from twice.servers.postgres import PostgresServer

_NEXT = "2024-10-09"


class PostgresStory(Story):
    """The demo, on a server of its own."""

    store = "postgres"

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        super().__init__(folder, {"TWICE_POSTGRES_URL": server.url(), "TWICE_LEDGER_URL": server.url()})
        self.server = server

    def chapters(self) -> tuple[Callable[[], None], ...]:
        """Return what is told, in order."""
        return (
            self.first_run,
            self.rerun,
            self.killed,
            self.server_killed,
            self.answer_lost,
            self.corrected,
            self.backfilled,
        )

    def server_killed(self) -> None:
        """Kill the server while a run waits inside its transaction."""
        self._title(
            "The server is killed",
            "All rows of the third day are moved, COMMIT is not sent yet. Then the server gets SIGKILL, and is started again.",
        )
        words = ["run", "visits", "--at", _NEXT]
        print(f"   $ twice {' '.join(words)}", flush=True)
        began = time.monotonic()
        self._ended(run_asleep(words, self.folder, "pause:postgres.rows.moved", self.settings, self._crash), 1, began)
        self._table({DAY: 5, "2024-10-08": 5})

    def _crash(self) -> None:
        self.server.kill()
        self.server.start()

    def answer_lost(self) -> None:
        """Cut the wire between COMMIT and its answer."""
        self._title(
            "The answer is lost",
            "The same day again. The server commits, and the connection is cut before it can say so. The receipt tells.",
        )
        with Wire.to(self.server.url()) as wire:
            wire.expect(AFTER, having="twice_receipts")
            usual, self.settings = (
                self.settings,
                {**self.settings, "TWICE_POSTGRES_URL": wire.through(self.server.url())},
            )
            self._twice("run", "visits", "--at", _NEXT)
            self.settings = usual
        self._table({DAY: 5, "2024-10-08": 5, _NEXT: 5})

    def corrected(self) -> None:
        """Change an input, and run its day again."""
        self.correct()
        self._table({DAY: 8, "2024-10-08": 5, _NEXT: 5})

    def rows_a_day(self) -> dict[str, int]:
        """Count the rows of the table by day."""
        import psycopg

        with psycopg.connect(self.server.url()) as db:
            found = db.execute("SELECT day::text, count(*) FROM lake__visits GROUP BY 1")
            return {day: int(rows) for day, rows in found}
