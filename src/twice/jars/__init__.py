"""Where do the JVM packages of a store come from?

They are pinned in `ivy.xml` beside this file and fetched by the Ivy that PySpark brings, so only
Java is needed. What was fetched is kept in a cache folder that is named by the pins: a new pin is
a new folder. A user may also point to a folder of their own, or say that the cluster brings them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

from twice.errors import Misuse, NotPublished

IVY_FILE = Path(__file__).with_name("ivy.xml")
_RETRIEVE = "[conf]/[artifact]-[revision](-[classifier]).[ext]"
_FETCH_SECONDS = 900


def configurations() -> list[str]:
    """Return the names under which packages are pinned."""
    return [conf.attrib["name"] for conf in _pins().iter("conf")]


def pinned(conf: str) -> list[str]:
    """Return the packages of a configuration, as `org:name:revision`."""
    return [
        f"{d.attrib['org']}:{d.attrib['name']}:{d.attrib['rev']}"
        for d in _pins().iter("dependency")
        if d.attrib["conf"].startswith(f"{conf}->")
    ]


def _pins() -> ET.Element:
    return ET.parse(IVY_FILE).getroot()  # noqa: S314 - our own file


def cache_home() -> Path:
    """Return the folder for all that Twice can get or make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twice"


def cache_folder() -> Path:
    """Return the folder for these pins: TWICE_JARS, or the user's cache."""
    chosen = os.environ.get("TWICE_JARS")
    base = Path(chosen) if chosen else cache_home() / "jars"
    return base / sha256(IVY_FILE.read_bytes()).hexdigest()[:12]


def cached(conf: str) -> list[Path]:
    """Return the fetched files of a configuration, or none."""
    return sorted((cache_folder() / conf).glob("*.jar"))


def in_folder(folder: Path, conf: str) -> list[Path]:
    """Return a user's own files, checked against the pins' names.

    Raises:
        Misuse: A package is not there.
    """
    found = sorted(folder.glob("*.jar")) + sorted((folder / conf).glob("*.jar"))
    for package in pinned(conf):
        name = package.split(":")[1]
        if not any(jar.name.startswith(name + "-") for jar in found):
            raise Misuse(
                f"The folder {folder} holds no {name}.", fix=f"Put {package} there, or remove [jars] from twice.toml."
            )
    return found


def ensure(confs: Sequence[str], *, quiet: bool = False) -> list[Path]:
    """Return the files of these configurations, fetching what is not there yet."""
    missing = [conf for conf in confs if not cached(conf)]
    if missing:
        if not quiet:
            packages = ", ".join(package for conf in missing for package in pinned(conf))
            print(f"twice: fetching JVM packages, once: {packages}", file=sys.stderr, flush=True)
        fetch(missing)
    return [jar for conf in confs for jar in cached(conf)]


def fetch(confs: Sequence[str]) -> None:
    """Fetch configurations into the cache folder, whole or not at all.

    Raises:
        NotPublished: Ivy could not get a package, or Java is not there.
    """
    target = cache_folder()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as work:
        _retrieve(confs, Path(work))
        for conf in confs:
            _move_into_place(Path(work) / "jars" / conf, target / conf)


def _retrieve(confs: Sequence[str], work: Path) -> None:
    command = [
        _java(), "-jar", str(_ivy()), "-cache", str(work / "cache"), "-ivy", str(IVY_FILE), "-confs", *confs,
        "-retrieve", str(work / "jars" / _RETRIEVE), "-types", "jar", "bundle", "-m2compatible",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)  # noqa: S603
    missing = [conf for conf in confs if not list((work / "jars" / conf).glob("*.jar"))]
    if done.returncode or missing or "UNRESOLVED" in done.stdout:
        trouble = [
            line.strip()
            for line in (done.stdout + done.stderr).splitlines()
            if "UNRESOLVED" in line or "not found" in line
        ]
        raise NotPublished(
            f"The JVM packages for {', '.join(confs)} could not be fetched.",
            "; ".join(dict.fromkeys(trouble))[:500] or (done.stderr or done.stdout).strip()[-500:],
            "Check the network and try `twice jars fetch`, or put them in a folder and set [jars] folder in twice.toml.",
        )


def _move_into_place(made: Path, final: Path) -> None:
    """Another process may have fetched the same: then its copy stays."""
    try:
        made.rename(final)
    except OSError:
        if not list(final.glob("*.jar")):
            raise
        shutil.rmtree(made)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else None) or shutil.which("java")
    if not java:
        raise Misuse("Java was not found.", fix="Install Java 17 and put it on the PATH, or set JAVA_HOME.")
    return java


def _ivy() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Misuse("PySpark is not installed.", fix="Install it with: pip install 'twice[spark]'")
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise Misuse(
            "PySpark brings no Ivy here.", fix="Put the JVM packages in a folder and set [jars] folder in twice.toml."
        )
    return found[0]
