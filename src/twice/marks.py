"""Which files has a target taken in?

A *mark* says what became of one file. Marks are kept beside the table, in *bodies* that never change: a body holds the
marks that one publish adds or changes. It names the older bodies that still count, oldest first, and the body of the
publish before it. A newer mark takes the place of an older one of the same path.

A body counts only through a receipt that names it, so rows and marks appear together or not at all:

    death before the body is kept     nothing happened
    death before the publish          a body that nobody names: it never counts, and a tidy takes it away
    death after the publish           rows and marks are there, also if nobody was told
    two at once                       each keeps a body under a label of its own; the store lets one receipt through

Small bodies are merged as they gather: each that counts has more than twice the marks of the next newer one, so for a
million files there are twenty at most. What was taken in is compared by digests of 128 bits; deciding that a folder
holds nothing new looks at these alone.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Protocol, TypeVar

import xxhash

from twice.errors import Fenced, NotPublished
from twice.runs import Aside

SEEN = "seen"
CLAIMED = "claimed"
PUBLISHED = "published"
FAILED = "failed"
SET_ASIDE = "set aside"
SUPERSEDED = "superseded"
GONE = "gone"
FORGOTTEN = "forgotten"
# The place of a state in this order is what a body holds: new ones come last.
STATES = (SEEN, CLAIMED, PUBLISHED, FAILED, SET_ASIDE, SUPERSEDED, GONE, FORGOTTEN)
# What became of these files is decided: nothing is to be done until they change.
SETTLED = frozenset((PUBLISHED, SET_ASIDE, SUPERSEDED, GONE))

_MAGIC = b"twice marks 1\n"
_LENGTH = struct.Struct(">I")
_NUMBERS = struct.Struct(">qq")
_DIGEST_BYTES = 16
_DIGESTS = struct.Struct(f"{_DIGEST_BYTES}s")
# Stands for a digest by which a mark is not to be found.
_NO_DIGEST = bytes(_DIGEST_BYTES)
_MARKS_IN_BLOCK = 4096
_IN_BLOCK = tuple(map(attrgetter, ("path", "size", "mtime_ns", "content", "rows", "generation", "reason", "real")))
_CODES = {state: code for code, state in enumerate(STATES)}
_TIMES_LARGER = 2
_HEX_IN_LABEL = 16


@dataclass(frozen=True, slots=True)
class Mark:
    """What became of one file.

    Attributes:
        path: Its path under the project's folder, as it was found.
        size: Its bytes.
        mtime_ns: When it was modified.
        content: Hash of its bytes, with the name of the algorithm; empty if nobody looked into it. Of a file that is set
            aside while the table holds an older content, the hash of that.
        rows: How many rows the table has of it, or None if none of it was published.
        generation: The edition of the slot in which this became true; of rows that are in the table, the one that brought them.
        state: One of `STATES`.
        reason: Why, in words.
        real: Where the path led to, if it is a link.
    """

    path: str
    size: int
    mtime_ns: int
    content: str
    rows: int | None
    generation: int
    state: str
    reason: str = ""
    real: str = ""

    @property
    def is_there(self) -> bool:
        """Tell whether its rows are in the table; those of a file that is gone, bad or forgotten since then stay there."""
        if self.state == FORGOTTEN:
            return bool(self.content)
        return self.state == PUBLISHED or (self.state in (GONE, SET_ASIDE) and self.rows is not None)


class Look(Protocol):
    """A file as it was found in its folder."""

    @property
    def path(self) -> str:
        """Its path."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def mtime_ns(self) -> int:
        """When it was modified."""


Found = TypeVar("Found", bound=Look)


def _digest(text: str) -> bytes:
    """Digest a text; a name that is no text has its bytes in place of characters."""
    return xxhash.xxh3_128_digest(text.encode("utf-8", "surrogateescape"))


def _token(path: str, size: int, mtime_ns: int) -> bytes:
    """Digest what tells a file and its state apart from all others."""
    try:
        return xxhash.xxh3_128_digest(path.encode() + _NUMBERS.pack(size, mtime_ns))
    except (UnicodeEncodeError, struct.error):  # a name that is no text, or a time after the year 2262
        return _digest(f"{path}\0{size}\0{mtime_ns}")


def _each(digests: memoryview) -> Iterator[bytes]:
    return map(itemgetter(0), _DIGESTS.iter_unpack(digests))


