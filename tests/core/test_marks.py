"""Which files has a target taken in?"""

from dataclasses import dataclass, replace

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from twice.errors import Fenced, NotPublished
from twice.marks import (
    FORGOTTEN,
    GONE,
    PUBLISHED,
    SEEN,
    SET_ASIDE,
    SETTLED,
    STATES,
    SUPERSEDED,
    Body,
    Mark,
    Taken,
)

ATTEMPT = "00000000-1-00000000"
# What a listing of a folder can return: no NUL, no slash at will, and bytes that are no text in place of characters.
NAMES = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
        st.integers(0xDC80, 0xDCFF).map(chr),
    ),
    min_size=1,
    max_size=8,
)
PATHS = st.one_of(st.sampled_from(["a.csv", "b.csv", "in/data[1].csv", "in/%2F\n{}.csv", "in/\udcff.csv"]), NAMES)
CONTENTS = st.one_of(st.just(""), st.integers(0, 5).map("xxh3:{}".format))


@dataclass(frozen=True)
class Look:
    path: str
    size: int
    mtime_ns: int


@st.composite
def marks(draw):
    return Mark(
        path=draw(PATHS),
        size=draw(st.integers(0, 2)),
        mtime_ns=draw(st.one_of(st.integers(-1, 1), st.just(2**62), st.just(2**63))),
        content=draw(CONTENTS),
        rows=draw(st.one_of(st.none(), st.integers(0, 3))),
        generation=draw(st.integers(0, 3)),
        state=draw(st.sampled_from(STATES)),
        reason=draw(st.sampled_from(["", "cut short"])),
        real=draw(st.sampled_from(["", "elsewhere/\udcfe.csv"])),
    )


class Beside:
    """Bodies that are kept beside a table, and how often one was read."""

    def __init__(self):
        self.bodies = {}
        self.read_labels = []

    def read(self, label):
        self.read_labels.append(label)
        return self.bodies.get(label)

    def publish(self, taken, added, generation, previous=None):
        label, body = taken.adding(added, generation, ATTEMPT, taken.label if previous is None else previous)
        assert label not in self.bodies
        self.bodies[label] = body
        return Taken(self.read, label)


def mark(path, state=PUBLISHED, **values):
    known = {"size": 1, "mtime_ns": 2, "content": f"xxh3:{path}", "rows": 1, "generation": 1}
    return Mark(path=path, state=state, **{**known, **values})


def look(mark):
    return Look(mark.path, mark.size, mark.mtime_ns)


def assert_says(taken, told):
    """What was taken in is what a plain dict of paths holds."""
    assert {one.path: one for one in taken.all()} == told
    assert sum(1 for _ in taken.all()) == len(told)
    states = [one.state for one in told.values()]
    assert taken.counts() == {state: states.count(state) for state in STATES if state in states}
    for state in STATES:
        assert {one.path for one in taken.all(state)} == {one.path for one in told.values() if one.state == state}
    assert taken.by_path([*told, "nobody"]) == told
    there = {one.content for one in told.values() if one.is_there and one.content}
    found = taken.by_content([f"xxh3:{number}" for number in range(6)] + [""])
    assert set(found) == there
    assert all(told[one.path] == one and one.content == content for content, one in found.items())


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(marks(), max_size=6), max_size=12), st.lists(marks(), max_size=10), st.data())
def test_any_sequence_of_publishes_is_told_as_a_plain_dict_tells_it(publishes, others, data):
    beside, told, past = Beside(), {}, [{}]
    taken = Taken(beside.read)
    for generation, added in enumerate(publishes, 1):
        taken = beside.publish(taken, added, generation)
        told = {**told, **{one.path: one for one in added}}
        past.append(told)
    assert_says(taken, told)
    looks = [look(one) for one in [*told.values(), *others, *(one for added in publishes for one in added)]]
    settled = {look(one) for one in told.values() if one.state in SETTLED}
    assert list(taken.unknown(looks)) == [one for one in looks if one not in settled]
    generation = data.draw(st.integers(0, len(publishes)))
    assert_says(taken.at_generation(generation), past[generation])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(marks(), min_size=1, max_size=4), min_size=2, max_size=6), st.data())
def test_after_a_restore_the_marks_of_that_generation_count_and_newer_ones_are_still_found(publishes, data):
    beside, told, past = Beside(), {}, [{}]
    taken = Taken(beside.read)
    for generation, added in enumerate(publishes, 1):
        taken = beside.publish(taken, added, generation)
        told = {**told, **{one.path: one for one in added}}
        past.append(told)
    restored = data.draw(st.integers(0, len(publishes)))
    fresh = data.draw(st.lists(marks(), max_size=3))
    newest = beside.publish(taken.at_generation(restored), fresh, len(publishes) + 1, previous=taken.label)
    assert_says(newest, {**past[restored], **{one.path: one for one in fresh}})
    for generation, before in enumerate(past):
        assert_says(newest.at_generation(generation), before)


def test_a_thousand_publishes_leave_few_bodies_that_count():
    beside = Beside()
    taken = Taken(beside.read)
    for generation in range(1, 1001):
        taken = beside.publish(taken, [mark(f"{generation}.csv", generation=generation)], generation)
        assert len(taken.labels) <= 10
    assert taken.counts() == {PUBLISHED: 1000}
    assert [number for number, _ in taken.history()] == list(range(1000, 0, -1))
    written = sum(len(body) for body in beside.bodies.values())
    assert written < 20 * 1000 * 200, "each mark is written again some ten times, not a thousand"


