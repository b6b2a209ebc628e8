"""Scenarios 81 and 88 for ingests: death at every point, and a twin at every point, while files are taken in."""

import contextlib
import os

import pytest

import twice
from inboxes import COLUMN
from twice.faults import armed, recording
from twice.intakes import forget
from twice.prover import check, deaths_at_every_point
from worlds import needing, once_at

pytestmark = [pytest.mark.timeout(1800)]

SHAPES = {
    "append": twice.transactional_writer(),
    "merger": twice.merger(keys=["id"]),
    "dedup": twice.dedup_insert(keys=["id"]),
}
SHAPED = pytest.mark.parametrize("shape", [pytest.param(name, marks=needing(SHAPES[name])) for name in SHAPES])


@pytest.fixture
def thorough(kind, request):
    return kind == "memory" or request.config.getoption("--every-kill")


@SHAPED
def test_81_death_while_the_first_files_are_taken_in(make_inbox, copies_of, thorough, shape):
    inbox = make_inbox(pattern=SHAPES[shape], script=lambda w: w.run())
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("b.jsonl", "de")
    assert len(check(deaths_at_every_point(copies_of(inbox), thorough=thorough))) >= 10


@SHAPED
def test_81_death_while_more_files_are_taken_in(make_inbox, copies_of, thorough, shape):
    inbox = make_inbox(pattern=SHAPES[shape], script=lambda w: w.run())
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    inbox.drop_in("b.jsonl", "def")
    assert len(check(deaths_at_every_point(copies_of(inbox), thorough=thorough))) >= 10


def test_81_death_while_a_changed_file_takes_the_place_of_its_old_rows(make_inbox, copies_of, thorough):
    source = {"file_column": COLUMN, "on_changed_file": "replace"}
    inbox = make_inbox(source=source, script=lambda w: w.run())
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("b.jsonl", "de")
    inbox.run()
    inbox.drop_in("b.jsonl", "xyz")
    inbox.drop_in("c.jsonl", "f")
    assert len(check(deaths_at_every_point(copies_of(inbox), thorough=thorough))) >= 10


def test_81_death_while_a_file_is_forgotten_and_taken_in_anew(make_inbox, copies_of, thorough):
    def script(inbox):
        if inbox.sight().fence(inbox.pipeline.slot().text) == 1:
            forget(inbox.project, inbox.pipeline, ["landing/a.jsonl"])
        inbox.run()

    inbox = make_inbox(source={"file_column": COLUMN, "on_changed_file": "replace"}, script=script)
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    assert len(check(deaths_at_every_point(copies_of(inbox), thorough=thorough))) >= 10


def test_81_death_while_a_bad_file_is_set_aside(make_inbox, copies_of, thorough):
    inbox = make_inbox(source={"on_bad_file": "set_aside"}, script=lambda w: w.run())
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    bad = inbox.folder / "landing/bad.jsonl"
    bad.write_bytes(b'{"id": "\xff", "n": 1}\n')
    os.utime(bad, (1, 1))  # what was written a moment ago is looked at twice, which takes a while
    assert len(check(deaths_at_every_point(copies_of(inbox), thorough=thorough))) >= 8


@pytest.mark.stores("memory", "postgres")
@pytest.mark.parametrize("more", [False, True], ids=["the same files", "one file more"])
def test_104_a_twin_at_every_point_takes_each_file_in_once(make_inbox, copies_of, more):
    template = make_inbox()
    template.drop_in("a.jsonl", "abc")
    template.run()
    template.drop_in("b.jsonl", "de")
    copies = copies_of(template)
    points: list[str] = []
    with armed(recording(points)):
        copies().run()
    # Inside of a store's or the ledger's own lock a twin in this thread would wait for itself.
    points = [point for point in points if not point.startswith(("memory.", "postgres.", "ledger."))]
    assert len(points) >= 8
    for point in points:
        inbox = copies()
        inbox.reopen()
        twin = inbox.twin()

        def meet(inbox=inbox, twin=twin):
            if more:
                inbox.drop_in("c.jsonl", "f")
            with contextlib.suppress(twice.Busy):
                twin.run()

        with armed(once_at(point, meet)), contextlib.suppress(twice.Busy, twice.Fenced):
            inbox.run()
        inbox.run()
        assert inbox.ids() == ("abcdef" if more else "abcde"), point
