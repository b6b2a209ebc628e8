"""Names, files and rows that trip others: each is tried in a real ingest, and none is passed over without a word."""

import os
import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

import twice
from bad_inputs import SCHEMA, parquet_file
from bad_inputs_page import PAGE, page
from catalogue import (
    ASIDE,
    CASES,
    EVENTS,
    PATTERNS,
    REFUSED,
    ROW_ASIDE,
    TAKEN,
    WAITS,
    Case,
    good_csv,
    good_line,
)
from inboxes import LONG_AGO, Inbox
from twice.errors import Misuse, TwiceError
from twice.faults import armed
from twice.intakes import files_of
from twice.pipelines import pipeline
from twice.quarantine import rows_of
from worlds import once_at

pytestmark = pytest.mark.spark
ENDINGS = {"csv": "*.csv*", "json": "*.json", "parquet": "*.parquet"}
TOLERANT = {"rules": [twice.rule("amount >= 0")], "max_quarantined": "100%", "on_bad_file": "set_aside"}
BASE_ROWS = 1
SAID = {"published": TAKEN, "set aside": ASIDE, "seen": WAITS}


@dataclass
class Landing(Inbox):
    """A folder with files of one form."""

    form: str = "csv"

    @property
    def pipeline(self):
        source = twice.files(
            f"landing/**/{ENDINGS[self.form]}", schema=SCHEMA, format=self.form, track=True, **self.source
        )
        return pipeline(name=self.name, source=source, target="parquet:lake/inbox", pattern=self.pattern)(
            lambda rows: rows
        )

    def put(self, case: Case, number: int) -> str:
        """Put an input into a folder of its own, and return its path as files are told."""
        folder = self.folder / "landing" / str(number)
        folder.mkdir()
        name = os.fsdecode(case.name)
        case.put(folder / name, number)
        self.age(folder, number)
        return f"landing/{number}/{name}"

    def age(self, folder, number: int) -> None:
        """Let files look as if they had been there for a while: young ones are looked at twice, which takes its time."""
        for entry in os.scandir(folder):
            if entry.is_file(follow_symlinks=False) and entry.stat().st_mtime < time.time():
                os.utime(entry.path, (LONG_AGO + number, LONG_AGO + number))

    def remove(self, path: str) -> None:
        shutil.rmtree((self.folder / path).parent)

    def put_base(self) -> None:
        """A file that nothing is wrong with."""
        path = self.folder / "landing" / f"base.{self.form}"
        if self.form == "parquet":
            parquet_file(path, BASE_ROWS)
        elif self.form == "csv":
            good_csv(path, 0)
        else:
            path.write_bytes(b'{"id": 0}\n')

    def told(self) -> dict[str, tuple[str, str]]:
        """Return what `twice files` and `twice quarantine` say of each path."""
        told = {
            mark.path: (SAID.get(mark.state, mark.state), mark.reason) for mark in files_of(self.project, self.pipeline)
        }
        receipt = self.sight().receipt(self.pipeline.slot().text)
        rows = list(rows_of(self.store, self.target, receipt.aside)) if receipt else []
        return told | {row.file: (ROW_ASIDE, row.reason) for row in reversed(rows)}

    def there(self):
        """What must not change when a run is refused."""
        files = {name: (self.table() / name).stat().st_mtime_ns for name in self.all_files()}
        return self.sight().version, files, self.marks()


@pytest.fixture
def landing(spark, tmp_path, monkeypatch):
    """Return a maker of folders, with the working folder set so that sockets have short names."""
    monkeypatch.chdir(tmp_path)

    def make(form, **source):
        made = Landing(tmp_path / f"{form}{len(list(tmp_path.iterdir()))}", "parquet", spark, form=form, source=source)
        made.put_base()
        made.age(made.folder / "landing", 0)
        return made

    return make


def numbered(form):
    """Return the inputs of one form, each with a number that makes its rows its own."""
    return [(number, case) for number, case in enumerate(CASES, 100) if case.form == form]


def show(case, mode, got):
    state, words = got
    shown = words if len(words) < 150 else words[:149] + "…"
    print(f"| {case.kind:5} | {case.what:40} | {mode:8} | {state:13} | {shown} |")


def faults_of(error, path):
    """Say what is wrong with a message: it names the input and the next move, and shows no trace."""
    text = str(error)
    faults = [sign for sign in ("Traceback", "\tat ", "py4j.", "Py4J") if sign in text]
    if path not in text and repr(path)[1:-1] not in text:
        faults.append(f"{path} is not named")
    return faults + ([] if error.fix else ["no fix"])


@pytest.mark.parametrize("form", ENDINGS)
def test_where_bad_ones_may_be_set_aside_each_is_taken_in_set_aside_or_waits(landing, form):
    inbox = landing(form, **TOLERANT)
    cases = {inbox.put(case, number): case for number, case in numbered(form)}
    outcome = inbox.run()
    told = inbox.told()
    for path, case in cases.items():
        show(case, "tolerant", told.get(path, ("NOTHING", "")))
    wrong = {
        case.what: told.get(path)
        for path, case in cases.items()
        if path not in told or told[path][0] != case.tolerant.state or case.tolerant.words not in told[path][1]
    }
    assert wrong == {}
    expected = BASE_ROWS + sum(case.rows for case in cases.values() if case.tolerant.state in (TAKEN, ROW_ASIDE))
    assert outcome.parsed == outcome.rows + outcome.quarantined
    assert outcome.parsed == expected + loops(cases)
    assert len(inbox.records()) == outcome.rows
    assert inbox.run().state == "skipped"


def loops(cases):
    """Files that lie beside an input that is left there."""
    return sum(case.rows for case in cases.values() if case.tolerant.state == WAITS and case.name == "loop")


