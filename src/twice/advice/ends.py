"""What is advised at each end of the tree, with which reasons, and with which lines to paste?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Way:
    """A pattern with the options of the example, and, for an alternative, how it differs from the advice."""

    pattern: str
    options: Mapping[str, Any] = field(default_factory=dict)
    difference: str = ""

    @property
    def code(self) -> str:
        """The pattern as it stands in a declaration."""
        said = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"twice.{self.pattern}({said})".replace("'", '"')


@dataclass(frozen=True)
class Advice:
    """A pattern for a situation.

    Attributes:
        situation: When it is given, in a few words.
        way: The pattern with the options of the example.
        why: Why it fits.
        cost: What it costs.
        not_protected: What goes wrong all the same, one sentence each.
        alternatives: Other ways, the nearest first.
        declaration: The lines to paste, with STORE and PATTERN to be filled in.
        store: The store of the lines, unless another is asked for.
    """

    situation: str
    way: Way
    why: str
    cost: str
    not_protected: tuple[str, ...]
    alternatives: tuple[Way, ...]
    declaration: str
    store: str = "delta"

    @property
    def pattern(self) -> str:
        """The name of the pattern."""
        return self.way.pattern

    def lines(self, way: Way | None = None, store: str | None = None) -> str:
        """Return a declaration to paste, with the advised pattern or another way."""
        return self.declaration.replace("STORE", store or self.store).replace("PATTERN", (way or self.way).code)


# ------------------------------------------------------------------ lines to paste

_VISITS = """import twice


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    source=twice.files(
        "landing/visits/{execution_date}.csv",
        schema="visit_id string, page string, day date",
    ),
    target="STORE:lake/visits",
    pattern=PATTERN,
)
def visits(rows, run):
    return rows
"""

_DEVICES = """import twice


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    source=twice.files(
        "landing/devices/{execution_date}.csv",
        schema="device_id string, name string, is_deleted boolean, day date",
    ),
    target="STORE:lake/devices",
    pattern=PATTERN,
)
def devices(rows, run):
    return rows
"""

_CATALOGUE = """import twice


@twice.pipeline(
    source=twice.files(
        "landing/devices/*.csv",
        schema="device_id string, name string",
    ),
    target="STORE:lake/devices",
    pattern=PATTERN,
)
def devices(rows, run):
    return rows
"""

_SALES = """import twice


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    sources={
        "shops": twice.files(
            "landing/shops/{execution_date}.csv",
            schema="sale_id string, amount int, day date",
        ),
        "web": twice.files(
            "landing/web/{execution_date}.csv",
            schema="sale_id string, amount int, day date",
        ),
    },
    target="STORE:lake/sales",
    pattern=PATTERN,
)
def sales(shops, web, run):
    return shops.unionByName(web)
"""

_ORDERS = """import twice


@twice.pipeline(
    # each file once, whenever it comes
    source=twice.files(
        "landing/orders/**/*.csv",
        schema="order_id string, amount int",
        track=True,
        file_column="source_file",
    ),
    target="STORE:lake/orders",
    pattern=PATTERN,
)
def orders(rows, run):
    return rows
"""

_CLICKS = """import twice


@twice.pipeline(
    every="1 hour",
    start="2024-10-07",
    # the stream as it has landed, hour by hour
    source=twice.files(
        "landing/clicks/{start:%Y-%m-%dT%H}/*.json",
        schema="click_id string, page string, landed_at timestamp",
    ),
    target="STORE:lake/clicks",
    pattern=PATTERN,
)
def clicks(rows, run):
    return rows
