"""Which files does the ledger know, for people to look at? On SQLite and on PostgreSQL."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from samples import ATTEMPT, slot_of

from twice.faults import Died, armed, dying_at
from twice.ledger import files as kept
from twice.ledger.files import FileRecord, counts, file, files, note, replace_all
from twice.ledger.moving import export, import_
from twice.ledger.places import ledger_place
from twice.marks import CLAIMED, FAILED, PUBLISHED, SET_ASIDE, Mark

SLOT = slot_of("")
OTHER = slot_of("", pipeline="other", target="memory:lake/other")
TARGET = SLOT.target.text
AT = "2024-09-20T00:00:00.000Z"
ODD = [
    "%25.csv",
    "//a",
    "A.csv",
    "\\xff.csv",
    "_.csv",
    "a\nb.csv",
    "a.csv",
    "data[1].csv",
    "{}?.csv",
    "\N{PILE OF POO}",
    "\udcff.csv",
]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def ledger(request, tmp_path):
    on_disk = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/ledger.db" if on_disk else request.getfixturevalue("postgres_url")
    return ledger_place(url, Path()).open()


def mark(path, state=PUBLISHED, **values):
    known = {"size": 1, "mtime_ns": 2, "content": f"xxh3:{len(path)}", "rows": 1, "generation": 1}
    return Mark(path=path, state=state, **{**known, **values})


def names(found):
    return [one.path for one in found]


def test_what_was_noted_is_told(ledger):
    noted = mark(
        "in/a.csv", SET_ASIDE, rows=None, generation=4, reason="cut short: \udcff \N{PILE OF POO}", mtime_ns=-5
    )
    note(ledger, SLOT, [noted], ATTEMPT, AT)
    told = FileRecord(
        target=TARGET,
        path="in/a.csv",
        size=1,
        mtime_ns=-5,
        content="xxh3:8",
        rows=None,
        slot=SLOT.text,
        generation=4,
        attempt=ATTEMPT,
        state=SET_ASIDE,
        reason="cut short: \\udcff \N{PILE OF POO}",
        changed_at=AT,
    )
    assert file(ledger, TARGET, "in/a.csv") == told
    assert files(ledger, TARGET) == [told]
    assert file(ledger, TARGET, "in/b.csv") is None
    assert files(ledger, OTHER.target.text) == []


def test_a_newer_note_takes_the_place_of_an_older_one(ledger):
    note(ledger, SLOT, [mark("a.csv", CLAIMED), mark("b.csv", CLAIMED)], "first", AT)
    note(ledger, OTHER, [mark("a.csv", FAILED)], "another", AT)
    note(ledger, SLOT, [mark("b.csv"), mark("c.csv", CLAIMED), mark("c.csv")], "second", "later")
    told = [(one.path, one.state, one.attempt, one.changed_at) for one in files(ledger, TARGET)]
    assert told == [
        ("a.csv", CLAIMED, "first", AT),
        ("b.csv", PUBLISHED, "second", "later"),
        ("c.csv", PUBLISHED, "second", "later"),
    ]
    assert counts(ledger, TARGET) == {CLAIMED: 1, PUBLISHED: 2}
    assert counts(ledger, OTHER.target.text) == {FAILED: 1}


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_trips_others_is_kept_as_it_is(ledger, name):
    note(ledger, SLOT, [mark(name) for name in ODD], ATTEMPT, AT)
    assert file(ledger, TARGET, name).path == name
    assert sorted(names(files(ledger, TARGET))) == sorted(ODD)
    wildcards = name.replace("[", "[[]").replace("?", "[?]")
    assert names(files(ledger, TARGET, like=wildcards)) == [name]


def test_files_are_found_by_state_and_by_name_in_the_order_of_their_paths(ledger):
    every = [
        mark(f"in/{day}/{name}", state)
        for day in "21"
        for name, state in (("a.csv", PUBLISHED), ("B.csv", FAILED), ("b_.csv", FAILED))
    ]
    note(ledger, SLOT, every, ATTEMPT, AT)
    assert names(files(ledger, TARGET)) == sorted(one.path for one in every)
    assert names(files(ledger, TARGET, state=FAILED)) == ["in/1/B.csv", "in/1/b_.csv", "in/2/B.csv", "in/2/b_.csv"]
    assert names(files(ledger, TARGET, FAILED, "*/b*")) == ["in/1/b_.csv", "in/2/b_.csv"]
    assert names(files(ledger, TARGET, like="in/2/?.csv")) == ["in/2/B.csv", "in/2/a.csv"]
    assert names(files(ledger, TARGET, like="in/[!1]/?_.csv")) == ["in/2/b_.csv"]
    assert names(files(ledger, TARGET, like="in/1/b_%")) == []
    assert names(files(ledger, TARGET, like="in/*", limit=2)) == ["in/1/B.csv", "in/1/a.csv"]


def test_many_files_are_told_page_by_page(ledger, monkeypatch):
    monkeypatch.setattr(kept, "_PAGE", 7)
    monkeypatch.setattr(kept, "_AT_ONCE", 10)
    every = [f"{number:03}.csv" for number in range(95)]
    note(ledger, SLOT, map(mark, reversed(every)), ATTEMPT, AT)
    assert names(files(ledger, TARGET, limit=1000)) == every
    assert names(files(ledger, TARGET, like="09?.csv")) == every[90:]


def test_thousands_of_files_come_in_by_another_way_and_are_told_the_same(ledger):
    every = [*ODD, *(f"in/{number:05}.csv" for number in range(2500))]
    for state in (CLAIMED, PUBLISHED):
        note(
            ledger,
            SLOT,
            [mark(name, state, rows=None, reason='tab\t, "quote", \\N and\nline') for name in every],
            ATTEMPT,
            AT,
        )
        assert counts(ledger, TARGET) == {state: len(every)}
        told = files(ledger, TARGET, limit=5000)
        assert {(one.path, one.reason, one.rows) for one in told} == {
            (name, 'tab\t, "quote", \\N and\nline', None) for name in every
        }


def test_death_between_two_notes_leaves_some_as_they_were_and_the_next_note_makes_it_right(ledger, monkeypatch):
    monkeypatch.setattr(kept, "_AT_ONCE", 2)
    every = [mark(f"{number}.csv") for number in range(5)]
    note(ledger, SLOT, [replace(one, state=CLAIMED) for one in every], "first", AT)
    with pytest.raises(Died), armed(dying_at("ledger.files.noted", visit=2)):
        note(ledger, SLOT, every, "second", AT)
    assert counts(ledger, TARGET) == {PUBLISHED: 4, CLAIMED: 1}
    note(ledger, SLOT, every, "second", AT)
    assert counts(ledger, TARGET) == {PUBLISHED: 5}


def test_what_the_store_holds_takes_the_place_of_all_that_was_known_or_of_nothing(ledger, monkeypatch):
    monkeypatch.setattr(kept, "_AT_ONCE", 2)
    note(ledger, SLOT, [mark("a.csv"), mark("b.csv", CLAIMED)], "first", AT)
    note(ledger, OTHER, [mark("a.csv")], "another", AT)
    held = [mark(f"{number}.csv") for number in range(5)]
    with pytest.raises(Died), armed(dying_at("ledger.files.replaced")):
        replace_all(ledger, SLOT, held, "rebuilt", AT)
    assert names(files(ledger, TARGET)) == ["a.csv", "b.csv"]
    assert replace_all(ledger, SLOT, held, "rebuilt", AT) == 5
    assert names(files(ledger, TARGET)) == [one.path for one in held]
    assert names(files(ledger, OTHER.target.text)) == ["a.csv"]


@pytest.mark.postgres
def test_files_move_with_the_ledger_to_another_place_and_back(tmp_path, postgres_url):
    here, there, back = (
        ledger_place(url, Path()).open()
        for url in (f"sqlite:///{tmp_path}/here.db", postgres_url, f"sqlite:///{tmp_path}/back.db")
    )
    note(here, SLOT, [mark(name, mtime_ns=2**63) for name in ODD], ATTEMPT, AT)
    told = [asdict(one) for one in files(here, TARGET)]
    assert len(told) == len(ODD)
    for number, (one, other) in enumerate(((here, there), (there, back))):
        export(one, str(tmp_path / f"{number}.jsonl"))
        import_(other, str(tmp_path / f"{number}.jsonl"))
        assert [asdict(one) for one in files(other, TARGET)] == told