# ---------------------------------------------------------------------------------------------------------- bodies


class Body:
    """The bytes of one publish's marks: a header, arrays of states and digests, and the marks in packed blocks.

    Attributes:
        generation: The edition that brought it.
        attempt: The attempt that wrote it.
        previous: Label of the body of the publish before, or empty.
        older: Labels of the older bodies that count with it, oldest first, each with its number of marks.
        aside: Rows that are set aside, with this body and with all that count with it.
        hashes: Algorithms by which contents are known here and in all that count with it.
        columns: The columns in which rows carry their file, each with the generation from which on; empty for none.
        count: How many marks it holds.
    """

    def __init__(self, label: str, raw: bytes) -> None:
        whole = memoryview(raw)
        content, checksum = whole[:-_DIGEST_BYTES], whole[-_DIGEST_BYTES:]
        if xxhash.xxh3_128_digest(content) != checksum or not label.endswith(checksum.hex()[:_HEX_IN_LABEL]):
            raise _damaged(label)
        if not raw.startswith(_MAGIC):
            raise _newer(label)
        start = len(_MAGIC) + _LENGTH.size
        end = start + _LENGTH.unpack_from(raw, len(_MAGIC))[0]
        header = json.loads(raw[start:end])
        self.generation: int = header["generation"]
        self.attempt: str = header["attempt"]
        self.previous: str = header["previous"]
        self.older: tuple[tuple[str, int], ...] = tuple((one, count) for one, count in header["older"])
        self.aside = tuple(Aside(*one) for one in header["aside"])
        self.hashes: tuple[str, ...] = tuple(header["hashes"])
        self.columns: tuple[tuple[int, str], ...] = tuple((since, column) for since, column in header["columns"])
        self.count: int = header["count"]
        self._blocks: list[int] = header["blocks"]
        sections = []
        for width in (1, _DIGEST_BYTES, _DIGEST_BYTES, _DIGEST_BYTES):
            sections.append(content[end : end + width * self.count])
            end += width * self.count
        self.states, self.tokens, self.paths, self.contents = sections
        self._packed = content[end:]

    def marks(self, places: Iterable[int]) -> Iterator[Mark]:
        """Return the marks at some places, in rising order; only their blocks are unpacked."""
        block = -1
        columns: Sequence[Any] = ()
        for place in places:
            if place // _MARKS_IN_BLOCK != block:
                block = place // _MARKS_IN_BLOCK
                columns = self._columns(block)
            path, size, mtime_ns, content, rows, generation, reason, real = (
                column[place % _MARKS_IN_BLOCK] for column in columns
            )
            yield Mark(path, size, mtime_ns, content, rows, generation, STATES[self.states[place]], reason, real)

    def token(self, place: int) -> bytes:
        """Return the token of one mark."""
        return bytes(self.tokens[place * _DIGEST_BYTES : (place + 1) * _DIGEST_BYTES])

    def _columns(self, block: int) -> Sequence[Any]:
        start = sum(self._blocks[:block])
        columns: Sequence[Any] = json.loads(zlib.decompress(self._packed[start : start + self._blocks[block]]))
        return columns


def _written(
    marks: Iterable[Mark],
    generation: int,
    attempt: str,
    previous: str,
    older: Sequence[tuple[str, int]],
    aside: Sequence[Aside],
    hashes: Iterable[str],
    columns: Sequence[tuple[int, str]],
) -> tuple[str, bytes]:
    """Return the bytes of a body, and a label that follows from them."""
    states, tokens, paths, contents = bytearray(), bytearray(), bytearray(), bytearray()
    blocks = []
    remaining = iter(marks)
    while some := list(islice(remaining, _MARKS_IN_BLOCK)):
        states += bytes([_CODES[mark.state] for mark in some])
        tokens += b"".join([_token_to_find(mark) for mark in some])
        paths += b"".join([_digest(mark.path) for mark in some])
        contents += b"".join([_content_to_find(mark) for mark in some])
        blocks.append(_packed(some))
    header = {
        "generation": generation,
        "attempt": attempt,
        "previous": previous,
        "older": list(older),
        "aside": [[one.label, one.rows, one.generation] for one in aside],
        "hashes": sorted(hashes),
        "columns": list(columns),
        "count": len(states),
        "blocks": [len(block) for block in blocks],
    }
    head = json.dumps(header).encode()
    content = b"".join((_MAGIC, _LENGTH.pack(len(head)), head, states, tokens, paths, contents, *blocks))
    checksum = xxhash.xxh3_128_digest(content)
    return f"marks-{generation}-{attempt}-{checksum.hex()[:_HEX_IN_LABEL]}", content + checksum


