"""Are pipelines read without loading Spark, and in full where that does not do?"""

import functools
import subprocess
import sys
import textwrap

import pytest

import twice
from twice.light import StandIn, holds_stand_in

HEAD = """
import twice
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
import pyspark.sql
from helper import shout

@twice.pipeline(
    source=twice.files("landing/*.csv", schema={schema}),
    target="memory:out", pattern=twice.data_overwrite(), parameters={parameters},
)
def out(rows):
    return shout(rows.where(F.col("id") > 0))
"""
HELPER = """
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

@F.udf(StringType())
def louder(text):
    return text.upper()

def shout(rows):
    return rows.withColumn("id", louder(F.col("id")))
"""
LOOK = """
import sys, twice
project = twice.Project.open(sys.argv[1])
print(sorted(project.pipelines), "pyspark" in sys.modules)
print(callable(project.whole_pipelines["out"].transform), sys.modules["pyspark"].__file__ is not None)
import helper
print(type(helper.louder).__name__)
"""


def looked_at(folder, schema='"id string"', parameters="{}"):
    (folder / "pipelines").mkdir()
    (folder / "pipelines/out.py").write_text(textwrap.dedent(HEAD.format(schema=schema, parameters=parameters)))
    (folder / "helper.py").write_text(HELPER)
    done = subprocess.run([sys.executable, "-c", LOOK, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_declarations_are_read_without_loading_spark_and_transforms_with_it(tmp_path):
    assert looked_at(tmp_path) == ["['out'] False", "True True", "function"]


@pytest.mark.parametrize(
    ("schema", "parameters"),
    [
        ("'id ' + StringType().simpleString()", "{}"),
        ('"id string"', "{'version': pyspark.__version__}"),
        ('"id string" + ", x int" * (len(F.__name__) > 0)', "{}"),
    ],
)
def test_a_declaration_that_needs_spark_is_read_in_full(tmp_path, schema, parameters):
    assert looked_at(tmp_path, schema, parameters)[0] == "['out'] True"


def test_stand_ins_are_found_at_any_depth():
    assert holds_stand_in({"a": [("b", StandIn("x"))]})
    assert not holds_stand_in({"a": [("b", "x")]})


def test_a_function_that_was_given_a_stand_in_holds_it():
    read = functools.partial(print, end=StandIn("x"))
    assert holds_stand_in({"rows": twice.source(read, fingerprint="x")})
    assert holds_stand_in({"rows": twice.query("select 1", fingerprint=read)})
    assert not holds_stand_in(functools.partial(print, end=""))
