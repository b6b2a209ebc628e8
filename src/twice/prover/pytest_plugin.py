"""How is a proof one line of a user's own tests?

def test_visits(prove):
prove("visits")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from twice.pipelines import Pipeline
from twice.prover.proving import prove as prove_pipeline
from twice.prover.reports import told
from twice.prover.trials import Proof


@pytest.fixture
def prove(request: pytest.FixtureRequest) -> Callable[..., Proof]:
    """Return a prover that fails the test with the first counterexample; it takes what `twice.prove` takes."""

    def proven(pipeline: Pipeline | str, **asked: Any) -> Proof:
        proof = prove_pipeline(pipeline, **{"project": request.config.rootpath, **asked})
        if not proof.survived:
            pytest.fail(f"{proof.pipeline} is {proof.verdict}.\n{told(proof.counterexamples[0])}", pytrace=False)
        return proof

    return proven
