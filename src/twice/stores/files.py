"""How does a file reach people who know nothing of Twice, whole or not at all?

A delivery has two steps that cannot be one. First the receipt is linked into a log beside the files, as
for a Parquet table: that is the publish, and it names the file that is ready. Then, under a lock, the
file is renamed to its final name. Whoever dies between the two leaves a delivery that is due; the next
run of the slot, or any other publish, completes it. A file that was delivered and is gone, or has another
size, ends the proof of its slot.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from twice.abilities import DeliversFiles, Delivery, LiveAttempts, Opening, Rows, Staged, Store, Swept, Work
from twice.errors import Conflict, Fenced, Misuse, NotPublished
from twice.faults import reach
from twice.runs import Receipt, is_attempt
from twice.sight import NO_TABLE, Sight
from twice.slices import quoted
from twice.sources.listing import spark_path
from twice.sources.marking import content_hash
from twice.stores import frames
from twice.stores import manifest as log
from twice.stores.beside import Beside
from twice.stores.durable import sync_file, sync_way_to
from twice.stores.manifest import DataFile, Manifest
from twice.stores.sweep import naming

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READY = os.path.join("_twice", "ready")
_LOCK = os.path.join("_twice", "lock")
# Times in full, with the seconds that offsets once had. What others write between quotes is written there, and blanks stay.
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_RFC_4180 = {
    "escape": '"',
    "nullValue": "",
    "emptyValue": '""',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
_TEXTS = ("string", "char", "varchar")
_threads: dict[str, threading.Lock] = {}
_NO_TABLES = "it delivers files, which no reader of tables knows"


class FilesStore(Beside, frames.SparkRows, Store, DeliversFiles):
    """Folders of delivered files under one root."""

    kind: ClassVar[str] = "files"
    lacks: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "ReplacesTable",
            "ReplacesSlices",
            "ReplacesPartitions",
            "Merges",
            "InsertsMissing",
            "Appends",
            "TakesIn",
            "TransactsTables",
            "PointsAtVersions",
            "UnitesTables",
        ),
        _NO_TABLES,
    )

    def __init__(self, root: str, engine: Any) -> None:
        self.root = root
        self.engine = engine

    @classmethod
    def opened(cls, opening: Opening) -> FilesStore:
        """Open the folders under a root."""
        return cls(opening.root, opening.engine)

    def table(self, name: str) -> str:
        """Return the folder of a target."""
        return os.path.join(self.root, *name.split("/"))

    def look(self, name: str) -> Sight:
        """Read the newest manifest, and see that the files are as they were delivered, or are due."""
        folder = self.table(name)
        current = log.newest(folder)
        if current.version == NO_TABLE:
            return Sight()
        if current.is_view or current.schema:
            raise Misuse(
                f"The folder of files:{name} is a table of Twice.", fix="Give each target a folder of its own."
            )
        ended = {file.slot: why for file in current.files if (why := _damage(folder, file))}
        return Sight(
            version=current.version,
            head=current.version,
            table_id=current.table_id,
            owner=current.owner,
            receipts=current.receipts,
            ended=ended,
            gone=frozenset(ended),
            outside="; ".join(sorted(ended.values())),
            data_version=current.data_version,
            swept=frozenset(current.swept),
            forgot=current.forgot,
        )

    def stage_file(self, work: Work, rows: Rows, name: str, delivery: Delivery) -> Staged:
        """Write one file beside the log, under the attempt's name."""
        folder = self.table(work.name)
        _refuse_strangers(folder, name, work)
        ready = os.path.join(folder, _READY, work.attempt)
        count = _write(frames.checked(rows), ready, delivery)
        reach("files.written")
        path = os.path.join(ready, next(one for one in sorted(os.listdir(ready)) if one.startswith("part-")))
        whole = os.path.join(ready, name)
        os.rename(path, whole)
        sync_file(whole)
        sync_way_to(whole)
        marker = name + delivery.marker if delivery.marker else ""
        file = DataFile(name, os.path.getsize(whole), content_hash(whole), work.slot, marker)
        reach("files.synced")
        return Staged(count, handle=(file, work.attempt))

    def publish(self, work: Work, staged: Staged, receipts: Sequence[Receipt]) -> tuple[str, ...]:
        """Link the receipt; the file gets its final name when that is settled."""
        folder = self.table(work.name)
        file, attempt = staged.handle

        def change(base: Manifest, following: Manifest) -> Manifest:
            if any(one.path == file.path and one.slot != work.slot for one in base.files):
                raise Conflict("another slot delivers under that name")
            kept = tuple(one for one in base.files if one.slot != work.slot)
            return replace(following, files=(*kept, file), made_by=f"publish {attempt}", data_version=following.version)

        log.publish(folder, work, receipts, change)
        return ()

    def settle(self, name: str) -> None:
        """Complete every delivery that is due, by the newest manifest and no other."""
        folder = self.table(name)
        if not os.path.isdir(log.log_folder(folder)):
            return
        with _locked(folder):
            current = log.newest(folder)
            sync_file(log.log_folder(folder))
            for file in current.files:
                _deliver(folder, file)
            _take_back(folder, current)
            # Whoever gave a file its name may have died before the disk confirmed it.
            sync_file(folder)

    def discard(self, work: Work, staged: Staged) -> None:
        """Remove the attempt's file: no manifest names it."""
        shutil.rmtree(os.path.join(self.table(work.name), _READY, work.attempt), ignore_errors=True)

    def take_over(self, name: str, base: Sight, owner: str, keep_days: int = 0) -> None:
        """Publish a version that differs in its owner alone."""
        log.take_over(self.table(name), base, owner)

    def read(self, name: str, version: int | None = None) -> Rows:
        """Delivered files are read by whoever gets them."""
        raise Misuse(f"files:{name} is a folder of delivered files.", fix="Read them with twice.files(...).")

    def tidy(self, name: str, live: LiveAttempts, *, keep_days: float, dry_run: bool) -> Swept:
        """Remove what dead attempts left beside the log."""
        folder = os.path.join(self.table(name), _READY)
        current = log.newest(self.table(name))
        due = {_attempt_of(current, file) for file in current.files}
        staged = set(filter(is_attempt, os.listdir(folder)) if os.path.isdir(folder) else ())
        reach("sweep.listed")
        dead = tuple(sorted(staged - live() - due))
        paths = [
            os.path.join(at, one)
            for attempt in dead
            for at, _, names in os.walk(os.path.join(folder, attempt))
            for one in names
        ]
        found = Swept(len(paths), sum(map(os.path.getsize, paths)), dead)
        if dry_run or not dead:
            return found
        # From now on a publish of theirs is refused, should one of them wake up.
        try:
            log.append(self.table(name), naming(self.table(name), current, dead))
        except Conflict:
            return Swept(notes=("a publish came first, so nothing was removed: try again",))
        for attempt in dead:
            shutil.rmtree(os.path.join(folder, attempt), ignore_errors=True)
        return found


