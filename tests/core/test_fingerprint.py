"""What went into a run, and is its code still the same?"""

import functools
import os
import subprocess
import sys

import pytest
from samples import slot_of

from twice.fingerprint import Place, code_digest, fingerprint_of
from twice.sources.files import Files

IN_ANY_PROCESS = """
import functools
from twice.fingerprint import code_digest, fingerprint_of

def keep(rows, least):
    return [row for row in rows if row > least]

class Keeper:
    def __call__(self, rows):
        return rows

names = {}
exec("def made(rows):\\n    return [row + 1 for row in rows]", names)
print(fingerprint_of({}, {"lands": {"pl", "de", "fr", "it", "es"}}))
print(code_digest(names["made"]))
print(code_digest(functools.partial(keep, least=3)))
print(code_digest(Keeper()))
print(fingerprint_of({}, {"b": 1, "a": [2, None, 0.5, "x"]}), code_digest(keep))
"""


class Inputs:
    """Inputs that are known by what they say they are."""

    def __init__(self, *facts):
        self.facts = list(facts)


# ------------------------------------------------------------------ fingerprints


def test_the_order_of_sources_and_parameters_does_not_matter():
    a, b = Inputs(1), Inputs(2)
    assert fingerprint_of({"a": a, "b": b}, {"x": 1, "y": 2}) == fingerprint_of({"b": b, "a": a}, {"y": 2, "x": 1})


@pytest.mark.parametrize(
    ("inputs", "parameters"),
    [
        ({"a": Inputs(2)}, {"x": 1}),
        ({"a": Inputs(1, 1)}, {"x": 1}),
        ({"b": Inputs(1)}, {"x": 1}),
        ({"a": Inputs(1), "b": Inputs()}, {"x": 1}),
        ({"a": Inputs(1)}, {}),
        ({"a": Inputs(1)}, {"x": 2}),
        ({"a": Inputs(1)}, {"x": "1"}),
        ({"a": Inputs(1)}, {"y": 1}),
    ],
)
def test_another_input_or_parameter_is_another_fingerprint(inputs, parameters):
    assert fingerprint_of(inputs, parameters) != fingerprint_of({"a": Inputs(1)}, {"x": 1})


def files_in(folder, **contents):
    for name, content in contents.items():
        (folder / "in").mkdir(parents=True, exist_ok=True)
        (folder / "in" / f"{name}.jsonl").write_text(content)
    memory = type("Memory", (), {"recall": lambda *_: {}, "remember": lambda *_: None})()
    place = Place(str(folder), slot_of("2024-09-20"), "UTC", memory, lambda _: None)
    return fingerprint_of({"rows": Files("in/*.jsonl", schema="id int").resolve(place)}, {})


def test_the_root_folder_and_the_times_of_files_do_not_matter(tmp_path):
    first = files_in(tmp_path / "one", a="1", b="2")
    second = files_in(tmp_path / "elsewhere" / "two", b="2", a="1")
    os.utime(tmp_path / "one" / "in" / "a.jsonl", (1, 1))
    assert first == second == files_in(tmp_path / "one")


@pytest.mark.parametrize("other", [{"a": "1"}, {"a": "1", "b": "3"}, {"a": "2", "b": "1"}, {"a": "1", "c": "2"}])
def test_another_name_or_content_is_another_fingerprint(tmp_path, other):
    assert files_in(tmp_path / "one", a="1", b="2") != files_in(tmp_path / "two", **other)


# ------------------------------------------------------------------ code


def plain(rows):
    return [row for row in rows if row > 1]


def digest_of(tmp_path, text, name="transform"):
    """Import a module with this text, and return the digest of its transform."""
    import importlib.util

    file = tmp_path / f"module{len(list(tmp_path.iterdir()))}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return code_digest(getattr(module, name))


ORIGINAL = "def transform(rows):\n    return [row for row in rows if row > 1]\n"


@pytest.mark.parametrize(
    "text",
    [
        "# above\ndef transform(rows):\n    # inside\n    return [row for row in rows if row > 1]  # beside\n",
        "def transform(\n    rows,\n):\n\n    return [\n        row\n        for row in rows\n        if row > 1\n    ]\n",
        "import functools\n\n\n@functools.cache\ndef transform(rows):\n    return [row for row in rows if row > 1]\n",
        "if True:\n    def transform(rows):\n        return [(row) for row in rows if (row > 1)]\n",
    ],
)
def test_comments_layout_and_decorators_do_not_matter(tmp_path, text):
    assert digest_of(tmp_path, text) == digest_of(tmp_path, ORIGINAL)


@pytest.mark.parametrize(
    "text",
    [
        ORIGINAL.replace("> 1", "> 2"),
        ORIGINAL.replace("> 1", ">= 1"),
        ORIGINAL.replace("rows", "lines"),
        ORIGINAL.replace("> 1", "> '1'"),
        ORIGINAL.replace("def transform(rows)", "def transform(rows, run)"),
    ],
)
def test_another_constant_operator_or_name_is_other_code(tmp_path, text):
    assert digest_of(tmp_path, text) != digest_of(tmp_path, ORIGINAL)


def test_a_decorated_function_inside_is_still_itself(tmp_path):
    inner = "def transform(rows):\n    {}def inner(row):\n        return row\n    return map(inner, rows)\n"
    text = inner.format("@staticmethod\n    ")
    assert digest_of(tmp_path, text) == digest_of(tmp_path, inner.format(""))


def test_code_without_a_source_has_a_digest_too():
    one, two, other = {}, {}, {}
    exec("def made(rows):\n    return rows[1]", one)
    exec("def made(rows):\n    return rows[1]", two)
    exec("def made(rows):\n    return rows[2]", other)
    assert code_digest(one["made"]) == code_digest(two["made"]) != code_digest(other["made"])


def test_code_without_a_source_that_holds_other_code_is_the_same_when_made_again():
    one, two = {}, {}
    for names in (one, two):
        exec("def made(rows):\n    return [(lambda: row)() for row in rows]", names)
    assert code_digest(one["made"]) == code_digest(two["made"])


@pytest.mark.parametrize("given", [len, functools.partial(plain), str.upper])
def test_anything_that_can_be_called_has_a_digest(given):
    assert len(code_digest(given)) == 32


# ------------------------------------------------------------------ other processes


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    script = tmp_path_factory.mktemp("script") / "script.py"
    script.write_text(IN_ANY_PROCESS)
    return [
        subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for seed in ("1", "2")
    ]


@pytest.mark.parametrize(
    "line",
    range(5),
    ids=["a set as a parameter", "code without a source", "a partial", "an object", "plain values and functions"],
)
def test_digests_are_the_same_in_every_process(two_processes, line):
    assert two_processes[0][line] == two_processes[1][line]
