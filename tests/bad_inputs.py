"""Bad files and bad rows as data: what is put there, and what is said of it."""

import gzip
import os
import random
import socket
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

SCHEMA = "id bigint not null, name string, amount decimal(5,2), day date"
COLUMNS = "id,name,amount,day"
GOOD = "1,a,1.50,2024-09-20"
GOOD_FILE = f"{COLUMNS}\n{GOOD}\n".encode()


@dataclass(frozen=True)
class BadFile:
    """One file that cannot be used: its name, how it is made, and the words that are said of it."""

    what: str
    name: str
    content: bytes | Callable[[Path], Any]
    words: str

    def put(self, folder: Path) -> str:
        """Make it in a folder, and return its name."""
        if callable(self.content):
            self.content(folder / self.name)
        else:
            (folder / self.name).write_bytes(self.content)
        return self.name


@dataclass(frozen=True)
class BadRow:
    """One line that cannot be used, and the reason that is told with it."""

    what: str
    form: str
    line: bytes
    reason: str


def parquet_file(path: Path, rows: int = 10_000) -> bytes:
    """Write a Parquet file with the columns of the schema, and return its bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table(
        {
            "id": pa.array(range(rows)),
            "name": pa.array(["a"] * rows),
            "amount": pa.array([Decimal(1)] * rows, pa.decimal128(5, 2)),
            "day": pa.array([20_000] * rows, pa.int32()).cast(pa.date32()),
        }
    )
    parquet.write_table(table, path)
    return path.read_bytes()


def _changed(change: Callable[[bytes], bytes]) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(change(parquet_file(path)))


def _damaged_footer(content: bytes) -> bytes:
    length = int.from_bytes(content[-8:-4], "little")
    return content[: -8 - length] + b"\xff" * length + content[-8:]


def _long_footer(content: bytes) -> bytes:
    return content[:-8] + (1 << 30).to_bytes(4, "little") + content[-4:]


def _bomb(path: Path) -> None:
    with gzip.open(path, "wb") as file:
        file.write(COLUMNS.encode() + b"\n")
        for _ in range(80):
            file.write((b"1" * 1023 + b"\n") * 1024)


def _zip(name: str, content: bytes) -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, content)
    return made.getvalue()


def _tar(name: str, content: bytes) -> bytes:
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, BytesIO(content))
    return made.getvalue()


def _sparse(path: Path) -> None:
    path.write_bytes(GOOD_FILE)
    os.truncate(path, 1 << 40)


def _socket(path: Path) -> None:
    """A socket has a short path, so it is made by its name alone."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def _packed_many() -> bytes:
    rows = random.Random(7).randbytes(30_000).hex()
    return gzip.compress(f"{COLUMNS}\n{rows}\n".encode(), mtime=0)


