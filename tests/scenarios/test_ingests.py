"""Scenarios 83 to 89 and 104: every file is taken in once, whatever happens to it and to the run."""

import gzip
import os
import threading
import time

import pytest

import twice
from inboxes import COLUMN
from twice.cli import main
from twice.errors import BadFile, Fenced, InputsMoved, Misuse, NotPublished, ProofGone, Waiting
from twice.faults import Died, armed, dying_at
from twice.handovers import take_over
from twice.intakes import forget, history_of, note_all, sweep_beside
from twice.origins import origins_of
from twice.sources.contents import look_into
from worlds import once_at

# What becomes of a file is decided before any store is asked.
ABOUT_FILES = pytest.mark.stores("memory", "postgres")
REPLACING = {"file_column": COLUMN, "on_changed_file": "replace"}


@pytest.fixture
def inbox(make_inbox):
    return make_inbox()


@pytest.fixture
def filled(inbox):
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("b.jsonl", "de")
    inbox.drop_in("c.jsonl", "")
    return inbox


def test_83_first_ingest(filled):
    outcome = filled.run()
    assert (outcome.state, outcome.rows) == ("published", 5)
    assert filled.ids() == "abcde"
    marks = filled.marks()
    assert {name: (mark.state, mark.rows, mark.generation) for name, mark in marks.items()} == {
        "a.jsonl": ("published", 3, 1),
        "b.jsonl": ("published", 2, 1),
        "c.jsonl": ("published", 0, 1),
    }
    for name, mark in marks.items():
        found = os.stat(filled.folder / "landing" / name)
        assert (mark.size, mark.mtime_ns) == (found.st_size, found.st_mtime_ns)
        assert mark.content.startswith("xxh3:")


def test_84_nothing_new_is_a_skip_that_reads_nothing(filled, monkeypatch):
    filled.run()
    before = filled.sight()
    filled.reopen()
    monkeypatch.setattr("twice.sources.marking.content_hash", None)
    monkeypatch.setattr("twice.sources.files.FileSet.read", None)
    outcome = filled.run()
    assert (outcome.state, outcome.reason) == ("skipped", "there is no new file")
    assert filled.sight().version == before.version


def test_new_files_are_added_to_those_that_are_there(filled):
    filled.run()
    filled.drop_in("later/d.jsonl", "fg")
    outcome = filled.run()
    assert (outcome.rows, outcome.generation) == (2, 2)
    assert filled.ids() == "abcdefg"
    assert filled.run().state == "skipped"


@ABOUT_FILES
def test_85_new_content_under_an_old_name_is_refused_unless_it_is_declared(filled):
    filled.run()
    filled.drop_in("b.jsonl", "wxyz")
    with pytest.raises(NotPublished, match=r"'landing/b.jsonl' was taken in already.*\n.*\n.*on_changed_file="):
        filled.run()
    assert filled.ids() == "abcde"


def test_85_new_content_under_an_old_name_takes_the_place_of_the_old_rows(make_inbox):
    inbox = make_inbox(source=REPLACING)
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("b.jsonl", "de")
    inbox.run()
    inbox.drop_in("b.jsonl", "wxyz")
    inbox.drop_in("d.jsonl", "m")
    outcome = inbox.run()
    assert (outcome.rows, inbox.ids()) == (5, "abcmwxyz")
    assert inbox.marks()["b.jsonl"].rows == 4
    assert [(mark.state, mark.rows) for mark in history_of(inbox.project, inbox.pipeline, "landing/b.jsonl")] == [
        ("superseded", 2)
    ]
    assert inbox.run().state == "skipped"


@ABOUT_FILES
def test_85_new_content_under_an_old_name_may_be_ignored(make_inbox):
    inbox = make_inbox(source={"on_changed_file": "ignore"})
    inbox.drop_in("b.jsonl", "de")
    inbox.run()
    inbox.drop_in("b.jsonl", "wxyz")
    outcome = inbox.run()
    assert outcome.state == "skipped"
    assert "'landing/b.jsonl' (its content changed, which is ignored)" in outcome.notes[-1]
    assert inbox.ids() == "de"


