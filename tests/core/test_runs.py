"""Is a slot the same text on every machine, and read back as the same slot?"""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from samples import ATTEMPT, interval, moment, receipt_of, slot_of

import twice
from twice.errors import Misuse
from twice.intervals import Interval
from twice.runs import Receipt, Run, Slot, Target, check_name, digest, is_attempt, is_of, new_attempt, new_try

PIPELINES = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,99}", fullmatch=True)
PARTS = st.text(
    st.characters(codec="utf-8", min_codepoint=32, exclude_characters='\\`"*?{}[]/'), min_size=1, max_size=40
)
NAMES = st.lists(PARTS.filter(lambda part: part not in (".", "..")), min_size=1, max_size=4).map("/".join)
MOMENTS = st.datetimes(datetime(1000, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))
INTERVALS = st.builds(
    lambda start, length: Interval(start, start + length),
    MOMENTS,
    st.timedeltas(timedelta(microseconds=1), timedelta(days=400)),
)


# ------------------------------------------------------------------ slots


def test_a_slot_is_written_without_a_machine():
    slot = slot_of("2024-09-20", target="delta:lake/visits")
    assert slot.text == "v1:out:delta:lake/visits:2024-09-20T00:00Z/2024-09-21T00:00Z"


@pytest.mark.parametrize(
    ("key", "text"),
    [("", "key="), ("01", "key=01"), ("a/b:c", "key=a%2Fb%3Ac"), ("key=x", "key=key%3Dx"), ("é %", "key=%C3%A9%20%25")],
)
def test_a_key_is_quoted(key, text):
    assert slot_of(key).text == f"v1:out:memory:lake/out:{text}"


@given(PIPELINES, NAMES, st.one_of(INTERVALS, st.text()))
@example("out", "a:b/c%3Ad", "v1:out:memory:x:key=y")
@example("out", "lake/out", "2024-09-20T00:00Z/2024-09-21T00:00Z")
@example("out", "lake/o'ut", "")
def test_a_slot_is_read_back_as_it_was_written(pipeline, name, part):
    assume(":/" not in name)
    slot = Slot(pipeline, Target.parse(f"delta:{name}"), part)
    assert Slot.parse(slot.text) == slot
    assert slot.text.isascii()


@given(st.text(), st.text())
@example("1", "01")
@example("a", "a ")
@example("%2F", "/")
def test_two_keys_never_share_a_slot(one, other):
    assume(one != other)
    assert slot_of("k" + one).text != slot_of("k" + other).text


def test_a_slot_of_a_newer_twice_is_refused():
    with pytest.raises(Misuse, match="newer Twice"):
        Slot.parse("v2:out:memory:lake/out:key=a")


@pytest.mark.parametrize("text", ["v2:out", "v1:out:memory", "", "2024-09-20"])
def test_what_is_no_slot_is_refused(text):
    with pytest.raises(Misuse):
        Slot.parse(text)


def test_a_slot_is_called_by_its_start_or_its_key():
    assert [slot_of(part).label for part in ("2024-09-20", "pl", "")] == ["2024-09-20T00:00Z", "pl", "(the only slot)"]


# ------------------------------------------------------------------ targets and names


def test_a_target_is_a_store_and_a_name():
    assert Target.parse("delta:a:b/c") == Target("delta", "a:b/c")
    assert (Target.parse("delta:lake/a").is_path, Target.parse("delta:visits").is_path) == (True, False)
    assert Target.parse("delta:lake/a").text == "delta:lake/a"


@pytest.mark.parametrize("text", ["", "delta", "delta:", ":name", "1delta:x", "de lta:x", "delta/x:y"])
def test_what_is_no_target_is_refused(text):
    with pytest.raises(Misuse):
        Target.parse(text)


@pytest.mark.parametrize("name", ["/abs", "a//b", "a/", "../x", "a/../b", "./a", "a/.", "..", "."])
def test_a_target_outside_its_root_is_refused(name):
    with pytest.raises(Misuse, match="leaves the root"):
        Target.parse(f"parquet:{name}")


ADDRESSES = [
    "s3://bucket/x.csv",
    "s3a:bucket/x.csv",
    "hdfs://host:9000/x.csv",
    "abfss://c@a.net/x.csv",
    "HTTPS://h/x.csv",
    "x-y.z+1:/x.csv",
]
DECLARED = {
    "files": lambda place: twice.files(place, schema="id int"),
    "tracked files": lambda place: twice.files(place, schema="id int", track=True),
    "a marker": lambda place: twice.files("in/*.csv", schema="id int", done=place),
    "a marker of each file": lambda place: twice.files("in/*.csv", schema="id int", track=True, done=place),
    "a table": lambda place: twice.table(f"parquet:{place}"),
    "a table of a query": lambda place: twice.query("select * from t", tables={"t": f"delta:{place}"}),
    "a target": lambda place: twice.pipeline(
        name="out",
        source=twice.files("in/*.csv", schema="id int"),
        target=f"parquet:{place}",
        pattern=twice.merger(keys=["id"]),
    )(id),
    "a delivered file": lambda place: twice.keyed(file=place.replace("x.csv", "{execution_date}.csv")),
}
TARGETS = ("a table", "a table of a query", "a target")


