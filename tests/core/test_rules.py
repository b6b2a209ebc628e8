"""Which rows may go on, beyond what their types say?"""

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

import twice
from twice.errors import Misuse
from twice.rules import Rule, allowed, check_limit, rules_of


@dataclass
class Check:
    """A check as pandera shows it: a name, and what it was made with."""

    name: str
    statistics: dict[str, Any] = field(default_factory=dict)
    ignore_na: bool = True
    groupby: Any = None


@dataclass
class Column:
    nullable: bool = True
    checks: list[Check] = field(default_factory=list)
    unique: bool = False
    regex: bool = False


@dataclass
class Schema:
    columns: dict[str, Column]
    checks: list[Check] = field(default_factory=list)
    index: Any = None
    unique: Any = None


def texts(*checks, **column):
    return [rule.text for rule in rules_of(Schema({"n": Column(checks=list(checks), **column)}))]


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
        (Check("greater_than", {"min_value": 0}), "`n` > 0"),
        (Check("greater_than_or_equal_to", {"min_value": Decimal("0.5")}), "`n` >= 0.5"),
        (Check("less_than", {"max_value": 1.5}), "`n` < double('1.5')"),
        (Check("less_than_or_equal_to", {"max_value": date(2024, 1, 2)}), "`n` <= date'2024-01-02'"),
        (Check("equal_to", {"value": True}), "`n` = true"),
        (Check("not_equal_to", {"value": "o'b\\c"}), r"`n` <> 'o\'b\\c'"),
        (Check("in_range", {"min_value": 1, "max_value": 3}), "`n` >= 1 and `n` <= 3"),
        (
            Check("in_range", {"min_value": 1, "max_value": 3, "include_min": False, "include_max": False}),
            "`n` > 1 and `n` < 3",
        ),
        (Check("isin", {"allowed_values": ["b", "a"]}), "`n` in ('b', 'a')"),
        (Check("notin", {"forbidden_values": {"b", "a"}}), "`n` not in ('a', 'b')"),
        (Check("str_matches", {"pattern": "a+"}), "`n` rlike '^(?:a+)'"),
        (Check("str_contains", {"pattern": r"\d"}), r"`n` rlike '\\d'"),
        (Check("str_startswith", {"string": "a"}), "startswith(`n`, 'a')"),
        (Check("str_endswith", {"string": "a"}), "endswith(`n`, 'a')"),
        (Check("str_length", {"min_value": 1, "max_value": None}), "length(`n`) >= 1"),
    ],
)
def test_a_check_of_pandera_becomes_a_rule(check, text):
    assert texts(check) == [text]


def test_a_column_that_may_not_be_null_becomes_a_rule():
    assert texts(nullable=False) == ["`n` is not null"]


def test_a_model_of_pandera_is_asked_for_its_schema():
    class Model:
        @staticmethod
        def to_schema():
            return Schema({"n": Column(nullable=False)})

    assert rules_of(Model) == (Rule("`n` is not null", "n is there"),)


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (Schema({"n": Column(checks=[Check("is_prime")])}), "the check 'is_prime' of the column 'n'"),
        (Schema({"n": Column(checks=[Check("greater_than", {"min_value": object()})])}), "the check 'greater_than'"),
        (Schema({"n": Column(checks=[Check("greater_than", {})])}), "the check 'greater_than'"),
        (Schema({"n": Column(checks=[Check("equal_to", {"value": 1}, groupby="m")])}), "the check 'equal_to'"),
        (Schema({"n": Column(checks=[Check("equal_to", {"value": 1}, ignore_na=False)])}), "the check 'equal_to'"),
        (Schema({"n": Column(checks=[Check("str_matches", {"pattern": "(?P<a>b)"})])}), "the check 'str_matches'"),
        (Schema({"n": Column(unique=True)}), "unique=True of the column 'n'"),
        (Schema({"n.*": Column(regex=True)}), r"the column pattern 'n\.\*'"),
        (Schema({}, checks=[Check("equal_to")]), "the checks of the whole frame"),
        (Schema({}, unique=["n"]), "the unique of the whole frame"),
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
