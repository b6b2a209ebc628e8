"""What does `twice.toml` say, and where did each value come from?

A value is taken from the command line, else from a variable of the environment, else from the section
`[env.NAME]` of the environment that was chosen, else from the rest of the file, else it is the default.
The ledger alone is never taken over from the rest of the file: each environment has its own. Unknown
keys are refused with a suggestion: a misspelt key never passes unnoticed.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from twice.confidential import from_environment, from_file
from twice.errors import Misuse, suggestion
from twice.events import KINDS
from twice.intervals import parse_length
from twice.ledger.places import Place, ledger_place
from twice.masks import MASK, hide, mask, says_secret
from twice.runs import check_name, check_path
from twice.stores.registry import is_kind, kinds

FILE = "twice.toml"
ENVIRONMENT = "TWICE_ENV"
_MOST_BYTES = 1 << 20
_VARIABLE = re.compile(r"\$\{(?:file:(?P<file>[^}]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?)\}")
_LEAST_HIDDEN = 8

DEFAULTS: dict[str, Any] = {
    "project.pipelines": "pipelines",
    "ledger.url": "sqlite:///.twice/ledger.db",
    "spark.master": "local[*]",
    "leases.seconds": 60.0,
    "leases.renew_seconds": 20.0,
    "jars.from": "fetch",
    "jars.folder": "",
    "tidy.keep_days": 7.0,
    "retries.tries": 0,
    "retries.at_once": 1,
    "retries.wait": "1 minute",
    "retries.wait_at_most": "1 hour",
    "retries.for_at_most": "1 day",
    "retries.per_hour": 100,
    "effects.calls": "make",
    "log.format": "off",
    "log.level": "info",
    "results.file": ".twice/run_results.json",
    "openlineage.url": "",
    "openlineage.file": "",
    "openlineage.namespace": "",
    "signals.enabled": True,
}
CHOICES = {"log.format": ("off", "text", "json"), "log.level": ("debug", "info", "warning", "error")}
_ENVIRONMENT = {key: "TWICE_" + key.upper().replace(".", "_") for key in DEFAULTS}
_PATHS = ("project.pipelines", "jars.folder", "results.file", "openlineage.file")
_LENGTHS = ("retries.wait", "retries.wait_at_most", "retries.for_at_most")
_RENEWALS = 3
_FREE_TABLES = ("spark.conf",)
_OWN_SECTIONS = ("stores", "hooks")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_STORE_KEYS = ("kind", "root", "views", "url")


@dataclass(frozen=True)
class Value:
    """One setting, and where it came from. `written` is what stands in the file, if a variable was filled in."""

    key: str
    value: Any
    origin: str
    written: str = ""

    @property
    def shown(self) -> Any:
        """The value as people may see it: a variable that was filled in by its name, a secret not at all."""
        if self.written:
            return mask(self.written)
        return shown(self.key, self.value)


def shown(key: str, value: Any) -> Any:
    """Return a value as people may see it."""
    if not isinstance(value, str):
        return value
    return MASK if value and says_secret(key) else mask(value)


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
    """All settings of a project, for the environment `env`; `origins` says what of it stands where in the file."""

    root: Path
    values: Mapping[str, Value]
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    stores: Mapping[str, StoreSettings] = field(default_factory=dict)
    file: Path | None = None
    hooks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spark_conf_written: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    env: str = ""
    environments: tuple[str, ...] = ()

    def __getitem__(self, key: str) -> Any:
        return self.values[key].value

    @property
    def own_folder(self) -> Path:
        """Where the project keeps what belongs to its ledger: each environment has a folder of its own."""
        return self.root / _own_folder(self.env)

    @property
    def ledger_place(self) -> Place:
        """Where the ledger is."""
        return ledger_place(str(self["ledger.url"]), self.root)

    @property
    def secret_spark_conf(self) -> frozenset[str]:
        """The names of Spark's settings that must not stand on a command line: filled in, or secret by name."""
        return frozenset(
            name for name in self.spark_conf if "${" in self.spark_conf_written.get(name, "") or says_secret(name)
        )


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


