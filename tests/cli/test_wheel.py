"""Does a wheel contain all that Twice needs, away from the repository and from the installation that these tests use?"""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DAY = "2024-10-07"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel as a user would, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    words = [
        "wheel",
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    pip(*words)
    (built,) = folder.glob("twice-*.whl")
    return built


def pip(*words):
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return a caller of Python that knows the wheel and the libraries of this environment, and no editable installation."""
    target, home = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("home")
    pip("install", "--quiet", "--no-deps", "--no-index", "--target", str(target), str(wheel))
    path = os.pathsep.join([str(target), sysconfig.get_path("purelib")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TWICE_", "PYTHON"))}

    def call(*words):
        # With -S no .pth file is followed, so what is not in the wheel is not there.
        return subprocess.run(
            [sys.executable, "-S", *words],
            cwd=home,
            env={**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    call.target, call.home = target, home
    return call


def test_a_wheel_holds_every_file_of_the_package_and_its_extras(wheel):
    source = ROOT / "src"
    written = {
        str(path.relative_to(source))
        for path in (source / "twice").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        (metadata,) = (packed.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert written <= names
    assert {"twice/py.typed", "twice/jars/ivy.xml"} <= names
    assert all(f"Provides-Extra: {extra}" in metadata for extra in ("delta", "parquet", "postgres"))


def test_what_is_imported_is_the_wheel(installed):
    done = installed("-c", "import twice; print(twice.__file__)")
    assert (done.stdout.strip(), done.stderr) == (str(installed.target / "twice/__init__.py"), "")


def test_every_module_of_the_wheel_can_be_imported(installed):
    program = (
        "import importlib, pkgutil, twice\n"
        "for found in pkgutil.walk_packages(twice.__path__, 'twice.'):\n"
        "    found.name.endswith('__main__') or importlib.import_module(found.name)\n"
    )
    done = installed("-W", "ignore", "-c", program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_project_is_made_listed_and_planned_away_from_the_repository(installed):
    made = installed("-m", "twice", "init", "shop", "--store", "delta")
    assert (made.returncode, "made pipelines/visits.py" in made.stdout) == (0, True)
    project = ("--project", str(installed.home / "shop"))
    listed = installed("-m", "twice", "list", *project)
    assert (listed.returncode, "delta:lake/visits" in listed.stdout) == (0, True)
    planned = installed("-m", "twice", "plan", "visits", "--at", DAY, *project)
    assert (planned.returncode, "create" in planned.stdout, planned.stderr) == (0, True, "")


@pytest.mark.spark
def test_a_slot_is_published_to_delta_away_from_the_repository(installed):
    """The packages of the store are those that the wheel's own `ivy.xml` pins."""
    assert installed("-m", "twice", "init", "published", "--store", "delta").returncode == 0
    run = ("-m", "twice", "run", "visits", "--at", DAY, "--project", str(installed.home / "published"))
    done = installed(*run)
    assert (done.returncode, "published (the first run of this slot): 5 rows" in done.stdout) == (0, True), done.stderr
    assert "skipped" in installed(*run).stdout
