"""Which files lie in a folder, now? The walk against glob, and what glob would pass over."""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twice.errors import Misuse
from twice.sources.listing import is_hidden, matching
from twice.sources.walking import (
    DANGLING,
    FILE,
    FILES,
    FOLDER,
    LEFT_OUT,
    LINK,
    LOOP,
    OUTSIDE,
    SPECIAL,
    UNREADABLE,
    walk,
)

ODD = [
    "data[1].csv",
    "{}.csv",
    "%2F.csv",
    "a\nb.csv",
    "\N{PILE OF POO}.csv",
    "\udcff.csv",
    "a b.csv",
    "*.csv",
    "a:b.csv",
    "\\.csv",
]
NAMES = st.sampled_from(["a", "b", "x.csv", "y.csv", ".h", "_u", "_u.csv", *ODD])
PARTS = st.sampled_from(
    ["**", "*", "*.csv", "?", "[ab]", "[!a]*", "a", "b", "x.csv", "_u", ".*", "*[[]1].csv", "data[1].csv"]
)
TREES = st.recursive(
    st.none(),
    lambda below: st.dictionaries(NAMES, st.one_of(below, st.sampled_from(["x.csv", "../a", "a"])), max_size=4),
    max_leaves=12,
)


def made(folder: str, tree: object) -> None:
    """Make a folder of a dict, a file of None, and a link of a text."""
    os.makedirs(folder, exist_ok=True)
    for name, held in (tree or {}).items():
        path = os.path.join(folder, name)
        if held is None:
            Path(path).write_text(name.encode(errors="replace").decode())
        elif isinstance(held, str):
            os.symlink(held, path)
        else:
            made(path, held)


def through_a_loop(root, name):
    """Tell whether a path comes to the same folder twice: such names have no end, and the walk has none of them."""
    parts = name.split("/")
    folders = [os.path.realpath(os.path.join(root, *parts[:number])) for number in range(len(parts))]
    return len(set(folders)) < len(folders)


def accepted(root, pattern):
    """The files that a listing with glob would read."""
    for name in matching(root, pattern):
        real = os.path.realpath(os.path.join(root, name))
        hidden = is_hidden(os.path.basename(name)) or is_hidden(os.path.basename(real))
        if os.path.isfile(real) and not hidden and not through_a_loop(root, name):
            yield os.path.normpath(name)


@settings(max_examples=300)
@given(TREES, st.lists(PARTS, min_size=1, max_size=4).map("/".join))
def test_a_pattern_means_what_it_means_for_glob(tree, pattern):
    with tempfile.TemporaryDirectory() as root:
        made(root, tree)
        found = list(walk(root, pattern))
        files = [entry.path for entry in found if entry.kind in FILES]
        assert sorted(files) == sorted(set(accepted(root, pattern)))
        names = [entry.path for entry in found]
        assert len(names) == len({(entry.path, entry.kind) for entry in found}), "each name once"
        for entry in found:
            if entry.kind in FILES:
                status = os.stat(os.path.join(root, entry.path))
                told = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
                assert entry[1:5] == told


def test_files_that_are_known_are_passed_over_and_what_is_no_file_never_is(tmp_path):
    tree = {"a.csv": None, "b.csv": None, "c.csv": "a.csv", "d.csv": {}, "_e.csv": None}
    made(str(tmp_path / "in"), tree)
    every = {entry.path: entry for entry in walk(str(tmp_path), "in/*.csv")}
    asked = []

    def known(path, size, mtime_ns):
        asked.append((path, size, mtime_ns))
        return path != "in/b.csv"

    found = [entry.path for entry in walk(str(tmp_path), "in/*.csv", known)]
    assert sorted(found) == ["in/_e.csv", "in/b.csv", "in/d.csv"]
    assert sorted(asked) == sorted(every[f"in/{name}.csv"][:3] for name in "abc")


def kinds(root, pattern):
    return {entry.path: entry.kind for entry in walk(str(root), pattern)}


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_trips_others_is_found_by_wildcards_and_by_itself(tmp_path, name):
    made(str(tmp_path / "in"), {name: None})
    for pattern in ("in/*.csv", "in/*", "**", "*/*.csv", f"in/{name}"):
        assert kinds(tmp_path, pattern) == {f"in/{name}": FILE}


