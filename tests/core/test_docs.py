"""Are the pages true where a machine can tell?"""

import inspect
import re
from pathlib import Path

import pytest

import twice
from twice import errors, settings
from twice.cli import _COMMANDS
from twice.cli.project import example_files
from twice.matrix import cells

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])

FORM = ["When", "How", "What a rerun does", "What it costs", "What it does not protect against"]


def test_the_example_of_the_readme_is_the_one_that_init_makes():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert example_files("parquet")["pipelines/visits.py"] in blocks


def test_the_two_commands_stand_on_the_first_screen():
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:24])
    assert "make demo" in first_screen
    assert "make test" in first_screen


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_is_documented(command):
    assert f"twice {command}" in (ROOT / "docs/reference/cli.md").read_text()


@pytest.mark.parametrize("key", [*settings.DEFAULTS, "spark.conf", "stores"])
def test_every_setting_is_documented(key):
    assert key.rpartition(".")[2] in (ROOT / "docs/reference/twice-toml.md").read_text()


@pytest.mark.parametrize(
    "name",
    [name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, errors.TwiceError)],
)
def test_every_error_is_documented(name):
    assert name in (ROOT / "docs/reference/errors-and-exit-codes.md").read_text()


def test_the_matrix_of_the_readme_is_the_computed_one():
    text = (ROOT / "README.md").read_text()
    found: dict[str, list[str]] = {}
    for cell in cells():
        found.setdefault(cell.pattern, []).append("yes" if cell.supported else "no")
    header = re.search(r"^\| pattern \| (.*) \|$", text, re.MULTILINE)
    assert header
    assert header[1].split(" | ") == list(dict.fromkeys(cell.store for cell in cells()))
    assert re.findall(r"^\| `([a-z_]+(?: \([a-z]+\))?)` \| (.*) \|$", text, re.MULTILINE) == [
        (pattern, " | ".join(answers)) for pattern, answers in found.items()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link


def declared(function):
    """Write a function's parameters as the reference does."""
    found = inspect.signature(function)
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty)).replace("'", '"')


@pytest.mark.parametrize("name", sorted(name for name in twice.__all__ if name[0].islower() and name != "pipeline"))
def test_every_function_is_documented_with_its_parameters_and_defaults(name):
    text = re.sub(r"\s+", " ", (ROOT / "docs/reference/python.md").read_text())
    assert f"twice.{name}{declared(getattr(twice, name))}" in text


@pytest.mark.parametrize("name", inspect.signature(twice.pipeline).parameters)
def test_every_argument_of_a_pipeline_is_documented(name):
    assert re.search(rf"^\| .*`{name}`.* \|", (ROOT / "docs/reference/python.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", sorted(twice.__all__))
def test_every_public_name_is_listed(name):
    assert f"`{name}`" in (ROOT / "docs/reference/python.md").read_text().partition("## Declare")[0]


@pytest.mark.parametrize("pattern", sorted({cell.pattern.partition(" ")[0] for cell in cells()}))
def test_every_pattern_has_a_page_of_the_same_form(pattern):
    about = [page for page in (ROOT / "docs/how-to").glob("*.md") if f"pattern=twice.{pattern}(" in page.read_text()]
    assert any(re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)[: len(FORM)] == FORM for page in about)
