"""Do our own tools find the mistakes that they are for, and nothing where there is none?"""

import pytest

from mutants import MUTANTS
from mutants_page import PAGE, page
from twice.prover import Counterexample
from ways import WAYS, Bench, tried

passed: set[str] = set()


def passes_unbroken(mutant, bench):
    """Go the way with the real code, once for each way and world."""
    asked = f"{mutant.way} {mutant.given}"
    if asked not in passed:
        tried(WAYS[mutant.way], bench)
        passed.add(asked)


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.name, marks=[] if one.store == "memory" else [pytest.mark.spark]) for one in MUTANTS],
)
def test_a_mutant_is_caught_where_the_real_code_passes(mutant, tmp_path, monkeypatch, request):
    session = None if mutant.store == "memory" else request.getfixturevalue("spark")
    passes_unbroken(mutant, Bench(tmp_path / "right", mutant.given, mutant.store, session))
    mutant.patch(monkeypatch)
    with pytest.raises(Counterexample) as caught:
        tried(WAYS[mutant.way], Bench(tmp_path / "broken", {**mutant.given, **mutant.broken}, mutant.store, session))
    assert mutant.shows in str(caught.value)


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_the_page_about_them_is_up_to_date():
    assert PAGE.read_text() == page(), "write it anew: python tests/mutants_page.py"


def test_every_way_catches_something():
    assert set(WAYS) == {mutant.way for mutant in MUTANTS}