@pytest.mark.parametrize("place", ADDRESSES)
@pytest.mark.parametrize("what", DECLARED)
def test_an_address_is_refused_where_it_is_declared(what, place):
    """Taken for a folder, it would have no files: with missing='empty' that is a slot without rows."""
    if what in TARGETS:
        place = place.replace(":bucket", ":/bucket")  # tables may have a colon in their names
    with pytest.raises(Misuse, match="is an address"):
        DECLARED[what](place)


def test_an_address_is_no_target():
    with pytest.raises(Misuse, match="'s3://bucket/x' is an address"):
        Target.parse("s3://bucket/x")


@pytest.mark.parametrize(
    ("place", "path"), [("file:///data/x.csv", "/data/x.csv"), ("file:/data/x.csv", "/data/x.csv"), ("FILE:///x", "/x")]
)
def test_an_address_of_a_local_file_is_refused_with_its_path(place, path):
    with pytest.raises(Misuse, match=f"Write the path itself: '{path}'"):
        twice.files(place, schema="id int")


@pytest.mark.parametrize(
    "path",
    ["in/x.csv", "/in/x.csv", "{start:%Y}/x.csv", "10:00/x.csv", "in/a:b/x.csv", "./a:b/x.csv", "in{end:%H}/x.csv"],
)
def test_a_colon_alone_makes_no_address(path):
    assert twice.files(path, schema="id int").pattern == path


@pytest.mark.parametrize("name", ["a*b", "a?", "a[1]", "{a}", "a\\b", "a`b", 'a"b', "a\nb", "a\0b", "a/" + "ü" * 101])
def test_a_target_that_a_tool_would_misread_is_refused(name):
    with pytest.raises(Misuse, match="misread"):
        Target.parse(f"parquet:{name}")


@pytest.mark.parametrize("name", ["", "1a", "_a", "a b", "a:b", "ä", "a" * 101, "a\n"])
def test_a_bad_name_is_refused(name):
    with pytest.raises(Misuse, match="cannot name a pipeline"):
        check_name("pipeline", name)


# ------------------------------------------------------------------ receipts


def test_a_receipt_survives_json():
    receipt = receipt_of("v1:out:memory:lake/out:key=a", 2, partitions=("day=1", "day=2"), first_version=7)
    assert Receipt.from_json(json.loads(json.dumps(receipt.to_json()))) == receipt


def test_a_receipt_ignores_what_a_later_twice_added():
    receipt = receipt_of("v1:out:memory:lake/out:key=a")
    assert Receipt.from_json({**receipt.to_json(), "positions": {"0": 17}, "later": []}) == receipt


def test_a_receipt_keeps_the_version_in_which_it_was_first_written():
    receipt = receipt_of("v1:out:memory:lake/out:key=a")
    assert receipt.first_seen_in(0).first_seen_in(9).first_version == 0


# ------------------------------------------------------------------ runs and attempts


def test_a_run_knows_its_execution_time_or_its_key():
    assert Run(slot_of("2024-09-20"), 1, ATTEMPT).execution_time == moment("2024-09-20")
    assert Run(slot_of("2024-09-20"), 1, ATTEMPT).interval == interval("2024-09-20")
    assert Run(slot_of("pl"), 1, ATTEMPT).key == "pl"


def test_a_run_without_a_calendar_has_no_execution_time():
    with pytest.raises(Misuse, match="has no calendar"):
        _ = Run(slot_of("pl"), 1, ATTEMPT).execution_time


@given(st.text("0123456789abcdef", min_size=8, max_size=16), st.integers(1, 10**9))
def test_every_attempt_is_told_from_a_strangers_folder(ledger_id, counter):
    assert is_attempt(new_attempt(ledger_id, counter))


@pytest.mark.parametrize(
    "name",
    ["", "day=2024-09-20", "0123abcd-1", "0123abcd-x-89abcdef", "0123ABCD-1-89abcdef", ATTEMPT + "\n", ATTEMPT + "0"],
)
def test_a_strangers_folder_is_no_attempt(name):
    assert not is_attempt(name)


def test_two_attempts_of_one_number_have_two_names():
    assert new_attempt("0123abcd", 1) != new_attempt("0123abcd", 1)


def test_tries_have_names_of_their_own_that_tell_their_attempt():
    attempt, other = new_attempt("0123abcd", 1), new_attempt("0123abcd", 11)
    names = {new_try(attempt) for _ in range(20)}
    assert len(names | {attempt}) == 21
    assert all(is_attempt(name) and is_of(name, {other, attempt}) and not is_of(name, {other}) for name in names)
    assert is_of(attempt, {attempt})
    assert not is_of(attempt, ())


def test_a_digest_does_not_change_between_versions():
    assert digest("twice") == "dc8ffdbf2736dbdf39508017ac594e0d"