def test_85_a_merger_applies_new_content_over_the_old_rows(make_inbox):
    inbox = make_inbox(pattern=twice.merger(keys=["id"]), source={"on_changed_file": "apply"})
    inbox.drop_in("b.jsonl", "de")
    inbox.run()
    inbox.drop_in("b.jsonl", "ef", n=2)
    inbox.run()
    assert inbox.table_rows("id", "n") == [("d", 1), ("e", 2), ("f", 2)]


DECLARED = """
import twice

@twice.pipeline(
    source=twice.files("landing/*.jsonl", schema="id string, n int", track=True, file_column="source_file",
                       on_changed_file="replace", batch_files=1),
    target="parquet:lake/inbox", pattern=twice.transactional_writer())
def inbox(rows):
    return rows
"""


@pytest.mark.stores("parquet")
def test_85_older_rows_leave_only_if_a_person_agrees(inbox, capsys, monkeypatch):
    """A later batch, whose files nobody saw when they were asked, takes no rows away either."""
    (inbox.folder / "twice.toml").write_text("")
    (inbox.folder / "pipelines").mkdir()
    (inbox.folder / "pipelines/inbox.py").write_text(DECLARED)
    monkeypatch.chdir(inbox.folder)
    inbox.drop_in("b.jsonl", "de")
    assert main(["run", "inbox"]) == 0
    inbox.drop_in("b.jsonl", "xyz")
    assert main(["plan", "inbox"]) == 0
    planned = capsys.readouterr().out
    assert "1 file that is in the table changed, and its older rows leave" in planned
    assert "rows leave: the 2 older rows of 'landing/b.jsonl'" in planned
    for command in (["run", "inbox"], ["run", "--due"]):
        assert main(command) == 2
        assert "the 2 older rows of 'landing/b.jsonl'" in capsys.readouterr().err
    inbox.drop_in("a.jsonl", "c")
    os.utime(inbox.folder / "landing/a.jsonl", (1, 1))  # older, so it is the first batch
    assert main(["run", "--due"]) == 2
    assert "you were not asked" in capsys.readouterr().out
    assert inbox.ids() == "cde"
    assert main(["run", "--due", "--yes"]) == 0
    assert inbox.ids() == "cxyz"


@ABOUT_FILES
def test_a_file_that_was_only_touched_is_left_alone(filled):
    filled.run()
    os.utime(filled.folder / "landing/a.jsonl", (1, 1))
    assert filled.run().state == "skipped"
    assert filled.ids() == "abcde"


@ABOUT_FILES
def test_86_old_content_under_a_new_name_is_skipped_and_reported(filled):
    filled.run()
    filled.drop_in("d.jsonl", "abc")
    outcome = filled.run()
    assert outcome.state == "skipped"
    assert "'landing/d.jsonl' (as landing/a.jsonl)" in outcome.notes[-1]
    assert filled.ids() == "abcde"


@ABOUT_FILES
def test_86_old_content_under_a_new_name_is_loaded_if_so_declared(make_inbox):
    inbox = make_inbox(source={"on_copied_file": "load"})
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("d.jsonl", "abc")
    assert inbox.run().rows == 6
    assert inbox.run().state == "skipped"


@ABOUT_FILES
def test_86_two_copies_in_one_batch_are_taken_in_once(inbox):
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("d.jsonl", "abc")
    assert inbox.run().rows == 3
    assert inbox.ids() == "abc"


def test_a_copy_counts_once_the_original_is_replaced(make_inbox):
    inbox = make_inbox(source=REPLACING)
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("d.jsonl", "abc")
    inbox.run()
    inbox.drop_in("a.jsonl", "z")
    inbox.run()
    inbox.run()
    assert inbox.ids() == "abcz"