def test_a_path_that_was_marked_anew_is_not_known_as_it_was_before():
    beside = Beside()
    before = mark("a.csv")
    taken = beside.publish(Taken(beside.read), [before, *(mark(f"{n}.csv") for n in range(50))], 1)
    changed = replace(before, mtime_ns=3, content="xxh3:new")
    taken = beside.publish(taken, [changed], 2)
    assert len(taken.labels) == 2
    assert list(taken.unknown([look(before), look(changed)])) == [look(before)]
    assert taken.by_content(["xxh3:a.csv"]) == {}
    forgotten = beside.publish(taken, [replace(changed, state=FORGOTTEN)], 3)
    assert list(forgotten.unknown([look(before), look(changed)])) == [look(before), look(changed)]
    assert list(forgotten.by_content(["xxh3:new"])) == ["xxh3:new"], "its rows are in the table, so a copy of it is one"
    without_rows = beside.publish(forgotten, [replace(changed, state=FORGOTTEN, content="")], 4)
    assert without_rows.by_content(["xxh3:new"]) == {}


def test_it_is_known_by_which_algorithms_contents_are_known_and_where_rows_carry_their_file():
    beside = Beside()
    taken = Taken(beside.read)
    for generation, content, column in (
        (1, "xxh3:a", ""),
        (2, "sha256:b", "file"),
        (3, "xxh3:c", "file"),
        (4, "xxh3:d", ""),
    ):
        one = replace(mark(f"{generation}.csv", generation=generation), content=content)
        label, body = taken.adding([one], generation, "attempt", taken.label, column=column)
        beside.bodies[label] = body
        taken = Taken(beside.read, label)
    assert taken.hashes == {"xxh3", "sha256"}
    assert [taken.column_of(one) for one in sorted(taken.all(), key=lambda one: one.path)] == ["", "file", "file", ""]


@pytest.mark.parametrize("state", STATES)
def test_a_file_is_looked_at_again_unless_something_is_settled_about_it(state):
    beside = Beside()
    taken = beside.publish(Taken(beside.read), [mark("a.csv", state)], 1)
    known = not list(taken.unknown([look(mark("a.csv"))]))
    assert known == (state in (PUBLISHED, SET_ASIDE, SUPERSEDED, GONE))


def test_the_rows_of_a_file_that_is_gone_or_bad_since_are_still_there():
    beside = Beside()
    gone = [mark("a.csv", GONE), mark("b.csv", GONE, rows=None)]
    aside = [mark("c.csv", SET_ASIDE), mark("d.csv", SET_ASIDE, rows=None)]
    files = [*gone, *aside, mark("e.csv", SEEN)]
    taken = beside.publish(Taken(beside.read), files, 1)
    assert list(taken.by_content([one.content for one in files])) == ["xxh3:a.csv", "xxh3:c.csv"]


def test_nothing_is_read_before_it_is_asked_for():
    beside = Beside()
    taken = beside.publish(Taken(beside.read), [mark("a.csv")], 1)
    assert beside.read_labels == []
    assert list(taken.unknown([look(mark("a.csv"))])) == []
    assert taken.by_path(["a.csv"])
    assert beside.read_labels == [taken.label]
    assert list(Taken(beside.read).all()) == []
    assert beside.read_labels == [taken.label]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_body_that_is_damaged_anywhere_is_refused(data):
    label, body = Taken({}.get).adding([mark("a.csv"), mark("b.csv")], 1, ATTEMPT, "")
    place = data.draw(st.integers(0, len(body) - 1))
    flipped = body[:place] + bytes([body[place] ^ data.draw(st.integers(1, 255))]) + body[place + 1 :]
    for damaged in (flipped, body[:place], body + body[: place + 1]):
        with pytest.raises(NotPublished, match="are damaged"):
            list(Taken({label: damaged}.get, label).all())


def test_a_body_under_the_label_of_another_is_refused():
    label, _ = Taken({}.get).adding([mark("a.csv")], 1, ATTEMPT, "")
    _, other = Taken({}.get).adding([mark("b.csv")], 1, ATTEMPT, "")
    with pytest.raises(NotPublished, match="are damaged"):
        Taken({label: other}.get, label).counts()


def test_a_body_that_is_missing_stops_everything_that_builds_on_it():
    beside = Beside()
    first = beside.publish(Taken(beside.read), [mark(f"{n}.csv") for n in range(9)], 1)
    taken = beside.publish(first, [mark("a.csv")], 2)
    del beside.bodies[first.label]
    with pytest.raises(Fenced, match=f"{first.label} are not beside the table"):
        list(taken.unknown([]))
    with pytest.raises(Fenced, match="not beside the table"):
        Taken(beside.read, taken.label).at_generation(1).counts()


def test_a_body_of_a_newer_twice_is_not_taken_for_a_damaged_one():
    newer = b"twice marks 2\n" + b"what nobody knows yet"
    checksum = xxhash.xxh3_128_digest(newer)
    with pytest.raises(NotPublished, match="newer Twice"):
        Body(f"marks-1-{ATTEMPT}-{checksum.hex()[:16]}", newer + checksum)


def test_marks_are_unpacked_by_blocks():
    beside = Beside()
    many = [mark(f"{number:05}.csv", size=number) for number in range(10_000)]
    taken = beside.publish(Taken(beside.read), many, 1)
    assert list(taken.all()) == many
    assert taken.by_path(["09999.csv", "00000.csv", "04096.csv"]) == {
        one.path: one for one in (many[0], many[4096], many[9999])
    }