def test_what_is_no_file_is_named_with_its_kind(tmp_path):
    made(str(tmp_path / "elsewhere"), {"secret.csv": None, "more": {"deep.csv": None, "home.csv": "../../in/a.csv"}})
    tree = {
        "a.csv": None,
        "b.csv": "a.csv",
        "c.csv": "../elsewhere/secret.csv",
        "d.csv": "nothing",
        "e.csv": {"f.csv": None},
    }
    tree |= {"_p=1.csv": None, "_p=2": {"q.csv": None}, "r._COPYING_.csv": None}
    hidden = {"_g.csv": None, ".h.csv": None, "i.csv": "_g.csv", "_temporary": {"j.csv": None}, "_notes.txt": None}
    links = {"k": "../elsewhere/more", "l": "k", "up": "..", "self.csv": "self.csv"}
    made(str(tmp_path / "in"), {**tree, **hidden, **links})
    os.mkfifo(tmp_path / "in" / "m.csv")
    assert kinds(tmp_path, "in/*.csv") == {
        "in/a.csv": FILE,
        "in/b.csv": LINK,
        "in/c.csv": OUTSIDE,
        "in/d.csv": DANGLING,
        "in/e.csv": FOLDER,
        "in/_g.csv": LEFT_OUT,
        "in/.h.csv": LEFT_OUT,
        "in/i.csv": LEFT_OUT,
        "in/m.csv": SPECIAL,
        "in/_p=1.csv": FILE,
        "in/r._COPYING_.csv": FILE,
        "in/self.csv": DANGLING,
    }
    deep = kinds(tmp_path, "in/**/*.csv")
    assert {
        path: kind for path, kind in deep.items() if "/" in path.removeprefix("in/") or not path.endswith(".csv")
    } == {
        "in/e.csv/f.csv": FILE,
        "in/_p=2/q.csv": FILE,
        "in/_temporary": LEFT_OUT,
        "in/k/deep.csv": OUTSIDE,
        "in/k/home.csv": LINK,
        "in/l/deep.csv": OUTSIDE,
        "in/l/home.csv": LINK,
        **{path: kind for path, kind in deep.items() if path.startswith("in/up/")},
    }
    assert "in/up/in/up/in/a.csv" not in deep


def test_what_is_not_copied_whole_yet_is_left_out(tmp_path):
    made(
        str(tmp_path / "in"),
        {"a.csv": None, "b.csv._COPYING_": None, "c": "b.csv._COPYING_", "d._COPYING_": {"e": None}},
    )
    found = {"in/a.csv": FILE, "in/b.csv._COPYING_": LEFT_OUT, "in/c": LEFT_OUT, "in/d._COPYING_": LEFT_OUT}
    assert kinds(tmp_path, "in/*") == kinds(tmp_path, "in/**") == found


def test_a_link_to_a_folder_that_holds_it_has_no_end_and_is_not_followed(tmp_path):
    made(str(tmp_path / "in"), {"a.csv": None, "again": ".", "b": {"back": "../../other"}})
    made(str(tmp_path / "other"), {"c.csv": None, "forth": "../in/b"})
    assert kinds(tmp_path, "in/**/*.csv") == {
        "in/a.csv": FILE,
        "in/again": LOOP,
        "in/b/back/c.csv": OUTSIDE,
        "in/b/back/forth": LOOP,
    }


def test_a_pattern_that_names_one_thing_says_what_it_is(tmp_path):
    made(str(tmp_path), {"_in": {"a.csv": None, "_b.csv": None, "*.csv": None}, "link": "_in"})
    assert kinds(tmp_path, "_in/a.csv") == {"_in/a.csv": FILE}
    assert kinds(tmp_path, "./_in//a.csv") == {"_in/a.csv": FILE}
    assert kinds(tmp_path, "_in/*.csv") == kinds(tmp_path, "_in/../_in/*.csv") == {"_in/*.csv": FILE}
    assert kinds(tmp_path, "_in/_b.csv") == {"_in/_b.csv": LEFT_OUT}
    assert kinds(tmp_path, "_in") == {"_in": LEFT_OUT}
    assert kinds(tmp_path, "link/a.*") == {"link/a.csv": FILE}
    assert kinds(tmp_path, f"{tmp_path}/_in/a*") == {f"{tmp_path}/_in/a.csv": FILE}
    assert kinds(tmp_path, "nothing/*.csv") == kinds(tmp_path, "_in/no.csv") == kinds(tmp_path, "_in/a.csv/*") == {}


def test_a_pattern_of_folders_is_refused(tmp_path):
    with pytest.raises(Misuse, match="names folders"):
        list(walk(str(tmp_path), "in/*/"))


@contextmanager
def somebody():
    """Be a user whom modes bind; root is bound by none."""
    me = os.geteuid()
    os.seteuid(me or 65534)
    try:
        yield
    finally:
        os.seteuid(me)


def test_a_folder_that_cannot_be_read_is_named():
    with tempfile.TemporaryDirectory() as root:
        made(root, {"in": {"a.csv": None, "closed": {"b.csv": None}, "listed": {"c.csv": None}}})
        os.chmod(root, 0o755)
        os.chmod(f"{root}/in/closed", 0o000)
        os.chmod(f"{root}/in/listed", 0o444)
        try:
            with somebody():
                assert kinds(root, "in/**/*.csv") == {
                    "in/a.csv": FILE,
                    "in/closed": UNREADABLE,
                    "in/listed/c.csv": UNREADABLE,
                }
                assert kinds(root, "in/closed/*.csv") == {"in/closed": UNREADABLE}
        finally:
            os.chmod(f"{root}/in/closed", 0o755)
            os.chmod(f"{root}/in/listed", 0o755)
