"""What is peculiar to a ledger in a file of SQLite?"""

import os
import sqlite3
from contextlib import closing

import pytest
from samples import slot_of

from twice.errors import Misuse, NotPublished
from twice.ledger import AttemptRecord
from twice.ledger.files import FileRecord, files
from twice.ledger.records import OPEN
from twice.ledger.schema import MIGRATIONS, VERSION
from twice.ledger.sqlite import SqliteLedger

SLOT = slot_of("2024-09-20")
RECORD = AttemptRecord("", SLOT.text, "out", "memory:lake/out", 1, "inputs", "code", OPEN)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "ledger.db")


@pytest.fixture
def ledger(path):
    return SqliteLedger(path)


def test_a_ledger_is_made_with_its_folder(tmp_path):
    made = SqliteLedger(str(tmp_path / "a" / "b" / "ledger.db"))
    assert (len(made.id), made.attempts()) == (16, [])


def test_an_empty_file_becomes_a_ledger(path):
    open(path, "w").close()
    assert SqliteLedger(path).intend(RECORD).attempt


@pytest.mark.parametrize("version", range(VERSION))
def test_an_older_ledger_is_brought_up_to_date(path, version):
    with closing(sqlite3.connect(path)) as db:
        for migration in MIGRATIONS[:version]:
            db.executescript(migration)
        db.execute(f"PRAGMA user_version={version}")
    opened = SqliteLedger(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == VERSION
    assert opened.attempt(opened.intend(RECORD).attempt).slot == SLOT.text


def test_files_that_an_older_ledger_noted_are_still_known(path):
    mark = ("memory:lake/out", "in/a.csv", 5, 7, "xxh3:00", 2, SLOT.text, 1, "attempt", "published", "", "now")
    with closing(sqlite3.connect(path)) as db:
        for migration in MIGRATIONS[:5]:
            db.executescript(migration)
        db.execute(f"INSERT INTO files VALUES ({', '.join('?' * len(mark))})", mark)
        db.execute("PRAGMA user_version=5")
        db.commit()
    assert files(SqliteLedger(path), "memory:lake/out") == [FileRecord(*mark)]


def test_a_newer_ledger_is_refused_and_left_alone(path, ledger):
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")
    with pytest.raises(Misuse, match="written by a newer Twice"):
        SqliteLedger(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == VERSION + 1


@pytest.mark.parametrize(
    "place", ["file/ledger.db", "file/folder/ledger.db", "folder", "/proc/ledger.db", "/proc/a/b.db"]
)
def test_a_place_where_nothing_can_be_written_is_misuse(tmp_path, place):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(Misuse, match=r"cannot be opened(.|\n)*Make its folder writable") as refused:
        SqliteLedger(str(tmp_path / place))
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("content", [b"this is not a database, and it never was" * 9, b"\0" * 4096])
def test_a_damaged_ledger_says_to_move_it_away(path, content):
    with open(path, "wb") as file:
        file.write(content)
    with pytest.raises(Misuse, match="move the file away, then run twice ledger rebuild"):
        SqliteLedger(path)


def test_a_ledger_that_was_cut_short_says_to_move_it_away(path, ledger):
    ledger.intend(RECORD)
    os.truncate(path, 4096)
    with pytest.raises(Misuse, match="move the file away, then run twice ledger rebuild"):
        SqliteLedger(path).intend(RECORD)


def test_a_ledger_that_breaks_while_it_is_used_publishes_nothing(path, ledger):
    with open(path, "r+b") as file:
        file.write(b"broken" * 20)
    with pytest.raises(NotPublished, match="cannot be used"):
        ledger.intend(RECORD)


def test_a_lease_of_another_boot_is_over(path, ledger):
    with ledger.lease("slot", "theirs"):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE leases SET boot='another', expires=expires + 1000000")
        with ledger.lease("slot", "mine"):
            assert ledger.live_attempts() == {"mine"}
