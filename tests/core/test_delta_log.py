"""What does a Delta log say about slots? Logs written by hand, as Delta writes them."""

import json
import os
import time

import pytest
from samples import receipt_of, slot_of

from twice.errors import Fenced
from twice.sight import NO_TABLE, Sight
from twice.stores.delta.log import FORMAT, Payload, commit_versions, log_folder, look, uncarried

A, B, C = (slot_of(f"2024-09-2{number}", target="delta:lake/out").text for number in range(3))


class Log:
    """A `_delta_log` that grows by one commit at a time."""

    def __init__(self, table):
        self.table = str(table)
        self.next = 0
        os.makedirs(log_folder(self.table))

    def _write(self, *actions):
        lines = [json.dumps(action, separators=(",", ":")) + "\n" for action in actions]
        with open(self.path(self.next), "w") as file:
            file.writelines(lines)
        self.next += 1

    def path(self, version, ending="json"):
        return os.path.join(log_folder(self.table), f"{version:020}.{ending}")

    def ours(self, *receipts, scope="slice", carrying=None, kind="publish", owner="me", at=1_000_000):
        payload = Payload(kind, owner, scope, receipts, table_id="ours")
        text = (payload.carrying(carrying) if carrying else payload).to_text()
        info = {"timestamp": at, "operation": "WRITE", "userMetadata": text}
        self._write({"commitInfo": info}, {"txn": {"appId": "x", "version": 1}}, add("ours.parquet"))
        return self

    def foreign(self, operation="WRITE", *, changes=True, table_id="", **parameters):
        info = {"timestamp": 1_000_000, "operation": operation, "operationParameters": parameters}
        made = [{"metaData": {"id": table_id, "format": {}}}] if table_id else []
        self._write({"commitInfo": info}, *made, add("theirs.parquet", changes=changes))
        return self

    def restored(self, **parameters):
        return self.foreign("RESTORE", **parameters)

    def cleaned_up_to(self, version):
        """Remove all commits before this version, as log clean-up does."""
        for old in commit_versions(self.table):
            if old < version:
                os.unlink(self.path(old))
        return self

    def checkpoint(self, version, **numbers):
        with open(self.path(version, "checkpoint.0123-abcd.json"), "w") as file:
            file.writelines(
                json.dumps({"txn": {"appId": slot, "version": number}}, separators=(",", ":")) + "\n"
                for slot, number in numbers.items()
            )
        return self

    def look(self):
        return look(self.table)


def add(path, *, changes=True):
    return {"add": {"path": path, "partitionValues": {}, "size": 3, "dataChange": changes, "stats": "{}"}}


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "lake" / "out")


@pytest.fixture
def three_days(log):
    """Slots A, B and C, published in versions 0, 1 and 2."""
    return log.ours(receipt_of(A)).ours(receipt_of(B)).ours(receipt_of(C))


# ------------------------------------------------------------------ receipts


def test_no_log_is_no_table(tmp_path):
    assert look(str(tmp_path / "nowhere")) == Sight()


def test_every_slots_receipt_is_found_with_its_version(three_days):
    sight = three_days.look()
    assert {slot: receipt.first_version for slot, receipt in sight.receipts.items()} == {A: 0, B: 1, C: 2}
    assert (sight.version, sight.head, sight.owner, sight.table_id) == (2, 2, "me", "ours")
    assert (sight.ended, sight.outside, sight.filled, sight.data_version) == ({}, "", False, 2)


def test_the_fence_is_the_highest_generation(three_days):
    sight = three_days.ours(receipt_of(A, 2, fingerprint="others")).look()
    assert (sight.fence(A), sight.proof(A).first_version, sight.proof(A).fingerprint) == (2, 3, "others")


def test_the_newest_owner_owns_the_table(three_days):
    assert three_days.ours(scope="nothing", kind="adopt", owner="them").look().owner == "them"


def test_a_publish_of_nothing_does_not_move_the_data(three_days):
    sight = three_days.ours(receipt_of(A, 2), scope="nothing").look()
    assert (sight.version, sight.data_version, sight.fence(A)) == (3, 2, 2)


def test_other_files_in_the_log_are_no_commits(three_days):
    for name in ("_last_checkpoint", "00000000000000000009.crc", ".00000000000000000009.json.crc", "_commits"):
        open(os.path.join(log_folder(three_days.table), name), "w").close()
    open(three_days.path(0, "00000000000000000002.compacted.json"), "w").close()
    assert commit_versions(three_days.table) == [0, 1, 2]


