"""What does it cost to clean one period of a table on PostgreSQL? `python benchmarks/periods.py`.

A forced load that brings no rows replaces the period's table, through Twice; by hand the rows of the period are deleted
from one table with an index on the period, and the table is vacuumed, since the deleted rows are still in it. The same
with ten times as many other rows. CPU is that of this process and of the whole server. No JVM is started.
"""

import argparse
import statistics
import tempfile
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import psycopg
from measure import Cost, measured, server_cpu_seconds, tree_cpu_seconds

import twice
from twice import settings
from twice.project import Project
from twice.servers.postgres import PostgresServer
from twice.stores.postgres import PostgresStore

WEEK, LABEL = "2024-01-01", "2024_w01"
_ROWS = "select n as id, 'page ' || n % 5003 as page, n % 600 as seconds from generate_series(1, {}) n"


@dataclass
class Ground:
    """One database with a view of periods, and a table that holds the same rows."""

    server: PostgresServer
    folder: Path
    rows: int
    weeks: int

    def __post_init__(self) -> None:
        self.db = psycopg.connect(self.server.url(), autocommit=True)
        self.db.execute("drop schema public cascade; create schema public")
        self.project = Project(settings.load(self.folder), None)
        self.project._stores["postgres"] = PostgresStore(self.server.url(), self.project.engine)
        self.db.execute("create table by_hand (week text, id bigint, page text, seconds bigint)")
        for week in range(self.weeks):
            day = date.fromisoformat(WEEK) + timedelta(weeks=week)
            self._publish(day.isoformat(), [{"id": 0, "page": "", "seconds": 0}])
        self.names = [
            name for (name,) in self.db.execute("select relation from twice_members order by label").fetchall()
        ]
        for name in self.names:
            self.fill(name)
        self.db.execute("create index on by_hand (week)")
        self.db.execute("vacuum analyze by_hand")

    def fill(self, name: str) -> None:
        """Put the rows of a period where they belong, in both."""
        label = name.removeprefix("visits__")
        if not self.db.execute(f"select 1 from {name} limit 2 offset 1").fetchone():
            self.db.execute(f"insert into {name} (id, page, seconds) {_ROWS.format(self.rows)}")
        if not self.db.execute("select 1 from by_hand where week = %s limit 1", [label]).fetchone():
            self.db.execute(f"insert into by_hand select '{label}', * from ({_ROWS.format(self.rows)}) r")
        self.db.execute("checkpoint")

    def _publish(self, day: str, rows: list[dict[str, object]]) -> None:
        twice.publish(
            rows,
            to="postgres:visits",
            pattern=twice.fast_metadata_cleaner(period="week", full=True),
            slot=twice.slot("visits", at=day),
            project=self.project,
            force=True,
        )

    def clean(self) -> None:
        """Replace the period by nothing, through Twice."""
        self._publish(WEEK, [])

    def delete(self) -> None:
        """Delete the period by hand."""
        self.db.execute("delete from by_hand where week = %s", [LABEL])
        self.db.execute("vacuum by_hand")

    def measured(self, act) -> Cost:
        """Do something once, and return what it cost here and on the server."""
        return measured(act, lambda: tree_cpu_seconds() + server_cpu_seconds(self.server.pid))


def duel(ground: Ground, times: int) -> tuple[float, float, float]:
    """Measure both ways in turns; return the CPU seconds of each, and the median of their ratios."""
    ours, theirs = [], []
    for _ in range(times + 1):
        ground.fill(f"visits__{LABEL}")
        ours.append(ground.measured(ground.clean).cpu_seconds)
        theirs.append(ground.measured(ground.delete).cpu_seconds)
    pairs = list(zip(ours, theirs, strict=True))[1:]
    return statistics.median(ours[1:]), statistics.median(theirs[1:]), statistics.median(b / a for a, b in pairs)


def main() -> None:
    """Print what a cleaning costs, with few and with many other rows."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rows", type=int, default=500_000, help="rows of each period")
    asked.add_argument("--periods", default="2,20", help="how many periods there are")
    asked.add_argument("--times", type=int, default=5)
    given = asked.parse_args()
    print(f"{'periods':>8} {'rows':>12} {'ours, CPU s':>12} {'DELETE, CPU s':>14} {'DELETE / ours':>14}")
    with PostgresServer() as server:
        for weeks in map(int, given.periods.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                ours, theirs, ratio = duel(Ground(server, Path(folder), given.rows, weeks), given.times)
            print(f"{weeks:>8} {weeks * given.rows:>12,} {ours:>12.3f} {theirs:>14.3f} {ratio:>14.1f}")


if __name__ == "__main__":
    main()