def load(root: Path, overrides: Mapping[str, Any] | None = None, env: str | None = None) -> Settings:
    """Read a project's settings, for the environment `env`, else for the one that TWICE_ENV names, else for none.

    Without a file all are defaults.

    Raises:
        Misuse: The file cannot be read, or holds an unknown key or a wrong type; or there is no such environment.
    """
    file = root / FILE
    tree = _read(file) if file.is_file() else {}
    environments = _environments(tree.pop("env", {}))
    chosen = _chosen(os.environ.get(ENVIRONMENT) or None if env is None else env, environments)
    written = _written(tree)
    if chosen:
        written.flat.pop("ledger.url", None)
        written = written.under(_written(environments[chosen], f"env.{chosen}."))
    values = {}
    for key, default in _defaults(chosen).items():
        values[key] = _value(key, default, written, overrides or {})
        if key in _PATHS:
            check_path(key, values[key].value)
    _check_lengths(values)
    values["leases.renew_seconds"] = _renewal(values["leases.renew_seconds"], values["leases.seconds"].value)
    return Settings(
        root,
        values,
        {name: _expand(text, name, hidden=True) for name, text in written.conf.items()},
        _stores(written.stores),
        file if file.is_file() else None,
        written.hooks,
        written.conf,
        written.origins,
        chosen,
        tuple(environments),
    )


@dataclass(frozen=True)
class _Written:
    """What stands in the file, or in the section of an environment; `origins` tells the two apart, key by key."""

    flat: dict[str, Any]
    conf: dict[str, str]
    stores: dict[str, Any]
    hooks: dict[str, tuple[str, ...]]
    origins: dict[str, str]

    def under(self, own: _Written) -> _Written:
        """Return both, with what an environment says in place of what the file says."""
        shared = [name for name in own.stores if isinstance(self.stores.get(name), dict)]
        stores = {**self.stores, **own.stores, **{name: {**self.stores[name], **own.stores[name]} for name in shared}}
        return _Written(
            self.flat | own.flat, self.conf | own.conf, stores, self.hooks | own.hooks, self.origins | own.origins
        )


def _written(tree: dict[str, Any], of: str = "") -> _Written:
    """Read what a tree holds; `of` is where it stands in the file.

    Raises:
        Misuse: It holds an unknown section or key.
    """
    flat, conf = _flatten(tree, of)
    stores, hooks = tree.get("stores", {}), _hooks(tree.get("hooks", {}), of)
    for name, content in stores.items():
        _check_store_keys(f"{of}stores.{name}", content)
    keys = [*flat, *(f"spark.conf.{name}" for name in conf)]
    keys += [*(f"stores.{name}" for name in stores), *(f"hooks.{kind}" for kind in hooks)]
    return _Written(flat, conf, stores, hooks, dict.fromkeys(keys, f"{FILE} [{of[:-1]}]" if of else FILE))


def _own_folder(env: str) -> str:
    return f".twice/env/{env}" if env else ".twice"


def _defaults(env: str) -> dict[str, Any]:
    folder = _own_folder(env)
    return {**DEFAULTS, "ledger.url": f"sqlite:///{folder}/ledger.db", "results.file": f"{folder}/run_results.json"}


def _environments(tree: Any) -> dict[str, dict[str, Any]]:
    """Return the sections `[env.NAME]`, each with known keys alone, also of those that are not chosen."""
    if not isinstance(tree, dict) or not all(isinstance(content, dict) for content in tree.values()):
        raise Misuse(
            f"env in {FILE} must hold tables.",
            fix='For example [env.prod.spark], or [env.prod] with spark.master = "…".',
        )
    for name, content in tree.items():
        check_name("environment", name)
        _written(content, f"env.{name}.")
    return tree


