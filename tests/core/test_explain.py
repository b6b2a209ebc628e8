"""What did Spark mean, in one line?"""

import pytest

from twice.explain import explain


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
