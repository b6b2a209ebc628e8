"""Scenario 81 with real deaths: SIGKILL of the whole process group, at a sample of points or at all.

`make test` tries the most telling points; `make prove` (`--every-kill`) all that a clean run passes.
"""

import shutil

import pytest
from pyarrow import parquet

import twice
from twice.cli.project import write_example
from twice.prover.archives import left_behind, quick
from twice.prover.killers import recorded_points, run_command

RUN = ("run", "visits", "--at", "2024-10-07", "--yes")
TELLING = {
    "parquet": ("parquet.files.written", "parquet.manifest.linked"),
    "delta": ("delta.locked", "delta.committed"),
}


def rows(folder, kind, spark):
    if kind == "parquet":
        files = twice.current_files("parquet:lake/visits", project=folder)
        return sorted(row["visit_id"] for file in files for row in parquet.read_table(file).to_pylist())
    return sorted(row.visit_id for row in spark.read.format("delta").load(str(folder / "lake/visits")).collect())


def receipts(folder, kind):
    sight = twice.Project.open(folder).store(kind).look("lake/visits")
    return {slot: (receipt.generation, receipt.fingerprint) for slot, receipt in sight.receipts.items()}


@pytest.mark.stores("parquet", "delta")
@pytest.mark.timeout(3000)
def test_81_sigkill_of_the_process_group_then_a_rerun(kind, spark, tmp_path, request):
    template = tmp_path / "template"
    write_example(template, kind)
    clean = tmp_path / "clean"
    shutil.copytree(template, clean)
    with left_behind(tmp_path) as quickly:
        points = recorded_points(RUN, clean, quickly)
    expected = rows(clean, kind, spark), receipts(clean, kind)
    assert set(TELLING[kind]) <= set(points)
    for point in points if request.config.getoption("--every-kill") else TELLING[kind]:
        world = tmp_path / point
        shutil.copytree(template, world)
        assert run_command(RUN, world, f"kill:{point}", quick()).killed, point
        again = run_command(RUN, world, settings=quick())
        assert again.code == 0, (point, again.output)
        assert (rows(world, kind, spark), receipts(world, kind)) == expected, point
        skipped = run_command(RUN, world)
        assert (skipped.code, "skipped" in skipped.output) == (0, True), point