def _chosen(env: str | None, environments: Iterable[str]) -> str:
    if env is None:
        return ""
    names = sorted(environments)
    if env not in names:
        there = f"There is: {', '.join(names)}." if names else f"The file has no section [env.{env or 'NAME'}]."
        close = suggestion(env, names)
        raise Misuse(
            f"There is no environment {env!r} in {FILE}.",
            f"{there} Nothing was done.",
            close
            if close.startswith("Did")
            else "Leave --env and TWICE_ENV out for the project without an environment.",
        )
    return env


def _check_lengths(values: Mapping[str, Value]) -> None:
    """Refuse lengths of time that would be found wrong in the middle of a run."""
    for key in _LENGTHS:
        try:
            parse_length(values[key].value)
        except Misuse as error:
            raise Misuse(f"{key}: {error.what}", error.why, error.fix) from None


def _renewal(said: Value, seconds: float) -> Value:
    """Return how often leases are renewed: as it is said, else so often that two renewals may fail.

    Raises:
        Misuse: A lease would end before it is renewed.
    """
    if said.origin == "default":
        return said if not 0 < seconds < _RENEWALS * said.value else replace(said, value=seconds / _RENEWALS)
    # A lease of no time ends at once, as a proof wants it in its copies; nothing could renew it.
    if not said.value or 0 < seconds <= said.value:
        raise Misuse(
            f"leases.renew_seconds={said.value:g} must be more than 0 and less than leases.seconds={seconds:g}.",
            "A lease that is not renewed in time ends, and another run takes the slot over.",
            "Leave it out: by default two renewals may fail before a lease ends.",
        )
    return said


