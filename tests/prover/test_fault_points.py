"""Is every fault point reached? A point that no pass reaches is one at which nobody ever died."""

import itertools
import re
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

import twice
from batches import batch
from databases import Database, table
from inboxes import Inbox
from twice import faults, settings
from twice.cli.views import _groups
from twice.faults import Died, armed, dying_at, recording
from twice.handovers import release, take_over
from twice.intakes import sweep_beside
from twice.intervals import parse_moment
from twice.ledger import AttemptRecord
from twice.ledger.files import note, replace_all
from twice.ledger.moving import export, import_
from twice.ledger.records import OPEN
from twice.ledger.sqlite import SqliteLedger
from twice.marks import PUBLISHED, Mark
from twice.project import Project
from twice.prover.naming import points_in
from twice.retrying import retry_due
from twice.runs import Slot
from twice.stores.sweep import sweep
from ways import DAY, NEXT, Linked, name
from worlds import World, once_at

SOURCE = Path(twice.__file__).parent
SPARK = (
    "quarantine.py",
    "stores/postgres",
    "stores/parquet",
    "stores/delta",
    "stores/files.py",
    "stores/views.py",
    "stores/histories.py",
)


def points_of_the_code(*, with_spark):
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if with_spark or not name.startswith(SPARK):
            yield from ((name, point) for point in points_in(path.read_text()))


def unreached(reached, *, with_spark):
    return [
        (name, point)
        for name, point in points_of_the_code(with_spark=with_spark)
        if not any(re.fullmatch(point, one) for one in reached)
    ]


def pass_over_a_table(make):
    """Backfill rows that are tested, restore, give back, take over."""
    world = make(columns={"tests": [twice.not_null("id")]})
    for day in (DAY, NEXT):
        world.put(day, [day])
    twice.backfill(world.pipeline, DAY, "2024-09-22", project=world.project)
    twice.restore(f"{world.kind}:{world.target}", 0, project=world.project)
    release(world.store, world.project.ledger, world.target)
    take_over(world.store, world.project.ledger, world.target)


def pass_over_periods(make):
    """Fill the tables of two weeks, and freeze them into one of a year."""
    world = make(pattern=twice.fast_metadata_cleaner(period="week"), start="2023-01-02")
    for day in ("2023-01-02", "2023-01-09"):
        world.put(day, [day])
        world.run(day)
    for into, members in _groups(world.project, world.pipeline, "year", parse_moment("2024-06-01")).items():
        world.store.freeze(world.target, into, members, world.project.ledger.id)


def pass_over_versions(make):
    """Publish a version behind a name, point at it, and seal the name."""
    world = make(pattern=twice.proxy(keep=2))
    target = f"{world.kind}:{world.target}"
    world.put(DAY, ["a"])
    world.run(DAY)
    twice.point(target, twice.versions(target, project=world.project)[0].name, project=world.project)
    twice.seal(target, "no more", project=world.project)


def pass_over_a_history(make):
    """Publish slots whose change rows are kept, beside rows that were there before; tidy what nothing names."""
    world = make(pattern=twice.stateful_merger(keys=["id"], form="history"))
    world.fill_by_hand([{"id": "z", "day": date.fromisoformat(DAY)}])
    take_over(world.store, world.project.ledger, world.target)
    for ids in (["a"], ["b"]):
        world.put(DAY, ids)
        world.run(DAY)
    world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)


def pass_over_batches(make):
    """Take in a batch in which rows come and leave, with a body beside the table."""
    world = make()
    batch(world)
    batch(world)


def pass_over_an_ingest(make):
    """Take in a file with a row that is set aside, if Spark is there to judge it; remove what counts for nothing; accept a change."""
    world = make()
    judged = {"max_quarantined": 5} if not world.plain else {}
    settings = {name: getattr(world, name) for name in ("kind", "spark", "database")}
    inbox = Inbox(world.folder.with_name(f"{world.folder.name}-inbox"), source=judged, **settings)
    inbox.drop_in_text("a.jsonl", '{"id": "a", "n": 1}\n' + ('{"id": "b", "n": "x"}\n' if judged else ""))
    with suppress(Died), armed(dying_at("marks.kept")):
        inbox.run()
    inbox.run()
    sweep_beside(inbox.project, inbox.pipeline, keep_days=-1, dry_run=False)
    inbox.change_by_hand()
    inbox.run(accept=True)


def pass_over_a_move(make):
    """Note files in a ledger, export it, and import it at another place."""
    world = make()
    world.put(DAY, ["a"])
    world.run(DAY)
    ledger, slot = world.project.ledger, Slot.parse(world.project.ledger.published()[0][0].slot)
    marks = [Mark("a.csv", 1, 2, "xxh3:a", 1, 1, PUBLISHED)]
    note(ledger, slot, marks, "", "")
    replace_all(ledger, slot, marks, "", "")
    file = str(world.folder / "ledger.jsonl")
    export(ledger, file)
    import_(SqliteLedger(str(world.folder / "moved.db")), file)


@twice.step
def a_step(rows):
    """Keep what there is."""
    return rows


def called(key):
    """Do nothing outside."""


def with_a_step_and_an_effect(rows, run):
    """Keep a step and register a call."""
    run.effect("notify", call=called)
    return a_step(rows, run=run)


