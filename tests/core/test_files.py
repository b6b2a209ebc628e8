"""Which files does a slot read, and are they still what they were?"""

import bz2
import gzip
import os
from dataclasses import replace

import pytest
from samples import slot_of

import twice
from twice.errors import Misuse, NotPublished
from twice.fingerprint import Place
from twice.sources.contents import format_of, schema_columns
from twice.sources.files import Files
from twice.sources.listing import list_files, spark_path
from twice.sources.marking import content_hash

SCHEMA = "id bigint, name string"
HEADER = b"id,name\n1,a\n"
PARQUET = b"PAR1" + b"\0" * 8 + b"PAR1"


class Memory(dict):
    """Hashes that are remembered, as the ledger would remember them."""

    def recall(self, keys):
        return {key: self[key] for key in keys if key in self}

    remember = dict.update


@pytest.fixture
def folder(tmp_path):
    """Return a writer of files under the project's folder."""

    def write(**files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return tmp_path

    return write


@pytest.fixture
def listed(tmp_path):
    """Return a lister of what a pattern matches among files of these names."""

    def act(pattern, *names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return list_files(str(tmp_path), pattern)

    return act


def resolve(root, source, memory=None, slot="2024-09-20"):
    place = Place(str(root), slot_of(slot), "UTC", Memory() if memory is None else memory, lambda _: None)
    return (Files(source, schema=SCHEMA) if isinstance(source, str) else source).resolve(place)


@pytest.fixture
def old(monkeypatch):
    """Let every file be old enough for its change time to be trusted."""
    monkeypatch.setattr("twice.sources.marking._RACY_SECONDS", -1e9)


# ------------------------------------------------------------------ listing


def test_a_name_with_brackets_means_that_very_file(listed):
    assert listed("data[1].csv", "data[1].csv", "data1.csv") == ["data[1].csv"]


def test_a_name_with_wildcards_in_it_means_that_very_file(listed):
    assert listed("what?.csv", "what?.csv", "whats.csv") == ["what?.csv"]


def test_a_pattern_with_brackets_matches_where_no_file_has_its_name(listed):
    assert listed("data[12].csv", "data1.csv", "data2.csv", "data3.csv") == ["data1.csv", "data2.csv"]


def test_files_are_listed_in_order(listed):
    assert listed("*/*.csv", "b/1.csv", "a/2.csv", "a/10.csv", "a/x.json") == ["a/10.csv", "a/2.csv", "b/1.csv"]


def test_wildcards_pass_over_hidden_names(listed):
    hidden = ("in/_SUCCESS", "in/.a.csv.crc", "in/_b.csv", "in/c.csv._COPYING_", "in/_metadata", "in/_common_metadata")
    assert listed("in/*", "in/a.csv", "in/_b=1.csv", *hidden) == ["in/_b=1.csv", "in/a.csv"]


@pytest.mark.parametrize("hidden", ["in/_temporary/0/part.csv", "in/.staging/part.csv", "in/sub/_delta_log/part.csv"])
def test_wildcards_pass_over_hidden_folders(listed, hidden):
    assert listed("in/**/*.csv", "in/a.csv", hidden) == ["in/a.csv"]


@pytest.mark.parametrize("name", ["_x.csv", ".x.csv", "in/_x.csv", "x.csv._COPYING_", "_metadata"])
def test_a_hidden_file_is_refused_where_it_is_asked_for(listed, name):
    with pytest.raises(NotPublished, match=r"begins with '_' or '.'"):
        listed(name, name)


def test_a_folder_is_refused(listed):
    with pytest.raises(Misuse, match=r"'in' is a folder(.|\n)*in/\*"):
        listed("in", "in/a.csv")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    for pattern in ("a.csv", "*.csv"):
        with pytest.raises(NotPublished, match="is not a regular file"):
            list_files(str(tmp_path), pattern)


def test_a_link_to_nothing_is_refused(tmp_path):
    (tmp_path / "a.csv").symlink_to("gone.csv")
    for pattern in ("a.csv", "*.csv"):
        with pytest.raises(NotPublished, match="cannot be looked at"):
            list_files(str(tmp_path), pattern)


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "a.csv").symlink_to("a.csv")
    with pytest.raises(NotPublished, match="cannot be looked at"):
        list_files(str(tmp_path), "a.csv")


def test_a_link_to_a_file_is_followed(listed, tmp_path):
    (tmp_path / "link.csv").symlink_to("real/a.csv")
    assert listed("link.csv", "real/a.csv") == ["link.csv"]


def test_a_colon_is_refused(listed):
    with pytest.raises(NotPublished, match="has a colon in its name"):
        listed("*.csv", "a:b.csv")


@pytest.mark.parametrize("real", ["_hidden.csv", ".hidden.csv", "a:b.csv"])
def test_a_link_to_a_file_that_spark_would_pass_over_is_refused(folder, real):
    root = folder(**{f"real/{real}": HEADER})
    (root / "a.csv").symlink_to(f"real/{real}")
    with pytest.raises(NotPublished):
        resolve(root, "a.csv")


def test_nothing_is_listed_where_nothing_is(listed):
    assert listed("nowhere/*.csv") == []


@pytest.mark.parametrize("key", ["[1]", "*", "?", "[[]", "a"])
def test_a_key_is_taken_literally_in_a_pattern(folder, key):
    root = folder(**{f"{name}.csv": HEADER for name in ("[1]", "*", "?", "[[]", "a", "1")})
    assert [mark.path for mark in resolve(root, "{key}.csv", slot=key).marks] == [f"{key}.csv"]


def test_a_path_is_written_so_that_spark_takes_it_literally():
    assert spark_path("/in/data[1]{a}*?.csv") == r"/in/data\[1\]\{a\}\*\?.csv"


# ------------------------------------------------------------------ missing files


def test_no_file_is_refused_by_default(tmp_path):
    with pytest.raises(NotPublished, match=r"No file matches 'in/2024-09-20/\*.csv' for out at 2024-09-20T00:00Z"):
        resolve(tmp_path, "in/{execution_date}/*.csv")


def test_no_file_means_no_rows_where_that_was_asked_for(tmp_path):
    chosen = resolve(tmp_path, Files("in/*.csv", schema=SCHEMA, missing="empty"))
    assert (chosen.marks, chosen.facts, chosen.summary, chosen.moved()) == ((), [], "0 files, 0 bytes", [])


def test_a_summary_counts_files_and_bytes(folder):
    root = folder(**{"a.csv": HEADER, "b.csv": HEADER})
    assert resolve(root, "a.csv").summary == "1 file, 12 bytes"
    assert resolve(root, "*.csv").summary == "2 files, 24 bytes"


# ------------------------------------------------------------------ the second look


def test_files_that_stayed_have_not_moved(folder):
    assert resolve(folder(**{"a.csv": HEADER}), "a.csv").moved() == []


def test_a_file_that_was_written_again_has_moved(folder):
    chosen = resolve(folder(**{"a.csv": HEADER, "b.csv": HEADER}), "*.csv")
    folder(**{"b.csv": HEADER + b"2,b\n"})
    assert chosen.moved() == ["b.csv"]


def test_a_file_that_was_changed_and_changed_back_has_moved(folder, old):
    chosen = resolve(folder(**{"a.csv": HEADER}), "a.csv")
    folder(**{"a.csv": HEADER.replace(b"1", b"2")})
    folder(**{"a.csv": HEADER})
    assert chosen.moved() == ["a.csv"]


def test_a_file_that_was_changed_with_its_old_time_put_back_has_moved(folder, old):
    root = folder(**{"a.csv": HEADER})
    before = os.stat(root / "a.csv")
    chosen = resolve(root, "a.csv")
    folder(**{"a.csv": HEADER.replace(b"1", b"2")})
    os.utime(root / "a.csv", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert chosen.moved() == ["a.csv"]


def test_a_file_that_is_gone_has_moved(folder):
    root = folder(**{"a.csv": HEADER})
    chosen = resolve(root, "a.csv")
    (root / "a.csv").unlink()
    assert chosen.moved() == ["a.csv"]


def test_a_link_that_was_pointed_elsewhere_has_moved(folder, old):
    root = folder(**{"one.dat": HEADER, "two.dat": HEADER})
    (root / "a.csv").symlink_to("one.dat")
    chosen = resolve(root, "a.csv")
    (root / "a.csv").unlink()
    (root / "a.csv").symlink_to("two.dat")
    assert (chosen.moved(), chosen.marks[0].real) == (["a.csv"], os.path.realpath(root / "one.dat"))


def test_a_young_file_is_hashed_again_at_the_second_look(folder):
    chosen = resolve(folder(**{"a.csv": HEADER}), "a.csv")
    unnoticed = replace(chosen.marks[0], content="xxh3:what it was before")
    assert replace(chosen, marks=(unnoticed,)).moved() == ["a.csv"]
    assert replace(chosen, marks=(replace(unnoticed, young=False),)).moved() == []


# ------------------------------------------------------------------ hashes


def test_the_memory_of_hashes_changes_no_fact(folder, old):
    root, memory = folder(**{"a.csv": HEADER, "b.csv": HEADER}), Memory()
    facts = [resolve(root, "*.csv", memory).facts for _ in range(2)] + [resolve(root, "*.csv").facts]
    assert facts[0] == facts[1] == facts[2]
    assert len(memory) == 2


def test_a_remembered_file_is_not_read_again(folder, old):
    root, memory = folder(**{"a.csv": HEADER}), Memory()
    resolve(root, "a.csv", memory)
    memory.update(dict.fromkeys(memory, "xxh3:remembered"))
    assert resolve(root, "a.csv", memory).marks[0].content == "xxh3:remembered"


def test_a_changed_file_of_the_same_size_is_read_again(folder, old):
    root, memory = folder(**{"a.csv": HEADER}), Memory()
    before = resolve(root, "a.csv", memory).facts
    folder(**{"a.csv": HEADER.replace(b"1", b"2")})
    assert resolve(root, "a.csv", memory).facts != before


def test_a_young_file_is_not_remembered(folder):
    memory = Memory()
    resolve(folder(**{"a.csv": HEADER}), "a.csv", memory)
    assert memory == {}


def test_a_touched_file_has_the_same_facts(folder, old):
    root = folder(**{"a.csv": HEADER})
    before = resolve(root, "a.csv").facts
    os.utime(root / "a.csv", (1, 1))
    assert resolve(root, "a.csv").facts == before


def test_facts_are_path_size_and_content(folder):
    root = folder(**{"in/a.csv": HEADER})
    assert resolve(root, "in/../in//a.csv").facts == [["files", "in/a.csv", 12, content_hash(str(root / "in/a.csv"))]]


def test_a_hash_names_its_algorithm(folder):
    root = folder(a=b"twice")
    assert content_hash(str(root / "a")) == "xxh3:915d0778e9e4929f3b87e67505d9dbcf"


# ------------------------------------------------------------------ headers


@pytest.mark.parametrize("content", [HEADER, b"\xef\xbb\xbf" + HEADER, b'"id","name"\r\n1,a\r\n', b"id,name", b""])
def test_a_header_that_names_the_columns_is_accepted(folder, content):
    assert len(resolve(folder(**{"a.csv": content}), "a.csv").marks) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"name,id\na,1\n", "in another order: name, id instead of id, name"),
        (b"id\n1\n", "lacks 'name'"),
        (b"id,name,extra\n", "has 'extra'"),
        (b"id,nom\n", "lacks 'name'; has 'nom'"),
        (b"1,a\n", "lacks 'id', 'name'; has '1', 'a'"),
        (b"id,name,name\n", "header|order"),
        (b"ID,NAME\n", "lacks 'id', 'name'"),
        (b"id;name\n", "has 'id;name'"),
        ("id,naïve\n".encode("latin-1"), "cannot be read as CSV"),
    ],
)
def test_another_header_is_refused(folder, content, why):
    with pytest.raises(NotPublished, match=why):
        resolve(folder(**{"a.csv": content}), "a.csv")