def test_86_a_file_that_becomes_a_copy_of_another_loses_its_old_rows(make_inbox):
    inbox = make_inbox(source=REPLACING)
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("b.jsonl", "de")
    inbox.run()
    inbox.drop_in("a.jsonl", "de")
    outcome = inbox.run()
    assert (outcome.state, outcome.rows, inbox.ids()) == ("published", 0, "de")
    assert (inbox.marks()["a.jsonl"].state, inbox.states()["a.jsonl"]) == ("seen", "seen")
    assert inbox.run().state == "skipped"
    inbox.drop_in("b.jsonl", "f")
    inbox.run()
    assert inbox.ids() == "def"
    assert inbox.run().state == "skipped"


def test_86_files_that_change_places_are_taken_in_anew_in_one_publish(make_inbox):
    inbox = make_inbox(source=REPLACING)
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("b.jsonl", "de")
    inbox.run()
    inbox.drop_in("a.jsonl", "de")
    inbox.drop_in("b.jsonl", "abc")
    assert (inbox.run().generation, inbox.ids()) == (2, "abcde")
    assert inbox.table_rows("id", COLUMN)[-1] == ("e", "landing/a.jsonl")
    assert inbox.run().state == "skipped"


def test_86_a_copy_is_listed_although_there_was_nothing_to_publish(filled):
    filled.run()
    filled.drop_in("d.jsonl", "abc")
    assert filled.run().state == "skipped"
    assert filled.states()["d.jsonl"] == "seen"


def test_88_killed_between_rows_and_bookkeeping(filled):
    def die():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), armed(once_at("publish.after", die)):
        filled.run()
    filled.reopen()
    outcome = filled.run()
    assert (outcome.state, filled.ids()) == ("skipped", "abcde")
    assert set(filled.states().values()) == {"published"}
    assert filled.project.ledger.known(filled.pipeline.slot().text).generation == 1


def test_89_a_file_that_grows_between_two_looks_waits(inbox):
    inbox.drop_in("a.jsonl", "abc")
    growing = inbox.drop_in("b.jsonl", "d", age=None)
    stop = threading.Event()

    def grow():
        while not stop.is_set():
            with growing.open("a") as file:
                file.write('{"id": "x", "n": 1}\n')
            time.sleep(0.02)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        outcome = inbox.run()
    finally:
        stop.set()
        writer.join()
    assert (outcome.rows, inbox.ids()) == (3, "abc")
    assert "'landing/b.jsonl' (it is still being written)" in outcome.notes[0]
    assert inbox.states()["b.jsonl"] == "seen"
    outcome = inbox.run()
    assert outcome.rows == len(growing.read_text().splitlines())


@ABOUT_FILES
def test_89_a_file_waits_for_its_marker(make_inbox):
    inbox = make_inbox(source={"done": "{file}.done"})
    inbox.drop_in("a.jsonl", "abc")
    with pytest.raises(Waiting, match=r"its marker 'landing/a.jsonl.done' is not there"):
        inbox.run()
    (inbox.folder / "landing/a.jsonl.done").touch()
    assert inbox.run().rows == 3


@ABOUT_FILES
def test_a_file_waits_until_it_is_quiet(make_inbox):
    inbox = make_inbox(source={"quiet_for": "1 hour"})
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("b.jsonl", "de", age=None)
    assert inbox.run().rows == 3
    assert inbox.ids() == "abc"


@ABOUT_FILES
def test_nothing_there_yet_waits(inbox):
    with pytest.raises(Waiting, match=r"nothing to take in yet: no file matches 'landing/\*\*/\*.jsonl'"):
        inbox.run()
    assert inbox.project.ledger.attempts() == []


def test_a_file_that_changes_while_it_is_read_is_left_for_later(filled):
    path = filled.folder / "landing/a.jsonl"
    with armed(once_at("stage.after", lambda: path.write_text('{"id": "q", "n": 1}\n'))):
        outcome = filled.run()
    assert (outcome.rows, filled.ids()) == (2, "de")
    assert "'landing/a.jsonl' (it changed while it was read)" in " ".join(outcome.notes)
    assert filled.states()["a.jsonl"] == "seen"
    assert filled.run().rows == 1
    assert filled.ids() == "deq"


def test_files_that_all_change_while_they_are_read_are_not_published(inbox):
    path = inbox.drop_in("a.jsonl", "abc")
    with (
        pytest.raises(InputsMoved, match=r"'landing/a.jsonl' changed while"),
        armed(once_at("stage.after", lambda: path.write_text('{"id": "q", "n": 1}\n'))),
    ):
        inbox.run()
    assert inbox.records() == []
    assert set(inbox.states().values()) == {"failed"}
    assert inbox.run().rows == 1
    assert inbox.ids() == "q"


def test_nothing_is_there_twice_when_one_of_two_swapped_files_changes_while_it_is_read(make_inbox):
    inbox = make_inbox(source=REPLACING)
    inbox.drop_in("a.jsonl", "ab")
    inbox.drop_in("b.jsonl", "cd")
    inbox.run()
    inbox.drop_in("a.jsonl", "cd")
    inbox.drop_in("b.jsonl", "ab")
    inbox.drop_in("c.jsonl", "e")
    path = inbox.folder / "landing/a.jsonl"
    with armed(once_at("stage.after", lambda: path.write_text('{"id": "q", "n": 1}\n'))):
        inbox.run()
    assert inbox.ids() == "abcde"
    inbox.run()
    assert inbox.ids() == "abeq"


def test_a_file_that_goes_away_before_it_is_read_is_left_out(filled):
    path = filled.folder / "landing/a.jsonl"
    with armed(once_at("stage.before", path.unlink)):
        outcome = filled.run()
    assert (outcome.rows, filled.ids()) == (2, "de")
    assert "'landing/a.jsonl' (it changed while it was read)" in " ".join(outcome.notes)
    assert filled.run().state == "skipped"


def test_104_twins_with_other_cuts(inbox):
    inbox.drop_in("d.jsonl", "ab")
    twin = inbox.twin()

    def take_more():
        inbox.drop_in("e.jsonl", "cd")
        twin.run()

    with armed(once_at("publish.before", take_more)):
        outcome = inbox.run()
    assert inbox.ids() == "abcd"
    assert outcome.state == "skipped"
    assert {mark.generation for mark in inbox.marks().values()} == {1}


def test_104_a_twin_that_took_less(inbox):
    inbox.drop_in("d.jsonl", "ab")
    twin = inbox.twin(source={"batch_files": 1})
    inbox.drop_in("e.jsonl", "cd")
    with armed(once_at("publish.before", twin.run)):
        outcome = inbox.run()
    assert (outcome.state, outcome.rows, outcome.generation) == ("published", 2, 2)
    assert inbox.ids() == "abcd"


def test_a_backlog_goes_in_bounded_runs(make_inbox):
    inbox = make_inbox(source={"batch_files": 2})
    for name, ids in zip("abcde", ("a", "b", "c", "d", "e"), strict=True):
        inbox.drop_in(f"{name}.jsonl", ids)
    outcome = inbox.run()
    assert (outcome.rows, outcome.notes[-1]) == (2, "3 more are left to the next run")
    assert [inbox.run().rows for _ in range(2)] == [2, 1]
    assert inbox.run().state == "skipped"
    assert inbox.ids() == "abcde"


@ABOUT_FILES
def test_a_backlog_is_bounded_by_bytes_and_one_file_always_goes(make_inbox):
    inbox = make_inbox(source={"batch_bytes": 25})
    inbox.drop_in("a.jsonl", "abcdefgh")
    inbox.drop_in("b.jsonl", "i")
    inbox.drop_in("c.jsonl", "j")
    assert [inbox.run().rows for _ in range(3)] == [8, 1, 1]


@ABOUT_FILES
def test_sha256_where_somebody_might_forge_a_file(make_inbox):
    inbox = make_inbox(source={"hash": "sha256"})
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    assert inbox.marks()["a.jsonl"].content.startswith("sha256:")
    os.utime(inbox.folder / "landing/a.jsonl", (2, 2))
    assert inbox.run().state == "skipped"