BAD_FILES = (
    BadFile("zero-byte Parquet", "x.parquet", b"", "is empty, which is not a Parquet file"),
    BadFile("cut Parquet", "x.parquet", _changed(lambda content: content[:-100]), "is not a whole Parquet file"),
    BadFile("Parquet cut at its first bytes", "x.parquet", b"PAR1PAR1", "is not a whole Parquet file"),
    BadFile("damaged footer", "x.parquet", _changed(_damaged_footer), "is not a whole Parquet file"),
    BadFile("footer longer than the file", "x.parquet", _changed(_long_footer), "is not a whole Parquet file"),
    BadFile("wrong magic", "x.parquet", _changed(lambda content: b"XXXX" + content[4:]), "is not a whole Parquet file"),
    BadFile("encrypted Parquet", "x.parquet", _changed(lambda c: b"PARE" + c[4:-4] + b"PARE"), "is encrypted"),
    BadFile("CSV called Parquet", "x.parquet", GOOD_FILE, "is not a whole Parquet file"),
    BadFile("Parquet called CSV", "x.csv", parquet_file, "is Parquet, and not text"),
    BadFile("zero-byte gzip", "x.csv.gz", b"", "is empty, which is not a gzip file"),
    BadFile("cut gzip", "x.csv.gz", _packed_many()[:-20], "cannot be read to its end"),
    BadFile("gzip cut in its header", "x.csv.gz", gzip.compress(GOOD_FILE, mtime=0)[:12], "cannot be read as CSV"),
    BadFile("gzip with a wrong sum", "x.csv.gz", _packed_many()[:-8] + bytes(8), "cannot be read to its end"),
    BadFile("text called gzip", "x.csv.gz", GOOD_FILE, "cannot be read as CSV: Not a gzipped file"),
    BadFile("gzip called text", "x.csv", gzip.compress(GOOD_FILE, mtime=0), "is gzip, and not text"),
    BadFile(
        "gzip in gzip",
        "x.csv.gz",
        gzip.compress(gzip.compress(GOOD_FILE, mtime=0), mtime=0),
        "is gzip once it is unpacked",
    ),
    BadFile("zip called CSV", "x.csv", _zip("a.csv", GOOD_FILE), "is a zip archive, and not text"),
    BadFile(
        "tar in gzip",
        "x.csv.gz",
        gzip.compress(_tar("a.csv", GOOD_FILE), mtime=0),
        "is a tar archive once it is unpacked",
    ),
    BadFile("gzip bomb", "x.csv.gz", _bomb, "unpacks to more than 67,108,864 bytes"),
    BadFile("sparse 1 TiB", "x.csv", _sparse, "says that it has 1,099,511,627,776 bytes and takes"),
    BadFile("folder named x.csv", "x.csv", Path.mkdir, "is a folder"),
    BadFile("FIFO", "x.csv", os.mkfifo, "is not a regular file"),
    BadFile("socket", "x.csv", _socket, "is not a regular file"),
    BadFile("link to a device", "x.csv", lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    BadFile("link to nothing", "x.csv", lambda path: path.symlink_to("gone"), "cannot be looked at"),
    BadFile("link to itself", "x.csv", lambda path: path.symlink_to("x.csv"), "cannot be looked at"),
    BadFile("unreadable", "x.csv", lambda path: path.symlink_to("/proc/self/mem"), "cannot be read"),
    BadFile("header repeated", "x.csv", GOOD_FILE * 2, "has its header again in line 3"),
    BadFile("header in another order", "x.csv", b"name,id,amount,day\n", "has its columns in another order"),
    BadFile("header lacks a column", "x.csv", b"id,name,amount\n", "has another header than the schema"),
    BadFile("header that is no text", "x.csv", b"id,na\xffme,amount,day\n", "its header is not UTF-8"),
)

BAD_ROWS = (
    BadRow("too few fields", "csv", b"1,a", "2 fields instead of 4"),
    BadRow("too many fields", "csv", GOOD.encode() + b",9", "5 fields instead of 4"),
    BadRow("bad type", "csv", b"one,a,1.50,2024-09-20", "id = 'one' is no bigint"),
    BadRow("two bad types", "csv", b"one,a,x,2024-09-20", "id = 'one' is no bigint; amount = 'x' is no decimal(5,2)"),
    BadRow("no such day", "csv", b"1,a,1.50,2024-09-31", "day = '2024-09-31' is no date"),
    BadRow(
        "overflow of an integer",
        "csv",
        b"99999999999999999999,a,1,2024-09-20",
        "id = '99999999999999999999' is no bigint",
    ),
    BadRow("overflow of a decimal", "csv", b"1,a,12345.00,2024-09-20", "amount = '12345.00' is no decimal(5,2)"),
    BadRow("a comma in a decimal", "csv", b'1,a,"1,50",2024-09-20', "amount = '1,50' is no decimal(5,2)"),
    BadRow("groups in a decimal", "csv", b'1,a,"1.234,50",2024-09-20', "amount = '1.234,50' is no decimal(5,2)"),
    BadRow("a decimal with too many digits", "csv", b"1,a,1.239,2024-09-20", "amount = '1.239' is no decimal(5,2)"),
    BadRow("a decimal behind a blank", "csv", b"1,a, 1.50,2024-09-20", "amount = ' 1.50' is no decimal(5,2)"),
    BadRow("an integer with a fraction", "csv", b"1.0,a,1.50,2024-09-20", "id = '1.0' is no bigint"),
    BadRow("words behind a day", "csv", b"1,a,1.50,2024-09-01 extra", "day = '2024-09-01 extra' is no date"),
    BadRow("a time behind a day", "csv", b"1,a,1.50,2024-09-01 00:00:00", "day = '2024-09-01 00:00:00' is no date"),
    BadRow("a year as a day", "csv", b"1,a,1.50,2024", "day = '2024' is no date"),
    BadRow("a quote that is not doubled", "csv", b'1,"a"b",1.50,2024-09-20', "has a quotation mark inside of a field"),
    BadRow("a quote behind a backslash", "csv", b'1,"a\\"b",1.50,2024-09-20', "has a quotation mark inside of a field"),
    BadRow("null key", "csv", b",a,1.50,2024-09-20", "id is NULL"),
    BadRow("broken rule", "csv", b"1,a,-1.50,2024-09-20", "breaks the rule: amount >= 0"),
    BadRow("null key and broken rule", "csv", b",a,-1.50,2024-09-20", "id is NULL; breaks the rule: amount >= 0"),
    BadRow("quote never closed", "csv", b'1,"a,1.50,2024-09-20', "a quotation mark is never closed"),
    BadRow("quote never closed in the last field", "csv", b'1,a,1.50,"2024-09-20', "a quotation mark is never closed"),
    BadRow("NUL", "csv", b"1,a\0b,1.50,2024-09-20", "holds a NUL character"),
    BadRow("not UTF-8", "csv", b"1,\xff,1.50,2024-09-20", "bytes that are not UTF-8: 0xff at position 3"),
    BadRow(
        "a surrogate in UTF-8", "csv", b"1,\xed\xa0\x80,1,2024-09-20", "bytes that are not UTF-8: 0xed at position 3"
    ),
    BadRow("30 000 fields", "csv", b",".join([b"1"] * 30_000), "has more fields than Spark reads of one line"),
    BadRow("cut line", "json", b'{"id": 1, "name": "a', "not a whole JSON object: unterminated string"),
    BadRow("bad type", "json", b'{"id": "one"}', "id = 'one' is no bigint"),
    BadRow("overflow", "json", b'{"id": 99999999999999999999}', "id = 99999999999999999999 is no bigint"),
    BadRow("a fraction", "json", b'{"id": 1.5}', "id = 1.5 is no bigint"),
    BadRow(
        "a decimal with too many digits", "json", b'{"id": 1, "amount": 1.239}', "amount = 1.239 is no decimal(5,2)"
    ),
    BadRow("a comma in a decimal", "json", b'{"id": 1, "amount": "1,50"}', "amount = '1,50' is no decimal(5,2)"),
    BadRow("a year as a day", "json", b'{"id": 1, "day": "2024"}', "day = '2024' is no date"),
    BadRow("a number as a day", "json", b'{"id": 1, "day": 20240901}', "day = 20240901 is no date"),
    BadRow("null key", "json", b'{"id": null}', "id is NULL"),
    BadRow("no key", "json", b'{"name": "a"}', "id is NULL"),
    BadRow("broken rule", "json", b'{"id": 1, "amount": -1}', "breaks the rule: amount >= 0"),
    BadRow("duplicate keys", "json", b'{"id": 1, "id": 2}', "has a key twice: 'id'"),
    BadRow("duplicate keys inside", "json", b'{"id": 1, "x": {"a": 1, "a": 2}}', "has a key twice: 'a'"),
    BadRow(
        "a key in another case", "json", b'{"id": 1, "Name": "a"}', "has the key 'Name', which the schema declares in"
    ),
    BadRow("two objects", "json", b'{"id": 1}{"id": 2}', "has more than one JSON object on the line"),
    BadRow("two objects and a comma", "json", b'{"id": 1}, {"id": 2}', "has more than one JSON object on the line"),
    BadRow("words behind the object", "json", b'{"id": 1} x', "has more than one JSON object on the line"),
    BadRow("a list", "json", b'[{"id": 1}, {"id": 2}]', "[{'id': 1}, {'id': 2}] is no JSON object"),
    BadRow("a number", "json", b"5", "5 is no JSON object"),
    BadRow("null", "json", b"null", "None is no JSON object"),
    BadRow("lone surrogate", "json", b'{"id": 1, "name": "\\ud800"}', "holds half of a surrogate pair"),
    BadRow("NUL", "json", b"\0", "not a whole JSON object"),
    BadRow("not UTF-8", "json", b'{"id": 1, "name": "\xff"}', "bytes that are not UTF-8: 0xff at position 20"),
)

GOOD_ROWS = (
    BadRow("a field of 200 000 bytes", "csv", b"1," + b"x" * 200_000 + b",1.50,2024-09-20", ""),
    BadRow("a quote inside a field", "csv", b'1,5" pipe,1.50,2024-09-20', ""),
    BadRow("a doubled quote inside a field", "csv", b'1,"5"" pipe",1.50,2024-09-20', ""),
    BadRow("an empty text", "csv", b'1,"",1.50,2024-09-20', ""),
    BadRow("every field in quotes", "csv", b'"1","","",""', ""),
    BadRow("digits that say nothing", "csv", b"+1,a,1.5000,2024-9-1", ""),
    BadRow("a decimal with an exponent", "csv", b"1,a,1.5e1,2024-09-20", ""),
    BadRow("a comma inside quotes", "csv", b'1,"a,b",1.50,2024-09-20', ""),
    BadRow("no value where none is asked for", "csv", b"1,,,", ""),
    BadRow("a pair of surrogates", "json", b'{"id": 1, "name": "\\ud83d\\ude00"}', ""),
    BadRow("a backslash before ud800", "json", b'{"id": 1, "name": "\\\\ud800"}', ""),
    BadRow("a decimal as a text", "json", b'{"id": 1, "amount": "1.50"}', ""),
    BadRow("numbers inside a text", "json", b'{"id": 1, "name": "a,1.5,{\\"b\\":2.50}", "amount": 1.5000}', ""),
    BadRow("braces inside a text", "json", b'{"id": 1, "name": "}x{"}', ""),
    BadRow("a declared name as a value", "json", b'{"id": 1, "name": "ID"}', ""),
    BadRow("another case in what is not declared", "json", b'{"id": 1, "x": {"ID": 1}}', ""),
    BadRow("an object inside", "json", b'{"id": 1, "x": {"a": 1}, "name": "a"}', ""),
)
