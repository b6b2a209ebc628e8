"""`twice prove` on pipelines whose rows are in memory: what it tries, what it finds, what it refuses."""

import pytest

import twice
from twice.prover.verdicts import EFFECT, NOT_DETERMINISTIC

pytestmark = [pytest.mark.timeout(600)]

SHAPES = {
    "slice": 'twice.data_overwrite(slice="day")',
    "partitions": 'twice.data_overwrite(partitions=["day"])',
    "table": "twice.data_overwrite()",
    "merger": 'twice.merger(keys=["id"])',
    "stateful": 'twice.stateful_merger(keys=["id"])',
    "history": 'twice.stateful_merger(keys=["id"], form="history")',
    "dedup": 'twice.dedup_insert(keys=["id"])',
    "append": "twice.transactional_writer()",
    "lineage": 'twice.transactional_writer(lineage="slot")',
    "proxy": "twice.proxy(keep=2)",
    "cleaner": 'twice.fast_metadata_cleaner(period="week")',
    "keyed table": 'twice.keyed(table="{start:%Y%m%d}")',
    "keyed rows": 'twice.keyed(keys=["id"])',
}


def found(proof):
    return [(one.trial.name, one.verdict, one.seen) for one in proof.counterexamples]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_false_alarm_on_any_pattern(memory_project, shape):
    proof = twice.prove("visits", project=memory_project(pattern=SHAPES[shape]))
    assert found(proof) == []
    assert proof.verdict == "idempotent"
    ways = {one.trial.name for one in proof.tried}
    assert {"repeat/twice", "repeat/ledger-lost", "repeat/ledger-stale", "repeat/backfill"} <= ways
    assert {f"{point}/died" for point in proof.points} <= ways
    assert {f"{point}/lost-reply" for point in proof.points} <= ways
