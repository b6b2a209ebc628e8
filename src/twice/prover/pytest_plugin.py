"""How is a proof one line of a user's own tests?

    def test_visits(prove):
        prove("visits")

pytest loads this module in every project that has Twice installed, so it loads the prover only for a test that asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from twice.pipelines import Pipeline
    from twice.prover.trials import Proof


@pytest.fixture
def prove(request: pytest.FixtureRequest) -> Callable[..., Proof]:
    """Return a prover that fails the test with the first counterexample; it takes what `twice.prove` takes."""
    from twice.prover.proving import prove as prove_pipeline
    from twice.prover.reports import told

    def proven(pipeline: Pipeline | str, **asked: Any) -> Proof:
        proof = prove_pipeline(pipeline, **{"project": request.config.rootpath, **asked})
        if not proof.survived:
            pytest.fail(f"{proof.pipeline} is {proof.verdict}.\n{told(proof.counterexamples[0])}", pytrace=False)
        return proof

    return proven
