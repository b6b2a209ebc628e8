"""Is a ledger that moved to another place the same ledger? From SQLite to PostgreSQL, back, and each to its own kind."""

import json
from pathlib import Path

import pytest
from samples import receipt_of, slot_of

from twice.errors import Busy, Misuse
from twice.faults import Died, armed, dying_at
from twice.ledger import AttemptRecord
from twice.ledger.migrating import tables
from twice.ledger.moving import Moved, export, import_
from twice.ledger.places import ledger_place
from twice.ledger.records import OPEN
from twice.ledger.schema import VERSION

SLOT = slot_of("2024-09-20")
RECORD = AttemptRecord("", SLOT.text, "out", "memory:lake/out", 1, "inputs", "code", OPEN)
SERVER = pytest.mark.postgres
WAYS = [
    pytest.param(("sqlite", "sqlite"), id="sqlite-sqlite"),
    pytest.param(("sqlite", "postgres"), id="sqlite-postgres", marks=SERVER),
    pytest.param(("postgres", "sqlite"), id="postgres-sqlite", marks=SERVER),
    pytest.param(("postgres", "postgres"), id="postgres-postgres", marks=SERVER),
]


@pytest.fixture(params=WAYS)
def places(request, tmp_path):
    def place(kind, name):
        if kind == "sqlite":
            return ledger_place(f"sqlite:///{tmp_path}/{name}.db", Path())
        return ledger_place(f"{request.getfixturevalue('postgres_url')}?schema={name}", Path())

    return place(request.param[0], "here"), place(request.param[1], "there")


@pytest.fixture
def here(places):
    """A ledger with something in each table that a run fills."""
    ledger = places[0].open()
    done, failed, _ = (ledger.intend(RECORD).attempt for _ in range(3))
    ledger.confirm(done, receipt_of(SLOT, attempt=done, first_version=4), 5)
    ledger.end(failed, "failed", 'it said: "no\nmore" ünd \\ ?')
    ledger.accept(SLOT.text, "version 7", "somebody")
    ledger.locate("delta:visits", "warehouse/visits")
    ledger.remember({f"file{number}": f"hash{number}" for number in range(2500)})
    return ledger


@pytest.fixture
def file(here, tmp_path):
    export(here, str(tmp_path / "ledger.jsonl"))
    return str(tmp_path / "ledger.jsonl")


def content(ledger):
    names = [name for name in tables() if name != "leases"]
    return {name: sorted(repr(dict(row)) for row in ledger.query(f"SELECT * FROM {name}")) for name in names}


def test_all_tables_arrive_with_the_id_of_the_ledger(places, here, file):
    there = places[1].open()
    made = there.id
    assert import_(there, file) == Moved(here.id, 2510)
    assert there.id == here.id == places[1].open().id != made
    assert content(there) == content(here)
    assert there.attempts() == here.attempts()


def test_attempts_are_counted_on_from_where_they_were(places, here, file):
    there = places[1].open()
    import_(there, file)
    assert there.intend(RECORD).attempt.startswith(f"{here.id[:8]}-4-")


def test_importing_again_does_nothing(places, file):
    there = places[1].open()
    import_(there, file)
    before = content(there)
    assert not import_(there, file).changed
    assert content(there) == before


def test_a_ledger_that_went_on_is_left_alone(places, file):
    there = places[1].open()
    import_(there, file)
    there.intend(RECORD)
    before = content(there)
    with pytest.raises(Misuse, match="is not empty, and holds something else"):
        import_(there, file)
    assert content(there) == before


def test_a_ledger_of_somebody_else_is_left_alone(places, file):
    there = places[1].open()
    there.intend(RECORD)
    before = content(there)
    with pytest.raises(Misuse, match="is not empty"):
        import_(there, file)
    assert content(there) == before


@pytest.mark.parametrize("point", ["ledger.import.cleared", "ledger.import.filled"])
def test_a_death_in_the_middle_leaves_an_empty_ledger_and_the_next_import_fills_it(places, here, file, point):
    there = places[1].open()
    before = content(there)
    with armed(dying_at(point)), pytest.raises(Died):
        import_(there, file)
    assert content(there) == before
    import_(there, file)
    assert content(there) == content(here)


def test_a_death_in_an_export_leaves_the_older_file(here, file, tmp_path):
    before = Path(file).read_text()
    here.intend(RECORD)
    with armed(dying_at("ledger.export.written")), pytest.raises(Died):
        export(here, file)
    assert Path(file).read_text() == before
    assert [path.name for path in tmp_path.glob("ledger.jsonl*")] == ["ledger.jsonl"]


@pytest.mark.parametrize("kept", [0, 1, 2, 100, -1])
def test_a_file_that_was_cut_short_is_refused(places, file, kept):
    lines = Path(file).read_text().splitlines(keepends=True)
    Path(file).write_text("".join(lines[:kept]))
    there = places[1].open()
    before = content(there)
    with pytest.raises(Misuse, match=r"is not whole|does not hold a ledger"):
        import_(there, file)
    assert content(there) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"table": "facts; DROP TABLE facts", "row": {}}, "is not whole"),
        ({"table": "facts", "row": {"name": "x", "value) SELECT": "y"}}, "does not know"),
        ([], "does not hold a ledger"),
    ],
)
def test_a_file_that_somebody_wrote_is_refused(places, file, change, told):
    lines = Path(file).read_text().splitlines()
    Path(file).write_text("\n".join([lines[0], json.dumps(change), *lines[2:]]))
    there = places[1].open()
    with pytest.raises(Misuse, match=told):
        import_(there, file)
    assert there.attempts() == []


def test_a_file_of_a_newer_twice_is_refused(places, file):
    lines = Path(file).read_text().splitlines()
    Path(file).write_text("\n".join([json.dumps({**json.loads(lines[0]), "schema": VERSION + 1}), *lines[1:]]))
    with pytest.raises(Misuse, match="written by a newer Twice"):
        import_(places[1].open(), file)


def test_a_ledger_is_not_exported_while_a_run_is_alive(here, tmp_path):
    with here.lease("slot", "mine"), pytest.raises(Busy, match="attempt mine works on slot"):
        export(here, str(tmp_path / "none.jsonl"))
    assert not (tmp_path / "none.jsonl").exists()


def test_a_lease_stays_behind(places, here, tmp_path):
    with here.transaction() as db:
        db.execute(
            "INSERT INTO leases (name, attempt, host, pid, process_started, boot, expires) VALUES (?,?,?,?,?,?,?)",
            ("slot", "dead", "elsewhere", 1, "1", "", 0.0),
        )
    export(here, str(tmp_path / "moved.jsonl"))
    there = places[1].open()
    import_(there, str(tmp_path / "moved.jsonl"))
    assert there.query("SELECT * FROM leases") == []


def test_a_file_that_is_not_there_or_cannot_be_written_is_misuse(here, tmp_path):
    with pytest.raises(Misuse, match="cannot be read"):
        import_(here, str(tmp_path / "none"))
    with pytest.raises(Misuse, match="cannot be written"):
        export(here, str(tmp_path / "none" / "file"))
