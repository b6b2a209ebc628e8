"""Does the house keep its own rules?"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "twice"
MODULES = sorted(SOURCE.rglob("*.py"))

# Imports point one way. A layer may import from itself and from the layers before it.
LAYERS = (
    ("masks", "errors", "faults", "interrupts", "explain", "light", "confidential", "postgres"),
    ("intervals", "calls", "http_calls"),
    ("runs", "placeholders", "findings"),
    (
        "events",
        "slices",
        "sight",
        "marks",
        "columns",
        "merges",
        "statements",
        "rules",
        "data_tests",
        "asides",
        "caches",
        "session_settings",
        "conditions",
    ),
    ("abilities", "fingerprint", "replays"),
    ("plans", "ledger", "decide", "effects", "jobs", "tries"),
    ("sources", "patterns", "stores"),
    ("matrix", "considered", "ingests", "quarantine", "keeping", "handovers", "steps", "settings", "jars", "servers"),
    ("execute",),
    ("engine", "pipelines", "transforms"),
    ("project", "signals"),
    (
        "holding",
        "retrying",
        "intakes",
        "origins",
        "backfills",
        "metrics",
        "forecasts",
        "timeline",
        "upstream",
        "lint",
        "checks",
    ),
    ("api", "advice"),
    ("testing", "prover"),
    ("cli",),
)
FORBIDDEN = {
    "patterns": {"stores", "ledger", "sources"},
    "stores": {"patterns", "ledger"},
    "sources": {"patterns", "stores", "ledger"},
}


def layer(name):
    return next(number for number, names in enumerate(LAYERS) if name in names)


def top_name(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "twice":
            parts = node.module.split(".")
            yield from ([parts[1]] if len(parts) > 1 else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("twice."))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    me = top_name(path)
    if me in ("__init__", "__main__"):
        return
    for name in imported(path):
        if name.startswith("__"):
            continue
        assert layer(name) <= layer(me), f"{me} imports {name}, which comes after it"
        assert name not in FORBIDDEN.get(me, set()), f"{me} must not know {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_module_opens_with_the_question_it_answers(path):
    assert ast.get_docstring(ast.parse(path.read_text())), path


def test_import_twice_loads_no_spark_and_little_else():
    code = (
        "import twice, sys; print([m for m in ('pyspark', 'pyarrow', 'rich', 'click', 'sqlite3') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_public_names_are_sorted_and_there():
    import twice

    assert twice.__all__ == sorted(twice.__all__)
    for name in twice.__all__:
        assert getattr(twice, name) is not None
        assert not isinstance(getattr(twice, name), type(sys)), f"twice.{name} is shadowed by a module"


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        try:
            yield name, (ROOT / name).read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            continue


def test_no_machine_path_no_registry_and_no_open_end_in_a_tracked_file():
    places = re.compile(r"(?<![\w.])/(?:work|root|home)/[a-z]|https?://[\w.-]*(?:pypi|maven|npmjs|debian)[\w.-]*")
    open_ends = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
    found = [
        f"{name}:{number}"
        for name, text in tracked_files()
        if name != "tests/core/test_house.py"
        for number, line in enumerate(text.splitlines(), 1)
        if places.search(line) or open_ends.search(line)
    ]
    assert found == []
