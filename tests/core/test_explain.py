"""What did Spark mean, in one line?"""

import pytest

from twice.explain import explain, explain_code


class Java:
    """An exception of the JVM, as far as Python sees it."""

    def __init__(self, text, cause=None):
        self.text = text
        self.cause = cause

    def toString(self):  # noqa: N802 - Java's name
        if self.text is None:
            raise ConnectionError("the JVM is gone")
        return self.text

    def getCause(self):  # noqa: N802 - Java's name
        return self.cause


def error(text, java=None, stack=None):
    made = RuntimeError(text)
    if java is not None:
        made.java_exception = java
    if stack is not None:
        made._stackTrace = stack
    return made


FAILED_FILE = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/a%20b.csv.  SQLSTATE: KD001"
STACK = """org.apache.spark.SparkException: Job aborted
Caused by: org.apache.spark.SparkException: outer trouble
Caused by: java.lang.NumberFormatException: For input string: "x"
\tat java.base/java.lang.Long.parseLong(Long.java:1)"""


def test_a_file_is_named_with_the_innermost_cause():
    assert explain(error(FAILED_FILE, stack=STACK)) == (
        '/in/a b.csv could not be read (NumberFormatException: For input string: "x")'
    )


def test_a_file_is_named_with_the_condition_where_there_is_no_cause():
    assert explain(error(FAILED_FILE)).startswith("/in/a b.csv could not be read ([FAILED_READ_FILE.NO_HINT]")


def test_a_condition_is_one_line():
    text = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved.\nProject ['x]\n+- Relation"
    assert explain(error(text)) == "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved."


def test_a_condition_behind_a_failure_is_what_matters():
    text = "[FAILED_EXECUTE_UDF] User defined function failed.\n[DIVIDE_BY_ZERO] Division by zero."
    assert explain(error(text)) == "[DIVIDE_BY_ZERO] Division by zero."


def test_the_jvms_own_words_are_read():
    assert explain(error("An error occurred", Java("x\n[PATH_NOT_FOUND] Path does not exist: /in"))) == (
        "[PATH_NOT_FOUND] Path does not exist: /in"
    )


def test_the_innermost_cause_in_the_jvm_is_named_with_the_file():
    java = Java(FAILED_FILE, Java("x.SparkException: outer", Java("java.io.EOFException: the end came early")))
    assert explain(error("An error occurred", java)) == (
        "/in/a b.csv could not be read (EOFException: the end came early)"
    )


def test_causes_that_go_round_in_a_circle_come_to_an_end():
    java = Java("x.SparkException: round and round")
    java.cause = java
    assert explain(error("An error occurred", java)) == "x.SparkException: round and round"


def test_a_jvm_that_is_gone_does_not_hide_the_error():
    assert explain(error("the first line\nthe second", Java(None))).endswith("the first line")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (ValueError("\n\n  first\nsecond"), "ValueError: first"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError(), "ValueError:"),
    ],
)
def test_an_error_of_python_is_its_first_line(given, line):
    assert explain(given) == line


def test_a_long_story_is_cut():
    told = explain(ValueError("x " * 500))
    assert (len(told), told[-1]) == (400, "…")


# ------------------------------------------------------------------ the user's own code


def raised(text, name):
    """Return the error of a piece of code, as it was caught outside of it."""
    with pytest.raises(Exception) as caught:
        exec(compile(text, name, "exec"), {})
    return caught.value


CODE = "import json\n\ndef read(text):\n    return json.loads(text)\n\nread('{')\n"


def test_an_error_in_the_users_code_names_its_last_line_and_not_that_of_a_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = "(pipelines/visits.py, line 4, in read)"
    assert explain_code(raised(CODE, str(tmp_path / "pipelines/visits.py"))).endswith(
        f": line 1 column 2 (char 1) {told}"
    )
    assert explain_code(raised("1 / 0", "/srv/jobs/x.py")).endswith(
        "division by zero (/srv/jobs/x.py, line 1, in <module>)"
    )


def test_an_error_that_no_line_of_the_user_raised_names_none():
    assert explain_code(ValueError("x")) == "ValueError: x"


WORKER = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/pyspark/worker.py", line 1980, in main
    process()
  File "/srv/jobs/pipelines/visits.py", line 12, in price
    return Decimal(text)
           ^^^^^^^^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/money/parse.py", line 3, in parse
    raise ValueError(text)
ValueError: not a price: 'x'

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)"""


def test_an_error_in_a_function_that_spark_called_is_told_with_its_line():
    told = "ValueError: not a price: 'x' (/srv/jobs/pipelines/visits.py, line 12, in price)"
    assert explain(error("see below", Java("Job aborted", Java(WORKER)))) == told
    assert explain(error(f"An exception was thrown from the Python worker.\n{WORKER}")) == told
