"""How does a run of several steps go on after its last whole one?

The output of a function marked `@twice.step` is kept under the project's folder, named by slot, step and a fingerprint: of the
run's inputs, of the transform, of this step's code and plain arguments, and of all steps before it. So a change of any of them
makes this step and the later ones run again. A step is whole once its marker is linked. What is true if the process dies:

    while a step works       nothing names its files; it runs again
    before its marker        the same
    after its marker         the next attempt reads its output and does not run it
    after the publish        the slot is done; whoever comes next, or `twice tidy`, removes what is kept

The inputs are looked at again before a marker is linked: rows that were read while they changed are never kept. Two attempts
at once write files of their own, and one of them links the marker. `--force` makes another edition, and shares no step.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from twice.errors import Misuse, NotPublished
from twice.faults import reach
from twice.fingerprint import code_digest
from twice.runs import Run, Slot, check_name, digest
from twice.stores.durable import keep_whole, sync_file, sync_folders, sync_way_to

_DAY = 86_400.0


class Step:
    """A function whose output is kept, if it is called with the run; without, it is the function that it was."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = check_name("step", function.__name__)

    def __call__(self, *rows: Any, run: Run | None = None, **named: Any) -> Any:
        """Return the step's output: kept by an earlier attempt, or made and kept now."""
        if run is None or run.steps is None:
            return self.function(*rows, **named)
        return run.steps.output(self, rows, named)


def step(function: Callable[..., Any]) -> Step:
    """Mark a function as a step: called with `run=run` its output is kept until the rows are published."""
    return Step(function)


@dataclass(frozen=True)
class Kept:
    """What is kept of the steps of a project."""

    folder: str
    session: Callable[[], Any]

    def of_run(self, run: Run, fingerprint: str, code: str, look_again: Callable[[], None]) -> Stager | None:
        """Return what keeps the steps of one run; None where nobody could tell whether its inputs are the same."""
        if not fingerprint:
            return None
        first = digest(json.dumps([run.slot.text, run.generation, fingerprint, code]))
        return Stager(self.place(run.slot), run.attempt, first, self.session, look_again)

    def place(self, slot: Slot) -> str:
        """Return the folder of a slot."""
        return os.path.join(self.folder, digest(slot.text))

    def sweep(self, slots: Iterable[Slot]) -> None:
        """Remove what is kept of slots that are published. What cannot be removed is left to `twice tidy`."""
        for slot in slots:
            if os.path.isdir(self.place(slot)):
                _remove(self.place(slot))
                reach("steps.swept")

    def tidy(self, live: Callable[[], Iterable[str]], *, keep_days: float, dry_run: bool) -> int:
        """Remove what no live run uses and nobody touched for so many days; return how many slots it was of."""
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        busy = {digest(name) for name in live()}
        places = [os.path.join(self.folder, name) for name in names if name not in busy]
        old = [place for place in places if _age(place) >= keep_days * _DAY]
        for place in old if not dry_run else ():
            _remove(place)
        return len(old)


class Stager:
    """Keeps the outputs of one run's steps, in the order in which they are called."""

    def __init__(
        self, place: str, attempt: str, first: str, session: Callable[[], Any], look_again: Callable[[], None]
    ) -> None:
        self._place = place
        self._attempt = attempt
        self._chain = first
        self._session = session
        self._look_again = look_again
        self._count = 0

    def output(self, step: Step, rows: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return what a step gives, from an earlier attempt if that left it whole."""
        self._count += 1
        given = json.dumps([rows, named], sort_keys=True, default=_told)
        self._chain = digest(json.dumps([self._chain, step.name, code_digest(step.function), given]))
        marker = os.path.join(self._place, f"{self._count:03}-{step.name}-{self._chain}.json")
        if not os.path.exists(marker):
            reach("step.before")
            self._keep(step, marker, step.function(*rows, **named))
        return self._read(marker)

    def _keep(self, step: Step, marker: str, result: Any) -> None:
        if result is None:
            raise NotPublished(
                f"The step {step.name!r} returned nothing.",
                "Nothing was published, and the target is as it was.",
                "Return its rows.",
            )
        os.makedirs(self._place, exist_ok=True)
        sync_way_to(self._place)
        said = self._written(step, result)
        reach("step.output.written")
        self._look_again()
        try:
            keep_whole(marker, json.dumps(said).encode(), "step.marker")
        except FileExistsError:
            return  # another attempt was faster, and its output is as good

    def _written(self, step: Step, result: Any) -> dict[str, Any]:
        """Write an output where nothing names it yet, and return what the marker says."""
        if isinstance(result, list):
            text = json.dumps(result, default=_tagged)
            if json.loads(text, object_hook=_untagged) != result:
                raise Misuse(
                    f"The rows of the step {step.name!r} cannot be kept: they hold values that JSON cannot tell apart.",
                    fix="Use texts, numbers, dates, times and decimals.",
                )
            return {"rows": text}
        if not hasattr(result, "sparkSession"):
            raise Misuse(f"The step {step.name!r} returned a {type(result).__name__}, and not rows.")
        name = f"{self._count:03}-{step.name}-{self._attempt}-{secrets.token_hex(4)}"
        path = os.path.join(self._place, name)
        result.write.parquet(path)
        files = [os.path.join(path, file) for file in os.listdir(path)]
        for file in files:
            sync_file(file)
        sync_folders([path, self._place])
        return {"folder": name, "schema": result.schema.json()}

    def _read(self, marker: str) -> Any:
        with open(marker, encoding="utf-8") as file:
            said = json.load(file)
        if "rows" in said:
            return json.loads(said["rows"], object_hook=_untagged)
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(said["schema"]))
        return self._session().read.schema(schema).parquet(os.path.join(self._place, said["folder"]))


def _age(place: str) -> float:
    """Return for how many seconds nobody touched a folder; one that a run has just swept is not old."""
    try:
        return time.time() - os.path.getmtime(place)
    except FileNotFoundError:
        return -1.0


def _remove(place: str) -> None:
    """Remove markers before what they name: what is half removed is not whole.

    The rows are published by now, or nobody comes back for them: that something stays, or somebody else removes it at
    the same time, is no reason to fail.
    """
    with suppress(OSError):
        for name in sorted(os.listdir(place), key=lambda one: not one.endswith(".json")):
            path = os.path.join(place, name)
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)
        os.rmdir(place)


def _told(value: Any) -> Any:
    """Write an argument down; a frame follows from the steps and inputs before it."""
    return "frame" if hasattr(value, "sparkSession") else str(value)


def _tagged(value: Any) -> dict[str, str]:
    for kind in (datetime, date):
        if type(value) is kind:
            return {"$kind": kind.__name__, "$value": value.isoformat()}
    if type(value) is Decimal:
        return {"$kind": "Decimal", "$value": str(value)}
    raise Misuse(f"A row of a step holds a {type(value).__name__}, which cannot be kept.", fix="Use plain values.")


_KINDS: dict[str, Callable[[str], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "Decimal": Decimal,
}


def _untagged(values: dict[str, Any]) -> Any:
    return _KINDS[values["$kind"]](values["$value"]) if set(values) == {"$kind", "$value"} else values
