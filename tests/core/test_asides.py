"""How are rows kept that were set aside?"""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twice.asides import ROWS_IN_A_BODY, AsideRow, bodies, decode, encode, text_of
from twice.errors import NotPublished


@given(st.lists(st.tuples(st.text(), st.integers(1), st.binary(), st.text())))
def test_rows_come_back_as_they_were_to_the_byte(given_rows):
    rows = [AsideRow(file, line, text_of(raw), "csv", reason) for file, line, raw, reason in given_rows]
    kept = decode(encode(rows))
    assert kept == rows
    assert [row.raw_bytes for row in kept] == [raw for _, _, raw, _ in given_rows]


def test_the_same_rows_make_the_same_bytes():
    row = AsideRow("a.csv", 2, "x", "csv", "no")
    assert encode([row]) == encode([row])


def test_many_rows_are_cut_into_bodies():
    rows = (AsideRow("a.csv", number, "x", "csv", "no") for number in range(2 * ROWS_IN_A_BODY + 1))
    made = list(bodies(rows))
    assert [count for count, _ in made] == [ROWS_IN_A_BODY, ROWS_IN_A_BODY, 1]
    assert [row.line for _, body in made for row in decode(body)] == list(range(2 * ROWS_IN_A_BODY + 1))
    assert list(bodies([])) == []


@pytest.mark.parametrize(
    "body", [b"", b"x", encode([])[:-3], gzip.compress(b"{}\n", mtime=0), gzip.compress(b"{", mtime=0)]
)
def test_a_damaged_body_is_named(body):
    if body == b"":
        assert decode(body) == []
        return
    with pytest.raises(NotPublished, match="cannot be read back"):
        decode(body)