# ------------------------------------------------------------------ changes from outside


def test_a_foreign_delete_ends_every_proof(three_days):
    sight = three_days.foreign("DELETE").look()
    assert set(sight.ended) == {A, B, C}
    assert sight.ended[A] == "the table was changed from outside in version 3 (DELETE)"
    assert (sight.outside, sight.data_version) == ("version 3", 3)


def test_a_foreign_change_leaves_later_receipts_alone(log):
    sight = log.ours(receipt_of(A)).foreign("MERGE").ours(receipt_of(B)).look()
    assert set(sight.ended) == {A}


def test_a_slot_that_is_published_again_has_a_proof_again(log):
    sight = log.ours(receipt_of(A)).foreign("DELETE").ours(receipt_of(A, 2)).look()
    assert (sight.ended, sight.outside) == ({}, "version 1")


@pytest.mark.parametrize("operation", ["OPTIMIZE", "VACUUM END", "SET TBLPROPERTIES", "REORG"])
def test_maintenance_that_changes_no_data_is_passed_over(three_days, operation):
    sight = three_days.foreign(operation, changes=False).look()
    assert (sight.ended, sight.outside, sight.version, sight.data_version) == ({}, "", 3, 2)


def test_a_table_that_is_replaced_ends_every_proof_even_if_it_is_empty(three_days):
    sight = three_days.foreign("CREATE OR REPLACE TABLE AS SELECT", changes=False, table_id="theirs").look()
    assert (set(sight.ended), sight.table_id) == ({A, B, C}, "theirs")


def test_a_change_that_does_not_say_what_it_was_is_foreign(three_days):
    three_days._write(add("x"))
    assert set(three_days.look().ended) == {A, B, C}


def test_metadata_of_another_kind_is_not_ours(three_days):
    for text in ("nightly job", '{"job": 7}', "{broken", ""):
        three_days._write({"commitInfo": {"operation": "WRITE", "userMetadata": text}}, add("x"))
    assert set(three_days.look().ended) == {A, B, C}
    assert three_days.look().outside == "version 6"


# ------------------------------------------------------------------ restores


def test_a_restore_ends_the_proofs_of_later_versions_alone(three_days):
    sight = three_days.restored(version=1).look()
    assert set(sight.ended) == {C}
    assert sight.ended[C].startswith("the table was restored to version 1 in version 3")
    assert sight.outside == "version 3"


def test_a_restore_to_version_0_keeps_the_first_slot(three_days):
    assert set(three_days.restored(version=0).look().ended) == {B, C}


def test_a_restore_to_a_point_in_time_may_have_gone_anywhere(three_days):
    assert set(three_days.restored(version=None, timestamp="2024-09-21 00:00:00").look().ended) == {A, B, C}
    assert set(three_days.restored(timestamp="2024-09-21 00:00:00").look().ended) == {A, B, C}


def test_a_restore_never_lowers_the_fence(three_days):
    sight = three_days.ours(receipt_of(A, 2)).restored(version=2).look()
    assert (sight.fence(A), sight.proof(A), set(sight.ended)) == (2, None, {A})


def test_a_slot_that_is_published_after_a_restore_is_proven(three_days):
    assert three_days.restored(version=0).ours(receipt_of(C, 2)).look().ended.keys() == {B}


def test_a_restore_that_carries_our_words_is_still_a_restore(three_days):
    text = Payload("publish", "me", "slice", (receipt_of(C, 9),)).to_text()
    info = {"operation": "RESTORE", "operationParameters": {"version": 0}, "userMetadata": text}
    three_days._write({"commitInfo": info}, add("x"))
    assert (three_days.look().fence(C), set(three_days.look().ended)) == (1, {B, C})


# ------------------------------------------------------------------ a whole table


def test_replacing_the_whole_table_ends_all_other_proofs(three_days):
    sight = three_days.ours(receipt_of(B, 2), scope="table").look()
    assert sight.ended == dict.fromkeys((A, C), "the whole table was replaced in version 3")
    assert (sight.outside, sight.proof(B).generation) == ("version 3", 2)


def test_slots_that_come_after_a_replacement_are_proven(three_days):
    sight = three_days.ours(receipt_of(B, 2), scope="table").ours(receipt_of(A, 2)).look()
    assert set(sight.ended) == {C}


# ------------------------------------------------------------------ receipts that are carried forward


def test_a_carried_receipt_keeps_its_first_version(three_days):
    sight = three_days.ours(receipt_of(A, 2), carrying=three_days.look()).cleaned_up_to(3).look()
    assert {slot: (r.generation, r.first_version) for slot, r in sight.receipts.items()} == {
        A: (2, 3),
        B: (1, 1),
        C: (1, 2),
    }
    assert sight.ended == {}


def test_a_log_says_the_same_with_and_without_a_carrier(three_days):
    three_days.foreign("DELETE").ours(receipt_of(B, 2))
    before = three_days.look()
    after = three_days.ours(scope="nothing", kind="restate", carrying=before).cleaned_up_to(5).look()
    assert (after.receipts, after.ended, after.outside) == (before.receipts, before.ended, before.outside)
    assert (after.data_version, after.owner, after.table_id) == (before.data_version, "me", "ours")


def test_an_outside_change_is_carried_with_its_name(three_days):
    three_days.restored(version=1)
    sight = three_days.ours(scope="nothing", carrying=three_days.look()).cleaned_up_to(4).look()
    assert (sight.outside, set(sight.ended)) == ("version 3", {C})
    assert "restored to version 1" in sight.ended[C]


def test_a_change_after_the_carrier_has_the_newer_name(three_days):
    three_days.foreign("DELETE")
    sight = three_days.ours(scope="nothing", carrying=three_days.look()).foreign("UPDATE").look()
    assert (sight.outside, sight.ended[A]) == (
        "version 5",
        "the table was changed from outside in version 5 (UPDATE)",
    )


def test_a_restore_to_before_a_carried_receipt_ends_it(three_days):
    sight = three_days.ours(scope="nothing", carrying=three_days.look()).restored(version=1).cleaned_up_to(3).look()
    assert set(sight.ended) == {C}


def test_a_slot_published_after_the_carrier_is_no_longer_ended(three_days):
    three_days.foreign("DELETE")
    three_days.ours(scope="nothing", carrying=three_days.look()).ours(receipt_of(A, 2)).cleaned_up_to(4)
    sight = three_days.look()
    assert (set(sight.ended), sight.fence(A)) == ({B, C}, 2)


def test_a_neighbour_between_the_carriers_look_and_its_commit_is_read_from_its_own_commit(three_days):
    seen = three_days.look()
    three_days.ours(receipt_of(A, 2)).ours(receipt_of(B, 2), carrying=seen)
    assert {slot: r.generation for slot, r in three_days.look().receipts.items()} == {A: 2, B: 2, C: 1}
    assert {slot: r.generation for slot, r in three_days.cleaned_up_to(3).look().receipts.items()} == {A: 2, B: 2, C: 1}


def test_a_slot_that_was_mended_between_the_carriers_look_and_its_commit_is_proven(three_days):
    seen = three_days.foreign("DELETE").look()
    three_days.ours(receipt_of(A, 2)).ours(receipt_of(B, 2), carrying=seen)
    assert set(three_days.look().ended) == set(three_days.cleaned_up_to(4).look().ended) == {C}


def test_commits_that_a_carrier_speaks_for_are_not_read_again(three_days):
    three_days.ours(scope="nothing", carrying=three_days.look())
    expected = three_days.look()
    for old in range(3):
        with open(three_days.path(old), "w") as file:
            file.write('{"commitInfo": broken')
    assert three_days.look() == expected


def test_the_data_version_is_carried(three_days):
    sight = three_days.ours(scope="nothing", carrying=three_days.look()).cleaned_up_to(3).look()
    assert (sight.version, sight.data_version) == (3, 2)


def test_an_older_carrier_is_not_asked_when_there_is_a_newer(three_days):
    first = three_days.look()
    three_days.ours(receipt_of(A, 2), carrying=first).ours(receipt_of(A, 3), carrying=three_days.look())
    assert three_days.look().fence(A) == 3


def test_commits_that_no_carrier_speaks_for_are_counted(three_days):
    now = int(time.time() * 1000)
    assert uncarried(three_days.table)[0] == 3
    three_days.ours(receipt_of(A, 2), carrying=three_days.look(), at=now - 5000).ours(receipt_of(B, 2), at=now)
    count, age = uncarried(three_days.table)
    assert count == 1
    assert 4000 < age < 60_000