@pytest.mark.parametrize("form", ENDINGS)
def test_where_none_may_be_each_is_refused_by_name_or_simply_works(landing, form):
    inbox = landing(form)
    inbox.run()
    before = inbox.there()
    wrong = {}
    for number, case in numbered(form):
        if case.strict.state != REFUSED:
            continue
        path = inbox.put(case, number)
        try:
            outcome = inbox.run()
        except TwiceError as error:
            show(case, "strict", (REFUSED, error.what))
            if case.strict.words not in error.what or faults_of(error, path):
                wrong[case.what] = (faults_of(error, path), str(error))
        else:
            show(case, "strict", (outcome.state, ""))
            wrong[case.what] = outcome
        if inbox.there() != before:
            wrong[case.what] = "the target changed"
            before = inbox.there()
        inbox.remove(path)
    assert wrong == {}
    cases = {inbox.put(case, number): case for number, case in numbered(form) if case.strict.state != REFUSED}
    if not cases:
        return
    outcome = inbox.run()
    told = inbox.told()
    for path, case in cases.items():
        show(case, "strict", told.get(path, ("NOTHING", "")))
        if path not in told or told[path][0] != case.strict.state or case.strict.words not in told[path][1]:
            wrong[case.what] = told.get(path)
    assert wrong == {}
    taken = sum(case.rows for case in cases.values() if case.strict.state == TAKEN)
    assert outcome.rows == taken + loops(cases) + more_of_a_list(cases)
    rows = inbox.records()
    assert len(rows) == BASE_ROWS + outcome.rows
    if form == "csv":
        assert {"a,b", '5" pipe', "x" * 200_000} < {row["name"] for row in rows}


def more_of_a_list(cases):
    """Where rows are not judged one by one, Spark gives a row for each object of a list."""
    return sum(case.what == "JSON: a list" for case in cases.values())


# ---------------------------------------------------------------------------------- patterns, and what happens meanwhile


@pytest.mark.parametrize(("number", "declared"), list(enumerate(PATTERNS)), ids=lambda given: str(given)[:20])
def test_a_pattern_leads_where_it_says_or_is_refused(landing, tmp_path, number, declared):
    what, pattern, got = declared
    inbox = landing("csv")
    (tmp_path / f"beside-{number}").mkdir()
    good_csv(tmp_path / f"beside-{number}" / "x.csv", number)
    pattern = pattern.format(number, root=tmp_path)
    if got.state == REFUSED:
        with pytest.raises(Misuse) as raised:
            twice.files(pattern, schema=SCHEMA, track=True)
        assert faults_of(raised.value, pattern) == []
        assert got.words in raised.value.what
        return
    source = twice.files(pattern, schema=SCHEMA, track=True)
    declared = pipeline(name="inbox", source=source, target="parquet:lake/inbox", pattern=inbox.pattern)(
        lambda rows: rows
    )
    assert twice.run(declared, project=inbox.project).rows == 1
    print(f"| names | {what} | both | {got.state} |")


@pytest.mark.parametrize("mode", [{}, TOLERANT], ids=["strict", "tolerant"])
def test_what_happens_to_files_meanwhile_is_noticed(landing, mode):
    inbox = landing("csv", **mode)
    folder = inbox.folder / "landing"
    (folder / "two").mkdir()
    good_csv(folder / "a.csv", 1)
    shutil.copy(folder / "a.csv", folder / "two/a.csv")
    shutil.copy(folder / "base.csv", folder / "new.csv")
    for number, name in enumerate(("base.csv", "a.csv", "two/a.csv", "new.csv")):
        os.utime(folder / name, (number, number))
    got = {}
    with growing(folder / "growing.csv"):
        outcome = inbox.run()
    assert outcome.rows == BASE_ROWS + 1
    told = inbox.told()
    (folder / "growing.csv").unlink()
    got["still being written"] = told["landing/growing.csv"]
    got["the same file in two folders"] = told["landing/two/a.csv"]
    got["a new name, the same content"] = told["landing/new.csv"]
    before = inbox.there()

    good_csv(folder / "a.csv", 2)
    got["the same name, new content"] = refused(inbox, "landing/a.csv", before)
    good_csv(folder / "a.csv", 1)

    path = folder / "vanishing.csv"
    good_csv(path, 3)
    with armed(once_at("stage.before", path.unlink)):
        got["vanishes while it is read"] = refused(inbox, "vanishing.csv", before)

    good_csv(folder / "replaced.csv", 4)
    with armed(once_at("stage.after", lambda: good_csv(folder / "replaced.csv", 55))):
        got["replaced while it is read"] = refused(inbox, "replaced.csv", before)
    for what, found in got.items():
        print(f"| files | {what:40} | {'tolerant' if mode else 'strict':8} | {found[0]:13} | {found[1][:150]} |")
    assert got.keys() == EVENTS.keys()
    assert {what: found for what, found in got.items() if not fits(found, EVENTS[what])} == {}
    assert inbox.run().rows == 1
    assert sorted(row["id"] for row in inbox.records()) == [0, 1, 55]


def fits(found, expected):
    return found[0] == expected.state and expected.words in found[1]


def refused(inbox, path, before):
    with pytest.raises(TwiceError) as raised:
        inbox.run()
    assert faults_of(raised.value, path) == [], raised.value
    assert inbox.there() == before
    return REFUSED, raised.value.what


@contextmanager
def growing(path):
    """Let a file grow until the block ends."""
    stop = threading.Event()

    def grow():
        number = 1000
        while not stop.is_set():
            number += 1
            with path.open("ab") as file:
                file.write(good_line(number) + b"\n")
            time.sleep(0.02)

    good_csv(path, 1000)
    writer = threading.Thread(target=grow)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def test_the_page_says_what_each_got():
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python tests/bad_inputs_page.py"