@pytest.mark.parametrize(("name", "packed"), [("a.csv.gz", gzip.compress), ("a.csv.bz2", bz2.compress)])
def test_a_packed_file_is_unpacked_to_see_its_header(folder, name, packed):
    root = folder(**{name: packed(HEADER), f"swapped/{name}": packed(b"name,id\n")})
    assert resolve(root, name).format == "csv"
    with pytest.raises(NotPublished, match="in another order"):
        resolve(root, f"swapped/{name}")


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "is not a gzip file"), (gzip.compress(HEADER, mtime=0)[:9], "cannot be read"), (HEADER, "cannot be read")],
)
def test_a_file_that_is_not_packed_as_it_says_is_refused(folder, content, why):
    with pytest.raises(NotPublished, match=why):
        resolve(folder(**{"a.csv.gz": content}), "a.csv.gz")


@pytest.mark.parametrize("option", ["sep", "delimiter", "SEP"])
def test_a_header_is_cut_where_spark_would_cut_it(folder, option):
    source = Files("a.csv", schema=SCHEMA, options={option: ";"})
    assert resolve(folder(**{"a.csv": b"id;name\n1;a\n"}), source).format == "csv"


def test_a_separator_of_two_characters_is_understood(folder):
    source = Files("a.csv", schema=SCHEMA, options={"sep": "||"})
    assert resolve(folder(**{"a.csv": b"id||name\n1||a\n"}), source).format == "csv"


