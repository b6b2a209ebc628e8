"""What does it cost to clean one period of a table on PostgreSQL? `python benchmarks/periods.py`.

A forced load that brings no rows replaces the period's table, through Twice; by hand the rows of the period are deleted
from one table, and the table is vacuumed, since the deleted rows are still in it. The same with ten times as many other
rows, in turns with the first, so that the two can be compared too. CPU is that of this process and of the whole server.
No JVM is started.

What a DELETE costs depends on the indexes. `--keys` tells which there are:

    week,id   the one table has the primary key (week, id), each period's table (id): the same rows are refused
    id        the one table has the primary key (id) and an index on the week, each period's table (id): by hand an id
              is unique in all weeks, behind the view in its own
    none      the one table has an index on the week, and no key
"""

import argparse
import statistics
import tempfile
from dataclasses import dataclass, field
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
_KEYS = {
    "week,id": ["alter table by_hand add primary key (week, id)"],
    "id": ["alter table by_hand add primary key (id)", "create index on by_hand (week)"],
    "none": ["create index on by_hand (week)"],
}
_ROWS = "select n as id, 'page ' || n % 5003 as page, n % 600 as seconds from generate_series({} + 1, {} + {}) n"


@dataclass
class Ground:
    """One database with a view of periods, and a table that holds the same rows; and what each way cost in it."""

    server: PostgresServer
    folder: Path
    rows: int
    weeks: int
    keys: str = "week,id"
    ours: list[Cost] = field(default_factory=list)
    theirs: list[Cost] = field(default_factory=list)

    def __post_init__(self) -> None:
        name = f"of_{self.weeks}"
        with psycopg.connect(self.server.url(), autocommit=True) as db:
            db.execute(f"drop database if exists {name}")
            db.execute(f"create database {name}")
        self.folder.mkdir()
        self.db = psycopg.connect(self.server.url(name), autocommit=True)
        self.project = Project(settings.load(self.folder), None)
        self.project._stores["postgres"] = PostgresStore(self.server.url(name), self.project.engine)
        self.db.execute("create table by_hand (week text, id bigint, page text, seconds bigint)")
        for week in range(self.weeks):
            day = date.fromisoformat(WEEK) + timedelta(weeks=week)
            self._publish(day.isoformat(), [{"id": 0, "page": "", "seconds": 0}])
            if week == 0 and self.keys != "none":
                # The tables of other periods are made like this one, and so is the one that takes its place.
                self.db.execute(f"alter table visits__{LABEL} add primary key (id)")
        found = self.db.execute("select relation from twice_members order by label").fetchall()
        self.first_id = {name: number * self.rows for number, (name,) in enumerate(found)}
        for name in self.first_id:
            self.fill(name)
        for statement in _KEYS[self.keys]:
            self.db.execute(statement)
        self.db.execute("vacuum analyze")

    def fill(self, name: str) -> None:
        """Put the rows of a period where they belong, in both."""
        label, first = name.removeprefix("visits__"), self.first_id[name]
        rows = _ROWS.format(first, first, self.rows)
        if not self.db.execute(f"select 1 from {name} limit 2 offset 1").fetchone():
            self.db.execute(f"insert into {name} (id, page, seconds) {rows}")
        if not self.db.execute("select 1 from by_hand where week = %s limit 1", [label]).fetchone():
            self.db.execute(f"insert into by_hand select '{label}', * from ({rows}) r")
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

    def check(self) -> None:
        """See that both ways did what they were to do, and that the period's table still has its key."""
        left = self.db.execute("select count(*) from visits where id > 0").fetchone()
        assert left == self.db.execute("select count(*) from by_hand").fetchone() == ((self.weeks - 1) * self.rows,)
        query = "select count(*) from pg_index where indrelid = %s::regclass and indisprimary"
        assert self.db.execute(query, [f"visits__{LABEL}"]).fetchone() == (self.keys != "none",)

    def measured(self, act) -> Cost:
        """Do something once, and return what it cost here and on the server; what it wrote is its WAL."""
        before = self._wal()
        cost = measured(act, lambda: tree_cpu_seconds() + server_cpu_seconds(self.server.pid))
        cost.bytes_written = self._wal() - before
        return cost

    def _wal(self) -> int:
        return int(self.db.execute("select pg_current_wal_insert_lsn() - '0/0'").fetchone()[0])

    def take_a_turn(self) -> None:
        """Measure both ways once."""
        self.fill(f"visits__{LABEL}")
        self.ours.append(self.measured(self.clean))
        self.theirs.append(self.measured(self.delete))


def measure(grounds: list[Ground], times: int) -> None:
    """Measure all in turns, after one turn that does not count."""
    for _ in range(times + 1):
        for ground in grounds:
            ground.take_a_turn()
    for ground in grounds:
        ground.check()
        ground.db.close()
        del ground.ours[0], ground.theirs[0]


def _ratio(ones: list[Cost], others: list[Cost], what: str) -> float:
    """Median of one / other, pair by pair."""
    pairs = zip(ones, others, strict=True)
    return statistics.median(getattr(one, what) / getattr(other, what) for one, other in pairs)


def _told(costs: list[Cost]) -> str:
    cpu, wall, written = (
        statistics.median(getattr(cost, what) for cost in costs)
        for what in ("cpu_seconds", "wall_seconds", "bytes_written")
    )
    return f"{cpu:>8.3f} {wall:>8.3f} {written / 1e6:>8.1f}"


def main() -> None:
    """Print what a cleaning costs, with few and with many other rows."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument(
        "--rows", default="500000,2000000", help="rows of each period: one number, or several with commas"
    )
    asked.add_argument("--periods", default="2,20", help="how many periods there are")
    asked.add_argument("--keys", nargs="+", choices=list(_KEYS), default=["week,id", "none"])
    asked.add_argument("--times", type=int, default=9)
    given = asked.parse_args()
    each = f"{'CPU s':>8} {'wall s':>8} {'WAL MB':>8}"
    print(f"{'':>29} {'ours':<26} {'DELETE and VACUUM':<26} {'DELETE / ours':>14}")
    print(f"{'keys':>8} {'periods':>8} {'rows':>11} {each} {each} {'CPU':>6} {'wall':>7}")
    with PostgresServer() as server:
        for rows in map(int, given.rows.split(",")):
            for keys in given.keys:
                with tempfile.TemporaryDirectory() as folder:
                    weeks = [int(number) for number in given.periods.split(",")]
                    grounds = [Ground(server, Path(folder, str(number)), rows, number, keys) for number in weeks]
                    measure(grounds, given.times)
                _print(grounds)


def _print(grounds: list[Ground]) -> None:
    """Print a line for each number of periods, and how the most compare with the fewest."""
    for ground in grounds:
        cpu, wall = (_ratio(ground.theirs, ground.ours, what) for what in ("cpu_seconds", "wall_seconds"))
        print(
            f"{ground.keys:>8} {ground.weeks:>8} {ground.rows:>11,} {_told(ground.ours)} {_told(ground.theirs)}"
            f" {cpu:>6.1f} {wall:>7.1f}",
            flush=True,
        )
    few, many = grounds[0], grounds[-1]
    # The kernel counts CPU in hundredths of a second, which is much of one cleaning: so all of them together.
    cpu = sum(cost.cpu_seconds for cost in many.ours) / sum(cost.cpu_seconds for cost in few.ours)
    wall = _ratio(many.ours, few.ours, "wall_seconds")
    print(f"{'':>8} ours of {many.weeks} / ours of {few.weeks}: CPU {cpu:.2f}, wall {wall:.2f}", flush=True)


if __name__ == "__main__":
    main()
