"""Which rows may go on, beyond what their types say?"""

from datetime import date
from decimal import Decimal

import pandera.polars as pandera
import pytest
from pandera.polars import Check

import twice
from twice.errors import Misuse
from twice.rules import Rule, allowed, check_limit, rules_of


def column(*checks, **given):
    return pandera.DataFrameSchema({"n": pandera.Column(checks=list(checks), **{"nullable": True, **given})})


def texts(*checks, **given):
    return [rule.text for rule in rules_of(column(*checks, **given))]


@pytest.mark.parametrize("text", ["", "  ", "a > 1; drop table x", "select 1", "a in (select b from c)", 7])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(Misuse, match=r"twice.rule\('amount >= 0'\)"):
        twice.rule(text)


@pytest.mark.parametrize("text", ["day < current_date", "day < current_date()", "rand() > 0.5", "t < NOW()"])
def test_a_rule_that_judges_differently_in_every_run_is_refused(text):
    with pytest.raises(Misuse, match="another one in every run"):
        twice.rule(text)


@pytest.mark.parametrize("text", ["name <> 'rand()'", "`now` > 1", "now > 1", "a = ';'", "random_id > 0"])
def test_a_name_or_a_text_that_only_looks_so_is_fine(text):
    assert twice.rule(text).text == text


def test_a_rule_tells_its_name_if_it_has_one():
    assert twice.rule("n >= 0").words == "breaks the rule: n >= 0"
    assert twice.rule("n >= 0", name="counts").words == "breaks the rule 'counts': n >= 0"


def test_rules_are_given_one_by_one_or_as_a_list():
    one = Rule("n > 0")
    assert rules_of(None) == ()
    assert rules_of(one) == rules_of([one]) == (one,)


@pytest.mark.parametrize("given", ["n > 0", ["n > 0"], 7, [None]])
def test_what_is_no_rule_is_refused(given):
    with pytest.raises(Misuse, match="are no rules"):
        rules_of(given)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (Check.gt(0), "`n` > 0"),
        (Check.ge(Decimal("0.5")), "`n` >= 0.5"),
        (Check.lt(1.5), "`n` < double('1.5')"),
        (Check.le(date(2024, 1, 2)), "`n` <= date'2024-01-02'"),
        (Check.eq(True), "`n` = true"),
        (Check.ne("o'b\\c"), r"`n` <> 'o\'b\\c'"),
        (Check.in_range(1, 3), "`n` >= 1 and `n` <= 3"),
        (Check.in_range(1, 3, include_min=False, include_max=False), "`n` > 1 and `n` < 3"),
        (Check.isin(["b", "a"]), "`n` in ('b', 'a')"),
        (Check.notin({"b", "a"}), "`n` not in ('a', 'b')"),
        (Check.str_matches("a+"), "`n` rlike '^(?:a+)'"),
        (Check.str_contains(r"\d"), r"`n` rlike '\\d'"),
        (Check.str_startswith("a"), "startswith(`n`, 'a')"),
        (Check.str_endswith("a"), "endswith(`n`, 'a')"),
        (Check.str_length(min_value=1), "length(`n`) >= 1"),
    ],
)
def test_a_check_of_pandera_becomes_a_rule(check, text):
    assert texts(check) == [text]


def test_a_column_that_may_not_be_null_becomes_a_rule():
    assert texts(nullable=False) == ["`n` is not null"]


def test_a_model_of_pandera_is_asked_for_its_schema():
    class Model(pandera.DataFrameModel):
        n: int = pandera.Field(ge=0)

    assert rules_of(Model) == (Rule("`n` is not null", "n is there"), Rule("`n` >= 0", "n: greater_than_or_equal_to"))


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (column(Check(lambda data: True, name="is_prime")), "the check 'is_prime' of the column 'n'"),
        (column(Check.gt(object())), "the check 'greater_than'"),
        (column(Check.eq(1, ignore_na=False)), "the check 'equal_to'"),
        (column(Check.str_matches("(?P<a>b)")), "the check 'str_matches'"),
        (column(unique=True), "unique=True of the column 'n'"),
        (pandera.DataFrameSchema({"^n.*$": pandera.Column(regex=True)}), r"the column pattern '\^n\.\*\$'"),
        (pandera.DataFrameSchema({}, checks=[Check(lambda data: True)]), "the checks of the whole frame"),
        (pandera.DataFrameSchema({"n": pandera.Column()}, unique=["n"]), "the unique of the whole frame"),
    ],
)
def test_what_has_no_sql_is_refused_by_its_name(schema, named):
    with pytest.raises(Misuse, match=f"asks for {named}.*cannot be said"):
        rules_of(schema)


@pytest.mark.parametrize(
    ("limit", "parsed", "rows"),
    [(None, 100, 0), (0, 100, 0), (7, 3, 7), ("1%", 99, 0), ("1%", 100, 1), ("0.5 %", 1000, 5), ("100%", 3, 3)],
)
def test_a_limit_is_a_count_or_a_share(limit, parsed, rows):
    check_limit(limit)
    assert allowed(limit, parsed) == rows


@pytest.mark.parametrize("limit", [-1, "1", "x%", "101%", "-1%", True, 0.5, ""])
def test_another_limit_is_refused(limit):
    with pytest.raises(Misuse, match="neither a count nor a share"):
        twice.files("a.csv", max_quarantined=limit)
