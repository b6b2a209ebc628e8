"""Does Spark read just the files that were chosen, by whatever paths they are named?"""

import os

import pytest

from twice.sources import loading
from twice.sources.marking import mark_files

NAMES = ["a.csv", "data[1].csv", "50%2F off+.csv", "zwölf {3}.csv"]


class NoMemory:
    def recall(self, _keys):
        return {}

    def remember(self, _hashes):
        pass


def chosen(root, names):
    return list(mark_files(str(root), names, NoMemory()))


def fill(folder, names):
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(f"{name}\n")


def loaded(spark, marks):
    rows = loading.load_just(spark.read.format("text").option("recursiveFileLookup", "true"), marks).collect()
    return sorted(row["value"] for row in rows)


def test_a_folder_of_which_all_is_read_is_named_itself(tmp_path):
    fill(tmp_path / "in", NAMES)
    (tmp_path / "in" / "_left.csv").write_text("no row\n")
    files = [mark.real for mark in chosen(tmp_path / "in", NAMES)]
    assert list(loading._paths(files)) == [str(tmp_path / "in")]
    assert list(loading._paths(files[1:])) == files[1:], "a file that was not chosen is not read"
    (tmp_path / "in" / "folder").mkdir()
    assert list(loading._paths(files)) == files, "what is in a folder below is not read"
    assert list(loading._paths([str(tmp_path / "gone" / name) for name in "ab"])) == [
        str(tmp_path / "gone" / name) for name in "ab"
    ]


def test_files_that_are_read_twice_are_named_twice(tmp_path):
    fill(tmp_path / "in", NAMES)
    files = [str(tmp_path / "in" / name) for name in NAMES]
    assert list(loading._paths([*files, files[0]])) == [*files, files[0]]


@pytest.mark.spark
def test_folders_and_files_give_the_rows_of_the_chosen_files(spark, tmp_path):
    fill(tmp_path / "whole {1}", NAMES)
    fill(tmp_path / "some", NAMES)
    names = [f"whole {{1}}/{name}" for name in NAMES] + ["some/a.csv"]
    assert loaded(spark, chosen(tmp_path, names)) == sorted([*NAMES, "a.csv"])


@pytest.mark.spark
@pytest.mark.parametrize("late", ["late.csv", os.path.join("below", "late.csv")])
def test_a_file_that_comes_after_the_look_is_not_read(spark, tmp_path, monkeypatch, late):
    fill(tmp_path / "in", NAMES)
    marks = chosen(tmp_path / "in", NAMES)
    looks = loading._is_all_of

    def and_then_one_comes(folder, files):
        found = looks(folder, files)
        os.makedirs(os.path.dirname(os.path.join(folder, late)), exist_ok=True)
        with open(os.path.join(folder, late), "w") as file:
            file.write("late\n")
        return found

    monkeypatch.setattr(loading, "_is_all_of", and_then_one_comes)
    assert loaded(spark, marks) == sorted(NAMES)