def _write(rows: Any, folder: str, delivery: Delivery) -> int:
    """Write one file of the format, and return how many rows it holds."""
    counted, count = frames.counted(_as_text(rows, delivery.format))
    writer = counted.coalesce(1).write.mode("errorifexists")
    if delivery.format == "csv":
        writer.options(**_TIMES, **_RFC_4180, header=delivery.header).csv(spark_path(folder))
    elif delivery.format == "jsonl":
        writer.options(**_TIMES, ignoreNullFields=False).json(spark_path(folder))
    else:
        writer.parquet(spark_path(folder))
    return count()


def _as_text(rows: DataFrame, form: str) -> DataFrame:
    """Return the same rows; writing one that the form cannot hold as it is fails with the name of its column.

    Raises:
        NotPublished: The form has no way to write a column.
    """
    from pyspark.sql import functions as F

    if form == "parquet":
        return rows
    kinds = {field.name: field.dataType.typeName() for field in rows.schema.fields}
    binary = [name for name, kind in kinds.items() if kind == "binary"] if form == "csv" else []
    if binary:
        raise NotPublished(
            f"The column {binary[0]!r} is binary, which CSV has no way to write.",
            "Nothing was published, and the files are as they were.",
            f"Return text, such as base64({binary[0]}), or deliver JSON lines or Parquet.",
        )
    texts = {name: F.col(quoted(name)) for name, kind in kinds.items() if kind in _TEXTS}
    refused = [
        F.when(~F.is_valid_utf8(text), F.lit(f"The column {name!r} holds bytes that are not UTF-8."))
        for name, text in texts.items()
    ]
    if form == "csv" and len(kinds) == 1:
        said = f"The only column {rows.columns[0]!r} is NULL in a row, which CSV writes as an empty line that readers skip."
        refused.append(F.when(F.col(quoted(rows.columns[0])).isNull(), F.lit(said)))
    why = F.coalesce(*refused, F.lit(None).cast("string"))
    return rows.where(why.isNull() | F.raise_error(why).isNotNull()) if refused else rows