@pytest.mark.parametrize("pattern", [twice.merger(keys=["id"]), twice.dedup_insert(keys=["id"])], ids=lambda p: p.name)
def test_rows_are_brought_in_by_key(make_inbox, pattern):
    inbox = make_inbox(pattern=pattern)
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    inbox.drop_in("b.jsonl", "cd", n=2)
    inbox.run()
    of_c = 2 if pattern.name == "merger" else 1
    assert inbox.table_rows("id", "n") == [("a", 1), ("b", 1), ("c", of_c), ("d", 2)]
    assert inbox.run().state == "skipped"


# ---------------------------------------------------------------------------------- forgotten, restored, lost


def test_a_forgotten_file_is_taken_in_anew(make_inbox):
    inbox = make_inbox(source=REPLACING)
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("b.jsonl", "de")
    inbox.run()
    outcome = forget(inbox.project, inbox.pipeline, ["landing/a.jsonl"])
    assert (outcome.state, outcome.generation, inbox.ids()) == ("published", 2, "abcde")
    assert inbox.run().rows == 3
    assert inbox.ids() == "abcde"


@ABOUT_FILES
def test_a_file_that_nobody_knows_cannot_be_forgotten(filled):
    filled.run()
    with pytest.raises(Misuse, match=r"no file 'landing/nowhere.jsonl'"):
        forget(filled.project, filled.pipeline, ["landing/nowhere.jsonl"])


@pytest.mark.needs("KeepsVersions")
def test_after_a_restore_the_marks_are_those_of_the_restored_version(filled):
    filled.run()
    before = filled.sight().version
    filled.drop_in("d.jsonl", "fg")
    filled.run()
    twice.restore(f"{filled.kind}:{filled.target}", before, project=filled.project)
    assert filled.ids() == "abcde"
    assert set(filled.marks()) == {"a.jsonl", "b.jsonl", "c.jsonl"}
    with pytest.raises(ProofGone):
        filled.run()
    outcome = filled.run(force=True)
    assert (outcome.rows, outcome.generation, filled.ids()) == (2, 3, "abcdefg")
    assert filled.run().state == "skipped"


@pytest.mark.needs("KeepsVersions")
def test_a_restore_during_a_run_is_noticed(filled):
    filled.run()
    before = filled.sight().version
    filled.drop_in("d.jsonl", "fg")
    filled.run()
    filled.drop_in("e.jsonl", "h")
    twin = filled.twin()
    with (
        pytest.raises(Fenced),
        armed(
            once_at(
                "publish.before",
                lambda: twice.restore(f"{filled.kind}:{filled.target}", before, project=twin.project),
            )
        ),
    ):
        filled.run()
    assert filled.ids() == "abcde"
    filled.run(force=True)
    assert filled.ids() == "abcdefgh"


def test_a_table_that_was_changed_by_hand_is_not_added_to_without_being_told(filled):
    filled.run()
    filled.change_by_hand()
    filled.drop_in("d.jsonl", "fg")
    with pytest.raises(ProofGone):
        filled.run()
    filled.run(accept=True)
    assert "fg" in filled.ids()
    assert filled.run().state == "skipped"


def test_a_lost_ledger_takes_nothing_in_twice(filled):
    filled.run()
    filled.lose_ledger()
    with pytest.raises(Fenced, match="belongs to another ledger"):
        filled.run()


# ---------------------------------------------------------------------------------- bad files


def test_87_one_bad_file_fails_the_run_and_is_named(filled):
    (filled.folder / "landing/bad.jsonl").symlink_to("/dev/null")
    with pytest.raises(BadFile, match=r"'landing/bad.jsonl'"):
        filled.run()
    assert filled.records() == []
    assert filled.states() == {"bad.jsonl": "failed"}
    (filled.folder / "landing/bad.jsonl").unlink()
    assert filled.run().rows == 5


