"""What does Twice do when a run dies, is repeated, corrected and backfilled?

A story told with real commands on a small project: every line that begins with `$` is run as a
process of its own, and the table is compared with that of one clean run.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from twice.cli.project import visits_csv, write_example
from twice.errors import Misuse, NotIdempotent
from twice.prover.killers import Ended, run_command
from twice.settings import ENVIRONMENT

DAY = "2024-10-07"
_KILLED = -signal.SIGKILL


@click.command("demo")
@click.argument("store", type=click.Choice(["parquet", "postgres"]), default="parquet")
@click.option("--keep", type=click.Path(file_okay=False), help="Keep the project in this folder, to go on by hand.")
def demo_command(store: str, keep: str | None) -> int:
    """Watch a pipeline run, be killed, run again, be corrected, be backfilled and lose its ledger.

    With postgres a real server is started for it, which is killed as well. Takes about a minute. Nothing outside a
    temporary folder is touched.

    \b
    Examples:
      twice demo --keep my-demo
      twice demo postgres
    """
    if store == "postgres":
        return _on_a_server(keep)
    if keep:
        Story(Path(keep)).tell()
        print(
            f"\nThe project is in {keep}. Try:\n  cd {keep}\n  twice status\n  twice runs\n  twice show parquet:lake/visits"
        )
        return 0
    with tempfile.TemporaryDirectory(prefix="twice-demo-") as folder:
        Story(Path(folder) / "project").tell()
    print(
        "\nTry it yourself:\n  twice init my-project\n  cd my-project\n  twice run visits --at 2024-10-07\n  twice status"
    )
    return 0


def _on_a_server(keep: str | None) -> int:
    from twice.cli.demo_postgres import PostgresStory
    from twice.servers.postgres import PostgresServer

    if keep:
        raise Misuse("The server goes with the demo, so its project cannot be kept.", fix="twice demo postgres")
    with tempfile.TemporaryDirectory(prefix="twice-demo-") as folder, PostgresServer() as server:
        PostgresStory(Path(folder) / "project", server).tell()
    print("\nThe server is gone. For one of your own see docs/how-to/share-a-ledger.md, or set TWICE_POSTGRES_URL.")
    return 0


class Story:
    """The demo, told on one project folder."""

    store = "parquet"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.settings = {ENVIRONMENT: "", **(settings or {})}
        self.chapter = 0

    def tell(self) -> None:
        """Tell all chapters, and stop with an error if a table is not what it should be."""
        write_example(self.folder, self.store)
        for chapter in self.chapters():
            chapter()
        print("\nEvery ending was the table of one clean run.")

    def chapters(self) -> tuple[Callable[[], None], ...]:
        """Return what is told, in order."""
        return (self.first_run, self.rerun, self.killed, self.corrected, self.backfilled, self.ledger_lost)

    def first_run(self) -> None:
        """Publish one day."""
        self._title("A first run", "One day of visits is read from a CSV file, filtered and published.")
        self._twice("run", "visits", "--at", DAY)
        self._table({DAY: 5})

    def rerun(self) -> None:
        """Ask for the same day again."""
        self._title(
            "The same again", "A scheduler retries. The inputs are the same, so nothing is done, and no JVM is started."
        )
        self._twice("run", "visits", "--at", DAY)
        self._table({DAY: 5})

    def killed(self) -> None:
        """Kill a run between data and bookkeeping."""
        self._title(
            "Killed at the worst moment",
            "The next day is published, and the process group gets SIGKILL before the ledger hears of it.",
        )
        self._twice("run", "visits", "--at", "2024-10-08", fault="kill:publish.after", expect=_KILLED)
        self._tell(
            "The rerun finds the receipt inside the table's own commit: it writes nothing, and mends the ledger."
        )
        self._twice("run", "visits", "--at", "2024-10-08")
        self._table({DAY: 5, "2024-10-08": 5})

    def corrected(self) -> None:
        """Change an input, and run its day again."""
        self.correct()
        self._table({DAY: 8, "2024-10-08": 5})

    def correct(self) -> None:
        """Deliver a day's file again with other rows."""
        self._title(
            "A corrected input", "The first day's file is delivered again with other rows. They replace the old ones."
        )
        (self.folder / f"landing/visits/{DAY}.csv").write_text(visits_csv(DAY, 9), encoding="utf-8")
        self._twice("plan", "visits", "--at", DAY)
        self._twice("run", "visits", "--at", DAY, "--yes")

    def backfilled(self) -> None:
        """Fill three days."""
        self._title("A backfill", "Three days in order. What is published already is skipped.")
        self._twice("backfill", "visits", "--from", "2024-10-08", "--to", "2024-10-11")
        self._table({DAY: 8, "2024-10-08": 5, "2024-10-09": 5, "2024-10-10": 5})

    def ledger_lost(self) -> None:
        """Delete the ledger, and bring it back."""
        self._title(
            "The ledger is lost",
            "It is only a cache: the receipts are in the table. A run refuses until it is rebuilt.",
        )
        (self.folder / ".twice/ledger.db").unlink()
        self._twice("run", "visits", "--at", DAY, expect=4)
        self._twice("ledger", "rebuild", "--yes")
        self._twice("run", "visits", "--at", DAY)
        self._table({DAY: 8, "2024-10-08": 5, "2024-10-09": 5, "2024-10-10": 5})

    def _title(self, title: str, text: str) -> None:
        self.chapter += 1
        print(f"\n{self.chapter}. {title}")
        self._tell(text)

    def _tell(self, text: str) -> None:
        print(f"   {text}", flush=True)

    def _twice(self, *words: str, fault: str = "", expect: int = 0) -> None:
        """Run one command as a process group of its own."""
        print(f"   $ twice {' '.join(words)}", flush=True)
        began = time.monotonic()
        self._ended(run_command(words, self.folder, fault, self.settings), expect, began)

    def _ended(self, done: Ended, expect: int, began: float) -> None:
        for line in done.output.splitlines():
            print(f"     {line}")
        ended = "killed" if done.killed else f"exit {done.code}"
        print(f"     ({ended}, {time.monotonic() - began:.1f} s)", flush=True)
        if done.code != expect:
            raise NotIdempotent(f"The command ended with {done.code} instead of {expect}.")

    def _table(self, expected: dict[str, int]) -> None:
        """Show the rows a day, and compare them with those of one clean run."""
        found = self.rows_a_day()
        bars = "   ".join(f"{day}: {'#' * count} {count}" for day, count in sorted(found.items()))
        print(f"   table  {bars}", flush=True)
        if found != expected:
            raise NotIdempotent(f"The table holds {found}; one clean run gives {expected}.")

    def rows_a_day(self) -> dict[str, int]:
        """Count the rows of the table by day."""
        return rows_a_day(self.folder)


def rows_a_day(folder: Path) -> dict[str, int]:
    """Count the rows of the example's table by day, from the files that its manifest names."""
    from collections import Counter

    from pyarrow import parquet

    from twice.api import current_files

    counts: Counter[str] = Counter()
    for file in current_files("parquet:lake/visits", project=folder):
        counts.update(str(day) for day in parquet.read_table(file, columns=["day"]).column("day").to_pylist())
    return dict(counts)
