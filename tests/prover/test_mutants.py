"""Do our own tools find the mistakes that they are for, and nothing where there is none?"""

import pytest

from mutants import MUTANTS
from twice.prover import Counterexample
from ways import WAYS, Bench, tried

passed: set[str] = set()


def passes_unbroken(mutant, folder):
    """Go the way with the real code, once for each way and world."""
    asked = f"{mutant.way} {mutant.given}"
    if asked not in passed:
        tried(WAYS[mutant.way], Bench(folder, mutant.given))
        passed.add(asked)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught_where_the_real_code_passes(mutant, tmp_path, monkeypatch):
    passes_unbroken(mutant, tmp_path / "right")
    mutant.patch(monkeypatch)
    with pytest.raises(Counterexample) as caught:
        tried(WAYS[mutant.way], Bench(tmp_path / "broken", {**mutant.given, **mutant.broken}))
    print(f"{mutant.name}: {caught.value}")


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30