def test_87_one_bad_file_is_set_aside_and_a_retry_takes_only_it(make_inbox):
    inbox = make_inbox(source={"on_bad_file": "set_aside"})
    for name in "abc":
        inbox.drop_in(f"{name}.jsonl", name)
    inbox.drop_in_text(
        "bad.jsonl",
        '{"id": "x", "n": 1}\n{"id": "\udcff", "n": 1}\n'.encode("utf-8", "surrogateescape").decode("latin-1"),
    )
    (inbox.folder / "landing/bad.jsonl").write_bytes(b'{"id": "\xff\xfe", "n": 1}\n')
    outcome = inbox.run()
    assert (outcome.rows, inbox.ids()) == (3, "abc")
    assert inbox.states()["bad.jsonl"] == "set aside"
    assert "not UTF-8" in inbox.marks()["bad.jsonl"].reason
    assert inbox.run().state == "skipped"
    inbox.drop_in("bad.jsonl", "d")
    outcome = inbox.run()
    assert (outcome.rows, inbox.ids()) == (1, "abcd")
    assert inbox.states()["bad.jsonl"] == "published"


NOT_TEXT = b'{"id": "\xff\xfe", "n": 1}\n'


def test_87_a_file_that_is_bad_in_between_keeps_its_rows_until_it_is_whole(make_inbox):
    inbox = make_inbox(source={**REPLACING, "on_bad_file": "set_aside"})
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    (inbox.folder / "landing/a.jsonl").write_bytes(NOT_TEXT)
    inbox.run()
    mark = inbox.marks()["a.jsonl"]
    assert (mark.state, mark.rows, inbox.ids()) == ("set aside", 3, "abc")
    assert mark.reason.endswith("The table has the rows of its older content.")
    inbox.drop_in("b.jsonl", "abc")
    assert inbox.run().state == "skipped"
    inbox.drop_in("a.jsonl", "de")
    inbox.run()
    assert inbox.ids() == "abcde"
    assert inbox.table_rows(COLUMN)[0] == ("landing/a.jsonl",)
    assert inbox.run().state == "skipped"


def test_87_a_packed_file_that_is_empty_is_no_copy_of_an_empty_file(make_inbox):
    inbox = make_inbox(files="landing/*.jsonl*", source={**REPLACING, "on_bad_file": "set_aside", "format": "json"})
    inbox.drop_in("empty.jsonl", "")
    packed = inbox.drop_in_text("a.jsonl.gz", "")
    packed.write_bytes(gzip.compress(b'{"id": "a", "n": 1}\n'))
    inbox.run()
    packed.write_bytes(b"")
    inbox.run()
    assert (inbox.marks()["a.jsonl.gz"].state, inbox.ids()) == ("set aside", "a")


def test_87_a_file_that_is_whole_again_as_it_was_is_published_still(make_inbox):
    inbox = make_inbox(source={**REPLACING, "on_bad_file": "set_aside"})
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    (inbox.folder / "landing/a.jsonl").write_bytes(NOT_TEXT)
    inbox.run()
    inbox.drop_in("a.jsonl", "abc")
    outcome = inbox.run()
    assert (outcome.state, outcome.rows, inbox.ids()) == ("published", 0, "abc")
    assert (inbox.marks()["a.jsonl"].state, inbox.marks()["a.jsonl"].rows) == ("published", 3)
    assert inbox.run().state == "skipped"


@pytest.mark.parametrize("meanwhile", ["goes away", "is cut short"])
def test_87_a_file_that_changes_while_it_is_looked_at_is_not_taken_for_bad(make_inbox, monkeypatch, meanwhile):
    inbox = make_inbox(source={"on_bad_file": "set_aside"})
    inbox.drop_in("a.jsonl", "abc")
    path = inbox.drop_in("b.jsonl", "de")
    whole, looked = path.read_bytes(), []

    def look(name, *rest):
        if name == "landing/b.jsonl" and not looked:
            looked.append(name)
            path.unlink() if meanwhile == "goes away" else path.write_bytes(NOT_TEXT)
        return look_into(name, *rest)

    monkeypatch.setattr("twice.sources.sorting.look_into", look)
    outcome = inbox.run()
    assert (outcome.rows, set(inbox.marks())) == (3, {"a.jsonl"})
    path.write_bytes(whole)
    assert inbox.run().rows == 2