def _token_to_find(mark: Mark) -> bytes:
    return _token(mark.path, mark.size, mark.mtime_ns) if mark.state in SETTLED else _NO_DIGEST


def _content_to_find(mark: Mark) -> bytes:
    return _digest(mark.content) if mark.content and mark.is_there else _NO_DIGEST


def _packed(marks: Sequence[Mark]) -> bytes:
    columns = [list(map(column, marks)) for column in _IN_BLOCK]
    return zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), level=1)


def _damaged(label: str) -> NotPublished:
    return NotPublished(
        f"The file marks {label} beside the table are damaged.",
        "Which files were taken in is not known without them, so nothing was taken in and nothing was published.",
        "Bring them back from a backup of the table's folder, or restore the table to a version before them.",
    )


def _newer(label: str) -> NotPublished:
    return NotPublished(
        f"The file marks {label} beside the table were written by a newer Twice.",
        "This one would misread which files were taken in, so nothing was published.",
        "Upgrade Twice here.",
    )


def _missing(label: str) -> Fenced:
    return Fenced(
        f"The file marks {label} are not beside the table any more.",
        "Which files were taken in is not known without them, so nothing was taken in and nothing was published.",
        "Run again; if they are still missing, bring them back from a backup of the table's folder.",
    )


# ---------------------------------------------------------------------------------------------------------- taken in


