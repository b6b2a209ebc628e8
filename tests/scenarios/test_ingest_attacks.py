"""Ways in which an ingest could take rows in twice, lose or hide them: files that change, folders and tables that are meddled with, other words in the declaration."""

import os
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import twice
from inboxes import COLUMN, LONG_AGO
from twice.asides import AsideRow
from twice.cli.quarantine import _asides
from twice.errors import Fenced, Misuse, NotPublished, ProofGone, Stranger, Waiting
from twice.faults import Died, armed, dying_at
from twice.handovers import release, take_over
from twice.intakes import forget
from twice.pipelines import pipeline
from twice.stores import manifest

REPLACING = {"file_column": COLUMN, "on_changed_file": "replace"}


def ids_after(inbox, runs=1):
    for _ in range(runs):
        inbox.run()
    return inbox.ids()


# ---------------------------------------------------------------------------------- files that turn bad


def test_a_file_that_cannot_be_read_for_a_while_is_not_taken_in_again(make_inbox):
    inbox = make_inbox(source={"on_bad_file": "set_aside"})
    path = inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    path.rename(inbox.folder / "kept")
    path.symlink_to("/dev/null")
    inbox.run()
    assert inbox.states()["a.jsonl"] == "set aside"
    assert inbox.run().state == "skipped"
    path.unlink()
    (inbox.folder / "kept").rename(path)
    os.utime(path)
    assert ids_after(inbox) == "abc"


def test_a_file_that_is_replaced_by_a_bad_one_and_repaired_has_its_rows_once(make_inbox):
    inbox = make_inbox(source={**REPLACING, "on_bad_file": "set_aside"})
    path = inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    path.write_bytes(b'{"id": "\xff\xfe", "n": 1}\n')
    outcome = inbox.run()
    assert (outcome.rows, inbox.ids()) == (0, "abc")
    assert "The table has the rows of its older content." in outcome.notes[-1]
    inbox.drop_in("a.jsonl", "abcd")
    assert ids_after(inbox) == "abcd"


# ---------------------------------------------------------------------------------- copies


def test_a_copy_of_a_forgotten_file_does_not_double_its_rows(make_inbox):
    inbox = make_inbox(source=REPLACING)
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    copy = inbox.drop_in("copy.jsonl", "abc")
    os.utime(copy, (1, 1))
    forget(inbox.project, inbox.pipeline, ["landing/a.jsonl"])
    assert ids_after(inbox, 2) == "abc"
    assert inbox.marks()["a.jsonl"].state == "published"


def test_a_file_that_gets_the_content_of_another_loses_its_old_rows(make_inbox):
    inbox = make_inbox(source=REPLACING)
    inbox.drop_in("a.jsonl", "abc")
    inbox.drop_in("b.jsonl", "de")
    inbox.run()
    inbox.drop_in("a.jsonl", "de")
    assert ids_after(inbox) == "de"
    assert inbox.run().state == "skipped"
    inbox.drop_in("b.jsonl", "x")
    assert ids_after(inbox, 2) == "dex"


def test_names_that_are_swapped_or_moved_on_keep_all_rows_in_one_publish(make_inbox):
    inbox = make_inbox(source=REPLACING)
    inbox.drop_in("1.jsonl", "ab")
    inbox.drop_in("2.jsonl", "cd")
    inbox.run()
    inbox.drop_in("1.jsonl", "cd")
    inbox.drop_in("2.jsonl", "ab")
    assert ids_after(inbox) == "abcd"
    inbox.drop_in("3.jsonl", "ab")
    inbox.drop_in("2.jsonl", "cd")
    inbox.drop_in("1.jsonl", "ef")
    assert ids_after(inbox) == "abcdef"
    assert inbox.run().state == "skipped"


def test_two_links_to_one_file_bring_its_rows_once(make_inbox):
    inbox = make_inbox()
    path = inbox.drop_in("a.jsonl", "abc")
    (path.parent / "one.jsonl").symlink_to("a.jsonl")
    os.link(path, path.parent / "two.jsonl")
    assert ids_after(inbox, 2) == "abc"
    path.unlink()
    assert ids_after(inbox) == "abc"


