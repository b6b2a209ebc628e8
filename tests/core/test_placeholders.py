"""How does a slot's time enter a path or a condition?"""

import glob

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import interval, span

from twice.errors import Misuse
from twice.placeholders import KNOWN, check, moments_in, names_slot, render

DAY = interval("2024-10-07")
WARSAW = interval("2024-10-07", zone="Europe/Warsaw")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("landing/{execution_date}/*.csv", "landing/2024-10-07/*.csv"),
        ("{start:%Y%m%d}-{end:%Y%m%d}", "20241007-20241008"),
        ("{start}/{end}", "2024-10-07/2024-10-08"),
        ("{start:%Y}/{start:%m}/{start:%d}/h{start:%H:%M}", "2024/10/07/h00:00"),
        ("{execution_date:%G-W%V}", "2024-W41"),
        ("nothing", "nothing"),
    ],
)
def test_a_template_is_filled_in_with_the_times_of_the_slot(template, text):
    assert render(template, DAY, "UTC") == text


def test_times_are_those_of_the_pipelines_zone():
    assert render("{start:%Y-%m-%dT%H:%M%z}", WARSAW, "Europe/Warsaw") == "2024-10-07T00:00+0200"
    assert render("{execution_date}", WARSAW, "UTC") == "2024-10-06"


def test_the_end_of_a_long_day_is_the_next_midnight():
    long_day = span("2024-10-26T22:00Z", "2024-10-27T23:00Z")
    assert render("{start:%m-%d %H:%M} {end:%m-%d %H:%M}", long_day, "Europe/Warsaw") == "10-27 00:00 10-28 00:00"


def test_a_key_is_filled_in_as_it_is():
    assert render("landing/{key}.csv", "01", "UTC") == "landing/01.csv"


def test_a_key_that_looks_like_a_placeholder_is_not_filled_in_again():
    assert render("landing/{key}.csv", "{start}", "UTC") == "landing/{start}.csv"


@given(st.text())
def test_an_escaped_key_matches_itself_alone(key):
    import fnmatch

    assert fnmatch.fnmatchcase(f"landing/{key}.csv", render("landing/{key}.csv", key, "UTC", escape=glob.escape))


@pytest.mark.parametrize(
    ("template", "meant"), [("{stat:%Y}", "start"), ("{execution_dat}", "execution_date"), ("{keys}", "key")]
)
def test_a_misspelt_placeholder_is_refused_with_a_suggestion(template, meant):
    for act in (lambda: check(template), lambda: render(template, DAY, "UTC")):
        with pytest.raises(Misuse, match=f"Did you mean '{meant}'"):
            act()


@pytest.mark.parametrize("template", ["{}", "{ start }", "{0}", "{now}", "{start!r}"])
def test_an_unknown_placeholder_is_refused(template):
    with pytest.raises(Misuse, match="is not a placeholder"):
        check(template)


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_placeholder_is_accepted(name):
    check(f"x/{{{name}}}/y")


def test_a_key_needs_a_slot_with_a_key():
    with pytest.raises(Misuse, match="needs a slot with a key"):
        render("{key}", DAY, "UTC")


@pytest.mark.parametrize("template", ["{start}", "{end:%Y}", "{execution_date}"])
def test_a_time_needs_a_slot_with_an_interval(template):
    with pytest.raises(Misuse, match="needs a slot with an interval"):
        render(template, "pl", "UTC")


def test_a_template_without_a_placeholder_names_no_slot():
    assert (names_slot("landing/*.csv"), names_slot("landing/{key}.csv")) == (False, True)


@pytest.mark.parametrize(
    ("template", "name", "moment"),
    [
        ("landing/{execution_date}/*.csv", "landing/2024-10-07/a.csv", "2024-10-06T22:00"),
        ("{start:%Y}/{start:%m}/{start:%d}/*.csv", "2024/02/03/z.csv", "2024-02-02T23:00"),
        ("{start:%Y}/{start:%Y-%m-%dT%H}.csv", "2024/2024-02-03T05.csv", "2024-02-03T04:00"),
        ("{start:%Y%m%d}-{end:%Y%m%d}.csv", "20240203-20240204.csv", "2024-02-02T23:00"),
        ("**/{end:%Y%m%d}.csv", "a/b/20240203.csv", "2024-02-02T22:59:59.999999"),
        ("x[[]1]/{start:%y%j}.csv", "x[1]/24034.csv", "2024-02-02T23:00"),
        ("landing/{execution_date}.csv", "landing/2024-13-07.csv", None),
        ("landing/{execution_date}.csv", "landing/latest.csv", None),
        ("{start:%Y-%m}/{start:%Y-%d}.csv", "2024-10/2024-07.csv", None),
        ("landing/*.csv", "landing/2024-10-07.csv", None),
    ],
)
def test_a_name_tells_the_time_that_it_was_made_of(template, name, moment):
    found = [
        f"{one:%Y-%m-%dT%H:%M}" if not one.microsecond else one.isoformat()
        for one in moments_in(template, [name], "Europe/Warsaw")
    ]
    assert [one.removesuffix("+00:00") for one in found] == ([moment] if moment else [])