def test_a_file_without_a_header_is_not_asked_for_one(folder):
    source = Files("a.csv", schema=SCHEMA, header=False)
    assert resolve(folder(**{"a.csv": b"1,a\n"}), source).format == "csv"


def test_the_column_of_broken_rows_is_not_looked_for_in_the_header(folder):
    source = Files("a.csv", schema=SCHEMA + ", _corrupt_record string", options={"mode": "PERMISSIVE"})
    assert resolve(folder(**{"a.csv": HEADER}), source).format == "csv"


# ------------------------------------------------------------------ Parquet


def test_a_whole_parquet_file_is_accepted_without_a_schema(folder):
    assert resolve(folder(**{"a.parquet": PARQUET}), Files("*.parquet")).format == "parquet"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty, which is not a Parquet file"),
        (PARQUET[:-1], "cut short"),
        (PARQUET[1:], "something else"),
        (b"PAR1", "cut short"),
        (b"PAR1PAR1", "cut short"),
        (HEADER, "something else"),
    ],
)
def test_an_empty_or_cut_parquet_file_is_refused(folder, content, why):
    with pytest.raises(NotPublished, match=why):
        resolve(folder(**{"a.parquet": content}), Files("a.parquet"))


# ------------------------------------------------------------------ formats and declarations


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.csv", "csv"), ("a.TSV", "csv"), ("a.jsonl.gz", "json"), ("a.b.ndjson", "json"), ("a.parquet", "parquet")],
)
def test_a_format_is_told_by_the_ending(name, form):
    assert format_of(name) == form