def _refuse_strangers(folder: str, name: str, work: Work) -> None:
    """A file that is there under the final name, and that no slot delivered, is somebody else's."""
    known = log.newest(folder).files
    owner = next((file.slot for file in known if file.path == name), None)
    if owner not in (None, work.slot):
        raise NotPublished(
            f"The file {name} was delivered by another slot.",
            "Delivering it would take that one's place, so nothing was published.",
            "Choose a name that tells the slots apart.",
        )
    if owner is None and os.path.lexists(os.path.join(folder, name)):
        raise NotPublished(
            f"There is a file {name} already, which Twice did not deliver.",
            "It was left as it is, and nothing was published.",
            "Move it away, or choose another name.",
        )


def _ready_path(folder: str, file: DataFile) -> str | None:
    """Return where a file waits for its delivery: the attempt's folder is the one that holds this content."""
    place = os.path.join(folder, _READY)
    for attempt in sorted(os.listdir(place)) if os.path.isdir(place) else []:
        path = os.path.join(place, attempt, file.path)
        if os.path.isfile(path) and os.path.getsize(path) == file.size and content_hash(path) == file.content:
            return path
    return None


def _attempt_of(current: Manifest, file: DataFile) -> str:
    receipt = current.receipts.get(file.slot)
    return receipt.attempt if receipt else ""


def _is_delivered(folder: str, file: DataFile) -> bool:
    path = os.path.join(folder, file.path)
    return os.path.isfile(path) and os.path.getsize(path) == file.size and content_hash(path) == file.content


def _deliver(folder: str, file: DataFile) -> None:
    """Give a file its final name, if that is due, and then set its marker."""
    ready = _ready_path(folder, file)
    if ready is not None:
        marker = os.path.join(folder, file.partition) if file.partition else ""
        if marker and os.path.exists(marker):
            # A marker speaks for the content beside it: it goes before that changes.
            os.unlink(marker)
            sync_file(folder)
        if marker:
            # Whoever receives the file may take the marker away: it is set once a delivery.
            with open(os.path.join(folder, _READY, f"{file.partition}.due"), "ab"):
                pass
        os.replace(ready, os.path.join(folder, file.path))
        reach("files.delivered")
        sync_file(folder)
        shutil.rmtree(os.path.dirname(ready), ignore_errors=True)
    marker = os.path.join(folder, file.partition) if file.partition else ""
    due = os.path.join(folder, _READY, f"{file.partition}.due") if marker else ""
    if marker and os.path.exists(due):
        with open(marker, "ab"):
            pass
        reach("files.marked")
        sync_file(folder)
        os.unlink(due)


def _take_back(folder: str, current: Manifest) -> None:
    """Remove files of a slot that has another name now; they are known from the version before."""
    if current.version == 0:
        return
    try:
        before = log.load(folder, current.version - 1)
    except Fenced:
        # A version past its keeping names nothing that could be removed.
        return
    names = {file.path for file in current.files}
    for file in before.files:
        if file.path not in names and _is_delivered(folder, file):
            for one in filter(None, (file.partition, file.path)):
                if os.path.exists(os.path.join(folder, one)):
                    os.unlink(os.path.join(folder, one))


def _damage(folder: str, file: DataFile) -> str:
    """Say what became of a delivered file; one that is due is not damaged."""
    path = os.path.join(folder, file.path)
    there = os.path.isfile(path)
    if (there and os.path.getsize(path) == file.size) or _ready_path(folder, file):
        return ""
    return f"the file {file.path} was {'changed' if there else 'removed'} after its delivery"


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Let one thread of one process deliver at a time; the kernel frees the lock of a process that dies."""
    # The kernel's lock does not keep the threads of one process apart, and closing a second handle would free it.
    own = _threads.setdefault(os.path.realpath(folder), threading.Lock())
    with own, open(os.path.join(folder, _LOCK), "ab") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield
