"""How are the inputs of a world changed, or taken away, as a correction or a mishap would?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twice.prover.trials import CannotBeTried
from twice.prover.worlds import ProjectWorld

_ENOUGH_LINES = 3


def changed(world: ProjectWorld) -> None:
    """Take the last row out of one of the input files.

    Raises:
        CannotBeTried: No input is a file that can be cut.
    """
    for file in _files(world):
        if file.suffix == ".parquet" and _cut_parquet(file):
            return
        if file.suffix in (".csv", ".tsv", ".json", ".jsonl", ".ndjson") and _cut_lines(file):
            return
    raise CannotBeTried("no input is a file of the project that could be changed")


def _cut_lines(file: Path) -> bool:
    lines = file.read_bytes().splitlines(keepends=True)
    if len(lines) < _ENOUGH_LINES:
        return False
    file.write_bytes(b"".join(lines[:-1]))
    return True


def _cut_parquet(file: Path) -> bool:
    from pyarrow import parquet

    table = parquet.ParquetFile(file).read()
    if table.num_rows < _ENOUGH_LINES:
        return False
    parquet.write_table(table.slice(0, table.num_rows - 1), file)
    return True


@contextmanager
def vanished(world: ProjectWorld) -> Iterator[frozenset[str]]:
    """Take the input files away while the block works, and yield their names.

    Raises:
        CannotBeTried: No input is a file of the world.
    """
    files = _files(world)
    if not files:
        raise CannotBeTried("no input is a file of the project that could be taken away")
    for file in files:
        os.rename(file, _aside(file))
    names = {str(file.relative_to(world.folder)) for file in files}
    folders = {str(file.parent.relative_to(world.folder)) for file in files if file.suffix == ".parquet"}
    try:
        yield frozenset(names | folders)
    finally:
        for file in files:
            os.rename(_aside(file), file)


def _aside(file: Path) -> Path:
    return file.with_name(f".{file.name}.log")


def _files(world: ProjectWorld) -> list[Path]:
    """Return the files of the world that the slot reads."""
    declared, slot = world.subject.declared, world.subject.slot
    with world.entered() as project:
        place = project.place(slot, declared.zone, declared.schedule)
        names = [name for source in declared.files for name in source.counts_for(place)]
    return [world.folder / name for name in names if not os.path.isabs(name) and not name.startswith("..")]
