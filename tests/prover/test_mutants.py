"""Do our own tools find the mistakes that they are for, and nothing where there is none?"""

import pytest

from databases import drop_what_was_made
from mutants import MUTANTS
from mutants_page import PAGE, page
from twice.prover import Counterexample
from ways import WAYS, Bench, tried
from worlds import WITHOUT_SPARK

passed: set[str] = set()


def passes_unbroken(mutant, bench):
    """Go the way with the real code, once for each way and world."""
    asked = f"{mutant.way} {mutant.store} {mutant.given}"
    if asked not in passed:
        tried(WAYS[mutant.way], bench)
        passed.add(asked)


# Those that need a JVM are left to `make prove`, but for one of each store.
SAMPLE = ("publish before the stage is durable", "owner not compared on delta")


def marks(mutant):
    if mutant.store in WITHOUT_SPARK:
        return [pytest.mark.postgres] if mutant.store == "postgres" else []
    left = [] if mutant.name in SAMPLE else [pytest.mark.prove]
    return [pytest.mark.spark, *left]


@pytest.fixture
def bench(request):
    """Return a maker of benches for a store, with what its worlds stand on."""

    def make(folder, given, store):
        session = None if store in WITHOUT_SPARK else request.getfixturevalue("spark")
        server = request.getfixturevalue("postgres_server") if store == "postgres" else None
        return Bench(folder, given, store, session, server)

    yield make
    drop_what_was_made()


@pytest.mark.parametrize("mutant", [pytest.param(one, id=one.name, marks=marks(one)) for one in MUTANTS])
def test_a_mutant_is_caught_where_the_real_code_passes(mutant, tmp_path, monkeypatch, bench):
    passes_unbroken(mutant, bench(tmp_path / "right", mutant.given, mutant.store))
    mutant.patch(monkeypatch)
    with pytest.raises(Counterexample) as caught:
        tried(WAYS[mutant.way], bench(tmp_path / "broken", {**mutant.given, **mutant.broken}, mutant.store))
    assert mutant.shows in str(caught.value)


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_the_page_about_them_is_up_to_date():
    assert PAGE.read_text() == page(), "write it anew: python tests/mutants_page.py"


def test_every_way_catches_something():
    assert set(WAYS) == {mutant.way for mutant in MUTANTS}
