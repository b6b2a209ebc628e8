"""Does Spark show whose jobs it runs, and does no process show a secret among its arguments?"""

import json
import os
import subprocess
import sys

import pytest

CANARY = "canary-spark-zzyzx"
TOML = """[spark]
master = "local[1]"
[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "${CANARY_KEY}"
"spark.some.option" = "${CANARY_KEY}"
"spark.my.credential" = "${CANARY_KEY}"
"spark.driver.memory" = "512m"
"""
PROGRAM = """
import json, os
from pathlib import Path
from twice import settings
from twice.engine import Engine
from twice.runs import Slot, Target

engine = Engine(settings.load(Path.cwd()))
spark = engine.spark
context = spark.sparkContext
context.setLocalProperty("spark.jobGroup.id", "the caller's")
lines = {}
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        if os.getpgid(int(name)) == os.getpgrp():
            lines[name] = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        continue
with engine.working_for(Slot("visits", Target("memory", "t"), "k1"), "0123abcd-1-89abcdef"):
    engine.spark.range(3).count()
    inside = context.getLocalProperty("spark.job.description")
engine.spark.range(3).count()
redacted = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
print(json.dumps({
    "jobs": len(context.statusTracker().getJobIdsForGroup("0123abcd-1-89abcdef")),
    "inside": inside,
    "after": context.getLocalProperty("spark.jobGroup.id"),
    "described": context.getLocalProperty("spark.job.description"),
    "given": context.getConf().get("spark.some.option"),
    "memory": "512m" in "".join(lines.values()) or "Xmx512m" in "".join(lines.values()),
    "jvm": any("org.apache.spark" in line for line in lines.values()),
    "lines": "".join(lines.values()),
    "key": context.getConf().get("spark.hadoop.fs.s3a.secret.key"),
    "redacted": redacted.get("spark.my.credential"),
}))
engine.stop()
"""


@pytest.mark.spark
def test_jobs_bear_the_name_of_the_run_and_no_argument_shows_a_secret(tmp_path):
    (tmp_path / "twice.toml").write_text(TOML)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "CANARY_KEY": CANARY},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["jobs"], found["inside"]) == (1, "visits k1")
    assert (found["after"], found["described"]) == ("the caller's", None)  # a caller's own name is put back
    assert (found["given"], found["key"]) == (CANARY, CANARY)  # Spark has them
    assert (found["jvm"], found["memory"], CANARY in found["lines"]) == (True, True, False)
    assert found["redacted"] == "*********(redacted)"
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or CANARY.encode() not in file.read_bytes(), file