"""

# ------------------------------------------------------------------ the ends of the tree

_BY_DAY = {"slice": "day"}
_BY_HOUR = {"slice": "landed_at"}

ADVICE: dict[str, Advice] = {
    "versions": Advice(
        situation="every published version must stay",
        way=Way("proxy"),
        why="Each publish makes a new version that is never written again, and then points the one place where "
        "readers look at it. Going back is pointing at an older version.",
        cost="Each version is a whole copy, so the storage grows with every publish, until you limit it with keep=. "
        "Readers have to go through the one access point.",
        not_protected=(
            "A run that delivers changes or events: the transform has to build the whole table from all inputs.",
            "Somebody who deletes the files of an old version by hand.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                difference="replaces the table in one step; older versions stay only as long as the store keeps them",
            ),
        ),
        declaration=_CATALOGUE,
    ),
    "together": Advice(
        situation="several inputs that must appear together",
        way=Way("transactional_writer", {"lineage": "day"}),
        why="The rows of all inputs are written where no reader looks, and one transaction makes them visible "
        "together with the receipt. If one input fails, none is seen.",
        cost="The slowest input, or a bad one, holds back all others. Until the commit the rows take room twice.",
        not_protected=(
            "It adds rows: a slot is replaced only because its rows carry it, in the column that lineage= names.",
            "A table that is delivered whole in every slot: each slot would add one more copy.",
            "Duplicates inside the inputs.",
            "Calls to services outside the store: no transaction takes them back.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                _BY_DAY,
                "also publishes all rows of a run in one step, and replaces the slot's slice; it fits where one run "
                "fills one table",
            ),
        ),
        declaration=_SALES,
    ),
    "periods": Advice(
        situation="full dataset, with a metadata layer",
        way=Way("fast_metadata_cleaner", {"period": "week"}),
        why="Each period has a table of its own, and a view unites them. A period is replaced by making its table "
        "again, so no old row has to be looked for.",
        cost="One table for each period, and there is a limit to how many a catalog bears. Readers need the view. "
        "Running one slot again means replaying its whole period.",
        not_protected=(
            "A correction finer than the period: its other slots are run again as well, so their inputs must be kept.",
            "Readers that open a period's table instead of the view.",
            "Duplicates inside the input.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                _BY_DAY,
                "one table and no view; replaces the rows of one slot, which the store has to find and swap",
            ),
        ),
        declaration=_VISITS,
    ),
    "slices": Advice(
        situation="full dataset, on plain files or an object store",
        way=Way("data_overwrite", _BY_DAY),
        why="A run delivers all rows of its slot, so they replace the slot's old rows as a whole. A rerun can "
        "neither add to them nor leave half of them.",
        cost="All rows of the slot are written again, even if one has changed.",
        not_protected=(
            "Rows of other slots: what belongs to another day is refused, and needs that day to be run.",
            "Duplicates inside the input.",
        ),
        alternatives=(
            Way("data_overwrite", difference="without slice=, for a run that delivers the whole table"),
            Way("proxy", difference="keeps every older version, at the price of a whole copy each"),
            Way(
                "fast_metadata_cleaner",
                {"period": "week"},
                "replaces whole tables of a period, where a catalog makes this cheap",
            ),
        ),
        declaration=_VISITS,
        store="parquet",
    ),
    "changes": Advice(
        situation="increments with a key",
        way=Way("merger", {"keys": ["device_id"], "deleted": "is_deleted"}),
        why="The key tells which row a change belongs to. One MERGE updates, deletes and inserts in one step, and "
        "the same increment applied again gives the same rows.",
        cost="The store looks for the matching rows in the table and rewrites the files that hold them: more than "
        "an append, and more as the table grows.",
        not_protected=(
            "Backfills: an old increment run again puts old values over new ones, unless order= tells which is newer.",
            "A corrected increment: rows that it no longer holds stay in the table.",
            "Keys that change.",
        ),
        alternatives=(
            Way(
                "stateful_merger",
                {"keys": ["device_id"], "deleted": "is_deleted"},
                "also gets backfills and corrected increments right, by replaying what came after",
            ),
            Way(
                "data_overwrite",
                _BY_DAY,
                "keeps the changes of each day as rows of that day; readers have to take the newest row of each key",
            ),
        ),
        declaration=_DEVICES,
    ),
    "replayed changes": Advice(
        situation="increments with a key, and backfills",
        way=Way("stateful_merger", {"keys": ["device_id"], "deleted": "is_deleted"}),
        why="A slot that is run again starts from the table as it was before it, and the later slots are applied "
        "once more. So nothing of the older edition stays, and nothing newer is lost.",
        cost="Running an old slot again replays every slot from it to the newest. The inputs, and versions or a "
        "history of the table, have to be kept for as far back as you want to go.",
        not_protected=(
            "Slots whose versions and inputs are both gone: the plan says so, and nothing changes.",
            "Writes by others between the slots: a run refuses until it is told what to do with them.",
            "Keys that change.",
        ),
        alternatives=(
            Way(
                "merger",
                {"keys": ["device_id"], "deleted": "is_deleted"},
                "cheaper, and each slot is safe to run again at once; but an old slot run again later puts old values "
                "over new ones",
            ),
            Way(
                "data_overwrite",
                _BY_DAY,
                "keeps the changes of each day as rows of that day, so a backfill replaces that day alone; readers "
                "have to take the newest row of each key",
            ),
        ),
        declaration=_DEVICES,
    ),
    "changes without a key": Advice(
        situation="increments without a key",
        way=Way("data_overwrite", _BY_DAY),
        why="Without a key nothing tells which row a change belongs to. So each slot keeps the rows that it "
        "delivered, and running it again replaces exactly those.",
        cost="The table holds changes, not the present state: readers have to work that out. All rows of the slot "
        "are written again.",
        not_protected=(
            "Rows of earlier slots: a change stands beside the row that it changes.",
            "Duplicates inside the input.",
        ),
        alternatives=(
            Way(
                "transactional_writer",
                {"lineage": "day"},
                "adds the rows with a receipt; a corrected slot replaces the rows that carry it",
            ),
        ),
        declaration=_DEVICES,
    ),
    "events": Advice(
        situation="events with a key that must not repeat",
        way=Way("dedup_insert", {"keys": ["visit_id"]}),
        why="An event never changes, so a row whose key is there already is left out. An event that is delivered "
        "twice, by a rerun or by its sender, is there once.",
        cost="Each publish looks for the new keys in the table, or in the window that you let it look back.",
        not_protected=(
            "A correction: the row that came first stays.",
            "A repeat from before the window, if one is set.",
            "Keys that are made on delivery, of a clock or of a random number: every delivery looks new.",
        ),
        alternatives=(
            Way(
                "merger",
                {"keys": ["visit_id"]},
                "takes the newest delivery of an event instead of the first",
            ),
            Way(
                "data_overwrite",
                _BY_DAY,
                "a rerun of a day adds nothing; an event that is delivered again on another day is there twice",
            ),
        ),
        declaration=_VISITS,
    ),
    "events without a key": Advice(
        situation="events without a key",
        way=Way("transactional_writer"),
        why="Nothing in the rows tells two events apart, so only a receipt can. Rows and receipt are added in one "
        "transaction, and a slot whose receipt is there is skipped.",
        cost="Little: one append, and the table is not read.",
        not_protected=(
            "An event that is delivered in two slots is there twice.",
            "A corrected input is refused, unless lineage= names a column in which the rows carry their slot.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                _BY_DAY,
                "replaces the day's own rows, so a corrected input is taken; each row must carry its day",
            ),
        ),
        declaration=_VISITS,
    ),
    "files": Advice(
        situation="files that arrive in a folder, with a key in each row",
        way=Way("dedup_insert", {"keys": ["order_id"]}),
        why="With track=True the pipeline is an ingest: the table keeps a mark of each file that it has taken in, and a "
        "run takes in the others, however late they come. The key keeps out a row that two files hold.",
        cost="A run walks the folder, reads every new file once more for its hash, and looks for the new keys in the "
        "table. Runs of one ingest go one after the other.",
        not_protected=(
            "A correction: the row that came first stays.",
            "A file that is rewritten to the same size, and given its old time again: it is not looked into.",
            "Keys that are made on delivery, of a clock or of a random number: every delivery looks new.",
        ),
        alternatives=(
            Way("merger", {"keys": ["order_id"]}, "takes the newest delivery of a row instead of the first"),
            Way(
                "transactional_writer",
                difference="adds the rows of each file as they are, which is cheaper; a row that two files hold is "
                "there twice",
            ),
        ),
        declaration=_ORDERS,
    ),
    "files without a key": Advice(
        situation="files that arrive in a folder, without a key",
        way=Way("transactional_writer"),
        why="With track=True the pipeline is an ingest: the table keeps a mark of each file that it has taken in, and a "
        "run takes in the others, however late they come. Rows and marks appear in one publish.",
        cost="A run walks the folder and reads every new file once more for its hash. The table is not read. Runs of "
        "one ingest go one after the other.",
        not_protected=(
            "A row that stands in two files is there twice; a file with the content of another is skipped.",
            "A file that is rewritten to the same size, and given its old time again: it is not looked into.",
            "A file that was taken in and has other content now is refused, until on_changed_file= says what it means.",
        ),
        alternatives=(
            Way(
                "dedup_insert",
                {"keys": ["order_id", "amount"]},
                "takes all columns for the key, so that equal rows are there once, whichever files they stand in",
            ),
        ),
        declaration=_ORDERS,
    ),
    "stream together": Advice(
        situation="stream of several inputs that must appear together",
        way=Way("transactional_writer"),
        why="The rows of a batch and the receipt become visible in one transaction. If a batch fails half way, "
        "readers see nothing of it, and it is done again.",
        cost="Readers wait for the transaction: the larger the batch, the later. The table is not read.",
        not_protected=(
            "It adds rows: one that comes again under the same key, in another batch, is there twice.",
            "A corrected input is refused, unless lineage= names a column in which the rows carry their slot.",
            "Readers that also read what is not committed.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                _BY_HOUR,
                "also publishes all rows of a slot in one step, and replaces those that it published before; each "
                "row must carry the time at which it landed",
            ),
        ),
        declaration=_CLICKS,
    ),
    "stream": Advice(
        situation="stream with keys",
        way=Way("keyed", {"keys": ["click_id"]}),
        why="Each row is written under a key of properties that never change. However a replay cuts the batches, "
        "the same rows land in the same places.",
        cost="Every row is an update or an insert by key, which is more than an append. The last write of a key wins.",
        not_protected=(
            "Keys that depend on the arrival, the batch or the process: a replay makes new ones.",
            "Rows that a replay no longer delivers: they stay.",
            "A store without transactions: readers may see a part of a batch until it is done.",
        ),
        alternatives=(
            Way(
                "dedup_insert",
                {"keys": ["click_id"]},
                "keeps the first row of each key instead of the last",
            ),
            Way(
                "data_overwrite",
                _BY_HOUR,
                "replaces the rows that landed in the slot; a row that lands again in another slot is there twice",
            ),
        ),
        declaration=_CLICKS,
    ),
    "stream without a key": Advice(
        situation="stream without keys",
        way=Way("transactional_writer"),
        why="Nothing in the rows tells two of them apart, so only a receipt can. Rows and receipt are added in one "
        "transaction, and what has its receipt is not added again.",
        cost="Little: one append, and the table is not read.",
        not_protected=(
            "A row that its sender delivers twice is there twice.",
            "A corrected input is refused, unless lineage= names a column in which the rows carry their slot.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                _BY_HOUR,
                "replaces the rows that landed in the slot, so a corrected input is taken",
            ),
        ),
        declaration=_CLICKS,
    ),
}