def test_a_file_that_went_away_and_comes_back_is_known(make_inbox):
    inbox = make_inbox()
    path = inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    path.unlink()
    assert inbox.run().state == "skipped"
    assert inbox.states() == {"a.jsonl": "gone"}
    inbox.drop_in("a.jsonl", "abc")
    assert ids_after(inbox) == "abc"
    assert inbox.states() == {"a.jsonl": "published"}


def test_a_file_that_failed_and_was_taken_away_is_told_as_gone(make_inbox):
    inbox = make_inbox()
    bad = inbox.folder / "landing/bad.jsonl"
    inbox.drop_in("a.jsonl", "abc")
    bad.symlink_to("/dev/null")
    with pytest.raises(NotPublished):
        inbox.run()
    bad.unlink()
    inbox.run()
    assert inbox.states() == {"a.jsonl": "published", "bad.jsonl": "gone"}


# ---------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize("moment", [0, LONG_AGO, time.time() + 10**8], ids=["epoch", "long ago", "ahead"])
def test_times_of_any_kind_are_taken_for_what_they_are(make_inbox, moment):
    inbox = make_inbox()
    os.utime(inbox.drop_in("a.jsonl", "abc"), (moment, moment))
    assert ids_after(inbox, 2) == "abc"


def test_a_file_of_a_clock_that_is_ahead_waits_until_it_is_quiet(make_inbox):
    inbox = make_inbox(source={"quiet_for": "1 hour"})
    ahead = time.time() + 60
    os.utime(inbox.drop_in("a.jsonl", "abc"), (ahead, ahead))
    with pytest.raises(Waiting, match="it changed less than 1 hour ago"):
        inbox.run()


# ---------------------------------------------------------------------------------- restores


@pytest.mark.needs("KeepsVersions")
def test_restores_to_the_middle_twice_and_forward_again(make_inbox):
    inbox = make_inbox()
    versions = {}
    for name in "abc":
        inbox.drop_in(f"{name}.jsonl", name)
        inbox.run()
        versions[name] = inbox.sight().version

    def restore(name):
        twice.restore(f"{inbox.kind}:{inbox.target}", versions[name], project=inbox.project)

    restore("a")
    restore("b")
    assert (inbox.ids(), set(inbox.marks())) == ("ab", {"a.jsonl", "b.jsonl"})
    restore("c")
    assert (inbox.ids(), set(inbox.marks())) == ("abc", {"a.jsonl", "b.jsonl", "c.jsonl"})
    restore("a")
    inbox.drop_in("d.jsonl", "d")
    inbox.run(force=True)
    assert inbox.ids() == "abcd"
    restore("b")
    assert (inbox.ids(), set(inbox.marks())) == ("ab", {"a.jsonl", "b.jsonl"})
    inbox.run(force=True)
    assert inbox.ids() == "abcd"
    assert inbox.run().state == "skipped"


@pytest.mark.needs("KeepsVersions")
def test_a_restore_that_is_accepted_takes_in_what_the_table_lacks(make_inbox):
    inbox = make_inbox()
    inbox.drop_in("a.jsonl", "a")
    inbox.run()
    before = inbox.sight().version
    inbox.drop_in("b.jsonl", "b")
    inbox.run()
    twice.restore(f"{inbox.kind}:{inbox.target}", before, project=inbox.project)
    assert inbox.run(accept=True).state == "published"
    assert inbox.ids() == "ab"
    assert inbox.run().state == "skipped"


@pytest.mark.needs("KeepsVersions")
def test_a_restore_to_before_a_file_was_forgotten(make_inbox):
    inbox = make_inbox(source=REPLACING)
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    before = inbox.sight().version
    forget(inbox.project, inbox.pipeline, ["landing/a.jsonl"])
    inbox.run()
    twice.restore(f"{inbox.kind}:{inbox.target}", before, project=inbox.project)
    inbox.drop_in("b.jsonl", "d")
    inbox.run(force=True)
    assert inbox.ids() == "abcd"


# ---------------------------------------------------------------------------------- other words in the declaration