@pytest.mark.parametrize("name", ["a", "a.txt", "a.gz", "csv", "a.csv.zip"])
def test_an_ending_that_tells_no_format_is_refused(name):
    with pytest.raises(Misuse, match="cannot be told from its ending"):
        format_of(name)


def test_mixed_formats_are_refused(folder):
    with pytest.raises(Misuse, match="several formats: csv, parquet"):
        resolve(folder(**{"a.csv": HEADER, "b.parquet": PARQUET}), "*")


def test_a_format_that_was_said_is_not_told_by_the_ending(folder):
    source = Files("*", schema=SCHEMA, format="csv")
    assert resolve(folder(**{"a.txt": HEADER, "b.dat": HEADER}), source).format == "csv"


def test_csv_and_json_need_a_schema(folder):
    with pytest.raises(Misuse, match="needs a schema"):
        resolve(folder(**{"a.json": b"{}\n"}), Files("a.json"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"format": "cvs"}, "Did you mean 'csv'"),
        ({"missing": "ignore"}, "Use 'fail' or 'empty'"),
        ({"options": {"mode": "DROPMALFORMED"}}, "would drop or blank broken rows"),
        ({"options": {"mode": "permissive"}}, "would drop or blank broken rows"),
        ({"options": {"Mode": "DROPMALFORMED"}}, "would drop or blank broken rows"),
        ({"pattern": "{exec_date}.csv"}, "is not a placeholder"),
    ],
)
def test_a_bad_declaration_is_refused_before_anything_is_read(changes, why):
    with pytest.raises(Misuse, match=why):
        Files(**{"pattern": "a.csv", "schema": SCHEMA, **changes})


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        ("", []),
        ("id bigint", ["id"]),
        ("id bigint, price decimal(10,2), day date", ["id", "price", "day"]),
        ("a struct<b: int, c: array<string>>, d map<string, int>", ["a", "d"]),
        ("`odd name` string, `b` int", ["odd name", "b"]),
        ("id: bigint, name: string", ["id", "name"]),
        ("id:bigint, name:string", ["id", "name"]),
        ("id bigint NOT NULL, name string COMMENT 'a name'", ["id", "name"]),
        ("id bigint COMMENT 'one, two', name string", ["id", "name"]),
        ("`a,b` string, c int", ["a,b", "c"]),
        ("`a``b` string", ["a`b"]),
        ("id bigint,\n  name string\n", ["id", "name"]),
    ],
)
def test_the_columns_of_a_schema_are_those_that_spark_would_see(schema, columns):
    assert schema_columns(schema) == columns


@pytest.mark.parametrize(
    "said",
    [{"on_bad_file": "set_aside"}, {"on_changed_file": "ignore"}, {"quiet_for": "5 minutes"}, {"batch_files": 10}],
    ids=lambda said: next(iter(said)),
)
def test_what_is_about_tracked_files_is_refused_for_others(said):
    with pytest.raises(Misuse, match=f"{next(iter(said))}= is about files that are tracked"):
        twice.files("landing/*.csv", schema=SCHEMA, **said)
    assert twice.files("landing/*.csv", schema=SCHEMA, track=True, **said)