def pass_over_retries(make):
    """Fail, be taken again; die, be taken again; with a step and an effect."""
    world = make(transform=with_a_step_and_an_effect)
    ledger, pipeline = world.project.ledger, replace(world.pipeline, retries=twice.retries())
    world.project.__dict__["pipelines"] = world.project.__dict__["whole_pipelines"] = {"out": pipeline}
    with pytest.raises(twice.NotPublished):
        twice.run(pipeline, at=DAY, project=world.project)
    world.put(DAY, ["a"])
    slot = pipeline.slot(NEXT)
    open_attempt = AttemptRecord("", slot.text, "out", slot.target.text, 1, "", "", OPEN)
    ledger.intend(open_attempt)
    world.put(NEXT, ["b"])
    assert len(list(retry_due(world.project, datetime.now(UTC) + timedelta(hours=2)))) == 2


def pass_over_lineage(make):
    """Publish a slot whose run is told to somebody."""
    world = make()
    world.project = Project(
        settings.load(world.folder, {"openlineage.file": "events.jsonl"}), stores={"memory": world.memory}
    )
    world.put(DAY, ["a"])
    world.run(DAY)


def pass_over_a_database(make):
    """Publish rows that tasks staged, sweep what a dead attempt left, give back, take over."""
    world = make()
    world.transform = lambda rows: world.spark.range(0, 40_000, 1, 1).selectExpr(
        "concat('row ', id) AS id", f"DATE '{DAY}' AS day"
    )
    world.put(DAY, ["a"])

    with armed(dying_at("publish.before")), pytest.raises(Died):
        world.run(DAY)
    world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    world.run(DAY)
    release(world.store, world.project.ledger, world.target)
    take_over(world.store, world.project.ledger, world.target)


def pass_over_sql_views(make):
    """Replace a period while it is read, sweep the old one, add a column; point back, say who may do what."""
    world = make(pattern=twice.fast_metadata_cleaner(period="week"), start="2023-01-02")
    world.put("2023-01-02", ["a"])
    world.run("2023-01-02")
    with psycopg.connect(world.database.url) as reader:
        reader.execute(f"SELECT * FROM {table(world.target)}")
        let_go = once_at("postgres.view.waits", reader.rollback)
        recorder = faults._action
        with armed(lambda point: (recorder(point), let_go(point))):
            world.run("2023-01-02", force=True)
    with psycopg.connect(world.database.url) as older:
        older.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        older.execute("SELECT 1")
        world.run("2023-01-02", force=True)
    world.store.tidy(world.target, frozenset, keep_days=0, dry_run=False)
    world.store.add_column(world.target, "note", "string", world.project.ledger.id)
    versions = make(pattern=twice.proxy(keep=2))
    for day in (DAY, NEXT):
        versions.put(day, [day])
        versions.run(day)
    target = f"postgres:{versions.target}"
    twice.point(target, twice.versions(target, project=versions.project)[0].name, project=versions.project)
    versions.store.roles(versions.target, "", "", "", apply=False)


PASSES = {
    "memory": (
        pass_over_a_move,
        pass_over_a_table,
        pass_over_periods,
        pass_over_versions,
        pass_over_a_history,
        pass_over_retries,
        pass_over_lineage,
        pass_over_batches,
        pass_over_an_ingest,
    ),
    "parquet": (pass_over_a_table, pass_over_periods, pass_over_a_history, pass_over_an_ingest),
    "delta": (pass_over_a_table, pass_over_versions, pass_over_batches),
    "postgres": (
        pass_over_a_database,
        pass_over_batches,
        pass_over_a_history,
        pass_over_periods,
        pass_over_versions,
        pass_over_sql_views,
    ),
}


def reached_on(kind, folder, spark=None, server=None):
    """Return the points that are reached by what there is to do on one store."""
    reached, numbers = [], itertools.count()

    def make(**settings):
        database = Database.made(server) if kind == "postgres" else None
        return World(folder / f"{kind}{next(numbers)}", kind, spark, database=database, **settings)

    with armed(recording(reached)):
        for act in PASSES[kind]:
            act(make)
    return reached


def pass_over_a_log(table, reached):
    """Link two slots at once into the log of a Parquet table, and sweep what a dead attempt left."""
    meanwhile = once_at("parquet.manifest.written", lambda: table.run(NEXT, 2))

    def hook(point):
        reached.append(point)
        meanwhile(point)

    with armed(hook):
        table.run(DAY, 1)
        table.stage(table.work(DAY, name(3)))
        sweep(table.table, frozenset, keep_days=0, dry_run=False)


def test_every_point_that_needs_no_jvm_is_reached(tmp_path):
    reached = reached_on("memory", tmp_path)
    pass_over_a_log(Linked(tmp_path / "log"), reached)
    assert unreached(reached, with_spark=False) == []


@pytest.mark.spark
def test_every_point_is_reached(tmp_path, spark, postgres_server):
    reached = [point for kind in PASSES for point in reached_on(kind, tmp_path, spark, postgres_server)]
    pass_over_a_log(Linked(tmp_path / "log"), reached)
    file = twice.keyed(file="{start:%Y%m%d}.csv", marker=".done")
    delivered = World(tmp_path / "files", "parquet", spark, pattern=file)
    delivered.kind = "files"
    delivered.put(DAY, ["a"])
    with armed(recording(reached)):
        delivered.run(DAY)
    assert unreached(reached, with_spark=True) == []


def test_points_are_found_in_the_text():
    text = 'reach("a.b"); reach(f"{point}.c"); other("d")\nif x: reach("e")'
    assert list(points_in(text)) == ["a\\.b", "[\\w.]+\\.c", "e"]
    assert ("execute.py", "publish\\.before") in set(points_of_the_code(with_spark=False))


def test_a_point_that_nothing_reaches_is_named():
    assert ("execute.py", "publish\\.before") in unreached(["publish.after"], with_spark=False)
