"""Are the pages true where a machine can tell?"""

import re
from pathlib import Path

import pytest

from twice import errors, settings
from twice.cli import _COMMANDS
from twice.cli.project import example_files
from twice.matrix import cells

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


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