def test_another_hash_knows_copies_and_touched_files_all_the_same(make_inbox):
    inbox = make_inbox()
    path = inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    for algorithm in ("sha256", "xxh3"):
        other = inbox.twin(source={"hash": algorithm})
        os.utime(path)
        inbox.drop_in(f"copy-{algorithm}.jsonl", "abc")
        inbox.drop_in(f"new-{algorithm}.jsonl", algorithm[0])
        other.run()
        assert other.ids() == "".join(sorted("abc" + ("s" if algorithm == "sha256" else "sx")))
    inbox.drop_in("copy-of-sha256.jsonl", "s")
    assert ids_after(inbox) == "abcsx"


def test_rows_from_before_the_file_column_cannot_be_replaced(make_inbox):
    inbox = make_inbox(columns={"on_new_column": "add"})
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    later = inbox.twin(source=REPLACING)
    inbox.drop_in("b.jsonl", "d")
    later.run()
    inbox.drop_in("a.jsonl", "xy")
    with pytest.raises(NotPublished, match=r"'landing/a.jsonl'.*'source_file'"):
        later.run()
    assert inbox.ids() == "abcd"
    (inbox.folder / "landing/a.jsonl").unlink()
    inbox.drop_in("b.jsonl", "de")
    assert ids_after(later) == "abcde"


def untracked(inbox, pattern=None):
    """Return a pipeline of the same name that publishes to the same target without marks."""
    return pipeline(
        name=inbox.name,
        source=twice.source(lambda: [{"id": "q", "n": 1}], fingerprint="always"),
        target=f"{inbox.kind}:{inbox.target}",
        pattern=pattern or twice.merger(keys=["id"]),
    )(lambda rows: inbox.spark.createDataFrame(rows, "id string, n int") if inbox.spark else rows)


def test_what_was_an_ingest_stays_one(make_inbox):
    inbox = make_inbox()
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    with pytest.raises(Misuse, match="takes in files, each once"):
        twice.run(untracked(inbox), project=inbox.project)
    assert ids_after(inbox) == "abc"


def test_what_was_no_ingest_does_not_become_one(make_inbox):
    inbox = make_inbox(pattern=twice.merger(keys=["id"]))
    twice.run(untracked(inbox), project=inbox.project)
    inbox.drop_in("a.jsonl", "abc")
    with pytest.raises(Misuse, match="without marks of files"):
        inbox.run()
    assert inbox.ids() == "q"


def test_an_append_becomes_a_merger(make_inbox):
    inbox = make_inbox()
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    inbox.drop_in("b.jsonl", "cd", n=2)
    later = inbox.twin(pattern=twice.merger(keys=["id"]))
    assert ids_after(later, 2) == "abcd"


# ---------------------------------------------------------------------------------- what people are told and may do


def test_an_adopted_table_is_added_to(make_inbox):
    inbox = make_inbox()
    inbox.fill_by_hand([{"id": "q", "n": 0}], "id string, n int" if inbox.spark else "id string, n bigint")
    inbox.drop_in("a.jsonl", "abc")
    with pytest.raises(Stranger, match="twice adopt"):
        inbox.run()
    take_over(inbox.store, inbox.project.ledger, inbox.target)
    assert ids_after(inbox, 2) == "abcq"


def test_another_project_that_takes_the_target_over_knows_its_files(make_inbox):
    inbox = make_inbox()
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    release(inbox.store, inbox.project.ledger, inbox.target)
    other = inbox.twin(ledger_name="other.db")
    other.reopen()
    take_over(other.store, other.project.ledger, other.target)
    other.drop_in("b.jsonl", "d")
    assert ids_after(other, 2) == "abcd"
    with pytest.raises(Fenced, match="belongs to another ledger"):
        inbox.run()


def test_a_renamed_pipeline_goes_on(make_inbox):
    inbox = make_inbox()
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    inbox.drop_in("b.jsonl", "d")
    twice.run(replace(inbox.pipeline, name="other", was=inbox.name), project=inbox.project)
    assert inbox.ids() == "abcd"


def test_nobody_is_told_that_force_would_undo_a_change_by_hand(make_inbox):
    inbox = make_inbox()
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    inbox.change_by_hand()
    inbox.drop_in("b.jsonl", "d")
    with pytest.raises(ProofGone) as refused:
        inbox.run()
    assert "--accept" in refused.value.fix
    assert "--force" not in refused.value.fix
    assert inbox.run(accept=True).rows == 1


