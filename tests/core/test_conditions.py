"""Which texts are conditions, and which would change the statement that they stand in?"""

import pytest

import twice
from twice import conditions
from twice.errors import Misuse

SPARK = [
    "day = DATE '{execution_date}'",
    "number = {execution_date_nodash} and not (a or b)",
    "`a b` <=> 1",
    "a = '--' or a = ';' or a = ')'",
    "name rlike 'x' and exists(parts, part -> part > 1)",
    "is_late",
    "array_contains(tags, 'x')",
    "case when a then b else true end",
    "at >= TIMESTAMP '{execution_date}' - INTERVAL 3 DAYS",
    "true",
]
POSTGRES = [
    "day = '{execution_date}'::date and \"a b\" ~ 'x'",
    "tags @> array['x'] and body ->> 'a' = 'b'",
    "note = $$--$$",
    "id similar to 'x' or id = any(array[1, 2])",
]
NONE = {
    "day = '{execution_date}' -- only today": "has a comment",
    "a = 1 /* and b = 2 */": "has a comment",
    "a = 1;": "has a semicolon",
    "a = 1; drop table x": "has a semicolon",
    "day = '{execution_date}') or (1 = 1": "Unexpected token",
    "(a = 1": "Expecting",
    "a = 'x": "tokenizing",
    "a = 1 or": "Required keyword",
    "a = 1 as b": "neither true nor false",
    "select true": "neither true nor false",
    "true union select false": "neither true nor false",
    "a + 1": "neither true nor false",
    "'true'": "neither true nor false",
    "-- nothing": "neither true nor false",
}


@pytest.mark.parametrize(
    ("text", "dialect"), [*((one, "spark") for one in SPARK), *((one, "postgres") for one in POSTGRES)]
)
def test_a_condition_is_taken_as_it_is(text, dialect):
    conditions.check(text, dialect)


@pytest.mark.parametrize("dialect", ["spark", "postgres", "sqlite"])
@pytest.mark.parametrize("text", NONE)
def test_what_is_more_than_a_condition_or_none_is_refused(text, dialect):
    with pytest.raises(Misuse, match=NONE[text]):
        conditions.check(text, dialect)


@pytest.mark.parametrize("store", ["memory", "parquet", "delta", "postgres"])
@pytest.mark.parametrize(
    "pattern",
    [twice.data_overwrite(where="day = '{execution_date}' -- x"), twice.transactional_writer(check="a = 1 -- x")],
    ids=["where", "check"],
)
def test_a_condition_is_looked_at_where_its_pipeline_is_declared(tmp_path, store, pattern):
    from twice import settings
    from twice.pipelines import pipeline
    from twice.project import Project

    project = Project(settings.load(tmp_path, {}), None)
    declared = pipeline(
        name="one",
        every="1 day",
        start="2024-09-01",
        source=twice.files("x.csv", schema="a int"),
        target=f"{store}:lake/t",
        pattern=pattern,
    )
    with pytest.raises(Misuse, match="has a comment"):
        twice.plan(declared(lambda rows: rows), at="2024-09-20", project=project)
