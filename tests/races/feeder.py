"""A process that fills a folder as the world does: in place, by renames, anew, twice, cut short, and takes files away again.

Before a content can be seen it is written to a log of editions, so that whoever looks later knows the rows of every content
that there ever was. What it does follows from its seed; when it is done depends on the machine.
"""

import gzip
import json
import os
import random
import sys
import time
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

import xxhash

NAMES = 24
MOST_ROWS = 30
WRONG = "this is no JSON"


@dataclass(frozen=True)
class Edition:
    """What one content is worth: ids of its good rows, and how many bad ones; a bad file has none of both."""

    content: str
    good: tuple[str, ...]
    wrong: int
    is_bad_file: bool


def edition_of(name: str, raw: bytes) -> Edition:
    """Tell what is in a content, in other words than the product."""
    content = f"xxh3:{xxhash.xxh3_128_hexdigest(raw)}"
    try:
        text = gzip.decompress(raw) if name.endswith(".gz") else raw
        if (name.endswith(".gz") and not raw) or text.startswith(b"\x1f\x8b"):
            return Edition(content, (), 0, is_bad_file=True)
    except (EOFError, OSError, zlib.error):
        return Edition(content, (), 0, is_bad_file=True)
    good, wrong = [], 0
    for line in text.decode().splitlines():
        try:
            good.append(json.loads(line)["id"])
        except ValueError:
            wrong += 1
    return Edition(content, tuple(good), wrong, is_bad_file=False)


class Feeder:
    """Hands that put files into a folder, in every way but the good one."""

    def __init__(self, folder: Path, seed: int, *, bad_rows: bool, slowly: float = 1.0):
        self.landing, self.outbox = folder / "landing", folder / "outbox"
        for one in (self.landing, self.outbox):
            one.mkdir(parents=True, exist_ok=True)
        self.log = (folder / "editions.jsonl").open("a")
        self.chance = random.Random(seed)
        self.bad_rows = bad_rows
        self.slowly = slowly
        self.rows = 0
        self.names = [f"part-{number:02}.jsonl{'.gz' if number % 3 == 0 else ''}" for number in range(NAMES)]
        self.acts = (
            (5, self.write_in_place),
            (5, self.rename_in),
            (3, self.rewrite),
            (2, self.append),
            (2, self.delete),
            (3, self.send_twice),
            (3, self.truncate),
            (1, self.empty),
            (1, self.disguise),
            (2, self.move),
            (1, self.swap),
            (1, self.touch),
        )

    def feed(self, seconds: float) -> int:
        """Do one thing after the other, and return how many were done."""
        until, done = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            self.act()
            done += 1
            time.sleep(self.slowly * self.chance.choice((0.0, 0.0, 0.02, 0.1, 0.3)))
        return done

    def act(self) -> None:
        """Do one thing."""
        weights, acts = zip(*self.acts, strict=True)
        self.chance.choices(acts, weights)[0]()

    # ---------------------------------------------------------------- what is written

    def content(self, name: str) -> bytes:
        lines = []
        for _ in range(self.chance.randrange(1, MOST_ROWS)):
            self.rows += 1
            lines.append(json.dumps({"id": f"row-{self.rows:06}", "n": self.rows}))
        if self.bad_rows and self.chance.random() < 0.3:
            lines.insert(self.chance.randrange(len(lines) + 1), f"{WRONG} {self.rows}")
        return packed(name, "".join(line + "\n" for line in lines).encode())

    def announce(self, path: Path, raw: bytes) -> None:
        """Write down what is about to be seen."""
        self.log.write(json.dumps(asdict(edition_of(path.name, raw))) + "\n")
        self.log.flush()

    def anywhere(self) -> Path:
        return self.landing / self.chance.choice(self.names)

    def somewhere(self) -> Path | None:
        there = sorted(self.landing.iterdir())
        return self.chance.choice(there) if there else None

    def like(self, other: Path) -> Path:
        """Return a name for what is packed like another file."""
        return self.landing / self.chance.choice([one for one in self.names if Path(one).suffix == other.suffix])

    def in_pieces(self, path: Path, before: bytes, added: bytes, *, anew: bool) -> None:
        """Write slowly, so that others see what is half written; plain lines are cut only where bad rows may be."""
        lines = added.splitlines(keepends=True) if path.suffix == ".jsonl" and not self.bad_rows else None
        cut = self.chance.randrange(len(lines or added) + 1)
        first = b"".join(lines[:cut]) if lines else added[:cut]
        if anew:
            self.announce(path, b"")
        with path.open("wb" if anew else "ab", buffering=0) as file:
            for piece, state in ((first, before + first), (added[len(first) :], before + added)):
                self.announce(path, state)
                file.write(piece)
                time.sleep(min(self.slowly, 1.0) * self.chance.choice((0.0, 0.0, 0.02, 0.1, 0.7)))

    def rename_over(self, path: Path, raw: bytes) -> None:
        self.announce(path, raw)
        (self.outbox / path.name).write_bytes(raw)
        os.replace(self.outbox / path.name, path)

    # ---------------------------------------------------------------- what is done

    def write_in_place(self) -> None:
        path = self.anywhere()
        self.in_pieces(path, b"", self.content(path.name), anew=True)

    def rename_in(self) -> None:
        path = self.anywhere()
        self.rename_over(path, self.content(path.name))

    def rewrite(self) -> None:
        path = self.somewhere()
        if path:
            self.in_pieces(path, b"", self.content(path.name), anew=True)

    def append(self) -> None:
        path = self.somewhere()
        before = path.read_bytes() if path else b""
        if path and (not before or before.endswith(b"\n") or path.suffix == ".gz"):
            self.in_pieces(path, before, self.content(path.name), anew=False)

    def delete(self) -> None:
        path = self.somewhere()
        if path:
            path.unlink()

    def send_twice(self) -> None:
        path = self.somewhere()
        if path:
            self.rename_over(self.like(path), path.read_bytes())

    def truncate(self) -> None:
        path = self.somewhere()
        if not path:
            return
        raw = path.read_bytes()
        size = self.chance.randrange(len(raw) + 1)
        if path.suffix == ".jsonl" and not self.bad_rows:
            size = raw.rfind(b"\n", 0, size) + 1
        self.announce(path, raw[:size])
        os.truncate(path, size)

    def empty(self) -> None:
        path = self.somewhere()
        if path:
            self.announce(path, b"")
            os.truncate(path, 0)

    def disguise(self) -> None:
        path = self.anywhere()
        self.rename_over(path, gzip.compress(self.content("packed.gz")))

    def move(self) -> None:
        path = self.somewhere()
        if path:
            os.replace(path, self.like(path))

    def swap(self) -> None:
        one, other = self.somewhere(), self.somewhere()
        if one and other and one != other and one.suffix == other.suffix:
            os.replace(one, self.outbox / "swapped")
            os.replace(other, one)
            os.replace(self.outbox / "swapped", other)

    def touch(self) -> None:
        path = self.somewhere()
        if path:
            os.utime(path)


def packed(name: str, text: bytes) -> bytes:
    return gzip.compress(text, mtime=0) if name.endswith(".gz") else text


if __name__ == "__main__":
    given = dict(zip(("folder", "seed", "seconds", "rows", "slowly"), sys.argv[1:], strict=True))
    feeder = Feeder(
        Path(given["folder"]),
        int(given["seed"]),
        bad_rows=given["rows"] == "bad rows",
        slowly=float(given["slowly"]),
    )
    print(feeder.feed(float(given["seconds"])))