def first_file(inbox):
    return inbox.table() / manifest.newest(str(inbox.table())).files[0].path


@pytest.fixture
def lossy(make_inbox):
    """An inbox that took in two files, and lost the Parquet file with the rows of the first."""
    inbox = make_inbox()
    for name, ids in (("a.jsonl", "abc"), ("b.jsonl", "d")):
        inbox.drop_in(name, ids)
        inbox.run()
    first_file(inbox).unlink()
    inbox.drop_in("c.jsonl", "e")
    with pytest.raises(ProofGone, match="is gone"):
        inbox.run()
    return inbox


@pytest.mark.stores("parquet")
def test_a_table_that_lost_a_file_goes_on_without_it_once_that_is_accepted(lossy):
    assert lossy.run(accept=True).rows == 1
    assert lossy.ids() == "de"
    assert lossy.run().state == "skipped"
    assert not lossy.sight().ended


@pytest.mark.stores("parquet")
def test_what_was_accepted_is_still_accepted_when_more_arrives(lossy):
    (lossy.folder / "landing/c.jsonl").unlink()
    assert lossy.run(accept=True).state == "skipped"
    lossy.drop_in("d.jsonl", "f")
    assert lossy.run().rows == 1
    assert lossy.ids() == "df"


@pytest.mark.stores("parquet")
def test_a_version_that_was_accepted_is_not_vouched_for_when_it_comes_back(lossy):
    lossy.run(accept=True)
    accepted = lossy.sight().version - 1
    twice.restore(f"parquet:{lossy.target}", accepted, project=lossy.project)
    assert lossy.ids() == "d"
    with pytest.raises(ProofGone):
        lossy.run()
    assert lossy.run(accept=True).rows == 1
    assert lossy.ids() == "de"


@pytest.mark.stores("parquet")
def test_restoring_what_was_accepted_does_not_vouch_for_it(lossy):
    (lossy.folder / "landing/c.jsonl").unlink()
    assert lossy.run(accept=True).state == "skipped"
    twice.restore(f"parquet:{lossy.target}", lossy.sight().version, project=lossy.project)
    assert lossy.sight().ended


@pytest.mark.stores("parquet")
def test_a_second_loss_is_asked_for_again(lossy):
    lossy.run(accept=True)
    first_file(lossy).unlink()
    with pytest.raises(ProofGone):
        lossy.run()
    assert lossy.run(accept=True).state == "skipped"
    assert lossy.ids() == "e"


@pytest.mark.stores("parquet")
def test_whoever_dies_while_accepting_is_asked_again(lossy):
    with pytest.raises(Died), armed(dying_at("parquet.files.named")):
        lossy.run(accept=True)
    lossy.reopen()
    with pytest.raises(ProofGone):
        lossy.run()
    assert lossy.run(accept=True).rows == 1
    assert lossy.ids() == "de"


@pytest.mark.stores("parquet")
def test_a_file_that_holds_no_rows_any_more_is_not_accepted(make_inbox):
    inbox = make_inbox()
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    first_file(inbox).write_bytes(b"other bytes")
    before = inbox.sight()
    with pytest.raises(NotPublished, match=r"no Parquet file(.|\n)*Put the file back"):
        inbox.run(accept=True)
    assert inbox.sight() == before


@pytest.mark.needs("KeepsVersions")
def test_after_a_restore_what_is_set_aside_is_that_of_the_version(make_inbox, monkeypatch):
    inbox = make_inbox()
    inbox.drop_in("a.jsonl", "abc")
    inbox.run()
    versions = [inbox.sight().version]
    row = AsideRow("landing/b.jsonl", 2, "broken", "json", "no JSON")
    monkeypatch.setattr("twice.quarantine._sifted", lambda _: [SimpleNamespace(parsed=2, rows=lambda: [row])])
    inbox.drop_in("b.jsonl", "d")
    assert inbox.run().quarantined == 1
    versions.append(inbox.sight().version)
    monkeypatch.undo()

    def listed(version):
        twice.restore(f"{inbox.kind}:{inbox.target}", version, project=inbox.project)
        return [facts["rows"] for facts in _asides(inbox.project, inbox.pipeline)]

    assert [listed(version) for version in versions] == [[], [1]]