class Taken:
    """What a target has taken in, as the body with this label says; without a label it is nothing.

    `read` returns the body with a label, or None if it is not there. Bodies are read when they are needed.
    """

    def __init__(self, read: Callable[[str], bytes | None], label: str = "") -> None:
        self._read = read
        self.label = label

    @cached_property
    def _newest(self) -> Body | None:
        return self._body(self.label) if self.label else None

    @property
    def attempt(self) -> str:
        """The attempt whose publish it was that left it so, or nothing."""
        return self._newest.attempt if self._newest else ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all bodies that count, oldest first."""
        return (*(label for label, _ in self._newest.older), self.label) if self._newest else ()

    def history(self) -> Iterator[tuple[int, str]]:
        """Return generation and label of each publish's body, newest first."""
        label = self.label
        while label:
            body = self._newest if label == self.label else self._body(label)
            assert body is not None
            yield body.generation, label
            label = body.previous

    def at_generation(self, generation: int) -> Taken:
        """Return what had been taken in when the slot was at this generation."""
        if self._newest is None or self._newest.generation <= generation:
            return self
        label = next((label for number, label in self.history() if number <= generation), "")
        return Taken(self._read, label)

    @cached_property
    def knows(self) -> Callable[[str, int, int], bool]:
        """Tells of a path, a size and a time whether something is settled about that very file."""
        known, digest, pack = self._known, xxhash.xxh3_128_digest, _NUMBERS.pack

        def knows(path: str, size: int, mtime_ns: int) -> bool:
            try:  # as `_token` does: a call more for each of a million files is a tenth of a second
                return digest(path.encode() + pack(size, mtime_ns)) in known
            except (UnicodeEncodeError, struct.error):
                return _token(path, size, mtime_ns) in known

        return knows

    def unknown(self, entries: Iterable[Found]) -> Iterator[Found]:
        """Return those files about which nothing is settled, as they are now."""
        knows = self.knows
        return (entry for entry in entries if not knows(entry.path, entry.size, entry.mtime_ns))

    def by_path(self, paths: Iterable[str]) -> dict[str, Mark]:
        """Return the marks of those paths that have one."""
        wanted = {_digest(path) for path in paths}
        return {mark.path: mark for mark in self._chosen(lambda body: body.paths, wanted)}

    def by_content(self, contents: Iterable[str]) -> dict[str, Mark]:
        """Return for each content whose rows are in the table the mark of a file that brought them."""
        wanted = {_digest(content) for content in contents if content}
        return {mark.content: mark for mark in self._chosen(lambda body: body.contents, wanted)}

    def all(self, state: str | None = None) -> Iterator[Mark]:
        """Return all marks, or those in one state."""
        code = None if state is None else _CODES[state]
        for body, dead in self._layers:
            places = (place for place, held in enumerate(body.states) if code is None or held == code)
            yield from body.marks(place for place in places if place not in dead)

    def counts(self) -> Mapping[str, int]:
        """Return how many files are in each state."""
        counted: Counter[int] = Counter()
        for body, dead in self._layers:
            counted.update(body.states)
            counted.subtract(body.states[place] for place in dead)
        return {state: counted[code] for code, state in enumerate(STATES) if counted[code]}

    @property
    def aside(self) -> tuple[Aside, ...]:
        """The rows that were set aside and not read again since."""
        return self._newest.aside if self._newest else ()

    @property
    def hashes(self) -> frozenset[str]:
        """The algorithms by which contents are known."""
        return frozenset(self._newest.hashes if self._newest else ())

    def column_of(self, mark: Mark) -> str:
        """Return the column in which the rows of a file carry its path, or nothing if they do not."""
        columns = self._newest.columns if self._newest else ()
        return next((column for since, column in reversed(columns) if since <= mark.generation), "")

    def adding(
        self,
        marks: Iterable[Mark],
        generation: int,
        attempt: str,
        previous: str,
        aside: Sequence[Aside] = (),
        column: str = "",
    ) -> tuple[str, bytes]:
        """Return label and bytes of the body that a publish keeps: these marks, on top of what is known.

        `previous` is the label of the body of the publish before, whether or not it still counts. `aside` are all rows that
        are set aside from then on. `column` is where the rows that come carry their file.
        """
        fresh = {mark.path: mark for mark in marks}
        sizes = [(label, body.count) for label, (body, _) in zip(self.labels, self._layers, strict=True)]
        count, kept = len(fresh), len(sizes)
        while kept and sizes[kept - 1][1] <= _TIMES_LARGER * count:
            kept -= 1
            count += sizes[kept][1]
        hashes = self.hashes.union(mark.content.partition(":")[0] for mark in fresh.values() if mark.content)
        columns = self._newest.columns if self._newest else ()
        if column != (columns[-1][1] if columns else ""):
            columns = (*columns, (generation, column))
        return _written(self._with(fresh, kept), generation, attempt, previous, sizes[:kept], aside, hashes, columns)

    def _with(self, fresh: Mapping[str, Mark], kept: int) -> Iterator[Mark]:
        """Return the marks of all bodies that are not kept, and fresh ones in place of older ones of the same path."""
        merged = self._layers[kept:]
        newer = {_digest(path) for path in fresh} if merged else set()
        for body, dead in merged:
            replaced = dead.union(_places(body.paths, newer))
            yield from body.marks(place for place in range(body.count) if place not in replaced)
        yield from fresh.values()

    def _chosen(self, column: Callable[[Body], memoryview], wanted: set[bytes]) -> Iterator[Mark]:
        """Return the marks whose digest in a column is wanted."""
        for body, dead in self._layers if wanted else ():
            yield from body.marks(place for place in _places(column(body), wanted) if place not in dead)

    @cached_property
    def _known(self) -> set[bytes]:
        """The tokens of all files about which something is settled."""
        known: set[bytes] = set()
        for body, dead in self._layers:
            known.update(_each(body.tokens))
            known.difference_update(body.token(place) for place in dead)
        known.discard(_NO_DIGEST)
        return known

    @cached_property
    def _layers(self) -> list[tuple[Body, frozenset[int]]]:
        """All bodies that count, oldest first, each with the places of its marks that newer ones replace."""
        layers: list[tuple[Body, frozenset[int]]] = []
        newer: set[bytes] = set()
        for label in reversed(self.labels):
            body = self._newest if label == self.label else self._body(label)
            assert body is not None
            layers.append((body, frozenset(_places(body.paths, newer))))
            if len(layers) < len(self.labels):
                newer.update(_each(body.paths))
        return layers[::-1]

    def _body(self, label: str) -> Body:
        raw = self._read(label)
        if raw is None:
            raise _missing(label)
        return Body(label, raw)


def _places(digests: memoryview, wanted: set[bytes]) -> list[int]:
    """Return where some digests are, in rising order."""
    found = wanted.intersection(_each(digests)) if wanted else wanted
    return [place for place, digest in enumerate(_each(digests)) if digest in found] if found else []
