"""What outlives a power cut, and what is said when the disk does not confirm it?"""

import pytest

from disks import Disk, failing_once_at
from twice.errors import NotPublished, OutcomeUnknown
from twice.stores import durable
from twice.stores import manifest as log
from twice.stores.manifest import DataFile, Manifest


def first(table):
    log.append(str(table), Manifest(version=0, owner="me", files=(DataFile("data/a", 1, "", "a"),)))


def test_a_name_that_the_disk_did_not_confirm_is_unknown(tmp_path):
    with failing_once_at("parquet.manifest.linked"), pytest.raises(OutcomeUnknown, match="did not confirm"):
        first(tmp_path)
    assert log.newest(str(tmp_path)).owner == "me"


def test_a_body_that_the_disk_did_not_confirm_is_not_published(tmp_path):
    with failing_once_at("beside.linked"), pytest.raises(NotPublished):
        durable.keep_whole(str(tmp_path / "one"), b"body", "beside")


def test_all_new_folders_that_lead_to_a_table_are_there_after_a_power_cut(tmp_path):
    root = tmp_path / "disk"
    root.mkdir()
    with Disk(root).watched() as disk:
        first(root / "warehouse" / "area" / "table")
    left = disk.left(tmp_path / "left")
    assert log.newest(str(left / "warehouse" / "area" / "table")).owner == "me"