# ------------------------------------------------------------------ a log that was cleaned too early


def test_fences_that_went_with_the_log_come_back_from_the_checkpoint(three_days):
    sight = three_days.checkpoint(2, **{A: 4, B: 1, C: 1, "twice:owner": 1, "other": 7}).cleaned_up_to(2).look()
    assert {slot: sight.fence(slot) for slot in sight.receipts} == {A: 4, B: 1, C: 1}
    assert sight.ended == dict.fromkeys((A, B), "its receipt went with the cleaned log")


def test_a_log_whose_receipts_are_all_gone_is_not_ours_and_not_empty(log):
    sight = log.ours(receipt_of(A)).foreign("OPTIMIZE", changes=False).checkpoint(1, **{A: 1}).cleaned_up_to(1).look()
    assert (sight.owner, sight.fence(A), sight.proof(A)) == ("", 1, None)


def test_a_log_cleaned_after_its_carrier_keeps_what_came_since(three_days):
    three_days.ours(scope="nothing", carrying=three_days.look()).ours(receipt_of(A, 2))
    sight = three_days.checkpoint(4, **{A: 2, B: 1, C: 1}).cleaned_up_to(4).look()
    assert (sight.fence(A), sight.proof(A).generation, set(sight.ended)) == (2, 2, {B, C})


def test_a_generation_between_carrier_and_look_that_went_with_the_log_is_not_forgotten(three_days):
    seen = three_days.look()
    three_days.ours(receipt_of(A, 2)).ours(receipt_of(B, 2), carrying=seen)
    sight = three_days.checkpoint(4, **{A: 2, B: 2, C: 1}).cleaned_up_to(4).look()
    assert (sight.fence(A), sight.proof(A)) == (2, None)


def test_a_foreign_change_that_went_with_the_log_is_not_forgiven(three_days):
    seen = three_days.look()
    three_days.foreign("DELETE").ours(receipt_of(B, 2), carrying=seen)
    sight = three_days.checkpoint(4, **{A: 1, B: 2, C: 1}).cleaned_up_to(4).look()
    assert set(sight.ended) == {A, C}


# ------------------------------------------------------------------ tables of others


@pytest.mark.parametrize(("changes", "filled"), [(True, True), (False, False)])
def test_a_table_that_others_filled_is_told_from_an_empty_one(log, changes, filled):
    sight = log.foreign("CREATE TABLE", changes=changes, table_id="theirs").look()
    assert (sight.filled, sight.owner, sight.table_id, sight.receipts) == (filled, "", "theirs", {})


def test_a_table_whose_beginning_is_gone_counts_as_filled(log):
    log.foreign("WRITE").foreign("OPTIMIZE", changes=False)
    assert log.cleaned_up_to(1).look().filled


def test_a_table_that_was_adopted_has_an_owner(log):
    log.foreign("WRITE")
    sight = log.ours(kind="adopt", scope="nothing", carrying=log.look()).look()
    assert (sight.owner, sight.receipts, sight.data_version) == ("me", {}, 0)


# ------------------------------------------------------------------ the payload itself


def test_a_payload_is_read_back_as_it_was_written():
    payload = Payload("publish", "me", "slice", (receipt_of(A, 3, partitions=("day=1",)),), table_id="id")
    carried = Sight(version=4, receipts={B: receipt_of(B)}, ended={B: "gone"}, outside="version 2", data_version=3)
    assert Payload.from_text(payload.to_text()) == payload
    assert Payload.from_text(payload.carrying(carried).to_text()) == payload.carrying(carried)


def test_a_payload_of_a_newer_twice_is_refused(log):
    log._write({"commitInfo": {"operation": "WRITE", "userMetadata": json.dumps({"twice": FORMAT + 1})}})
    with pytest.raises(Fenced, match="newer Twice"):
        log.look()


def test_what_is_carried_does_not_grow_the_log_tenfold():
    receipts = [receipt_of(slot_of(f"key {number}")) for number in range(300)]
    carried = Sight(version=4, receipts={receipt.slot: receipt for receipt in receipts})
    assert len(Payload("restate", "me", "nothing").carrying(carried).to_text()) < 300 * 30


def test_a_receipt_without_a_version_was_written_nowhere():
    assert receipt_of(A).first_seen_in(NO_TABLE).first_version == NO_TABLE
