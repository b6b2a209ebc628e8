"""What does `twice.toml` say, and where did each value come from?

A value is taken from the command line, else from the environment, else from the file, else it is
the default. Unknown keys are refused with a suggestion: a misspelt key never passes unnoticed.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twice.errors import Misuse, suggestion
from twice.ledger.places import Place, ledger_place

FILE = "twice.toml"
_MOST_BYTES = 1 << 20
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

DEFAULTS: dict[str, Any] = {
    "project.pipelines": "pipelines",
    "ledger.url": "sqlite:///.twice/ledger.db",
    "spark.master": "local[*]",
    "leases.seconds": 60.0,
    "leases.renew_seconds": 20.0,
    "jars.from": "fetch",
    "jars.folder": "",
    "tidy.keep_days": 7.0,
}
_ENVIRONMENT = {key: "TWICE_" + key.upper().replace(".", "_") for key in DEFAULTS}
_FREE_TABLES = ("spark.conf",)
_STORE_KEYS = ("kind", "root", "views", "url")


@dataclass(frozen=True)
class Value:
    """One setting, and where it came from."""

    key: str
    value: Any
    origin: str


@dataclass(frozen=True)
class StoreSettings:
    """A `[stores.X]` of the project file."""

    name: str
    kind: str
    root: str
    views: str = ""
    url: str = field(default="", repr=False)


@dataclass(frozen=True)
class Settings:
    """All settings of a project."""

    root: Path
    values: Mapping[str, Value]
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    stores: Mapping[str, StoreSettings] = field(default_factory=dict)
    file: Path | None = None

    def __getitem__(self, key: str) -> Any:
        return self.values[key].value

    @property
    def ledger_place(self) -> Place:
        """Where the ledger is."""
        return ledger_place(str(self["ledger.url"]), self.root)


def url_of_kind(kind: str) -> str:
    """Return the URL of a kind of store that the environment names, such as TWICE_POSTGRES_URL, or nothing."""
    return os.environ.get(f"TWICE_{kind.upper()}_URL", "")


def _url_variable(store: str) -> str:
    return f"TWICE_STORES_{re.sub('[^A-Za-z0-9]', '_', store).upper()}_URL"


def url_variables(kind: str, stores: Iterable[str]) -> tuple[str, ...]:
    """Name the variables of the environment that say where stores of a kind are, before any file does."""
    return (f"TWICE_{kind.upper()}_URL", *map(_url_variable, stores))


def find_root(start: Path | None = None) -> Path | None:
    """Walk up from a folder to the one that holds `twice.toml`."""
    place = (start or Path.cwd()).resolve()
    for folder in (place, *place.parents):
        if (folder / FILE).is_file():
            return folder
    return None


def load(root: Path, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read a project's settings; without a file all are defaults.

    Raises:
        Misuse: The file cannot be read, or holds an unknown key or a wrong type.
    """
    file = root / FILE
    tree = _read(file) if file.is_file() else {}
    flat, spark_conf, stores = _flatten(tree)
    values = {}
    for key, default in DEFAULTS.items():
        values[key] = _value(key, default, flat, overrides or {})
    return Settings(root, values, spark_conf, stores, file if file.is_file() else None)


def _read(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise Misuse(f"{file.name} is larger than {_MOST_BYTES:,} bytes.")
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{file.name} cannot be read: {error}.") from error


def _flatten(tree: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str], dict[str, StoreSettings]]:
    flat: dict[str, Any] = {}
    sections = {key.partition(".")[0] for key in DEFAULTS} | {"stores"}
    for section, content in tree.items():
        if section not in sections:
            raise Misuse(f"[{section}] in {FILE} is not known.", fix=suggestion(section, sections))
        if not isinstance(content, dict):
            raise Misuse(f"{section} in {FILE} must be a table: [{section}].")
        if section != "stores":
            flat.update({f"{section}.{name}": value for name, value in content.items()})
    conf = flat.pop("spark.conf", {})
    for key in flat:
        if key not in DEFAULTS:
            raise Misuse(f"{key} in {FILE} is not known.", fix=suggestion(key, [*DEFAULTS, *_FREE_TABLES]))
    if not isinstance(conf, dict):
        raise Misuse(f"spark.conf in {FILE} must be a table: [spark.conf].")
    return (
        flat,
        {name: _expand(_conf_text(value), name) for name, value in conf.items()},
        _stores(tree.get("stores", {})),
    )


def _conf_text(value: Any) -> str:
    if isinstance(value, dict | list):
        raise Misuse(
            f"[spark.conf] in {FILE} holds a name without quotes.", fix='Write "spark.driver.memory" = "2g", in quotes.'
        )
    return str(value).lower() if isinstance(value, bool) else str(value)


def _stores(tree: dict[str, Any]) -> dict[str, StoreSettings]:
    stores = {}
    for name, content in tree.items():
        if not isinstance(content, dict) or "kind" not in content:
            raise Misuse(f"[stores.{name}] in {FILE} needs a kind.", fix='For example kind = "delta".')
        for key in content:
            if key not in _STORE_KEYS:
                raise Misuse(f"stores.{name}.{key} in {FILE} is not known.", fix=suggestion(key, _STORE_KEYS))
        root = _expand(str(content.get("root", "")), f"stores.{name}.root")
        url = os.environ.get(_url_variable(name)) or _expand(str(content.get("url", "")), f"stores.{name}.url")
        url = url or url_of_kind(str(content["kind"]))
        stores[name] = StoreSettings(name, str(content["kind"]), root, str(content.get("views", "")), url)
    return stores


def _value(key: str, default: Any, flat: Mapping[str, Any], overrides: Mapping[str, Any]) -> Value:
    if overrides.get(key) is not None:
        return Value(key, _typed(key, overrides[key], default), "command line")
    variable = _ENVIRONMENT[key]
    if variable in os.environ:
        return Value(key, _typed(key, os.environ[variable], default), f"environment ({variable})")
    if key in flat:
        raw = flat[key]
        return Value(key, _typed(key, _expand(raw, key) if isinstance(raw, str) else raw, default), FILE)
    return Value(key, default, "default")


def _typed(key: str, value: Any, default: Any) -> Any:
    if isinstance(default, float):
        try:
            number = float("no" if isinstance(value, bool) else value)
        except (TypeError, ValueError):
            raise Misuse(f"{key} must be a number, not {value!r}.") from None
        if not math.isfinite(number) or number < 0:
            raise Misuse(f"{key} must be a number from 0 on, not {value!r}.")
        return number
    if not isinstance(value, str):
        raise Misuse(f"{key} must be text, not {value!r}.")
    return value


def _expand(text: str, key: str) -> str:
    """Fill in `${VAR}` and `${VAR:-default}`, so that no secret stands in the file."""

    def replacement(match: re.Match[str]) -> str:
        found = os.environ.get(match[1], match[2])
        if found is None:
            raise Misuse(f"{key} needs the environment variable {match[1]}, which is not set.")
        return found

    return _VARIABLE.sub(replacement, text)