def _read(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise Misuse(f"{file.name} is larger than {_MOST_BYTES:,} bytes.")
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{file.name} cannot be read: {error}.") from error


def _flatten(tree: dict[str, Any], of: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings by their whole names, and what is said to Spark as it is written; `of` is where the tree stands."""
    flat: dict[str, Any] = {}
    sections = {key.partition(".")[0] for key in DEFAULTS} | set(_OWN_SECTIONS)
    for section, content in tree.items():
        if section not in sections:
            raise Misuse(f"[{of}{section}] in {FILE} is not known.", fix=suggestion(section, sections))
        if not isinstance(content, dict):
            raise Misuse(f"{of}{section} in {FILE} must be a table: [{of}{section}].")
        if section not in _OWN_SECTIONS:
            flat.update({f"{section}.{name}": value for name, value in content.items()})
    conf = flat.pop("spark.conf", {})
    for key in flat:
        if key not in DEFAULTS:
            raise Misuse(f"{of}{key} in {FILE} is not known.", fix=suggestion(key, [*DEFAULTS, *_FREE_TABLES]))
    if not isinstance(conf, dict):
        raise Misuse(f"{of}spark.conf in {FILE} must be a table: [{of}spark.conf].")
    return flat, {name: _conf_text(value) for name, value in conf.items()}


def _hooks(tree: dict[str, Any], of: str) -> dict[str, tuple[str, ...]]:
    """Read `[hooks]`: for each kind of event the functions to call, as `module:function`."""
    hooks = {}
    for kind, named in tree.items():
        if kind not in KINDS:
            raise Misuse(f"{of}hooks.{kind} in {FILE} is not known.", fix=suggestion(kind, KINDS))
        functions = (named,) if isinstance(named, str) else tuple(named) if isinstance(named, list) else ()
        if not functions or not all(isinstance(one, str) and _FUNCTION.fullmatch(one) for one in functions):
            raise Misuse(f"{of}hooks.{kind} in {FILE} must name functions.", fix='For example "alerts:on_dead".')
        hooks[kind] = functions
    return hooks


def _conf_text(value: Any) -> str:
    if isinstance(value, dict | list):
        raise Misuse(
            f"[spark.conf] in {FILE} holds a name without quotes.", fix='Write "spark.driver.memory" = "2g", in quotes.'
        )
    return str(value).lower() if isinstance(value, bool) else str(value)


def _stores(tree: dict[str, Any]) -> dict[str, StoreSettings]:
    stores = {}
    for name, content in tree.items():
        if "kind" not in content:
            raise Misuse(f"[stores.{name}] in {FILE} needs a kind.", fix='For example kind = "delta".')
        root = _expand(str(content.get("root", "")), f"stores.{name}.root")
        check_path(f"The root of [stores.{name}] in {FILE}", root)
        url = os.environ.get(_url_variable(name)) or _expand(str(content.get("url", "")), f"stores.{name}.url")
        kind = str(content["kind"])
        if not is_kind(kind):
            raise Misuse(f"stores.{name}.kind={kind!r} in {FILE} is no kind of store.", fix=suggestion(kind, kinds()))
        stores[name] = StoreSettings(name, kind, root, str(content.get("views", "")), url or url_of_kind(kind))
    return stores


def _check_store_keys(of: str, content: Any) -> None:
    if not isinstance(content, dict):
        raise Misuse(f"{of} in {FILE} must be a table: [{of}].")
    for key in content:
        if key not in _STORE_KEYS:
            raise Misuse(f"{of}.{key} in {FILE} is not known.", fix=suggestion(key, _STORE_KEYS))


def _value(key: str, default: Any, said: _Written, overrides: Mapping[str, Any]) -> Value:
    if overrides.get(key) is not None:
        return Value(key, _typed(key, overrides[key], default), "command line")
    variable = _ENVIRONMENT[key]
    given = from_environment(variable)
    if given is not None:
        named = variable if variable in os.environ else f"{variable}_FILE"
        written = "" if variable in os.environ else f"${{file:{os.environ[named]}}}"
        return Value(key, _typed(key, given, default), f"environment ({named})", written)
    if key in said.flat:
        raw = said.flat[key]
        written = raw if isinstance(raw, str) and _VARIABLE.search(raw) else ""
        value = _typed(key, _expand(raw, key) if isinstance(raw, str) else raw, default)
        return Value(key, value, said.origins[key], written)
    return Value(key, default, "default")


def _typed(key: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool):
        word = str(value).lower()
        if word not in ("true", "false"):
            raise Misuse(f"{key} must be true or false, not {value!r}.")
        return word == "true"
    if isinstance(default, int | float):
        return _number(key, value, default)
    if not isinstance(value, str):
        raise Misuse(f"{key} must be text, not {value!r}.")
    if value not in CHOICES.get(key, (value,)):
        raise Misuse(f"{key}={value!r} is not known.", fix=f"Use one of: {', '.join(CHOICES[key])}.")
    return value


def _number(key: str, value: Any, default: float) -> float:
    """Return a number; a count, which has a whole one as its default, is whole."""
    try:
        number = float("no" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        raise Misuse(f"{key} must be a number, not {value!r}.") from None
    if not math.isfinite(number) or number < 0:
        raise Misuse(f"{key} must be a number from 0 on, not {value!r}.")
    if isinstance(default, float):
        return number
    if not number.is_integer():
        raise Misuse(f"{key} must be a whole number, not {value!r}.")
    return int(number)


def _expand(text: str, key: str, *, hidden: bool = False) -> str:
    """Fill in `${VAR}`, `${VAR:-default}` and `${file:PATH}`, so that no secret stands in the file.

    What comes from a file, and what the name of the variable or of the setting calls a secret, is masked
    from now on wherever Twice writes; `hidden` does so for any value that could be one.
    """

    def replacement(match: re.Match[str]) -> str:
        if match["file"]:
            return hide(from_file(match["file"], key))
        found = from_environment(match["name"])
        if found is None:
            if match["default"] is None:
                raise Misuse(
                    f"{key} needs the environment variable {match['name']}, which is not set.",
                    fix=f"Set {match['name']}, or let {match['name']}_FILE name a file that holds it.",
                )
            return str(match["default"])
        if says_secret(match["name"]) or says_secret(key) or (hidden and _could_be_secret(found)):
            hide(found)
        return found

    return _VARIABLE.sub(replacement, text)


def _could_be_secret(value: str) -> bool:
    """Tell a value that may be a secret from a size, a number or a place on this machine."""
    return len(value) >= _LEAST_HIDDEN and not os.path.exists(value)
