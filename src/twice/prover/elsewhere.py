"""How is a clean run made in other weather, in a process of its own where one can run the pipeline?

That process is this module:

    python -m twice.prover.elsewhere PIPELINE {"at": ...} {"spark.sql...": ...}
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from twice import settings
from twice.api import run
from twice.errors import TwiceError
from twice.project import Project
from twice.prover import weather
from twice.prover.archives import left_behind
from twice.prover.killers import run_command
from twice.prover.verdicts import STUCK, Trouble
from twice.prover.worlds import ProjectWorld, asked_for, child_settings

_WORKERS = {"spark.python.daemon.module": weather.__name__}
_JAVA = "JAVA_TOOL_OPTIONS"


def run_here(world: ProjectWorld) -> Trouble | None:
    """Fill the slot in this process, with what this process can have otherwise; say how that failed, if it did."""
    conf, told = weather.other_conf(world.subject.session()), {**world.environment, **weather.other_environment()}
    try:
        with weather.another_day(weather.other_zone()):
            replace(world, conf=conf, environment=told).run(world.subject.slot, changed=weather.shuffled)
    except TwiceError as error:
        return Trouble(STUCK, f"the second clean run failed: {error}")
    return None


def run_elsewhere(world: ProjectWorld) -> Trouble | None:
    """Fill the slot in a process of its own, and say how that failed, if it did."""
    spark = world.subject.session()
    if spark is None:
        raise AssertionError("rows in memory end with their process")
    asked = {name: str(value) for name, value in asked_for(world.subject.slot).items()}
    words = (world.subject.declared.name, json.dumps(asked), json.dumps(weather.other_conf(spark)))
    told = weather.other_process() | weather.other_environment() | {"TWICE_SPARK_MASTER": weather.other_cores(spark)}
    with left_behind(world.folder) as quickly:
        chosen = child_settings(world) | quickly
        java = f"{chosen[_JAVA]} {told[_JAVA]}"
        ended = run_command(words, world.folder, settings=chosen | told | {_JAVA: java}, module=__name__)
    if not ended.code:
        return None
    return Trouble(STUCK, f"the second clean run ended with exit code {ended.code}: {ended.output[-500:]}")


def _main(name: str, asked: str, conf: str) -> int:
    """Fill a slot of the project in this folder, on another day; return the exit code."""
    found = settings.load(Path.cwd())
    project = Project(replace(found, spark_conf={**found.spark_conf, **json.loads(conf), **_WORKERS}))
    try:
        with weather.another_day():
            run(weather.shuffled(project.whole_pipelines[name]), **json.loads(asked), project=project)
    except TwiceError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        project.close()
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
