"""How do the many JVMs of a proof start quickly?

A JVM that maps an archive of classes, as they were loaded by another one, need not read and check them again.
One run that ends well leaves the archive behind; it is kept in the user's cache, for later proofs too. It is named
after what it was made with, and a JVM that finds that it does not fit starts without it.

The options go to the driver's JVM alone, since that of Spark's launcher prints what it says to where it is parsed.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from twice.jars import cache_home

_DRIVER_OPTIONS = "SPARK_SUBMIT_OPTS"
# A run of a few rows is over before a JVM would have compiled it well, so it does not try.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


def quick() -> dict[str, str]:
    """Return the environment in which a JVM starts quickly, with the archive if there is one."""
    archive = _archive()
    return {"JAVA_TOOL_OPTIONS": _QUICK} | (_driver(f"-XX:SharedArchiveFile={archive}") if archive.exists() else {})


@contextmanager
def left_behind(folder: Path) -> Iterator[dict[str, str]]:
    """Return the environment of a run that leaves an archive behind, unless there is one; keep it if the run ends well."""
    archive = _archive()
    if archive.exists() or " " in str(folder):
        yield quick()
        return
    made = folder / archive.name
    yield quick() | _driver(f"-XX:ArchiveClassesAtExit={made}")
    # It saves time and nothing else: a cache that cannot be written is done without.
    with suppress(OSError):
        _keep(made, archive)


def _driver(option: str) -> dict[str, str]:
    """Add an option to those that the user gives the driver; a JVM that cannot do it says nothing."""
    return {_DRIVER_OPTIONS: f"{os.environ.get(_DRIVER_OPTIONS, '')} {option} -Xlog:disable".strip()}


def _keep(made: Path, archive: Path) -> None:
    """Give it its name when it is whole, and remove those that no longer fit."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    copied = archive.with_name(f"{archive.name}.{os.getpid()}")
    shutil.copyfile(made, copied)
    copied.replace(archive)
    for other in archive.parent.glob("*.jsa"):
        if other != archive:
            other.unlink()


@functools.cache
def _archive() -> Path:
    """Return where the archive for this Java and this Spark is kept."""
    facts = [_java(), version("pyspark"), *sorted(_jars())]
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return cache_home() / "classes" / f"{digest}.jsa"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - the user's own Java
    return said.stderr


def _jars() -> list[str]:
    spec = find_spec("pyspark")
    folder = Path(spec.origin or "").parent / "jars" if spec else Path()
    return [f"{jar.name} {jar.stat().st_size}" for jar in folder.glob("*.jar")]