def test_an_ingest_is_told_its_format_once_and_for_all():
    with pytest.raises(Misuse, match=r"format of 'landing/\*' cannot be told"):
        twice.files("landing/*", schema="id string", track=True)
    twice.files("landing/*", schema="id string", format="json", track=True)


def test_a_bad_file_alone_is_set_aside_without_rows(make_inbox):
    inbox = make_inbox(source={"on_bad_file": "set_aside"})
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    (inbox.folder / "landing/bad.jsonl").write_bytes(b'{"id": "\xff\xfe", "n": 1}\n')
    outcome = inbox.run()
    assert (outcome.state, outcome.rows) == ("published", 0)
    assert inbox.run().state == "skipped"
    assert inbox.ids() == "abc"
    forget(inbox.project, inbox.pipeline, ["landing/bad.jsonl"])
    inbox.drop_in("bad.jsonl", "d")
    assert inbox.run().rows == 1


# ---------------------------------------------------------------------------------- what is kept beside the table


def test_a_tidy_leaves_what_counts_and_takes_what_nobody_names(filled):
    filled.run()
    before = filled.sight().version
    filled.drop_in("d.jsonl", "fg")
    with armed(dying_at("marks.kept")), pytest.raises(Died):
        filled.run()
    filled.reopen()
    filled.run()
    labels = set(filled.store.labels_beside(filled.target))
    assert len(labels) == 3
    assert sweep_beside(filled.project, filled.pipeline, keep_days=1, dry_run=False) == (0, 0)
    bodies, size = sweep_beside(filled.project, filled.pipeline, keep_days=-1, dry_run=True)
    assert bodies >= 1
    assert size > 0
    assert sweep_beside(filled.project, filled.pipeline, keep_days=-1, dry_run=False)[0] == bodies
    assert len(filled.store.labels_beside(filled.target)) == len(labels) - bodies
    assert set(filled.marks()) == {"a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl"}
    if filled.kind != "postgres":
        twice.restore(f"{filled.kind}:{filled.target}", before, project=filled.project)
        assert set(filled.marks()) == {"a.jsonl", "b.jsonl", "c.jsonl"}


def test_a_rebuilt_ledger_knows_the_files_again(filled):
    filled.run()
    filled.lose_ledger()
    sight = take_over(filled.store, filled.project.ledger, filled.target)
    filled.project.ledger.rebuild(
        [f"{filled.kind}:{filled.target}"], [(receipt, sight.version) for receipt in sight.receipts.values()]
    )
    assert note_all(filled.project, filled.pipeline) == 3
    assert set(filled.states().values()) == {"published"}
    assert filled.run().state == "skipped"


def test_a_row_tells_which_file_and_run_it_came_from(make_inbox):
    inbox = make_inbox(source=REPLACING)
    inbox.drop_in("a.jsonl", "abc")
    first = inbox.run()
    inbox.drop_in("b.jsonl", "de")
    second = inbox.run()
    for one, name, outcome in (("b", "a", first), ("e", "b", second)):
        (origin,) = origins_of(inbox.project, inbox.pipeline, {"id": one})
        assert (origin.file, origin.run, origin.generation) == (
            f"landing/{name}.jsonl",
            outcome.attempt,
            outcome.generation,
        )
    assert origins_of(inbox.project, inbox.pipeline, {"id": "nobody"}) == []


@ABOUT_FILES
def test_rows_that_carry_no_file_cannot_tell(filled):
    filled.run()
    with pytest.raises(Misuse, match=r"do not carry where they came from"):
        origins_of(filled.project, filled.pipeline, {"id": "a"})
