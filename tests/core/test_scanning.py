"""Which lines of a text file are rows?"""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twice.errors import BadFile
from twice.sources import scanning
from twice.sources.scanning import Lines, Tally, count, numbered, pieces

CSV = Lines("csv", header=True)
PLAIN = Lines("csv")
JSON = Lines("json")


def counted(content, lines, piece_bytes=1 << 20):
    tally, before = Tally(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_PIECE_BYTES", piece_bytes)
        for piece in pieces("a", io.BytesIO(content)):
            count(piece, before, lines, tally)
            before += piece.count(b"\n")
    return tally


@pytest.mark.parametrize(
    ("content", "lines", "rows"),
    [
        (b"", CSV, 0),
        (b"id\n", CSV, 0),
        (b"id\n1\n2\n", CSV, 2),
        (b"id\n1\n2", CSV, 2),
        (b"\xef\xbb\xbfid\r\n1\r\n2\r3\n", CSV, 3),
        (b"\n \t\nid\n\n1\n\x00\x01\n2\n\n", CSV, 2),
        (b"#c\nid\n#c\n1\n # no comment\n", Lines("csv", header=True, comment=b"#"), 2),
        (b"1\n2\n", PLAIN, 2),
        (b'{"a":1}\n\n \t\n{"a":2}', JSON, 2),
        (b'\x00\n{"a":2}', JSON, 2),
        (b'{"a":1}\n [{"a":1},{"a":2}]', JSON, None),
        (b'{"a":1}\n [{"a":1},{"a":2}]', Lines("json", one_row_each=True), 2),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 1 << 20])
def test_rows_are_counted_as_spark_counts_them(content, lines, rows, piece_bytes):
    if piece_bytes < 3 and content.startswith(b"\xef"):
        piece_bytes = 3  # a mark is read whole: no reader gives fewer bytes than asked for before the end
    assert counted(content, lines, piece_bytes).rows == rows


def test_a_header_that_stands_again_is_found_with_its_line():
    assert counted(b"id\n1\nid\n2\nid\n", CSV).header_again == 3
    assert counted(b"id\n1\nidx\nxid\n", CSV).header_again == 0


@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b" ", b"id", b"\x00"])), st.integers(1, 9))
def test_lines_are_the_same_in_pieces_of_any_size(parts, piece_bytes):
    content = b"".join(parts)
    plain = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    expected = plain.removesuffix(b"\n").split(b"\n") if plain else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_PIECE_BYTES", piece_bytes)
        found = list(numbered("a", io.BytesIO(content)))
    assert found == list(enumerate(expected, 1))
    assert counted(content, CSV, piece_bytes) == counted(content, CSV)


def test_a_line_without_an_end_is_not_held_in_memory(monkeypatch):
    monkeypatch.setattr(scanning, "_LONGEST_LINE_BYTES", 10)
    with pytest.raises(BadFile, match="'a' has a line of more than 10 bytes"):
        counted(b"x" * 100, PLAIN, 8)
