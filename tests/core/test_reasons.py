"""Why can a line not be read?"""

import pytest

from bad_inputs import BAD_ROWS
from twice.rules import Rule
from twice.sources import reasons
from twice.sources.reasons import Column, Reasons

COLUMNS = (Column("id", "bigint"), Column("name", "string"), Column("amount", "decimal(5,2)"), Column("day", "date"))
OF = Reasons(COLUMNS, ("id",), (Rule("amount >= 0"), Rule("n > 1", "large")))


def test_every_answer_is_told_in_words():
    assert OF.of("csv", b"", "null:0 rule:1") == "id is NULL; breaks the rule 'large': n > 1"
    for answer in (reasons.NUL, reasons.WIDE, reasons.SEVERAL, reasons.HALF, reasons.REPEATED, reasons.NOT_TEXT):
        assert OF.of("csv", b"x", answer)


@pytest.mark.parametrize("case", BAD_ROWS, ids=lambda case: f"{case.form} {case.what}")
def test_a_torn_line_never_fails_its_reason(case):
    """Whatever Spark says is torn gets some words, those of the case where Python sees the same."""
    said = OF.of(case.form, case.line, f"{reasons.TORN} 0 2 3")
    assert said
    assert len(said) < 500


def test_an_answer_that_python_does_not_understand_is_told_plainly():
    assert OF.of("csv", b"1,a,1,2024-09-20", "torn") == "cannot be read with the declared schema"
    assert OF.of("json", b'{"id": 1}', "torn") == "cannot be read with the declared schema"


def test_other_separators_and_quotes_are_kept_to():
    tabs = Reasons(COLUMNS, (), (), separator="\t", quote="'")
    assert tabs.of("csv", b"x\t'a\tb'\t1\t2024-09-20", "torn 0") == "id = 'x' is no bigint"
    long = Reasons(COLUMNS, (), (), separator="||")
    assert long.of("csv", b"x||a", "torn 0") == "2 fields instead of 4"
    bare = Reasons(COLUMNS, (), (), quote="")
    assert bare.of("csv", b'x,"a,1,2024-09-20', "torn 0") == "id = 'x' is no bigint"
